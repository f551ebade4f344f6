//! The rounds in which finished jobs are read, from slurmdbd.
//!
//! A round reads the jobs that may have ended since the last whole round, and in the `window`
//! before it; once an hour, or if some may have been missed, all since the ledger's floor. It reads
//! one piece after the other, the newest first. What it has read when it ends, or when slurmdbd
//! fails, is one commit with its batch, and no other round begins before that is on disk. slurmdbd
//! may block for minutes: nothing else waits for it.

mod phase;
mod plan;
mod report;
mod steps;
mod watermark;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use slurm_points::finished::{Counts, FinishedLedger, FinishedRound, Found, HOUR, RememberedSpan};
use slurm_points::replies::ReplyCounters;
use slurm_snapshot::{Reply, ReplyKind, errno, one_more};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use self::phase::{Ending, HeavySpan, Phase, RoundUnderWay};
pub(crate) use self::plan::Plan;
use self::report::Report;
use self::steps::{Measuring, Suspects};
use self::watermark::Watermark;
use crate::source::{Outcome, Source, SourceError};

/// Number of jobs in a piece above which the next piece is half as long, so that the reader stays
/// below 12 MB.
const MOST_JOBS: usize = 4000;

/// Length of the first piece of end times that is read, seconds. The number of jobs that end in an
/// hour is not known then.
const FIRST_PIECE: i64 = 60;

/// Length of the longest piece, seconds. A piece is longer than an hour only if slurmdbd has
/// returned nothing for a shorter one, and nothing proves that answer.
const LONGEST_PIECE: i64 = 12 * HOUR;

/// Number of heavy spans that are remembered.
const MOST_HEAVY: usize = 64;

/// Time for which what could not be had in one request is not tried again as a whole, seconds.
const FORGOTTEN_AFTER: i64 = 6 * HOUR;

/// Time for which counted jobs may lie far ahead of the clock, before the clock is taken to be
/// right.
const CLOCK_PATIENCE: Duration = Duration::from_secs(600);

/// Time for which slurm.conf must name another cluster before the counts of the old one are given
/// up.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(600);

/// Records for the queue's log, by name.
pub(crate) type Records = Vec<(String, Arc<[u8]>)>;

/// The rounds of finished jobs: the source that asks slurmdbd, the ledger of what was counted, and
/// the round under way.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub(crate) source: Source,
    pub(crate) plan: Plan,
    /// The ledger of what was counted; `None` until the queue's log has been read.
    ledger: Option<FinishedLedger>,
    phase: Phase,
    /// End of the time in which another host's daemon may have counted, Unix seconds: the next
    /// whole round only marks the jobs that ended until then as seen. `None`: no such round is due.
    rebuild: Option<i64>,
    watermark: Watermark,
    /// Moment since which slurm.conf has named another cluster than the ledger's; `None`: it names
    /// the same.
    renamed_since: Option<Instant>,
    /// Moment since which counted jobs have been far ahead of the clock, and the clock's time at
    /// that moment, Unix seconds.
    ahead_since: Option<(Instant, i64)>,
    /// Length of the next piece of end times, seconds.
    piece: i64,
    /// Upper limit of `piece`, seconds. It falls if slurmdbd refuses requests for a longer time than
    /// MaxQueryTimeRange, until the configuration changes.
    longest_piece: i64,
    /// Spans of end times that are read in short pieces, the newest found first: `piece` would grow
    /// again before a round reaches them.
    heavy: VecDeque<HeavySpan>,
    /// Jobs whose steps are asked for in small requests, or not at all.
    suspects: Suspects,
    counters: ReplyCounters,
    report: Report,
}

impl Accounting {
    /// Prepares the rounds. With `rebuilds` the first whole round only marks all jobs as seen,
    /// because another host's daemon may have counted them; [`Accounting::rebuild`] limits these to
    /// the jobs that ended early enough.
    pub(crate) fn new(source: Source, plan: Plan, rebuilds: bool) -> Self {
        Self {
            source,
            plan,
            ledger: None,
            phase: Phase::Idle,
            rebuild: rebuilds.then_some(i64::MAX),
            watermark: Watermark::default(),
            renamed_since: None,
            ahead_since: None,
            piece: FIRST_PIECE,
            longest_piece: LONGEST_PIECE,
            heavy: VecDeque::new(),
            suspects: Suspects::default(),
            counters: ReplyCounters::default(),
            report: Report::default(),
        }
    }

