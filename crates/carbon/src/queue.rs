//! The queue between the ticks and Carbon: every batch enters it before anything is sent, and stays
//! until every destination is done with it.
//!
//! With a folder, the batches outlive this process. A batch is given to the senders when it is
//! committed. If it is not committed within a second, it is sent from memory and counted as
//! undurable. Without a folder the queue is the same, but only in memory. What a destination still
//! needs is in its ledger, batches and counts are in state.rs, and the store owns the file.

mod leaving;
mod outbox;
mod provisional;
mod restore;
mod state;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{error, warn};

pub use self::outbox::Status;
pub(crate) use self::outbox::{DueBatch, DueFilter, Loaded, Outbox};
use self::state::{QueueState, Unpublished};
use crate::clock::Moment;
use crate::store::{AppendedBatch, Changes, Event, Lock, Store, StoreError};
use carbon_wire::Batch;
use carbon_wire::{Frame, frames};

/// Time that a batch waits for its commit before the senders get it from memory.
pub(crate) const COMMIT_PATIENCE: Duration = Duration::from_secs(1);
/// Time of the idle timer after the moment at which the next batch is expected. The timer is there
/// because tokio wakes its own driver for a timer that is nearer than all others, such as that of a
/// batch's commit; each batch sets it again, so it seldom fires.
const IDLE: Duration = Duration::from_millis(500);
/// Time to wait for the folder's lock: a little longer than the store's thread tries.
const LOCK_PATIENCE: Duration = Duration::from_secs(6);
/// Time that the disk may take for the last commit.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// The bounds of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Size of the queue's files in bytes, or of memory if there are none; beyond it the oldest
    /// batches are removed.
    pub max_bytes: u64,
    /// Maximum age of a batch. An older one would overwrite what Carbon has already rolled up.
    pub max_age: Duration,
    /// Time after a batch was read. If the receiver reads bytes that are written later than that,
    /// the batch is done. Zero: it is done when it is written.
    pub resend_window: Duration,
}

/// The points that a destination never received, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Dropped {
    /// Points of batches that were removed because `max_bytes` was reached.
    pub full: u64,
    /// Points of batches that were older than `max_age`.
    pub age: u64,
    /// Points that were lost with damaged or missing files, or that could not be encoded.
    pub damaged: u64,
    /// Points of provisional batches that were withdrawn.
    pub withdrawn: u64,
}

/// The queue's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Whether batches are being kept on disk.
    pub durable: bool,
    /// The reason why batches are not kept on disk. `None`: they are, or the disk has not answered,
    /// or there is no folder.
    pub error: Option<Arc<str>>,
    /// Moment since which `durable` has its value, Unix seconds; `None`: since the start.
    pub durable_since: Option<i64>,
    /// Batches that were given to the senders without being on disk, since the start.
    pub undurable: u64,
    /// Points that destinations which are no longer configured did not get, or may not have got.
    pub dropped_removed: u64,
    /// Whether `max_bytes` recently removed ticks that were still within the resend window.
    pub window_short: bool,
    /// Size of the queue's segments on disk, bytes.
    pub file_bytes: u64,
    /// Size of the frames in memory, bytes.
    pub memory_bytes: usize,
}

/// The kind of a batch that is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    WithCounts,
    Provisional,
}

/// The error that another process uses the queue's folder.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct QueueLocked(StoreError);

/// A handle of the queue. A clone is another handle of the same queue.
#[derive(Clone, Debug)]
pub struct Queue {
    shared: Arc<SharedQueue>,
}

#[derive(Debug)]
struct SharedQueue {
    state: Mutex<QueueState>,
    store: Option<Store>,
    lock: Mutex<Option<Lock>>,
    appended: Notify,
    /// Wakes those that wait until the queue's file has been read.
    opened: Notify,
}

/// Encodes a batch as frames. `None`: it has no points, or cannot be encoded and is lost.
fn encode(batch: &Batch) -> Option<Arc<[Frame]>> {
    match frames(batch) {
        Ok(frames) => (!frames.is_empty()).then(|| frames.into()),
        Err(error) => {
            error!(%error, "a tick cannot be encoded and is lost");
            None
        }
    }
}

