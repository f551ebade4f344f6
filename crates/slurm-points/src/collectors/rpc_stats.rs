//! `slurm_rpc_stats`: slurmctld's RPC tables as sdiag prints them, and what they grew by since the
//! last reading.
//!
//! rpc_metrics.rs computes the figures of a row.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use slurm_snapshot::{
    Release, ReplyKind, ReplyOptions, RpcQueue, RpcTables, add_to, rpc_name, sum_of,
};

use super::{Begin, Collect, Collector, Start, TickOutcome};
use crate::derive::{self, Reset, Tables};
use crate::levels::Names::{Closed, Ranked};
use crate::levels::{Name, OTHER, Table};
use crate::named_paths::Points;
use crate::rpc_metrics::{
    CallsRow, MEMBERS, OthersTables, RpcHistory, RpcLevels, Since, push_types, rpc_metrics,
};
use crate::settings::{Setting, Value};

pub(super) const COLLECTOR: Collector = Collector {
    name: "rpc_stats",
    comment: "slurmctld's RPC tables, which show what overloads it: slurm_rpc_stats. Up to 100 \
        message types.",
    settings: &[Setting {
        key: "users",
        default: Value::Users(0),
        comment: "\
Publish the top N users by RPC time, and root and slurm; 0 for none, at most 200. In Graphite
every path is a file that stays: within 30 days these are (5 * users + 2) * 6 + 7 files, 319 for
10 users. Put the rules of `slurm-graphite carbon-rules` in place first, and set queue.dir, where
their names are remembered.",
    }],
    levels: &[LEVELS],
    replies: &[ReplyKind::Statistics],
    start: Start::Tick(|Begin { interval, settings, .. }| {
        Box::new(RpcStats { interval: *interval, history: RpcHistory::new(settings) })
    }),
};

levels! {
    LEVELS:
    TYPE: Level<Table<CallsRow>, 1> = ("slurm_rpc_stats.type.<type>", [Closed], CALLS,
        "RPCs that slurmctld has served, by message type, for example `REQUEST_JOB_INFO`; unknown \
         types are one sum, `other`. slurmctld counts at most 100 types, since its start or `sdiag \
         --reset`, not since midnight. After `sdiag --reset` the figures of the interval are of \
         the time since then; across another reset there are none.");
    TYPE_QUEUE: Level<Table<RpcQueue>, 1> = ("slurm_rpc_stats.type.<type>", [Closed], QUEUE, "");
    ALL_TYPES: Level<Table<CallsRow>, 0> = ("slurm_rpc_stats.total", [], TOTAL, "All message types \
        of that table together.");
    TABLES: Level<Table<(usize, usize)>, 0> = ("slurm_rpc_stats.total", [], ROWS, "");
    USER: Level<Table<CallsRow>, 1> = ("slurm_rpc_stats.user.<user>", [Ranked], CALLS,
        "By user, if `users` in `[collectors.rpc_stats]` is above 0: the top users by RPC time. \
         The busiest keep slurmctld busy for a tenth of an interval. That makes (5 × `users` + 2) \
         × 6 + 7 files in 30 days: 319 for 10 users. The shipped rules keep them for 30 days.");
    OTHERS: Level<OthersTables, 0> = ("slurm_rpc_stats.others", [], (CALLS, MEMBERS),
        "All users without paths. When a user gets or loses paths, the counts since the start move \
         too; the figures of the interval do not jump.");
    PENDING: Level<Table<u64>, 1> = ("slurm_rpc_stats.pending.<type>", [Closed], OF_PENDING,
        "Messages to nodes that wait for an agent, by type; no point without messages.");
    PENDING_TOTAL: Level<Table<(u64, usize)>, 0> = ("slurm_rpc_stats.pending_total", [],
        ALL_PENDING, "All of those messages.");
}

const RPC_LEVELS: RpcLevels =
    RpcLevels { type_: &TYPE, total: &ALL_TYPES, user: &USER, others: &OTHERS };

struct RpcStats {
    interval: u32,
    /// The RPC tables of the last reading that had any.
    history: RpcHistory,
}

