//! Which protocol number one slurmctld is spoken to with: the highest that it and this reader know.
//!
//! Each refusal writes one to three lines into slurmctld's log, so that numbers are tried
//! sparingly: a number that was accepted is remembered, and a search leaves out what no release
//! would accept that has refused as this one did. From 20.11 to 25.05 a wrong key or clock looks
//! like a wrong number, so a number that was accepted before is tried again before others are: at
//! once, and a minute later. No more than [`MOST`] refusals in an hour.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use slurm_snapshot::LIBRARIES;

/// Refusals within [`HOUR`].
const MOST: usize = 6;
const HOUR: i64 = 3600;

/// Refusals of a whole search: of the known number, and of two others.
const ROOM: usize = 3;

/// Seconds before the next attempt, after nothing was accepted.
const PAUSES: [i64; 3] = [60, 600, 3600];

/// At midnight UTC slurmctld begins to count again without having been restarted.
const DAY: i64 = 86_400;
const AROUND_MIDNIGHT: i64 = 120;

/// How slurmctld refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It closes the connection: up to 24.05, for a number or a credential.
    Closed,
    /// `SLURM_PROTOCOL_AUTHENTICATION_ERROR`: from 24.11 on for a credential, and up to 25.05 also
    /// for a number.
    Code,
    /// An answer of HTTP: from 25.11 on, for a number.
    Http,
}

/// The numbers that statistics.rs knows.
#[expect(clippy::cast_possible_truncation, reason = "such numbers are small")]
pub(crate) const OLDEST: u16 = match LIBRARIES {
    [(number, _), ..] => *number as u16,
    [] => 0,
};
#[expect(clippy::cast_possible_truncation, reason = "such numbers are small")]
pub(crate) const NEWEST: u16 = match LIBRARIES {
    [.., (number, _)] => *number as u16,
    [] => 0,
};

/// So many releases after the newest are supposed to accept three older ones, as all have since
/// 24.11.
const FUTURE: u16 = 2;
const COUNT: u16 = NEWEST - OLDEST + 1 + FUTURE;

/// Of each release: slurmctld's own number, the lowest that it accepts, and how it refuses others.
fn releases() -> impl Iterator<Item = (u16, u16, Refusal)> {
    (OLDEST..).take(COUNT.into()).map(|own| match own {
        ..=41 => (own, own.saturating_sub(2), Refusal::Closed),
        42 | 43 => (own, own.saturating_sub(3), Refusal::Code),
        _ => (own, own.saturating_sub(3), Refusal::Http),
    })
}

/// Some of [`releases`], a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Releases(u16);

impl Default for Releases {
    fn default() -> Self {
        Self::ALL
    }
}

impl Releases {
    const ALL: Self = Self((1 << COUNT) - 1);

    fn that(self, mut fits: impl FnMut(&(u16, u16, Refusal)) -> bool) -> Self {
        let bits = releases()
            .enumerate()
            .filter(|(_, release)| fits(release))
            .map(|(index, _)| 1 << index);
        Self(self.0 & bits.fold(0, |all, bit: u16| all | bit))
    }

    fn accepting(self, number: u16) -> Self {
        self.that(|(own, lowest, _)| (lowest..=own).contains(&&number))
    }

    fn refusing(self, number: u16, how: Refusal) -> Self {
        self.that(|(own, lowest, refuses)| *refuses == how && !(lowest..=own).contains(&&number))
    }

    const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The number that most of them accept; the lowest of several.
    fn best(self) -> Option<u16> {
        let counted = (OLDEST..=NEWEST)
            .map(|number| (self.accepting(number).count(), std::cmp::Reverse(number)));
        counted.max().filter(|(count, _)| *count > 0).map(|(_, number)| number.0)
    }
}

/// What is known about one slurmctld. Times are Unix seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Numbers {
    /// The highest number that it has accepted.
    accepted: Option<u16>,
    /// Since when it has counted, when it accepted that: its start, as a rule.
    started: i64,
    /// What release it may be.
    possible: Releases,
    /// How often the accepted number was refused since.
    strikes: u8,
    /// Whether others are being tried in its place.
    is_in_doubt: bool,
    /// When it refused.
    refusals: Vec<i64>,
    /// How many pauses there were since something was accepted, and the end of the last.
    pauses: usize,
    retry_at: i64,
}

impl Numbers {
    /// Whether this can have been written by this program.
    pub(crate) fn is_plausible(&self) -> bool {
        self.accepted.is_none_or(|number| (OLDEST..=NEWEST).contains(&number))
            && self.refusals.len() <= 100
    }

