//! The expected values for finished jobs, from sacct, from the database, and from what slurmctld
//! has logged.
//!
//! A job has started if it has nodes. The texts of TRES and of array tasks, which the program
//! reads, do not decide that here: in sacct it is the list of nodes, in the database the nodes'
//! indexes, or the list if slurmdbd has only the job's end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sandbox::{Accounting, wait};

use super::jobs::Cast;

/// Values by level and leaf, such as `total` and `state.failed.gauge-jobs`.
pub(super) type Figures = BTreeMap<(String, String), u64>;

/// Rows that have not ended, or for which slurmctld has reported the end but not yet the start.
pub(super) const UNFINISHED: &str =
    "select count(*) from slurm_acct_db.sandbox_job_table where time_end = 0 or `partition` = ''";

/// Rows that have not ended. A job that is cancelled while slurmdbd restarts may be cancelled there
/// and have no end for ever, and `runawayjobs` leaves it alone: it is nobody's finished job.
pub(super) const OPEN: &str =
    "select count(*) from slurm_acct_db.sandbox_job_table where time_end = 0 and state < 3";

/// Rows that have ended. One of a job that a killed slurmctld has forgotten may have an end, and be
/// pending forever. An array that waits for its own limit (`%N`) is eligible at INFINITE,
/// 4294967294 (`as_mysql_job_start`), and `runawayjobs` makes that its end
/// (`as_mysql_fix_runaway_jobs`).
pub(super) const FINAL: &str = "j.time_end > 0 and j.time_end < 4294967294 and j.state > 2";

/// What a person needs to see if this takes too long.
pub(super) const ROWS: &str = "select job_db_inx, id_job, state, `partition`, array_task_str, \
     time_submit, time_eligible, time_start, time_end from slurm_acct_db.sandbox_job_table order \
     by 1";

/// sacct's columns for a job, in this order.
const COLUMNS: &str = "dbindex,jobid,jobidraw,state,partition,\
                       account,qos,user,submit,eligible,\
                       start,elapsedraw,timelimitraw,nodelist,cputimeraw,alloctres";

/// A job, or the tasks of an array that never started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) index: u64,
    /// The job or the array, and the job's own number.
    pub(super) ids: (u32, u32),
    pub(super) state: String,
    pub(super) tasks: u64,
    /// Partition, account, QOS and user.
    pub(super) names: [String; 4],
    pub(super) started: Option<Started>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Started {
    pub(super) wait: u64,
    pub(super) run: u64,
    /// In seconds.
    limit: Option<u64>,
    /// Multiplied by the run time.
    cpu: u64,
    gpu: u64,
    node: u64,
    billing: u64,
    /// For the message if something differs: Slurm may store a list of nodes and a number that do
    /// not fit.
    node_of_tres: u64,
}

