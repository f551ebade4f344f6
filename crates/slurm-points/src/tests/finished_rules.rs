//! The rules of docs/development/decisions.md, "What counts as a finished job", one by one, on the
//! ledger and its rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slurm_snapshot::{Finished, FinishedJob, FinishedUser, RESIZING, Used};

use crate::finished::{Counts, FinishedLedger, FinishedRound, Found, HOUR, Levels, RememberedSpan};

const SPAN: RememberedSpan = RememberedSpan { seconds: 25 * HOUR, ids: 1_000_000 };
const START: i64 = 1_700_000_000 / HOUR * HOUR;
const EVERY: i64 = 60;
const DAY: i64 = 24 * HOUR;

type Disk = BTreeMap<String, Arc<[u8]>>;

fn job(id: u64, end: i64) -> FinishedJob {
    FinishedJob {
        id,
        submit: START - 100,
        end,
        state: 3,
        tasks: 1,
        wait: Some(5),
        run: 9,
        ..FinishedJob::default()
    }
}

/// A round that reads these jobs of these accounts, committed to the disk.
fn round(
    ledger: &mut FinishedLedger,
    disk: &mut Disk,
    now: i64,
    jobs: &[FinishedJob],
    accounts: &[&str],
) -> Counts {
    let names = [&["debug"], accounts].concat().into_iter().map(str::to_owned).collect();
    let levels = Levels { accounts: 2, ..Levels::default() };
    let mut round = FinishedRound::new(now, HOUR, levels);
    round.is_complete = true;
    round.add(&Finished { jobs: jobs.to_vec(), names, ..Finished::default() }, 1, ledger);
    let next = ledger.next(round, ledger.slot(now, EVERY), SPAN);
    disk.extend(ledger.records(&next).unwrap());
    ledger.adopt(next);
    ledger.counts().clone()
}

fn first() -> (FinishedLedger, Disk) {
    (FinishedLedger::first("c", START), Disk::new())
}

/// `scontrol requeue` of a finished job changes its row.
#[test]
fn a_row_that_changes_is_counted_once_as_changed_and_never_again_as_a_job() {
    let (mut ledger, mut disk) = first();
    let before = job(1, START + 5);
    round(&mut ledger, &mut disk, START + 60, &[before, job(2, START + 6)], &[]);
    let requeued = FinishedJob { state: 1024, end: START + 70, ..before };
    let later = FinishedJob { end: START + 2 * HOUR, ..requeued };
    let mut changed = Vec::new();
    for (after, row) in
        [(120, requeued), (180, requeued), (2 * HOUR, later), (2 * HOUR + 60, later)]
    {
        let counts =
            round(&mut ledger, &mut disk, START + after, &[row, row, job(2, START + 6)], &[]);
        assert_eq!((counts.totals["total"].jobs(), counts.totals["total"].states[0]), (2, 2));
        changed.push((counts.reading.changed, counts.changed_total));
    }
    assert_eq!(changed, [(1, 1), (0, 1), (1, 2), (0, 2)]);
    let (mut again, found) = FinishedLedger::open("c", START + 3 * HOUR, &disk);
    assert_eq!(found, Found::Whole);
    let counts = round(&mut again, &mut disk, START + 3 * HOUR, &[later], &[]);
    assert_eq!(
        (counts.reading.changed, counts.totals["total"].jobs()),
        (0, 2),
        "it is remembered as it is"
    );
}

