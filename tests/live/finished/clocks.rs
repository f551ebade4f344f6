//! slurmctld's clock, or that of the whole host, is set right after jobs have ended.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sandbox::{Accounting, Ahead, Folder, Manner, Process, Sink, now, slurm_graphite, wait};

use super::unproved::keep_counts;
use super::{MINUTE, Sent, jobs, toml};
use crate::unchanged::clock;

const THREE_DAYS: u32 = 3 * 24 * 3600;

/// Nothing counted for as long as the clock had been ahead.
#[test]
fn a_clock_that_was_three_days_ahead_while_a_job_ended_costs_ten_minutes_at_most() -> Result<()> {
    let folder = Folder::new()?;
    let mut accounting = Accounting::start(&folder)?;
    let sink = Sink::start(Manner::Record)?;
    let toml = toml(&folder, &accounting.slurm, &sink);
    let run_job = |accounting: &Accounting, all: usize| -> Result<()> {
        accounting.slurm.submit(&["--wrap", "true"])?;
        jobs::until_rows(accounting, "time_end > 0 and `partition` <> ''", all);
        Ok(())
    };
    let counted = || Sent::parse(&sink.bytes()).map_or(0, |sent| sent.sum("total.work.gauge-jobs"));
    let until = |daemon: &Process, jobs: u64| {
        wait::until("so many jobs", MINUTE, || counted() == jobs)
            .with_context(|| format!("{jobs} jobs, not {}: {:#?}", counted(), daemon.lines()))
    };

    // Only slurmctld's clock is ahead: its job counts when it is time.
    let file = folder.path().join("slurmctlds-clock");
    accounting.slurm.slurmctld.stop()?;
    clock::set(&file, &format!("+{THREE_DAYS}"));
    clock::put_over(&mut accounting.slurm.slurmctld, &file)?;
    accounting.slurm.slurmctld.start()?;
    let mut daemon = sandbox::daemon::spawn_daemon(&folder, "daemon", &toml)?;
    run_job(&accounting, 1)?;
    accounting.slurm.slurmctld.stop()?;
    clock::set(&file, "+0");
    accounting.slurm.slurmctld.start()?;
    run_job(&accounting, 2)?;
    until(&daemon, 1)?;
    daemon.stop()?;

    // What a daemon on a host whose clock was ahead leaves when such a job has counted.
    fs::remove_dir_all(folder.path().join("queue"))?;
    let ahead = now() + f64::from(THREE_DAYS);
    let floor = ahead - 25.0 * 3600.0;
    let members = format!(
        "\"first\":{:.0},\"floor\":{floor:.0},\"latest\":{ahead:.0},\"moment\":{ahead:.0},\
            \"slot\":{ahead:.0}",
        ahead - 60.0
    );
    keep_counts(&folder, &members)?;
    let own = Ahead::new(&folder)?;
    let file = folder.write("ahead.toml", &toml)?;
    let args = ["run", "--config", &file, "--interval", "1s", "--log-format", "json"];
    let mut daemon = own.over(Process::new(&folder, "ahead", slurm_graphite()?).args(args));
    daemon.spawn()?;
    daemon.line("the clock is far behind the jobs that were counted", MINUTE)?;
    run_job(&accounting, 3)?;
    wait::pause(Duration::from_secs(5));
    ensure!(counted() == 1, "{} jobs count: it may be this clock that is wrong", counted());
    // Ten minutes later.
    own.expire(601)?;
    daemon.line("the clock was ahead when jobs were counted", MINUTE)?;
    until(&daemon, 2)?;
    run_job(&accounting, 4)?;
    until(&daemon, 3)?;
    daemon.stop()?;
    Ok(())
}
