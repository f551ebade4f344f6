//! The interval's figures are the growth of slurmctld's own counters. They stop at a reset, and the kind of reset is
//! recognized.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox::{Daemon, Folder, Sandbox, Slurm, wait};

use super::SOON;
use super::observation::path;

type Values = BTreeMap<u64, f64>;

fn interval(leaf: &str) -> String {
    format!("cluster.slurm_sched_interval.gauge-{leaf}")
}

#[test]
fn what_a_tick_says_of_its_interval_is_what_the_totals_grew_by() {
    let sandbox = Sandbox::start().unwrap();
    let mut collector = sandbox.collector(&["--interval", "1s"]).unwrap();
    for _ in 0..12 {
        sandbox.slurm.submit(&["--wrap", "true"]).unwrap();
        sandbox.slurm.run("squeue", &[]).unwrap();
        wait::pause(Duration::from_millis(700));
    }
    collector.stop().unwrap();
    let series = |path: &str| -> Values { sandbox.carbon.series(path).unwrap().points.into_iter().collect() };
    let enough = || series(&interval("main_cycles")).values().filter(|cycles| **cycles > 0.0).count() >= 2;
    wait::until("two ticks with cycles in whisper", SOON, enough).unwrap();
    for (leaf, total) in [("main_cycles", "main_total_cycles"), ("bf_cycles", "bf_total_cycles")] {
        let totals = series(&path(total));
        let found = series(&interval(leaf));
        assert!(found.len() > 4, "{found:?}");
        for (at, value) in found {
            // The latest points may not be in whisper yet.
            let Some((now, before)) = totals.get(&at).zip(totals.get(&(at - 1))) else { continue };
            assert_eq!(value, now - before, "{leaf} at {at}");
        }
    }
    let (means, cycles) = (series(&interval("main_mean_cycle")), series(&interval("main_cycles")));
    let (sums, busy) = (series(&path("main_cycle_sum")), series(&interval("main_busy_fraction")));
    let seconds = series(&interval("seconds"));
    for (at, mean) in &means {
        let Some((now, before)) = sums.get(at).zip(sums.get(&(at - 1))) else { continue };
        let time = mean * cycles[at];
        assert!((time - (now - before)).abs() < 1e-6 * time.max(1.0), "{mean} at {at}");
        assert!((busy[at] * seconds[at] * 1e6 - time).abs() < 1e-6 * time.max(1.0), "busy at {at}");
    }
    assert!(!means.is_empty());
}

#[test]
fn a_reset_and_a_restart_are_told_apart_and_nothing_is_published_across_them() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::start(&folder).unwrap();
    slurm.submit(&["--wrap", "true"]).unwrap();
    slurm.run("squeue", &[]).unwrap();
    let mut daemon = Daemon::start(&folder, &format!("conf = \"{}\"", slurm.conf().display())).unwrap();
    let resets = |daemon: &mut Daemon| -> [f64; 3] {
        let recorded = daemon.recorded().unwrap();
        ["resets_midnight", "resets_command", "resets_restart"]
            .map(|leaf| recorded.series(&interval(leaf)).last_key_value().map_or(0.0, |(_, &count)| count))
    };
    // slurmctld's counters are per second: wait for an interval or two, and for cycles of both schedulers.
    wait::until("intervals", SOON, || daemon.recorded().unwrap().series(&interval("seconds")).len() > 4)
        .unwrap();
    // Midnight may come during the test.
    let [midnights, ..] = resets(&mut daemon);
    slurm.run("sdiag", &["--reset"]).unwrap();
    wait::until("the reset", SOON, || resets(&mut daemon)[1] > 0.0).unwrap();
    assert_eq!(resets(&mut daemon)[2], 0.0, "no restart");
    wait::until("cycles", SOON, || {
        daemon
            .recorded()
            .unwrap()
            .statistics("main_total_cycles")
            .last_key_value()
            .is_some_and(|(_, n)| *n > 0.0)
    })
    .unwrap();
    slurm.slurmctld.stop().unwrap();
    wait::until("an outage", SOON, || {
        let recorded = daemon.recorded().unwrap();
        let health = |leaf: &str| recorded.series(&format!("cluster.slurm_health.gauge-{leaf}"));
        let since = health("seconds_since_reading").last_key_value().map_or(0.0, |(_, &seconds)| seconds);
        since >= 2.0 && health("up").last_key_value().is_some_and(|(_, &up)| up == 0.0)
    })
    .unwrap();
    slurm.slurmctld.start().unwrap();
    wait::until("the restart", SOON, || resets(&mut daemon)[2] > 0.0).unwrap();
    wait::pause(Duration::from_secs(3));
    let [last_midnights, command, restart] = resets(&mut daemon);
    assert!(last_midnights - midnights <= 1.0);
    assert_eq!((command, restart), (1.0, 1.0));

    let recorded = daemon.recorded().unwrap();
    let (starts, seconds) = (recorded.statistics("req_time_start"), recorded.series(&interval("seconds")));
    let ticks: Vec<u64> = starts.keys().copied().collect();
    for pair in ticks.windows(2) {
        if starts[&pair[0]] != starts[&pair[1]] {
            assert!(!seconds.contains_key(&pair[1]), "an interval across the reset at {}", pair[1]);
        }
    }
    daemon.stop().unwrap();
}
