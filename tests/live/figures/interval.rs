//! The interval's figures are the growth of slurmctld's own counters. They stop at a reset, and the
//! kind of reset is recognized.

use std::time::Duration;

use sandbox::{Daemon, Folder, Sandbox, Slurm, wait};

use super::SOON;
use super::observation::path;

fn interval(leaf: &str) -> String {
    format!("cluster.slurm_sched_interval.gauge-{leaf}")
}

/// Compares each tick's interval in whisper with the growth of the totals.
pub(crate) fn compare(sandbox: &Sandbox) {
    let series = |path: &str| sandbox.carbon.series(path).unwrap().points;
    for (leaf, total) in [("main_cycles", "main_total_cycles"), ("bf_cycles", "bf_total_cycles")] {
        let (totals, found) = (series(&path(total)), series(&interval(leaf)));
        assert!(found.values().filter(|cycles| **cycles > 0.0).count() >= 2, "{found:?}");
        for (at, value) in found {
            // The latest points may not be in whisper yet.
            let Some((now, before)) = totals.get(&at).zip(totals.get(&(at - 1))) else { continue };
            assert_eq!(value, now - before, "{leaf} at {at}");
        }
    }
    let (means, cycles) = (series(&interval("main_mean_cycle")), series(&interval("main_cycles")));
    let (sums, busy) = (series(&path("main_cycle_sum")), series(&interval("main_busy_fraction")));
    let seconds = series(&interval("seconds"));
    // Of the latest tick, whisper may have some paths and not yet others.
    let newest = [&cycles, &sums, &busy, &seconds].map(|one| one.keys().next_back().copied());
    let newest = newest.into_iter().min().flatten().unwrap_or_default();
    let mut compared = 0;
    for (at, mean) in means.range(..=newest) {
        let Some((now, before)) = sums.get(at).zip(sums.get(&(at - 1))) else { continue };
        // The tick after `sdiag --reset` has means, but no counts.
        let Some(cycles) = cycles.get(at) else { continue };
        compared += 1;
        let time = mean * cycles;
        assert!((time - (now - before)).abs() < 1e-6 * time.max(1.0), "{mean} at {at}");
        assert!((busy[at] * seconds[at] * 1e6 - time).abs() < 1e-6 * time.max(1.0), "busy at {at}");
    }
    assert!(compared >= 2, "{compared} of {}", means.len());
}

#[test]
fn a_reset_and_a_restart_are_told_apart_and_no_interval_is_published_across_them() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::start(&folder).unwrap();
    slurm.submit(&["--wrap", "true"]).unwrap();
    slurm.run("squeue", &[]).unwrap();
    let mut daemon = Daemon::start(&folder, &slurm.toml()).unwrap();
    let resets = |daemon: &mut Daemon| -> [f64; 3] {
        let recorded = daemon.recorded().unwrap();
        ["resets_midnight", "resets_command", "resets_restart"]
            .map(|leaf| recorded.newest(&interval(leaf)).unwrap_or(0.0))
    };
    // slurmctld's counters are per second: wait for an interval or two, and for cycles of both
    // schedulers.
    wait::until("intervals", SOON, || {
        daemon.recorded().unwrap().series(&interval("seconds")).len() > 4
    })
    .unwrap();
    // Midnight may come during the test.
    let [midnights, ..] = resets(&mut daemon);
    slurm.run("sdiag", &["--reset"]).unwrap();
    wait::until("the reset", SOON, || resets(&mut daemon)[1] > 0.0).unwrap();
    assert_eq!(resets(&mut daemon)[2], 0.0, "no restart");
    let cycles =
        |daemon: &mut Daemon| daemon.recorded().unwrap().newest(&path("main_total_cycles"));
    wait::until("cycles", SOON, || cycles(&mut daemon) > Some(0.0)).unwrap();
    slurm.slurmctld.stop().unwrap();
    wait::until("an outage", SOON, || {
        let recorded = daemon.recorded().unwrap();
        let health = |leaf: &str| recorded.newest(&format!("cluster.slurm_health.gauge-{leaf}"));
        health("seconds_since_reading") >= Some(2.0) && health("up") == Some(0.0)
    })
    .unwrap();
    slurm.slurmctld.start().unwrap();
    wait::until("the restart", SOON, || resets(&mut daemon)[2] > 0.0).unwrap();
    wait::pause(Duration::from_secs(3));
    let [last_midnights, command, restart] = resets(&mut daemon);
    assert!(last_midnights - midnights <= 1.0);
    assert_eq!((command, restart), (1.0, 1.0));

    let recorded = daemon.recorded().unwrap();
    let [starts, times] = ["req_time_start", "req_time"].map(|leaf| recorded.statistics(leaf));
    let seconds = recorded.series(&interval("seconds"));
    let ticks: Vec<u64> = starts.keys().copied().collect();
    let commands = recorded.series(&interval("resets_command"));
    let changed = ticks.windows(2).filter(|pair| starts[&pair[0]] != starts[&pair[1]]);
    for (before, tick) in changed.map(|pair| (pair[0], pair[1])) {
        // After a restart nothing is known of the interval; after a command, the part since then, if
        // it is a second.
        let is_command = commands.get(&before) < commands.get(&tick);
        if is_command && tick != before + 1 {
            continue;
        }
        let part = Some(times[&tick] - starts[&tick]).filter(|part| is_command && *part >= 1.0);
        assert_eq!(seconds.get(&tick).copied(), part, "an interval across the reset at {tick}");
    }
    daemon.stop().unwrap();
}
