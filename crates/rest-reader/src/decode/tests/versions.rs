//! The differences between the versions of the API in names and types, from Slurm's own sources:
//! openapi/v0.0.N up to v0.0.38, data_parser/v0.0.N/parsers.c from v0.0.39 on. The answers are made
//! here, in each version's shape.

use serde_json::{Value, json};
use slurm_snapshot::{
    Controller, Jobs, Licenses, Means, Partitions, Release, Reservations, Statistics,
};

use super::super::diag::Diag;
use super::super::{Envelope, NodesAnswer, Payload, read_answer};
use crate::api::versions;

/// The release that each version came with.
fn release(version: u32) -> Release {
    versions().find(|(known, _)| *known == version).map(|(_, release)| release).unwrap()
}

/// A number: bare before the version `since`, and from then on an object that also says whether it
/// is set and whether it is infinite.
fn number(version: u32, since: u32, number: i64) -> Value {
    if version < since {
        json!(number)
    } else {
        json!({"set": true, "infinite": false, "number": number})
    }
}

/// Adds this version's meta, errors and warnings; up to v0.0.39 they come before the payload.
fn wrapped(version: u32, name: &str, payload: &Value) -> String {
    let text = release(version).to_string();
    let (year, month) = text.split_once('.').unwrap();
    let meta = match version {
        ..=38 => json!({"plugin": {"type": format!("openapi/v0.0.{version}"), "name": "REST"},
            "Slurm": {"version": {"major": year.parse::<u8>().unwrap(), "micro": 4,
                "minor": month.parse::<u8>().unwrap()},
                "release": format!("{text}.4")}}),
        39 => json!({"plugin": {"type": "openapi/v0.0.39", "name": "Slurm OpenAPI v0.0.39"},
            "Slurm": {"version": {"major": year.parse::<u8>().unwrap(), "micro": 4,
                "minor": month.parse::<u8>().unwrap()},
                "release": format!("{text}.4")}}),
        _ => json!({"plugin": {"type": "openapi/slurmctld", "name": "Slurm OpenAPI slurmctld",
                "data_parser": format!("data_parser/v0.0.{version}"),
                    "accounting_storage": "accounting_storage/none"},
            "client": {"source": "[localhost]:40000", "user": "root", "group": "root"},
                "command": [],
            "slurm": {"version": {"major": year, "micro": "4", "minor": month},
                "release": format!("{text}.4"),
                "cluster": "sandbox"}}),
    };
    let warnings = json!([{"description": "a warning", "source": "somewhere"}]);
    if version < 40 {
        format!(
            r#"{{"meta":{meta},"errors":[],"warnings":{warnings},"{name}":{payload},"newer":[{{}}]}}"#
        )
    } else {
        format!(
            r#"{{"{name}":{payload},"last_update":{{"set":true,"infinite":false,"number":7}},
            "meta":{meta},"errors":[],"warnings":{warnings}}}"#
        )
    }
}

fn decoded<T: Payload>(version: u32, name: &str, payload: &Value, into: T) -> T {
    let text = wrapped(version, name, payload);
    let Envelope { meta, payload, error, .. } = read_answer(text.as_bytes(), into)
        .unwrap_or_else(|error| panic!("v0.0.{version} {name}: {error}\n{text}"));
    assert_eq!((meta.release, error), (Some(release(version)), None), "v0.0.{version}");
    assert_eq!(meta.cluster.as_deref(), (version >= 40).then_some("sandbox"));
    payload
}

fn listed<L: Payload>(version: u32, rows: &Value, list: L) -> L {
    decoded(version, L::NAME, rows, list)
}

