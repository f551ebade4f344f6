//! A slurmdbd or a database that hangs delays no tick, and no job is lost because of it.

use sandbox::{Accounting, Daemon, Folder, Process, now};

use super::jobs::Cast;
use super::{MINUTE, collector, ended, report, seed};

const TOTAL: &str = "cluster.slurm_jobs_finished.total.work.gauge-jobs_total";

fn wait_for_jobs(daemon: &mut Daemon, jobs: f64) {
    let what = format!("{jobs} finished jobs");
    // slurmdbd has no job at first, so no figure but this one is published.
    let path = if jobs > 0.0 { TOTAL } else { "cluster.slurm_jobs_finished.reading.gauge-unproved" };
    daemon
        .until(&what, MINUTE, |sent| sent.series(path).values().any(|value| *value >= jobs).then_some(()))
        .unwrap();
}

/// A cluster, and a daemon that counts its jobs every so many seconds.
fn start(folder: &Folder, interval: &str) -> (Accounting, Daemon) {
    let accounting = Accounting::start(folder).unwrap();
    let slurm = format!("{}timeout = \"1s\"", accounting.slurm.toml());
    let collector = collector(folder).replace("interval = \"1s\"", &format!("interval = \"{interval}\""));
    let mut daemon = Daemon::start_surveying(folder, &slurm, &collector).unwrap();
    wait_for_jobs(&mut daemon, 0.0);
    (accounting, daemon)
}

/// libslurm waits for ever for a slurmdbd that hangs.
#[test]
fn a_frozen_slurmdbd_delays_no_tick_and_is_said_once() {
    let folder = Folder::new().unwrap();
    let (mut accounting, mut daemon) = start(&folder, "1s");
    let frozen = now();
    accounting.slurmdbd.freeze().unwrap();
    accounting.slurm.submit(&["--wrap", "exit 3"]).unwrap();
    daemon.said(frozen, "finished jobs cannot be read from slurmdbd", MINUTE).unwrap();
    daemon.ticks(12).unwrap();
    let thawed = now();
    accounting.slurmdbd.thaw().unwrap();
    daemon.said(thawed, "finished jobs are read from slurmdbd again after", MINUTE).unwrap();
    wait_for_jobs(&mut daemon, 1.0);
    daemon.check_ticks().unwrap();
    let news = daemon.news(frozen).unwrap();
    assert_eq!(news.len(), 2, "one line when it goes, and one when it is back: {news:#?}");
    let failed = daemon.recorded().unwrap().reply("finished", "readings_failed");
    assert!(failed.values().any(|failures| *failures >= 1.0), "{failed:?}");
    let sent = daemon.stop().unwrap();
    assert_eq!(sent.newest("cluster.slurm_jobs_finished.total.state.failed.gauge-jobs_total"), Some(1.0));
}

/// Five minutes with a round every 20 s. Jobs end before, during and after the hang.
fn five_minutes_of(what: &str, hung: fn(&mut Accounting) -> &mut Process) {
    let folder = Folder::new().unwrap();
    let (mut accounting, mut daemon) = start(&folder, "20s");
    let (mut cast, seed) = (Cast::default(), seed());
    let mut random = fastrand::Rng::with_seed(seed);
    cast.submit(&accounting, &mut random, 10).unwrap();
    let frozen = now();
    hung(&mut accounting).freeze().unwrap();
    cast.submit(&accounting, &mut random, 20).unwrap();
    daemon.said(frozen, "finished jobs cannot be read from slurmdbd", MINUTE).unwrap();
    daemon.ticks(300).unwrap();
    cast.submit(&accounting, &mut random, 10).unwrap();
    cast.end(&accounting).unwrap();
    let thawed = now();
    hung(&mut accounting).thaw().unwrap();
    daemon.said(thawed, "finished jobs are read from slurmdbd again after", MINUTE).unwrap();
    let truth = ended(&accounting).unwrap();
    let jobs = truth.jobs();
    wait_for_jobs(&mut daemon, f64::from(u32::try_from(jobs).unwrap()));
    // Nothing more is counted afterwards.
    daemon.ticks(45).unwrap();
    daemon.check_ticks().unwrap();
    let news = daemon.news(frozen).unwrap();
    assert_eq!(news.len(), 2, "SOAK_SEED={seed}: one line when it goes, and one when it is back: {news:#?}");
    let recorded = daemon.recorded().unwrap();
    let up = recorded.own("slurmctld_up");
    let without = up.values().filter(|up| **up < 0.5).count();
    let failed = recorded.reply("finished", "readings_failed");
    // A round that begins just before the end may still fail, and one just before the beginning may still succeed.
    let is_in = |at: u64| (frozen..thawed).contains(&f64::from(u32::try_from(at).unwrap()));
    let rounds = up.keys().filter(|at| at.is_multiple_of(20) && is_in(**at));
    let (rounds, failures) = (rounds.count(), failed.values().copied().fold(0.0, f64::max));
    let difference = failures - f64::from(u32::try_from(rounds).unwrap());
    assert!(difference.abs() <= 1.0, "SOAK_SEED={seed}: {failures} failures in {rounds} rounds");
    assert!(rounds >= 14, "{rounds}");
    let sent = daemon.stop().unwrap();
    for (state, jobs) in &truth.states() {
        let last = sent.newest(&format!("cluster.slurm_jobs_finished.total.state.{state}.gauge-jobs_total"));
        assert_eq!(last, Some(f64::from(u32::try_from(*jobs).unwrap())), "SOAK_SEED={seed}: {state}");
    }
    report(&format!(
        "{what} frozen for {:.0} s: {} ticks, {without} of them without statistics; {rounds} rounds, {failures} failures; {jobs} jobs",
        thawed - frozen,
        up.len()
    ))
    .unwrap();
    assert_eq!(without, 0);
}

/// `make finished-long` runs this test and the next.
#[test]
#[ignore = "takes seven minutes: make finished-long"]
fn five_minutes_of_a_frozen_slurmdbd_cost_one_failure_a_round_and_no_job() {
    five_minutes_of("slurmdbd", |accounting| &mut accounting.slurmdbd);
}

#[test]
#[ignore = "takes seven minutes: make finished-long"]
fn five_minutes_of_a_frozen_mariadb_cost_one_failure_a_round_and_no_job() {
    five_minutes_of("MariaDB", |accounting| &mut accounting.mariadbd);
}
