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

/// The outcome of a tick so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryStage {
    /// Not written yet, or to be written again.
    Due,
    /// Written as a whole, on the connection of this number. Where nothing can be proved: since
    /// when that connection has been seen to stand, and its program to run.
    Written(u64, Option<Instant>),
    /// The connection of its last write answered at this time.
    Read(Instant),
}

/// A reason why a due tick is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Not,
    Provisional,
    UnknownAge,
}

/// The part of an earlier run of the daemon in a batch.
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
    /// Collected by this run of the daemon and never written: it is sent before the backlog.
    fresh: bool,
    /// Whether the whole tick was ever written.
    sent: bool,
    earlier: Earlier,
    /// With a window of zero: how many frames of a due tick are already written and are not written
    /// again.
    frames: usize,
    /// It left the queue after it was written, so its points can only be counted.
    evicted: bool,
    /// Not written as backlog until it is confirmed.
    provisional: bool,
    /// Not written while it is not known whether it is too old.
    unknown_age: bool,
}

impl LedgerBatch {
    /// Whether it was ever written as a whole, by this run or an earlier one, as far as is known.
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

    /// Its place among the due ticks.
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
    /// Their points.
    pub points: u64,
}

impl Ticks {
    /// The sum of both kinds.
    pub(crate) const fn and(self, other: Self) -> Self {
        let ticks = self.ticks.saturating_add(other.ticks);
        Self { ticks, points: self.points.saturating_add(other.points) }
    }
}

/// Sums over all batches, which change with each of them: a queue may hold many thousands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Ticks that are not held back and were never written as a whole, as far as is known.
    pub(crate) unsent: Ticks,
    /// Ticks that are not held back, were written before a loss or by an earlier run, and are to be
    /// written again.
    pub(crate) again: Ticks,
    /// Provisional ticks, and ticks of unknown age: those never written as a whole, and those to be
    /// written again.
    pub(crate) provisional: [Ticks; 2],
    pub(crate) unknown_age: [Ticks; 2],
    /// Ticks held: due, or written and not done.
    pub(crate) held: u64,
    /// Bytes of those.
    pub(crate) bytes: u64,
    /// Ticks that were written and, as far as is known, not read.
    written: u64,
    evicted: u64,
}

impl Sums {
    /// Due ticks that are held back.
    pub(crate) const fn held_back(&self) -> [Ticks; 2] {
        let ([unsent, again], [unsent_too, again_too]) = (self.provisional, self.unknown_age);
        [unsent.and(unsent_too), again.and(again_too)]
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
            DeliveryStage::Written(..) => self.written = op(self.written, 1),
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
    /// Time after a tick was read, after which the receiver must be seen to read again.
    pub(crate) resend_window: Duration,
    batches: BTreeMap<u64, LedgerBatch>,
    /// The newest tick of all, which may be done, and the latest timestamp of a fresh one.
    newest: u64,
    latest: i64,
    /// The due ticks: first those that are not held back, then the others by reason. Each group has
    /// the ticks that were never written as a whole before those to be written again. By time, all
    /// are in the order of their timestamps.
    due: BTreeSet<(Hold, i64, u64)>,
    by_time: bool,
    /// Fresh ticks since the last look.
    collected: Ticks,
    sums: Sums,
    /// The loss since which ticks wait to be written again, by CLOCK_BOOTTIME. A later loss does
    /// not change it unless the receiver has answered, and nothing waited, in between: a proxy
    /// without a backend loses each connection.
    lost_at: Option<Duration>,
    /// Whether the receiver has answered since then.
    answered: bool,
    /// Ticks that are done and have not yet been collected by the caller.
    done: Vec<u64>,
    /// Ticks that had left the queue, and are counted as unproved, which the caller has not
    /// collected yet.
    counted: Vec<u64>,
    /// With a window above zero: ticks that were written for the first time and have not yet been
    /// collected by the caller.
    written: Vec<u64>,
    /// With a window of zero: points written on each connection that has not answered.
    handed_over: BTreeMap<u64, u64>,
    unproved: u64,
}

/// A tick that was removed.
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
            self.collected = self.collected.and(Ticks { ticks: 1, points });
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

    /// Says whether ticks are written strictly by their timestamps.
    pub(crate) fn write_by_time(&mut self, by_time: bool) {
        self.by_time = by_time;
        let due = std::mem::take(&mut self.due).into_iter().map(|(.., batch)| batch);
        let keys = due.filter_map(|batch| Some(self.batches.get(&batch)?.due_key(batch, by_time)));
        self.due = keys.collect();
    }

