//! A slurmdbd or a database that hangs delays no tick, and no job is lost because of it.

use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::{Accounting, Daemon, Folder, Process, now, wait};

use super::{MINUTE, collector};
use crate::side_by_side;

const TOTAL: &str = "cluster.slurm_jobs_finished.total.work.gauge-jobs_total";
const FAILED: &str = "cluster.slurm_jobs_finished.total.state.failed.gauge-jobs_total";

fn wait_for_jobs(daemon: &mut Daemon, jobs: f64) -> Result<()> {
    let what = format!("{jobs} finished jobs");
    // slurmdbd has no job at first, so no figure but this one is published.
    let path =
        if jobs > 0.0 { TOTAL } else { "cluster.slurm_jobs_finished.reading.gauge-unproved" };
    daemon.until(&what, MINUTE, |sent| {
        sent.series(path).values().any(|value| *value >= jobs).then_some(())
    })
}

/// libslurm waits for ever for a slurmdbd that hangs.
#[test]
fn a_frozen_slurmdbd_delays_no_tick_and_is_said_once() {
    side_by_side(&[
        ("slurmdbd is frozen", || hangs(10, 30, |accounting| &mut accounting.slurmdbd)),
        ("MariaDB is frozen", || hangs(10, 30, |accounting| &mut accounting.mariadbd)),
    ]);
}

#[test]
#[ignore = "takes seven minutes: make finished-long"]
fn five_minutes_of_a_frozen_slurmdbd_or_mariadb_cost_one_failure_a_round_and_no_job() {
    side_by_side(&[
        ("slurmdbd is frozen", || hangs(20, 300, |accounting| &mut accounting.slurmdbd)),
        ("MariaDB is frozen", || hangs(20, 300, |accounting| &mut accounting.mariadbd)),
    ]);
}

/// A server hangs for at least so many ticks, with a round every so many seconds. Jobs end before,
/// during and after that.
fn hangs(round: u64, ticks: usize, server: fn(&mut Accounting) -> &mut Process) -> Result<String> {
    let folder = Folder::new()?;
    let mut accounting = Accounting::start(&folder)?;
    let slurm = format!("{}timeout = \"2s\"", accounting.slurm.toml());
    let collector =
        collector(&folder).replace("interval = \"1s\"", &format!("interval = \"{round}s\""));
    let mut daemon = Daemon::start_surveying(&folder, &slurm, &collector)?;
    wait_for_jobs(&mut daemon, 0.0)?;
    let submit = |accounting: &Accounting| accounting.slurm.submit(&["--wrap", "exit 3"]);
    // Half way between two rounds none is under way.
    let between_rounds = || {
        let round = round as f64;
        wait::pause(Duration::from_secs_f64((1.5 * round - now() % round) % round));
    };
    submit(&accounting)?;
    between_rounds();
    let frozen = now();
    server(&mut accounting).freeze()?;
    submit(&accounting)?;
    daemon.said(frozen, "finished jobs cannot be read from slurmdbd", MINUTE)?;
    daemon.ticks(ticks)?;
    submit(&accounting)?;
    between_rounds();
    let thawed = now();
    server(&mut accounting).thaw()?;
    daemon.said(thawed, "finished jobs are read from slurmdbd again after", MINUTE)?;
    wait_for_jobs(&mut daemon, 3.0)?;
    // Nothing more is counted afterwards.
    daemon.ticks(2 * usize::try_from(round)?)?;
    daemon.check_ticks()?;
    let news = daemon.news(frozen)?;
    ensure!(news.len() == 2, "one line when it goes, and one when it is back: {news:#?}");
    let recorded = daemon.recorded()?;
    let up = recorded.own("slurmctld_up");
    ensure!(up.values().all(|up| *up > 0.5), "ticks without statistics: {up:?}");
    // On a busy machine one may be late.
    let is_in = |at: u64| (frozen..thawed).contains(&(at as f64));
    let rounds = up.keys().filter(|at| at.is_multiple_of(round) && is_in(**at)).count();
    let failures =
        recorded.reply("finished", "readings_failed").values().copied().fold(0.0, f64::max);
    let is_each =
        (failures - rounds as f64).abs() <= 1.0 && rounds as u64 >= ticks as u64 / round - 1;
    ensure!(is_each, "{failures} failures in {rounds} rounds");
    let sent = daemon.stop()?;
    let counted = [TOTAL, FAILED].map(|path| sent.newest(path));
    ensure!(counted == [Some(3.0); 2], "three jobs that failed: {counted:?}");
    Ok(format!("{:.0} s, {rounds} rounds, {failures} failures", thawed - frozen))
}
