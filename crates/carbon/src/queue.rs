//! The queue between the ticks and Carbon: every batch enters it before anything is sent, and stays until every
//! destination is done with it.
//!
//! With a folder the batches outlive this process: a batch is given to the senders when its commit has come, or after
//! [`COMMIT_PATIENCE`] without one, from memory, counted as undurable. Without a folder it is the same queue in memory. What a
//! destination still has to have is in its [`Ledger`]; bytes and points are here; the file is the [`Store`]'s.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, trace, warn};

use crate::ledger::{Ledger, Removed};
use crate::point::Batch;
use crate::store::{Changes, Event, Kept, Restored, Store, StoreError};
use crate::wire::{Frame, frames};

/// How long the senders wait for a commit.
const COMMIT_PATIENCE: Duration = Duration::from_secs(1);
/// Frames kept in memory beside the file; what does not fit is read again when its turn comes.
const MEMORY: usize = 16 << 20;
/// How many batches that are not on disk go along with the next commit.
const CATCH_UP: usize = 32;
/// Batches handed to a disk that does not answer; further ones stay in memory only.
const MOST_UNANSWERED: usize = 64;

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

/// Why a batch leaves a queue unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Full,
    Age,
    Damaged,
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

#[derive(Debug)]
struct State {
    limits: Limits,
    batches: BTreeMap<u64, Held>,
    /// On their way to the disk, with the moment at which nobody waits any longer.
    committing: VecDeque<(u64, Instant)>,
    destinations: BTreeMap<Arc<str>, Destination>,
    done: Vec<(Arc<str>, u64)>,
    forget: Vec<u64>,
    next_id: u64,
    /// Some batches were given to the senders without being on disk.
    missed: bool,
    status: QueueStatus,
    said_undurable: bool,
}

#[derive(Debug)]
struct Held {
    timestamp: i64,
    points: u64,
    bytes: usize,
    frames: Option<Arc<[Frame]>>,
    durable: bool,
    published: bool,
    /// Destinations that are not done with it.
    waiting: usize,
}

#[derive(Debug)]
struct Destination {
    ledger: Ledger,
    news: Arc<Notify>,
    dropped: Dropped,
    /// Bytes of frames that it is not done with.
    bytes: usize,
}

/// A batch whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) id: u64,
    pub(crate) points: u64,
    pub(crate) backlog: bool,
    frames: Option<Arc<[Frame]>>,
}

/// What is seen of one destination's share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    pub(crate) dropped: Dropped,
    pub(crate) due: usize,
    pub(crate) oldest_due: Option<i64>,
    pub(crate) held: usize,
    pub(crate) bytes: usize,
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
        let resend_window = limits.resend_window;
        let state = State {
            limits,
            batches: BTreeMap::new(),
            committing: VecDeque::new(),
            destinations: names.into_iter().map(|name| (name, Destination::new(resend_window))).collect(),
            done: Vec::new(),
            forget: Vec::new(),
            next_id: unix_millis(),
            missed: false,
            status: QueueStatus::default(),
            said_undurable: false,
        };
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
            points: frames.iter().map(|frame| u64::from(frame.points)).sum(),
            bytes: frames.iter().map(|frame| frame.body.len()).sum(),
            frames: Some(frames),
            durable: false,
            published: false,
            waiting: 0,
        };
        state.status.memory_bytes = state.status.memory_bytes.saturating_add(held.bytes);
        state.batches.insert(id, held);
        state.expire(batch.timestamp());
        let store = self.shared.store.as_ref().filter(|_| state.committing.len() < MOST_UNANSWERED);
        match store {
            Some(store) => {
                let changes = state.changes(id);
                state.committing.push_back((id, now + COMMIT_PATIENCE));
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
            store.set_destinations(names);
        }
        removed
    }

    /// Makes the last changes and closes the file. Returns how many batches are kept in it.
    pub async fn close(&self) -> usize {
        let Some(store) = &self.shared.store else { return 0 };
        let (changes, kept) = {
            let mut state = self.shared.state();
            let kept = state.batches.values().filter(|held| held.waiting > 0 || !held.published).count();
            (state.last_changes(), kept)
        };
        store.close(changes).await;
        if self.status().durable { kept } else { 0 }
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

/// One destination's place in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    name: Arc<str>,
    news: Arc<Notify>,
}

