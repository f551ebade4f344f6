//! `slurm_nodes`: nodes, CPUs, memory and GPUs by state, and how long nodes have been drained or
//! down.
//!
//! A node counts once here, whatever partitions it is in. FUTURE nodes count only as `future`.

use std::collections::BTreeMap;

use slurm_snapshot::{
    NodeRow, NodeTally, Nodes, OutNode, Reply, ReplyKind, ReplyOptions, Shards, Shares, add_to,
};

use super::{Begin, Collect, Collector, Start};
use crate::derive::exact_f64;
use crate::levels::Names::{Chosen, Closed, Configured};
use crate::levels::{Name, OTHER, Table};
use crate::named_paths::Points;
use crate::node_events::{self, NodeEvents};
use crate::node_metrics::{GPUS, SHARDS, SHARES, TALLY, WITHOUT_MEMORY};
use crate::replies::SurveyReplies;
use crate::settings::{EVENTS, Setting, Value};

const EACH: Setting = Setting {
    key: "each",
    default: Value::Flag(false),
    comment: "Also each node, with some twenty paths.",
};

const FEATURES: Setting = Setting {
    key: "features",
    default: Value::Names(0),
    comment: "\
Also by active feature: how many features have paths of their own, such as 20; 0 for none, at
most 1000. Twelve paths for each. A feature keeps them for 30 days after a node had it last.",
};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

pub(super) const COLLECTOR: Collector = Collector {
    name: "nodes",
    comment: "Nodes by state, CPUs, memory, GPUs: slurm_nodes.",
    settings: &[EACH, EVENTS, FEATURES],
    levels: &[LEVELS, node_events::LEVELS],
    replies: &[ReplyKind::Nodes],
    start: Start::Survey(|Begin { interval, settings, memory }| {
        let events = || NodeEvents::new(settings.interval(*interval), *memory);
        Box::new(NodesCollector {
            each: settings.flag(&EACH),
            events: settings.flag(&EVENTS).then(events),
            features: settings.names(&FEATURES) > 0,
        })
    }),
};

