//! `slurm_rpc_stats`: slurmctld's RPC tables as sdiag prints them, and what they grew by since the last reading.
//!
//! Types of messages are bounded by Slurm. Users are not: they have paths only where `users` says how many, the others are
//! one sum, and that sum and theirs are always the whole table. Interval figures are sums of rows' own growth, so that
//! they do not jump when a user changes sides.

#[cfg(test)]
#[path = "../../tests/inside/rpc_stats/tests.rs"]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use slurm_snapshot::{Reading, Release, ReplyKind, ReplyOptions, RpcQueue, RpcTables, RpcUser, rpc_name};

use super::{Begin, Collector, Paths, Start, TickCollector, TickOutcome};
use crate::derive::{self, Calls, Reset, Tables};
use crate::metric::{Metric, Points, Rollup, count};
use crate::settings::{Setting, Value};
use crate::user_paths::{Candidate, UserPaths};

pub(super) const COLLECTOR: Collector = Collector {
    name: "rpc_stats",
    comment: "slurmctld's RPC tables, which show what overloads it: slurm_rpc_stats. Up to 100 message types.",
    settings: &[Setting {
        key: "users",
        default: Value::Users(0),
        comment: "\
Publish the top N users by RPC time, and root and slurm; 0 for none, at most 200. In Graphite every path is a file that
stays: within 30 days these are (5 * users + 2) * 6 + 7 files, 319 for 10 users. Put the rules of
`slurm-graphite storage-schemas` in place first, and set queue.dir, where their names are remembered.",
    }],
    paths: &[
        Paths {
            below: "slurm_rpc_stats.type.<type>",
            about: "The RPCs that slurmctld has served, by message type, as `sdiag` shows them, for example \
                    `slurm_rpc_stats.type.REQUEST_JOB_INFO`; a type that this program does not know is `type_NUMBER`. \
                    slurmctld counts at most 100 types, since its start or `sdiag --reset`; midnight does not reset \
                    them. The figures *in the interval* are the growth between two readings; across a reset there are \
                    none.",
            leaves: &(CALLS, QUEUE),
        },
        Paths {
            below: "slurm_rpc_stats.total",
            about: "All message types of that table together.",
            leaves: &TOTAL,
        },
        Paths {
            below: "slurm_rpc_stats.user.<user>",
            about: "The same by user: only if `users` in `[collectors.rpc_stats]` is above 0, because every path is a \
                    file that stays. The top `users` by RPC time in an interval get paths for at least a day; `root` \
                    and `slurm` always have them. Within 30 days at most 5 × `users` (and those two) get paths, the \
                    last fifth only users who keep slurmctld busy for a tenth of an interval; all others are in \
                    `others`. With 6 figures each that makes (5 × `users` + 2) × 6 + 7 files in 30 days: 319 for 10 \
                    users; `slurm-graphite storage-schemas` keeps them for 30 days instead of three years. Across \
                    restarts this needs `queue.dir`. A character that is not legal in a path becomes `_`, and the name \
                    gets six hexadecimal digits of its hash. A user without a name is `uid_NUMBER`, and so is the \
                    second of two users with the same name.",
            leaves: &CALLS,
        },
        Paths {
            below: "slurm_rpc_stats.others",
            about: "All users without a path of their own, including those whose names are still being looked up. \
                    Together with the users' paths they are the whole table. When a user gets or loses paths, the \
                    counts since the start move too; the figures in the interval do not jump.",
            leaves: &(CALLS, MEMBERS),
        },
        Paths {
            below: "slurm_rpc_stats.pending.<type>",
            about: "Messages from slurmctld to nodes that wait for an agent, by type. A type without waiting messages \
                    has no point.",
            leaves: &PENDING,
        },
        Paths {
            below: "slurm_rpc_stats.pending_total",
            about: "All of those messages.",
            leaves: &PENDING_TOTAL,
        },
    ],
    replies: &[ReplyKind::Statistics],
    start: Start::Tick(|Begin { interval, settings, memory }| {
        Box::new(RpcStats::new(*interval, settings.users().unwrap_or(0), *memory))
    }),
};

struct RpcStats {
    interval: u32,
    before: Option<Before>,
    /// `None` where no user is wanted.
    user_paths: Option<UserPaths>,
    timestamp: i64,
}

/// The last reading that had tables.
struct Before {
    reading: Arc<Reading>,
    tables: Tables,
}