    /// Takes the number of ticks that were collected since the last call.
    pub(crate) fn take_collected(&mut self) -> Ticks {
        std::mem::take(&mut self.collected)
    }

    /// An earlier run has written a tick that was just inserted: it waits, from now on, to be
    /// written again.
    pub(crate) fn note_written_earlier(&mut self, batch: u64, now: Duration) {
        if self.change_due(batch, |held| held.earlier = Earlier::Written) {
            self.lost_at.get_or_insert(now);
        }
    }

    /// An earlier run may have written it: if it is dropped, it is not counted as never sent.
    pub(crate) fn note_perhaps_written_earlier(&mut self, batch: u64) {
        self.change_due(batch, |held| held.earlier = Earlier::PerhapsWritten);
    }

    /// Whether a tick was ever written, as far as is known.
    pub(crate) fn was_written(&self, batch: u64) -> bool {
        self.batches.get(&batch).is_some_and(LedgerBatch::was_sent)
    }

    /// Changes what orders a tick among those that are due. Returns whether it is due.
    fn change_due(&mut self, batch: u64, change: impl FnOnce(&mut LedgerBatch)) -> bool {
        let Some(held) = self.batches.get_mut(&batch) else { return false };
        let is_due = self.due.remove(&held.due_key(batch, self.by_time));
        self.sums.change(held, change);
        if is_due {
            self.due.insert(held.due_key(batch, self.by_time));
        }
        is_due
    }

    /// A tick that was just inserted is provisional.
    pub(crate) fn hold(&mut self, batch: u64) {
        self.change_due(batch, |held| held.provisional = true);
    }

    /// Provisional ticks are like all others from now on. Returns whether one of them is due.
    pub(crate) fn confirm(&mut self) -> bool {
        let provisional = self.batches.iter().filter(|(_, held)| held.provisional);
        let provisional: Vec<u64> = provisional.map(|(&batch, _)| batch).collect();
        let confirm = |batch| self.change_due(batch, |held| held.provisional = false);
        provisional.into_iter().map(confirm).fold(false, |any, is_due| any | is_due)
    }

    /// Says whether the age of a tick is unknown.
    pub(crate) fn set_unknown_age(&mut self, batch: u64, unknown_age: bool) {
        self.change_due(batch, |held| held.unknown_age = unknown_age);
    }

    #[cfg(test)]
    pub(crate) fn next(&self) -> Option<(u64, bool)> {
        self.in_order().next()
    }

    /// The ticks to write, in order, and whether each belongs to the backlog. The newest tick comes
    /// first if it was never written, then provisional ones with the latest timestamp, then the
    /// oldest that was never written, then the oldest that is due again. By time it is the one with
    /// the earliest timestamp, and no other: what holds it back holds back all.
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

    /// One more frame of `batch` has been written as a whole.
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

    /// The last frame of `batch` has been written. Returns whether it had been written before;
    /// `None` if it was removed meanwhile, and counted then.
    pub(crate) fn note_written(&mut self, batch: u64, connection: u64) -> Option<bool> {
        let held = self.batches.get_mut(&batch)?;
        self.due.remove(&held.due_key(batch, self.by_time));
        let again = self.sums.change(held, |held| {
            held.stage = DeliveryStage::Written(connection, None);
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

    /// `connection` answered at `now`, `after` our half-close. `last_write` is when the last bytes
    /// were written on it.
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
                DeliveryStage::Written(on, _) if *on == connection => {
                    self.sums.change(held, |held| held.stage = DeliveryStage::Read(now));
                }
                // The receiver may have done nothing until it answered, so that time does not count
                // towards the window.
                DeliveryStage::Read(read) => *read += after,
                _ => {}
            }
        }
    }

    /// `connection` ended too late to prove anything, and no loss is known. What it carried is due
    /// again, or done if it cannot be written again. `now` is by CLOCK_BOOTTIME.
    pub(crate) fn note_unproved_end(&mut self, connection: u64, now: Duration) {
        let handed_over = self.handed_over.remove(&connection);
        self.count_unproved(handed_over.unwrap_or(0));
        self.unprove(
            |stage| matches!(stage, DeliveryStage::Written(on, _) if on == connection),
            now,
        );
    }

