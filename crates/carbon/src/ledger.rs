//! The delivery rule: what still has to be sent to one destination, and when a tick is done.
//!
//! A tick is **read** when the connection that carried its last write answers our half-close. It is **done** when another
//! connection, which carried bytes written at least `resend_window` after that, answers as well, with no loss in between. A
//! **loss** makes every tick due that is not done. Connections are numbered in the order in which they were opened.
//!
//! If `resend_window` is zero, a tick is done when its last frame is written, and nothing is written twice. Points that
//! were written, but not proved to be read before a loss, are counted as unproved.
//!
//! A **provisional** tick may have to be taken back. It is written while it is the newest; after that it waits until it is
//! confirmed or withdrawn, and it does not count as due.
//!
//! This module knows neither the network, the disk, a tick's points nor a clock. Moments are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// The outcome of a tick so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryStage {
    /// Not written yet, or to be written again.
    Due,
    /// Written as a whole, on the connection of this number. Where nothing can be proved: since when that connection has
    /// been seen to stand, and its program to run.
    Written(u64, Option<Instant>),
    /// The connection of its last write answered at this time.
    Read(Instant),
}

#[derive(Debug)]
struct LedgerEntry {
    timestamp: i64,
    points: u64,
    stage: DeliveryStage,
    /// Collected by this run of the daemon and never written: it is sent before the backlog.
    fresh: bool,
    /// Whether the whole tick was ever written.
    sent: bool,
    /// With a window of zero: how many frames of a due tick are already written and are not written again.
    frames: usize,
    /// It left the queue after it was written, so its points can only be counted.
    evicted: bool,
    /// Not written as backlog until it is confirmed.
    provisional: bool,
}

/// The ticks of one destination, by their number in the queue.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// How long after a tick was read the receiver must be seen to read again.
    pub(crate) resend_window: Duration,
    entries: BTreeMap<u64, LedgerEntry>,
    /// The newest tick of all, which may be done.
    newest: u64,
    /// Ticks never written as a whole, and (after those) ticks to be written again.
    due: BTreeSet<(bool, u64)>,
    /// The same of provisional ticks.
    provisional: BTreeSet<(bool, u64)>,
    /// Ticks that are done and have not yet been collected by the caller.
    done: Vec<u64>,
    /// With a window of zero: points written on each connection that has not answered.
    handed_over: BTreeMap<u64, u64>,
    unproved: u64,
}

/// A tick that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It was written and is not done: it is counted as unproved if a loss comes before it would have been done.
    Written,
    /// It was written and became due again after a loss; it is already counted as unproved.
    Counted,
    /// It was never written as a whole; the number is that of its unwritten points.
    Unwritten(u64),
}

impl Ledger {
    pub(crate) fn new(resend_window: Duration) -> Self {
        Self { resend_window, ..Self::default() }
    }

    /// Inserts a tick. `fresh`: it was just collected; otherwise it is from an earlier run of the daemon, which may
    /// have written it already.
    pub(crate) fn insert(&mut self, batch: u64, timestamp: i64, points: u64, fresh: bool) {
        self.newest = self.newest.max(batch);
        self.due.insert((false, batch));
        let (stage, sent) = (DeliveryStage::Due, false);
        let (evicted, provisional) = (false, false);
        let entry = LedgerEntry { timestamp, points, stage, fresh, sent, frames: 0, evicted, provisional };
        self.entries.insert(batch, entry);
    }

    /// A tick that was just inserted is provisional.
    pub(crate) fn hold(&mut self, batch: u64) {
        if let Some(entry) = self.entries.get_mut(&batch) {
            entry.provisional = true;
            self.due.remove(&(entry.sent, batch));
            self.provisional.insert((entry.sent, batch));
        }
    }

    /// Provisional ticks are like all others from now on.
    pub(crate) fn confirm(&mut self) {
        self.due.append(&mut self.provisional);
        self.entries.values_mut().for_each(|entry| entry.provisional = false);
    }

    #[cfg(test)]
    pub(crate) fn next(&self) -> Option<(u64, bool)> {
        self.in_order().next()
    }

