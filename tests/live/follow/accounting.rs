//! Finished jobs at a hand-over: every host's daemon reads all of them from slurmdbd, and each job
//! is in the rounds of exactly one daemon.
//!
//! One slurmctld is enough: in the daemon's slurm.conf there is a primary before it, whose pings
//! are answered by a forwarder, or by nobody.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::Result;
use sandbox::pair::has_own_names;
use sandbox::{Accounting, Folder, FollowingDaemon, Forwarder, now, wait};

use super::SOON;

/// The address of the primary, whose pings a forwarder answers as long as it exists.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// The newest sum since the first start, and the sum of what all rounds have added.
fn jobs(daemon: &mut FollowingDaemon) -> (f64, f64) {
    let work = "cluster.slurm_jobs_finished.total.work.gauge-jobs";
    let total = daemon.recorded().series(&format!("{work}_total"));
    (
        total.last_key_value().map_or(0.0, |(_, jobs)| *jobs),
        daemon.recorded().series(work).values().sum(),
    )
}

/// Waits until slurmdbd knows that these jobs have ended.
fn run_jobs_to_end(accounting: &Accounting, jobs: usize, all: usize) -> Result<()> {
    for _ in 0..jobs {
        accounting.slurm.submit(&["--output=/dev/null", "--wrap", "true"])?;
    }
    wait::until("their end in slurmdbd", SOON, || {
        let states =
            accounting.slurm.run("sacct", &["-n", "-X", "-a", "-o", "State", "-S", "now-1hour"]);
        states.is_ok_and(|states| states.matches("COMPLETED").count() == all)
    })?;
    Ok(())
}

/// Waits for two complete rounds of reading slurmdbd.
fn two_rounds(daemon: &mut FollowingDaemon) {
    let rounds = |daemon: &mut FollowingDaemon| {
        daemon
            .recorded()
            .reply("finished", "readings_ok")
            .last_key_value()
            .map_or(0.0, |(_, count)| *count)
    };
    let before = rounds(daemon);
    wait::until("two rounds", SOON, || rounds(daemon) >= before + 2.0).unwrap();
}

#[test]
fn what_ended_while_others_were_active_is_in_the_totals_and_in_no_round() {
    if !has_own_names(&Folder::new().unwrap()).unwrap() {
        println!("SKIPPED: a host name of its own needs root, or user namespaces");
        return;
    }
    assert!((0..5).any(|_| others_were_active()), "a ping was late in each try");
}

/// Returns false if a ping took more than the 0.3 s for which a tick waits for it: this host's
/// slurmctld, which is no real standby, was then taken for the active one too early.
fn others_were_active() -> bool {
    let folder = Folder::new().unwrap();
    let accounting = Accounting::start(&folder).unwrap();
    let path = folder.path();
    fs::create_dir(path.join("run")).unwrap();
    fs::write(path.join("hosts"), format!("127.0.0.1 localhost\n{ADDRESS} ghost\n")).unwrap();
    let own = "SlurmctldHost=localhost(127.0.0.1)\n";
    accounting
        .slurm
        .changed("two.conf", own, &format!("SlurmctldHost=ghost({ADDRESS})\n{own}"))
        .unwrap();
    let collectors = "[collectors.finished]\nenabled = true\ninterval = \"1s\"\n";
    let mut daemon = FollowingDaemon::on(&folder, "localhost", "two.conf", collectors).unwrap();

    let port = accounting.slurm.slurmctld_port;
    let primary = Forwarder::at(ADDRESS, port, port).unwrap();
    daemon.process.spawn().unwrap();
    let standby = daemon.is(false, 2, 0.0, SOON).unwrap();
    two_rounds(&mut daemon);
    run_jobs_to_end(&accounting, 3, 3).unwrap();
    two_rounds(&mut daemon);
    // The first tick comes before the first ping.
    if daemon.slots().range(standby..).next().is_some() {
        return false;
    }
    assert_eq!(daemon.recorded().below("cluster.slurm_jobs_finished"), [""; 0]);

    let over = now();
    drop(primary);
    daemon.is(true, 2, over, SOON).unwrap();
    let all = |daemon: &mut FollowingDaemon, total: f64| {
        wait::until("the jobs", SOON, || jobs(daemon).0 == total).unwrap();
        two_rounds(daemon);
        jobs(daemon)
    };
    assert_eq!(all(&mut daemon, 3.0), (3.0, 0.0), "they were another's");
    run_jobs_to_end(&accounting, 2, 5).unwrap();
    assert_eq!(all(&mut daemon, 5.0), (5.0, 2.0));

    // Another daemon may have published them again: it cannot know.
    daemon.process.stop().unwrap();
    run_jobs_to_end(&accounting, 4, 9).unwrap();
    daemon.process.spawn().unwrap();
    assert_eq!(all(&mut daemon, 9.0), (9.0, 2.0));
    run_jobs_to_end(&accounting, 1, 10).unwrap();
    assert_eq!(all(&mut daemon, 10.0), (10.0, 3.0));
    assert!(daemon.check().unwrap().is_empty());
    daemon.process.stop().unwrap();
    true
}