    /// Notes that nothing can be proved, because the receiver accepts no second connection; but at
    /// `now` its program was seen to run, and `connection`, which it has acknowledged as a whole,
    /// is up. What was written on it a window before is done.
    pub(crate) fn note_standing(&mut self, connection: u64, now: Instant) {
        self.answered = true;
        self.recover();
        let window = self.resend_window;
        if window.is_zero() {
            self.handed_over.remove(&connection);
        }
        let is_ours = |stage| matches!(stage, DeliveryStage::Written(on, _) if on == connection);
        let done = self.finish(|held| match held.stage {
            DeliveryStage::Written(_, Some(since)) => is_ours(held.stage) && now >= since + window,
            _ => false,
        });
        self.done.extend(done);
        for held in self.batches.values_mut().filter(|held| is_ours(held.stage)) {
            if let DeliveryStage::Written(_, since) = &mut held.stage {
                since.get_or_insert(now);
            }
        }
    }

    /// The program did not read for a while, until `now`. That time does not count towards the
    /// window.
    pub(crate) fn note_doubt_ended(&mut self, now: Instant) {
        for held in
            self.batches.values_mut().filter(|held| matches!(held.stage, DeliveryStage::Read(_)))
        {
            held.stage = DeliveryStage::Read(now);
        }
    }

    /// A loss: every tick that is not done becomes due again. With a window of zero every tick is
    /// done, so none becomes due. `now` is by CLOCK_BOOTTIME.
    pub(crate) fn note_loss(&mut self, now: Duration) {
        let handed_over: u64 = std::mem::take(&mut self.handed_over).into_values().sum();
        self.count_unproved(handed_over);
        self.unprove(|stage| stage != DeliveryStage::Due, now);
    }

    /// Ticks at one of these stages become due again; those that cannot be written again are done,
    /// and counted.
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

    /// Removes a tick from the queue before it is done.
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

    /// A due tick cannot be sent to this destination, which is done with it. Returns its points if
    /// they were never written.
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

    /// Whether nothing is left of which more may have to be counted.
    pub(crate) fn is_settled(&self) -> bool {
        self.batches.is_empty() && self.handed_over.is_empty()
    }

    /// Takes the unproved points above this many.
    pub(crate) fn take_unproved_above(&mut self, points: u64) -> u64 {
        let above = self.unproved.saturating_sub(points);
        self.unproved = self.unproved.saturating_sub(above);
        above
    }

    /// Points that were written, could not be proved to be read, and cannot be written again.
    pub(crate) const fn unproved(&self) -> u64 {
        self.unproved
    }

    /// Whether ticks have left the queue that would be due after a loss.
    pub(crate) const fn is_window_short(&self) -> bool {
        self.sums.evicted > 0
    }

    /// The timestamp of the oldest tick that was never written as a whole, Unix seconds.
    pub(crate) fn oldest_unsent(&self) -> Option<i64> {
        let [provisional, _] = self.sums.provisional;
        if self.sums.unsent.and(provisional).ticks == 0 {
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

    /// Whether it must be written, for the first time or again.
    pub(crate) fn is_due(&self, batch: u64) -> bool {
        self.batches.get(&batch).is_some_and(|held| held.stage == DeliveryStage::Due)
    }

    /// Moment since which the tick that has waited longest waits, Unix seconds: one that was never
    /// written since its timestamp, one that is to be written again since the loss.
    pub(crate) fn waits_since(&self, now: Moment) -> Option<i64> {
        let [_, provisional] = self.sums.provisional;
        let lost_at =
            self.lost_at.filter(|_| self.sums.again.ticks.saturating_add(provisional.ticks) > 0);
        [self.oldest_unsent(), lost_at.map(|at| now.unix(at))].into_iter().flatten().min()
    }

    /// Whether it is known, if only because it may still have to be counted.
    pub(crate) fn has(&self, batch: u64) -> bool {
        self.batches.contains_key(&batch)
    }

    pub(crate) fn holds(&self, batch: u64) -> bool {
        self.batches.get(&batch).is_some_and(|held| !held.evicted)
    }

    /// Ticks that were written and, as far as is known, not read; with a window of zero,
    /// connections with such ticks.
    pub(crate) fn unread(&self) -> u64 {
        let handed_over = self.handed_over.values().filter(|points| **points > 0);
        handed_over.fold(self.sums.written, |unread, _| unread.saturating_add(1))
    }

    /// Removes these ticks.
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
