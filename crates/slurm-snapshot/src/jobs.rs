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

/// Jobs by the word that squeue shows, and by what they do. The word may hide what they do.
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
    /// The jobs that wait: sdiag's "Jobs pending".
    pub fn pending(&self) -> JobTally {
        self.unfinished("pending")
    }

    /// The jobs that hold nodes to run on: running, or waiting for these to boot or for a prolog.
    pub fn running(&self) -> JobTally {
        self.unfinished("running")
    }

    fn unfinished(&self, base: &str) -> JobTally {
        self.unfinished.get(base).copied().unwrap_or_default()
    }

    /// The CPUs that jobs have, or request while they wait, as far as they are known.
    pub fn unfinished_cpus(&self) -> u64 {
        sum_of(self.unfinished.values().filter_map(|tally| tally.cpus))
    }

    /// Adds these jobs to this sum.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in
            [(&mut self.shown, &more.shown), (&mut self.unfinished, &more.unfinished)]
        {
            more.iter()
                .for_each(|(state, tally)| sum.entry(state.clone()).or_default().add(*tally));
        }
    }
}

/// Jobs, and the resources that they hold or request: sums of those jobs of which it is known,
/// `None` if it is known of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTally {
    /// Jobs; each task of an array is one.
    pub jobs: u64,
    /// CPUs: squeue's `%C`.
    pub cpus: Option<u64>,
    /// Nodes: squeue's `%D`. A node that several jobs share counts for each of them.
    pub nodes: Option<u64>,
    /// GPUs that they hold, or request while they wait.
    pub gpus: Option<u64>,
    /// Memory that they hold, or request while they wait, MiB: `mem=` in scontrol's AllocTRES and
    /// ReqTRES.
    pub memory: Option<u64>,
    /// Moment at which the job was submitted that has waited longest: Unix seconds on slurmctld's
    /// clock; `None` if none waits.
    pub oldest: Option<i64>,
}

impl JobTally {
    /// Adds `jobs` jobs of the given size to this tally.
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

    /// One of its sums as a figure: no jobs have 0.
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
    /// Records in the reply; a pending array is one.
    pub records: u64,
    /// The jobs by state.
    pub states: JobStates,
    /// Jobs of base state pending by reason, in squeue's words (`Dependency`); `other`: reasons
    /// that have no word.
    pub pending_reasons: JobTallies,
    /// The waits of pending jobs.
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
    /// Texts that could not be understood (a TRES count, a truncated array expression). Their jobs
    /// are counted, but the values in those texts are missing.
    pub unparsed: u64,
    /// Only the jobs that squeue shows in each state, and `unparsed`, are known: slurmrestd
    /// reported no more.
    pub states_only: bool,
}

/// The jobs of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionJobs {
    /// Its jobs by state.
    pub states: JobStates,
    /// Its pending jobs by reason, as in [`Jobs::pending_reasons`].
    pub pending_reasons: JobTallies,
    /// The waits of its pending jobs.
    pub waiting: Waiting,
    /// Its jobs that have started, as in [`Jobs::started`].
    pub started: Option<Started>,
    /// The expected starts of its jobs, as in [`Jobs::expected`]: a job that waits in several
    /// partitions has one plan, in that which lets it start first.
    pub expected: Expected,
}

/// The jobs of each account or QOS. Without AccountingStorageEnforce anybody can submit jobs under
/// any name, so not every name has a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedRows {
    /// Jobs by name; the empty one: jobs without a name.
    pub names: BTreeMap<String, NamedJobs>,
    /// Jobs with a name that has no row, each once, by state.
    pub rest: JobStates,
}

/// The jobs of which something is published: accounts and QOS that have a row whatever their jobs
/// do, and how far starts are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedJobs {
    /// Accounts.
    pub accounts: BTreeSet<String>,
    /// QOS.
    pub qos: BTreeSet<String>,
    /// Jobs that started then or later are news: the `last_update` of the last reply whose starts
    /// were published.
    pub started_since: Option<i64>,
}

/// The jobs of one account or QOS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedJobs {
    /// Its jobs by state.
    pub states: JobStates,
    /// Whether one of them has or had nodes.
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
    /// The name was requested, but the answer has not come yet, so it is not known whether there is
    /// one.
    pub looking_up: bool,
    /// Its jobs by state.
    pub states: JobStates,
    /// Whether one of them has or had nodes.
    pub has_started: bool,
}

/// The moments since which jobs of base state pending have waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// The moments of their submission: squeue's PendingTime. Includes all pending jobs.
    pub submitted: Option<Moments>,
    /// The moments since which they may run: only jobs whose eligible time has come. Held jobs,
    /// those with an unfulfilled dependency and those with a later begin time have none. If a begin
    /// time comes while the reply is unchanged, the job counts from the next change on.
    pub eligible: Option<Moments>,
}

/// The times since when jobs wait. A wait is the present time minus this time, which stays correct
/// as long as the reply is unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moments {
    /// Jobs that have such a time.
    pub jobs: u64,
    /// Half of the jobs have waited since this time or a later one (nearest rank): Unix seconds on
    /// slurmctld's clock.
    pub p50: i64,
    /// Nine tenths of the jobs have waited since this time or a later one (nearest rank): Unix
    /// seconds on slurmctld's clock.
    pub p90: i64,
    /// Moment since which the job that has waited longest waits.
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
    /// Jobs.
    pub jobs: u64,
    /// Median time from eligible to start, s: nearest rank; 0 if no job has started.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The longest.
    pub max: u64,
}

/// The expected starts of pending jobs, by the start times that the backfill scheduler writes into
/// them, again in each of its cycles. slurmctld does not call that a change of the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Jobs with a plan.
    pub planned: Expecting,
    /// Jobs whose planned start has passed: slurmctld sends the present moment instead.
    pub overdue: Expecting,
    /// All other pending jobs: held, not eligible, waiting for a burst buffer, or not reached by
    /// backfill.
    pub unplanned: Expecting,
    /// The starts of the planned ones; `None` if there are none.
    pub starts: Option<Starts>,
}

/// Pending jobs of which the same is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expecting {
    /// Records: all waiting tasks of an array are one, because they have one start time.
    pub records: u64,
    /// Jobs: each of those tasks is one.
    pub jobs: u64,
}

/// The starts of planned jobs, by record: Unix seconds on slurmctld's clock. Up to 22.05 they lack
/// arrays of several tasks, because slurmctld sends the start of a later task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starts {
    /// Half of the records start by then (nearest rank).
    pub p50: i64,
    /// Nine tenths of them.
    pub p90: i64,
    /// 99 of 100.
    pub p99: i64,
    /// The last one.
    pub max: i64,
}
