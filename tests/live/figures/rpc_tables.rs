//! Every row of the RPC tables in whisper equals sdiag's, digit for digit, with RPCs of several users.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use sandbox::{Process, RpcRow, Sandbox, Sdiag, unix_seconds, wait};

use super::SOON;

/// Our own RPC, and sdiag's, are counted after the answer.
const STATS_INFO: &str = "REQUEST_STATS_INFO";

/// `nobody`, and a user without a name.
const USERS: [(u32, &str); 2] = [(65534, "nobody"), (54321, "uid_54321")];

const BURST: u32 = 20;

#[test]
fn every_row_of_the_rpc_tables_is_sdiags() {
    let sandbox = Sandbox::start().unwrap();
    let mut collector = collector(&sandbox).unwrap();
    collector.line("slurmctld answers", SOON).unwrap();
    let begun = unix_seconds() + 2;
    value(&sandbox, &of_type(STATS_INFO, "count"), begun).unwrap();
    sandbox.slurm.submit(&["--wrap", "true"]).unwrap();
    for command in [&["sinfo"][..], &["squeue"], &["scontrol", "show", "node"], &["scontrol", "ping"]] {
        sandbox.slurm.run(command[0], &command[1..]).unwrap();
    }
    let as_root = rustix::process::getuid().is_root();
    for number in 0..BURST {
        sandbox.slurm.run("scontrol", &["show", "partition"]).unwrap();
        if as_root {
            call_as(&sandbox, USERS[usize::from(number % 3 == 0)].0).unwrap();
        }
    }
    // A user whose name is still being looked up counts among the others, so each user keeps calling until there is a
    // path.
    for (id, name) in USERS.into_iter().filter(|_| as_root) {
        wait::until(&format!("a path for {name}"), SOON, || {
            call_as(&sandbox, id).unwrap();
            sandbox.carbon.paths().contains_key(&path(&format!("user.{name}.gauge-count")))
        })
        .unwrap();
    }

    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    let wanted = |compared: &BTreeMap<String, usize>| {
        let types = ["REQUEST_PARTITION_INFO", "REQUEST_NODE_INFO", "REQUEST_SUBMIT_BATCH_JOB"];
        let users = USERS.iter().map(|(_, name)| *name).filter(|_| as_root);
        types.into_iter().chain(users).all(|name| compared.get(name).is_some_and(|&times| times >= 3))
    };
    wait::until("rows that stand still between two sdiags", SOON * 2, || {
        observe(&sandbox, &mut compared).unwrap();
        wanted(&compared)
    })
    .unwrap();
    let end = unix_seconds() - 2;
    if as_root {
        // All users are among the first ten.
        assert_eq!(value(&sandbox, "others.gauge-members", end).unwrap(), 0.0);
    }
    compare_intervals(&sandbox, "REQUEST_PARTITION_INFO", begun, end);
    assert!(collector.stop().unwrap().status.success());
}

/// At each tick, the rate over the interval is the growth of the row's own count, and the mean times that is the growth
/// of its time.
fn compare_intervals(sandbox: &Sandbox, name: &str, begun: u64, end: u64) {
    let series = |path: &str| -> BTreeMap<u64, f64> {
        sandbox.carbon.series(path).unwrap().points.into_iter().collect()
    };
    let row = |leaf: &str| series(&path(&of_type(name, leaf)));
    let [counts, times, rates, means] =
        ["count", "total_time", "calls_per_minute", "interval_mean_time"].map(row);
    let read = series(&path(&of_type(STATS_INFO, "count")));
    let seconds = series("cluster.slurm_sched_interval.gauge-seconds");
    let at = |series: &BTreeMap<u64, f64>, tick| series.get(&tick).copied().unwrap_or(0.0);
    let mut served = 0.0;
    for tick in (begun + 1)..=end {
        assert!(read.contains_key(&tick), "no reading at {tick}");
        let grown = at(&counts, tick) - at(&counts, tick - 1);
        // On a busy host, answers that come late make some intervals too short to count.
        let Some(seconds) = seconds.get(&tick) else { continue };
        let calls = at(&rates, tick) * seconds / 60.0;
        assert!((calls - grown).abs() < 1e-6, "{calls} of {grown} at {tick}");
        let (time, spent) = (at(&means, tick) * grown, at(&times, tick) - at(&times, tick - 1));
        assert!((time - spent).abs() < 1e-6 * spent.max(1.0), "{time} of {spent} µs at {tick}");
        served += grown;
    }
    let all = at(&counts, end) - at(&counts, begun);
    assert!(served >= 0.8 * all && all >= f64::from(BURST), "{served} of {all}");
}

