//! Figures: sdiag's digits, exact growth, nothing across a reset, whole sums.

use proptest::collection::vec;
use proptest::prelude::*;
use slurm_snapshot::{DumpedRpcs, PendingRpc, RpcQueue};

use super::*;

#[test]
fn a_row_has_sdiags_digits() {
    let mut collector = rpc_stats(INTERVAL, 0, None);
    let types = vec![kind(2003, 3, 1000), kind(2009, 0, 0), kind(2, 7, 7)];
    let rpc = RpcTables { types, pending: Some(Vec::new()), ..RpcTables::default() };
    let found = tick(&mut collector, START, rpc);
    let expected = [
        ("type.REQUEST_JOB_INFO.count", 3.0),
        ("type.REQUEST_JOB_INFO.mean_time", 333.0),
        ("type.REQUEST_JOB_INFO.total_time", 1000.0),
        ("type.REQUEST_PARTITION_INFO.mean_time", 0.0),
        ("type.other.count", 7.0),
        ("total.count", 10.0),
        ("total.total_time", 1007.0),
        ("total.types", 3.0),
        ("total.users", 0.0),
        ("pending_total.count", 0.0),
    ];
    for (path, value) in expected {
        assert_eq!(found.get(path), Some(&value), "{path}");
    }
    let without =
        ["per_minute", "interval", "share", "queued", "busy", "user", "others", "pending."];
    for path in found.keys().filter(|path| *path != "total.users") {
        assert!(
            !without.iter().any(|without| path.contains(without)),
            "{path}: one reading tells none"
        );
    }
}

#[test]
fn an_interval_is_exact_and_a_new_type_has_grown_from_nothing() {
    let mut collector = rpc_stats(INTERVAL, 0, None);
    let rows = |types| RpcTables { types, ..RpcTables::default() };
    tick(&mut collector, START, rows(vec![kind(2003, u32::MAX - 4, 1 << 40), kind(2009, 5, 50)]));
    // A count that has passed the end of a u32.
    let now = vec![kind(2003, 2, (1 << 40) + 10), kind(2009, 5, 50), kind(2007, 3, 30)];
    let found = tick(&mut collector, START + 30, rows(now));
    let expected = [
        ("type.REQUEST_JOB_INFO.calls_per_minute", Some(14.0)),
        ("type.REQUEST_JOB_INFO.interval_mean_time", Some(10.0 / 7.0)),
        ("type.REQUEST_JOB_INFO.time_share", Some(0.25)),
        ("type.REQUEST_PARTITION_INFO.calls_per_minute", Some(0.0)),
        ("type.REQUEST_PARTITION_INFO.interval_mean_time", None),
        ("type.REQUEST_PARTITION_INFO.time_share", Some(0.0)),
        ("type.REQUEST_NODE_INFO.calls_per_minute", Some(6.0)),
        ("type.REQUEST_NODE_INFO.time_share", Some(0.75)),
        ("total.calls_per_minute", Some(20.0)),
        ("total.interval_mean_time", Some(4.0)),
        ("total.busy", Some(40e-6 / 30.0)),
    ];
    for (path, value) in expected {
        assert_eq!(found.get(path).copied(), value, "{path}");
    }
}

#[test]
fn tables_that_lost_a_row_or_shrank_make_no_interval() {
    let before = vec![kind(2003, 5, 50), kind(2009, 5, 50)];
    for now in [
        vec![kind(2003, 500, 500)],
        vec![kind(2003, 4, 60), kind(2009, 6, 60)],
        vec![kind(2003, 6, 49), kind(2009, 6, 60)],
    ] {
        let mut collector = rpc_stats(INTERVAL, 0, None);
        let rows = |types| RpcTables { types, ..RpcTables::default() };
        tick(&mut collector, START, rows(before.clone()));
        let found = tick(&mut collector, START + 30, rows(now));
        assert!(
            !found.keys().any(|path| path.contains("per_minute") || path.contains("share")),
            "{found:?}"
        );
    }
}

#[test]
fn the_queue_is_there_where_it_is_enabled() {
    let mut collector = rpc_stats(INTERVAL, 0, None);
    let queue = Some(RpcQueue { queued: 1, dropped: 2, cycle_last: 3, cycle_max: 4 });
    let types = vec![RpcType { queue, ..kind(2003, 1, 1) }, kind(2009, 1, 1)];
    let found = tick(&mut collector, START, RpcTables { types, ..RpcTables::default() });
    for (leaf, value) in
        [("queued", 1.0), ("dropped", 2.0), ("cycle_last", 3.0), ("cycle_max", 4.0)]
    {
        assert_eq!(found.get(&format!("type.REQUEST_JOB_INFO.{leaf}")), Some(&value));
        assert_eq!(found.get(&format!("type.REQUEST_PARTITION_INFO.{leaf}")), None);
    }
}

