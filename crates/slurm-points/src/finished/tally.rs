//! Totals of finished jobs, and percentiles of one round.

use serde::{Deserialize, Serialize};
use slurm_snapshot::{FINAL_STATES, FinishedJob, RESIZING, add_members, add_to, sum_of};

/// Sums over finished jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Tasks by state, in the order of [`FINAL_STATES`].
    pub states: [u64; FINAL_STATES.len()],
    /// Tasks that were cancelled before they started.
    pub(crate) cancelled_before_start: u64,
    /// Jobs that had started.
    pub started: u64,
    /// Seconds that these jobs waited before they started.
    pub wait: u64,
    /// Seconds that these jobs ran.
    pub run: u64,
    /// CPU seconds allocated to these jobs: their CPUs, multiplied by their run time.
    pub cpu: u64,
    /// GPU seconds allocated to these jobs.
    pub gpu: u64,
    /// Node seconds allocated to these jobs.
    pub(crate) node: u64,
    /// Seconds of the TRES billing of these jobs.
    pub(crate) billing: u64,
    /// CPU time that the steps of these jobs used, ms; 0 if steps are not read.
    pub(crate) cpu_used: u64,
    /// Jobs that had started and had a time limit.
    pub(crate) limited: u64,
    /// Sum of the time limits of these jobs, s.
    pub(crate) limit: u64,
    /// Seconds that jobs with a time limit ran.
    pub(crate) limit_used: u64,
    /// Jobs that ran for less than a tenth of their time limit.
    pub(crate) short: u64,
}

/// Returns the seconds that a job ran, and the same multiplied by its CPUs, GPUs, nodes and billing
/// TRES.
pub(super) fn use_of(job: &FinishedJob) -> [u64; 5] {
    [1, job.cpus, job.gpus, job.nodes, job.billing].map(|count| count.saturating_mul(job.run))
}

/// Slurm's number of the state `CANCELLED`.
const CANCELLED: u32 = 4;

impl Tally {
    /// The tally of one job. `None` if it has not ended, or in an unknown state.
    pub fn from_job(job: &FinishedJob) -> Option<Self> {
        let mut tally = Self::default();
        if job.state == RESIZING {
            // The last part is the job.
            tally.add_use(job);
            return Some(tally);
        }
        let place = FINAL_STATES.iter().position(|(number, _)| *number == job.state)?;
        *tally.states.get_mut(place)? = job.tasks;
        if job.wait.is_none() {
            tally.cancelled_before_start = if job.state == CANCELLED { job.tasks } else { 0 };
            return Some(tally);
        }
        tally.started = 1;
        tally.add_use(job);
        if let Some(limit) = job.limit.filter(|limit| *limit > 0) {
            tally.limited = 1;
            tally.limit = limit;
            tally.short = u64::from(job.run.saturating_mul(10) < limit);
        }
        Some(tally)
    }

    /// Sets the seconds of a job, or of a part of one, that has started.
    fn add_use(&mut self, job: &FinishedJob) {
        self.wait = job.wait.unwrap_or(0);
        [self.run, self.cpu, self.gpu, self.node, self.billing] = use_of(job);
        self.limit_used = if job.limit.is_some_and(|limit| limit > 0) { job.run } else { 0 };
    }

    /// Sets the seconds of use to those of the whole row, less the `counted` ones.
    pub(super) fn set_rest_of_use(&mut self, job: &FinishedJob, counted: &[u64; 5]) {
        let mut rest = use_of(job);
        rest.iter_mut().zip(counted).for_each(|(all, counted)| *all = all.saturating_sub(*counted));
        [self.run, self.cpu, self.gpu, self.node, self.billing] = rest;
    }

    /// Number of jobs in all states.
    pub fn jobs(&self) -> u64 {
        sum_of(self.states)
    }

    /// Adds the sums over other jobs.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in self.states.iter_mut().zip(more.states) {
            add_to(sum, more);
        }
        add_members!(self,
            more; cancelled_before_start started wait run cpu gpu node billing cpu_used);
        add_members!(self, more; limited limit limit_used short);
    }
}

/// The figures that one round adds at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Sums over the jobs that the round has counted.
    pub sums: Tally,
    /// Percentiles of the time that jobs waited before they started; `None` if none had started.
    pub(crate) waits: Option<Spread>,
    /// Percentiles of the time that jobs ran; `None` if none had started.
    pub(crate) runs: Option<Spread>,
}

