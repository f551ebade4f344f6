//! The queue between the ticks and Carbon: every batch enters it before anything is sent, and stays until every
//! destination is done with it.
//!
//! With a folder the batches outlive this process: a batch is given to the senders when its commit has come, or after
//! a second without one, from memory, counted as undurable. Without a folder it is the same queue in memory. What a
//! destination still has to have is in its ledger, batches and counts in state.rs; the file is the store's.

mod place;
mod restore;
mod state;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, warn};

pub(crate) use self::place::{Loaded, Place, Turn};
use self::state::{Destination, Held, Refusals, State};
use crate::point::Batch;
use crate::store::{Event, Store};
use crate::wire::{Frame, frames, points};

/// How long the senders wait for a commit.
const COMMIT_PATIENCE: Duration = Duration::from_secs(1);
/// How long the disk may take for the last commit.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// Batches handed to a disk that does not answer; further ones stay in memory only.
const MOST_UNANSWERED: usize = 64;

/// The least `max_bytes` that is of use with a folder: half of it is for the file's log, and what is left holds 2.7 hours of
/// ticks of 6 KB at 30 s. With 2.5 MiB it would be half an hour, and a tick of 10,000 points breaks the bound.
pub const LEAST_FILE_BYTES: u64 = 4 << 20;

/// The bounds of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file, or of memory where there is none; the oldest batch goes first.
    pub max_bytes: u64,
    /// Age of a batch; older ones would overwrite what Carbon has already rolled up.
    pub max_age: Duration,
    /// How long a connection must live after a batch was written; zero: writing is enough.
    pub resend_window: Duration,
}

/// How many points a destination never had, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// `max_bytes` was reached.
    pub full: u64,
    /// Older than `max_age`.
    pub age: u64,
    /// The file was damaged.
    pub damaged: u64,
}

/// Where the queue stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Whether batches are being kept on disk.
    pub durable: bool,
    /// Batches that were given to the senders without being on disk, since the start.
    pub undurable: u64,
    /// Files that were moved aside.
    pub moved_aside: u64,
    /// Bytes of the file and its log.
    pub file_bytes: u64,
    /// Bytes of frames in memory.
    pub memory_bytes: usize,
}

/// The queue. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    store: Option<Store>,
    appended: Notify,
}

