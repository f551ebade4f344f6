//! Nodes and partitions compared with sinfo and scontrol; licences, reservations and controllers
//! compared with scontrol.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sandbox::{Folder, Slurm, wait};
use slurm_snapshot::{
    Answer, KnownSum, License, Memory, NodeTally, Nodes, Reply, Reservation, Shares,
};

use super::cast::{Cast, MAX_NODE_COUNT};
use super::oracle::{self, Row, shares, value};
use super::{answers, between, reply};

/// The states that must occur among these nodes, after the first release that has each of them.
const STATES: &str = "20.11 allocated completing down drained draining fail failing idle maint \
    mixed reboot reserved unknown 21.08 planned 22.05 inval";

/// Their flags. Of the others, power_up, undrain and reboot_cancel are over before anybody can
/// look, and for dynamic_future slurmd must have the hardware that it reports.
const FLAGS: &str = "20.11 cloud completing drain fail maintenance not_responding powered_down \
    powering_down powering_up reboot_requested reserved 21.08 planned power_down reboot_issued \
    22.05 invalid_reg dynamic_norm 24.11 blocked";

/// Those that this release has.
fn known(cast: &Cast, words: &'static str) -> Vec<&'static str> {
    let mut is_known = false;
    let mut known = Vec::new();
    for word in words.split(' ') {
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            is_known = cast.knows(word);
        } else if is_known {
            known.push(word);
        }
    }
    known
}

pub(crate) fn compare(cast: &Cast) -> Result<()> {
    let features = || cast.slurm.run("sinfo", &["-a", "-h", "-N", "-o", "%N|%b"]);
    let look = || Ok(((oracle::nodes(&cast.slurm)?, features()?), oracle::node_states(cast)?));
    wait::until("nodes in every state", wait::LIMIT, || {
        let nodes = oracle::nodes(&cast.slurm).unwrap_or_default();
        let seen: BTreeSet<String> = nodes.iter().map(|node| word(&node["statelong"])).collect();
        known(cast, STATES).iter().all(|state| seen.contains(*state))
    })
    .with_context(|| format!("{:?}", look().map(|((rows, _), _)| rows)))?;

    let request = r#"{"nodes":{"id":1,"options":{"partitions":true,"rows":true,"marks":true,"features":true}}}"#;
    let (((rows, features), states), reply) = between(|| reply(cast, request), look)?;
    let Reply::Nodes(nodes) = reply else { anyhow::bail!("{reply:?}") };
    let shown = u64::try_from(states.len())?;
    let records = if cast.knows("22.05") { MAX_NODE_COUNT } else { shown + 2 };
    ensure!((nodes.future, nodes.records, nodes.unparsed) == (Some(2), records, 0), "{nodes:?}");
    ensure!(nodes.blank == records - shown - 2, "{nodes:?}");
    totals(&rows, &nodes);
    fullness(&rows, &states, &nodes);
    out(&states, &nodes);
    by_feature(&rows, &features, &nodes);
    reserved(cast, &rows, &nodes)?;
    flags(&states, &nodes);
    for flag in known(cast, FLAGS) {
        ensure!(nodes.flags.contains_key(flag), "no node is {flag}");
    }
    partitions(cast, &rows, &nodes)
}

fn totals(rows: &[Row], nodes: &Nodes) {
    // A node has a row for each of its partitions, but counts once.
    let once: BTreeMap<&str, &Row> =
        rows.iter().map(|row| (row["nodelist"].as_str(), row)).collect();
    let used: Vec<_> = rows.iter().map(|row| &row["gresused"]).collect();
    assert_eq!(nodes.total, sum(once.values().copied()), "{used:?}");
    assert_eq!(nodes.states, by_state(once.values().copied()));
    let gpus: Vec<_> =
        nodes.gpus.iter().map(|(kind, of)| (kind.as_str(), of.total, of.allocated)).collect();
    assert_eq!(gpus, [("", 3, 2), ("a100", 17, 5), ("v100", 1, 0)]);
    assert_eq!((nodes.total.gpus.total, nodes.total.gpus.allocated), (21, 7));
    assert_eq!(nodes.rows.len(), once.len());
    for row in &nodes.rows {
        assert_eq!(row.tally, tally(once[row.name.as_str()]), "{}", row.name);
    }
}

