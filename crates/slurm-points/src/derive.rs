//! Arithmetic on readings: what sdiag derives from one, and what two show about the time between
//! them.
//!
//! sdiag's figures are integer divisions, digit for digit as in sdiag.c, and `None` if sdiag prints
//! no line. Interval figures are exact, and `None` if the two readings do not belong together.
//! Nothing is published for `None`.

mod growth;
mod interval;
mod span;

use slurm_snapshot::{Means, Reading, Release, Statistics};

pub use self::growth::{Calls, Tables};
pub use self::interval::{Cycles, Interval, JobCounts, exact_f64};
pub use self::span::unbroken;
pub(crate) use self::span::{Reset, reset, seconds_between, since_command, span};

/// `sum / count`, truncated; `None` if nothing was counted.
pub fn mean(sum: u64, count: u32) -> Option<u64> {
    sum.checked_div(u64::from(count))
}

/// sdiag's means: from the sums, or if those are not known, as slurmrestd reports them.
pub fn means(s: &Statistics) -> Means {
    let reported = s.means.unwrap_or_default();
    // slurmrestd writes 0 where nothing was counted.
    let mean_or_reported = |sum: Option<u64>, count, reported: Option<u64>| match sum {
        Some(sum) => mean(sum, count),
        None => reported.filter(|_| count > 0),
    };
    let main = |sum, reported| mean_or_reported(sum, s.schedule_cycle_counter, reported);
    let bf = |sum, reported| mean_or_reported(sum, s.bf_cycle_counter, reported);
    Means {
        schedule_cycle: main(s.schedule_cycle_sum, reported.schedule_cycle),
        schedule_depth: main(s.schedule_cycle_depth.map(u64::from), reported.schedule_depth),
        bf_cycle: bf(s.bf_cycle_sum, reported.bf_cycle),
        bf_depth: bf(s.bf_depth_sum.map(u64::from), reported.bf_depth),
        bf_depth_try: bf(s.bf_depth_try_sum.map(u64::from), reported.bf_depth_try),
        bf_queue_len: bf(s.bf_queue_len_sum.map(u64::from), reported.bf_queue_len),
        bf_table_size: bf(s.bf_table_size_sum.map(u64::from), reported.bf_table_size),
    }
}

/// Seconds since `moment`; 0 if it is in the future, because a clock was set back.
pub fn seconds_since(moment: i64, now: i64) -> u64 {
    u64::try_from(now.saturating_sub(moment)).unwrap_or(0)
}

/// Cuts Unix seconds to whole seconds. What i64 cannot hold becomes its limit, NaN 0.
#[expect(clippy::cast_possible_truncation, reason = "a float is cut to the range of i64")]
pub const fn whole_seconds(time: f64) -> i64 {
    time as i64
}

/// Cycles per minute since the last reset; `None` during its first minute, or when a clock was set
/// back.
///
/// The whole minutes come first: 5 cycles in 86 s are 5 a minute, not 3.
pub fn cycles_per_minute(cycles: u32, req_time: i64, req_time_start: i64) -> Option<u32> {
    let window = req_time.checked_sub(req_time_start).filter(|&seconds| seconds > 60)?;
    // sdiag cuts the quotient to a uint32_t; it is never larger than the cycles.
    u32::try_from(i64::from(cycles) / (window / 60)).ok()
}

/// The tries of the last backfill cycle divided by the entries of its queue; `None` while a cycle
/// is running, or if the queue is empty. It can be above 1: an array is one entry, and each of its
/// tasks is a try. It stays the same until another cycle runs: the caller looks whether one has
/// ended.
pub fn bf_coverage(statistics: &Statistics) -> Option<f64> {
    let known = statistics.bf_active == 0 && statistics.bf_queue_len > 0;
    let tried = statistics.bf_last_depth_try.filter(|_| known)?;
    Some(f64::from(tried) / f64::from(statistics.bf_queue_len))
}

