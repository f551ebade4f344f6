//! How long to wait before the next attempt: exponential, with full jitter.
//!
//! Full jitter spreads the collectors of a site after an outage that hit them all at once.

use std::time::Duration;

/// Delays between 0 and a ceiling that doubles with every failure.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    last: Duration,
    failures: u32,
}

impl Backoff {
    /// Delays below `first`, then below its double, and so on up to `last`.
    #[must_use]
    pub const fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, failures: 0 }
    }

    /// The ceiling of the next delay.
    #[must_use]
    pub fn ceiling(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.last)
    }

    /// The next delay, for one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.ceiling().mul_f64(fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Starts again: something was delivered.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Default for Backoff {
    /// 0.5 s to 30 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(500), Duration::from_secs(30))
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
        let delays: Vec<f64> = (0..1000)
            .map(|_| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).next_delay().as_secs_f64())
            .collect();
        assert!(delays.iter().any(|&d| d < 0.1) && delays.iter().any(|&d| d > 0.9));
    }
}
