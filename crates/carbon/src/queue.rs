//! What one destination has not surely had: which batch goes next, and when one is done.
//!
//! **The one rule**: a batch is done when it has been written and the connection then lived for `resend_window`.
//! A loss of the connection makes everything written less than that before it due again. Some peers close idle
//! connections, so that a batch is written again at most [`MAX_RESENDS`] times for that; from then on 30 s of
//! peace are enough. Nothing here knows the network, the disk or a clock: moments come as arguments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::point::Batch;

/// How often a batch is written again with the whole window to wait for.
const MAX_RESENDS: u32 = 5;
/// How long the connection must live after a batch was written again that often.
const PEACE: Duration = Duration::from_secs(30);
/// How long what is done may stay: looking through the whole queue at every tick would be waste.
const SETTLE_EVERY: Duration = Duration::from_secs(10);

/// The bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory; the oldest batch goes first.
    pub max_bytes: usize,
    /// Age of a batch; older ones would overwrite what Carbon has already rolled up.
    pub max_age: Duration,
    /// How long a connection must live after a batch was written; zero: writing is enough.
    pub resend_window: Duration,
}

/// How many points the bounds have cost, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// `max_bytes` was reached.
    pub full: u64,
    /// Older than `max_age`.
    pub age: u64,
}

#[derive(Debug)]
struct Entry {
    batch: Arc<Batch>,
    pushed: Instant,
    written: Option<Instant>,
    writes: u32,
}

/// The batches of one destination, by their place in the order they came in.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    entries: BTreeMap<u64, Entry>,
    next_place: u64,
    due: usize,
    bytes: usize,
    dropped: Dropped,
    settled: Option<Instant>,
}

impl Entry {
    const fn is_due(&self) -> bool {
        self.written.is_none()
    }

    fn is_done(&self, resend_window: Duration, now: Instant) -> bool {
        let window = if self.writes > MAX_RESENDS { resend_window.min(PEACE) } else { resend_window };
        self.written.is_some_and(|written| now.duration_since(written) >= window)
    }
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            next_place: 0,
            due: 0,
            bytes: 0,
            dropped: Dropped { full: 0, age: 0 },
            settled: None,
        }
    }

    /// Takes a batch in; the bounds may cost the oldest.
    pub fn push(&mut self, batch: Arc<Batch>, now: Instant) {
        if self.settled.is_none_or(|settled| now.duration_since(settled) >= SETTLE_EVERY) {
            self.settle(now);
        }
        self.bytes = self.bytes.saturating_add(batch.bytes());
        self.due += 1;
        self.entries.insert(self.next_place, Entry { batch, pushed: now, written: None, writes: 0 });
        self.next_place = self.next_place.saturating_add(1);
        if self.bytes > self.limits.max_bytes {
            self.settle(now);
        }
        while self.bytes > self.limits.max_bytes {
            let Some(&oldest) = self.entries.keys().next() else { break };
            if let Some(entry) = self.remove(oldest) {
                self.dropped.full += lost_points(&entry);
            }
        }
    }

    /// The batch to write next: the newest if it was never written, else the oldest that is due.
    #[must_use]
    pub fn next(&self) -> Option<(u64, Arc<Batch>)> {
        if self.due == 0 {
            return None;
        }
        let newest = self.entries.last_key_value().filter(|(_, entry)| entry.writes == 0);
        newest
            .or_else(|| self.entries.iter().find(|(_, entry)| entry.is_due()))
            .map(|(&place, entry)| (place, Arc::clone(&entry.batch)))
    }

    /// The whole batch at `place` has been written. Returns whether it had been before.
    pub fn written(&mut self, place: u64, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&place) else { return false };
        if entry.is_due() {
            self.due = self.due.saturating_sub(1);
        }
        entry.written = Some(now);
        entry.writes = entry.writes.saturating_add(1);
        let again = entry.writes > 1;
        if entry.is_done(self.limits.resend_window, now) {
            self.remove(place);
        }
        again
    }

    /// The connection was lost: what was written less than the window before is due again.
    pub fn lost(&mut self, now: Instant) {
        self.settle(now);
        for entry in self.entries.values_mut() {
            entry.written = None;
        }
        self.due = self.entries.len();
    }

    /// The half-close barrier was passed: everything written is done.
    pub fn confirmed(&mut self) {
        self.remove_if(|entry| !entry.is_due());
    }

    /// Lets go of what is done, and of what is too old.
    pub fn settle(&mut self, now: Instant) {
        let Limits { resend_window, max_age, .. } = self.limits;
        self.settled = Some(now);
        self.remove_if(|entry| entry.is_done(resend_window, now));
        let old = self.remove_if(|entry| now.duration_since(entry.pushed) > max_age);
        self.dropped.age += old.iter().map(lost_points).sum::<u64>();
    }

    /// Other bounds from now on.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Batches that are due: never written, or to be written again.
    #[must_use]
    pub const fn due(&self) -> usize {
        self.due
    }

    /// The timestamp of the oldest batch that is due, Unix seconds.
    #[must_use]
    pub fn oldest_due(&self) -> Option<i64> {
        if self.due == 0 {
            return None;
        }
        self.entries.values().find(|entry| entry.is_due()).map(|entry| entry.batch.timestamp())
    }

    /// Batches held: due, or written and not done.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the bounds have cost so far.
    #[must_use]
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Everything held, oldest first; the queue is empty afterwards.
    pub fn take(&mut self) -> Vec<Arc<Batch>> {
        (self.due, self.bytes) = (0, 0);
        std::mem::take(&mut self.entries).into_values().map(|entry| entry.batch).collect()
    }

    fn remove(&mut self, place: u64) -> Option<Entry> {
        let entry = self.entries.remove(&place)?;
        self.bytes = self.bytes.saturating_sub(entry.batch.bytes());
        if entry.is_due() {
            self.due = self.due.saturating_sub(1);
        }
        Some(entry)
    }

    fn remove_if(&mut self, gone: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let places: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| gone(entry)).map(|(&place, _)| place).collect();
        places.into_iter().filter_map(|place| self.remove(place)).collect()
    }
}