/// Figures that a row that goes on adds: jobs by state, the number of changes, and seconds of run
/// time and CPUs, of which the first version had some.
#[test]
fn a_row_that_goes_on_adds_its_later_seconds_and_is_a_job_again_only_if_it_ran_again() {
    let at = |after: i64| START + after;
    let ran = |state, start: i64, end: i64| FinishedJob {
        state,
        submit: at(start) - 5,
        start: at(start),
        run: u64::try_from(end - start).unwrap(),
        cpus: 2,
        ..job(1, at(end))
    };
    // slurmctld takes the moment of its resize for the submission of each later run.
    let resized = |state, end: i64, cpus| FinishedJob {
        submit: at(10),
        wait: Some(0),
        cpus,
        ..ran(state, 10, end)
    };
    let held = FinishedJob { wait: None, run: 0, ..ran(4, 10, 40) };
    let named = |row, id| FinishedJob { id, ..row };
    // Rows in their order, jobs, changes, run and CPU seconds.
    let cases: [(&str, Vec<FinishedJob>, [u64; 4]); 10] = [
        ("a cold start ends it", vec![ran(4, 10, 40), ran(3, 10, 90)], [1, 1, 80, 160]),
        ("twice", vec![ran(4, 10, 40), ran(4, 10, 60), ran(3, 10, 90)], [1, 2, 80, 160]),
        ("a cold start ends it before it starts", vec![held, ran(3, 50, 90)], [2, 0, 40, 80]),
        ("its end moves", vec![ran(3, 10, 40), ran(3, 10, 42)], [1, 1, 32, 64]),
        ("the end of a job of 0 s moves", vec![ran(3, 10, 10), ran(3, 10, 12)], [1, 1, 2, 4]),
        // The seconds of a runaway job were counted.
        (
            "its end is set back",
            vec![ran(3, 10, 40), ran(3, 10, 20), ran(3, 10, 50)],
            [1, 2, 40, 80],
        ),
        ("requeued", vec![resized(1024, 40, 1), resized(3, 90, 2)], [2, 0, 80, 160]),
        ("fails again", vec![resized(7, 40, 2), resized(7, 90, 2)], [1, 1, 80, 160]),
        (
            "requeued, from 24.11 on",
            vec![resized(1024, 40, 1), named(resized(1024, 40, 1), 2), named(resized(3, 90, 2), 2)],
            [2, 0, 80, 160],
        ),
        (
            "the same, and the row with the new id is not seen before",
            vec![resized(8, 40, 1), named(resized(3, 90, 2), 2), named(resized(3, 93, 2), 2)],
            [2, 1, 83, 166],
        ),
    ];
    for (case, rows, expected) in cases {
        for restarts in [false, true] {
            let (mut ledger, mut disk) = first();
            for row in &rows {
                for _ in 0..2 {
                    round(&mut ledger, &mut disk, at(200), &[*row], &[]);
                    if restarts {
                        ledger = FinishedLedger::open("c", at(200), &disk).0;
                    }
                }
            }
            let counts = ledger.counts();
            let total = counts.totals["total"];
            assert_eq!(
                [total.jobs(), counts.changed_total, total.run, total.cpu],
                expected,
                "{case}; restarts: {restarts}"
            );
        }
    }
}

/// Steps come by the row, those of its earlier runs too.
#[test]
fn of_a_row_that_goes_on_only_the_steps_that_began_since_are_requested() {
    let (mut ledger, mut disk) = first();
    let before = FinishedJob { state: 4, start: START + 10, run: 30, ..job(1, START + 40) };
    round(&mut ledger, &mut disk, START + 60, &[before], &[]);
    let now = FinishedJob { state: 3, run: 80, ..FinishedJob { end: START + 90, ..before } };
    let started = vec![(1, (1, 3), now.start), (2, (2, 3), now.start)];
    let finished = Finished { jobs: vec![now, job(2, now.end)], started, ..Finished::default() };
    let round = FinishedRound::new(START + 100, HOUR, Levels::default());
    let steps = round.steps_of(&finished, &ledger);
    let since: Vec<_> = steps.iter().map(|job| (job.id, job.steps_since)).collect();
    assert_eq!(since, [(1, Some(START + 40)), (2, None)]);
}

