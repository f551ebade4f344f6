//! Jobs that were read, while slurmdbd is asked what their steps have used.

use std::collections::BTreeSet;

use slurm_snapshot::{Finished, Request, Used};

use super::plan::Plan;
use crate::finished::{FinishedLedger, FinishedRound};

/// So many jobs at once: each has a question of its own to slurmdbd's database, and any number of steps.
const MOST_JOBS: usize = 1000;

/// Jobs whose steps are asked for. They count when all is known: a request that fails takes the round with it.
#[derive(Debug)]
pub(super) struct Measuring {
    finished: Finished,
    /// µs of all requests until now.
    elapsed: u64,
    /// The ids of the jobs that are to be asked for, and of those that are.
    left: Vec<u32>,
    asked: Vec<u32>,
    /// When the first of them started, Unix seconds.
    since: i64,
}

impl Measuring {
    /// Of what was read, what `round` would count.
    pub(super) fn of(
        finished: Finished,
        elapsed: u64,
        round: &FinishedRound,
        ledger: &FinishedLedger,
    ) -> Self {
        let (left, since) = round.steps_of(&finished, ledger);
        Self { finished, elapsed, left, asked: Vec::new(), since }
    }

    /// The next request; `None` where everything is known.
    pub(super) fn next(&mut self, plan: &Plan, until: i64) -> Option<Request> {
        self.asked = self.left.split_off(self.left.len().saturating_sub(MOST_JOBS));
        let is_any = !self.asked.is_empty();
        is_any.then(|| Request { jobs: self.asked.clone(), ..plan.request(self.since, until) })
    }

    /// With the answer to it. `None` where that has not all of them: slurmdbd leaves out jobs where its database fails half-way.
    pub(super) fn with(mut self, used: &[Used], elapsed: u64) -> Option<Self> {
        self.elapsed = self.elapsed.saturating_add(elapsed);
        self.finished.used.extend(used);
        let told: BTreeSet<u64> = used.iter().map(|used| used.id).collect();
        let is_known =
            |id: u64, job_id: u32| self.asked.binary_search(&job_id).is_err() || told.contains(&id);
        self.finished.started.iter().all(|(id, job_id, _)| is_known(*id, *job_id)).then_some(self)
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
    use crate::finished::Levels;

    #[test]
    fn steps_of_new_jobs_alone_are_asked_for_some_at_a_time_and_none_may_be_missing() {
        let job =
            |id: u64| FinishedJob { id, end: 1000, state: 3, tasks: 1, wait: Some(1), ..Default::default() };
        let started = (0..1500)
            .map(|id| (id, u32::try_from(id).unwrap() + 5, 900 - i64::try_from(id % 7).unwrap()))
            .collect();
        let jobs = (0..1501).map(job).collect();
        let finished = Finished { jobs, started, ..Finished::default() };
        let (round, ledger) =
            (FinishedRound::new(1000, 3600, Levels::default()), FinishedLedger::first("c", 0));
        let mut measuring = Measuring::of(finished, 5, &round, &ledger);
        let mut asked = Vec::new();
        while let Some(request) = measuring.next(&plan(), 2000) {
            assert_eq!((request.since, request.until), (Some(894), Some(2000)));
            assert!(request.jobs.len() <= MOST_JOBS);
            let used = |id: &u32| Used { id: u64::from(*id) - 5, cpu: 7, is_open: false };
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
        let finished = Finished { jobs, started: vec![(9, 4, 900)], ..Finished::default() };
        let (round, ledger) =
            (FinishedRound::new(1000, 3600, Levels::default()), FinishedLedger::first("c", 0));
        let mut measuring = Measuring::of(finished, 5, &round, &ledger);
        assert_eq!(measuring.next(&plan(), 2000).unwrap().jobs, [4]);
        let another = Used { id: 8, cpu: 1, is_open: false };
        assert!(measuring.with(&[another], 1).is_none());
    }
}
