//! The output of squeue, sinfo and scontrol as rows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use sandbox::Slurm;
use slurm_snapshot::{JobTally, Shares};

use super::cast::Cast;

/// The width of each of squeue's columns.
const WIDTH: usize = 60;

/// The last is what they hold; for jobs that hold nothing, what they request.
const JOB_COLUMNS: &str = "jobarrayid state partition numcpus numnodes userid account qos \
    submittime eligibletime starttime endtime prioritylong name nodelist reason tres-alloc";

const NODE_COLUMNS: &str = "nodelist partitionname statelong nodeaiot cpusstate memory allocmem \
    freemem gres gresused version cpusload";

pub(crate) type Row = BTreeMap<&'static str, String>;

/// Every job by itself, including array tasks.
pub(crate) fn jobs(slurm: &Slurm) -> Result<Vec<Row>> {
    let format = format(JOB_COLUMNS);
    // Times as Unix seconds.
    let args = ["SLURM_TIME_FORMAT=%s", "squeue", "-a", "-h", "-r", "-O", &format];
    let active = rows(&slurm.run("env", &args)?, JOB_COLUMNS);
    let mut all = rows(&slurm.run("env", &[&args[..], &["-t", "all"]].concat())?, JOB_COLUMNS);
    // squeue 20.11 does not list a stopped or signaled job under any state.
    let known: BTreeSet<String> = all.iter().map(|job| job["jobarrayid"].clone()).collect();
    all.extend(active.into_iter().filter(|job| !known.contains(&job["jobarrayid"])));
    Ok(all)
}

/// A row for each node in each of its partitions. sinfo reads each partition in a thread: they come
/// in any order.
pub(crate) fn nodes(slurm: &Slurm) -> Result<Vec<Row>> {
    let text = slurm.run("sinfo", &["-a", "-h", "-N", "-O", &format(NODE_COLUMNS)])?;
    let mut rows = rows(&text, NODE_COLUMNS);
    rows.sort();
    Ok(rows)
}

/// Base state and flags of each node, according to scontrol.
pub(crate) fn node_states(cast: &Cast) -> Result<BTreeMap<String, (String, BTreeSet<String>)>> {
    let text = cast.slurm.call("scontrol -a -o show node")?;
    let dead = cast.slurm.call("sinfo -a -h -N --dead -o %N")?;
    let dead: BTreeSet<&str> = dead.split_whitespace().collect();
    let lines = text.lines().map(|line| {
        let name = value(line, "NodeName").context("NodeName")?;
        let state = value(line, "State").context("State")?.to_lowercase();
        let words = state.split('+').map(|word| word.trim_end_matches('*'));
        let mut words: Vec<&str> = if cast.knows("21.08") {
            words.collect()
        } else {
            words.flat_map(words_of_20_11).collect()
        };
        // 20.11 does not print it for a node that is powering up.
        words.extend(dead.contains(name).then_some("not_responding"));
        let mut words = words.into_iter().map(str::to_owned);
        let base = words.next().context("a base state")?;
        Ok((name.to_owned(), (base, words.collect())))
    });
    lines.collect()
}

/// 20.11 prints some flags as a suffix, or instead of the state that they belong to; a node that is
/// powering down is also powered down.
fn words_of_20_11(word: &str) -> Vec<&str> {
    match word {
        "maint" => vec!["idle", "maintenance", "reserved"],
        "reserved" => vec!["idle", "reserved"],
        "reboot" => vec!["down", "reboot_requested"],
        "mixed@" => vec!["mixed", "reboot_requested"],
        "mixed#" => vec!["mixed", "powering_up"],
        "idle#" => vec!["idle", "powering_up"],
        "power" => vec!["powered_down"],
        "powering_down" => vec!["powering_down", "powered_down"],
        other => vec![other],
    }
}

/// The value of `KEY=value` in a line of `scontrol -o`.
pub(crate) fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn format(columns: &str) -> String {
    columns.split(' ').map(|column| format!("{column}:{WIDTH}")).collect::<Vec<_>>().join(",")
}

fn rows(text: &str, columns: &'static str) -> Vec<Row> {
    let row = |line: &str| {
        let cells = line
            .as_bytes()
            .chunks(WIDTH)
            .map(|cell| String::from_utf8_lossy(cell).trim().to_owned());
        columns.split(' ').zip(cells).collect()
    };
    text.lines().map(row).collect()
}

pub(crate) fn tally(job: &Row) -> JobTally {
    JobTally {
        jobs: 1,
        cpus: Some(job["numcpus"].parse().unwrap()),
        nodes: Some(job["numnodes"].parse().unwrap()),
        gpus: Some(job["name"].trim_start_matches('g').parse().unwrap()),
        memory: Some(memory(&job["tres-alloc"])),
        oldest: pending(job).then(|| job["submittime"].parse().unwrap()),
    }
}

/// Whatever word squeue shows: a job without nodes that has not ended.
pub(crate) fn pending(job: &Row) -> bool {
    job["nodelist"].is_empty() && !has_ended(job)
}

/// The end of a job that has not ended is expected, or not known.
pub(crate) fn has_ended(job: &Row) -> bool {
    job["endtime"].parse::<u64>().is_ok_and(|end| end <= sandbox::unix_seconds())
}

/// MiB in `cpu=1,mem=2.50G,node=1`.
fn memory(tres: &str) -> u64 {
    let Some(amount) = tres.split(',').find_map(|part| part.strip_prefix("mem=")) else { return 0 };
    let unit = amount.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = amount.trim_end_matches(unit).parse().unwrap();
    let mebibytes = match unit {
        "" | "M" => number,
        "G" => number * 1024.0,
        _ => panic!("{amount}"),
    };
    format!("{mebibytes}").parse().unwrap()
}

/// Jobs by the words that `keys` returns for each.
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

/// The numbers in `A/I/O/T`.
pub(crate) fn shares(text: &str) -> Shares {
    let parts: Vec<u64> = text.split('/').map(|part| part.parse().unwrap()).collect();
    let [allocated, idle, other, total] = parts[..] else { panic!("{text}") };
    Shares { allocated, idle, other, total }
}
