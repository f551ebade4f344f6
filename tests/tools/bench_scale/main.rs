//! `make bench-scale`: a cluster of 5,000 nodes with 50 features each, and 100,000 waiting jobs, all
//! on this host. It measures what one full survey costs, compared with a bare C loop that makes the
//! same calls and frees the replies, and with the commands that exporters fork. It also checks
//! whether the scheduler's statistics lose a slot in the meantime, even while 5,000 jobs start at
//! once and hold the scheduler's lock.
//!
//! Only slurmctld runs: the nodes are CLOUD nodes that never boot.

#![forbid(unsafe_code)]

mod accounting;
mod cluster;
mod exporters;
mod reader;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use sandbox::{Daemon, Folder, Slurm};
use tools::{exit_code, none_above, number, say};

use self::cluster::{DUMP, calls};
use self::reader::{Cost, Surveys};

const JOBS: u32 = 100_000;
const NODES: u32 = 5_000;
/// Measurements of each contender; the median counts.
const ROUNDS: usize = 5;

/// The targets: compared with the C loop.
const MOST_CPU: f64 = 1.2;
const MOST_WALL: f64 = 1.2;
const MOST_MEMORY: f64 = 1.15;
/// And with the cheapest exporter.
const MOST_OF_EXPORTER: f64 = 0.2;

fn main() -> ExitCode {
    exit_code("bench", bench_all())
}

/// Benchmarks surveys and accounting, or one of them.
fn bench_all() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("accounting") => accounting::bench(),
        Some("surveys") => bench(),
        Some(other) => anyhow::bail!("surveys or accounting, not {other:?}"),
        None => bench().and(accounting::bench()),
    }
}

fn bench() -> Result<()> {
    let (jobs, nodes) = (number("SCALE_JOBS", JOBS)?, number("SCALE_NODES", NODES)?);
    let seconds = number("SCALE_SECONDS", 600)?;
    let folder = Folder::new()?;
    let slurm = cluster::start(&folder, nodes)?;
    cluster::submit(&folder, &slurm, "blocked", jobs)?;
    say(&format!("{nodes} nodes, {jobs} waiting jobs\n\n"))?;

    let floor = measured(&slurm, "a bare C loop: nodes, partitions, jobs, freed", || {
        cluster::floor(&folder, &slurm, &["surveys", &ROUNDS.to_string()])
    })?;
    let mut reader = Surveys::start(&slurm)?;
    let idle = reader.rss_kib()?;
    let ours = measured(&slurm, "slurm-graphite-reader: the same, counted", || {
        reader.take(Some(&slurm), ROUNDS)
    })?;
    let unchanged =
        measured(&slurm, "slurm-graphite-reader, nothing changed", || reader.take(None, ROUNDS))?;
    let after = reader.rss_kib()?;
    drop(reader);
    let squeue = measured(&slurm, "squeue alone", || {
        Ok(cluster::forked(&folder, &slurm, ROUNDS, "squeue -h -o '%i %T'")?.0)
    })?;
    say(&table(&floor, &[&floor, &ours, &unchanged, &squeue]))?;
    say(&format!(
        "\nThe reader's memory: {idle} KiB before, at most {} KiB, {after} KiB afterwards.\n\n",
        ours.cost.peak_kib
    ))?;
    let (table, cheapest) = exporters::measure(&folder, &slurm, ROUNDS, &ours.cost)?;
    say(&format!("{table}\n"))?;
    judge(&floor.cost, &ours, cheapest)?;
    ensure!(after < idle + 8 * 1024, "the reader keeps {after} KiB, of {idle} before");
    grid(&folder, &slurm, nodes, seconds)
}

/// Runs a daemon that collects everything for ten minutes; meanwhile as many jobs as there are
/// nodes start at once.
fn grid(folder: &Folder, slurm: &Slurm, nodes: u32, seconds: u32) -> Result<()> {
    let toml = format!("conf = {:?}\n", slurm.conf());
    let mut collectors = "[collectors]\nmax_threads = 1000\n".to_owned();
    for name in ["jobs", "nodes", "partitions", "licenses", "reservations", "controllers"] {
        collectors.push_str(&format!("[collectors.{name}]\nenabled = true\ninterval = \"10s\"\n"));
        if name == "nodes" {
            collectors.push_str("events = true\nfeatures = 20\n");
        }
    }
    let mut daemon = Daemon::start_surveying(folder, &toml, &collectors)?;
    let half = usize::try_from(seconds / 2)?;
    daemon.ticks(half)?;
    let burst = Instant::now();
    cluster::submit(folder, slurm, "debug", nodes)?;
    let burst = burst.elapsed().as_secs();
    daemon.ticks(half.saturating_sub(usize::try_from(burst)?).max(20))?;
    daemon.check_ticks()?;
    let recorded = daemon.recorded()?;
    let failed = recorded.own("slurmctld_up").values().filter(|&&up| up < 0.5).count();
    let ticks = recorded.own("ticks_run").len();
    let asked = ["jobs", "nodes", "licenses", "reservations", "controllers"].map(|reply| {
        (reply, recorded.reply(reply, "readings_ok").into_values().next_back().unwrap_or(0.0))
    });
    daemon.stop()?;
    ensure!(failed == 0, "{failed} of {ticks} ticks had no statistics");
    ensure!(asked.iter().all(|(_, ok)| *ok > 0.0), "a reply that never came: {asked:?}");
    Ok(())
}

/// A row of the table.
struct Row {
    name: &'static str,
    cost: Cost,
    /// Number of times that slurmctld was asked for all jobs in each measurement.
    dumps: f64,
}

/// Measures something [`ROUNDS`] times.
fn measured(
    slurm: &Slurm,
    name: &'static str,
    measure: impl FnOnce() -> Result<Cost>,
) -> Result<Row> {
    let before = calls(slurm, DUMP)?;
    let cost = measure()?;
    Ok(Row { name, cost, dumps: (calls(slurm, DUMP)? - before) / ROUNDS as f64 })
}

fn table(floor: &Row, rows: &[&Row]) -> String {
    let head = "| | CPU | compared with the C loop | wall | compared | job RPCs | most memory |\n\
        |---|---|---|---|---|---|---|\n";
    let row = |Row { name, cost, dumps }: &&Row| {
        format!(
            "| {name} | {:.1} ms | {:.2} | {:.1} ms | {:.2} | {dumps:.0} | {:.0} MB |\n",
            cost.cpu / 1e3,
            cost.cpu / floor.cost.cpu,
            cost.wall / 1e3,
            cost.wall / floor.cost.wall,
            cost.peak_kib * 1024.0 / 1e6
        )
    };
    std::iter::once(head.to_owned()).chain(rows.iter().map(row)).collect()
}

fn judge(floor: &Cost, Row { cost: ours, dumps, .. }: &Row, cheapest: f64) -> Result<()> {
    ensure!((dumps - 1.0).abs() < 1e-9, "{dumps} job dumps a survey, not 1");
    none_above([
        ("CPU compared with the C loop", ours.cpu / floor.cpu, MOST_CPU),
        ("wall time compared with it", ours.wall / floor.wall, MOST_WALL),
        ("memory compared with it", ours.peak_kib / floor.peak_kib, MOST_MEMORY),
        ("CPU compared with the cheapest exporter", 1.0 / cheapest, MOST_OF_EXPORTER),
    ])
}
