//! Names that come and go: who has paths, how many over a month, and what one who leaves is
//! published as.

use std::collections::{BTreeMap, BTreeSet};

use carbon_wire::{Batch, path};
use proptest::prelude::*;

use super::*;
use crate::levels::Names::{Closed, Configured, Invented, Used};

const DAY: i64 = 86_400;

/// Number of names of each kind that have paths.
const MOST: usize = 3;

/// A number, and perhaps another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pair {
    plain: u64,
    limit: Option<u64>,
}

impl Pair {
    fn add(&mut self, more: Self) {
        self.plain += more.plain;
    }
}

metrics! {
    PAIR: Pair =
        average("plain", "count", |pair| pair.plain, ""),
        average("limit", "count", |pair| pair.limit, "");
}

levels! {
    LEVELS:
    PARTITION: Level<Table<Pair>, 1> = ("p.<partition>", [Configured(MOST)], PAIR, "");
    TYPE: Level<Table<Pair>, 2> = ("p.<partition>.gpu.<type>", [Configured(MOST),
        Configured(MOST)], PAIR, "");
    STATE: Level<Table<Pair>, 2> = ("p.<partition>.state.<state>", [Configured(MOST), Closed],
        PAIR, "");
    QUEUE: Level<Table<Pair>, 2> = ("q.<partition>.state.<state>", [Used(MOST), Closed], PAIR, "");
    ACCOUNT: Level<Table<Pair>, 2> = ("a.<account>.state.<state>", [Invented, Closed], PAIR, "");
    REASON: Level<Table<Pair>, 1> = ("r.<reason>", [Closed], PAIR, "");
}

type Points1 = BTreeMap<String, f64>;

