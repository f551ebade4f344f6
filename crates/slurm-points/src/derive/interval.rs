//! The exact growth of slurmctld's counters between two readings, even if one of them wrapped.
//!
//! A cycle counts whole in the interval in which it ends, even if it is longer than the interval.
//! What cannot be known exactly is `None`, except for the main scheduler's depth, because nothing
//! says whether a cycle of it is running.

use slurm_snapshot::{Release, Statistics};

use super::nothing_yet;

/// The first release in which `schedule_cycle_sum` is a `u64` in slurmctld.
const WIDE_CYCLE_SUM: Release = Release::new(25, 11);

/// The growth of one slurmctld's counters in one interval without a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Real time between the two readings, s; more than 0.
    pub seconds: f64,
    /// The cycles of the main scheduler that ended in the interval.
    pub main: Cycles,
    /// The cycles of backfill that ended in the interval.
    pub bf: Cycles,
    /// Jobs that backfill tried to start, summed over its cycles; `None` if not known.
    pub bf_depth_try: Option<u32>,
    /// Entries of the queues of backfill's cycles, summed; `None` if not known, or if a cycle was
    /// running at either reading.
    pub bf_queue_len: Option<u32>,
    /// Time slots that backfill's cycles used for planning, summed; `None` if not known.
    pub bf_table_size: Option<u32>,
    /// The growth of the counters of jobs.
    pub jobs: JobCounts,
}

/// The cycles of one scheduler that ended in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cycles {
    /// Number of cycles that ended.
    pub count: u32,
    /// Time that these cycles took together, µs; `None` if it is not known, or cannot be right.
    pub(crate) time: Option<u64>,
    /// Jobs that these cycles examined; `None` if not known.
    pub(crate) depth: Option<u32>,
}

/// The growth of slurmctld's counters of jobs in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCounts {
    /// Jobs that were submitted.
    pub submitted: u32,
    /// Jobs that started.
    pub started: u32,
    /// Jobs whose end was reported, with any exit code.
    pub completed: u32,
    /// Requests of scancel that succeeded.
    pub canceled: u32,
    /// Jobs that slurmd could not start.
    pub failed: u32,
    /// Jobs that backfill started.
    pub backfilled: u32,
}

impl Interval {
    /// Computes the growth from `old` to `new`, which are `seconds` apart and without a reset
    /// between them.
    pub fn new(old: &Statistics, new: &Statistics, release: Release, seconds: f64) -> Self {
        let grown = |of: fn(&Statistics) -> u32| of(new).wrapping_sub(of(old));
        // Not every reader knows every sum.
        let summed = |of: fn(&Statistics) -> Option<u32>| Some(of(new)?.wrapping_sub(of(old)?));
        let main_time = old.schedule_cycle_sum.zip(new.schedule_cycle_sum);
        let main_time = main_time.and_then(|(old, new)| cycle_sum_grown(old, new, release));
        let main_count = grown(|s| s.schedule_cycle_counter);
        let main_most = most_time(seconds, main_count, new.schedule_cycle_max);
        // If the sum may have wrapped once more, nothing is known.
        let unique = |time: u64| {
            release >= WIDE_CYCLE_SUM
                || time.checked_add(1 << 32).is_some_and(|more| more > main_most)
        };
        let bf_time =
            old.bf_cycle_sum.zip(new.bf_cycle_sum).and_then(|(old, new)| new.checked_sub(old));
        let bf_count = grown(|s| s.bf_cycle_counter);
        let bf_most = most_time(seconds, bf_count, new.bf_cycle_max.unwrap_or(u32::MAX));
        let between_cycles = old.bf_active == 0 && new.bf_active == 0;
        // A reset sets what a running cycle has examined so far to 0.
        let is_whole = old.bf_active == 0 || old.bf_when_last_cycle > Some(old.req_time_start);
        Self {
            seconds,
            main: Cycles {
                count: main_count,
                time: main_time.filter(|&time| time <= main_most && unique(time)),
                depth: summed(|s| s.schedule_cycle_depth),
            },
            bf: Cycles {
                count: bf_count,
                time: bf_time.filter(|&time| time <= bf_most),
                depth: summed(|s| s.bf_depth_sum).filter(|_| is_whole),
            },
            bf_depth_try: summed(|s| s.bf_depth_try_sum).filter(|_| is_whole),
            // A cycle adds its queue when it begins and counts itself when it ends.
            bf_queue_len: summed(|s| s.bf_queue_len_sum).filter(|_| between_cycles),
            bf_table_size: summed(|s| s.bf_table_size_sum),
            jobs: JobCounts {
                submitted: grown(|s| s.jobs_submitted),
                started: grown(|s| s.jobs_started),
                completed: grown(|s| s.jobs_completed),
                canceled: grown(|s| s.jobs_canceled),
                failed: grown(|s| s.jobs_failed),
                backfilled: grown(|s| s.bf_last_backfilled_jobs),
            },
        }
    }

    /// Computes the growth within the `seconds` from a reset of all counters to `new`.
    pub(crate) fn since_reset(new: &Statistics, release: Release, seconds: f64) -> Self {
        // What a cycle examined before a reset within it is lost, and only one cycle shows when it
        // began.
        let is_whole = new.bf_active == 0
            && new.bf_cycle_counter == 1
            && new.bf_when_last_cycle > Some(new.req_time_start);
        let old = Statistics { bf_active: (!is_whole).into(), ..nothing_yet() };
        Self::new(&old, new, release, seconds)
    }

