//! The wall-clock grid: which tick a moment belongs to, and when the next one comes.
//!
//! Whisper stores a point in the slot `timestamp - timestamp % step`, so ticks are multiples of the
//! interval. Pure: moments are arguments, in Unix time.

use std::time::Duration;

/// Begin of the year 2020, Unix seconds. A clock that shows an earlier time was never set: a host
/// whose clock does not run while it is off starts in 1970.
const UNSET_BEFORE: i64 = 1_577_836_800;

#[derive(Debug)]
pub(crate) struct Grid {
    interval: i64,
    last: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    /// Planned moment of the tick, Unix seconds: the timestamp of all its points.
    pub(crate) timestamp: i64,
    /// Ticks between the last one and this one that were missed.
    pub(crate) skipped: u64,
    /// Whether the clock was set back so far that a new timeline begins.
    pub(crate) new_timeline: bool,
}

impl Tick {
    /// Whether the tick's time cannot be true, so that Carbon would throw its points away.
    pub(crate) const fn is_before_the_clock_was_set(self) -> bool {
        self.timestamp < UNSET_BEFORE
    }
}

impl Grid {
    /// Begins a grid with a tick every `interval` seconds. Its first tick is the slot after the one
    /// that `now` is in, which an earlier run may have written.
    pub(crate) fn new(interval: u32, now: Duration) -> Self {
        let interval = i64::from(interval.max(1));
        Self { interval, last: slot(interval, now) }
    }

    /// Returns the tick at `now`; `None` while the last tick's slot continues. If several were
    /// missed, it is the latest, and the others are counted in it. After the clock went back by
    /// less than half an interval, there is no tick until it has caught up.
    pub(crate) fn tick(&mut self, now: Duration) -> Option<Tick> {
        let timestamp = slot(self.interval, now);
        let steps = (timestamp - self.last) / self.interval;
        let is_back_a_little =
            now + Duration::from_secs(self.interval.cast_unsigned()) / 2 >= self.start();
        if steps == 0 || steps < 0 && is_back_a_little {
            return None;
        }
        let was_set = self.last < UNSET_BEFORE && timestamp >= UNSET_BEFORE;
        self.last = timestamp;
        let skipped = if was_set { 0 } else { u64::try_from(steps - 1).unwrap_or(0) };
        Some(Tick { timestamp, skipped, new_timeline: steps < 0 })
    }

    /// Moment of the next tick, Unix time.
    pub(crate) fn next(&self) -> Duration {
        self.start() + Duration::from_secs(self.interval.cast_unsigned())
    }

    /// Begin of the last tick's slot, Unix time.
    fn start(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.last).unwrap_or(0))
    }
}

fn slot(interval: i64, now: Duration) -> i64 {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    seconds - seconds.rem_euclid(interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn tick(timestamp: i64, skipped: u64, new_timeline: bool) -> Option<Tick> {
        Some(Tick { timestamp, skipped, new_timeline })
    }

    #[test]
    fn ticks_are_multiples_of_the_interval_however_late_one_wakes() {
        let mut grid = Grid::new(30, at(1_000_003.0));
        assert_eq!(grid.next(), at(1_000_020.0));
        assert_eq!(grid.tick(at(1_000_019.9)), None);
        assert_eq!(grid.tick(at(1_000_020.0)), tick(1_000_020, 0, false));
        assert_eq!(grid.tick(at(1_000_021.0)), None, "one timestamp a slot");
        assert_eq!(grid.tick(at(1_000_079.9)), tick(1_000_050, 0, false));
    }

    #[test]
    fn missed_ticks_are_counted_never_made_up_for() {
        let mut grid = Grid::new(10, at(1000.0));
        assert_eq!(grid.tick(at(1063.0)), tick(1060, 5, false));
        assert_eq!(grid.tick(at(1070.0)), tick(1070, 0, false));
    }

    #[test]
    fn a_clock_that_goes_back_a_little_never_writes_a_slot_twice() {
        let mut grid = Grid::new(10, at(1000.0));
        assert_eq!(grid.tick(at(1010.0)), tick(1010, 0, false));
        assert_eq!(grid.tick(at(1005.0)), None);
        assert_eq!(grid.next(), at(1020.0));
        assert_eq!(grid.tick(at(1020.0)), tick(1020, 0, false));
    }

    /// A clock that went back stopped all ticks for nearly three intervals, without a word.
    #[test]
    fn a_clock_that_goes_back_by_a_slot_or_two_goes_on_at_once() {
        let mut grid = Grid::new(3600, at(720_000.0));
        assert_eq!(grid.tick(at(723_600.0)), tick(723_600, 0, false));
        assert_eq!(grid.tick(at(720_010.0)), tick(720_000, 0, true));
        let mut grid = Grid::new(10, at(1000.0));
        assert_eq!(grid.tick(at(1011.0)), tick(1010, 0, false));
        assert_eq!(grid.tick(at(992.0)), tick(990, 0, true));
        assert_eq!(grid.tick(at(1000.0)), tick(1000, 0, false));
    }

    /// Guards against an error: 1.8e9 ticks counted as skipped.
    #[test]
    fn a_clock_that_is_set_after_a_start_in_1970_has_missed_nothing() {
        let mut grid = Grid::new(30, at(7.0));
        assert!(grid.tick(at(30.0)).is_some_and(|tick| tick.is_before_the_clock_was_set()));
        assert_eq!(grid.tick(at(1_800_000_001.0)), tick(1_800_000_000, 0, false));
        assert!(!tick(1_800_000_000, 0, false).unwrap().is_before_the_clock_was_set());
    }

    #[test]
    fn a_clock_that_goes_back_far_begins_a_new_timeline() {
        let mut grid = Grid::new(10, at(100_000.0));
        assert_eq!(grid.tick(at(50_003.0)), tick(50_000, 0, true));
        assert_eq!(grid.tick(at(50_010.0)), tick(50_010, 0, false));
    }

    proptest! {
        #[test]
        fn timestamps_are_on_the_grid_and_only_grow_within_a_timeline(
            interval in 1_u32..3600,
            moments in proptest::collection::vec(0_u64..10_000_000, 1..100),
        ) {
            let mut grid = Grid::new(interval, Duration::from_secs(5_000_000));
            let mut last = None;
            for moment in moments {
                if let Some(tick) = grid.tick(Duration::from_secs(moment)) {
                    prop_assert_eq!(tick.timestamp % i64::from(interval), 0);
                    prop_assert!(tick.new_timeline || last.is_none_or(|last|
                        tick.timestamp > last));
                    last = Some(tick.timestamp);
                }
            }
        }
    }
}
