//! `make bench`: what a reading costs, compared with a bare C loop and with forking sdiag.
//!
//! turns.rs explains how this is measured. It also measures how the memory of both processes changes over many ticks,
//! what full RPC tables cost, and what slurmrestd costs compared with libslurm. `SANDBOX_PREFIX` names the folder that
//! another Slurm is installed below, and `SLURM_GRAPHITE_BIN` a daemon with that Slurm's reader next to it.

#![forbid(unsafe_code)]

mod busy;
mod memory;
mod peer;
mod rest;
mod rpc;
mod turns;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{Process, Sandbox, TlsProxy, find_program};
use tools::contender::{Contender, TURNS, contender, in_turn};
use tools::{end, say};

use crate::turns::{Cost, Costs, SETTLE, collector, floor, ratio};

/// Readings in a turn, one a second.
pub(crate) const READINGS: u32 = 10;
/// The same for forking sdiag, which costs so much more that a few are enough.
const FORKS: u32 = 4;

/// By default the window covers 20 readings of 30 s; one of 8 s covers 8 readings of 1 s. What the sender does every
/// quarter of the window, and at most once a minute, happens every second reading in both cases.
const WINDOW: Duration = Duration::from_secs(8);

/// The targets: CPU compared with the C loop, memory, and how much cheaper than forking sdiag.
const MOST_CPU: f64 = 1.5;
const MOST_DURABLE: f64 = 2.0;
const MOST_MEMORY_KIB: f64 = 12e6 / 1024.0;
const LEAST_GAIN: f64 = 4.0;
/// The daemon's own CPU, compared with its CPU without TLS.
const MOST_TLS: f64 = 1.15;

fn main() -> ExitCode {
    end("bench", bench())
}

fn bench() -> Result<()> {
    say(&format!(
        "{}\n\nEach contender runs alone, in {TURNS} turns that alternate with those of the others. For each turn it is \
         started, settles for {} s and is measured for {READINGS} readings, one a second. CPU is user and system time of \
         all threads of its processes; slurmctld, munged, Carbon and the kernel's own threads are not counted. Figures \
         are medians of the turns, with the least and the greatest in brackets.\n\n",
        machine(),
        SETTLE.as_secs()
    ))?;
    let sandbox = Sandbox::start()?;
    let tick = tick(&sandbox)?;
    say(&tick.table())?;
    let busy = busy::busy(&sandbox)?;
    say(&busy.table())?;
    let growth = memory::growth(&sandbox)?;
    say(&growth.table())?;
    // Measured last, because slurmctld's tables stay full.
    let full = rpc::full(&sandbox)?;
    say(&full.table())?;
    let rest = rest::rest()?;
    say(&rest.table())?;
    let missed = [rest.missed(), tick.missed(), busy.missed(), growth.missed(), full.missed()].concat();
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// The targets that were not reached, as text.
pub(crate) fn unreached<const N: usize>(aims: [(bool, String); N]) -> Vec<String> {
    aims.into_iter().filter(|&(reached, _)| !reached).map(|(_, miss)| miss).collect()
}

/// What a reading costs each contender.
struct Tick {
    floor: Costs,
    memory: Costs,
    /// The same with the native reader.
    native: Costs,
    /// The same over TLS to a stunnel.
    tls: Costs,
    durable: Costs,
    /// With a full window, and with what the default does once a minute.
    window: Costs,
    /// The process includes everything, the child only sdiag.
    fork: Costs,
    points: usize,
}

fn tick(sandbox: &Sandbox) -> Result<Tick> {
    let script = sandbox.path("fork.py");
    fs::write(&script, include_str!("fork.py"))?;
    let conf = sandbox.slurm.conf();
    let sdiag = match sandbox::prefix() {
        Some(prefix) => prefix.join("bin/sdiag"),
        None => find_program("sdiag")?,
    };
    let plain = format!("address = {:?}\n", sandbox.carbon.address());
    let mut proxy = TlsProxy::new(&sandbox.folder, sandbox.carbon.pickle_port)?;
    proxy.process.start()?;
    let tls = format!("address = \"localhost:{}\"\ntls = true\nca_file = {:?}\n", proxy.port, proxy.ca);
    // What is sent where, and the lines of its queue, with a folder of that turn.
    let ours = |name: &'static str, carbon: &str, queue: fn(&Path) -> String, settle: Duration| {
        let toml = format!("[slurm]\nconf = {conf:?}\n[[carbon]]\n{carbon}[queue]\n");
        collector(&sandbox.folder, name, move |dir| toml.clone() + &queue(dir), settle, READINGS)
    };
    let [floor, memory, native, tls, durable, window, fork] = in_turn([
        floor(sandbox, "floor", READINGS)?,
        ours("memory", &plain, |_| String::new(), SETTLE),
        native(sandbox, "native", |_| String::new()),
        ours("tls", &tls, |_| String::new(), SETTLE),
        ours("durable", &plain, |dir| format!("dir = {dir:?}\n"), SETTLE),
        ours(
            "window",
            &plain,
            |dir| format!("dir = {dir:?}\nresend_window = \"{} s\"\n", WINDOW.as_secs()),
            WINDOW,
        ),
        contender(|turn| {
            let name = format!("fork{turn}");
            let mut fork = Process::new(&sandbox.folder, &name, find_program("python3")?)
                .args([script.display().to_string(), FORKS.to_string(), sdiag.display().to_string()])
                .env("SLURM_CONF", conf);
            fork.spawn()?;
            fork.wait(Duration::from_secs(30 + u64::from(FORKS)))?;
            let words = fork.lines().last().cloned().context("the fork loop printed nothing")?;
            let (all, sdiag) = words.split_once(' ').context("the fork loop printed one figure")?;
            Ok(Cost { own: all.parse()?, child: sdiag.parse()?, ..Cost::default() })
        }),
    ])?;
    let points = sandbox.carbon.paths().len();
    ensure!(points > 0, "nothing has arrived in Carbon");
    Ok(Tick { floor, memory, native, tls, durable, window, fork, points })
}

