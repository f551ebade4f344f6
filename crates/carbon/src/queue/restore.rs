//! What an earlier run has left in the file, and what a damaged file has lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::{error, info, warn};

use super::state::{Destination, Held, Reason, Refusals, State};
use crate::store::{Lost, Restored};

impl State {
    /// The file is open, and this is in it.
    pub(super) fn restore(&mut self, restored: Restored) {
        for (name, due) in restored.removed {
            info!(
                destination = name,
                not_sent = due,
                "a destination that is no longer configured is forgotten"
            );
        }
        if restored.blind {
            warn!(
                "the queue's tally is damaged, gone or behind: whether the queue's file has lost its last commits cannot be known"
            );
        }
        if restored.behind > 0 {
            error!(
                commits = restored.behind,
                "the queue's file or the end of its log is gone: what its last commits had, and nothing else has, is lost"
            );
        }
        for (name, Lost { batches, points }) in restored.lost {
            error!(destination = %name, ticks = batches, points, "the queue's file is damaged; these were kept for the destination and are lost");
            if let Some(Destination { dropped, .. }) = self.destinations.get_mut(&name) {
                dropped.damaged = dropped.damaged.saturating_add(points);
            }
        }
        if restored.unsound > 0 && restored.tallied {
            error!(
                entries = restored.unsound,
                "the queue's file is damaged where it says to whom ticks are due; its tally knows"
            );
        } else if restored.unsound > 0 {
            error!(
                entries = restored.unsound,
                "the queue's file is damaged: to whom ticks are due cannot be read of all; those go to every destination, and what else is lost of them cannot be known"
            );
        }
        let again = std::mem::replace(&mut self.restored, true);
        let (mut ticks, mut oldest) = (0_usize, None::<i64>);
        for (id, summary) in restored.batches {
            self.next_id = self.next_id.max(id.saturating_add(1));
            if let Some(held) = self.batches.get_mut(&id) {
                // Memory has what a damaged file had no more.
                if held.frames.is_some() && summary.points < held.points {
                    (held.durable, held.in_part, self.missed) = (false, true, true);
                }
                continue;
            }
            if again {
                // Everybody is done with it.
                self.forget.push(id);
                continue;
            }
            ticks += 1;
            oldest = Some(oldest.map_or(summary.timestamp, |oldest| oldest.min(summary.timestamp)));
            let held = Held {
                timestamp: summary.timestamp,
                points: summary.points,
                bytes: summary.bytes,
                frames: None,
                durable: true,
                in_part: false,
                published: true,
                waiting: 0,
                refusals: Refusals::default(),
            };
            self.batches.insert(id, held);
        }
        if again {
            return;
        }
        for (name, id) in restored.due {
            self.restore_due(&name, id);
        }
        if ticks > 0 {
            info!(ticks, oldest, "ticks of an earlier run are in the queue");
        }
    }

    fn restore_due(&mut self, name: &Arc<str>, id: u64) {
        let Some(held) = self.batches.get_mut(&id).filter(|held| held.frames.is_none()) else { return };
        if let Some(destination) = self.destinations.get_mut(name) {
            held.waiting += 1;
            destination.bytes = destination.bytes.saturating_add(held.bytes);
            destination.ledger.restore(id, held.timestamp, held.points);
            destination.news.notify_one();
        }
    }

    /// Another file is in the place of the one that there was, with these batches of it. Returns how many are lost.
    pub(super) fn replaced(&mut self, saved: &BTreeSet<u64>) -> usize {
        self.status.moved_aside = self.status.moved_aside.saturating_add(1);
        let gone = |(id, held): &(&u64, &Held)| held.durable && held.frames.is_none() && !saved.contains(*id);
        let lost: Vec<u64> = self.batches.iter().filter(gone).map(|(&id, _)| id).collect();
        for &id in &lost {
            self.drop_batch(id, Reason::Damaged);
        }
        self.missed = true;
        for (id, held) in &mut self.batches {
            held.durable &= saved.contains(id);
            held.in_part &= saved.contains(id);
        }
        lost.len()
    }

    /// Only `readable` points of a batch are left in the file: who was still to have the others has lost them.
    pub(super) fn shrink_batch(&mut self, id: u64, readable: u64) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        let missing = held.points.saturating_sub(readable);
        held.points = readable;
        if missing == 0 {
            return;
        }
        error!(timestamp = held.timestamp, points = missing, "a part of a kept tick is damaged, and is lost");
        for destination in self.destinations.values_mut().filter(|to| to.ledger.is_due(id)) {
            destination.dropped.damaged = destination.dropped.damaged.saturating_add(missing);
        }
    }
}
