//! What squeue, sinfo and scontrol print, as rows.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use sandbox::Slurm;
use slurm_snapshot::{JobTally, Shares};

/// Columns of squeue, each as wide as this.
const WIDTH: usize = 60;

const JOB_COLUMNS: [&str; 14] = [
    "state",
    "partition",
    "numcpus",
    "numnodes",
    "userid",
    "account",
    "qos",
    "submittime",
    "eligibletime",
    "starttime",
    "prioritylong",
    "name",
    "nodelist",
    "reason",
];

const NODE_COLUMNS: [&str; 9] = [
    "nodelist",
    "partitionname",
    "statelong",
    "nodeaiot",
    "cpusstate",
    "memory",
    "allocmem",
    "freemem",
    "gresused",
];

/// A row: column → text.
pub(crate) type Row = BTreeMap<&'static str, String>;

/// Every job by itself, array tasks too.
pub(crate) fn jobs(slurm: &Slurm) -> Result<Vec<Row>> {
    let format = format(&JOB_COLUMNS);
    // Moments as Unix seconds.
    let args = ["SLURM_TIME_FORMAT=%s", "squeue", "-a", "-h", "-r", "-t", "all", "-O", &format];
    Ok(rows(&slurm.run("env", &args)?, &JOB_COLUMNS))
}

/// A row for each node and partition that it is in.
pub(crate) fn nodes(slurm: &Slurm) -> Result<Vec<Row>> {
    let text = slurm.run("sinfo", &["-a", "-h", "-N", "-O", &format(&NODE_COLUMNS)])?;
    Ok(rows(&text, &NODE_COLUMNS))
}

/// Node → base state and flags, as scontrol joins them.
pub(crate) fn node_states(slurm: &Slurm) -> Result<BTreeMap<String, Vec<String>>> {
    let text = slurm.run("scontrol", &["-a", "-o", "show", "node"])?;
    let lines = text.lines().map(|line| {
        let state = value(line, "State").context("State")?;
        let words = state.split('+').map(|word| word.trim_end_matches('*').to_lowercase()).collect();
        Ok((value(line, "NodeName").context("NodeName")?.to_owned(), words))
    });
    lines.collect()
}

/// `KEY=value` in a line of `scontrol -o`.
pub(crate) fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn format(columns: &[&str]) -> String {
    columns.iter().map(|column| format!("{column}:{WIDTH}")).collect::<Vec<_>>().join(",")
}

fn rows(text: &str, columns: &[&'static str]) -> Vec<Row> {
    let row = |line: &str| {
        let cells = line.as_bytes().chunks(WIDTH).map(|cell| String::from_utf8_lossy(cell).trim().to_owned());
        columns.iter().copied().zip(cells).collect()
    };
    text.lines().map(row).collect()
}

/// What a job adds.
pub(crate) fn tally(job: &Row) -> JobTally {
    JobTally {
        jobs: 1,
        cpus: job["numcpus"].parse().unwrap(),
        nodes: job["numnodes"].parse().unwrap(),
        gpus: job["name"].trim_start_matches('g').parse().unwrap(),
    }
}

/// Jobs by the words that `keys` gives of each.
pub(crate) fn by<'a>(
    jobs: impl IntoIterator<Item = &'a Row>,
    keys: impl Fn(&Row) -> Vec<String>,
) -> BTreeMap<String, JobTally> {
    let mut sums: BTreeMap<String, JobTally> = BTreeMap::new();
    for job in jobs {
        for key in keys(job) {
            sums.entry(key).or_default().add(tally(job));
        }
    }
    sums
}

/// `A/I/O/T`.
pub(crate) fn shares(text: &str) -> Shares {
    let parts: Vec<u64> = text.split('/').map(|part| part.parse().unwrap()).collect();
    let [allocated, idle, other, total] = parts[..] else { panic!("{text}") };
    Shares { allocated, idle, other, total }
}