/// A name service that does not answer holds up no other job.
#[test]
fn a_job_whose_user_has_no_name_yet_waits_for_it_and_then_counts_among_the_others() {
    let (mut ledger, _) = first();
    let mut levels = |after: i64, is_named: bool| {
        let job_of = |id, user| FinishedJob { user, ..job(id, START + 5) };
        let unnamed = FinishedUser { number: 2, id: 1003, looking_up: true, ..Default::default() };
        let finished = Finished {
            jobs: vec![job_of(1, 1), job_of(2, 2)],
            names: ["debug", "ann", if is_named { "carol" } else { "1003" }].map(Into::into).into(),
            users: if is_named { vec![] } else { vec![unnamed] },
            ..Finished::default()
        };
        let levels = Levels { users: 5, ..Levels::default() };
        let mut round = FinishedRound::new(START + after, HOUR, levels);
        round.is_complete = true;
        round.add(&finished, 1, &ledger);
        ledger.adopt(ledger.next(round, ledger.slot(START + after, EVERY), SPAN));
        let its = ledger.counts().totals.keys().filter(|level| level.contains("user"));
        its.cloned().collect::<Vec<_>>()
    };
    assert_eq!(levels(10, false), ["user.ann"]);
    assert_eq!(levels(189, false), ["user.ann"]);
    assert_eq!(levels(190, false), ["other_users", "user.ann"]);
    assert_eq!(levels(250, true), ["other_users", "user.ann"]);
}

/// A database that was restored gives the numbers of the last rows again.
#[test]
fn a_number_that_a_restored_database_gives_again_is_another_job() {
    let old = FinishedJob { submit: START + 10, ..job(1, START + 20) };
    // Within the hour, hours later, and with slurmctld's clock set back while it ran; of one
    // submission it is one job.
    for (submit, end, jobs, changed) in
        [(90, 100, 2, 0), (4 * HOUR, 5 * HOUR, 2, 0), (4 * HOUR, 20, 2, 0), (10, 5 * HOUR, 1, 1)]
    {
        let (mut ledger, mut disk) = first();
        round(&mut ledger, &mut disk, START + 60, &[old], &[]);
        let again = FinishedJob { submit: START + submit, ..job(1, START + end) };
        for _ in 0..3 {
            let counts = round(&mut ledger, &mut disk, START + 5 * HOUR, &[again], &[]);
            assert_eq!(
                (counts.totals["total"].jobs(), counts.changed_total),
                (jobs, changed),
                "{again:?}"
            );
        }
    }
}

#[test]
fn a_job_counts_with_what_its_steps_have_used_and_waits_for_those_that_are_open() {
    let (mut ledger, _) = first();
    let used = |id, cpu, is_open| Used { id, cpu, is_open };
    let mut at = |after: i64, used: &[Used]| {
        let jobs = [1, 2, 3].map(|id| job(id, START + 5)).to_vec();
        let mut round = FinishedRound::new(START + after, HOUR, Levels::default());
        round.efficiency = true;
        round.is_complete = true;
        let names = vec!["debug".to_owned()];
        let used = used.to_vec();
        round.add(&Finished { jobs, names, used, ..Finished::default() }, 1, &ledger);
        let next = ledger.next(round, ledger.slot(START + after, EVERY), SPAN);
        ledger.adopt(next);
        assert!(ledger.counts().efficiency);
        let total = ledger.counts().totals["total"];
        (total.started, total.cpu_used)
    };
    assert_eq!(at(10, &[used(1, 1500, false), used(2, 20, true), used(3, 300, true)]), (1, 1500));
    assert_eq!(at(70, &[used(2, 7000, false), used(3, 300, true)]), (2, 8500));
    assert_eq!(at(189, &[used(3, 300, true)]), (2, 8500));
    assert_eq!(at(190, &[used(3, 300, true)]), (3, 8800), "with what is known");
    assert_eq!(at(250, &[]), (3, 8800));
}