    /// Continues with another plan, and with another source if one is given. What was counted
    /// stays, and so does what waits for the disk.
    pub(crate) fn with(mut self, plan: Plan, source: Option<Source>) -> Self {
        if self.plan != plan || source.is_some() {
            // What was read for another plan is read again.
            self.give_up();
            self.watermark.read_all();
            // The reader's user, or what slurmdbd allows this user, may be another.
            (self.longest_piece, self.suspects) = (LONGEST_PIECE, Suspects::default());
            self.heavy.clear();
        }
        if let (Phase::GivenUp, Some(_)) = (&self.phase, &source) {
            // The answer to the old reader's request never comes.
            self.phase = Phase::Idle;
        }
        Self { plan, source: source.unwrap_or(self.source), ..self }
    }

    /// Gives up the round under way; the next one reads the same.
    fn give_up(&mut self) {
        if let Phase::Reading(_) = &self.phase {
            self.phase = Phase::GivenUp;
        }
    }

    /// Reads the ledger from the queue's log, or begins one. A first ledger must be on disk before
    /// anything counts. A ledger that was found waits for the disk too, because the last commit of
    /// a collector that was off only for a moment may not be there yet.
    pub(crate) fn open(
        &mut self,
        cluster: &str,
        now: i64,
        records: impl FnOnce() -> Option<BTreeMap<String, Arc<[u8]>>>,
        keep: impl FnOnce(Records) -> u64,
    ) {
        if self.ledger.is_some() {
            return self.change_cluster(cluster, now, keep);
        }
        let Some(records) = records() else { return };
        let (ledger, found) = FinishedLedger::open(cluster, now, &records);
        report::opened(found);
        let records = if found == Found::Whole { None } else { ledger.record().ok() };
        self.phase = Phase::Committing(keep(records.into_iter().collect()), None);
        self.ledger = Some(ledger);
    }

    /// Begins a new ledger if slurm.conf has named another cluster for [`CLUSTER_PATIENCE`] and no
    /// round or commit of the old ledger is under way. Until then no round begins.
    fn change_cluster(&mut self, cluster: &str, now: i64, keep: impl FnOnce(Records) -> u64) {
        let Some(ledger) = self.ledger.as_mut().filter(|ledger| ledger.counts().cluster != cluster)
        else {
            if self.renamed_since.take().is_some() {
                info!(
                    cluster,
                    "finished jobs count again: slurm.conf names the same cluster as before"
                );
            }
            return;
        };
        let since = *self.renamed_since.get_or_insert_with(|| {
            warn!(
                new = cluster,
                "finished jobs are not counted: slurm.conf names another cluster; if it still does in \
                 10 minutes, counting begins again for that one"
            );
            Instant::now()
        });
        let Phase::Idle = self.phase else { return self.give_up() };
        if since.elapsed() < CLUSTER_PATIENCE {
            return;
        }
        self.renamed_since = None;
        warn!(
            old = ledger.counts().cluster,
            new = cluster,
            "finished jobs are counted from now on, because slurm.conf now names another cluster"
        );
        *ledger = ledger.first_of_another(cluster, now);
        if let Ok(record) = ledger.record() {
            self.phase = Phase::Committing(keep(vec![record]), None);
        }
    }

    /// Takes two numbers from slurmctld's statistics: of `records` that wait for slurmdbd, and of
    /// jobs `started`. `now` is Unix seconds.
    pub(crate) fn note_statistics(&mut self, records: u64, started: u64, now: i64) {
        self.report.progress.note_started(started);
        self.watermark.note_queue(records, now);
    }

    /// Begins a round if one is due at this tick. If `counts` is false, jobs are only marked as
    /// seen.
    pub(crate) fn begin_round(&mut self, timestamp: i64, now: i64, counts: bool) {
        let Some(ledger) = self.ledger.as_mut().filter(|_| self.renamed_since.is_none()) else {
            return;
        };
        let every = self.plan.every.max(1);
        if timestamp.rem_euclid(every) != 0 || !ledger.is_due(timestamp, every) {
            return;
        }
        let Phase::Idle = self.phase else { return one_more(&mut self.counters.skipped_round) };
        // Rounds of all hosts begin at the same moments: before the next one nobody else publishes.
        let slot = ledger.counts().slot;
        let is_next =
            |active: i64| slot > 0 && (slot..slot.saturating_add(every)).contains(&active);
        self.rebuild = self.rebuild.filter(|until| !is_next(until.saturating_sub(every)));
        come_back(ledger, &mut self.ahead_since, now, &mut self.report);
        let from = self.watermark.next_from(now, self.plan.window, ledger.oldest_incomplete());
        let from = from.filter(|_| self.rebuild.is_none());
        let mut round = FinishedRound::new(now, self.plan.window, self.plan.levels);
        round.efficiency = self.plan.efficiency;
        round.is_full = from.is_none();
        let unread = ledger.unread_from(now);
        let from = from.map_or(unread, |from| from.max(unread));
        let quiet = self.watermark.quiet;
        self.heavy.retain(|span| now.saturating_sub(span.failed) < FORGOTTEN_AFTER);
        self.suspects.forget(now);
        let mut work = Box::new(RoundUnderWay::new(round, from, quiet, self.rebuild, counts));
        match self.ask(&mut work) {
            Ok(()) => {
                self.report.in_time();
                self.phase = Phase::Reading(work);
            }
            // There is nothing to read before the floor.
            Err(Ending::Whole) => self.report.behind(from, now),
            Err(_) => {}
        }
    }

