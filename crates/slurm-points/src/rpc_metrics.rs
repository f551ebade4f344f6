//! RPC tables as figures, the same for slurmctld and slurmdbd: rows by type and by user, and their
//! growth since the last reading.
//!
//! Types that this program does not know are one sum. Only as many users as a setting allows have
//! paths; all others are one sum, too, and that sum together with the users' paths is always the
//! whole table. Interval figures are sums of the growth of rows, so they do not jump when a user
//! gets or loses a path.

use std::collections::BTreeMap;
use std::sync::Arc;

use slurm_snapshot::{Reading, RpcUser};

use crate::derive::{Calls, Tables, exact_f64};
use crate::levels::{Level, Name, Table};
use crate::named_paths::Points;
use crate::settings::Settings;
use crate::user_paths::Candidate;

/// The time in which RPC tables have grown.
pub(crate) enum Since {
    /// Seconds since the last reading.
    Reading(f64),
    /// Seconds since the tables were emptied.
    Reset(f64),
}

/// The growth of the RPC tables, and the seconds that it took.
pub(crate) struct Growth {
    pub(crate) tables: Tables,
    pub(crate) seconds: f64,
}

impl Growth {
    /// Returns the growth of each row of one table, and a [`RowGrowth`] without calls, to which
    /// rows are added.
    fn between_rows<'a, K>(
        growth: Option<&'a Self>,
        table: impl Fn(&'a Tables) -> &'a BTreeMap<K, Calls>,
    ) -> Option<(&'a BTreeMap<K, Calls>, RowGrowth)> {
        let &Self { ref tables, seconds } = growth?;
        let rows = table(tables);
        Some((rows, RowGrowth { calls: Calls::default(), all: Calls::sum(rows.values()), seconds }))
    }
}

type CallsMetrics = Table<CallsRow>;

/// The tables of the users without a path: their sum, and their number.
pub(crate) type OthersTables = (CallsMetrics, Table<usize>);

/// The levels of the RPC tables of slurmctld, or of slurmdbd.
pub(crate) struct RpcLevels {
    pub(crate) type_: &'static Level<CallsMetrics, 1>,
    pub(crate) total: &'static Level<CallsMetrics, 0>,
    pub(crate) user: &'static Level<CallsMetrics, 1>,
    pub(crate) others: &'static Level<OthersTables, 0>,
}

/// The values of one row of an RPC table, or of a sum of rows.
#[derive(Default)]
pub(crate) struct CallsRow {
    pub(crate) calls: Calls,
    pub(crate) interval: Option<RowGrowth>,
}

/// The growth of one row, or of a sum of rows, in one interval.
#[derive(Clone, Copy)]
pub(crate) struct RowGrowth {
    calls: Calls,
    /// The growth of the whole table.
    all: Calls,
    seconds: f64,
}

/// The RPC tables of the last reading.
pub(crate) struct RpcHistory {
    /// Whether users have paths.
    pub(crate) has_users: bool,
    before: Option<(Arc<Reading>, Tables)>,
    /// Growth, by uid, of users who could get no path at the last reading because their names were
    /// still being looked up. It counts for their rank in the next round.
    unranked: BTreeMap<u32, Calls>,
}

