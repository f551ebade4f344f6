//! Every row of the RPC tables in whisper equals sdiag's, digit for digit, with RPCs of several
//! users.

use std::collections::BTreeMap;

use sandbox::{NOBODY, RpcRow, Sandbox, is_root, wait};

use super::observation::Observation;
use super::rpcs::count;
use super::{OWN_TYPE, SOON, exact};

/// `nobody`, and a user without a name.
const USERS: [(u32, &str); 2] = [(NOBODY, "nobody"), (54321, "uid_54321")];

const BURST: u32 = 20;

/// Types whose rows must have been compared.
const TYPES: [&str; 3] =
    ["REQUEST_PARTITION_INFO", "REQUEST_NODE_INFO", "REQUEST_SUBMIT_BATCH_JOB"];

/// RPCs of many types, and of all users.
pub(crate) fn call(sandbox: &Sandbox) {
    for line in ["sinfo", "squeue", "scontrol show node", "scontrol ping"] {
        sandbox.slurm.call(line).unwrap();
    }
    let call_as = |id| sandbox.slurm.run_as(id, "sinfo", &[]).unwrap();
    for number in 0..BURST {
        sandbox.slurm.call("scontrol show partition").unwrap();
        if is_root() {
            call_as(USERS[usize::from(number % 3 == 0)].0);
        }
    }
    // A user whose name is still being looked up counts among the others, so each user keeps
    // calling until there is a path.
    for (id, name) in USERS.into_iter().filter(|_| is_root()) {
        wait::until(&format!("a path for {name}"), SOON, || {
            call_as(id);
            sandbox.carbon.paths().contains_key(&path("user", name, "count"))
        })
        .unwrap();
    }
}

/// The rows of an observation, with the last two components of their paths, and those after it.
fn rows(seen: &Observation) -> Vec<(&'static str, RpcRow, &[RpcRow])> {
    let types = seen.before.by_type.iter().filter(|row| row.name != OWN_TYPE).cloned();
    // sdiag prints a number for a user without a name; the caller's own row changes with every RPC.
    let users = seen.before.by_user.iter().filter_map(|row| {
        let (_, name) = USERS.iter().find(|(id, _)| *id == row.id)?;
        Some(RpcRow { name: (*name).to_owned(), ..row.clone() })
    });
    let types = types.map(|row| ("type", row, &seen.after.by_type[..]));
    types.chain(users.map(|row| ("user", row, &seen.after.by_user[..]))).collect()
}

/// Compares the rows on which two runs of sdiag agree with the tick between them, and all ticks
/// after `begun` up to `end`.
pub(crate) fn compare(sandbox: &Sandbox, seen: &[Observation], begun: u64, end: u64) {
    let mut printed: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for seen in seen {
        // The first sdiag is counted by then, and the tick is counted before the second.
        let own = sandbox.value_at(&path("type", OWN_TYPE, "count"), seen.tick, SOON).unwrap();
        let [before, after] =
            [&seen.before, &seen.after].map(|sdiag| exact(count(sdiag, OWN_TYPE)));
        assert!(before < own && own < after, "{OWN_TYPE}: {own} between {before} and {after}");
        for (kind, row, after) in rows(seen) {
            let same = |other: &&RpcRow| {
                (other.id, other.count, other.total) == (row.id, row.count, row.total)
            };
            if after.iter().any(|other| same(&other)) {
                for (leaf, figure) in
                    [("count", row.count), ("mean_time", row.average), ("total_time", row.total)]
                {
                    printed
                        .entry(path(kind, &row.name, leaf))
                        .or_default()
                        .insert(seen.tick, figure);
                }
            }
        }
    }
    for (path, printed) in &printed {
        sandbox.value_at(path, *printed.keys().last().unwrap(), SOON).unwrap();
        let series = sandbox.carbon.series(path).unwrap();
        for (tick, figure) in printed {
            assert_eq!(series.at(*tick), Some(exact(*figure)), "{path} at {tick}: sdiag {figure}");
        }
    }
    let users = USERS.iter().filter(|_| is_root()).map(|(_, name)| path("user", name, "count"));
    for path in users.chain(TYPES.map(|name| path("type", name, "count"))) {
        assert!(printed.get(&path).is_some_and(|ticks| ticks.len() >= 3), "{path}: {printed:?}");
    }
    if is_root() {
        // All users are among the first ten.
        let others = "cluster.slurm_rpc_stats.others.gauge-members";
        assert_eq!(sandbox.value_at(others, end, SOON).unwrap(), 0.0);
    }
    compare_intervals(sandbox, TYPES[0], begun, end);
}

/// At each tick, the rate over the interval is the growth of the row's own count, and the mean
/// times that is the growth of its time.
fn compare_intervals(sandbox: &Sandbox, name: &str, begun: u64, end: u64) {
    let series = |path: &str| sandbox.carbon.series(path).unwrap();
    let [counts, times, rates, means] =
        ["count", "total_time", "calls_per_minute", "interval_mean_time"]
            .map(|leaf| series(&path("type", name, leaf)));
    let read = series(&path("type", OWN_TYPE, "count"));
    let seconds = series("cluster.slurm_sched_interval.gauge-seconds");
    let at = |series: &sandbox::Series, tick| series.at(tick).unwrap_or(0.0);
    let mut served = 0.0;
    for tick in (begun + 1)..=end {
        assert!(read.at(tick).is_some(), "no reading at {tick}");
        let grown = at(&counts, tick) - at(&counts, tick - 1);
        // On a busy host, answers that come late make some intervals too short to count.
        let Some(seconds) = seconds.at(tick) else { continue };
        let calls = at(&rates, tick) * seconds / 60.0;
        assert!((calls - grown).abs() < 1e-6, "{calls} of {grown} at {tick}");
        let (time, spent) = (at(&means, tick) * grown, at(&times, tick) - at(&times, tick - 1));
        assert!((time - spent).abs() < 1e-6 * spent.max(1.0), "{time} of {spent} µs at {tick}");
        served += grown;
    }
    let all = at(&counts, end) - at(&counts, begun);
    assert!(served >= 0.8 * all && all >= f64::from(BURST), "{served} of {all}");
}

fn path(kind: &str, name: &str, leaf: &str) -> String {
    format!("cluster.slurm_rpc_stats.{kind}.{name}.gauge-{leaf}")
}