/// Load, and how full the nodes are, from sinfo's columns of each node.
fn fullness(rows: &[Row], states: &BTreeMap<String, (String, BTreeSet<String>)>, nodes: &Nodes) {
    let once: BTreeMap<&str, &Row> =
        rows.iter().map(|row| (row["nodelist"].as_str(), row)).collect();
    let loads = once.values().filter_map(|row| row["cpusload"].parse::<f64>().ok());
    let load: f64 = loads.map(|load| load * 100.0).sum();
    let seen = nodes.cpu_load.value().unwrap_or(0);
    assert_eq!(format!("{load:.0}"), seen.to_string());
    let is_usable = |name: &str| {
        let (base, flags) = &states[name];
        base != "down" && !flags.contains("drain")
    };
    let float = |number: u64| f64::from(u32::try_from(number).unwrap());
    let shares = once.iter().filter(|(name, _)| is_usable(name)).map(|(_, row)| {
        let resources = tally(row);
        let part = |used, all| if all > 0 { float(used) / float(all) } else { 0.0 };
        let memory = part(row["allocmem"].parse().unwrap(), row["memory"].parse().unwrap());
        let parts = [
            part(resources.cpus.allocated, resources.cpus.total),
            part(resources.gpus.allocated, resources.gpus.total),
        ];
        parts.into_iter().fold(memory, f64::max).min(1.0)
    });
    let shares: Vec<f64> = shares.collect();
    let (seen, sum) = (nodes.scarcest, shares.iter().sum::<f64>());
    assert_eq!(seen.nodes, u64::try_from(shares.len()).unwrap());
    assert!(sum > 0.0 && (sum - float(seen.millionths) / 1e6).abs() < 1e-3, "{sum} {seen:?}");
}

/// The names of those that are out, by scontrol's words.
fn out(states: &BTreeMap<String, (String, BTreeSet<String>)>, nodes: &Nodes) {
    let shown = states.iter().filter(|(_, (base, flags))| {
        let has = |flag: &str| flags.contains(flag);
        let is_off = ["power_down", "powering_down", "power_drain"].into_iter().any(has);
        let moves = is_off || ["powered_down", "powering_up", "power_up"].into_iter().any(has);
        base == "down"
            || (has("drain") && !is_off)
            || has("fail")
            || (has("not_responding") && !moves)
    });
    let shown: BTreeSet<&str> = shown.map(|(name, _)| name.as_str()).collect();
    let named: BTreeSet<&str> = nodes.out.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(named, shown);
    assert!(nodes.out.len() > 4, "{named:?}");
}

/// By the active features that sinfo shows of each node.
fn by_feature(rows: &[Row], shown: &str, nodes: &Nodes) {
    let once: BTreeMap<&str, &Row> =
        rows.iter().map(|row| (row["nodelist"].as_str(), row)).collect();
    let mut expected: BTreeMap<String, NodeTally> = BTreeMap::new();
    let lines: BTreeSet<&str> = shown.lines().map(str::trim).collect();
    for (node, features) in lines.iter().filter_map(|line| line.split_once('|')) {
        let tally = NodeTally { memory: Memory::default(), ..tally(once[node]) };
        let names: BTreeSet<&str> =
            features.split(',').filter(|name| !["", "(null)"].contains(name)).collect();
        for name in names {
            let name = slurm_snapshot::name(name.as_bytes()).into_owned();
            expected.entry(name).or_default().add(&tally);
        }
    }
    let seen = nodes.features.as_ref().unwrap();
    assert_eq!((&seen.names, seen.others), (&expected, NodeTally::default()), "{shown}");
    let names: Vec<&str> = expected.keys().map(String::as_str).collect();
    for name in ["a.b", "a100", "c/d", "e;f", "größe", "ib", "new", "other"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.contains(&"slow"), "{names:?}");
    let ib = expected["ib"];
    let parts = [ib.nodes, ib.cpus, ib.gpus];
    assert!(parts.iter().all(|of| of.allocated > 0 && of.idle > 0 && of.other > 0), "{ib:?}");
}

/// By the nodes of the active reservations, and by sinfo's column of releases.
fn reserved(cast: &Cast, rows: &[Row], nodes: &Nodes) -> Result<()> {
    let once: BTreeMap<&str, &Row> =
        rows.iter().map(|row| (row["nodelist"].as_str(), row)).collect();
    let (mut maintenance, mut others) = (NodeTally::default(), NodeTally::default());
    for line in cast.slurm.call("scontrol -o show res")?.lines() {
        let field = |key| value(line, key).with_context(|| line.to_owned());
        if field("State")? == "ACTIVE" {
            let tallies =
                if field("Flags")?.contains("MAINT") { &mut maintenance } else { &mut others };
            tallies.add(&tally(once.get(field("Nodes")?).context("a reservation of one node")?));
        }
    }
    assert_eq!((nodes.maintenance, nodes.reserved), (maintenance, others));
    assert_eq!((maintenance.nodes.total, others.nodes.total), (1, 1));
    let mut slurmds: BTreeMap<String, u64> = BTreeMap::new();
    for row in once.values() {
        let known = row["version"].starts_with(|first: char| first.is_ascii_digit());
        *slurmds
            .entry(if known { row["version"].clone() } else { "unknown".to_owned() })
            .or_default() += 1;
    }
    assert_eq!(nodes.slurmds, slurmds);
    assert_eq!(slurmds.len(), 2, "{slurmds:?}");
    Ok(())
}

