//! Jobs that were read, while slurmdbd is asked what their steps have used.

use std::collections::BTreeSet;

use slurm_points::finished::{FinishedLedger, FinishedRound};
use slurm_snapshot::{Finished, Request, Used, add_to};

use super::plan::Plan;

/// Jobs in one request: each is a query of its own to slurmdbd's database, with any number of steps.
const MOST_JOBS: usize = 1000;

/// Jobs whose steps are read. They count once all are known; if a request fails, so does the round.
#[derive(Debug)]
pub(super) struct Measuring {
    finished: Finished,
    /// Of all requests so far, µs.
    elapsed: u64,
    /// Of jobs still to be requested, and of those in the request: `db_index`, job and task, and start.
    left: Vec<(u64, (u32, u32), i64)>,
    asked: Vec<(u64, (u32, u32), i64)>,
}

impl Measuring {
    /// The jobs in `finished` that `round` would count.
    pub(super) fn of(
        finished: Finished,
        elapsed: u64,
        round: &FinishedRound,
        ledger: &FinishedLedger,
    ) -> Self {
        let mut left = round.steps_of(&finished, ledger);
        left.sort_unstable_by_key(|&(.., start)| start);
        Self { finished, elapsed, left, asked: Vec::new() }
    }

    /// The next request; `None` if everything is known.
    pub(super) fn next(&mut self, plan: &Plan, until: i64) -> Option<Request> {
        self.asked = self.left.split_off(self.left.len().saturating_sub(MOST_JOBS));
        let &(.., since) = self.asked.first()?;
        let jobs: BTreeSet<(u32, u32)> = self.asked.iter().map(|&(_, job, _)| job).collect();
        Some(Request { jobs: jobs.into_iter().collect(), ..plan.request(since, until, Vec::new()) })
    }

    /// Adds the answer to it. `None` if some jobs are missing: slurmdbd leaves out jobs if its database fails half-way. Of the other
    /// runs of a requeued job, it reports those that ended since the first of these started.
    pub(super) fn with(mut self, used: &[Used], elapsed: u64) -> Option<Self> {
        add_to(&mut self.elapsed, elapsed);
        self.finished.used.extend(used);
        let told: BTreeSet<u64> = used.iter().map(|used| used.id).collect();
        self.asked.iter().all(|(id, ..)| told.contains(id)).then_some(self)
    }

    pub(super) fn done(self) -> (Finished, u64) {
        (self.finished, self.elapsed)
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::FinishedJob;

    use super::*;
    use crate::accounting::tests::plan;
    use slurm_points::finished::Levels;

    #[test]
    fn steps_of_new_jobs_alone_are_asked_for_some_at_a_time_and_none_may_be_missing() {
        let job =
            |id: u64| FinishedJob { id, end: 1000, state: 3, tasks: 1, wait: Some(1), ..Default::default() };
        let started = (0..1500)
            .map(|id| (id, (u32::try_from(id).unwrap() + 5, 3), 2500 - i64::try_from(id).unwrap()))
            .collect();
        let jobs = (0..1501).map(job).collect();
        let finished = Finished { jobs, started, ..Finished::default() };
        let (round, ledger) =
            (FinishedRound::new(1000, 3600, Levels::default()), FinishedLedger::first("c", 0));
        let mut measuring = Measuring::of(finished, 5, &round, &ledger);
        let mut asked = Vec::new();
        while let Some(request) = measuring.next(&plan(), 2000) {
            let first = [1501, 1001][asked.len()];
            assert_eq!((request.since, request.until), (Some(first), Some(2000)));
            let used = |job: &(u32, u32)| Used { id: u64::from(job.0) - 5, cpu: 7, is_open: false };
            let used: Vec<Used> = request.jobs.iter().map(used).collect();
            asked.push(used.len());
            measuring = measuring.with(&used, 1).unwrap();
        }
        assert_eq!(asked, [1000, 500]);
        let (finished, elapsed) = measuring.done();
        let mut used: Vec<u64> = finished.used.iter().map(|used| used.id).collect();
        used.sort_unstable();
        assert_eq!((used, elapsed), ((0..1500).collect(), 5 + 2));
    }

    #[test]
    fn an_answer_that_lacks_a_job_is_none() {
        let jobs = vec![FinishedJob { id: 9, end: 1000, state: 3, tasks: 1, ..Default::default() }];
        let finished = Finished { jobs, started: vec![(9, (4, 3), 900)], ..Finished::default() };
        let (round, ledger) =
            (FinishedRound::new(1000, 3600, Levels::default()), FinishedLedger::first("c", 0));
        let mut measuring = Measuring::of(finished, 5, &round, &ledger);
        assert_eq!(measuring.next(&plan(), 2000).unwrap().jobs, [(4, 3)]);
        let another = Used { id: 8, cpu: 1, is_open: false };
        assert!(measuring.with(&[another], 1).is_none());
    }

    #[test]
    fn a_run_that_was_requeued_and_is_counted_holds_up_no_later_one() {
        let job = |id: u64| FinishedJob { id, end: 1000, state: 3, tasks: 1, ..Default::default() };
        // The ledger's floor is 1000, so the first run is none to count; slurmdbd does not tell it since 950.
        let jobs = vec![FinishedJob { end: 900, ..job(8) }, job(9)];
        let started = vec![(8, (4, 3), 800), (9, (4, 3), 950)];
        let finished = Finished { jobs, started, ..Finished::default() };
        let (round, ledger) =
            (FinishedRound::new(1000, 3600, Levels::default()), FinishedLedger::first("c", 950));
        let mut measuring = Measuring::of(finished, 5, &round, &ledger);
        let request = measuring.next(&plan(), 2000).unwrap();
        assert_eq!((request.jobs, request.since), (vec![(4, 3)], Some(950)));
        let measuring = measuring.with(&[Used { id: 9, cpu: 1, is_open: false }], 1);
        assert!(measuring.unwrap().next(&plan(), 2000).is_none());
    }
}
