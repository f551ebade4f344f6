//! One destination: its settings, and the handle of its task.
//!
//! Whatever a destination does, it holds up nobody else: it has its own place in the queue. The task is in task.rs, its
//! connections are in renewal.rs.

mod renewal;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::task::Task;
use crate::address::Address;
use crate::connection::{Connection, Stream, Timeouts};
use crate::ledger::Ledger;
use crate::queue::{Place, Queue, Status};
use crate::wire::Protocol;

/// Where batches go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What it is called in logs and metrics, and where its place in the queue is kept.
    pub name: String,
    /// Looked up when a connection is lost or cannot be made.
    pub address: Address,
    /// What the peer reads.
    pub protocol: Protocol,
    /// Of the connection.
    pub timeouts: Timeouts,
    /// Points a second that resends and backlog may take; `None`: the larger of 5,000 and ten times the live rate.
    pub replay_rate: Option<u32>,
    /// The name is looked up again at this age, for load balancers; `None`: only after a failed connection.
    pub reconnect_every: Option<Duration>,
}

/// What became of a destination's share at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Ticks that were never written, or must be written again.
    pub unsent: usize,
    /// Ticks that were written, and nothing proves that the receiver has read them.
    pub unread: usize,
    /// The timestamp of the oldest unsent one, Unix seconds.
    pub oldest: Option<i64>,
    /// The queue's file has not been opened: what an earlier run has kept stays in it, and is not counted here.
    pub unopened: bool,
}

impl Drained {
    /// Whether the receiver has read everything. Whether it has stored it, nobody knows.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.unsent == 0 && self.unread == 0 && !self.unopened
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { unsent: 0, unread: 0, .. } => f.write_str("every tick was read by the receiver")?,
            Self { unsent, unread, .. } => {
                write!(f, "{unsent} ticks not sent, {unread} sent but not known to be read")?;
            }
        }
        if self.unopened {
            f.write_str("; the queue's file was not opened, and keeps what an earlier run left")?;
        }
        Ok(())
    }
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
        Self::start_on::<Connection>(destination, queue)
    }

    fn start_on<C: Stream>(destination: Destination, queue: &Queue) -> Self {
        let (place, draining) = (queue.place(&destination.name), Arc::new(Notify::new()));
        place.count(|status| (status.connected, status.in_doubt, status.unacked) = (false, false, 0));
        let task = Task::new(destination, place.clone(), Arc::clone(&draining));
        Self { place, draining, task: tokio::spawn(task.run::<C>()) }
    }

    /// Where it stands now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.place.status()
    }

    /// Writes what is due, asks whether the receiver has read it, and ends: within `deadline`, or sooner where the
    /// destination cannot be reached. What was read stays in the queue: the next run sends it again.
    pub async fn drain(mut self, deadline: Duration) -> Drained {
        self.draining.notify_one();
        let _ = timeout(deadline, &mut self.task).await;
        self.task.abort();
        let Status { due, unread, oldest_due, unopened, .. } = self.status();
        Drained { unsent: due, unread, oldest: oldest_due, unopened }
    }

    /// Ends at once. Its place in the queue stays, and everything that is not done is due again.
    pub fn stop(self) {
        self.task.abort();
        self.place.ledger(Ledger::lost);
    }
}

#[cfg(test)]
mod tests;
