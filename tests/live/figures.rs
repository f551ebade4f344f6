//! whisper contains what sdiag printed, digit for digit, at every tick, with one RPC for each tick.

// libtest runs modules in alphabetical order: this one waits for a minute and then keeps the cores
// busy for two minutes, during which tests that depend on time would take longer.
pub(crate) mod after_work;
mod clock;
mod interval;
mod observation;
mod rpc_tables;
pub(crate) mod rpcs;
mod stats;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::metrics::{FIGURES, figure};
use sandbox::{Sandbox, Sdiag, Slurm, section, unix_seconds, wait};

use self::observation::{Observation, observe, path};
use super::SOON;

/// sdiag prints "Cycles per minute" from its second minute on, and slurmctld counts its jobs every
/// half minute.
const LONG_ENOUGH: Duration = wait::LIMIT.saturating_mul(2);

/// They change within a tick and change back, so two runs of sdiag may both miss what was between
/// them.
const MOMENTARY: &str =
    "server_thread_count agent_queue_size agent_count agent_thread_count dbd_agent_queue_size";

/// The type that a request of ours and a run of sdiag add to, after the answer.
const OWN_TYPE: &str = "REQUEST_STATS_INFO";

/// It is measured again for every caller.
const LATENCY: &str = "gettimeofday_latency";

/// Figures that these jobs may not change: there is no slurmdbd, no het job and no message that
/// waits for an agent, slurmctld counts as failed only what slurmd could not run, and a mean of
/// less than one is 0.
const MAYBE_ZERO: &str = "agent_queue_size dbd_agent_queue_size \
    bf_total_het_jobs_since_cycle_start jobs_failed main_mean_depth_cycle";

/// Lines of sdiag that are in no table of ours: a row of another one, and the time of its request.
const UNLISTED: [&str; 2] = ["RPC queue enabled", "sdiag output at"];

/// Figures that sdiag omits if there is nothing to divide by.
const CONDITIONAL: &str = "main_mean_cycle main_mean_depth_cycle main_cycles_per_minute \
    bf_mean_cycle bf_depth_mean bf_depth_mean_try bf_queue_length_mean bf_table_size_mean";

fn is_of(words: &str, leaf: &str) -> bool {
    words.split(' ').any(|word| word == leaf)
}

#[test]
fn every_figure_in_whisper_is_the_one_that_sdiag_printed() {
    let mut sandbox = Sandbox::start().unwrap();
    let users = sandbox.folder.write("users.toml", "[collectors.rpc_stats]\nusers = 10\n").unwrap();
    let mut collector = sandbox.collector(&["--interval", "1s", "--config", &users]).unwrap();
    collector.line("slurmctld answers", SOON).unwrap();
    let mut seen = without_cycles(&sandbox).unwrap();

    let begun = unix_seconds() + 2;
    let first = seen.len();
    run_jobs(&sandbox.slurm).unwrap();
    rpc_tables::call(&sandbox);
    // In its first minute sdiag prints no line "Cycles per minute".
    stats::a_nameless_user_has_a_number(&sandbox);
    stats::compare(&sandbox);
    let start = Instant::now();
    while !missing(&seen).is_empty() {
        assert!(
            start.elapsed() < LONG_ENOUGH,
            "never stood still between two sdiags: {:?}",
            missing(&seen)
        );
        seen.push(observe(&sandbox).unwrap());
    }
    // By now it prints that line.
    stats::compare(&sandbox);
    every_line_is_a_figure(&sandbox.slurm.sdiag().unwrap());
    let (end, last) = (unix_seconds() - 2, seen.len());
    // Messages to a frozen slurmd keep their agent busy for MessageTimeout.
    sandbox.slurm.slurmd.freeze().unwrap();
    sandbox.slurm.call("scancel --name=stays").unwrap();
    let agents = || sandbox.slurm.sdiag().unwrap().get(section::TOP, "Agent count");
    wait::until("an agent at work", SOON, || agents() != Some(0)).unwrap();
    seen.extend((0..3).map(|_| observe(&sandbox).unwrap()));
    sandbox.slurm.slurmd.thaw().unwrap();
    // The same keys again, whose series have points by now.
    sandbox.slurm.call("scancel --name=waits").unwrap();
    seen.extend(without_cycles(&sandbox).unwrap());

    assert!(collector.stop().unwrap().status.success());
    compare(&sandbox, &seen).unwrap();
    rpc_tables::compare(&sandbox, &seen[first..last], begun, end);
    interval::compare(&sandbox);
}

/// A line that a release adds, and nobody has listed in [`FIGURES`], would never be compared.
fn every_line_is_a_figure(sdiag: &Sdiag) {
    for (section, label) in sdiag.figures.keys() {
        let is_common =
            [section::TOP, section::MAIN, section::BACKFILL].contains(&section.as_str());
        let is_listed =
            FIGURES.iter().any(|figure| figure.section == section && figure.label == label);
        assert!(
            !is_common || is_listed || UNLISTED.contains(&label.as_str()),
            "{section}, {label}: it is not in FIGURES"
        );
    }
}

