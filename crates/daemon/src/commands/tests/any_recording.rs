//! Any recording yields an error or points, and can be printed and drawn. Nothing in it causes a
//! panic.
//!
//! Debug builds check arithmetic, so an overflow is a panic too.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use slurm_points::collecting::Collecting;
use slurm_points::collectors::TickOutcome;
use slurm_points::configured::Collectors;
use slurm_snapshot::{Answer, Reading, Statistics};

use crate::commands::stats::{Compared, document};
use crate::commands::watch::draw_somehow;

const TICK: u32 = 30;

/// A reading with every member that there is, so many seconds after the first.
fn full_reading(later: u32) -> Value {
    let recorded = include_str!("../../../tests/recordings/24.11.jsonl").lines();
    let readings = recorded.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut statistics: Map<String, Value> = readings
        .filter_map(|line| line["reading"]["statistics"].as_object().cloned())
        .next()
        .expect("a reading of libslurm's, which has every number");
    for (n, value) in (1..).zip(statistics.values_mut().filter(|value| value.is_number())) {
        *value = json!(n);
    }
    let queue = json!({"queued": 1, "dropped": 2, "cycle_last": 3, "cycle_max": 4});
    for (name, value) in [
        ("req_time", json!(1_700_000_000 + i64::from(later))),
        ("req_time_start", json!(1_699_990_000)),
        ("job_states_ts", json!(1_699_999_990)),
        ("bf_when_last_cycle", json!(1_699_999_995)),
        ("schedule_exit", json!([1, 2, 3, 4, 5, 6, 7])),
        ("bf_exit", json!([1, 2, 3])),
        ("rpc_queue_enabled", json!(true)),
        (
            "rpc",
            json!({
                "types": [
                    {"id": 2003, "count": 9, "time": 99, "queue": queue},
                    {"id": 65535, "count": 1, "time": 1},
                ],
                "users": [{"id": 0, "name": "root", "count": 5, "time": 50}, {"id": 7, "count": 1,
                    "time": 2}],
                "pending": [{"id": 6011, "count": 3}],
                "dumped": [{"id": 6011, "hostlist": "n[1-3]"}],
            }),
        ),
    ] {
        statistics.insert(name.to_owned(), value);
    }
    let all = serde_json::to_value(Statistics::default()).unwrap();
    let absent: Vec<_> = all
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| statistics.get(*name).is_none_or(Value::is_null))
        .collect();
    assert_eq!(absent, ["means"], "only slurmrestd's reader has it");
    json!({"reading": {
        "id": 1, "time": 1_700_000_000.25 + f64::from(later), "uptime": 5000.25 + f64::from(later),
            "elapsed": 400, "release": "24.05",
        "cluster": "sandbox", "statistics": statistics,
    }})
}

/// Every place in a document.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            members
                .iter()
                .for_each(|(name, member)| places(member, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| places(item, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let extreme = prop::sample::select(vec![
        json!(0),
        json!(1),
        json!(-1),
        json!(u16::MAX),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!(0.1),
        json!(1_700_000_030),
        json!(1_700_000_030.5),
        json!(""),
        json!("99.99"),
        json!("22.05"),
        json!("a.b\u{1b}[2J\n"),
        json!("x".repeat(70_000)),
        json!([]),
        json!({}),
        json!(true),
        Value::Null,
    ]);
    let leaf = prop_oneof![
        4 => extreme,
        1 => any::<u64>().prop_map(|n| json!(n)),
        1 => any::<u32>().prop_map(|n| json!(n)),
        1 => any::<f64>().prop_map(|n| json!(n)),
        1 => any::<String>().prop_map(|s| json!(s)),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[a-z_]{0,12}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A reading's line in which some places hold something else.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), json_value()), 0..6);
    (changes, 0_u32..4).prop_map(|(changes, ticks)| {
        let mut document = full_reading(ticks * TICK);
        for (which, value) in changes {
            let mut found = Vec::new();
            places(&document, "", &mut found);
            *document.pointer_mut(&found[which.index(found.len())]).unwrap() = value;
        }
        serde_json::to_vec(&document).unwrap()
    })
}

/// A reading's line in which some bytes are others.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    bytes.prop_map(|bytes| {
        let mut line = serde_json::to_vec(&full_reading(TICK)).unwrap();
        for (which, byte) in bytes {
            let at = which.index(line.len());
            line[at] = byte;
        }
        line
    })
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => changed(),
        2 => damaged(),
        1 => json_value().prop_map(|value| serde_json::to_vec(&value).unwrap()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]
    #[test]
    fn any_recording_is_an_error_or_points(lines in prop::collection::vec(line(), 1..4),
        tick in prop_oneof![Just(TICK), 0_u32..4000]) {
        let mut collecting = Collecting::start(tick, &Collectors::default(), |_| None);
        let mut before: Option<Arc<Reading>> = None;
        for line in lines {
            let Ok(Answer::Reading(reading)) = Answer::parse(&line) else { continue };
            let reading: Arc<Reading> = Arc::from(reading);
            let timestamp = super::slot(reading.time, tick);
            for outcome in [TickOutcome::Reading(Arc::clone(&reading)), TickOutcome::Failed] {
                let mut batch = carbon::Batch::new(timestamp);
                collecting.collect(timestamp, &outcome, "cluster", &mut batch);
                prop_assert!(batch.points().all(|point| point.value().is_finite()));
            }
            let compared = before.as_deref().and_then(|before| Compared::new(before, &reading,
                tick));
            document(&reading, compared);
            draw_somehow(before.as_deref(), &reading, tick);
            before = Some(reading);
        }
    }
}

#[test]
fn what_is_changed_is_a_reading_to_begin_with() {
    let line = serde_json::to_vec(&full_reading(0)).unwrap();
    assert!(matches!(Answer::parse(&line), Ok(Answer::Reading(_))), "{:?}", Answer::parse(&line));
    let mut found = Vec::new();
    places(&full_reading(0), "", &mut found);
    assert!(found.len() > 70, "{found:?}");
}