#[test]
fn a_job_that_was_resized_is_one_job_with_the_seconds_of_all_its_parts() {
    let (mut ledger, mut disk) = first();
    let part = |id, state, wait, run, cpus| FinishedJob {
        state,
        wait: Some(wait),
        run,
        cpus,
        ..job(id, START + 50)
    };
    let parts = [part(1, RESIZING, 7, 30, 4), part(2, RESIZING, 0, 20, 2), part(3, 3, 0, 10, 1)];
    for _ in 0..2 {
        let counts = round(&mut ledger, &mut disk, START + 60, &parts, &[]);
        let total = counts.totals["total"];
        assert_eq!((total.jobs(), total.started, total.states[0]), (1, 1, 1));
        assert_eq!((total.wait, total.run, total.cpu), (7, 60, 30 * 4 + 20 * 2 + 10));
    }
    let (mut ledger, mut disk) = first();
    let counts = round(&mut ledger, &mut disk, START + 60, &parts[..2], &[]);
    assert_eq!(
        (counts.round["total"].waits, counts.round["total"].runs),
        (None, None),
        "no percentile"
    );
}

/// One damaged byte in the record of an hour counted its jobs twice.
#[test]
fn a_damaged_hour_or_damaged_counts_make_no_job_count_twice() {
    let (mut ledger, mut disk) = first();
    let jobs: Vec<_> = (1..=6_u32).map(|n| job(n.into(), START + i64::from(n) * 1000)).collect();
    let now = START + 2 * HOUR;
    round(&mut ledger, &mut disk, now, &jobs, &[]);
    // Two later commits bring the ids to the records of their hours, and out of the counts.
    round(&mut ledger, &mut disk, now + 60, &jobs, &[]);
    round(&mut ledger, &mut disk, now + 120, &jobs, &[]);
    assert_eq!(FinishedLedger::open("c", now, &disk).1, Found::Whole);
    let hours: Vec<String> = disk.keys().filter(|name| name.contains("hour")).cloned().collect();
    assert_eq!(hours.len(), 2);
    for hour in &hours {
        let mut damaged = disk.clone();
        damaged.insert(hour.clone(), Arc::from([]));
        let (mut again, found) = FinishedLedger::open("c", now + 180, &damaged);
        let Found::DamagedHour(floor) = found else { panic!("{found:?}") };
        assert!(
            floor <= START + 6001,
            "nothing behind the newest counted end is given up: {}",
            floor - START
        );
        let late = [job(50, START + 10), job(51, START + 6500), job(52, now + 100)];
        let all = [&jobs[..], &late].concat();
        let counts = round(&mut again, &mut damaged, now + 180, &all, &[]);
        assert_eq!(
            counts.totals["total"].jobs(),
            6 + 2,
            "none twice; the late one of a lost hour is not counted"
        );
        assert_eq!(
            FinishedLedger::open("c", now + 240, &damaged).1,
            Found::Whole,
            "it is said once"
        );
    }
    for counts in [None, Some(Arc::from(*b"{\"version\":"))] {
        let mut damaged = disk.clone();
        damaged.retain(|name, _| !name.contains("counts"));
        damaged.extend(counts.map(|counts| ("finished.2.counts".to_owned(), counts)));
        let (mut again, found) = FinishedLedger::open("c", now + 180, &damaged);
        let Found::NoCounts(floor) = found else { panic!("{found:?}") };
        assert!((START + 6001..=now + 480).contains(&floor), "{}", floor - START);
        let new = job(60, now + 600);
        let counts = round(&mut again, &mut damaged, now + 660, &[&jobs[..], &[new]].concat(), &[]);
        assert_eq!(
            counts.totals["total"].jobs(),
            1,
            "totals begin again, and none is in two rounds"
        );
        assert_ne!(counts.slot, 0);
    }
}

/// The newest end that was counted was that of the row as it was first: what had changed since lay
/// behind the floor of a lost hour.
#[test]
fn a_row_that_has_changed_is_not_counted_when_the_hour_of_its_new_end_is_lost() {
    let (mut ledger, mut disk) = first();
    let before = job(1, START + 5);
    let later = FinishedJob { state: 1024, end: START + 2 * HOUR, ..before };
    for (after, row) in
        [(60, before), (2 * HOUR + 60, later), (2 * HOUR + 120, later), (2 * HOUR + 180, later)]
    {
        round(&mut ledger, &mut disk, START + after, &[row], &[]);
    }
    let hours: Vec<String> = disk.keys().filter(|name| name.contains("hour")).cloned().collect();
    assert_eq!(hours.len(), 2);
    for hour in hours {
        let mut damaged = disk.clone();
        damaged.insert(hour, Arc::from([]));
        let (mut again, found) = FinishedLedger::open("c", START + 3 * HOUR, &damaged);
        assert!(matches!(found, Found::DamagedHour(_)), "{found:?}");
        let counts = round(&mut again, &mut damaged, START + 3 * HOUR, &[later], &[]);
        assert_eq!((counts.totals["total"].jobs(), counts.changed_total), (1, 1));
    }
}