#[test]
fn what_waits_is_counted_by_type_and_host_lists_of_64_kib_do_no_harm() {
    let mut collector = rpc_stats(INTERVAL, 0, None);
    let pending = [(6009, 12), (6011, u32::MAX), (6009, 3), (77, 1)];
    let hostlist = "n[1-9],".repeat(64 * 1024 / 7);
    let found = tick(
        &mut collector,
        START,
        RpcTables {
            pending: Some(pending.map(|(id, count)| PendingRpc { id, count }).to_vec()),
            dumped: vec![DumpedRpcs { id: 6009, hostlist }; 25],
            ..RpcTables::default()
        },
    );
    let name = slurm_snapshot::rpc_name(6009, Release::new(24, 11)).unwrap();
    assert_eq!(found.get(&format!("pending.{name}.count")), Some(&15.0));
    assert_eq!(found.get("pending.other.count"), Some(&1.0));
    assert_eq!(found.get("pending_total.count"), Some(&(16.0 + f64::from(u32::MAX))));
    assert_eq!(found.get("pending_total.dumped"), Some(&25.0));
}

#[test]
fn no_two_types_of_a_release_share_a_name() {
    for release in [(20, 11), (22, 5), (23, 11), (24, 11), (25, 11), (26, 5), (99, 99)] {
        let release = Release::new(release.0, release.1);
        let names = (0..=u16::MAX).filter_map(|id| slurm_snapshot::rpc_name(id.into(), release));
        let names: Vec<&str> = names.collect();
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len(), "{release}");
    }
}

/// An event of slurmctld in one tick.
#[derive(Clone, Debug)]
enum TableEvent {
    Nothing,
    /// No reading at this tick.
    Missing,
    Command,
    Restart,
    Midnight,
}

fn events() -> impl Strategy<Value = TableEvent> {
    prop_oneof![
        12 => Just(TableEvent::Nothing),
        3 => Just(TableEvent::Missing),
        1 => Just(TableEvent::Command),
        1 => Just(TableEvent::Restart),
        1 => Just(TableEvent::Midnight),
    ]
}

/// RPCs of a tick: (type, user, µs).
fn traffic() -> impl Strategy<Value = Vec<(u16, u32, u32)>> {
    vec((0_u16..6, 0_u32..12, 0_u32..5_000_000), 0..30)
}

/// A slurmctld that keeps exact books.
#[derive(Default)]
struct Books {
    types: BTreeMap<u16, (u32, u64)>,
    /// The types as they came, which is the order of the table's rows.
    order: Vec<u16>,
    users: BTreeMap<u32, (u32, u64)>,
    /// The growth of each type since the last good reading.
    grown_types: BTreeMap<u16, (u32, u64)>,
    grown_users: BTreeMap<u32, (u32, u64)>,
    reset: bool,
    since: i64,
    backfilled: u32,
    ticks: u32,
}

fn add<K: Ord>(table: &mut BTreeMap<K, (u32, u64)>, key: K, micros: u32) {
    let row = table.entry(key).or_default();
    *row = (row.0 + 1, row.1 + u64::from(micros));
}

impl Books {
    fn serve(&mut self, traffic: &[(u16, u32, u32)]) {
        for &(kind, user, micros) in traffic {
            if !self.types.contains_key(&(2003 + kind)) {
                self.order.push(2003 + kind);
            }
            add(&mut self.types, 2003 + kind, micros);
            add(&mut self.users, user, micros);
            add(&mut self.grown_types, 2003 + kind, micros);
            add(&mut self.grown_users, user, micros);
        }
    }

    fn reset(&mut self, moment: i64) {
        self.types.clear();
        self.order.clear();
        self.users.clear();
        self.reset = true;
        self.since = moment;
        self.backfilled = 0;
    }

    fn reading_at(&self, moment: i64) -> Reading {
        let types =
            self.order.iter().map(|id| kind(*id, self.types[id].0, self.types[id].1)).collect();
        let users = self
            .users
            .iter()
            .map(|(&id, row)| user(id, Some(&format!("u{id}")), row.0, row.1))
            .collect();
        let mut reading =
            reading(moment, self.since, RpcTables { types, users, ..RpcTables::default() });
        reading.statistics.as_mut().unwrap().bf_backfilled_jobs = self.backfilled;
        reading
    }

