//! `[slurm] follow`: whether the active slurmctld runs on this host.
//!
//! Slurm makes sure that one controller is active, so our daemons need not agree on it. At every tick only this host's
//! slurmctld is asked: it gives its statistics, or says that it is a standby. As a standby it logs a line for each such
//! request, so it is not asked while a controller before it in SlurmctldHost answers a ping. Pings have their own
//! reader, because a ping to a host that is down or hangs takes seconds. A tick waits for at most [`PATIENCE`], and
//! only if the last ping was answered. Where none before this host answers, those behind it are pinged, which take over
//! if they do not hear from this one (isolation.rs).

use std::time::Duration;

use slurm_snapshot::{Ahead, Behind, Reply, ReplyKind, ReplyOptions, Request};
use tokio::time::Instant;

use crate::config::SlurmSettings;
use crate::isolation::{Isolation, Verdict};
use crate::self_metrics::FollowFigures;
use crate::source::{Outcome, ReaderMemory, Source};
use crate::survey::START_DEADLINE;

/// How long a tick waits for a ping: far longer than a slurmctld that is healthy takes.
const PATIENCE: Duration = Duration::from_millis(300);

/// The last known role of this host's slurmctld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FollowRole {
    #[default]
    Unknown,
    Active,
    Standby,
}

/// What a tick does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowStep {
    /// Asks this host's slurmctld.
    Ask,
    /// Nothing: a controller before it answers.
    Standby,
}

/// What a tick's outcome changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// This host has become the one that publishes.
    pub(crate) handover: bool,
    /// What others have published meanwhile is not known.
    pub(crate) is_return: bool,
}

/// The reader that pings, and what it and this host's slurmctld have said.
#[derive(Debug)]
pub(crate) struct Follow {
    source: Source,
    /// A ping is under way.
    pinged: bool,
    state: FollowState,
    /// Of the last tick; `None` if nothing is known of it.
    figures: Option<FollowFigures>,
    isolation: Isolation,
}

#[derive(Debug, Default)]
struct FollowState {
    ahead: Option<Ahead>,
    role: FollowRole,
    known_at: Option<Instant>,
    /// Since when slurmctld has its statistics, by its last answer.
    start: Option<i64>,
    /// It did not answer the last tick.
    is_down: bool,
}

impl Follow {
    /// Starts its reader, if the configuration says so.
    pub(crate) fn start(slurm: &SlurmSettings, readers: &ReaderMemory) -> Option<Self> {
        slurm.follow.then(|| Self {
            source: Source::start(slurm.clone(), START_DEADLINE, readers),
            pinged: false,
            state: FollowState::default(),
            figures: None,
            isolation: Isolation::default(),
        })
    }

    pub(crate) fn request() -> Request {
        Request::new(ReplyKind::Controllers, ReplyOptions { follow: true, ..ReplyOptions::default() })
    }

    /// Pings for a tick. Returns until when that waits for the answer; `None`: this host's slurmctld is asked at once.
    pub(crate) fn begin(&mut self) -> Option<Instant> {
        let hangs = self.pinged;
        if !hangs {
            self.pinged = self.source.ask(Self::request());
        }
        if hangs || !self.state.has_answer() { None } else { Instant::now().checked_add(PATIENCE) }
    }

