//! The expected values for finished jobs, from sacct and from the database.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use sandbox::Accounting;

/// Counts by level and state.
pub(super) type Jobs = BTreeMap<String, BTreeMap<String, u64>>;

/// Rows that have not ended, or for which slurmctld has reported the end but not yet the start.
pub(super) const UNFINISHED: &str =
    "select count(*) from slurm_acct_db.sandbox_job_table where time_end = 0 or `partition` = ''";

/// What a person needs to see if this takes too long.
pub(super) const ROWS: &str = "select job_db_inx, id_job, state, `partition`, array_task_str, time_submit, time_eligible, \
     time_start, time_end from slurm_acct_db.sandbox_job_table order by 1";

/// sacct's columns for a job, in this order.
const COLUMNS: &str =
    "jobid,state,partition,account,qos,user,submit,eligible,start,elapsedraw,timelimitraw,alloctres";

/// Jobs by final state; sums; and the values for percentiles, of jobs that started. All by level.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) jobs: Jobs,
    pub(super) sums: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Waits and run times.
    pub(super) times: BTreeMap<String, [Vec<u64>; 2]>,
    /// The lines that sacct has printed.
    lines: Vec<String>,
}

impl Truth {
    /// From sacct, which writes lists of array tasks in job ids.
    pub(super) fn of_sacct(accounting: &Accounting) -> Result<Self> {
        let states = "--state=CD,CA,F,TO,NF,PR,BF,DL,OOM,RQ";
        let args = [
            "SLURM_TIME_FORMAT=%s",
            "sacct",
            "-a",
            "-X",
            "-D",
            "-nP",
            states,
            "-S",
            "now-1day",
            "-E",
            "now+1day",
        ];
        let text = accounting.slurm.run("env", &[&args[..], &["-o", COLUMNS]].concat())?;
        Self::of_lines(text.lines().map(str::to_owned).collect())
    }

    /// Only the jobs that were not there `before`.
    pub(super) fn since(&self, before: &Self) -> Result<Self> {
        let mut left = before.lines.clone();
        left.sort();
        Self::of_lines(self.lines.iter().filter(|line| left.binary_search(line).is_err()).cloned().collect())
    }

    fn of_lines(lines: Vec<String>) -> Result<Self> {
        let mut truth = Self::default();
        for line in &lines {
            let words: Vec<&str> = line.split('|').collect();
            let [id, state, partition, account, qos, user, submit, eligible, start, elapsed, limit, tres] =
                words[..]
            else {
                anyhow::bail!("a line of sacct: {line}")
            };
            let tasks = tasks(id).with_context(|| format!("the tasks of {line}"))?;
            let state = state.split(' ').next().unwrap_or_default().to_lowercase();
            let names = [("partition", partition), ("account", account), ("qos", qos), ("user", user)];
            truth.add(&names, &state, tasks);
            // A job that was cancelled while pending may have a start, but never had any resources.
            let (Ok(start), false) = (start.parse::<u64>(), tres.is_empty()) else {
                if state == "cancelled" {
                    truth.add_sums(&names, &[("cancelled_before_start", tasks)]);
                }
                continue;
            };
            let since = eligible.parse().or_else(|_| submit.parse::<u64>())?;
            let (run, wait) = (elapsed.parse::<u64>()?, start.saturating_sub(since));
            let of = |name| count(tres, name);
            truth.add_sums(
                &names,
                &[
                    ("started", 1),
                    ("wait_seconds", wait),
                    ("run_seconds", run),
                    ("cpu_seconds", run * of("cpu")),
                    ("gpu_seconds", run * of("gres/gpu")),
                    ("node_seconds", run * of("node")),
                    ("billing_seconds", run * of("billing")),
                ],
            );
            if let Ok(minutes) = limit.parse::<u64>() {
                let little = u64::from(run * 10 < minutes * 60);
                let used = [("limited", 1), ("limit_seconds", minutes * 60), ("limit_used_seconds", run)];
                truth.add_sums(&names, &[&used[..], &[("limit_used_little", little)]].concat());
            }
            for level in levels(&names) {
                let [waits, runs] = truth.times.entry(level).or_default();
                waits.push(wait);
                runs.push(run);
            }
        }
        Ok(Self { lines, ..truth })
    }

