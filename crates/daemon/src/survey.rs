//! The cluster itself: jobs, nodes, licences and so on, through a reader of its own, so that the scheduler's
//! statistics are never late because of them.
//!
//! A round begins at a tick that is due for some collector, asks for one reply after the other, each once whoever
//! wants it, and its points carry that tick's timestamp. Care for slurmctld comes first: a reply is left out while
//! its duty is used up or slurmctld is busy, and a round that is still under way when the next is due is not
//! doubled. Whether the controllers live is asked all the same: it costs nothing, and is of interest just then. What
//! slurmctld may keep from us is not used at all: a part must not look like the whole.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use slurm_snapshot::{Controller, Jobs, Licenses, Nodes, Reading, Reply, Request, Reservations};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::pace::Pace;
use crate::clock;
use crate::config::Slurm;
use crate::source::{Outcome, Source, SourceError};

/// How much longer than a reading of the statistics an expensive reply may take: slurmctld's locks are held for
/// tens of seconds while thousands of jobs start.
const PATIENCE: u32 = 4;

/// What a refusal may count for at most: at a duty of 5 % it is asked again after ten minutes.
const LONGEST_FAILURE: Duration = Duration::from_secs(30);

/// libslurm may look for its configuration for a minute.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(70);

/// What collectors need to know of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) jobs: bool,
    pub(crate) accounts: bool,
    pub(crate) qos: bool,
    pub(crate) users: bool,
    pub(crate) nodes: bool,
    pub(crate) partitions: bool,
    pub(crate) node_rows: bool,
    pub(crate) licenses: bool,
    pub(crate) reservations: bool,
    pub(crate) controllers: bool,
}

impl Needs {
    /// What two need.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            jobs: self.jobs || other.jobs,
            accounts: self.accounts || other.accounts,
            qos: self.qos || other.qos,
            users: self.users || other.users,
            nodes: self.nodes || other.nodes,
            partitions: self.partitions || other.partitions,
            node_rows: self.node_rows || other.node_rows,
            licenses: self.licenses || other.licenses,
            reservations: self.reservations || other.reservations,
            controllers: self.controllers || other.controllers,
        }
    }

    /// Whether it is nothing but the statistics.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The replies that tell it.
    pub(crate) fn kinds(self) -> impl Iterator<Item = Kind> {
        KINDS.into_iter().filter(move |kind| self.of(*kind))
    }

    const fn of(self, kind: Kind) -> bool {
        match kind {
            Kind::Jobs => self.jobs,
            Kind::Nodes => self.nodes || self.partitions,
            Kind::Licenses => self.licenses,
            Kind::Reservations => self.reservations,
            Kind::Controllers => self.controllers,
        }
    }
}

/// A kind of reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Jobs,
    Nodes,
    Licenses,
    Reservations,
    Controllers,
}

/// All of them, in the order in which a round asks: the cheap ones first.
const KINDS: [Kind; 5] = [Kind::Controllers, Kind::Licenses, Kind::Reservations, Kind::Nodes, Kind::Jobs];

impl Kind {
    /// Its name in logs and paths.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Nodes => "nodes",
            Self::Licenses => "licenses",
            Self::Reservations => "reservations",
            Self::Controllers => "controllers",
        }
    }

    /// What of PrivateData concerns it.
    const fn private(self) -> Option<&'static str> {
        match self {
            Self::Jobs => Some("jobs"),
            Self::Nodes => Some("nodes"),
            Self::Reservations => Some("reservations"),
            Self::Licenses | Self::Controllers => None,
        }
    }

    /// Whether it costs slurmctld something.
    const fn is_dear(self) -> bool {
        !matches!(self, Self::Controllers)
    }

    fn request(self, needs: Needs, since: Option<i64>) -> Request {
        let id = 0;
        match self {
            Self::Jobs => Request::Jobs {
                id,
                since,
                accounts: needs.accounts,
                qos: needs.qos,
                users: needs.users,
                names: needs.users,
            },
            Self::Nodes => Request::Nodes { id, since, partitions: needs.partitions, rows: needs.node_rows },
            Self::Licenses => Request::Licenses { id, since },
            Self::Reservations => Request::Reservations { id, since },
            Self::Controllers => Request::Controllers { id },
        }
    }
}

