//! What an earlier run left in the file, and which parts are damaged.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::{error, info, warn};

use super::provisional;
use super::state::{DestinationState, QueueState, QueuedBatch};
use crate::store::Restored;

impl QueueState {
    /// Takes over what the opened file contains.
    pub(super) fn restore(&mut self, restored: Restored) {
        self.restored = true;
        self.states.extend(restored.states);
        if let Some((from, to)) = restored.moved {
            say_moved(&from, &to);
        }
        if restored.damaged > 0 {
            error!(
                records = restored.damaged,
                "some records in the queue's files are damaged; the rest are unaffected"
            );
        }
        let is_destination = |name: &Arc<str>| **name != *provisional::NAME;
        for (name, points) in restored.lost.into_iter().filter(|(name, _)| is_destination(name)) {
            error!(destination = %name, points, "points queued for this destination have been lost");
            match self.destinations.get_mut(&name) {
                Some(to) => to.status.dropped.damaged += points,
                None => self.status.dropped_removed += points,
            }
        }
        for (name, points) in restored.unproved {
            match self.destinations.get_mut(&name) {
                Some(to) => to.ledger.count_unproved(points),
                None => self.status.dropped_removed += points,
            }
        }
        let (ticks, oldest) =
            (restored.batches.len(), restored.batches.values().map(|batch| batch.timestamp).min());
        for (id, summary) in restored.batches {
            self.next_id = self.next_id.max(id.saturating_add(1));
            if summary.pushed.is_none() {
                self.clock.newest = self.clock.newest.max(Some(summary.timestamp));
            }
            self.batches.insert(id, QueuedBatch { summary, durable: true, ..QueuedBatch::default() });
        }
        let window = self.limits.resend_window;
        let removed = || DestinationState { configured: false, ..DestinationState::new(window) };
        let held: BTreeSet<u64> =
            restored.due.iter().filter(|(name, _)| !is_destination(name)).map(|(_, id)| *id).collect();
        for (name, id) in restored.due.into_iter().filter(|(name, _)| is_destination(name)) {
            let destination = self.destinations.entry(name).or_insert_with(removed);
            if let Some(batch) = self.batches.get_mut(&id).filter(|batch| batch.frames.is_none()) {
                batch.waiting += 1;
                destination.ledger.insert(id, batch.summary.timestamp, batch.summary.points, false);
                if held.contains(&id) {
                    batch.provisional = true;
                    destination.ledger.hold(id);
                }
                destination.news.notify_one();
            }
        }
        for id in held {
            // A torn commit may have lost what its destinations are.
            if self.batches.get(&id).is_some_and(|batch| batch.waiting == 0 && batch.waits_until.is_none()) {
                self.remove(id);
                self.told.forget.push(id);
            }
        }
        for (name, to) in self.destinations.iter().filter(|(_, to)| !to.configured) {
            say_removed(name, to.ledger.held());
        }
        if ticks > 0 {
            info!(ticks, oldest, "ticks of an earlier run are in the queue");
        }
    }
}

/// Logs that a destination has a new name.
pub(super) fn say_moved(from: &str, to: &str) {
    warn!(
        from,
        to,
        "a destination has a new address, which gets the ticks that were kept for the old one; to drop them instead, add the new destination first and remove the old one with a second reload; give it a `name` to avoid this warning"
    );
}

/// Logs that a destination is no longer configured.
pub(super) fn say_removed(destination: &str, ticks: usize) {
    warn!(
        destination,
        ticks,
        "this destination is no longer configured; its ticks are kept until max_age, then dropped and counted in points_dropped_removed"
    );
}
