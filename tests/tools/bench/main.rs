//! `make bench`: what a reading costs, compared with a bare C loop and with forking sdiag.
//!
//! docs/performance.md explains how this is measured. It also measures what uptime adds to a tick,
//! how the memory of both processes changes over many ticks, what full RPC tables cost, and what
//! slurmrestd costs compared with libslurm. Words on the command line name the parts to run.
//! `PYSLURM` names a virtual environment with PySlurm, built from its branch for this Slurm.
//! `SANDBOX_PREFIX` names the folder that another Slurm is installed below, and
//! `SLURM_GRAPHITE_BIN` a daemon with that Slurm's reader next to it.

#![forbid(unsafe_code)]

mod age;
mod busy;
mod memory;
mod peer;
mod rest;
mod rpc;
mod turns;

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{Process, Sandbox, TlsProxy, find_program};
use tools::contender::in_turn;
use tools::{above, exit_code, say};

use crate::turns::Part::{Both, Child, Own};
use crate::turns::{C_LOOP, Cost, SETTLE, collector, floor, ours, ratio, table, wakes_and_calls};

/// Readings in a turn of forking sdiag, which costs so much more that a few are enough.
const FORKS: u32 = 4;

/// The targets: CPU and wake-ups of the daemon with the native reader, compared with the C loop,
/// and its memory in MB; CPU with libslurm's reader and the queue on disk, compared with the C loop,
/// and in memory with forking sdiag.
const MOST_NATIVE: f64 = 1.05;
const MOST_DURABLE: f64 = 1.5;
const MOST_BOTH: f64 = 1.9;
const MOST_WAKES_MORE: f64 = 1.0;
const MOST_MEMORY: f64 = 7.5;
const MOST_OF_FORKING: f64 = 0.25;
/// The daemon's own CPU, compared with its CPU without TLS.
const MOST_TLS: f64 = 1.15;

/// Measures something, and returns the targets that were missed.
type Part = fn(&Sandbox) -> Result<Vec<String>>;

/// The RPC tables come after what is measured in the same sandbox, because slurmctld's own stay full.
const PARTS: [(&str, Part); 6] = [
    ("tick", tick),
    ("busy", busy::busy),
    ("age", age::age),
    ("memory", memory::growth),
    ("rpc", rpc::full),
    ("rest", |_| rest::rest()),
];

fn main() -> ExitCode {
    exit_code("bench", bench())
}

fn bench() -> Result<()> {
    say(&format!("{}\n\n", machine()))?;
    let sandbox = Sandbox::start()?;
    let named: Vec<String> = std::env::args().skip(1).collect();
    let mut missed = Vec::new();
    for (name, part) in PARTS {
        if named.is_empty() || named.iter().any(|other| other == name) {
            missed.extend(part(&sandbox)?);
        }
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// Measures the cost of a reading for each contender. Returns the targets that were missed.
fn tick(sandbox: &Sandbox) -> Result<Vec<String>> {
    let script = sandbox.folder.write("fork.py", include_str!("fork.py"))?;
    let (folder, conf) = (&sandbox.folder, sandbox.slurm.conf());
    let sdiag = match sandbox::prefix() {
        Some(prefix) => prefix.join("bin/sdiag"),
        None => find_program("sdiag")?,
    };
    let proxy = TlsProxy::start(folder, sandbox.carbon.pickle_port)?;
    let tls = format!(
        "[slurm]\nconf = {conf:?}\n[[carbon]]\naddress = \"localhost:{}\"\ntls = true\nca_file = \
            {:?}\n",
        proxy.port, proxy.authority.ca
    );
    let [floor, memory, native, native_durable, tls, durable, pyslurm, ctypes, fork] = in_turn([
        floor(sandbox, "floor")?,
        ours(sandbox, "memory", "", false),
        ours(sandbox, "native", "native", false),
        ours(sandbox, "native-durable", "native", true),
        collector(folder, "tls", tls, false, SETTLE),
        ours(sandbox, "durable", "", true),
        turns::pyslurm(sandbox, "pyslurm")?,
        turns::ctypes(sandbox, "ctypes")?,
        // The process includes everything, the child only sdiag.
        Box::new(|turn| {
            let mut fork = Process::new(folder, &format!("fork{turn}"), find_program("python3")?)
                .args([&script, &FORKS.to_string(), &sdiag.display().to_string()])
                .env("SLURM_CONF", conf);
            fork.spawn()?;
            fork.wait(Duration::from_secs(30 + u64::from(FORKS)))?;
            let words = fork.lines().last().cloned().context("the fork loop printed nothing")?;
            let (all, sdiag) = words.split_once(' ').context("the fork loop printed one figure")?;
            Ok(Cost { cpu: [all.parse()?, sdiag.parse()?], ..Cost::default() })
        }),
    ])?;
    let points = sandbox.carbon.paths().len();
    ensure!(points > 0, "nothing has arrived in Carbon");
    let rows = [
        ("a bare C loop: one slurm_get_statistics, freed", &floor, Own),
        ("slurm-graphite-reader", &memory, Child),
        (&format!("slurm-graphite, {points} points to carbon-cache"), &memory, Own),
        ("the same over TLS, to a stunnel in front of it", &tls, Own),
        ("**both together**", &memory, Both),
        ("both, with the queue on disk", &durable, Both),
        ("**the daemon with `reader = \"native\"`**", &native, Own),
        ("the same with the queue on disk", &native_durable, Own),
        ("a loop in Python with PySlurm and pickle", &pyslurm, Own),
        ("the same with ctypes, which copies less", &ctypes, Own),
        ("forking sdiag, sdiag alone", &fork, Child),
        ("forking sdiag and parsing it in Python", &fork, Own),
    ];
    say(&table("a reading of", (C_LOOP, &floor, Own), &rows))?;
    say(&wakes_and_calls([
        ("the C loop", &floor),
        ("libslurm's reader and the daemon", &memory),
        ("with the queue on disk", &durable),
        ("the daemon with the native reader", &native),
        ("with the queue on disk", &native_durable),
    ]))?;
    let of_floor = |costs, part| ratio((costs, part), (&floor, Own));
    let missed = above([
        (
            "the daemon's CPU with the native reader, compared with the C loop",
            of_floor(&native, Own),
            MOST_NATIVE,
        ),
        ("the same with the queue on disk", of_floor(&native_durable, Own), MOST_DURABLE),
        ("CPU with libslurm's reader and the queue on disk", of_floor(&durable, Both), MOST_BOTH),
        (
            "its wake-ups above the C loop's",
            Own.wakes(&native) - Own.wakes(&floor),
            MOST_WAKES_MORE,
        ),
        ("MB of memory with the native reader", Own.mb(&native), MOST_MEMORY),
        (
            "the daemon's CPU with TLS compared with that without",
            ratio((&tls, Own), (&memory, Own)),
            MOST_TLS,
        ),
        ("CPU compared with forking sdiag", ratio((&memory, Both), (&fork, Own)), MOST_OF_FORKING),
    ]);
    Ok([missed, turns::of_pyslurm(&memory, &pyslurm)].concat())
}

/// The processor's name, and how many there are.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{} × {cores}", name.map_or("an unknown processor", |(_, name)| name))
}
