//! Tests of batches that leave a queue undelivered: by age, with clocks that jump; by size; and
//! when a destination is removed or moves.

use super::removal::copy;
use super::*;
use crate::clock::Clock;
use crate::store::{Counted, Why};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: i64 = 86_400;

fn with_limits(limits: Limits, names: &[&str]) -> Queue {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    Queue::open(None, limits, &names)
}

fn an_hour() -> Limits {
    Limits { max_age: HOUR, ..limits() }
}

fn reconfigure(queue: &Queue, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    queue.reconfigure(an_hour(), &names);
}

fn later(by: Duration) -> Moment {
    let now = Moment::now();
    Moment { boot: now.boot + by, wall: now.wall + by.as_secs().cast_signed() }
}

#[tokio::test]
async fn a_tick_under_a_clock_that_is_a_day_ahead_drops_nothing() {
    let queue = with_limits(an_hour(), &NAMES);
    let now = Moment::now().wall;
    (0..100).for_each(|n| queue.push(&batch(now - 50 + n)));
    queue.push(&batch(now + DAY));
    queue.push(&batch(now));
    let share = queue.outbox("a").status();
    assert_eq!((share.due(), share.dropped), (102, Dropped::default()));
}

#[tokio::test]
async fn a_tick_of_a_clock_that_was_a_day_ahead_or_behind_expires_when_its_time_has_passed() {
    let queue = with_limits(an_hour(), &NAMES);
    let now = Moment::now().wall;
    queue.push(&batch(now + DAY));
    queue.push(&batch(now - DAY));
    queue.shared.state().expire(later(HOUR - Duration::from_secs(10)));
    assert_eq!(queue.outbox("a").status().due(), 2);
    queue.shared.state().expire(later(HOUR + Duration::from_secs(10)));
    assert_eq!((queue.outbox("a").status().due(), queue.outbox("a").status().dropped.age), (0, 2));
}

#[tokio::test]
async fn the_age_of_a_tick_goes_on_over_a_restart_of_the_daemon() {
    let dir = left_behind().await;
    let again = Queue::open(Some(dir.path().to_owned()), an_hour(), &NAMES.map(str::to_owned));
    until(&again, |state| state.restored).await;
    assert_eq!(again.outbox("a").status().due(), 1, "its timestamp is of 1970");
    again.shared.state().expire(later(HOUR + Duration::from_secs(10)));
    assert_eq!(again.outbox("a").status().dropped.age, 1);
}

#[tokio::test]
async fn after_a_reboot_nothing_expires_until_the_wall_clock_is_plausible() {
    let (queue, _thread) = hung();
    let summary = Summary { timestamp: 20 * DAY, pushed: None, points: 3, bytes: 10 };
    let restored = Restored {
        due: vec![(Arc::from("a"), 5), (Arc::from("a"), 6)],
        batches: [(5, summary), (6, Summary { timestamp: 10 * DAY, ..summary })].into(),
        ..Restored::default()
    };
    queue.shared.state().apply(Event::Opened(restored));
    queue.shared.state().limits = an_hour();
    // The queue has looked at the clocks of this host.
    queue.shared.state().clock = Clock::default();
    let at = |minutes: u64, wall: i64| {
        let boot = Duration::from_secs(60 * minutes);
        queue.shared.state().expire(Moment { boot, wall: wall + 60 * minutes.cast_signed() });
        let status = queue.outbox("a").status();
        status.due() + status.held_back
    };
    // Earlier than timestamps that are known, however steadily it runs.
    assert!((0..30).all(|minute| at(minute, 15 * DAY) == 2));
    // A year ahead for a while, as before the first answer of an NTP server.
    assert!((30..39).all(|minute| at(minute, 400 * DAY) == 2));
    // Correct for ten minutes: one batch is 10 days old, the other less than an hour.
    assert!((39..49).all(|minute| at(minute, 20 * DAY) == 2));
    assert_eq!(at(49, 20 * DAY), 1);
    assert_eq!(queue.outbox("a").status().dropped.age, 3);
}

#[test]
fn a_clock_that_is_corrected_little_by_little_stays_plausible() {
    let mut clock = Clock::default();
    let summary = Summary { timestamp: -10 * DAY, ..Summary::default() };
    let looks: Vec<bool> = (0..30_i64)
        .map(|n| {
            let now =
                Moment { boot: Duration::from_secs(60 * n.cast_unsigned()), wall: 1000 + 65 * n };
            clock.look(now);
            clock.is_too_old(summary.timestamp, summary.pushed, now, HOUR) == Some(true)
        })
        .collect();
    assert_eq!(looks.iter().position(|&plausible| plausible), Some(10));
    assert!(looks.into_iter().skip(10).all(|plausible| plausible));
}

