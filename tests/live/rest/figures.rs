//! The figures over REST equal libslurm's at the same moment, except for the list that
//! `slurm-graphite metrics` prints.

use std::collections::{BTreeMap, BTreeSet};

use sandbox::{Folder, Reader, Way, printed, wait};
use serde_json::Value;
use slurm_snapshot::{Answer, Reading, Reply, ReplyKind, ReplyOptions, Request, Statistics};

use super::{SOON, cluster, rest_reader};
use crate::figures::after_work::stats_reading;
use crate::figures::work;
use crate::unchanged::strip;

/// Before this release slurmrestd reports neither RPCs nor nodes nor licences.
const FIRST_WITH_ALL: &str = "22.05";

/// slurmrestd of this release does not report whether a partition is up.
const WITHOUT_STATES: &str = "23.02";

/// Figures that a request itself changes, or that change with time.
const MOVES: [&str; 4] = ["req_time", "server_thread_count", "job_states_ts", "seconds"];

#[test]
fn the_batch_over_rest_is_libslurms_less_the_printed_list() {
    let (folder, slurm, rest) = cluster(Way::Socket, 0, "");
    work(&slurm);
    let libslurm = folder.write("libslurm.toml", &format!("[slurm]\n{}", slurm.toml())).unwrap();
    let rest = folder.write("rest.toml", &format!("[slurm]\n{}", rest.toml())).unwrap();
    let (of_libslurm, of_rest) =
        wait::until_some("two moments in which nothing changes", SOON * 4, || {
            let first = moment(&folder, &libslurm, &rest)?;
            wait::pause(std::time::Duration::from_millis(2500));
            let second = moment(&folder, &libslurm, &rest)?;
            Some(([first.0, second.0], [first.1, second.1]))
        })
        .unwrap();
    assert_eq!(of_libslurm[1].release, of_rest[1].release);
    let (libslurm, rest) = (points(&folder, &of_libslurm), points(&folder, &of_rest));
    let release = of_rest[1].release.to_string();
    let printed = absent(&folder, &release);
    let is_printed = |path: &str| {
        let (below, leaf) =
            path.strip_prefix("cluster.").and_then(|path| path.split_once(".gauge-")).unwrap();
        printed.iter().any(|(family, leaves)| {
            (below == family || below.starts_with(&format!("{family}.")))
                && (leaves.is_empty() || leaves.contains(leaf))
        })
    };
    let missing: Vec<&String> = libslurm.keys().filter(|path| !rest.contains_key(*path)).collect();
    let not_printed: Vec<_> = missing.iter().filter(|path| !is_printed(path)).collect();
    assert!(not_printed.is_empty(), "absent over REST, and not in the list: {not_printed:#?}");
    let all_the_same: Vec<_> = rest.keys().filter(|path| is_printed(path)).collect();
    assert!(
        all_the_same.is_empty(),
        "in the list, and there over REST of {release}: {all_the_same:#?}"
    );
    let more: Vec<_> = rest.keys().filter(|path| !libslurm.contains_key(*path)).collect();
    assert!(more.is_empty(), "over REST alone: {more:#?}");
    let mut compared = 0;
    for (path, value) in &rest {
        let leaf = path.rsplit_once(".gauge-").unwrap().1;
        // The two ask one after the other; of the interval's figures only the sums are the same.
        let families =
            ["slurm_rpc_stats", "slurm_sched_interval", "slurm_health", "slurm_graphite"];
        if !MOVES.contains(&leaf) && !families.iter().any(|family| path.contains(family)) {
            assert_eq!(Some(value), libslurm.get(path), "{path}");
            compared += 1;
        }
    }
    if release.as_str() >= FIRST_WITH_ALL {
        rpcs_are_the_same(&of_libslurm[1], &of_rest[1]);
    }
    assert!(compared > 30, "{compared}");
}

/// Except for what the requests themselves add: one row, and its time.
fn rpcs_are_the_same(libslurm: &Reading, rest: &Reading) {
    let rows = |reading: &Reading| -> BTreeMap<u16, (u32, u64)> {
        let tables = reading.statistics.as_ref().unwrap().rpc.as_ref();
        let types = tables.iter().flat_map(|tables| &tables.types);
        let others = types.filter(|row| ![2035, 2001, 1008].contains(&row.id));
        others.map(|row| (row.id, (row.count, row.time))).collect()
    };
    let (libslurm, rest) = (rows(libslurm), rows(rest));
    assert_eq!(libslurm, rest);
    assert!(!rest.is_empty());
}

/// A reading of each, between two of libslurm's that are the same.
fn moment(folder: &Folder, libslurm: &str, rest: &str) -> Option<(Reading, Reading)> {
    let [before, rest, after] =
        [libslurm, rest, libslurm].map(|file| stats_reading(folder, &["--config", file]));
    (steady(&before) == steady(&after)).then_some((after, rest))
}

fn steady(reading: &Reading) -> Statistics {
    let statistics = reading.statistics.clone().unwrap();
    Statistics { req_time: 0, server_thread_count: 0, rpc: None, ..statistics }
}

/// The points that would be published for these readings, at the last of them.
fn points(folder: &Folder, readings: &[Reading; 2]) -> BTreeMap<String, String> {
    let line = |reading: &Reading| {
        let answer = Answer::Reading(Box::new(reading.clone()));
        serde_json::to_string(&answer).unwrap() + "\n"
    };
    let file = folder.write("recording", &readings.iter().map(line).collect::<String>()).unwrap();
    let text = printed(folder, &["once", "--interval", "1s", "--replay", &file]).unwrap();
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    lines
        .filter_map(|words| Some(((*words.first()?).to_owned(), (*words.get(1)?).to_owned())))
        .collect()
}

