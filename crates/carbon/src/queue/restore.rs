//! Takes over the batches that an earlier run left in the queue's file, and what was counted or is
//! damaged there; and saves what is in memory if the file was removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info, warn};

use super::leaving::count;
use super::provisional;
use super::state::{DestinationState, QueueState, QueuedBatch};
use crate::clock::Moment;
use crate::duration::in_words;
use crate::store::{AppendedBatch, Counted, Restored, Why};

impl QueueState {
    /// Handles that the queue's files were removed while the daemon was running: batches that are
    /// in memory go to new files, the others are lost.
    pub(super) fn remove_from_disk(&mut self) {
        self.set_durable(false);
        let mut lost = Vec::new();
        for (&id, held) in self.batches.iter_mut().filter(|(_, held)| held.durable) {
            held.durable = false;
            let Some(frames) = &held.frames else {
                lost.push(id);
                continue;
            };
            let written = self.destinations.iter().filter(|(_, to)| to.ledger.was_written(id));
            self.changes.written.extend(written.map(|(name, _)| (Arc::clone(name), id)));
            let due = self.destinations.iter().filter(|(_, to)| to.ledger.holds(id));
            let due = due.map(|(name, _)| Arc::clone(name));
            self.changes.append.push(AppendedBatch {
                id,
                timestamp: held.summary.timestamp,
                pushed: held.summary.pushed,
                frames: Arc::clone(frames),
                due: due.chain(held.provisional.then(|| Arc::from(provisional::NAME))).collect(),
                has_states: false,
            });
        }
        let ticks = lost.len();
        error!(
            ticks_lost = ticks,
            "the queue's files were removed, moved away or hidden by a mount while the daemon was \
                running; ticks that are in memory are written to new files, the others are lost"
        );
        lost.into_iter().for_each(|id| self.lose_with_files(id));
    }

    /// Counts a batch as lost because the only files that had it are gone. The log does not record
    /// that it is forgotten, so if the files come back, the batch is there again.
    pub(super) fn lose_with_files(&mut self, id: u64) {
        self.removed.insert(id);
        self.drop_batch(id, Why::Damaged);
        self.changes.forget.retain(|other| *other != id);
    }

    /// Whether this run has had a batch: it was pushed, or it was in files that were opened.
    fn had(&self, id: u64) -> bool {
        let is_own = id < self.next_id && self.own.iter().any(|ids| ids.contains(&id));
        is_own || self.in_files.contains(&id)
    }

    /// Whether the queue has had a batch, and is done with it or has counted it.
    fn is_over(&self, id: u64) -> bool {
        self.had(id) && !self.batches.contains_key(&id) && !self.removed.contains(&id)
    }

    /// Takes out of `restored` what the queue knows better than files that were gone and have come
    /// back.
    fn without_known(&mut self, restored: &mut Restored) {
        let over: Vec<u64> =
            restored.batches.keys().copied().filter(|id| self.is_over(*id)).collect();
        restored.batches.retain(|id, _| !over.contains(id) && !self.batches.contains_key(id));
        self.changes.forget.extend(over);
        let (batches, destinations) = (&self.batches, &self.destinations);
        for (name, id) in restored.due.iter().filter(|(_, id)| batches.contains_key(id)) {
            let is_provisional = **name == *provisional::NAME
                && batches.get(id).is_some_and(|held| held.provisional);
            if !is_provisional && destinations.get(name).is_none_or(|to| !to.ledger.holds(*id)) {
                self.changes.done.push((Arc::clone(name), *id));
            }
        }
        restored.due.retain(|(_, id)| restored.batches.contains_key(id));
        restored.written.retain(|(_, id)| restored.batches.contains_key(id));
        restored.perhaps_written.retain(|(_, id)| restored.batches.contains_key(id));
        self.removed.retain(|id| !restored.batches.contains_key(id));
        // What this run has counted.
        let mut counted = std::mem::take(&mut restored.counted);
        counted.retain(|Counted { to, id, .. }| {
            let is_known = self.had(*id) || self.untold.contains(&(Arc::clone(to), *id));
            let is_open = self.destinations.get(to).is_some_and(|to| to.ledger.has(*id));
            self.untold.extend((is_known && !is_open).then(|| (Arc::clone(to), *id)));
            !is_known
        });
        restored.counted = counted;
    }

