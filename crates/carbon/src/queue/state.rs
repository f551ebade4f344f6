//! The queue's contents: batches, what each destination still needs, and the changes that are not
//! yet in the file.
//!
//! Nothing here waits, writes or reads. It is changed under the queue's lock, by pushes, by the
//! senders and by the file's thread.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{error, info, trace, warn};

use super::{Limits, QueueStatus, Status, provisional};
use crate::clock::{Clock, Moment};
use crate::ledger::Ledger;
use crate::store::{AppendedBatch, Changes, Event, Store, StoreError, Summary};
use carbon_wire::{Frame, points};

#[derive(Debug, Default)]
pub(super) struct QueueState {
    pub(super) limits: Limits,
    pub(super) batches: BTreeMap<u64, QueuedBatch>,
    /// Batches that the senders do not have yet.
    pub(super) unpublished: BTreeMap<u64, Unpublished>,
    pub(super) destinations: BTreeMap<Arc<str>, DestinationState>,
    /// Pairs of a destination and a batch that it has lost: the losses are counted, and no tick has
    /// published them yet.
    pub(super) untold: Vec<(Arc<str>, u64)>,
    /// Changes that have not been handed to the file's thread.
    pub(super) changes: Changes,
    /// The newest bytes that were stored by each name.
    pub(super) states: BTreeMap<String, Arc<[u8]>>,
    /// The last ticket that was given, for states or for a record of what is done.
    pub(super) ticket: u64,
    /// The last ticket for which everything is on disk.
    pub(super) kept: watch::Sender<u64>,
    pub(super) clock: Clock,
    /// Batches that are not ordered by age: those from before the host's last boot, those that were
    /// pushed before a step of the clock, and those that an earlier run had pushed before others.
    pub(super) unordered: BTreeSet<u64>,
    /// Seconds that the wall clock was ahead of CLOCK_BOOTTIME when the batches in `unordered` were
    /// last looked for; `None`: they must be looked for.
    pub(super) ordered_at: Option<i64>,
    /// Whether there may be provisional batches.
    pub(super) has_provisional: bool,
    pub(super) next_id: u64,
    /// Whether the batches of an earlier run are included.
    pub(super) restored: bool,
    /// The ranges of the batch ids that this run has given. After it met higher ids of another run
    /// it goes on above them, in another range. The last range is open, up to `next_id`.
    pub(super) own: Vec<Range<u64>>,
    /// The ids of all batches and counts that were in files when they were opened.
    pub(super) in_files: BTreeSet<u64>,
    /// The ids of batches that were lost with their files.
    pub(super) removed: BTreeSet<u64>,
    pub(super) status: QueueStatus,
    /// Moment since which `durable` has its value, by CLOCK_BOOTTIME; `None`: since the start.
    pub(super) durable_since: Option<Duration>,
    /// Whether the log says that ticks are not written to disk.
    pub(super) said_undurable: bool,
    /// Whether the log says that the disk refuses what is not a tick: states and records.
    pub(super) said_unkept: bool,
}

/// A batch whose commit is under way.
#[derive(Debug)]
pub(super) struct Unpublished {
    /// Moment at which the senders get the batch without its commit; `None`: never.
    pub(super) until: Option<Instant>,
    /// The destinations that the batch is for.
    pub(super) due: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub(super) struct QueuedBatch {
    pub(super) summary: Summary,
    pub(super) frames: Option<Arc<[Frame]>>,
    pub(super) durable: bool,
    /// The number of destinations that are not done with the batch.
    pub(super) waiting: usize,
    /// Whether the batch may still be withdrawn.
    pub(super) provisional: bool,
    /// Whether it is not known if the batch is older than `max_age`.
    pub(super) unknown_age: bool,
}

#[derive(Debug)]
pub(super) struct DestinationState {
    pub(super) ledger: Ledger,
    pub(super) news: Arc<Notify>,
    /// The counters of the destination's sender, and the destination's losses.
    pub(super) status: Status,
    /// Moment since which the destination is connected, disconnected or in doubt, by
    /// CLOCK_BOOTTIME.
    pub(super) since: Duration,
    /// Timestamp of the oldest tick that was never sent, Unix seconds, and the moment since which
    /// it is that one, by CLOCK_BOOTTIME.
    pub(super) oldest: (Option<i64>, Duration),
    /// The last reason why there was no connection; `None`: there is none, or the present
    /// connection has carried a tick for a second.
    pub(super) error: Option<Arc<str>>,
    /// Whether the destination is configured. If not, it was removed and gets no new batches.
    pub(super) configured: bool,
    /// The destination's unproved points when it was removed. Later ones are not published as its
    /// own.
    pub(super) unproved_when_removed: u64,
}

impl DestinationState {
    pub(super) fn new(resend_window: Duration) -> Self {
        let since = Moment::now().boot;
        Self {
            ledger: Ledger::new(resend_window),
            news: Arc::new(Notify::new()),
            status: Status::default(),
            since,
            oldest: (None, since),
            error: None,
            configured: true,
            unproved_when_removed: 0,
        }
    }

