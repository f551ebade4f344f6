//! Outages, reboots and restarts of slurmd, from one reply about the nodes to the next:
//! docs/development/node-events.md has the rules. slurm-snapshot has the meaning of each single
//! state.
//!
//! Pure: the moments and the replies are arguments.

mod counts;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slurm_snapshot::{NodeMark, Nodes, OutageClass, Service, changes_power, service};

use self::counts::EventCounts;
pub(crate) use self::metrics::{LEVELS, push};

/// Seconds without a round after which events in that time are not counted, if it is also longer
/// than eight rounds: with `follow`, another host's daemon may have counted them.
const FORGOTTEN: i64 = 600;

/// Seconds that a node may be silent before it counts as down.
const SILENCE: i64 = 60;

/// Seconds by which `boot_time` may differ between two registrations without a reboot, or
/// slurmctld's clock from a node's.
const JITTER: i64 = 60;

/// Counts the events of the nodes of one cluster, round by round.
#[derive(Debug)]
pub(crate) struct NodeEvents {
    /// Seconds between two rounds, as configured.
    every: i64,
    /// Seconds that there were between the last three rounds, the older distance first.
    spacing: [i64; 2],
    memory: Memory,
    /// Whether the next reply is the first one after a restart of the daemon with a memory. Then
    /// each node that is not remembered was in service.
    is_resumed: bool,
    is_changed: bool,
}

/// The memory about nodes that outlasts restarts of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    /// The timestamp of the last round.
    last: Option<i64>,
    /// The nodes of the last reply, by name. Only those that are out of service or silent are
    /// stored.
    nodes: BTreeMap<String, WatchedNode>,
    total: EventCounts,
    partitions: BTreeMap<String, EventCounts>,
}

/// A node as the last round left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct WatchedNode {
    /// Moments at which slurmd was last started and the node last booted, Unix seconds; `None` if
    /// not known, or if power saving has changed the node since.
    #[serde(skip_serializing_if = "Option::is_none")]
    starts: Option<(i64, Option<i64>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<Outage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_since: Option<i64>,
    /// Whether no reply has said yet if the node is in service.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_undecided: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Outage {
    /// The timestamp of the round that saw the outage first, Unix seconds; `None` if it may have
    /// begun long before.
    since: Option<i64>,
    worst: OutageClass,
    now: OutageClass,
}

/// The counts of one round, each next to the same count since the first start.
#[derive(Debug, Default)]
pub(crate) struct EventsOfRound<'a> {
    total: (EventCounts, EventCounts),
    /// The counts by partition, if their members are known.
    partitions: Vec<(&'a str, (EventCounts, EventCounts))>,
}

/// The time since the round before.
#[derive(Clone, Copy, Debug)]
struct Passed {
    now: i64,
    /// Seconds in which every node stayed as it was seen.
    known: u64,
    /// Seconds in which anything may have happened.
    unknown: u64,
    /// Whether changes that this round sees may have happened long before it.
    is_gap: bool,
    /// Whether the time was so long that no event in it is counted.
    is_forgotten: bool,
}

impl NodeEvents {
    /// Continues with `memory`, which an earlier run has stored, in a round every `every` seconds.
    pub(crate) fn new(every: u32, memory: Option<&str>) -> Self {
        let memory: Option<Memory> = memory.and_then(|text| serde_json::from_str(text).ok());
        let memory = memory.unwrap_or_default();
        Self {
            every: every.into(),
            spacing: [0, 0],
            is_resumed: memory.last.is_some(),
            memory,
            is_changed: false,
        }
    }

    /// Takes the reply of the round at `now`, Unix seconds.
    pub(crate) fn round<'a>(&mut self, now: i64, nodes: &'a Nodes) -> EventsOfRound<'a> {
        let passed = self.pass(now);
        let is_new = !std::mem::take(&mut self.is_resumed) || passed.is_forgotten;
        if passed.is_forgotten {
            self.memory.nodes.clear();
        }
        self.is_changed = true;
        let mut total = EventCounts { unknown_seconds: passed.unknown, ..EventCounts::default() };
        // What has happened to each node, by its index: to most of them nothing.
        let mut happened = BTreeMap::new();
        for (index, mark) in nodes.marks.iter().enumerate() {
            let mut counts = EventCounts::default();
            if let Some(node) = self.memory.nodes.get_mut(&mark.name) {
                node.update(mark, passed, &mut counts);
            } else {
                let mut node = WatchedNode { is_undecided: is_new, ..WatchedNode::default() };
                node.update(mark, passed, &mut counts);
                self.memory.nodes.insert(mark.name.clone(), node);
            }
            if counts != EventCounts::default() {
                total.add(&counts);
                happened.insert(index, counts);
            }
        }
        total.removed = self.drop_absent(&nodes.marks);
        self.memory.total.add(&total);
        let mut round = EventsOfRound { total: (total, self.memory.total), partitions: Vec::new() };
        let Some(partitions) = &nodes.partitions else { return round };
        let mut before = std::mem::take(&mut self.memory.partitions);
        for partition in &partitions.partitions {
            let mut counts = EventCounts::default();
            let members = partition.members.iter().filter(|(first, last)| first <= last);
            members
                .flat_map(|&(first, last)| happened.range(first..=last))
                .for_each(|(_, of)| counts.add(of));
            let mut all = before.remove(&partition.name).unwrap_or_default();
            all.add(&counts);
            self.memory.partitions.insert(partition.name.clone(), all);
            round.partitions.push((&partition.name, (counts, all)));
        }
        round
    }

    /// The memory to write, if it has changed since the last call.
    pub(crate) fn changed_memory(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let Memory { last, nodes, total, partitions } = &self.memory;
        let is_kept = |node: &WatchedNode| node.outage.is_some() || node.silent_since.is_some();
        let kept = nodes.iter().filter(|(_, node)| is_kept(node));
        let nodes = kept.map(|(name, node)| (name.clone(), *node)).collect();
        let partitions = partitions.clone();
        serde_json::to_string(&Memory { last: *last, nodes, total: *total, partitions }).ok()
    }

    fn pass(&mut self, now: i64) -> Passed {
        let before = self.memory.last.replace(now);
        let passed = before.map_or(0, |before| now.saturating_sub(before));
        if passed < 0 {
            self.memory.nodes.values_mut().for_each(|node| node.forget_future(now));
        }
        // Rounds may be stretched all the time; one that is late stretches none.
        let every = self.every.max(self.spacing[0].min(self.spacing[1]));
        self.spacing = [self.spacing[1], passed];
        let is_long = passed > every.saturating_mul(2);
        let is_forgotten = passed > every.saturating_mul(8).max(FORGOTTEN);
        let seconds = u64::try_from(passed).unwrap_or(0);
        let (known, unknown) = if is_long { (0, seconds) } else { (seconds, 0) };
        Passed {
            now,
            known,
            unknown,
            is_gap: is_long || passed < 0 || before.is_none(),
            is_forgotten,
        }
    }

    /// Forgets nodes that the reply does not have; returns how many of them were out of service.
    fn drop_absent(&mut self, marks: &[NodeMark]) -> u64 {
        // Each node of the reply is among them.
        if self.memory.nodes.len() == marks.len() {
            return 0;
        }
        let present: BTreeSet<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
        let all = &mut self.memory.nodes;
        let absent = all.iter().filter(|(name, _)| !present.contains(name.as_str()));
        let out = absent.filter(|(_, node)| node.outage.is_some()).count();
        all.retain(|name, _| present.contains(name.as_str()));
        u64::try_from(out).unwrap_or(0)
    }
}

