//! A turn of a contender: how it is started, and what its readings cost.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::{Folder, Process, Sandbox, now, proc, slurm_graphite, wait};
use tools::contender::{Contender, Turns, compile, contender, cpu};

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

impl Cost {
    pub(crate) fn both(&self) -> f64 {
        self.own + self.child
    }

    pub(crate) fn both_kib(&self) -> f64 {
        self.own_kib + self.child_kib
    }
}

pub(crate) type Costs = Turns<Cost>;

/// The median turn's figure, divided by the CPU of `floor`'s median turn.
pub(crate) fn ratio(costs: &Costs, floor: &Costs, figure: impl Fn(&Cost) -> f64) -> f64 {
    costs.median(figure) / floor.median(|cost| cost.own)
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
    let config = folder.path().join(format!("{name}.toml"));
    fs::write(&config, format!("interval = \"1s\"\n{toml}"))?;
    let mut collector = collector.args(["run", "--config", &config.display().to_string()]);
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
    let slept = || wakes(pid) + child.map_or(0, wakes);
    let (before, slept_before) = (all()?, slept());
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
        wakes: f64::from(u32::try_from(slept() - slept_before)?) / f64::from(readings),
    };
    process.stop()?;
    Ok(cost)
}

/// How often its threads have given up the CPU by themselves so far: voluntary_ctxt_switches of proc(5).
fn wakes(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |status: String| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    tasks.filter_map(|task| of(fs::read_to_string(task.path().join("status")).ok()?)).sum()
}
