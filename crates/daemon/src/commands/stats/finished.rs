//! `stats --jobs --finished`: whose jobs ended in the last hour, and how. One reply of slurmdbd.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, bail};
use serde::Serialize;
use slurm_points::finished::{HOUR, Tally};
use slurm_snapshot::{FINAL_STATES, Finished, FinishedJob, Reply, ReplyKind, Request};

use super::jobs::{MOST_ROWS, duration};
use super::{and_more, print_table, read_whole};
use crate::cli::{By, Options};
use crate::clock::unix_now;
use crate::printable::cell;

/// The states that have a column; the others are one together.
const COLUMNS: [&str; 4] = ["completed", "failed", "cancelled", "timeout"];

pub(in crate::commands) fn finished(options: &Options, by: By, json: bool) -> Result<()> {
    if by == By::Reason {
        bail!("--by reason: jobs that have ended have none; use --by user, account, partition or qos");
    }
    let until = unix_now();
    let (since, until) = (Some(until.saturating_sub(HOUR)), Some(until));
    let request = Request { since, until, ..Request::new(ReplyKind::Finished, by.options()) };
    let reading = read_whole(options, request)?;
    let Some(Reply::Finished(finished)) = &reading.reply else { bail!("no jobs in slurmdbd's reply") };
    print_table(json, &FinishedTable::new(by, since, finished), FinishedTable::text)
}

/// What is printed.
#[derive(Debug, Serialize)]
struct FinishedTable {
    /// Jobs that have ended since then: Unix seconds.
    since: Option<i64>,
    by: &'static str,
    /// All there are.
    rows_in_all: usize,
    /// The first of them by CPU-seconds.
    rows: Vec<FinishedRow>,
}

/// The jobs of one name.
#[derive(Debug, Serialize)]
struct FinishedRow {
    name: String,
    /// Tasks by final state, where there are any.
    states: BTreeMap<&'static str, u64>,
    /// Allocated.
    cpu_seconds: u64,
    gpu_seconds: u64,
    /// Of those that started, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_wait: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_run: Option<u64>,
}

impl FinishedTable {
    fn new(by: By, since: Option<i64>, finished: &Finished) -> Self {
        let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
        for job in &finished.jobs {
            if let Some(tally) = Tally::of(job) {
                tallies.entry(finished.name(by.number(job))).or_default().add(&tally);
            }
        }
        let mut rows: Vec<FinishedRow> =
            tallies.iter().map(|(name, tally)| FinishedRow::new(name, tally)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.cpu_seconds, row.jobs())));
        let rows_in_all = rows.len();
        rows.truncate(MOST_ROWS);
        Self { since, by: by.word(), rows_in_all, rows }
    }

    fn text(&self) -> String {
        let mut text = format!("{:<20} {:>9}", self.by, "jobs");
        // Writing to a String cannot fail.
        for heading in COLUMNS.into_iter().chain(["other", "CPU-hours", "GPU-hours", "mean wait", "mean run"])
        {
            let _ = write!(text, " {heading:>10}");
        }
        text.push('\n');
        for row in &self.rows {
            let name = cell(if row.name.is_empty() { "(none)" } else { &row.name }, 20);
            let _ = write!(text, "{name:<20} {:>9}", row.jobs());
            let mut other = row.jobs();
            for state in COLUMNS {
                let jobs = row.states.get(state).copied().unwrap_or(0);
                other = other.saturating_sub(jobs);
                let _ = write!(text, " {jobs:>10}");
            }
            let _ =
                write!(text, " {other:>10} {:>10} {:>10}", hours(row.cpu_seconds), hours(row.gpu_seconds));
            for seconds in [row.mean_wait, row.mean_run] {
                let _ = write!(text, " {:>10}", seconds.map(duration).unwrap_or_default());
            }
            text.push('\n');
        }
        text + &and_more(self.rows_in_all, self.rows.len())
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
        self.states.values().fold(0, |sum, jobs| sum.saturating_add(*jobs))
    }
}

impl By {
    /// The number of the name that a job counts under.
    const fn number(self, job: &FinishedJob) -> u32 {
        match self {
            Self::Account => job.account,
            Self::Partition => job.partition,
            Self::Qos => job.qos,
            Self::User | Self::Reason => job.user,
        }
    }
}

/// To the tenth.
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
        let table = FinishedTable::new(By::User, Some(0), &finished);
        let text = table.text();
        let words = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect()
        };
        assert_eq!(words("ann"), ["37", "1", "0", "36", "0", "0", "0.0", "0.0", "1:30", "1:00"]);
        assert_eq!(words("bob"), ["2", "0", "0", "0", "1", "1", "6.0", "0.0", "1:30", "45:00"]);
        assert_eq!((table.rows[0].name.as_str(), table.rows_in_all), ("bob", 2));
    }
}
