//! Provisional batches: their pusher may learn later that they must not be sent.
//!
//! In the file such a batch is due for one more name, [`NAME`], until it is confirmed, so that it
//! is still provisional after a restart.

use std::sync::Arc;

use super::{Queue, QueueState};
use crate::store::Why;

/// The name that a provisional batch is due for in the file, besides its destinations. No
/// destination has it.
pub(super) const NAME: &str = "\0provisional";

impl Queue {
    /// Confirms the provisional batches: from now on they are like all others.
    pub fn confirm(&self) {
        let mut state = self.shared.state();
        // It comes at each tick, and most daemons never have one.
        if !std::mem::take(&mut state.has_provisional) {
            return;
        }
        for id in state.provisional() {
            if let Some(held) = state.batches.get_mut(&id) {
                held.provisional = false;
            }
            state.changes.done.push((Arc::from(NAME), id));
        }
        for destination in state.destinations.values_mut() {
            if destination.ledger.confirm() {
                destination.news.notify_one();
            }
        }
    }

    /// Removes the provisional batches, also those that were written but not read for certain: they
    /// would be due again after a loss. Returns how many batches some destination never received;
    /// their points count as withdrawn.
    pub fn withdraw(&self) -> usize {
        let mut state = self.shared.state();
        let lost = |queue: &QueueState| -> u64 {
            queue.destinations.values().map(|to| to.status.dropped.withdrawn).sum()
        };
        let ids = state.provisional();
        let is_lost = |id: &u64| {
            let before = lost(&state);
            state.drop_batch(*id, Why::Withdrawn);
            lost(&state) > before
        };
        ids.into_iter().filter(is_lost).count()
    }
}

impl QueueState {
    fn provisional(&self) -> Vec<u64> {
        self.batches.iter().filter(|(_, held)| held.provisional).map(|(&id, _)| id).collect()
    }
}
