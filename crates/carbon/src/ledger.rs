//! The delivery rule: what still has to be sent to one destination, and when a tick is done.
//!
//! A tick is **read** when the connection that carried its last write answers our half-close. It is
//! **done** when another connection, which carried bytes written at least `resend_window` after
//! that, answers as well, with no loss in between. A **loss** makes every tick due that is not
//! done. Connections are numbered in the order in which they were opened.
//!
//! If `resend_window` is zero, a tick is done when its last frame is written, and nothing is
//! written twice. Points that were written, but not proved to be read before a loss, are counted as
//! unproved.
//!
//! A **provisional** tick may have to be taken back. It is written while none has a later
//! timestamp; after that it waits until it is confirmed or withdrawn, and it does not count as due.
//! Nor does a tick of **unknown age**, which is never written.
//!
//! This module knows neither the network, the disk, a tick's points nor a clock. Moments are
//! arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::clock::Moment;

/// The stage of a tick's delivery to one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryStage {
    /// Not written yet, or to be written again.
    Due,
    /// Written as a whole.
    Written {
        /// The number of the connection that carried its last write.
        link: u64,
        /// If the receiver accepts no second connection: moment since which its program has been
        /// seen to run while this connection is up. `None`: it was not seen since the write.
        stands_since: Option<Instant>,
    },
    /// The connection that carried its last write has answered. The moment is that of the answer,
    /// moved on by the time in which the receiver may not have read since.
    Read(Instant),
}

/// A reason why a due tick is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Not,
    Provisional,
    UnknownAge,
}

/// The writes of a batch by an earlier run of the daemon, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Earlier {
    Nothing,
    /// The earlier run was killed before it could record whether it has written the batch.
    PerhapsWritten,
    Written,
}

#[derive(Debug)]
struct LedgerBatch {
    timestamp: i64,
    points: u64,
    bytes: u64,
    stage: DeliveryStage,
    /// Whether this run of the daemon has collected the tick. All others are backlog.
    fresh: bool,
    /// Whether this run has ever written the whole tick.
    sent: bool,
    earlier: Earlier,
    /// With a window of zero: the number of frames of a due tick that are already written and are
    /// not written again.
    frames: usize,
    /// Whether the tick left the queue after it was written and before it was done: after a loss
    /// its points can only be counted.
    evicted: bool,
    /// Whether the tick is provisional: it is not written as backlog until it is confirmed.
    provisional: bool,
    /// Whether the tick's age is unknown: it is not written while it may be too old.
    unknown_age: bool,
}

impl LedgerBatch {
    /// Whether the tick was ever written as a whole, by this run or an earlier one, as far as is
    /// known.
    fn was_sent(&self) -> bool {
        self.sent || self.earlier == Earlier::Written
    }

    const fn hold(&self) -> Hold {
        match (self.unknown_age, self.provisional) {
            (true, _) => Hold::UnknownAge,
            (false, true) => Hold::Provisional,
            (false, false) => Hold::Not,
        }
    }

    /// The tick's place in the order of the due ticks.
    fn due_key(&self, batch: u64, by_time: bool) -> (Hold, i64, u64) {
        if by_time {
            (Hold::Not, self.timestamp, batch)
        } else {
            (self.hold(), self.was_sent().into(), batch)
        }
    }
}

/// A number of ticks of one kind, and the number of their points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ticks {
    /// The number of ticks.
    pub ticks: u64,
    /// The number of points in these ticks.
    pub points: u64,
}

impl Ticks {
    /// Returns the sum of the ticks and that of the points.
    pub(crate) const fn plus(self, other: Self) -> Self {
        let ticks = self.ticks.saturating_add(other.ticks);
        Self { ticks, points: self.points.saturating_add(other.points) }
    }
}

/// Sums over all batches of one destination. They are corrected with each change of a batch,
/// because a queue may hold many thousands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Ticks that are not held back and were never written as a whole, as far as is known.
    pub(crate) unsent: Ticks,
    /// Ticks that are not held back, were written before a loss or by an earlier run, and are to be
    /// written again.
    pub(crate) again: Ticks,
    /// Due ticks that are provisional and of known age: those never written as a whole, and those
    /// to be written again.
    pub(crate) provisional: [Ticks; 2],
    /// Due ticks of unknown age: those never written as a whole, and those to be written again.
    pub(crate) unknown_age: [Ticks; 2],
    /// The number of ticks that the queue holds for the destination: due, or written and not done.
    pub(crate) held: u64,
    /// Bytes of the ticks that `held` counts.
    pub(crate) bytes: u64,
    /// The number of ticks that were written and, as far as is known, not read.
    written: u64,
    evicted: u64,
}

