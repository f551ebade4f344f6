//! Rows as slurmdbd has written them, and what sacct says of each.

use std::ffi::CStr;

use super::*;

/// `NO_VAL`: no time. `INFINITE` is one more.
const NO_TIME: i64 = 0xffff_fffe;
use crate::unpacked::made;

const NAMES: [&str; 3] = ["debug", "physics", "ann"];

fn text(text: &CStr) -> *mut std::ffi::c_char {
    text.as_ptr().cast_mut()
}

fn row() -> slurmdb_job_rec_t {
    slurmdb_job_rec_t {
        db_index: 1 << 63,
        jobid: 77,
        submit: 1000,
        eligible: 1010,
        start: 1040,
        end: 1100,
        elapsed: 60,
        state: 3,
        timelimit: 2,
        qosid: 7,
        partition: text(c"debug"),
        account: text(c"physics"),
        user: text(c"ann"),
        tres_alloc_str: text(c"1=2,3=18446744073709551614,4=1,5=9,1001=3,1002=3"),
        nodes: text(c"n1"),
        ..Default::default()
    }
}

fn fold_row(row: &slurmdb_job_rec_t) -> (FinishedJob, Vec<String>, u64) {
    let mut fold = FinishedFold::new(false, [0, i64::MAX]);
    fold.add(made(row));
    let gpus = [(1001, GpuTres::Gpus), (1002, GpuTres::Typed), (1003, GpuTres::Typed)];
    let finished = fold.finish(&gpus, &[(7, "normal".to_owned())]);
    (finished.jobs[0], finished.names, finished.unparsed)
}

#[test]
fn a_record_of_nothing_is_a_row_that_never_started_and_gpus_of_types_count_where_there_is_no_total()
{
    let nothing = slurmdb_job_rec_t { state: 3, timelimit: u32::MAX, ..Default::default() };
    let (job, ..) = fold_row(&nothing);
    assert_eq!((job.wait, job.run, job.limit, job.gpus), (None, 0, None, 0));
    for (tres, gpus) in [(c"1=2,1001=2,1002=2,1003=1", 2), (c"1=2,1002=2,1003=1", 3)] {
        let (job, ..) = fold_row(&slurmdb_job_rec_t { tres_alloc_str: text(tres), ..row() });
        assert_eq!(job.gpus, gpus, "{tres:?}");
    }
}

#[test]
fn a_row_is_a_job() {
    let (job, names, unparsed) = fold_row(&row());
    assert_eq!(names, [&NAMES[..], &["normal"]].concat());
    let expected = FinishedJob {
        id: 1 << 63,
        end: 1100,
        submit: 1000,
        start: 1040,
        job: 77,
        state: 3,
        tasks: 1,
        wait: Some(30),
        run: 60,
        limit: Some(120),
        partition: 0,
        account: 1,
        qos: 3,
        user: 2,
        cpus: 2,
        gpus: 3,
        nodes: 1,
        billing: 9,
    };
    assert_eq!((job, unparsed), (expected, 0));
}

#[test]
fn tasks_that_never_started_are_counted_and_one_that_did_is_one_whatever_its_text() {
    for (start, tasks, count) in
        [(0, c"0x7FF", 11), (NO_TIME, c"1-20%2", 20), (0, c"", 1), (1040, c"1-20", 1)]
    {
        let (job, _, unparsed) =
            fold_row(&slurmdb_job_rec_t { start, array_task_str: text(tasks), ..row() });
        assert_eq!(
            (job.tasks, unparsed, job.wait.is_some()),
            (count, 0, start == 1040),
            "{tasks:?}"
        );
    }
    // slurmctld 22.05 leaves a cancelled held array like this: its start is its end.
    let held = slurmdb_job_rec_t {
        state: 4,
        start: 1100,
        array_task_str: text(c"0x7FE"),
        elapsed: 0,
        ..row()
    };
    let (job, ..) =
        fold_row(&slurmdb_job_rec_t { nodes: text(c""), tres_alloc_str: text(c""), ..held });
    assert_eq!((job.tasks, job.wait), (10, None));
    let (job, _, unparsed) =
        fold_row(&slurmdb_job_rec_t { start: 0, array_task_str: text(c"1,3,..."), ..row() });
    assert_eq!((job.tasks, unparsed), (1, 1), "one at least, and it is said");
}