/// A clock that was behind at the start lowered the floor that had been found for it.
#[test]
fn a_clock_that_is_behind_lowers_no_floor_of_lost_counts() {
    let (mut ledger, mut disk) = first();
    let now = START + 3 * DAY;
    let jobs = [job(1, now - 2 * HOUR), job(2, now - HOUR)];
    for after in [0, 60, 120] {
        round(&mut ledger, &mut disk, now + after, &jobs, &[]);
    }
    disk.retain(|name, _| !name.contains("counts"));
    let behind = now - 2 * DAY;
    let (mut again, found) = FinishedLedger::open("c", behind, &disk);
    let Found::NoCounts(floor) = found else { panic!("{found:?}") };
    assert!(floor > now - HOUR);
    for restarted in [false, true] {
        if restarted {
            disk.extend([again.record().unwrap()]);
            again = FinishedLedger::open("c", behind, &disk).0;
        }
        again.lower_floor(behind);
        again.raise_floor(now);
        assert_eq!(again.floor(), floor, "restarted: {restarted}");
    }
    let counts = round(&mut again, &mut disk, now + 180, &jobs, &[]);
    assert_eq!(counts.totals["total"].jobs(), 0, "they were counted before");
}

/// Nothing was counted for as long as the clock had been ahead when a job ended: a year, once.
#[test]
fn what_ends_after_a_clock_was_ahead_is_counted_and_what_was_counted_then_is_not_again() {
    let (mut ledger, mut disk) = first();
    round(&mut ledger, &mut disk, START + 60, &[job(1, START + 5)], &[]);
    let ahead = job(2, START + 3 * DAY);
    round(&mut ledger, &mut disk, START + 3 * DAY, &[ahead], &[]);
    let now = START + 600;
    assert!(ledger.is_ahead(now) && ledger.has_counted());
    ledger.lower_floor(now);
    let mut at = |after: i64, jobs: &[FinishedJob]| {
        ledger.raise_floor(now + after);
        let counts = round(&mut ledger, &mut disk, now + after, jobs, &[]);
        (counts.totals["total"].jobs(), ledger.floor() - now)
    };
    assert_eq!(at(60, &[job(3, now + 30)]), (3, 0));
    assert_eq!(at(3 * DAY, &[ahead, job(4, now + 3 * DAY)]).0, 4);
}

/// A clock that was set back by ten minutes left all later rounds ten minutes in the future.
#[test]
fn slots_that_are_ahead_of_the_clock_come_back_to_it_and_none_is_used_twice() {
    let (mut ledger, mut disk) = first();
    round(&mut ledger, &mut disk, START + 600, &[], &[]);
    let mut used = BTreeSet::from([ledger.counts().slot]);
    let mut ahead = Vec::new();
    for tick in 0..40 {
        let now = START + tick * EVERY;
        if ledger.is_due(now, EVERY) {
            let slot = round(&mut ledger, &mut disk, now, &[], &[]).slot;
            assert!(used.insert(slot), "{slot} is used twice");
            ahead.push(slot - now);
        }
    }
    assert!(ahead.windows(2).all(|pair| pair[1] == 0 || pair[1] < pair[0]), "{ahead:?}");
    assert_eq!(ahead.last(), Some(&0), "{ahead:?}");
}

