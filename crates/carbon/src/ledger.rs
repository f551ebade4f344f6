//! What one destination has not surely had: which batch goes next, and when one is done.
//!
//! **The one rule**: a batch is done when it has been written and the connection then lived for `resend_window`.
//! A loss of the connection makes everything written less than that before it due again. Some peers close idle
//! connections, so that a batch is written again at most [`MAX_RESENDS`] times for that; from then on 30 s of
//! peace are enough, or one more idle close: some close sooner. Any other loss begins that count anew: a port that accepts and
//! closes has taken nothing, however often, and a Carbon that was killed has forgotten what it took. Which is which the sender
//! tells. Nothing here knows the network, the disk, a batch's points or a clock: moments come as arguments.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How many connections may close idle after a batch, and it is still written again with the whole window to wait for.
const MAX_RESENDS: u32 = 5;
/// How long the connection must live after a batch was written again that often.
const PEACE: Duration = Duration::from_secs(30);
/// How long what is done may stay: looking through everything at every tick would be waste.
const SETTLE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Entry {
    timestamp: i64,
    /// Collected by this run of the daemon and never written: it goes before the backlog.
    fresh: bool,
    written: Option<Instant>,
    writes: u32,
    /// It cannot be had now: what else is due goes before it.
    put_off: bool,
    /// Connections in a row that it was written on, and that closed idle within the window.
    idle_closes: u32,
}

/// The batches of one destination, by their number in the queue.
#[derive(Debug)]
pub(crate) struct Ledger {
    resend_window: Duration,
    entries: BTreeMap<u64, Entry>,
    due: usize,
    settled: Option<Instant>,
}

/// A batch that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It had been written, and nothing has been heard to the contrary.
    Written,
    /// It was due: never written, or before its connection was lost.
    Unwritten,
}

impl Entry {
    const fn is_due(&self) -> bool {
        self.written.is_none()
    }

    fn is_done(&self, resend_window: Duration, now: Instant) -> bool {
        let window = if self.idle_closes >= MAX_RESENDS { resend_window.min(PEACE) } else { resend_window };
        self.written.is_some_and(|written| now.duration_since(written) >= window)
    }
}

impl Ledger {
    pub(crate) const fn new(resend_window: Duration) -> Self {
        Self { resend_window, entries: BTreeMap::new(), due: 0, settled: None }
    }

    /// A batch that was just collected.
    pub(crate) fn push(&mut self, batch: u64, timestamp: i64) {
        self.insert(batch, timestamp, true);
    }

    /// A batch that an earlier run of the daemon had collected, and may have written.
    pub(crate) fn restore(&mut self, batch: u64, timestamp: i64) {
        self.insert(batch, timestamp, false);
    }

    fn insert(&mut self, batch: u64, timestamp: i64, fresh: bool) {
        self.due += 1;
        self.entries.insert(
            batch,
            Entry { timestamp, fresh, written: None, writes: 0, put_off: false, idle_closes: 0 },
        );
    }

    /// The batch to write next: the newest if it was never written, else the oldest that is due, with whether it
    /// belongs to the backlog.
    pub(crate) fn next(&self) -> Option<(u64, bool)> {
        if self.due == 0 {
            return None;
        }
        let newest = self.entries.last_key_value().filter(|(_, entry)| entry.fresh && entry.writes == 0);
        match newest {
            Some((&batch, _)) => Some((batch, false)),
            None => {
                let due = || self.entries.iter().filter(|(_, entry)| entry.is_due());
                let next = due().find(|(_, entry)| !entry.put_off).or_else(|| due().next());
                next.map(|(&batch, _)| (batch, true))
            }
        }
    }

    /// The oldest due batch after `batch`, whatever is fresh.
    pub(crate) fn due_after(&self, batch: u64) -> Option<u64> {
        let after = self.entries.range(batch.saturating_add(1)..);
        after.filter(|(_, entry)| entry.is_due()).map(|(&batch, _)| batch).next()
    }

    /// Everything else that is due goes before `batch` from now on.
    pub(crate) fn put_off(&mut self, batch: u64) {
        if let Some(entry) = self.entries.get_mut(&batch) {
            entry.put_off = true;
        }
    }

    /// The whole batch has been written. Returns how often it has been now; `None` when it is no longer here.
    pub(crate) fn written(&mut self, batch: u64, now: Instant) -> Option<u32> {
        let entry = self.entries.get_mut(&batch)?;
        if entry.is_due() {
            self.due = self.due.saturating_sub(1);
        }
        (entry.written, entry.put_off) = (Some(now), false);
        entry.writes = entry.writes.saturating_add(1);
        Some(entry.writes)
    }

