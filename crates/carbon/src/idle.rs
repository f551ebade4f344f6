//! The time after which a peer closes an idle connection, as far as its closes show. Pure: moments
//! are arguments.
//!
//! Without it, the simulation loses ticks to a peer that closes what is idle: each close is a loss,
//! so none is ever done.
//!
//! A quick restart of the receiver looks like an idle timer. So two closes after the same time are
//! needed, four if it is short, and after an hour the belief is tested: connections are renewed as
//! if there were no timer, and one more close at that time is enough to believe it again.

use std::time::Duration;

use tokio::time::Instant;

/// How long an idle timer is believed.
const BELIEVED_FOR: Duration = Duration::from_secs(3600);

/// A shorter timer means many connections, and a receiver that crashes again and again may end as
/// soon after each start.
const SHORT: Duration = Duration::from_secs(3);
/// How many closes after the same time show a short timer, and any other.
const CLOSES: (u32, u32) = (4, 2);

/// The idle timer of a peer, if it has one.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer {
    /// How long the connection had been idle that the peer has just closed.
    closed: Option<Duration>,
    /// Time after which it last closed an idle connection.
    last: Option<Duration>,
    /// How often in a row it did so after about the same time.
    agreeing: u32,
    /// When it last did so after about the same time as before.
    confirmed: Option<Instant>,
}

impl IdleTimer {
    /// The peer closed a connection that had been idle for this long.
    pub(crate) const fn closed(&mut self, idle: Duration) {
        self.closed = Some(idle);
    }

    /// The peer accepts the next connection, or not. Only a close after which it does so at once
    /// shows a timer.
    pub(crate) fn next_connection(&mut self, is_accepted: bool, now: Instant) {
        let Some(idle) = self.closed.take().filter(|_| is_accepted) else { return };
        let agrees = self.last.is_some_and(|last| idle.abs_diff(last) <= last / 10);
        self.agreeing = if agrees { self.agreeing.saturating_add(1) } else { 1 };
        if self.agreeing >= if idle < SHORT { CLOSES.0 } else { CLOSES.1 } {
            self.confirmed = Some(now);
        }
        self.last = Some(idle);
    }

    /// A connection has been idle for this long and is not closed.
    pub(crate) fn note_idle(&mut self, idle: Duration) {
        if self.last.is_some_and(|last| idle > last + last / 10) {
            *self = Self::default();
        }
    }

    /// The age at which a connection must be renewed because of it.
    pub(crate) fn renew_at(&self, now: Instant) -> Option<Duration> {
        self.confirmed.filter(|&at| now < at + BELIEVED_FOR).and(self.last).map(|after| after / 2)
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
