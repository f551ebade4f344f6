//! Outages longer than the limits: the oldest ticks are missing as a whole, and the counters equal
//! the number of their points.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Folder, Manner, Sink, Stage, destination};

use super::{LONG, replay, side_by_side};

/// Ticks in a quarter of the file.
const MOST_GAPS: usize = 8;

#[test]
fn an_outage_longer_than_the_caps() {
    side_by_side(&[
        ("max_bytes of the file", || full(true)),
        ("max_bytes in memory", || full(false)),
        ("max_bytes, lowered by a reload", lowered),
        ("max_age", old),
        ("max_bytes, over two runs", full_and_killed),
        ("max_age and a recording of three days", recording_of_days),
    ]);
}

/// A daemon without Carbon, with ticks of 130 KB, so that a file of the smallest size is full after
/// 25: paths of the greatest legal length, and the figures of six more destinations, which accept
/// everything.
fn small(on_disk: bool) -> Result<(Stage, Vec<Sink>)> {
    small_of(on_disk, "4MiB", 32)
}

fn small_of(on_disk: bool, max_bytes: &str, ticks: usize) -> Result<(Stage, Vec<Sink>)> {
    let mut stage = Stage::new(&Options::default())?;
    stage.carbon.process.stop()?;
    stage.plan.top = format!("prefix = \"{}\"\n", LONG.map(|word| word.repeat(47)).join("."));
    let sinks = (0..6).map(|_| Sink::start(Manner::Record)).collect::<Result<Vec<_>>>()?;
    for (sink, name) in sinks.iter().zip(["u", "v", "w", "x", "y", "z"]) {
        stage.plan.destinations += &destination(name, &sink.address());
    }
    stage.plan.queue = format!("max_bytes = \"{max_bytes}\"\n");
    stage.plan.dir = stage.plan.dir.filter(|_| on_disk);
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(ticks)?;
    Ok((stage, sinks))
}

fn full(on_disk: bool) -> Result<String> {
    let (stage, _sinks) = small(on_disk)?;
    oldest_are_missing(stage, "points_dropped_full", 0.0)
}

/// All of them went: the file's parts were as large as the lower limit.
fn lowered() -> Result<String> {
    let (mut stage, _sinks) = small_of(true, "64MiB", 36)?;
    stage.plan.queue = "max_bytes = \"4MiB\"\n".to_owned();
    stage.reload()?;
    stage.ticks(2)?;
    let kept = fs::read_dir(stage.plan.dir.clone().context("no folder")?)?;
    let kept: u64 = kept.flatten().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    ensure!(kept > 3 << 20, "{kept} bytes were kept");
    oldest_are_missing(stage, "points_dropped_full", 0.0)
}

fn old() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    stage.carbon.process.stop()?;
    stage.plan.queue = "max_age = \"10s\"\nresend_window = \"5s\"\n".to_owned();
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(25)?;
    oldest_are_missing(stage, "points_dropped_age", 0.0)
}

/// The last tick of the earlier run reports what that run had dropped.
fn full_and_killed() -> Result<String> {
    let (mut stage, _sinks) = small(true)?;
    stage.stop()?;
    let before = stage.of_carbon("points_dropped_full")?;
    stage.daemon.spawn()?;
    stage.ticks(6)?;
    oldest_are_missing(stage, "points_dropped_full", before)
}

fn oldest_are_missing(mut stage: Stage, counter: &str, before: f64) -> Result<String> {
    stage.carbon_back()?;
    stage.ticks(2)?;
    let findings = stage.finish()?;
    let dropped = before + stage.of_carbon(counter)?;
    ensure!(findings.wrong.is_empty(), "{findings}");
    let missing = findings.missing() as f64;
    let newest_lost = findings.lost.keys().last().copied().unwrap_or_default();
    let older = stage.collected.counted().filter(|(at, _)| *at <= newest_lost).count();
    let lost = stage.collected.counted().filter(|(at, _)| findings.lost.contains_key(at));
    let whole = lost.map(|(_, points)| points.len()).sum::<usize>();
    ensure!(missing > 0.0, "everything fitted");
    // A Carbon that answers slowly while the backlog is sent may get a tick before its segment is
    // evicted.
    let gaps = older - findings.lost.len();
    ensure!(
        gaps <= MOST_GAPS && gaps < findings.lost.len(),
        "not the oldest, {gaps} gaps: {findings}"
    );
    ensure!(findings.missing() == whole, "parts of ticks: {findings}");
    // The last tick of a run cannot count what it evicts itself: an eighth of the file at once.
    let sizes: Vec<usize> = findings.lost.values().map(Vec::len).collect();
    let untold = (1..8)
        .filter(|_| before > 0.0)
        .flat_map(|ticks| sizes.windows(ticks).map(|its| its.iter().sum()));
    let is_explained = std::iter::once(0_usize)
        .chain(untold)
        .any(|untold| (missing - dropped - untold as f64).abs() < 0.5);
    ensure!(is_explained, "{missing} are missing, {dropped} were counted: {findings}");
    Ok(format!("{findings}, {dropped} counted"))
}

/// The recording has its own timestamps, and nothing in it is too old.
fn recording_of_days() -> Result<String> {
    const READINGS: u32 = 73;
    let folder = Folder::new()?;
    let sink = Sink::start(Manner::Record)?;
    let times = (0..READINGS).map(|n| 1_700_000_000.0 + 3600.0 * f64::from(n));
    replay(&folder, &sink.destination("sink"), times, &["--interval", "10s"])?;
    let bytes = sink.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let arrived: BTreeSet<&str> = text.lines().collect();
    for n in 0..READINGS {
        let line = format!(
            "replayed.slurm_sched_stats.gauge-jobs_submitted {n} {}",
            1_700_000_000 + 3600 * n
        );
        ensure!(arrived.contains(line.as_str()), "{line} did not arrive");
    }
    Ok(format!("{READINGS} readings of 3 days, all arrived"))
}
