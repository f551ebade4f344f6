//! Replies of each layout, packed from a list of names, and compared by those names: a member in
//! another's place has another's value.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::number::{NEWEST, OLDEST};

/// `NAME:KIND`, with `<N` or `>=N` where only some protocol numbers have it. Slurm's source is the
/// authority.
const LAYOUT: &str = "parts_packed:one<44 req_time:time req_time_start:time \
server_thread_count:u32 agent_queue_size:u32 agent_count:u32 agent_thread_count:u32 \
dbd_agent_queue_size:u32 gettimeofday_latency:u32 jobs_submitted:u32 jobs_started:u32 \
jobs_completed:u32 jobs_canceled:u32 jobs_failed:u32 jobs_pending:u32 jobs_running:u32 \
job_states_ts:time schedule_cycle_max:u32 schedule_cycle_last:u32 schedule_cycle_sum:u32<44 \
schedule_cycle_sum:u64>=44 schedule_cycle_counter:u32 schedule_cycle_depth:u32 \
schedule_exit:array32>=40 schedule_queue_len:u32 bf_backfilled_jobs:u32 \
bf_last_backfilled_jobs:u32 bf_cycle_counter:u32 bf_cycle_sum:u64 bf_cycle_last:u32 \
bf_last_depth:u32 bf_last_depth_try:u32 bf_queue_len:u32 bf_cycle_max:u32 bf_when_last_cycle:time \
bf_depth_sum:u32 bf_depth_try_sum:u32 bf_queue_len_sum:u32 bf_table_size:u32 bf_table_size_sum:u32 \
bf_active:u32 bf_backfilled_het_jobs:u32 bf_exit:array32>=40";

const NUMBERS: std::ops::RangeInclusive<u16> = OLDEST..=NEWEST;

/// A reply as slurmctld would pack it.
#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn put(&mut self, width: usize, value: u64) {
        // As text: not as a decoder would.
        let digits = format!("{value:0digits$x}", digits = width * 2);
        for at in (0..width).map(|byte| byte * 2) {
            self.0.push(u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        }
    }

    fn array(&mut self, width: usize, values: &[u64]) {
        self.put(4, values.len() as u64);
        values.iter().for_each(|value| self.put(width, *value));
    }

    fn text(&mut self, text: Option<&str>) {
        let Some(text) = text else { return self.put(4, 0) };
        self.put(4, text.len() as u64 + 1);
        self.0.extend(text.bytes().chain([0]));
    }
}

/// A number that no other member has, and that needs the whole width.
fn value(name: &str, kind: &str) -> u64 {
    let mark = LAYOUT.find(&format!("{name}:")).unwrap() as u64 + 1;
    match kind {
        "one" => 1,
        "time" => 1_700_000_000 + mark,
        "u64" => u64::MAX - mark,
        _ => u64::from(u32::MAX) - mark,
    }
}

/// The parts of the RPC tables that are there.
#[derive(Clone, Copy)]
struct Tables {
    types: usize,
    users: usize,
    has_queue: bool,
}

/// The bytes of a reply and the JSON of its statistics.
fn reply(number: u16, tables: Tables) -> (Vec<u8>, Value) {
    let mut packed = Packed::default();
    let mut expected = BTreeMap::new();
    for member in LAYOUT.split(' ') {
        let (name, kind) = member.split_once(':').unwrap();
        let (kind, is_there) = match (kind.split_once(">="), kind.split_once('<')) {
            (Some((kind, from)), _) => (kind, number >= from.parse().unwrap()),
            (None, Some((kind, before))) => (kind, number < before.parse().unwrap()),
            (None, None) => (kind, true),
        };
        if !is_there {
            continue;
        }
        let value = value(name, kind);
        match kind {
            "array32" => {
                let values = [value, 0, 5, value - 1, 2, 3];
                packed.array(4, &values);
                expected.insert(name.to_owned(), json!(values));
            }
            "one" => {
                packed.put(4, value);
                continue;
            }
            "time" | "u64" => packed.put(8, value),
            _ => packed.put(4, value),
        }
        expected.entry(name.to_owned()).or_insert(json!(value));
    }
    expected.insert("rpc".to_owned(), rpc_tables(&mut packed, number, tables));
    if number >= 41 {
        expected.insert("rpc_queue_enabled".to_owned(), json!(tables.has_queue));
    }
    (packed.0, json!(expected))
}

