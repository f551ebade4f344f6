//! The protocol number in requests to one slurmctld: the highest that it and this reader know.
//!
//! A number that slurmctld has accepted is *proved*, and used at every tick, even while it is
//! refused, as `sdiag` by cron would use it. A wrong key or clock looks like a wrong number from
//! 20.11 to 25.05, and so does a proxy that closes connections. Each refusal writes one to three
//! lines into slurmctld's log. So after five minutes of refusals the proved number is used only
//! every 15 s, and other numbers are searched sparingly: six refusals, then one every ten minutes.
//! A search leaves out the numbers that no release accepts which refuses as this slurmctld has
//! refused. While no number is proved, there is a whole search every minute.
//!
//! Pure: the time and the peer's answers are arguments.

#[cfg(test)]
mod peers;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use slurm_snapshot::{LIBRARIES, Statistics, by_command, restarted};

/// Number of refusals in searches within an hour after which a search pauses.
const MOST: usize = 6;
const HOUR: i64 = 3600;

/// Seconds from the last refusal in a search to the next attempt, if there were [`MOST`] in the
/// hour.
const SEARCH_PAUSE: i64 = 600;

/// Seconds between searches while no number is proved.
const FIRST_PAUSE: i64 = 60;

/// Seconds of refusals after which the proved number is used only every [`LONG_PAUSE`] seconds.
const LONG: i64 = 300;
/// Seconds between two requests with the proved number after [`LONG`] seconds of refusals.
const LONG_PAUSE: i64 = 15;

/// Number of ticks for which the proved number is refused before others are searched.
const STRIKES: u8 = 3;

/// Seconds of a day. At midnight UTC slurmctld's statistics begin again without a restart.
const DAY: i64 = 86_400;
/// Seconds after midnight UTC in which statistics that begin again show no restart.
const AROUND_MIDNIGHT: i64 = 120;

/// The ways in which slurmctld refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// slurmctld closes the connection: up to 24.05, for a number or a credential.
    Closed,
    /// `SLURM_PROTOCOL_AUTHENTICATION_ERROR`: from 24.11 on for a credential, and up to 25.05 also
    /// for a number.
    Code,
    /// An answer of HTTP: from 25.11 on, for a number.
    Http,
}

/// Lowest protocol number that statistics.rs can unpack.
#[expect(clippy::cast_possible_truncation, reason = "such numbers are small")]
pub(crate) const OLDEST: u16 = match LIBRARIES {
    [(number, _), ..] => *number as u16,
    [] => 0,
};
/// Highest protocol number that statistics.rs can unpack.
#[expect(clippy::cast_possible_truncation, reason = "such numbers are small")]
pub(crate) const NEWEST: u16 = match LIBRARIES {
    [.., (number, _)] => *number as u16,
    [] => 0,
};

/// Number of releases after the newest one that are supposed to accept the three releases before
/// them, as all have since 24.11.
const FUTURE: u16 = 2;
/// Number of [`releases`], with those to come.
const COUNT: u16 = NEWEST - OLDEST + 1 + FUTURE;

/// The releases: slurmctld's own number, the lowest that it accepts, and how it refuses others.
fn releases() -> impl Iterator<Item = (u16, u16, Refusal)> {
    (OLDEST..).take(COUNT.into()).map(|own| match own {
        ..=41 => (own, own.saturating_sub(2), Refusal::Closed),
        42 | 43 => (own, own.saturating_sub(3), Refusal::Code),
        _ => (own, own.saturating_sub(3), Refusal::Http),
    })
}

/// A set of [`releases`], with a bit for each.
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

    fn below(self, number: u16) -> Self {
        self.that(|(own, ..)| *own < number)
    }

    const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the number that most of these releases accept, the lowest of several; `None` for no
    /// release.
    fn best(self) -> Option<u16> {
        let counted = (OLDEST..=NEWEST)
            .map(|number| (self.accepting(number).count(), std::cmp::Reverse(number)));
        counted.max().filter(|(count, _)| *count > 0).map(|(_, number)| number.0)
    }
}

