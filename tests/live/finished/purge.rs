//! slurmdbd's purge, and then a time in which nothing ends: nothing can prove that slurmdbd's empty
//! answers are true, and what ends afterwards must be counted.

use std::time::Duration;

use sandbox::wait;

use super::{MINUTE, Stage, jobs};

const TOTAL: &str = "total.work.gauge-jobs_total";

/// A purge removes every row, also those by which slurmdbd's answers could be recognised as whole.
#[test]
#[ignore = "takes two minutes: make finished-long"]
fn after_a_purge_and_idle_hours_the_next_jobs_are_counted() {
    let mut stage = Stage::start().unwrap();
    let counted = |stage: &Stage, jobs| {
        wait::until("all jobs", MINUTE * 2, || {
            stage.sent().is_ok_and(|sent| sent.last(TOTAL) == Some(jobs))
        })
    };
    for round in 1..=2 {
        jobs::run(&stage.accounting, 5);
        counted(&stage, round * 5).unwrap();
        stage.accounting.sql("delete from slurm_acct_db.sandbox_job_table").unwrap();
        wait::pause(Duration::from_secs(15));
        // Also if nothing is remembered but what is on disk.
        stage.daemon.kill().unwrap();
        stage.daemon.spawn().unwrap();
    }
    jobs::run(&stage.accounting, 3);
    counted(&stage, 13).unwrap();
    let sent = stage.sent().unwrap();
    assert_eq!(sent.sum("total.work.gauge-jobs"), 13);
    for slot in sent.slots_with("reading.gauge-unproved", 1) {
        assert_eq!(
            sent.at("total.work.gauge-jobs", slot),
            None,
            "a figure that is not proved, at {slot}"
        );
    }
    stage.daemon.stop().unwrap();
}