fn rpc_tables(packed: &mut Packed, number: u16, tables: Tables) -> Value {
    let Tables { types, users, has_queue } = tables;
    let has_queue = has_queue && number >= 41;
    let column = |rows: usize, base: u64| -> Vec<u64> {
        (0..rows as u64).map(|row| base + row * 3).collect()
    };
    let (ids, counts, times) =
        (column(types, 1001), column(types, 4_000_000_000), column(types, u64::MAX - 3000));
    let (queued, dropped, last, max) = (
        column(types, 7),
        column(types, u64::MAX - 9000),
        column(types, 20_000),
        column(types, 60_000),
    );
    packed.put(4, types as u64);
    packed.array(2, &ids);
    packed.array(4, &counts);
    packed.array(8, &times);
    if number >= 41 {
        packed.put(1, u64::from(has_queue));
    }
    if has_queue {
        packed.array(2, &queued);
        packed.array(8, &dropped);
        packed.array(2, &last);
        packed.array(2, &max);
    }
    let type_rows = (0..types.min(100)).map(|row| {
        let mut found = json!({"id": ids[row], "count": counts[row], "time": times[row]});
        if has_queue {
            found["queue"] = json!({
                "queued": queued[row], "dropped": dropped[row], "cycle_last": last[row],
                    "cycle_max": max[row]
            });
        }
        found
    });
    let type_rows: Vec<Value> = type_rows.collect();
    let ids = column(users, 0);
    let counts = column(users, 9);
    let times = column(users, 1 << 40);
    packed.put(4, users as u64);
    packed.array(4, &ids);
    packed.array(4, &counts);
    packed.array(8, &times);
    let user_rows: Vec<Value> = (0..users.min(200))
        .map(|row| json!({"id": ids[row], "count": counts[row], "time": times[row]}))
        .collect();
    packed.array(4, &[6009, 6011]);
    packed.array(4, &[3, 4]);
    packed.array(4, &[6009, 1]);
    packed.put(4, 2);
    packed.text(Some("n[1-9]"));
    packed.text(None);
    json!({
        "types": type_rows,
        "users": user_rows,
        "pending": [{"id": 6009, "count": 3}, {"id": 6011, "count": 4}],
        "dumped": [{"id": 6009, "hostlist": "n[1-9]"}, {"id": 1, "hostlist": ""}],
    })
}

/// Statistics from JSON: an absent member is `None`, and one with another name is refused.
fn of_json(expected: Value) -> Statistics {
    serde_json::from_value(expected).unwrap()
}

const SOME: Tables = Tables { types: 5, users: 3, has_queue: true };

#[test]
fn every_member_of_every_layout_is_in_its_own_place() {
    for number in NUMBERS {
        for tables in [
            SOME,
            Tables { has_queue: false, ..SOME },
            Tables { types: 0, users: 0, has_queue: true },
        ] {
            let (bytes, expected) = reply(number, tables);
            let found = unpack(&bytes, number, true).unwrap_or_else(|Short| panic!("{number}"));
            assert_eq!(found, of_json(expected), "{number}");
            assert_eq!(unpack(&bytes, number, false).unwrap(), Statistics { rpc: None, ..found });
        }
    }
}

#[test]
fn a_table_that_is_longer_than_slurmctlds_is_cut_and_what_follows_is_still_right() {
    for number in NUMBERS {
        let (bytes, expected) = reply(number, Tables { types: 101, users: 450, has_queue: true });
        assert_eq!(unpack(&bytes, number, true).unwrap(), of_json(expected), "{number}");
    }
}

#[test]
fn a_moment_that_never_was_is_none() {
    let (mut bytes, _) = reply(45, SOME);
    // After two times and thirteen figures.
    bytes[16 + 13 * 4..][..8].fill(0);
    assert_eq!(unpack(&bytes, 45, true).unwrap().job_states_ts, None);
}

#[test]
fn a_layout_that_is_not_the_numbers_is_refused_and_so_is_a_reply_without_its_scheduler() {
    for spoken in NUMBERS {
        for packed in NUMBERS {
            let (bytes, _) = reply(packed, SOME);
            let layout = |number: u16| (number >= 40, number >= 41, number >= 44);
            // These are as long as each other: a header with another number is refused before
            // (message.rs).
            let is_as_long = [spoken, packed].map(|number| number >= 41) == [true; 2];
            if is_as_long && layout(spoken) != layout(packed) {
                continue;
            }
            assert_eq!(
                unpack(&bytes, spoken, true).is_ok(),
                layout(spoken) == layout(packed),
                "{spoken} {packed}"
            );
        }
    }
    let (mut bytes, _) = reply(38, SOME);
    bytes[..4].fill(0);
    assert_eq!(unpack(&bytes, 38, true), Err(Short));
}

#[test]
fn a_reply_that_is_cut_anywhere_or_has_one_byte_more_is_refused() {
    for number in NUMBERS {
        let (mut bytes, _) = reply(number, SOME);
        for end in 0..bytes.len() {
            assert_eq!(unpack(&bytes[..end], number, true), Err(Short), "{number} {end}");
        }
        bytes.push(0);
        assert_eq!(unpack(&bytes, number, true), Err(Short), "{number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// No panic, and no more memory than a few times the reply: tables have their bounds.
    #[test]
    fn a_changed_reply_is_refused_or_bounded(
        number in NUMBERS,
        types in 0_usize..120,
        users in 0_usize..250,
        has_queue: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let (mut bytes, _) = reply(number, Tables { types, users, has_queue });
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(found) = unpack(&bytes, number, true) {
            let rpc = found.rpc.unwrap();
            prop_assert!(rpc.types.len() <= 100 && rpc.users.len() <= 200);
            prop_assert!(rpc.pending.unwrap().len() <= 100 && rpc.dumped.len() <= 100);
            let text: usize = rpc.dumped.iter().map(|dumped| dumped.hostlist.len()).sum();
            // A byte that is not UTF-8 becomes three.
            prop_assert!(text <= 3 * bytes.len());
            prop_assert!(found.schedule_exit.is_none_or(|exits| exits.len() <= 100));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_bounded(number in NUMBERS,
        bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = unpack(&bytes, number, true);
    }
}
