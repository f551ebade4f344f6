//! Random jobs of every kind that ends by itself or is ended, with a record of what was submitted;
//! also requests to a reader.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use sandbox::accounting::{ACCOUNTS, QOS, USERS};
use sandbox::{Accounting, Folder, is_root, now, wait};
use slurm_snapshot::{Finished, Reply, Visibility};

use super::MINUTE;
use crate::cluster::reading;

/// An account whose name is not a component of a path.
pub(super) const DOTTED: &str = "chem.lab";

#[derive(Debug, Default)]
pub(super) struct Cast {
    /// Those that do not end by themselves.
    endless: Vec<u32>,
    /// Those that are held until their deadline is too near.
    late: Vec<u32>,
    pub(super) submitted: BTreeMap<u32, u64>,
    /// Jobs of which a slurmctld that was killed may have forgotten something.
    pub(super) disturbed: BTreeSet<u32>,
    /// Whether no more of those that do not end by themselves are submitted.
    pub(super) is_ending: bool,
    /// Whether there are also jobs that take minutes, and accounts and QOS that only that test has.
    pub(super) is_long: bool,
    /// How many jobs of kinds that are rare were submitted.
    rare: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By itself, with one of [`SCRIPTS`].
    Itself,
    Cancelled,
    Limit,
    /// By its deadline. slurmctld looks at the deadline of a job only when it could schedule the
    /// job, never while it is held.
    Late,
}

/// Arguments of sbatch, tasks, how it ends. `N` is the number of tasks, and `WHO` what all
/// components need.
type Kind = (&'static [&'static str], usize, End);

const KINDS: [Kind; 14] = [
    (&[], 1, End::Itself),
    (&[], 1, End::Itself),
    (&["--gres=gpu:1"], 1, End::Itself),
    (&["-N2", "-n2"], 1, End::Itself),
    (&["-n1", ":", "WHO", "-p", "debug", "-n1"], 2, End::Itself),
    (&["-p", "debug,long"], 1, End::Itself),
    (&["--array=1-N"], 0, End::Itself),
    (&["-H", "--array=1-N"], 0, End::Cancelled),
    (&["--array=1-N%2"], 0, End::Cancelled),
    (&["--array=1-N%1"], 0, End::Cancelled),
    (&["-H"], 1, End::Cancelled),
    (&["-H", "-p", "long,debug"], 1, End::Cancelled),
    (&[], 1, End::Cancelled),
    (&["-N2", "-n2"], 1, End::Cancelled),
];

/// Those of [`KINDS`] that end by themselves.
const ENDING: usize = 7;

/// Kinds that take minutes, or that a test has no more than [`MOST_RARE`] of.
const RARE: [Kind; 3] = [
    (&["--time=1"], 1, End::Limit),
    (&["-H", "--time=1", "--deadline=now+90"], 1, End::Late),
    (&["--array=1-76%6"], 76, End::Itself),
];

/// Two of each kind.
const MOST_RARE: usize = 2 * RARE.len();

/// What a job that ends by itself does.
const SCRIPTS: [&str; 5] = ["exit 3", "true", "sleep 1", "kill -9 $$", "srun true"];

/// What a job does that gives a node back.
const RESIZE: &str = "sleep 2; scontrol update jobid=$SLURM_JOB_ID numnodes=1; sleep 2";

impl Cast {
    /// Submits a job that starts for each account, QOS and user: only then they have paths of their
    /// own.
    pub(super) fn introduce(&mut self, accounting: &Accounting) -> Result<()> {
        for account in self.accounts() {
            for qos in ["normal", QOS] {
                let args = ["-A", account, "-q", qos, "--wrap", "true"];
                self.submitted.insert(accounting.slurm.submit(&args)?, 1);
            }
        }
        for (_, uid) in USERS.into_iter().filter(|_| is_root()) {
            let args = ["--parsable", "--output=/dev/null", "--wrap", "true"];
            let id = accounting.slurm.run_as(uid, "sbatch", &args)?;
            self.submitted.insert(id.trim().parse()?, 1);
        }
        Ok(())
    }

    /// Submits jobs that change their size. slurmctld 22.05, if it is killed within seconds of
    /// their end, finds them running at its next start, and then starts no job on their nodes: so
    /// nothing may be killed before all of it is saved.
    pub(super) fn submit_resized(&mut self, accounting: &Accounting) -> Result<()> {
        for account in ACCOUNTS {
            let id = accounting
                .slurm
                .submit(&["-N2", "-n2", "--time=1", "-A", account, "--wrap", RESIZE])?;
            self.submitted.insert(id, 1);
        }
        Ok(())
    }

