//! The rule of delivery, case by case and with happenings at random.

use super::*;
use proptest::prelude::*;

const WINDOW: Duration = Duration::from_secs(600);
/// A wall clock that is equal to CLOCK_BOOTTIME.
const AT_BOOT_TIME: Moment = Moment { boot: Duration::from_secs(9000), wall: 9000 };

fn ledger(batches: impl IntoIterator<Item = u64>) -> Ledger {
    let mut ledger = Ledger::new(WINDOW);
    batches
        .into_iter()
        .for_each(|batch| ledger.insert(batch, 1000 + batch.cast_signed(), 10, 80, true));
    ledger
}

/// Writes everything that is due, and returns the order.
fn write_all(ledger: &mut Ledger, connection: u64) -> Vec<u64> {
    std::iter::from_fn(|| {
        let (batch, _) = ledger.next()?;
        ledger.note_written(batch, connection);
        Some(batch)
    })
    .collect()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn the_newest_goes_first_and_the_backlog_behind_it_oldest_first() {
    let mut ledger = ledger(1..=4);
    assert_eq!(ledger.oldest_unsent(), Some(1001));
    assert_eq!(ledger.next(), Some((4, false)));
    assert_eq!(write_all(&mut ledger, 1), [4, 1, 2, 3]);
    assert_eq!((ledger.sums.unsent.ticks, ledger.oldest_unsent(), ledger.sums.held), (0, None, 4));
}

/// A tick that is done at once was removed, and the one before it became the newest: a whole outage
/// was sent as live ticks.
#[test]
fn with_a_window_of_zero_there_is_one_live_tick_too() {
    let mut ledger = ledger(1..=4);
    ledger.resend_window = Duration::ZERO;
    assert_eq!(write_all(&mut ledger, 1), [4, 1, 2, 3]);
}

#[test]
fn what_an_earlier_run_had_kept_is_backlog() {
    let mut ledger = Ledger::new(WINDOW);
    (1..=3).for_each(|batch| ledger.insert(batch, 0, 10, 80, false));
    assert_eq!(ledger.next(), Some((1, true)));
    ledger.insert(4, 0, 10, 80, true);
    assert_eq!(write_all(&mut ledger, 1), [4, 1, 2, 3]);
}

#[test]
fn a_tick_is_done_when_another_connection_answers_that_carried_bytes_a_window_after_it_was_read() {
    let (mut ledger, start) = (ledger([1]), Instant::now());
    write_all(&mut ledger, 1);
    let answered = |ledger: &mut Ledger, connection, written: u64, now: u64| {
        ledger.note_answer(
            connection,
            Some(start + seconds(written)),
            Duration::ZERO,
            start + seconds(now),
        );
        ledger.take_done()
    };
    // It counts from when the tick was read, however long ago it was written.
    assert_eq!(answered(&mut ledger, 1, 5000, 6000), [0; 0]);
    assert_eq!(answered(&mut ledger, 2, 6599, 9000), [0; 0], "what it carried was too early");
    ledger.note_answer(3, None, Duration::ZERO, start + seconds(9000));
    assert_eq!(ledger.take_done(), [0; 0], "it carried nothing");
    assert_eq!(answered(&mut ledger, 4, 6600, 9000), [1]);
}

#[test]
fn the_time_in_which_a_peer_may_have_hung_counts_for_no_window() {
    let (mut ledger, start) = (ledger([1]), Instant::now());
    write_all(&mut ledger, 1);
    ledger.note_answer(1, None, Duration::ZERO, start);
    ledger.note_answer(2, None, seconds(25), start + seconds(30));
    ledger.note_answer(3, Some(start + seconds(624)), Duration::ZERO, start + seconds(700));
    assert_eq!(ledger.take_done(), [0; 0]);
    ledger.note_doubt_ended(start + seconds(700));
    ledger.note_answer(4, Some(start + seconds(1299)), Duration::ZERO, start + seconds(1300));
    assert_eq!(ledger.take_done(), [0; 0]);
    ledger.note_answer(5, Some(start + seconds(1300)), Duration::ZERO, start + seconds(1301));
    assert_eq!(ledger.take_done(), [1]);
}

#[test]
fn a_loss_makes_everything_due_that_is_not_done_also_what_was_read() {
    // A restart, and 3 s later Carbon is killed: what it had read was only in its memory.
    let (mut ledger, start) = (ledger([1, 2]), Instant::now());
    write_all(&mut ledger, 1);
    ledger.note_answer(1, Some(start), Duration::ZERO, start);
    ledger.insert(3, 0, 10, 80, true);
    write_all(&mut ledger, 2);
    ledger.note_loss(seconds(2000));
    assert_eq!(ledger.take_done(), [0; 0]);
    assert_eq!(write_all(&mut ledger, 3), [1, 2, 3]);
}

#[test]
fn an_answer_that_comes_too_late_proves_nothing_of_its_own_ticks_and_costs_no_others() {
    let (mut ledger, start) = (ledger([1]), Instant::now());
    write_all(&mut ledger, 1);
    ledger.insert(2, 0, 10, 80, true);
    write_all(&mut ledger, 2);
    ledger.note_unproved_end(1, seconds(2000));
    assert_eq!((ledger.sums.again.ticks, ledger.next()), (1, Some((1, true))));
    ledger.note_answer(2, Some(start), Duration::ZERO, start);
    assert_eq!((ledger.sums.again.ticks, ledger.unread()), (1, 0));
}

#[test]
fn with_a_window_of_zero_a_tick_that_was_cut_off_goes_on_with_its_next_frame() {
    let mut ledger = ledger([1]);
    ledger.resend_window = Duration::ZERO;
    ledger.note_frame_written(1, 1, 6);
    ledger.note_loss(seconds(2000));
    assert_eq!(ledger.take_done(), [0; 0]);
    assert_eq!((ledger.frames_written(1), ledger.unproved(), ledger.sums.unsent.ticks), (1, 6, 1));
    ledger.note_frame_written(1, 2, 4);
    assert_eq!(ledger.note_written(1, 2), Some(false));
    assert_eq!(ledger.take_done(), [1]);
    ledger.note_answer(2, None, Duration::ZERO, Instant::now());
    ledger.note_loss(seconds(2000));
    assert_eq!((ledger.unproved(), ledger.sums.held), (6, 0), "the second was proved");
}

#[test]
fn what_leaves_the_queue_is_counted_where_it_may_be_lost_and_nowhere_twice() {
    let (mut ledger, start) = (ledger([1, 2, 3]), Instant::now());
    write_all(&mut ledger, 1);
    ledger.insert(4, 0, 10, 80, true);
    let removed = [1, 4, 5, 1].map(|batch| ledger.remove(batch));
    assert_eq!(removed, [Some(Removed::Written), Some(Removed::Unwritten(10)), None, None]);
    assert_eq!((ledger.sums.held, ledger.is_window_short(), ledger.unproved()), (2, true, 0));
    ledger.note_answer(1, None, Duration::ZERO, start);
    ledger.note_answer(2, Some(start + WINDOW), Duration::ZERO, start + WINDOW);
    assert_eq!(ledger.take_done(), [1, 2, 3], "proved");
    let mut ledger = self::ledger([1, 2]);
    write_all(&mut ledger, 1);
    ledger.remove(1);
    ledger.note_loss(seconds(2000));
    assert_eq!(ledger.take_counted(), [1]);
    assert_eq!(
        (ledger.unproved(), ledger.remove(2), ledger.unproved()),
        (10, Some(Removed::Counted), 20)
    );
}

/// The age was 0 while a hundred of them waited.
#[test]
fn provisional_ticks_wait_like_others() {
    let mut ledger = ledger([]);
    ledger.insert(1, 5000, 10, 80, true);
    ledger.hold(1);
    ledger.insert(2, 5010, 10, 80, true);
    assert_eq!(
        (ledger.oldest_unsent(), ledger.waits_since(AT_BOOT_TIME)),
        (Some(5000), Some(5000))
    );
    write_all(&mut ledger, 1);
    ledger.note_written(1, 1);
    ledger.note_loss(seconds(5020));
    assert_eq!((ledger.oldest_unsent(), ledger.waits_since(AT_BOOT_TIME)), (None, Some(5020)));
    ledger.note_written(2, 2);
    assert_eq!(ledger.waits_since(AT_BOOT_TIME), Some(5020), "the provisional one still does");
}

/// A restart of Carbon is no outage of ten minutes because ten minutes of ticks are sent again.
#[test]
fn what_was_sent_before_a_loss_waits_since_the_loss_and_not_since_it_was_collected() {
    let (mut ledger, start) = (ledger([1, 2]), Instant::now());
    write_all(&mut ledger, 1);
    assert_eq!(ledger.waits_since(AT_BOOT_TIME), None);
    ledger.note_loss(seconds(5000));
    assert_eq!((ledger.oldest_unsent(), ledger.waits_since(AT_BOOT_TIME)), (None, Some(5000)));
    ledger.insert(3, 5010, 10, 80, true);
    assert_eq!(
        (ledger.oldest_unsent(), ledger.waits_since(AT_BOOT_TIME)),
        (Some(5010), Some(5000))
    );
    let (unsent, again) = (Ticks { ticks: 1, points: 10 }, Ticks { ticks: 2, points: 20 });
    assert_eq!((ledger.sums.unsent, ledger.sums.again), (unsent, again));
    // A proxy without a backend: what is written is lost again, without an answer.
    write_all(&mut ledger, 2);
    ledger.note_loss(seconds(5020));
    assert_eq!(ledger.waits_since(AT_BOOT_TIME), Some(5000));
    // Half of it is out, and the receiver has answered: the other half still waits.
    ledger.note_written(1, 3);
    ledger.note_answer(3, None, Duration::ZERO, start);
    assert_eq!(ledger.waits_since(AT_BOOT_TIME), Some(5000));
    write_all(&mut ledger, 4);
    assert_eq!(ledger.waits_since(AT_BOOT_TIME), None);
    ledger.note_loss(seconds(5050));
    assert_eq!(ledger.waits_since(AT_BOOT_TIME), Some(5050), "another loss");
}

proptest! {
    /// Whatever tick a receiver fails on, live ticks continue.
    #[test]
    fn the_newest_tick_goes_first_whatever_happened_to_those_before(
        happenings in proptest::collection::vec((0..5_u8, 0..40_u64), 0..100),
    ) {
        let (mut ledger, mut next, start) = (Ledger::new(WINDOW), 0, Instant::now());
        for (what, which) in happenings {
            match what {
                0 => ledger.note_loss(seconds(2000)),
                1 => drop(ledger.remove(which)),
                2 => drop(ledger.next().map(|(batch, _)| ledger.note_written(batch, which))),
                3 => ledger.note_answer(which, Some(start + WINDOW), Duration::ZERO, start),
                _ => ledger.note_unproved_end(which, seconds(2000)),
            }
            next += 1;
            ledger.insert(next, 0, 1, 80, true);
            prop_assert_eq!(ledger.next(), Some((next, false)));
            let mut walked = Sums::default();
            ledger.batches.values().for_each(|held| walked.add(held));
            prop_assert_eq!(ledger.sums, walked, "the running sums are those of a walk");
            let due = walked.unsent.ticks + walked.again.ticks;
            prop_assert_eq!(due, ledger.due.len() as u64);
        }
    }
}
