//! The rule of delivery: what one destination still has to get, and when a tick is done.
//!
//! A tick is **read** when the connection that carried its last write answers our half-close. It is **done** when another
//! connection, which carried bytes written at least `resend_window` after that, answers as well, with no loss in between. A
//! **loss** makes every tick due that is not done. Connections are numbered in the order in which they were opened.
//!
//! With a `resend_window` of zero a tick is done when its last frame is written, nothing is written twice, and what is written
//! and not proved read at a loss is counted as unproved.
//!
//! Nothing here knows the network, the disk, a tick's points or a clock: moments come as arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// What became of a tick so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not written, or to be written again.
    Due,
    /// Written as a whole, on the connection of this number.
    Written(u64),
    /// The connection of its last write answered at this moment.
    Read(Instant),
}

#[derive(Debug)]
struct Entry {
    timestamp: i64,
    points: u64,
    stage: Stage,
    /// Collected by this run of the daemon and never written: it goes before the backlog.
    fresh: bool,
    /// Whether the whole tick was ever written.
    sent: bool,
    /// Frames of a due tick that need not be written again, with a window of zero.
    frames: usize,
    /// The disk does not give it now: the other due ticks go before it.
    put_off: bool,
    /// It left the queue after it was written: only its points can still be counted.
    evicted: bool,
}

/// The ticks of one destination, by their number in the queue.
#[derive(Debug)]
pub(crate) struct Ledger {
    resend_window: Duration,
    entries: BTreeMap<u64, Entry>,
    due: BTreeSet<u64>,
    evicted: usize,
    /// With a window of zero: points written on each connection that has not answered.
    handed_over: BTreeMap<u64, u64>,
    unproved: u64,
}

/// A tick that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It was written and not done. It is counted as unproved if it was due again, or when a loss comes.
    Written,
    /// It was never written.
    Unwritten,
}

/// What became of a tick whose last frame was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// It had been written before.
    pub(crate) again: bool,
    /// Nothing more is needed.
    pub(crate) done: bool,
}

impl Ledger {
    pub(crate) const fn new(resend_window: Duration) -> Self {
        Self {
            resend_window,
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            evicted: 0,
            handed_over: BTreeMap::new(),
            unproved: 0,
        }
    }

    /// A tick that was just collected.
    pub(crate) fn push(&mut self, batch: u64, timestamp: i64, points: u64) {
        self.insert(batch, timestamp, points, true);
    }

    /// A tick of an earlier run of the daemon, which may have been written.
    pub(crate) fn restore(&mut self, batch: u64, timestamp: i64, points: u64) {
        self.insert(batch, timestamp, points, false);
    }

    fn insert(&mut self, batch: u64, timestamp: i64, points: u64, fresh: bool) {
        self.due.insert(batch);
        let (stage, sent) = (Stage::Due, false);
        let entry =
            Entry { timestamp, points, stage, fresh, sent, frames: 0, put_off: false, evicted: false };
        self.entries.insert(batch, entry);
    }

    /// The tick to write next: the newest if it was never written, else the oldest that is due, with whether it
    /// belongs to the backlog.
    pub(crate) fn next(&self) -> Option<(u64, bool)> {
        let newest = self.entries.last_key_value().filter(|(_, entry)| entry.fresh && !entry.sent);
        if let Some((&batch, _)) = newest {
            return Some((batch, false));
        }
        let is_put_off = |batch: &&u64| self.entries.get(batch).is_some_and(|entry| entry.put_off);
        let next = self.due.iter().find(|batch| !is_put_off(batch)).or_else(|| self.due.first());
        next.map(|&batch| (batch, true))
    }

    /// Every other due tick goes before `batch` from now on.
    pub(crate) fn put_off(&mut self, batch: u64) {
        if let Some(entry) = self.entries.get_mut(&batch) {
            entry.put_off = true;
        }
    }

    /// How many frames of a due tick need not be written: with a window of zero nothing is written twice.
    pub(crate) fn frames_written(&self, batch: u64) -> usize {
        self.entries.get(&batch).map_or(0, |entry| entry.frames)
    }

    /// One more frame of `batch` has been written as a whole.
    pub(crate) fn frame_written(&mut self, batch: u64, connection: u64, points: u64) {
        if self.resend_window.is_zero()
            && let Some(entry) = self.entries.get_mut(&batch)
        {
            entry.frames = entry.frames.saturating_add(1);
            entry.points = entry.points.saturating_sub(points);
            let handed_over = self.handed_over.entry(connection).or_default();
            *handed_over = handed_over.saturating_add(points);
        }
    }

    /// The last frame of `batch` has been written. `None` when it is no longer here.
    pub(crate) fn written(&mut self, batch: u64, connection: u64) -> Option<Written> {
        let entry = self.entries.get_mut(&batch)?;
        self.due.remove(&batch);
        (entry.stage, entry.put_off) = (Stage::Written(connection), false);
        let again = std::mem::replace(&mut entry.sent, true);
        let done = self.resend_window.is_zero();
        if done {
            self.entries.remove(&batch);
        }
        Some(Written { again, done })
    }

