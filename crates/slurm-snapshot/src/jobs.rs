//! The queue: a reader's counts from the reply of `slurm_load_jobs`.
//!
//! Every task of a job array is a job, including those that still share one record. A component of
//! a het job is a job, as in squeue. A job that waits in several partitions counts in each of them
//! and once everywhere else. Counts are exact.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{add_to, sum_of};

/// Base states of a job in lower case, by number: the same in every release.
pub const JOB_STATES: [&str; 12] = [
    "pending",
    "running",
    "suspended",
    "completed",
    "cancelled",
    "failed",
    "timeout",
    "node_fail",
    "preempted",
    "boot_fail",
    "deadline",
    "out_of_memory",
];

/// Jobs by state or reason.
pub type JobTallies = BTreeMap<String, JobTally>;

/// Jobs by the word that squeue shows, and by base state. The word may hide the base state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobStates {
    /// Jobs by the one word that squeue's `%T` shows, in lower case: `completing` hides the base
    /// state.
    pub shown: JobTallies,
    /// The jobs of this cluster that have not ended, by base state.
    pub unfinished: JobTallies,
}

impl JobStates {
    /// Jobs of base state pending: sdiag's "Jobs pending".
    pub fn pending(&self) -> JobTally {
        self.unfinished("pending")
    }

    /// Jobs of base state running. They run, or hold nodes that boot or run a prolog.
    pub fn running(&self) -> JobTally {
        self.unfinished("running")
    }

    fn unfinished(&self, base: &str) -> JobTally {
        self.unfinished.get(base).copied().unwrap_or_default()
    }

    /// Sum of the CPUs that unfinished jobs hold, or request while they wait, as far as it is
    /// known.
    pub fn unfinished_cpus(&self) -> u64 {
        sum_of(self.unfinished.values().filter_map(|tally| tally.cpus))
    }

    /// Adds the tallies of other jobs to these, state by state.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in
            [(&mut self.shown, &more.shown), (&mut self.unfinished, &more.unfinished)]
        {
            more.iter()
                .for_each(|(state, tally)| sum.entry(state.clone()).or_default().add(*tally));
        }
    }
}

/// Number of jobs, and sums of the resources that they hold or request. A sum covers the jobs of
/// which the number is known, and is `None` if it is known of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTally {
    /// Number of jobs; each task of an array is one.
    pub jobs: u64,
    /// CPUs that the jobs hold, or request while they wait: squeue's `%C`.
    pub cpus: Option<u64>,
    /// Nodes that the jobs hold, or request while they wait: squeue's `%D`. A node that several
    /// jobs share counts for each of them.
    pub nodes: Option<u64>,
    /// GPUs that the jobs hold, or request while they wait.
    pub gpus: Option<u64>,
    /// Memory that the jobs hold, or request while they wait, MiB: `mem=` in scontrol's AllocTRES
    /// and ReqTRES.
    pub memory: Option<u64>,
    /// Moment of submission of the pending job that was submitted first: Unix seconds on
    /// slurmctld's clock; `None` if no job is pending.
    pub oldest: Option<i64>,
}

impl JobTally {
    /// Adds another tally to this one.
    pub fn add(&mut self, more: Self) {
        add_members!(self, more; jobs);
        for (sum, more) in [
            (&mut self.cpus, more.cpus),
            (&mut self.nodes, more.nodes),
            (&mut self.gpus, more.gpus),
            (&mut self.memory, more.memory),
        ] {
            if let Some(more) = more {
                add_to(sum.get_or_insert(0), more);
            }
        }
        self.oldest = self.oldest.into_iter().chain(more.oldest).min();
    }

    /// Returns one of this tally's sums as it is published: 0 if there are no jobs, and `None` if
    /// there are jobs and the sum is known of none.
    pub fn figure(&self, sum: Option<u64>) -> Option<u64> {
        sum.or((self.jobs == 0).then_some(0))
    }
}

/// All jobs that slurmctld knows: pending jobs, running jobs, and, for MinJobAge, jobs that have
/// ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// Moment at which slurmctld wrote the reply: Unix seconds on its clock. The `since` of the
    /// next request.
    pub last_update: i64,
    /// Number of records in the reply; a pending array is one record.
    pub records: u64,
    /// All jobs by state.
    pub states: JobStates,
    /// Jobs of base state pending by reason, in squeue's words (`Dependency`); `other`: reasons
    /// that have no word.
    pub pending_reasons: JobTallies,
    /// Moments since which the pending jobs have waited.
    pub waiting: Waiting,
    /// Jobs that have started since the last published reading; `None` if the request had no
    /// `started_since`.
    pub started: Option<Started>,
    /// The expected starts of pending jobs.
    pub expected: Expected,
    /// Jobs by partition.
    pub partitions: BTreeMap<String, PartitionJobs>,
    /// Jobs by account, if requested.
    pub accounts: NamedRows,
    /// Jobs by QOS in lower case, if requested. From 24.11 on a pending job may have several: it
    /// counts in each of them that has a row.
    pub qos: NamedRows,
    /// Jobs by user, in the order of their ids, if requested.
    pub users: Vec<UserJobs>,
    /// Number of texts that could not be understood (a TRES count, a truncated array expression),
    /// and of numbers of CPUs and nodes that are not known. Their jobs are counted, but these
    /// values are missing.
    pub unparsed: u64,
    /// Whether only `states.shown` and `unparsed` are known, because slurmrestd was asked for no
    /// more.
    pub states_only: bool,
}

