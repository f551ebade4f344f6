//! `stats --jobs`: whose jobs run and wait now, for somebody who looks into an alert. It makes one
//! request to slurmctld, and the reader counts the jobs.

use anyhow::{Result, bail};
use serde::Serialize;
use slurm_points::derive::seconds_since;
use slurm_snapshot::{
    JobStates, JobTally, Jobs, NamedRows, Reply, ReplyKind, ReplyOptions, Request,
};

use super::read_whole;
use super::table::{Moment, Row, Table, duration};
use crate::cli::{By, Options};

pub(crate) fn jobs(options: &Options, by: By, json: bool) -> Result<()> {
    let reading = read_whole(options, Request::new(ReplyKind::Jobs, by.options()))?;
    let Some(Reply::Jobs(jobs)) = &reading.reply else { bail!("no jobs in slurmctld's reply") };
    table(by, jobs).print(json)
}

impl By {
    pub(super) fn options(self) -> ReplyOptions {
        ReplyOptions {
            users: self == Self::User,
            accounts: self == Self::Account,
            qos: self == Self::Qos,
            ..ReplyOptions::default()
        }
    }
}

/// A row of the table: the jobs of one user, account, partition, QOS or reason. A job that waits in
/// several partitions or for one of several QOS counts in each.
#[derive(Debug, PartialEq, Serialize)]
struct JobsRow {
    name: String,
    running: JobsResources,
    pending: JobsResources,
    /// Wait of the job that has waited longest, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_wait: Option<u64>,
}

/// The resources that running jobs have, or that pending jobs ask for. `None`: it is known of none
/// of the jobs.
#[derive(Debug, Default, PartialEq, Serialize)]
struct JobsResources {
    jobs: u64,
    cpus: Option<u64>,
    gpus: Option<u64>,
    /// Memory of the jobs, bytes.
    memory: Option<u64>,
}

/// Makes the table of `stats --jobs`: the first rows, in the order of the CPUs that their jobs have
/// and ask for.
fn table(by: By, jobs: &Jobs) -> Table<JobsRow> {
    let time = jobs.last_update;
    let row = |name: &str, states: &_| JobsRow::new(name, states, time);
    let mut rows: Vec<JobsRow> = match by {
        By::User => {
            let name =
                |id: u32, name: &Option<String>| name.clone().unwrap_or_else(|| id.to_string());
            jobs.users.iter().map(|user| row(&name(user.id, &user.name), &user.states)).collect()
        }
        By::Account | By::Qos => {
            let NamedRows { names, rest } = if by == By::Qos { &jobs.qos } else { &jobs.accounts };
            let rows = names.iter().map(|(name, jobs)| row(name, &jobs.states));
            rows.chain([row("(other names)", rest)]).collect()
        }
        By::Partition => {
            jobs.partitions.iter().map(|(name, partition)| row(name, &partition.states)).collect()
        }
        By::Reason => {
            let row = |(name, tally): (&String, &_)| {
                JobsRow::from_tallies(name, JobTally::default(), *tally, time)
            };
            jobs.pending_reasons.iter().map(row).collect()
        }
    };
    rows.retain(|row| row.running.jobs > 0 || row.pending.jobs > 0);
    Table::new(Moment::Time(time), by, rows)
}

impl Row for JobsRow {
    const TITLE: &str = "running/pending";
    const HEAD: &[&str] = &["jobs", "CPUs", "GPUs", "memory", "oldest wait"];
    const NO_GPUS: &str = "0/0";

    fn weight(&self) -> (u64, u64) {
        let Self { running, pending, .. } = self;
        let cpus = |held: &JobsResources| held.cpus.unwrap_or(0);
        (cpus(running).saturating_add(cpus(pending)), running.jobs.saturating_add(pending.jobs))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn cells(&self) -> Vec<String> {
        let both = |of: fn(&JobsResources) -> String| {
            format!("{}/{}", of(&self.running), of(&self.pending))
        };
        vec![
            both(|held| held.jobs.to_string()),
            both(|held| known(held.cpus, |cpus| cpus.to_string())),
            both(|held| known(held.gpus, |gpus| gpus.to_string())),
            both(|held| known(held.memory, amount)),
            self.oldest_wait.map(duration).unwrap_or_default(),
        ]
    }
}

impl JobsRow {
    fn new(name: &str, states: &JobStates, time: i64) -> Self {
        Self::from_tallies(name, states.running(), states.pending(), time)
    }

