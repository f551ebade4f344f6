//! The collector's cost for slurmctld, by slurmctld's own count.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use sandbox::{RpcRow, Sandbox, Sdiag, proc, unix_seconds, wait};

use super::observation::path;
use super::{SOON, exact};

const TICKS: u64 = 10;

/// Number of times that sdiag may miss a tick's second on a slow machine.
const TRIES: u64 = 30;

/// The collectors that use the statistics.
const FAMILIES: [&str; 5] = ["sched_stats", "sched_interval", "sched_exit", "rpc_stats", "health"];

#[test]
fn a_tick_is_one_rpc_whatever_is_enabled_also_the_first_of_a_reader() {
    let sandbox = Sandbox::start().unwrap();
    also_the_first_of_a_reader(&sandbox);
    // By its type, a collector of the statistics cannot ask for anything else.
    a_tick_is_one_rpc(&sandbox, &FAMILIES);
    a_tick_is_one_rpc(&sandbox, &[]);
}

fn also_the_first_of_a_reader(sandbox: &Sandbox) {
    let build_info = || count(&sandbox.slurm.sdiag().unwrap(), "REQUEST_BUILD_INFO");
    let before = build_info();
    let mut collector = sandbox.collector(&["--interval", "1s"]).unwrap();
    let first = unix_seconds() + 3;
    let (start_tick, start, _) = sdiag_within(sandbox, first).unwrap();
    assert_eq!(
        count(&start, "REQUEST_BUILD_INFO"),
        before,
        "slurmctld answers that behind its locks"
    );
    let (end_tick, end, asked) = sdiag_within(sandbox, start_tick + TICKS).unwrap();
    // sdiag is counted after its answer, so the first run is counted in the second.
    let expected =
        BTreeMap::from([("REQUEST_STATS_INFO".to_owned(), end_tick - start_tick + asked)]);
    assert_eq!(grown(&start, &end), expected);

    let readers = proc::children(collector.pid().unwrap());
    assert_eq!(readers.len(), 1, "{readers:?}");
    readers.into_iter().for_each(|reader| proc::signal(reader, proc::Signal::KILL).unwrap());
    wait::until("another reader", SOON, || !proc::children(collector.pid().unwrap()).is_empty())
        .unwrap();
    sandbox.value_at(&path("jobs_submitted"), unix_seconds() + 2, SOON).unwrap();
    assert_eq!(build_info(), before);
    assert!(collector.stop().unwrap().after < Duration::from_secs(5));
}

fn a_tick_is_one_rpc(sandbox: &Sandbox, enabled: &[&str]) {
    let host = "cluster.slurm_graphite.";
    let tables = FAMILIES
        .map(|family| format!("[collectors.{family}]\nenabled = {}\n", enabled.contains(&family)));
    let file = sandbox.folder.write("slurm-graphite.toml", &tables.concat()).unwrap();
    let mut collector = sandbox.collector(&["--interval", "1s", "--config", &file]).unwrap();
    collector.line("slurmctld answers", SOON).unwrap();
    let ran = || {
        let paths = sandbox.carbon.paths();
        let path = paths
            .keys()
            .find(|path| path.starts_with(host) && path.ends_with("gauge-readings_ok"))?;
        sandbox.carbon.series(path).ok()?.last()
    };
    let since = unix_seconds();
    let newer = || ran().filter(|(at, _)| *at > since + 1);
    let (_, ok) = wait::until_some("a tick", SOON, newer).unwrap();
    let start = sandbox.slurm.sdiag().unwrap();
    wait::pause(Duration::from_secs(4));
    let end = sandbox.slurm.sdiag().unwrap();
    let ended = unix_seconds();
    let (_, after) =
        wait::until_some("the last tick", SOON, || ran().filter(|(at, _)| *at > ended)).unwrap();
    let grown = grown(&start, &end);
    assert_eq!(grown.keys().collect::<Vec<_>>(), ["REQUEST_STATS_INFO"], "{enabled:?}");
    let asked = exact(grown.values().sum::<u64>());
    // The first sdiag is counted in the second, and ticks continue in between.
    assert!(asked >= 3.0 && asked - 1.0 <= after - ok, "{asked}: {enabled:?}");
    collector.stop().unwrap();
}

/// The RPCs that slurmctld served between two runs, without slurmd's own, which come at any time.
fn grown(start: &Sdiag, end: &Sdiag) -> BTreeMap<String, u64> {
    let rows =
        end.by_type.iter().map(|row| (row.name.clone(), row.count - count(start, &row.name)));
    rows.filter(|(name, more)| *more > 0 && name != "MESSAGE_NODE_REGISTRATION_STATUS").collect()
}

/// Runs sdiag in the same second as a tick that is stored, so that it is known what sdiag counts:
/// this tick or, on a machine that is too slow for that, a later one. Also returns how often sdiag
/// was run.
fn sdiag_within(sandbox: &Sandbox, mut tick: u64) -> Result<(u64, Sdiag, u64)> {
    for asked in 1..=TRIES {
        sandbox.value_at(&path("jobs_submitted"), tick, SOON)?;
        let sdiag = sandbox.slurm.sdiag()?;
        if unix_seconds() == tick {
            return Ok((tick, sdiag, asked));
        }
        tick = unix_seconds() + 1;
    }
    bail!("sdiag never answered in the second of a tick, {TRIES} times")
}

pub(crate) fn count(sdiag: &Sdiag, name: &str) -> u64 {
    let named = |row: &&RpcRow| row.name == name;
    sdiag.by_type.iter().find(named).map_or(0, |row| row.count)
}
