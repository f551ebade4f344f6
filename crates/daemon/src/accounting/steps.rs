//! Jobs that were read, while slurmdbd is asked what their steps have used.

use std::collections::{BTreeMap, BTreeSet};

use slurm_points::finished::{FinishedLedger, FinishedRound, HOUR, StartedJob};
use slurm_snapshot::{Finished, Request, Used, add_to};

use super::FORGOTTEN_AFTER;
use super::plan::{AHEAD, Plan};

/// Largest number of jobs in one request for their steps. Each job is a query of its own to
/// slurmdbd's database, with any number of steps.
pub(super) const MOST_JOBS: usize = 1000;

/// Number of failed requests for steps, with neither a whole round nor an hour between two of them,
/// after which the next one that fails is given up for all its jobs. A user's array may have
/// thousands of jobs whose steps cannot be had.
const MOST_FAILURES: u32 = 20;

/// Jobs that were in a request for steps that failed.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// By job: how many jobs a request with it may be for, and when one failed last, Unix seconds.
    /// 0: its steps are given up.
    jobs: BTreeMap<u64, (usize, i64)>,
    /// Number of requests that have failed, and when the last one did, Unix seconds.
    failures: (u32, i64),
}

impl Suspects {
    /// Forgets jobs for which no request has failed for some hours: they have counted.
    pub(super) fn forget(&mut self, now: i64) {
        self.jobs.retain(|_, (_, at)| now.saturating_sub(*at) < FORGOTTEN_AFTER);
        if now.saturating_sub(self.failures.1) >= HOUR {
            self.note_whole();
        }
    }

    /// Takes that a round was whole: what has failed before holds up nothing.
    pub(super) const fn note_whole(&mut self) {
        self.failures.0 = 0;
    }

    fn most(&self, job: &StartedJob) -> usize {
        self.jobs.get(&job.id).map_or(MOST_JOBS, |(most, _)| *most)
    }

    /// Notes that a request has failed. A single job is given up only if one with it has failed
    /// before, because slurmdbd may have been away; if `is_refused`, it would be refused again.
    fn note_failure(&mut self, requested: &[StartedJob], is_refused: bool, now: i64) {
        if !is_refused {
            self.failures = (self.failures.0.saturating_add(1), now);
        }
        let is_over = self.failures.0 > MOST_FAILURES;
        for job in requested {
            let most = match requested.len() / 2 {
                _ if is_over => 0,
                0 if is_refused || self.most(job) <= 1 => 0,
                half => half.max(1),
            };
            self.jobs.insert(job.id, (most, now));
        }
    }
}

/// Jobs whose steps are read. They count once all requests are answered; if a request fails, the
/// round ends without them, and the next one asks again.
#[derive(Debug)]
pub(super) struct Measuring {
    finished: Finished,
    /// Time that all requests so far have taken, µs.
    elapsed: u64,
    /// Jobs whose steps are still to be requested.
    left: Vec<StartedJob>,
    /// Jobs whose steps are in the request under way.
    requested: Vec<StartedJob>,
    /// Ids of jobs whose steps slurmdbd did not return.
    lost: Vec<u64>,
}

impl Measuring {
    /// Begins with those jobs in `finished` that `round` would count. `elapsed` is the time that
    /// reading them took, µs. Steps that are given up are not asked for.
    pub(super) fn begin(
        finished: Finished,
        elapsed: u64,
        suspects: &Suspects,
        round: &FinishedRound,
        ledger: &FinishedLedger,
    ) -> Self {
        let all = round.steps_of(&finished, ledger).into_iter();
        let (lost, mut left): (Vec<_>, Vec<_>) = all.partition(|job| suspects.most(job) == 0);
        left.sort_unstable_by_key(|job| job.start);
        let lost = lost.into_iter().map(|job| job.id).collect();
        Self { finished, elapsed, left, requested: Vec::new(), lost }
    }

    /// Returns the next request at `now`, Unix seconds; `None` if all steps are known. slurmdbd
    /// returns steps only if the job was submitted within the requested time. A job whose submission
    /// lies ahead of `now` is requested alone, so that it makes that time long for no other.
    pub(super) fn next(&mut self, plan: &Plan, suspects: &Suspects, now: i64) -> Option<Request> {
        let most = |job: &StartedJob| if job.submit > now { 1 } else { suspects.most(job) };
        let (mut together, mut most_together) = (0, MOST_JOBS);
        for job in self.left.iter().rev() {
            most_together = most_together.min(most(job));
            if together > 0 && together >= most_together {
                break;
            }
            together = together.saturating_add(1);
        }
        if together == 0 {
            return None;
        }
        self.requested = self.left.split_off(self.left.len().saturating_sub(together));
        let since = self.requested.first()?.start;
        let newest = self.requested.iter().map(|job| job.submit).max()?;
        let jobs: BTreeSet<(u32, u32)> = self.requested.iter().map(|job| job.key).collect();
        let until = newest.max(now).saturating_add(AHEAD);
        let steps_since =
            self.requested.iter().filter_map(|job| Some((job.id, job.steps_since?))).collect();
        let jobs = jobs.into_iter().collect();
        Some(Request { jobs, steps_since, ..plan.request(since, until, Vec::new()) })
    }