    /// Requests the next piece of the round, or returns how the round ends.
    fn ask(&self, work: &mut RoundUnderWay) -> Result<(), Ending> {
        let since = self.next_since(work).ok_or(Ending::Whole)?;
        work.since = since;
        let ledger = self.ledger.as_ref().ok_or(Ending::Cut)?;
        let known = known(work, since, ledger, self.watermark.read_until);
        // A request that could not be made has read nothing.
        self.source.ask(self.plan.request(since, work.to, known)).then_some(()).ok_or(Ending::Cut)
    }

    /// Returns the oldest end of the next piece, Unix seconds; `None` if everything has been read. A
    /// piece ends where a heavy span begins, and within one it is short.
    fn next_since(&self, work: &RoundUnderWay) -> Option<i64> {
        let around = self.heavy.iter().filter(|span| span.has(work.to));
        let piece = around.map(HeavySpan::piece).fold(self.piece, i64::min);
        let since = work.next_piece(piece)?;
        let behind = self.heavy.iter().map(|span| span.to.saturating_add(1));
        Some(behind.filter(|behind| *behind <= work.to).fold(since, i64::max))
    }

    /// Takes the outcome of a request to slurmdbd. When the round is over, `keep` gets the records
    /// that must be on disk before the round counts, and the counts for its batch, or `None` if
    /// this host does not publish them; it returns the queue's ticket. Returns the slot of a round
    /// that is only to be reported as unproved.
    pub(crate) fn take_reply(
        &mut self,
        outcome: Outcome,
        now: i64,
        keep: impl FnOnce(Option<&Counts>, Records) -> u64,
    ) -> Option<i64> {
        if let Phase::Committing(..) = self.phase {
            return None;
        }
        let Phase::Reading(mut work) = mem::take(&mut self.phase) else { return None };
        match self.add_reply(&mut work, outcome, now) {
            Ok(()) => {
                self.phase = Phase::Reading(work);
                None
            }
            Err(ending) => self.end_round(*work, ending, now, keep),
        }
    }

    /// Adds the outcome to the round and requests what comes next, or returns how the round ends.
    fn add_reply(
        &mut self,
        work: &mut RoundUnderWay,
        outcome: Outcome,
        now: i64,
    ) -> Result<(), Ending> {
        let ledger = self.ledger.as_ref().ok_or(Ending::Cut)?;
        if let Some(mut measuring) =
            work.measuring.take_if(|_| outcome.as_ref().is_err_and(is_too_wide))
        {
            measuring.narrow(&mut self.suspects, true, now);
            return self.measure(work, measuring, now);
        }
        let reading = match outcome {
            Ok(reading) => reading,
            Err(error) => return Err(self.note_failure(work, &error, now)),
        };
        if reading.cluster.as_deref() != Some(&ledger.counts().cluster) {
            debug!("slurm.conf is another cluster's now");
            return Err(Ending::Cut);
        }
        let took = reading.elapsed;
        let is_visible = reading.visibility.is_some_and(|visibility| !visibility.may_hide("jobs"));
        let Some(Reply::Finished(finished)) = reading.reply.filter(|_| is_visible) else {
            self.counters.hidden = true;
            self.report.hidden();
            return Err(Ending::Cut);
        };
        one_more(&mut self.counters.readings_ok);
        self.counters.duration = Some(took);
        self.counters.hidden = false;
        let measuring = match work.measuring.take() {
            Some(mut measuring) => {
                measuring.add(&finished.used, took, &mut self.suspects);
                measuring
            }
            None if finished.unproved => {
                // After failures the piece is short, and a ledger without a job has nothing that
                // proves it.
                if known(work, work.since, ledger, self.watermark.read_until).is_empty() {
                    self.heavy.clear();
                    self.piece = self.piece.saturating_mul(2).min(self.longest_piece);
                    if self.next_since(work).is_some_and(|earlier| earlier < work.since) {
                        return self.ask(work);
                    }
                }
                self.piece = self.piece.min(HOUR);
                self.report.unproved(work.oldest.or(ledger.latest()));
                return Err(Ending::Unproved);
            }
            None => Measuring::begin(*finished, took, &self.suspects, &work.round, ledger),
        };
        self.measure(work, measuring, now)
    }