levels! {
    LEVELS:
    TOTAL: Level<Table<NodeTally>, 0> = ("slurm_nodes.total", [], SHARES,
        "Nodes: `[collectors.nodes]`. Each node counts once, even if it is in several partitions.");
    RECORDS: Level<Table<Nodes>, 0> = ("slurm_nodes.records", [], OF_RECORDS, "Nodes that are not \
        in the total, and what could not be parsed.");
    STATE: Level<Table<NodeTally>, 1> = ("slurm_nodes.state.<state>", [Closed], TALLY,
        "By the one state that sinfo shows (`sinfo -o %T`), in lower case and without its suffix.");
    FLAG: Level<Table<NodeTally>, 1> = ("slurm_nodes.flag.<flag>", [Closed], TALLY,
        "By the flags next to the state: `drain`, `not_responding`, `maintenance`, `reserved`, \
         `planned`, `powered_down`, `powering_up` and so on. A node may have several.");
    GPU: Level<Table<Shares>, 1> = ("slurm_nodes.gpu.<type>", [Configured(64)], GPUS, "GPUs by \
        type; those without a type are in `slurm_nodes.untyped_gpu`.");
    UNTYPED_GPU: Level<Table<Shares>, 0> = ("slurm_nodes.untyped_gpu", [], GPUS, "GPUs without a \
        type.");
    SHARD: Level<Table<Shards>, 1> = ("slurm_nodes.shard.<type>", [Configured(64)], SHARDS, "Shards \
        by the type of their GPUs; those without a type are in `slurm_nodes.untyped_shard`. Up to \
        Slurm 23.02 only `total` is known. Up to 25.11 `idle` has no point while a job has a whole \
        GPU of a node whose GPUs differ in shards.");
    UNTYPED_SHARD: Level<Table<Shards>, 0> = ("slurm_nodes.untyped_shard", [], SHARDS, "Shards of \
        GPUs without a type.");
    RESERVED: Level<Table<NodeTally>, 0> = ("slurm_nodes.reserved", [], SHARES,
        "Nodes in active reservations that are not for maintenance, whole nodes even if only some \
         cores are reserved.");
    MAINTENANCE: Level<Table<NodeTally>, 0> = ("slurm_nodes.maintenance", [], SHARES, "Nodes in \
        active reservations with the flag MAINT.");
    SLURMD: Level<Table<u64>, 1> = ("slurm_nodes.slurmd.<release>", [Configured(32)], SLURMDS,
        "Nodes by the release of their slurmd, with `_` for each point (`22_05_8`). `other`: texts \
         that are no release; `unknown`: nodes that have not registered since slurmctld was \
         started, or up to 22.05 since it was reconfigured.");
    DRAINED: Level<Table<Out>, 0> = ("slurm_nodes.drained", [], OUT, "How long nodes have been \
        drained or draining.");
    DOWN: Level<Table<Out>, 0> = ("slurm_nodes.down", [], OUT,
        "How long nodes that are not drained have been down, from the time of their reason.");
    OUT_NODE: Level<Table<OutNodes>, 1> = ("slurm_nodes.out.<node>", [Configured(200)], OF_OUT,
        "Each node that is down, drained or draining, set to fail, or not responding, and no \
         others: one that works again is 0 once more. Without nodes that power saving turns off \
         or on. 200 names have paths, each for 30 days after it was out last; `other`: the sum of \
         the rest.");
    FEATURE: Level<Table<NodeTally>, 1> = ("slurm_nodes.feature.<feature>", [Chosen],
        WITHOUT_MEMORY,
        "By active feature (`sinfo -o %b`): `features = N`, off by default. A node counts in each \
         of its features. N features have paths, each for 30 days after a node had it last; \
         `other`: the sum of the rest, in which a node counts once for each of its features.");
    ALL: Level<Table<Nodes>, 0> = ("slurm_nodes.all", [], OF_ALL,
        "How busy and how full all nodes are.");
    NODE: Level<Table<NodeTally>, 1> = ("slurm_nodes.node.<node>", [Configured(65_536)], SHARES,
        "Each node: `each = true`, off by default; with `node_state` it makes 19 paths.");
    NODE_STATE: Level<Table<NodeRow>, 1> = ("slurm_nodes.node_state.<node>", [Configured(65_536)],
        ROW, "Further figures of each node.");
}

struct NodesCollector {
    each: bool,
    events: Option<NodeEvents>,
    features: bool,
}

/// The moments since when nodes have been down, or drained, Unix seconds, the oldest first.
struct Out {
    since: Vec<i64>,
    now: i64,
}

/// The figures of one node that is out of service, or sums over several.
#[derive(Clone, Copy, Default, PartialEq)]
struct OutNodes {
    down: u64,
    drain: u64,
    fail: u64,
    not_responding: u64,
    since: Option<i64>,
}

metrics! {
    OF_OUT: OutNodes =
        average(down, "count", "1 if the node is down, regardless of whether it is also drained"),
        average(drain, "count", "1 if it is drained or draining"),
        average(fail, "count", "1 if it is set to fail"),
        average(not_responding, "count", "1 if its slurmd does not respond"),
        last("out_since", "Unix s", |o| o.since,
            "the time of its reason (`sinfo -R`), of several nodes the first; no point without a \
             reason");
    OF_ALL: Nodes =
        average("cpu_load", "load",
            |n| n.cpu_load.value().map(|load| exact_f64(load) / 100.0),
            "load averages over the last minute, of all nodes that report one"),
        average("scarcest_used", "fraction",
            |n| (n.scarcest.nodes > 0)
                .then(|| exact_f64(n.scarcest.millionths) / 1e6 / exact_f64(n.scarcest.nodes)),
            "mean of each usable node's greatest share in use, of CPUs, memory and GPUs (fasrc's \
             `peralloc`); jobs wait if it is near 1");
    OF_RECORDS: Nodes =
        average(future, "count", "FUTURE nodes: configured, but not present yet"),
        average(blank, "count", "records that slurmctld sent empty: up to 22.05 also powered-down \
             CLOUD nodes, if PrivateData lacks `cloud`"),
        average(unparsed, "count",
            "texts that could not be parsed; above 0, GPUs are missing from the other figures"),
        average("free_memory_unknown", "count", |n| n.total.memory.free.unknown(),
            "nodes that have not registered since slurmctld's start: `memory_free` has only the \
             others");
    SLURMDS: u64 =
        average("nodes", "count", |&nodes| nodes, "nodes");
    OUT: Out =
        average("over_1h", "count", |o| o.longer_than(HOUR), "nodes for over an hour"),
        average("over_1d", "count", |o| o.longer_than(DAY), "nodes for over a day"),
        average("over_7d", "count", |o| o.longer_than(7 * DAY), "nodes for over a week");
    ROW: NodeRow =
        average(down, "0 or 1",
            "whether the node is down, regardless of whether it is also drained"),
        average(drain, "0 or 1", "whether it is drained or draining"),
        average(not_responding, "0 or 1", "whether its slurmd does not respond"),
        average("cpu_load", "load", |r| r.cpu_load.map(|load| f64::from(load) / 100.0), "load \
            average over the last minute");
}

