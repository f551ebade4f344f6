//! Every figure that sdiag prints after real work by several users, compared digit for digit with a
//! reading between two runs of sdiag, on any release that the sandbox can run. A line of sdiag
//! without an equal figure of ours is a failure.
//!
//! The reader may be older than the controller (a rolling upgrade). Then only what its release
//! lacks is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use sandbox::metrics::FIGURES;
use sandbox::{Folder, RpcRow, Sdiag, Slurm, is_root, printed, section, wait};
use slurm_snapshot::{
    Answer, BACKFILL_EXITS, MAIN_EXITS, Reading, Release, RpcQueue, RpcTables, rpc_name,
};

use super::{LATENCY, OWN_TYPE, SOON, ended, is_of, run_jobs};

/// Users of every Debian, and one without a name.
const USERS: [u32; 4] = [1, 8, 34, NAMELESS];

const NAMELESS: u32 = 54321;

/// Figures that these jobs cannot change: there is no slurmdbd and no het job, nothing waits for an
/// agent at a quiet moment, and slurmctld counts as failed only what slurmd could not run.
const MAY_BE_ZERO: &str = "agent_queue_size agent_count agent_thread_count dbd_agent_queue_size \
    bf_total_het_jobs_since_cycle_start jobs_failed main_mean_depth_cycle";

const FAMILY: &str = "cluster.slurm_sched_stats.gauge-";

#[test]
fn every_figure_of_sdiag_after_work_of_several_users() {
    let folder = Folder::new().unwrap();
    // From 24.05 on it adds columns to the table of message types; older releases ignore it.
    let slurm = Slurm::start_with(&folder, "SlurmctldParameters=enable_rpc_queue\n").unwrap();
    run_jobs(&slurm).unwrap();
    let conf = slurm.conf().display().to_string();
    let read = || stats_reading(&folder, &["--slurm-conf", &conf]);
    let early = read();
    if is_root() {
        work_of_users(&slurm);
    }
    // sdiag prints means per minute from its second minute on, and slurmctld counts its jobs every
    // half minute.
    wait::until("cycles per minute", SOON, || {
        slurm.sdiag().unwrap().get(section::MAIN, "Cycles per minute").is_some()
    })
    .unwrap();

    let (before, reading, after) =
        wait::until_some("a moment in which nothing changes", SOON * 3, || {
            let (before, reading, after) = (slurm.sdiag().ok()?, read(), slurm.sdiag().ok()?);
            (steady(&before) == steady(&after)).then_some((before, reading, after))
        })
        .unwrap();
    let points = replayed(&folder, &conf, &reading);
    compare_figures(&reading, &points, &after);
    compare_tables(&reading, &before, &after);
    if let Some(recordings) = std::env::var_os("RECORDINGS") {
        record(Path::new(&recordings), [early, reading]);
    }
}

/// Stores the readings for the tests that need no cluster, without any name but root's.
fn record(folder: &Path, readings: [Reading; 2]) {
    let file = folder.join(format!("{}.jsonl", readings[0].release));
    let mut text = String::new();
    for mut reading in readings {
        let tables =
            reading.statistics.as_mut().and_then(|statistics| statistics.rpc.as_mut()).unwrap();
        for user in tables.users.iter_mut().filter(|user| user.id != 0) {
            user.name = user.name.as_ref().map(|_| format!("user{}", user.id));
        }
        text += &serde_json::to_string(&Answer::Reading(Box::new(reading))).unwrap();
        text.push('\n');
    }
    fs::write(file, text).unwrap();
}

/// Each user sends a different number of requests. slurmd runs jobs only of users that it knows.
fn work_of_users(slurm: &Slurm) {
    let sbatch = ["--parsable", "--output=/dev/null", "--chdir=/", "--time=1", "--wrap", "true"];
    for (times, user) in (1..).zip(USERS) {
        for _ in 0..times {
            slurm.run_as(user, "sinfo", &[]).unwrap();
            slurm.run_as(user, "squeue", &["--all"]).unwrap();
        }
        if user != NAMELESS {
            slurm.run_as(user, "sbatch", &sbatch).unwrap();
        }
    }
    // Six of them are root's.
    ended(slurm, "Jobs completed", 9).unwrap();
}