    /// Holds a tick against the books.
    fn compare(&self, found: &TickPoints) {
        let (all_count, all_time) =
            self.grown_types.values().fold((0, 0), |(c, t), row| (c + row.0, t + row.1));
        let seconds = f64::from(self.ticks * INTERVAL);
        let figure = |path: String| found.get(&path).copied();
        let float = |value: u64| value.to_string().parse::<f64>().unwrap();
        if self.reset || self.ticks > 3 {
            assert!(
                !found.keys().any(|path| path.contains("per_minute") || path.contains("busy")),
                "{found:?}"
            );
        } else {
            assert!(near(found["total.calls_per_minute"] * seconds / 60.0, f64::from(all_count)));
            assert!(near(found["total.busy"] * seconds * 1e6, float(all_time)));
            for (kind, name) in [
                (2003, "REQUEST_JOB_INFO"),
                (2005, "REQUEST_JOB_STEP_INFO"),
                (2007, "REQUEST_NODE_INFO"),
            ] {
                let Some(per_minute) = figure(format!("type.{name}.calls_per_minute")) else {
                    assert!(
                        !self.types.contains_key(&kind),
                        "{name} is in the table and has no interval"
                    );
                    continue;
                };
                let (count, time) = self.grown_types.get(&kind).copied().unwrap_or_default();
                assert!(near(per_minute * seconds / 60.0, f64::from(count)));
                let share = figure(format!("type.{name}.time_share"));
                assert_eq!(share.is_some(), all_time > 0);
                assert!(share.is_none_or(|share| near(share * float(all_time), float(time))));
                let mean = figure(format!("type.{name}.interval_mean_time"));
                assert_eq!(mean, (count > 0).then(|| float(time) / f64::from(count)));
            }
            assert!(near(sum(found, "calls_per_minute"), found["total.calls_per_minute"]));
            assert!(all_time == 0 || near(sum(found, "time_share"), 1.0));
            let members = members(found);
            for (id, (count, _)) in &self.grown_users {
                // The last figure of one who has left is 0, because what he does is among the
                // others.
                if members.contains(&format!("u{id}").as_str())
                    && let Some(per_minute) = figure(format!("user.u{id}.calls_per_minute"))
                {
                    assert!(near(per_minute * seconds / 60.0, f64::from(*count)));
                }
            }
        }
        let total = self.users.values().fold((0, 0), |(c, t), row| (c + row.0, t + row.1));
        assert!(near(sum(found, "count"), f64::from(total.0)));
        assert!(near(sum(found, "total_time"), float(total.1)));
        let with_path = members(found).len();
        assert!(near(
            found["others.members"],
            f64::from(u32::try_from(self.users.len() - with_path).unwrap())
        ));
        assert!(found.values().all(|value| *value >= 0.0), "{found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn intervals_equal_exact_books_or_are_absent_and_sums_are_whole(
        ticks in vec((events(), traffic(), traffic()), 2..60),
        most in 1_usize..4,
    ) {
        let mut collector = rpc_stats(INTERVAL, most, None);
        // Nobody has read anything yet: as good as a reset.
        let mut books = Books { since: START - 600, reset: true, backfilled: 9,
            ..Books::default() };
        let mut now = START;
        for (event, before, after) in ticks {
            now += i64::from(INTERVAL);
            books.ticks += 1;
            books.serve(&before);
            match event {
                TableEvent::Command | TableEvent::Restart => books.reset(now - 10),
                TableEvent::Midnight => {
                    // Days later in one step: nothing is read across the gap, and slurmctld begins
                    // a day.
                    let midnight = (now / 86_400 + 1) * 86_400;
                    now = midnight + 15;
                    books.since = midnight;
                    books.ticks = 1000;
                }
                TableEvent::Nothing | TableEvent::Missing => {}
            }
            books.serve(&after);
            if matches!(event, TableEvent::Missing) {
                collect(&mut collector, now, None);
                continue;
            }
            let found = collect(&mut collector, now, Some(books.reading_at(now)));
            books.compare(&found);
            books.grown_types.clear();
            books.grown_users.clear();
            books.reset = false;
            books.ticks = 0;
        }
    }

    #[test]
    fn tables_of_any_content_make_points_and_no_panic(
        tables in vec(
            (
                vec((any::<u16>(), any::<u32>(), any::<u64>()), 0..20),
                vec((0_u32..6, any::<Option<String>>(), any::<bool>(), any::<u32>(), any::<u64>()),
                    0..20),
                vec((any::<u32>(), any::<u32>()), 0..5),
                (0..=i64::from(u32::MAX), any::<i64>(), proptest::num::f64::ANY),
            ),
            1..6,
        ),
        memory in any::<Option<String>>(),
    ) {
        let mut collector = rpc_stats(INTERVAL, 2, memory.as_deref());
        for (types, users, pending, (timestamp, since, time)) in tables {
            let user = |(id, name, looking_up, count, time)| RpcUser { id, name, looking_up, count,
                time };
            let rpc = RpcTables {
                types: types.into_iter().map(|(id, count, time)| kind(id, count, time)).collect(),
                users: users.into_iter().map(user).collect(),
                pending: Some(pending.into_iter().map(|(id, count)| PendingRpc { id,
                    count }).collect()),
                dumped: Vec::new(),
            };
            let mut reading = reading(START, since, rpc);
            reading.time = time;
            collect(&mut collector, timestamp, Some(reading));
            collector.paths.changed_memory();
        }
    }
}

#[test]
fn midnight_leaves_these_tables_alone() {
    let mut collector = rpc_stats(INTERVAL, 0, None);
    let rows = |count| RpcTables { types: vec![kind(2003, count, 10)], ..RpcTables::default() };
    let midnight = 1_700_006_400;
    assert_eq!(midnight % 86_400, 0);
    collect(&mut collector, midnight - 15, Some(reading(midnight - 15, midnight - 9000, rows(5))));
    let found =
        collect(&mut collector, midnight + 15, Some(reading(midnight + 15, midnight, rows(7))));
    assert_eq!(found.get("type.REQUEST_JOB_INFO.calls_per_minute"), Some(&4.0));
}