/// Every number is different, so that a wrong name shows.
fn diag(version: u32) -> Value {
    let moment = |at| number(version, 40, at);
    let mut s = json!({
        "req_time": moment(1_700_000_600), "req_time_start": moment(1_700_000_000),
            "server_thread_count": 3,
        "agent_queue_size": 4, "agent_count": 5, "agent_thread_count": 6, "dbd_agent_queue_size": 7,
        "gettimeofday_latency": 8, "schedule_cycle_max": 9, "schedule_cycle_last": 10,
            "schedule_cycle_total": 11,
        "schedule_cycle_mean": 12, "schedule_cycle_mean_depth": 13, "schedule_cycle_per_minute": 14,
        "schedule_queue_length": 15, "jobs_submitted": 16, "jobs_started": 17,
            "jobs_completed": 18, "jobs_canceled": 19,
        "jobs_failed": 20, "jobs_pending": 21, "jobs_running": 22,
            "job_states_ts": moment(1_700_000_590),
        "bf_backfilled_jobs": 23, "bf_last_backfilled_jobs": 24, "bf_backfilled_het_jobs": 25,
            "bf_cycle_counter": 26,
        "bf_cycle_mean": 27, "bf_depth_mean": 28, "bf_depth_mean_try": 29, "bf_cycle_last": 30,
            "bf_queue_len": 31,
        "bf_queue_len_mean": 32, "bf_when_last_cycle": moment(0), "bf_active": true,
    });
    let mut add = |since: u32, until: u32, members: Value| {
        if (since..=until).contains(&version) {
            s.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        }
    };
    add(38, 38, json!({"bf_cycle_max": 33}));
    add(38, u32::MAX, json!({"bf_table_size": 34, "bf_table_size_mean": 35}));
    add(
        39,
        u32::MAX,
        json!({"bf_cycle_sum": 36, "bf_depth_sum": 37, "bf_depth_try_sum": 38,
            "bf_queue_len_sum": 39,
        "bf_last_depth": 40, "bf_last_depth_try": 41}),
    );
    add(
        40,
        u32::MAX,
        json!({
            "schedule_exit": {"end_job_queue": 1, "default_queue_depth": 2, "max_job_start": 3,
                "max_rpc_cnt": 5,
                "max_sched_time": 6, "licenses": 4},
            "bf_exit": {"end_job_queue": 1, "bf_max_job_start": 2, "bf_max_job_test": 3,
                "bf_max_time": 6,
                "bf_node_space_size": 5, "state_changed": 4},
        }),
    );
    add(
        41,
        u32::MAX,
        json!({"schedule_cycle_sum": 42, "schedule_cycle_depth": 43, "bf_cycle_max": 33,
            "bf_table_size_sum": 44,
        "pending_rpcs": [{"type_id": 6011, "message_type": "REQUEST_TERMINATE_JOB", "count": 3}],
        "pending_rpcs_by_hostlist": [{"type_id": 6011, "message_type": "REQUEST_TERMINATE_JOB",
            "count": ["n1", "n2"]}]}),
    );
    let users = |average: Value| {
        json!([{"user": "root", "user_id": 0, "count": 2,
        "average_time": average, "total_time": 1}])
    };
    add(
        38,
        40,
        json!({"rpcs_by_user": users(json!(0)), "rpcs_by_message_type": [
        {"message_type": "REQUEST_PING", "type_id": 1008, "count": 2, "average_time": 0,
            "total_time": 9_000_000_000_u64}]}),
    );
    add(
        41,
        u32::MAX,
        json!({"rpcs_by_user": users(json!({"set": false, "infinite": false, "number": 0})),
        "rpcs_by_message_type": [{"type_id": 1008, "message_type": "REQUEST_PING", "count": 2,
            "queued": 0, "dropped": 0,
            "cycle_last": 0, "cycle_max": 0, "total_time": 9_000_000_000_u64,
                "average_time": number(version, 41, 4)}]}),
    );
    s
}

#[test]
fn diag_of_every_version_says_under_each_name_what_that_version_means() {
    for (version, _) in versions() {
        let payload = Diag::new(version, true, true);
        let s: Statistics =
            decoded(version, "statistics", &diag(version), payload).statistics.unwrap();
        let since = |first: u32| version >= first;
        let reported = |first: u32, value: u32| since(first).then_some(value);
        assert_eq!(
            (s.req_time, s.req_time_start),
            (1_700_000_600, 1_700_000_000),
            "v0.0.{version}"
        );
        assert_eq!(
            (s.schedule_cycle_counter, s.schedule_queue_len, s.bf_queue_len, s.bf_active),
            (11, 15, 31, 1)
        );
        assert_eq!((s.job_states_ts, s.bf_when_last_cycle), (Some(1_700_000_590), None));
        assert_eq!(
            (s.schedule_cycle_sum, s.schedule_cycle_depth),
            (reported(41, 42).map(Into::into), reported(41, 43))
        );
        assert_eq!(s.bf_cycle_max, (version <= 38 || since(41)).then_some(33));
        assert_eq!((s.bf_table_size, s.bf_table_size_sum), (reported(38, 34), reported(41, 44)));
        assert_eq!(
            (s.bf_cycle_sum, s.bf_depth_sum),
            (reported(39, 36).map(Into::into), reported(39, 37))
        );
        assert_eq!((s.bf_depth_try_sum, s.bf_queue_len_sum), (reported(39, 38), reported(39, 39)));
        assert_eq!((s.bf_last_depth, s.bf_last_depth_try), (reported(39, 40), reported(39, 41)));
        let until = |last: u32, value: u64| (version <= last).then_some(value);
        let means = Means {
            schedule_cycle: until(40, 12),
            schedule_depth: until(40, 13),
            bf_cycle: until(38, 27),
            bf_depth: until(38, 28),
            bf_depth_try: until(38, 29),
            bf_queue_len: (version == 38).then_some(32),
            // From v0.0.39 on it is the mean queue length.
            bf_table_size: (version == 38).then_some(35),
        };
        assert_eq!(s.means, (means != Means::default()).then_some(means), "v0.0.{version}");
        let exits = since(40).then(|| vec![1, 2, 3, 4, 5, 6]);
        assert_eq!((&s.schedule_exit, &s.bf_exit), (&exits, &exits));
        assert_eq!(s.rpc.is_some(), since(38));
        if let Some(rpc) = s.rpc {
            assert_eq!((rpc.types[0].count, rpc.types[0].time), (2, 9_000_000_000));
            assert_eq!((rpc.users[0].count, rpc.users[0].name.as_deref()), (2, Some("root")));
            assert_eq!(rpc.pending.map(|rows| rows[0].count), reported(41, 3), "v0.0.{version}");
        }
    }
}

