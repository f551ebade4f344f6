//! Tests of who has a path: names, membership, the bound, and what survives a restart.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const DAY: i64 = 86_400;

/// Everybody costs a bit more at each tick, by his number.
fn everybody(names: &[(u32, Option<&str>)], tick: u32) -> RpcTables {
    let row = |&(id, name): &(u32, Option<&str>)| {
        user(id, name, tick, u64::from(tick) * u64::from(1000 - id % 1000))
    };
    users(names.iter().map(row).collect())
}

/// Two ticks, of which the second knows who was among the first.
fn two_ticks(collector: &mut RpcStats, names: &[(u32, Option<&str>)]) -> TickPoints {
    tick(collector, START, everybody(names, 1));
    tick(collector, START + 30, everybody(names, 2))
}

#[test]
fn odd_names_neither_merge_nor_break_a_path() {
    let changed = carbon_wire::path::component("john.doe").into_owned();
    let names = [
        (0, Some("root")),
        (1, Some("john.doe")),
        (2, Some("john@doe")),
        (3, Some("john_doe")),
        (4, Some(changed.as_str())),
        (5, Some("others")),
        (6, Some("total")),
        (7, Some("uid_1000")),
        (8, Some("")),
        (9, Some("jürgen")),
        (10, Some("用户")),
        (11, Some("..")),
        (12, Some("a/b c;d=e")),
        (13, Some("uid_")),
        (14, Some("Root")),
        (1000, None),
        (u32::MAX, None),
    ];
    let mut collector = rpc_stats(INTERVAL, 200, None);
    let found = two_ticks(&mut collector, &names);
    let members = members(&found);
    assert_eq!(members.len(), names.len(), "{members:?}");
    for plain in
        ["root", "Root", "john_doe", "others", "total", "uid_", "uid_1000", "uid_4294967295"]
    {
        assert!(members.contains(&plain), "{plain} is not in {members:?}");
    }
    // The one without a name, not the one who is called so.
    assert_eq!(found["user.uid_1000.total_time"], 2000.0);
    assert_eq!(found["others.members"], 0.0);
    assert_eq!(found["others.count"], 0.0);
}

#[test]
fn two_users_of_one_name_are_two() {
    let names = [
        (0, Some("root")),
        (5, Some("root")),
        (70, Some("ann")),
        (71, Some("ann")),
        (72, Some("slurm")),
    ];
    let mut collector = rpc_stats(INTERVAL, 10, None);
    let found = two_ticks(&mut collector, &names);
    assert_eq!(members(&found), ["ann", "root", "slurm", "uid_5", "uid_71"]);
    assert_eq!(
        found["user.ann.total_time"],
        2.0 * 930.0,
        "the one who came first, by what he costs"
    );
    assert_eq!(found["user.root.total_time"], 2000.0, "the one of number 0");
    // The first is gone; the second does not take his path over.
    let mut memory = collector.paths.changed_memory();
    for _ in 0..2 {
        let mut again = rpc_stats(INTERVAL, 10, memory.as_deref());
        let found = two_ticks(&mut again, &[(71, Some("ann"))]);
        assert_eq!(members(&found), ["uid_71"]);
        memory = again.paths.changed_memory().or(memory);
    }
}

#[test]
fn who_is_still_being_looked_up_is_among_the_others_and_never_a_number_first() {
    let mut collector = rpc_stats(INTERVAL, 3, None);
    let row = |tick: u32, name, looking_up| {
        let ann = RpcUser { looking_up, ..user(7, name, tick, u64::from(tick) * 100) };
        users(vec![user(0, Some("root"), tick, 0), ann])
    };
    for tick in 1..10 {
        let found =
            super::tick(&mut collector, START + i64::from(tick) * 30, row(tick, None, true));
        assert_eq!((members(&found), found["others.members"]), (vec!["root"], 1.0));
        assert_eq!(found["others.count"], f64::from(tick));
    }
    let found = super::tick(&mut collector, START + 300, row(10, Some("ann"), false));
    assert_eq!(members(&found), ["ann", "root"]);
    let nobody = super::tick(&mut rpc_stats(INTERVAL, 3, None), START, {
        users(vec![RpcUser { looking_up: true, ..user(0, None, 1, 1) }])
    });
    assert_eq!(members(&nobody), [""; 0], "not even root");
    // A reader that was started again knows nobody yet, and then nobody knows him any more.
    for (tick, looking_up) in [(11, true), (12, false)] {
        let found =
            super::tick(&mut collector, START + i64::from(tick) * 30, row(tick, None, looking_up));
        assert_eq!(members(&found), ["ann", "root"]);
    }
    // Another has his number now.
    let found = super::tick(&mut collector, START + 390, row(13, Some("bob"), false));
    assert_eq!(members(&found), ["bob", "root"]);
}