impl Place {
    /// Waits until something may be due that was not before.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// The batch whose turn it is.
    pub(crate) fn next(&self) -> Option<Turn> {
        let state = self.shared.state();
        let (id, backlog) = state.destinations.get(&self.name)?.ledger.next()?;
        state.turn(id, backlog)
    }

    /// The oldest due batch behind `id`.
    pub(crate) fn due_after(&self, id: u64) -> Option<Turn> {
        let state = self.shared.state();
        let id = state.destinations.get(&self.name)?.ledger.due_after(id)?;
        state.turn(id, true)
    }

    /// Whether the batch is still to be written.
    pub(crate) fn is_due(&self, id: u64) -> bool {
        self.shared.state().destinations.get(&self.name).is_some_and(|to| to.ledger.is_due(id))
    }

    /// The batch `id`, whosever turn it is.
    pub(crate) fn turn(&self, id: u64) -> Option<Turn> {
        self.shared.state().turn(id, true)
    }

    /// The batch's frames, from memory or from the file; `None` when they are lost, which is counted.
    pub(crate) async fn frames(&self, turn: &Turn) -> Option<Arc<[Frame]>> {
        if let Some(frames) = &turn.frames {
            return Some(Arc::clone(frames));
        }
        let loaded = match &self.shared.store {
            Some(store) => store.load(turn.id).await,
            None => Err(StoreError::Gone),
        };
        match loaded {
            Ok(frames) => Some(frames),
            Err(error) => {
                error!(destination = %self.name, %error, "a kept tick cannot be read, and is lost");
                self.shared.state().drop_batch(turn.id, Reason::Damaged);
                None
            }
        }
    }

    /// The whole batch has been written. Returns whether it had been before.
    pub(crate) fn written(&self, id: u64) -> bool {
        let now = Instant::now();
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return false };
        let writes = destination.ledger.written(id, now);
        let done = destination.ledger.settle_sometimes(now);
        state.finish(&self.name, &done);
        writes.is_some_and(|writes| writes > 1)
    }

    /// The connection was lost.
    pub(crate) fn lost(&self) {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return };
        let done = destination.ledger.lost(Instant::now());
        state.finish(&self.name, &done);
    }

    /// The half-close barrier was passed.
    pub(crate) fn confirmed(&self) {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return };
        let done = destination.ledger.confirmed();
        state.finish(&self.name, &done);
    }

    /// Where it stands.
    pub(crate) fn share(&self) -> Share {
        let state = self.shared.state();
        let Some(Destination { ledger, dropped, bytes, .. }) = state.destinations.get(&self.name) else {
            return Share::default();
        };
        let (dropped, bytes) = (*dropped, *bytes);
        Share { dropped, due: ledger.due(), oldest_due: ledger.oldest_due(), held: ledger.held(), bytes }
    }
}