/// What the tables grew by, and in how long, s.
struct Growth {
    tables: Tables,
    seconds: f64,
}

impl Growth {
    /// Of one of the tables: its rows, and an interval without any of their calls.
    fn of<'a, K>(
        growth: Option<&'a Growth>,
        table: impl Fn(&'a Tables) -> &'a BTreeMap<K, Calls>,
    ) -> Option<(&'a BTreeMap<K, Calls>, RowGrowth)> {
        let &Growth { ref tables, seconds } = growth?;
        let rows = table(tables);
        Some((rows, RowGrowth { calls: Calls::default(), all: Calls::sum(rows.values()), seconds }))
    }
}

/// One row, or a sum of some.
#[derive(Default)]
struct CallsRow {
    calls: Calls,
    interval: Option<RowGrowth>,
    queue: Option<RpcQueue>,
}

/// What a row grew by.
#[derive(Clone, Copy)]
struct RowGrowth {
    calls: Calls,
    /// What the whole table grew by.
    all: Calls,
    seconds: f64,
}

struct Total {
    row: CallsRow,
    types: usize,
    users: usize,
}

struct Pending {
    count: u64,
    dumped: usize,
}

impl RpcStats {
    fn new(interval: u32, users: usize, memory: Option<&str>) -> Self {
        let user_paths = (users > 0).then(|| UserPaths::new(users, memory));
        Self { interval, before: None, user_paths, timestamp: 0 }
    }

    /// What has grown since the last reading, unless something lies between.
    fn growth(&self, reading: &Reading, tables: &Tables) -> Option<Growth> {
        let before = self.before.as_ref()?;
        let span = derive::span(&before.reading, reading, self.interval)?;
        // Midnight does not touch these tables.
        matches!(span.reset, None | Some(Reset::Midnight)).then_some(())?;
        Some(Growth { tables: tables.since(&before.tables)?, seconds: span.seconds })
    }
}

impl TickCollector for RpcStats {
    fn options(&self) -> ReplyOptions {
        ReplyOptions { rpc: true, users: self.user_paths.is_some(), ..ReplyOptions::default() }
    }

    fn collect(&mut self, timestamp: i64, outcome: &TickOutcome, points: &mut Points<'_>) {
        self.timestamp = timestamp;
        let Some(reading) = outcome.reading() else { return };
        let Some(rpc) = reading.statistics.as_ref().and_then(|statistics| statistics.rpc.as_ref()) else {
            return;
        };
        let tables = Tables::of(rpc);
        let growth = self.growth(reading, &tables);
        push_types(reading.release, rpc, &tables, growth.as_ref(), points);
        if let Some(user_paths) = &mut self.user_paths {
            push_users(user_paths, timestamp, rpc, &tables, growth.as_ref(), points);
        }
        push_pending(reading.release, rpc, points);
        self.before = Some(Before { reading: Arc::clone(reading), tables });
    }

    fn changed_memory(&mut self) -> Option<String> {
        self.user_paths.as_mut()?.changed_memory(self.timestamp)
    }
}

fn push_types(
    release: Release,
    rpc: &RpcTables,
    tables: &Tables,
    growth: Option<&Growth>,
    points: &mut Points<'_>,
) {
    let grown = Growth::of(growth, |tables| &tables.types);
    let mut queues: BTreeMap<u16, &RpcQueue> =
        rpc.types.iter().filter_map(|row| Some((row.id, row.queue.as_ref()?))).collect();
    for (id, calls) in &tables.types {
        let interval = grown.and_then(|(types, none)| Some(RowGrowth { calls: *types.get(id)?, ..none }));
        let row = CallsRow { calls: *calls, interval, queue: queues.remove(id).cloned() };
        let below = format!("slurm_rpc_stats.type.{}", type_name((*id).into(), release));
        points.push(&below, CALLS, &row);
        points.push(&below, QUEUE, &row);
    }
    let row = CallsRow {
        calls: Calls::sum(tables.types.values()),
        interval: grown.map(|(_, none)| RowGrowth { calls: none.all, ..none }),
        queue: None,
    };
    let total = Total { row, types: tables.types.len(), users: tables.users.len() };
    points.push("slurm_rpc_stats.total", TOTAL, &total);
}