    /// Takes over what the opened file contains.
    pub(super) fn restore(&mut self, mut restored: Restored) {
        if std::mem::replace(&mut self.restored, true) {
            self.without_known(&mut restored);
        }
        self.in_files.extend(restored.batches.keys());
        // What was stored since the start is newer.
        for (name, bytes) in std::mem::take(&mut restored.states) {
            self.states.entry(name).or_insert(bytes);
        }
        say_damaged(&restored);
        self.restore_counts(std::mem::take(&mut restored.counted));
        self.number_behind(restored.batches.keys().last().copied());
        let ticks = restored.batches.len();
        let oldest = restored.batches.values().map(|batch| batch.timestamp).min();
        for (id, summary) in restored.batches {
            self.batches
                .insert(id, QueuedBatch { summary, durable: true, ..QueuedBatch::default() });
        }
        self.restore_due(restored.due);
        self.ordered_at = None;
        let now = Moment::now();
        for (name, id) in restored.written {
            let note = |to: &mut DestinationState| to.ledger.note_written_earlier(id, now.boot);
            self.destinations.entry(name).and_modify(note);
        }
        for (name, id) in restored.perhaps_written {
            let note = |to: &mut DestinationState| to.ledger.note_perhaps_written_earlier(id);
            self.destinations.entry(name).and_modify(note);
        }
        for (name, to) in self.destinations.iter().filter(|(_, to)| !to.configured) {
            say_removed(name, to.ledger.sums().held);
        }
        if let Some(oldest) = oldest {
            let age = u64::try_from(now.wall.saturating_sub(oldest)).unwrap_or(0);
            let age = in_words(Duration::from_secs(age));
            info!(ticks, age, "ticks of an earlier run are in the queue");
        }
        // One that sends by time has waited for them.
        self.destinations.values().for_each(|to| to.news.notify_one());
    }

    /// Counts the losses that an earlier run has stored and that no tick on disk has told.
    fn restore_counts(&mut self, counted: Vec<Counted>) {
        let mut damaged: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for Counted { to, id, points, why } in counted {
            self.in_files.insert(id);
            self.untold.push((Arc::clone(&to), id));
            if is_destination(&to) {
                count(&mut self.status, self.destinations.get_mut(&to), points, why);
                let damaged = damaged.entry(to).or_default();
                *damaged = damaged.saturating_add(if why == Why::Damaged { points } else { 0 });
            }
        }
        for (name, points) in damaged.into_iter().filter(|(_, points)| *points > 0) {
            error!(destination = %name, points,
                "points queued for this destination have been lost");
        }
    }

    /// Lets batches of this run get ids above `last`, the id of the last restored one, from now on.
    fn number_behind(&mut self, last: Option<u64>) {
        if let Some(last) = last.filter(|last| *last >= self.next_id) {
            if let Some(open) = self.own.last_mut() {
                open.end = self.next_id;
            }
            self.next_id = last.saturating_add(1);
            self.own.push(self.next_id..u64::MAX);
        }
    }

    /// Gives the restored batches to the destinations to which they are due.
    fn restore_due(&mut self, due: Vec<(Arc<str>, u64)>) {
        let window = self.limits.resend_window;
        let removed = || DestinationState { configured: false, ..DestinationState::new(window) };
        let (due, held): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(name, _)| is_destination(name));
        let held: BTreeSet<u64> = held.into_iter().map(|(_, id)| id).collect();
        for (name, id) in due {
            let destination = self.destinations.entry(name).or_insert_with(removed);
            if let Some(batch) = self.batches.get_mut(&id).filter(|batch| batch.frames.is_none()) {
                batch.provisional = held.contains(&id);
                self.has_provisional |= batch.provisional;
                destination.take(id, batch, false);
            }
        }
    }
}

fn is_destination(name: &str) -> bool {
    name != provisional::NAME
}

fn say_damaged(restored: &Restored) {
    if restored.damaged > 0 {
        error!(
            records = restored.damaged,
            "some records in the queue's files are damaged; the rest are unaffected"
        );
    }
    if !restored.damaged_states.is_empty() {
        error!(
            states = restored.damaged_states.join(" "),
            "some files in the queue's directory are damaged or missing: what is remembered from \
                earlier, or counts of finished jobs; ticks are unaffected"
        );
    }
}

/// Logs that a destination is no longer configured.
pub(super) fn say_removed(destination: &str, ticks: u64) {
    warn!(
        destination,
        ticks,
        "this destination is no longer configured; its ticks are kept until max_age, then dropped \
            and counted in points_dropped_removed"
    );
}
