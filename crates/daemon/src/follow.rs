//! `[slurm] follow`: whether the active slurmctld runs on this host.
//!
//! Slurm makes sure that one controller is active, so our daemons need not agree on it. At every
//! tick only this host's slurmctld is asked: it gives its statistics, or says that it is a standby.
//! As a standby it logs a line for each such request, so it is not asked while a controller before
//! it in SlurmctldHost answers a ping. Pings have their own reader, because a ping to a host that
//! is down or hangs takes seconds. A tick waits for at most [`PATIENCE`], and only if the last ping
//! was answered. Where none before this host answers, those behind it are pinged, which take over
//! if they do not hear from this one (isolation.rs).

use std::mem;
use std::path::PathBuf;
use std::time::Duration;

use slurm_points::collectors::TickOutcome;
use slurm_snapshot::{Ahead, Behind, Reply, ReplyKind, ReplyOptions, Request};
use tokio::time::Instant;

use crate::config::SlurmSettings;
use crate::isolation::{Isolation, Verdict};
use crate::self_metrics::FollowFigures;
use crate::source::{Outcome, ReaderMemory, Source};
use crate::survey::START_DEADLINE;

/// Time that a tick waits for a ping: far longer than a slurmctld that is healthy takes.
const PATIENCE: Duration = Duration::from_millis(300);

/// The last known role of this host's slurmctld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FollowRole {
    #[default]
    Unknown,
    Active,
    Standby,
}

/// Changes in who publishes the cluster's figures, as a tick's outcome shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Whether this host begins to publish at this tick.
    pub(crate) handover: bool,
    /// Whether this host publishes after a time in which other hosts may have published, it is not
    /// known what.
    pub(crate) is_return: bool,
}

/// The source that pings controllers, and what its pings and this host's slurmctld have shown of
/// who is active.
#[derive(Debug)]
pub(crate) struct Follow {
    pub(crate) source: Source,
    /// Whether a ping is under way.
    ping_pending: bool,
    state: FollowState,
    /// The daemon's own figures of `follow` at the last tick; `None` before the first, and if the
    /// tick was given up.
    pub(crate) figures: Option<FollowFigures>,
    isolation: Isolation,
    pub(crate) conf: Option<PathBuf>,
    /// Whether this host was ever found among the controllers of `conf`.
    pub(crate) was_found: bool,
}

#[derive(Debug, Default)]
struct FollowState {
    /// The controllers before and behind this host's, by the last ping. Without `own`, no ping has
    /// found this host among the controllers.
    ahead: Ahead,
    role: FollowRole,
    known_at: Option<Instant>,
    /// Moment since which slurmctld's statistics count, by its last answer, Unix seconds.
    start: Option<i64>,
    /// Whether a tick has failed since slurmctld's last answer.
    is_down: bool,
}

impl Follow {
    /// Starts the reader that pings; `None` without `[slurm] follow`.
    pub(crate) fn start(slurm: &SlurmSettings, readers: &ReaderMemory) -> Option<Self> {
        slurm.follow.then(|| Self {
            source: Source::start("pings", slurm.clone(), START_DEADLINE, readers),
            ping_pending: false,
            state: FollowState::default(),
            figures: None,
            isolation: Isolation::default(),
            conf: slurm.conf.clone(),
            was_found: false,
        })
    }

    /// Takes over what was found before of the same controllers, so that a host that is isolated
    /// stays so.
    pub(crate) fn resume(&mut self, before: Self) {
        let Self { state, figures, isolation, was_found, .. } = before;
        self.state = state;
        self.figures = figures;
        self.isolation = isolation;
        self.was_found = was_found;
    }

    pub(crate) fn request() -> Request {
        Request::new(
            ReplyKind::Controllers,
            ReplyOptions { follow: true, ..ReplyOptions::default() },
        )
    }

    /// Pings for a tick. Returns until when that waits for the answer; `None`: this host's
    /// slurmctld is asked at once.
    pub(crate) fn ping_for_tick(&mut self) -> Option<Instant> {
        let hangs = self.ping_pending;
        if !hangs {
            self.ping_pending = self.source.ask(Self::request());
        }
        if hangs || !self.state.has_answer() { None } else { Instant::now().checked_add(PATIENCE) }
    }

    /// Whether this host has been found among the controllers.
    pub(crate) fn knows_its_host(&self) -> bool {
        self.state.ahead.own.is_some()
    }

