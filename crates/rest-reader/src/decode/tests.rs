//! Any text yields figures or an error, and a changed answer never yields a figure that it does not
//! contain.

mod absent;
mod hostile;
mod versions;

use proptest::prelude::*;
use serde_json::{Value, json};
use slurm_snapshot::{
    Controller, Licenses, Partitions, Release, ReplyOptions, Reservations, Statistics,
};

use super::diag::Diag;
use super::{NodesAnswer, read_answer};

/// An answer of v0.0.42, shortened to one row of each table.
fn diag() -> Value {
    let number = |number: i64| json!({"set": true, "infinite": false, "number": number});
    let mut statistics = json!({
        "req_time": number(1_700_000_100), "req_time_start": number(1_700_000_000),
        "job_states_ts": number(1_700_000_090), "bf_when_last_cycle": number(1_700_000_095),
        "bf_active": false, "schedule_exit": {
            "end_job_queue": 1, "default_queue_depth": 2, "max_job_start": 3, "max_rpc_cnt": 5,
                "max_sched_time": 6,
            "licenses": 4
        },
        "bf_exit": {
            "end_job_queue": 1, "bf_max_job_start": 2, "bf_max_job_test": 3, "bf_max_time": 6,
                "bf_node_space_size": 5,
            "state_changed": 4
        },
        "rpcs_by_message_type": [{"message_type": "REQUEST_PING", "type_id": 1008, "count": 2,
            "queued": 0, "dropped": 0,
            "cycle_last": 0, "cycle_max": 0, "total_time": 30, "average_time": number(15)}],
        "rpcs_by_user": [
            {"user": "root", "user_id": 0, "count": 2, "total_time": 30,
                "average_time": number(15)},
            {"user": "54321", "user_id": 54321, "count": 1, "total_time": 3,
                "average_time": number(3)}
        ],
        "pending_rpcs": [{"message_type": "REQUEST_TERMINATE_JOB", "type_id": 6011, "count": 3}],
        "pending_rpcs_by_hostlist": [{"message_type": "REQUEST_TERMINATE_JOB", "type_id": 6011,
            "count": ["n1", "n2"]}],
    });
    let numbers = [
        "server_thread_count",
        "agent_queue_size",
        "agent_count",
        "agent_thread_count",
        "dbd_agent_queue_size",
        "gettimeofday_latency",
        "schedule_cycle_max",
        "schedule_cycle_last",
        "schedule_cycle_sum",
        "schedule_cycle_total",
        "schedule_cycle_mean",
        "schedule_cycle_mean_depth",
        "schedule_cycle_depth",
        "schedule_queue_length",
        "jobs_submitted",
        "jobs_started",
        "jobs_completed",
        "jobs_canceled",
        "jobs_failed",
        "jobs_pending",
        "jobs_running",
        "bf_backfilled_jobs",
        "bf_last_backfilled_jobs",
        "bf_backfilled_het_jobs",
        "bf_cycle_counter",
        "bf_cycle_mean",
        "bf_depth_mean",
        "bf_depth_mean_try",
        "bf_cycle_sum",
        "bf_cycle_last",
        "bf_cycle_max",
        "bf_last_depth",
        "bf_last_depth_try",
        "bf_depth_sum",
        "bf_depth_try_sum",
        "bf_queue_len",
        "bf_queue_len_mean",
        "bf_queue_len_sum",
        "bf_table_size",
        "bf_table_size_sum",
        "bf_table_size_mean",
    ];
    for (number, name) in (101..).zip(numbers) {
        statistics[name] = json!(number);
    }
    json!({
        "statistics": statistics, "errors": [], "warnings": [],
        "meta": {"slurm": {"version": {"major": "24", "minor": "11", "micro": "5"},
            "release": "24.11.5",
            "cluster": "sandbox"}},
    })
}

fn decoded(answer: &Value, version: u32) -> Result<Statistics, String> {
    let text = serde_json::to_vec(answer).unwrap();
    let envelope = read_answer(&text[..], Diag::new(version, true, true))
        .map_err(|error| error.to_string())?;
    envelope.payload.statistics.ok_or_else(|| "no statistics".to_owned())
}

