//! One destination: its settings, its state as it is seen from outside, and the handle of its task.
//!
//! Whatever a destination does, it holds up nobody else: it has its own place in the queue. The task is in task.rs, its
//! connections are in renewal.rs.

mod renewal;
mod task;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::task::Task;
use crate::address::Address;
use crate::connection::{Connection, Stream, Timeouts};
use crate::queue::{Dropped, Place, Queue};
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

/// Where a destination stands. Counters run since the first start of its sender, over changes of its settings.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Whether a connection stands.
    pub connected: bool,
    /// Connections that were made after there was none.
    pub connects: u64,
    /// Connections that were renewed, and whose end proved that everything before it was read.
    pub renewals: u64,
    /// Points written, each counted once.
    pub sent: u64,
    /// Points written again after a loss.
    pub resent: u64,
    /// Points that the queue has lost.
    pub dropped: Dropped,
    /// Points written that could not be proved read before a loss, and that cannot be written again.
    pub unproved: u64,
    /// Whether nothing shows that the peer reads.
    pub in_doubt: bool,
    /// Bytes written that the peer's kernel has not acknowledged.
    pub unacked: u64,
    /// When a whole batch was last written, Unix seconds.
    pub last_delivery: Option<u64>,
    /// Batches that are due.
    pub due: usize,
    /// Timestamp of the oldest of them, Unix seconds.
    pub oldest_due: Option<i64>,
    /// Batches held: due, or written and not yet done.
    pub held: usize,
    /// Bytes held.
    pub bytes: usize,
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
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    place: Place,
    /// What the task counts; what is the queue's is filled in when it is asked for.
    counters: Mutex<Status>,
    draining: Notify,
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, Status> {
        // Counters stay whole whatever panicked while they were held.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Starts the task; it connects at once, and for ever.
    #[must_use]
    pub fn start(destination: Destination, queue: &Queue) -> Self {
        Self::go_on::<Connection>(destination, queue, Status::default())
    }

    fn go_on<C: Stream>(destination: Destination, queue: &Queue, counters: Status) -> Self {
        let place = queue.place(&destination.name);
        let counters = Mutex::new(counters);
        let shared = Arc::new(Shared { place, counters, draining: Notify::new() });
        let task = Task::new(destination, Arc::clone(&shared));
        Self { shared, task: tokio::spawn(task.run::<C>()) }
    }

    /// Where it stands now.
    #[must_use]
    pub fn status(&self) -> Status {
        let share = self.shared.place.share();
        let counters = self.shared.counters().clone();
        Status {
            dropped: share.dropped,
            unproved: share.unproved,
            due: share.due,
            oldest_due: share.oldest_due,
            held: share.held,
            bytes: share.bytes,
            ..counters
        }
    }

    /// Writes what is due, asks whether the receiver has read it, and ends: within `deadline`, or sooner where the
    /// destination cannot be reached. What was read stays in the queue: the next run sends it again.
    pub async fn drain(mut self, deadline: Duration) -> Drained {
        self.shared.draining.notify_one();
        let _ = timeout(deadline, &mut self.task).await;
        self.task.abort();
        let share = self.shared.place.share();
        Drained {
            unsent: share.due,
            unread: share.unread,
            oldest: share.oldest_due,
            unopened: share.unopened,
        }
    }

    /// Another task for the same destination under other settings: its place and its counters go on.
    #[must_use]
    pub fn change(self, destination: Destination, queue: &Queue) -> Self {
        let counters =
            Status { connected: false, in_doubt: false, unacked: 0, ..self.shared.counters().clone() };
        self.stop();
        Self::go_on::<Connection>(destination, queue, counters)
    }

    /// Ends at once. Its place in the queue stays, and everything that is not done is due again.
    pub fn stop(self) {
        self.task.abort();
        self.shared.place.lost();
    }
}

#[cfg(test)]
mod tests;
