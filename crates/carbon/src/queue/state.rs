//! The queue's contents: batches, what each destination still has to have, and what is to be told to the file.
//!
//! Nothing here waits, writes or reads: it is changed under the queue's lock, by what was pushed, by what the senders
//! did, and by what the file's thread says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, error, info, trace, warn};

use super::clock::{Clock, Moment};
use super::leaving::Reason;
use super::{Limits, QueueStatus, Status};
use crate::ledger::Ledger;
use crate::store::{Changes, Event, Kept, segment_bytes};
use crate::wire::Frame;

/// How many batches that are not on disk go along with the next commit, at most.
const CATCH_UP: usize = 32;

#[derive(Debug)]
pub(super) struct State {
    pub(super) limits: Limits,
    pub(super) batches: BTreeMap<u64, Held>,
    /// On their way to the disk, with the moment at which nobody waits any longer.
    pub(super) committing: VecDeque<(u64, Instant)>,
    pub(super) destinations: BTreeMap<Arc<str>, Destination>,
    /// What the next commit says besides its batches.
    pub(super) told: Changes,
    /// The newest of each name.
    pub(super) states: BTreeMap<String, Arc<[u8]>>,
    pub(super) clock: Clock,
    /// That `max_bytes` has no room for all of the resend window has been logged.
    pub(super) said_short: bool,
    pub(super) next_id: u64,
    /// What an earlier run had kept is among them.
    pub(super) restored: bool,
    /// Commits that the file's thread has not answered for, and the batches in them.
    pub(super) unanswered: usize,
    on_its_way: BTreeSet<u64>,
    /// Some batches were given to the senders without being on disk.
    pub(super) missed: bool,
    pub(super) status: QueueStatus,
    pub(super) said_undurable: bool,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) timestamp: i64,
    /// CLOCK_BOOTTIME; `None` before the host's last start.
    pub(super) pushed: Option<Duration>,
    pub(super) points: u64,
    pub(super) bytes: usize,
    pub(super) frames: Option<Arc<[Frame]>>,
    pub(super) durable: bool,
    pub(super) published: bool,
    /// Destinations that are not done with it.
    pub(super) waiting: usize,
}

#[derive(Debug)]
pub(super) struct Destination {
    pub(super) ledger: Ledger,
    pub(super) news: Arc<Notify>,
    /// What its sender counts, what it has lost, and the bytes that it is not done with.
    pub(super) status: Status,
    /// It was removed where it is not, and gets nothing new.
    pub(super) configured: bool,
}

impl Destination {
    pub(super) fn new(resend_window: Duration) -> Self {
        Self {
            ledger: Ledger::new(resend_window),
            news: Arc::new(Notify::new()),
            status: Status::default(),
            configured: true,
        }
    }
}

impl State {
    /// Empty, for these destinations.
    pub(super) fn new(limits: Limits, names: Vec<Arc<str>>) -> Self {
        let resend_window = limits.resend_window;
        Self {
            limits,
            batches: BTreeMap::new(),
            committing: VecDeque::new(),
            destinations: names.into_iter().map(|name| (name, Destination::new(resend_window))).collect(),
            told: Changes::default(),
            states: BTreeMap::new(),
            clock: Clock::default(),
            said_short: false,
            next_id: unix_millis(),
            restored: false,
            unanswered: 0,
            on_its_way: BTreeSet::new(),
            missed: false,
            status: QueueStatus::default(),
            said_undurable: false,
        }
    }

