//! The wait before the next attempt to connect: exponential, with full jitter.
//!
//! Full jitter spreads the collectors of a site after an outage that hit them all at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(30);

/// Delays between 0 and a ceiling, which starts at 0.5 s and doubles with every failure, up to 30
/// s.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    fn ceiling(&self) -> Duration {
        FIRST.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(LAST)
    }

    /// Returns the delay before the next attempt, and counts one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.ceiling().mul_f64(fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Starts with the smallest delay again, because something was delivered.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_doubles_to_its_last_and_starts_again() {
        let mut backoff = Backoff::default();
        let ceilings: Vec<u128> = (0..9)
            .map(|_| {
                let ceiling = backoff.ceiling();
                assert!(backoff.next_delay() <= ceiling);
                ceiling.as_millis()
            })
            .collect();
        assert_eq!(ceilings, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.ceiling().as_millis(), 500);
    }

    #[test]
    fn years_of_failures_do_not_overflow() {
        let mut backoff = Backoff::default();
        for _ in 0..100 {
            let _ = backoff.next_delay();
        }
        assert_eq!(backoff.ceiling(), Duration::from_secs(30));
    }

    #[test]
    fn delays_are_spread_over_the_whole_range() {
        let delays: Vec<f64> =
            (0..1000).map(|_| Backoff::default().next_delay().as_secs_f64()).collect();
        assert!(delays.iter().any(|&d| d < 0.05) && delays.iter().any(|&d| d > 0.45));
    }
}
