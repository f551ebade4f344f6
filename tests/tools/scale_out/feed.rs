//! Ticks of 100,000 points through the daemon's own queue and sender.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use carbon::{Batch, Destination, Limits, Protocol, Queue, Sender, Status};
use sandbox::{GraphiteWeb, unix_seconds, wait};
use tokio::runtime::Handle;
use tokio::sync::Notify;

pub(crate) const POINTS: usize = 100_000;
/// Seconds between two ticks, and the stores' resolution.
pub(crate) const STEP: u64 = 10;

const PATIENCE: Duration = Duration::from_secs(900);

/// The runtime in which the sender works while this thread waits for other things.
pub(crate) struct Runtime {
    handle: Handle,
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(crate) fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let ended = Arc::clone(&end);
        let thread = std::thread::spawn(move || runtime.block_on(ended.notified()));
        Ok(Self { handle, end, thread: Some(thread) })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.end.notify_one();
        // A thread that panicked has already said so.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// A queue in memory, and its sender.
pub(crate) struct Feed {
    queue: Queue,
    sender: Sender,
    /// The timestamps of all ticks.
    pub(crate) ticks: Vec<u64>,
}

impl Feed {
    pub(crate) fn start(runtime: &Runtime, address: &str, protocol: Protocol) -> Result<Self> {
        let _inside = runtime.handle.enter();
        let limits = Limits {
            max_bytes: 2 << 30,
            max_age: Duration::from_secs(3600),
            resend_window: Duration::from_secs(600),
        };
        let queue = Queue::open(None, limits, &["scale".to_owned()]);
        let to = Destination::new("scale", address.parse()?);
        let destination = Destination { protocol, replay_rate: Some(u32::MAX), ..to };
        let sender = Sender::start(destination, &queue);
        Ok(Self { queue, sender, ticks: Vec::new() })
    }

    /// Waits for the next slot and puts its tick into the queue.
    pub(crate) fn push(&mut self) -> Result<()> {
        let last = self.ticks.last().copied().unwrap_or(0);
        let timestamp = wait::until_some("the next slot", PATIENCE, || {
            Some(unix_seconds() / STEP * STEP).filter(|slot| *slot > last)
        })?;
        let mut batch = Batch::new(i64::try_from(timestamp)?);
        let number = u32::try_from(self.ticks.len())? + 1;
        for point in 0..POINTS {
            batch.push_joined(
                &[&format!("cluster.scale.group{}.gauge-{point}", point % 100)],
                f64::from(number),
            );
        }
        self.ticks.push(timestamp);
        self.queue.push(&batch);
        Ok(())
    }

    /// Waits until nothing is due.
    pub(crate) fn sent(&self) -> Result<Status> {
        wait::until("a receiver of all that is due", PATIENCE, || self.sender.status().due() == 0)?;
        Ok(self.sender.status())
    }

    /// Waits until everything that could be lost with the relay has been sent again after its
    /// restart.
    pub(crate) fn resent(&self, connects: u64) -> Result<Status> {
        wait::until("the relay again", PATIENCE, || {
            let status = self.sender.status();
            status.connects > connects && status.due() == 0
        })?;
        Ok(self.sender.status())
    }

    pub(crate) fn status(&self) -> Status {
        self.sender.status()
    }
}

/// Checks that a graphite-web in front of three others has all series of some groups, and the
/// newest tick of each.
pub(crate) fn read_through(web: &GraphiteWeb, ticks: usize) -> Result<()> {
    for group in [0, 41, 99] {
        let target = format!("sumSeries(cluster.scale.group{group}.*)");
        let series = web.render(&target, "-10min")?;
        let sum = series.first().and_then(|one| one.values().next_back()).context("no series")?;
        let expected = 1000.0 * f64::from(u32::try_from(ticks)?);
        ensure!((sum - expected).abs() < 0.5, "{target} is {sum}, not {expected}");
    }
    Ok(())
}
