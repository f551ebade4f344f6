//! Nothing older than `max_age` is written, whatever the clocks do: a simulation with a true time
//! of its own.

use std::collections::BTreeSet;

use super::*;
use crate::clock::tests::set as set_clock;

const MAX_AGE: i64 = 3600;
const DAY: i64 = 86_400;
const NOW: i64 = 2_000_000_000;
const YEARS: i64 = 10 * 365 * DAY;
/// Seconds that a pause of a virtual machine may hide.
const UNSEEN: i64 = 60;

/// A tick as the simulation knows it.
struct Tick {
    collected: i64,
    timestamp: i64,
    pushed: Moment,
    /// The start of the host, if the daemon knew which one it was.
    boot: Option<i64>,
}

struct World {
    random: fastrand::Rng,
    /// True time, seconds; when the host was started, and for how long it has been paused since.
    now: i64,
    started: i64,
    paused: i64,
    /// Seconds that its wall clock is wrong, and until when.
    error: i64,
    wrong_until: i64,
    knows_boot: bool,
    ticks: BTreeMap<u64, Tick>,
    written: BTreeSet<u64>,
    dropped: u64,
    held_back: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self {
            random,
            now: NOW,
            started: NOW - 1000,
            paused: 0,
            error: 0,
            wrong_until: 0,
            knows_boot: true,
            ticks: BTreeMap::new(),
            written: BTreeSet::new(),
            dropped: 0,
            held_back: 0,
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())]
    }

    fn moment(&self) -> Moment {
        let error = if self.now < self.wrong_until { self.error } else { 0 };
        let boot = Duration::from_secs((self.now - self.started - self.paused).cast_unsigned());
        Moment { boot, wall: self.now + error }
    }

    fn set_wrong(&mut self, error: i64) {
        self.error = error;
        // Sooner right than trusted.
        self.wrong_until = self.now + self.random.i64(0..540);
    }

    /// The daemon is stopped for some time, and perhaps its host too.
    fn stop(&mut self) {
        let stopped_for =
            self.pick(&[1, 60, MAX_AGE / 2, MAX_AGE - 60, MAX_AGE + 60, 26 * 3600, 5 * DAY]);
        self.now += stopped_for;
        self.knows_boot = self.random.bool();
        if self.random.bool() {
            (self.started, self.paused) = (self.now, 0);
            let error = self.pick(&[0, -YEARS, YEARS, -stopped_for]);
            self.set_wrong(error);
        }
    }

    /// The daemon's next run, with what the queue has kept.
    fn run(&mut self, kept: &BTreeSet<u64>, window: Duration, steps: usize) -> BTreeSet<u64> {
        set_clock(Some(self.moment()));
        let max_age = Duration::from_secs(MAX_AGE.cast_unsigned());
        let limits = Limits { max_age, resend_window: window, ..limits() };
        let queue = Queue::open(None, limits, &NAMES.map(str::to_owned));
        queue.shared.state().next_id = self.ticks.keys().last().map_or(1, |last| last + 1);
        let (now, knows_boot) = (self.started, self.knows_boot);
        let summary = |id: &u64| {
            let Tick { timestamp, pushed, boot, .. } = self.ticks[id];
            let pushed = Some(pushed).filter(|_| knows_boot && boot == Some(now));
            (*id, Summary { timestamp, pushed, points: 1, bytes: 1 })
        };
        let batches = kept.iter().map(summary).collect();
        let due = kept.iter().map(|&id| (Arc::from("a"), id)).collect();
        queue.shared.state().apply(Event::Opened(Restored { batches, due, ..Restored::default() }));
        let outbox = queue.outbox("a");
        let mut is_up = self.random.bool();
        for _ in 0..steps {
            self.now += 1;
            match self.random.u8(..) {
                0 => {
                    let paused = self.pick(&[UNSEEN / 2, 600, 3 * DAY]);
                    (self.now, self.paused) = (self.now + paused, self.paused + paused);
                }
                1 => {
                    let error = self.pick(&[-YEARS, YEARS, -120]);
                    self.set_wrong(error);
                }
                2..12 => is_up = !is_up,
                12..20 => outbox.note_loss(),
                _ => {}
            }
            let pushed = self.moment();
            set_clock(Some(pushed));
            let id = queue.shared.state().next_id;
            queue.push(&batch(pushed.wall));
            let boot = Some(self.started).filter(|_| self.knows_boot);
            self.ticks
                .insert(id, Tick { collected: self.now, timestamp: pushed.wall, pushed, boot });
            self.held_back = self.held_back.max(outbox.status().held_back);
            self.now += self.random.i64(0..59);
            set_clock(Some(self.moment()));
            while is_up && let Some(due) = outbox.next_due(DueFilter::All) {
                let age = self.now - self.ticks[&due.id].collected;
                assert!(
                    age <= MAX_AGE + UNSEEN,
                    "a tick was written {age} s after it was collected"
                );
                outbox.change_ledger(|ledger| ledger.note_written(due.id, 1));
                self.written.insert(due.id);
            }
        }
        self.dropped += outbox.status().dropped.age;
        let state = queue.shared.state();
        state
            .batches
            .keys()
            .copied()
            .filter(|id| state.destinations["a"].ledger.holds(*id))
            .collect()
    }
}

