//! When a round begins, and what a restart finds.

mod model;
mod unproved;

use slurm_points::finished::Levels;
use slurm_snapshot::{Finished, FinishedJob, Reading, Used, Visibility};

use super::*;
use crate::config::{Config, ReaderChoice, SlurmSettings};
use crate::source::{ProcessError, ReaderMemory};
use crate::survey::patient;

const NOW: i64 = 1_700_000_000;

/// An answer of slurmdbd, which hides nothing.
pub(super) fn whole(finished: Finished) -> Box<Reading> {
    Box::new(Reading {
        cluster: Some("c".to_owned()),
        reply: Some(Reply::Finished(Box::new(finished))),
        visibility: Some(Visibility { private: Vec::new(), privileged: Some(true) }),
        ..Reading::default()
    })
}

/// The error of a reader that was killed for its silence, and of each request until the next one.
pub(super) fn killed() -> SourceError {
    let error = ProcessError::Nonsense("too late".to_owned());
    SourceError::Resting(Arc::new(SourceError::Reader(error)))
}

/// A job that ended then, whose number is `id`.
pub(super) fn job(id: u64, end: i64, submit: i64) -> FinishedJob {
    // Two rows of one job and one submission are runs of that job.
    let job = u32::try_from(id).unwrap();
    FinishedJob {
        id,
        job,
        end,
        submit,
        state: 3,
        tasks: 1,
        wait: Some(1),
        ..FinishedJob::default()
    }
}

/// What the reader makes of slurmdbd's rows for a piece, of which some may have ended before it.
pub(super) fn piece(mut rows: Vec<FinishedJob>, from: i64, to: i64, unproved: bool) -> Finished {
    let before = rows.iter().map(|job| job.end).filter(|end| *end < from).max();
    rows.retain(|job| (from..=to).contains(&job.end));
    let empty_since = before.filter(|_| rows.is_empty()).map(|end| end + 1);
    Finished {
        empty_since,
        jobs: rows,
        names: vec!["debug".to_owned()],
        unproved,
        ..Finished::default()
    }
}

/// The piece that a round asks for, if one is under way: from when to when, and where slurmdbd
/// should have rows.
pub(super) fn asked(daemon: &Accounting) -> Option<(i64, i64, Vec<i64>)> {
    let Phase::Reading(work) = &daemon.phase else { return None };
    let from = work.since;
    Some((from, work.to, known(work, from, daemon.ledger().unwrap(), daemon.watermark.read_until)))
}

/// Whether the last round has read all it had to, and so has one within the last hour everything.
pub(super) fn has_read_all(daemon: &Accounting) -> bool {
    let watermark = &daemon.watermark;
    daemon.rebuild.is_none()
        && watermark.read_all_at.is_some()
        && watermark.quiet.is_some()
        && watermark.read_until == watermark.quiet
}

pub(super) fn plan() -> Plan {
    let levels = Levels::default();
    Plan { every: 1, window: HOUR, catch_up: 24 * HOUR, levels, efficiency: true, most_ids: 1000 }
}

pub(super) type Disk = BTreeMap<String, Arc<[u8]>>;

/// An accounting that has read `disk`; what it keeps is there at once, but reported only by
/// `commit`.
pub(super) fn accounting(disk: &mut Disk, now: i64) -> Accounting {
    let slurm = SlurmSettings {
        reader: ReaderChoice::Program("/nonexistent".into()),
        ..Config::default().slurm
    };
    let mut accounting = Accounting::new(
        patient("test accounting", &slurm, &ReaderMemory::default()),
        plan(),
        false,
    );
    open(&mut accounting, disk, now);
    accounting
}

fn open(accounting: &mut Accounting, disk: &mut Disk, now: i64) {
    let found = disk.clone();
    let keep = |records: Records| {
        disk.extend(records);
        1
    };
    accounting.open("c", now, || Some(found), keep);
}

fn is_reading(accounting: &Accounting) -> bool {
    matches!(accounting.phase, Phase::Reading(_))
}

#[tokio::test]
async fn a_clock_that_was_ahead_at_the_first_start_leaves_no_round_without_an_end() {
    let mut accounting = accounting(&mut Disk::new(), NOW + 1000);
    accounting.commit();
    accounting.begin_round(NOW, NOW, true);
    assert!(matches!(accounting.phase, Phase::Idle), "there is nothing to read before the floor");
    accounting.begin_round(NOW + 1, NOW + 1000, true);
    assert!(is_reading(&accounting));
    assert_eq!(accounting.counters.skipped_round, 0);
}