    /// The ticks to write, in order, and whether each belongs to the backlog. The newest tick comes first if it was never
    /// written, then the oldest that was never written, then the oldest that is due again.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u64, bool)> {
        let newest = self.entries.get(&self.newest).filter(|entry| entry.fresh && !entry.sent);
        let newest = newest.map(|_| self.newest);
        let others = self.due.iter().map(|&(_, batch)| batch).filter(move |&batch| newest != Some(batch));
        newest.map(|batch| (batch, false)).into_iter().chain(others.map(|batch| (batch, true)))
    }

    /// How many frames of a due tick are already written: with a window of zero nothing is written twice.
    pub(crate) fn frames_written(&self, batch: u64) -> usize {
        self.entries.get(&batch).map_or(0, |entry| entry.frames)
    }

    /// One more frame of `batch` has been written as a whole.
    pub(crate) fn frame_written(&mut self, batch: u64, connection: u64, points: u64) {
        if self.resend_window.is_zero()
            && let Some(entry) = self.entries.get_mut(&batch)
        {
            entry.frames += 1;
            entry.points = entry.points.saturating_sub(points);
            *self.handed_over.entry(connection).or_default() += points;
        }
    }

    /// The last frame of `batch` has been written. Returns whether it had been written before.
    pub(crate) fn written(&mut self, batch: u64, connection: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&batch) else { return false };
        self.due.remove(&(entry.sent, batch));
        self.provisional.remove(&(entry.sent, batch));
        entry.stage = DeliveryStage::Written(connection, None);
        let again = std::mem::replace(&mut entry.sent, true);
        if self.resend_window.is_zero() {
            self.entries.remove(&batch);
            self.done.push(batch);
        }
        again
    }

    /// `connection` answered at `now`, `after` our half-close. `last_write` is when the last bytes were written on it.
    pub(crate) fn answered(
        &mut self,
        connection: u64,
        last_write: Option<Instant>,
        after: Duration,
        now: Instant,
    ) {
        self.handed_over.remove(&connection);
        let window = self.resend_window;
        self.finish(|entry| match entry.stage {
            DeliveryStage::Read(read) => last_write.is_some_and(|written| written >= read + window),
            _ => false,
        });
        for entry in self.entries.values_mut() {
            match &mut entry.stage {
                DeliveryStage::Written(on, _) if *on == connection => entry.stage = DeliveryStage::Read(now),
                // The receiver may have done nothing until it answered, so that time does not count towards the window.
                DeliveryStage::Read(read) => *read += after,
                _ => {}
            }
        }
    }

    /// `connection` ended too late to prove anything, and no loss is known. What it carried is due again, or done if it
    /// cannot be written again.
    pub(crate) fn answered_too_late(&mut self, connection: u64) {
        let handed_over = self.handed_over.remove(&connection);
        self.count_unproved(handed_over.unwrap_or(0));
        self.unprove(|stage| matches!(stage, DeliveryStage::Written(on, _) if on == connection));
    }

    /// Nothing can be proved, because the receiver accepts no second connection; but at `now` its program was seen to run,
    /// and `connection`, which it has acknowledged as a whole, stands. What was written on it a window before is done.
    pub(crate) fn stands(&mut self, connection: u64, now: Instant) {
        let window = self.resend_window;
        let is_ours = |stage| matches!(stage, DeliveryStage::Written(on, _) if on == connection);
        self.finish(|entry| match entry.stage {
            DeliveryStage::Written(_, Some(since)) => is_ours(entry.stage) && now >= since + window,
            _ => false,
        });
        for entry in self.entries.values_mut().filter(|entry| is_ours(entry.stage)) {
            if let DeliveryStage::Written(_, since) = &mut entry.stage {
                since.get_or_insert(now);
            }
        }
    }

    /// The program did not read for a while, until `now`. That time does not count towards the window.
    pub(crate) fn doubt_ended(&mut self, now: Instant) {
        for entry in self.entries.values_mut().filter(|entry| matches!(entry.stage, DeliveryStage::Read(_))) {
            entry.stage = DeliveryStage::Read(now);
        }
    }

    /// A loss: every tick that is not done becomes due again. With a window of zero every tick is done, so none becomes
    /// due.
    pub(crate) fn lost(&mut self) {
        let handed_over: u64 = std::mem::take(&mut self.handed_over).into_values().sum();
        self.count_unproved(handed_over);
        self.unprove(|stage| stage != DeliveryStage::Due);
    }

    /// Ticks at one of these stages become due again; those that cannot be written again are done, and counted.
    fn unprove(&mut self, which: impl Fn(DeliveryStage) -> bool) {
        let once = self.resend_window.is_zero();
        let gone = |entry: &LedgerEntry| which(entry.stage) && (entry.evicted || once);
        // With a window of zero, a tick that was read is proved.
        let counted =
            |entry: &&LedgerEntry| gone(entry) && !(once && matches!(entry.stage, DeliveryStage::Read(_)));
        let points: u64 = self.entries.values().filter(counted).map(|entry| entry.points).sum();
        self.count_unproved(points);
        self.finish(gone);
        for (&batch, entry) in self.entries.iter_mut().filter(|(_, entry)| which(entry.stage)) {
            entry.stage = DeliveryStage::Due;
            let due = if entry.provisional { &mut self.provisional } else { &mut self.due };
            due.insert((entry.sent, batch));
        }
    }

    /// Removes a tick from the queue before it is done.
    pub(crate) fn remove(&mut self, batch: u64) -> Option<Removed> {
        let entry = self.entries.get_mut(&batch).filter(|entry| !entry.evicted)?;
        if entry.stage == DeliveryStage::Due {
            let (sent, points) = (entry.sent, entry.points);
            self.due.remove(&(sent, batch));
            self.provisional.remove(&(sent, batch));
            self.entries.remove(&batch);
            if !sent {
                return Some(Removed::Unwritten(points));
            }
            self.count_unproved(points);
            return Some(Removed::Counted);
        }
        entry.evicted = true;
        Some(Removed::Written)
    }

    /// Ticks that are due: never written, or to be written again.
    pub(crate) fn due(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn points_due(&self) -> u64 {
        self.due.iter().filter_map(|(_, batch)| self.entries.get(batch)).map(|entry| entry.points).sum()
    }

    /// Counts points that were written, can no longer be proved to be read, and cannot be written again.
    pub(crate) const fn count_unproved(&mut self, points: u64) {
        self.unproved = self.unproved.saturating_add(points);
    }

    /// Points that were written, could not be proved to be read, and cannot be written again.
    pub(crate) const fn unproved(&self) -> u64 {
        self.unproved
    }

    /// Whether ticks have left the queue that would be due after a loss.
    pub(crate) fn is_window_short(&self) -> bool {
        self.entries.values().any(|entry| entry.evicted)
    }

    /// The timestamp of the oldest tick that is due, Unix seconds.
    pub(crate) fn oldest_due(&self) -> Option<i64> {
        let first = |sent| self.due.range((sent, 0)..=(sent, u64::MAX)).next();
        let (_, oldest) = [false, true].into_iter().filter_map(first).min_by_key(|(_, batch)| batch)?;
        self.entries.get(oldest).map(|entry| entry.timestamp)
    }

    /// Whether it must be written, for the first time or again.
    pub(crate) fn is_due(&self, batch: u64) -> bool {
        self.entries.get(&batch).is_some_and(|entry| entry.stage == DeliveryStage::Due)
    }

    pub(crate) fn holds(&self, batch: u64) -> bool {
        self.entries.get(&batch).is_some_and(|entry| !entry.evicted)
    }

    /// Ticks held: due, or written and not done.
    pub(crate) fn held(&self) -> usize {
        self.entries.values().filter(|entry| !entry.evicted).count()
    }

    /// Ticks that were written and, as far as is known, not read; with a window of zero, connections with such ticks.
    pub(crate) fn unread(&self) -> usize {
        let unread =
            |entry: &&LedgerEntry| !entry.evicted && matches!(entry.stage, DeliveryStage::Written(..));
        let handed_over = self.handed_over.values().filter(|points| **points > 0);
        self.entries.values().filter(unread).count() + handed_over.count()
    }

    fn finish(&mut self, which: impl Fn(&LedgerEntry) -> bool) {
        let done = self.entries.iter().filter(|(_, entry)| which(entry)).map(|(&batch, _)| batch);
        self.done.extend(done);
        self.entries.retain(|_, entry| !which(entry));
    }

    pub(crate) fn take_done(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_secs(600);

    fn ledger(batches: impl IntoIterator<Item = u64>) -> Ledger {
        let mut ledger = Ledger::new(WINDOW);
        batches.into_iter().for_each(|batch| ledger.insert(batch, 1000 + batch.cast_signed(), 10, true));
        ledger
    }

    /// Writes everything that is due, and returns the order.
    fn write_all(ledger: &mut Ledger, connection: u64) -> Vec<u64> {
        std::iter::from_fn(|| {
            let (batch, _) = ledger.next()?;
            ledger.written(batch, connection);
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
        assert_eq!(ledger.oldest_due(), Some(1001));
        assert_eq!(ledger.next(), Some((4, false)));
        assert_eq!(write_all(&mut ledger, 1), [4, 1, 2, 3]);
        assert_eq!((ledger.due(), ledger.oldest_due(), ledger.held()), (0, None, 4));
    }

    /// What is done at once was taken out, and the one before it was the newest: a whole outage went out as live ticks.
    #[test]
    fn with_a_window_of_zero_there_is_one_live_tick_too() {
        let mut ledger = ledger(1..=4);
        ledger.resend_window = Duration::ZERO;
        assert_eq!(write_all(&mut ledger, 1), [4, 1, 2, 3]);
    }

    #[test]
    fn what_an_earlier_run_had_kept_is_backlog() {
        let mut ledger = Ledger::new(WINDOW);
        (1..=3).for_each(|batch| ledger.insert(batch, 0, 10, false));
        assert_eq!(ledger.next(), Some((1, true)));
        ledger.insert(4, 0, 10, true);
        assert_eq!(write_all(&mut ledger, 1), [4, 1, 2, 3]);
    }

    #[test]
    fn a_tick_is_done_when_another_connection_answers_that_carried_bytes_a_window_after_it_was_read() {
        let (mut ledger, start) = (ledger([1]), Instant::now());
        write_all(&mut ledger, 1);
        let answered = |ledger: &mut Ledger, connection, written: u64, now: u64| {
            ledger.answered(connection, Some(start + seconds(written)), Duration::ZERO, start + seconds(now));
            ledger.take_done()
        };
        // It counts from when the tick was read, however long ago it was written.
        assert_eq!(answered(&mut ledger, 1, 5000, 6000), [0; 0]);
        assert_eq!(answered(&mut ledger, 2, 6599, 9000), [0; 0], "what it carried was too early");
        ledger.answered(3, None, Duration::ZERO, start + seconds(9000));
        assert_eq!(ledger.take_done(), [0; 0], "it carried nothing");
        assert_eq!(answered(&mut ledger, 4, 6600, 9000), [1]);
    }

    #[test]
    fn the_time_in_which_a_peer_may_have_hung_counts_for_no_window() {
        let (mut ledger, start) = (ledger([1]), Instant::now());
        write_all(&mut ledger, 1);
        ledger.answered(1, None, Duration::ZERO, start);
        ledger.answered(2, None, seconds(25), start + seconds(30));
        ledger.answered(3, Some(start + seconds(624)), Duration::ZERO, start + seconds(700));
        assert_eq!(ledger.take_done(), [0; 0]);
        ledger.doubt_ended(start + seconds(700));
        ledger.answered(4, Some(start + seconds(1299)), Duration::ZERO, start + seconds(1300));
        assert_eq!(ledger.take_done(), [0; 0]);
        ledger.answered(5, Some(start + seconds(1300)), Duration::ZERO, start + seconds(1301));
        assert_eq!(ledger.take_done(), [1]);
    }

    #[test]
    fn a_loss_makes_everything_due_that_is_not_done_also_what_was_read() {
        // A restart, and 3 s later Carbon is killed: what it had read was only in its memory.
        let (mut ledger, start) = (ledger([1, 2]), Instant::now());
        write_all(&mut ledger, 1);
        ledger.answered(1, Some(start), Duration::ZERO, start);
        ledger.insert(3, 0, 10, true);
        write_all(&mut ledger, 2);
        ledger.lost();
        assert_eq!(ledger.take_done(), [0; 0]);
        assert_eq!(write_all(&mut ledger, 3), [1, 2, 3]);
    }

    #[test]
    fn an_answer_that_comes_too_late_proves_nothing_of_its_own_ticks_and_costs_no_others() {
        let (mut ledger, start) = (ledger([1]), Instant::now());
        write_all(&mut ledger, 1);
        ledger.insert(2, 0, 10, true);
        write_all(&mut ledger, 2);
        ledger.answered_too_late(1);
        assert_eq!((ledger.due(), ledger.next()), (1, Some((1, true))));
        ledger.answered(2, Some(start), Duration::ZERO, start);
        assert_eq!((ledger.due(), ledger.unread()), (1, 0));
    }

    #[test]
    fn with_a_window_of_zero_a_tick_that_was_cut_off_goes_on_with_its_next_frame() {
        let mut ledger = ledger([1]);
        ledger.resend_window = Duration::ZERO;
        ledger.frame_written(1, 1, 6);
        ledger.lost();
        assert_eq!(ledger.take_done(), [0; 0]);
        assert_eq!((ledger.frames_written(1), ledger.unproved(), ledger.due()), (1, 6, 1));
        ledger.frame_written(1, 2, 4);
        assert!(!ledger.written(1, 2));
        assert_eq!(ledger.take_done(), [1]);
        ledger.answered(2, None, Duration::ZERO, Instant::now());
        ledger.lost();
        assert_eq!((ledger.unproved(), ledger.held()), (6, 0), "the second was proved");
    }

    #[test]
    fn what_leaves_the_queue_is_counted_where_it_may_be_lost_and_nowhere_twice() {
        let (mut ledger, start) = (ledger([1, 2, 3]), Instant::now());
        write_all(&mut ledger, 1);
        ledger.insert(4, 0, 10, true);
        let removed = [1, 4, 5, 1].map(|batch| ledger.remove(batch));
        assert_eq!(removed, [Some(Removed::Written), Some(Removed::Unwritten(10)), None, None]);
        assert_eq!((ledger.held(), ledger.is_window_short(), ledger.unproved()), (2, true, 0));
        ledger.answered(1, None, Duration::ZERO, start);
        ledger.answered(2, Some(start + WINDOW), Duration::ZERO, start + WINDOW);
        assert_eq!(ledger.take_done(), [1, 2, 3], "proved");
        let mut ledger = self::ledger([1, 2]);
        write_all(&mut ledger, 1);
        ledger.remove(1);
        ledger.lost();
        assert_eq!(ledger.take_done(), [1]);
        assert_eq!(
            (ledger.unproved(), ledger.remove(2), ledger.unproved()),
            (10, Some(Removed::Counted), 20)
        );
    }

    proptest! {
        /// Whatever tick a receiver fails on, live ticks continue.
        #[test]
        fn the_newest_tick_goes_first_whatever_happened_to_those_before(
            happenings in proptest::collection::vec((0..4_u8, 0..40_u64), 0..100),
        ) {
            let (mut ledger, mut next) = (Ledger::new(WINDOW), 0);
            for (what, which) in happenings {
                match what {
                    0 => ledger.lost(),
                    1 => drop(ledger.remove(which)),
                    2 => drop(ledger.next().map(|(batch, _)| ledger.written(batch, which))),
                    _ => ledger.answered_too_late(which),
                }
                next += 1;
                ledger.insert(next, 0, 1, true);
                prop_assert_eq!(ledger.next(), Some((next, false)));
            }
        }
    }
}