/// The reading that `stats --json` prints with these flags; also written to a recording.
pub(crate) fn stats_reading(folder: &Folder, flags: &[&str]) -> Reading {
    let text = printed(folder, &[&["stats", "--json"], flags].concat()).unwrap();
    folder.write("recording", &text).unwrap();
    let answer = Answer::parse(text.as_bytes()).unwrap();
    assert_eq!(serde_json::to_string(&answer).unwrap(), text.trim_end(), "a round trip is exact");
    let Answer::Reading(reading) = answer else { panic!("{text}") };
    *reading
}

/// The values that would be published from the reading, by leaf. They have its timestamp, and the
/// live command has the same paths.
fn replayed(folder: &Folder, conf: &str, reading: &Reading) -> BTreeMap<String, i64> {
    let file = folder.path().join("recording").display().to_string();
    let replayed = once(folder, &["--interval", "10s", "--replay", &file]);
    for (path, (_, at)) in &replayed {
        assert!(at % 10.0 == 0.0 && (0.0..10.0).contains(&(reading.time - at)), "{path} at {at}");
        let of_two = path.contains("per_minute") && !path.starts_with(FAMILY);
        assert!(!of_two, "{path} needs two readings");
    }
    let live = once(folder, &["--slurm-conf", conf]);
    let lasting = |points: &BTreeMap<String, (String, f64)>| -> Vec<String> {
        points.keys().filter(|path| !comes_and_goes(path)).cloned().collect()
    };
    assert_eq!(lasting(&replayed), lasting(&live));
    let leaves =
        replayed.iter().filter_map(|(path, (value, _))| Some((path.strip_prefix(FAMILY)?, value)));
    // sdiag's are whole numbers.
    leaves.filter_map(|(leaf, value)| Some((leaf.to_owned(), value.parse().ok()?))).collect()
}

/// Value and timestamp by path, of what `once` prints.
fn once(folder: &Folder, args: &[&str]) -> BTreeMap<String, (String, f64)> {
    let mut points = BTreeMap::new();
    for line in printed(folder, &[&["once"], args].concat()).unwrap().lines() {
        let [path, value, timestamp] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let before = points.insert(path.to_owned(), (value.to_owned(), timestamp.parse().unwrap()));
        assert_eq!(before, None, "{line}");
    }
    points
}

/// Whether it may be in one reading and not in the next: it is missing while a backfill cycle is
/// running, and messages wait only for a moment.
fn comes_and_goes(path: &str) -> bool {
    path.ends_with("gauge-bf_coverage") || path.contains("slurm_rpc_stats.pending.")
}

/// The figures that must not differ between two runs of sdiag with a reading between them.
fn steady(sdiag: &Sdiag) -> Sdiag {
    let mut sdiag = sdiag.clone();
    sdiag.figures.retain(|(_, label), _| !is_own_figure(label));
    sdiag.by_type.retain(|row| row.name != OWN_TYPE);
    sdiag.by_user.retain(|row| !is_own_user(row));
    // Rows with the same count have no fixed order.
    sdiag.by_type.sort_by_key(|row| row.id);
    sdiag.by_user.sort_by_key(|row| row.id);
    sdiag
}

fn is_own_figure(label: &str) -> bool {
    label == "sdiag output at" || label.starts_with("Latency ")
}

fn is_own_user(row: &RpcRow) -> bool {
    row.id == rustix::process::getuid().as_raw()
}