    fn accounts(&self) -> Vec<&'static str> {
        [&ACCOUNTS[..], if self.is_long { &[DOTTED] } else { &[] }].concat()
    }

    /// Submits at least this many tasks, by random users to random accounts, and ends some of the
    /// jobs that exist.
    pub(super) fn submit(
        &mut self,
        accounting: &Accounting,
        random: &mut Rng,
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

    /// Suspends, resumes, requeues or changes a job or a task. Those that are in another state
    /// refuse that.
    fn trouble_one(&self, accounting: &Accounting, random: &mut Rng) -> Result<()> {
        let open = accounting.slurm.call("squeue -h -r -o %A")?;
        let open: Vec<&str> = open.lines().collect();
        let Some(id) = random.choice(&open) else { return Ok(()) };
        let update =
            ["update", &format!("jobid={id}"), "timelimit=9", "account=chemistry", "qos=urgent"];
        let args = match random.u8(..4) {
            0 => &["suspend", id][..],
            1 => &["resume", id],
            2 => &["requeue", id],
            _ => &update,
        };
        let _refused = accounting.slurm.run("scontrol", args);
        Ok(())
    }

    /// Submits a job that is cancelled later, with these arguments.
    pub(super) fn submit_endless(
        &mut self,
        accounting: &Accounting,
        args: &[&str],
        tasks: u64,
    ) -> Result<u32> {
        let id = accounting.slurm.submit(&[args, &["--wrap", "sleep 300"]].concat())?;
        self.submitted.insert(id, tasks);
        self.endless.push(id);
        Ok(id)
    }

    fn submit_one(&mut self, accounting: &Accounting, random: &mut Rng) -> Result<usize> {
        let account =
            format!("--account={}", random.choice(self.accounts()).context("an account")?);
        let qos = format!("--qos={}", if random.bool() { "normal" } else { QOS });
        let mut args = vec!["--parsable", "--output=/dev/null", &account, &qos];
        args.extend(["-p", if random.bool() { "debug" } else { "long" }]);
        let kind = match random.usize(..KINDS.len() + RARE.len()) {
            _ if self.is_ending => random.choice(&KINDS[..ENDING]),
            kind if kind < KINDS.len() => KINDS.get(kind),
            _ if self.is_long && self.rare < MOST_RARE => {
                self.rare += 1;
                RARE.get(self.rare % RARE.len())
            }
            _ => random.choice(&KINDS),
        };
        let &(its, tasks, end) = kind.context("a kind of job")?;
        if random.bool() && !matches!(end, End::Limit | End::Late) {
            args.push("--time=10");
        }
        let tasks = if tasks > 0 { tasks } else { random.usize(2..12) };
        let array = its
            .iter()
            .find(|arg| arg.starts_with("--array"))
            .map(|arg| arg.replace('N', &tasks.to_string()));
        for arg in its {
            match (*arg, &array) {
                ("WHO", _) => args.extend([account.as_str(), &qos]),
                (arg, Some(array)) if arg.starts_with("--array") => args.push(array),
                (arg, _) => args.push(arg),
            }
        }
        let script = match end {
            End::Itself => random.choice(SCRIPTS).unwrap_or_default(),
            End::Cancelled | End::Limit | End::Late => "sleep 300",
        };
        args.extend(["--wrap", script]);
        // A user other than the sandbox's, if that is root.
        let user = random.usize(..3);
        let id = match USERS.get(user).filter(|_| is_root()) {
            Some((_, uid)) => accounting.slurm.run_as(*uid, "sbatch", &args)?,
            None => accounting.slurm.run("sbatch", &args)?,
        };
        let id = id.trim().parse().with_context(|| format!("sbatch said {id:?}"))?;
        self.submitted.insert(id, u64::try_from(tasks)?);
        match end {
            End::Cancelled => self.endless.push(id),
            End::Late => self.late.push(id),
            End::Itself | End::Limit => {}
        }
        Ok(tasks)
    }

    /// Cancels a job, or only the first tasks of an array.
    fn cancel_one(&mut self, accounting: &Accounting, random: &mut Rng) -> Result<()> {
        if self.endless.is_empty() {
            return Ok(());
        }
        let place = random.usize(..self.endless.len());
        let id = self.endless.get(place).copied().unwrap_or_default();
        if random.u8(..4) == 0 && self.submitted.get(&id).is_some_and(|tasks| *tasks > 1) {
            // Tasks that were waiting have no row of their own until slurmctld has sent it, and
            // squeue does not show them: a slurmctld that is killed before that has forgotten them.
            if self.is_long {
                self.disturbed.insert(id);
            }
            return accounting.slurm.run("scancel", &[&format!("{id}_[1-2]")]).map(drop);
        }
        self.cancel(accounting, &[id]);
        Ok(())
    }

    /// Remembers which jobs a slurmctld that is killed now may forget, or run again: it saves its
    /// state every 5 s, and what it has not sent to slurmdbd is lost.
    pub(super) fn disturb(&mut self, accounting: &Accounting) -> Result<()> {
        let ends =
            "select id_job, max(time_end) from slurm_acct_db.sandbox_job_table group by id_job";
        let sent: BTreeMap<u32, f64> = (accounting.sql(ends)?.lines())
            .filter_map(|line| line.split_once('\t'))
            .filter_map(|(id, end)| Some((id.parse().ok()?, end.parse().ok()?)))
            .collect();
        let args =
            ["SLURM_TIME_FORMAT=%s", "squeue", "-h", "-a", "-r", "-t", "all", "-o", "%A %F %e"];
        for line in accounting.slurm.run("env", &args)?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, array, end] = words[..] else { bail!("a line of squeue: {line}") };
            let id: u32 = id.parse()?;
            let is_sent = |end: f64| sent.get(&id).is_some_and(|sent| *sent >= end);
            if end.parse::<f64>().map_or(true, |end| end > now() - 15.0 || !is_sent(end)) {
                self.disturbed.extend([id, array.parse()?]);
            }
        }
        Ok(())
    }

    /// Cancels the jobs that do not end by themselves, releases those that are too late, and
    /// submits no more of them. In a long run it submits one that reaches its limit.
    pub(super) fn end(&mut self, accounting: &Accounting) -> Result<()> {
        self.is_ending = true;
        for id in accounting.slurm.call("squeue -h -t suspended -o %A")?.lines() {
            let _ended_meanwhile = accounting.slurm.run("scontrol", &["resume", id]);
        }
        for id in self.late.drain(..) {
            let _forgotten = accounting.slurm.run("scontrol", &["release", &id.to_string()]);
        }
        let ids: Vec<u32> = self.endless.drain(..).collect();
        self.cancel(accounting, &ids);
        if self.is_long {
            // Faults may have ended all earlier jobs before their limit.
            let id = accounting.slurm.submit(&["--time=1", "--wrap", "sleep 300"])?;
            self.submitted.insert(id, 1);
        }
        Ok(())
    }

    /// Cancels these jobs. Those that have ended, or that a killed slurmctld has forgotten, refuse
    /// that.
    pub(super) fn cancel(&mut self, accounting: &Accounting, ids: &[u32]) {
        self.endless.retain(|id| !ids.contains(id));
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        if !ids.is_empty() {
            let _refused = accounting.slurm.run("scancel", &ids);
        }
    }
}