#[test]
fn the_first_of_an_interval_stay_for_a_day_and_others_do_not_jump() {
    let mut collector = rpc_stats(INTERVAL, 1, None);
    // Ann is first once, then Bob; both and Cid cost something.
    let rows = |tick: u32, ann: u64, bob: u64| {
        users(vec![
            user(0, Some("root"), tick, u64::from(tick)),
            user(1, Some("ann"), tick, ann),
            user(2, Some("bob"), tick, bob),
            user(3, Some("cid"), tick, u64::from(tick)),
        ])
    };
    tick(&mut collector, START, rows(1, 0, 0));
    let found = tick(&mut collector, START + 30, rows(2, 5000, 10));
    assert_eq!(members(&found), ["ann", "root"]);
    assert!(near(found["others.time_share"], 11.0 / 5012.0));
    let found = tick(&mut collector, START + 60, rows(3, 5001, 9000));
    assert_eq!(members(&found), ["ann", "bob", "root"]);
    assert!(near(found["others.time_share"], 1.0 / (8990.0 + 3.0)), "Bob's share is not theirs");
    let mut now = START + 60;
    let mut number = 3;
    while now < START + 30 + DAY {
        let found =
            tick(&mut collector, now + 30, rows(number + 1, 5001, 9000 + u64::from(number) * 100));
        now += 30;
        number += 1;
        let expected: &[&str] =
            if now < START + 30 + DAY { &["ann", "bob", "root"] } else { &["bob", "root"] };
        assert_eq!(members(&found), expected, "after {} s", now - START);
        assert!(
            found.get("others.calls_per_minute").is_some_and(|calls| (2.0..=4.0).contains(calls))
        );
    }
}

#[test]
fn membership_survives_a_restart_and_a_corrupt_memory_does_no_harm() {
    let names = [(0, Some("root")), (1, Some("ann")), (2, Some("john.doe")), (3, Some("cid"))];
    let mut collector = rpc_stats(INTERVAL, 2, None);
    let found = two_ticks(&mut collector, &names);
    let before: Vec<String> = members(&found).into_iter().map(str::to_owned).collect();
    let memory = collector.paths.changed_memory().unwrap();
    assert_eq!(collector.paths.changed_memory(), None, "nothing has changed");
    let mut again = rpc_stats(INTERVAL, 2, Some(&memory));
    let found = tick(&mut again, START + 60, everybody(&names, 3));
    assert_eq!(members(&found), before, "at the first tick, which ranks nobody");

    for corrupt in [
        "",
        "{",
        "[]",
        "null",
        "{\"users\":7}",
        "{\"users\":[{}]}",
        &memory[..memory.len() / 2],
        "{\"users\":[{\"uid\":1,\"path\":\"a.b\",\"named\":true,\"top\":1700028000}]}",
        "{\"users\":[{\"uid\":1,\"path\":\"uid_2\",\"named\":true,\"top\":1700028000}]}",
        "{\"users\":[{\"uid\":1,\"path\":\"\",\"named\":true,\"top\":-9223372036854775808}]}",
        "{\"users\":[{\"uid\":1,\"path\":\"ann\",\"named\":true,\"top\":9223372036854775807},\
                     {\"uid\":2,\"path\":\"ann\",\"named\":true,\"top\":9223372036854775807}]}",
    ] {
        let mut again = rpc_stats(INTERVAL, 2, Some(corrupt));
        let found = two_ticks(&mut again, &names);
        assert_eq!(members(&found).len(), 3, "{corrupt:?}: {found:?}");
        assert!(near(sum(&found, "count"), 8.0));
    }
}