    /// Takes a batch that is due for this destination; `fresh` if it is of this run.
    pub(super) fn take(&mut self, id: u64, held: &mut QueuedBatch, fresh: bool) {
        let Summary { timestamp, points, bytes, .. } = held.summary;
        held.waiting += 1;
        self.ledger.insert(id, timestamp, points, bytes as u64, fresh);
        if held.provisional {
            self.ledger.hold(id);
        }
        self.ledger.set_unknown_age(id, held.unknown_age);
        self.news.notify_one();
    }
}

/// The first batch id of a run that starts at `since_epoch`, the time since 1970: its nanoseconds.
/// So the ids of two runs overlap only if both began within microseconds of the same time, which a
/// clock that is set back makes possible.
pub(super) fn first_id(since_epoch: Duration) -> u64 {
    u64::try_from(since_epoch.as_nanos()).unwrap_or(0)
}

impl QueueState {
    pub(super) fn new(limits: Limits, destinations: &[String]) -> Self {
        let new =
            |name: &String| (Arc::from(name.as_str()), DestinationState::new(limits.resend_window));
        let destinations = destinations.iter().map(new).collect();
        // Each run starts counting at its own time, so that its ids are not those of another run;
        // `restore` goes on above higher ones.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let next_id = first_id(since.unwrap_or_default());
        Self {
            limits,
            destinations,
            next_id,
            own: iter::once(next_id..u64::MAX).collect(),
            ..Self::default()
        }
    }

    /// Returns the destination with this name, and makes it if there is none.
    pub(super) fn destination(&mut self, name: &str) -> &mut DestinationState {
        let window = self.limits.resend_window;
        self.destinations.entry(Arc::from(name)).or_insert_with(|| DestinationState::new(window))
    }

    /// Hands the changes over to the file's thread, or keeps them for the next time if it has no
    /// room for them.
    pub(super) fn hand_over(&mut self, store: &Store) {
        self.changes = store.apply(std::mem::take(&mut self.changes));
    }

