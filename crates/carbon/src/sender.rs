//! One destination: its settings, the handle of its task, and the task's status.
//!
//! A destination never delays another, because each has its own handle on the queue. The task is in task.rs, its
//! connections are in renewal.rs.

mod recording;
mod renewal;
mod task;

use std::collections::HashSet;
use std::mem::Discriminant;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::recording::Recording;
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::connection::{Connection, Stream};
use crate::connection_error::ConnectionError;
use crate::destination::Destination;
use crate::idle::IdleTimer;
use crate::queue::{Place, Queue, Status};
use crate::rate::Rate;
#[cfg(feature = "tls")]
use crate::tls_connection::TlsConnection;

/// The state of one destination's task.
struct SenderTask {
    to: Destination,
    place: Place,
    drain: Arc<Notify>,
    /// Ends the task when everything was read, or the connection is lost.
    draining: bool,
    /// Until when it sends what is on disk.
    drains_stored_until: Option<Instant>,
    started: Instant,
    rate: Rate,
    budget: Budget,
    recording: Recording,
    backoff: Backoff,
    connections: u64,
    away_since: Option<Instant>,
    /// The kinds of errors that the log has named since then.
    said: HashSet<Discriminant<ConnectionError>>,
    /// Points that were lost before `away_since`.
    lost_before: u64,
    doubt_since: Option<Instant>,
    idle_timer: IdleTimer,
    closed_at_once: u32,
    /// Half-closed connections in a row whose end proved nothing.
    without_proof: u32,
    /// Something that is not Carbon answered last. Until a connection has lasted, it gets no backlog.
    suspect: bool,
    /// When a connection was last closed to make room for the next one.
    gave_way: Option<Instant>,
    /// Until when the backlog is not read from disk: otherwise each live tick would wait for a disk that does not
    /// answer.
    load_again: Option<Instant>,
    /// Since when the disk has returned nothing, and whether the log says so.
    refused: Option<(Instant, bool)>,
    /// Since when this many unsent ticks wait, and whether the log says that they become more.
    lag: Option<(Instant, u64, bool)>,
}

/// A running destination.
#[derive(Debug)]
pub struct Sender {
    place: Place,
    draining: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Sender {
    /// Starts the task, which connects at once and reconnects for ever.
    #[must_use]
    pub fn start(destination: Destination, queue: &Queue) -> Self {
        match &destination.tls {
            None => Self::start_on::<Connection>(destination, queue),
            #[cfg(feature = "tls")]
            Some(_) => Self::start_on::<TlsConnection>(destination, queue),
            #[cfg(not(feature = "tls"))]
            Some(never) => match *never {},
        }
    }

    fn start_on<C: Stream>(destination: Destination, queue: &Queue) -> Self {
        let (place, draining) = (queue.place(&destination.name), Arc::new(Notify::new()));
        place.count(|status| (status.connected, status.in_doubt, status.unacked) = (false, false, 0));
        place.count(|status| status.not_carbon = false);
        place.ledger(|ledger| ledger.write_by_time(destination.by_time));
        let task = SenderTask {
            rate: Rate::new(destination.replay_rate, destination.by_time),
            started: Instant::now(),
            place: place.clone(),
            drain: Arc::clone(&draining),
            draining: false,
            drains_stored_until: None,
            budget: Budget::new(destination.by_time),
            recording: Recording::default(),
            backoff: Backoff::default(),
            connections: 0,
            away_since: None,
            said: HashSet::new(),
            lost_before: 0,
            doubt_since: None,
            idle_timer: IdleTimer::default(),
            closed_at_once: 0,
            without_proof: 0,
            suspect: false,
            gave_way: None,
            load_again: None,
            refused: None,
            lag: None,
            to: destination,
        };
        Self { place, draining, task: tokio::spawn(task.run::<C>()) }
    }

    /// Its status now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.place.status()
    }

    /// Why there was no connection last; `None` when ticks are sent again.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.place.last_error()
    }

    /// Writes what is due, asks whether the receiver has read it, and ends: within `deadline`, or sooner if the
    /// destination cannot be reached. Batches that were not read stay in the queue, and the next run sends them again.
    pub async fn drain(mut self, deadline: Duration) -> Status {
        self.draining.notify_one();
        let _ = timeout(deadline, &mut self.task).await;
        self.task.abort();
        self.status()
    }

    /// Ends at once. Its batches stay in the queue, and everything that is not done is due again.
    pub fn stop(self) {
        self.task.abort();
        self.place.lost();
    }
}

#[cfg(test)]
mod tests;