#[tokio::test]
async fn what_max_bytes_takes_from_the_resend_window_is_counted_when_it_cannot_be_sent_again() {
    let queue = with_limits(Limits { max_bytes: 1 << 20, ..limits() }, &NAMES);
    let outbox = queue.outbox("a");
    for timestamp in 0..40 {
        let mut batch = Batch::new(timestamp);
        (0..1000).for_each(|n| batch.push(format!("cluster.some_figure_{n}"), 1.0));
        queue.push(&batch);
        let id = outbox.next_due(DueFilter::All).unwrap().id;
        outbox.change_ledger(|ledger| ledger.note_written(id, 1));
    }
    let left = outbox.status().held;
    assert!((1..40).contains(&left) && queue.status().window_short, "{left}");
    assert_eq!(outbox.status().unproved, 0, "Carbon may well have them");
    outbox.note_loss();
    assert_eq!(outbox.status().unproved, (40 - left) * 1000);
    outbox.note_loss();
    assert_eq!(
        (outbox.status().unproved, outbox.status().due()),
        ((40 - left) * 1000, left),
        "twice"
    );
}

#[tokio::test]
async fn what_was_evicted_and_is_proved_later_is_not_counted() {
    let (queue, _thread) = hung();
    let outbox = queue.outbox("a");
    queue.push(&batch(1));
    let id = queue.shared.state().next_id - 1;
    queue.shared.state().apply(Event::Committed {
        appended: vec![id],
        ticket: 0,
        dropped: Vec::new(),
        file_bytes: 0,
    });
    outbox.change_ledger(|ledger| ledger.note_written(id, 1));
    queue.shared.state().apply(Event::Committed {
        appended: Vec::new(),
        ticket: 0,
        dropped: vec![id],
        file_bytes: 0,
    });
    let counted = Counted { to: Arc::from("a"), id, points: 1, why: Why::Unproved };
    assert_eq!(queue.shared.state().changes.counted, [counted]);
    outbox.change_ledger(|ledger| ledger.note_answer(1, None, Duration::ZERO, Instant::now()));
    let later = Instant::now() + limits().resend_window;
    assert!(queue.status().window_short);
    outbox.change_ledger(|ledger| ledger.note_answer(2, Some(later), Duration::ZERO, later));
    assert!(!queue.status().window_short, "it is whole again, and the next time is said again");
    assert_eq!(
        queue.shared.state().changes.done,
        [(Arc::from("a"), id)],
        "the file would count it at the next start"
    );
    outbox.note_loss();
    assert_eq!(outbox.status().unproved, 0);
}

#[tokio::test]
async fn what_is_too_old_does_not_make_the_window_short() {
    let queue = with_limits(an_hour(), &NAMES);
    queue.push(&batch(1));
    let outbox = queue.outbox("a");
    let id = outbox.next_due(DueFilter::All).unwrap().id;
    outbox.change_ledger(|ledger| ledger.note_written(id, 1));
    queue.shared.state().expire(later(HOUR * 2));
    assert!(!queue.status().window_short, "max_bytes has room");
    outbox.note_loss();
    assert_eq!(outbox.status().unproved, 1);
}

#[tokio::test]
async fn a_removed_destination_keeps_its_backlog_until_max_age_and_then_it_is_counted() {
    let queue = with_limits(an_hour(), &["a", "b"]);
    queue.push(&batch(1));
    reconfigure(&queue, &["a"]);
    queue.push(&batch(2));
    let id = queue.outbox("a").next_due(DueFilter::All).unwrap().id;
    queue.outbox("a").change_ledger(|ledger| ledger.note_written(id, 1));
    // It is configured again, and gets the batches that were kept for it.
    reconfigure(&queue, &["a", "b"]);
    assert_eq!(queue.outbox("b").status().due(), 1);
    reconfigure(&queue, &["a"]);
    queue.shared.state().expire(later(HOUR * 2));
    assert_eq!(queue.status().dropped_removed, 1);
    assert_eq!(queue.outbox("a").status().dropped.age, 1);
    assert!(
        queue.shared.state().batches.is_empty() && queue.shared.state().destinations.len() == 1
    );
}

/// Its ledger's counts went with it.
#[tokio::test]
async fn what_is_unproved_when_the_sender_of_a_removed_destination_stops_is_counted() {
    let once = Limits { resend_window: Duration::ZERO, ..an_hour() };
    for limits in [once, Limits { max_bytes: 0, ..an_hour() }] {
        let queue = with_limits(Limits { max_bytes: 64 << 20, ..limits.clone() }, &["a", "b"]);
        let outbox = queue.outbox("b");
        let write = |connection| {
            queue.push(&batch(connection));
            let id = outbox.next_due(DueFilter::All).unwrap().id;
            outbox.change_ledger(|ledger| {
                ledger.note_frame_written(id, 1, 1);
                ledger.note_written(id, 1)
            });
        };
        (1..=3).for_each(write);
        // One of them is published before it is removed.
        queue.shared.state().destination("b").ledger.count_unproved(1);
        queue.shared.state().limits.max_bytes = limits.max_bytes;
        queue.shared.state().trim();
        queue.reconfigure(limits.clone(), &["a".to_owned()]);
        outbox.note_loss();
        let counted = queue.status().dropped_removed;
        assert_eq!((counted, outbox.status().unproved), (3, 1), "{limits:?}");
        queue.shared.state().expire(later(HOUR * 2));
        assert_eq!(queue.status().dropped_removed, 3, "{limits:?}");
        assert_eq!(queue.shared.state().destinations.len(), 1);
    }
}