fn push_users(
    user_paths: &mut UserPaths,
    now: i64,
    rpc: &RpcTables,
    tables: &Tables,
    growth: Option<&Growth>,
    points: &mut Points<'_>,
) {
    let grown = Growth::of(growth, |tables| &tables.users);
    let none = grown.map(|(_, none)| none);
    let users: BTreeMap<u32, &RpcUser> = rpc.users.iter().map(|user| (user.id, user)).collect();
    let seconds = none.map(|none| none.seconds);
    let candidates: Vec<(Candidate<'_>, Option<Calls>)> = users
        .values()
        .map(|user| {
            let grown = grown.and_then(|(users, _)| users.get(&user.id).copied());
            (candidate(user, grown, seconds), grown)
        })
        .collect();
    let ranked: Vec<Candidate<'_>> = candidates.iter().map(|(user, _)| *user).collect();
    user_paths.update(now, &ranked);

    let mut others = CallsRow { interval: none, ..CallsRow::default() };
    let mut without = 0_usize;
    for (user, grown) in &candidates {
        let (calls, grown) = (tables.users.get(&user.uid).copied().unwrap_or_default(), *grown);
        if let Some(path) = user_paths.member(user, now) {
            let interval = none.and_then(|none| Some(RowGrowth { calls: grown?, ..none }));
            let row = CallsRow { calls, interval, queue: None };
            points.push(&format!("slurm_rpc_stats.user.{path}"), CALLS, &row);
        } else {
            without += 1;
            others.calls += calls;
            if let (Some(interval), Some(grown)) = (&mut others.interval, grown) {
                interval.calls += grown;
            }
        }
    }
    points.push("slurm_rpc_stats.others", CALLS, &others);
    points.push("slurm_rpc_stats.others", MEMBERS, &without);
}

/// By RPC time. Who keeps a thread of slurmctld at work for a tenth of the time is heavy.
fn candidate(user: &RpcUser, grown: Option<Calls>, seconds: Option<f64>) -> Candidate<'_> {
    let busy = |grown: Calls| {
        let seconds = seconds.unwrap_or(f64::INFINITY);
        std::time::Duration::from_micros(grown.time).as_secs_f64() >= seconds / 10.0
    };
    Candidate {
        uid: user.id,
        name: user.name.as_deref(),
        looking_up: user.looking_up,
        rank: grown.filter(|grown| grown.time > 0).map(|grown| (grown.time, grown.count)),
        is_heavy: grown.is_some_and(busy),
    }
}

fn push_pending(release: Release, rpc: &RpcTables, points: &mut Points<'_>) {
    let mut types: BTreeMap<u32, u64> = BTreeMap::new();
    let Some(pending) = &rpc.pending else { return };
    for row in pending {
        let count = types.entry(row.id).or_default();
        *count = count.saturating_add(row.count.into());
    }
    let count = types.values().fold(0_u64, |sum, &count| sum.saturating_add(count));
    for (id, count) in types {
        points.push(&format!("slurm_rpc_stats.pending.{}", type_name(id, release)), PENDING, &count);
    }
    let dumped = rpc.dumped.len();
    points.push("slurm_rpc_stats.pending_total", PENDING_TOTAL, &Pending { count, dumped });
}

fn type_name(id: u32, release: Release) -> String {
    rpc_name(id, release).map_or_else(|| format!("type_{id}"), str::to_owned)
}

#[rustfmt::skip]
const CALLS: &[Metric<CallsRow>] = &[
    Metric { leaf: "count", unit: "count", rollup: Rollup::Last, value: |r| count(r.calls.count),
        meaning: "RPCs served since slurmctld's start or sdiag --reset" },
    Metric { leaf: "mean_time", unit: "µs", rollup: Rollup::Average, value: |r| count(r.calls.time.checked_div(r.calls.count).unwrap_or(0)),
        meaning: "mean time of those RPCs, truncated: sdiag's ave_time" },
    Metric { leaf: "total_time", unit: "µs", rollup: Rollup::Last, value: |r| count(r.calls.time),
        meaning: "total time of those RPCs" },
    Metric { leaf: "calls_per_minute", unit: "1/min", rollup: Rollup::Average, value: calls_per_minute,
        meaning: "RPCs served in the interval, per minute" },
    Metric { leaf: "interval_mean_time", unit: "µs", rollup: Rollup::Average, value: interval_mean_time,
        meaning: "mean time of an RPC in the interval; no point without an RPC" },
    Metric { leaf: "time_share", unit: "0-1", rollup: Rollup::Average, value: time_share,
        meaning: "share of the time that slurmctld spent on all RPCs in the interval" },
];