impl WatchedNode {
    /// Takes what a reply says about the node, and counts what has happened.
    fn update(&mut self, mark: &NodeMark, passed: Passed, counts: &mut EventCounts) {
        if let Some(outage) = self.outage {
            counts.class_counts(outage.now).node_seconds = passed.known;
        }
        self.start(mark, counts);
        let said = service(mark.state);
        if passed.is_gap {
            self.silent_since = None;
        }
        self.silent_since =
            (said == Service::Silent).then(|| self.silent_since.unwrap_or(passed.now));
        let is_silent = |since: i64| passed.now.saturating_sub(since) >= SILENCE;
        match said {
            Service::In => self.enter(passed, counts),
            Service::Out(class) => self.leave(class, passed, counts),
            Service::Silent if self.silent_since.is_some_and(is_silent) => {
                self.leave(OutageClass::Down, passed, counts);
            }
            Service::Silent | Service::Undecided => {}
        }
    }

    /// Notes that the node is in service. If it had an outage, counts its end.
    fn enter(&mut self, passed: Passed, counts: &mut EventCounts) {
        self.is_undecided = false;
        let Some(outage) = self.outage.take() else { return };
        let class = counts.class_counts(outage.worst);
        class.ended = 1;
        let Some(since) = outage.since.filter(|_| !passed.is_gap) else { return };
        let Ok(seconds) = u64::try_from(passed.now.saturating_sub(since)) else { return };
        class.timed = 1;
        class.seconds = seconds;
        class.longest = seconds;
    }

    /// Notes that the node is out of service. Counts an outage that begins, or that gets worse.
    fn leave(&mut self, class: OutageClass, passed: Passed, counts: &mut EventCounts) {
        let is_first = std::mem::take(&mut self.is_undecided);
        match &mut self.outage {
            Some(outage) => {
                outage.now = class;
                if class > outage.worst {
                    outage.worst = class;
                    counts.class_counts(class).reached = 1;
                }
            }
            // It was out when it was first seen.
            None if is_first => {
                self.outage = Some(Outage { since: None, worst: class, now: class })
            }
            None => {
                let since = (!passed.is_gap).then_some(passed.now);
                self.outage = Some(Outage { since, worst: class, now: class });
                counts.begun = 1;
                counts.class_counts(class).reached = 1;
            }
        }
    }

    /// Compares the moments at which slurmd and the node were started with those seen before, and
    /// counts restarts and reboots.
    fn start(&mut self, mark: &NodeMark, counts: &mut EventCounts) {
        if changes_power(mark.state) {
            self.starts = None;
            return;
        }
        // Not known until it registers, after slurmctld's restart.
        let Some(slurmd) = mark.slurmd_start_time else { return };
        if let Some((old_slurmd, old_boot)) = self.starts
            && slurmd != old_slurmd
        {
            counts.slurmd_restarts = 1;
            // It was booted later than before, and after its former slurmd was started.
            let reboot = mark.boot_time.zip(old_boot).filter(|(boot, old_boot)| {
                *boot > old_boot.saturating_add(JITTER) && *boot > old_slurmd.saturating_sub(JITTER)
            });
            counts.reboots = reboot.is_some().into();
        }
        let old_boot = self.starts.and_then(|(_, boot)| boot);
        self.starts = Some((slurmd, mark.boot_time.or(old_boot)));
    }

    /// Corrects moments after `now`, Unix seconds, when the clock was set back.
    fn forget_future(&mut self, now: i64) {
        if let Some(outage) = &mut self.outage {
            outage.since = outage.since.filter(|since| *since <= now);
        }
        self.silent_since = self.silent_since.map(|since| since.min(now));
    }
}

#[cfg(test)]
mod tests;