impl Sums {
    /// Due ticks that are held back, provisional or of unknown age: those never written as a whole,
    /// and those to be written again.
    pub(crate) const fn held_back(&self) -> [Ticks; 2] {
        let ([unsent, again], [unsent_too, again_too]) = (self.provisional, self.unknown_age);
        [unsent.plus(unsent_too), again.plus(again_too)]
    }

    fn add(&mut self, held: &LedgerBatch) {
        self.count(held, u64::saturating_add);
    }

    fn subtract(&mut self, held: &LedgerBatch) {
        self.count(held, u64::saturating_sub);
    }

    fn count(&mut self, held: &LedgerBatch, op: fn(u64, u64) -> u64) {
        if held.evicted {
            self.evicted = op(self.evicted, 1);
            return;
        }
        (self.held, self.bytes) = (op(self.held, 1), op(self.bytes, held.bytes));
        match held.stage {
            DeliveryStage::Due => {
                let [unsent, again] = match held.hold() {
                    Hold::Not => [&mut self.unsent, &mut self.again],
                    Hold::Provisional => self.provisional.each_mut(),
                    Hold::UnknownAge => self.unknown_age.each_mut(),
                };
                let due = if held.was_sent() { again } else { unsent };
                (due.ticks, due.points) = (op(due.ticks, 1), op(due.points, held.points));
            }
            DeliveryStage::Written { .. } => self.written = op(self.written, 1),
            DeliveryStage::Read(_) => {}
        }
    }

    /// Changes a batch, and the sums with it.
    fn change<T>(
        &mut self,
        held: &mut LedgerBatch,
        change: impl FnOnce(&mut LedgerBatch) -> T,
    ) -> T {
        self.subtract(held);
        let changed = change(held);
        self.add(held);
        changed
    }
}

/// The ticks of one destination, by their number in the queue.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Time after a tick was read. If the receiver reads bytes that are written later than that,
    /// the tick is done.
    pub(crate) resend_window: Duration,
    batches: BTreeMap<u64, LedgerBatch>,
    /// The number of the newest tick, which may already be done.
    newest: u64,
    /// The latest timestamp of a tick that this run has collected, Unix seconds.
    latest: i64,
    /// The due ticks: first those that are not held back, then the others by reason. Each group has
    /// the ticks that were never written as a whole before those to be written again. By time, all
    /// are in the order of their timestamps.
    due: BTreeSet<(Hold, i64, u64)>,
    by_time: bool,
    /// The ticks that were collected and that the throttle was not told of yet.
    collected: Ticks,
    sums: Sums,
    /// Moment of the loss since which ticks wait to be written again, by CLOCK_BOOTTIME; `None`:
    /// there was none, or it is over. A later loss changes it only if the receiver has answered in
    /// between and nothing waited: a proxy without a backend loses each connection.
    lost_at: Option<Duration>,
    /// Whether the receiver has answered since the loss of `lost_at`.
    answered: bool,
    /// The numbers of ticks that are done, until the queue takes them.
    done: Vec<u64>,
    /// The numbers of ticks that had left the queue and were counted as unproved after a loss,
    /// until the queue takes them.
    counted: Vec<u64>,
    /// With a window above zero: the numbers of ticks that were written for the first time, until
    /// the queue takes them.
    written: Vec<u64>,
    /// With a window of zero: by the number of a connection that has not answered, the points that
    /// were written on it.
    handed_over: BTreeMap<u64, u64>,
    unproved: u64,
}

/// The state in which a tick was removed from the queue before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It was written and is not done: it is counted as unproved if a loss comes before it would
    /// have been done.
    Written,
    /// It was written and became due again after a loss or a restart; it is already counted as
    /// unproved.
    Counted,
    /// It was never written as a whole; the number is that of its unwritten points.
    Unwritten(u64),
}

impl Ledger {
    pub(crate) fn new(resend_window: Duration) -> Self {
        Self { resend_window, ..Self::default() }
    }