/// A count at the beginning of a text, 0 if there is none.
fn number(text: &str) -> u64 {
    text.split(|c: char| !c.is_ascii_digit())
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

impl Row {
    /// From a line of sacct, which writes lists of array tasks in job ids.
    fn of_sacct(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split('|').collect();
        let [
            index,
            id,
            raw,
            state,
            ref names @ ..,
            submit,
            eligible,
            start,
            run,
            limit,
            nodes,
            cpu,
            tres,
        ] = words[..]
        else {
            anyhow::bail!("a line of sacct: {line}")
        };
        let state = state.split(' ').next().unwrap_or_default().to_lowercase();
        let since = eligible.parse().or_else(|_| submit.parse::<u64>());
        // sacct's word for no QOS, in a row of which slurmdbd has only the end.
        let names: Vec<&str> =
            names.iter().map(|name| if *name == "Unknown" { "" } else { name }).collect();
        let started = Started {
            wait: number(start).saturating_sub(since.unwrap_or_default()),
            run: number(run),
            limit: Some(number(limit) * 60).filter(|seconds| *seconds > 0),
            // Of a row without allocated TRES, of which slurmdbd has only the end, sacct shows the
            // CPUs that were requested.
            cpu: if tres.is_empty() { 0 } else { number(cpu) },
            gpu: number(run) * count(tres, "gres/gpu"),
            node: number(run) * count_nodes(nodes),
            node_of_tres: number(run) * count(tres, "node"),
            billing: number(run) * count(tres, "billing"),
        };
        let has_started = number(start) > 0 && (count_nodes(nodes) > 0 || state == "completed");
        let tasks = tasks(id).with_context(|| format!("tasks in {line}"))?;
        Self::with_fields(
            number(index),
            (number(id), number(raw)),
            state,
            tasks,
            &names,
            has_started.then_some(started),
        )
    }

    /// From a row of the database, where tasks of an array that have not started are a number.
    fn of_sql(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split('\t').collect();
        let [
            index,
            array,
            id,
            state,
            ref names @ ..,
            since,
            start,
            run,
            limit,
            nodes,
            tres,
            pending,
        ] = words[..]
        else {
            anyhow::bail!("a row: {line}")
        };
        let state = match state {
            "3" => "completed",
            "4" => "cancelled",
            "5" => "failed",
            "6" => "timeout",
            "7" => "node_fail",
            "8" => "preempted",
            "10" => "deadline",
            "1024" => "requeued",
            "8192" => "resizing",
            other => other,
        };
        let is_list = nodes.starts_with(|first: char| first.is_ascii_digit());
        let nodes = if is_list {
            tasks(&format!("_[{nodes}]")).context("nodes")?
        } else {
            count_nodes(nodes)
        };
        let started = Started {
            wait: number(start).saturating_sub(number(since)),
            run: number(run),
            limit: Some(number(limit))
                .filter(|minutes| (1..1 << 31).contains(minutes))
                .map(|minutes| minutes * 60),
            cpu: number(run) * count(tres, "1"),
            gpu: number(run) * count(tres, "1001"),
            node: number(run) * nodes,
            node_of_tres: number(run) * count(tres, "4"),
            billing: number(run) * count(tres, "5"),
        };
        let has_started = number(start) > 0 && (nodes > 0 || state == "completed");
        let array = if number(array) > 0 { array } else { id };
        let (ids, tasks) = ((number(array), number(id)), number(pending).max(1));
        Self::with_fields(
            number(index),
            ids,
            state.to_owned(),
            tasks,
            names,
            has_started.then_some(started),
        )
    }

    fn with_fields(
        index: u64,
        (array, job): (u64, u64),
        state: String,
        tasks: u64,
        names: &[&str],
        started: Option<Started>,
    ) -> Result<Self> {
        let [partition, account, qos, user] = names[..] else {
            anyhow::bail!("four names: {names:?}")
        };
        let first = partition.split(',').next().unwrap_or_default();
        Ok(Self {
            index,
            ids: (array.try_into()?, job.try_into()?),
            state,
            tasks: if started.is_some() { 1 } else { tasks },
            names: [first, account, qos, user].map(str::to_owned),
            started,
        })
    }

    /// The row with the nodes of its TRES. With a job's end slurmctld sends the TRES that it has
    /// then, but not the nodes again (`as_mysql_job_complete`): after a kill in which it forgot to
    /// report that the job was resized, the list is of more nodes.
    pub(super) fn by_tres(&self) -> Self {
        let mut row = self.clone();
        if let Some(started) = &mut row.started {
            started.node = started.node_of_tres;
        }
        row
    }

    /// Whether another run of the job may follow in the row.
    pub(super) fn may_run_again(&self) -> bool {
        ["requeued", "node_fail", "preempted"].contains(&&*self.state)
    }

    /// Whether it is a job, and not the part of one before it was resized.
    pub(super) fn is_job(&self) -> bool {
        self.state != "resizing"
    }

    fn levels(&self) -> impl Iterator<Item = String> {
        let kinds = ["partition", "account", "qos", "user"].into_iter().zip(&self.names);
        let level = |(kind, name): (_, &String)| {
            if name.is_empty() { format!("no_{kind}") } else { format!("{kind}.{name}") }
        };
        kinds.map(level).chain(["total".to_owned()])
    }

    pub(super) fn figures(&self) -> Figures {
        let mut leaves = Vec::new();
        if self.is_job() {
            leaves.push((format!("state.{}.gauge-jobs", self.state), self.tasks));
            leaves.push(("work.gauge-jobs".to_owned(), self.tasks));
        }
        let mut work = |leaf: &str, value| leaves.push((format!("work.gauge-{leaf}"), value));
        match &self.started {
            None if self.state == "cancelled" => work("cancelled_before_start", self.tasks),
            None => {}
            Some(started) => {
                work("started", u64::from(self.is_job()));
                work("wait_seconds", started.wait);
                work("run_seconds", started.run);
                work("cpu_seconds", started.cpu);
                work("gpu_seconds", started.gpu);
                work("node_seconds", started.node);
                work("billing_seconds", started.billing);
                if let Some(limit) = started.limit {
                    work("limit_used_seconds", started.run);
                    // The last part of a job that was resized is the job.
                    if self.is_job() {
                        work("limited", 1);
                        work("limit_seconds", limit);
                        work("limit_used_little", u64::from(started.run * 10 < limit));
                    }
                }
            }
        }
        let of = |level: String| {
            leaves.iter().map(move |(leaf, value)| ((level.clone(), leaf.clone()), *value))
        };
        self.levels().flat_map(of).collect()
    }
}

#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) rows: Vec<Row>,
}

