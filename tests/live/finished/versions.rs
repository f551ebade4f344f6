//! Every version of a row of slurmdbd's job table, recorded by triggers in the database: slurmctld
//! may change a row after it has been counted, and then the first version stays in the figures. The
//! first version may be the one that was inserted: slurmctld may report an ended job without its
//! QOS, and again with it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use sandbox::Accounting;

use super::truth::{Figures, Row, Truth, sql_rows};

/// Rows of the record that say how a job ended. slurmctld reports the start after the end if
/// slurmdbd was away, and the rest of an array within some seconds.
const COMPLETE: &str = "j.time_end > 0 and j.time_end < 4294967294 and j.state > 2 and \
     j.`partition` != '' and (ifnull(j.array_task_str, '') = '' or not exists (select 1 from \
     slurm_acct_db.versions k where k.job_db_inx = j.job_db_inx and k.seq > j.seq and k.made < \
     j.made + interval 25 second)) order by j.seq";

pub(super) fn record(accounting: &Accounting) -> Result<()> {
    let copy = "for each row insert into versions \
         select null, now(6), t.* from sandbox_job_table t where t.job_db_inx = new.job_db_inx";
    let statements = format!(
        "use slurm_acct_db; create table versions (seq bigint auto_increment primary key, made \
         datetime(6)) as select * from sandbox_job_table where 0; create trigger inserted after \
         insert on sandbox_job_table {copy}; create trigger updated after update on \
         sandbox_job_table {copy}"
    );
    accounting.sql(&statements).map(drop)
}

/// The rows that had an end when it was changed, and when that was, Unix seconds.
pub(super) fn moved_ends(accounting: &Accounting) -> Result<Vec<(u64, u64)>> {
    let text = accounting.sql(
        "select job_db_inx, floor(unix_timestamp(made)) from (select job_db_inx, made, time_end, \
         lag(time_end) over (partition by job_db_inx order by seq) old_end from \
         slurm_acct_db.versions) v where old_end not in (0, time_end)",
    )?;
    let words = |line: &str| {
        line.split_once('\t').and_then(|(row, at)| Some((row.parse().ok()?, at.parse().ok()?)))
    };
    text.lines().map(|line| words(line).with_context(|| line.to_owned())).collect()
}

/// All final versions of the rows that have several, for a person who looks for what was counted
/// twice.
pub(super) fn of_rows_that_changed(accounting: &Accounting) -> Result<String> {
    accounting.sql(
        "select v.job_db_inx, made, id_job, id_array_job, state, array_task_str, `partition`, \
         id_assoc, id_qos, timelimit, time_submit, time_start, time_end, nodelist from \
         slurm_acct_db.versions v join (select job_db_inx from slurm_acct_db.versions where state \
         > 2 group by 1 having count(distinct state, time_start, time_end, ifnull(array_task_str, ''), \
         timelimit) > 1) \
         several using (job_db_inx) order by 1, seq",
    )
}

/// The states of a row after which another run of its job may follow in it: requeued, node_fail,
/// preempted.
const MAY_RUN_AGAIN: &str = "(1024, 7, 8)";

/// The rows that ended and ran again, with the most runs that each can have: a slurmctld that was
/// killed had forgotten the end, also of a job that was cancelled while it was pending.
/// docs/operations.md: a run that follows in the same row is a job of its own, and so is the rest of
/// a run whose requeue was forgotten, which has the same start. A run of 0 s whose start slurmdbd
/// learns after its end is one run.
fn rows_that_ran_again(accounting: &Accounting) -> Result<BTreeMap<u64, usize>> {
    let text = accounting.sql(&format!(
        "select v.job_db_inx, count(distinct v.time_start) + count(distinct \
         if(ifnull(k.node_inx, '') = '' or k.time_start < v.time_start or k.state in \
         {MAY_RUN_AGAIN}, k.time_start, null)) from slurm_acct_db.versions k join \
         slurm_acct_db.versions v on v.job_db_inx = k.job_db_inx and v.seq > k.seq where k.state > \
         2 and k.time_end > 0 and v.state > 2 and ifnull(v.node_inx, '') != '' and (v.time_start \
         >= k.time_end and if(ifnull(k.node_inx, '') = '', v.time_end > k.time_end, v.time_start > \
         k.time_start) and v.time_end >= v.time_start or k.state in {MAY_RUN_AGAIN} and v.state != \
         k.state and v.time_end > k.time_end) group by 1"
    ))?;
    let words = |line: &str| {
        line.split_once('\t').and_then(|(row, runs)| Some((row.parse().ok()?, runs.parse().ok()?)))
    };
    text.lines().map(|line| words(line).with_context(|| line.to_owned())).collect()
}

/// What may have been counted. Rows that never changed after their end, which are nearly all, leave
/// no choice.
pub(super) struct Expected {
    /// The least and the most that each figure may be.
    pub(super) figures: BTreeMap<(String, String), (u64, u64)>,
    /// How many rows were changed after their end.
    pub(super) changed: usize,
    /// How many changes of them were recorded at most.
    pub(super) changes: u64,
}

fn figures(versions: &[Row]) -> Vec<Figures> {
    versions.iter().flat_map(|row| [row.figures(), row.by_tres().figures()]).collect()
}

impl Expected {
    /// From the last versions, and those that the trigger has recorded.
    pub(super) fn from_versions(accounting: &Accounting, truth: &Truth) -> Result<Self> {
        let (mut versions, mut updates) =
            (BTreeMap::<u64, Vec<Row>>::new(), BTreeMap::<u64, u64>::new());
        for row in sql_rows(accounting, "versions", COMPLETE)? {
            *updates.entry(row.index).or_default() += 1;
            let its = versions.entry(row.index).or_default();
            if !its.contains(&row) {
                its.push(row);
            }
        }
        let mut expected = Self { figures: BTreeMap::new(), changed: 0, changes: 0 };
        let ran_again = rows_that_ran_again(accounting)?;
        for row in &truth.rows {
            let mut all = versions.remove(&row.index).unwrap_or_default();
            if !all.contains(row) {
                all.push(row.clone());
            }
            if all.len() > 1 {
                expected.changed += 1;
                expected.changes += updates.get(&row.index).copied().unwrap_or(0);
            }
            let mut runs = vec![all];
            if let Some(&most) = ran_again.get(&row.index) {
                let all = runs.concat();
                // Runs of a row differ in their start, and so in how long they waited, or another may
                // follow the first.
                let wait = |row: &Row| row.started.as_ref().map(|job| job.wait);
                let is_one_run = |a: &Row, b: &Row| {
                    wait(a) == wait(b) && (a.state == b.state || !a.may_run_again())
                };
                runs = all.chunk_by(is_one_run).map(<[Row]>::to_vec).collect();
                // One whose start slurmdbd learned late counts with the names of the next.
                for _ in runs.len()..most {
                    expected.add(&[figures(&all), vec![Figures::new()]].concat());
                }
            }
            let last = runs.len().saturating_sub(1);
            for (nth, run) in runs.iter().enumerate() {
                // Perhaps no round came between the end of a run and the start of the next one.
                let none = (nth < last).then(Figures::new);
                expected.add(&[figures(run), none.into_iter().collect()].concat());
            }
        }
        Ok(expected)
    }

    fn add(&mut self, versions: &[Figures]) {
        let mut paths: Vec<_> = versions.iter().flat_map(Figures::keys).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            let values = || versions.iter().map(|figures| figures.get(path).copied().unwrap_or(0));
            let (least, most) = self.figures.entry(path.clone()).or_default();
            *least += values().min().unwrap_or(0);
            *most += values().max().unwrap_or(0);
        }
    }
}