    /// Inserts a tick. `fresh`: it was just collected; otherwise it is from an earlier run of the
    /// daemon, which may have written it already.
    pub(crate) fn insert(
        &mut self,
        batch: u64,
        timestamp: i64,
        points: u64,
        bytes: u64,
        fresh: bool,
    ) {
        self.newest = self.newest.max(batch);
        if fresh {
            self.latest = self.latest.max(timestamp);
            self.collected = self.collected.plus(Ticks { ticks: 1, points });
        }
        let (stage, sent) = (DeliveryStage::Due, false);
        let held = LedgerBatch {
            timestamp,
            points,
            bytes,
            stage,
            fresh,
            sent,
            earlier: Earlier::Nothing,
            frames: 0,
            evicted: false,
            provisional: false,
            unknown_age: false,
        };
        self.due.insert(held.due_key(batch, self.by_time));
        self.sums.add(&held);
        if let Some(before) = self.batches.insert(batch, held) {
            self.sums.subtract(&before);
        }
    }

    /// Sets whether ticks are written strictly by their timestamps, and orders those that are due.
    pub(crate) fn write_by_time(&mut self, by_time: bool) {
        self.by_time = by_time;
        let due = std::mem::take(&mut self.due).into_iter().map(|(.., batch)| batch);
        let keys = due.filter_map(|batch| Some(self.batches.get(&batch)?.due_key(batch, by_time)));
        self.due = keys.collect();
    }

    /// Takes the numbers of ticks and points that were collected since the last call.
    pub(crate) fn take_collected(&mut self) -> Ticks {
        std::mem::take(&mut self.collected)
    }

    /// Notes that an earlier run has written a tick that was just inserted. Since `now`, by
    /// CLOCK_BOOTTIME, it waits to be written again.
    pub(crate) fn note_written_earlier(&mut self, batch: u64, now: Duration) {
        if self.change_due(batch, |held| held.earlier = Earlier::Written) {
            self.lost_at.get_or_insert(now);
        }
    }

    /// Notes that an earlier run may have written a tick. If it is dropped, its points count as
    /// unproved, not as never sent.
    pub(crate) fn note_perhaps_written_earlier(&mut self, batch: u64) {
        self.change_due(batch, |held| held.earlier = Earlier::PerhapsWritten);
    }

    /// Whether a tick was ever written as a whole, as far as is known.
    pub(crate) fn was_written(&self, batch: u64) -> bool {
        self.batches.get(&batch).is_some_and(LedgerBatch::was_sent)
    }

    /// Changes a tick and, if it is due, its place among the due ticks. Returns whether it is due.
    fn change_due(&mut self, batch: u64, change: impl FnOnce(&mut LedgerBatch)) -> bool {
        let Some(held) = self.batches.get_mut(&batch) else { return false };
        let is_due = self.due.remove(&held.due_key(batch, self.by_time));
        self.sums.change(held, change);
        if is_due {
            self.due.insert(held.due_key(batch, self.by_time));
        }
        is_due
    }

    /// Makes a tick provisional that was just inserted.
    pub(crate) fn hold(&mut self, batch: u64) {
        self.change_due(batch, |held| held.provisional = true);
    }

    /// Confirms the provisional ticks: from now on they are like all others. Returns whether one of
    /// them is due.
    pub(crate) fn confirm(&mut self) -> bool {
        let provisional = self.batches.iter().filter(|(_, held)| held.provisional);
        let provisional: Vec<u64> = provisional.map(|(&batch, _)| batch).collect();
        let confirm = |batch| self.change_due(batch, |held| held.provisional = false);
        provisional.into_iter().map(confirm).fold(false, |any, is_due| any | is_due)
    }

    /// Sets whether the age of a tick is unknown.
    pub(crate) fn set_unknown_age(&mut self, batch: u64, unknown_age: bool) {
        self.change_due(batch, |held| held.unknown_age = unknown_age);
    }

    #[cfg(test)]
    pub(crate) fn next(&self) -> Option<(u64, bool)> {
        self.in_order().next()
    }

