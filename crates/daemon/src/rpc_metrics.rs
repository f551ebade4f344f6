//! RPC tables as figures: slurmctld's and slurmdbd's are alike. Rows by type and by user, and what they grew by since the last
//! reading.
//!
//! Types of messages are bounded by Slurm. Users are not: they have paths only where a setting says how many, the others are
//! one sum, and that sum and theirs are always the whole table. Interval figures are sums of rows' own growth, so that
//! they do not jump when a user changes sides.

use std::collections::BTreeMap;
use std::sync::Arc;

use slurm_snapshot::{Reading, RpcUser};

use crate::derive::{Calls, Tables};
use crate::metric::{Metric, Points, Rollup, number};
use crate::settings::Settings;
use crate::user_paths::{Candidate, UserPaths};

/// What the tables grew by, and in how long, s.
pub(crate) struct Growth {
    pub(crate) tables: Tables,
    pub(crate) seconds: f64,
}

impl Growth {
    /// Of one of the tables: its rows, and an interval without any of their calls.
    fn of<'a, K>(
        growth: Option<&'a Self>,
        table: impl Fn(&'a Tables) -> &'a BTreeMap<K, Calls>,
    ) -> Option<(&'a BTreeMap<K, Calls>, RowGrowth)> {
        let &Self { ref tables, seconds } = growth?;
        let rows = table(tables);
        Some((rows, RowGrowth { calls: Calls::default(), all: Calls::sum(rows.values()), seconds }))
    }
}

/// One row, or a sum of some.
#[derive(Default)]
pub(crate) struct CallsRow {
    calls: Calls,
    interval: Option<RowGrowth>,
}

/// What a row grew by.
#[derive(Clone, Copy)]
struct RowGrowth {
    calls: Calls,
    /// What the whole table grew by.
    all: Calls,
    seconds: f64,
}

/// The tables at the last reading, and which users have paths.
pub(crate) struct RpcHistory {
    before: Option<(Arc<Reading>, Tables)>,
    /// `None` if users have no paths of their own.
    user_paths: Option<UserPaths>,
}

impl RpcHistory {
    pub(crate) fn new(settings: &Settings, memory: Option<&str>) -> Self {
        Self { before: None, user_paths: UserPaths::of(settings, memory) }
    }

    pub(crate) const fn has_user_paths(&self) -> bool {
        self.user_paths.is_some()
    }

    /// What has grown since the last reading, for which `seconds` gives the time since then, if the counters went on.
    pub(crate) fn growth(
        &self,
        tables: &Tables,
        seconds: impl FnOnce(&Reading) -> Option<f64>,
    ) -> Option<Growth> {
        let (reading, before) = self.before.as_ref()?;
        Some(Growth { seconds: seconds(reading)?, tables: tables.since(before)? })
    }

    /// A row of each user who has a path, and the sum of the others.
    pub(crate) fn push_users(
        &mut self,
        family: &str,
        timestamp: i64,
        metrics: &[Metric<CallsRow>],
        users: (&[RpcUser], &Tables),
        growth: Option<&Growth>,
        points: &mut Points<'_>,
    ) {
        if let Some(user_paths) = &mut self.user_paths {
            push_users(family, user_paths, timestamp, metrics, users, growth, points);
        }
    }

    /// The next reading is compared with this one.
    pub(crate) fn keep(&mut self, reading: &Arc<Reading>, tables: Tables) {
        self.before = Some((Arc::clone(reading), tables));
    }

    pub(crate) fn changed_memory(&mut self) -> Option<String> {
        self.user_paths.as_mut()?.changed_memory()
    }
}

/// A row of each type below `family`, and their sum.
pub(crate) fn push_types(
    family: &str,
    name: impl Fn(u32) -> String,
    (calls, total): (&[Metric<CallsRow>], &[Metric<CallsRow>]),
    tables: &Tables,
    growth: Option<&Growth>,
    points: &mut Points<'_>,
) {
    let grown = Growth::of(growth, |tables| &tables.types);
    for (id, its) in &tables.types {
        let interval = grown.and_then(|(types, none)| Some(RowGrowth { calls: *types.get(id)?, ..none }));
        let row = CallsRow { calls: *its, interval };
        points.push(&format!("{family}.type.{}", name((*id).into())), calls, &row);
    }
    let row = CallsRow {
        calls: Calls::sum(tables.types.values()),
        interval: grown.map(|(_, none)| RowGrowth { calls: none.all, ..none }),
    };
    points.push(&format!("{family}.total"), total, &row);
}