/// Families and leaves that are absent in this release, according to docs/metrics.md.
fn absent(folder: &Folder, release: &str) -> Vec<(String, BTreeSet<String>)> {
    let metrics = printed(folder, &["metrics"]).unwrap();
    let table = metrics.split("## Over REST").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `slurm"));
    rows.filter_map(|row| {
        let [below, leaves, there]: [&str; 3] = row
            .trim_matches('|')
            .split(" | ")
            .map(str::trim)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        let there = there.trim_end_matches(" |");
        let is_there = match there.split_once("from ") {
            None => false,
            Some((before, from)) => {
                let (first, last) = before.split_once(" to ").unwrap_or((before, before));
                let between = first.get(..5).zip(last.get(..5));
                release >= from
                    || between.is_some_and(|(first, last)| (first..=last).contains(&release))
            }
        };
        let leaves = leaves.split(',').map(|leaf| leaf.trim().trim_matches('`').to_owned());
        let leaves: BTreeSet<String> = leaves.filter(|leaf| leaf != "all").collect();
        (!is_there).then(|| (below.trim_matches('`').to_owned(), leaves))
    })
    .collect()
}

#[test]
fn nodes_partitions_licences_and_reservations_are_libslurms_and_of_jobs_only_the_states_are_ever_asked_for()
 {
    let conf = "Licenses=matlab:5\nPartitionName=second Nodes=localhost State=DOWN Hidden=YES\n";
    let (folder, mut slurm, rest) = cluster(Way::Socket, 0, conf);
    // A CPU is the system's.
    let changed = slurm.changed("kept.conf", " CPUs=8 ", " CPUs=8 CpuSpecList=7 ").unwrap();
    std::fs::rename(changed, slurm.conf()).unwrap();
    for process in [&mut slurm.slurmctld, &mut slurm.slurmd] {
        process.stop().unwrap();
        process.start().unwrap();
    }
    slurm
        .submit(&["--ntasks=3", "--licenses=matlab:2", "--time=10", "--wrap", "exec sleep 600"])
        .unwrap();
    let later = "starttime=now+3600 duration=60 user=root nodes=ALL flags=MAINT";
    slurm.call(&format!("scontrol create reservation=r {later}")).unwrap();
    let features = "availablefeatures=ib,a.b,größe activefeatures=ib,a.b,größe";
    slurm.call(&format!("scontrol update nodename=localhost {features}")).unwrap();
    let running = || slurm.call("squeue -h -t R").is_ok_and(|jobs| !jobs.is_empty());
    wait::until("a job that runs", SOON, running).unwrap();
    let libslurm = || replies(Reader::start_for(&slurm).unwrap());
    let has_all = slurm.release().unwrap().as_str() >= FIRST_WITH_ALL;
    let is_told =
        |reply: &&Reply| has_all || matches!(reply, Reply::Reservations(_) | Reply::Controllers(_));
    let has_states = !slurm.release().unwrap().starts_with(WITHOUT_STATES);
    let one = |replies: Vec<Reply>| -> Vec<Value> {
        replies.iter().filter(is_told).map(|reply| comparable(reply, has_states)).collect()
    };
    let seen = wait::until_some("the same twice", SOON * 2, || {
        slurm.call("scontrol update nodename=localhost state=drain reason=test").ok()?;
        let before = one(libslurm());
        let found = one(replies(rest_reader(&rest)));
        let after = one(libslurm());
        if found != after {
            println!("libslurm {after:#?}\nslurmrestd {found:#?}");
        }
        (before == after && found == after).then_some(found)
    })
    .unwrap();
    assert_eq!(seen.len(), if has_all { 4 } else { 2 });
    let text = Value::Array(seen).to_string();
    if slurm.release().unwrap().as_str() >= FIRST_WITH_ALL {
        let node = slurm.call("scontrol -o show node localhost").unwrap();
        assert!(node.contains("CPUTot=8") && node.contains("CPUEfctv=7"), "{node}");
    }
    let words = ["\"maint\":true", "draining", "größe", "matlab", "second", "\"down\""];
    for word in words.into_iter().take(match (has_all, has_states) {
        (true, true) => 6,
        (true, false) => 5,
        _ => 1,
    }) {
        assert!(text.contains(word), "{word}: {text}");
    }
    super::jobs::compare(&folder, &slurm, &rest);
}

/// The replies of a reader to everything but the statistics.
fn replies(mut reader: Reader) -> Vec<Reply> {
    let options = ReplyOptions {
        partitions: true,
        rows: true,
        marks: true,
        features: true,
        ..ReplyOptions::default()
    };
    [ReplyKind::Nodes, ReplyKind::Licenses, ReplyKind::Reservations, ReplyKind::Controllers]
        .into_iter()
        .filter_map(|kind| reader.reading(&Request::new(kind, options)).ok()?.reply)
        .collect()
}

/// The reply without what slurmrestd does not report and what changes with time.
fn comparable(reply: &Reply, has_states: bool) -> Value {
    let mut value = serde_json::to_value(reply).unwrap();
    // cpu_load is a node's, elapsed and host are a controller's.
    strip(&mut value, &["last_update", "cpu_load", "elapsed", "host"]);
    if let Some(nodes) = value.get_mut("nodes") {
        nodes["future"].take();
    }
    let partitions =
        value.pointer_mut("/nodes/partitions/partitions").and_then(Value::as_array_mut);
    for partition in partitions.into_iter().flatten().filter(|_| !has_states) {
        partition["state"].take();
    }
    value
}
