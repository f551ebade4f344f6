//! Rounds: the numbers of ticks of the backlog that are written before the next answer of the peer,
//! in the manner of TCP's congestion window.
//!
//! Only its answers show whether a receiver reads. So the backlog is sent in rounds: some ticks, a
//! renewal of the connection, the answer. A quick answer doubles the next round, and the next
//! answer is requested at once. A slow answer means that the peer had fallen behind: the next round
//! is skipped, and the one after it is half as large. After a peer has failed to answer in time,
//! rounds begin again with one tick, grow by one, and every second one is skipped, so that the peer
//! is not overloaded again.
//!
//! By time, new ticks wait behind the backlog. So no round is skipped, and each has half as many
//! ticks more than were collected since the last: then the backlog shrinks. Twice as many would be
//! too much for a peer that reads little more than is collected: in the simulation it does not
//! answer in time, and gets all of them again.
//!
//! An example with `stall_timeout` = 30 s, where an answer within 3 s is quick. While the peer is
//! quick, rounds have 1, 2, 4, 8 ticks. A slow answer after the round of 8: the next has 0, the one
//! after it 4. No answer in 30 s: the rounds then have 0, 1, 0, 2, 0, 3 ticks, until 40 quick
//! answers have come. By time, if 6 ticks were collected since the last round began, this round has
//! at least 9.
//!
//! Pure: it has no clock.

use std::time::Duration;

/// An answer that took at most this share of `stall_timeout` is quick.
const QUICK: u32 = 10;
/// Number of quick answers after which a peer that hung is treated like any other. With half as
/// many, the simulation writes some ticks a third time.
const PATIENCE: u32 = 40;

/// The number of ticks of the backlog in each round.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// The number of ticks in a round.
    round: u32,
    /// The number of ticks that may still be written in this round.
    left: u32,
    /// Whether this round is skipped.
    rests: bool,
    /// The number of quick answers that are still needed before it is forgotten that the peer once
    /// did not answer in time.
    patience: u32,
    /// Time that the last answer took.
    last: Duration,
    by_time: bool,
    /// The number of ticks that were collected since the last round began.
    collected: u32,
}

impl Rounds {
    /// A round of one tick, for a new connection.
    pub(crate) const fn new(by_time: bool) -> Self {
        Self {
            round: 1,
            left: 1,
            rests: false,
            patience: 0,
            last: Duration::MAX,
            by_time,
            collected: 0,
        }
    }

    /// Whether another tick of the backlog may be written.
    pub(crate) const fn allow_tick(&self) -> bool {
        self.left > 0
    }

    /// Whether to ask for an answer at once, because the round is used up and the peer is quick.
    pub(crate) const fn is_answer_due(&self) -> bool {
        self.left == 0 && !self.rests && !self.is_patient()
    }

    /// Whether the peer recently failed to answer in time and gets more time to read.
    pub(crate) const fn is_patient(&self) -> bool {
        self.patience > 0
    }

    /// Counts a tick of the backlog that was written.
    pub(crate) const fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Counts ticks that were collected.
    pub(crate) fn note_collected(&mut self, ticks: u64) {
        self.collected = self.collected.saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX));
    }

    /// Sets how many ticks may be written until the next answer is due: none if the round is
    /// skipped.
    fn begin_round(&mut self, ticks: u32, skip: bool) {
        let collected = std::mem::take(&mut self.collected);
        self.rests = skip && !self.by_time;
        self.left = match (self.by_time, self.rests) {
            (true, _) => ticks.max(collected.saturating_add(collected / 2)),
            (false, true) => 0,
            (false, false) => ticks,
        };
    }

    /// Begins a round for a receiver that accepts no second connection, so that no answer can be
    /// requested. If its program runs, the connection that it has kept counts as a quick answer:
    /// after a loss, rounds would begin again with one tick.
    pub(crate) fn note_no_answer_possible(&mut self, runs: bool) {
        if runs && !self.is_patient() {
            let doubled = self.round.saturating_mul(2);
            self.round = if self.left == 0 { doubled } else { self.round };
            self.left = self.left.max(self.round);
        }
        self.begin_round(self.left.max(1), false);
    }

    /// Begins the next round after an answer that came in time; `after` is the time since our
    /// half-close.
    pub(crate) fn note_answer(&mut self, after: Duration, stall_timeout: Duration) {
        let before = std::mem::replace(&mut self.last, after);
        // If skipping rounds makes the answers no quicker, the delay comes from the network and not
        // from bytes that wait to be read.
        let is_own_delay = self.rests && after.saturating_mul(20) >= before.saturating_mul(19);
        if after > stall_timeout / QUICK && !is_own_delay {
            self.round = (self.round / 2).max(1);
            return self.begin_round(self.round, true);
        }
        let is_used_up = self.left == 0 && !self.rests;
        self.patience = self.patience.saturating_sub(1);
        if is_used_up {
            self.round = self.round.saturating_add(if self.is_patient() { 1 } else { self.round });
        }
        self.begin_round(self.round, is_used_up && self.is_patient());
    }

    /// Notes that the peer did not answer in time, or that a connection's end proved nothing:
    /// rounds begin again with one tick, and every second one is skipped.
    pub(crate) fn note_doubt(&mut self) {
        (self.round, self.patience, self.last) = (1, PATIENCE, Duration::MAX);
        self.begin_round(1, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_hung_once_is_at_full_speed_again_after_forty_quick_answers() {
        let mut rounds = Rounds::new(false);
        rounds.note_doubt();
        let answers = (0..100).take_while(|_| {
            rounds.note_answer(Duration::from_millis(1), Duration::from_secs(30));
            rounds.is_patient()
        });
        assert_eq!(answers.count(), 39);
        // And no round is skipped.
        for _ in 0..3 {
            while rounds.allow_tick() {
                rounds.spend();
            }
            assert!(rounds.is_answer_due());
            rounds.note_answer(Duration::from_millis(1), Duration::from_secs(30));
        }
    }
}