    /// The ticks to write, in order, and whether each belongs to the backlog. The newest tick comes
    /// first if it was never written, then provisional ones with the latest timestamp, then the
    /// oldest that was never written, then the oldest that is due again. By time it is only the due
    /// tick with the earliest timestamp: if that one is held back, all are.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u64, bool)> {
        let unsent = |batch: u64| self.batches.get(&batch).filter(|held| held.fresh && !held.sent);
        let newest =
            unsent(self.newest).filter(|held| held.hold() == Hold::Not).map(|_| self.newest);
        let provisional = (Hold::Provisional, 0, 0)..(Hold::Provisional, 1, 0);
        let provisional = self.due.range(provisional).rev().map(|&(.., batch)| batch);
        let is_live =
            move |&batch: &u64| unsent(batch).is_some_and(|held| held.timestamp >= self.latest);
        let live = newest.into_iter().chain(provisional.take_while(is_live));
        let others = self.due.range(..(Hold::Provisional, 0, 0)).map(|&(.., batch)| batch);
        let others = others.filter(move |&batch| newest != Some(batch));
        let newest_first =
            live.map(|batch| (batch, false)).chain(others.map(|batch| (batch, true)));
        let by_time = if self.by_time { self.first_by_time() } else { None };
        by_time.into_iter().chain(newest_first.take_while(|_| !self.by_time))
    }

    fn first_by_time(&self) -> Option<(u64, bool)> {
        let &(.., batch) = self.due.first()?;
        let held = self.batches.get(&batch)?;
        let is_unsent = held.fresh && !held.sent;
        match held.hold() {
            Hold::Not => Some((batch, !is_unsent || batch != self.newest)),
            Hold::Provisional if is_unsent && held.timestamp >= self.latest => Some((batch, false)),
            Hold::Provisional | Hold::UnknownAge => None,
        }
    }

    /// Number of frames of a due tick that are already written; always 0 with a window, because
    /// only without one nothing is written twice.
    pub(crate) fn frames_written(&self, batch: u64) -> usize {
        self.batches.get(&batch).map_or(0, |held| held.frames)
    }

    /// Notes that one more frame of `batch`, with so many points, was written on `connection`. This
    /// only matters with a window of zero.
    pub(crate) fn note_frame_written(&mut self, batch: u64, connection: u64, points: u64) {
        if self.resend_window.is_zero()
            && let Some(held) = self.batches.get_mut(&batch)
        {
            self.sums.change(held, |held| {
                held.frames += 1;
                held.points = held.points.saturating_sub(points);
            });
            *self.handed_over.entry(connection).or_default() += points;
        }
    }

    /// Notes that the last frame of `batch` was written on `connection`. Returns whether this run
    /// had written the batch before. `None`: it was removed meanwhile, and counted then.
    pub(crate) fn note_written(&mut self, batch: u64, connection: u64) -> Option<bool> {
        let held = self.batches.get_mut(&batch)?;
        self.due.remove(&held.due_key(batch, self.by_time));
        let again = self.sums.change(held, |held| {
            held.stage = DeliveryStage::Written { link: connection, stands_since: None };
            std::mem::replace(&mut held.sent, true)
        });
        if self.resend_window.is_zero() {
            self.sums.subtract(held);
            self.batches.remove(&batch);
            self.done.push(batch);
        } else if !again {
            self.written.push(batch);
        }
        self.recover();
        Some(again)
    }

    /// Forgets the loss when the receiver has answered and everything is written again.
    const fn recover(&mut self) {
        if self.answered && self.sums.again.ticks == 0 {
            self.lost_at = None;
        }
    }

    /// Notes that `connection` answered at `now`; `after` is the time since our half-close. The
    /// ticks on it are read. Ticks that were read a window before `last_write`, the moment of the
    /// last bytes on it, are done; `None`: nothing was written on it.
    pub(crate) fn note_answer(
        &mut self,
        connection: u64,
        last_write: Option<Instant>,
        after: Duration,
        now: Instant,
    ) {
        self.handed_over.remove(&connection);
        self.answered = true;
        self.recover();
        let window = self.resend_window;
        let done = self.finish(|held| match held.stage {
            DeliveryStage::Read(read) => last_write.is_some_and(|written| written >= read + window),
            _ => false,
        });
        self.done.extend(done);
        for held in self.batches.values_mut() {
            match &mut held.stage {
                DeliveryStage::Written { link, .. } if *link == connection => {
                    self.sums.change(held, |held| held.stage = DeliveryStage::Read(now));
                }
                // The receiver may have done nothing until it answered, so that time does not count
                // towards the window.
                DeliveryStage::Read(read) => *read += after,
                _ => {}
            }
        }
    }

    /// Notes an end of `connection` that is neither an answer nor a loss: it came too late, or
    /// without proof. What the connection carried is due again, or done if it cannot be written
    /// again. `now` is by CLOCK_BOOTTIME.
    pub(crate) fn note_unproved_end(&mut self, connection: u64, now: Duration) {
        let handed_over = self.handed_over.remove(&connection);
        self.count_unproved(handed_over.unwrap_or(0));
        self.unprove(
            |stage| matches!(stage, DeliveryStage::Written { link, .. } if link == connection),
            now,
        );
    }

    /// Notes that at `now` the program of a receiver that accepts no second connection was seen to
    /// run. Nothing can be proved then; but `connection` is up, and the receiver's kernel has
    /// acknowledged all of it. A tick on it is done if the program was first seen so at least a
    /// window before.
    pub(crate) fn note_standing(&mut self, connection: u64, now: Instant) {
        self.answered = true;
        self.recover();
        let window = self.resend_window;
        if window.is_zero() {
            self.handed_over.remove(&connection);
        }
        let is_ours =
            |stage| matches!(stage, DeliveryStage::Written { link, .. } if link == connection);
        let done = self.finish(|held| match held.stage {
            DeliveryStage::Written { stands_since: Some(since), .. } => {
                is_ours(held.stage) && now >= since + window
            }
            _ => false,
        });
        self.done.extend(done);
        for held in self.batches.values_mut().filter(|held| is_ours(held.stage)) {
            if let DeliveryStage::Written { stands_since: since, .. } = &mut held.stage {
                since.get_or_insert(now);
            }
        }
    }

    /// Notes that a doubt ended at `now`: the program may not have read until then. That time does
    /// not count towards the window, which begins again for the ticks that are read.
    pub(crate) fn note_doubt_ended(&mut self, now: Instant) {
        for held in
            self.batches.values_mut().filter(|held| matches!(held.stage, DeliveryStage::Read(_)))
        {
            held.stage = DeliveryStage::Read(now);
        }
    }

    /// Notes a loss: every tick that is not done becomes due again. With a window of zero what was
    /// written is counted as unproved instead. `now` is by CLOCK_BOOTTIME.
    pub(crate) fn note_loss(&mut self, now: Duration) {
        let handed_over: u64 = std::mem::take(&mut self.handed_over).into_values().sum();
        self.count_unproved(handed_over);
        self.unprove(|stage| stage != DeliveryStage::Due, now);
    }

    /// Makes the ticks due again whose stage `which` accepts. Those that cannot be written again
    /// are removed, and their points count as unproved.
    fn unprove(&mut self, which: impl Fn(DeliveryStage) -> bool, now: Duration) {
        if self.lost_at.is_none() {
            (self.lost_at, self.answered) = (Some(now), false);
        }
        let once = self.resend_window.is_zero();
        let gone = |held: &LedgerBatch| which(held.stage) && (held.evicted || once);
        // With a window of zero, a tick that was read is proved.
        let counted = |held: &&LedgerBatch| {
            gone(held) && !(once && matches!(held.stage, DeliveryStage::Read(_)))
        };
        let points: u64 = self.batches.values().filter(counted).map(|held| held.points).sum();
        self.count_unproved(points);
        let gone = self.finish(gone);
        let gone_to = if once { &mut self.done } else { &mut self.counted };
        gone_to.extend(gone);
        for (&batch, held) in self.batches.iter_mut().filter(|(_, held)| which(held.stage)) {
            self.sums.change(held, |held| held.stage = DeliveryStage::Due);
            self.due.insert(held.due_key(batch, self.by_time));
        }
    }

    /// Removes a tick from the queue before it is done; `None`: the queue does not hold it.
    pub(crate) fn remove(&mut self, batch: u64) -> Option<Removed> {
        let held = self.batches.get_mut(&batch).filter(|held| !held.evicted)?;
        if held.stage == DeliveryStage::Due {
            let (sent, points) = (held.sent, held.points);
            // A provisional tick is withdrawn, which is no loss.
            let was_written = sent || held.earlier != Earlier::Nothing && !held.provisional;
            self.due.remove(&held.due_key(batch, self.by_time));
            self.sums.subtract(held);
            self.batches.remove(&batch);
            if !was_written {
                return Some(Removed::Unwritten(points));
            }
            self.count_unproved(points);
            return Some(Removed::Counted);
        }
        self.sums.change(held, |held| held.evicted = true);
        Some(Removed::Written)
    }

    /// Removes a due tick that cannot be sent to this destination, which is done with it. Returns
    /// how many of its points were never written.
    pub(crate) fn discard(&mut self, batch: u64) -> u64 {
        let Some(removed) = self.remove(batch) else { return 0 };
        self.done.push(batch);
        if let Removed::Unwritten(points) = removed { points } else { 0 }
    }

    pub(crate) const fn sums(&self) -> Sums {
        self.sums
    }

    /// Counts points that were written, can no longer be proved to be read, and cannot be written
    /// again.
    pub(crate) const fn count_unproved(&mut self, points: u64) {
        self.unproved = self.unproved.saturating_add(points);
    }

    /// Whether no tick and no connection is left whose points may still have to be counted.
    pub(crate) fn is_settled(&self) -> bool {
        self.batches.is_empty() && self.handed_over.is_empty()
    }

    /// Takes away the unproved points above `points`. Returns their number.
    pub(crate) fn take_unproved_above(&mut self, points: u64) -> u64 {
        let above = self.unproved.saturating_sub(points);
        self.unproved = self.unproved.saturating_sub(above);
        above
    }

    /// Points that were written, could not be proved to be read, and cannot be written again.
    pub(crate) const fn unproved(&self) -> u64 {
        self.unproved
    }

    /// Whether a tick that was written has left the queue before it was done: a loss cannot make it
    /// due again.
    pub(crate) const fn is_window_short(&self) -> bool {
        self.sums.evicted > 0
    }

    /// The timestamp of the oldest tick of known age that was never written as a whole, Unix
    /// seconds; `None`: there is none.
    pub(crate) fn oldest_unsent(&self) -> Option<i64> {
        let [provisional, _] = self.sums.provisional;
        if self.sums.unsent.plus(provisional).ticks == 0 {
            // Otherwise all that is due again would be looked at.
            return None;
        }
        let unsent = [Hold::Not, Hold::Provisional].into_iter().filter_map(|hold| {
            let due = self.due.range((hold, i64::MIN, 0)..(hold, i64::MAX, 0));
            let mut batches = due.filter_map(|(.., batch)| self.batches.get(batch));
            batches.find(|held| !held.was_sent() && !held.unknown_age)
        });
        unsent.map(|held| held.timestamp).min()
    }

    /// Whether a tick must be written, for the first time or again.
    pub(crate) fn is_due(&self, batch: u64) -> bool {
        self.batches.get(&batch).is_some_and(|held| held.stage == DeliveryStage::Due)
    }

    /// Moment since which the tick that has waited longest waits, Unix seconds; `None`: none waits.
    /// A tick that was never written waits since its timestamp, one that is to be written again
    /// since the loss.
    pub(crate) fn waits_since(&self, now: Moment) -> Option<i64> {
        let [_, provisional] = self.sums.provisional;
        let lost_at =
            self.lost_at.filter(|_| self.sums.again.ticks.saturating_add(provisional.ticks) > 0);
        [self.oldest_unsent(), lost_at.map(|at| now.unix(at))].into_iter().flatten().min()
    }

    /// Whether the ledger has a tick, even one that has left the queue and may still have to be
    /// counted.
    pub(crate) fn has(&self, batch: u64) -> bool {
        self.batches.contains_key(&batch)
    }

    pub(crate) fn holds(&self, batch: u64) -> bool {
        self.batches.get(&batch).is_some_and(|held| !held.evicted)
    }

    /// The number of ticks that were written and, as far as is known, not read; with a window of
    /// zero, that of connections with such ticks.
    pub(crate) fn unread(&self) -> u64 {
        let handed_over = self.handed_over.values().filter(|points| **points > 0);
        handed_over.fold(self.sums.written, |unread, _| unread.saturating_add(1))
    }

    /// Removes the ticks that `which` accepts. Returns their numbers.
    fn finish(&mut self, which: impl Fn(&LedgerBatch) -> bool) -> Vec<u64> {
        let mut gone = Vec::new();
        self.batches.retain(|&batch, held| {
            let is_gone = which(held);
            if is_gone {
                self.sums.subtract(held);
                gone.push(batch);
            }
            !is_gone
        });
        gone
    }

    pub(crate) fn take_done(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.done)
    }

    pub(crate) fn take_counted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.counted)
    }

    pub(crate) fn take_written(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.written)
    }
}

#[cfg(test)]
mod tests;