/// Each push looked at all batches: after a day at 1 s it took 10 ms of each second.
#[tokio::test]
async fn a_push_looks_at_the_age_of_the_oldest_and_of_those_that_are_not_in_order() {
    let queue = with_limits(an_hour(), &NAMES);
    (0..1000).for_each(|timestamp| queue.push(&batch(timestamp)));
    let looks = || {
        let before = crate::clock::tests::ages();
        queue.push(&batch(2000));
        crate::clock::tests::ages() - before
    };
    assert!(looks() <= 2);
    let unknown = queue.shared.state().batches.keys().take(3).copied().collect::<Vec<_>>();
    for id in &unknown {
        queue.shared.state().batches.get_mut(id).unwrap().summary.pushed = None;
    }
    queue.shared.state().ordered_at = None;
    assert!((3..=5).contains(&looks()));
    assert_eq!(queue.outbox("a").status().held_back, 3);
}

/// Ten kills in a long outage lost ten counts, and so did ten stops.
#[tokio::test]
async fn what_is_too_old_is_in_the_file_until_a_tick_has_its_count() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Queue::open(Some(dir.path().to_owned()), an_hour(), &["a".to_owned()]);
    let mut queue = open();
    queue.push(&batch(1));
    until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
    let mut counts = Vec::new();
    queue.shared.state().expire(later(HOUR * 2));
    for is_counted in [false, false, true, false] {
        counts.push(queue.outbox("a").status().dropped.age);
        if is_counted {
            queue.push_with_counts(&batch(2));
        }
        queue.close().await;
        queue = open();
        until(&queue, |state| state.restored).await;
    }
    assert_eq!(counts, [1, 1, 1, 0]);
}

/// What is remembered was committed between the count and its tick, and said that a tick has it: a
/// kill then lost the count.
#[tokio::test]
async fn a_commit_before_the_tick_that_has_a_count_does_not_tell_it() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::open(Some(dir.path().to_owned()), an_hour(), &["a".to_owned()]);
    queue.push(&batch(1));
    until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
    queue.shared.state().expire(later(HOUR + Duration::from_secs(10)));
    let killed = async || {
        let there = tempfile::tempdir().unwrap();
        copy(dir.path(), there.path());
        let queue = Queue::open(Some(there.path().to_owned()), an_hour(), &["a".to_owned()]);
        until(&queue, |state| state.restored).await;
        queue.outbox("a").status().dropped.age
    };
    queue.kept(queue.keep([("seen".to_owned(), Arc::from([1]))])).await;
    assert_eq!(killed().await, 1);
    queue.push_with_counts(&batch(2));
    until(&queue, |state| state.batches.values().all(|held| held.durable)).await;
    assert_eq!(killed().await, 0);
}

/// One tick of a clock that was a year ahead kept all others of earlier runs for ever.
#[tokio::test]
async fn when_the_tick_of_a_clock_that_was_ahead_is_done_the_others_expire() {
    let (queue, _thread) = hung();
    let summary = Summary { timestamp: 10 * DAY, pushed: None, points: 3, bytes: 10 };
    let restored = Restored {
        due: vec![(Arc::from("a"), 5), (Arc::from("a"), 6)],
        batches: [(5, Summary { timestamp: 375 * DAY, ..summary }), (6, summary)].into(),
        ..Restored::default()
    };
    queue.shared.state().apply(Event::Opened(restored));
    queue.shared.state().limits = Limits { resend_window: Duration::ZERO, ..an_hour() };
    queue.shared.state().clock = Clock::default();
    let outbox = queue.outbox("a");
    let at = |minutes: u64| {
        let boot = Duration::from_secs(60 * minutes);
        let now = Moment { boot, wall: 20 * DAY + 60 * minutes.cast_signed() };
        // Not the host's: `reconfigure` looks at it, and this run would have lasted as long as the
        // host is up.
        crate::clock::tests::set(Some(now));
        queue.shared.state().expire(now);
        let status = outbox.status();
        status.due() + status.held_back
    };
    assert_eq!((at(0), at(11)), (2, 2));
    let now = queue.shared.state().limits.clone();
    queue.reconfigure(now, &NAMES.map(str::to_owned));
    outbox.change_ledger(|ledger| ledger.note_written(5, 1));
    queue.shared.state().clock = Clock::default();
    assert_eq!((at(12), at(23)), (1, 0));
}

