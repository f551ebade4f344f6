//! Finished jobs as slurmdbd stores them: one row for each run of a job, and one for all tasks of
//! an array that never started.
//!
//! Each name is stored once, and jobs have its index, because tens of thousands of jobs may end in
//! an hour.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The states that a job can end in, by Slurm's number, in sacct's words. `requeued` is a run that
/// ended because the job was queued again; it has its own row.
pub const FINAL_STATES: [(u32, &str); 10] = [
    (3, "completed"),
    (4, "cancelled"),
    (5, "failed"),
    (6, "timeout"),
    (7, "node_fail"),
    (8, "preempted"),
    (9, "boot_fail"),
    (10, "deadline"),
    (11, "out_of_memory"),
    (1024, "requeued"),
];

/// The state of a part of a job that ended because the job changed its size: a row of its own, and
/// no job.
pub const RESIZING: u32 = 0x2000;

/// The jobs that ended in the requested time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// Rows of finished jobs, in slurmdbd's order.
    pub jobs: Vec<FinishedJob>,
    /// Names of partitions, accounts, QOS and users. A job has their indices.
    pub names: Vec<String>,
    /// Users whose names the reader is still looking up. slurmdbd does not name them, because they
    /// have no association. Until a name is found, and if there is none, the user's number is the
    /// name in `names`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<FinishedUser>,
    /// Number of texts in the reply that could not be understood: their array tasks or TRES are
    /// missing.
    pub unparsed: u64,
    /// Whether slurmdbd returned no row at all, so that nothing proves that its database had
    /// answered. Then this reply says nothing about finished jobs.
    pub unproved: bool,
    /// If no job ended in the requested time, a moment before it since which none ended either,
    /// Unix seconds. `None` if jobs ended, or if no earlier end is known.
    pub empty_since: Option<i64>,
    /// With [`crate::ReplyOptions::steps`], for each job that started: its `db_index`, its id for
    /// [`crate::Request::jobs`], and when it started or, if that is earlier, ended, Unix seconds.
    pub started: Vec<(u64, (u32, u32), i64)>,
    /// CPU time of the jobs that the request names in [`crate::Request::jobs`]. The rest of such an
    /// answer is empty.
    pub used: Vec<Used>,
}

/// A user without an association, whom slurmdbd does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinishedUser {
    /// Index of the user's name in [`Finished::names`].
    pub number: u32,
    /// The user's id.
    pub id: u32,
    /// The user's name, if the name services of the reader's host know one.
    pub name: Option<String>,
    /// Whether the name services have not answered yet.
    pub looking_up: bool,
}

/// CPU time that a job has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The job's `db_index`.
    pub id: u64,
    /// CPU time of the steps that have ended, ms: sacct's `TotalCPU`.
    pub cpu: u64,
    /// Whether slurmdbd does not know yet what one of its steps has used.
    pub is_open: bool,
}

as_array! {
    /// One row of slurmdbd: a run of a job, or all tasks of an array that never started.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
    pub struct FinishedJob {
        /// The row's `db_index`, which is unique in the cluster for ever. All 64 bits are in use
        /// from 24.11 on.
        pub id: u64,
        /// Moment at which the job ended: Unix seconds on slurmctld's clock.
        pub end: i64,
        /// Moment at which the job was submitted, Unix seconds.
        pub submit: i64,
        /// Moment at which the job started, Unix seconds, if it did: `wait` says whether.
        pub start: i64,
        /// The job's id. Each task of an array has its own, and all runs of a job share one.
        pub job: u32,
        /// State of the ended run: a number of [`FINAL_STATES`], or [`RESIZING`].
        pub state: u32,
        /// Number of array tasks in this row; 1 for any other job.
        pub tasks: u64,
        /// Seconds from the moment at which the job could run until it started; `None` if it never
        /// did.
        pub wait: Option<u64>,
        /// Seconds that the job ran, not counting suspension.
        pub run: u64,
        /// The job's time limit in seconds; `None` if it has none.
        pub limit: Option<u64>,
        /// Index of the partition's name in [`Finished::names`]; of the first one if the job has
        /// several.
        pub partition: u32,
        /// Index of the account's name.
        pub account: u32,
        /// Index of the QOS's name.
        pub qos: u32,
        /// Index of the user's name.
        pub user: u32,
        /// Number of allocated CPUs.
        pub cpus: u64,
        /// Number of allocated GPUs.
        pub gpus: u64,
        /// Number of allocated nodes.
        pub nodes: u64,
        /// The job's billing TRES: what each second of it was billed for.
        pub billing: u64,
    }
}

impl Finished {
    /// Moves the names of users that were found into `names`. Users whose names are still being
    /// looked up stay in `users`.
    pub fn take_user_names(&mut self) {
        for user in &mut self.users {
            let place =
                usize::try_from(user.number).ok().and_then(|number| self.names.get_mut(number));
            if let (Some(place), Some(name)) = (place, user.name.take()) {
                *place = name;
            }
        }
        self.users.retain(|user| user.looking_up);
    }

    /// The name with this index; empty if there is none.
    pub fn name(&self, number: u32) -> &str {
        usize::try_from(number)
            .ok()
            .and_then(|number| self.names.get(number))
            .map_or("", String::as_str)
    }
}

/// Numbers names in the order in which they first occur.
#[derive(Debug, Default)]
pub struct NameNumbers {
    numbers: BTreeMap<String, u32>,
}

impl NameNumbers {
    /// Returns the index of this name; a new name gets the next index.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Returns all names in the order of their indices.
    pub fn into_names(self) -> Vec<String> {
        let mut names: Vec<(u32, String)> =
            self.numbers.into_iter().map(|(name, number)| (number, name)).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_64_bits_and_every_other_figure_come_back_as_they_were_sent() {
        let mut names = NameNumbers::default();
        let [partition, account] = ["debug", "physics"].map(|name| names.number(name));
        assert_eq!((names.number("debug"), names.number("")), (partition, 2));
        let job = FinishedJob {
            id: u64::MAX - 1,
            end: 1_700_000_000,
            submit: 1_600_000_000,
            start: 1_650_000_000,
            job: 7,
            state: 1024,
            tasks: 36,
            wait: Some(1),
            run: 2,
            limit: None,
            partition,
            account,
            qos: 2,
            user: 9,
            cpus: 3,
            gpus: 4,
            nodes: 5,
            billing: 6,
        };
        let finished = Finished {
            jobs: vec![job, FinishedJob::default()],
            names: names.into_names(),
            unparsed: 1,
            empty_since: Some(-5),
            started: vec![(u64::MAX - 1, (7, 3), 1_650_000_000)],
            used: vec![Used { id: u64::MAX, cpu: 1500, is_open: true }],
            ..Finished::default()
        };
        let line = serde_json::to_string(&finished).unwrap();
        assert!(
            line.contains(
                "[[18446744073709551614,1700000000,1600000000,1650000000,7,1024,36,1,2,null,0,1,2,9,3,4,5,6],"
            ),
            "{line}"
        );
        let back: Finished = serde_json::from_str(&line).unwrap();
        assert_eq!(back, finished);
        assert_eq!([0, 1, 2, 9].map(|number| back.name(number)), ["debug", "physics", "", ""]);
    }
}
