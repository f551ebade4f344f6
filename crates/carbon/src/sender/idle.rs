//! Whether a peer that closed the connection closes what is idle, or has ended.
//!
//! A Carbon that is killed ends its connections as cleanly as one that closes what is idle, and what it had in memory is
//! lost. So three signs are wanted together: a clean end long after the last write; as long after it as the end before, for
//! idle peers keep to their time-out; and a peer that takes another connection at once, which one that has ended refuses.

use std::time::Duration;

use crate::connection::{Connection, ConnectionError};

/// Idle times that differ by no more are one and the same time-out of the peer.
const SAME: Duration = Duration::from_secs(1);

/// What one destination has shown so far.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// How long nothing had been written at the last end, where it may have been an idle one.
    before: Option<Duration>,
}

impl Idle {
    /// `connection` is lost with `end`. Returns whether the peer closed it because it was idle; finding out takes a little.
    pub(super) async fn closed(&mut self, connection: &Connection, end: &ConnectionError) -> bool {
        self.is_as_before(connection.idle_for(end)) && connection.is_peer_there().await
    }

    fn is_as_before(&mut self, idle: Option<Duration>) -> bool {
        let before = std::mem::replace(&mut self.before, idle);
        before.zip(idle).is_some_and(|(before, idle)| before.abs_diff(idle) <= SAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_as_late_as_the_end_before_is_the_time_out_of_an_idle_peer() {
        let mut idle = Idle::default();
        let ends = [120_000, 120_400, 119_800, 0, 120_000, 120_100, 60_000, 90_000, 120_000];
        let same = ends.map(|ms| idle.is_as_before((ms > 0).then(|| Duration::from_millis(ms))));
        assert_eq!(same, [false, true, true, false, false, true, false, false, false]);
    }
}
