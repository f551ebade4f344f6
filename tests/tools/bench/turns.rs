//! How the cost of a reading is measured: the contenders run alternately, each alone, and the median turn counts.
//!
//! If contenders ran in the same second, they would share caches: the first one warms slurmctld, munged and libslurm
//! for the others. CPU is the clock of each process (`clock_getcpuclockid`): user and system time, in nanoseconds, of
//! all its threads and of those that have ended.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use sandbox::{Process, now, proc, wait};

/// How many turns each contender has.
pub(crate) const TURNS: usize = 5;
/// Until the first readings have allocated their pages and buffers.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

/// A contender, and what its turns so far have cost.
pub(crate) struct Contender<'a> {
    measure: Box<dyn Fn(usize) -> Result<Cost> + 'a>,
    costs: Costs,
}

/// What a turn cost a process and its child: CPU in µs a reading, and memory in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) own: f64,
    pub(crate) child: f64,
    pub(crate) own_kib: f64,
    pub(crate) child_kib: f64,
}

impl Cost {
    pub(crate) fn both(&self) -> f64 {
        self.own + self.child
    }
}

/// The turns of one contender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs(Vec<Cost>);

impl Costs {
    /// The median turn's figure.
    pub(crate) fn median(&self, figure: impl Fn(&Cost) -> f64) -> f64 {
        median(self.0.iter().map(figure))
    }

    /// The smallest and the largest figure of all turns.
    pub(crate) fn range(&self, figure: impl Fn(&Cost) -> f64) -> (f64, f64) {
        let figures = || self.0.iter().map(&figure);
        (figures().fold(f64::MAX, f64::min), figures().fold(0.0, f64::max))
    }

    /// The median turn's figure, divided by the CPU of `floor`'s median turn.
    pub(crate) fn ratio(&self, floor: &Self, figure: impl Fn(&Cost) -> f64) -> f64 {
        self.median(figure) / floor.median(|cost| cost.own)
    }
}

/// `measure` runs the contender for the turn with the given number.
pub(crate) fn contender<'a>(measure: impl Fn(usize) -> Result<Cost> + 'a) -> Contender<'a> {
    Contender { measure: Box::new(measure), costs: Costs::default() }
}

/// Gives each contender its turns, starting each round with another contender.
pub(crate) fn in_turn<const N: usize>(mut contenders: [Contender<'_>; N]) -> Result<[Costs; N]> {
    for turn in 0..TURNS {
        for contender in &mut contenders {
            let cost = (contender.measure)(turn)?;
            contender.costs.0.push(cost);
        }
        contenders.rotate_left(1);
    }
    contenders.rotate_right(TURNS % N);
    Ok(contenders.map(|contender| contender.costs))
}

/// What `process` and its child cost in `readings` seconds of one reading each, after `settle`. Ends the process.
pub(crate) fn measure(mut process: Process, settle: Duration, readings: u32) -> Result<Cost> {
    let pid = process.pid().context("a contender has ended")?;
    let child = proc::children(pid).first().copied();
    // Readings happen at whole seconds, so between two of them their number is exact.
    let start = now() + settle.as_secs_f64();
    let start = start.ceil() + 0.5;
    let spent = |pid: u32| -> Result<f64> { Ok(cpu(pid)?.as_secs_f64() * 1e6 / f64::from(readings)) };
    let all = || -> Result<(f64, f64)> { Ok((spent(pid)?, child.map_or(Ok(0.0), spent)?)) };
    wait::pause(Duration::from_secs_f64((start - now()).max(0.0)));
    let before = all()?;
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
    };
    process.stop()?;
    Ok(cost)
}

/// The CPU time that a process has used so far.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(clock_gettime(clock)?.into())
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