    /// `connection` answers, `now`, `after` our half-close; `last_write`: when the last bytes were written on it. Returns what is
    /// done.
    pub(crate) fn answered(
        &mut self,
        connection: u64,
        last_write: Option<Instant>,
        after: Duration,
        now: Instant,
    ) -> Vec<u64> {
        self.handed_over.remove(&connection);
        let window = self.resend_window;
        let done = self.take_if(|entry| match entry.stage {
            Stage::Read(read) => last_write.is_some_and(|written| written >= read + window),
            _ => false,
        });
        for entry in self.entries.values_mut() {
            match &mut entry.stage {
                Stage::Written(on) if *on == connection => entry.stage = Stage::Read(now),
                // Perhaps it did nothing at all until it answered: that time counts for no window.
                Stage::Read(read) => *read += after,
                _ => {}
            }
        }
        done
    }

    /// `connection` has ended too late to prove anything, and nothing was lost that is known: what it carried is due again.
    /// Returns what is done, because it cannot be written again.
    pub(crate) fn answered_too_late(&mut self, connection: u64) -> Vec<u64> {
        let handed_over = self.handed_over.remove(&connection);
        self.unproved = self.unproved.saturating_add(handed_over.unwrap_or(0));
        self.unprove(|stage| stage == Stage::Written(connection))
    }

    /// The program did not read for a while, until `now`: that time counts for no window.
    pub(crate) fn doubt_ended(&mut self, now: Instant) {
        for entry in self.entries.values_mut().filter(|entry| matches!(entry.stage, Stage::Read(_))) {
            entry.stage = Stage::Read(now);
        }
    }

    /// A loss: everything that is not done is due again. With a window of zero nothing is: it is done, and returned.
    pub(crate) fn lost(&mut self) -> Vec<u64> {
        let handed_over: u64 = std::mem::take(&mut self.handed_over).into_values().sum();
        self.unproved = self.unproved.saturating_add(handed_over);
        self.unprove(|stage| stage != Stage::Due)
    }

    /// What is at one of these stages is due again; what cannot be written again is counted.
    fn unprove(&mut self, which: impl Fn(Stage) -> bool) -> Vec<u64> {
        let once = self.resend_window.is_zero();
        let gone = |entry: &Entry| which(entry.stage) && (entry.evicted || once);
        let points: u64 = self.entries.values().filter(|entry| gone(entry)).map(|entry| entry.points).sum();
        self.unproved = self.unproved.saturating_add(points);
        let done = self.take_if(gone);
        for (&batch, entry) in self.entries.iter_mut().filter(|(_, entry)| which(entry.stage)) {
            entry.stage = Stage::Due;
            self.due.insert(batch);
        }
        done
    }

    /// Another window from now on.
    pub(crate) const fn set_resend_window(&mut self, resend_window: Duration) {
        self.resend_window = resend_window;
    }

    /// Takes a tick out of the queue before it is done.
    pub(crate) fn remove(&mut self, batch: u64) -> Option<Removed> {
        let entry = self.entries.get_mut(&batch).filter(|entry| !entry.evicted)?;
        if entry.stage == Stage::Due {
            let (sent, points) = (entry.sent, entry.points);
            self.entries.remove(&batch);
            self.due.remove(&batch);
            if !sent {
                return Some(Removed::Unwritten);
            }
            self.unproved = self.unproved.saturating_add(points);
            return Some(Removed::Written);
        }
        entry.evicted = true;
        self.evicted += 1;
        Some(Removed::Written)
    }

    /// Ticks that are due: never written, or to be written again.
    pub(crate) fn due(&self) -> usize {
        self.due.len()
    }

    /// Points that were written, could not be proved read, and cannot be written again.
    pub(crate) const fn unproved(&self) -> u64 {
        self.unproved
    }

    /// Whether ticks left the queue that a loss would make due.
    pub(crate) const fn is_window_short(&self) -> bool {
        self.evicted > 0
    }

    /// The timestamp of the oldest tick that is due, Unix seconds.
    pub(crate) fn oldest_due(&self) -> Option<i64> {
        self.due.first().and_then(|batch| self.entries.get(batch)).map(|entry| entry.timestamp)
    }

    /// Whether the tick is held.
    pub(crate) fn holds(&self, batch: u64) -> bool {
        self.entries.get(&batch).is_some_and(|entry| !entry.evicted)
    }

    /// Whether the tick is held and due.
    pub(crate) fn is_due(&self, batch: u64) -> bool {
        self.due.contains(&batch)
    }

    /// Ticks held: due, or written and not done.
    pub(crate) fn held(&self) -> usize {
        self.entries.len().saturating_sub(self.evicted)
    }

    /// Ticks held that were written, and not read as far as is known.
    pub(crate) fn unread(&self) -> usize {
        let unread = |entry: &&Entry| !entry.evicted && matches!(entry.stage, Stage::Written(_));
        self.entries.values().filter(unread).count()
    }

    /// Every tick held, oldest first.
    pub(crate) fn batches(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().filter(|(_, entry)| !entry.evicted).map(|(&batch, _)| batch)
    }

    fn take_if(&mut self, gone: impl Fn(&Entry) -> bool) -> Vec<u64> {
        let mut taken = Vec::new();
        self.entries.retain(|&batch, entry| {
            let is_gone = gone(entry);
            if is_gone {
                taken.push(batch);
                self.evicted = self.evicted.saturating_sub(usize::from(entry.evicted));
            }
            !is_gone
        });
        taken
    }
}