    /// Adds the answer to the request under way. slurmdbd leaves out jobs if its database fails
    /// half-way, or if it cannot find their steps. Of a requeued job it also returns other runs:
    /// those that ended since the oldest job in the request started.
    pub(super) fn add(&mut self, used: &[Used], elapsed: u64, suspects: &mut Suspects) {
        add_to(&mut self.elapsed, elapsed);
        self.finished.used.extend(used);
        let reported: BTreeSet<u64> = used.iter().map(|used| used.id).collect();
        let requested = std::mem::take(&mut self.requested);
        for job in &requested {
            suspects.jobs.remove(&job.id);
        }
        let missing = requested.iter().map(|job| job.id).filter(|id| !reported.contains(id));
        self.lost.extend(missing);
    }

    /// Takes back the request under way, which has failed. Half as many jobs may have fewer steps, or
    /// a shorter time, for which slurmdbd does not refuse them to this user.
    pub(super) fn narrow(&mut self, suspects: &mut Suspects, is_refused: bool, now: i64) {
        suspects.note_failure(&self.requested, is_refused, now);
        for job in std::mem::take(&mut self.requested) {
            match suspects.most(&job) {
                0 => self.lost.push(job.id),
                _ => self.left.push(job),
            }
        }
    }

    #[cfg(test)]
    pub(super) fn requested(&self) -> impl Iterator<Item = u64> {
        self.requested.iter().map(|job| job.id)
    }

