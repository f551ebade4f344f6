//! One destination: its settings, its state as it is seen from outside, and the handle of its task.
//!
//! Whatever a destination does, it holds up nobody else: it has its own place in the queue. The task is in link.rs,
//! which ends of a connection count as idle in idle.rs.

mod idle;
mod link;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::link::Link;
use crate::address::Address;
use crate::connection::Timeouts;
use crate::queue::{Dropped, Place, Queue};
use crate::wire::Protocol;

/// Where batches go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What it is called in logs and metrics, and where its place in the queue is kept.
    pub name: String,
    /// Looked up at every attempt.
    pub address: Address,
    /// What the peer reads.
    pub protocol: Protocol,
    /// Of the connection.
    pub timeouts: Timeouts,
    /// Points a second that resends and backlog may take; `None`: the larger of 5,000 and ten times the live rate.
    pub replay_rate: Option<u32>,
    /// A connection is renewed at this age, for load balancers; `None`: never.
    pub reconnect_every: Option<Duration>,
    /// Where a point that Carbon cannot take is put aside; `None`: only in the log.
    pub poison_file: Option<PathBuf>,
}

/// Where a destination stands. Counters run since the first start of its sender, over changes of its settings.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Whether a connection stands.
    pub connected: bool,
    /// Connections that were made.
    pub connects: u64,
    /// Points written, each counted once.
    pub sent: u64,
    /// Points written again after a loss.
    pub resent: u64,
    /// Points that the queue has lost.
    pub dropped: Dropped,
    /// Points put aside because Carbon cannot take them.
    pub poisoned: u64,
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
    /// Batches that were never written, or must be written again.
    pub unsent: usize,
    /// Batches that were written, but not confirmed by the half-close barrier.
    pub unconfirmed: usize,
    /// The timestamp of the oldest unsent one, Unix seconds.
    pub oldest: Option<i64>,
    /// The queue's file has not been read: what an earlier run has kept stays in it, and is not counted here.
    pub unread: bool,
}

impl Drained {
    /// Whether everything was confirmed.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.unsent == 0 && self.unconfirmed == 0 && !self.unread
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { unsent: 0, unconfirmed: 0, unread: false, .. } => f.write_str("everything confirmed")?,
            Self { unsent: 0, unconfirmed: 0, .. } => f.write_str("everything of this run confirmed")?,
            Self { unsent, unconfirmed, .. } => {
                write!(f, "{unsent} ticks not sent, {unconfirmed} sent but not confirmed")?;
            }
        }
        if self.unread {
            f.write_str("; what an earlier run has kept has not been read")?;
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
    counters: Mutex<Counters>,
    draining: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    connected: bool,
    connects: u64,
    sent: u64,
    resent: u64,
    poisoned: u64,
    unacked: u64,
    last_delivery: Option<u64>,
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        // Counters stay whole whatever panicked while they were held.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Starts the task; it connects at once, and for ever.
    #[must_use]
    pub fn start(destination: Destination, queue: &Queue) -> Self {
        Self::go_on(destination, queue, Counters::default())
    }

    fn go_on(destination: Destination, queue: &Queue, counters: Counters) -> Self {
        let place = queue.place(&destination.name);
        let counters = Mutex::new(counters);
        let shared = Arc::new(Shared { place, counters, draining: Notify::new() });
        let link = Link::new(destination, Arc::clone(&shared));
        Self { shared, task: tokio::spawn(link.run()) }
    }

    /// Where it stands now.
    #[must_use]
    pub fn status(&self) -> Status {
        let share = self.shared.place.share();
        let counters = self.shared.counters();
        Status {
            connected: counters.connected,
            connects: counters.connects,
            sent: counters.sent,
            resent: counters.resent,
            poisoned: counters.poisoned,
            unacked: counters.unacked,
            last_delivery: counters.last_delivery,
            dropped: share.dropped,
            due: share.due,
            oldest_due: share.oldest_due,
            held: share.held,
            bytes: share.bytes,
        }
    }

    /// Writes what is due, passes the half-close barrier, and ends: within `deadline`, or sooner where the
    /// destination cannot be reached.
    pub async fn drain(mut self, deadline: Duration) -> Drained {
        self.shared.draining.notify_one();
        let _ = timeout(deadline, &mut self.task).await;
        self.task.abort();
        let share = self.shared.place.share();
        Drained {
            unsent: share.due,
            unconfirmed: share.held.saturating_sub(share.due),
            oldest: share.oldest_due,
            unread: share.unread,
        }
    }

    /// Another task for the same destination under other settings: its place and its counters go on.
    #[must_use]
    pub fn change(self, destination: Destination, queue: &Queue) -> Self {
        let counters = Counters { connected: false, unacked: 0, ..*self.shared.counters() };
        self.stop();
        Self::go_on(destination, queue, counters)
    }

    /// Ends at once. Its place in the queue stays, and what it had written lately is due again.
    pub fn stop(self) {
        self.task.abort();
        // Our own close tells nothing of the peer.
        self.shared.place.lost(false);
    }
}
