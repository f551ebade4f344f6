//! slurmctld's clock is set back while it runs, and while it is down.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::{Daemon, Folder, Slurm, wait};

const COLLECTORS: &str = "[collectors]\nmax_duty = \"100%\"\n\
    [collectors.jobs]\nenabled = true\ninterval = \"2s\"\n\
    [collectors.nodes]\nenabled = true\ninterval = \"2s\"\n";

/// Where Debian's libfaketime is.
pub(crate) fn libfaketime() -> Result<String> {
    let folders = fs::read_dir("/usr/lib")?.filter_map(Result::ok).map(|entry| entry.path());
    let files = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let found = files.into_iter().find(|file| file.exists()).context("libfaketime is not installed")?;
    Ok(found.display().to_string())
}

/// slurmctld's clock, as seconds that are added to the time.
fn set(file: &Path, offset: &str) {
    // Written whole: libfaketime reads it at every look at the clock.
    let new = file.with_extension("new");
    fs::write(&new, format!("{offset}\n")).unwrap();
    fs::rename(new, file).unwrap();
}

fn hold(slurm: &Slurm, jobs: u32) {
    for _ in 0..jobs {
        slurm.submit(&["-H", "--wrap", "true"]).unwrap();
    }
}

fn expect(daemon: &mut Daemon, path: &str, expected: f64) {
    let what = format!("{path} {expected}");
    let is_it = |recorded: &sandbox::Recorded| {
        let series = recorded.series(&format!("cluster.{path}"));
        series.last_key_value().filter(|(_, value)| **value == expected).map(drop)
    };
    daemon.until(&what, wait::LIMIT, is_it).unwrap();
}

/// Changes from then on have earlier times than the last reply, and slurmctld called everything unchanged: for as long
/// as its clock was behind, and whatever had happened in that time for longer.
#[test]
fn what_happens_after_slurmctlds_clock_was_set_back_is_seen() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    let file = folder.path().join("faketime");
    set(&file, "+3600");
    for (name, value) in [
        ("LD_PRELOAD", libfaketime().unwrap()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ] {
        slurm.slurmctld.set_env(name, value);
    }
    slurm.start_all().unwrap();
    let conf = format!("conf = {:?}\n", slurm.conf());
    let mut daemon = Daemon::start_surveying(&folder, &conf, COLLECTORS).unwrap();
    let (pending, drained) = ("slurm_jobs.state.pending.gauge-jobs", "slurm_nodes.flag.drain.gauge-nodes");
    hold(&slurm, 1);
    expect(&mut daemon, pending, 1.0);

    set(&file, "+0");
    hold(&slurm, 4);
    slurm.run("scontrol", &["update", "nodename=localhost", "state=drain", "reason=test"]).unwrap();
    expect(&mut daemon, pending, 5.0);
    expect(&mut daemon, drained, 1.0);
    daemon.said(0.0, "slurmctld's clock was set back", Duration::ZERO).unwrap();

    // Less than the time between two surveys, whose replies are then older than the clock all the same.
    set(&file, "+5");
    hold(&slurm, 1);
    expect(&mut daemon, pending, 6.0);
    daemon.ticks(3).unwrap();
    set(&file, "+0");
    hold(&slurm, 1);
    expect(&mut daemon, pending, 7.0);

    // As after a boot with a wrong clock, or a failover to a controller whose clock is behind.
    set(&file, "+3600");
    hold(&slurm, 1);
    expect(&mut daemon, pending, 8.0);
    slurm.slurmctld.kill().unwrap();
    set(&file, "+0");
    slurm.slurmctld.start().unwrap();
    hold(&slurm, 2);
    expect(&mut daemon, pending, 10.0);
    daemon.stop().unwrap();
}