impl Collect<SurveyReplies> for NodesCollector {
    fn options(&self) -> ReplyOptions {
        let events = self.events.is_some();
        ReplyOptions {
            rows: self.each,
            features: self.features,
            marks: events,
            partitions: events,
            ..ReplyOptions::default()
        }
    }

    fn collect(&mut self, timestamp: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Nodes(nodes)) = replies.get(ReplyKind::Nodes) else { return };
        points.push(&TOTAL, [], &nodes.total);
        points.push(&RECORDS, [], nodes);
        points.push_words(&STATE, [], &[], &nodes.states);
        points.push_words(&FLAG, [], &[], &nodes.flags);
        points.push_types(&GPU, &UNTYPED_GPU, [], &nodes.gpus, Shares::add);
        points.push_types(&SHARD, &UNTYPED_SHARD, [], &nodes.shards, Shards::add);
        points.push(&RESERVED, [], &nodes.reserved);
        points.push(&MAINTENANCE, [], &nodes.maintenance);
        let slurmds =
            nodes.slurmds.iter().map(|(release, nodes)| (release.replace('.', "_"), *nodes));
        let mut slurmds: BTreeMap<String, u64> = slurmds.collect();
        let other = slurmds.remove(OTHER).unwrap_or(0);
        points.push_summed(&SLURMD, [], &slurmds, other, add_to);
        points.push(&ALL, [], nodes);
        points.push_summed(
            &OUT_NODE,
            [],
            &out_nodes(&nodes.out),
            OutNodes::default(),
            OutNodes::add,
        );
        if let Some(features) = nodes.features.as_ref().filter(|_| self.features) {
            let add = |sum: &mut NodeTally, more: NodeTally| sum.add(&more);
            points.push_summed(&FEATURE, [], &features.names, features.others, add);
        }
        let now = replies.there(ReplyKind::Nodes, timestamp);
        let out = |since: &[i64]| Out { since: since.to_owned(), now };
        points.push(&DRAINED, [], &out(&nodes.drain_since));
        points.push(&DOWN, [], &out(&nodes.down_since));
        for row in nodes.rows.iter().filter(|_| self.each) {
            points.push(&NODE, [Name::new(&row.name)], &row.tally);
            points.push(&NODE_STATE, [Name::new(&row.name)], row);
        }
        if let Some(events) = &mut self.events {
            node_events::push(points, &events.round(timestamp, nodes));
        }
        points.end_round();
    }

    fn changed_memory(&mut self) -> Option<String> {
        self.events.as_mut()?.changed_memory()
    }
}

fn out_nodes(nodes: &[OutNode]) -> BTreeMap<String, OutNodes> {
    let one = |node: &OutNode| OutNodes {
        down: node.down.into(),
        drain: node.drain.into(),
        fail: node.fail.into(),
        not_responding: node.not_responding.into(),
        since: node.since,
    };
    nodes.iter().map(|node| (node.name.clone(), one(node))).collect()
}

impl OutNodes {
    fn add(&mut self, more: Self) {
        slurm_snapshot::add_members!(self, more; down drain fail not_responding);
        self.since = self.since.into_iter().chain(more.since).min();
    }
}