/// A round at `now`; no path may be there twice.
fn round(paths: &mut NamedPaths, now: i64, push: impl FnOnce(&mut Points<'_>)) -> Points1 {
    let mut batch = Batch::new(now);
    let mut points = Points::new("c", &mut batch, paths);
    push(&mut points);
    assert_eq!((batch.refused(), LEVELS.len()), (0, 6));
    let mut found = Points1::new();
    for point in batch.points() {
        let path = point.path().strip_prefix("c.").unwrap().replace(".gauge-", " ");
        assert!(found.insert(path, point.value()).is_none(), "{} is there twice", point.path());
    }
    found
}

fn pair(plain: u64) -> Pair {
    Pair { plain, limit: None }
}

fn words<const N: usize>(words: [(&str, u64); N]) -> BTreeMap<String, Pair> {
    words.map(|(word, plain)| (word.to_owned(), pair(plain))).into()
}

/// These partitions, all that there are.
fn partitions(paths: &mut NamedPaths, now: i64, names: &[&str]) -> Vec<(String, f64)> {
    let found = round(paths, now, |points| {
        names.iter().for_each(|name| points.push(&PARTITION, [Name::new(name)], &pair(7)));
        points.end_round();
    });
    found.into_iter().collect()
}

fn point(path: &str, value: u8) -> (String, f64) {
    (path.to_owned(), value.into())
}

/// Each reply had no more than the bound, and in a day there were 1,440 times as many.
#[test]
fn names_that_come_and_go_get_no_more_paths_than_names_that_stay() {
    let mut paths = NamedPaths::default();
    let mut seen = BTreeSet::new();
    for minute in 0..60 {
        let names: Vec<String> = (0..MOST).map(|n| format!("n{minute}x{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        seen.extend(partitions(&mut paths, minute * 60, &names).into_iter().map(|(path, _)| path));
    }
    assert_eq!(seen.len(), MOST, "{seen:?}");
    let month = partitions(&mut paths, 29 * DAY, &["later"]);
    assert_eq!(month, [], "no slot is free yet");
    assert_eq!(partitions(&mut paths, 30 * DAY, &["later"]), []);
    assert_eq!(partitions(&mut paths, 30 * DAY + 60, &["later"]), [point("p.later plain", 7)]);
}

/// Dashboards keep last values. Nor may a figure that it never had begin with its end.
#[test]
fn who_leaves_is_0_once_in_the_figures_that_it_had() {
    let mut paths = NamedPaths::default();
    let push = |points: &mut Points<'_>, names: &[&str]| {
        for name in names {
            points.push(
                &PARTITION,
                [Name::new(name)],
                &Pair { plain: 1, limit: (*name == "b").then_some(5) },
            );
            points.push_words(&STATE, [Name::new(name)], &["idle"], &words([("down", 2)]));
            points.push_summed(&TYPE, [Name::new(name)], &words([("a100", 4)]), pair(0), Pair::add);
        }
        points.end_round();
    };
    round(&mut paths, 0, |points| push(points, &["a", "b"]));
    let last = round(&mut paths, 60, |points| push(points, &["a"]));
    let of_b: Vec<_> = last.into_iter().filter(|(path, _)| path.starts_with("p.b")).collect();
    let zeroes = [
        "p.b limit",
        "p.b plain",
        "p.b.gpu.a100 plain",
        "p.b.state.down plain",
        "p.b.state.idle plain",
    ];
    assert_eq!(of_b, zeroes.map(|path| point(path, 0)));
    let later = round(&mut paths, 120, |points| push(points, &["a"]));
    assert!(later.keys().all(|path| path.starts_with("p.a")), "{later:?}");
    let back = round(&mut paths, 180, |points| push(points, &["b"]));
    assert_eq!((back["p.b plain"], back["p.a plain"]), (1.0, 0.0));
}

/// A reply that did not come says nothing about names.
#[test]
fn a_round_without_an_answer_is_no_leave() {
    let mut paths = NamedPaths::default();
    partitions(&mut paths, 0, &["a"]);
    assert_eq!(round(&mut paths, 60, |_| ()), Points1::new());
    assert_eq!(
        partitions(&mut paths, 120, &["a", "a"]),
        [point("p.a plain", 7)],
        "nor is a name twice"
    );
}

#[test]
fn a_word_never_leaves_and_one_that_is_not_used_is_0() {
    let mut paths = NamedPaths::default();
    let mut queue = |now, words: &BTreeMap<String, Pair>, used: &[&str]| {
        round(&mut paths, now, |points| {
            points.push_words(&REASON, [], &["always"], words);
            for name in used {
                points.push_words(&QUEUE, [Name::new(name)], &[], &self::words([("pending", 3)]));
            }
            points.end_round();
        })
    };
    queue(0, &words([("Licenses", 3)]), &["debug"]);
    let expected = [
        point("q.debug.state.pending plain", 0),
        point("r.Licenses plain", 0),
        point("r.always plain", 0),
    ];
    for now in [60, 29 * DAY, 30 * DAY] {
        assert_eq!(
            queue(now, &words([]), &[]).into_iter().collect::<Vec<_>>(),
            expected,
            "at {now}"
        );
    }
    let later = queue(300 * DAY, &words([]), &[]);
    assert_eq!(
        later.into_iter().collect::<Vec<_>>(),
        expected[1..],
        "no job in a partition for a month"
    );
    let many: BTreeMap<String, Pair> = (0..1000).map(|n| (format!("w{n}"), pair(1))).collect();
    assert_eq!(queue(301 * DAY, &many, &[]).len(), MOST_WORDS);
}

/// Both figures were at one path.
#[test]
fn other_is_a_sum_and_a_name_that_is_spelt_so_has_another_path() {
    let mut paths = NamedPaths::default();
    let mut types = |now, types: &BTreeMap<String, Pair>| {
        round(&mut paths, now, |points| {
            points.push_summed(&TYPE, [Name::new("other")], types, pair(0), Pair::add);
            points.end_round();
        })
    };
    let marked = path::marked("other");
    let found = types(0, &words([("a", 1), ("b", 2), ("other", 4), ("x", 8), ("y", 16)]));
    let at = |kind: &str| format!("p.{marked}.gpu.{kind} plain");
    let expected = [(at("a"), 1.0), (at("b"), 2.0), (at(&marked), 4.0), (at("other"), 24.0)];
    assert_eq!(found, expected.into());
    // Who has a slot keeps it while others come, and so does the sum.
    let found = types(60, &words([("a", 1), ("0", 2)]));
    let expected = [(at("a"), 1.0), (at("b"), 0.0), (at(&marked), 0.0), (at("other"), 2.0)];
    assert_eq!(found, expected.into());
}

/// A partition that is removed and comes back with other types would get other paths each time.
#[test]
fn a_name_that_leaves_takes_the_slots_below_it_along() {
    let mut paths = NamedPaths::default();
    let mut seen = BTreeSet::new();
    for minute in 0..60 {
        let types = BTreeMap::from([(format!("t{minute}"), pair(1))]);
        let found = round(&mut paths, minute * 60, |points| {
            if minute % 2 == 0 {
                points.push_summed(&TYPE, [Name::new("a")], &types, pair(0), Pair::add);
            }
            points.end_round();
        });
        seen.extend(found.into_keys());
    }
    assert_eq!(seen.len(), MOST + 1, "{seen:?}");
}

fn accounts(
    paths: &mut NamedPaths,
    now: i64,
    most: usize,
    started: &[(&str, u64)],
) -> BTreeSet<String> {
    round(paths, now, |points| {
        points.give(&ACCOUNT, most, started.iter().copied().collect());
        points.end_round();
    });
    paths.started(&ACCOUNT)
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn the_first_slots_go_by_rank_and_a_slot_is_free_after_30_days_without_a_started_job() {
    let mut paths = NamedPaths::default();
    assert_eq!(accounts(&mut paths, 0, 2, &[("a", 1), ("b", 9), ("c", 5)]), set(["b", "c"]));
    assert_eq!(
        accounts(&mut paths, 20 * DAY, 2, &[("a", 100), ("b", 0)]),
        set(["b", "c"]),
        "its time is not over"
    );
    assert_eq!(accounts(&mut paths, 30 * DAY - 1, 2, &[("a", 100)]), set(["b", "c"]));
    assert_eq!(
        accounts(&mut paths, 30 * DAY, 2, &[("a", 100)]),
        set(["a", "b"]),
        "the slot goes to another name"
    );
}

/// Otherwise each restart would give every slot to another name, and every name is files that stay.
#[test]
fn slots_are_remembered_and_fewer_of_them_keep_the_latest() {
    let settings = Settings::new(true, &[]);
    let mut paths = NamedPaths::new(&settings, None);
    for (at, name) in [(0, "a"), (10, "b"), (20, "c")] {
        accounts(&mut paths, at, 3, &[(name, 1)]);
    }
    let memory = paths.changed_memory().unwrap();
    accounts(&mut paths, 30, 3, &[("c", 1)]);
    assert_eq!(paths.changed_memory(), None, "once an hour is enough for moments");
    accounts(&mut paths, 20 + WRITTEN_EVERY, 3, &[]);
    assert!(paths.changed_memory().is_some());
    let mut again = NamedPaths::new(&settings, Some(&memory));
    assert_eq!(accounts(&mut again, 30, 2, &[("d", 9)]), set(["b", "c"]));
    let without = NamedPaths::new(&settings, None);
    assert_eq!(accounts(&mut { without }, 30, 2, &[("d", 9)]), set(["d"]));
}

#[test]
fn a_moment_in_the_future_does_not_keep_a_slot_for_years() {
    let memory = format!(r#"{{"names":{{"a.":{{"a":{}}}}}}}"#, 900 * DAY);
    let mut paths = NamedPaths::new(&Settings::new(true, &[]), Some(&memory));
    assert_eq!(accounts(&mut paths, DAY, 1, &[]), set(["a"]));
    assert_eq!(accounts(&mut paths, 31 * DAY, 1, &[]), set([]));
}

/// An event in a round.
#[derive(Clone, Debug)]
enum Event {
    /// These partitions, with these types, are in the reply.
    Reply(BTreeMap<u8, BTreeMap<u8, u64>>),
    Fails,
    /// The daemon starts again with what was stored last, or a reload starts the collector again.
    Restarts,
    Sleeps(i64),
}

fn events() -> impl Strategy<Value = Event> {
    let types = prop::collection::btree_map(0_u8..9, 1_u64..5, 0..4);
    prop_oneof![
        12 => prop::collection::btree_map(0_u8..9, types, 0..4).prop_map(Event::Reply),
        1 => Just(Event::Fails),
        1 => Just(Event::Restarts),
        2 => (1_i64..20).prop_map(Event::Sleeps),
    ]
}

proptest! {
    #[test]
    fn in_any_month_there_are_no_more_paths_than_the_bound(
        events in prop::collection::vec(events(), 1..120),
    ) {
        let settings = Settings::new(true, &[]);
        let mut paths = NamedPaths::new(&settings, None);
        let mut memory = None;
        let mut now = 0;
        // When each name had points of its own, by the path before it; and what the last round has
        // published.
        let mut seen: BTreeMap<String, BTreeMap<String, Vec<i64>>> = BTreeMap::new();
        let mut last: Option<Points1> = None;
        for event in events {
            now += 60;
            let reply = match event {
                Event::Reply(reply) => reply,
                Event::Fails => {
                    prop_assert_eq!(round(&mut paths, now, |_| ()).len(), 0);
                    continue;
                }
                Event::Restarts => {
                    paths = NamedPaths::new(&settings, memory.as_deref());
                    last = None;
                    continue;
                }
                Event::Sleeps(days) => {
                    now += days * DAY;
                    continue;
                }
            };
            let found = round(&mut paths, now, |points| {
                for (partition, types) in &reply {
                    let types = types.iter().map(|(kind, count)| (format!("t{kind}"),
                        pair(*count))).collect();
                    let name = format!("p{partition}");
                    points.push(&PARTITION, [Name::new(&name)], &pair(1));
                    points.push_summed(&TYPE, [Name::new(&name)], &types, pair(0), Pair::add);
                }
                points.end_round();
            });
            memory = paths.changed_memory().or(memory);
            for (partition, types) in &reply {
                let name = format!("p.p{partition}");
                let own = found.get(&format!("{name} plain")).copied();
                let gpus = format!("{name}.gpu.");
                let sum: f64 = found.iter().filter(|(path, _)| path.starts_with(&gpus)).map(|(_,
                    n)| n).sum();
                let all: u64 = types.values().sum();
                let all = f64::from(u32::try_from(all).unwrap());
                prop_assert_eq!(sum, if own == Some(1.0) { all } else { 0.0 }, "of {}: {:?}", name,
                    found);
            }
            // What is not in the reply is 0, once.
            for (path, value) in found.iter().filter(|(path, _)| !path.contains(".other ")) {
                let mut parts = path.split([' ', '.']).skip(1);
                let partition: u8 = parts.next().and_then(|part|
                    part.strip_prefix('p')).unwrap().parse().unwrap();
                let kind = parts.nth(1).and_then(|part| part.strip_prefix('t')).map(|kind|
                    kind.parse().unwrap());
                let types = reply.get(&partition);
                let is_there = types.is_some_and(|types| kind.is_none_or(|kind|
                    types.contains_key(&kind)));
                prop_assert_eq!(*value > 0.0, is_there, "{} {}", path, value);
                if !is_there {
                    let before = last.as_ref().and_then(|last| last.get(path));
                    prop_assert!(before.is_some_and(|before| *before > 0.0), "{path} is 0 again");
                    continue;
                }
                let (start, name) = path.rsplit_once('.').unwrap();
                seen.entry(start.to_owned()).or_default().entry(name.to_owned()).or_default().push(now);
            }
            if let Some(last) = &last {
                let gone = last.iter().filter(|(path, value)| **value > 0.0
                    && !found.contains_key(*path));
                prop_assert_eq!(gone.count(), 0, "left without a 0: {:?} then {:?}", last, found);
            }
            last = Some(found);
        }
        // An hour may be forgotten in a crash.
        let month = 30 * DAY - WRITTEN_EVERY;
        for (start, names) in &seen {
            for first in names.values().flatten() {
                let within = |times: &&Vec<i64>| times.iter().any(|at| at >= first
                    && *at < first + month);
                let count = names.values().filter(within).count();
                prop_assert!(count <= MOST, "{count} names at {start}: {names:?}");
            }
        }
    }
}