    /// The outcome of the ping under way; waits for ever if there is none. Safe to cancel.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        self.source.outcome().await
    }

    /// Whether this host has been found among the controllers.
    pub(crate) fn knows_its_host(&self) -> bool {
        self.state.ahead.as_ref().is_some_and(|ahead| ahead.own.is_some())
    }

    /// Takes the result of a ping; returns what a tick that waited for it does.
    pub(crate) fn pinged(&mut self, ahead: Option<Ahead>) -> FollowStep {
        self.pinged = false;
        match (ahead, &mut self.state.ahead) {
            (None, Some(known)) => {
                (known.answers, known.behind) = (None, known.behind.map(|_| Behind::Silent))
            }
            (ahead, state) => *state = ahead,
        }
        if let Some(ahead) = &self.state.ahead {
            let timeout = self.state.timeout();
            self.isolation.pinged(ahead.answers.is_some(), ahead.behind, timeout, Instant::now());
        }
        self.state.step()
    }

    /// Takes the outcome of a tick; one comes each `interval`.
    pub(crate) fn note(&mut self, became: TickRole, interval: Duration) -> Change {
        if became == TickRole::Down {
            self.isolation.down();
        }
        let change = self.state.note(became, Instant::now(), interval);
        let standby = !matches!(became, TickRole::Active(_));
        self.figures = Some(FollowFigures { standby, handover: change.handover });
        change
    }

    /// Nothing is known of the last tick.
    pub(crate) const fn given_up(&mut self) {
        self.figures = None;
    }

    pub(crate) const fn figures(&self) -> Option<FollowFigures> {
        self.figures
    }

    /// Whether this host may have lost its role without knowing it.
    pub(crate) fn is_isolated(&self) -> bool {
        self.isolation.is_isolated(Instant::now())
    }

    /// Takes what this tick shows about the world outside: how many messages slurmd has sent to this host's slurmctld,
    /// and how many answers the receiver with the fewest has given, if all are connected and none is in doubt. Nothing
    /// follows from it before the first ping has ended.
    pub(crate) fn judge_isolation(&mut self, nodes: Option<u64>, answers: Option<u64>) -> Verdict {
        match self.state.ahead {
            Some(_) => self.isolation.look(nodes, answers, Instant::now()),
            None => Verdict::Wait,
        }
    }

    /// Another controller may have been active, and may still be. Returns whether that is news.
    pub(crate) fn was_isolated(&mut self) -> bool {
        let is_first = self.isolation.withdrawn(Instant::now());
        if is_first {
            self.state.role = FollowRole::Unknown;
        }
        is_first
    }

    /// The host of the controller before this one that answers.
    pub(crate) fn host_ahead(&self) -> Option<&str> {
        let ahead = self.state.ahead.as_ref()?;
        let index = usize::try_from(ahead.answers?).ok()?;
        ahead.hosts.get(index).map(String::as_str)
    }

    pub(crate) const fn source(&self) -> &Source {
        &self.source
    }
}

/// What the outcome of a tick shows about this host's slurmctld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TickRole {
    /// With the time since when slurmctld has its statistics.
    Active(Option<i64>),
    Standby,
    /// Nobody before it answers, and this host's slurmctld does not either.
    Down,
}

impl FollowState {
    /// SlurmctldTimeout.
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.ahead.as_ref().map_or(0, |ahead| ahead.timeout.into()))
    }

    /// Whether any other controller answered the last ping.
    fn has_answer(&self) -> bool {
        self.answers().is_some()
            || self.ahead.as_ref().is_some_and(|ahead| ahead.behind == Some(Behind::Answers))
    }

    fn answers(&self) -> Option<u32> {
        self.ahead.as_ref().and_then(|ahead| ahead.answers)
    }

    /// The primary is active where it answers. A backup before this one may wait, as this one may, and this one be active until that
    /// has taken over: what this one said last is then asked again.
    fn step(&self) -> FollowStep {
        match (self.answers(), self.role) {
            (None, _) | (Some(1..), FollowRole::Active | FollowRole::Unknown) => FollowStep::Ask,
            (Some(0), _) | (Some(_), FollowRole::Standby) => FollowStep::Standby,
        }
    }

    fn note(&mut self, became: TickRole, now: Instant, interval: Duration) -> Change {
        let (before, known_at) = (self.role, self.known_at);
        if became != TickRole::Down {
            self.known_at = Some(now);
        }
        let was_down = std::mem::replace(&mut self.is_down, became == TickRole::Down);
        match became {
            TickRole::Active(start) => {
                self.role = FollowRole::Active;
                let is_restart = std::mem::replace(&mut self.start, start) != start && was_down;
                // For less than that nobody else can have been active without a restart of this slurmctld, which a
                // `scontrol takeover` ends. It does not matter what was away: slurmctld, or this daemon.
                let timeout = self.ahead.as_ref().map_or(interval, |_| self.timeout());
                let is_absence = known_at.is_some_and(|at| now.duration_since(at) >= timeout + interval);
                let is_return = before == FollowRole::Unknown || is_absence || is_restart;
                Change { handover: is_return || before == FollowRole::Standby, is_return }
            }
            TickRole::Standby => {
                self.role = FollowRole::Standby;
                Change::default()
            }
            TickRole::Down => Change::default(),
        }
    }
}

