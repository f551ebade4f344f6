//! The cluster itself: jobs, nodes, licences and so on, through a reader of its own, so that the
//! scheduler's statistics are never late because of them.
//!
//! A round begins at a tick at which some collector is due. It asks for one reply after the other,
//! each only once however many collectors need it, and its points have that tick's timestamp.
//! Sparing slurmctld comes first: a reply is skipped while its duty is used up or slurmctld is
//! busy, and no round begins while the previous one is still running. Controllers are always
//! pinged, because that is when it matters. A ping costs slurmctld nothing, but it takes long if a
//! controller hangs, so it comes last and nothing else waits for it. A reply of which slurmctld may
//! hide a part is not used at all, because a part must not look like the whole.

mod controller_clock;
mod duty;
mod reply_state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use slurm_points::configured::Collectors;
use slurm_points::replies::{Needs, ReplyCounters, RoundResult, SurveyReplies};
use slurm_snapshot::{Cost, PublishedJobs, Reading, ReplyKind, ReplyOptions, Request, one_more};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::controller_clock::ControllerClock;
pub(crate) use self::reply_state::HIDDEN_REMEDY;
use self::reply_state::ReplyState;
use crate::clock;
use crate::config::SlurmSettings;
use crate::source::{Outcome, ReaderMemory, Source};

/// Factor by which an expensive reply may take longer than the statistics: slurmctld's locks are
/// held for tens of seconds while thousands of jobs start.
const PATIENCE: u32 = 4;

/// Time to wait for the hello of a reader: libslurm may look for its configuration for a minute.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(70);

/// A survey's round. One of its requests is always under way.
#[derive(Clone, Debug)]
struct SurveyRound {
    timestamp: i64,
    /// Seconds between two uses of each kind of reply, by the due collector that needs it least
    /// often.
    every: BTreeMap<ReplyKind, u32>,
    /// The accounts and QOS that have paths, and the moment since which starts of jobs count. The
    /// request for jobs takes them along.
    kept: PublishedJobs,
    /// The replies that are still missing. The last one is requested.
    left: Vec<ReplyKind>,
    asked_at: Instant,
    /// Whether slurmctld may compare the next requests with this round's replies, and call them
    /// unchanged.
    keeps: bool,
    replies: SurveyReplies,
}

/// The source of replies other than the statistics, and its round under way.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) source: Source,
    /// Whether this host's own slurmctld alone is asked, as with `[slurm] follow`.
    follows: bool,
    max_duty: f64,
    max_threads: u32,
    states: BTreeMap<ReplyKind, ReplyState>,
    clock: ControllerClock,
    /// The needs of all collectors together. Every request asks for all of it, even if only some
    /// collectors are due, so that one reply can be compared with the next.
    needs: Needs,
    round: Option<SurveyRound>,
    logged_busy: bool,
}

impl Survey {
    pub(crate) fn new(source: Source, follows: bool, limits: &Collectors) -> Self {
        Self {
            source,
            follows,
            max_duty: limits.max_duty,
            max_threads: limits.max_threads,
            states: BTreeMap::new(),
            clock: ControllerClock::default(),
            needs: Needs::default(),
            round: None,
            logged_busy: false,
        }
    }

    /// Sets other limits of duty and threads. The round under way and the counters continue.
    pub(crate) const fn limit(&mut self, limits: &Collectors) {
        self.max_duty = limits.max_duty;
        self.max_threads = limits.max_threads;
    }

    /// Forgets the replies that were read before, so that the next ones are requested whole:
    /// "unchanged" would not be true of them.
    pub(crate) fn forget(&mut self) {
        self.states.values_mut().for_each(|state| state.kept = None);
        if let Some(round) = &mut self.round {
            round.keeps = false;
        }
    }