    /// Takes the result of a ping, `None` if it failed or did not find this host. Returns whether a
    /// tick that waited for it asks this host's slurmctld.
    pub(crate) fn judge_ping(&mut self, ahead: Option<Ahead>) -> bool {
        self.ping_pending = false;
        let known = &mut self.state.ahead;
        match ahead {
            Some(ahead) => *known = ahead,
            None => (known.answers, known.behind) = (None, known.behind.map(|_| Behind::Silent)),
        }
        let is_answered = known.answers.is_some();
        let behind = known.behind;
        if self.knows_its_host() {
            self.was_found = true;
            self.isolation.note_ping(is_answered, behind, self.state.timeout(), Instant::now());
        }
        self.state.asks()
    }

    /// Takes the outcome of a tick; there is one in each `interval`. Returns what has changed.
    pub(crate) fn handle_tick(&mut self, outcome: &TickOutcome, interval: Duration) -> Change {
        if let TickOutcome::Failed = outcome {
            self.isolation.forget_heard();
        }
        let change = self.state.handle_tick(outcome, Instant::now(), interval);
        let figures =
            FollowFigures { standby: outcome.reading().is_none(), handover: change.handover };
        self.figures = if let TickOutcome::GivenUp = outcome { None } else { Some(figures) };
        change
    }

    /// Whether this host is isolated, so that another slurmctld may be active without its knowing.
    pub(crate) fn is_isolated(&self) -> bool {
        self.isolation.is_isolated(Instant::now())
    }

    /// Takes what this tick shows about the world outside: how many messages slurmd has sent to
    /// this host's slurmctld, and how many answers the receiver with the fewest has given, if all
    /// are connected and none is in doubt. Figures wait until a ping has found this host.
    pub(crate) fn judge_isolation(&mut self, nodes: Option<u64>, answers: Option<u64>) -> Verdict {
        if !self.knows_its_host() {
            return Verdict::Wait;
        }
        self.isolation.judge_tick(nodes, answers, Instant::now())
    }

    /// Takes that provisional figures were withdrawn, because another controller may have been
    /// active, and may still be. Returns whether that is news.
    pub(crate) fn note_withdrawal(&mut self) -> bool {
        let is_first = self.isolation.note_withdrawal(Instant::now());
        if is_first {
            self.state.role = FollowRole::Unknown;
        }
        is_first
    }

    /// The host of the controller before this one that answers; `None` if none does.
    pub(crate) fn host_ahead(&self) -> Option<&str> {
        let index = usize::try_from(self.state.ahead.answers?).ok()?;
        self.state.ahead.hosts.get(index).map(String::as_str)
    }
}

impl FollowState {
    /// SlurmctldTimeout, by the last ping.
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.ahead.timeout.into())
    }

    /// Whether any other controller answered the last ping.
    fn has_answer(&self) -> bool {
        self.ahead.answers.is_some() || self.ahead.behind == Some(Behind::Answers)
    }

    /// Whether a tick asks this host's slurmctld. It does not if the primary has answered the last
    /// ping, because that one is active then. If only a backup before this host has answered, that
    /// may wait while this one is active, so the tick asks unless this host's slurmctld last said
    /// that it waits.
    const fn asks(&self) -> bool {
        match (self.ahead.answers, self.role) {
            (None, _) | (Some(1..), FollowRole::Active | FollowRole::Unknown) => true,
            (Some(0), _) | (Some(_), FollowRole::Standby) => false,
        }
    }

    fn handle_tick(&mut self, outcome: &TickOutcome, now: Instant, interval: Duration) -> Change {
        let role = match outcome {
            TickOutcome::Reading(_) => FollowRole::Active,
            TickOutcome::Standby => FollowRole::Standby,
            TickOutcome::Failed => {
                self.is_down = true;
                return Change::default();
            }
            TickOutcome::GivenUp => return Change::default(),
        };
        let before = mem::replace(&mut self.role, role);
        let known_at = self.known_at.replace(now);
        let was_down = mem::take(&mut self.is_down);
        let Some(reading) = outcome.reading() else { return Change::default() };
        let start = reading.statistics.as_ref().map(|statistics| statistics.req_time_start);
        let is_restart = mem::replace(&mut self.start, start) != start && was_down;
        // For less than that nobody else can have been active without a restart of this slurmctld,
        // which a `scontrol takeover` ends. It does not matter what was away: slurmctld, or this
        // daemon.
        let timeout = if self.ahead.own.is_some() { self.timeout() } else { interval };
        let is_absence = known_at.is_some_and(|at| now.duration_since(at) >= timeout + interval);
        let is_return = before == FollowRole::Unknown || is_absence || is_restart;
        Change { handover: is_return || before == FollowRole::Standby, is_return }
    }
}

