//! The drawing as text.

use slurm_snapshot::{Release, RpcTables, RpcType, RpcUser};

use super::*;

/// An hour after midnight UTC, and what happened in the ten seconds after it.
fn two_readings() -> (Reading, Reading) {
    let types = |times: &[u32]| -> Vec<RpcType> {
        let rows = [2003, 2007, 4003, 1002, 2035, 5018, 2009, 7010, 999].into_iter().zip(times);
        rows.map(|(id, &n)| RpcType {
            id,
            count: n,
            time: u64::from(n) * u64::from(id),
            queue: None,
        })
        .collect()
    };
    let users = |times: &[u32]| -> Vec<RpcUser> {
        let names = [
            "root",
            "alice",
            "bob\u{1b}[31m",
            "carol.von.hohenzollern-sigmaringen-the-younger-one",
        ];
        let row = |(id, (name, &n)): (u32, (&str, &u32))| {
            let line = format!(
                r#"{{"id":{id},"name":{name:?},"count":{n},"time":{}}}"#,
                u64::from(n) * 2500
            );
            serde_json::from_str(&line.replace("\\u{1b}", "\\u001b")).unwrap()
        };
        (0..).zip(names.into_iter().zip(times)).map(row).collect()
    };
    let tables = |t: &[u32], u: &[u32]| {
        Some(RpcTables { types: types(t), users: users(u), ..RpcTables::default() })
    };
    let old = Statistics {
        req_time: 1_700_006_400,
        req_time_start: 1_700_000_000,
        schedule_cycle_counter: 100,
        schedule_cycle_sum: Some(u64::from(u32::MAX) - 1_000_000),
        schedule_cycle_max: 2_500_000,
        jobs_submitted: 5000,
        bf_queue_len_sum: Some(70_000),
        rpc: tables(&[10, 20, 30, 40, 50, 60, 70, 80, 90], &[400, 30, 20, 7]),
        schedule_cycle_depth: Some(0),
        bf_cycle_sum: Some(0),
        bf_cycle_max: Some(0),
        bf_last_depth: Some(0),
        bf_last_depth_try: Some(0),
        bf_depth_sum: Some(0),
        bf_depth_try_sum: Some(0),
        bf_table_size: Some(0),
        bf_table_size_sum: Some(0),
        ..Statistics::default()
    };
    let new = Statistics {
        req_time: 1_700_006_410,
        server_thread_count: 140,
        agent_queue_size: 12,
        agent_count: 3,
        jobs_pending: 48_211,
        jobs_running: 9_870,
        job_states_ts: Some(1_700_006_393),
        jobs_submitted: 5100,
        jobs_started: 40,
        jobs_completed: 30,
        jobs_canceled: 2,
        schedule_cycle_counter: 110,
        schedule_cycle_sum: Some(5_200_000),
        schedule_cycle_last: 640_000,
        schedule_cycle_depth: Some(2000),
        schedule_queue_len: 48_190,
        bf_cycle_counter: 1,
        bf_cycle_sum: Some(2_300_000),
        bf_cycle_max: Some(2_300_000),
        bf_cycle_last: 2_300_000,
        bf_depth_sum: Some(1500),
        bf_last_depth: Some(1500),
        bf_last_depth_try: Some(1200),
        bf_queue_len: 48_190,
        bf_queue_len_sum: Some(118_190),
        bf_when_last_cycle: Some(1_700_006_405),
        rpc: tables(&[510, 120, 60, 41, 51, 75, 90, 81, 95], &[430, 700, 25, 8]),
        ..old.clone()
    };
    let reading = |time: f64, statistics: Statistics| Reading {
        id: 1,
        time,
        uptime: Some(time - 1e9),
        elapsed: 900,
        release: Release::new(24, 5),
        cluster: Some("sandbox".into()),
        statistics: Some(statistics),
        ..Reading::default()
    };
    (reading(1_700_006_400.5, old), reading(1_700_006_410.5, new))
}

fn drawn(view: &View, size: Size) -> Vec<String> {
    let lines = screen(view, size);
    assert!(lines.len() <= size.height, "{lines:#?}");
    assert!(lines.iter().all(|line| line.text.chars().count() <= size.width), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.text.contains(char::is_control)), "{lines:#?}");
    let marked = |line: ScreenLine| {
        let mark = match line.look {
            Look::Plain => ' ',
            Look::Reverse => '#',
            Look::Bold => '!',
            Look::Faint => '.',
        };
        format!("{mark}{}", line.text).trim_end().to_owned()
    };
    lines.into_iter().map(marked).collect()
}

