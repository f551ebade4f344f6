//! Rows of slurmdbd that Slurm writes rarely: two resizes in one second, a submission in the future,
//! and a run whose row gets another number.

use anyhow::{Result, ensure};
use sandbox::wait;

use super::{MINUTE, Stage, jobs};

const TOTAL: &str = "total.work.gauge-jobs_total";

impl Stage {
    /// Adds a row like that of the first job, with these values of some columns. Returns its
    /// number.
    fn add_row(&self, job: u32, values: &str) -> Result<String> {
        let table = "slurm_acct_db.sandbox_job_table";
        self.accounting.sql(&format!(
            "use slurm_acct_db; create temporary table row as select * from {table} order by \
             id_job limit 1; update row set job_db_inx = 0, id_job = {job}, {values}; insert into \
             {table} select * from row; select last_insert_id()"
        ))
    }

    fn counts(&self, jobs: u64) -> Result<()> {
        let _late = wait::until("all jobs", MINUTE, || {
            self.sent().is_ok_and(|sent| sent.last(TOTAL) >= Some(jobs))
        });
        self.two_more_rounds()?;
        let sent = self.sent()?;
        let found = (sent.last(TOTAL), sent.sum("total.work.gauge-jobs"));
        ensure!(found == (Some(jobs), jobs), "{found:?} are counted, slurmdbd has {jobs} jobs");
        Ok(())
    }
}

/// slurmdbd's key is the job and its submission. A part's submission is the moment of its resize,
/// so a job that loses two nodes in one second has one row that is a part without a time, and
/// becomes the job: it was never counted.
#[test]
fn a_job_that_is_resized_twice_in_one_second_counts_when_it_ends() -> Result<()> {
    let mut stage = Stage::start()?;
    jobs::run(&stage.accounting, 2);
    stage.counts(2)?;
    // In one statement it is one moment.
    let columns = ["time_submit", "time_eligible", "time_start", "time_end"];
    let times = columns.map(|column| format!("{column} = unix_timestamp()")).join(", ");
    let row = stage.add_row(900_001, &format!("state = 8192, {times}"))?;
    stage.counts(2)?;
    let end = "state = 3, time_end = unix_timestamp() - 1";
    let row = row.trim();
    stage.accounting.sql(&format!(
        "update slurm_acct_db.sandbox_job_table set {end} where job_db_inx = {row}"
    ))?;
    stage.counts(3)?;
    stage.daemon.stop()?;
    Ok(())
}

/// Steps are requested by time too, and slurmdbd returns those of jobs submitted in it: one row of
/// a clock that was ahead stopped every round until that time had come.
#[test]
fn a_job_submitted_in_the_future_holds_up_no_other() -> Result<()> {
    let mut stage = Stage::start_with("efficiency = true\n", "")?;
    jobs::run(&stage.accounting, 2);
    stage.counts(2)?;
    let submitted =
        "time_submit = unix_timestamp() + 3600, time_eligible = unix_timestamp() + 3600";
    let ran = "time_start = unix_timestamp() - 30, time_end = unix_timestamp() - 3";
    stage.add_row(900_002, &format!("state = 3, {submitted}, {ran}"))?;
    jobs::run(&stage.accounting, 3);
    stage.counts(6)?;
    stage.daemon.stop()?;
    Ok(())
}

/// From 24.11 on, the start of the next run of a job that was resized gives the row of its first run
/// another number (`on duplicate key update job_db_inx=VALUES(job_db_inx)`, as_mysql_job.c), while
/// that run's end stays.
#[test]
fn a_requeued_run_counts_once_when_its_row_has_another_number_and_so_does_the_next() -> Result<()> {
    let mut stage = Stage::start()?;
    jobs::run(&stage.accounting, 2);
    stage.counts(2)?;
    let since = "time_eligible = time_submit, time_start = time_submit";
    let times =
        format!("time_submit = unix_timestamp() - 21, {since}, time_end = time_submit + 20");
    let first = stage.add_row(900_003, &format!("state = 1024, {times}"))?;
    stage.counts(3)?;
    let update = |row: &str, what: &str| {
        stage.accounting.sql(&format!(
            "update slurm_acct_db.sandbox_job_table set {what} where job_db_inx = {row}"
        ))
    };
    let second = "7662461360637135872";
    update(first.trim(), &format!("job_db_inx = {second}"))?;
    stage.counts(3)?;
    update(second, "state = 3, time_end = unix_timestamp() - 1")?;
    stage.counts(4)?;
    let ran = stage
        .accounting
        .sql("select sum(time_end - time_start) from slurm_acct_db.sandbox_job_table")?;
    let ran: u64 = ran.trim().parse()?;
    let sent = stage.sent()?;
    let total = |path: &str| sent.last(&format!("total.{path}_total"));
    let seconds = (total("work.gauge-run_seconds"), sent.sum("total.work.gauge-run_seconds"));
    ensure!(seconds == (Some(ran), ran), "{seconds:?} seconds, slurmdbd has {ran}");
    let states = ["completed", "requeued"].map(|state| total(&format!("state.{state}.gauge-jobs")));
    ensure!(states == [Some(3), Some(1)], "completed, requeued: {states:?}");
    stage.daemon.stop()?;
    Ok(())
}
