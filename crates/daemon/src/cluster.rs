//! Everything that the daemon has of one cluster: its readers, its collectors, the tick under way, and what is known of
//! slurmctld. A changed `[slurm]` replaces it as a whole, so that nothing of the old one is left.

mod seen;
mod tick;

use std::mem;
use std::time::Duration;

use carbon::Batch;
use slurm_points::collecting::{Collecting, DueCollectors};
use slurm_points::collectors::TickOutcome;
use slurm_points::configured::Collectors;
use slurm_points::prefix::Prefix;
use slurm_points::replies::{ReplyCounters, RoundResult};
use slurm_snapshot::{Ahead, Reading, ReplyKind, Request, Role};
use tokio::time::sleep_until;
use tracing::{info, warn};

use self::seen::SlurmctldSeen;
use self::tick::TickPhase;
pub(crate) use self::tick::{EndedTick, TickStep};
use crate::accounting::{Accounting, Plan};
use crate::clock::{self, or_never, unix_now};
use crate::config::Config;
use crate::follow::{Change, Follow, FollowStep, TickRole};
use crate::self_metrics::FollowFigures;
use crate::source::rest::Expiry;
use crate::source::{Outcome, ReaderKind, ReaderMemory, Source};
use crate::status::{ReaderEntry, SlurmctldEntry};
use crate::survey::{START_DEADLINE, Survey, patient};

pub(crate) struct Cluster {
    name: ClusterName,
    /// The reader of the statistics.
    statistics: Source,
    /// Where figures are published only if the active slurmctld runs here.
    follow: Option<Follow>,
    /// For the collectors that need more than the statistics; `None` where there is none.
    surveys: Option<Survey>,
    /// For those that need slurmdbd's own statistics. Its reader is that of finished jobs.
    slurmdbd: Option<Survey>,
    /// `None` where finished jobs are not counted.
    finished: Option<Accounting>,
    collecting: Collecting,
    tick: TickPhase,
    seen: SlurmctldSeen,
    /// Of slurmrestd, when its token ends.
    token: Expiry,
}

enum ClusterName {
    Unknown {
        /// The log says that nothing is sent, because the prefix needs the name.
        is_logged: bool,
    },
    Known(String),
}

/// What its readers have reported.
pub(crate) enum ClusterEvent {
    /// Of the statistics.
    Answered(Outcome),
    Pinged(Outcome),
    /// The tick has waited long enough for a ping.
    Waited,
    Surveyed(Role, Outcome),
    Accounted(Outcome),
}

