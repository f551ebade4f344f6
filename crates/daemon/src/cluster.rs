//! Everything that the daemon has of one cluster: its readers, its collectors, the tick under way,
//! and what is known of slurmctld. A changed `[slurm]` replaces it as a whole. Only what `replace`
//! lists is left of the old one, and, until the new one's name is known, what its collectors have
//! stored.

mod seen;
mod tick;

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use carbon::Batch;
use slurm_points::collecting::{Collecting, DueCollectors};
use slurm_points::collectors::TickOutcome;
use slurm_points::prefix::Prefix;
use slurm_points::replies::{ReplyCounters, RoundResult};
use slurm_snapshot::{Ahead, Reading, ReplyKind, Request, Role};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::seen::SlurmctldSeen;
use self::tick::TickPhase;
pub(crate) use self::tick::{EndedTick, TickEnd};
use crate::accounting::{Accounting, Plan};
use crate::clock::{self, boot_now, or_never, unix_now};
use crate::config::Config;
use crate::follow::{Change, Follow};
use crate::source::rest::Expiry;
use crate::source::{Outcome, ReaderMemory, ReaderStatus, Source};
use crate::status::ReaderEntry;
use crate::survey::{START_DEADLINE, Survey, patient};

pub(crate) struct Cluster {
    /// The reader of the statistics.
    pub(crate) statistics: Source,
    /// The follower, where figures are published only if the active slurmctld runs here.
    pub(crate) follow: Option<Follow>,
    /// The surveys for collectors that need more than the statistics, by role: `Role::Surveys` asks
    /// slurmctld, and `Role::Accounting` asks slurmdbd through the source of finished jobs. A role
    /// that no collector needs is absent.
    surveys: BTreeMap<Role, Survey>,
    /// The rounds of finished jobs; `None` where these are not counted.
    pub(crate) finished: Option<Accounting>,
    pub(crate) collecting: Collecting,
    tick: TickPhase,
    pub(crate) seen: SlurmctldSeen,
    /// Number of changes of slurm.conf that were known when the cluster's name was accepted.
    named_at: u64,
    /// Another name of the cluster that slurmctld reports, and the number of answers in a row that
    /// have it.
    other_name: Option<(String, u32)>,
    /// Moment at which another name was accepted although slurm.conf was the same.
    renamed: Option<Instant>,
    /// slurmrestd's token: when it expires, and what the log has said of that.
    pub(crate) token: Expiry,
}

/// Number of answers in a row that must have another name of the cluster before it is accepted
/// although slurm.conf is the same.
const NAMED_BY: u32 = 3;
/// Shortest time between two names that are accepted although slurm.conf is the same.
const RENAMED_EVERY: Duration = Duration::from_secs(3600);

/// A function that returns what the collector of this name has stored; `None`: nothing of this
/// cluster.
type Memory<'a> = &'a dyn Fn(&str) -> Option<String>;

/// An event that the cluster's readers report.
pub(crate) enum ClusterEvent {
    /// The outcome of a request for the statistics.
    Answered(Outcome),
    Pinged(Outcome),
    /// The tick has waited long enough for a ping.
    Waited,
    Surveyed(Role, Outcome),
    Accounted(Outcome),
}

impl Cluster {
    /// Replaces the whole cluster because `[slurm]` has changed. These stay: whether the log has
    /// said that the cluster's name is unknown; what was counted of finished jobs; and, if `conf`
    /// is unchanged, what `follow` knows of the controllers and of this host's isolation.
    pub(crate) fn replace(&mut self, config: &Config, readers: &ReaderMemory, memory: Memory<'_>) {
        let nameless = self.seen.entry.nameless;
        let finished = self.finished.take();
        let before = self.follow.take().filter(|follow| follow.conf == config.slurm.conf);
        *self = Self::start(config, readers, memory);
        self.seen.entry.nameless = nameless;
        if let (Some(follow), Some(before)) = (&mut self.follow, before) {
            follow.resume(before);
        }
        self.finished = match (finished, self.finished.take()) {
            (Some(before), Some(new)) => Some(before.with(new.plan, Some(new.source))),
            (_, new) => new,
        };
    }

    /// Starts the readers and collectors of a cluster.
    pub(crate) fn start(config: &Config, readers: &ReaderMemory, memory: Memory<'_>) -> Self {
        let mut cluster = Self {
            statistics: Source::start("statistics", config.slurm.clone(), START_DEADLINE, readers),
            follow: Follow::start(&config.slurm, readers),
            surveys: BTreeMap::new(),
            finished: None,
            collecting: Collecting::start(config.interval, &config.collectors, memory),
            tick: TickPhase::Idle,
            seen: SlurmctldSeen::default(),
            named_at: 0,
            other_name: None,
            renamed: None,
            token: Expiry::default(),
        };
        cluster.arrange(config, readers);
        cluster
    }

