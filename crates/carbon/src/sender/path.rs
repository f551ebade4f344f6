//! Tells a network path that is dead for one connection from a receiver that hangs.
//!
//! If our address changes, or a firewall forgets the connection, nobody closes it, and nothing on
//! it is ever acknowledged. The kernel of a program that hangs answers everything that is sent,
//! also the probes of a window that is closed. So a path counts as dead only if all of these are
//! seen:
//!
//! - bytes that are not acknowledged;
//! - [`TRIES`] unanswered tries: none is unanswered where a program hangs;
//! - no acknowledgement for `stall_timeout`;
//! - after that an acknowledgement on a newer connection, because the whole path may be away; if
//!   that one is silent too, on a third one;
//! - after that one more try on the older one that is not answered either, because a kernel waits
//!   ever longer between its tries: after 40 s without a path the newer connection was acknowledged
//!   seconds before the older one.
//!
//! A dead path proves nothing about what the receiver has read. Pure: moments are arguments.

use std::time::Duration;

use tokio::time::Instant;

use crate::acks::Acks;

const TRIES: u32 = 3;
/// Time within which a path that works answers a try.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The evidence, so far, that the path of the older of two connections is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PathWatch {
    #[default]
    Quiet,
    /// Nothing was acknowledged for `stall_timeout`, as the look at this moment showed.
    Silent(Instant),
    /// A newer connection, the second or the third, was acknowledged after that look. The field is
    /// the number of tries on the older one until then.
    NewerAnswers(u32),
    /// The kernel has tried once more on the older connection, as the look at this moment showed.
    TriedAgain(Instant),
    /// The last try was not answered within a second: the path is dead.
    Dead,
}

impl PathWatch {
    /// The next state, after a look at the acknowledgements of both connections. `newer` is `None`
    /// if there is only one.
    pub(super) fn after_look(
        self,
        older: Acks,
        newer: Option<Acks>,
        stall: Duration,
        now: Instant,
    ) -> Self {
        let is_silent = older.unacked > 0 && older.tries >= TRIES && older.silent >= stall;
        match self {
            _ if !is_silent => Self::Quiet,
            Self::Quiet => Self::Silent(now),
            Self::Silent(since)
                if newer.is_some_and(|newer| newer.silent < now.duration_since(since)) =>
            {
                Self::NewerAnswers(older.tries)
            }
            Self::NewerAnswers(tries) if older.tries > tries => Self::TriedAgain(now),
            Self::TriedAgain(at) if now.duration_since(at) >= ANSWERS_WITHIN => Self::Dead,
            unchanged => unchanged,
        }
    }

    /// Time from one look at the path to the next: a quarter of `stall_timeout`, or a second if the
    /// path is silent.
    pub(super) fn next_look(self, stall: Duration) -> Duration {
        if self == Self::Quiet { stall / 4 } else { ANSWERS_WITHIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    /// Looks each second, from 0 s on, at what `older` and `newer` say of each: unacknowledged
    /// bytes, tries and seconds since the last acknowledgement. Returns when the path is dead.
    fn dead_after(
        older: impl Fn(u64) -> (u64, u32, u64),
        newer: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        let begin = Instant::now();
        let mut watch = PathWatch::default();
        (0..600).find(|&at| {
            let (unacked, tries, silent) = older(at);
            let older = Acks { unacked, tries, silent: Duration::from_secs(silent) };
            let newer = Acks { silent: Duration::from_secs(newer(at)), ..Acks::default() };
            watch = watch.after_look(older, Some(newer), STALL, begin + Duration::from_secs(at));
            watch == PathWatch::Dead
        })
    }

    /// Number of tries of a kernel after so many seconds: it tries after 0.2, 0.6, 1.4, … s.
    fn tries(after: u64) -> u32 {
        (after * 5 + 1).ilog2()
    }

    #[test]
    fn only_a_path_that_is_dead_for_one_connection_alone_is_a_loss() {
        // Each is unlike the dead path in one point, in this order.
        let dead = |at: u64| (101, tries(at), at);
        assert_eq!(dead_after(dead, |_| 0), Some(52), "the try at 51 s, and one more second");
        assert_eq!(dead_after(|at| (0, tries(at), at), |_| 0), None, "our end was acknowledged");
        assert_eq!(dead_after(|at| (101, 2, at), |_| 0), None, "a closed window, seldom probed");
        assert_eq!(dead_after(|at| (101, tries(at), at.min(29)), |_| 0), None, "it answers");
        assert_eq!(dead_after(dead, |at| at), None, "neither is acknowledged: the path is away");
        assert_eq!(dead_after(|at| (101, tries(at.min(40)), at), |_| 0), None, "no further try");
    }

    /// The newer one alone: a false loss, 2 of 2.
    #[test]
    fn a_path_that_is_back_after_40_s_is_no_loss_though_the_newer_connection_is_sooner() {
        let older = |at| if at < 51 { (101, tries(at), at) } else { (0, 0, at - 51) };
        let newer = |at: u64| if at < 44 { at } else { 0 };
        assert_eq!(dead_after(older, newer), None);
        // An acknowledgement from before the silence is none after it.
        let both = |at| (101, tries(at), at + 50);
        assert_eq!(dead_after(both, |at| at + 1), None);
    }
}
