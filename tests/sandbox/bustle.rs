//! A small cluster's working day in minutes: waves of jobs, some that fail, some that are
//! cancelled, wide ones for backfill, and users who run squeue too often. Every curve moves.

use std::f64::consts::TAU;

use anyhow::Result;

use crate::{CPUS, Slurm, is_root};

/// Jobs that were submitted and may still be cancelled.
#[derive(Debug, Default)]
pub struct Bustle {
    wide: Vec<u32>,
    owed: f64,
}

/// Seconds from one wave of jobs to the next.
const WAVE: f64 = 75.0;

impl Bustle {
    /// Does the work of one second, counted from the beginning.
    pub fn second(&mut self, slurm: &Slurm, second: u32) -> Result<()> {
        let wave = 1.0 + (f64::from(second) / WAVE * TAU).sin();
        self.owed += 0.3 + wave;
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let length = fastrand::u32(1..4) + u32::from(wave > 1.0) * 2;
            let account = if fastrand::bool() { "--account=physics" } else { "--account=biology" };
            slurm.submit(&["--time=1", account, "--wrap", &format!("sleep {length}")])?;
        }
        match second % 20 {
            1 => drop(slurm.submit(&["--array=1-6", "--time=1", "--wrap", "sleep 2"])?),
            4 | 11 => self.wide.push(slurm.submit(&[
                "-n",
                &CPUS.to_string(),
                "--time=2",
                "--wrap",
                "sleep 3",
            ])?),
            7 => drop(slurm.submit(&["--wrap", "exit 3"])?),
            13 => {
                // It may have started or ended by now, which does not matter.
                let _gone = self.wide.pop().map(|job| slurm.run("scancel", &[&job.to_string()]));
            }
            _ => {}
        }
        let questions = if second % 60 >= 35 && second % 60 < 50 {
            6
        } else {
            u32::from(second.is_multiple_of(3))
        };
        for question in 0..questions {
            ask(slurm, second / 60 + question % 2, "squeue")?;
        }
        if second.is_multiple_of(7) {
            ask(slurm, second / 7, "sinfo")?;
        }
        Ok(())
    }
}

/// If the sandbox runs as root, several users ask.
fn ask(slurm: &Slurm, who: u32, command: &str) -> Result<()> {
    const USERS: [&str; 4] = ["games", "news", "backup", "nobody"];
    let user = USERS.iter().cycle().nth(usize::try_from(who)?).copied().unwrap_or_default();
    if is_root() {
        slurm.run(
            "setpriv",
            &["--reuid", user, "--clear-groups", "--inh-caps=-all", command, "-h"],
        )?;
    } else {
        slurm.run(command, &["-h"])?;
    }
    Ok(())
}
