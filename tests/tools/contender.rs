//! Contenders run alternately, each alone, and the median turn counts.
//!
//! If contenders ran in the same second, they would share caches: the first one warms slurmctld,
//! munged and libslurm for the others. CPU is the clock of each process (`clock_getcpuclockid`):
//! user and system time, in nanoseconds, of all its threads and of those that have ended.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use sandbox::{Folder, find_program};

/// Number of turns of each contender.
pub const TURNS: usize = 5;

/// Runs a contender for the turn with the given number.
pub type Contender<'a, T> = Box<dyn Fn(usize) -> Result<T> + 'a>;

/// Gives each contender its turns, starting each round with another contender.
pub fn in_turn<T, const N: usize>(contenders: [Contender<'_, T>; N]) -> Result<[Turns<T>; N]> {
    let mut contenders = contenders.map(|measure| (measure, Vec::new()));
    for turn in 0..TURNS {
        for (measure, turns) in &mut contenders {
            turns.push(measure(turn)?);
        }
        contenders.rotate_left(1);
    }
    contenders.rotate_right(TURNS % N);
    Ok(contenders.map(|(_, turns)| Turns(turns)))
}

/// The turns of one contender.
pub struct Turns<T>(Vec<T>);

impl<T> Turns<T> {
    /// The median turn's figure.
    pub fn median(&self, figure: impl Fn(&T) -> f64) -> f64 {
        median(self.0.iter().map(figure))
    }

    /// The smallest and the largest figure of all turns.
    pub fn range(&self, figure: impl Fn(&T) -> f64) -> (f64, f64) {
        let figures = || self.0.iter().map(&figure);
        (figures().fold(f64::MAX, f64::min), figures().fold(0.0, f64::max))
    }
}

/// The figure in the middle; not a number where there is none.
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The CPU time that a process has used so far.
pub fn cpu(pid: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(clock_gettime(clock)?.into())
}

/// The program, or library if its name ends in `.so`, made of this source in C, linked against
/// libslurm; compiled once in a folder.
pub fn compile(folder: &Folder, name: &str, source: &str) -> Result<PathBuf> {
    let program = folder.path().join(name);
    if program.exists() {
        return Ok(program);
    }
    let file = folder.write(&format!("{name}.c"), source)?;
    let of_prefix = |prefix: PathBuf| {
        let lib = prefix.join("lib").display().to_string();
        [format!("-I{}/include", prefix.display()), format!("-L{lib}"), format!("-Wl,-rpath,{lib}")]
    };
    let mut gcc = sandbox::command(folder.path(), &find_program("gcc")?);
    gcc.args(["-O2", &file, "-o"]).arg(&program);
    if program.extension().is_some() {
        gcc.args(["-shared", "-fPIC"]);
    }
    let slurm =
        sandbox::prefix().map(of_prefix).into_iter().flatten().chain(["-lslurm".to_owned()]);
    sandbox::output(gcc, slurm)?;
    Ok(program)
}