impl RpcHistory {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { has_users: settings.users() > Some(0), before: None, unranked: BTreeMap::new() }
    }

    /// Returns the growth since the last reading, if `since` can say how long it took; `None` also
    /// if the tables do not belong together.
    pub(crate) fn growth(
        &self,
        tables: &Tables,
        since: impl FnOnce(&Reading) -> Option<Since>,
    ) -> Option<Growth> {
        let (reading, before) = self.before.as_ref()?;
        Some(match since(reading)? {
            Since::Reading(seconds) => Growth { seconds, tables: tables.since(before)? },
            Since::Reset(seconds) => Growth { seconds, tables: tables.clone() },
        })
    }

    /// Adds a row for each user who has a path, and the sum of the others.
    pub(crate) fn push_users(
        &mut self,
        levels: &RpcLevels,
        (rows, tables): (&[RpcUser], &Tables),
        growth: Option<&Growth>,
        points: &mut Points<'_>,
    ) {
        if !self.has_users {
            return;
        }
        let grown = Growth::between_rows(growth, |tables| &tables.users);
        let none = grown.map(|(_, none)| none);
        let users: BTreeMap<u32, &RpcUser> = rows.iter().map(|user| (user.id, user)).collect();
        let seconds = none.map(|none| none.seconds);
        let growth_of = |id: u32| grown.and_then(|(users, _)| users.get(&id).copied());
        let unranked = std::mem::take(&mut self.unranked);
        let candidates = users.values().map(|user| {
            let grown = growth_of(user.id);
            let ranked = unranked.get(&user.id).copied().into_iter().chain(grown).max();
            if let Some(grown) = ranked.filter(|_| user.looking_up) {
                self.unranked.insert(user.id, grown);
            }
            candidate(user, ranked, seconds)
        });
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        points.rank(&candidates);
        let mut others = CallsRow { interval: none, ..CallsRow::default() };
        let mut without = 0_usize;
        for user in &candidates {
            let calls = tables.users.get(&user.uid).copied().unwrap_or_default();
            let grown = growth_of(user.uid);
            if let Some(path) = points.user(user) {
                let interval = none.and_then(|none| Some(RowGrowth { calls: grown?, ..none }));
                let row = CallsRow { calls, interval };
                points.push(levels.user, [Name::component(&path)], &row);
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
}

/// Adds a row for each message type, and the sum of all rows.
pub(crate) fn push_types(
    levels: &RpcLevels,
    name: impl Fn(u32) -> &'static str,
    tables: &Tables,
    growth: Option<&Growth>,
    points: &mut Points<'_>,
) {
    let grown = Growth::between_rows(growth, |tables| &tables.types);
    let mut rows: BTreeMap<&str, CallsRow> = BTreeMap::new();
    for (id, calls) in &tables.types {
        let interval = grown.map(|(_, none)| none);
        let row =
            rows.entry(name((*id).into())).or_insert(CallsRow { interval, ..CallsRow::default() });
        row.calls += *calls;
        if let (Some(interval), Some((types, _))) = (&mut row.interval, grown) {
            interval.calls += types.get(id).copied().unwrap_or_default();
        }
    }
    for (name, row) in rows {
        points.push(levels.type_, [Name::new(name)], &row);
    }
    let row = CallsRow {
        calls: Calls::sum(tables.types.values()),
        interval: grown.map(|(_, none)| RowGrowth { calls: none.all, ..none }),
    };
    points.push(levels.total, [], &row);
}

/// Makes a candidate of a user, ranked by RPC time. A user whose RPCs keep a thread busy for a
/// tenth of the time is heavy.
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

/// Declares the figures of a row of an RPC table and those of all rows together. `$since` says
/// since when RPCs are counted, `$mean` what their mean time is, and `$whose` of whose time a row
/// has a share.
macro_rules! rpc_metrics {
    ($since:literal, $mean:literal, $whose:literal) => {
        metrics! {
            CALLS: CallsRow =
                last("count", "count", |r| r.calls.count, $since),
                average("mean_time", "µs", |r|
                    r.calls.time.checked_div(r.calls.count).unwrap_or(0), $mean),
                last("total_time", "µs", |r| r.calls.time, "total time of those RPCs"),
                average("calls_per_minute", "1/min", |r| r.interval?.per_minute(),
                    "RPCs served in the interval, per minute"),
                average("interval_mean_time", "µs", |r| r.interval?.mean_time(),
                    "mean time of an RPC in the interval"),
                average("time_share", "0-1", |r| r.interval?.share(), $whose);
            TOTAL: CallsRow =
                last("count", "count", |r| r.calls.count, $since),
                last("total_time", "µs", |r| r.calls.time, "total time of those RPCs"),
                average("calls_per_minute", "1/min", |r| r.interval?.per_minute(),
                    "RPCs served in the interval, per minute"),
                average("interval_mean_time", "µs", |r| r.interval?.mean_time(),
                    "mean time of an RPC in the interval"),
                average("busy", "count", |r| r.interval?.busy(),
                    "RPCs being served at once: RPC time in the interval divided by its length");
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
