//! `[slurm] follow`: whether a controller behind this host may have taken over while this host's
//! slurmctld believes that it is active. docs/development/decisions.md has the rule.
//!
//! A host is **isolated** if for half of SlurmctldTimeout no controller behind it has answered, and
//! no slurmd has sent its slurmctld anything. A host that says that no slurmctld runs there has
//! answered. Half, because a backup counts SlurmctldTimeout from its own last ping, which may be a
//! third of it before the cable was cut. It stays isolated for SlurmctldTimeout after the first
//! answer, within which the primary takes control back.

use std::time::Duration;

use slurm_snapshot::Behind;
use tokio::time::Instant;

/// The decision about figures that were collected while the host was isolated, and are not
/// delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The figures wait for a later verdict.
    Wait,
    /// The figures are sent: a receiver has been reached for SlurmctldTimeout, and no controller
    /// behind this host.
    Confirm,
    /// The figures are dropped: another controller answers, and one may have been active.
    Withdraw,
}

/// The signs of life from outside that this host has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Isolation {
    /// SlurmctldTimeout, as the last ping had it.
    timeout: Duration,
    /// The state, at the last ping, of the controllers behind this host.
    behind: Option<Behind>,
    heard: Option<Instant>,
    /// Moment until which Slurm may still have two active controllers.
    settles_at: Option<Instant>,
    /// Whether another controller has answered since the last tick.
    is_answered: bool,
    /// Whether the last answer of another controller was the first in this run.
    is_first_answer: bool,
    had_answer: bool,
    /// Whether another controller answered the last ping.
    was_answered: bool,
    /// Whether figures of this isolation have been withdrawn.
    has_withdrawn: bool,
    /// Number of messages that slurmd has sent to this host's slurmctld, by the last tick that
    /// showed it.
    nodes: Option<u64>,
    /// Moment of the last tick at which slurmd had sent new messages.
    nodes_heard: Option<Instant>,
    /// Number of answers that the receiver with the fewest has given.
    answers: Option<u64>,
    /// Moment of the first answer of receivers since which no receiver was lost or in doubt, and no
    /// other controller has answered.
    reached: Option<Instant>,
}

impl Isolation {
    /// Takes the outcome of a ping: whether a controller `before` this host answered, and the state
    /// of those `behind` it.
    pub(crate) fn note_ping(
        &mut self,
        before: bool,
        behind: Option<Behind>,
        timeout: Duration,
        now: Instant,
    ) {
        self.timeout = timeout;
        let is_settling = self.is_settling(now);
        let is_answered = before || matches!(behind, Some(Behind::Answers | Behind::Refuses));
        if is_answered {
            // A gap, however short, may be where the primary tried to take control back.
            if self.is_silent(now) || (is_settling && !self.was_answered) {
                self.settles_at = now.checked_add(timeout);
            }
            self.heard = Some(now);
            self.is_answered = true;
            self.is_first_answer = !std::mem::replace(&mut self.had_answer, true);
        } else if is_settling && self.was_answered {
            // Until silence itself counts.
            self.settles_at = self.settles_at.max(now.checked_add(timeout / 2));
        }
        self.was_answered = is_answered;
        self.behind = behind;
    }

    pub(crate) fn is_isolated(&self, now: Instant) -> bool {
        self.is_settling(now) || self.is_silent(now)
    }

    /// Takes that provisional figures were withdrawn. Returns whether they are the first of this
    /// isolation.
    pub(crate) fn note_withdrawal(&mut self, now: Instant) -> bool {
        let is_first = !std::mem::replace(&mut self.has_withdrawn, true);
        if is_first && self.is_first_answer {
            // An earlier run may have been isolated until now.
            self.settles_at = now.checked_add(self.timeout);
        }
        is_first
    }

    /// Forgets all signs of life, because this host's slurmctld does not answer: another may take
    /// over at once.
    pub(crate) const fn forget_heard(&mut self) {
        self.heard = None;
        self.nodes = None;
        self.nodes_heard = None;
    }

    fn is_settling(&self, now: Instant) -> bool {
        self.settles_at.is_some_and(|at| now < at)
    }

    fn is_silent(&self, now: Instant) -> bool {
        // Without a timeout no backup takes over.
        if self.behind.is_none() || self.timeout.is_zero() {
            return false;
        }
        match self.heard.max(self.nodes_heard) {
            Some(heard) => now.duration_since(heard) >= self.timeout / 2,
            // What was before this daemon's start is not known.
            None => self.behind == Some(Behind::Silent),
        }
    }

    /// Takes the numbers that a tick shows: of messages that slurmd has sent, and of answers of
    /// receivers, if all are connected and none is in doubt. Returns what becomes of provisional
    /// figures.
    pub(crate) fn judge_tick(
        &mut self,
        nodes: Option<u64>,
        answers: Option<u64>,
        now: Instant,
    ) -> Verdict {
        self.has_withdrawn &= self.is_isolated(now);
        if nodes.is_some() {
            // Fewer: the tables were reset.
            let before = std::mem::replace(&mut self.nodes, nodes);
            if before.is_some_and(|before| nodes > Some(before)) {
                self.nodes_heard = Some(now);
            }
        }
        let is_answer = self.answers.is_some_and(|before| answers > Some(before));
        self.answers = answers.or(self.answers);
        if std::mem::take(&mut self.is_answered) {
            self.reached = None;
            return Verdict::Withdraw;
        }
        match self.reached.filter(|_| answers.is_some()) {
            Some(since) if is_answer && now.duration_since(since) >= self.timeout => {
                Verdict::Confirm
            }
            reached => {
                self.reached = reached.or_else(|| is_answer.then_some(now));
                Verdict::Wait
            }
        }
    }
}

#[cfg(test)]
mod tests;