#[test]
fn nodes_of_every_version_that_tells_them_are_the_same_nodes() {
    for (version, _) in versions() {
        let moment = |at| number(version, 40, at);
        let free = if version == 38 {
            ("free_memory", json!(-2))
        } else {
            ("free_mem", json!({"set": false, "infinite": false, "number": 0}))
        };
        let mut drained = json!({"name": "n1", "cpus": 8, "alloc_cpus": 2, "real_memory": 100,
            "alloc_memory": 10,
            "cpu_load": number(version, if version == 39 { 39 } else { 99 }, 0xffff_fffe),
            "gres": "gpu:a100:4(S:0-1)", "gres_used": "gpu:a100:1(IDX:0)", "partitions": ["a",
                "b"], "reason": "r",
            "reason_changed_at": moment(9), "boot_time": moment(1), "slurmd_start_time": moment(2),
                "tres_weighted": 1.5, "owner": null,
            "energy": {"average_watts": 0}, "comment": "\u{fffd}"});
        let mut up = json!({"name": "n2", "cpus": 8, "alloc_cpus": 0, "real_memory": 100,
            "alloc_memory": 0,
            "gres": "", "gres_used": "", "partitions": [], "reason": "",
                "reason_changed_at": moment(0)});
        if version == 38 {
            drained["state"] = json!("mixed");
            drained["state_flags"] = json!(["DRAIN", "?"]);
            up["state"] = json!("idle");
            up["state_flags"] = json!([]);
            drained["tres"] = json!("cpu=7,mem=100M,billing=8");
            up["tres"] = json!("cpu=8,mem=100M,billing=8");
        } else {
            drained["state"] = json!(["MIXED", "DRAIN"]);
            up["state"] = json!(["IDLE"]);
            drained["effective_cpus"] = json!(7);
            up["effective_cpus"] = json!(0);
        }
        drained[free.0] = free.1;
        let found = listed(
            version,
            &json!([drained, up]),
            NodesAnswer::new(release(version), super::each()),
        );
        let states: Vec<_> = found.nodes.states.keys().collect();
        assert_eq!(states, ["draining", "idle"], "v0.0.{version}");
        assert_eq!(found.nodes.flags.keys().collect::<Vec<_>>(), ["drain"]);
        // Without the CPU that CpuSpecList keeps for the system. v0.0.38 has no `effective_cpus`,
        // and 8 were published.
        assert_eq!((found.nodes.total.cpus.total, found.nodes.total.gpus.allocated), (15, 1));
        let free = found.nodes.total.memory.free;
        assert_eq!((&found.nodes.drain_since[..], free.value()), (&[9][..], None), "not known");
        let marks: Vec<_> =
            found.nodes.marks.iter().map(|mark| (mark.boot_time, mark.slurmd_start_time)).collect();
        assert_eq!(marks, [(Some(1), Some(2)), (None, None)], "v0.0.{version}");
        assert_eq!(found.partitions["b"].members, [(0, 0)]);
        assert_eq!(found.nodes.rows[0].cpu_load, None);
        assert_eq!(found.nodes.last_update, if version < 40 { 0 } else { 7 });
    }
}

