//! One destination: its settings, the handle of its task, and the task's status.
//!
//! A destination never delays another, because each has its own handle on the queue. state.rs shows
//! all states.

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

/// One destination's task.
struct SenderTask {
    to: Destination,
    outbox: Outbox,
    state: State,
    /// The receiver that answered last was not Carbon.
    suspect: bool,
    drain: Drain,
    throttle: Throttle,
    idle_timer: IdleTimer,
    disk: DiskWaits,
    reconnects: Reconnects,
    logged: LoggedChanges,
}

/// The end of the task: when everything was read, or the connection is lost.
#[derive(Debug)]
struct Drain {
    requested: Arc<Notify>,
    is_on: bool,
    /// Moment until which it sends what is on disk.
    stored_until: Option<Instant>,
}

/// The facts that decide about the next connection.
#[derive(Debug, Default)]
struct Reconnects {
    backoff: Backoff,
    tried: LastTried,
    /// Connections that were opened.
    opened: u64,
    /// Connections in a row that were closed right after a write.
    closed_at_once: u32,
    /// Old connections in a row whose end proved nothing.
    ends_without_proof: u32,
    /// Moment at which a connection was last closed to make room for the next one.
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

/// A running destination.
#[derive(Debug)]
pub struct Sender {
    outbox: Outbox,
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

    /// Its status now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.outbox.status()
    }

    /// The reason why there was no connection last; `None` when ticks are sent again.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.outbox.last_error()
    }

    /// Writes what is due, asks whether the receiver has read it, and ends: within `deadline`, or
    /// sooner if the destination cannot be reached. Batches that were not read stay in the queue,
    /// and the next run sends them again.
    pub async fn drain(mut self, deadline: Duration) -> Status {
        self.draining.notify_one();
        let _ = timeout(deadline, &mut self.task).await;
        self.task.abort();
        self.status()
    }

    /// Ends at once. Its batches stay in the queue, and everything that is not done is due again.
    pub fn stop(self) {
        self.task.abort();
        self.outbox.note_loss();
    }
}

#[cfg(test)]
mod tests;
