//! Ticks are on the wall-clock grid, and none is missing.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use sandbox::{Process, Sandbox, find_program, wait};

use super::{CONDITIONAL, is_of};

const TICKS: u64 = 20;

/// Times of events that may not have happened at the first tick, and what is unknown until then:
/// slurmctld counted its jobs, backfill ran, a tick was delivered. Once there, they stay.
const MOMENTS: &str = "job_states_ts job_states_age jobs_pending jobs_running bf_last_cycle_when \
    bf_last_cycle_age req_time_start last_delivery";

/// A type of RPC appears with its first RPC.
const TYPES: &str = ".slurm_rpc_stats.type.";

/// Metrics of `slurm_rpc_stats` and `slurm_sched_exit` that need two consecutive readings.
const OF_TWO: &str = "calls_per_minute interval_mean_time time_share busy interval_count";

/// Metrics of `slurm_sched_interval` that need only one reading, and are there even if no cycle has
/// run.
const OF_ONE: &str =
    "job_states_age bf_last_cycle_age resets_midnight resets_command resets_restart";

#[test]
fn twenty_ticks_fill_as_many_slots_while_both_cores_are_busy() {
    let sandbox = Sandbox::start().unwrap();
    sandbox.slurm.submit(&["--wrap", "true"]).unwrap();
    let shell = find_program("sh").unwrap();
    let mut burners = ["burner-1", "burner-2"].map(|name| {
        Process::new(&sandbox.folder, name, shell.clone()).args(["-c", "while :; do :; done"])
    });
    burners.iter_mut().for_each(|burner| burner.start().unwrap());
    let mut collector = sandbox.collector(&["--interval", "1s"]).unwrap();
    let up = format!("cluster.slurm_graphite.{}.gauge-slurmctld_up", host().unwrap());
    let limit = wait::LIMIT;
    // The first tick may come before the first reader has said hello; after the reader's first
    // answer no tick may be missing.
    let first = wait::until_some("the first reading", limit, || {
        sandbox.carbon.series(&up).ok()?.points.into_iter().find(|(_, up)| *up == 1.0)
    });
    let first = first.unwrap().0;
    let last = first + TICKS - 1;
    sandbox.value_at(&up, last, Duration::from_secs(TICKS) + wait::LIMIT).unwrap();
    assert!(burners.iter_mut().all(|burner| burner.pid().is_some()), "they were busy to the end");
    assert!(collector.stop().unwrap().status.success());
    // A mean of nothing is missing, also at the last tick. In slurmctld's first second there may be
    // one: it knows no reset yet, so the minutes since then are many.
    let lasts = |path: &String| !comes_and_goes(path) && !is_of(CONDITIONAL, leaf(path));
    let lasting = || sandbox.carbon.paths().into_keys().filter(lasts);
    let has_it =
        |path: &String| sandbox.carbon.series(path).unwrap().last() >= Some((last, f64::MIN));
    let without_it = || lasting().filter(|path| !has_it(path)).collect::<Vec<_>>();
    wait::until("the last tick in whisper, whole", limit, || without_it().is_empty())
        .unwrap_or_else(|error| panic!("{error}: {:?}", without_it()));

    // The first reading is counted after its answer.
    let own = sandbox
        .carbon
        .series("cluster.slurm_rpc_stats.type.REQUEST_STATS_INFO.gauge-count")
        .unwrap();
    assert!(own.slots(first + 1, last).iter().all(|(_, value)| value.is_some()), "{own:?}");
    let mut whole = 0;
    for path in lasting() {
        let series = sandbox.carbon.series(&path).unwrap();
        // It is missing at first, and then there at every tick.
        let comes_late = path.contains(TYPES) || is_of(MOMENTS, leaf(&path));
        let from =
            if comes_late { *series.points.keys().next().unwrap().max(&first) } else { first };
        let slots = series.slots(from, last);
        let filled = slots.iter().filter(|(_, value)| value.is_some()).count() as u64;
        assert_eq!(
            (slots.len() as u64, filled),
            (last - from + 1, last - from + 1),
            "{path} from {from}"
        );
        whole += u64::from(from == first);
    }
    assert!(whole > 50, "{whole} series");
    // The first reading has no interval, and neither has one in the second in which slurmctld
    // started. On a busy host, answers that come late make some intervals too short to count.
    let intervals = sandbox.carbon.series("cluster.slurm_sched_interval.gauge-seconds").unwrap();
    let intervals =
        intervals.slots(first, last).iter().filter(|(_, value)| value.is_some()).count();
    assert!(intervals as u64 > TICKS - 6, "{intervals} intervals");
    for counter in ["ticks_skipped", "ticks_late", "readings_failed"] {
        let series = sandbox.carbon.series(&up.replace("slurmctld_up", counter)).unwrap();
        assert_eq!(series.at(last), series.at(first), "{counter}");
    }
}

/// A path's last component, without `gauge-`.
fn leaf(path: &str) -> &str {
    path.rsplit("gauge-").next().unwrap()
}

/// Whether a tick may be without it, because it needs two consecutive readings, messages that wait,
/// or a finished cycle.
fn comes_and_goes(path: &str) -> bool {
    path.ends_with("queue_per_minute")
        || path.contains(".slurm_rpc_stats.pending.")
        || is_of(OF_TWO, leaf(path))
        || (path.contains(".slurm_sched_interval.") && !is_of(OF_ONE, leaf(path)))
}

/// The host's name as in the paths: up to its first dot.
fn host() -> Result<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim().split('.').next().unwrap_or_default().to_owned())
}
