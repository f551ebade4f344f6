//! One destination: a task that connects, writes what is due, and watches for the end of the connection.
//!
//! Whatever a destination does, it holds up nobody else: batches are handed over through its [`Queue`], which
//! takes them at once. The select loop only names what happened; what follows from it is done in one place each.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, error, info, warn};

use crate::backoff::Backoff;
use crate::connection::{Address, Connection, ConnectionError, Timeouts};
use crate::point::Batch;
use crate::queue::{Dropped, Limits, Queue};
use crate::wire::{Protocol, frames};

/// How long a connection must live after a write before the next failure starts with a short delay again. A port
/// that accepts and closes at once takes writes too, and must not be called at full speed.
const DELIVERED_AFTER: Duration = Duration::from_secs(1);

/// Where batches go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What it is called in logs and metrics.
    pub name: String,
    /// Looked up at every attempt.
    pub address: Address,
    /// What the peer reads.
    pub protocol: Protocol,
    /// Of the connection.
    pub timeouts: Timeouts,
    /// Of the queue.
    pub limits: Limits,
}

/// Where a destination stands. Counters run since the sender's start.
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
    /// Points that the queue's bounds have cost.
    pub dropped: Dropped,
    /// Batches that are due.
    pub due: usize,
    /// Timestamp of the oldest of them, Unix seconds.
    pub oldest_due: Option<i64>,
    /// Batches held: due, or written and not yet done.
    pub held: usize,
    /// Bytes held.
    pub bytes: usize,
}

/// What became of a destination's queue at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Batches that were never written, or must be written again.
    pub unsent: usize,
    /// Batches that were written, but not confirmed by the half-close barrier.
    pub unconfirmed: usize,
}

impl Drained {
    /// Whether everything was confirmed.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.unsent == 0 && self.unconfirmed == 0
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { unsent: 0, unconfirmed: 0 } => f.write_str("everything confirmed"),
            Self { unsent, unconfirmed } => {
                write!(f, "{unsent} ticks not sent, {unconfirmed} sent but not confirmed")
            }
        }
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
    state: Mutex<State>,
    pushed: Notify,
    draining: Notify,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    connected: bool,
    connects: u64,
    sent: u64,
    resent: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Counters and a queue stay whole whatever panicked while they were held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Starts the task; it connects at once, and for ever.
    #[must_use]
    pub fn start(destination: Destination) -> Self {
        let state = State {
            queue: Queue::new(destination.limits),
            connected: false,
            connects: 0,
            sent: 0,
            resent: 0,
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), pushed: Notify::new(), draining: Notify::new() });
        let task = tokio::spawn(run(destination, Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Hands a batch over; never waits.
    pub fn push(&self, batch: Arc<Batch>) {
        self.shared.state().queue.push(batch, Instant::now());
        self.shared.pushed.notify_one();
    }

    /// Where it stands now.
    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.shared.state();
        Status {
            connected: state.connected,
            connects: state.connects,
            sent: state.sent,
            resent: state.resent,
            dropped: state.queue.dropped(),
            due: state.queue.due(),
            oldest_due: state.queue.oldest_due(),
            held: state.queue.len(),
            bytes: state.queue.bytes(),
        }
    }

    /// Writes what is due, passes the half-close barrier, and ends: within `deadline`, or sooner where the
    /// destination cannot be reached.
    pub async fn drain(mut self, deadline: Duration) -> Drained {
        self.shared.draining.notify_one();
        let _ = tokio::time::timeout(deadline, &mut self.task).await;
        self.task.abort();
        let state = self.shared.state();
        let unsent = state.queue.due();
        Drained { unsent, unconfirmed: state.queue.len().saturating_sub(unsent) }
    }

    /// Ends at once and gives back what it still held, so that another sender can go on with it.
    #[must_use]
    pub fn stop(self) -> Vec<Arc<Batch>> {
        self.task.abort();
        self.shared.state().queue.take()
    }
}

/// Why a connection was left.
enum Left {
    Lost(ConnectionError),
    Draining,
}