/// Returns the other controllers and the cluster's name from the outcome of a ping; `None` if it
/// failed.
pub(crate) fn ahead_of(outcome: Outcome) -> Option<(Ahead, Option<String>)> {
    let reading = outcome.ok()?;
    match reading.reply {
        Some(Reply::Ahead(ahead)) => Some((ahead, reading.cluster)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use TickOutcome::{Failed, Standby};
    use slurm_snapshot::{Reading, Statistics};

    use super::*;

    const NOTHING: Change = Change { handover: false, is_return: false };
    const HANDOVER: Change = Change { handover: true, is_return: false };
    const RETURN: Change = Change { handover: true, is_return: true };

    fn state(answers: Option<u32>, role: FollowRole) -> FollowState {
        let ahead = Ahead { own: Some(0), answers, timeout: 10, ..Ahead::default() };
        FollowState { ahead, role, ..FollowState::default() }
    }

    /// Active, with statistics since `start`.
    fn active(start: i64) -> TickOutcome {
        let statistics = Some(Statistics { req_time_start: start, ..Statistics::default() });
        TickOutcome::Reading(Arc::new(Reading { statistics, ..Reading::default() }))
    }

    /// Compares what each outcome changes, so many seconds after the first.
    fn check(outcomes: &[(TickOutcome, u64, Change)]) {
        let mut state = state(None, FollowRole::Unknown);
        let start = Instant::now();
        for (outcome, after, expected) in outcomes {
            let now = start + Duration::from_secs(*after);
            assert_eq!(
                state.handle_tick(outcome, now, Duration::from_secs(1)),
                *expected,
                "after {after} s"
            );
        }
    }

    #[test]
    fn a_backup_is_asked_only_where_nobody_before_it_answers() {
        let asks = |answers, role| state(answers, role).asks();
        assert!(asks(None, FollowRole::Standby));
        assert!(!asks(Some(0), FollowRole::Standby));
        // The primary that was frozen and continues: it is active, although this one has not been
        // told yet.
        assert!(!asks(Some(0), FollowRole::Active));
        // A second backup is active, and the first has come back and waits for SlurmctldTimeout.
        assert!(asks(Some(1), FollowRole::Active));
        assert!(asks(Some(1), FollowRole::Unknown));
        assert!(!asks(Some(1), FollowRole::Standby));
    }

    #[test]
    fn a_handover_is_marked_once_and_a_slurmctld_that_was_away_for_less_than_its_timeout_is_none() {
        check(&[
            // It may have been another before.
            (active(1), 0, RETURN),
            (active(1), 1, NOTHING),
            (Failed, 2, NOTHING),
            (active(1), 11, NOTHING),
            (Failed, 12, NOTHING),
            (Failed, 21, NOTHING),
            (active(1), 22, RETURN),
            (Standby, 23, NOTHING),
            (Standby, 59, NOTHING),
            // It has seen what ended while it waited.
            (active(1), 60, HANDOVER),
            (active(1), 70, NOTHING),
        ]);
    }

    #[test]
    fn a_daemon_that_was_itself_frozen_does_not_know_what_others_published() {
        check(&[
            (active(1), 0, RETURN),
            // For too short a time for a backup.
            (active(1), 10, NOTHING),
            (active(1), 21, RETURN),
            (Standby, 22, NOTHING),
            (active(1), 60, RETURN),
        ]);
    }

    /// `scontrol takeover` needs seconds: another was active although SlurmctldTimeout is not over.
    #[test]
    fn a_slurmctld_that_was_started_again_is_a_handover_however_short_it_was_away() {
        check(&[
            (active(1), 0, RETURN),
            // Midnight, or sdiag --reset.
            (active(2), 1, NOTHING),
            (Failed, 2, NOTHING),
            (active(3), 3, RETURN),
            // It only did not answer.
            (Failed, 4, NOTHING),
            (active(3), 5, NOTHING),
        ]);
    }
}