/// Rounds read nothing for as long as the clock had been ahead when a job ended.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_ahead_when_a_job_ended_costs_ten_minutes() {
    let mut disk = Disk::new();
    let mut first = accounting(&mut disk, NOW);
    first.commit();
    let ahead = NOW + 72 * HOUR;
    let mut round = FinishedRound::new(ahead, HOUR, Levels::default());
    round.is_complete = true;
    let names = vec!["debug".to_owned()];
    let jobs = vec![job(1, ahead, NOW)];
    let ledger = first.ledger.as_mut().unwrap();
    round.add(&Finished { jobs, names, ..Finished::default() }, 1, ledger);
    let span = RememberedSpan { seconds: 25 * HOUR, ids: 1000 };
    let next = ledger.next(round, NOW, span);
    disk.extend(ledger.records(&next).unwrap());
    let mut again = accounting(&mut disk, NOW);
    again.commit();
    for (after, more) in [(0, 60), (60, 539), (599, 61)] {
        again.begin_round(NOW + after, NOW + after, true);
        assert!(!is_reading(&again), "the clock may be behind until NTP has set it");
        tokio::time::advance(Duration::from_secs(more)).await;
    }
    again.begin_round(NOW + 660, NOW + 660, true);
    let Phase::Reading(work) = &again.phase else { panic!("{:?}", again.phase) };
    assert_eq!(work.from, NOW, "what ended meanwhile counts");
}

/// A disk with counts whose last round was published in this slot.
fn disk_with_slot(slot: i64) -> Disk {
    let mut disk = Disk::new();
    let mut first = accounting(&mut disk, slot - 60);
    first.commit();
    let ledger = first.ledger.as_mut().unwrap();
    let mut round = FinishedRound::new(slot, HOUR, Levels::default());
    let names = vec!["debug".to_owned()];
    let jobs = vec![job(1, slot - 5, slot - 9)];
    round.add(&Finished { jobs, names, ..Finished::default() }, 1, ledger);
    let next = ledger.next(round, slot, RememberedSpan { seconds: 25 * HOUR, ids: 1000 });
    disk.extend(ledger.records(&next).unwrap());
    disk
}

/// With `follow`, jobs of about a round were in no host's slots after each restart.
#[tokio::test]
async fn a_restart_of_the_active_hosts_daemon_before_the_next_round_is_no_hand_over() {
    let slot = NOW - 20;
    assert_eq!(slot % 60, 0);
    for (after, is_silent) in [(0, false), (59, false), (60, true), (3600, true), (-60, true)] {
        let mut again = accounting(&mut disk_with_slot(slot), slot + after);
        again.plan.every = 60;
        again.rebuild = Some(i64::MAX);
        again.commit();
        again.rebuild(slot + after);
        let next = (slot + after + 59).div_euclid(60) * 60;
        again.begin_round(next.max(slot + 120), next, true);
        let Phase::Reading(work) = &again.phase else { panic!("{after}: {:?}", again.phase) };
        assert_eq!(work.round.is_silent, is_silent, "active {after} s after the last round");
    }
}

/// The slot that a start without counts leaves out was taken for one that this host had published,
/// and what another host had counted meanwhile counted again.
#[tokio::test]
async fn a_start_without_counts_is_a_hand_over() {
    let slot = NOW - 20;
    for after in [0, 30] {
        let mut disk = disk_with_slot(slot);
        disk.retain(|name, _| !name.contains("counts"));
        let mut again = accounting(&mut disk, slot + after);
        again.plan.every = 60;
        again.commit();
        again.rebuild(slot + after);
        let begin = slot + 2 * HOUR;
        again.begin_round(begin, begin, true);
        let Phase::Reading(work) = &again.phase else { panic!("{after}: {:?}", again.phase) };
        assert!(work.round.is_silent, "{after}");
    }
}

/// Half a minute of it began all totals at 0 again.
#[tokio::test(start_paused = true)]
async fn another_clustername_counts_after_ten_minutes() {
    let mut disk = disk_with_slot(NOW);
    let mut daemon = accounting(&mut disk, NOW);
    daemon.commit();
    let name = |daemon: &mut Accounting, cluster: &str| {
        daemon.open(cluster, NOW, || None, |_| 7);
        daemon.begin_round(NOW + 2, NOW + 2, true);
        daemon.ledger().unwrap().counts().cluster.clone()
    };
    assert_eq!(name(&mut daemon, "typo"), "c");
    assert!(!is_reading(&daemon), "its slurmdbd has other jobs with these numbers");
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(name(&mut daemon, "typo"), "c");
    assert_eq!(name(&mut daemon, "c"), "c");
    assert!(is_reading(&daemon));
    daemon.phase = Phase::Idle;
    assert_eq!(name(&mut daemon, "other"), "c");
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(name(&mut daemon, "other"), "other");
    assert_eq!(daemon.ticket(), Some(7));
}