    /// What the next commit holds: the batch, some that missed theirs, and what has been done since.
    pub(super) fn changes(&mut self, id: u64) -> Changes {
        let catch_up = if self.missed && self.status.durable { CATCH_UP } else { 0 };
        let missed = self.batches.iter().filter(|_| catch_up > 0);
        let missed = missed.filter(|(_, held)| !held.durable && held.published);
        let missed = missed.filter(|(other, _)| **other != id && !self.on_its_way.contains(*other));
        // No more than a segment, or one: the live batch waits for them.
        let most = usize::try_from(segment_bytes(self.limits.max_bytes)).unwrap_or(usize::MAX);
        let mut bytes = 0_usize;
        let fits = |(_, held): &(&u64, &Held)| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(held.bytes);
            is_first || bytes <= most
        };
        let missed: Vec<_> = missed.take(catch_up).take_while(fits).collect();
        let any_missed = catch_up > 0 && (missed.len() == catch_up || bytes > most);
        let append: Vec<Kept> = missed
            .into_iter()
            .chain(self.batches.get_key_value(&id))
            .filter_map(|(&id, held)| self.kept(id, held))
            .collect();
        // What the commit takes is durable with it, or missed again.
        self.missed = any_missed || (self.missed && !self.status.durable);
        self.on_its_way.extend(append.iter().map(|kept| kept.id));
        Changes { append, ..std::mem::take(&mut self.told) }
    }

    /// What the last commit holds: everything that is not on disk, and what has been done since.
    pub(super) fn last_changes(&mut self) -> Changes {
        let undurable = self.batches.iter().filter(|(_, held)| !held.durable);
        let append = undurable.filter_map(|(&id, held)| self.kept(id, held)).collect();
        Changes { append, ..std::mem::take(&mut self.told) }
    }

    /// A batch as it goes to the disk: one that was published, for those that are not done with it.
    fn kept(&self, id: u64, held: &Held) -> Option<Kept> {
        let frames = Arc::clone(held.frames.as_ref()?);
        let waits = |to: &Destination| if held.published { to.ledger.holds(id) } else { to.configured };
        let due =
            self.destinations.iter().filter(|(_, to)| waits(to)).map(|(name, _)| Arc::clone(name)).collect();
        // It was pushed in this run.
        let pushed = u64::try_from(held.pushed.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        Some(Kept { id, timestamp: held.timestamp, pushed, frames, due })
    }

    /// Gives a batch to every destination.
    pub(super) fn publish(&mut self, id: u64) {
        let Some(held) = self.batches.get_mut(&id).filter(|held| !held.published) else { return };
        held.published = true;
        trace!(timestamp = held.timestamp, durable = held.durable, "tick kept");
        let (timestamp, bytes, points) = (held.timestamp, held.bytes, held.points);
        self.missed |= !held.durable;
        for destination in self.destinations.values_mut().filter(|to| to.configured) {
            held.waiting += 1;
            destination.ledger.push(id, timestamp, points);
            destination.status.bytes = destination.status.bytes.saturating_add(bytes);
            destination.news.notify_one();
        }
        if held.waiting == 0 {
            self.remove(id);
        }
    }

    pub(super) fn undurable(&mut self, id: u64) {
        if self.batches.get(&id).is_some_and(|held| !held.published) {
            self.status.undurable = self.status.undurable.saturating_add(1);
        }
    }

    fn durable(&mut self, id: u64) {
        self.answered(id);
        if let Some(held) = self.batches.get_mut(&id) {
            held.durable = true;
        }
        self.publish(id);
    }

    /// The file's thread has done what it could with a batch.
    fn answered(&mut self, id: u64) {
        self.committing.retain(|(other, _)| *other != id);
        self.on_its_way.remove(&id);
    }

    /// Whether the file is to be told what becomes of a batch. Its thread does everything in order, so that what it is told
    /// of one that is still on its way comes behind it.
    pub(super) fn is_given(&self, id: u64, held: &Held) -> bool {
        held.durable || self.on_its_way.contains(&id)
    }

    /// Lets go of what is done for `name`.
    pub(super) fn finish(&mut self, name: &Arc<str>) {
        let done = self.destinations.get_mut(name).map(|to| to.ledger.take_done());
        done.into_iter().flatten().for_each(|id| self.leave(name, id));
    }

    /// `name` is done with a batch.
    fn leave(&mut self, name: &Arc<str>, id: u64) {
        let Some(held) = self.batches.get_mut(&id) else {
            // It was evicted before it was done.
            return self.told.done.push((Arc::clone(name), id));
        };
        held.waiting = held.waiting.saturating_sub(1);
        if let Some(destination) = self.destinations.get_mut(name) {
            destination.status.bytes = destination.status.bytes.saturating_sub(held.bytes);
        }
        let (over, in_file) = (held.waiting == 0, held.durable);
        if in_file || self.on_its_way.contains(&id) {
            self.told.done.push((Arc::clone(name), id));
        }
        if over {
            self.remove(id);
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        if let Some(held) = self.batches.remove(&id)
            && held.frames.is_some()
        {
            self.status.memory_bytes = self.status.memory_bytes.saturating_sub(held.bytes);
        }
    }

    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Opened(restored) => {
                self.status.durable = true;
                self.restore(restored);
                self.expire(Moment::now());
            }
            Event::Unavailable(error) => {
                self.status.durable = false;
                if !std::mem::replace(&mut self.said_undurable, true) {
                    error!(%error, "the queue's file cannot be used; ticks are kept in memory, and lost with this process");
                }
            }
            Event::Committed { appended, dropped, file_bytes } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.status.durable = true;
                self.status.file_bytes = file_bytes;
                if std::mem::take(&mut self.said_undurable) {
                    info!("ticks are kept on disk again");
                }
                for id in dropped {
                    self.drop_batch(id, Reason::Full);
                    // The file has let go of it by itself.
                    self.told.forget.retain(|other| *other != id);
                }
                for id in appended {
                    self.durable(id);
                }
            }
            Event::Failed { appended, error } => {
                if !appended.is_empty() {
                    self.unanswered = self.unanswered.saturating_sub(1);
                }
                self.status.durable = false;
                if !std::mem::replace(&mut self.said_undurable, true) {
                    error!(%error, "ticks cannot be kept on disk; they are in memory, and lost with this process");
                }
                self.missed = true;
                for id in appended {
                    self.answered(id);
                    self.undurable(id);
                    self.publish(id);
                }
            }
        }
        self.trim();
    }

    /// Gives on from memory what the disk has not answered for.
    pub(super) fn lose_patience(&mut self, now: Instant) {
        while let Some((id, _)) = self.committing.front().copied().filter(|(_, until)| *until <= now) {
            self.committing.pop_front();
            if !std::mem::replace(&mut self.said_undurable, true) {
                warn!("the queue's disk does not answer; going on from memory");
            }
            debug!(id, "not on disk in time");
            // Until a commit comes: nothing more is heaped on a disk that does not answer.
            (self.status.durable, self.missed) = (false, true);
            self.undurable(id);
            self.publish(id);
        }
    }
}

/// Batches of different runs never share a number: each run starts at its own moment.
fn unix_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
