//! Random jobs of every kind that ends by itself or is cancelled; also requests to a reader.

use std::fs::{self, File};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use sandbox::accounting::{ACCOUNTS, QOS, USERS};
use sandbox::{Accounting, Folder};
use slurm_snapshot::{Answer, FinishedJob, Reply, Visibility};

/// Jobs that have been submitted and do not end by themselves.
#[derive(Debug, Default)]
pub(super) struct Cast {
    pub(super) endless: Vec<u32>,
    /// Whether no more of them are submitted.
    pub(super) is_ending: bool,
    /// Whether there are also jobs that take minutes: those that reach their time limit, are suspended or are requeued.
    pub(super) is_long: bool,
    /// How many jobs reach their time limit. Each uses a CPU for a minute and a half.
    pub(super) limited: usize,
}

/// No more than can run at once.
const MOST_LIMITED: usize = 8;

/// How a job is brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Itself,
    Cancelled,
    TimeLimit,
}

/// The kinds of jobs that end by themselves.
const ENDING: [u8; 5] = [0, 1, 2, 3, 6];

impl Cast {
    /// Submits at least this many tasks, by random users to random accounts, and cancels some of the jobs that exist.
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
            if self.is_long && random.u8(..4) == 0 {
                self.trouble_one(accounting, random)?;
            }
        }
        Ok(())
    }

    /// Suspends, resumes or requeues a running job. Jobs that have ended or are waiting refuse that.
    fn trouble_one(&self, accounting: &Accounting, random: &mut fastrand::Rng) -> Result<()> {
        let running = accounting.slurm.run("squeue", &["-h", "-t", "running,suspended", "-o", "%A"])?;
        let running: Vec<&str> = running.lines().collect();
        let (Some(id), how) = (random.choice(&running), random.u8(..3)) else { return Ok(()) };
        let words = ["suspend", "resume", "requeue"][usize::from(how)];
        let _refused = accounting.slurm.run("scontrol", &[words, id]);
        Ok(())
    }

    fn submit_one(&mut self, accounting: &Accounting, random: &mut fastrand::Rng) -> Result<usize> {
        let account = format!("--account={}", ACCOUNTS[random.usize(..2)]);
        let qos = format!("--qos={}", if random.bool() { "normal" } else { QOS });
        let mut args = vec!["--parsable", "--output=/dev/null", &account, &qos];
        args.extend(["-p", if random.bool() { "debug" } else { "long" }]);
        if random.bool() {
            args.push("--time=10");
        }
        let size = random.usize(2..12);
        let (held, some) = (format!("--array=1-{size}"), format!("--array=1-{size}%2"));
        let may_last = self.is_long && self.limited < MOST_LIMITED;
        let kinds = if may_last { 10 } else { 9 };
        let kind = if self.is_ending { ENDING[random.usize(..ENDING.len())] } else { random.u8(..kinds) };
        let (tasks, end) = match kind {
            0 | 1 => (1, End::Itself),
            2 => {
                args.push("--gres=gpu:1");
                (1, End::Itself)
            }
            3 => {
                args.extend(["-N2", "-n2"]);
                (1, End::Itself)
            }
            4 => {
                args.extend(["-H", &held]);
                (size, End::Cancelled)
            }
            5 => {
                args.push(&some);
                (size, End::Cancelled)
            }
            6 => {
                args.extend(["-n1", ":", &account, &qos, "-p", "debug", "-n1"]);
                (2, End::Itself)
            }
            7 => {
                args.push("-H");
                (1, End::Cancelled)
            }
            8 => (1, End::Cancelled),
            _ => {
                self.limited += 1;
                args.push("--time=1");
                (1, End::TimeLimit)
            }
        };
        let script = match (end, random.u8(..3)) {
            (End::Itself, 0) => "exit 3",
            (End::Itself, 1) => "true",
            (End::Itself, _) => "sleep 1",
            _ => "sleep 300",
        };
        args.extend(["--wrap", script]);
        // A user other than the sandbox's, if that is root.
        let user = random.usize(..3);
        let id = match USERS.get(user).filter(|_| rustix::process::getuid().is_root()) {
            Some((_, uid)) => accounting.slurm.run_as(*uid, "sbatch", &args)?,
            None => accounting.slurm.run("sbatch", &args)?,
        };
        if end == End::Cancelled {
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

    /// Cancels the jobs that do not end by themselves, and submits no more of them.
    pub(super) fn end(&mut self, accounting: &Accounting) -> Result<()> {
        self.is_ending = true;
        for id in accounting.slurm.run("squeue", &["-h", "-t", "suspended", "-o", "%A"])?.lines() {
            let _ended_meanwhile = accounting.slurm.run("scontrol", &["resume", id]);
        }
        let ids: Vec<String> = self.endless.drain(..).map(|id| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        if ids.is_empty() { Ok(()) } else { accounting.slurm.run("scancel", &ids).map(drop) }
    }
}

/// What a reader that runs as `user` returns about finished jobs.
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
    let line = output.stdout.split(|byte| *byte == b'\n').nth(1).context("no response")?;
    match Answer::parse(line)? {
        Answer::Reading(reading) => match (reading.reply, reading.visibility) {
            (Some(Reply::Finished(finished)), Some(visibility)) => Ok((finished.jobs, visibility)),
            other => bail!("{other:?}"),
        },
        other => bail!("{other:?} {}", String::from_utf8_lossy(&output.stderr)),
    }
}