impl Queue {
    /// Opens the queue for these destinations, in `dir` where there is one. It is ready at once: what an earlier run had kept
    /// comes when the file has been read.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn open(dir: Option<PathBuf>, limits: Limits, destinations: &[String]) -> Self {
        let names: Vec<Arc<str>> = destinations.iter().map(|name| Arc::from(name.as_str())).collect();
        let started = dir.map(|dir| (Store::start(&dir, limits.max_bytes, names.clone()), dir));
        let (store, events) = match started {
            Some((Ok((store, events)), _)) => (Some(store), Some(events)),
            Some((Err(error), dir)) => {
                error!(dir = %dir.display(), %error, "no thread for the queue's file; ticks are kept in memory");
                (None, None)
            }
            None => (None, None),
        };
        let state = State::new(limits, names);
        let shared = Arc::new(Shared { state: Mutex::new(state), store, appended: Notify::new() });
        if let Some(events) = events {
            tokio::spawn(follow(Arc::clone(&shared), events));
        }
        Self { shared }
    }

    /// Takes a batch in and never waits. An empty one is nothing.
    pub fn push(&self, batch: &Batch) {
        let frames: Arc<[Frame]> = match frames(batch) {
            Ok(frames) if frames.is_empty() => return,
            Ok(frames) => frames.into(),
            Err(error) => return error!(%error, "a tick cannot be encoded and is lost"),
        };
        let now = Instant::now();
        let mut state = self.shared.state();
        let id = state.next_id;
        state.next_id = id.saturating_add(1);
        let held = Held {
            timestamp: batch.timestamp(),
            points: points(&frames),
            bytes: frames.iter().map(|frame| frame.body.len()).sum(),
            frames: Some(frames),
            durable: false,
            in_part: false,
            published: false,
            waiting: 0,
            refusals: Refusals::default(),
        };
        state.status.memory_bytes = state.status.memory_bytes.saturating_add(held.bytes);
        state.batches.insert(id, held);
        state.expire(batch.timestamp());
        let store = self.shared.store.as_ref().filter(|_| state.unanswered < MOST_UNANSWERED);
        match store {
            Some(store) => {
                let changes = state.changes(id);
                state.committing.push_back((id, now + COMMIT_PATIENCE));
                state.unanswered += 1;
                store.apply(changes);
                self.shared.appended.notify_one();
            }
            None => {
                if self.shared.store.is_some() {
                    state.undurable(id);
                }
                state.publish(id);
            }
        }
        state.trim();
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> QueueStatus {
        self.shared.state().status
    }

    /// Other bounds and other destinations from now on. What a removed destination had not had is forgotten, and
    /// returned as a number of batches; a new one starts now.
    pub fn reconfigure(&self, limits: Limits, destinations: &[String]) -> Vec<(String, usize)> {
        let names: Vec<Arc<str>> = destinations.iter().map(|name| Arc::from(name.as_str())).collect();
        let mut state = self.shared.state();
        let gone: Vec<Arc<str>> =
            state.destinations.keys().filter(|name| !names.contains(name)).cloned().collect();
        let mut removed = Vec::new();
        for name in gone {
            if let Some(destination) = state.destinations.remove(&name) {
                removed.push((name.to_string(), destination.ledger.due()));
                for id in destination.ledger.batches() {
                    state.leave(&name, id);
                }
            }
        }
        for name in &names {
            let resend_window = limits.resend_window;
            let destination =
                state.destinations.entry(Arc::clone(name)).or_insert_with(|| Destination::new(resend_window));
            destination.ledger.set_resend_window(resend_window);
        }
        state.limits = limits;
        if let Some(store) = &self.shared.store {
            store.reconfigure(names, state.limits.max_bytes);
        }
        removed
    }

    /// Puts on disk what is not there yet, makes the last changes and closes the file, unless the disk takes too long. Returns
    /// how many batches are known to be kept in it.
    pub async fn close(&self) -> usize {
        let Some(store) = &self.shared.store else { return 0 };
        let (changes, mut kept) = {
            let mut state = self.shared.state();
            let durable = state.batches.iter().filter(|(_, held)| held.durable);
            let durable: BTreeSet<u64> = durable.map(|(&id, _)| id).collect();
            (state.last_changes(), durable)
        };
        let appended: Vec<u64> = changes.append.iter().map(|batch| batch.id).collect();
        match timeout(CLOSE_PATIENCE, store.close(changes)).await {
            Ok(Some(dropped)) => {
                kept.extend(appended);
                kept.retain(|id| !dropped.contains(id));
            }
            // The file's thread has said why.
            Ok(None) => {}
            Err(_) => warn!(
                ticks = appended.len(),
                "the queue's disk does not answer; these are lost with this process, unless it takes them yet"
            ),
        }
        kept.len()
    }

    /// A handle for the sender of the destination `name`.
    pub(crate) fn place(&self, name: &str) -> Place {
        let name: Arc<str> = Arc::from(name);
        let mut state = self.shared.state();
        let resend_window = state.limits.resend_window;
        let destination =
            state.destinations.entry(Arc::clone(&name)).or_insert_with(|| Destination::new(resend_window));
        let news = Arc::clone(&destination.news);
        drop(state);
        Place { shared: Arc::clone(&self.shared), name, news }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under this lock is made whole before anything in it could fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows what the file's thread says.
async fn follow(shared: Arc<Shared>, mut events: mpsc::UnboundedReceiver<Event>) {
    loop {
        let patience = shared.state().committing.front().map(|(_, until)| *until);
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => shared.state().apply(event),
                None => return,
            },
            () = sleep_until(patience.unwrap_or_else(Instant::now)), if patience.is_some() => {
                shared.state().lose_patience(Instant::now());
            }
            () = shared.appended.notified() => {}
        }
    }
}

#[cfg(any())]
mod tests;