    /// Takes the statistics of a tick, and returns whether slurmctld's clock was set back. If so, a
    /// change since then may have an earlier time than the replies before, which slurmctld would
    /// call unchanged. So the next ones are requested whole.
    pub(crate) fn note_reading(&mut self, reading: &Reading) -> bool {
        let Some(statistics) = &reading.statistics else { return false };
        // A reply that came while the statistics were on their way may be later than these.
        let elapsed = i64::try_from(reading.elapsed.div_ceil(1_000_000)).unwrap_or(i64::MAX);
        let latest = statistics.req_time.saturating_add(elapsed);
        let is_later = |state: &ReplyState| state.since().is_some_and(|since| since > latest);
        let was_set_back = self.clock.was_set_back(reading) || self.states.values().any(is_later);
        if was_set_back {
            warn!("slurmctld's clock was set back; whatever it calls unchanged is requested again");
            self.forget();
        }
        was_set_back
    }

    /// Begins a round at a tick that is due for some collectors. `due` is what each of them needs,
    /// and its interval in seconds; `needs` is what all collectors need. `threads` is slurmctld's
    /// threads at work in the last statistics; `None`: it did not answer, and must not get more
    /// work. Returns a round that has ended at once.
    pub(crate) fn begin_round(
        &mut self,
        timestamp: i64,
        due: &[(Needs, u32)],
        needs: &Needs,
        kept: PublishedJobs,
        threads: Option<u32>,
        now: Duration,
    ) -> Option<RoundResult> {
        let mut wanted: BTreeMap<ReplyKind, u32> = BTreeMap::new();
        for &(ref needs, every) in due {
            for kind in &needs.replies {
                let longest = wanted.entry(*kind).or_insert(every);
                *longest = every.max(*longest);
            }
        }
        if self.round.is_some() {
            debug!("the previous round is still running; this one is skipped");
            wanted
                .into_keys()
                .for_each(|kind| one_more(&mut self.state(kind).counters.skipped_round));
            return None;
        }
        if *needs != self.needs {
            self.needs = needs.clone();
            self.forget();
        }
        let busy = threads.is_none_or(|threads| threads > self.max_threads);
        self.say_busy(busy, threads);
        let mut left = Vec::new();
        for &kind in wanted.keys() {
            let state = self.state(kind);
            let is_expensive = kind.row().cost != Cost::None;
            if busy && is_expensive {
                one_more(&mut state.counters.skipped_busy);
            } else if state.duty.allows(now) || !is_expensive {
                left.push(kind);
            } else {
                one_more(&mut state.counters.skipped_duty);
            }
        }
        left.reverse();
        let every = wanted;
        let replies = SurveyReplies::default();
        self.ask_next(
            SurveyRound {
                timestamp,
                every,
                kept,
                left,
                asked_at: Instant::now(),
                keeps: true,
                replies,
            },
            now,
        )
    }

    /// Takes the outcome of a request, and continues to the next reply or ends the round. Returns
    /// the replies of a round that has ended.
    pub(crate) fn handle_reply(&mut self, outcome: Outcome, now: Duration) -> Option<RoundResult> {
        let mut round = self.round.take()?;
        let kind = round.left.pop()?;
        let max_duty = self.max_duty;
        let options = self.needs.options;
        let state = self.state(kind);
        state.duty.note_duration(reply_state::cost(&outcome, round.asked_at.elapsed()), max_duty);
        if let Some(reading) = state.handle_outcome(kind, options, outcome) {
            if round.is_too_late_for(kind, now) {
                one_more(&mut state.counters.readings_late);
                debug!(reply = kind.name(), "it arrived after its slot and is discarded");
            } else {
                round.replies.insert(kind, reading);
            }
        }
        self.ask_next(round, now)
    }