    /// The number to speak now. `Err`: none before that time.
    pub(crate) fn next(&mut self, now: i64) -> Result<u16, i64> {
        // Also those of a time that has not come yet, after the clock was set back.
        self.refusals.retain(|at| (0..HOUR).contains(&now.saturating_sub(*at)));
        let pause = self.retry_at.saturating_sub(now);
        if (1..=HOUR).contains(&pause) {
            return Err(self.retry_at);
        }
        let is_full = self.refusals.len() >= MOST;
        if let Some(known) = self.accepted.filter(|_| self.strikes == 0) {
            let higher = known.saturating_add(1);
            let is_possible = higher <= NEWEST && self.possible.accepting(higher).count() > 0;
            return Ok(if is_possible && !is_full { higher } else { known });
        }
        if is_full {
            // What was found so far may have been about a key that is right by then.
            self.begin_again();
            // Until there is room for a whole search: one refusal at a time would go to the known
            // number for ever.
            let oldest = self.refusals.iter().rev().nth(MOST - ROOM).copied().unwrap_or(now);
            self.retry_at = oldest.saturating_add(HOUR);
            return Err(self.retry_at);
        }
        let search = || self.possible.best().filter(|_| self.is_searching());
        search().or(self.accepted).or_else(|| Releases::ALL.best()).ok_or(now)
    }

    /// slurmctld, which counts since `started`, has answered a request with this number.
    pub(crate) fn accept(&mut self, number: u16, started: i64) {
        // For a moment after its start slurmctld does not say since when it counts.
        let started = if started == 0 { self.started } else { started };
        let was_restarted = started != self.started && started.rem_euclid(DAY) > AROUND_MIDNIGHT;
        // Another release may have come with the restart.
        let before = if was_restarted && self.accepted == Some(number) {
            Releases::ALL
        } else {
            self.possible
        };
        self.possible = before.accepting(number);
        if self.possible.count() == 0 {
            self.possible = Releases::ALL.accepting(number);
        }
        if self.strikes == 1 {
            // It was not about the number or the credential: slurmctld was stopped, or had too much
            // to do.
            self.refusals.pop();
        }
        *self = Self {
            accepted: Some(number),
            started,
            possible: self.possible,
            refusals: std::mem::take(&mut self.refusals),
            ..Self::default()
        };
    }

    /// slurmctld has refused a request with this number.
    pub(crate) fn refuse(&mut self, number: u16, how: Refusal, now: i64) {
        self.refusals.push(now);
        if self.accepted.is_some_and(|known| number == known.saturating_add(1)) && self.strikes == 0
        {
            // It does not know a higher one. That does not depend on how it says so.
            self.possible = self.possible.that(|(own, ..)| *own < number);
            return;
        }
        if self.accepted == Some(number) {
            self.strikes = self.strikes.saturating_add(1);
            if how == Refusal::Http || self.strikes == 3 {
                self.is_in_doubt = true;
                self.possible = Releases::ALL.refusing(number, how);
            }
            match self.strikes {
                1 if how != Refusal::Http => return,
                2 if how != Refusal::Http => return self.pause(now),
                _ => {}
            }
        } else {
            self.possible = self.possible.refusing(number, how);
        }
        if !self.is_searching() || self.possible.count() == 0 {
            self.pause(now);
        }
    }

    /// Something else has happened: slurmctld is away, frozen, a standby, or has too much to do.
    pub(crate) fn interrupt(&mut self) {
        if self.strikes == 1 {
            self.strikes = 0;
        }
    }

    const fn is_searching(&self) -> bool {
        self.accepted.is_none() || self.is_in_doubt
    }

    /// The next attempt comes later.
    fn pause(&mut self, now: i64) {
        let pause = PAUSES.get(self.pauses).or(PAUSES.last()).copied().unwrap_or(HOUR);
        self.pauses = self.pauses.saturating_add(1);
        self.retry_at = now.saturating_add(pause);
        self.begin_again();
    }

    /// Forgets what refusals seemed to tell. The next attempt begins with what was accepted before;
    /// if that is refused once more, others are tried.
    fn begin_again(&mut self) {
        self.is_in_doubt = false;
        self.possible = self.accepted.map_or(Releases::ALL, |known| Releases::ALL.accepting(known));
        self.strikes = if self.accepted.is_some() { 2 } else { 0 };
    }
}