/// What a round has found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings([Option<Arc<Reading>>; KINDS.len()]);

impl Findings {
    pub(crate) fn jobs(&self) -> Option<&Jobs> {
        match self.reply(Kind::Jobs) {
            Some(Reply::Jobs(jobs)) => Some(jobs),
            _ => None,
        }
    }

    pub(crate) fn nodes(&self) -> Option<&Nodes> {
        match self.reply(Kind::Nodes) {
            Some(Reply::Nodes(nodes)) => Some(nodes),
            _ => None,
        }
    }

    pub(crate) fn licenses(&self) -> Option<&Licenses> {
        match self.reply(Kind::Licenses) {
            Some(Reply::Licenses(licenses)) => Some(licenses),
            _ => None,
        }
    }

    pub(crate) fn reservations(&self) -> Option<&Reservations> {
        match self.reply(Kind::Reservations) {
            Some(Reply::Reservations(reservations)) => Some(reservations),
            _ => None,
        }
    }

    pub(crate) fn controllers(&self) -> Option<&[Controller]> {
        match self.reply(Kind::Controllers) {
            Some(Reply::Controllers(controllers)) => Some(controllers),
            _ => None,
        }
    }

    /// One reply, as if a round had found out nothing else.
    #[cfg(test)]
    pub(crate) fn of(reply: Reply) -> Self {
        let kind = match reply {
            Reply::Jobs(_) | Reply::Unchanged => Kind::Jobs,
            Reply::Nodes(_) => Kind::Nodes,
            Reply::Licenses(_) => Kind::Licenses,
            Reply::Reservations(_) => Kind::Reservations,
            Reply::Controllers(_) => Kind::Controllers,
        };
        let mut findings = Self::default();
        findings.add(kind, reply);
        findings
    }

    /// The same with one more.
    #[cfg(test)]
    pub(crate) fn add(&mut self, kind: Kind, reply: Reply) {
        let release = slurm_snapshot::Release::new(22, 5);
        let reading = Reading {
            id: 0,
            time: 0.0,
            uptime: None,
            elapsed: 0,
            release,
            cluster: None,
            max_server_threads: None,
            statistics: None,
            reply: Some(reply),
            visibility: None,
        };
        self.set(kind, Some(Arc::new(reading)));
    }

    fn reply(&self, kind: Kind) -> Option<&Reply> {
        self.0.get(kind as usize).and_then(Option::as_ref).and_then(|reading| reading.reply.as_ref())
    }

    fn set(&mut self, kind: Kind, reading: Option<Arc<Reading>>) {
        if let Some(place) = self.0.get_mut(kind as usize) {
            *place = reading;
        }
    }
}

/// How one kind of reply is doing; counters run since the daemon's start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vitals {
    /// µs of the last reading.
    pub(crate) duration: Option<u64>,
    pub(crate) readings_ok: u64,
    pub(crate) readings_failed: u64,
    /// Of the good ones, those that said that nothing had changed.
    pub(crate) readings_unchanged: u64,
    pub(crate) skipped_duty: u64,
    pub(crate) skipped_busy: u64,
    pub(crate) skipped_round: u64,
    pub(crate) readings_late: u64,
    /// Whether slurmctld may keep some of it from us, so that none of it is published.
    pub(crate) hidden: bool,
}

/// What a round is for.
#[derive(Clone, Debug)]
struct Round {
    timestamp: i64,
    /// What is still to be asked, and until when an answer is of use: then the slots of all who want it are over. Unix
    /// seconds.
    left: Vec<(Kind, i64)>,
    findings: Findings,
}

