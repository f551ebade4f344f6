//! `[slurm] follow`: whether a controller behind this host may have taken over while this host's slurmctld believes that it
//! is active. docs/code-structure.md has the rule.
//!
//! A host is **isolated** if for half of SlurmctldTimeout no controller behind it has answered, and no slurmd has sent its
//! slurmctld anything. Half, because a backup counts SlurmctldTimeout from its own last ping, which may be a third of
//! it before the cable was cut. It stays isolated for SlurmctldTimeout after the first answer, within which the primary
//! takes control back.

use std::time::Duration;

use tokio::time::Instant;

/// What happens to the figures that were collected while the host was isolated, and are not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They wait.
    Wait,
    /// They are sent: a receiver has been reached for SlurmctldTimeout, and no controller behind this host.
    Confirm,
    /// They are dropped: another controller answers, and one may have been active.
    Withdraw,
}

/// What this host has heard from outside.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    /// Whether there are controllers behind this host, and whether one answered the last ping.
    behind: Option<bool>,
    heard: Option<Instant>,
    /// Until then Slurm may still have two active controllers.
    settles_at: Option<Instant>,
    /// Another controller has answered since the last tick.
    is_answered: bool,
    /// The last ping was answered.
    was_answered: bool,
    had_answer: bool,
    is_first_answer: bool,
    /// Messages of slurmd, and when there was the last one.
    nodes: Option<u64>,
    nodes_heard: Option<Instant>,
    /// Answers of receivers, and the first one of this isolation after which no receiver was lost or in doubt.
    answers: Option<u64>,
    reached: Option<Instant>,
}

impl Isolation {
    /// Takes the outcome of a ping of the controllers before this host, and of those behind it.
    pub(crate) fn pinged(&mut self, before: bool, behind: Option<bool>, timeout: Duration, now: Instant) {
        let is_settling = self.settles_at.is_some_and(|at| now < at);
        let is_answered = before || behind == Some(true);
        if is_answered {
            // A gap, however short, may be where the primary tried to take control back.
            if self.is_silent(timeout, now) || (is_settling && !self.was_answered) {
                self.settles_at = now.checked_add(timeout);
            }
            (self.heard, self.is_answered) = (Some(now), true);
        } else if is_settling && self.was_answered {
            // Until silence itself counts.
            self.settles_at = self.settles_at.max(now.checked_add(timeout / 2));
        }
        self.was_answered = is_answered;
        self.behind = behind;
    }

    pub(crate) fn is_isolated(&self, timeout: Duration, now: Instant) -> bool {
        self.settles_at.is_some_and(|at| now < at) || self.is_silent(timeout, now)
    }

    /// Provisional figures were withdrawn. If this was the first answer, an earlier run may have been isolated until now.
    pub(crate) fn withdrawn(&mut self, timeout: Duration, now: Instant) {
        if self.is_first_answer {
            self.settles_at = now.checked_add(timeout);
        }
    }

    /// This host's slurmctld does not answer: another may take over at once, and what was heard before counts no more.
    pub(crate) const fn down(&mut self) {
        (self.heard, self.nodes, self.nodes_heard) = (None, None, None);
    }

    fn is_silent(&self, timeout: Duration, now: Instant) -> bool {
        // Without a timeout no backup takes over.
        if self.behind.is_none() || timeout.is_zero() {
            return false;
        }
        match self.heard.max(self.nodes_heard) {
            Some(heard) => now.duration_since(heard) >= timeout / 2,
            // What was before this daemon's start is not known.
            None => self.behind == Some(false),
        }
    }

    /// Takes what a tick shows: messages of slurmd, and answers of receivers, if one is connected and not in doubt.
    pub(crate) fn look(
        &mut self,
        nodes: Option<u64>,
        answers: Option<u64>,
        timeout: Duration,
        now: Instant,
    ) -> Verdict {
        if nodes.is_some() {
            // Fewer: the tables were reset.
            let before = std::mem::replace(&mut self.nodes, nodes);
            if before.is_some_and(|before| nodes > Some(before)) {
                self.nodes_heard = Some(now);
            }
        }
        let is_answer = self.answers.is_some_and(|before| answers.is_some_and(|now| now > before));
        self.answers = answers.or(self.answers);
        if std::mem::take(&mut self.is_answered) {
            self.is_first_answer = !std::mem::replace(&mut self.had_answer, true);
            self.reached = None;
            return Verdict::Withdraw;
        }
        match self.reached.filter(|_| answers.is_some()) {
            Some(since) if is_answer && now.duration_since(since) >= timeout => Verdict::Confirm,
            reached => {
                self.reached = reached.or_else(|| is_answer.then_some(now));
                Verdict::Wait
            }
        }
    }
}

#[cfg(test)]
#[path = "../tests/inside/isolation.rs"]
mod tests;