    pub(super) fn done(self, round: &mut FinishedRound) -> (Finished, u64) {
        round.lose_steps(self.lost);
        (self.finished, self.elapsed)
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::FinishedJob;

    use super::*;
    use crate::accounting::tests::plan;
    use slurm_points::finished::{Levels, RememberedSpan};

    fn job(id: u64) -> FinishedJob {
        FinishedJob { id, end: 1000, state: 3, tasks: 1, wait: Some(1), ..Default::default() }
    }

    #[test]
    fn steps_of_new_jobs_alone_are_asked_for_some_at_a_time() {
        let started = (0..1500)
            .map(|id| (id, (u32::try_from(id).unwrap() + 5, 3), 2500 - i64::try_from(id).unwrap()))
            .collect();
        let jobs = (0..1501).map(job).collect();
        let finished = Finished { jobs, started, ..Finished::default() };
        let round = FinishedRound::new(1000, 3600, Levels::default());
        let ledger = FinishedLedger::first("c", 0);
        let mut suspects = Suspects::default();
        let mut measuring = Measuring::begin(finished, 5, &suspects, &round, &ledger);
        let mut asked = Vec::new();
        while let Some(request) = measuring.next(&plan(), &suspects, 2000) {
            let first = [1501, 1001][asked.len()];
            assert_eq!((request.since, request.until), (Some(first), Some(2000 + AHEAD)));
            let used = |job: &(u32, u32)| Used { id: u64::from(job.0) - 5, cpu: 7, is_open: false };
            let used: Vec<Used> = request.jobs.iter().map(used).collect();
            asked.push(used.len());
            measuring.add(&used, 1, &mut suspects);
        }
        assert_eq!(asked, [1000, 500]);
        let (finished, elapsed) = measuring.done(&mut FinishedRound::default());
        let mut used: Vec<u64> = finished.used.iter().map(|used| used.id).collect();
        used.sort_unstable();
        assert_eq!((used, elapsed), ((0..1500).collect(), 5 + 2));
    }

    /// A round that was cut whenever steps were missing let one row stop all finished jobs, for as
    /// long as it was there.
    #[test]
    fn a_job_without_steps_counts_later_and_holds_up_no_other() {
        let finished = Finished {
            jobs: vec![job(8), job(9)],
            started: vec![(8, (3, 3), 900), (9, (4, 3), 900)],
            names: vec!["debug".to_owned()],
            ..Finished::default()
        };
        let of_eight = Used { id: 8, cpu: 1, is_open: false };
        for (answer, at_once) in [(&[of_eight][..], 1), (&[][..], 0)] {
            let (mut ledger, mut suspects) = (FinishedLedger::first("c", 0), Suspects::default());
            let mut count = |after: i64| {
                let mut round = FinishedRound::new(1000 + after, 3600, Levels::default());
                let mut measuring =
                    Measuring::begin(finished.clone(), 5, &suspects, &round, &ledger);
                if measuring.next(&plan(), &suspects, 2000).is_some() {
                    measuring.add(answer, 1, &mut suspects);
                }
                let (finished, _) = measuring.done(&mut round);
                round.add(&finished, 1, &ledger);
                let span = RememberedSpan { seconds: 90_000, ids: 100 };
                ledger.adopt(ledger.next(round, 60 + after, span));
                let counts = ledger.counts();
                (
                    counts.totals.get("total").map_or(0, |total| total.jobs()),
                    counts.reading.steps_unknown,
                )
            };
            assert_eq!(count(0), (at_once, 0));
            assert_eq!(count(300), (at_once, 0));
            assert_eq!(count(599), (at_once, 0));
            assert_eq!(count(600), (2, 2 - at_once));
        }
    }

    /// slurmdbd finds no step of a job that was submitted after the requested time, by a clock that
    /// was ahead.
    #[test]
    fn a_job_submitted_in_the_future_is_asked_for_alone_and_until_then() {
        let job = |id: u64, submit: i64| FinishedJob {
            id,
            submit,
            end: 1000,
            state: 3,
            tasks: 1,
            ..Default::default()
        };
        let jobs = vec![job(1, 800), job(2, 99_000), job(3, 800)];
        let started = vec![(1, (1, 3), 900), (2, (2, 3), 901), (3, (3, 3), 902)];
        let finished = Finished { jobs, started, ..Finished::default() };
        let round = FinishedRound::new(1000, 3600, Levels::default());
        let ledger = FinishedLedger::first("c", 0);
        let mut suspects = Suspects::default();
        let mut measuring = Measuring::begin(finished, 5, &suspects, &round, &ledger);
        let mut asked = Vec::new();
        while let Some(request) = measuring.next(&plan(), &suspects, 2000) {
            asked.push((request.jobs[0].0, request.jobs.len(), request.until.unwrap()));
            measuring.add(&[], 1, &mut suspects);
        }
        assert_eq!(asked, [(3, 1, 2000 + AHEAD), (2, 1, 99_000 + AHEAD), (1, 1, 2000 + AHEAD)]);
    }

    #[test]
    fn a_time_too_long_for_the_user_costs_the_steps_of_one_job_and_no_round() {
        let job = |id: u64| FinishedJob { id, end: 1000, state: 3, tasks: 1, ..Default::default() };
        let jobs = (1..=4).map(job).collect();
        let started = (1..=4).map(|id: u64| (id, (u32::try_from(id).unwrap(), 3), 900)).collect();
        let finished = Finished { jobs, started, ..Finished::default() };
        let mut round = FinishedRound::new(1000, 3600, Levels::default());
        let ledger = FinishedLedger::first("c", 0);
        let mut measuring = Measuring::begin(finished, 5, &Suspects::default(), &round, &ledger);
        let (mut requests, mut suspects) = (0, Suspects::default());
        while let Some(request) = measuring.next(&plan(), &suspects, 2000) {
            requests += 1;
            if request.jobs.iter().any(|(job, _)| *job == 3) {
                measuring.narrow(&mut suspects, true, 2000);
            } else {
                let used: Vec<Used> = request
                    .jobs
                    .iter()
                    .map(|(job, _)| Used { id: (*job).into(), cpu: 7, is_open: false })
                    .collect();
                measuring.add(&used, 1, &mut suspects);
            }
        }
        let (finished, _) = measuring.done(&mut round);
        let mut used: Vec<u64> = finished.used.iter().map(|used| used.id).collect();
        used.sort_unstable();
        assert_eq!((used, requests), (vec![1, 2, 4], 5));
    }

    #[test]
    fn a_run_that_was_requeued_and_is_counted_holds_up_no_later_one() {
        let job = |id: u64| FinishedJob { id, end: 1000, state: 3, tasks: 1, ..Default::default() };
        // The ledger's floor is 1000, so the first run is none to count; slurmdbd does not tell it
        // since 950.
        let jobs = vec![FinishedJob { end: 900, ..job(8) }, job(9)];
        let started = vec![(8, (4, 3), 800), (9, (4, 3), 950)];
        let finished = Finished { jobs, started, ..Finished::default() };
        let round = FinishedRound::new(1000, 3600, Levels::default());
        let ledger = FinishedLedger::first("c", 950);
        let mut suspects = Suspects::default();
        let mut measuring = Measuring::begin(finished, 5, &suspects, &round, &ledger);
        let request = measuring.next(&plan(), &suspects, 2000).unwrap();
        assert_eq!((request.jobs, request.since), (vec![(4, 3)], Some(950)));
        measuring.add(&[Used { id: 9, cpu: 1, is_open: false }], 1, &mut suspects);
        assert!(measuring.next(&plan(), &suspects, 2000).is_none());
    }
}