    /// Converts a count of this interval to a rate per minute.
    pub fn per_minute(&self, count: impl Into<f64>) -> f64 {
        count.into() * 60.0 / self.seconds
    }

    /// Returns the time of these cycles divided by wall time; above 1 if a cycle was longer than
    /// the interval in which it ended, `None` if the time is not known.
    pub fn busy_fraction(&self, cycles: &Cycles) -> Option<f64> {
        cycles.time.map(|time| exact_f64(time) / (self.seconds * 1e6))
    }
}

impl Cycles {
    /// Returns the mean time of a cycle, µs; `None` when no cycle ended, or if their time is not
    /// known.
    pub fn mean_time(&self) -> Option<f64> {
        self.time.map(exact_f64).and_then(|time| self.mean_of(time))
    }

    /// Returns the mean number of jobs that a cycle examined; `None` when no cycle ended, or if the
    /// number is not known.
    pub fn mean_depth(&self) -> Option<f64> {
        self.mean_of(self.depth?)
    }

    /// Returns `sum` divided by the number of cycles; `None` when no cycle ended.
    pub fn mean_of(&self, sum: impl Into<f64>) -> Option<f64> {
        (self.count > 0).then(|| sum.into() / f64::from(self.count))
    }
}

/// The growth of `schedule_cycle_sum`, µs, which is a `u32` in slurmctld up to 25.05 and wraps
/// after 71.6 minutes.
fn cycle_sum_grown(old: u64, new: u64, release: Release) -> Option<u64> {
    if release >= WIDE_CYCLE_SUM {
        return new.checked_sub(old);
    }
    let old = u32::try_from(old).ok()?;
    let new = u32::try_from(new).ok()?;
    Some(new.wrapping_sub(old).into())
}

/// Returns the longest time that `cycles` can have taken together, µs. Each took at most `longest`,
/// µs, and all of them at most `seconds` and the part of a cycle that was before the interval.
fn most_time(seconds: f64, cycles: u32, longest: u32) -> u64 {
    // slurmctld's clock and the reader's do not run at exactly the same speed.
    let wall = seconds * 1.01e6 + 1e6;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "cut to the range of u64"
    )]
    let wall = (wall as u64).saturating_add(longest.into());
    wall.min(u64::from(cycles) * u64::from(longest))
}

/// Converts a whole number to a float, as Graphite's values are: exact up to 2^53, which is 285
/// years of µs.
pub const fn exact_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_a_reset_the_counters_are_the_growth() {
        let new = Statistics {
            req_time: 115,
            req_time_start: 100,
            schedule_cycle_counter: 5,
            schedule_cycle_sum: Some(5000),
            schedule_cycle_max: 2000,
            schedule_cycle_depth: Some(50),
            bf_cycle_counter: 1,
            bf_cycle_sum: Some(700),
            bf_cycle_max: Some(700),
            bf_depth_sum: Some(40),
            bf_queue_len_sum: Some(30),
            bf_when_last_cycle: Some(104),
            jobs_submitted: 3,
            ..nothing_yet()
        };
        let since = |new: &Statistics| Interval::since_reset(new, Release::new(24, 11), 15.0);
        let interval = since(&new);
        assert_eq!(interval.per_minute(interval.jobs.submitted), 12.0);
        assert_eq!(
            (interval.main.mean_time(), interval.main.mean_depth()),
            (Some(1000.0), Some(10.0))
        );
        let means = |interval: Interval| {
            (interval.bf.mean_time(), interval.bf.mean_depth(), interval.bf_queue_len)
        };
        assert_eq!(means(interval), (Some(700.0), Some(40.0), Some(30)));
        // A cycle that was running at the reset has lost what it had examined by then.
        for change in [
            |s: &mut Statistics| s.bf_when_last_cycle = Some(100),
            |s: &mut Statistics| s.bf_cycle_counter = 2,
            |s: &mut Statistics| s.bf_active = 1,
        ] {
            let mut new = new.clone();
            change(&mut new);
            let (_, depth, queue) = means(since(&new));
            assert_eq!((depth, queue), (None, None));
        }
        let empty = since(&nothing_yet());
        assert_eq!((empty.per_minute(empty.main.count), empty.main.mean_time()), (0.0, None));
    }

    /// The cycle examined 900 jobs before midnight UTC, and 100 after it. Statistics of the second
    /// look at it are like those of any cycle.
    #[test]
    fn what_backfill_examined_in_a_cycle_with_a_reset_in_it_is_not_known() {
        let mean_depth = |bf_active, began| {
            let bf_when_last_cycle = Some(began);
            let old = Statistics {
                req_time_start: 86_401,
                bf_active,
                bf_when_last_cycle,
                bf_depth_sum: Some(0),
                bf_depth_try_sum: Some(0),
                ..Statistics::default()
            };
            let new = Statistics {
                bf_active: 0,
                bf_cycle_counter: 1,
                bf_depth_sum: Some(100),
                bf_depth_try_sum: Some(90),
                ..old.clone()
            };
            let interval = Interval::new(&old, &new, Release::new(24, 11), 30.0);
            (interval.bf.mean_depth(), interval.bf_depth_try)
        };
        assert_eq!(mean_depth(1, 86_395), (None, None));
        assert_eq!(mean_depth(1, 86_401), (None, None), "perhaps before the reset in that second");
        assert_eq!(mean_depth(1, 86_405), (Some(100.0), Some(90)));
        assert_eq!(mean_depth(0, 86_395), (Some(100.0), Some(90)));
    }
}