/// From when the round that begins at `now` reads; `None` if it reads everything.
async fn next_from(accounting: &mut Accounting, records: u64, now: i64) -> Option<i64> {
    accounting.note_statistics(records, 0, now);
    accounting.begin_round(now, now, true);
    let Phase::Reading(work) = mem::take(&mut accounting.phase) else { panic!("no round") };
    // There is no reader behind the request.
    drop(accounting.source.outcome().await);
    let read_from = (!work.round.is_full).then_some(work.from);
    accounting.watermark.whole(&work.round, work.quiet);
    read_from
}

/// Each fall of the queue to 0 read everything: a day.
#[tokio::test]
async fn a_round_reads_from_the_last_tick_with_an_empty_queue_and_everything_once_an_hour() {
    let mut accounting = accounting(&mut Disk::new(), NOW - 20 * HOUR);
    accounting.commit();
    // By seconds: records in the queue, and from when the round reads.
    for (after, records, from) in [
        (0, 0, None),
        (60, 0, Some(0)),
        (120, 7, Some(60)),
        (180, 7, Some(60)),
        (240, 0, Some(60)),
        (300, 0, Some(240)),
        // Not more than since the last reading of everything.
        (3540, 7, Some(300)),
        (3600, 7, None),
        (5000, 7, Some(3600)),
        // The host slept.
        (5 * HOUR, 0, None),
        (5 * HOUR + 60, 0, Some(5 * HOUR)),
        // A clock that was a day ahead for a moment.
        (29 * HOUR, 0, None),
        (5 * HOUR + 120, 0, Some(5 * HOUR + 120)),
    ] {
        let expected = from.map(|from: i64| NOW + from - HOUR);
        let from = next_from(&mut accounting, records, NOW + after).await;
        assert_eq!(from, expected, "after {after} s");
    }
}

/// A restart before slurmdbd had answered once began to count from the restart on.
#[tokio::test]
async fn a_first_start_is_on_disk_before_slurmdbd_is_asked_and_a_restart_does_not_move_it() {
    let mut disk = Disk::new();
    let mut first = accounting(&mut disk, NOW);
    first.begin_round(NOW, NOW, true);
    assert!(!is_reading(&first) && first.ticket() == Some(1));
    first.commit();
    first.begin_round(NOW + 1, NOW + 1, true);
    assert!(is_reading(&first));
    let again = accounting(&mut disk, NOW + 500);
    assert_eq!(again.ledger().unwrap().floor(), NOW);
}

#[tokio::test]
async fn counts_that_a_disk_has_not_taken_yet_are_not_counted_on_by_a_collector_that_was_off() {
    let first = FinishedLedger::first("c", NOW);
    let round = FinishedRound::new(NOW, HOUR, Levels::default());
    let span = RememberedSpan { seconds: 25 * HOUR, ids: 1000 };
    let records = first.records(&first.next(round, NOW, span)).unwrap();
    let mut accounting = accounting(&mut records.into_iter().collect(), NOW);
    accounting.begin_round(NOW + 1, NOW + 1, true);
    assert!(!is_reading(&accounting), "what the disk may lose is not counted as seen");
    accounting.commit();
    accounting.begin_round(NOW + 2, NOW + 2, true);
    assert!(is_reading(&accounting));
}

#[test]
fn a_busy_hour_is_read_in_pieces_and_a_quiet_one_at_once() {
    let mut piece = HOUR;
    let rate = 40_000;
    for _ in 0..10 {
        piece = next_piece(piece, usize::try_from(piece * rate / HOUR).unwrap());
    }
    let jobs = piece * rate / HOUR;
    assert!((1000..=4000).contains(&jobs), "{jobs} at once");
    for _ in 0..10 {
        piece = next_piece(piece, 5);
    }
    assert_eq!(piece, HOUR);
    let end_together = (0..20).fold(HOUR, |piece, _| next_piece(piece, 1_000_000));
    assert_eq!(end_together, 1, "less than what ended in a second cannot be asked for");
}