#[rustfmt::skip]
const QUEUE: &[Metric<CallsRow>] = &[
    Metric { leaf: "queued", unit: "count", rollup: Rollup::Average, value: |r| r.queue.as_ref().map(|q| q.queued.into()),
        meaning: "RPCs of this type in slurmctld's RPC queue. Like the next three, only from Slurm 24.05 on with enable_rpc_queue" },
    Metric { leaf: "dropped", unit: "count", rollup: Rollup::Last, value: |r| r.queue.as_ref().and_then(|q| count(q.dropped)),
        meaning: "RPCs refused because the queue was full, since slurmctld's start or sdiag --reset" },
    Metric { leaf: "cycle_last", unit: "count", rollup: Rollup::Average, value: |r| r.queue.as_ref().map(|q| q.cycle_last.into()),
        meaning: "RPCs served in the last cycle of the queue" },
    Metric { leaf: "cycle_max", unit: "count", rollup: Rollup::Max, value: |r| r.queue.as_ref().map(|q| q.cycle_max.into()),
        meaning: "largest number of RPCs served in one cycle of the queue" },
];

#[rustfmt::skip]
const TOTAL: &[Metric<Total>] = &[
    Metric { leaf: "count", unit: "count", rollup: Rollup::Last, value: |t| count(t.row.calls.count),
        meaning: "RPCs served since slurmctld's start or sdiag --reset" },
    Metric { leaf: "total_time", unit: "µs", rollup: Rollup::Last, value: |t| count(t.row.calls.time),
        meaning: "total time of those RPCs" },
    Metric { leaf: "calls_per_minute", unit: "1/min", rollup: Rollup::Average, value: |t| calls_per_minute(&t.row),
        meaning: "RPCs served in the interval, per minute" },
    Metric { leaf: "interval_mean_time", unit: "µs", rollup: Rollup::Average, value: |t| interval_mean_time(&t.row),
        meaning: "mean time of an RPC in the interval" },
    Metric { leaf: "busy", unit: "count", rollup: Rollup::Average, value: busy,
        meaning: "average number of RPCs being served at once: RPC time in the interval divided by its length" },
    Metric { leaf: "types", unit: "count", rollup: Rollup::Average, value: |t| length(t.types),
        meaning: "rows in the table of types; at 100 it is full, and slurmctld counts no further types" },
    Metric { leaf: "users", unit: "count", rollup: Rollup::Average, value: |t| length(t.users),
        meaning: "rows in the table of users; at 200 it is full, and slurmctld counts no further users" },
];

#[rustfmt::skip]
const MEMBERS: &[Metric<usize>] = &[
    Metric { leaf: "members", unit: "count", rollup: Rollup::Average, value: |&users| length(users),
        meaning: "number of these users" },
];

#[rustfmt::skip]
const PENDING: &[Metric<u64>] = &[
    Metric { leaf: "count", unit: "count", rollup: Rollup::Average, value: |&messages| count(messages),
        meaning: "messages of this type that wait" },
];

#[rustfmt::skip]
const PENDING_TOTAL: &[Metric<Pending>] = &[
    Metric { leaf: "count", unit: "count", rollup: Rollup::Average, value: |p| count(p.count),
        meaning: "messages that wait; if it grows, nodes do not answer" },
    Metric { leaf: "dumped", unit: "count", rollup: Rollup::Average, value: |p| length(p.dumped),
        meaning: "messages that `sdiag` and `slurm-graphite stats` show with their nodes: at most 25" },
];

fn calls_per_minute(row: &CallsRow) -> Option<f64> {
    let interval = row.interval?;
    Some(count(interval.calls.count)? * 60.0 / interval.seconds)
}

fn interval_mean_time(row: &CallsRow) -> Option<f64> {
    ratio(row.interval?.calls.time, row.interval?.calls.count)
}

fn time_share(row: &CallsRow) -> Option<f64> {
    ratio(row.interval?.calls.time, row.interval?.all.time)
}

fn busy(total: &Total) -> Option<f64> {
    let interval = total.row.interval?;
    Some(count(interval.all.time)? / 1e6 / interval.seconds)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    if whole == 0 { None } else { Some(count(part)? / count(whole)?) }
}

fn length(rows: usize) -> Option<f64> {
    u32::try_from(rows).ok().map(f64::from)
}