fn compare_figures(reading: &Reading, points: &BTreeMap<String, i64>, sdiag: &Sdiag) {
    let statistics = reading.statistics.as_ref().unwrap();
    let mut left: BTreeSet<(&str, &str)> =
        sdiag.figures.keys().map(|(section, label)| (section.as_str(), label.as_str())).collect();
    for figure in FIGURES.iter().filter(|figure| figure.leaf != LATENCY) {
        let printed = figure.in_sdiag(sdiag);
        assert_eq!(points.get(figure.leaf).copied(), printed, "{figure:?}");
        assert!(is_of(MAY_BE_ZERO, figure.leaf) || printed > Some(0), "{figure:?}");
        left.remove(&(figure.section, figure.label));
    }
    let mut same = |section, label: &str, value: Option<i64>, since| {
        let printed = sdiag.get(section, label);
        assert!(
            value == printed || reading.release < since,
            "{section} {label}: {value:?}, {printed:?}"
        );
        left.retain(|line| *line != (section, label));
    };
    let count =
        |counts: &Option<Vec<u32>>, index: usize| Some(i64::from(*counts.as_ref()?.get(index)?));
    for index in 0..6 {
        let (main, backfill) =
            (count(&statistics.schedule_exit, index), count(&statistics.bf_exit, index));
        same(section::MAIN_EXIT, &MAIN_EXITS.text(index), main, Release::new(23, 11));
        same(section::BACKFILL_EXIT, &BACKFILL_EXITS.text(index), backfill, Release::new(23, 11));
    }
    let enabled = points.get("rpc_queue_enabled").copied();
    same(section::TOP, "RPC queue enabled", enabled, Release::new(24, 5));
    left.retain(|(_, label)| !is_own_figure(label));
    assert!(left.is_empty(), "sdiag prints what nothing was compared with: {left:?}");
}

fn compare_tables(reading: &Reading, before: &Sdiag, after: &Sdiag) {
    let tables =
        reading.statistics.as_ref().and_then(|statistics| statistics.rpc.as_ref()).unwrap();
    let (types, users) = rows(tables, reading.release);
    let find = |rows: &[RpcRow], id: u32| rows.iter().find(|row| row.id == id).cloned();
    let counted = |rows: &[RpcRow], id: u32| find(rows, id).map_or(0, |row| row.count);
    for mut printed in after.by_type.iter().cloned() {
        let ours =
            find(&types, printed.id).with_context(|| format!("we have no {printed:?}")).unwrap();
        if reading.release < Release::new(24, 5) {
            printed.queue = None;
        }
        if printed.name != OWN_TYPE {
            assert_eq!(ours, printed);
        }
    }
    // Every request is counted after its answer: sdiag's first, and ours.
    let stats = [&before.by_type, &types, &after.by_type].map(|rows| counted(rows, 2035));
    assert_eq!((stats[1], stats[2]), (stats[0] + 1, stats[0] + 2), "{OWN_TYPE}");
    for printed in &after.by_user {
        let ours =
            find(&users, printed.id).with_context(|| format!("we have no {printed:?}")).unwrap();
        if is_own_user(printed) {
            let first = counted(&before.by_user, printed.id);
            assert_eq!(
                (ours.count, printed.count),
                (first + 1, first + 2),
                "sdiag, then our reading"
            );
        } else {
            assert_eq!(ours, *printed);
        }
    }
    assert_eq!((types.len(), users.len()), (after.by_type.len(), after.by_user.len()));
    if is_root() {
        for user in USERS {
            assert!(
                users.iter().any(|row| row.id == user && row.count >= 2),
                "{user} in {users:?}"
            );
        }
    }
}

fn rows(tables: &RpcTables, release: Release) -> (Vec<RpcRow>, Vec<RpcRow>) {
    let row = |name, id, count: u32, total: u64, queue| {
        let count = u64::from(count);
        RpcRow { name, id, count, average: total.checked_div(count).unwrap_or(0), total, queue }
    };
    let types = tables.types.iter().map(|rpc| {
        let id = u32::from(rpc.id);
        let name = rpc_name(id, release).map_or_else(|| id.to_string(), str::to_owned);
        let columns = |queue: &RpcQueue| {
            [queue.queued.into(), queue.cycle_last.into(), queue.cycle_max.into(), queue.dropped]
        };
        row(name, id, rpc.count, rpc.time, rpc.queue.as_ref().map(columns))
    });
    let users = tables.users.iter().map(|user| {
        let name = user.name.clone().unwrap_or_else(|| user.id.to_string());
        row(name, user.id, user.count, user.time, None)
    });
    (types.collect(), users.collect())
}