/// It was dropped for all destinations, also for those that read pickle and get it as it is.
#[tokio::test]
async fn what_cannot_be_encoded_for_one_destination_goes_to_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::open(Some(dir.path().to_owned()), limits(), &["a".into(), "b".into()]);
    (1..=2).for_each(|timestamp| queue.push(&batch(timestamp)));
    removal::all_durable(&queue).await;
    let [a, b] = ["a", "b"].map(|name| queue.outbox(name));
    let no_pickle = Frame { points: 1, body: vec![1] };
    let error = no_pickle.bytes(Protocol::Plaintext, MetricNames::Paths).unwrap_err();
    a.drop_unencodable(a.next_due(DueFilter::All).unwrap().id, &error);
    queue.push(&batch(3));
    removal::all_durable(&queue).await;
    assert_eq!((a.status().due(), a.status().held), (2, 2));
    assert_eq!(removal::after_a_kill(dir.path()).await.0.len(), 2, "and in the log");
    assert_eq!((a.status().dropped.damaged, b.status().dropped.damaged), (1, 0));
    assert_eq!((b.status().due(), queue.shared.state().batches.len()), (3, 3));
}

/// A kill before the next tick lost the count, with a batch that is done.
#[tokio::test]
async fn what_cannot_be_encoded_is_counted_by_the_next_run_until_a_tick_has_its_count() {
    let dir = tempfile::tempdir().unwrap();
    let queue = reopened(dir.path()).await;
    queue.push(&batch(1));
    removal::all_durable(&queue).await;
    let a = queue.outbox("a");
    let no_pickle = Frame { points: 1, body: vec![1] };
    let error = no_pickle.bytes(Protocol::Plaintext, MetricNames::Paths).unwrap_err();
    a.drop_unencodable(a.next_due(DueFilter::All).unwrap().id, &error);
    for (is_counted, expected) in [(false, 1), (true, 0)] {
        if is_counted {
            queue.push_with_counts(&batch(2))
        } else {
            queue.push(&batch(2))
        }
        removal::all_durable(&queue).await;
        let there = tempfile::tempdir().unwrap();
        copy(dir.path(), there.path());
        let next = reopened(there.path()).await;
        assert_eq!(next.outbox("a").status().dropped.damaged, expected);
    }
}

/// Lets one run leave three ticks, of which it has written some, and which may be `connected` as
/// the last one comes. Returns what a later run counts at max_age: dropped, and unproved.
async fn counted_at_max_age(connected: bool, written: usize, is_killed: bool) -> (u64, u64) {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let queue = queue_in(dir.path());
    let outbox = queue.outbox("a");
    (1..=3).for_each(|timestamp| queue.push(&batch(timestamp)));
    removal::all_durable(&queue).await;
    outbox.update_status(|status| status.connected = true);
    for _ in 0..written {
        let id = outbox.next_due(DueFilter::All).unwrap().id;
        outbox.change_ledger(|ledger| ledger.note_written(id, 1));
    }
    outbox.update_status(|status| status.connected = connected);
    queue.push(&batch(4));
    removal::all_durable(&queue).await;
    if !is_killed {
        assert_eq!(queue.close().await, 4);
    }
    removal::copy(dir.path(), killed.path());
    let start =
        || Queue::open(Some(killed.path().to_owned()), an_hour(), &NAMES.map(str::to_owned));
    // Each start tells the next one.
    for run in 0..2 {
        let again = start();
        until(&again, |state| state.restored).await;
        let ticket = again.keep([("seen".to_owned(), Arc::from([run]))]);
        again.kept(ticket).await;
        assert_eq!(again.close().await, 4);
    }
    let last = start();
    until(&last, |state| state.restored).await;
    last.shared.state().expire(later(HOUR + Duration::from_secs(10)));
    let status = last.outbox("a").status();
    assert_eq!(status.due(), 0);
    (status.dropped.age, status.unproved)
}

/// Ticks that had been written and read counted as dropped when a restart met an outage: nothing
/// was lost.
#[tokio::test]
async fn what_an_earlier_run_has_written_is_never_counted_as_dropped() {
    assert_eq!(counted_at_max_age(false, 3, false).await, (1, 3));
    assert_eq!(counted_at_max_age(true, 3, false).await, (1, 3));
    assert_eq!(counted_at_max_age(false, 0, false).await, (4, 0));
    assert_eq!(counted_at_max_age(false, 2, true).await, (2, 2));
    // It may have been written after the last commit.
    assert_eq!(counted_at_max_age(true, 3, true).await, (0, 4));
}