impl Collect<TickOutcome> for RpcStats {
    fn options(&self) -> ReplyOptions {
        ReplyOptions { rpc: true, users: self.history.has_users, ..ReplyOptions::default() }
    }

    fn collect(&mut self, _: i64, outcome: &TickOutcome, points: &mut Points<'_>) {
        let Some((reading, statistics)) = outcome.statistics() else { return };
        let Some(rpc) = &statistics.rpc else { return };
        let tables = Tables::from_rows(&rpc.types, &rpc.users);
        let mut is_whole = false;
        let growth = self.history.growth(&tables, |before| {
            if let Some(seconds) = derive::since_command(before, reading, self.interval) {
                return Some(Since::Reset(seconds));
            }
            let span = derive::span(before, reading, self.interval)?;
            // Midnight does not touch these tables.
            is_whole = matches!(span.reset, None | Some(Reset::Midnight));
            is_whole.then_some(Since::Reading(span.seconds))
        });
        let name = |id| type_name(id, reading.release);
        push_types(&RPC_LEVELS, name, &tables, growth.as_ref(), points);
        // Those of types that are not known have no sum.
        let queues: BTreeMap<&str, &RpcQueue> = rpc
            .types
            .iter()
            .filter_map(|row| Some((name(row.id.into()), row.queue.as_ref()?)))
            .collect();
        for (name, queue) in queues.into_iter().filter(|(name, _)| *name != OTHER) {
            points.push(&TYPE_QUEUE, [Name::new(name)], queue);
        }
        points.push(&TABLES, [], &(tables.types.len(), tables.users.len()));
        let users = (rpc.users.as_slice(), &tables);
        self.history.push_users(&RPC_LEVELS, users, growth.as_ref(), points);
        push_pending(reading.release, rpc, points);
        self.history.keep(reading, tables);
        // Across a reset there is no interval in which a user who is absent did nothing.
        if is_whole && growth.is_some() {
            points.end_round();
        }
    }
}

fn push_pending(release: Release, rpc: &RpcTables, points: &mut Points<'_>) {
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    let Some(pending) = &rpc.pending else { return };
    for row in pending {
        add_to(types.entry(type_name(row.id, release)).or_default(), row.count.into());
    }
    let count = sum_of(types.values().copied());
    for (name, count) in types {
        points.push(&PENDING, [Name::new(name)], &count);
    }
    points.push(&PENDING_TOTAL, [], &(count, rpc.dumped.len()));
}

fn type_name(id: u32, release: Release) -> &'static str {
    rpc_name(id, release).unwrap_or(OTHER)
}

rpc_metrics! {
    "RPCs served since slurmctld's start or sdiag --reset",
    "mean time of those RPCs, truncated: sdiag's ave_time",
    "share of the time that slurmctld spent on all RPCs in the interval"
}

metrics! {
    QUEUE: RpcQueue =
        average(queued, "count",
            "RPCs of this type in slurmctld's queue; from 24.05 on with enable_rpc_queue, as the \
             next three"),
        last(dropped, "count", "RPCs refused because the queue was full, since slurmctld's start \
            or sdiag --reset"),
        average(cycle_last, "count", "RPCs served in the last cycle of the queue"),
        max(cycle_max, "count", "largest number of RPCs served in one cycle of the queue");
    ROWS: (usize, usize) =
        average("types", "count", |(types, _)| *types, "rows in the table of types; at 100 it is \
            full, and slurmctld counts no further types"),
        average("users", "count", |(_, users)| *users, "rows in the table of users; at 200 it is \
            full, and slurmctld counts no further users");
    OF_PENDING: u64 =
        average("count", "count", |&messages| messages, "messages of this type that wait");
    ALL_PENDING: (u64, usize) =
        average("count", "count", |(count, _)| *count, "messages that wait; if it grows, nodes do \
            not answer"),
        average("dumped", "count", |(_, dumped)| *dumped,
            "messages that `sdiag` shows with their nodes: at most 25");
}