    /// The connection was lost, or the peer closed it `idle`: what was written less than the window before is due again.
    /// Returns what is done.
    pub(crate) fn lost(&mut self, now: Instant, idle: bool) -> Vec<u64> {
        let mut done = self.settle(now);
        for entry in self.entries.values_mut().filter(|entry| !entry.is_due()) {
            entry.idle_closes = if idle { entry.idle_closes.saturating_add(1) } else { 0 };
        }
        done.extend(self.take_if(|entry| !entry.is_due() && entry.idle_closes > MAX_RESENDS));
        self.entries.values_mut().for_each(|entry| entry.written = None);
        self.due = self.entries.len();
        done
    }

    /// The half-close barrier was passed: everything written is done, and returned.
    pub(crate) fn confirmed(&mut self) -> Vec<u64> {
        self.take_if(|entry| !entry.is_due())
    }

    /// What is done by `now`, where it is time to look.
    pub(crate) fn settle_sometimes(&mut self, now: Instant) -> Vec<u64> {
        if self.resend_window.is_zero()
            || self.settled.is_none_or(|last| now.duration_since(last) >= SETTLE_EVERY)
        {
            return self.settle(now);
        }
        Vec::new()
    }

    /// Lets go of what is done by `now`, and returns it.
    pub(crate) fn settle(&mut self, now: Instant) -> Vec<u64> {
        let resend_window = self.resend_window;
        self.settled = Some(now);
        self.take_if(|entry| entry.is_done(resend_window, now))
    }

    /// Another window from now on.
    pub(crate) const fn set_resend_window(&mut self, resend_window: Duration) {
        self.resend_window = resend_window;
    }

    /// Gives a batch up.
    pub(crate) fn remove(&mut self, batch: u64) -> Option<Removed> {
        let entry = self.entries.remove(&batch)?;
        if entry.is_due() {
            self.due = self.due.saturating_sub(1);
        }
        // One whose connection was lost is due again, and lost if it goes now.
        Some(if entry.is_due() { Removed::Unwritten } else { Removed::Written })
    }

    /// Batches that are due: never written, or to be written again.
    pub(crate) const fn due(&self) -> usize {
        self.due
    }

    /// The timestamp of the oldest batch that is due, Unix seconds.
    pub(crate) fn oldest_due(&self) -> Option<i64> {
        if self.due == 0 {
            return None;
        }
        self.entries.values().find(|entry| entry.is_due()).map(|entry| entry.timestamp)
    }

    /// Whether the batch is held.
    pub(crate) fn holds(&self, batch: u64) -> bool {
        self.entries.contains_key(&batch)
    }

    /// Whether the batch is held and due.
    pub(crate) fn is_due(&self, batch: u64) -> bool {
        self.entries.get(&batch).is_some_and(Entry::is_due)
    }

    /// Batches held: due, or written and not done.
    pub(crate) fn held(&self) -> usize {
        self.entries.len()
    }

    /// Every batch held, oldest first.
    pub(crate) fn batches(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.keys().copied()
    }