/// Waits until slurmdbd has so many rows of jobs that fit the condition.
pub(super) fn until_rows(accounting: &Accounting, condition: &str, rows: usize) {
    let count = format!("select count(*) from slurm_acct_db.sandbox_job_table where {condition}");
    let has = || accounting.sql(&count).is_ok_and(|count| count.trim() == rows.to_string());
    wait::until(condition, MINUTE, has).unwrap();
}

/// Runs so many jobs to their end.
pub(super) fn run(accounting: &Accounting, jobs: usize) {
    for _ in 0..jobs {
        accounting.slurm.submit(&["--wrap", "true"]).unwrap();
    }
    // The record of a job's start may come after that of its end, and brings the partition.
    until_rows(accounting, "time_end > 0 and `partition` <> ''", jobs);
}

/// What a reader that runs as `user` returns about finished jobs.
pub(super) fn ask(
    folder: &Folder,
    accounting: &Accounting,
    user: Option<u32>,
    request: &str,
) -> Result<(Finished, Visibility)> {
    let reading = reading(folder, &accounting.slurm, user, request)?;
    match (reading.reply, reading.visibility) {
        (Some(Reply::Finished(finished)), Some(visibility)) => Ok((*finished, visibility)),
        other => bail!("{other:?}"),
    }
}