impl Tick {
    fn gain(&self) -> f64 {
        self.fork.median(|cost| cost.own) / self.memory.median(Cost::both)
    }

    fn kib(&self) -> f64 {
        self.memory.median(Cost::both_kib)
    }

    fn table(&self) -> String {
        let Self { floor, memory, native, tls, durable, window, fork, points } = self;
        let row = |name: &str, costs: &Costs, figure: fn(&Cost) -> f64, kib: Option<f64>| {
            row(name, costs, floor, figure, kib)
        };
        let own_kib = |costs: &Costs| Some(costs.median(|cost| cost.own_kib));
        let every = WINDOW.as_secs();
        [
            HEAD.to_owned(),
            row("a bare C loop: one slurm_get_statistics, freed", floor, |cost| cost.own, own_kib(floor)),
            row(
                "slurm-graphite-reader",
                memory,
                |cost| cost.child,
                Some(memory.median(|cost| cost.child_kib)),
            ),
            row(
                &format!("slurm-graphite, {points} points to carbon-cache"),
                memory,
                |cost| cost.own,
                own_kib(memory),
            ),
            row("the same over TLS, to a stunnel in front of it", tls, |cost| cost.own, own_kib(tls)),
            row("**both together**", memory, Cost::both, Some(self.kib())),
            row(
                "slurm-graphite-native-reader",
                native,
                |cost| cost.child,
                Some(native.median(|cost| cost.child_kib)),
            ),
            row("**the daemon and it**", native, Cost::both, Some(native.median(Cost::both_kib))),
            row("both, with the queue on disk", durable, Cost::both, Some(durable.median(Cost::both_kib))),
            row(&format!("the same, `resend_window = \"{every}s\"`, full"), window, Cost::both, None),
            row("forking sdiag, sdiag alone", fork, |cost| cost.child, None),
            row("forking sdiag and parsing it in Python", fork, |cost| cost.own, None),
            format!("\nForking and parsing costs {:.1} times as much.\n", self.gain()),
            wakes([
                ("the C loop", floor),
                ("libslurm's reader and the daemon", memory),
                ("with the queue on disk", durable),
                ("the native reader and the daemon", native),
            ]),
        ]
        .concat()
    }

    fn missed(&self) -> Vec<String> {
        let memory = ratio(&self.memory, &self.floor, Cost::both);
        let durable = ratio(&self.durable, &self.floor, Cost::both);
        let tls = self.tls.median(|cost| cost.own) / self.memory.median(|cost| cost.own);
        let (gain, kib) = (self.gain(), self.kib());
        unreached([
            (memory <= MOST_CPU, format!("{memory:.2} times the C loop's CPU, not {MOST_CPU}")),
            (
                durable <= MOST_DURABLE,
                format!("{durable:.2} times with the queue on disk, not {MOST_DURABLE}"),
            ),
            (tls <= MOST_TLS, format!("TLS costs the daemon {tls:.2} times the CPU, not {MOST_TLS}")),
            (gain >= LEAST_GAIN, format!("only {gain:.1} times cheaper than forking sdiag")),
            (kib <= MOST_MEMORY_KIB, format!("{:.1} MB of memory, not {:.1}", mb(kib), mb(MOST_MEMORY_KIB))),
        ])
    }
}

/// The daemon with the native reader.
pub(crate) fn native<'a>(
    sandbox: &'a Sandbox,
    name: &'static str,
    queue: impl Fn(&Path) -> String + 'a,
) -> Contender<'a, Cost> {
    let (conf, carbon) = (sandbox.slurm.conf(), sandbox.carbon.address());
    let toml =
        format!("[slurm]\nconf = {conf:?}\nreader = \"native\"\n[[carbon]]\naddress = {carbon:?}\n[queue]\n");
    collector(&sandbox.folder, name, move |dir| toml.clone() + &queue(dir), SETTLE, READINGS)
}

pub(crate) const HEAD: &str = "| a reading of | CPU | compared with the C loop | RSS |\n|---|---|---|---|\n";

/// A line of the table: what `costs` are, by this figure.
pub(crate) fn row(
    name: &str,
    costs: &Costs,
    floor: &Costs,
    figure: fn(&Cost) -> f64,
    kib: Option<f64>,
) -> String {
    let memory = kib.map_or_else(|| "-".to_owned(), |kib| format!("{:.1} MB", mb(kib)));
    format!("| {name} | {} | {:.2} | {memory} |\n", ms(costs, figure), ratio(costs, floor, figure))
}

/// How often they sleep and are woken.
pub(crate) fn wakes<const N: usize>(contenders: [(&str, &Costs); N]) -> String {
    let of = contenders.map(|(name, costs)| format!("{name} {:.1}", costs.median(|cost| cost.wakes)));
    format!("\nWake-ups a reading: {}.\n\n", of.join(", "))
}

/// `0.363 ms (0.350 to 0.401)`.
pub(crate) fn ms(costs: &Costs, figure: impl Fn(&Cost) -> f64) -> String {
    let (least, most) = costs.range(&figure);
    format!("{:.2} ms ({:.2} to {:.2})", costs.median(figure) / 1e3, least / 1e3, most / 1e3)
}

/// The processor's name, and how many there are.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{} × {cores}", name.map_or("an unknown processor", |(_, name)| name))
}

fn mb(kib: f64) -> f64 {
    kib * 1024.0 / 1e6
}