fn call_as(sandbox: &Sandbox, id: u32) -> Result<()> {
    let (reuid, regid) = (format!("--reuid={id}"), format!("--regid={id}"));
    sandbox.slurm.run("setpriv", &[&reuid, &regid, "--clear-groups", "sinfo"]).map(|_| ())
}

fn collector(sandbox: &Sandbox) -> Result<Process> {
    let configuration = sandbox.path("users.toml");
    let (conf, carbon) = (sandbox.slurm.conf(), sandbox.carbon.address());
    let text = format!(
        "interval = \"1s\"\n[slurm]\nconf = {conf:?}\n[[carbon]]\naddress = {carbon:?}\n[collectors.rpc_stats]\nusers = 10\n"
    );
    fs::write(&configuration, text)?;
    sandbox.slurm_graphite("users", &["run", "--config", &configuration.display().to_string()])
}

/// Compares the rows on which two runs of sdiag agree with the tick between them.
fn observe(sandbox: &Sandbox, compared: &mut BTreeMap<String, usize>) -> Result<()> {
    let before = sandbox.slurm.sdiag()?;
    let tick = unix_seconds() + 1;
    let own = value(sandbox, &of_type(STATS_INFO, "count"), tick)?;
    let after = sandbox.slurm.sdiag()?;
    // The first sdiag is counted by then, and the tick is counted before the second.
    let count = |sdiag: &Sdiag| find(&sdiag.by_type, STATS_INFO).map_or(0.0, |row| exact(row.count));
    ensure!(
        count(&before) < own && own < count(&after),
        "{STATS_INFO}: {own} between {} and {}",
        count(&before),
        count(&after)
    );
    for row in before.by_type.iter().filter(|row| row.name != STATS_INFO) {
        compare(sandbox, row, &after.by_type, &format!("type.{}", row.name), tick, compared)?;
    }
    for row in before.by_user.iter() {
        // sdiag prints a number for a user without a name; the caller's own row changes with every RPC.
        if let Some((_, name)) = USERS.iter().find(|(id, _)| *id == row.id) {
            let named = RpcRow { name: (*name).to_owned(), ..row.clone() };
            compare(sandbox, &named, &after.by_user, &format!("user.{name}"), tick, compared)?;
        }
    }
    Ok(())
}

fn compare(
    sandbox: &Sandbox,
    row: &RpcRow,
    after: &[RpcRow],
    below: &str,
    tick: u64,
    compared: &mut BTreeMap<String, usize>,
) -> Result<()> {
    let same = |other: &&RpcRow| (other.id, other.count, other.total) == (row.id, row.count, row.total);
    if after.iter().any(|other| same(&other)) {
        for (leaf, printed) in [("count", row.count), ("mean_time", row.average), ("total_time", row.total)] {
            let stored = value(sandbox, &format!("{below}.gauge-{leaf}"), tick)?;
            ensure!(stored == exact(printed), "{below} {leaf}: sdiag {printed}, whisper {stored} at {tick}");
        }
        *compared.entry(row.name.clone()).or_default() += 1;
    }
    Ok(())
}

fn find<'a>(rows: &'a [RpcRow], name: &str) -> Option<&'a RpcRow> {
    rows.iter().find(|row| row.name == name)
}

fn of_type(name: &str, leaf: &str) -> String {
    format!("type.{name}.gauge-{leaf}")
}

fn path(below: &str) -> String {
    format!("cluster.slurm_rpc_stats.{below}")
}

fn value(sandbox: &Sandbox, below: &str, tick: u64) -> Result<f64> {
    sandbox.value_at(&path(below), tick, SOON).with_context(|| below.to_owned())
}

fn exact(printed: u64) -> f64 {
    printed.to_string().parse().unwrap()
}
