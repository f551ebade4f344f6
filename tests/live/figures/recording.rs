//! A recording gives the points of its readings.

use std::collections::BTreeMap;
use std::fs;

use sandbox::{Sandbox, run, section, wait};
use serde_json::Value;

use super::SOON;
use super::observation::path;

const FAMILY: &str = "cluster.slurm_sched_stats.gauge-";

/// Leaves whose names differ from the reply's members.
const RENAMED: [(&str, &str); 24] = [
    ("main_last_cycle", "schedule_cycle_last"),
    ("main_max_cycle", "schedule_cycle_max"),
    ("main_total_cycles", "schedule_cycle_counter"),
    ("main_cycle_sum", "schedule_cycle_sum"),
    ("main_depth_sum", "schedule_cycle_depth"),
    ("main_last_queue_length", "schedule_queue_len"),
    ("bf_total_jobs_since_slurm_start", "bf_backfilled_jobs"),
    ("bf_total_jobs_since_cycle_start", "bf_last_backfilled_jobs"),
    ("bf_total_het_jobs_since_cycle_start", "bf_backfilled_het_jobs"),
    ("bf_total_cycles", "bf_cycle_counter"),
    ("bf_last_cycle_when", "bf_when_last_cycle"),
    ("bf_last_cycle", "bf_cycle_last"),
    ("bf_max_cycle", "bf_cycle_max"),
    ("bf_last_depth_cycle", "bf_last_depth"),
    ("bf_last_depth_cycle_try", "bf_last_depth_try"),
    ("bf_depth_sum_try", "bf_depth_try_sum"),
    ("bf_queue_length", "bf_queue_len"),
    ("bf_queue_length_sum", "bf_queue_len_sum"),
    // The others are means; this is the sum that they are calculated from.
    ("main_mean_cycle", "schedule_cycle_sum"),
    ("main_mean_depth_cycle", "schedule_cycle_depth"),
    ("bf_mean_cycle", "bf_cycle_sum"),
    ("bf_depth_mean", "bf_depth_sum"),
    ("bf_depth_mean_try", "bf_depth_try_sum"),
    ("bf_queue_length_mean", "bf_queue_len_sum"),
];

/// Whether it may be in one reading and not in the next: it is missing while a backfill cycle is running, and messages
/// wait only for a moment.
fn comes_and_goes(path: &str) -> bool {
    path.ends_with("gauge-bf_coverage") || path.contains("slurm_rpc_stats.pending.")
}

#[test]
fn a_recording_gives_the_points_of_its_reading() {
    let sandbox = Sandbox::start().unwrap();
    let conf = sandbox.slurm.conf().display().to_string();
    sandbox.slurm.submit(&["--ntasks=8", "--time=10", "--wrap", "exec sleep 600"]).unwrap();
    // A backfill cycle runs only after something has changed.
    for cycles in 0..2 {
        sandbox.slurm.submit(&["--ntasks=8", "--time=10", "--wrap", "true"]).unwrap();
        wait::until("cycles of both schedulers", SOON, || {
            let sdiag = sandbox.slurm.sdiag().unwrap();
            [section::MAIN, section::BACKFILL]
                .iter()
                .all(|part| sdiag.get(part, "Total cycles") > Some(cycles))
        })
        .unwrap();
    }
    let run = |args: &[&str]| {
        let run = run(&sandbox.folder, args).unwrap();
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
        run.stdout
    };
    // After its first answer, a reader requests the configuration, which adds a row to slurmctld's table.
    run(&["once", "--slurm-conf", &conf]);
    let recording = run(&["stats", "--json", "--slurm-conf", &conf]);
    assert_eq!(recording.lines().count(), 1);
    let file = sandbox.path("recording");
    fs::write(&file, &recording).unwrap();
    let replayed = run(&["once", "--interval", "10s", "--replay", &file.display().to_string()]);

    let reading = &serde_json::from_str::<Value>(&recording).unwrap()["reading"];
    assert_eq!(reading["cluster"], "sandbox");
    let statistics = reading["statistics"].as_object().unwrap();
    let time = reading["time"].as_f64().unwrap();
    let points = points(&replayed);
    for (timestamp, _) in points.values() {
        assert!(
            timestamp % 10 == 0 && (0.0..10.0).contains(&(time - *timestamp as f64)),
            "{timestamp}, {time}"
        );
    }
    let members = points.iter().filter_map(|(path, point)| Some((path.strip_prefix(FAMILY)?, point)));
    for (leaf, (_, value)) in members {
        let member = RENAMED.iter().find(|(name, _)| *name == leaf).map_or(leaf, |(_, member)| member);
        let divisor = match leaf {
            "bf_table_size_mean" => "bf_table_size_sum",
            _ => member,
        };
        let Some(recorded) = statistics.get(divisor) else { panic!("{leaf} is {member} of {statistics:?}") };
        let recorded = recorded.as_i64().or(recorded.as_bool().map(i64::from)).unwrap();
        let expected = match leaf {
            _ if !leaf.contains("_mean") => recorded,
            _ if leaf.starts_with("main") => {
                recorded / statistics["schedule_cycle_counter"].as_i64().unwrap()
            }
            _ => recorded / statistics["bf_cycle_counter"].as_i64().unwrap(),
        };
        assert_eq!(*value, expected as f64, "{leaf}");
    }
    // slurmctld has run for less than a minute, so the figure that needs more is missing.
    assert!(!points.contains_key(&path("main_cycles_per_minute")));
    assert!(points.keys().filter(|path| path.starts_with(FAMILY)).count() >= 46, "{points:?}");
    for row in statistics["rpc"]["types"].as_array().unwrap() {
        let id = u32::try_from(row["id"].as_u64().unwrap()).unwrap();
        let release = reading["release"].as_str().unwrap().parse().unwrap();
        let name = slurm_snapshot::rpc_name(id, release).unwrap();
        for (leaf, member) in [("count", "count"), ("total_time", "time")] {
            let point = points.get(&format!("cluster.slurm_rpc_stats.type.{name}.gauge-{leaf}"));
            assert_eq!(point.map(|point| point.1), row[member].as_f64(), "{name} {leaf}");
        }
    }
    // Metrics that need two readings are not in a single one.
    assert!(
        !points.keys().any(|path| path.contains("per_minute") && !path.starts_with(FAMILY)),
        "{points:?}"
    );
    // And the recording gives the same as the live command.
    let live = self::points(&run(&["once", "--slurm-conf", &conf]));
    let lasting = |points: &BTreeMap<String, (i64, f64)>| -> Vec<String> {
        points.keys().filter(|path| !comes_and_goes(path)).cloned().collect()
    };
    assert_eq!(lasting(&points), lasting(&live));
}

/// Timestamp and value by path.
fn points(text: &str) -> BTreeMap<String, (i64, f64)> {
    let mut points = BTreeMap::new();
    for line in text.lines() {
        let [path, value, timestamp] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let before = points.insert(path.to_owned(), (timestamp.parse().unwrap(), value.parse().unwrap()));
        assert_eq!(before, None, "{line}");
    }
    points
}
