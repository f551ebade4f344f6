//! A turn of a contender: how it is started, what its readings cost, and how that is shown.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::{Folder, Process, Sandbox, now, proc, slurm_graphite, wait};
use tools::contender::{Contender, Turns, compile, contender, cpu};

use crate::READINGS;

/// Until the first readings have allocated their pages and buffers.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

/// What a turn cost a process and its child: CPU in µs and wake-ups a reading, and memory in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) own: f64,
    pub(crate) child: f64,
    pub(crate) own_kib: f64,
    pub(crate) child_kib: f64,
    /// How often a thread of either has slept and was woken.
    pub(crate) wakes: f64,
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
    fn of(self, own: f64, child: f64) -> f64 {
        match self {
            Self::Own => own,
            Self::Child => child,
            Self::Both => own + child,
        }
    }

    fn cpu(self, cost: &Cost) -> f64 {
        self.of(cost.own, cost.child)
    }

    /// The median turn's memory.
    pub(crate) fn mb(self, costs: &Costs) -> f64 {
        costs.median(|cost| self.of(cost.own_kib, cost.child_kib)) * 1024.0 / 1e6
    }
}

/// The CPU of a median turn, divided by that of another's median turn.
pub(crate) fn ratio((costs, part): (&Costs, Part), (floor, of_it): (&Costs, Part)) -> f64 {
    costs.median(|cost| part.cpu(cost)) / floor.median(|cost| of_it.cpu(cost))
}

/// What most are compared with.
pub(crate) const C_LOOP: &str = "the C loop";

/// A row for each of these contenders, compared with `floor`. What has no memory was not measured for it.
pub(crate) fn table(
    what: &str,
    (name, floor, of_it): (&str, &Costs, Part),
    rows: &[(&str, &Costs, Part)],
) -> String {
    let row = |(name, costs, part): &(&str, &Costs, Part)| {
        let ratio = ratio((costs, *part), (floor, of_it));
        let memory = Some(part.mb(costs)).filter(|mb| *mb > 0.0).map(|mb| format!("{mb:.1} MB"));
        let cpu = |cost: &Cost| part.cpu(cost) / 1e3;
        let ((least, most), memory) = (costs.range(cpu), memory.unwrap_or_else(|| "-".to_owned()));
        format!(
            "| {name} | {:.2} ms ({least:.2} to {most:.2}) | {ratio:.2} | {memory} |\n",
            costs.median(cpu)
        )
    };
    let head = format!("| {what} | CPU | compared with {name} | RSS |\n|---|---|---|---|\n");
    std::iter::once(head).chain(rows.iter().map(row)).collect()
}

/// How often they sleep and are woken.
pub(crate) fn wakes<const N: usize>(contenders: [(&str, &Costs); N]) -> String {
    let of = contenders.map(|(name, costs)| format!("{name} {:.1}", costs.median(|cost| cost.wakes)));
    format!("\nWake-ups a reading: {}.\n\n", of.join(", "))
}

/// The bare C loop.
pub(crate) fn floor<'a>(sandbox: &'a Sandbox, name: &'a str, readings: u32) -> Result<Contender<'a, Cost>> {
    let program = compile(&sandbox.folder, "floor", include_str!("floor.c"))?;
    Ok(contender(move |turn| {
        let name = format!("{name}{turn}");
        let mut floor =
            Process::new(&sandbox.folder, &name, program.clone()).env("SLURM_CONF", sandbox.slurm.conf());
        floor.spawn()?;
        measure(floor, SETTLE, readings)
    }))
}

/// The lines of a queue, whose folder is that of the turn.
pub(crate) const IN_MEMORY: fn(&Path) -> String = |_| String::new();
pub(crate) const ON_DISK: fn(&Path) -> String = |dir| format!("dir = {dir:?}\n");

/// The daemon with libslurm's reader, or the one with this name, which sends to carbon-cache.
pub(crate) fn ours<'a>(
    sandbox: &'a Sandbox,
    name: &'a str,
    reader: &str,
    queue: fn(&Path) -> String,
) -> Contender<'a, Cost> {
    let (conf, carbon) = (sandbox.slurm.conf(), sandbox.carbon.address());
    let reader = if reader.is_empty() { String::new() } else { format!("reader = \"{reader}\"\n") };
    let toml = format!("[slurm]\nconf = {conf:?}\n{reader}[[carbon]]\naddress = {carbon:?}\n[queue]\n");
    collector(&sandbox.folder, name, move |dir| toml.clone() + &queue(dir), SETTLE, READINGS)
}

/// A collector with one tick a second and this configuration.
pub(crate) fn collector<'a>(
    folder: &'a Folder,
    name: &'a str,
    toml: impl Fn(&Path) -> String + 'a,
    settle: Duration,
    readings: u32,
) -> Contender<'a, Cost> {
    contender(move |turn| {
        let name = format!("{name}{turn}");
        let collector = Process::new(folder, &name, slurm_graphite()?);
        measure(start(collector, folder, &name, &toml(&folder.path().join(&name)))?, settle, readings)
    })
}

/// A collector after its first reading.
pub(crate) fn start(collector: Process, folder: &Folder, name: &str, toml: &str) -> Result<Process> {
    let config = folder.write(&format!("{name}.toml"), &format!("interval = \"1s\"\n{toml}"))?;
    let mut collector = collector.args(["run", "--config", &config]);
    collector.spawn()?;
    collector.line("slurmctld answers", wait::LIMIT)?;
    Ok(collector)
}

/// What `process` and its child cost in `readings` seconds of one reading each, after `settle`. Ends the process.
fn measure(mut process: Process, settle: Duration, readings: u32) -> Result<Cost> {
    let pid = process.pid().context("a contender has ended")?;
    let child = proc::children(pid).first().copied();
    // Readings happen at whole seconds, so between two of them their number is exact.
    let start = now() + settle.as_secs_f64();
    let start = start.ceil() + 0.5;
    let spent = |pid: u32| -> Result<f64> { Ok(cpu(pid)?.as_secs_f64() * 1e6 / f64::from(readings)) };
    let all = || -> Result<(f64, f64)> { Ok((spent(pid)?, child.map_or(Ok(0.0), spent)?)) };
    wait::pause(Duration::from_secs_f64((start - now()).max(0.0)));
    let all_slept = || slept(pid) + child.map_or(0, slept);
    let (before, slept_before) = (all()?, all_slept());
    wait::pause(Duration::from_secs_f64((start + f64::from(readings) - now()).max(0.0)));
    let after = all()?;
    let kib = |pid: u32| -> Result<f64> {
        Ok(f64::from(u32::try_from(proc::rss_kib(pid).context("a contender has ended")?)?))
    };
    let cost = Cost {
        own: after.0 - before.0,
        child: after.1 - before.1,
        own_kib: kib(pid)?,
        child_kib: child.map_or(Ok(0.0), kib)?,
        wakes: f64::from(u32::try_from(all_slept() - slept_before)?) / f64::from(readings),
    };
    process.stop()?;
    Ok(cost)
}

/// How often its threads have given up the CPU by themselves so far: voluntary_ctxt_switches of proc(5).
fn slept(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |status: String| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    tasks.filter_map(|task| of(fs::read_to_string(task.path().join("status")).ok()?)).sum()
}
