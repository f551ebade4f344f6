//! Batches that leave the queue undelivered, because of size, age or damage, or because they are
//! withdrawn, and the counts of their points. Destinations that were removed leave here, too.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::state::{DestinationState, QueueState, QueuedBatch};
use super::{Dropped, QueueStatus};
use crate::clock::{Moment, NO_STEP};
use crate::ledger::Removed;
use crate::store::{Counted, Why};

/// Bytes of frames that are kept in memory in addition to the file. Other frames are read from disk
/// when their turn comes.
const MEMORY: usize = 16 << 20;

/// Counts points that a destination has lost because of `why`. If the destination is not
/// configured, nobody publishes its counts, and they go into `dropped_removed`.
pub(super) fn count(
    status: &mut QueueStatus,
    to: Option<&mut DestinationState>,
    points: u64,
    why: Why,
) {
    let counter = match (to.filter(|to| to.configured), why) {
        (None, _) => &mut status.dropped_removed,
        (Some(to), Why::Unproved) => return to.ledger.count_unproved(points),
        (Some(to), why) => {
            let Dropped { full, age, damaged, withdrawn } = &mut to.status.dropped;
            match why {
                Why::Full => full,
                Why::Age => age,
                Why::Withdrawn => withdrawn,
                Why::Damaged | Why::Unproved => damaged,
            }
        }
    };
    *counter = counter.saturating_add(points);
}

impl QueueState {
    /// Removes a batch from the queue. Points that a destination never received are lost, and
    /// counted because of `why`. Points that were written and may not have been read stay in the
    /// ledger until that is known. Returns whether a configured destination has such points. The
    /// next commit stores the counts, until a tick has told them.
    pub(super) fn drop_batch(&mut self, id: u64, why: Why) -> bool {
        self.publish(id);
        let Some(held) = self.remove(id) else { return false };
        self.changes.append.retain(|kept| kept.id != id);
        self.changes.forget.push(id);
        let mut was_written = false;
        for (name, to) in &mut self.destinations {
            let (points, why) = match to.ledger.remove(id) {
                Some(Removed::Unwritten(left)) => (left, why),
                Some(Removed::Written | Removed::Counted) => (held.summary.points, Why::Unproved),
                None => continue,
            };
            if to.ledger.has(id) {
                was_written |= to.configured;
            } else {
                self.untold.push((Arc::clone(name), id));
            }
            if why != Why::Unproved {
                count(&mut self.status, Some(to), points, why);
            }
            self.changes.counted.push(Counted { to: Arc::clone(name), id, points, why });
        }
        self.count_removed();
        was_written
    }

    /// Counts what is unproved of destinations that are no longer configured, whose own counts
    /// nobody publishes.
    pub(super) fn count_removed(&mut self) {
        for to in self.destinations.values_mut().filter(|to| !to.configured) {
            let points = to.ledger.take_unproved_above(to.unproved_when_removed);
            self.status.dropped_removed = self.status.dropped_removed.saturating_add(points);
        }
    }

    /// Removes a batch because `max_bytes` has no room for it.
    pub(super) fn evict(&mut self, id: u64) {
        let was_written = self.drop_batch(id, Why::Full);
        if was_written && !std::mem::replace(&mut self.status.window_short, true) {
            warn!(
                "queue.max_bytes is too small for resend_window: older ticks cannot be sent again \
                    if Carbon loses them; see points_unproved"
            );
        }
    }

    /// Whether a batch is known to be younger than `max_age`.
    pub(super) fn may_be_sent(&mut self, id: u64, now: Moment) -> bool {
        self.clock.look(now);
        let is_too_old = |held: &QueuedBatch| {
            self.clock.is_too_old(
                held.summary.timestamp,
                held.summary.pushed,
                now,
                self.limits.max_age,
            )
        };
        self.batches.get(&id).and_then(is_too_old) == Some(false)
    }

    /// Removes batches that are older than `max_age`, and holds those back whose age is not known.
    pub(super) fn expire(&mut self, now: Moment) {
        let max_age = self.limits.max_age;
        self.find_unordered(now);
        let their_batches = self.unordered.iter().filter_map(|id| self.batches.get(id));
        let before_boot = their_batches.filter(|held| held.summary.pushed.is_none());
        self.clock.expect(before_boot.map(|held| held.summary.timestamp), now, max_age);
        self.clock.look(now);
        let (clock, unordered) = (self.clock, &self.unordered);
        let age = |held: &QueuedBatch| {
            clock.is_too_old(held.summary.timestamp, held.summary.pushed, now, max_age)
        };
        let ordered = self.batches.iter().filter(|(id, _)| !unordered.contains(id));
        let front = ordered.take_while(|(_, held)| age(held) == Some(true));
        let mut old: Vec<u64> = front.map(|(&id, _)| id).collect();
        let mut held_back = 0;
        for &id in unordered {
            let Some(held) = self.batches.get_mut(&id) else { continue };
            let is_too_old = age(held);
            let unknown_age = is_too_old.is_none();
            if is_too_old == Some(true) {
                old.push(id);
            } else if std::mem::replace(&mut held.unknown_age, unknown_age) != unknown_age {
                held_back += u64::from(unknown_age);
                for to in self.destinations.values_mut() {
                    to.ledger.set_unknown_age(id, unknown_age);
                    to.news.notify_one();
                }
            }
        }
        if held_back > 0 {
            info!(
                ticks = held_back,
                "it is not known how old these ticks are; they wait until the clock has not jumped \
                    for ten minutes"
            );
        }
        for id in old {
            self.drop_batch(id, Why::Age);
        }
        self.destinations.retain(|_, to| to.configured || !to.ledger.is_settled());
    }

    /// Finds the batches that are not ordered by age. It looks only after a step of the clock, or
    /// when the log has been opened: otherwise they are the same as before.
    fn find_unordered(&mut self, now: Moment) {
        if self.ordered_at.is_some_and(|ahead| now.ahead().abs_diff(ahead) <= 1) {
            return;
        }
        self.ordered_at = Some(now.ahead());
        let mut newest = Duration::ZERO;
        for (&id, held) in &self.batches {
            let is_ordered = |pushed: Moment| {
                now.ahead().abs_diff(pushed.ahead()) <= NO_STEP / 2 && pushed.boot >= newest
            };
            if let Some(pushed) = held.summary.pushed.filter(|pushed| is_ordered(*pushed)) {
                newest = pushed.boot;
                // It stays among them until it is no longer held back.
                if !held.unknown_age {
                    self.unordered.remove(&id);
                    continue;
                }
            }
            self.unordered.insert(id);
        }
    }

    /// Keeps memory within its bounds: frames that are on disk are removed from memory, and without
    /// a disk the oldest batch is removed.
    pub(super) fn trim(&mut self) {
        if self.status.memory_bytes > MEMORY && self.status.durable {
            for held in self.batches.values_mut() {
                if self.status.memory_bytes <= MEMORY {
                    break;
                }
                if held.durable && held.frames.take().is_some() {
                    self.status.memory_bytes -= held.summary.bytes;
                }
            }
        }
        let max_bytes = usize::try_from(self.limits.max_bytes).unwrap_or(usize::MAX);
        while self.status.memory_bytes > max_bytes {
            let oldest =
                self.batches.iter().find(|(_, held)| held.frames.is_some()).map(|(&id, _)| id);
            let Some(oldest) = oldest else { return };
            self.evict(oldest);
        }
    }
}
