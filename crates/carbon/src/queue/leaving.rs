//! What leaves a queue undelivered, by size, age or damage, and what is counted of it; and a destination that moves.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::Dropped;
use super::clock::Moment;
use super::state::{Held, State};
use crate::ledger::Removed;

/// Bytes of frames kept in memory in addition to the file; what does not fit is read again when its turn comes.
const MEMORY: usize = 16 << 20;

/// Why a batch leaves a queue unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Full,
    Age,
    Damaged,
}

impl State {
    /// A batch leaves the queue: points that a destination never had are lost, and those that it may not have read are
    /// remembered until it is known.
    pub(super) fn drop_batch(&mut self, id: u64, reason: Reason) {
        self.publish(id);
        let Some(held) = self.batches.get(&id) else { return };
        let (points, mut is_short) = (held.points, false);
        self.told.append.retain(|kept| kept.id != id);
        self.told.forget.push(id);
        for (name, destination) in &mut self.destinations {
            let Some(removed) = destination.ledger.remove(id) else { continue };
            let Dropped { full, age, damaged } = &mut destination.status.dropped;
            let (counter, points) = match (removed, reason) {
                // Nobody publishes what its ledger counts.
                (Removed::Unwritten(left), _) if !destination.configured => {
                    (&mut self.status.dropped_removed, left)
                }
                _ if !destination.configured => (&mut self.status.dropped_removed, points),
                (Removed::Counted, _) => continue,
                (Removed::Written, _) => {
                    is_short |= reason == Reason::Full;
                    self.told.evicted.push((Arc::clone(name), id, points));
                    continue;
                }
                (Removed::Unwritten(left), Reason::Full) => (full, left),
                (Removed::Unwritten(left), Reason::Age) => (age, left),
                (Removed::Unwritten(left), Reason::Damaged) => (damaged, left),
            };
            *counter = counter.saturating_add(points);
        }
        if is_short && !std::mem::replace(&mut self.said_short, true) {
            warn!(
                "queue.max_bytes has no room for all of the resend_window: what Carbon loses of older ticks is not sent again; see points_unproved"
            );
        }
        self.remove(id);
    }

    /// Drops what is older than `max_age`.
    pub(super) fn expire(&mut self, now: Moment) {
        let max_age = self.limits.max_age;
        let is_plausible = self.clock.look(now);
        let wall = |timestamp: i64| {
            Duration::from_secs(u64::try_from(now.wall.saturating_sub(timestamp)).unwrap_or(0))
        };
        let is_old = |held: &Held| match held.pushed {
            Some(pushed) => now.boot.saturating_sub(pushed) > max_age,
            None => is_plausible && wall(held.timestamp) > max_age,
        };
        // In the order in which they were pushed: behind the first young one of this boot all are younger.
        let looked_at = self.batches.iter().take_while(|(_, held)| held.pushed.is_none() || is_old(held));
        let old: Vec<u64> = looked_at.filter(|(_, held)| is_old(held)).map(|(&id, _)| id).collect();
        old.into_iter().for_each(|id| self.drop_batch(id, Reason::Age));
        self.destinations.retain(|_, to| to.configured || to.ledger.held() > 0);
    }

    /// A destination has another name, and is another peer: all that it is not done with is due.
    pub(super) fn rename(&mut self, from: &Arc<str>, to: &Arc<str>) {
        let Some(mut destination) = self.destinations.remove(from) else { return };
        destination.ledger.lost();
        destination.news.notify_one();
        self.destinations.insert(Arc::clone(to), destination);
        self.told.rename(from, to);
        self.told.moved.push((Arc::clone(from), Arc::clone(to)));
        self.finish(to);
    }

    /// Keeps memory within its bounds: frames that are on disk need not be here, and where there is no disk the oldest
    /// batch goes.
    pub(super) fn trim(&mut self) {
        if self.status.memory_bytes > MEMORY && self.status.durable {
            for held in self.batches.values_mut() {
                if self.status.memory_bytes <= MEMORY {
                    break;
                }
                if held.durable && held.frames.take().is_some() {
                    self.status.memory_bytes = self.status.memory_bytes.saturating_sub(held.bytes);
                }
            }
        }
        let max_bytes = usize::try_from(self.limits.max_bytes).unwrap_or(usize::MAX);
        while self.status.memory_bytes > max_bytes {
            let oldest = self.batches.iter().find(|(_, held)| held.frames.is_some()).map(|(&id, _)| id);
            let Some(oldest) = oldest else { return };
            self.drop_batch(oldest, Reason::Full);
        }
    }
}