    /// Runs a whole round, for a command that ends afterwards. Returns its replies, and a line for
    /// each reply that is missing.
    pub(crate) async fn all(mut self, timestamp: i64, needs: Needs) -> (RoundResult, Vec<String>) {
        let mut replies = SurveyReplies::default();
        let mut done = self.begin_round(
            i64::MAX,
            &[(needs.clone(), 0)],
            &needs,
            PublishedJobs::default(),
            Some(0),
            clock::now(),
        );
        loop {
            if let Some(done) = done {
                replies.extend(done.replies);
            }
            if self.round.is_none() {
                let failure = |(kind, state): (&ReplyKind, &ReplyState)| {
                    state.failure.as_ref().map(|failure| format!("no {}: {failure}", kind.name()))
                };
                let failures = self.states.iter().filter_map(failure).collect();
                return (
                    RoundResult { timestamp, ended: timestamp, requested: needs, replies },
                    failures,
                );
            }
            let outcome = self.source.outcome().await;
            done = self.handle_reply(outcome, clock::now());
        }
    }

    /// The counters of each kind of reply that was ever requested.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (ReplyKind, ReplyCounters)> + '_ {
        let known = self.states.iter().filter(|(_, state)| state.is_known());
        known.map(|(kind, state)| (*kind, state.counters))
    }

    /// Requests the next reply, or ends the round. Returns the replies if no other is missing than
    /// the controllers', because nothing waits for that.
    fn ask_next(&mut self, mut round: SurveyRound, now: Duration) -> Option<RoundResult> {
        let follows = self.follows;
        let options = self.needs.options;
        while let Some(&kind) = round.left.last() {
            let state = self.state(kind);
            if round.is_too_late_for(kind, now) {
                // Its answer could only come too late: slurmctld is spared it.
                one_more(&mut state.counters.skipped_round);
            } else {
                let asked =
                    ReplyOptions { follow: follows && kind != ReplyKind::Controllers, ..options };
                let kept = (kind == ReplyKind::Jobs).then(|| round.kept.clone());
                let request = Request { since: state.since(), kept, ..Request::new(kind, asked) };
                state.duty.ask(now);
                if self.source.ask(request) {
                    round.asked_at = Instant::now();
                    let done = (kind == ReplyKind::Controllers).then(|| self.done(&mut round, now));
                    self.round = Some(round);
                    return done;
                }
            }
            round.left.pop();
        }
        Some(self.done(&mut round, now))
    }

    /// Ends the round. Returns its replies, of which the figures are made.
    fn done(&mut self, round: &mut SurveyRound, now: Duration) -> RoundResult {
        let replies = std::mem::take(&mut round.replies);
        for (kind, reading) in
            replies.iter().filter(|(kind, _)| round.keeps && kind.row().unchanged)
        {
            self.state(*kind).kept = Some(Arc::clone(reading));
        }
        let ended = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        RoundResult { timestamp: round.timestamp, ended, requested: self.needs.clone(), replies }
    }

    fn state(&mut self, kind: ReplyKind) -> &mut ReplyState {
        self.states.entry(kind).or_default()
    }

    fn say_busy(&mut self, busy: bool, threads: Option<u32>) {
        // That it does not answer has been logged.
        let Some(threads) = threads else { return };
        match (busy, std::mem::replace(&mut self.logged_busy, busy)) {
            (true, false) => warn!(
                threads,
                limit = self.max_threads,
                "slurmctld is busy; until its load falls, only its statistics are requested"
            ),
            (false, true) => {
                info!(threads, "slurmctld is no longer busy; everything is requested again")
            }
            _ => {}
        }
    }
}

/// Starts a source whose replies may take [`PATIENCE`] times as long as the statistics.
pub(crate) fn patient(role: &'static str, slurm: &SlurmSettings, readers: &ReaderMemory) -> Source {
    Source::start(
        role,
        SlurmSettings { timeout: slurm.timeout.saturating_mul(PATIENCE), ..slurm.clone() },
        START_DEADLINE,
        readers,
    )
}

impl SurveyRound {
    /// Whether the slots of all due collectors that need this reply are over.
    fn is_too_late_for(&self, kind: ReplyKind, now: Duration) -> bool {
        let has_passed = |&longest: &u32| {
            let until = self.timestamp.saturating_add(longest.into());
            i64::try_from(now.as_secs()).is_ok_and(|now| now >= until)
        };
        self.every.get(&kind).is_some_and(has_passed)
    }
}

#[cfg(test)]
mod tests;