    /// The destinations that get new batches.
    pub(super) fn configured(&self) -> Vec<Arc<str>> {
        let configured = self.destinations.iter().filter(|(_, to)| to.configured);
        configured.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Adds a batch that was just pushed to those in memory.
    pub(super) fn hold_new(&mut self, new: &AppendedBatch, durable: bool, provisional: bool) {
        let summary = Summary {
            timestamp: new.timestamp,
            pushed: new.pushed,
            points: points(&new.frames),
            bytes: new.frames.iter().map(|frame| frame.body.len()).sum(),
        };
        let frames = Some(Arc::clone(&new.frames));
        let held = QueuedBatch { summary, frames, durable, provisional, ..QueuedBatch::default() };
        self.status.memory_bytes += summary.bytes;
        self.batches.insert(new.id, held);
        self.has_provisional |= provisional;
    }

    /// Stores bytes by name. Returns their ticket.
    pub(super) fn add_states(&mut self, states: BTreeMap<String, Arc<[u8]>>) -> u64 {
        self.ticket = self.ticket.saturating_add(1);
        self.states.extend(states.clone());
        self.changes.states.extend(states);
        self.changes.ticket = self.ticket;
        self.ticket
    }

    /// Gives a batch to the destinations that it is for.
    pub(super) fn publish(&mut self, id: u64) {
        let Some(Unpublished { due, .. }) = self.unpublished.remove(&id) else { return };
        let Some(held) = self.batches.get_mut(&id) else { return };
        trace!(tick = held.summary.timestamp, durable = held.durable, "tick kept");
        self.status.undurable += u64::from(!held.durable);
        let window = self.limits.resend_window;
        let removed = || DestinationState { configured: false, ..DestinationState::new(window) };
        for name in due {
            self.destinations.entry(name).or_insert_with(removed).take(id, held, true);
        }
        if held.waiting == 0 {
            self.remove(id);
        }
    }

    /// Gives a batch to its destinations before its commit, unless it has to wait for that.
    fn publish_early(&mut self, id: u64) {
        if self.unpublished.get(&id).is_some_and(|its| its.until.is_some()) {
            self.publish(id);
        }
    }

    /// Gives batches whose commit is under way to their destinations, except those that have to
    /// wait for it.
    pub(super) fn publish_all(&mut self) {
        let committing: Vec<u64> = self.unpublished.keys().copied().collect();
        committing.into_iter().for_each(|id| self.publish_early(id));
    }

    /// Releases the batches that `name` is done with.
    pub(super) fn finish(&mut self, name: &Arc<str>) {
        let done = self.destinations.get_mut(name).map(|to| to.ledger.take_done());
        let written = self.destinations.get_mut(name).map(|to| to.ledger.take_written());
        self.changes.written.extend(written.into_iter().flatten().map(|id| (Arc::clone(name), id)));
        let counted = self.destinations.get_mut(name).map(|to| to.ledger.take_counted());
        self.untold.extend(counted.into_iter().flatten().map(|id| (Arc::clone(name), id)));
        for id in done.into_iter().flatten() {
            self.changes.done.push((Arc::clone(name), id));
            // It may have been evicted before it was done.
            let Some(held) = self.batches.get_mut(&id) else { continue };
            held.waiting = held.waiting.saturating_sub(1);
            if held.waiting == 0 {
                // If the disk hangs, it need not be written at all.
                self.changes.append.retain(|kept| kept.id != id);
                self.remove(id);
            }
        }
        self.count_removed();
        let is_short = |to: &DestinationState| to.ledger.is_window_short();
        self.status.window_short =
            self.status.window_short && self.destinations.values().any(is_short);
    }

    /// Adds to the next commit the names of the connected destinations: from now on ticks may be
    /// written to them, and whether they were is recorded by a later commit.
    pub(super) fn tell_writing(&mut self) {
        let connected = self.destinations.iter().filter(|(_, to)| to.status.connected);
        self.changes.writing = Some(connected.map(|(name, _)| Arc::clone(name)).collect());
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<QueuedBatch> {
        let held = self.batches.remove(&id)?;
        self.unordered.remove(&id);
        if held.provisional {
            self.changes.done.push((Arc::from(provisional::NAME), id));
        }
        if held.frames.is_some() {
            self.status.memory_bytes -= held.summary.bytes;
        }
        Some(held)
    }

    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Opened(restored) => {
                self.set_durable(true);
                self.restore(restored);
                self.expire(Moment::now());
            }
            Event::Removed => self.remove_from_disk(),
            Event::Committed { appended, ticket, dropped, file_bytes } => {
                self.set_durable(true);
                if self
                    .kept
                    .send_if_modified(|kept| std::mem::replace(kept, ticket.max(*kept)) < ticket)
                {
                    self.destinations.values().for_each(|to| to.news.notify_one());
                }
                let is_all_kept = *self.kept.borrow() >= self.ticket;
                if is_all_kept && std::mem::take(&mut self.said_unkept) {
                    info!("what is not a tick is written to disk again");
                }
                self.status.file_bytes = file_bytes;
                // A disk that is always late would say both lines at each tick.
                let until = |id| self.unpublished.get(id).and_then(|its: &Unpublished| its.until);
                let is_in_time = appended.iter().any(|id| until(id).is_some());
                if is_in_time && std::mem::take(&mut self.said_undurable) {
                    info!("ticks are written to disk again");
                }
                dropped.into_iter().for_each(|id| self.evict(id));
                for id in appended {
                    if let Some(held) = self.batches.get_mut(&id) {
                        held.durable = true;
                    }
                    self.publish(id);
                }
            }
            Event::Unkept { error } => {
                if !std::mem::replace(&mut self.said_unkept, true) {
                    error!(%error, "cannot write to disk what is remembered, counts of finished \
                        jobs, or what was sent; the next tick tries again");
                }
            }
            Event::Failed { appended, error } => {
                self.set_durable(false);
                // An attempt to open the log has said why.
                if !matches!(error, StoreError::Gone) {
                    self.status.error = Some(error.to_string().into());
                }
                if !std::mem::replace(&mut self.said_undurable, true) {
                    error!(%error, "cannot write ticks to disk; keeping them in memory until the \
                        disk is writable again");
                }
                appended.into_iter().for_each(|id| self.publish_early(id));
            }
        }
        self.trim();
    }

    pub(super) fn set_durable(&mut self, durable: bool) {
        if durable {
            self.status.error = None;
        }
        if std::mem::replace(&mut self.status.durable, durable) != durable {
            self.durable_since = Some(Moment::now().boot);
        }
    }

    /// Gives the senders, from memory, the batches that the disk has not confirmed in time.
    pub(super) fn lose_patience(&mut self, now: Instant) {
        let is_late = |its: &Unpublished| its.until.is_some_and(|until| until <= now);
        let late = self.unpublished.iter().filter(|(_, its)| is_late(its));
        let late: Vec<u64> = late.map(|(&id, _)| id).collect();
        for id in late {
            if !std::mem::replace(&mut self.said_undurable, true) {
                warn!("the queue's disk does not answer; ticks are kept in memory");
            }
            self.set_durable(false);
            self.publish(id);
        }
    }
}
