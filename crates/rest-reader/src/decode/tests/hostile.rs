//! Answers that no slurmrestd gives: each is refused, and the error says what was refused in words
//! that are not the answer's.

use serde_json::json;
use slurm_snapshot::{LONGEST_NAME, Licenses, Partitions, Release, ReplyOptions, Reservations};

use super::super::diag::Diag;
use super::super::{NodesAnswer, Payload, complaint, read_answer};
use super::diag;

fn refused<T: Payload>(text: &str, payload: T) -> String {
    match read_answer(text.as_bytes(), payload) {
        Ok(_) => panic!("accepted: {}", text.get(..200).unwrap_or(text)),
        Err(error) => complaint(&error),
    }
}

fn nodes(rows: bool) -> NodesAnswer {
    NodesAnswer::new(Release::new(24, 11), ReplyOptions { rows, ..ReplyOptions::default() })
}

fn node(name: &str, more: &str) -> String {
    format!(
        r#"{{"name":"{name}","state":["IDLE"],"cpus":8,"effective_cpus":8,"alloc_cpus":2{more}}}"#
    )
}

/// Slurm's most nodes and many partitions, in a maintenance of all of them: had they been refused,
/// nodes would vanish just then.
#[test]
fn as_many_nodes_as_slurm_can_have_fit_each_by_itself() {
    let node = |index: u32| {
        let a = index % 1000;
        let b = (index + 1) % 1000;
        let more = format!(r#","partitions":["part{a}","part{b}"]"#);
        node(&format!("node{index:05}"), &more)
            .replace(r#"["IDLE"]"#, r#"["IDLE","CLOUD","POWERED_DOWN","RESERVED"]"#)
    };
    let all: Vec<String> = (0..65_536).map(node).collect();
    let options = ReplyOptions { rows: true, marks: true, ..ReplyOptions::default() };
    let text = format!(r#"{{"nodes":[{}],"last_update":1}}"#, all.join(","));
    let answer = read_answer(text.as_bytes(), NodesAnswer::new(Release::new(24, 11), options));
    let answer = answer.unwrap_or_else(|error| panic!("{}", complaint(&error))).payload;
    assert_eq!((answer.nodes.records, answer.partitions.len()), (65_536, 1000));
}

#[test]
fn a_figure_that_occurs_twice_is_no_figure_at_whatever_depth() {
    let whole = diag().to_string();
    for (once, twice) in [
        (r#""jobs_failed":"#, r#""jobs_failed":1,"jobs_failed":"#),
        (r#""end_job_queue":1"#, r#""end_job_queue":1,"end_job_queue":1"#),
        (r#""type_id":1008"#, r#""type_id":1008,"type_id":1008"#),
        (r#""set":true"#, r#""set":true,"set":false"#),
        (r#""rpcs_by_user":"#, r#""rpcs_by_user":[],"rpcs_by_user":"#),
        (r#""statistics":"#, r#""statistics":null,"statistics":"#),
        (r#""release":"#, r#""release":"1.1","release":"#),
        (r#""errors":"#, r#""errors":[],"errors":"#),
    ] {
        let changed = whole.replacen(once, twice, 1);
        assert_ne!(changed, whole, "{once}");
        assert_eq!(
            read_answer(whole.as_bytes(), Diag::new(42, true, true)).map(|_| ()).ok(),
            Some(())
        );
        let problem = refused(&changed, Diag::new(42, true, true));
        assert!(problem.ends_with("an object has a member twice"), "{once}: {problem}");
    }
    // What nobody reads may occur as often as it likes.
    let changed = whole.replacen(r#""warnings":"#, r#""warnings":[],"warnings":"#, 1);
    assert!(read_answer(changed.as_bytes(), Diag::new(42, true, true)).is_ok());
}

/// Each member had 4 MiB of its own, and all of them are held until the object ends.
#[test]
fn the_members_of_one_object_share_its_room() {
    let half = format!("[{}]", vec![r#"{"":0}"#; 3000].join(","));
    let text = |members: &[&str]| {
        let members: Vec<String> =
            members.iter().map(|name| format!(r#""{name}":{half}"#)).collect();
        format!(r#"{{"statistics":{{{}}}}}"#, members.join(","))
    };
    let one = refused(&text(&["schedule_cycle_max"]), Diag::new(42, true, true));
    assert!(!one.contains("larger than anything"), "{one}");
    let two =
        refused(&text(&["schedule_cycle_max", "schedule_cycle_last"]), Diag::new(42, true, true));
    assert!(two.contains("larger than anything"), "{two}");
}

#[test]
fn errors_after_the_items_void_what_was_counted() {
    let text =
        format!(r#"{{"nodes":[{}],"errors":[{{"error_number":2002}},{{}}]}}"#, node("n1", ""));
    let envelope = read_answer(text.as_bytes(), nodes(false)).unwrap();
    assert_eq!(envelope.error, Some(2002));
    assert_eq!(envelope.payload.nodes.last_update, 0, "its end was not reached");
    refused(&text[..text.len() - 1], nodes(false));
}

/// A list of partitions and those of a node are joined by name, so both must be cut.
#[test]
fn a_name_of_any_length_is_cut_and_stays_its_own() {
    let long = |last: &str| "x".repeat(1025) + last;
    let nodes_of = |name: &str, partition: &str, kind: &str| {
        let more = format!(r#","partitions":["{partition}"],"gres":"gpu:{kind}:4""#);
        let text = format!(r#"{{"nodes":[{}]}}"#, node(name, &more));
        read_answer(text.as_bytes(), nodes(true)).unwrap().payload
    };
    let found = nodes_of(&long("n"), &long("p"), &long("g"));
    let partition = found.partitions.keys().next().unwrap();
    let names = [&found.nodes.rows[0].name, partition, found.nodes.gpus.keys().next().unwrap()];
    assert!(names.iter().all(|name| name.len() == LONGEST_NAME), "{names:?}");
    assert!(names[0] != names[1] && names[1] != names[2]);
    let list =
        format!(r#"{{"partitions":[{{"name":"{}"}},{{"name":"{}"}}]}}"#, long("p"), long("q"));
    let list = read_answer(list.as_bytes(), Partitions::default()).unwrap().payload;
    let listed: Vec<&String> = list.partitions.iter().map(|partition| &partition.name).collect();
    assert!(listed[0] == partition && listed[1] != partition, "{listed:?}");
    let unknown =
        r#"{"nodes":[{"name":"the-token","state":["THE-TOKEN"],"cpus":8,"alloc_cpus":2}]}"#;
    assert_eq!(refused(unknown, nodes(true)), "nodes, item 1: the node has an unknown state");
}

/// Each word was a level of paths, for as long as the daemon ran.
#[test]
fn flags_that_nobody_knows_are_one_word() {
    let more = r#","state_flags":["DRAIN","OTHER","INVENTED_1","INVENTED_2"]"#;
    let text = format!(
        r#"{{"nodes":[{},{}]}}"#,
        node("n1", more),
        node("n2", r#","state_flags":["INVENTED_3"]"#)
    );
    let flags = read_answer(text.as_bytes(), nodes(false)).unwrap().payload.nodes.flags;
    let flags: Vec<_> =
        flags.iter().map(|(flag, tally)| (flag.as_str(), tally.nodes.total)).collect();
    assert_eq!(flags, [("drain", 1), ("other", 2)]);
}

#[test]
fn many_long_names_are_refused_together() {
    let problem = "the names so far are longer together than those of any cluster";
    let list = |key: &str, item: &dyn Fn(String) -> String, count: usize| {
        let items: Vec<_> = (0..count).map(|n| item(format!("{n:05}").repeat(200))).collect();
        format!(r#"{{"{key}":[{}]}}"#, items.join(","))
    };
    let named = |name: String| format!(r#"{{"name":"{name}"}}"#);
    let text = list("partitions", &named, 400);
    assert_eq!(refused(&text, Partitions::default()), format!("partitions, item 328: {problem}"));
    let text = list("reservations", &named, 1400);
    assert_eq!(
        refused(&text, Reservations::default()),
        format!("reservations, item 1311: {problem}")
    );
    let text = list("licenses", &|name| format!(r#"{{"LicenseName":"{name}"}}"#), 6000);
    assert_eq!(refused(&text, Licenses::default()), format!("licenses, item 5243: {problem}"));
    let partitions = |n: usize| (0..100).map(|i| format!("p{}", n * 100 + i)).collect::<Vec<_>>();
    let rows = (0..200).map(|n| node("n", &format!(r#","partitions":{}"#, json!(partitions(n)))));
    let text = format!(r#"{{"nodes":[{}]}}"#, rows.collect::<Vec<_>>().join(","));
    assert_eq!(refused(&text, nodes(true)), format!("nodes, item 88: {problem}"));
    let short: Vec<_> = (0..1001).map(|n| json!({"name": n})).collect();
    let text = json!({"partitions": short}).to_string();
    assert_eq!(
        refused(&text, Partitions::default()),
        "partitions, item 1001: there are more than 1000 partitions"
    );
}

/// A byte may take 126 of memory: an object of one member takes as much as one of eleven.
#[test]
fn what_an_item_takes_in_memory_is_bounded_and_what_nobody_reads_is_not_counted() {
    let objects = format!("[{}{{}}]", r#"{"":{}},"#.repeat(20_000));
    for (member, is_read) in [("partitions", true), ("comment", false)] {
        let text = format!(r#"{{"nodes":[{}]}}"#, node("n1", &format!(r#","{member}":{objects}"#)));
        match is_read {
            true => assert_eq!(
                refused(&text, nodes(false)),
                "nodes, item 1: larger than anything that slurmrestd sends"
            ),
            false => assert_eq!(
                read_answer(text.as_bytes(), nodes(false)).unwrap().payload.nodes.records,
                1
            ),
        }
    }
    // A reservation of cores on 6,000 nodes.
    let cores = vec![json!({"node": "node01234", "core": "0-31"}); 6000];
    let text =
        json!({"reservations": [{"name": "r", "core_specializations": cores, "node_count": 6000}]});
    assert!(text.to_string().len() > 200_000);
    let read = read_answer(text.to_string().as_bytes(), Reservations::default()).unwrap();
    assert_eq!(read.payload.reservations[0].nodes, Some(6000));
}

#[test]
fn depth_and_long_texts_are_refused_where_nobody_reads_too() {
    let deep = |levels: usize| format!(r#"{{"x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    assert!(read_answer(deep(63).as_bytes(), ()).is_ok());
    assert_eq!(refused(&deep(64), ()), "the response is nested deeper than 64 levels");
    let text = |length: usize| format!(r#"{{"x":"\"[{}"}}"#, "[".repeat(length));
    assert!(read_answer(text((256 << 10) - 3).as_bytes(), ()).is_ok());
    let problem = "the response contains a longer string than slurmrestd ever sends";
    assert_eq!(refused(&text(256 << 10), ()), problem);
}