/// The part of what is known of one slurmctld's numbers that is kept over a restart of this
/// program. Nothing here makes a proved number wait. Times are Unix seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Found {
    /// The highest number that slurmctld has accepted: the proved one. `None`: it has accepted
    /// none.
    proved: Option<u16>,
    /// Moment since which slurmctld's statistics counted when it last accepted a number: its start,
    /// as a rule.
    started: i64,
    /// Releases that slurmctld may be of.
    possible: Releases,
    /// Moments at which slurmctld last refused other numbers than the proved one.
    searched: Vec<i64>,
}

impl Found {
    pub(crate) const fn proved(&self) -> Option<u16> {
        self.proved
    }

    /// Whether this can have been written by this program.
    pub(crate) fn is_plausible(&self) -> bool {
        self.proved.is_none_or(|number| (OLDEST..=NEWEST).contains(&number))
            && self.searched.len() <= MOST
    }
}

/// The search for the protocol number of one slurmctld.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) found: Found,
    /// The part of the last statistics that survives a reset.
    last: Option<Statistics>,
    /// Whether slurmctld has not been away since it accepted a number, so that it is the same
    /// process.
    has_stayed: bool,
    row: Row,
    tick: Tick,
}

/// The row of ticks in which the proved number was refused, one after the other, and the search
/// that follows.
#[derive(Debug, Default)]
struct Row {
    since: Option<i64>,
    ticks: u8,
    asked_at: i64,
    /// The way in which the proved number was refused last.
    how: Option<Refusal>,
    /// Releases that slurmctld may be of, as it has refused; `None`: other numbers are not
    /// searched.
    candidates: Option<Releases>,
    /// Begin of the last search while no number was proved, Unix seconds.
    begun: Option<i64>,
}

/// One request for statistics, with all its attempts.
#[derive(Debug, Default)]
struct Tick {
    proved: Attempt,
    refused: Vec<(u16, Refusal)>,
    /// Whether the last refused number was above the proved one, which was not refused itself.
    refused_higher: bool,
    has_begun: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Attempt {
    #[default]
    None,
    Refused,
    Accepted,
}

impl From<Found> for Numbers {
    fn from(found: Found) -> Self {
        Self { found, ..Self::default() }
    }
}

impl Numbers {
    /// Begins a request at `now`, Unix seconds.
    pub(crate) fn begin_tick(&mut self, now: i64) {
        // Also those of a time that has not come yet, after the clock was set back.
        self.found.searched.retain(|at| (0..HOUR).contains(&now.saturating_sub(*at)));
        self.row.since = self.row.since.map(|since| since.min(now));
        self.tick = Tick::default();
    }

    /// Returns the number for the next attempt; `None`: there is no other attempt in this request.
    pub(crate) fn next(&mut self, now: i64) -> Option<u16> {
        let Some(proved) = self.found.proved else { return self.next_first(now) };
        let higher = proved.saturating_add(1);
        let may_climb = self.tick.refused.iter().all(|(number, _)| *number != higher)
            && self.row.ticks == 0
            && higher <= NEWEST
            && self.found.possible.accepting(higher).count() > 0
            && self.may_search(now);
        match self.tick.proved {
            Attempt::None | Attempt::Accepted if may_climb => Some(higher),
            Attempt::None if self.seconds_to_wait(now) == 0 => {
                self.row.asked_at = now;
                Some(proved)
            }
            Attempt::Refused if self.may_search(now) => self.row.candidates?.best(),
            _ => None,
        }
    }

    /// Returns the seconds for which slurmctld gets no request, because it has refused so many; 0
    /// if it is asked now.
    pub(crate) fn seconds_to_wait(&self, now: i64) -> i64 {
        let left = |at: i64, pause: i64| match now.saturating_sub(at) {
            passed if (0..pause).contains(&passed) => pause.saturating_sub(passed),
            _ => 0,
        };
        if self.found.proved.is_none() {
            let is_full = self.found.searched.len() >= MOST;
            return self.row.begun.filter(|_| is_full).map_or(0, |at| left(at, FIRST_PAUSE));
        }
        let is_long = self.row.since.is_some_and(|since| now.saturating_sub(since) >= LONG);
        if is_long { left(self.row.asked_at, LONG_PAUSE) } else { 0 }
    }