#[test]
fn an_answer_of_24_11_is_read_whole() {
    let text = serde_json::to_vec(&diag()).unwrap();
    let envelope = read_answer(&text[..], Diag::new(42, true, true)).unwrap();
    assert_eq!(envelope.meta.release, Some(Release::new(24, 11)));
    assert_eq!(envelope.meta.cluster.as_deref(), Some("sandbox"));
    let s = envelope.payload.statistics.unwrap();
    assert_eq!(
        (s.req_time, s.schedule_cycle_counter, s.schedule_cycle_sum),
        (1_700_000_100, 110, Some(109))
    );
    assert_eq!(s.schedule_exit, Some(vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(s.bf_exit, Some(vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(s.means, None, "every sum is there");
    let rpc = s.rpc.unwrap();
    assert_eq!(rpc.types[0].queue, None, "no queue has done anything");
    let names: Vec<_> = rpc.users.iter().map(|user| user.name.as_deref()).collect();
    assert_eq!(names, [Some("root"), None], "a number is no name");
    assert_eq!((rpc.pending.unwrap()[0].count, rpc.dumped[0].hostlist.as_str()), (3, "n1,n2"));
}

#[test]
fn what_should_be_an_object_and_is_something_else_is_an_error() {
    for place in ["/statistics", "/statistics/bf_exit", "/meta", "/meta/slurm"] {
        for value in [json!([]), json!(1), json!("x")] {
            let mut answer = diag();
            *answer.pointer_mut(place).unwrap() = value.clone();
            assert!(decoded(&answer, 42).is_err(), "{place} {value}");
        }
    }
    let answer = json!({"partitions": [{"name": "p", "partition": ["UP"]}]}).to_string();
    assert!(read_answer(answer.as_bytes(), Partitions::default()).is_err());
}

#[test]
fn that_no_message_waits_is_a_figure_and_an_older_version_has_none() {
    let mut answer = diag();
    answer["statistics"]["pending_rpcs"] = json!([]);
    assert_eq!(decoded(&answer, 42).unwrap().rpc.unwrap().pending, Some(Vec::new()));
    answer["statistics"].as_object_mut().unwrap().remove("pending_rpcs");
    assert_eq!(decoded(&answer, 40).unwrap().rpc.unwrap().pending, None);
}

/// Up to v0.0.40 there are quotients and no sums. The one named after table sizes is of queue
/// lengths from v0.0.39 on.
#[test]
fn a_quotient_counts_where_its_sum_is_absent_and_never_under_a_wrong_name() {
    let mut answer = diag();
    let statistics = answer["statistics"].as_object_mut().unwrap();
    statistics.retain(|name, _| !name.ends_with("_sum") && name != "schedule_cycle_depth");
    for (version, table_size) in [(38, Some(141)), (39, None), (40, None), (42, None)] {
        let s = decoded(&answer, version).unwrap();
        let means = s.means.unwrap();
        assert_eq!((means.schedule_cycle, means.bf_queue_len), (Some(111), Some(137)));
        assert_eq!((means.bf_table_size, s.bf_cycle_sum), (table_size, None), "v0.0.{version}");
    }
}

#[test]
fn numbers_may_be_texts_or_objects_and_nothing_else() {
    let submitted = |value: Value| {
        let mut answer = diag();
        answer["statistics"]["jobs_submitted"] = value;
        decoded(&answer, 42).map(|s| s.jobs_submitted)
    };
    for value in [
        json!(7),
        json!("7"),
        json!(7.0),
        json!({"set": true, "infinite": false, "number": 7}),
        json!({"number": 7}),
    ] {
        assert_eq!(submitted(value.clone()), Ok(7), "{value}");
    }
    for value in [
        Value::Null,
        json!(-1),
        json!(7.5),
        json!("x"),
        json!(true),
        json!([7]),
        json!({}),
        json!(4_294_967_296_u64),
        json!({"set": false, "number": 7}),
        json!({"set": true, "infinite": true, "number": 7}),
        json!(1e300),
    ] {
        assert!(submitted(value.clone()).is_err(), "{value}");
    }
}

#[test]
fn what_was_refused_is_no_reading_whatever_else_it_holds() {
    let text =
        r#"{"errors":[{"error_number":1007,"error":"refused"}],"statistics":{"rpcs_by_user":[]}}"#;
    let envelope = read_answer(text.as_bytes(), Diag::new(38, true, true)).unwrap();
    assert_eq!(envelope.error, Some(1007));
    assert_eq!(envelope.payload.statistics, None);
    assert!(read_answer(&b"{\"errors\":[]}"[..], Diag::new(38, true, true)).is_err());
}

#[test]
fn a_release_is_read_of_its_text() {
    for (meta, release) in [
        (
            json!({"Slurm": {"version": {"major": 22, "micro": 8, "minor": 5},
                "release": "22.05.8"}}),
            Some(Release::new(22, 5)),
        ),
        (json!({"slurm": {"release": "26.05.0-0rc1"}}), Some(Release::new(26, 5))),
        (json!({"slurm": {"release": "unknown"}}), None),
        (json!(null), None),
    ] {
        let mut answer = diag();
        answer["meta"] = meta;
        let text = serde_json::to_vec(&answer).unwrap();
        assert_eq!(
            read_answer(&text[..], Diag::new(42, false, false)).unwrap().meta.release,
            release
        );
    }
}

fn node(state: Value, more: &str) -> String {
    format!(
        r#"{{"name":"n1","state":{state},"cpus":8,"effective_cpus":6,"alloc_cpus":2,
        "real_memory":1000,"alloc_memory":100,
        "free_mem":{{"set":true,"infinite":false,"number":50}},
        "gres":"gpu:a100:4(S:0-1)","gres_used":"gpu:a100:1(IDX:0)",
        "partitions":["a","b"],"reason":"r","reason_changed_at":{{"set":true,"infinite":false,"number":9}}{more}}}"#
    )
}

/// Every node by itself.
fn each() -> ReplyOptions {
    ReplyOptions { rows: true, marks: true, ..ReplyOptions::default() }
}

fn nodes_of(node: String) -> serde_json::Result<NodesAnswer> {
    let text = format!(r#"{{"nodes":[{node}],"last_update":7}}"#);
    read_answer(text.as_bytes(), NodesAnswer::new(Release::new(24, 11), each()))
        .map(|envelope| envelope.payload)
}

/// Slurm keeps one time for both, that of the reason, which a drained node that goes down keeps.
#[test]
fn since_when_a_drained_node_is_down_nobody_knows() {
    let nodes = nodes_of(node(json!(["DOWN", "DRAIN"]), "")).unwrap().nodes;
    assert_eq!((nodes.drain_since, nodes.down_since), (vec![9], vec![]));
}

#[test]
fn nodes_are_counted_as_the_reader_of_libslurm_counts_them() {
    let found = nodes_of(node(json!(["MIXED", "DRAIN", "NOT_RESPONDING"]), "")).unwrap();
    let nodes = &found.nodes;
    assert_eq!((nodes.last_update, nodes.records, &nodes.drain_since[..]), (7, 1, &[9][..]));
    let tally = nodes.states["draining"];
    assert_eq!((tally.cpus.allocated, tally.cpus.other, tally.cpus.total), (2, 4, 6));
    assert_eq!(
        (tally.gpus.allocated, tally.gpus.total, tally.memory.free.value()),
        (1, 4, Some(50))
    );
    assert_eq!(nodes.flags.keys().collect::<Vec<_>>(), ["drain", "not_responding"]);
    assert_eq!(found.partitions.keys().collect::<Vec<_>>(), ["a", "b"]);
    let row = &nodes.rows[0];
    assert_eq!((row.down, row.drain, row.not_responding), (false, true, true));
    // 22.05: one word, with the flags in a separate member.
    let old = nodes_of(node(json!("idle"), r#","state_flags":["DRAIN"]"#)).unwrap();
    assert_eq!(old.nodes.states.keys().collect::<Vec<_>>(), ["drained"]);
    assert!(nodes_of(node(json!(["NEWER"]), "")).is_err(), "no base state");
    assert!(nodes_of(r#"{"name":"n1","state":"idle"}"#.to_owned()).is_err(), "no CPUs");
}

fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| places(member, &format!("{at}/{name}"), found))
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

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        any::<u32>().prop_map(|number| json!(number.to_string())),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("set|infinite|number|name|count|[a-z_]{0,9}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The first name is that of 22.05.
#[test]
fn the_release_of_a_nodes_slurmd_has_two_names() {
    for (more, release) in [
        (r#","slurmd_version":"22.05.8""#, Some("22.05.8")),
        (r#","version":"26.05.0-0rc1""#, Some("26.05.0-0rc1")),
        (r#","version":"""#, Some("unknown")),
        ("", Some("unknown")),
    ] {
        let nodes = nodes_of(node(json!(["IDLE"]), more)).unwrap().nodes;
        assert_eq!(nodes.slurmds.keys().map(String::as_str).next(), release, "{more}");
    }
}

/// A licence that is counted here alone has 0 for both, which means nothing.
#[test]
fn only_a_remote_licence_has_a_server_that_counts() {
    let answer = json!({"licenses": [
        {"LicenseName": "a@b", "Total": 20, "Used": 3, "Remote": true, "LastConsumed": 9,
            "LastDeficit": 4},
        {"LicenseName": "c", "Total": 20, "Used": 3, "Remote": false, "LastConsumed": 0,
            "LastDeficit": 0},
    ]});
    let read = read_answer(answer.to_string().as_bytes(), Licenses::default()).unwrap();
    let seen: Vec<_> =
        read.payload.licenses.iter().map(|one| (one.last_consumed, one.last_deficit)).collect();
    assert_eq!(seen, [(Some(9), Some(4)), (None, None)]);
}

/// A licence has this form from v0.0.44 on; 4294967295 means unlimited.
#[test]
fn a_licence_without_end_has_no_number_and_a_layer_its_nodes() {
    let answer = json!({"licenses": [
        {"LicenseName": "flat", "Total": u32::MAX, "Free": 4, "Used": 2, "Nodes": "n[1-2]"},
        {"LicenseName": "matlab", "Total": 20, "Free": 0, "Used": 20, "Nodes": ""},
    ]});
    let read = read_answer(answer.to_string().as_bytes(), Licenses::default()).unwrap();
    let [flat, matlab] = &read.payload.licenses[..] else { panic!("not two") };
    assert_eq!(
        (flat.total, flat.free, flat.used, flat.nodes.as_deref()),
        (None, None, Some(2), Some("n[1-2]"))
    );
    assert_eq!((matlab.total, matlab.free, matlab.nodes.as_deref()), (Some(20), Some(0), None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Either the unchanged members keep their figures, or there is no reading.
    #[test]
    fn a_changed_answer_is_an_error_or_the_other_figures_are_right(
        which in any::<prop::sample::Index>(), value in anything(), (version, _) in
            prop::sample::select(crate::api::versions().collect::<Vec<_>>()),
    ) {
        let whole = diag();
        let mut found = Vec::new();
        places(&whole, "", &mut found);
        let place = &found[which.index(found.len())];
        let mut changed = whole.clone();
        *changed.pointer_mut(place).unwrap() = value;
        let (Ok(truth), Ok(figures)) = (decoded(&whole, version), decoded(&changed,
            version)) else { return Ok(()) };
        let members = |s: &Statistics| match serde_json::to_value(s).unwrap() {
            Value::Object(members) => members,
            other => panic!("{other}"),
        };
        let truth = members(&truth);
        let figures = members(&figures);
        let differ: Vec<_> = figures.iter().filter(|(name, value)|
            truth.get(*name) != Some(value)).collect();
        // One member, and what follows from it: the means if it was a sum, and whether there is a
        // queue.
        prop_assert!(differ.iter().filter(|(name, _)| *name != "means"
            && *name != "rpc_queue_enabled").count() <= 1, "{place}: {differ:?}");
    }

    #[test]
    fn damaged_bytes_are_no_panic(bytes in prop::collection::vec((any::<prop::sample::Index>(),
        any::<u8>()), 1..8), cut in any::<prop::sample::Index>()) {
        let mut text = serde_json::to_vec(&diag()).unwrap();
        for (which, byte) in bytes {
            let at = which.index(text.len());
            text[at] = byte;
        }
        let _ = read_answer(&text[..], Diag::new(42, true, true));
        let end = cut.index(text.len());
        prop_assert!(read_answer(&text[..end], Diag::new(42, true, true)).is_err(), "half a \
            response");
    }

    #[test]
    fn any_json_is_no_panic_for_any_answer(value in anything(),
        key in "nodes|partitions|licenses|reservations|pings|statistics") {
        let text = serde_json::to_vec(&json!({key: [value.clone(), {"name": value,
            "state": "UP"}]})).unwrap();
        let release = Release::new(24, 11);
        let _ = read_answer(&text[..], NodesAnswer::new(release, each()));
        let _ = read_answer(&text[..], Partitions::default());
        let _ = read_answer(&text[..], Licenses::default());
        let _ = read_answer(&text[..], Reservations::default());
        let _ = read_answer(&text[..], Vec::<Controller>::default());
        let _ = read_answer(&text[..], Diag::new(42, true, true));
    }
}