    /// Notes that a request has failed: slurmdbd's answer may have been too long, or may have taken
    /// too long. So the next request for the same jobs is for half as many. In the end their steps
    /// are given up, because all jobs that ended earlier wait for them.
    fn note_failure(&mut self, work: &mut RoundUnderWay, error: &SourceError, now: i64) -> Ending {
        one_more(&mut self.counters.readings_failed);
        self.counters.duration = None;
        self.report.failed(error);
        if !matches!(error.root(), SourceError::Reader(_) | SourceError::Refused(..)) {
            // There is no reader that could have asked slurmdbd.
            return Ending::Cut;
        }
        if let Some(mut measuring) = work.measuring.take() {
            measuring.narrow(&mut self.suspects, false, now);
            return Ending::Cut;
        }
        self.piece = (self.piece / 2).max(1);
        if is_too_wide(error) {
            // As long as the reader's user may ask for, from then on.
            self.longest_piece = self.piece;
        } else if work.round.has_answer() {
            self.note_heavy(work.since, work.to, now);
        }
        Ending::Cut
    }

    /// Notes at `now` that the jobs that ended between two moments could not be had in one request,
    /// although slurmdbd had answered another one. All are Unix seconds.
    fn note_heavy(&mut self, from: i64, to: i64, now: i64) {
        if from < to {
            self.heavy.truncate(MOST_HEAVY.saturating_sub(1));
            self.heavy.push_front(HeavySpan { from, to, failed: now });
        }
    }

    /// Requests what the steps of the piece's next jobs have used. If that is known of all, adds
    /// the piece to the round and requests the next piece.
    fn measure(
        &mut self,
        work: &mut RoundUnderWay,
        mut measuring: Measuring,
        now: i64,
    ) -> Result<(), Ending> {
        let ledger = self.ledger.as_ref().ok_or(Ending::Cut)?;
        if let Some(request) = measuring.next(&self.plan, &self.suspects, now) {
            work.measuring = Some(measuring);
            return self.source.ask(request).then_some(()).ok_or(Ending::Cut);
        }
        let (finished, elapsed) = measuring.done(&mut work.round);
        work.round.add(&finished, elapsed, ledger);
        let oldest = finished.jobs.iter().map(|job| job.end).min();
        work.oldest = oldest.or(work.oldest);
        self.piece = next_piece(self.piece, finished.jobs.len()).min(self.longest_piece);
        let since = work.since;
        let read_from = finished.empty_since.map_or(since, |empty_since| empty_since.min(since));
        work.to = read_from.saturating_sub(1);
        self.ask(work)
    }

    /// Ends the round: what it has read is counted, even if it ends early.
    fn end_round(
        &mut self,
        work: RoundUnderWay,
        ending: Ending,
        now: i64,
        keep: impl FnOnce(Option<&Counts>, Records) -> u64,
    ) -> Option<i64> {
        let RoundUnderWay { mut round, quiet, is_published, to, .. } = work;
        if ending == Ending::Whole || to < round.window_from {
            // All new jobs count, even if an older piece cannot be proved or read.
            self.report.progress.whole();
        }
        if ending == Ending::Whole {
            // Not at each answer: an older piece may fail in every round.
            self.report.whole(round.reading.elapsed);
            self.suspects.note_whole();
            if round.until.is_none() {
                self.watermark.whole(&round, quiet);
            } else if self.rebuild == round.until {
                // What ended after this host became active is still to be counted.
                self.rebuild = None;
            }
        }
        let ledger = self.ledger.as_mut()?;
        // A round that counts says it among its figures.
        let is_alone =
            ending == Ending::Unproved && is_published && (round.is_silent || !round.has_answer());
        let alone = is_alone.then(|| ledger.use_slot(now, self.plan.every)).flatten();
        if !round.has_answer() {
            return alone;
        }
        round.is_complete = ending == Ending::Whole;
        round.reading.unproved = ending == Ending::Unproved;
        if ending != Ending::Whole && to >= round.window_from {
            round.reading.window_jobs = None;
        }
        let span = RememberedSpan { seconds: self.plan.kept_seconds(), ids: self.plan.most_ids };
        let next = ledger.next(round, ledger.slot(now, self.plan.every), span);
        if next.is_short {
            self.report.short(self.plan.most_ids);
        }
        match ledger.records(&next) {
            Ok(records) => {
                let counts = (!next.is_silent).then(|| next.counts());
                self.phase = Phase::Committing(keep(counts, records), Some(Box::new(next)));
            }
            Err(error) => error!(%error, "finished jobs cannot be counted"),
        }
        alone
    }