impl Out {
    fn longer_than(&self, seconds: i64) -> usize {
        self.since.partition_point(|&since| self.now.saturating_sub(since) > seconds)
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{Features, NodeTally, Reply, Shares};

    use super::super::tests::{has_all, started, surveyed};
    use super::*;
    use crate::named_paths::NamedPaths;
    use crate::settings::Settings;

    #[test]
    fn each_node_has_as_many_paths_as_the_documentation_says() {
        let row = NodeRow {
            name: "n1".to_owned(),
            down: true,
            drain: true,
            cpu_load: Some(150),
            ..NodeRow::default()
        };
        let nodes = Nodes { rows: vec![row], ..Nodes::default() };
        let mut collector = started(&COLLECTOR, &[(EACH.key, Value::Flag(true))]);
        let points = surveyed(
            &mut collector,
            60,
            &SurveyReplies::with_only(ReplyKind::Nodes, Reply::Nodes(Box::new(nodes))),
        );
        let of_it: Vec<&String> = points.iter().filter(|point| point.contains(".n1.")).collect();
        let about = COLLECTOR
            .every_level()
            .find(|level| level.below == "slurm_nodes.node.<node>")
            .unwrap()
            .about;
        assert!(about.contains(&format!("makes {} paths", of_it.len())), "{of_it:#?}");
        let state = ["down 1", "drain 1", "not_responding 0", "cpu_load 1.5"];
        let state = state.map(|point| format!("c.slurm_nodes.node_state.n1.gauge-{point}"));
        assert_eq!(of_it[of_it.len() - 4..], state.each_ref()[..]);
    }

    /// On call the list of nodes was empty: only numbers of nodes were known.
    #[test]
    fn nodes_that_are_out_have_names_and_no_more_than_200_of_them_for_long() {
        let node = |name: &str, since| OutNode {
            name: name.to_owned(),
            drain: true,
            since: Some(since),
            ..OutNode::default()
        };
        let mut collector = started(&COLLECTOR, &[]);
        let mut round = |timestamp, out: Vec<OutNode>| {
            let nodes = Nodes { out, ..Nodes::default() };
            let reply = Reply::Nodes(Box::new(nodes));
            let replies = SurveyReplies::with_only(ReplyKind::Nodes, reply);
            let points = surveyed(&mut collector, timestamp, &replies).into_iter();
            points.filter(|point| point.contains("slurm_nodes.out.")).collect::<Vec<_>>()
        };
        let expected = ["down 0", "drain 1", "fail 0", "not_responding 0", "out_since 7"];
        let path = |name: &str, figure: &str| format!("c.slurm_nodes.out.{name}.gauge-{figure}");
        assert_eq!(round(60, vec![node("n1", 7)]), expected.map(|figure| path("n1", figure)));
        let well = ["down 0", "drain 0", "fail 0", "not_responding 0", "out_since 0"];
        assert_eq!(round(120, vec![]), well.map(|figure| path("n1", figure)));
        assert_eq!(round(180, vec![]), [""; 0], "once");
        let mut paths = std::collections::BTreeSet::new();
        for day in 1..10 {
            let bad = ["a.b/c;d", "other", "knoten-ü", &"n".repeat(300)];
            let new = (0..600).map(|number| node(&format!("x{day}-{number}"), day));
            let points =
                round(day * 3600, bad.map(|name| node(name, 9)).into_iter().chain(new).collect());
            paths.extend(
                points.iter().map(|point| point.split(".gauge-").next().unwrap().to_owned()),
            );
            has_all(&points, &[&path("other", &format!("out_since {}", day.min(9)))]);
        }
        assert_eq!(paths.len(), 200, "n1 keeps its own, and the others have one");
    }

    /// In Graphite each of them would be a file that stays.
    #[test]
    fn invented_features_get_no_more_paths_than_the_setting_says() {
        let settings = [(FEATURES.key, Value::Names(20))];
        let mut collector = started(&COLLECTOR, &settings);
        assert!(collector.collector.options().features);
        let mut round = |timestamp, names: Vec<String>| {
            let tally = NodeTally { nodes: Shares::new(1, 3, true), ..NodeTally::default() };
            let names = names.into_iter().map(|name| (name, tally)).collect();
            let features = Some(Features { names, ..Features::default() });
            let reply = Reply::Nodes(Box::new(Nodes { features, ..Nodes::default() }));
            let replies = SurveyReplies::with_only(ReplyKind::Nodes, reply);
            let points = surveyed(&mut collector, timestamp, &replies).into_iter();
            points.filter(|point| point.contains("slurm_nodes.feature.")).collect::<Vec<_>>()
        };
        let points = round(60, vec!["ib".to_owned()]);
        assert_eq!(points.len(), 12, "{points:#?}");
        let path =
            |name: &str, figure: &str| format!("c.slurm_nodes.feature.{name}.gauge-{figure}");
        has_all(&points, &[&path("ib", "nodes_allocated 1"), &path("ib", "nodes_idle 2")]);
        let mut paths = std::collections::BTreeSet::new();
        // 5,000 in a day, and bad ones.
        for hour in 0..24 {
            let bad = ["a.b/c;d", "other", "größe", "..", &"n".repeat(200)].map(str::to_owned);
            let new = (0..208).map(|number| format!("x{hour}-{number}"));
            let points = round(120 + hour * 3600, bad.into_iter().chain(new).collect());
            let last = if hour == 0 {
                path("ib", "nodes_idle 0")
            } else {
                // None of them has a path.
                path("other", "nodes_total 624")
            };
            has_all(&points, &[&last]);
            let names = points.iter().map(|point| point.split(".gauge-").next().unwrap());
            paths.extend(names.map(str::to_owned));
        }
        assert_eq!(paths.len(), 21, "20 and the sum: {paths:#?}");
        let legal = |path: &&String| path.split('.').count() == 4 && path.is_ascii();
        assert_eq!(paths.iter().filter(legal).count(), 21, "{paths:#?}");
        let notices: Vec<String> = collector.notices().collect();
        assert!(
            notices.len() == 1 && notices[0].contains("slurm_nodes.feature.<feature>"),
            "{notices:?}"
        );
        assert!(collector.notices().next().is_none(), "once");
        let saved = collector.paths.changed_memory().unwrap();
        assert!(saved.len() < 3000, "{}", saved.len());
        // A lower setting keeps those that were seen last.
        let lower = Settings {
            values: [(FEATURES.key, Value::Names(3))].into(),
            ..Settings::new(true, &[])
        };
        collector.paths = NamedPaths::new(&lower, Some(&saved));
        let reply = Reply::Nodes(Box::new(Nodes {
            features: Some(Features {
                names: (0..9).map(|n| (format!("y{n}"), NodeTally::default())).collect(),
                ..Features::default()
            }),
            ..Nodes::default()
        }));
        surveyed(&mut collector, 90_000, &SurveyReplies::with_only(ReplyKind::Nodes, reply));
        let kept = collector.paths.started(&FEATURE);
        assert!(kept.len() <= 4, "{kept:?}");
    }

    #[test]
    fn nodes_become_totals_states_and_how_long_they_are_out() {
        let tally = NodeTally { nodes: Shares::new(1, 3, true), ..NodeTally::default() };
        let nodes = Nodes {
            total: tally,
            states: [("mixed".to_owned(), tally)].into(),
            gpus: [("".to_owned(), Shares::new(2, 4, false))].into(),
            drain_since: vec![0, 9 * DAY, 10 * DAY - HOUR],
            ..Nodes::default()
        };
        let mut collector = started(&COLLECTOR, &[]);
        let points = surveyed(
            &mut collector,
            10 * DAY,
            &SurveyReplies::with_only(ReplyKind::Nodes, Reply::Nodes(Box::new(nodes))),
        );
        let expected = [
            "c.slurm_nodes.total.gauge-nodes_allocated 1",
            "c.slurm_nodes.total.gauge-nodes_idle 2",
            "c.slurm_nodes.state.mixed.gauge-nodes 3",
            "c.slurm_nodes.untyped_gpu.gauge-other 2",
            "c.slurm_nodes.drained.gauge-over_1h 2",
            "c.slurm_nodes.drained.gauge-over_1d 1",
            "c.slurm_nodes.drained.gauge-over_7d 1",
            "c.slurm_nodes.down.gauge-over_1h 0",
        ];
        has_all(&points, &expected);
    }
}