/// Percentiles by nearest rank, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Spread {
    /// The percentiles of these values; `None` if there are none.
    pub(crate) fn from_values(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        let count = values.len();
        let rank = |percent: usize| {
            let rank = count.saturating_mul(percent).div_ceil(100);
            values.get(rank.saturating_sub(1)).copied()
        };
        Some(Self { p50: rank(50)?, p90: rank(90)?, p99: rank(99)?, max: rank(100)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> FinishedJob {
        FinishedJob {
            state: 3,
            tasks: 1,
            wait: Some(7),
            run: 100,
            limit: Some(3600),
            cpus: 4,
            gpus: 1,
            nodes: 2,
            billing: 5,
            ..FinishedJob::default()
        }
    }

    #[test]
    fn a_job_is_what_it_used_and_what_it_had_asked_for() {
        let tally = Tally::from_job(&job()).unwrap();
        assert_eq!((tally.cpu, tally.gpu, tally.node, tally.billing), (400, 100, 200, 500));
        assert_eq!((tally.limited, tally.limit, tally.limit_used, tally.short), (1, 3600, 100, 1));
        let (longer, unlimited) =
            (FinishedJob { run: 360, ..job() }, FinishedJob { limit: None, ..job() });
        assert_eq!(Tally::from_job(&longer).unwrap().short, 0, "a tenth is not less than a tenth");
        assert_eq!(Tally::from_job(&unlimited).unwrap().limited, 0);
    }

    #[test]
    fn tasks_that_never_started_are_jobs_and_wait_for_nothing() {
        let rest = FinishedJob { state: 4, tasks: 36, wait: None, run: 0, ..job() };
        let tally = Tally::from_job(&rest).unwrap();
        assert_eq!(
            (tally.jobs(), tally.cancelled_before_start, tally.started, tally.limited),
            (36, 36, 0, 0)
        );
        let running = Tally::from_job(&FinishedJob { state: 4, ..job() }).unwrap();
        assert_eq!((running.jobs(), running.cancelled_before_start, running.started), (1, 0, 1));
        let expired = Tally::from_job(&FinishedJob { state: 10, ..rest }).unwrap();
        assert_eq!(
            (expired.jobs(), expired.cancelled_before_start),
            (36, 0),
            "its deadline ended it"
        );
    }

    /// A job that was made smaller while it ran counted with its last size only.
    #[test]
    fn a_part_before_a_resize_is_no_job_and_its_seconds_are_the_jobs() {
        let part = FinishedJob { state: RESIZING, ..job() };
        let tally = Tally::from_job(&part).unwrap();
        assert_eq!((tally.jobs(), tally.started, tally.limited, tally.limit), (0, 0, 0, 0));
        assert_eq!((tally.wait, tally.run, tally.limit_used), (7, 100, 100));
        assert_eq!((tally.cpu, tally.gpu, tally.node, tally.billing), (400, 100, 200, 500));
    }

    #[test]
    fn a_job_that_runs_is_none() {
        assert_eq!(Tally::from_job(&FinishedJob { state: 1, ..job() }), None);
    }

    #[test]
    fn a_sum_is_that_of_every_member() {
        let mut twice = Tally::from_job(&job()).unwrap();
        twice.add(&Tally::from_job(&job()).unwrap());
        let numbers = |tally: &Tally| -> Vec<u64> {
            let value = serde_json::to_value(tally).unwrap();
            let members = value.as_object().unwrap().values();
            members
                .flat_map(|value| match value {
                    serde_json::Value::Array(states) => {
                        states.iter().map(|n| n.as_u64().unwrap()).collect()
                    }
                    number => vec![number.as_u64().unwrap()],
                })
                .collect()
        };
        let once: Vec<u64> = numbers(&Tally::from_job(&job()).unwrap());
        assert_eq!(numbers(&twice), once.iter().map(|n| n * 2).collect::<Vec<_>>());
    }

    #[test]
    fn ranks_are_values_that_are_there() {
        let spread =
            |values: std::ops::RangeInclusive<u64>| Spread::from_values(values.rev().collect());
        assert_eq!(spread(1..=100), Some(Spread { p50: 50, p90: 90, p99: 99, max: 100 }));
        assert_eq!(spread(1..=1), Some(Spread { p50: 1, p90: 1, p99: 1, max: 1 }));
        assert_eq!(spread(1..=3), Some(Spread { p50: 2, p90: 3, p99: 3, max: 3 }));
        assert_eq!(Spread::from_values(Vec::new()), None);
    }
}