impl Cluster {
    /// Replaces it because `[slurm]` has changed. What the log has said of the name and what was counted of finished jobs stays: both are
    /// the daemon's.
    pub(crate) fn replace(
        &mut self,
        config: &Config,
        readers: &ReaderMemory,
        memory: impl Fn(&'static str) -> Option<String>,
    ) {
        let (is_logged, finished) = (self.is_nameless(), self.finished.take());
        *self = Self::start(config, readers, memory);
        self.name = ClusterName::Unknown { is_logged };
        self.finished = match (finished, self.finished.take()) {
            (Some(before), Some(new)) => Some(before.continued_by(new)),
            (_, new) => new,
        };
    }

    /// Starts its readers and collectors. `memory` returns what a collector has stored.
    pub(crate) fn start(
        config: &Config,
        readers: &ReaderMemory,
        memory: impl Fn(&'static str) -> Option<String>,
    ) -> Self {
        let mut cluster = Self {
            name: ClusterName::Unknown { is_logged: false },
            statistics: Source::start(config.slurm.clone(), START_DEADLINE, readers),
            follow: Follow::start(&config.slurm, readers),
            surveys: None,
            slurmdbd: None,
            finished: None,
            collecting: Collecting::start(config.interval, &config.collectors, memory),
            tick: TickPhase::Idle,
            seen: SlurmctldSeen::default(),
            token: Expiry::default(),
        };
        cluster.arrange(config, readers);
        cluster
    }

    /// Applies another configuration of the same slurmctld. The collectors that have `changed` start again; the others, the surveys and what was
    /// counted of finished jobs continue.
    pub(crate) fn reconfigure(
        &mut self,
        config: &Config,
        changed: &[&'static str],
        readers: &ReaderMemory,
        memory: impl Fn(&'static str) -> Option<String>,
    ) {
        let stays = |name| !changed.contains(&name);
        let collecting = mem::take(&mut self.collecting);
        self.collecting = collecting.restart(config.interval, &config.collectors, stays, memory);
        let Collectors { max_duty, max_threads, .. } = config.collectors;
        for survey in self.surveys.iter_mut().chain(&mut self.slurmdbd) {
            survey.limit(max_duty, max_threads);
            if !changed.is_empty() {
                survey.forget();
            }
        }
        self.arrange(config, readers);
    }

    /// Starts what collectors need and is not there, and ends what none needs.
    fn arrange(&mut self, config: &Config, readers: &ReaderMemory) {
        let Collectors { max_duty, max_threads, .. } = config.collectors;
        let patient = || patient(&config.slurm, readers);
        let survey = |source, follows| Survey::new(source, follows, max_duty, max_threads);
        let surveys = self.surveys.take();
        self.surveys = self
            .collecting
            .needs(Role::Surveys)
            .map(|_| surveys.unwrap_or_else(|| survey(patient(), config.slurm.follow)));
        // slurmdbd has one reader.
        let shared = self.slurmdbd_source().map(Source::share);
        let slurmdbd = self.slurmdbd.take();
        self.slurmdbd = self
            .collecting
            .needs(Role::Accounting)
            .map(|_| slurmdbd.unwrap_or_else(|| survey(shared.unwrap_or_else(patient), false)));
        let shared = self.slurmdbd_source().map(Source::share);
        let finished = self.finished.take();
        self.finished = Plan::of(config).map(|plan| match finished {
            Some(mut finished) => {
                finished.reconfigure(plan);
                finished
            }
            None => Accounting::new(shared.unwrap_or_else(patient), plan, config.slurm.follow),
        });
    }

    /// The reader of slurmdbd, where there is one.
    fn slurmdbd_source(&self) -> Option<&Source> {
        let of_finished = self.finished.as_ref().map(Accounting::source);
        of_finished.or_else(|| self.slurmdbd.as_ref().map(Survey::source))
    }

    /// What a reader reports next. Safe to cancel.
    pub(crate) async fn event(&mut self) -> ClusterEvent {
        let Self { statistics, follow, surveys, slurmdbd, finished, tick, .. } = self;
        let waits_until = tick.waits_until();
        tokio::select! {
            outcome = statistics.outcome() => ClusterEvent::Answered(outcome),
            () = or_never(waits_until.map(sleep_until)) => ClusterEvent::Waited,
            outcome = or_never(follow.as_mut().map(Follow::outcome)) => ClusterEvent::Pinged(outcome),
            outcome = or_never(surveys.as_mut().map(Survey::outcome)) => ClusterEvent::Surveyed(Role::Surveys, outcome),
            outcome = or_never(slurmdbd.as_mut().map(Survey::outcome)) => ClusterEvent::Surveyed(Role::Accounting, outcome),
            outcome = or_never(finished.as_mut().map(Accounting::outcome)) => ClusterEvent::Accounted(outcome),
        }
    }

    /// Ends the slot of the tick under way: an answer to it comes too late.
    pub(crate) const fn end_slot(&mut self) -> Option<EndedTick> {
        self.tick.end_slot()
    }

    /// Begins a tick, whose predecessor's slot has ended: slurmctld is asked at once, or when it is known whether this host's slurmctld
    /// is the active one. An answer that is still awaited may be late because slurmctld has just taken over: libslurm tries a
    /// closed port again after a second. So, with `follow`, the tick begins behind it, as long as its slot is not over.
    pub(crate) fn begin(&mut self, timestamp: i64) -> TickStep {
        match (&mut self.follow, self.tick) {
            (None, TickPhase::Idle) => self.ask(timestamp),
            (Some(follow), TickPhase::Idle) => match follow.begin() {
                Some(until) => {
                    self.tick = TickPhase::Waiting { timestamp, until };
                    TickStep::UnderWay
                }
                None => self.ask(timestamp),
            },
            (Some(_), _) => {
                self.tick = TickPhase::LateThen(timestamp);
                TickStep::UnderWay
            }
            (None, _) => TickStep::Missed,
        }
    }

    /// Asks slurmctld for a tick.
    fn ask(&mut self, timestamp: i64) -> TickStep {
        let mut options = self.collecting.options();
        options.follow = self.follow.is_some();
        // They show whether slurmd is heard.
        options.rpc |= options.follow;
        let is_asked = self.statistics.ask(Request::new(ReplyKind::Statistics, options));
        self.tick = if is_asked { TickPhase::Asked(timestamp) } else { TickPhase::Idle };
        if is_asked { TickStep::UnderWay } else { TickStep::Missed }
    }

    /// The tick has waited long enough: slurmctld is asked for it.
    pub(crate) fn waited(&mut self) -> Option<(i64, TickStep)> {
        let timestamp = self.tick.waited()?;
        Some((timestamp, self.ask(timestamp)))
    }

    /// Takes the result of a ping; returns the tick that waited for it, and what that does.
    pub(crate) fn pinged(&mut self, ahead: Option<Ahead>) -> Option<(i64, TickStep)> {
        let step = self.follow.as_mut()?.pinged(ahead);
        let timestamp = self.tick.waited()?;
        Some((
            timestamp,
            match step {
                FollowStep::Ask => self.ask(timestamp),
                FollowStep::Standby => TickStep::Standby,
            },
        ))
    }

    /// Takes the outcome of the statistics' request: the tick that it is for, if its slot is not over, and the one that begins behind it.
    pub(crate) fn answered(&mut self, outcome: &Outcome) -> (Option<i64>, Option<i64>) {
        self.token.note(outcome, unix_now());
        self.tick.answered()
    }

    /// Logs what is news of slurmctld.
    pub(crate) fn note_answer(&mut self, outcome: &Outcome) {
        self.seen.answered(outcome, unix_now());
    }

    pub(crate) fn note_standby(&mut self) {
        let ahead = self.follow.as_ref().and_then(Follow::host_ahead);
        self.seen.standby(ahead, unix_now());
    }

    /// slurm.conf may be replaced by another cluster's. Then nothing about the old cluster is published under the new
    /// name.
    pub(crate) fn know(&mut self, name: &str, config: &Config) {
        match &self.name {
            ClusterName::Known(known) if known == name => return,
            ClusterName::Known(old) => {
                warn!(old, new = name, "slurm.conf now names another cluster; all collectors start again");
                self.collecting = Collecting::start(config.interval, &config.collectors, |_| None);
            }
            ClusterName::Unknown { is_logged: true } => {
                info!(cluster = name, "the cluster's name is known; points are sent now");
            }
            ClusterName::Unknown { is_logged: false } => {}
        }
        self.name = ClusterName::Known(name.to_owned());
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match &self.name {
            ClusterName::Known(name) => Some(name),
            ClusterName::Unknown { .. } => None,
        }
    }

    /// What each path begins with; `None`, which is logged once, while it needs the name and that is not known.
    pub(crate) fn prefix(&mut self, prefix: &Prefix, host: &str) -> Option<String> {
        let expanded = prefix.expand(self.name(), host);
        if let ClusterName::Unknown { is_logged } = &mut self.name {
            let is_missing = expanded.is_none();
            if is_missing && !*is_logged {
                warn!(
                    %prefix,
                    "nothing is sent yet: the prefix needs the cluster's name, which slurmctld has not reported"
                );
            }
            *is_logged = is_missing;
        }
        expanded
    }

    /// Nothing is sent, because the prefix needs the name.
    pub(crate) const fn is_nameless(&self) -> bool {
        matches!(self.name, ClusterName::Unknown { is_logged: true })
    }

    /// Takes a tick's outcome: who is active. Whether figures of the cluster are published, and since when: [`Change`].
    pub(crate) fn note_tick(&mut self, outcome: &TickOutcome, interval: u32) -> (bool, Change) {
        self.seen.ticked(outcome);
        let Some(follow) = &mut self.follow else { return (true, Change::default()) };
        let role = match outcome {
            TickOutcome::Reading(reading) => {
                TickRole::Active(reading.statistics.as_ref().map(|statistics| statistics.req_time_start))
            }
            TickOutcome::Standby => TickRole::Standby,
            TickOutcome::Failed => TickRole::Down,
            TickOutcome::GivenUp => {
                follow.given_up();
                return (false, Change::default());
            }
        };
        let change = follow.note(role, Duration::from_secs(interval.into()));
        if let Some(finished) = &mut self.finished {
            if change.is_return {
                finished.rebuild();
            } else if role == TickRole::Standby {
                finished.silence_round();
            }
        }
        (matches!(role, TickRole::Active(_)), change)
    }

    /// Starts the collectors again, because nothing may be compared with a reading from before others were active.
    pub(crate) fn restart_collectors(
        &mut self,
        config: &Config,
        memory: impl Fn(&'static str) -> Option<String>,
    ) {
        self.collecting = Collecting::start(config.interval, &config.collectors, memory);
        self.forget();
    }

    /// What slurmctld calls unchanged is requested again.
    pub(crate) fn forget(&mut self) {
        self.surveys.iter_mut().for_each(Survey::forget);
    }

    /// Adds the points of a tick.
    pub(crate) fn collect(&mut self, timestamp: i64, outcome: &TickOutcome, prefix: &str, batch: &mut Batch) {
        self.collecting.collect(timestamp, outcome, prefix, batch);
    }

    /// Adds the points of a survey's round.
    pub(crate) fn collect_survey(&mut self, done: RoundResult, prefix: &str, batch: &mut Batch) {
        let RoundResult { timestamp, asked, replies } = done;
        let done = RoundResult { timestamp, asked, replies: replies.only_of(self.name()) };
        self.collecting.collect_survey(DueCollectors::At(timestamp), &done, unix_now(), prefix, batch);
    }

    /// Begins a round of each survey that is due, after the tick's own reading, which shows how busy slurmctld is.
    pub(crate) fn begin_surveys(
        &mut self,
        timestamp: i64,
        reading: Option<&Reading>,
    ) -> [Option<RoundResult>; 2] {
        if let (Some(survey), Some(reading)) = (&mut self.surveys, reading) {
            survey.note(reading);
        }
        let statistics = reading.and_then(|reading| reading.statistics.as_ref());
        let threads = statistics.map(|statistics| statistics.server_thread_count);
        // The second does not ask slurmctld.
        [(Role::Surveys, threads), (Role::Accounting, Some(0))]
            .map(|(role, threads)| self.begin_survey(role, timestamp, threads))
    }

    fn begin_survey(&mut self, role: Role, timestamp: i64, threads: Option<u32>) -> Option<RoundResult> {
        let due = self.collecting.survey(role, DueCollectors::At(timestamp));
        let needs = self.collecting.needs(role).filter(|_| !due.is_empty())?;
        self.survey_mut(role)?.begin(timestamp, &due, &needs, threads, clock::now())
    }

    pub(crate) fn surveyed(&mut self, role: Role, outcome: Outcome) -> Option<RoundResult> {
        self.survey_mut(role)?.answered(outcome, clock::now())
    }

    const fn survey_mut(&mut self, role: Role) -> Option<&mut Survey> {
        match role {
            Role::Surveys => self.surveys.as_mut(),
            Role::Accounting => self.slurmdbd.as_mut(),
            Role::Statistics => None,
        }
    }

    pub(crate) fn changed_memories(&mut self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.collecting.changed_memories()
    }

    pub(crate) const fn follow(&self) -> Option<&Follow> {
        self.follow.as_ref()
    }

    pub(crate) const fn follow_mut(&mut self) -> Option<&mut Follow> {
        self.follow.as_mut()
    }

    pub(crate) fn follow_figures(&self) -> Option<FollowFigures> {
        self.follow.as_ref().and_then(Follow::figures)
    }

    pub(crate) const fn finished(&self) -> Option<&Accounting> {
        self.finished.as_ref()
    }

    pub(crate) const fn finished_mut(&mut self) -> Option<&mut Accounting> {
        self.finished.as_mut()
    }

    /// Seconds until slurmrestd's token ends.
    pub(crate) fn token_expires_in(&self) -> Option<i64> {
        self.token.left(unix_now())
    }

    /// The readers' process ids: of the statistics, and of the surveys.
    pub(crate) fn pids(&self) -> (Option<u32>, Option<u32>) {
        (self.statistics.pid(), self.surveys.as_ref().and_then(|survey| survey.source().pid()))
    }

    /// What the reader of the statistics is.
    pub(crate) fn reader_kind(&self) -> Option<ReaderKind> {
        self.statistics.last().map(|(kind, _)| kind)
    }

    /// Whether something is collected that only libslurm's reader and that of slurmrestd can read.
    pub(crate) const fn needs_more_than_statistics(&self) -> bool {
        self.surveys.is_some() || self.slurmdbd.is_some() || self.finished.is_some()
    }

    /// The counters of each expensive reply that was ever requested.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (ReplyKind, ReplyCounters)> + '_ {
        let surveys = self.surveys.iter().chain(&self.slurmdbd).flat_map(Survey::counters);
        surveys.chain(self.finished.iter().map(Accounting::counters))
    }

    /// For `status`.
    pub(crate) fn readers(&self) -> Vec<ReaderEntry> {
        let entry = |role: &str, source: &Source| ReaderEntry {
            role: role.to_owned(),
            kind: source.last().map(|(kind, _)| kind.name().to_owned()),
            release: source.last().and_then(|(_, release)| release).map(|release| release.to_string()),
            pid: source.pid(),
            restarts: source.restarts(),
        };
        let surveys = self.surveys.as_ref().map(|survey| entry("surveys", survey.source()));
        let pings = self.follow.as_ref().map(|follow| entry("pings", follow.source()));
        let accounting = self.slurmdbd_source().map(|source| entry("accounting", source));
        let statistics = std::iter::once(entry("statistics", &self.statistics));
        statistics.chain(pings).chain(surveys).chain(accounting).collect()
    }

    /// For `status`.
    pub(crate) fn entry(&self) -> SlurmctldEntry {
        let (cluster, nameless) = (self.name().map(str::to_owned), self.is_nameless());
        SlurmctldEntry { cluster, nameless, ..self.seen.entry() }
    }

    /// For systemd.
    pub(crate) const fn words(&self) -> &'static str {
        self.seen.words()
    }
}

#[cfg(test)]
#[path = "../tests/inside/cluster.rs"]
mod tests;