    /// The queue's ticket of the commit that waits for the disk; `None` if none does.
    pub(crate) const fn ticket(&self) -> Option<u64> {
        if let Phase::Committing(ticket, _) = self.phase { Some(ticket) } else { None }
    }

    /// Takes that the commit is on disk, so that the jobs of its round count.
    pub(crate) fn commit(&mut self) {
        match mem::take(&mut self.phase) {
            Phase::Committing(_, next) => {
                if let Some((ledger, next)) = self.ledger.as_mut().zip(next) {
                    ledger.adopt(*next);
                }
            }
            phase => self.phase = phase,
        }
    }

    /// Takes that this host became active at `now`, Unix seconds. Another host's daemon may have
    /// counted the jobs that ended until one round later. So a round first only marks these as
    /// seen, and later ones count. There is no such round if this host has published the last round
    /// before `now`, because nobody else has counted since.
    pub(crate) fn rebuild(&mut self, now: i64) {
        // The round under way was begun without this.
        self.give_up();
        self.watermark.read_all();
        self.rebuild = Some(now.saturating_add(self.plan.every));
    }

    /// Makes the round under way only mark jobs as seen, because another host's daemon publishes
    /// from now on.
    pub(crate) const fn silence_round(&mut self) {
        if let Phase::Reading(work) = &mut self.phase {
            work.is_published = false;
            work.round.is_silent = true;
        }
    }

    pub(crate) const fn ledger(&self) -> Option<&FinishedLedger> {
        self.ledger.as_ref()
    }

    /// Time for which no round could read all it had to although jobs start, if that is more than
    /// an hour; else `None`.
    pub(crate) fn behind(&self) -> Option<Duration> {
        self.report.progress.behind()
    }

    pub(crate) const fn counters(&self) -> (ReplyKind, ReplyCounters) {
        (ReplyKind::Finished, self.counters)
    }
}

/// Lowers the floor of a ledger that a wrong clock has left far ahead of `now`, once that is so for
/// [`CLOCK_PATIENCE`]: a host may start with a clock that is behind until NTP has set it, and would
/// count jobs again whose ids it has forgotten. A ledger that never counted anything does not wait.
fn come_back(
    ledger: &mut FinishedLedger,
    since: &mut Option<(Instant, i64)>,
    now: i64,
    report: &mut Report,
) {
    ledger.raise_floor(now);
    if !ledger.is_ahead(now) {
        *since = None;
        return;
    }
    let (begin, first) = *since.get_or_insert_with(|| (Instant::now(), now));
    if begin.elapsed() >= CLOCK_PATIENCE || !ledger.has_counted() {
        report.clock_was_ahead(ledger.floor(), first.min(now));
        ledger.lower_floor(first.min(now));
    }
}

fn is_too_wide(error: &SourceError) -> bool {
    matches!(error, SourceError::Refused(failure, _) if failure.errno == errno::DB_QUERY_TOO_WIDE)
}

/// Returns the moments, Unix seconds, at which slurmdbd should have a row next to a piece that
/// begins at `since`. They are the ends of counted jobs on both sides of it, because a time without
/// jobs may be longer than MaxQueryTimeRange on one side; and `read_until`, since which little may
/// have ended.
fn known(
    work: &RoundUnderWay,
    since: i64,
    ledger: &FinishedLedger,
    read_until: Option<i64>,
) -> Vec<i64> {
    let latest = ledger.latest();
    let after = work.oldest.or(latest.filter(|latest| *latest >= since));
    let before = latest.filter(|latest| *latest < since);
    let quiet = read_until.map(|until| until.min(since.saturating_sub(1)));
    [after, before, quiet, ledger.counted_before(since)].into_iter().flatten().collect()
}

/// Returns the length of the next piece, seconds, after one of `piece` seconds had so many `jobs`.
fn next_piece(piece: i64, jobs: usize) -> i64 {
    let piece = piece.min(HOUR);
    if jobs > MOST_JOBS {
        return (piece / 2).max(1);
    }
    if jobs < MOST_JOBS / 4 { piece.saturating_mul(2).min(HOUR) } else { piece }
}

#[cfg(test)]
mod tests;