fn flags(states: &BTreeMap<String, (String, BTreeSet<String>)>, nodes: &Nodes) {
    let down = states.values().filter(|(base, _)| base == "down").count();
    let drained = states.values().filter(|(_, flags)| flags.contains("drain")).count();
    assert_eq!((nodes.down_since.len(), nodes.drain_since.len()), (down, drained));
    let mut expected: BTreeMap<String, NodeTally> = BTreeMap::new();
    for row in &nodes.rows {
        let (base, flags) = &states[&row.name];
        let shown = (base == "down", flags.contains("drain"), flags.contains("not_responding"));
        assert_eq!((row.down, row.drain, row.not_responding), shown, "{}", row.name);
        for flag in flags {
            expected.entry(flag.clone()).or_default().add(&row.tally);
        }
    }
    assert_eq!(nodes.flags, expected);
}

fn partitions(cast: &Cast, rows: &[Row], nodes: &Nodes) -> Result<()> {
    let shown = cast.slurm.call("sinfo -a -h -o %R|%a")?;
    let shown: BTreeMap<&str, &str> =
        shown.lines().filter_map(|line| line.trim().split_once('|')).collect();
    let partitions = &nodes.partitions.as_ref().context("no partitions")?.partitions;
    let mut with_gpus = 0;
    assert_eq!(partitions.len(), shown.len());
    for partition in partitions {
        let name = partition.name.as_str();
        assert_eq!(partition.state, shown[name].trim(), "{name}");
        let here = rows.iter().filter(|row| row["partitionname"] == name);
        assert_eq!(partition.total, sum(here.clone()), "{name}");
        let marks = partition.members.iter().flat_map(|&(first, last)| &nodes.marks[first..=last]);
        let marked: BTreeSet<&str> = marks.map(|mark| mark.name.as_str()).collect();
        assert_eq!(marked, here.clone().map(|row| row["nodelist"].as_str()).collect(), "{name}");
        let mut parts = NodeTally::default();
        partition.states.values().for_each(|tally| parts.add(tally));
        assert_eq!(partition.total, parts, "{name}");
        assert_eq!(partition.states, by_state(here.clone()), "{name}");
        let mut gpus: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for row in here {
            for (column, is_used) in [("gres", false), ("gresused", true)] {
                for (kind, count) in gpu_types(&row[column]) {
                    let (has, used) = gpus.entry(kind).or_default();
                    *(if is_used { used } else { has }) += count;
                }
            }
        }
        gpus.retain(|_, (has, used)| *has + *used > 0);
        let seen = partition.gpus.iter().map(|(kind, of)| (kind.clone(), (of.total, of.allocated)));
        assert_eq!(seen.collect::<BTreeMap<_, _>>(), gpus, "{name}");
        with_gpus += usize::from(!gpus.is_empty());
    }
    assert!(with_gpus >= 3, "GPUs in {with_gpus} partitions");
    Ok(())
}

pub(crate) fn compare_lists(cast: &Cast) -> Result<()> {
    let ask = |kind: &str| reply(cast, &format!("{{\"{kind}\":{{\"id\":1}}}}"));
    let scontrol = |what: &str| cast.slurm.run("scontrol", &["-o", "show", what]);
    let (shown, reply) = between(|| ask("licenses"), || scontrol("lic"))?;
    let Reply::Licenses(licenses) = reply else { anyhow::bail!("{reply:?}") };
    let licence = |of: &License| {
        let [total, free] = [of.total, of.free].map(|number| number.unwrap_or(u32::MAX));
        let [used, reserved] = [of.used, of.reserved].map(Option::unwrap);
        format!("{} {total} {used} {free} {reserved}", of.name)
    };
    let mut seen: Vec<_> = licenses.licenses.iter().map(licence).collect();
    let mut shown = values(&shown, &["LicenseName", "Total", "Used", "Free", "Reserved"]);
    // scontrol 26.05 sorts them.
    seen.sort_unstable();
    shown.sort_unstable();
    assert_eq!(seen, shown);
    assert!(seen.contains(&"matlab 2 2 0 0".to_owned()), "{seen:?}");

    let (shown, reply) = between(|| ask("reservations"), || scontrol("res"))?;
    let Reply::Reservations(reservations) = reply else { anyhow::bail!("{reply:?}") };
    let reservation = |of: &Reservation| {
        let active = of.start_time <= Some(reservations.last_update);
        format!(
            "{} {} {} {}",
            of.name,
            of.nodes.unwrap(),
            of.cores.unwrap(),
            if active { "ACTIVE" } else { "INACTIVE" }
        )
    };
    let seen: Vec<_> = reservations.reservations.iter().map(reservation).collect();
    assert_eq!(seen, values(&shown, &["ReservationName", "NodeCnt", "CoreCnt", "State"]));
    let upkeep =
        reservations.reservations.iter().find(|of| of.name == "upkeep").context("upkeep")?;
    assert!(upkeep.maint && reservations.reservations.iter().filter(|of| of.maint).count() == 1);
    assert_eq!(upkeep.end_time.unwrap() - upkeep.start_time.unwrap(), 600 * 60);

    let Reply::Controllers(controllers) = ask("controllers")? else {
        anyhow::bail!("no controllers")
    };
    let up: Vec<_> = controllers.iter().map(|of| (of.index, of.up)).collect();
    assert_eq!(up, [(0, true)]);
    assert!(controllers[0].elapsed > Some(0));
    Ok(())
}