/// Each row is one that slurmdbd has written; whether it had started is what sacct prints of it.
#[test]
fn a_text_of_tres_or_a_moment_is_no_start() {
    const CANCELLED: u32 = 4;
    const MEMORY: &CStr = c"3=18446744073709551614";
    const REST: &CStr = c"1=1,3=18446744073709551614,5=1";
    let none = c"None assigned";
    for (what, state, start, nodes, tres, started) in [
        (
            "an array that was cancelled before slurmdbd knew it",
            CANCELLED,
            1100,
            none,
            MEMORY,
            false,
        ),
        ("the rest of an array, after a restart of slurmctld", CANCELLED, 1100, none, REST, false),
        ("its deadline passed while it was pending", 10, 1100, none, c"4=1", false),
        ("slurmdbd has no node list", CANCELLED, 1100, c"(unknown)", REST, false),
        ("the record of the start was dropped", 3, 0, none, c"1=2,4=1", false),
        ("a runaway job that sacctmgr has repaired", 3, 0, c"n1", c"1=2,4=1", false),
        (
            "cancelled while it was pending, with a planned start",
            CANCELLED,
            NO_TIME,
            none,
            c"",
            false,
        ),
        ("-N0, for a burst buffer", 3, 1040, none, c"", true),
        ("cancelled while it ran", CANCELLED, 1040, c"n[1-2]", c"1=2,4=2", true),
        ("requeued while it ran", 1024, 1040, c"n1", c"1=2", true),
        ("a part before a resize", RESIZING, 1040, c"n[1-2]", c"1=2", true),
        ("its nodes did not boot", 9, 1040, c"cloud1", c"1=2", true),
    ] {
        let nodes = text(nodes);
        let tres_alloc_str = text(tres);
        let array_task_str = text(c"0x7FE");
        let (job, ..) = fold_row(&slurmdb_job_rec_t {
            state,
            start,
            nodes,
            tres_alloc_str,
            array_task_str,
            ..row()
        });
        assert_eq!(
            (job.wait.is_some(), job.tasks),
            (started, if started { 1 } else { 10 }),
            "{what}"
        );
    }
}

#[test]
fn a_row_that_runs_or_ended_at_another_time_proves_the_answer_and_is_no_job() {
    for (what, state, end, jobs) in [
        ("ended in it", 3, 1100, 1),
        ("runs", 1, 0, 0),
        ("ran", 3, 1201, 0),
        ("is known", 3, 999, 0),
    ] {
        let mut fold = FinishedFold::new(true, [1000, 1200]);
        assert!(!fold.has_rows());
        fold.add(made(&slurmdb_job_rec_t { state, end, ..row() }));
        let finished = fold.finish(&[], &[]);
        assert_eq!(
            (finished.jobs.len(), finished.started.len(), finished.unproved),
            (jobs, jobs, false),
            "{what}"
        );
    }
    assert!(FinishedFold::new(true, [1000, 1200]).finish(&[], &[]).unproved);
}

#[test]
fn a_row_before_the_time_shows_since_when_nothing_ended() {
    let empty_since = |rows: &[(u32, i64)]| {
        let mut fold = FinishedFold::new(true, [1000, 1200]);
        rows.iter()
            .for_each(|&(state, end)| fold.add(made(&slurmdb_job_rec_t { state, end, ..row() })));
        fold.finish(&[], &[]).empty_since
    };
    assert_eq!(empty_since(&[(3, 700), (5, 900), (4, 800)]), Some(901));
    for rows in [&[][..], &[(3, 900), (3, 1100)], &[(1, 0)], &[(3, 0)], &[(3, 1300)]] {
        assert_eq!(empty_since(rows), None, "{rows:?}");
    }
}

#[test]
fn a_job_that_was_never_eligible_waited_since_it_was_submitted() {
    for eligible in [0, NO_TIME, NO_TIME + 1] {
        assert_eq!(fold_row(&slurmdb_job_rec_t { eligible, ..row() }).0.wait, Some(40));
    }
    assert_eq!(
        fold_row(&slurmdb_job_rec_t { eligible: 2000, ..row() }).0.wait,
        Some(0),
        "slurmctld's clock was set back"
    );
}

