//! `make bench`: what a tick costs, beside a bare C loop and beside forking sdiag, at the same pace in one run.
//!
//! Ratios, because machines and neighbours differ: CPU is read from /proc/PID/task/*/schedstat (ns), and all
//! contenders run at once. Further figures: the memory of both processes, and what 100,000 ticks do to it.

#![forbid(unsafe_code)]

mod memory;
mod rpc;

use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{Process, Sandbox, find_program, proc, wait};

/// Seconds, and as many ticks.
const LENGTH: u32 = 120;
/// Until caches and allocators have settled.
pub(crate) const WARM_UP: Duration = Duration::from_secs(5);

/// Every family but slurm_sched_stats.
const OTHERS_OFF: &str = "[collectors.sched_interval]\nenabled = false\n[collectors.sched_exit]\nenabled = false\n\
    [collectors.rpc_stats]\nenabled = false\n[collectors.health]\nenabled = false\n";

/// The aims: CPU and memory beside the floor's, and how much cheaper than forking sdiag.
const MOST_CPU: f64 = 1.5;
const MOST_DURABLE: f64 = 2.0;
const MOST_MEMORY_KIB: u64 = 14 * 1024;
const LEAST_GAIN: f64 = 4.0;

fn main() -> ExitCode {
    let Err(error) = bench() else { return ExitCode::SUCCESS };
    // Nobody is left to be told when stderr is closed.
    let _told = writeln!(std::io::stderr(), "\nbench: {error:#}");
    ExitCode::FAILURE
}

fn bench() -> Result<()> {
    say(&format!("{}, {LENGTH} ticks of 1 s, all at once\n\n", machine()))?;
    let sandbox = Sandbox::start()?;
    let tick = tick(&sandbox)?;
    say(&tick.table())?;
    let growth = memory::growth(&sandbox)?;
    say(&growth.table())?;
    // Last: the tables of slurmctld stay full.
    let full = rpc::full(&sandbox)?;
    say(&full.table())?;
    tick.judge()?;
    growth.judge()?;
    full.judge()
}

/// What a tick of each contender costs.
struct Tick {
    floor: f64,
    daemon: f64,
    reader: f64,
    /// Daemon and reader of a second collector, whose queue is on disk.
    durable: f64,
    /// The same of a third, of what sdiag prints alone: the tick that the aim is for.
    durable_stats: f64,
    fork: f64,
    fork_sdiag: f64,
    floor_kib: u64,
    daemon_kib: u64,
    reader_kib: u64,
    points: f64,
}

fn tick(sandbox: &Sandbox) -> Result<Tick> {
    let conf = sandbox.slurm.conf().display().to_string();
    let mut floor = Process::new(&sandbox.folder, "floor", compile_floor(sandbox)?).env("SLURM_CONF", &conf);
    floor.spawn()?;
    let mut collector = sandbox.collector(&["--interval", "1s"])?;
    let mut durable = durable(sandbox, "durable", "")?;
    let mut durable_stats = self::durable(sandbox, "durable_stats", OTHERS_OFF)?;
    let [durable_pid, durable_reader_pid] = both(&mut durable)?;
    let [stats_pid, stats_reader_pid] = both(&mut durable_stats)?;
    let floor_pid = floor.pid().context("the C loop has ended")?;
    let [daemon_pid, reader_pid] = both(&mut collector)?;
    wait::pause(WARM_UP);

    let script = fork_script(sandbox)?;
    let mut fork = Process::new(&sandbox.folder, "fork", find_program("python3")?)
        .args([script, LENGTH.to_string()])
        .env("SLURM_CONF", &conf);
    fork.spawn()?;
    let all =
        [floor_pid, daemon_pid, reader_pid, durable_pid, durable_reader_pid, stats_pid, stats_reader_pid];
    let cpus = || all.into_iter().map(cpu).collect::<Result<Vec<Duration>>>();
    let before = cpus()?;
    wait::pause(Duration::from_secs(LENGTH.into()));
    let after = cpus()?;
    fork.wait(Duration::from_secs(30))?;
    let words = fork.lines().last().cloned().context("the fork loop printed nothing")?;
    let mut words = words.split(' ').map(str::parse::<f64>);
    let mut word = || words.next().context("the fork loop printed no figure")?.context("not a figure");

    let each = |index: usize| -> Option<f64> {
        let spent = after.get(index)?.checked_sub(*before.get(index)?)?;
        Some(spent.as_secs_f64() * 1e6 / f64::from(LENGTH))
    };
    let kib = |pid| proc::rss_kib(pid).context("a contender has ended");
    let lost = "a contender has ended";
    let tick = Tick {
        floor: each(0).context(lost)?,
        daemon: each(1).context(lost)?,
        reader: each(2).context(lost)?,
        durable: each(3).context(lost)? + each(4).context(lost)?,
        durable_stats: each(5).context(lost)? + each(6).context(lost)?,
        fork: word()?,
        fork_sdiag: word()?,
        floor_kib: kib(floor_pid)?,
        daemon_kib: kib(daemon_pid)?,
        reader_kib: kib(reader_pid)?,
        points: points_a_tick(sandbox)?,
    };
    collector.stop()?;
    durable.stop()?;
    durable_stats.stop()?;
    Ok(tick)
}