impl Truth {
    /// From sacct, which must agree with the database, when slurmdbd has written what it still
    /// receives: a row that comes between the two queries is in one of them.
    pub(super) fn from_slurmdbd(accounting: &Accounting) -> Result<Self> {
        let mut read = Self::of_both(accounting);
        for _ in 0..30 {
            if read.is_ok() {
                break;
            }
            wait::pause(Duration::from_secs(2));
            read = Self::of_both(accounting);
        }
        read
    }

    fn of_both(accounting: &Accounting) -> Result<Self> {
        let states = "--state=CD,CA,F,TO,NF,PR,BF,DL,OOM,RQ,RS -S now-1day -E now+1day";
        let text = accounting
            .slurm
            .call(&format!("env SLURM_TIME_FORMAT=%s sacct -aXDnP {states} -o {COLUMNS}"))?;
        let mut rows: Vec<Row> = text.lines().map(Row::of_sacct).collect::<Result<_>>()?;
        rows.sort_by_key(|row| row.index);
        let mut in_sql = sql_rows(accounting, "sandbox_job_table", FINAL)?;
        in_sql.sort_by_key(|row| row.index);
        for (row, other) in rows.iter().zip(&in_sql) {
            ensure!(row == other, "sacct has {row:#?}, the database {other:#?}");
        }
        ensure!(
            rows.len() == in_sql.len(),
            "sacct has {} rows, the database {}",
            rows.len(),
            in_sql.len()
        );
        Ok(Self { rows })
    }

    pub(super) fn sum(&self, level: &str, leaf: &str) -> u64 {
        let key = (level.to_owned(), leaf.to_owned());
        self.rows.iter().filter_map(|row| row.figures().get(&key).copied()).sum()
    }

    pub(super) fn jobs(&self) -> u64 {
        self.sum("total", "work.gauge-jobs")
    }

    pub(super) fn states(&self) -> BTreeMap<String, u64> {
        let mut states = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.is_job()) {
            *states.entry(row.state.clone()).or_default() += row.tasks;
        }
        states
    }

    /// Rows whose list of nodes and number of nodes differ, which Slurm stores in columns of their
    /// own.
    pub(super) fn unlike(&self) -> Vec<&Row> {
        let is_unlike =
            |row: &&Row| row.started.as_ref().is_some_and(|job| job.node != job.node_of_tres);
        self.rows.iter().filter(is_unlike).collect()
    }

    /// Only the jobs that were not there `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let old: BTreeSet<u64> = before.rows.iter().map(|row| row.index).collect();
        Self { rows: self.rows.iter().filter(|row| !old.contains(&row.index)).cloned().collect() }
    }

    /// Percentiles of the waits and run times by path: the smallest value that this share of the
    /// values does not exceed.
    pub(super) fn percentiles(&self) -> Figures {
        let mut times: BTreeMap<String, [Vec<u64>; 2]> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.is_job()) {
            let Some(started) = &row.started else { continue };
            for level in row.levels() {
                let [waits, runs] = times.entry(level).or_default();
                waits.push(started.wait);
                runs.push(started.run);
            }
        }
        let mut figures = Figures::new();
        for (level, values) in times {
            for (kind, values) in ["wait", "run"].into_iter().zip(values) {
                for (leaf, percent) in [("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)] {
                    let not_above =
                        |most: &u64| values.iter().filter(|value| *value <= most).count();
                    let least = values
                        .iter()
                        .filter(|most| not_above(most) * 100 >= values.len() * percent)
                        .min();
                    let path = (level.clone(), format!("work.gauge-{kind}_{leaf}"));
                    figures.extend(least.map(|least| (path, *least)));
                }
            }
        }
        figures
    }

    /// Compares it with what was submitted, and with how often slurmctld has logged that a job
    /// starts.
    pub(super) fn check(&self, accounting: &Accounting, cast: &Cast) -> Result<()> {
        let (mut tasks, mut starts) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, i64>::new());
        let mut failed = BTreeSet::new();
        for row in self.rows.iter().filter(|row| row.is_job()) {
            if row.state != "requeued" {
                *tasks.entry(row.ids.0).or_default() += row.tasks;
            }
            if row.state == "node_fail" {
                failed.insert(row.ids.0);
            }
            *starts.entry(row.ids.1).or_default() += i64::from(row.started.is_some());
        }
        for (id, submitted) in &cast.submitted {
            let found = tasks.get(id).copied().unwrap_or(0);
            // A run that ended with its node may have been followed by another.
            let is_right = found == *submitted || (failed.contains(id) && found > *submitted);
            ensure!(
                is_right || cast.disturbed.contains(id),
                "job {id}: {submitted} submitted, sacct has {found}: {:#?}; slurmctld's log: {:#?}",
                self.rows.iter().filter(|row| row.ids.0 == *id).collect::<Vec<_>>(),
                lines_of(accounting, *id)
            );
        }
        for id in accounting.slurm.slurmctld.lines().iter().filter_map(|line| start(line)) {
            *starts.entry(id).or_default() -= 1;
        }
        starts.retain(|id, surplus| *surplus != 0 && !cast.disturbed.contains(id));
        ensure!(
            starts.is_empty(),
            "by job, starts in sacct minus those that slurmctld has logged: {starts:?}; \
                slurmctld's log: {:#?}",
            starts.keys().map(|id| lines_of(accounting, *id)).collect::<Vec<_>>()
        );
        Ok(())
    }
}