    /// Applies another configuration of the same slurmctld. The collectors that have `changed`
    /// start again; the others, the surveys and what was counted of finished jobs continue.
    pub(crate) fn reconfigure(
        &mut self,
        config: &Config,
        changed: &[&'static str],
        readers: &ReaderMemory,
        memory: Memory<'_>,
    ) {
        let stays = |name| !changed.contains(&name);
        let collecting = mem::take(&mut self.collecting);
        self.collecting = collecting.restart(config.interval, &config.collectors, stays, memory);
        for survey in self.surveys.values_mut() {
            survey.limit(&config.collectors);
            if !changed.is_empty() {
                survey.forget();
            }
        }
        self.arrange(config, readers);
    }

    /// Starts the surveys and the rounds of finished jobs that collectors need, and ends those that
    /// none needs.
    fn arrange(&mut self, config: &Config, readers: &ReaderMemory) {
        let patient = |role| patient(role, &config.slurm, readers);
        let slurmdbd = || patient("accounting");
        for role in [Role::Surveys, Role::Accounting] {
            if self.collecting.needs(role).is_none() {
                self.surveys.remove(&role);
            } else if !self.surveys.contains_key(&role) {
                let (source, follows) = match role {
                    Role::Accounting => {
                        (self.slurmdbd_source().map_or_else(slurmdbd, Source::share), false)
                    }
                    _ => (patient("surveys"), config.slurm.follow),
                };
                self.surveys.insert(role, Survey::new(source, follows, &config.collectors));
            }
        }
        self.finished = Plan::from_config(config).map(|plan| match self.finished.take() {
            Some(finished) => finished.with(plan, None),
            None => {
                let source = self.slurmdbd_source().map_or_else(slurmdbd, Source::share);
                Accounting::new(source, plan, config.slurm.follow)
            }
        });
    }

    /// The one source that asks slurmdbd, if any does. Finished jobs and surveys share it.
    fn slurmdbd_source(&self) -> Option<&Source> {
        let of_finished = self.finished.as_ref().map(|finished| &finished.source);
        of_finished.or_else(|| self.surveys.get(&Role::Accounting).map(|survey| &survey.source))
    }

    /// Waits for the next outcome of a reader, or until the tick has waited long enough for a ping.
    /// Safe to cancel.
    pub(crate) async fn event(&mut self) -> ClusterEvent {
        let Self { statistics, follow, surveys, finished, tick, .. } = self;
        let waits_until = tick.waits_until();
        let mut surveys = surveys.iter_mut();
        let first = surveys.next().map(survey_reply);
        let second = surveys.next().map(survey_reply);
        tokio::select! {
            outcome = statistics.outcome() => ClusterEvent::Answered(outcome),
            () = or_never(waits_until.map(sleep_until)) => ClusterEvent::Waited,
            outcome = or_never(follow.as_mut().map(|it|
                it.source.outcome())) => ClusterEvent::Pinged(outcome),
            event = or_never(first) => event,
            event = or_never(second) => event,
            outcome = or_never(finished.as_mut().map(|it|
                it.source.outcome())) => ClusterEvent::Accounted(outcome),
        }
    }

    /// Ends the slot of the tick under way, so that an answer to it comes too late. Returns that
    /// tick, if there is one.
    pub(crate) const fn end_slot(&mut self) -> Option<EndedTick> {
        self.tick.end_slot()
    }

    /// Begins a tick after the slot of the last one has ended. slurmctld is asked at once, or, with
    /// `follow`, when it is known whether this host's slurmctld is the active one. If an earlier
    /// request still has no outcome, the tick is missed. With `follow` it begins after that outcome
    /// instead, as long as its slot lasts: the answer may be late because slurmctld has just taken
    /// over, and libslurm tries a closed port again only after a second. Returns a tick that has
    /// ended already.
    pub(crate) fn ask_when_ready(&mut self, timestamp: i64) -> Option<EndedTick> {
        if self.tick != TickPhase::Idle {
            if self.follow.is_none() {
                return Some(EndedTick { timestamp, end: TickEnd::Missed });
            }
            self.tick = TickPhase::LateThen(timestamp);
        } else if let Some(until) = self.follow.as_mut().and_then(Follow::ping_for_tick) {
            self.tick = TickPhase::Waiting { timestamp, until };
        } else {
            return self.ask(timestamp);
        }
        None
    }

    /// Requests the statistics for a tick. Returns the tick as missed if the request could not be
    /// made.
    fn ask(&mut self, timestamp: i64) -> Option<EndedTick> {
        let mut options = self.collecting.options();
        options.follow = self.follow.is_some();
        // They show whether slurmd is heard.
        options.rpc |= options.follow;
        let is_asked = self.statistics.ask(Request::new(ReplyKind::Statistics, options));
        self.tick = if is_asked { TickPhase::Asked(timestamp) } else { TickPhase::Idle };
        (!is_asked).then_some(EndedTick { timestamp, end: TickEnd::Missed })
    }

    /// Asks slurmctld for the tick that has waited long enough for a ping. Returns it if it has
    /// ended.
    pub(crate) fn ask_without_ping(&mut self) -> Option<EndedTick> {
        let timestamp = self.tick.take_waiting()?;
        self.ask(timestamp)
    }

    /// Takes the result of a ping, `None` if it failed or did not find this host. A tick that
    /// waited for it begins now, or ends as standby and is returned.
    pub(crate) fn handle_ping(&mut self, ahead: Option<Ahead>) -> Option<EndedTick> {
        let asks = self.follow.as_mut()?.judge_ping(ahead);
        let timestamp = self.tick.take_waiting()?;
        if asks {
            self.ask(timestamp)
        } else {
            Some(EndedTick { timestamp, end: TickEnd::Standby })
        }
    }

    /// Takes the outcome of a request for the statistics. Returns the tick that it is for, if that
    /// tick's slot is not over, and the tick that has waited for this outcome and begins now.
    pub(crate) fn handle_answer(&mut self, outcome: &Outcome) -> (Option<i64>, Option<i64>) {
        self.token.note(outcome, unix_now());
        self.tick.handle_answer()
    }

    pub(crate) fn note_standby(&mut self) {
        let ahead = self.follow.as_ref().and_then(Follow::host_ahead);
        self.seen.note_standby(ahead, boot_now());
    }

    /// Takes the cluster's name from an answer. Returns whether the answer may be used. If the name
    /// is new, what the collectors have may be another cluster's. So all of them start again, with
    /// what `memory` has of this one.
    pub(crate) fn accept_name(&mut self, name: &str, config: &Config, memory: Memory<'_>) -> bool {
        if self.name() == Some(name) {
            self.other_name = None;
            return true;
        }
        if self.name().is_some() && !self.may_be_renamed(name) {
            return false;
        }
        match self.name() {
            Some(old) => {
                warn!(
                    old,
                    new = name,
                    "slurmctld now reports another cluster; all collectors start again"
                );
            }
            None if self.seen.entry.nameless => {
                info!(cluster = name, "the cluster's name is known; points are sent now");
            }
            None => {}
        }
        self.restart_collectors(config, memory);
        self.seen.entry.cluster = Some(name.to_owned());
        self.seen.entry.nameless = false;
        self.named_at = self.conf_changes();
        true
    }

    /// Whether another name of the cluster is accepted: if slurm.conf has changed, or if three
    /// answers in a row have had the name, and none was accepted for that reason within an hour.
    fn may_be_renamed(&mut self, name: &str) -> bool {
        let answers = self
            .other_name
            .take()
            .filter(|(other, _)| other == name)
            .map_or(0, |(_, answers)| answers);
        let answers = answers.saturating_add(1);
        self.other_name = Some((name.to_owned(), answers));
        let has_new_conf = self.conf_changes() != self.named_at;
        let is_steady =
            answers >= NAMED_BY && self.renamed.is_none_or(|at| at.elapsed() >= RENAMED_EVERY);
        if !has_new_conf && is_steady {
            self.renamed = Some(Instant::now());
        }
        has_new_conf || is_steady
    }

    fn conf_changes(&self) -> u64 {
        let pings = self.follow.as_ref().map_or(0, |follow| follow.source.status().conf_changes);
        self.statistics.status().conf_changes.saturating_add(pings)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.seen.entry.cluster.as_deref()
    }

    /// The text that each path begins with. It is `None` while the prefix needs the cluster's name
    /// and that is not known, which is logged once.
    pub(crate) fn prefix(&mut self, prefix: &Prefix, host: &str) -> Option<String> {
        let expanded = prefix.expand(self.name(), host);
        let was_nameless = mem::replace(&mut self.seen.entry.nameless, expanded.is_none());
        if expanded.is_none() && !was_nameless {
            warn!(
                %prefix,
                "nothing is sent yet: the prefix needs the cluster's name, which slurmctld has not \
                    reported"
            );
        }
        expanded
    }

    /// Takes a tick's outcome, which shows whether this host's slurmctld is the active one. Returns
    /// whether the cluster's figures are published at this tick, and what has changed about that.
    pub(crate) fn handle_tick(&mut self, outcome: &TickOutcome, interval: u32) -> (bool, Change) {
        self.seen.note_outcome(outcome);
        let Some(follow) = &mut self.follow else { return (true, Change::default()) };
        let change = follow.handle_tick(outcome, Duration::from_secs(interval.into()));
        if let Some(finished) = &mut self.finished {
            if change.is_return {
                finished.rebuild(unix_now());
            } else if let TickOutcome::Standby = outcome {
                finished.silence_round();
            }
        }
        (outcome.reading().is_some(), change)
    }

    /// Starts the collectors again, so that no reading is compared with one from before another
    /// host or another cluster was active.
    pub(crate) fn restart_collectors(
        &mut self,
        config: &Config,
        memory: impl Fn(&str) -> Option<String>,
    ) {
        self.collecting = Collecting::start(config.interval, &config.collectors, memory);
        self.forget();
    }

    /// Forgets the replies with which the next ones would be compared, so that slurmctld sends
    /// these whole and calls none unchanged.
    pub(crate) fn forget(&mut self) {
        self.collecting.forget_starts();
        self.surveys.values_mut().for_each(Survey::forget);
    }

    /// Adds the points of a survey's round.
    pub(crate) fn collect_survey(&mut self, done: RoundResult, prefix: &str, batch: &mut Batch) {
        let done = RoundResult { replies: done.replies.only_of(self.name()), ..done };
        self.collecting.collect_survey(DueCollectors::At(done.timestamp), &done, prefix, batch);
    }

    /// Begins a round of each survey that is due, after the tick's own reading, which shows how
    /// busy slurmctld is. Returns the rounds that have ended at once.
    pub(crate) fn begin_surveys(
        &mut self,
        timestamp: i64,
        reading: Option<&Reading>,
    ) -> [Option<RoundResult>; 2] {
        let statistics = reading.and_then(|reading| reading.statistics.as_ref());
        let threads = statistics.map(|statistics| statistics.server_thread_count);
        // The second does not ask slurmctld.
        [(Role::Surveys, threads, reading), (Role::Accounting, Some(0), None)].map(
            |(role, threads, reading)| {
                let survey = self.surveys.get_mut(&role)?;
                if reading.is_some_and(|reading| survey.note_reading(reading)) {
                    self.collecting.forget_starts();
                }
                let due = self.collecting.survey(role, DueCollectors::At(timestamp));
                let needs = self.collecting.needs(role).filter(|_| !due.is_empty())?;
                let kept = self.collecting.published_jobs();
                survey.begin_round(timestamp, &due, &needs, kept, threads, clock::now())
            },
        )
    }

    pub(crate) fn handle_survey_reply(
        &mut self,
        role: Role,
        outcome: Outcome,
    ) -> Option<RoundResult> {
        self.surveys.get_mut(&role)?.handle_reply(outcome, clock::now())
    }

    /// The source that surveys slurmctld; `None` if no collector needs it.
    pub(crate) fn survey_source(&self) -> Option<&Source> {
        self.surveys.get(&Role::Surveys).map(|survey| &survey.source)
    }

    /// Whether this host is isolated, so that another slurmctld may be active without its knowing;
    /// `false` without `follow`.
    pub(crate) fn is_isolated(&self) -> bool {
        self.follow.as_ref().is_some_and(Follow::is_isolated)
    }

    /// Whether something is collected that only libslurm's reader and that of slurmrestd can read.
    pub(crate) fn needs_more_than_statistics(&self) -> bool {
        !self.surveys.is_empty() || self.finished.is_some()
    }

    /// The counters of each expensive reply that was ever requested.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (ReplyKind, ReplyCounters)> + '_ {
        let surveys = self.surveys.values().flat_map(Survey::counters);
        surveys.chain(self.finished.iter().map(Accounting::counters))
    }

    /// The readers as `status` shows them.
    pub(crate) fn readers(&self) -> Vec<ReaderEntry> {
        let sources = [
            ("statistics", Some(&self.statistics)),
            ("pings", self.follow.as_ref().map(|follow| &follow.source)),
            ("surveys", self.survey_source()),
            ("accounting", self.slurmdbd_source()),
        ];
        let entry = |(role, source): (&str, Option<&Source>)| {
            let ReaderStatus { restarts, pid, last, .. } = source?.status();
            let (kind, release) = last.unzip();
            let kind = kind.map(|kind| kind.name().to_owned());
            let release = release.flatten().map(|release| release.to_string());
            Some(ReaderEntry { role: role.to_owned(), kind, release, pid, restarts })
        };
        sources.into_iter().filter_map(entry).collect()
    }
}

async fn survey_reply((role, survey): (&Role, &mut Survey)) -> ClusterEvent {
    ClusterEvent::Surveyed(*role, survey.source.outcome().await)
}

#[cfg(test)]
mod tests;