#[test]
fn a_controller_that_only_slurmctld_knows_is_not_pinged() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    let own = folder.path().join("before.conf");
    fs::copy(slurm.conf(), &own).unwrap();
    slurm.configure("SlurmctldHost=spare(127.0.0.2)\n").unwrap();
    slurm.start_controller().unwrap();
    let count = |conf: &Path| {
        // After the first request the reader knows what slurmctld's slurm.conf says.
        let requests = "{\"statistics\":{\"id\":1}}\n{\"controllers\":{\"id\":2}}\n";
        let answers = answers(&folder, slurm.reader(None).unwrap(), conf, requests).unwrap();
        let [_, Answer::Reading(reading)] = answers.as_slice() else { panic!("{answers:?}") };
        let Some(Reply::Controllers(controllers)) = &reading.reply else { panic!("{reading:?}") };
        controllers.len()
    };
    // With the index after the last one, libslurm reads past the end of its own list.
    assert_eq!((count(&own), count(slurm.conf())), (1, 2));
}

fn values(text: &str, keys: &[&str]) -> Vec<String> {
    let line =
        |line: &str| keys.iter().map(|key| value(line, key).unwrap()).collect::<Vec<_>>().join(" ");
    text.lines().filter(|text| !text.trim().is_empty()).map(line).collect()
}

fn by_state<'a>(rows: impl IntoIterator<Item = &'a Row>) -> BTreeMap<String, NodeTally> {
    let mut states: BTreeMap<String, NodeTally> = BTreeMap::new();
    rows.into_iter()
        .for_each(|row| states.entry(word(&row["statelong"])).or_default().add(&tally(row)));
    states
}

fn sum<'a>(rows: impl IntoIterator<Item = &'a Row>) -> NodeTally {
    rows.into_iter().fold(NodeTally::default(), |mut sum, row| {
        sum.add(&tally(row));
        sum
    })
}

/// The resources of a node, according to sinfo.
fn tally(row: &Row) -> NodeTally {
    let number = |text: &str| KnownSum::new(text.parse().ok());
    let (nodes, cpus) = (shares(&row["nodeaiot"]), shares(&row["cpusstate"]));
    let gpus =
        |column: &str| -> u64 { gpu_types(&row[column]).iter().map(|(_, count)| count).sum() };
    NodeTally {
        nodes,
        cpus,
        // If sinfo counts CPUs as other, GPUs are other too.
        gpus: Shares::new(gpus("gresused"), gpus("gres"), cpus.other == 0),
        memory: {
            let [real, allocated, free] =
                ["memory", "allocmem", "freemem"].map(|column| number(&row[column]));
            Memory { real, allocated, free }
        },
    }
}

/// Types and counts in `gpu:a100:4(S:0-1)`, `gpu:(null):2(IDX:0-1)`, `gpu:3`, and with two types
/// `gpu:a100:1,gpu:v100:1`.
fn gpu_types(text: &str) -> Vec<(String, u64)> {
    let parts = text.split(",gpu:").filter_map(|text| {
        let text =
            text.strip_prefix("gpu:").unwrap_or(text).split("(IDX").next()?.split("(S:").next()?;
        let (kind, count) = text.rsplit_once(':').unwrap_or(("", text));
        Some((kind.replace("(null)", ""), count.parse().ok()?))
    });
    parts.collect()
}

fn word(state: &str) -> String {
    state.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}