#[test]
fn partitions_say_up_where_the_version_says_so() {
    for (version, _) in versions() {
        let mut row = json!({"name": "batch", "nodes": {"configured": "n[1-2]", "total": 2}});
        match version {
            38 => row = json!({"name": "batch", "state": "UP", "nodes": "n[1-2]"}),
            // 23.02 leaves it out.
            39 => {}
            40..=44 => row["partition"] = json!({"state": ["UP"]}),
            _ => row["partition"] = json!({"state": ["UP"], "exclusive": [], "oversubscribe": []}),
        }
        let found = listed(version, &json!([row]), Partitions::default());
        assert_eq!(
            found.partitions[0].state,
            if version == 39 { "" } else { "up" },
            "v0.0.{version}"
        );
        assert_eq!(found.partitions[0].name, "batch");
    }
}

#[test]
fn a_controller_is_up_or_down_by_the_word_of_its_version() {
    for (version, _) in versions() {
        let row = |up: bool| match version {
            ..=38 => {
                json!({"hostname": "c", "ping": if up { "UP" } else { "DOWN" }, "status": 0,
                    "mode": "primary"})
            }
            39..=41 => {
                json!({"hostname": "c", "pinged": if up { "UP" } else { "DOWN" }, "latency": 5,
                    "mode": "primary"})
            }
            42..=44 => {
                json!({"hostname": "c", "pinged": if up { "UP" } else { "DOWN" }, "responding": up,
                    "latency": 5,
                "mode": "primary", "primary": true})
            }
            _ => {
                json!({"hostname": "c", "responding": up, "latency": 5, "primary": true,
                    "status": "No error"})
            }
        };
        let found = listed(version, &json!([row(true), row(false)]), Vec::<Controller>::new());
        let up: Vec<_> = found.iter().map(|controller| (controller.index, controller.up)).collect();
        assert_eq!(up, [(0, true), (1, false)], "v0.0.{version}");
        assert_eq!(found[0].elapsed, (version >= 39).then_some(5), "no response time of 0");
    }
}

#[test]
fn licences_and_reservations_of_every_version_are_the_same() {
    for (version, _) in versions() {
        let mut row = json!({"LicenseName": "matlab", "Total": 20, "Used": 5, "Free": 15,
            "Remote": false, "Reserved": 1});
        if version >= 39 {
            let more = json!({"LastConsumed": 0, "LastDeficit": 0, "LastUpdate": 0});
            row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        if version >= 44 {
            row["Nodes"] = json!("n[1-2]");
        }
        let found = listed(version, &json!([row]), Licenses::default());
        let matlab = &found.licenses[0];
        assert_eq!(
            (matlab.total, matlab.used, matlab.free, matlab.reserved),
            (Some(20), Some(5), Some(15), Some(1)),
            "v0.0.{version}"
        );
        assert_eq!(matlab.nodes.is_some(), version >= 44);
        let moment = |at| number(version, 40, at);
        let row = json!({"name": "r", "node_count": 2, "core_count": -2, "start_time": moment(5),
            "end_time": moment(9),
            "flags": ["MAINT", "SPEC_NODES"], "purge_completed": {"time": {"set": false,
                "infinite": false, "number": 0}}});
        let found = listed(version, &json!([row]), Reservations::default());
        let r = &found.reservations[0];
        assert_eq!(
            (r.nodes, r.cores, r.start_time, r.end_time, r.maint),
            (Some(2), None, Some(5), Some(9), true),
            "v0.0.{version}"
        );
    }
}

#[test]
fn job_states_are_read_of_every_version_that_has_them() {
    for version in 41..=45 {
        let rows = json!([{"job_id": "7", "state": ["RUNNING"]}, {"job_id": "8_[1-4]",
            "state": ["PENDING"]}]);
        let jobs = listed(version, &rows, Jobs::default());
        assert_eq!(
            (jobs.unparsed, jobs.states.shown["running"].jobs, jobs.states.shown["pending"].jobs),
            (0, 1, 4),
            "v0.0.{version}"
        );
    }
}

/// slurmrestd writes them so when started with the data parser's flag "complex".
#[test]
fn unset_and_infinite_are_absent_however_they_are_written() {
    for none in [
        Value::Null,
        json!(0),
        json!(-2),
        json!(4_294_967_294_u32),
        json!(18_446_744_073_709_551_614_u64),
        json!("Infinity"),
        json!({"set": false, "infinite": false, "number": 0}),
        json!({"set": false, "infinite": true, "number": 0}),
        json!({"set": true, "infinite": false, "number": 0}),
    ] {
        let mut statistics = diag(42);
        statistics["bf_when_last_cycle"] = none.clone();
        let found =
            decoded(42, "statistics", &statistics, Diag::new(42, true, true)).statistics.unwrap();
        assert_eq!(found.bf_when_last_cycle, None, "{none}");
        let row = json!({"name": "r", "start_time": none});
        let found = listed(42, &json!([row]), Reservations::default());
        assert_eq!(found.reservations[0].start_time, None, "{none}");
    }
}