/// The jobs of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionJobs {
    /// Jobs of the partition by state.
    pub states: JobStates,
    /// Pending jobs of the partition by reason, as in [`Jobs::pending_reasons`].
    pub pending_reasons: JobTallies,
    /// Moments since which the pending jobs of the partition have waited.
    pub waiting: Waiting,
    /// Jobs of the partition that have started, as in [`Jobs::started`].
    pub started: Option<Started>,
    /// Expected starts of the partition's pending jobs, as in [`Jobs::expected`]. A job that waits
    /// in several partitions has one plan, in the partition that lets it start first.
    pub expected: Expected,
}

/// The jobs of each account or QOS. Without AccountingStorageEnforce anybody can submit jobs under
/// any name, so not every name has a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedRows {
    /// Jobs by the name of their account or QOS; jobs without one have the empty name.
    pub names: BTreeMap<String, NamedJobs>,
    /// Jobs that have a name without a row, by state; a job with several such names counts once.
    pub rest: JobStates,
}

/// The names that have a row whatever their jobs do, and the moment from which on starts are
/// counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedJobs {
    /// Accounts that have a row whatever their jobs do.
    pub accounts: BTreeSet<String>,
    /// QOS that have a row whatever their jobs do, in lower case.
    pub qos: BTreeSet<String>,
    /// Moment from which on a start is counted, itself included: the `last_update` of the last
    /// reply whose starts were published, Unix seconds on slurmctld's clock. `None`: starts are not
    /// counted.
    pub started_since: Option<i64>,
}

/// The jobs of one account or QOS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedJobs {
    /// Jobs of the account or QOS by state.
    pub states: JobStates,
    /// Whether any of these jobs has or had nodes.
    pub has_started: bool,
}

/// The jobs of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserJobs {
    /// User id.
    pub id: u32,
    /// User name, if names were requested and the reader's host knows one.
    pub name: Option<String>,
    /// Whether the name is still being looked up, so that it is not known whether there is one.
    pub looking_up: bool,
    /// Jobs of the user by state.
    pub states: JobStates,
    /// Whether any of the user's jobs has or had nodes.
    pub has_started: bool,
}

/// The moments since which jobs of base state pending have waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// The moments at which pending jobs were submitted, as in squeue's PendingTime: all pending
    /// jobs whose moment is known. `None` if there are none.
    pub submitted: Option<Moments>,
    /// The moments since which pending jobs may run: only jobs whose eligible time has come; `None`
    /// if there are none. Held jobs, jobs with an unfulfilled dependency and jobs with a later
    /// begin time are not included. If a begin time comes while the reply is unchanged, the job
    /// counts from the next change on.
    pub eligible: Option<Moments>,
}

/// Percentiles of the moments since which jobs have waited. A wait is the present time minus such a
/// moment, which stays correct as long as the reply is unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moments {
    /// Number of jobs whose moment is known.
    pub jobs: u64,
    /// Half of the jobs have waited since this time or a later one (nearest rank): Unix seconds on
    /// slurmctld's clock.
    pub p50: i64,
    /// Nine tenths of the jobs have waited since this time or a later one (nearest rank): Unix
    /// seconds on slurmctld's clock.
    pub p90: i64,
    /// Moment since which the job with the longest wait has waited: Unix seconds on slurmctld's
    /// clock.
    pub max: i64,
}

/// Jobs that have started since the last published reading: `started_since <= start_time <
/// last_update`.
///
/// Jobs that started and were forgotten (MinJobAge, 300 s by default) between the two readings are
/// not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Number of jobs that have started.
    pub jobs: u64,
    /// Median wait of these jobs, s: nearest rank; 0 if no job has started. A wait is the time from
    /// the eligible time to the start, or from the submission if there is no eligible time.
    pub p50: u64,
    /// The 90th percentile of the waits, s.
    pub p90: u64,
    /// The longest of the waits, s.
    pub max: u64,
}

/// Pending jobs by what is known of their expected starts. The backfill scheduler writes start
/// times into them, again in each of its cycles. slurmctld does not call that a change of the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Jobs for which backfill has planned a start that is still to come.
    pub planned: Expecting,
    /// Jobs whose planned start has passed: slurmctld sends the present moment instead.
    pub overdue: Expecting,
    /// All other pending jobs: held, not eligible, waiting for a burst buffer, or not reached by
    /// backfill.
    pub unplanned: Expecting,
    /// The starts of the planned ones; `None` if there are none.
    pub starts: Option<Starts>,
}

/// Number of pending jobs with the same kind of expected start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expecting {
    /// Number of records: all waiting tasks of an array are one, because they have one start time.
    pub records: u64,
    /// Number of jobs: each waiting task of an array is one.
    pub jobs: u64,
}

/// Percentiles of the planned starts, in which each record counts once: Unix seconds on slurmctld's
/// clock. Up to 22.05 arrays of several tasks are not included, because slurmctld sends the start
/// of a later task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starts {
    /// Moment by which half of the records start (nearest rank).
    pub p50: i64,
    /// Moment by which nine tenths of the records start.
    pub p90: i64,
    /// Moment by which 99 of 100 records start.
    pub p99: i64,
    /// Moment by which all records have started.
    pub max: i64,
}