/// A start after a long stop sent what was older than Carbon's finest archive: single ticks
/// overwrote its roll-ups.
#[test]
fn nothing_older_than_max_age_is_written_whatever_the_clocks_do_and_nothing_goes_uncounted() {
    let (mut held_back, mut dropped, mut written) = (0, 0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        let window = world.pick(&[Duration::ZERO, Duration::from_secs(600)]);
        let mut kept = BTreeSet::new();
        for _ in 0..5 {
            let steps = world.random.usize(1..150);
            kept = world.run(&kept, window, steps);
            world.stop();
        }
        let lost = |world: &World, kept: &BTreeSet<u64>| {
            let is_lost = |id: &&u64| !world.written.contains(id) && !kept.contains(id);
            world.ticks.keys().filter(is_lost).count() as u64
        };
        let counted = lost(&world, &kept);
        assert!(
            world.dropped >= counted,
            "seed {seed}: {counted} ticks are gone, {} counted",
            world.dropped
        );
        assert!(world.dropped == counted || !window.is_zero(), "seed {seed}: counted twice");
        (held_back, dropped) = (held_back + world.held_back, dropped + world.dropped);
        written += world.written.len();
    }
    set_clock(None);
    assert!(
        held_back > 1000 && dropped > 1000 && written > 10_000,
        "{held_back}, {dropped}, {written}"
    );
}

/// A queue that has found ticks of an earlier boot with these timestamps, at that time of day.
fn after_a_reboot(timestamps: &[i64], wall: i64) -> Queue {
    set_clock(Some(Moment { boot: Duration::ZERO, wall }));
    let max_age = Duration::from_secs(MAX_AGE.cast_unsigned());
    let queue = Queue::open(None, Limits { max_age, ..limits() }, &NAMES.map(str::to_owned));
    let summary = |&timestamp| Summary { timestamp, pushed: None, points: 1, bytes: 1 };
    let batches: BTreeMap<u64, _> = (1..).zip(timestamps.iter().map(summary)).collect();
    let due = batches.keys().map(|&id| (Arc::from("a"), id)).collect();
    queue.shared.state().apply(Event::Opened(Restored { batches, due, ..Restored::default() }));
    queue
}

/// Sets the clocks to so many minutes after the start and this time of day. Returns the numbers of
/// ticks that are due, held back and dropped.
fn look(queue: &Queue, minutes: u64, wall: i64) -> (u64, u64, u64) {
    let now = Moment { boot: Duration::from_secs(60 * minutes), wall };
    set_clock(Some(now));
    queue.shared.state().expire(now);
    let status = queue.outbox("a").status();
    (status.due(), status.held_back, status.dropped.age)
}

#[test]
fn a_tick_of_unknown_age_is_neither_due_nor_waited_for_until_the_clock_is_trusted() {
    let queue = after_a_reboot(&[NOW - 2 * MAX_AGE, NOW - 600], NOW);
    assert_eq!(look(&queue, 9, NOW + 540), (0, 2, 0));
    let (outbox, status) = (queue.outbox("a"), queue.outbox("a").status());
    assert!(outbox.next_due(DueFilter::All).is_none());
    assert_eq!((status.waits_since, status.oldest_unsent, status.unsent.ticks), (None, None, 2));
    assert!(!status.is_complete());
    assert_eq!(look(&queue, 10, NOW + 600), (1, 0, 1));
    assert_eq!(outbox.next_due(DueFilter::All).unwrap().id, 2);
    set_clock(None);
}

/// One such tick kept all others of earlier runs for a year.
#[test]
fn a_tick_of_a_clock_that_was_a_year_ahead_is_dropped_and_holds_nobody_up() {
    let queue = after_a_reboot(&[NOW - 90, NOW - 60, NOW + 365 * DAY], NOW);
    assert_eq!(look(&queue, 0, NOW), (0, 3, 0));
    assert_eq!(look(&queue, 10, NOW + 600), (2, 0, 1));
    set_clock(None);
}

/// A host without a network may show 1970 for hours. Twelve hours of ticks would be lost.
#[test]
fn a_clock_that_is_behind_nearly_all_ticks_is_not_trusted_until_they_are_too_old_for_certain() {
    let queue = after_a_reboot(&[NOW - 60, NOW - 30, 1000], 0);
    assert_eq!(look(&queue, 30, 1800), (0, 3, 0));
    assert_eq!(look(&queue, 31, NOW + 1000), (0, 3, 0));
    assert_eq!(look(&queue, 41, NOW + 1600), (2, 0, 1));
    let queue = after_a_reboot(&[NOW - 60, NOW - 30], 0);
    assert_eq!(look(&queue, 59, 3540), (0, 2, 0));
    assert_eq!(look(&queue, 61, 3660), (0, 0, 2));
    set_clock(None);
}