/// Rounds, one a minute, of a daemon that started nine hours ago, and whose slurmdbd was away until
/// now. The reader is killed by a request for the steps of a job in `poison`, and by one for more
/// than `most` jobs. Returns how many jobs are counted after each round. No round has very many
/// requests.
async fn counted_by_minute(
    rows: &[FinishedJob],
    poison: impl Fn(u64) -> bool,
    most: usize,
    minutes: i64,
) -> Vec<u64> {
    let mut disk = Disk::new();
    let mut daemon = accounting(&mut disk, NOW - 9 * HOUR);
    daemon.commit();
    let mut counted = Vec::new();
    for minute in 0..minutes {
        let now = NOW + 60 * minute;
        daemon.note_statistics(0, 0, now);
        daemon.begin_round(now, now, true);
        let mut requests = 0;
        while let Phase::Reading(work) = &daemon.phase {
            requests += 1;
            let outcome = match &work.measuring {
                Some(measuring) if measuring.requested().any(&poison) => Err(killed()),
                Some(measuring) => {
                    let used = |id| Used { id, cpu: 7, is_open: false };
                    let used = measuring.requested().map(used).collect();
                    Ok(whole(Finished { used, ..Finished::default() }))
                }
                None => {
                    let (from, to, _) = asked(&daemon).unwrap();
                    let mut finished = piece(rows.to_vec(), from, to, false);
                    let started = |job: &FinishedJob| (job.id, (7, 3), job.end - 1);
                    finished.started = finished.jobs.iter().map(started).collect();
                    let is_heavy = finished.jobs.len() > most;
                    if is_heavy { Err(killed()) } else { Ok(whole(finished)) }
                }
            };
            drop(daemon.source.outcome().await);
            daemon.take_reply(outcome, now, |_, records| {
                disk.extend(records);
                2
            });
        }
        daemon.commit();
        assert!(requests < 80, "{requests} in minute {minute}");
        let totals = &daemon.ledger().unwrap().counts().totals;
        counted.push(totals.get("total").map_or(0, slurm_points::finished::Tally::jobs));
    }
    counted
}

/// Jobs with these numbers, each of which ended so many seconds before [`NOW`].
fn ended(jobs: impl IntoIterator<Item = (u64, i64)>) -> Vec<FinishedJob> {
    jobs.into_iter().map(|(id, ago)| job(id, NOW - ago, NOW - ago - 9)).collect()
}

/// Such a request ended each round where it was, and what had ended before was not read until it
/// was too old to count. Where newer pieces were answered first, the request grew again before the
/// round came to it.
#[tokio::test]
async fn jobs_whose_steps_cannot_be_had_hold_up_none_that_ended_before() {
    // After ten minutes without its steps, or in the next reading of everything.
    for (ago, minutes) in [(10, 30), (2 * HOUR, 90)] {
        let rows = [(1, 5 * HOUR), (2, ago), (3, ago), (4, ago), (5, ago)];
        let counted =
            counted_by_minute(&ended(rows), |id| [3, 5].contains(&id), 1000, minutes).await;
        let soon = counted.iter().position(|jobs| *jobs == 3);
        assert!(soon.is_some_and(|minutes| minutes < 10), "{ago}: {counted:?}");
        assert_eq!(counted.last(), Some(&5), "{ago}: {counted:?}");
    }
}

#[tokio::test]
async fn an_array_of_which_no_steps_can_be_had_counts_without_them() {
    let rows = (1..=300).map(|id| (id, 2 * HOUR)).chain([(301, 5 * HOUR)]);
    let counted = counted_by_minute(&ended(rows), |id| id < 300, 1000, 110).await;
    assert_eq!(counted.last(), Some(&301), "{counted:?}");
}

/// The pieces of a quiet time grow before the round comes to it again.
#[tokio::test]
async fn a_time_with_more_jobs_than_a_request_can_have_holds_up_none_that_ended_before() {
    let ago = |id: u64| i64::try_from(id).unwrap() + if id > 400 { 4 * HOUR } else { 2 * HOUR };
    let rows = (1..=800).map(|id| (id, ago(id))).chain([(801, 5 * HOUR)]);
    let counted = counted_by_minute(&ended(rows), |_| false, 30, 50).await;
    assert_eq!(counted.last(), Some(&801), "{counted:?}");
}

/// Each round asked for its whole hour second by second.
#[tokio::test]
async fn a_second_whose_jobs_cannot_be_had_makes_no_round_long() {
    let quiet = (1000..1700).map(|id| (id, 5 * i64::try_from(id - 1000).unwrap()));
    let rows = (1..=40).map(|id| (id, 2000)).chain(quiet);
    let counted = counted_by_minute(&ended(rows), |_| false, 30, 90).await;
    assert!(counted.last() >= Some(&400), "those that ended later count: {counted:?}");
}
