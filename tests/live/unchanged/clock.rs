//! slurmctld's clock is set back while it runs, and while it is down.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, Process, Slurm};

/// Where Debian's libfaketime is.
pub(crate) fn libfaketime() -> Result<String> {
    let folders = fs::read_dir("/usr/lib")?.filter_map(Result::ok).map(|entry| entry.path());
    let files = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let found =
        files.into_iter().find(|file| file.exists()).context("libfaketime is not installed")?;
    Ok(found.display().to_string())
}

/// Sets the clock of the programs that have this file to `offset` from the host's.
pub(crate) fn set(file: &Path, offset: &str) {
    // Written whole: libfaketime reads it at every look at the clock.
    let new = file.with_extension("new");
    fs::write(&new, format!("{offset}\n")).unwrap();
    fs::rename(new, file).unwrap();
}

/// Puts the process under the clock of this file from its next start on.
pub(crate) fn put_over(process: &mut Process, file: &Path) -> Result<()> {
    for (name, value) in [
        ("LD_PRELOAD", libfaketime()?),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ] {
        process.set_env(name, value);
    }
    Ok(())
}

fn hold(slurm: &Slurm, jobs: u32) {
    for _ in 0..jobs {
        slurm.submit(&["-H", "--wrap", "true"]).unwrap();
    }
}

/// Changes from then on have earlier times than the last reply, and slurmctld called everything
/// unchanged: for as long as its clock was behind, and whatever had happened in that time for
/// longer.
#[test]
fn what_happens_after_slurmctlds_clock_was_set_back_is_seen() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    let file = folder.path().join("faketime");
    set(&file, "+3600");
    put_over(&mut slurm.slurmctld, &file).unwrap();
    slurm.start_all().unwrap();
    let mut daemon =
        Daemon::start_surveying(&folder, &slurm.toml(), &surveys(&["jobs", "nodes"])).unwrap();
    let pending = "cluster.slurm_jobs.state.pending.gauge-jobs";
    hold(&slurm, 1);
    daemon.until_is(pending, 1.0).unwrap();

    set(&file, "+0");
    hold(&slurm, 4);
    slurm.call("scontrol update nodename=localhost state=drain reason=test").unwrap();
    daemon.until_is(pending, 5.0).unwrap();
    daemon.until_is("cluster.slurm_nodes.flag.drain.gauge-nodes", 1.0).unwrap();
    daemon.said(0.0, "slurmctld's clock was set back", Duration::ZERO).unwrap();

    // Less than the time between two surveys, whose replies are then older than the clock all the
    // same.
    set(&file, "+5");
    hold(&slurm, 1);
    daemon.until_is(pending, 6.0).unwrap();
    daemon.ticks(3).unwrap();
    set(&file, "+0");
    hold(&slurm, 1);
    daemon.until_is(pending, 7.0).unwrap();

    // As after a boot with a wrong clock, or a failover to a controller whose clock is behind.
    set(&file, "+3600");
    hold(&slurm, 1);
    daemon.until_is(pending, 8.0).unwrap();
    slurm.slurmctld.kill().unwrap();
    set(&file, "+0");
    slurm.slurmctld.start().unwrap();
    hold(&slurm, 2);
    daemon.until_is(pending, 10.0).unwrap();
    daemon.stop().unwrap();
}
