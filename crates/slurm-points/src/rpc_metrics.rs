//! RPC tables as figures, the same for slurmctld and slurmdbd: rows by type and by user, and their growth since the
//! last reading.
//!
//! Slurm bounds the number of message types, but not of users. Only as many users as a setting allows have paths; all
//! others are one sum, and that sum together with the users' paths is always the whole table. Interval figures are sums
//! of the growth of rows, so they do not jump when a user gets or loses a path.

use std::collections::BTreeMap;
use std::sync::Arc;

use slurm_snapshot::{Reading, RpcUser};

use crate::derive::{Calls, Tables, exact_f64};
use crate::levels::{Level, Name, Points, Table};
use crate::settings::Settings;
use crate::user_paths::{Candidate, UserPaths};

/// The growth of the tables, and the seconds that it took.
pub(crate) struct Growth {
    pub(crate) tables: Tables,
    pub(crate) seconds: f64,
}

impl Growth {
    /// The growth of one table: its rows, and an interval without any calls.
    fn of<'a, K>(
        growth: Option<&'a Self>,
        table: impl Fn(&'a Tables) -> &'a BTreeMap<K, Calls>,
    ) -> Option<(&'a BTreeMap<K, Calls>, RowGrowth)> {
        let &Self { ref tables, seconds } = growth?;
        let rows = table(tables);
        Some((rows, RowGrowth { calls: Calls::default(), all: Calls::sum(rows.values()), seconds }))
    }
}

type CallsMetrics = Table<CallsRow>;

/// The sum of the users without a path, and how many they are.
pub(crate) type OthersTables = (CallsMetrics, Table<usize>);

/// The levels of one daemon's tables.
pub(crate) struct RpcLevels {
    pub(crate) type_: &'static Level<CallsMetrics, 1>,
    pub(crate) total: &'static Level<CallsMetrics, 0>,
    pub(crate) user: &'static Level<CallsMetrics, 1>,
    pub(crate) others: &'static Level<OthersTables, 0>,
}

/// One row, or a sum of some.
#[derive(Default)]
pub(crate) struct CallsRow {
    pub(crate) calls: Calls,
    pub(crate) interval: Option<RowGrowth>,
}

#[derive(Clone, Copy)]
pub(crate) struct RowGrowth {
    calls: Calls,
    /// The growth of the whole table.
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

    /// The growth since the last reading; `seconds` returns the time since then, or `None` if the counters were reset.
    pub(crate) fn growth(
        &self,
        tables: &Tables,
        seconds: impl FnOnce(&Reading) -> Option<f64>,
    ) -> Option<Growth> {
        let (reading, before) = self.before.as_ref()?;
        Some(Growth { seconds: seconds(reading)?, tables: tables.since(before)? })
    }

    /// Adds a row for each user who has a path, and the sum of the others.
    pub(crate) fn push_users(
        &mut self,
        levels: &RpcLevels,
        timestamp: i64,
        (rows, tables): (&[RpcUser], &Tables),
        growth: Option<&Growth>,
        points: &mut Points<'_>,
    ) {
        let Some(user_paths) = &mut self.user_paths else { return };
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
        user_paths.update(timestamp, &ranked);

        let mut others = CallsRow { interval: none, ..CallsRow::default() };
        let mut without = 0_usize;
        for (user, grown) in &candidates {
            let (calls, grown) = (tables.users.get(&user.uid).copied().unwrap_or_default(), *grown);
            if let Some(path) = user_paths.member(user) {
                let interval = none.and_then(|none| Some(RowGrowth { calls: grown?, ..none }));
                let row = CallsRow { calls, interval };
                points.push(levels.user, [Name::component(path)], &row);
            } else {
                without += 1;
                others.calls += calls;
                if let (Some(interval), Some(grown)) = (&mut others.interval, grown) {
                    interval.calls += grown;
                }
            }
        }
        points.push(levels.others, [], (&others, &without));
    }

    pub(crate) fn keep(&mut self, reading: &Arc<Reading>, tables: Tables) {
        self.before = Some((Arc::clone(reading), tables));
    }

    pub(crate) fn changed_memory(&mut self) -> Option<String> {
        self.user_paths.as_mut()?.changed_memory()
    }
}

/// Adds a row for each type, and their sum.
pub(crate) fn push_types(
    levels: &RpcLevels,
    name: impl Fn(u32) -> String,
    tables: &Tables,
    growth: Option<&Growth>,
    points: &mut Points<'_>,
) {
    let grown = Growth::of(growth, |tables| &tables.types);
    for (id, its) in &tables.types {
        let interval = grown.and_then(|(types, none)| Some(RowGrowth { calls: *types.get(id)?, ..none }));
        let row = CallsRow { calls: *its, interval };
        points.push(levels.type_, [Name::of(&name((*id).into()))], &row);
    }
    let row = CallsRow {
        calls: Calls::sum(tables.types.values()),
        interval: grown.map(|(_, none)| RowGrowth { calls: none.all, ..none }),
    };
    points.push(levels.total, [], &row);
}

/// Ranks by RPC time. A user who keeps a thread busy for a tenth of the time is heavy.
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

/// Declares the figures of a row and those of all rows together; `$since` says what the counts begin with, and `$whose` time the
/// share is of.
macro_rules! rpc_metrics {
    ($since:literal, $mean:literal, $whose:literal) => {
        metrics! {
            CALLS: CallsRow =
                last("count", "count", |r| r.calls.count, $since),
                average("mean_time", "µs", |r| r.calls.time.checked_div(r.calls.count).unwrap_or(0), $mean),
                last("total_time", "µs", |r| r.calls.time, "total time of those RPCs"),
                average("calls_per_minute", "1/min", |r| r.interval?.per_minute(), "RPCs served in the interval, per minute"),
                average("interval_mean_time", "µs", |r| r.interval?.mean_time(), "mean time of an RPC in the interval; no point without an RPC"),
                average("time_share", "0-1", |r| r.interval?.share(), $whose);
            TOTAL: CallsRow =
                last("count", "count", |r| r.calls.count, $since),
                last("total_time", "µs", |r| r.calls.time, "total time of those RPCs"),
                average("calls_per_minute", "1/min", |r| r.interval?.per_minute(), "RPCs served in the interval, per minute"),
                average("interval_mean_time", "µs", |r| r.interval?.mean_time(), "mean time of an RPC in the interval; no point without an RPC"),
                average("busy", "count", |r| r.interval?.busy(),
                    "average number of RPCs being served at once: RPC time in the interval divided by its length");
        }
    };
}
pub(crate) use rpc_metrics;

metrics! {
    pub(crate) MEMBERS: usize =
        average("members", "count", |&users| users, "number of these users");
}

impl RowGrowth {
    pub(crate) fn per_minute(self) -> f64 {
        exact_f64(self.calls.count) * 60.0 / self.seconds
    }

    pub(crate) fn mean_time(self) -> Option<f64> {
        ratio(self.calls.time, self.calls.count)
    }

    pub(crate) fn share(self) -> Option<f64> {
        ratio(self.calls.time, self.all.time)
    }

    pub(crate) fn busy(self) -> f64 {
        exact_f64(self.all.time) / 1e6 / self.seconds
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| exact_f64(part) / exact_f64(whole))
}