    fn take_if(&mut self, gone: impl Fn(&Entry) -> bool) -> Vec<u64> {
        let batches: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| gone(entry)).map(|(&batch, _)| batch).collect();
        for &batch in &batches {
            self.remove(batch);
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(600);

    fn ledger(batches: impl IntoIterator<Item = u64>) -> Ledger {
        let mut ledger = Ledger::new(WINDOW);
        batches.into_iter().for_each(|batch| ledger.push(batch, 1000 + batch.cast_signed()));
        ledger
    }

    /// Writes everything that is due, in the order it goes out.
    fn write_all(ledger: &mut Ledger, now: Instant) -> Vec<u64> {
        std::iter::from_fn(|| {
            let (batch, _) = ledger.next()?;
            ledger.written(batch, now);
            Some(batch)
        })
        .collect()
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_newest_goes_first_and_the_backlog_behind_it_oldest_first() {
        let mut ledger = ledger(1..=4);
        assert_eq!(ledger.oldest_due(), Some(1001));
        assert_eq!(ledger.next(), Some((4, false)));
        assert_eq!(write_all(&mut ledger, Instant::now()), [4, 1, 2, 3]);
        assert_eq!((ledger.due(), ledger.oldest_due(), ledger.held()), (0, None, 4));
    }

    #[test]
    fn what_an_earlier_run_had_kept_is_backlog() {
        let mut ledger = Ledger::new(WINDOW);
        (1..=3).for_each(|batch| ledger.restore(batch, 0));
        assert_eq!(ledger.next(), Some((1, true)));
        ledger.push(4, 0);
        assert_eq!(write_all(&mut ledger, Instant::now()), [4, 1, 2, 3]);
    }

    #[test]
    fn a_loss_makes_everything_written_within_the_window_due_again() {
        // carbon-cache ended 0.3 s after a write loses all of it, and every write had said OK.
        let (mut ledger, start) = (ledger([1]), Instant::now());
        write_all(&mut ledger, start);
        ledger.push(2, 0);
        write_all(&mut ledger, start + seconds(500));
        assert_eq!(ledger.lost(start + seconds(601), false), [1], "done");
        assert_eq!(write_all(&mut ledger, start + seconds(602)), [2]);
    }

    #[test]
    fn a_peer_that_closes_idle_connections_gets_each_batch_a_bounded_number_of_times() {
        // The second sooner than the peace that would be enough.
        for idle in [120, 20] {
            let (mut ledger, mut now) = (ledger([1]), Instant::now());
            let mut writes = 0;
            for _ in 0..50 {
                writes += write_all(&mut ledger, now).len();
                now += seconds(idle);
                ledger.lost(now, true);
            }
            assert_eq!(writes, 1 + MAX_RESENDS as usize, "after {idle} s");
        }
    }

    #[test]
    fn a_kill_between_idle_closes_begins_their_count_anew() {
        let (mut ledger, mut now) = (ledger([1]), Instant::now());
        for close in 1..=30 {
            assert_eq!(write_all(&mut ledger, now), [1]);
            now += seconds(120);
            // Every fifth is a kill.
            assert_eq!(ledger.lost(now, close % 5 != 0), [0; 0]);
        }
    }

    #[test]
    fn losses_that_are_no_idle_closes_never_make_a_batch_done_however_old_the_write() {
        let (mut ledger, mut now) = (ledger([1]), Instant::now());
        for _ in 0..8 {
            assert_eq!(write_all(&mut ledger, now), [1]);
            now += seconds(70);
            assert_eq!(ledger.lost(now, false), [0; 0]);
        }
    }

    #[test]
    fn a_port_that_closes_at_once_does_not_shorten_the_window_for_the_carbon_that_follows() {
        // A minute of accepting and closing, then one that takes everything, reads nothing for 40 s and is gone.
        let (mut ledger, mut now) = (ledger([1]), Instant::now());
        for _ in 0..20 {
            write_all(&mut ledger, now);
            now += seconds(3);
            ledger.lost(now, false);
        }
        write_all(&mut ledger, now);
        now += seconds(40);
        assert_eq!(ledger.lost(now, false), [0; 0]);
        assert_eq!(write_all(&mut ledger, now), [1]);
    }

    #[test]
    fn a_window_of_zero_means_that_writing_is_enough() {
        let (mut ledger, now) = (ledger([1]), Instant::now());
        ledger.set_resend_window(Duration::ZERO);
        write_all(&mut ledger, now);
        assert_eq!(ledger.settle_sometimes(now), [1]);
        assert_eq!(ledger.held(), 0);
    }

    #[test]
    fn a_passed_barrier_is_no_loss() {
        let (mut ledger, now) = (ledger([1]), Instant::now());
        write_all(&mut ledger, now);
        ledger.push(2, 0);
        assert_eq!(ledger.confirmed(), [1]);
        assert_eq!(write_all(&mut ledger, now), [2]);
    }

    #[test]
    fn what_was_never_written_is_told_from_what_may_have_arrived() {
        let mut ledger = ledger([1]);
        write_all(&mut ledger, Instant::now());
        ledger.push(2, 0);
        assert_eq!(
            [ledger.remove(1), ledger.remove(2), ledger.remove(3)],
            [Some(Removed::Written), Some(Removed::Unwritten), None]
        );
        assert_eq!((ledger.due(), ledger.held()), (0, 0));
    }

    #[test]
    fn what_a_lost_connection_had_written_counts_as_lost_when_it_is_dropped() {
        let (mut ledger, now) = (ledger([1]), Instant::now());
        write_all(&mut ledger, now);
        ledger.lost(now, false);
        assert_eq!(ledger.remove(1), Some(Removed::Unwritten));
    }

    #[test]
    fn what_is_done_is_let_go_while_ticks_come_in() {
        let (mut ledger, mut now) = (ledger([]), Instant::now());
        for batch in 0..5000 {
            ledger.push(batch, 0);
            write_all(&mut ledger, now);
            ledger.settle_sometimes(now);
            now += seconds(1);
        }
        assert!(ledger.held() <= 611, "{}", ledger.held());
    }
}
