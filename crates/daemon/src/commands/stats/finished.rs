//! `stats --jobs --finished`: whose jobs ended in the last hour, and in which states. It makes one
//! request to slurmdbd.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::Serialize;
use slurm_points::finished::{HOUR, Tally};
use slurm_snapshot::{FINAL_STATES, Finished, FinishedJob, Reply, ReplyKind, Request, sum_of};

use super::read_whole;
use super::table::{Moment, Row, Table, duration};
use crate::cli::{By, Options};
use crate::clock::unix_now;

/// The states that have a column; the others are one together.
const COLUMNS: [&str; 4] = ["completed", "failed", "cancelled", "timeout"];

pub(crate) fn finished(options: &Options, by: By, json: bool) -> Result<()> {
    if by == By::Reason {
        bail!(
            "--by reason: jobs that have ended have none; use --by user, account, partition or qos"
        );
    }
    let until = unix_now();
    let since = until.saturating_sub(HOUR);
    let request = Request {
        since: Some(since),
        until: Some(until),
        ..Request::new(ReplyKind::Finished, by.options())
    };
    let reading = read_whole(options, request)?;
    let Some(Reply::Finished(finished)) = &reading.reply else {
        bail!("no jobs in slurmdbd's reply")
    };
    table(by, since, finished).print(json)
}

/// A row of the table: the finished jobs of one user, account, partition or QOS.
#[derive(Debug, Serialize)]
struct FinishedRow {
    name: String,
    /// Number of jobs by final state, without the states that no job has. Each task of an array is
    /// a job.
    states: BTreeMap<&'static str, u64>,
    /// CPU-seconds that were allocated to the jobs.
    cpu_seconds: u64,
    gpu_seconds: u64,
    /// Average wait of those that started, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_wait: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_run: Option<u64>,
}

/// Makes the table of `stats --jobs --finished`: the first rows, in the order of their CPU-seconds.
fn table(by: By, since: i64, finished: &Finished) -> Table<FinishedRow> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for job in &finished.jobs {
        if let Some(tally) = Tally::from_job(job) {
            tallies.entry(finished.name(by.number(job))).or_default().add(&tally);
        }
    }
    let rows = tallies.iter().map(|(name, tally)| FinishedRow::new(name, tally)).collect();
    Table::new(Moment::Since(since), by, rows)
}

impl Row for FinishedRow {
    const TITLE: &str = "jobs that ended in the last hour, their mean wait and run";
    const HEAD: &[&str] = &[
        "jobs",
        "completed",
        "failed",
        "cancelled",
        "timeout",
        "other",
        "CPU-hours",
        "GPU-hours",
        "wait",
        "run",
    ];
    const NO_GPUS: &str = "0.0";

    fn weight(&self) -> (u64, u64) {
        (self.cpu_seconds, self.jobs())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn cells(&self) -> Vec<String> {
        let states = COLUMNS.map(|state| self.states.get(state).copied().unwrap_or(0));
        let other = states.iter().fold(self.jobs(), |other, jobs| other.saturating_sub(*jobs));
        let times = [self.mean_wait, self.mean_run]
            .map(|seconds| seconds.map(duration).unwrap_or_default());
        let jobs =
            [self.jobs()].into_iter().chain(states).chain([other]).map(|jobs| jobs.to_string());
        jobs.chain([self.cpu_seconds, self.gpu_seconds].map(hours)).chain(times).collect()
    }
}

impl FinishedRow {
    fn new(name: &str, tally: &Tally) -> Self {
        let states = FINAL_STATES.iter().zip(tally.states).filter(|(_, jobs)| *jobs > 0);
        let mean = |sum: u64| sum.checked_div(tally.started);
        Self {
            name: name.to_owned(),
            states: states.map(|((_, word), jobs)| (*word, jobs)).collect(),
            cpu_seconds: tally.cpu,
            gpu_seconds: tally.gpu,
            mean_wait: mean(tally.wait),
            mean_run: mean(tally.run),
        }
    }

    fn jobs(&self) -> u64 {
        sum_of(self.states.values().copied())
    }
}

impl By {
    /// Returns the index of the name under which a job counts, in the reply's list of names.
    const fn number(self, job: &FinishedJob) -> u32 {
        match self {
            Self::Account => job.account,
            Self::Partition => job.partition,
            Self::Qos => job.qos,
            Self::User | Self::Reason => job.user,
        }
    }
}

/// Formats seconds as hours with one decimal.
fn hours(seconds: u64) -> String {
    let tenths = seconds / 360;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_jobs_and_whoever_used_the_most_comes_first() {
        let job = |user, state, tasks, run| FinishedJob {
            user,
            state,
            tasks,
            run,
            wait: (run > 0).then_some(90),
            cpus: 4,
            ..FinishedJob::default()
        };
        let finished = Finished {
            jobs: vec![
                job(0, 4, 36, 0),
                job(0, 3, 1, 60),
                job(1, 6, 1, 3600),
                job(1, 11, 1, 1800),
                job(1, 1, 1, 9),
            ],
            names: vec!["ann".to_owned(), "bob".to_owned()],
            ..Finished::default()
        };
        let table = table(By::User, 0, &finished);
        let text = table.text();
        let words = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect()
        };
        assert_eq!(words("ann"), ["37", "1", "0", "36", "0", "0", "0.0", "1:30", "1:00"]);
        assert_eq!(words("bob"), ["2", "0", "0", "0", "1", "1", "6.0", "1:30", "45:00"]);
        assert!(!text.contains("GPU") && text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!((table.rows[0].name.as_str(), table.rows_in_all), ("bob", 2));
        // A heading without rows said nothing.
        assert_eq!(super::table(By::User, 0, &Finished::default()).text(), "no job\n");
    }
}
