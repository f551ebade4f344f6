//! The cluster itself: jobs, nodes, licences and so on, through a reader of its own, so that the scheduler's
//! statistics are never late because of them.
//!
//! A round begins at a tick that is due for some collector, asks for one reply after the other, each once whoever
//! wants it, and its points carry that tick's timestamp. Care for slurmctld comes first: a reply is left out while
//! its duty is used up or slurmctld is busy, and a round that is still under way when the next is due is not
//! doubled. Whether the controllers live is asked all the same, for it is of interest just then: it costs slurmctld
//! nothing, but where one of them hangs it takes long, so that it comes last and nothing else waits for it. What slurmctld
//! may keep from us is not used at all: a part must not look like the whole.

mod findings;
mod needs;
mod pace;
mod topic;

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

pub(crate) use self::findings::Findings;
use self::needs::KINDS;
pub(crate) use self::needs::{Kind, Needs};
use self::topic::Topic;
pub(crate) use self::topic::Vitals;
use crate::clock;
use crate::config::Slurm;
use crate::source::{Outcome, Source};

/// How much longer than a reading of the statistics an expensive reply may take: slurmctld's locks are held for
/// tens of seconds while thousands of jobs start.
const PATIENCE: u32 = 4;

/// libslurm may look for its configuration for a minute.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(70);

/// What a round is for.
#[derive(Clone, Debug)]
struct Round {
    timestamp: i64,
    /// What is still to be asked, and until when an answer is of use: then the slots of all who want it are over. Unix
    /// seconds.
    left: Vec<(Kind, i64)>,
    findings: Findings,
}

/// What a round has found out: of one that is over, or all of one in which only the controllers are still asked.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its tick, Unix seconds.
    pub(crate) timestamp: i64,
    /// What replies were asked for with: a reload may have changed since what the next round is for.
    pub(crate) asked: Needs,
    pub(crate) findings: Findings,
}

/// The reader for the cluster itself, and the round that is under way.
#[derive(Debug)]
pub(crate) struct Survey {
    source: Source,
    /// slurmrestd must not be asked for jobs.
    no_jobs: bool,
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
            no_jobs: slurm.rest.endpoint.is_some() && !slurm.rest.job_states,
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
        let no_jobs = self.no_jobs;
        let asked = KINDS.into_iter().filter(|kind| !(no_jobs && *kind == Kind::Jobs));
        let wanted = asked.filter_map(|kind| Some((kind, until(kind)?)));
        if self.round.is_some() {
            debug!("the last round is still under way; this one is left out");
            wanted.for_each(|(kind, _)| topic::one_more(&mut self.topic(kind).vitals.skipped_round));
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
                topic::one_more(&mut topic.vitals.skipped_busy);
            } else if topic.pace.allows(now) || !kind.is_dear() {
                left.push((kind, timestamp.saturating_add(every.into())));
            } else {
                topic::one_more(&mut topic.vitals.skipped_duty);
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
        let (max_duty, needs) = (self.max_duty, self.needs);
        let topic = self.topic(kind);
        topic.pace.answered(topic::cost(&outcome, at.elapsed()), max_duty);
        let reading = topic.take(kind, needs, outcome);
        if reading.is_some() && is_over(until, now) {
            topic::one_more(&mut topic.vitals.readings_late);
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
        let mut findings = Findings::default();
        let mut done = self.begin(i64::MAX, &[(needs, 0)], needs, Some(0), clock::now());
        loop {
            if let Some(done) = done {
                findings.extend(done.findings);
            }
            if self.round.is_none() {
                return findings;
            }
            let outcome = self.outcome().await;
            done = self.answered(outcome, clock::now());
        }
    }

    /// How each kind is doing that was ever asked for.
    pub(crate) fn vitals(&self) -> impl Iterator<Item = (Kind, Vitals)> + '_ {
        KINDS.into_iter().filter_map(|kind| {
            let topic = self.topics.get(kind as usize)?;
            topic.is_known().then_some((kind, topic.vitals))
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
                topic::one_more(&mut topic.vitals.skipped_round);
                continue;
            }
            let request = kind.request(needs, topic.since());
            topic.pace.ask(now);
            if self.source.ask(request) {
                self.asked = Some(Asked { kind, until, at: Instant::now() });
                let done = (kind == Kind::Controllers).then(|| self.done(&mut round));
                self.round = Some(round);
                return done;
            }
        }
        Some(self.done(&mut round))
    }

    /// What `round` has found out by now.
    fn done(&self, round: &mut Round) -> Done {
        let findings = std::mem::take(&mut round.findings);
        Done { timestamp: round.timestamp, asked: self.needs, findings }
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

fn is_over(until: i64, now: Duration) -> bool {
    i64::try_from(now.as_secs()).is_ok_and(|now| now >= until)
}
