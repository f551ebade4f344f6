//! A turn of a contender: how it is started, what its readings cost, and how that is shown.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::{Folder, Process, Sandbox, find_program, now, proc, slurm_graphite, wait};
use tools::above;
use tools::contender::{Contender, Turns, compile, cpu};

/// Readings in a turn, one a second.
const READINGS: f64 = 10.0;
/// Readings whose system calls are counted.
const CALLS_READINGS: u32 = 2;
/// Seconds until the first readings have allocated their pages and buffers.
pub(crate) const SETTLE: f64 = 2.0;

/// The cost of a turn for a process and its child: CPU in µs, wake-ups and system calls a reading,
/// and memory in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) cpu: [f64; 2],
    pub(crate) kib: [f64; 2],
    /// Number of times that their threads have slept and were woken, a reading.
    pub(crate) wakes: [f64; 2],
    /// System calls of both, a reading.
    pub(crate) calls: f64,
}

pub(crate) type Costs = Turns<Cost>;

/// Which of the two processes is meant.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Own,
    Child,
    Both,
}

impl Part {
    fn sum(self, [own, child]: [f64; 2]) -> f64 {
        match self {
            Self::Own => own,
            Self::Child => child,
            Self::Both => own + child,
        }
    }

    /// The median turn's wake-ups.
    pub(crate) fn wakes(self, costs: &Costs) -> f64 {
        costs.median(|cost| self.sum(cost.wakes))
    }

    /// The median turn's memory.
    pub(crate) fn mb(self, costs: &Costs) -> f64 {
        costs.median(|cost| self.sum(cost.kib)) * 1024.0 / 1e6
    }
}

/// The CPU of a median turn, divided by that of another's median turn.
pub(crate) fn ratio((costs, part): (&Costs, Part), (floor, of_it): (&Costs, Part)) -> f64 {
    costs.median(|cost| part.sum(cost.cpu)) / floor.median(|cost| of_it.sum(cost.cpu))
}

/// The contender that most are compared with.
pub(crate) const C_LOOP: &str = "the C loop";

/// A row for each of these contenders, compared with `floor`. What has no memory was not measured
/// for it.
pub(crate) fn table(
    what: &str,
    (name, floor, of_it): (&str, &Costs, Part),
    rows: &[(&str, &Costs, Part)],
) -> String {
    let row = |(name, costs, part): &(&str, &Costs, Part)| {
        if is_missing(costs) {
            return format!("| {name} | missing: set PYSLURM | - | - |\n");
        }
        let ratio = ratio((costs, *part), (floor, of_it));
        let memory = Some(part.mb(costs)).filter(|mb| *mb > 0.0).map(|mb| format!("{mb:.1} MB"));
        let cpu = |cost: &Cost| part.sum(cost.cpu) / 1e3;
        let ((least, most), memory) = (costs.range(cpu), memory.unwrap_or_else(|| "-".to_owned()));
        format!(
            "| {name} | {:.2} ms ({least:.2} to {most:.2}) | {ratio:.2} | {memory} |\n",
            costs.median(cpu)
        )
    };
    let head = format!("| {what} | CPU | compared with {name} | RSS |\n|---|---|---|---|\n");
    std::iter::once(head).chain(rows.iter().map(row)).collect()
}

/// Reports how often contenders sleep and are woken, and their system calls.
pub(crate) fn wakes_and_calls<const N: usize>(contenders: [(&str, &Costs); N]) -> String {
    let words = contenders.map(|(name, costs)| {
        let wakes = costs.median(|cost| Part::Both.sum(cost.wakes));
        format!("{name} {wakes:.1} and {:.0}", costs.median(|cost| cost.calls))
    });
    format!("\nWake-ups and system calls a reading: {}.\n\n", words.join(", "))
}

/// The bare C loop.
pub(crate) fn floor<'a>(sandbox: &'a Sandbox, name: &'a str) -> Result<Contender<'a, Cost>> {
    let program = compile(&sandbox.folder, "floor", include_str!("floor.c"))?;
    Ok(Box::new(move |turn| {
        let name = format!("{name}{turn}");
        let mut floor = Process::new(&sandbox.folder, &name, program.clone())
            .env("SLURM_CONF", sandbox.slurm.conf());
        floor.spawn()?;
        measure(&sandbox.folder, floor, SETTLE)
    }))
}

/// The loop in Python that this daemon replaces, with PySlurm: by the Python of the virtual
/// environment that `PYSLURM` names. Without one it has no figures.
pub(crate) fn pyslurm<'a>(sandbox: &'a Sandbox, name: &'a str) -> Result<Contender<'a, Cost>> {
    match std::env::var_os("PYSLURM") {
        Some(folder) => python(sandbox, name, PathBuf::from(folder).join("bin/python3"), &[]),
        None => Ok(Box::new(|_| Ok(Cost::default()))),
    }
}

/// The same loop with ctypes around libslurm, which copies less.
pub(crate) fn ctypes<'a>(sandbox: &'a Sandbox, name: &'a str) -> Result<Contender<'a, Cost>> {
    let library = compile(&sandbox.folder, "ctypes_loop.so", include_str!("ctypes_loop.c"))?;
    python(sandbox, name, find_program("python3")?, &[library.display().to_string()])
}

fn python<'a>(
    sandbox: &'a Sandbox,
    name: &'a str,
    program: PathBuf,
    library: &[String],
) -> Result<Contender<'a, Cost>> {
    let script = sandbox.folder.write("loop.py", include_str!("loop.py"))?;
    let port = sandbox.carbon.pickle_port.to_string();
    let arguments = [&[script, port], library].concat();
    Ok(Box::new(move |turn| {
        let mut python = Process::new(&sandbox.folder, &format!("{name}{turn}"), program.clone())
            .args(&arguments)
            .env("SLURM_CONF", sandbox.slurm.conf());
        python.spawn()?;
        python.line("connected", wait::LIMIT)?;
        measure(&sandbox.folder, python, SETTLE)
    }))
}

