//! The paths of node events.

use super::EventsOfRound;
use super::counts::{ClassCounts, EventCounts};
use crate::levels::Names::{Closed, Configured};
use crate::levels::{Name, Table};
use crate::metric::MetricTotals;
use crate::named_paths::Points;
use crate::settings::MOST_NAMES;

/// The tables of a round's events, and of their totals since the first start.
type Sums<T> = (Table<T>, MetricTotals<T>);

/// The tables of one class of outages: the longest outage of a round, and the sums.
type OfClass = (Table<ClassCounts>, Sums<ClassCounts>);

levels! {
    pub(crate) LEVELS:
    TOTAL: Level<Sums<EventCounts>, 0> = ("slurm_nodes.events.total", [], (EVENTS,
        MetricTotals(EVENTS)),
        "Outages, reboots and restarts of slurmd: `events = true` in `[collectors.nodes]`. An \
         outage lasts from the first round in which a node is out of service to the first in which \
         it is back; one of less than two rounds may be missed. Maintenance, power saving and \
         draining with jobs are no outages. docs/development/node-events.md has every rule.");
    WATCH: Level<Sums<EventCounts>, 0> = ("slurm_nodes.events.total", [], (WATCHED,
        MetricTotals(WATCHED)), "");
    CLASS: Level<OfClass, 1> = ("slurm_nodes.events.class.<class>", [Closed], CLASSES,
        "Outages by class, the worst first: `down`; `fail` (set by an administrator, and no job \
         left); `reboot` (by `scontrol reboot`); `drained` (and no job left). An outage belongs to \
         the worst class that it came to. `outage_seconds` divided by `ended_timed` is the mean \
         time to repair, except of `drained`.");
    PARTITION: Level<Sums<EventCounts>, 1> = ("slurm_nodes.events.partition.<partition>.total",
        [Configured(MOST_NAMES)], (EVENTS, MetricTotals(EVENTS)),
        "The same of the nodes of one partition. A node in two partitions counts in each.");
    PARTITION_CLASS: Level<OfClass, 2> = ("slurm_nodes.events.partition.<partition>.class.<class>",
        [Configured(MOST_NAMES), Closed], CLASSES, "By partition and class.");
}

/// The words for classes of outages in paths, in the order of [`EventCounts::classes`].
const WORDS: [&str; 4] = ["drained", "reboot", "fail", "down"];

metrics! {
    EVENTS: EventCounts =
        average(begun, "count", "outages that began since the last round"),
        average("ended", "count", |e| e.ended(), "outages that ended with the node's return"),
        average(reboots, "count",
            "nodes that were booted again; not a first boot, nor one by power saving"),
        average(slurmd_restarts, "count",
            "nodes whose slurmd was started again, also by a reboot or, from 23.11 on, `scontrol \
             reconfigure`");
    WATCHED: EventCounts =
        average(removed, "count",
            "nodes that left slurmctld's list during an outage, which does not end"),
        average(unknown_seconds, "s",
            "time since the last round, if longer than two rounds; what happened counts without \
             its time, after ten minutes not at all");
    OF_CLASS: ClassCounts =
        average(reached, "count",
            "outages that came to this class; one that gets worse counts in both"),
        average(ended, "count", "outages that ended and had no worse class"),
        average("ended_timed", "count", |c| c.timed, "those of them whose beginning and end were \
            both seen"),
        average("outage_seconds", "s", |c| c.seconds,
            "how long these `ended_timed` lasted together"),
        average(node_seconds, "s",
            "time that nodes spent in this class since the last round; all classes together are \
             the lost capacity");
    LONGEST: ClassCounts =
        max("outage_seconds_max", "s", |c| (c.timed > 0).then_some(c.longest),
            "the longest of the `ended_timed`; no point if there are none");
}

const CLASSES: OfClass = (LONGEST, (OF_CLASS, MetricTotals(OF_CLASS)));

/// Adds the points of a round's node events.
pub(crate) fn push(points: &mut Points<'_>, round: &EventsOfRound<'_>) {
    let (now, all) = &round.total;
    points.push(&TOTAL, [], (now, all));
    points.push(&WATCH, [], (now, all));
    for (class, (now, all)) in WORDS.into_iter().zip(now.classes.iter().zip(&all.classes)) {
        points.push(&CLASS, [Name::new(class)], (now, (now, all)));
    }
    for (partition, (now, all)) in &round.partitions {
        points.push(&PARTITION, [Name::new(partition)], (now, all));
        for (class, (now, all)) in WORDS.into_iter().zip(now.classes.iter().zip(&all.classes)) {
            points.push(
                &PARTITION_CLASS,
                [Name::new(partition), Name::new(class)],
                (now, (now, all)),
            );
        }
    }
}