/// One kind of reply: when it may come, what it was last, how it is doing.
#[derive(Debug, Default)]
struct Topic {
    pace: Pace,
    /// The last full reply that was published.
    kept: Option<Arc<Reading>>,
    vitals: Vitals,
    said: Said,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Said {
    #[default]
    Nothing,
    Good,
    Failed,
    Hidden,
    NotTold,
}

/// A round that is over.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its tick, Unix seconds.
    pub(crate) timestamp: i64,
    pub(crate) findings: Findings,
}

/// The reader for the cluster itself, and the round that is under way.
#[derive(Debug)]
pub(crate) struct Survey {
    source: Source,
    max_duty: f64,
    max_threads: u32,
    topics: [Topic; KINDS.len()],
    /// What all collectors together need: replies are asked for with all of it, whoever is due, so that one reply can be
    /// held against the next.
    needs: Needs,
    round: Option<Round>,
    asked: Option<Asked>,
    said_busy: bool,
}

/// What is under way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: Kind,
    until: i64,
    at: Instant,
}

impl Survey {
    /// Starts its reader.
    pub(crate) fn start(slurm: &Slurm, max_duty: f64, max_threads: u32) -> Self {
        let slurm = Slurm { timeout: slurm.timeout.saturating_mul(PATIENCE), ..slurm.clone() };
        Self {
            source: Source::start(slurm, START_DEADLINE),
            max_duty,
            max_threads,
            topics: Default::default(),
            needs: Needs::default(),
            round: None,
            asked: None,
            said_busy: false,
        }
    }

    /// Other limits, and perhaps other collectors, who must not take what was told to others for news: replies come whole
    /// again. What is under way goes on, and so do the counters.
    pub(crate) fn reconfigure(&mut self, max_duty: f64, max_threads: u32) {
        (self.max_duty, self.max_threads) = (max_duty, max_threads);
        self.topics.iter_mut().for_each(|topic| topic.kept = None);
    }

    /// A tick that is due for some collectors: what each of them needs, and every how many seconds; `needs` is what all
    /// need that there are. `threads`: what slurmctld had at work when last read; `None` when it did not answer, and must
    /// not get more work.
    pub(crate) fn begin(
        &mut self,
        timestamp: i64,
        due: &[(Needs, u32)],
        needs: Needs,
        threads: Option<u32>,
        now: Duration,
    ) -> Option<Done> {
        let until =
            |kind: Kind| due.iter().filter(|(needs, _)| needs.of(kind)).map(|(_, every)| *every).max();
        let wanted = KINDS.into_iter().filter_map(|kind| Some((kind, until(kind)?)));
        if self.round.is_some() {
            debug!("the last round is still under way; this one is left out");
            wanted.for_each(|(kind, _)| one_more(&mut self.topic(kind).vitals.skipped_round));
            return None;
        }
        if needs != self.needs {
            self.needs = needs;
            self.topics.iter_mut().for_each(|topic| topic.kept = None);
        }
        let busy = threads.is_none_or(|threads| threads > self.max_threads);
        self.say_busy(busy, threads);
        let mut left = Vec::new();
        for (kind, every) in wanted {
            let topic = self.topic(kind);
            if busy && kind.is_dear() {
                one_more(&mut topic.vitals.skipped_busy);
            } else if topic.pace.allows(now) || !kind.is_dear() {
                left.push((kind, timestamp.saturating_add(every.into())));
            } else {
                one_more(&mut topic.vitals.skipped_duty);
            }
        }
        left.reverse();
        self.round = Some(Round { timestamp, left, findings: Findings::default() });
        self.go_on(now)
    }

