//! Random jobs, of every kind that ends by itself or is cancelled; and a question to a reader.

use std::fs::{self, File};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use sandbox::accounting::{ACCOUNTS, QOS, USERS};
use sandbox::{Accounting, Folder};
use slurm_snapshot::{Answer, FinishedJob, Reply, Visibility};

/// Jobs that have been submitted and do not end by themselves.
#[derive(Debug, Default)]
pub(super) struct Cast {
    endless: Vec<u32>,
    /// No more of them are submitted.
    is_ending: bool,
}

/// The kinds of jobs that end by themselves.
const ENDING: [u8; 5] = [0, 1, 2, 3, 6];

impl Cast {
    /// Submits so many tasks or more, by random users to random accounts, and cancels some of what is there.
    pub(super) fn submit(
        &mut self,
        accounting: &Accounting,
        random: &mut fastrand::Rng,
        least: usize,
    ) -> Result<()> {
        let mut tasks = 0;
        while tasks < least {
            tasks += self.submit_one(accounting, random)?;
            if random.u8(..4) == 0 {
                self.cancel_one(accounting, random)?;
            }
        }
        Ok(())
    }

    fn submit_one(&mut self, accounting: &Accounting, random: &mut fastrand::Rng) -> Result<usize> {
        let account = format!("--account={}", ACCOUNTS[random.usize(..2)]);
        let qos = format!("--qos={}", if random.bool() { "normal" } else { QOS });
        let mut args = vec!["--parsable", "--output=/dev/null", &account, &qos];
        args.extend(["-p", if random.bool() { "debug" } else { "long" }]);
        let size = random.usize(2..12);
        let (held, some) = (format!("--array=1-{size}"), format!("--array=1-{size}%2"));
        let kind = if self.is_ending { ENDING[random.usize(..ENDING.len())] } else { random.u8(..9) };
        let (tasks, ends) = match kind {
            0 | 1 => (1, true),
            2 => {
                args.push("--gres=gpu:1");
                (1, true)
            }
            3 => {
                args.extend(["-N2", "-n2"]);
                (1, true)
            }
            4 => {
                args.extend(["-H", &held]);
                (size, false)
            }
            5 => {
                args.push(&some);
                (size, false)
            }
            6 => {
                args.extend(["-n1", ":", &account, &qos, "-p", "debug", "-n1"]);
                (2, true)
            }
            7 => {
                args.push("-H");
                (1, false)
            }
            _ => (1, false),
        };
        let script = match (ends, random.u8(..3)) {
            (true, 0) => "exit 3",
            (true, 1) => "true",
            (true, _) => "sleep 1",
            (false, _) => "sleep 300",
        };
        args.extend(["--wrap", script]);
        // A user other than the sandbox's, where that is root.
        let user = random.usize(..3);
        let id = match USERS.get(user).filter(|_| rustix::process::getuid().is_root()) {
            Some((_, uid)) => accounting.slurm.run_as(*uid, "sbatch", &args)?,
            None => accounting.slurm.run("sbatch", &args)?,
        };
        if !ends {
            self.endless.push(id.trim().parse().with_context(|| format!("sbatch said {id:?}"))?);
        }
        Ok(tasks)
    }

    fn cancel_one(&mut self, accounting: &Accounting, random: &mut fastrand::Rng) -> Result<()> {
        if self.endless.is_empty() {
            return Ok(());
        }
        let id = self.endless.swap_remove(random.usize(..self.endless.len())).to_string();
        accounting.slurm.run("scancel", &[&id]).map(drop)
    }

    /// Cancels what does not end by itself, and submits no more of that.
    pub(super) fn end(&mut self, accounting: &Accounting) -> Result<()> {
        self.is_ending = true;
        let ids: Vec<String> = self.endless.drain(..).map(|id| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        if ids.is_empty() { Ok(()) } else { accounting.slurm.run("scancel", &ids).map(drop) }
    }
}

/// What a reader that runs as `user` tells of finished jobs.
pub(super) fn ask(
    folder: &Folder,
    accounting: &Accounting,
    user: Option<u32>,
    request: &str,
) -> Result<(Vec<FinishedJob>, Visibility)> {
    let file = folder.path().join("requests");
    fs::write(&file, request)?;
    let mut reader = accounting.slurm.reader(user)?;
    let output =
        reader.arg("--conf").arg(accounting.slurm.conf()).stdin(Stdio::from(File::open(file)?)).output()?;
    let line = output.stdout.split(|byte| *byte == b'\n').nth(1).context("no answer")?;
    match Answer::parse(line)? {
        Answer::Reading(reading) => match (reading.reply, reading.visibility) {
            (Some(Reply::Finished(finished)), Some(visibility)) => Ok((finished.jobs, visibility)),
            other => bail!("{other:?}"),
        },
        other => bail!("{other:?} {}", String::from_utf8_lossy(&output.stderr)),
    }
}
