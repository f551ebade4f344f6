//! Guesses after how long a peer closes an idle connection, from the times of its closes.
//! Connections are then renewed sooner. Pure: moments are arguments.
//!
//! Without this guess, a peer with an idle timer closes every connection. Each close is a loss, so
//! no tick is ever done, and the simulation loses ticks.
//!
//! A quick restart of the receiver looks like an idle timer. So two closes after the same idle time
//! are needed, four if that time is short. After an hour the belief is tested: connections are
//! renewed as if there were no timer, and one more close at that time is enough to believe it
//! again.

use std::time::Duration;

use tokio::time::Instant;

/// Time for which an idle timer is believed after the last close that agreed with it.
const BELIEVED_FOR: Duration = Duration::from_secs(3600);

/// Idle time below which a timer counts as short, and needs more closes as evidence. A short timer
/// means many connections, and a receiver that crashes again and again may end as soon after each
/// start.
const SHORT: Duration = Duration::from_secs(3);
/// The numbers of closes in a row after about the same idle time that show a timer: a short one,
/// and any other.
const CLOSES: (u32, u32) = (4, 2);

/// The idle timer of a peer, if it has one.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer {
    /// The idle time of the connection that the peer has just closed; `None` when the next one was
    /// tried.
    closed: Option<Duration>,
    /// The idle time after which the peer last closed a connection and accepted the next one.
    last: Option<Duration>,
    /// The number of such closes in a row after idle times that differ by a tenth at most.
    agreeing: u32,
    /// The idle time and the moment of the last close that showed an idle timer; `None`: none did.
    confirmed: Option<(Duration, Instant)>,
}

impl IdleTimer {
    /// Notes that the peer closed a connection which had been idle for the time `idle`.
    pub(crate) const fn closed(&mut self, idle: Duration) {
        self.closed = Some(idle);
    }

    /// Notes whether the peer accepts the next connection at the first attempt. Only then the close
    /// before it can show an idle timer.
    pub(crate) fn next_connection(&mut self, is_accepted: bool, now: Instant) {
        let Some(idle) = self.closed.take().filter(|_| is_accepted) else { return };
        let agrees = self.last.is_some_and(|last| idle.abs_diff(last) <= last / 10);
        self.agreeing = if agrees { self.agreeing.saturating_add(1) } else { 1 };
        if self.agreeing >= if idle < SHORT { CLOSES.0 } else { CLOSES.1 } {
            self.confirmed = Some((idle, now));
        }
        self.last = Some(idle);
    }

    /// Notes that a connection was idle for the time `idle` and is still open. If that is longer
    /// than the peer's timer would allow, the timer is no longer believed.
    pub(crate) fn note_idle(&mut self, idle: Duration) {
        let is_longer = |after: Duration| idle > after + after / 10;
        if self.last.is_some_and(is_longer) {
            (self.last, self.agreeing) = (None, 0);
        }
        self.confirmed = self.confirmed.filter(|(after, _)| !is_longer(*after));
    }

    /// The age at which a connection must be renewed before the peer's idle timer ends it, half the
    /// time of that timer. `None`: no timer is believed.
    pub(crate) fn renew_at(&self, now: Instant) -> Option<Duration> {
        self.confirmed.filter(|(_, at)| now < *at + BELIEVED_FOR).map(|(after, _)| after / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_believed_after_two_closes_that_agree_and_tested_after_an_hour() {
        let (mut timer, start, seconds) =
            (IdleTimer::default(), Instant::now(), Duration::from_secs);
        let close = |timer: &mut IdleTimer, after, now| {
            timer.closed(seconds(after));
            timer.next_connection(true, now);
        };
        close(&mut timer, 20, start);
        assert_eq!(timer.renew_at(start), None, "perhaps a restart");
        close(&mut timer, 24, start);
        assert_eq!(timer.renew_at(start), None, "two restarts");
        close(&mut timer, 23, start);
        assert_eq!(timer.renew_at(start), Some(seconds(23) / 2));
        let later = start + BELIEVED_FOR;
        assert_eq!(timer.renew_at(later), None, "tested");
        close(&mut timer, 23, later);
        assert_eq!(timer.renew_at(later), Some(seconds(23) / 2), "believed at once");
        close(&mut timer, 5, later);
        timer.note_idle(seconds(10));
        assert_eq!(timer.renew_at(later), Some(seconds(23) / 2), "a restart is no other timer");
        timer.note_idle(seconds(25));
        assert_eq!(timer.renew_at(later), Some(seconds(23) / 2));
        timer.note_idle(seconds(26));
        assert_eq!(timer.renew_at(later), None, "it has none");
        close(&mut timer, 23, later);
        assert_eq!(timer.renew_at(later), None, "and the next close is the first");
        for closes in 1..=4 {
            close(&mut timer, 2, later);
            let expected = (closes == 4).then_some(seconds(1));
            assert_eq!(timer.renew_at(later), expected, "a short one, {closes}");
        }
    }
}