async fn run(destination: Destination, shared: Arc<Shared>) {
    let name = &destination.name;
    let mut backoff = Backoff::default();
    let mut said_down = false;
    loop {
        let opened = tokio::select! {
            opened = Connection::open(&destination.address, destination.timeouts) => opened,
            () = shared.draining.notified() => return last_attempt(&destination, &shared).await,
        };
        let error = match opened {
            Ok(connection) => {
                {
                    let mut state = shared.state();
                    state.connected = true;
                    state.connects = state.connects.saturating_add(1);
                }
                if said_down {
                    debug!(destination = %name, "connected again");
                } else {
                    info!(destination = %name, "connected");
                }
                let mut delivered = Delivered::default();
                let left = serve(&destination, &shared, &connection, &mut delivered, &mut said_down).await;
                shared.state().connected = false;
                match left {
                    Left::Draining => return finish(&destination, &shared, connection).await,
                    Left::Lost(error) => {
                        let mut state = shared.state();
                        state.queue.lost(Instant::now());
                        if delivered.lived() {
                            backoff.reset();
                        }
                        error
                    }
                }
            }
            Err(error) => error,
        };
        let delay = backoff.next_delay();
        if said_down {
            debug!(destination = %name, %error, "still away; trying again in {delay:.1?}");
        } else {
            warn!(destination = %name, %error, due = shared.state().queue.due(), "away; ticks are kept, trying again");
            said_down = true;
        }
        tokio::select! {
            () = sleep(delay) => {}
            () = shared.draining.notified() => return last_attempt(&destination, &shared).await,
        }
    }
}

/// When the first batch of this connection had been written.
#[derive(Default)]
struct Delivered(Option<Instant>);

impl Delivered {
    fn lived(&self) -> bool {
        self.0.is_some_and(|written| written.elapsed() >= DELIVERED_AFTER)
    }
}

async fn serve(
    destination: &Destination,
    shared: &Shared,
    connection: &Connection,
    delivered: &mut Delivered,
    said_down: &mut bool,
) -> Left {
    loop {
        // Never cancelled half-way, not even to drain: the stream would be out of step.
        match write_due(destination, shared, connection).await {
            Ok(0) => {}
            Ok(_) => {
                delivered.0.get_or_insert_with(Instant::now);
            }
            Err(error) => return Left::Lost(error),
        }
        if *said_down && delivered.lived() {
            info!(destination = %destination.name, "back, and taking what was kept");
            *said_down = false;
        }
        tokio::select! {
            () = shared.pushed.notified() => {}
            error = connection.closed() => return Left::Lost(error),
            () = shared.draining.notified() => return Left::Draining,
        }
    }
}

/// Writes every batch that is due, whole frames only; returns how many.
async fn write_due(
    destination: &Destination,
    shared: &Shared,
    connection: &Connection,
) -> Result<usize, ConnectionError> {
    let mut written = 0;
    loop {
        let Some((place, batch)) = shared.state().queue.next() else { return Ok(written) };
        match frames(&batch, destination.protocol) {
            Ok(frames) => {
                for frame in frames {
                    connection.write(&frame).await?;
                }
            }
            // Left in the queue it would be tried for ever.
            Err(error) => error!(destination = %destination.name, %error, "a tick is given up"),
        }
        let points = u64::try_from(batch.points().len()).unwrap_or(u64::MAX);
        let mut state = shared.state();
        if state.queue.written(place, Instant::now()) {
            state.resent = state.resent.saturating_add(points);
        } else {
            state.sent = state.sent.saturating_add(points);
        }
        written += 1;
    }
}

/// The end with a connection: what is due goes out, then the barrier.
async fn finish(destination: &Destination, shared: &Shared, connection: Connection) {
    let confirmed = match write_due(destination, shared, &connection).await {
        Ok(_) => connection.barrier().await,
        Err(error) => Err(error),
    };
    match confirmed {
        Ok(()) => shared.state().queue.confirmed(),
        Err(error) => warn!(destination = %destination.name, %error, "the end is not confirmed"),
    }
}

/// The end without a connection: one attempt, where there is something to send.
async fn last_attempt(destination: &Destination, shared: &Shared) {
    if shared.state().queue.due() == 0 {
        return;
    }
    let deadline = Instant::now() + destination.timeouts.connect;
    match timeout_at(deadline, Connection::open(&destination.address, destination.timeouts)).await {
        Ok(Ok(connection)) => finish(destination, shared, connection).await,
        Ok(Err(error)) => warn!(destination = %destination.name, %error, "away at the end"),
        Err(_) => warn!(destination = %destination.name, "away at the end"),
    }
}