    fn add_sums(&mut self, names: &[(&str, &str)], sums: &[(&'static str, u64)]) {
        for level in levels(names) {
            let its = self.sums.entry(level).or_default();
            sums.iter().for_each(|(leaf, value)| *its.entry(leaf).or_default() += value);
        }
    }

    /// Percentiles of the waits and run times of a level, by leaf: the smallest value that this share of the values
    /// does not exceed.
    pub(super) fn percentiles(&self, level: &str) -> BTreeMap<String, u64> {
        let mut leaves = BTreeMap::new();
        for (kind, values) in ["wait", "run"].into_iter().zip(self.times.get(level).into_iter().flatten()) {
            for (leaf, percent) in [("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)] {
                let not_above = |most: &u64| values.iter().filter(|value| *value <= most).count();
                let least =
                    values.iter().filter(|most| not_above(most) * 100 >= values.len() * percent).min();
                leaves.extend(least.map(|least| (format!("{kind}_{leaf}"), *least)));
            }
        }
        leaves
    }

    /// From a GROUP BY, where tasks of an array that have not started are a number.
    pub(super) fn of_sql(accounting: &Accounting) -> Result<Self> {
        let text = accounting.sql(
            "select j.state, j.`partition`, j.account, q.name, a.user, \
             sum(if(j.array_task_pending > 0, j.array_task_pending, 1)) \
             from slurm_acct_db.sandbox_job_table j \
             join slurm_acct_db.sandbox_assoc_table a on a.id_assoc = j.id_assoc \
             join slurm_acct_db.qos_table q on q.id = j.id_qos \
             where j.time_end > 0 group by 1, 2, 3, 4, 5",
        )?;
        let mut truth = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let [state, partition, account, qos, user, tasks] = words[..] else {
                anyhow::bail!("a row: {line}")
            };
            let state = match state {
                "3" => "completed",
                "4" => "cancelled",
                "5" => "failed",
                "6" => "timeout",
                "7" => "node_fail",
                "1024" => "requeued",
                other => other,
            };
            let names = [("partition", partition), ("account", account), ("qos", qos), ("user", user)];
            truth.add(&names, state, tasks.parse()?);
        }
        Ok(truth)
    }

    fn add(&mut self, names: &[(&str, &str)], state: &str, tasks: u64) {
        for level in levels(names) {
            *self.jobs.entry(level).or_default().entry(state.to_owned()).or_default() += tasks;
        }
    }
}

fn levels(names: &[(&str, &str)]) -> impl Iterator<Item = String> {
    names.iter().map(|(kind, name)| format!("{kind}.{name}")).chain(["total".to_owned()])
}

/// The number of tasks in `7_[1-9:2,20%5]`; 1 for any other job.
fn tasks(id: &str) -> Option<u64> {
    let Some((_, list)) = id.split_once("_[") else { return Some(1) };
    let list = list.strip_suffix(']')?.split('%').next()?;
    list.split(',')
        .map(|range| {
            let (range, step) = range.split_once(':').unwrap_or((range, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last, step): (u64, u64, u64) =
                (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
            u64::try_from((first..=last).step_by(usize::try_from(step).ok()?).count()).ok()
        })
        .sum()
}

/// The count in `cpu=1,gres/gpu=2`.
fn count(tres: &str, name: &str) -> u64 {
    let parts = tres.split(',').filter_map(|part| part.split_once('='));
    parts.filter(|(its, _)| *its == name).find_map(|(_, count)| count.parse().ok()).unwrap_or(0)
}

#[test]
fn lists_of_tasks_are_expanded() {
    for (id, count) in [("7", 1), ("7_3", 1), ("7_[1-20]", 20), ("7_[1,3,5-9%2]", 7), ("7_[0-10:5]", 3)] {
        assert_eq!(tasks(id), Some(count), "{id}");
    }
    assert_eq!(tasks("7_[1-2"), None);
}