#[test]
fn of_jobs_that_had_started_it_is_noted_how_to_ask_for_their_steps() {
    let mut fold = FinishedFold::new(true, [0, i64::MAX]);
    fold.add(made(&slurmdb_job_rec_t { array_job_id: 9, array_task_id: 3, ..row() }));
    fold.add(made(&slurmdb_job_rec_t { jobid: 10, start: 0, ..row() }));
    // slurmdbd returns the steps of jobs that ended since the time in the request: this one never
    // came.
    fold.add(made(&slurmdb_job_rec_t { db_index: 2, jobid: 11, end: 1030, ..row() }));
    assert_eq!(fold.finish(&[], &[]).started, [(1 << 63, (9, 3), 1040), (2, (11, NO_VAL), 1030)]);
}

#[test]
fn steps_are_summed_as_sacct_does_and_one_whose_use_is_not_known_is_said() {
    let used = |steps: &[(u64, [u64; 2], &[u8])]| {
        let mut sum = Steps::default();
        steps.iter().for_each(|(state, cpu, usage)| sum.add(*state, *cpu, usage));
        let Used { id, cpu, is_open } = sum.used(5);
        assert_eq!(id, 5);
        (cpu, is_open)
    };
    assert_eq!(used(&[]), (0, false), "a job without steps used nothing");
    assert_eq!(used(&[(3, [2, 600_400], b"1=2"), (5, [1, 900_700], b"1=1")]), (4501, false));
    assert_eq!(
        used(&[(4, [1, 0], b"1=2"), (4, [0, 0], b"")]),
        (1000, true),
        "its end is not told yet"
    );
    assert_eq!(used(&[(1, [7, 0], b"1=2")]), (0, true), "it runs");
}

#[test]
fn gpus_of_types_are_summed_where_nobody_counts_all() {
    assert_eq!(
        fold_row(&slurmdb_job_rec_t { tres_alloc_str: text(c"1002=2,1003=1"), ..row() }).0.gpus,
        3
    );
    assert_eq!(
        fold_row(&slurmdb_job_rec_t { tres_alloc_str: text(c"1002=2,1003=1,1001=4"), ..row() })
            .0
            .gpus,
        4
    );
    assert_eq!(fold_row(&slurmdb_job_rec_t { tres_alloc_str: text(c"1=x"), ..row() }).2, 1);
}

#[test]
fn of_several_partitions_the_first_counts_and_a_user_without_a_name_is_his_number() {
    let (_, names, _) = fold_row(&slurmdb_job_rec_t {
        partition: text(c",debug,long"),
        user: text(c""),
        uid: 1234,
        ..row()
    });
    assert_eq!(names, ["debug", "physics", "1234", "normal"]);
}

/// slurmdbd joins reservations without grouping: a job that waits in a changed one came once for
/// each version.
#[test]
fn a_row_that_comes_several_times_is_one_job() {
    let mut fold = FinishedFold::new(true, [0, i64::MAX]);
    for id in [5, 5, 6, 5] {
        fold.add(made(&slurmdb_job_rec_t { db_index: id, ..row() }));
    }
    let finished = fold.finish(&[], &[]);
    let ids: Vec<u64> = finished.jobs.iter().map(|job| job.id).collect();
    assert_eq!((ids, finished.started.len()), (vec![5, 6], 2));
}

/// The other collectors and sacct have names, so one user had two paths. A name service that hung
/// stopped all finished jobs, and one that failed gave a user the path of a number for good.
#[test]
fn a_user_without_an_association_has_the_name_that_is_found_or_waits_for_it() {
    let mut fold = FinishedFold::new(false, [0, i64::MAX]);
    let without = |id, uid, account| slurmdb_job_rec_t {
        db_index: id,
        uid,
        user: std::ptr::null_mut(),
        account: text(account),
        ..row()
    };
    // An account may have a number for a name.
    for (id, uid, account) in
        [(5, 1003, c"1003"), (6, 1003, c"a"), (7, 1004, c"a"), (8, 1005, c"a")]
    {
        fold.add(made(&without(id, uid, account)));
    }
    let mut finished = fold.finish(&[], &[]);
    for user in &mut finished.users {
        user.name = (user.id == 1003).then(|| "carol".to_owned());
        user.looking_up = user.id == 1005;
    }
    finished.take_user_names();
    let users: Vec<&str> = finished.jobs.iter().map(|job| finished.name(job.user)).collect();
    assert_eq!(users, ["carol", "carol", "1004", "1005"]);
    assert_eq!(finished.name(finished.jobs[0].account), "1003");
    let waits: Vec<u32> = finished.users.iter().map(|user| user.number).collect();
    assert_eq!(waits, [finished.jobs[3].user]);
}