/// Ticks without a cycle to divide by.
fn without_cycles(sandbox: &Sandbox) -> Result<Vec<Observation>> {
    let mut seen = Vec::new();
    wait::until("a second without cycles after a reset", SOON, || {
        let observed = sandbox.slurm.call("sdiag --reset").and_then(|_| observe(sandbox));
        seen.extend(observed);
        CONDITIONAL.split(' ').all(|leaf| agreed(&seen, leaf, |value| value.is_none()))
    })?;
    Ok(seen)
}

/// Jobs that complete, fail, are cancelled, form an array, run, wait, and start by backfill.
fn run_jobs(slurm: &Slurm) -> Result<()> {
    slurm.submit(&["--wrap", "true"])?;
    slurm.submit(&["--array=1-3", "--wrap", "true"])?;
    slurm.submit(&["--wrap", "exit 1"])?;
    ended(slurm, "Jobs completed", 5)?;
    slurm.submit(&["--ntasks=6", "--time=10", "--job-name=stays", "--wrap", "exec sleep 600"])?;
    slurm.submit(&["--ntasks=8", "--time=10", "--job-name=waits", "--wrap", "true"])?;
    let cancelled = slurm.submit(&["--ntasks=8", "--time=10", "--wrap", "true"])?;
    slurm.run("scancel", &[&cancelled.to_string()])?;
    ended(slurm, "Jobs canceled", 1)?;
    // After the one that waits in the queue, but over before that could start.
    slurm.submit(&["--ntasks=1", "--time=1", "--wrap", "true"])?;
    ended(slurm, "Jobs completed", 6)
}

/// Jobs of every kind, until both schedulers have cycles and a mean over minutes.
pub(crate) fn work(slurm: &Slurm) {
    for _ in 0..3 {
        slurm.submit(&["--wrap", "true"]).unwrap();
    }
    slurm.submit(&["--ntasks=6", "--time=10", "--wrap", "exec sleep 600"]).unwrap();
    for _ in 0..4 {
        slurm.submit(&["--ntasks=8", "--time=10", "--wrap", "true"]).unwrap();
    }
    let has_cycles = |sdiag: Sdiag| {
        let has = |section, label| sdiag.get(section, label).is_some();
        has(section::MAIN, "Cycles per minute") && has(section::BACKFILL, "Mean cycle")
    };
    wait::until("cycles of both schedulers", SOON * 4, || slurm.sdiag().is_ok_and(has_cycles))
        .unwrap();
}

fn ended(slurm: &Slurm, label: &str, count: i64) -> Result<()> {
    let counted = || slurm.sdiag().is_ok_and(|sdiag| sdiag.get(section::TOP, label) == Some(count));
    wait::until(label, SOON, counted).map(drop)
}

/// The figures on which no two runs have agreed yet; those that can must also have changed from 0.
fn missing(seen: &[Observation]) -> Vec<&'static str> {
    let is_constant = |leaf: &&str| !is_of(MOMENTARY, leaf) && *leaf != LATENCY;
    let is_missing = |leaf: &&str| {
        let zero = is_of(MAYBE_ZERO, leaf);
        !agreed(seen, leaf, |value| if zero { value.is_some() } else { value > Some(0) })
    };
    FIGURES.iter().map(|figure| figure.leaf).filter(is_constant).filter(is_missing).collect()
}

fn agreed(seen: &[Observation], leaf: &str, wanted: impl Fn(Option<i64>) -> bool) -> bool {
    seen.iter().filter_map(|observation| observation.agreed(figure(leaf)?)).any(wanted)
}

fn compare(sandbox: &Sandbox, seen: &[Observation]) -> Result<()> {
    let last = seen.last().context("no observation")?;
    wait::until("the last tick in whisper, whole", SOON, || {
        let stored = |leaf| {
            sandbox.carbon.series(&path(leaf)).is_ok_and(|series| series.at(last.tick).is_some())
        };
        FIGURES
            .iter()
            .all(|figure| matches!(last.agreed(figure), None | Some(None)) || stored(figure.leaf))
    })?;
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    for figure in FIGURES {
        let series = sandbox.carbon.series(&path(figure.leaf))?;
        for observation in seen {
            let Some(printed) = observation.agreed(figure) else { continue };
            let stored = series.at(observation.tick);
            let same = stored == printed.map(exact);
            if figure.leaf == LATENCY {
                ensure!(
                    stored.is_some_and(|us| (1.0..100_000.0).contains(&us)),
                    "{stored:?} as {LATENCY}"
                );
            } else if !is_of(MOMENTARY, figure.leaf) {
                let (leaf, tick) = (figure.leaf, observation.tick);
                ensure!(same, "{leaf}: sdiag {printed:?}, whisper {stored:?} at {tick}");
            }
            let telling = printed != Some(0) || is_of(MAYBE_ZERO, figure.leaf);
            *compared.entry(figure.leaf).or_default() += usize::from(same && telling);
        }
    }
    for figure in FIGURES.iter().filter(|figure| figure.leaf != LATENCY) {
        let count = compared.get(figure.leaf).copied().context(figure.leaf)?;
        ensure!(count > 0, "{} was never what sdiag printed", figure.leaf);
    }
    Ok(())
}

/// sdiag's whole number as Carbon's float; all of them are far below 2^53.
fn exact(printed: impl ToString) -> f64 {
    printed.to_string().parse().unwrap()
}
