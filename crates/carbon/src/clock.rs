//! The age of batches, by a clock that does not jump.
//!
//! While the host is up, age is the CLOCK_BOOTTIME since the push. That clock says nothing of a
//! batch from before the host's last start, and too little if the wall clock has moved against it
//! since the push, as when a virtual machine is paused. Then the timestamp decides, but only while
//! the wall clock is trusted: not earlier than the newest timestamp from before the start, and
//! without a step of more than a minute relative to CLOCK_BOOTTIME in the last ten minutes of this
//! run. Until then the age is unknown.
//!
//! Examples with `max_age` = 1 h. A batch was pushed 61 minutes ago by CLOCK_BOOTTIME: it is too
//! old, whatever the wall clock shows. A virtual machine is paused at 12:05 for two hours, and its
//! wall clock is then set right: a batch pushed at 12:00 is 6 minutes old by CLOCK_BOOTTIME at
//! 14:06, but the wall clock has made a step. So its age is unknown until 14:15, and then the
//! timestamp shows that it is too old. A host starts at 12:00 with a batch of 11:30 in its files:
//! the age is unknown until 12:10, and at 12:31 the batch is too old.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Time for which the wall clock must have run without a step to be trusted.
const STEADY: Duration = Duration::from_secs(600);
/// The largest difference, seconds, that is no step of the wall clock, but the correction of one
/// that is a little off.
pub(crate) const NO_STEP: u64 = 60;

/// A moment on both clocks, CLOCK_BOOTTIME and the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The time since the host's boot, by CLOCK_BOOTTIME.
    pub(crate) boot: Duration,
    /// The wall clock, Unix seconds.
    pub(crate) wall: i64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        #[cfg(test)]
        if let Some(now) = tests::now() {
            return now;
        }
        let boot = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        Self { boot, wall: since_epoch().as_secs().cast_signed() }
    }

    /// The begin of the present second of the wall clock, on CLOCK_BOOTTIME. [`Self::unix`] gives
    /// the same second for it at each look; for a moment within a second it gives sometimes that
    /// second, sometimes the next.
    pub(crate) fn begin_of_second() -> Duration {
        let boot = Self::now().boot;
        boot.saturating_sub(Duration::from_nanos(since_epoch().subsec_nanos().into()))
    }

    /// The Unix time of an earlier moment on CLOCK_BOOTTIME, however the wall clock was set in
    /// between.
    pub(crate) fn unix(self, boot: Duration) -> i64 {
        self.wall.saturating_sub(self.boot.saturating_sub(boot).as_secs().cast_signed())
    }

    /// Seconds that the wall clock is ahead of CLOCK_BOOTTIME.
    pub(crate) const fn ahead(self) -> i64 {
        self.wall.saturating_sub(self.boot.as_secs().cast_signed())
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Judges whether the wall clock can be trusted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// Moment of the first look of this run, by CLOCK_BOOTTIME.
    started: Option<Duration>,
    /// Seconds that the wall clock was ahead of CLOCK_BOOTTIME at the last look, and the moment
    /// since which it has made no step, by CLOCK_BOOTTIME.
    steady: Option<(i64, Duration)>,
    /// The newest timestamp from before the host's last boot, Unix seconds. The wall clock must
    /// have reached it to be trusted.
    newest: Option<i64>,
    is_trusted: bool,
}

impl Clock {
    /// Takes the timestamps of batches from before the host's last boot, Unix seconds. If fewer
    /// than half are ahead of the wall clock by more than `max_age`, those came from a wrong clock;
    /// otherwise the present clock may be wrong.
    pub(crate) fn expect(
        &mut self,
        timestamps: impl Iterator<Item = i64>,
        now: Moment,
        max_age: Duration,
    ) {
        let latest = now.wall.saturating_add_unsigned(max_age.as_secs());
        let (ahead, others): (Vec<_>, Vec<_>) =
            timestamps.partition(|&timestamp| timestamp > latest);
        let believed = if ahead.len() < others.len() { others } else { ahead };
        self.newest = believed.into_iter().max();
    }

    /// Looks at both clocks, and decides whether the wall clock can be trusted.
    pub(crate) fn look(&mut self, now: Moment) {
        self.started.get_or_insert(now.boot);
        let ahead = now.ahead();
        let since = match self.steady {
            Some((before, since)) if ahead.abs_diff(before) <= NO_STEP => since,
            _ => now.boot,
        };
        self.steady = Some((ahead, since));
        let is_steady = now.boot.saturating_sub(since) >= STEADY;
        self.is_trusted = is_steady && self.newest.is_none_or(|newest| now.wall >= newest);
    }

    /// Whether a batch is older than `max_age`, or its timestamp as far ahead of the wall clock;
    /// `None`: that is unknown. `pushed` is `None` for a batch from before the host's last boot.
    /// Whether the wall clock is trusted was decided at the last look.
    pub(crate) fn is_too_old(
        &self,
        timestamp: i64,
        pushed: Option<Moment>,
        now: Moment,
        max_age: Duration,
    ) -> Option<bool> {
        #[cfg(test)]
        tests::note_age();
        let since = pushed.map(|pushed| pushed.boot).or(self.started);
        let is_certain = now.boot.saturating_sub(since.unwrap_or(now.boot)) > max_age;
        let no_step = |its: Moment| now.ahead().abs_diff(its.ahead()) <= NO_STEP;
        if is_certain || pushed.is_some_and(no_step) {
            return Some(is_certain);
        }
        self.is_trusted.then(|| now.wall.abs_diff(timestamp) > max_age.as_secs())
    }
}

#[cfg(test)]
pub(crate) mod tests;