    /// Returns the next number while none is proved. A request makes a whole search, because that
    /// ends with the right number if the key is right, and 20.11 to 22.05 refuse the number that
    /// most releases accept.
    fn next_first(&mut self, now: i64) -> Option<u16> {
        if !self.tick.has_begun {
            if self.seconds_to_wait(now) > 0 {
                return None;
            }
            self.tick.has_begun = true;
            self.row.begun = Some(now);
            self.row.candidates = Some(Releases::ALL);
        }
        self.row.candidates?.best()
    }

    fn may_search(&self, now: i64) -> bool {
        let is_over = |at: &i64| now.saturating_sub(*at) >= SEARCH_PAUSE;
        self.found.searched.len() < MOST || self.found.searched.last().is_none_or(is_over)
    }

    /// Takes that slurmctld has answered a request with this number.
    pub(crate) fn accept(&mut self, number: u16, statistics: &Statistics) {
        // For a moment after its start slurmctld does not say since when it counts.
        let started = match statistics.req_time_start {
            0 => self.found.started,
            started => started,
        };
        let has_begun_again =
            started != self.found.started && started.rem_euclid(DAY) > AROUND_MIDNIGHT;
        let is_reset = self.has_stayed
            && self.last.as_ref().is_some_and(|old| !restarted(old, statistics))
            && by_command(statistics);
        let possible = match self.found.proved {
            // Another release may have come with the restart.
            Some(proved) if proved == number && has_begun_again && !is_reset => Releases::ALL,
            Some(proved) if proved == number || self.row.ticks == 0 => self.found.possible,
            // What was refused before may have been about a key.
            Some(_) => Releases::ALL,
            None => self.row.candidates.unwrap_or_default(),
        };
        let possible = possible.accepting(number);
        // It does not know a higher one. That does not depend on how it says so.
        let higher = self.tick.refused.last().filter(|_| self.tick.refused_higher);
        let possible = higher.map_or(possible, |(higher, _)| possible.below(*higher));
        self.found.possible =
            if possible.count() == 0 { Releases::ALL.accepting(number) } else { possible };
        if self.found.proved.replace(number) != Some(number) {
            // The way up from here is not to wait for what led here.
            self.found.searched.clear();
        }
        self.found.started = started;
        self.last = Some(Statistics {
            req_time_start: started,
            bf_when_last_cycle: statistics.bf_when_last_cycle,
            bf_table_size: statistics.bf_table_size,
            schedule_cycle_last: statistics.schedule_cycle_last,
            ..Statistics::default()
        });
        self.has_stayed = true;
        self.row = Row::default();
        self.tick.proved = Attempt::Accepted;
    }

    /// Takes that slurmctld has refused a request with this number at `now`, Unix seconds.
    pub(crate) fn refuse(&mut self, number: u16, how: Refusal, now: i64) {
        self.tick.refused.push((number, how));
        self.tick.refused_higher = false;
        if self.found.proved == Some(number) {
            self.tick.proved = Attempt::Refused;
            self.row.since.get_or_insert(now);
            self.row.ticks = self.row.ticks.saturating_add(1);
            let is_other = self.row.how.replace(how) != Some(how);
            let searches = how == Refusal::Http || self.row.ticks >= STRIKES || !self.has_stayed;
            if searches && (is_other || self.row.candidates.is_none_or(|all| all.count() == 0)) {
                // The one above it may have been refused in this request too.
                let refused = self.tick.refused.iter();
                self.row.candidates = Some(
                    refused.fold(Releases::ALL, |all, (number, how)| all.refusing(*number, *how)),
                );
            }
            return;
        }
        if self.found.searched.len() >= MOST {
            self.found.searched.remove(0);
        }
        self.found.searched.push(now);
        if self.found.proved.is_some() && self.tick.proved != Attempt::Refused {
            self.tick.refused_higher = true;
            if self.tick.proved == Attempt::Accepted {
                self.found.possible = self.found.possible.below(number);
            }
            return;
        }
        self.row.candidates = self.row.candidates.map(|all| all.refusing(number, how));
    }

    /// Takes that a request has failed in another way: slurmctld is away, frozen, a standby, or has
    /// too much to do. `is_away`: a connection was refused or reset, so that another slurmctld may
    /// come.
    pub(crate) const fn interrupt(&mut self, is_away: bool) {
        self.has_stayed &= !is_away;
    }
}