/// The controllers before this one and the cluster, from the outcome of a ping.
pub(crate) fn ahead_of(outcome: Outcome) -> Option<(Ahead, Option<String>)> {
    let reading = outcome.ok()?;
    match reading.reply {
        Some(Reply::Ahead(ahead)) => Some((ahead, reading.cluster)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVE: TickRole = TickRole::Active(Some(1));

    fn state(answers: Option<u32>, role: FollowRole) -> FollowState {
        let ahead = Some(Ahead { answers, timeout: 10, ..Ahead::default() });
        FollowState { ahead, role, ..FollowState::default() }
    }

    fn noted(state: &mut FollowState, role: TickRole, now: Instant) -> (bool, bool) {
        let Change { handover, is_return } = state.note(role, now, Duration::from_secs(1));
        (handover, is_return)
    }

    #[test]
    fn a_backup_is_asked_only_where_nobody_before_it_answers() {
        let step = |answers, role| state(answers, role).step();
        assert_eq!(step(None, FollowRole::Standby), FollowStep::Ask);
        assert_eq!(step(Some(0), FollowRole::Standby), FollowStep::Standby);
        // The primary that was frozen and continues: it is active, although this one has not been told yet.
        assert_eq!(step(Some(0), FollowRole::Active), FollowStep::Standby);
        // A second backup is active, and the first has come back and waits for SlurmctldTimeout.
        assert_eq!(step(Some(1), FollowRole::Active), FollowStep::Ask);
        assert_eq!(step(Some(1), FollowRole::Unknown), FollowStep::Ask);
        assert_eq!(step(Some(1), FollowRole::Standby), FollowStep::Standby);
    }

    #[test]
    fn a_handover_is_marked_once_and_a_slurmctld_that_was_away_for_less_than_its_timeout_is_none() {
        let (mut state, start) = (state(None, FollowRole::Unknown), Instant::now());
        let mut note = |role, after| noted(&mut state, role, start + Duration::from_secs(after));
        assert_eq!(note(ACTIVE, 0), (true, true), "it may have been another before");
        assert_eq!(note(ACTIVE, 1), (false, false));
        assert_eq!(note(TickRole::Down, 2), (false, false));
        assert_eq!(note(ACTIVE, 11), (false, false));
        assert_eq!(note(TickRole::Down, 12), (false, false));
        assert_eq!(note(TickRole::Down, 21), (false, false));
        assert_eq!(note(ACTIVE, 22), (true, true));
        assert_eq!(note(TickRole::Standby, 23), (false, false));
        assert_eq!(note(TickRole::Standby, 59), (false, false));
        assert_eq!(note(ACTIVE, 60), (true, false), "it has seen what ended while it waited");
        assert_eq!(note(ACTIVE, 70), (false, false));
    }

    #[test]
    fn a_daemon_that_was_itself_frozen_does_not_know_what_others_published() {
        let (mut state, start) = (state(None, FollowRole::Unknown), Instant::now());
        let mut note = |role, after| noted(&mut state, role, start + Duration::from_secs(after));
        assert_eq!(note(ACTIVE, 0), (true, true));
        assert_eq!(note(ACTIVE, 10), (false, false), "for too short a time for a backup");
        assert_eq!(note(ACTIVE, 21), (true, true));
        assert_eq!(note(TickRole::Standby, 22), (false, false));
        assert_eq!(note(ACTIVE, 60), (true, true));
    }

    /// `scontrol takeover` needs seconds: another was active although SlurmctldTimeout is not over.
    #[test]
    fn a_slurmctld_that_was_started_again_is_a_handover_however_short_it_was_away() {
        let (mut state, start) = (state(None, FollowRole::Unknown), Instant::now());
        let mut note = |role, after| noted(&mut state, role, start + Duration::from_secs(after));
        assert_eq!(note(ACTIVE, 0), (true, true));
        assert_eq!(note(TickRole::Active(Some(2)), 1), (false, false), "midnight, or sdiag --reset");
        assert_eq!(note(TickRole::Down, 2), (false, false));
        assert_eq!(note(TickRole::Active(Some(3)), 3), (true, true));
        assert_eq!(note(TickRole::Down, 4), (false, false));
        assert_eq!(note(TickRole::Active(Some(3)), 5), (false, false), "it only did not answer");
    }
}
