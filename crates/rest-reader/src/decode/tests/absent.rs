//! Every number of an answer, in all forms that mean "not known" or "without limit", one at a time.
//!
//! The trap: `unwrap_or(0)` in a conversion. Free memory of a node that has not registered, and
//! licences and reservations whose numbers were not known, were 0.

use serde_json::{Value, json};
use slurm_snapshot::{Licenses, Release, Reservations};

use super::super::diag::Diag;
use super::super::nodes::NodesAnswer;
use super::super::{Payload, read_answer};
use super::{diag, each, node, places};

#[path = "../../../../../tests/invented.rs"]
mod figures;

/// Places that may change so.
const NO_ZEROES: [&str; 3] = ["/means", "/last_update", "/req_time_start"];

/// The forms in which versions of the API write an unknown number.
fn unknown() -> [Value; 4] {
    [
        json!({"set": false, "infinite": false, "number": 0}),
        json!({"set": true, "infinite": true, "number": 0}),
        json!(-2),
        Value::Null,
    ]
}

/// Takes each number of an answer away. What has no answer then has no wrong figure.
fn sweep<T: Payload>(answer: &Value, start: impl Fn() -> T, figures: impl Fn(T) -> Value) -> usize {
    let read = |answer: &Value| {
        let text = serde_json::to_vec(answer).unwrap();
        read_answer(&text[..], start()).map(|envelope| figures(envelope.payload))
    };
    let before = read(answer).unwrap();
    let mut all = Vec::new();
    places(answer, "", &mut all);
    let is_number = |value: &Value| value.is_number() || value.get("number").is_some();
    all.retain(|place| is_number(answer.pointer(place).unwrap()));
    let mut still = 0;
    for place in all {
        for unknown in unknown() {
            let mut answer = answer.clone();
            *answer.pointer_mut(&place).unwrap() = unknown.clone();
            let Ok(after) = read(&answer) else { continue };
            still += 1;
            // slurmrestd's own quotient takes the place of a sum that is not there, and in these
            // moments 0 is none.
            let mut invented = figures::invented(&before, &after);
            invented.retain(|found| !NO_ZEROES.iter().any(|name| found.contains(name)));
            assert!(invented.is_empty(), "{place} {unknown}: {invented:#?}");
        }
    }
    still
}

#[test]
fn what_is_not_known_of_the_statistics_is_no_zero() {
    let start = || Diag::new(42, true, true);
    let still = sweep(&diag(), start, |diag| serde_json::to_value(diag.statistics).unwrap());
    assert!(still > 40, "{still}");
}

#[test]
fn what_is_not_known_of_a_node_is_no_zero() {
    let more = r#","cpu_load":{"set":true,"infinite":false,"number":150},"boot_time":5,
        "slurmd_start_time":6,"version":"24.11.5""#;
    let node: Value = serde_json::from_str(&node(json!(["MIXED", "DRAIN"]), more)).unwrap();
    let start = || NodesAnswer::new(Release::new(24, 11), each());
    let figures = |answer: NodesAnswer| {
        json!([
            serde_json::to_value(answer.nodes).unwrap(),
            serde_json::to_value(answer.partitions).unwrap()
        ])
    };
    let still = sweep(&json!({"nodes": [node], "last_update": 7}), start, figures);
    assert!(still > 20, "{still}");
}

#[test]
fn what_is_not_known_of_licences_and_reservations_is_no_zero() {
    let licence = json!({"LicenseName": "a", "Total": 20, "Used": 3, "Free": 15, "Reserved": 2,
        "Remote": true, "LastConsumed": 9, "LastDeficit": 4});
    let licences = json!({"licenses": [licence], "last_update": 7});
    let still = sweep(&licences, Licenses::default, |all| serde_json::to_value(all).unwrap());
    assert!(still > 20, "{still}");
    let reservation = json!({"name": "r", "node_count": 2, "core_count": 4, "start_time": 5,
        "end_time": 9, "flags": ["MAINT"]});
    let reservations = json!({"reservations": [reservation], "last_update": 7});
    let still =
        sweep(&reservations, Reservations::default, |all| serde_json::to_value(all).unwrap());
    assert!(still > 12, "{still}");
}