impl Queue {
    /// Opens the queue for these destinations, in `dir` if there is one. It can be used at once;
    /// the batches of an earlier run are added when the file has been read.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn open(dir: Option<PathBuf>, limits: Limits, destinations: &[String]) -> Self {
        let started = dir.map(|dir| Store::start(dir, limits.max_bytes));
        let (store, lock, events) = match started {
            Some((store, lock, events)) => (Some(store), Some(lock), Some(events)),
            None => (None, None, None),
        };
        let (state, lock) = (Mutex::new(QueueState::new(limits, destinations)), Mutex::new(lock));
        let shared = Arc::new(SharedQueue {
            state,
            store,
            lock,
            appended: Notify::new(),
            opened: Notify::new(),
        });
        if let Some(events) = events {
            tokio::spawn(follow(Arc::clone(&shared), events));
        }
        Self { shared }
    }

    /// Waits until only this process uses the folder; for 6 s at most, if the disk does not answer.
    ///
    /// # Errors
    /// Another process has used it for 5 s.
    pub async fn locked(&self) -> Result<(), QueueLocked> {
        let lock = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(lock) = lock else { return Ok(()) };
        match timeout(LOCK_PATIENCE, lock).await {
            Ok(Ok(Err(error))) => Err(QueueLocked(error)),
            _ => Ok(()),
        }
    }

    /// Adds a batch without waiting. An empty batch is ignored.
    pub fn push(&self, batch: &Batch) {
        self.push_as(batch, Kind::Plain, None);
    }

    /// Adds a batch whose points include the counts that the queue and its senders have now. Losses
    /// that no such batch on the disk includes are counted by the next run.
    pub fn push_with_counts(&self, batch: &Batch) {
        self.push_as(batch, Kind::WithCounts, None);
    }

    /// Adds a batch that may have to be taken back, without waiting. It is sent while it is the
    /// newest, over a connection on which everything was acknowledged; otherwise it waits for
    /// [`Queue::confirm`] or [`Queue::withdraw`], also after a restart.
    pub fn push_provisional(&self, batch: &Batch) {
        self.push_as(batch, Kind::Provisional, None);
    }

    /// Adds a batch without waiting, and stores bytes by name with it: both are on the disk, or
    /// neither. The batch is not sent before that, however long the disk takes. Returns a ticket
    /// for [`Queue::kept`]; until that is kept, no other such batch may be added.
    pub fn push_with(
        &self,
        batch: &Batch,
        states: impl IntoIterator<Item = (String, Arc<[u8]>)>,
    ) -> u64 {
        self.push_as(batch, Kind::Plain, Some(states.into_iter().collect()))
    }

    fn push_as(
        &self,
        batch: &Batch,
        kind: Kind,
        states: Option<BTreeMap<String, Arc<[u8]>>>,
    ) -> u64 {
        let provisional = kind == Kind::Provisional;
        let Some(frames) = encode(batch) else {
            return states.map_or(0, |states| self.keep(states));
        };
        let (now, moment) = (Instant::now(), Moment::now());
        let mut state = self.shared.state();
        if kind == Kind::WithCounts {
            // Only with the batch: a commit before it would say of a count that it is on the disk.
            let told = std::mem::take(&mut state.untold);
            state.changes.told.extend(told);
        }
        let id = state.next_id;
        state.next_id += 1;
        let has_states = states.is_some();
        let mut new = AppendedBatch {
            id,
            timestamp: batch.timestamp(),
            pushed: Some(moment),
            frames,
            due: state.configured(),
            has_states,
        };
        // Without a file there is no commit to wait for.
        state.hold_new(&new, self.shared.store.is_none(), provisional);
        let until = (!has_states).then(|| now + COMMIT_PATIENCE);
        state.unpublished.insert(id, Unpublished { until, due: new.due.clone() });
        state.expire(moment);
        let ticket = states.map_or(0, |states| state.add_states(states));
        if let Some(store) = &self.shared.store {
            new.due.extend(provisional.then(|| Arc::from(provisional::NAME)));
            state.tell_writing();
            state.changes.append.push(new);
            state.hand_over(store);
            self.shared.appended.notify_one();
        } else {
            state.changes = Changes::default();
            state.publish(id);
            if has_states {
                state.kept.send_replace(ticket);
            }
        }
        state.trim();
        ticket
    }

    /// Stores bytes by name without a batch. Returns a ticket: [`Queue::kept`] waits with it until
    /// they are on disk. If the disk refuses them, the next commit tries again.
    pub fn keep(&self, states: impl IntoIterator<Item = (String, Arc<[u8]>)>) -> u64 {
        let states: BTreeMap<_, _> = states.into_iter().collect();
        let mut state = self.shared.state();
        let ticket = state.add_states(states);
        if let Some(store) = &self.shared.store {
            state.hand_over(store);
        } else {
            state.changes = Changes::default();
            state.kept.send_replace(ticket);
        }
        ticket
    }

    /// Waits until the states of this ticket, or newer ones with the same names, are on disk. Safe
    /// to cancel.
    pub async fn kept(&self, ticket: u64) {
        let mut kept = self.shared.state().kept.subscribe();
        // The other end belongs to the queue, and this handle keeps the queue alive.
        let _ = kept.wait_for(|kept| *kept >= ticket).await;
    }

    /// The stored bytes by name; `None` until the file has been read.
    #[must_use]
    pub fn states(&self) -> Option<BTreeMap<String, Arc<[u8]>>> {
        self.is_read().then(|| self.shared.state().states.clone())
    }

    /// Whether the file has been read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.shared.store.is_none() || self.shared.state().restored
    }

    /// Waits until the file has been read. Safe to cancel.
    pub async fn wait_until_read(&self) {
        // Made before the question, so that no news is missed.
        let opened = self.shared.opened.notified();
        if !self.is_read() {
            opened.await;
        }
    }

    /// The newest bytes that are stored as `name`; `None`: there are none, or the file has not been
    /// read.
    #[must_use]
    pub fn stored(&self, name: &str) -> Option<Arc<[u8]>> {
        self.shared.state().states.get(name).map(Arc::clone)
    }

    /// The queue's status.
    #[must_use]
    pub fn status(&self) -> QueueStatus {
        let (now, state) = (Moment::now(), self.shared.state());
        let durable_since = state.durable_since.map(|since| now.unix(since));
        QueueStatus { durable_since, ..state.status.clone() }
    }

    /// Applies new bounds and destinations. A new destination gets batches from now on. The batches
    /// of a removed one are kept for it until `max_age`.
    pub fn reconfigure(&self, limits: Limits, destinations: &[String]) {
        let mut state = self.shared.state();
        // The commits under way name the old destinations.
        state.publish_all();
        let resend_window = limits.resend_window;
        state.limits = limits;
        for (name, destination) in &mut state.destinations {
            let is_configured = destinations.iter().any(|other| **other == **name);
            if std::mem::replace(&mut destination.configured, is_configured) && !is_configured {
                destination.unproved_when_removed = destination.ledger.unproved();
                restore::say_removed(name, destination.ledger.sums().held);
            }
        }
        for name in destinations {
            state.destination(name).ledger.resend_window = resend_window;
        }
        state.expire(Moment::now());
        state.changes.max_bytes = Some(state.limits.max_bytes);
    }

    /// Gives batches that wait for their commit to the senders, so that a drain includes them.
    pub fn publish(&self) {
        self.shared.state().publish_all();
    }

    /// Writes everything that is not on disk yet, and closes the file. Gives up if the disk takes
    /// too long. Returns how many batches are known to be in the file.
    pub async fn close(&self) -> usize {
        let Some(store) = &self.shared.store else { return 0 };
        // If the file was removed, this is the time to find that, and to write what is in memory to
        // a new one.
        let until = Instant::now() + CLOSE_PATIENCE;
        if self.status().durable && !self.shared.state().said_unkept {
            let ticket = self.keep([]);
            // The disk may refuse states, which must not keep it from ticks.
            let _ = timeout(CLOSE_PATIENCE / 2, self.kept(ticket)).await;
        }
        let changes = Changes {
            writing: Some(Vec::new()),
            ..std::mem::take(&mut self.shared.state().changes)
        };
        let closed = timeout_at(until, store.close(changes)).await;
        let state = self.shared.state();
        let batches = &state.batches;
        let kept = match closed {
            Ok(Some(dropped)) => return batches.keys().filter(|id| !dropped.contains(id)).count(),
            _ => batches.values().filter(|held| held.durable).count(),
        };
        let is_due = |id: &u64| state.destinations.values().any(|to| to.ledger.is_due(*id));
        let unsent = batches.iter().filter(|(id, held)| !held.durable && is_due(id)).count();
        let sent = batches.len().saturating_sub(kept).saturating_sub(unsent);
        warn!(
            unsent,
            sent,
            "the queue's disk has not written these ticks: the unsent ones are lost when the \
                process ends, and those that were sent cannot be sent again"
        );
        kept
    }

    /// A handle for the sender of the destination `name`.
    pub(crate) fn outbox(&self, name: &str) -> Outbox {
        let news = Arc::clone(&self.shared.state().destination(name).news);
        Outbox { shared: Arc::clone(&self.shared), name: Arc::from(name), news }
    }
}

