//! One destination: its settings, the handle of its task, and what the task knows.
//!
//! Whatever a destination does, it holds up nobody else: it has its own place in the queue. What the task does is in task.rs, its
//! connections are in renewal.rs.

mod renewal;
mod task;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

#[cfg(feature = "tls")]
pub(crate) use self::renewal::in_words;
use crate::address::Address;
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::connection::{Connection, Stream, Timeouts};
use crate::ledger::Ledger;
use crate::queue::{Place, Queue, Status};
use crate::rate::Rate;
use crate::tls::Tls;
#[cfg(feature = "tls")]
use crate::tls::TlsConnection;
use crate::wire::{Names, Protocol};

/// Where batches go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What it is called in logs and metrics, and where its place in the queue is kept.
    pub name: String,
    /// Looked up when a connection is lost or cannot be made.
    pub address: Address,
    /// What the peer reads.
    pub protocol: Protocol,
    /// What the points are called there.
    pub names: Names,
    /// Of the connection.
    pub timeouts: Timeouts,
    /// `None`: bytes go over TCP as they are.
    pub tls: Option<Tls>,
    /// Points a second that resends and backlog may take; `None`: the larger of 5,000 and ten times the live rate.
    pub replay_rate: Option<u32>,
    /// The name is looked up again at this age, for load balancers; `None`: only after a failed connection.
    pub reconnect_every: Option<Duration>,
}

/// The task: one destination and what is known of it.
struct Task {
    to: Destination,
    place: Place,
    drain: Arc<Notify>,
    /// It ends when everything was read, or the connection is lost.
    draining: bool,
    rate: Rate,
    budget: Budget,
    backoff: Backoff,
    connections: u64,
    away_since: Option<Instant>,
    doubt_since: Option<Instant>,
    /// After how long the peer closes what is idle, where it has done so.
    closes_idle_after: Option<Duration>,
    closed_at_once: u32,
    /// Half-closed connections in a row that ended without TLS's own end.
    truncated: u32,
    /// When a connection was last given up to make the next one.
    gave_way: Option<Instant>,
    /// Until when the disk is not asked for the backlog: each live tick would wait for its answer.
    load_again: Option<Instant>,
    /// Since when the disk has given nothing.
    refused_since: Option<Instant>,
}

/// A running destination.
#[derive(Debug)]
pub struct Sender {
    place: Place,
    draining: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Sender {
    /// Starts the task; it connects at once, and for ever.
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
        let task = Task {
            rate: Rate::new(destination.replay_rate),
            to: destination,
            place: place.clone(),
            drain: Arc::clone(&draining),
            draining: false,
            budget: Budget::new(),
            backoff: Backoff::default(),
            connections: 0,
            away_since: None,
            doubt_since: None,
            closes_idle_after: None,
            closed_at_once: 0,
            truncated: 0,
            gave_way: None,
            load_again: None,
            refused_since: None,
        };
        Self { place, draining, task: tokio::spawn(task.run::<C>()) }
    }

    /// Where it stands now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.place.status()
    }

    /// Points that are due; it costs more than the rest.
    #[must_use]
    pub fn points_due(&self) -> u64 {
        self.place.ledger(|ledger| ledger.points_due())
    }

    /// Writes what is due, asks whether the receiver has read it, and ends: within `deadline`, or sooner where the
    /// destination cannot be reached. What was read stays in the queue: the next run sends it again.
    pub async fn drain(mut self, deadline: Duration) -> Status {
        self.draining.notify_one();
        let _ = timeout(deadline, &mut self.task).await;
        self.task.abort();
        self.status()
    }

    /// Ends at once. Its place in the queue stays, and everything that is not done is due again.
    pub fn stop(self) {
        self.task.abort();
        self.place.ledger(Ledger::lost);
    }
}

#[cfg(test)]
#[path = "../tests/inside/sender/tests.rs"]
mod tests;
