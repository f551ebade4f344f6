//! Whether slurmctld's clock was set back: then what it calls unchanged may have changed.
//!
//! slurmctld compares the time of its last reply with the time of the last change, both on its
//! clock. Pure: the clock is that of the statistics, held against the time since the host's boot,
//! which nobody sets.

use slurm_snapshot::Reading;

/// slurmctld's clock as the last statistics had it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControllerClock {
    /// slurmctld's time in the last statistics, Unix seconds, and the moment at which these
    /// arrived, seconds since this host's boot.
    last: Option<(i64, f64)>,
}

impl ControllerClock {
    /// Whether these statistics show that by slurmctld's clock less time has passed since the last
    /// ones than really has. slurmctld may have been started again, or be another controller.
    pub(super) fn was_set_back(&mut self, reading: &Reading) -> bool {
        let (Some(statistics), Some(uptime)) = (&reading.statistics, reading.uptime) else {
            return false;
        };
        let before = self.last.replace((statistics.req_time, uptime));
        before.is_some_and(|(there, here)| {
            #[expect(
                clippy::cast_precision_loss,
                reason = "the seconds between two readings are exact"
            )]
            let passed = statistics.req_time.saturating_sub(there) as f64;
            #[expect(clippy::cast_precision_loss, reason = "285 years of µs are exact")]
            let elapsed = reading.elapsed as f64 / 1e6;
            // It answered at any moment of the request, and its seconds are whole.
            passed + 1.0 < uptime - elapsed - here
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slurm_snapshot::Statistics;

    use super::*;

    fn reading(req_time: i64, uptime: f64, elapsed: u64) -> Reading {
        let statistics = Some(Statistics { req_time, ..Statistics::default() });
        Reading { statistics, uptime: Some(uptime), elapsed, ..Reading::default() }
    }

    /// The statistics are later than every kept reply again, but a change in between has an earlier
    /// time.
    #[test]
    fn a_clock_that_is_set_back_by_less_than_the_interval_is_noticed() {
        let mut clock = ControllerClock::default();
        let seen = [
            (1000, 50.0),
            (1060, 110.0),
            (1110, 170.0),
            (1170, 230.0),
            (9170, 290.0),
            (1290, 350.0),
        ];
        let back = seen.map(|(there, here)| clock.was_set_back(&reading(there, here, 2000)));
        assert_eq!(back, [false, false, true, false, false, true], "forward is not back");
    }

    proptest! {
        #[test]
        fn a_clock_that_only_runs_is_never_called_set_back(
            asked in prop::collection::vec((500_u32..900_000, 0_u32..60_000, 0_u32..=100), 1..20),
            offset in 0_u32..1000,
        ) {
            // All in ms.
            let mut clock = ControllerClock::default();
            let mut now = 0_u32;
            for (pause, took, answered) in asked {
                let there = i64::from(offset + now + pause + took * answered / 100) / 1000;
                now += pause + took;
                let reading = reading(1_700_000_000 + there, f64::from(now) / 1000.0,
                    u64::from(took) * 1000);
                prop_assert!(!clock.was_set_back(&reading));
            }
        }
    }
}