    fn from_tallies(name: &str, running: JobTally, pending: JobTally, time: i64) -> Self {
        Self {
            name: name.to_owned(),
            running: JobsResources::from_tally(running),
            pending: JobsResources::from_tally(pending),
            oldest_wait: pending.oldest.map(|since| seconds_since(since, time)),
        }
    }
}

impl JobsResources {
    fn from_tally(tally: JobTally) -> Self {
        let JobTally { jobs, cpus, gpus, memory, .. } = tally;
        let [cpus, gpus, memory] = [cpus, gpus, memory].map(|sum| tally.figure(sum));
        Self { jobs, cpus, gpus, memory: memory.map(|memory| memory.saturating_mul(1 << 20)) }
    }
}

fn known(number: Option<u64>, text: fn(u64) -> String) -> String {
    number.map_or_else(|| "?".to_owned(), text)
}

/// Formats bytes in the greatest of M, G, T and P of which there is one, such as `2.5G`. M has no
/// tenths, and less than 1 MiB is `0`.
fn amount(bytes: u64) -> String {
    let mebibytes = bytes >> 20;
    let (unit, power) = match mebibytes {
        0 => return "0".to_owned(),
        1..1024 => return format!("{mebibytes}M"),
        0x400..0x10_0000 => ("G", 10),
        0x10_0000..0x4000_0000 => ("T", 20),
        _ => ("P", 30),
    };
    let tenths = (mebibytes.saturating_mul(20) >> power).div_ceil(2);
    format!("{}.{}{unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{NamedJobs, UserJobs};

    use super::*;

    /// Returns the states of a running and a pending job for which squeue has other words.
    fn states(running: u64, pending: u64) -> JobStates {
        let tally = |cpus, oldest| JobTally {
            jobs: 1,
            cpus: Some(cpus),
            gpus: Some(0),
            memory: Some(2560),
            oldest,
            ..JobTally::default()
        };
        let all = [
            ("running", "configuring", tally(running, None)),
            ("pending", "resv_del_hold", tally(pending, Some(1000))),
        ];
        let mut states = JobStates::default();
        for (base, shown, tally) in all.into_iter().filter(|(.., tally)| tally.cpus > Some(0)) {
            states.unfinished.insert(base.to_owned(), tally);
            states.shown.insert(shown.to_owned(), tally);
        }
        states
    }

    #[test]
    fn the_first_twenty_by_what_they_have_and_ask_for_and_how_many_more_there_are() {
        let user = |id: u32| UserJobs {
            id,
            states: states(id.into(), (id % 2).into()),
            ..UserJobs::default()
        };
        let jobs = Jobs {
            last_update: 1000 + 93_784,
            users: (0..25).map(user).collect(),
            ..Jobs::default()
        };
        let table = table(By::User, &jobs);
        // Number 0 has no job at all.
        assert_eq!((table.rows.len(), table.rows_in_all), (20, 24));
        assert_eq!((table.rows[0].name.as_str(), table.rows[1].name.as_str()), ("23", "24"));
        assert_eq!((table.rows[0].oldest_wait, table.rows[1].oldest_wait), (Some(93_784), None));
        let text = table.text();
        let row = text.lines().find(|line| line.starts_with("23 ")).unwrap();
        let expected = ["23", "1/1", "23/1", "2.5G/2.5G", "1-02:03:04"];
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), expected);
        assert!(text.ends_with("\nand 4 more\n"), "{text}");
    }

    #[test]
    fn a_table_of_the_largest_cluster_fits_a_terminal() {
        let tally = |jobs, cpus, gpus, memory| JobTally {
            jobs,
            cpus: Some(cpus),
            gpus: Some(gpus),
            memory: Some(memory),
            oldest: Some(1000),
            ..JobTally::default()
        };
        let mut states = JobStates::default();
        let running = tally(12_345, 123_456, 12_345, 123 << 20);
        states.unfinished.insert("running".to_owned(), running);
        let pending = tally(123_456, 1_234_567, 123_456, 1234 << 20);
        states.unfinished.insert("pending".to_owned(), pending);
        let user = |id: u32| UserJobs {
            id,
            name: Some("somebody_with_a_long_name".to_owned()),
            states: states.clone(),
            ..UserJobs::default()
        };
        let last_update = 1000 + 93_784;
        let jobs = Jobs { last_update, users: (0..3).map(user).collect(), ..Jobs::default() };
        let text = table(By::User, &jobs).text();
        assert!(text.contains("12345/123456 123456/1234567"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("GPUs") && text.contains("someb"), "{text}");
    }

    #[test]
    fn jobs_whose_names_have_no_row_are_one_row() {
        let named = NamedJobs { states: states(5, 1), has_started: true };
        let rest = states(0, 7);
        let rows = |rest| {
            let qos = NamedRows { names: [("high".to_owned(), named.clone())].into(), rest };
            table(By::Qos, &Jobs { last_update: 1000, qos, ..Jobs::default() }).rows
        };
        let names = |rows: Vec<JobsRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(names(rows(rest)), ["(other names)", "high"]);
        assert_eq!(names(rows(JobStates::default())), ["high"]);
    }

    #[test]
    fn reasons_are_those_of_jobs_that_wait() {
        let tally = JobTally { jobs: 3, cpus: Some(12), oldest: Some(900), ..JobTally::default() };
        let jobs = Jobs {
            last_update: 1000,
            pending_reasons: [("Priority".to_owned(), tally)].into(),
            ..Jobs::default()
        };
        let rows = table(By::Reason, &jobs).rows;
        assert_eq!(
            (rows[0].running.jobs, rows[0].pending.jobs, rows[0].oldest_wait),
            (0, 3, Some(100))
        );
    }

    #[test]
    fn amounts_and_waits_are_short_and_no_half_of_an_amount_is_cut_off() {
        let amounts = [0, 1 << 20, 2947 << 20, 3200 << 20, 5 << 40, u64::MAX].map(amount);
        assert_eq!(amounts, ["0", "1M", "2.9G", "3.1G", "5.0T", "16384.0P"]);
        assert_eq!([5, 3661, 86_400].map(duration), ["0:05", "1:01:01", "1-00:00:00"]);
    }
}