/// The target of libslurm's way, if PySlurm was measured.
pub(crate) fn of_pyslurm(memory: &Costs, pyslurm: &Costs) -> Vec<String> {
    if is_missing(pyslurm) {
        return Vec::new();
    }
    let ratio = ratio((memory, Part::Both), (pyslurm, Part::Own));
    above([("CPU with libslurm's reader compared with PySlurm", ratio, 1.0)])
}

fn is_missing(costs: &Costs) -> bool {
    costs.median(|cost| Part::Own.sum(cost.cpu)) == 0.0
}

/// The daemon with libslurm's reader, or the one with this name, which sends to carbon-cache.
pub(crate) fn ours<'a>(
    sandbox: &'a Sandbox,
    name: &'a str,
    reader: &str,
    durable: bool,
) -> Contender<'a, Cost> {
    let (conf, carbon) = (sandbox.slurm.conf(), sandbox.carbon.address());
    let reader = if reader.is_empty() { String::new() } else { format!("reader = \"{reader}\"\n") };
    let toml = format!("[slurm]\nconf = {conf:?}\n{reader}[[carbon]]\naddress = {carbon:?}\n");
    collector(&sandbox.folder, name, toml, durable, SETTLE)
}

/// A collector with one tick a second and this configuration, and with its queue on disk if it is
/// `durable`.
pub(crate) fn collector<'a>(
    folder: &'a Folder,
    name: &'a str,
    toml: String,
    durable: bool,
    settle: f64,
) -> Contender<'a, Cost> {
    Box::new(move |turn| {
        let name = format!("{name}{turn}");
        let dir = folder.path().join(&name);
        let queue = if durable { format!("queue.dir = {dir:?}\n") } else { String::new() };
        let collector = Process::new(folder, &name, slurm_graphite()?);
        measure(folder, start(collector, folder, &name, &format!("{queue}{toml}"))?, settle)
    })
}

/// A collector after its first reading.
pub(crate) fn start(
    collector: Process,
    folder: &Folder,
    name: &str,
    toml: &str,
) -> Result<Process> {
    let config = folder.write(&format!("{name}.toml"), &format!("interval = \"1s\"\n{toml}"))?;
    let mut collector = collector.args(["run", "--config", &config]);
    collector.spawn()?;
    collector.line("slurmctld answers", wait::LIMIT)?;
    Ok(collector)
}

/// The cost of `process` and its child in [`READINGS`] seconds of one reading each, after `settle`
/// seconds. Ends the process.
fn measure(folder: &Folder, mut process: Process, settle: f64) -> Result<Cost> {
    let pid = process.pid().context("a contender has ended")?;
    let child = proc::children(pid).first().copied();
    let both = |of: fn(u32) -> Result<f64>| anyhow::Ok([of(pid)?, child.map_or(Ok(0.0), of)?]);
    let until = |moment: f64| wait::pause(Duration::from_secs_f64((moment - now()).max(0.0)));
    let spent = |pid| Ok(cpu(pid)?.as_secs_f64() * 1e6);
    let kib = |pid| Ok(proc::rss_kib(pid).context("a contender has ended")? as f64);
    // Readings happen at whole seconds, so between two of them their number is exact.
    let start = (now() + settle).ceil() + 0.5;
    until(start);
    let (spent_before, slept_before) = (both(spent)?, both(slept)?);
    until(start + READINGS);
    let a_reading = |[own, child]: [f64; 2], [own_before, child_before]: [f64; 2]| {
        [own - own_before, child - child_before].map(|all| all / READINGS)
    };
    let cost = Cost {
        cpu: a_reading(both(spent)?, spent_before),
        kib: both(kib)?,
        wakes: a_reading(both(slept)?, slept_before),
        // Afterwards, because it slows them down.
        calls: calls(folder, [Some(pid), child])?,
    };
    process.stop()?;
    Ok(cost)
}

/// Number of times that its threads have given up the CPU by themselves so far:
/// voluntary_ctxt_switches of proc(5).
fn slept(pid: u32) -> Result<f64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let switches = |status: String| {
        status.lines().find_map(|line| {
            line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<f64>().ok()
        })
    };
    Ok(tasks
        .filter_map(|task| switches(fs::read_to_string(task.path().join("status")).ok()?))
        .sum())
}

/// The system calls of these processes in a reading. The count starts between two readings. strace
/// counts a call when it returns: one that waits when strace comes is counted, one that waits when
/// it goes is not.
fn calls(folder: &Folder, pids: [Option<u32>; 2]) -> Result<f64> {
    let end = now() + f64::from(CALLS_READINGS);
    let pids: Vec<String> = pids.iter().flatten().map(u32::to_string).collect();
    let name = format!("strace{}", pids.join("-"));
    let strace = Process::new(folder, &name, find_program("strace")?);
    let mut strace = strace.args(["-f", "-c", "-U", "calls,name", "-p", &pids.join(",")]);
    strace.spawn()?;
    for pid in &pids {
        strace.line(&format!("Process {pid} attached"), Duration::from_millis(400))?;
    }
    wait::pause(Duration::from_secs_f64((end - now()).max(0.0)));
    strace.signal(proc::Signal::INT)?;
    strace.wait(wait::LIMIT)?;
    let lines = strace.lines();
    let total = lines
        .iter()
        .find_map(|line| line.strip_suffix(" total"))
        .context("strace counted nothing")?;
    Ok(total.trim().parse::<f64>()? / f64::from(CALLS_READINGS))
}
