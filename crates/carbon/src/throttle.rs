//! The speed at which the backlog is sent: in points a second, and in rounds of ticks before the
//! next answer. A flood of resent points after an outage has brought Carbon servers down. Pure:
//! moments are arguments.

mod rounds;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use self::rounds::Rounds;
use crate::ledger::Ticks;

/// The least points a second, if no rate is configured.
const LEAST: f64 = 5000.0;
/// The multiple of the live rate that is permitted, if no rate is configured and it is more than
/// [`LEAST`].
const TIMES_LIVE: f64 = 10.0;
/// Time over which the live rate is measured. If the last gap between batches is longer, it is
/// measured over that.
const MINUTE: Duration = Duration::from_secs(60);

/// The throttle of one destination's backlog.
#[derive(Debug)]
pub(crate) struct Throttle {
    by_time: bool,
    /// The configured `replay_rate`, points a second; `None`: the rate follows the live rate.
    configured: Option<u32>,
    /// Moments and points of the live batches of the last minute, and of the one before them.
    live: VecDeque<(Instant, u64)>,
    free_at: Option<Instant>,
    pub(crate) rounds: Rounds,
}

impl Throttle {
    /// Makes a throttle. `configured` is in points a second; `None`: the larger of 5,000 and ten
    /// times the live rate. By time, new ticks wait behind the backlog, so the rate is at least
    /// twice the live rate.
    pub(crate) const fn new(configured: Option<u32>, by_time: bool) -> Self {
        let rounds = Rounds::new(by_time);
        Self { by_time, configured, live: VecDeque::new(), free_at: None, rounds }
    }

    /// Begins a new connection, which has answered nothing yet.
    pub(crate) const fn begin_connection(&mut self) {
        self.rounds = Rounds::new(self.by_time);
    }

    /// Notes ticks that were collected: they decide the live rate and the size of rounds.
    pub(crate) fn note_collected(&mut self, Ticks { ticks, points }: Ticks, now: Instant) {
        self.rounds.note_collected(ticks);
        while self.live.get(1).is_some_and(|(sent, _)| now.duration_since(*sent) >= MINUTE) {
            self.live.pop_front();
        }
        self.live.push_back((now, points));
    }

    /// Returns the moment until which the rate forbids to send more of the backlog. `None`: the
    /// rate allows it now; the round is asked separately.
    pub(crate) fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.free_at.filter(|&free| free > now)
    }

    /// Counts a tick of the backlog that is being sent, against the rate and against the round.
    pub(crate) fn spend(&mut self, points: u64, now: Instant) {
        self.spend_rate(points, now);
        self.rounds.spend();
    }

    /// Counts points that are being sent against the rate alone, as a drain needs it.
    pub(crate) fn spend_rate(&mut self, points: u64, now: Instant) {
        let seconds = to_float(points) / self.points_a_second();
        // Unused time is not saved up.
        let from = self.free_at.filter(|&free| free > now).unwrap_or(now);
        self.free_at = Some(from + Duration::try_from_secs_f64(seconds).unwrap_or(MINUTE));
    }

    fn points_a_second(&self) -> f64 {
        let seconds = match (self.live.front(), self.live.back()) {
            (Some((first, _)), Some((last, _))) => last.duration_since(*first).as_secs_f64(),
            _ => 0.0,
        };
        let points: u64 = self.live.iter().skip(1).map(|(_, points)| points).sum();
        let live = if seconds > 0.0 { to_float(points) / seconds.max(1.0) } else { 0.0 };
        let least = if self.by_time { 2.0 * live } else { 0.0 };
        self.configured
            .map_or(LEAST.max(TIMES_LIVE * live), |rate| f64::from(rate.max(1)).max(least))
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
        let mut rate = Throttle::new(Some(1000), false);
        assert_eq!(rate.rests_until(start), None);
        rate.spend_rate(500, start);
        assert_eq!(rate.rests_until(start), Some(start + Duration::from_millis(500)));
        assert_eq!(
            rate.rests_until(start + Duration::from_secs(10)),
            None,
            "and nothing is saved up"
        );
        rate.spend_rate(500, start + Duration::from_secs(10));
        assert_eq!(
            rate.rests_until(start + Duration::from_secs(10)),
            Some(start + Duration::from_millis(10_500))
        );
    }

    /// The rate after batches of (seconds since the start, points).
    fn after(batches: impl IntoIterator<Item = (f64, u64)>) -> f64 {
        let start = Instant::now();
        let mut rate = Throttle::new(None, false);
        for (seconds, points) in batches {
            rate.note_collected(
                Ticks { ticks: 1, points },
                start + Duration::from_secs_f64(seconds),
            );
        }
        rate.points_a_second()
    }

    #[test]
    fn a_large_site_catches_up_ten_times_as_fast_as_it_collects() {
        assert!((after([]) - 5000.0).abs() < 1e-9);
        assert!((after([(0.0, 100_000)]) - 5000.0).abs() < 1e-9);
        let every_ten_seconds = (0..100).map(|n| (f64::from(n) * 10.0, 100_000));
        assert!((after(every_ten_seconds) - 100_000.0).abs() < 1e-6);
        let every_ten_minutes = (0..3).map(|n| (f64::from(n) * 600.0, 600_000));
        assert!((after(every_ten_minutes) - 10_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_survey_right_behind_its_tick_does_not_look_like_a_hundred_thousand_points_a_second() {
        let ticks = (0..20).flat_map(|n| {
            let at = f64::from(n) * 30.0;
            let survey = (n % 2 == 0).then_some((at + 0.5, 100_000));
            [Some((at, 250)), survey].into_iter().flatten()
        });
        let rate = after(ticks);
        assert!((10_000.0..20_000.0).contains(&rate), "{rate}");
    }
}