#[test]
fn the_screen_of_80_by_24_is_what_it_was() {
    let (before, now) = two_readings();
    let mut view = fine(&before);
    view.remember();
    view.before = view.now.replace(Box::new(now));
    view.remember();
    let mut text = drawn(&view, USUAL).join("\n") + "\n";
    // Local time is the test's host's.
    let at = text.find("2023-").unwrap();
    text.replace_range(at..at + 19, "2023-11-15 00:00:10");
    crate::tests::golden("src/commands/watch/screen/80x24.txt", &text);
    assert_eq!(text.lines().count(), 24);
}

#[test]
fn an_outage_is_said_above_the_last_figures() {
    let (_, now) = two_readings();
    let why = "slurm_get_statistics: Unable to contact slurm controller (connect failure) (errno 1800), \
            libslurm: error: nothing";
    let advice = "Is slurmctld running? Try `scontrol ping`.";
    let down = View { trouble: Some([why, advice].map(str::to_owned)), silent: 42, ..fine(&now) };
    let lines = drawn(&down, USUAL);
    assert!(lines[1].starts_with("!no reading for 42 s: slurm_get_statistics"), "{lines:#?}");
    // The end of the error and the advice were cut off.
    assert!(lines[2].ends_with("libslurm: error: nothing"), "{lines:#?}");
    assert_eq!(lines[3], format!(" {advice}"));
    assert!(
        lines[4].starts_with(".server threads")
            && lines.iter().any(|line| line.starts_with("#RPCs by type, all"))
    );
    let waits = drawn(&View { waits: Some(7), silent: 12, ..fine(&now) }, USUAL);
    assert_eq!(waits[1], "!waiting for slurmctld for 7 s");
    assert!(waits.iter().skip(2).all(|line| !line.starts_with(['!', ' '])), "{waits:#?}");
    assert_eq!(drawn(&View { now: None, ..down }, USUAL).len(), 4);
}

#[test]
fn the_last_ten_values_show_since_when() {
    let (before, now) = two_readings();
    let mut view = View { before: Some(Box::new(before.clone())), ..fine(&now) };
    for pending in [0, 100, 100, 100, 100, 100, 100, 100, 100, 1000, 1000, 2000] {
        let mut next = now.clone();
        next.statistics.as_mut().unwrap().jobs_pending = pending;
        view.now = Some(Box::new(next));
        view.remember();
    }
    // A reading right after a start of slurmctld, which has counted no job yet.
    let mut uncounted = now.clone();
    uncounted.statistics.as_mut().unwrap().job_states_ts = None;
    view.now = Some(Box::new(uncounted));
    view.remember();
    let line = drawn(&view, USUAL).swap_remove(4);
    let bars = line.strip_prefix(" last 10 pending ").unwrap();
    let (pending, rest) = bars.split_once(" running ").unwrap();
    assert_eq!(pending, "▁▁▁▁▁▁▄▄█ ");
    let (running, rest) = rest.split_once(" main ").unwrap();
    assert_eq!(running, "█████████ ");
    let (main, rpc) = rest.split_once(" RPC ").unwrap();
    assert_eq!([main, rpc], ["██████████"; 2]);
}

/// The view when all is well.
fn fine(now: &Reading) -> View {
    View { now: Some(Box::new(now.clone())), every: 10, ..View::default() }
}

#[test]
fn every_size_is_kept_to() {
    let (before, now) = two_readings();
    for trouble in [None, Some(["no\u{9b}thing", "many words in a row"].map(str::to_owned))] {
        let view =
            View { before: Some(Box::new(before.clone())), trouble, waits: Some(3), ..fine(&now) };
        for height in 0..60 {
            for width in [0, 1, 20, 79, 200] {
                let lines = drawn(&view, Size { width, height });
                assert!(height < 30 || lines.len() >= 25, "room for every row: {lines:#?}");
            }
        }
    }
}

#[test]
fn units_change_where_a_figure_would_grow_too_long() {
    let all = [0.0, 999.4, 999.6, 12_345.0, 999_400.0, 999_600.0, 59e6, 3.6e9, 1e18]
        .map(Some)
        .map(duration);
    assert_eq!(
        all,
        [
            "0 µs",
            "999 µs",
            "1.0 ms",
            "12.3 ms",
            "999.4 ms",
            "1.0 s",
            "59.0 s",
            "1.0 h",
            "277777777.8 h"
        ]
    );
    assert_eq!(
        [Some(999.4), Some(12_345.0), Some(2e6), None].map(number),
        ["999.4", "12.3k", "2.0M", "-"]
    );
}