    /// The outcome of what was asked last; waits for ever when nothing was. Safe to cancel.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        if self.asked.is_none() {
            return std::future::pending().await;
        }
        self.source.outcome().await
    }

    /// Takes an outcome, and goes on to the next reply or ends the round.
    pub(crate) fn answered(&mut self, outcome: Outcome, now: Duration) -> Option<Done> {
        let (Some(Asked { kind, until, at }), Some(mut round)) = (self.asked.take(), self.round.take())
        else {
            return None;
        };
        let max_duty = self.max_duty;
        let topic = self.topic(kind);
        topic.pace.answered(cost(&outcome, at.elapsed()), max_duty);
        let reading = topic.take(kind, outcome);
        if reading.is_some() && is_over(until, now) {
            one_more(&mut topic.vitals.readings_late);
            debug!(reply = kind.name(), "it came after its slot and is thrown away");
        } else {
            // One that is thrown away is none that the next can be held against.
            if reading.is_some() {
                topic.kept.clone_from(&reading);
            }
            round.findings.set(kind, reading);
        }
        self.round = Some(round);
        self.go_on(now)
    }

    /// A whole round, for a command that ends afterwards.
    pub(crate) async fn whole(mut self, needs: Needs) -> Findings {
        let mut done = self.begin(i64::MAX, &[(needs, 0)], needs, Some(0), clock::now());
        loop {
            match done {
                Some(done) => return done.findings,
                None => {
                    let outcome = self.outcome().await;
                    done = self.answered(outcome, clock::now());
                }
            }
        }
    }

    /// How each kind is doing that was ever asked for.
    pub(crate) fn vitals(&self) -> impl Iterator<Item = (Kind, Vitals)> + '_ {
        KINDS.into_iter().filter_map(|kind| {
            let topic = self.topics.get(kind as usize)?;
            let known = topic.said != Said::Nothing || topic.vitals.skipped_busy > 0;
            known.then_some((kind, topic.vitals))
        })
    }

    /// Readers started again so far, after the first.
    pub(crate) fn restarts(&self) -> u64 {
        self.source.restarts()
    }

    /// The reader's process id, while there is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.source.pid()
    }

    fn go_on(&mut self, now: Duration) -> Option<Done> {
        let mut round = self.round.take()?;
        while let Some((kind, until)) = round.left.pop() {
            let needs = self.needs;
            let topic = self.topic(kind);
            if is_over(until, now) {
                // Its answer could only come too late: slurmctld is spared it.
                one_more(&mut topic.vitals.skipped_round);
                continue;
            }
            let request = kind.request(needs, topic.since());
            topic.pace.ask(now);
            if self.source.ask(request) {
                self.asked = Some(Asked { kind, until, at: Instant::now() });
                self.round = Some(round);
                return None;
            }
        }
        Some(Done { timestamp: round.timestamp, findings: round.findings })
    }

    fn topic(&mut self, kind: Kind) -> &mut Topic {
        let [jobs, nodes, licenses, reservations, controllers] = &mut self.topics;
        match kind {
            Kind::Jobs => jobs,
            Kind::Nodes => nodes,
            Kind::Licenses => licenses,
            Kind::Reservations => reservations,
            Kind::Controllers => controllers,
        }
    }

    fn say_busy(&mut self, busy: bool, threads: Option<u32>) {
        if threads.is_none() {
            // That it does not answer has been said.
            return;
        }
        if busy && !self.said_busy {
            warn!(
                threads,
                limit = self.max_threads,
                "slurmctld is busy; it is asked for its statistics alone until it is not"
            );
        } else if !busy && self.said_busy {
            info!(threads, "slurmctld is no longer busy; it is asked for everything again");
        }
        self.said_busy = busy;
    }
}

impl Topic {
    /// What may be left out of the answer if it has not changed.
    fn since(&self) -> Option<i64> {
        match self.kept.as_ref()?.reply.as_ref()? {
            Reply::Jobs(jobs) => Some(jobs.last_update),
            Reply::Nodes(nodes) => {
                let partitions = nodes.partitions.as_ref().map(|partitions| partitions.last_update);
                Some(partitions.unwrap_or(i64::MAX).min(nodes.last_update))
            }
            Reply::Licenses(licenses) => Some(licenses.last_update),
            Reply::Reservations(reservations) => Some(reservations.last_update),
            Reply::Controllers(_) | Reply::Unchanged => None,
        }
    }

