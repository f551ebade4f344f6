//! The limit of requests for one expensive reply, so that it costs slurmctld no more than its share
//! of time.
//!
//! At a duty of 5 %, a reply that took 3 s is requested at most once a minute. Pure: moments are
//! arguments.

use std::time::Duration;

/// The moments between which one reply may not be requested again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DutyLimit {
    /// Moment of the last request, Unix time.
    asked: Option<Duration>,
    /// Moment from which the reply may be requested again, Unix time.
    next: Duration,
}

impl DutyLimit {
    /// Whether the reply may be requested at `now`, Unix time; always if the clock was set back
    /// since the last request.
    pub(super) fn allows(&self, now: Duration) -> bool {
        now >= self.next || self.asked.is_some_and(|asked| now < asked)
    }

    pub(super) const fn ask(&mut self, now: Duration) {
        self.asked = Some(now);
        self.next = now;
    }

    /// Takes that the answer or failure took `duration`: the next request may start `duration /
    /// max_duty` after the last one.
    pub(super) fn note_duration(&mut self, duration: Duration, max_duty: f64) {
        let Some(asked) = self.asked else { return };
        let period = duration.as_secs_f64() / max_duty.clamp(f64::MIN_POSITIVE, 1.0);
        // At most a year, because a Duration has an end.
        self.next = asked.saturating_add(Duration::from_secs_f64(period.min(31_536_000.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_reply_that_took_3_s_comes_once_a_minute() {
        let mut limit = DutyLimit::default();
        assert!(limit.allows(at(1000)));
        limit.ask(at(1000));
        limit.note_duration(at(3), 0.05);
        assert!(!limit.allows(at(1059)));
        assert!(limit.allows(at(1060)));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_silence_it_for_years() {
        let mut limit = DutyLimit::default();
        limit.ask(at(1_000_000));
        limit.note_duration(at(3), 0.05);
        assert!(limit.allows(at(5000)));
    }

    proptest! {
        #[test]
        fn its_share_of_time_is_never_more_than_allowed(
            duty in 0.001_f64..=1.0,
            durations in proptest::collection::vec(0_u64..5_000, 1..200),
        ) {
            let mut limit = DutyLimit::default();
            let mut now = at(1_700_000_000);
            let start = now;
            let mut busy = Duration::ZERO;
            for milliseconds in durations {
                while !limit.allows(now) {
                    now += at(1);
                }
                limit.ask(now);
                let duration = Duration::from_millis(milliseconds);
                busy += duration;
                limit.note_duration(duration, duty);
            }
            while !limit.allows(now) {
                now += at(1);
            }
            prop_assert!(busy.as_secs_f64() <= (now - start).as_secs_f64() * duty + 1e-6);
        }
    }
}