/// The share of slurmctld's RPC threads that are in use; `None` if their limit is not known.
///
/// Up to 24.05 each connection takes one of 256 threads, and the next one waits (measured on
/// 22.05). From 24.11 on idle connections take none, and other limits come first (measured on 24.11
/// and 26.05).
pub fn threads_fraction(reading: &Reading, statistics: &Statistics) -> Option<f64> {
    let is_limited = reading.release < Release::new(24, 11);
    is_limited.then(|| f64::from(statistics.server_thread_count) / 256.0)
}

macro_rules! known_numbers {
    (() needed { $($needed:tt)* } number { $($number:ident)+ } moment { $($moment:ident)+ }) => {
        Statistics { $($number: Some(0),)+ ..Statistics::default() }
    };
}

/// Statistics as libslurm has them when nothing has happened yet: every number is known.
pub(crate) fn nothing_yet() -> Statistics {
    slurm_snapshot::numbers_of_statistics! { known_numbers! () }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recorded_means_are_truncated_as_sdiag_truncates() {
        for (sum, count, expected) in [
            (171_543_834, 72, 2_382_553),
            (8141, 72, 113),
            (2695, 72, 37),
            (242_773, 72, 3371),
            (7, 8, 0),
        ] {
            assert_eq!(mean(sum, count), Some(expected));
        }
        assert_eq!(mean(5, 0), None, "sdiag prints no mean of nothing");
    }

    #[test]
    fn a_quotient_of_slurmrestd_is_no_mean_of_no_cycles_and_never_instead_of_a_sum() {
        let reported = Means {
            schedule_cycle: Some(0),
            schedule_depth: Some(1),
            bf_cycle: Some(7),
            bf_depth: Some(8),
            bf_depth_try: Some(9),
            bf_queue_len: Some(10),
            bf_table_size: Some(33),
        };
        let mut statistics = Statistics {
            means: Some(reported),
            bf_cycle_counter: 6,
            bf_table_size_sum: Some(132),
            ..Statistics::default()
        };
        let found = means(&statistics);
        let expected = Means {
            schedule_cycle: None,
            schedule_depth: None,
            bf_table_size: Some(22),
            ..reported
        };
        assert_eq!(found, expected);
        statistics.bf_cycle_counter = 0;
        assert_eq!(means(&statistics), Means::default());
    }

    #[test]
    fn recorded_cycles_per_minute_take_whole_minutes_first() {
        let recorded = [
            (34585, 32641, 63),
            (826, 49551, 1),
            (88, 6616, 0),
            (5, 86, 5),
            (5, 97, 5),
            (3818, 2371, 97),
            (960, 27998, 2),
        ];
        for (cycles, window, expected) in recorded {
            assert_eq!(
                cycles_per_minute(cycles, 1_700_000_000 + window, 1_700_000_000),
                Some(expected)
            );
        }
    }

    #[test]
    fn an_array_is_one_entry_of_the_queue_and_many_tries() {
        let coverage = |tried, bf_queue_len, bf_active| {
            let bf_last_depth_try = Some(tried);
            bf_coverage(&Statistics {
                bf_last_depth_try,
                bf_queue_len,
                bf_active,
                ..Statistics::default()
            })
        };
        // An array of 30 tasks, and two jobs.
        assert_eq!(coverage(24, 3, 0), Some(8.0), "not cut to 1");
        assert_eq!(coverage(1, 4, 0), Some(0.25));
        assert_eq!((coverage(1, 4, 1), coverage(0, 0, 0)), (None, None));
    }

    #[test]
    fn a_window_of_a_minute_or_less_has_no_figure() {
        for window in [i64::MIN, -86_400, -1, 0, 59, 60] {
            assert_eq!(cycles_per_minute(9, window, 0), None, "{window}");
        }
        assert_eq!(cycles_per_minute(9, 61, 0), Some(9));
    }

    proptest! {
        #[test]
        fn nothing_overflows(cycles: u32, now: i64, start: i64, sum: u64) {
            if let Some(per_minute) = cycles_per_minute(cycles, now, start) {
                prop_assert!(per_minute <= cycles);
            }
            prop_assert_eq!(mean(sum, cycles).is_some(), cycles > 0);
        }
    }
}