#[test]
fn a_memory_in_which_two_have_one_path_gives_it_to_one() {
    let ann = |uid| format!("{{\"uid\":{uid},\"path\":\"ann\",\"named\":true,\"top\":{START}}}");
    let memory = format!("{{\"users\":[{},{}]}}", ann(1), ann(2));
    let mut collector = rpc_stats(INTERVAL, 2, Some(&memory));
    let found = tick(&mut collector, START, everybody(&[(1, None), (2, None)], 1));
    assert_eq!((members(&found), found["others.members"]), (vec!["ann"], 1.0));
}

#[test]
fn the_last_fifth_of_the_paths_is_for_those_who_keep_slurmctld_busy() {
    let mut collector = rpc_stats(INTERVAL, 1, None);
    let mut table: Vec<RpcUser> = vec![user(0, Some("root"), 1, 1)];
    let mut now = START;
    let mut found = TickPoints::new();
    let mut one_more = |collector: &mut RpcStats, micros: u64| {
        tick(collector, now, users(table.clone()));
        table.push(user(1 + u32::try_from(now - START).unwrap(), None, 1, micros));
        now += 30;
        found = tick(collector, now, users(table.clone()));
        members(&found).len() - 1
    };
    let light = 2_999_999;
    assert_eq!([1, 2, 3, 4].map(|_| one_more(&mut collector, light)), [1, 2, 3, 4]);
    assert_eq!(one_more(&mut collector, light), 4, "he would take the last");
    assert_eq!(one_more(&mut collector, 3_000_000), 5, "a tenth of 30 s");
    assert_eq!(one_more(&mut collector, 30_000_000), 5, "there are no more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn forty_days_of_changing_users_stay_within_the_bound(seed: u64, most in 1_usize..6) {
        let mut random = Lcg(seed);
        let step = 1800;
        let mut collector = rpc_stats(1800, most, None);
        let mut memory = None;
        let mut table: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        let mut since = START - 600;
        // When each path had points.
        let mut seen: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for number in 0..(40 * DAY / step) {
            let now = START + number * step;
            if random.below(60) == 0 {
                table.clear();
                since = now - 60;
            }
            // A few of 600 users in this hour, some very busy; 200 rows at most.
            for _ in 0..random.below(12) {
                let id = random.below(40) + 40 * u32::try_from(number / 20 % 15).unwrap();
                if table.len() < 200 || table.contains_key(&id) {
                    let row = table.entry(id).or_default();
                    let weight = 1 + 400 * (random.below(9) / 8);
                    row.0 += 1;
                    row.1 += u64::from(random.below(1_000_000)) * u64::from(weight);
                }
            }
            let names: Vec<Option<String>> = table.keys().map(|id| match id % 7 {
                0 => None,
                1 => Some(format!("same{}", id / 100)),
                _ => Some(format!("u.{id}")),
            }).collect();
            let rows = table.iter().zip(&names);
            let rows = rows.map(|((&id, row), name)| user(id, name.as_deref(), row.0,
                row.1)).collect();
            let found = collect(&mut collector, now, Some(reading(now, since, users(rows))));
            prop_assert!(near(sum(&found, "count"), table.values().map(|row|
                f64::from(row.0)).sum()));
            for path in found.keys().filter(|path| path.starts_with("user.")) {
                seen.entry(path.clone()).or_default().push(now);
            }
            memory = collector.paths.changed_memory().or(memory);
            if random.below(50) == 0 {
                collector = rpc_stats(1800, most, memory.as_deref());
            }
        }
        // As docs/metrics.md says, without the seven of the others.
        let bound = (5 * most + 2) * 6;
        for first in (0..10).map(|day| START + day * DAY) {
            let within = |times: &&Vec<i64>| times.iter().any(|&at| at >= first
                && at < first + 30 * DAY);
            prop_assert!(seen.values().filter(within).count() <= bound, "{} paths", seen.len());
        }
        let users: BTreeSet<&str> = seen.keys().filter_map(|path|
            path.rsplit_once('.')).map(|(user, _)| user).collect();
        prop_assert!(users.len() >= 4 * most, "the bound was never in sight: {users:?}");
    }
}

/// Numbers that need not be good, but the same for a seed.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, end: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(end)).unwrap()
    }
}
