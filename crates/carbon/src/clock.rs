//! How old batches are, by a clock that does not jump.
//!
//! While the host is up, age is the CLOCK_BOOTTIME since the push, whatever the wall clock says. For a batch from
//! before the host's last start only the timestamp is known, so its age comes from the wall clock. That age is used
//! only while the wall clock is plausible: not earlier than the newest of those timestamps, and without a step of more
//! than a minute relative to CLOCK_BOOTTIME in the last ten minutes of this run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// How long the wall clock must have run without a step.
const STEADY: Duration = Duration::from_secs(600);
/// A smaller step, in seconds, is only the correction of a clock that is a little off.
const NO_STEP: i64 = 60;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// CLOCK_BOOTTIME.
    pub(crate) boot: Duration,
    /// Unix seconds.
    pub(crate) wall: i64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        #[cfg(test)]
        if let Some(now) = tests::now() {
            return now;
        }
        let boot = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { boot, wall: wall.as_secs().cast_signed() }
    }

    /// The Unix time of an earlier moment on CLOCK_BOOTTIME, however the wall clock was set in between.
    pub(crate) fn unix(self, boot: Duration) -> i64 {
        self.wall.saturating_sub(self.boot.saturating_sub(boot).as_secs().cast_signed())
    }
}

/// What is known about the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// How many seconds it was ahead of CLOCK_BOOTTIME at the last look, and since when it has made no step.
    steady: Option<(i64, Duration)>,
    /// The newest timestamp from before the host's last boot.
    pub(crate) newest: Option<i64>,
}

impl Clock {
    /// Checks the clocks and returns whether the wall clock is plausible.
    pub(crate) fn look(&mut self, now: Moment) -> bool {
        let ahead = now.wall.saturating_sub(now.boot.as_secs().cast_signed());
        let since = match self.steady {
            Some((before, since)) if ahead.abs_diff(before) <= NO_STEP.unsigned_abs() => since,
            _ => now.boot,
        };
        self.steady = Some((ahead, since));
        now.boot.saturating_sub(since) >= STEADY && self.newest.is_none_or(|newest| now.wall >= newest)
    }
}

#[cfg(test)]
#[path = "../tests/inside/clock.rs"]
pub(crate) mod tests;
