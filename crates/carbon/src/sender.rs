//! The task of one destination, which writes batches to its receiver, and the handle of that task.
//!
//! A destination never delays another, because each has a task and a handle on the queue of its
//! own. sender/state.rs shows all states.

mod disk;
mod log_lines;
mod path;
mod renewal;
mod state;
mod task;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use self::disk::DiskWaits;
use self::log_lines::LoggedChanges;
use self::state::{Link, State};
use crate::backoff::Backoff;
use crate::connection::{Connection, LastTried, Stream};
use crate::destination::Destination;
use crate::idle::IdleTimer;
use crate::queue::{Outbox, Queue, Status};
use crate::throttle::Throttle;
#[cfg(feature = "tls")]
use crate::tls_connection::TlsConnection;

/// The task that sends batches to one destination.
struct SenderTask {
    to: Destination,
    outbox: Outbox,
    state: State,
    /// Whether the receiver is suspect: what answered last was not Carbon.
    suspect: bool,
    drain: Drain,
    throttle: Throttle,
    idle_timer: IdleTimer,
    disk: DiskWaits,
    reconnects: Reconnects,
    logged: LoggedChanges,
}

/// The drain of a sender: it ends the task when everything was read, or when the connection is
/// lost.
#[derive(Debug)]
struct Drain {
    requested: Arc<Notify>,
    is_on: bool,
    /// Moment until which a drain sends batches that are on disk; `None` until it looks for the
    /// first one.
    stored_until: Option<Instant>,
}

/// Facts about earlier connections to a destination. They decide when and where the next one is
/// opened.
#[derive(Debug, Default)]
struct Reconnects {
    backoff: Backoff,
    tried: LastTried,
    /// The number of the newest connection. The first has 1; 0 means that there was none.
    opened: u64,
    /// The number of connections in a row that ended right after a write.
    closed_at_once: u32,
    /// The number of half-closed connections in a row whose end did not prove that the receiver has
    /// read everything.
    ends_without_proof: u32,
    /// Moment at which the sender last closed its only connection, or warned, because for a long
    /// time no second one could be opened.
    gave_way: Option<Instant>,
}

impl Reconnects {
    fn number_link<C>(&mut self, stream: C) -> Link<C> {
        self.opened += 1;
        Link {
            stream: Arc::new(stream),
            number: self.opened,
            since: Instant::now(),
            last_write: None,
        }
    }
}

/// The handle of a running destination: it shows the status, and ends the task.
#[derive(Debug)]
pub struct Sender {
    outbox: Outbox,
    draining: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Sender {
    /// Starts the task that sends the queue's batches to `destination`. It connects at once, and
    /// again after each loss.
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
        let outbox = queue.outbox(&destination.name);
        outbox.update_status(|status| {
            status.connected = false;
            status.in_doubt = false;
            status.not_carbon = false;
            status.unacked = 0;
        });
        outbox.change_ledger(|ledger| ledger.write_by_time(destination.by_time));
        let draining = Arc::new(Notify::new());
        let task = SenderTask {
            outbox: outbox.clone(),
            state: State::Connecting,
            suspect: false,
            drain: Drain { requested: Arc::clone(&draining), is_on: false, stored_until: None },
            throttle: Throttle::new(destination.replay_rate, destination.by_time),
            idle_timer: IdleTimer::default(),
            disk: DiskWaits::new(destination.timeouts.pause),
            reconnects: Reconnects::default(),
            logged: LoggedChanges::default(),
            to: destination,
        };
        Self { outbox, draining, task: tokio::spawn(task.run::<C>()) }
    }

    /// The destination's status now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.outbox.status()
    }

    /// The last reason why there was no connection. `None`: there is none, or the present
    /// connection has carried a tick for a second.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.outbox.last_error()
    }

    /// Writes what is due, asks whether the receiver has read it, and ends the task: within
    /// `deadline`, or sooner if the destination cannot be reached. Batches that were not read stay
    /// in the queue, and the next run sends them again.
    pub async fn drain(mut self, deadline: Duration) -> Status {
        self.draining.notify_one();
        let _ = timeout(deadline, &mut self.task).await;
        self.task.abort();
        self.status()
    }

    /// Ends the task at once. The destination's batches stay in the queue, and all that are not
    /// done are due again.
    pub fn stop(self) {
        self.task.abort();
        self.outbox.note_loss();
    }
}

#[cfg(test)]
mod tests;