impl Tick {
    fn ratio(&self) -> f64 {
        (self.daemon + self.reader) / self.floor
    }

    fn gain(&self) -> f64 {
        self.fork / (self.daemon + self.reader)
    }

    fn table(&self) -> String {
        let Self { floor, daemon, reader, durable, durable_stats, fork, fork_sdiag, points, .. } = self;
        let row = |name: &str, cpu: f64, kib: Option<u64>| {
            let memory = kib.map_or_else(|| "-".to_owned(), |kib| format!("{:.1} MB", kib_to_mb(kib)));
            format!("| {name} | {cpu:.0} µs | {:.2} | {memory} |\n", cpu / floor)
        };
        let both = self.daemon_kib + self.reader_kib;
        [
            "| a tick of | CPU | beside the C loop | RSS |\n|---|---|---|---|\n".to_owned(),
            row("a bare C loop: one slurm_get_statistics, freed", *floor, Some(self.floor_kib)),
            row("slurm-graphite-reader", *reader, Some(self.reader_kib)),
            row(
                &format!("slurm-graphite, {points:.0} points to carbon-cache"),
                *daemon,
                Some(self.daemon_kib),
            ),
            row("**both together**", daemon + reader, Some(both)),
            row("both, with the queue on disk", *durable, None),
            row("both, with the queue on disk, slurm_sched_stats alone", *durable_stats, None),
            row("forking sdiag, sdiag alone", *fork_sdiag, None),
            row("forking sdiag and parsing it in Python", *fork, None),
            format!("\nForking and parsing costs {:.1} times as much.\n\n", self.gain()),
        ]
        .concat()
    }

    fn judge(&self) -> Result<()> {
        ensure!(self.ratio() <= MOST_CPU, "{:.2} times the C loop's CPU, not {MOST_CPU}", self.ratio());
        let durable = self.durable_stats / self.floor;
        ensure!(durable <= MOST_DURABLE, "{durable:.2} times the C loop's CPU with the queue on disk");
        ensure!(self.gain() >= LEAST_GAIN, "only {:.1} times cheaper than forking sdiag", self.gain());
        let kib = self.daemon_kib + self.reader_kib;
        ensure!(kib <= MOST_MEMORY_KIB, "{kib} KiB of memory, not {MOST_MEMORY_KIB}");
        Ok(())
    }
}

/// A collector with its queue on disk.
fn durable(sandbox: &Sandbox, name: &str, collectors: &str) -> Result<Process> {
    let (config, queue) = (sandbox.path(&format!("{name}.toml")), sandbox.path(name));
    let (conf, carbon) = (sandbox.slurm.conf(), sandbox.carbon.address());
    let text = format!(
        "interval = \"1s\"\nprefix = \"{name}\"\n[slurm]\nconf = {conf:?}\n[[carbon]]\naddress = {carbon:?}\n[queue]\ndir = {queue:?}\n{collectors}"
    );
    fs::write(&config, text)?;
    sandbox.slurm_graphite(name, &["run", "--config", &config.display().to_string()])
}

/// The process ids of a daemon that has begun, and of its reader.
fn both(daemon: &mut Process) -> Result<[u32; 2]> {
    daemon.line("slurmctld answers", wait::LIMIT)?;
    let pid = daemon.pid().context("a collector has ended")?;
    Ok([pid, reader_of(pid)?])
}

/// The CPU time of all threads that a process has now.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let mut total = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let schedstat = fs::read_to_string(task?.path().join("schedstat"))?;
        let ran = schedstat.split(' ').next().context("an empty schedstat")?;
        total += ran.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(total))
}

/// The one child of a daemon.
pub(crate) fn reader_of(daemon: u32) -> Result<u32> {
    proc::children(daemon).first().copied().context("the collector has no reader")
}

pub(crate) fn compile_floor(sandbox: &Sandbox) -> Result<std::path::PathBuf> {
    let (source, program) = (sandbox.path("floor.c"), sandbox.path("floor"));
    fs::write(&source, include_str!("floor.c"))?;
    let status = sandbox::command(sandbox.folder.path(), &find_program("gcc")?)
        .args(["-O2", "-o"])
        .args([&program, &source])
        .arg("-lslurm")
        .status()?;
    ensure!(status.success(), "gcc: {status}");
    Ok(program)
}

fn fork_script(sandbox: &Sandbox) -> Result<String> {
    let script = sandbox.path("fork.py");
    fs::write(&script, include_str!("fork.py"))?;
    Ok(script.display().to_string())
}

/// How many series have got their last points together.
fn points_a_tick(sandbox: &Sandbox) -> Result<f64> {
    let mut paths = sandbox.carbon.paths();
    paths.retain(|path, _| !path.starts_with("durable"));
    ensure!(!paths.is_empty(), "nothing has arrived in Carbon");
    Ok(f64::from(u32::try_from(paths.len())?))
}

/// The processor's name, and how many there are.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{} × {cores}", name.map_or("an unknown processor", |(_, name)| name))
}

fn kib_to_mb(kib: u64) -> f64 {
    u32::try_from(kib).map_or(f64::MAX, f64::from) * 1024.0 / 1e6
}

pub(crate) fn say(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("writing to stdout")
}