/// What the destination surely never had: a batch that was written and waits for its peace may have arrived.
fn lost_points(entry: &Entry) -> u64 {
    if entry.writes > 0 { 0 } else { u64::try_from(entry.batch.points().len()).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_bytes: 1 << 20,
        max_age: Duration::from_secs(12 * 3600),
        resend_window: Duration::from_secs(600),
    };

    fn batch(timestamp: i64) -> Arc<Batch> {
        let mut batch = Batch::new(timestamp);
        batch.push("cluster.test.gauge-x".into(), 1.0);
        Arc::new(batch)
    }

    /// Writes everything that is due; the timestamps in the order they went out.
    fn write_all(queue: &mut Queue, now: Instant) -> Vec<i64> {
        std::iter::from_fn(|| {
            let (place, batch) = queue.next()?;
            queue.written(place, now);
            Some(batch.timestamp())
        })
        .collect()
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_newest_goes_first_and_the_backlog_behind_it_oldest_first() {
        let (mut queue, now) = (Queue::new(LIMITS), Instant::now());
        for timestamp in [1, 2, 3, 4] {
            queue.push(batch(timestamp), now);
        }
        assert_eq!(queue.oldest_due(), Some(1));
        assert_eq!(write_all(&mut queue, now), [4, 1, 2, 3]);
        assert_eq!((queue.due(), queue.oldest_due(), queue.len()), (0, None, 4));
    }

    #[test]
    fn a_loss_makes_everything_written_within_the_window_due_again() {
        // carbon-cache ended 0.3 s after a write loses all of it, and every write had said OK.
        let (mut queue, start) = (Queue::new(LIMITS), Instant::now());
        queue.push(batch(1), start);
        write_all(&mut queue, start);
        queue.push(batch(2), start + seconds(500));
        write_all(&mut queue, start + seconds(500));
        queue.lost(start + seconds(601));
        assert_eq!(write_all(&mut queue, start + seconds(602)), [2]);
    }

    #[test]
    fn a_peer_that_closes_idle_connections_gets_each_batch_a_bounded_number_of_times() {
        let (mut queue, mut now) = (Queue::new(LIMITS), Instant::now());
        queue.push(batch(1), now);
        let mut writes = 0;
        for _ in 0..50 {
            writes += write_all(&mut queue, now).len();
            now += seconds(120);
            queue.lost(now);
        }
        assert_eq!(writes, 1 + MAX_RESENDS as usize);
    }

    #[test]
    fn a_window_of_zero_means_that_writing_is_enough() {
        let (mut queue, now) =
            (Queue::new(Limits { resend_window: Duration::ZERO, ..LIMITS }), Instant::now());
        queue.push(batch(1), now);
        write_all(&mut queue, now);
        assert!(queue.is_empty());
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn a_passed_barrier_is_no_loss() {
        let (mut queue, now) = (Queue::new(LIMITS), Instant::now());
        queue.push(batch(1), now);
        write_all(&mut queue, now);
        queue.push(batch(2), now);
        queue.confirmed();
        assert_eq!(write_all(&mut queue, now), [2]);
    }

    #[test]
    fn the_oldest_is_dropped_and_counted_when_the_queue_is_full() {
        let max_bytes = batch(0).bytes() * 3;
        let (mut queue, now) = (Queue::new(Limits { max_bytes, ..LIMITS }), Instant::now());
        for timestamp in 1..=5 {
            queue.push(batch(timestamp), now);
        }
        assert_eq!(queue.dropped(), Dropped { full: 2, age: 0 });
        assert_eq!(write_all(&mut queue, now), [5, 3, 4]);
        // What was written makes room without being counted as lost.
        queue.push(batch(6), now);
        assert_eq!(queue.dropped().full, 2);
    }

    #[test]
    fn what_is_older_than_the_finest_archive_is_dropped_and_counted() {
        let (mut queue, start) = (Queue::new(LIMITS), Instant::now());
        queue.push(batch(1), start);
        queue.settle(start + LIMITS.max_age + seconds(1));
        assert_eq!((queue.dropped(), queue.due(), queue.bytes()), (Dropped { full: 0, age: 1 }, 0, 0));
    }

    #[test]
    fn what_is_done_is_let_go_while_ticks_come_in() {
        let (mut queue, mut now) = (Queue::new(LIMITS), Instant::now());
        for timestamp in 0..5000 {
            queue.push(batch(timestamp), now);
            write_all(&mut queue, now);
            now += seconds(1);
        }
        assert!(queue.len() <= 611, "{}", queue.len());
    }
}