/// These rows of the job table, or of one with the same columns.
pub(super) fn sql_rows(accounting: &Accounting, table: &str, condition: &str) -> Result<Vec<Row>> {
    let text = accounting.sql(&format!(
        "select j.job_db_inx, if(j.het_job_id > 0, j.het_job_id, j.id_array_job), j.id_job, \
         j.state, j.`partition`, ifnull(j.account, a.acct), ifnull(q.name, ''), a.user, \
         if(j.time_eligible > 0 and j.time_eligible < 4294967294, j.time_eligible, j.time_submit), \
         if(j.time_start < 4294967294, j.time_start, 0), cast(j.time_end as signed) - \
         cast(j.time_start as signed) - cast(j.time_suspended as signed), j.timelimit, \
         if(ifnull(j.node_inx, '') != '', j.node_inx, ifnull(j.nodelist, '')), j.tres_alloc, \
         j.array_task_pending from slurm_acct_db.{table} j join slurm_acct_db.sandbox_assoc_table \
         a on a.id_assoc = j.id_assoc left join slurm_acct_db.qos_table q on q.id = j.id_qos where \
         {condition}"
    ))?;
    text.lines().map(Row::of_sql).collect()
}

/// What slurmctld has logged of a job or an array.
fn lines_of(accounting: &Accounting, id: u32) -> Vec<String> {
    let (job, task) = (format!("JobId={id} "), format!("JobId={id}_"));
    let is_its = |line: &String| line.contains(&task) || format!("{line} ").contains(&job);
    accounting.slurm.slurmctld.lines().into_iter().filter(is_its).collect()
}

/// The job of a line of slurmctld's log that says that a job starts.
fn start(line: &str) -> Option<u32> {
    let rest =
        ["Allocate JobId=", "Started JobId="].iter().find_map(|words| line.split_once(words))?.1;
    let id = rest.split(' ').next()?;
    let id = id.split_once('(').map_or(id, |(_, raw)| raw.trim_end_matches(')'));
    id.parse().ok()
}

/// The number of tasks in `7_[1-9:2,20%5]`; 1 for any other job.
pub(crate) fn tasks(id: &str) -> Option<u64> {
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

/// The number of nodes in `c1` or `c[1-2]`.
fn count_nodes(list: &str) -> u64 {
    match list {
        "" | "None assigned" | "(unknown)" => 0,
        list => tasks(&list.replacen('[', "_[", 1)).unwrap_or(0),
    }
}

/// The count in `cpu=1,gres/gpu=2`.
pub(super) fn count(tres: &str, name: &str) -> u64 {
    let parts = tres.split(',').filter_map(|part| part.split_once('='));
    parts.filter(|(its, _)| *its == name).find_map(|(_, count)| count.parse().ok()).unwrap_or(0)
}

#[test]
fn lists_of_tasks_and_nodes_are_expanded() {
    for (id, count) in
        [("7", 1), ("7_3", 1), ("7_[1-20]", 20), ("7_[1,3,5-9%2]", 7), ("7_[0-10:5]", 3)]
    {
        assert_eq!(tasks(id), Some(count), "{id}");
    }
    assert_eq!(tasks("7_[1-2"), None);
    for (list, count) in [("c1", 1), ("c[1-2]", 2), ("None assigned", 0), ("(unknown)", 0)] {
        assert_eq!(count_nodes(list), count, "{list}");
    }
}

#[test]
fn starts_are_found_in_slurmctlds_log() {
    for (line, id) in [
        ("slurmctld: sched: Allocate JobId=2 NodeList=c1 #CPUs=1 Partition=debug", Some(2)),
        ("slurmctld: sched/backfill: _start_job: Started JobId=5_1(6) in debug on c1", Some(6)),
        ("slurmctld: _job_complete: JobId=2 done", None),
    ] {
        assert_eq!(start(line), id, "{line}");
    }
}
