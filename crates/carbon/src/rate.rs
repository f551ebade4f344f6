//! How fast resends and backlog may go: a flood of them after an outage has taken Carbons down.

use std::time::Duration;

use tokio::time::Instant;

/// Points a second where nothing else is said, at least.
const LEAST: f64 = 5000.0;
/// And where more than that is collected, this many times the live rate.
const TIMES_LIVE: f64 = 10.0;

/// A rate, and how far it is used up. Pure: moments come as arguments.
#[derive(Debug)]
pub(crate) struct Rate {
    configured: Option<u32>,
    live: f64,
    last_live: Option<Instant>,
    free_at: Option<Instant>,
}

impl Rate {
    /// `configured` points a second; `None`: the larger of 5,000 and ten times the live rate.
    pub(crate) const fn new(configured: Option<u32>) -> Self {
        Self { configured, live: 0.0, last_live: None, free_at: None }
    }

    /// A live batch of this many points was sent.
    pub(crate) fn live(&mut self, points: u64, now: Instant) {
        if let Some(last) = self.last_live.replace(now) {
            let seconds = now.duration_since(last).as_secs_f64().max(1.0);
            self.live = to_float(points) / seconds;
        }
    }

    /// Until when nothing more of the backlog may go.
    pub(crate) fn wait(&self, now: Instant) -> Option<Instant> {
        self.free_at.filter(|&free| free > now)
    }

    /// This many points of the backlog are going out.
    pub(crate) fn spend(&mut self, points: u64, now: Instant) {
        let seconds = to_float(points) / self.points_a_second();
        // What was not used is not saved up.
        let from = self.free_at.filter(|&free| free > now).unwrap_or(now);
        self.free_at = Some(from + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(60)));
    }

    fn points_a_second(&self) -> f64 {
        match self.configured {
            Some(rate) => f64::from(rate.max(1)),
            None => LEAST.max(TIMES_LIVE * self.live),
        }
    }
}

fn to_float(points: u64) -> f64 {
    u32::try_from(points).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_keeps_to_its_rate() {
        let start = Instant::now();
        let mut rate = Rate::new(Some(1000));
        assert_eq!(rate.wait(start), None);
        rate.spend(500, start);
        assert_eq!(rate.wait(start), Some(start + Duration::from_millis(500)));
        assert_eq!(rate.wait(start + Duration::from_secs(10)), None, "and nothing is saved up");
        rate.spend(500, start + Duration::from_secs(10));
        assert_eq!(rate.wait(start + Duration::from_secs(10)), Some(start + Duration::from_millis(10_500)));
    }

    #[test]
    fn a_large_site_catches_up_ten_times_as_fast_as_it_collects() {
        let start = Instant::now();
        let mut rate = Rate::new(None);
        assert!((rate.points_a_second() - 5000.0).abs() < 1e-9);
        rate.live(100_000, start);
        rate.live(100_000, start + Duration::from_secs(10));
        assert!((rate.points_a_second() - 100_000.0).abs() < 1e-6);
    }
}