/// A slot of a round that only said that it is not proved is not used for counts.
#[test]
fn a_slot_without_counts_is_used_too() {
    let (mut ledger, mut disk) = first();
    assert_eq!(ledger.use_slot(START + 5, EVERY), Some(START));
    assert_eq!(ledger.use_slot(START + 6, EVERY), None, "it would be ahead of the clock");
    assert_eq!(round(&mut ledger, &mut disk, START + 7, &[], &[]).slot, START + EVERY);
}

/// Twenty held jobs with invented accounts took all levels for ever.
#[test]
fn invented_names_take_no_level_and_an_unused_one_is_free_after_30_days() {
    let (mut ledger, mut disk) = first();
    let job_of = |account, job: FinishedJob| FinishedJob { account, ..job };
    let cancelled = |id, end| FinishedJob { state: 4, wait: None, ..job(id, end) };
    let accounts = ["junk", "physics", "bio", "chem"];
    let mut levels = |now: i64, jobs: &[FinishedJob]| -> Vec<(String, u64)> {
        let counts = round(&mut ledger, &mut disk, now, jobs, &accounts);
        let levels = counts.totals.iter().filter(|(level, _)| level.contains("account"));
        levels.map(|(level, tally)| (level.clone(), tally.jobs())).collect()
    };
    let named = |levels: &[(&str, u64)]| -> Vec<(String, u64)> {
        levels.iter().map(|(level, jobs)| ((*level).to_owned(), *jobs)).collect()
    };
    let day = |days: i64| START + days * DAY;
    assert_eq!(levels(day(0), &[job_of(1, cancelled(1, day(0)))]), named(&[("other_accounts", 1)]));
    let two = [("account.bio", 1), ("account.physics", 1), ("other_accounts", 1)];
    assert_eq!(
        levels(day(1), &[job_of(2, job(2, day(1))), job_of(3, job(3, day(1) + 9))]),
        named(&two)
    );
    // A level stays while no other name needs it; jobs that never start do not keep it.
    let cancelled_later = [job_of(3, job(4, day(30))), job_of(2, cancelled(5, day(30)))];
    let later = [("account.bio", 2), ("account.physics", 2), ("other_accounts", 1)];
    assert_eq!(levels(day(30), &cancelled_later), named(&later));
    let too_early = [("account.bio", 2), ("account.physics", 2), ("other_accounts", 2)];
    assert_eq!(levels(day(31) - HOUR, &[job_of(4, job(6, day(31) - HOUR))]), named(&too_early));
    let over = [("account.bio", 2), ("account.physics", 2), ("other_accounts", 3)];
    assert_eq!(levels(day(32), &[job_of(1, cancelled(7, day(32)))]), named(&over));
    let freed = [("account.bio", 2), ("account.chem", 1), ("other_accounts", 3)];
    assert_eq!(
        levels(day(32) + 60, &[job_of(4, job(8, day(32)))]),
        named(&freed),
        "physics was not used for longer"
    );
    let both = [job_of(3, job(9, day(32))), job_of(2, job(10, day(32)))];
    let returned = [("account.bio", 3), ("account.chem", 1), ("other_accounts", 4)];
    assert_eq!(levels(day(32) + 120, &both), named(&returned), "there is room for one of them");
}

/// A clock that was a day ahead for one round held rows that may grow back for that day.
#[test]
fn a_clock_that_was_ahead_holds_no_row_back() {
    let (mut ledger, mut disk) = first();
    let array = FinishedJob { tasks: 50, wait: None, run: 0, ..job(1, START + 20) };
    let mut counted = |now: i64| {
        let mut round = FinishedRound::new(now, HOUR, Levels::default());
        round.is_complete = true;
        let jobs = vec![array, job(2, START + 21)];
        let finished = Finished { jobs, names: vec!["debug".into()], ..Finished::default() };
        round.add(&finished, 1, &ledger);
        let next = ledger.next(round, ledger.slot(now, EVERY), SPAN);
        disk.extend(ledger.records(&next).unwrap());
        ledger.adopt(next);
        ledger.counts().totals["total"].jobs()
    };
    assert_eq!(counted(START + DAY), 1);
    assert_eq!([60, 239, 240].map(|later| counted(START + later)), [1, 1, 51]);
}