impl Destination {
    fn new(resend_window: Duration) -> Self {
        Self {
            ledger: Ledger::new(resend_window),
            news: Arc::new(Notify::new()),
            dropped: Dropped::default(),
            bytes: 0,
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under this lock is made whole before anything in it could fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn turn(&self, id: u64, backlog: bool) -> Option<Turn> {
        let held = self.batches.get(&id)?;
        Some(Turn { id, points: held.points, backlog, frames: held.frames.clone() })
    }

    /// What the next commit holds: the batch, some that missed theirs, and what has been done since.
    fn changes(&mut self, id: u64) -> Changes {
        let names: Vec<Arc<str>> = self.destinations.keys().cloned().collect();
        let catch_up = if self.missed && self.status.durable { CATCH_UP } else { 0 };
        let missed = self.batches.iter().filter(|_| catch_up > 0);
        let missed = missed.filter(|(other, held)| !held.durable && held.published && **other != id);
        let missed: Vec<_> = missed.take(catch_up).collect();
        let any_missed = missed.len() == catch_up && catch_up > 0;
        let append: Vec<Kept> = missed
            .into_iter()
            .chain(self.batches.get_key_value(&id))
            .filter_map(|(&id, held)| {
                let frames = Arc::clone(held.frames.as_ref()?);
                // One that was published goes to those that are not done with it.
                let waits = |name: &&Arc<str>| {
                    !held.published || self.destinations.get(*name).is_some_and(|to| to.ledger.holds(id))
                };
                let due = names.iter().filter(waits).cloned().collect();
                Some(Kept { id, timestamp: held.timestamp, frames, due })
            })
            .collect();
        // What the commit takes is durable with it, or missed again.
        self.missed = any_missed || (self.missed && !self.status.durable);
        Changes { append, ..self.last_changes() }
    }

    fn last_changes(&mut self) -> Changes {
        Changes {
            append: Vec::new(),
            done: std::mem::take(&mut self.done),
            forget: std::mem::take(&mut self.forget),
        }
    }

    /// Gives a batch to every destination.
    fn publish(&mut self, id: u64) {
        let Some(held) = self.batches.get_mut(&id).filter(|held| !held.published) else { return };
        held.published = true;
        trace!(timestamp = held.timestamp, durable = held.durable, "tick kept");
        held.waiting = self.destinations.len();
        let (timestamp, bytes) = (held.timestamp, held.bytes);
        self.missed |= !held.durable;
        for destination in self.destinations.values_mut() {
            destination.ledger.push(id, timestamp);
            destination.bytes = destination.bytes.saturating_add(bytes);
            destination.news.notify_one();
        }
        if self.destinations.is_empty() {
            self.remove(id);
        }
    }

    fn undurable(&mut self, id: u64) {
        if self.batches.get(&id).is_some_and(|held| !held.published) {
            self.status.undurable = self.status.undurable.saturating_add(1);
        }
    }

    fn durable(&mut self, id: u64) {
        self.committing.retain(|(other, _)| *other != id);
        match self.batches.get_mut(&id) {
            Some(held) => held.durable = true,
            // Everybody was done with it before its commit had come.
            None => self.forget.push(id),
        }
        self.publish(id);
    }

    fn finish(&mut self, name: &Arc<str>, done: &[u64]) {
        for &id in done {
            self.leave(name, id);
        }
    }

    /// `name` is done with a batch.
    fn leave(&mut self, name: &Arc<str>, id: u64) {
        let Some(held) = self.batches.get_mut(&id) else { return };
        held.waiting = held.waiting.saturating_sub(1);
        if let Some(destination) = self.destinations.get_mut(name) {
            destination.bytes = destination.bytes.saturating_sub(held.bytes);
        }
        if held.durable {
            self.done.push((Arc::clone(name), id));
        }
        if held.waiting == 0 {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(held) = self.batches.remove(&id)
            && held.frames.is_some()
        {
            self.status.memory_bytes = self.status.memory_bytes.saturating_sub(held.bytes);
        }
    }

    /// A batch leaves the queue, and whoever never had it has lost its points.
    fn drop_batch(&mut self, id: u64, reason: Reason) {
        let Some(held) = self.batches.get(&id) else { return };
        let (points, bytes, durable, published) = (held.points, held.bytes, held.durable, held.published);
        for destination in self.destinations.values_mut() {
            let removed = destination.ledger.remove(id);
            if removed.is_some() {
                destination.bytes = destination.bytes.saturating_sub(bytes);
            }
            if removed == Some(Removed::Unwritten) || (removed.is_none() && !published) {
                let Dropped { full, age, damaged } = &mut destination.dropped;
                let counter = match reason {
                    Reason::Full => full,
                    Reason::Age => age,
                    Reason::Damaged => damaged,
                };
                *counter = counter.saturating_add(points);
            }
        }
        if durable {
            self.forget.push(id);
        }
        self.remove(id);
    }

    /// Drops what is older than `max_age` beside the newest timestamp.
    fn expire(&mut self, now: i64) {
        let max_age = i64::try_from(self.limits.max_age.as_secs()).unwrap_or(i64::MAX);
        let oldest = now.saturating_sub(max_age);
        while let Some((&id, _)) = self.batches.iter().next().filter(|(_, held)| held.timestamp < oldest) {
            self.drop_batch(id, Reason::Age);
        }
    }

    /// Keeps memory within its bounds: frames that are on disk need not be here, and where there is no disk the oldest
    /// batch goes.
    fn trim(&mut self) {
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

    fn restore(&mut self, restored: Restored) {
        for (name, due) in restored.removed {
            info!(
                destination = name,
                not_sent = due,
                "a destination that is no longer configured is forgotten"
            );
        }
        let (mut ticks, mut oldest) = (0_usize, None::<i64>);
        for (id, summary) in restored.batches {
            self.next_id = self.next_id.max(id.saturating_add(1));
            if self.batches.contains_key(&id) {
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
                published: true,
                waiting: 0,
            };
            self.batches.insert(id, held);
        }
        for (name, id) in restored.due {
            let Some(held) = self.batches.get_mut(&id).filter(|held| held.frames.is_none()) else { continue };
            if let Some(destination) = self.destinations.get_mut(&name) {
                held.waiting += 1;
                destination.bytes = destination.bytes.saturating_add(held.bytes);
                destination.ledger.restore(id, held.timestamp);
                destination.news.notify_one();
            }
        }
        let nobodys: Vec<u64> = self
            .batches
            .iter()
            .filter(|(_, held)| held.published && held.waiting == 0)
            .map(|(&id, _)| id)
            .collect();
        for id in nobodys {
            self.remove(id);
            self.forget.push(id);
        }
        if ticks > 0 {
            info!(ticks, oldest, "ticks of an earlier run are in the queue");
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Opened(restored) => {
                self.status.durable = true;
                self.restore(restored);
            }
            Event::Unavailable(error) => {
                self.status.durable = false;
                self.said_undurable = true;
                error!(%error, "the queue's file cannot be used; ticks are kept in memory, and lost with this process");
            }
            Event::Committed { appended, dropped, file_bytes } => {
                self.status.durable = true;
                self.status.file_bytes = file_bytes;
                if std::mem::take(&mut self.said_undurable) {
                    info!("ticks are kept on disk again");
                }
                for id in dropped {
                    self.drop_batch(id, Reason::Full);
                    // The file has let go of it by itself.
                    self.forget.retain(|other| *other != id);
                }
                for id in appended {
                    self.durable(id);
                }
            }
            Event::Failed { appended, error } => {
                self.status.durable = false;
                if !std::mem::replace(&mut self.said_undurable, true) {
                    error!(%error, "ticks cannot be kept on disk; they are in memory, and lost with this process");
                }
                self.missed = true;
                for id in appended {
                    self.committing.retain(|(other, _)| *other != id);
                    self.undurable(id);
                    self.publish(id);
                }
            }
            Event::MovedAside { to, error } => {
                self.status.moved_aside = self.status.moved_aside.saturating_add(1);
                let lost: Vec<u64> = self
                    .batches
                    .iter()
                    .filter(|(_, held)| held.durable && held.frames.is_none())
                    .map(|(&id, _)| id)
                    .collect();
                error!(%error, moved_to = %to.display(), ticks_lost = lost.len(), "the queue's file is set aside; a new one takes its place");
                for id in lost {
                    self.drop_batch(id, Reason::Damaged);
                }
                self.forget.clear();
                self.done.clear();
                self.missed = true;
                for held in self.batches.values_mut() {
                    held.durable = false;
                }
            }
        }
        self.trim();
    }

    /// Gives on from memory what the disk has not answered for.
    fn lose_patience(&mut self, now: Instant) {
        while let Some((id, _)) = self.committing.front().copied().filter(|(_, until)| *until <= now) {
            self.committing.pop_front();
            if !std::mem::replace(&mut self.said_undurable, true) {
                warn!("the queue's disk does not answer; going on from memory");
            }
            debug!(id, "not on disk in time");
            self.undurable(id);
            self.publish(id);
        }
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

/// Batches of different runs never share a number: each run starts at its own moment.
fn unix_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