    /// What the outcome is worth: a reading to publish, or nothing.
    fn take(&mut self, kind: Kind, outcome: Outcome) -> Option<Arc<Reading>> {
        let mut reading = match outcome {
            Ok(reading) => reading,
            Err(error) => {
                one_more(&mut self.vitals.readings_failed);
                self.vitals.duration = None;
                // A controller that comes back may be another, with other moments.
                self.kept = None;
                if self.said != Said::Failed {
                    warn!(reply = kind.name(), %error, "no reading; trying again when it is due");
                }
                self.said = Said::Failed;
                return None;
            }
        };
        one_more(&mut self.vitals.readings_ok);
        self.vitals.duration = Some(reading.elapsed);
        let said = self.hide(kind, &mut reading);
        if said != self.said {
            say(kind, said, &reading);
            self.said = said;
        }
        if said == Said::NotTold || (said == Said::Hidden && kind.is_hidden(&reading)) {
            return None;
        }
        if !matches!(reading.reply, Some(Reply::Unchanged)) {
            return Some(Arc::from(reading));
        }
        one_more(&mut self.vitals.readings_unchanged);
        // Of another cluster nothing is unchanged: slurm.conf has been replaced.
        self.kept = self.kept.take().filter(|kept| kept.cluster == reading.cluster);
        self.kept.clone()
    }

    /// Takes out what may be a part only.
    fn hide(&mut self, kind: Kind, reading: &mut Reading) -> Said {
        let (Some(_), visibility) = (kind.private(), &reading.visibility) else { return Said::Good };
        let Some(visibility) = visibility else { return Said::NotTold };
        let mut hidden = kind.is_hidden(reading);
        if visibility.may_hide("partitions")
            && let Some(Reply::Nodes(nodes)) = &mut reading.reply
            && nodes.partitions.take().is_some()
        {
            hidden = true;
        }
        self.vitals.hidden = hidden;
        if hidden { Said::Hidden } else { Said::Good }
    }
}

impl Kind {
    fn is_hidden(self, reading: &Reading) -> bool {
        let visibility = reading.visibility.as_ref();
        self.private().is_some_and(|word| visibility.is_some_and(|visibility| visibility.may_hide(word)))
    }
}

fn say(kind: Kind, said: Said, reading: &Reading) {
    let reply = kind.name();
    match said {
        Said::Hidden => warn!(
            reply,
            "slurm.conf's PrivateData may keep some of it from this user, and a part must not look like the whole: \
             nothing of that is published. {HIDDEN_REMEDY}"
        ),
        Said::NotTold => {
            warn!(
                reply,
                "slurmctld has not told what PrivateData keeps from this user; nothing of it is published"
            );
        }
        Said::Good => info!(reply, elapsed_us = reading.elapsed, "slurmctld answers"),
        Said::Nothing | Said::Failed => {}
    }
}

/// What slurmctld may have spent on it. A failure tells only how long it took until it was one.
fn cost(outcome: &Outcome, elapsed: Duration) -> Duration {
    match outcome {
        Ok(reading) => Duration::from_micros(reading.elapsed),
        Err(SourceError::Refused(_)) => elapsed.min(LONGEST_FAILURE),
        // No answer from munged, or from a reader: most often it was not slurmctld's fault.
        Err(_) => Duration::ZERO,
    }
}

fn is_over(until: i64, now: Duration) -> bool {
    i64::try_from(now.as_secs()).is_ok_and(|now| now >= until)
}

/// What an administrator does about PrivateData.
pub(crate) const HIDDEN_REMEDY: &str = "Run the daemon as SlurmUser, or make its user an operator: \
    `sacctmgr modify user NAME set adminlevel=operator`.";

fn one_more(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