impl SharedQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No change under this lock can fail half-way, so a poisoned lock still guards a consistent
        // state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies the events of the store's thread to the queue, and gives batches to the senders that
/// wait too long for their commit.
async fn follow(shared: Arc<SharedQueue>, mut events: mpsc::UnboundedReceiver<Event>) {
    let mut pushed = Instant::now();
    let mut idle_until = None;
    loop {
        let patience = shared.state().unpublished.values().find_map(|its| its.until);
        let timer = patience.or(idle_until);
        tokio::select! {
            // Without the file's thread the queue continues in memory.
            Some(event) = events.recv() => {
                let (is_removed, is_opened) = (matches!(event, Event::Removed), matches!(event,
                    Event::Opened(_)));
                let mut state = shared.state();
                state.apply(event);
                if let Some(store) = shared.store.as_ref().filter(|_| is_removed) {
                    state.hand_over(store);
                }
                if is_opened {
                    shared.opened.notify_waiters();
                }
            }
            () = sleep_until(timer.unwrap_or(pushed)), if timer.is_some() => {
                idle_until = None;
                shared.state().lose_patience(Instant::now());
            }
            () = shared.appended.notified() => {
                // A timer that is nearer than all others has the runtime wake itself. So one that
                // is never reached stays until the next batch, as long as they come regularly.
                let now = Instant::now();
                let gap = now.saturating_duration_since(pushed);
                pushed = now;
                idle_until = now.checked_add(gap.saturating_add(IDLE));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