fn push_users(
    family: &str,
    user_paths: &mut UserPaths,
    now: i64,
    metrics: &[Metric<CallsRow>],
    (rows, tables): (&[RpcUser], &Tables),
    growth: Option<&Growth>,
    points: &mut Points<'_>,
) {
    let grown = Growth::of(growth, |tables| &tables.users);
    let none = grown.map(|(_, none)| none);
    let users: BTreeMap<u32, &RpcUser> = rows.iter().map(|user| (user.id, user)).collect();
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
        if let Some(path) = user_paths.member(user) {
            let interval = none.and_then(|none| Some(RowGrowth { calls: grown?, ..none }));
            let row = CallsRow { calls, interval };
            points.push(&format!("{family}.user.{path}"), metrics, &row);
        } else {
            without += 1;
            others.calls += calls;
            if let (Some(interval), Some(grown)) = (&mut others.interval, grown) {
                interval.calls += grown;
            }
        }
    }
    let below = format!("{family}.others");
    points.push(&below, metrics, &others);
    points.push(&below, MEMBERS, &without);
}

/// By RPC time. Who keeps a thread at work for a tenth of the time is heavy.
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

const TOTAL_TIME: Metric<CallsRow> = Metric {
    leaf: "total_time",
    unit: "µs",
    rollup: Rollup::Last,
    value: |r| number(r.calls.time),
    meaning: "total time of those RPCs",
};

const CALLS_PER_MINUTE: Metric<CallsRow> = Metric {
    leaf: "calls_per_minute",
    unit: "1/min",
    rollup: Rollup::Average,
    value: calls_per_minute,
    meaning: "RPCs served in the interval, per minute",
};

const INTERVAL_MEAN_TIME: Metric<CallsRow> = Metric {
    leaf: "interval_mean_time",
    unit: "µs",
    rollup: Rollup::Average,
    value: interval_mean_time,
    meaning: "mean time of an RPC in the interval; no point without an RPC",
};

const fn served(since: &'static str) -> Metric<CallsRow> {
    let value = |row: &CallsRow| number(row.calls.count);
    Metric { leaf: "count", unit: "count", rollup: Rollup::Last, value, meaning: since }
}

/// The figures of a row; `since` says what the counts begin with, and `whose` time the share is of.
#[rustfmt::skip]
pub(crate) const fn calls(since: &'static str, mean: &'static str, whose: &'static str) -> [Metric<CallsRow>; 6] {
    [
    served(since),
    Metric { leaf: "mean_time", unit: "µs", rollup: Rollup::Average, value: |r| number(r.calls.time.checked_div(r.calls.count).unwrap_or(0)),
        meaning: mean },
    TOTAL_TIME,
    CALLS_PER_MINUTE,
    INTERVAL_MEAN_TIME,
    Metric { leaf: "time_share", unit: "0-1", rollup: Rollup::Average, value: time_share,
        meaning: whose },
    ]
}

/// The figures of all rows of a table together.
#[rustfmt::skip]
pub(crate) const fn total(since: &'static str) -> [Metric<CallsRow>; 5] {
    [
    served(since),
    TOTAL_TIME,
    CALLS_PER_MINUTE,
    INTERVAL_MEAN_TIME,
    Metric { leaf: "busy", unit: "count", rollup: Rollup::Average, value: busy,
        meaning: "average number of RPCs being served at once: RPC time in the interval divided by its length" },
    ]
}

#[rustfmt::skip]
pub(crate) const MEMBERS: &[Metric<usize>] = &[
    Metric { leaf: "members", unit: "count", rollup: Rollup::Average, value: |&users| number(users),
        meaning: "number of these users" },
];

fn calls_per_minute(row: &CallsRow) -> Option<f64> {
    let interval = row.interval?;
    Some(number(interval.calls.count)? * 60.0 / interval.seconds)
}

fn interval_mean_time(row: &CallsRow) -> Option<f64> {
    ratio(row.interval?.calls.time, row.interval?.calls.count)
}

fn time_share(row: &CallsRow) -> Option<f64> {
    ratio(row.interval?.calls.time, row.interval?.all.time)
}

fn busy(row: &CallsRow) -> Option<f64> {
    let interval = row.interval?;
    Some(number(interval.all.time)? / 1e6 / interval.seconds)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    if whole == 0 { None } else { Some(number(part)? / number(whole)?) }
}
