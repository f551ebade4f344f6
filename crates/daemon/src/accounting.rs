//! The rounds in which finished jobs are read, from slurmdbd or, without one, from slurmctld's own records.
//!
//! A round reads the jobs that ended in the last `window`, or, if some may have been missed, since the ledger's floor: one piece after
//! the other, the newest first. What was read when it ends, or when slurmdbd fails, is one commit, and no other round begins before
//! that is on disk. slurmdbd may block for minutes: nothing else waits for it.

mod plan;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use slurm_snapshot::{Finished, Reading, Reply, ReplyKind};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

pub(crate) use self::plan::{ID_BYTES, Plan, Sparing};
use self::steps::Measuring;
use crate::derive::{exact_f64, seconds_since};
use crate::finished::{FinishedLedger, FinishedRound, HOUR, Next, RememberedSpan};
use crate::replies::{ReplyCounters, one_more};
use crate::source::{Outcome, Source};
use crate::survey::HIDDEN_REMEDY;

/// slurmctld's clock may be ahead of ours.
const AHEAD: i64 = 300;

/// The most jobs that are read at once, so that the reader stays below 12 MB.
const MOST_JOBS: usize = 4000;

/// The shortest time that is read at once.
const LEAST_PIECE: i64 = 60;

/// Records for the queue's log, by name.
pub(crate) type Records = Vec<(String, Arc<[u8]>)>;

/// The reader of slurmdbd, what it has told, and what has been counted of that.
#[derive(Debug)]
pub(crate) struct Accounting {
    source: Source,
    plan: Plan,
    /// `None` until the queue's log has been read.
    ledger: Option<FinishedLedger>,
    work: Option<RoundUnderWay>,
    /// A request is under way.
    asked: bool,
    /// What waits for the disk.
    next: Option<Next>,
    /// The queue's ticket for that, or for the counts that it had.
    ticket: Option<u64>,
    /// Whether everything since the floor is to be read.
    catch_up: bool,
    /// When that was last done, Unix seconds.
    caught_up: i64,
    /// What is read until then is another daemon's: it is marked as seen, and not published.
    rebuilds: bool,
    /// slurmctld had records that it could not send to slurmdbd.
    had_backlog: bool,
    /// When it last had some, Unix seconds.
    busy: i64,
    /// Seconds of end times that are read at once.
    piece: i64,
    counters: ReplyCounters,
    logged: LoggedAccounting,
    is_short: bool,
    /// Where slurmctld's own records were read: when, Unix seconds, and for how many µs.
    cost_to_slurmctld: Option<(i64, u64)>,
    /// The log says that the clock is behind what was counted.
    is_behind: bool,
}

#[derive(Debug)]
struct RoundUnderWay {
    round: FinishedRound,
    /// What is left to read: from here to there, Unix seconds. Both belong to it.
    from: i64,
    to: i64,
    catch_up: bool,
    has_answer: bool,
    /// What was read last, while slurmdbd is asked for the steps of that.
    measuring: Option<Measuring>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoggedAccounting {
    Nothing,
    Good,
    Failed(Instant),
    Hidden,
}

impl Accounting {
    /// `rebuilds`: what another daemon may have counted is first marked as seen.
    pub(crate) fn new(source: Source, plan: Plan, rebuilds: bool) -> Self {
        Self {
            source,
            plan,
            ledger: None,
            work: None,
            asked: false,
            next: None,
            ticket: None,
            catch_up: true,
            caught_up: i64::MIN,
            rebuilds,
            had_backlog: false,
            busy: i64::MIN,
            // How many jobs end in an hour is not known yet.
            piece: LEAST_PIECE,
            counters: ReplyCounters::default(),
            logged: LoggedAccounting::Nothing,
            is_short: false,
            cost_to_slurmctld: None,
            is_behind: false,
        }
    }

    /// Sets another plan, and another reader if there is a `source`. What was counted stays, and so does what waits for the disk.
    pub(crate) fn reconfigure(&mut self, source: Option<Source>, plan: Plan) {
        if self.plan != plan || source.is_some() {
            // What was read for another plan is read again.
            (self.work, self.catch_up) = (None, true);
            self.plan = plan;
            // Its answer would be taken for that to the next request.
            if let Some(source) = source {
                (self.source, self.asked) = (source, false);
            }
        }
    }

    /// Reads what was counted from the queue's log. `true` if the queue may lack the batch of the last counts. If the collector was
    /// off only for a moment, they may not be on disk yet, and their batch waits for that.
    pub(crate) fn open(
        &mut self,
        cluster: &str,
        now: i64,
        records: impl FnOnce() -> Option<BTreeMap<String, Arc<[u8]>>>,
    ) -> bool {
        if let Some(ledger) = &self.ledger {
            if ledger.counts().cluster != cluster && self.ticket.is_none() {
                warn!(
                    old = ledger.counts().cluster,
                    new = cluster,
                    "finished jobs are counted from now on, because slurm.conf now names another cluster"
                );
                (self.ledger, self.work) = (Some(ledger.first_of_another(cluster, now)), None);
            }
            return false;
        }
        let Some(records) = records() else { return false };
        let (ledger, is_missing) = match FinishedLedger::restore(&records) {
            Some((ledger, is_missing)) if ledger.counts().cluster == cluster => (ledger, is_missing),
            other => {
                info!("finished jobs are counted from now on");
                let of_another = other.map(|(ledger, _)| ledger.first_of_another(cluster, now));
                (of_another.unwrap_or_else(|| FinishedLedger::first(cluster, now)), false)
            }
        };
        self.ledger = Some(ledger);
        is_missing
    }

    /// Takes the number of records that slurmctld could not send to slurmdbd. Jobs come late once there are none left.
    pub(crate) const fn note_backlog(&mut self, records: u64, now: i64) {
        self.catch_up |= self.had_backlog && records == 0;
        self.had_backlog = records > 0;
        if self.had_backlog {
            self.busy = now;
        }
    }

    /// Begins a round if one is due at this tick. If `counts` is false, jobs are only marked as seen.
    pub(crate) fn begin(&mut self, timestamp: i64, now: i64, counts: bool, sparing: Sparing) {
        let Some(ledger) = &mut self.ledger else { return };
        if timestamp.rem_euclid(self.plan.every.max(1)) != 0 {
            return;
        }
        if let Some((asked, took)) = self.cost_to_slurmctld {
            let rest = exact_f64(took) / 1e6 / sparing.max_duty;
            if sparing.is_busy {
                return one_more(&mut self.counters.skipped_busy);
            } else if now >= asked && exact_f64(seconds_since(asked, now)) < rest {
                return one_more(&mut self.counters.skipped_duty);
            }
        }
        if self.work.is_some() || self.ticket.is_some() || self.asked {
            one_more(&mut self.counters.skipped_round);
            return;
        }
        ledger.lower_floor(now);
        // Also where the clock was set back.
        let is_time = !(0..HOUR).contains(&now.saturating_sub(self.caught_up));
        self.catch_up |= is_time
            || ledger.has_gap(now, self.plan.window)
            || ledger.has_incomplete_before(now.saturating_sub(self.plan.window));
        let from = if self.catch_up {
            ledger.unread_from(now)
        } else {
            ledger.floor().max(now.saturating_sub(self.plan.window))
        };
        let mut round = FinishedRound::new(now, self.plan.window, self.plan.levels);
        (round.busy, round.is_silent) = (self.busy, !counts || self.rebuilds);
        round.efficiency = self.plan.efficiency;
        let to = now.saturating_add(AHEAD);
        self.work = Some(RoundUnderWay {
            round,
            from,
            to,
            catch_up: self.catch_up,
            has_answer: false,
            measuring: None,
        });
        if self.ask() {
            self.is_behind = false;
            return;
        }
        // There is nothing to read before the floor.
        self.work = None;
        if from > to && !std::mem::replace(&mut self.is_behind, true) {
            warn!(
                floor = from,
                now,
                "the clock is far behind the jobs that were counted; finished jobs are not counted until it is correct again"
            );
        }
    }

    /// Requests the next piece; `false` if there is none.
    fn ask(&mut self) -> bool {
        let Some(work) = self.work.as_ref().filter(|work| work.to >= work.from) else { return false };
        let since = work.from.max(self.piece_from(work));
        self.asked = self.source.ask(self.plan.request(since, work.to));
        self.asked
    }

    fn piece_from(&self, work: &RoundUnderWay) -> i64 {
        // The first piece has what is ahead of our clock too.
        let ahead = if work.has_answer { 0 } else { AHEAD };
        work.to.saturating_sub(self.piece).saturating_sub(ahead)
    }

    /// The outcome of the request under way. Safe to cancel.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        self.source.outcome().await
    }

    /// Takes the outcome of the request. When the round is over, returns what must be on disk before it counts.
    pub(crate) fn answered(&mut self, outcome: Outcome, now: i64) -> Option<Records> {
        self.asked = false;
        // The round was given up meanwhile.
        let work = self.work.as_mut()?;
        let asked_at = work.round.moment;
        let ledger = self.ledger.as_ref()?;
        let took = outcome.as_ref().ok().map(|reading| reading.elapsed);
        let finished = match outcome.map(|reading| of(*reading, &ledger.counts().cluster)) {
            Ok(Told::Jobs(finished)) => finished,
            Ok(Told::Hidden) => {
                self.counters.hidden = true;
                if self.logged != LoggedAccounting::Hidden {
                    warn!(
                        "PrivateData may hide jobs of other users from this one, so no finished job is counted. {HIDDEN_REMEDY}"
                    );
                }
                self.logged = LoggedAccounting::Hidden;
                return self.end(false, now);
            }
            Ok(Told::OfAnother) => {
                debug!("slurm.conf is another cluster's now");
                return self.end(false, now);
            }
            Err(error) => {
                one_more(&mut self.counters.readings_failed);
                self.counters.duration = None;
                if !matches!(self.logged, LoggedAccounting::Failed(_)) {
                    let who = match (self.logged, self.cost_to_slurmctld) {
                        (LoggedAccounting::Good, Some(_)) => "slurmctld",
                        (LoggedAccounting::Good, None) => "slurmdbd",
                        _ => "the source of finished jobs",
                    };
                    warn!(%error, "{who} does not answer; finished jobs are counted when it answers again");
                    self.logged = LoggedAccounting::Failed(Instant::now());
                }
                return self.end(false, now);
            }
        };
        let who = if finished.min_job_age.is_some() { "slurmctld" } else { "slurmdbd" };
        one_more(&mut self.counters.readings_ok);
        (self.counters.duration, self.counters.hidden) = (took, false);
        let took = took.unwrap_or(0);
        let measuring = match work.measuring.take() {
            Some(measuring) => measuring.with(&finished.used, took),
            None => Some(Measuring::of(finished, took, &work.round, ledger)),
        };
        let Some(mut measuring) = measuring else {
            debug!("slurmdbd has not told the steps of all jobs");
            one_more(&mut self.counters.readings_failed);
            return self.end(false, now);
        };
        if let Some(request) = measuring.next(&self.plan, now.saturating_add(AHEAD)) {
            work.measuring = Some(measuring);
            self.asked = self.source.ask(request);
            return if self.asked { None } else { self.end(false, now) };
        }
        let (finished, elapsed) = measuring.done();
        work.round.add(&finished, elapsed, ledger);
        let work = self.work.as_ref()?;
        let since = work.from.max(self.piece_from(work));
        let seconds = work.to.saturating_sub(since);
        self.piece = next_piece(self.piece, seconds, finished.jobs.len());
        if let Some(work) = &mut self.work {
            // slurmctld tells all that it has at once.
            let read_from = if finished.min_job_age.is_some() { work.from } else { since };
            (work.to, work.has_answer) = (read_from.saturating_sub(1), true);
        }
        self.cost_to_slurmctld = finished.min_job_age.map(|_| (asked_at, took));
        match self.logged {
            LoggedAccounting::Failed(since) => {
                let after = humantime::format_duration(Duration::from_secs(since.elapsed().as_secs()));
                info!("{who} answers again after {after}");
            }
            LoggedAccounting::Good => {}
            LoggedAccounting::Nothing | LoggedAccounting::Hidden => info!(elapsed_us = took, "{who} answers"),
        }
        self.logged = LoggedAccounting::Good;
        if self.ask() { None } else { self.end(true, now) }
    }

    /// Ends the round; `is_whole` if everything was read.
    fn end(&mut self, is_whole: bool, now: i64) -> Option<Records> {
        let RoundUnderWay { mut round, catch_up, has_answer, .. } = self.work.take()?;
        self.catch_up |= !is_whole;
        if is_whole && catch_up {
            (self.catch_up, self.caught_up, self.rebuilds) = (false, now, false);
        }
        if !has_answer {
            return None;
        }
        round.is_complete = is_whole;
        let ledger = self.ledger.as_ref()?;
        let span = RememberedSpan { seconds: self.plan.kept_seconds(), ids: self.plan.most_ids };
        let next = ledger.next(round, ledger.slot(now, self.plan.every), span);
        if next.is_short && !std::mem::replace(&mut self.is_short, true) {
            warn!(
                most = self.plan.most_ids,
                "queue.max_bytes has no room for the ids of all jobs of catch_up: jobs that are reported very late are not counted"
            );
        }
        let records = ledger.records(&next);
        let records = records.inspect_err(|error| error!(%error, "finished jobs cannot be counted")).ok()?;
        self.next = Some(next);
        Some(records)
    }

    /// The queue has what [`Accounting::answered`] returned, and will report this ticket when that is on disk.
    pub(crate) const fn wait_for(&mut self, ticket: u64) {
        self.ticket = Some(ticket);
    }

    pub(crate) const fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// It is on disk, so what was read counts. Returns whether its batch may be sent.
    pub(crate) fn kept(&mut self) -> bool {
        self.ticket = None;
        let Some(ledger) = &mut self.ledger else { return false };
        // What an earlier run has counted and may not have sent.
        let Some(next) = self.next.take() else { return true };
        let is_published = !next.is_silent;
        ledger.adopt(next);
        is_published
    }

    /// Another host's daemon may have counted jobs: everything since the floor is first marked as seen.
    pub(crate) fn rebuild(&mut self) {
        // The round under way was begun without this, and would end it.
        (self.work, self.rebuilds, self.catch_up) = (None, true, true);
    }

    /// Another host's daemon publishes from now on: the round under way only marks jobs as seen.
    pub(crate) const fn silence_round(&mut self) {
        if let Some(work) = &mut self.work {
            work.round.is_silent = true;
        }
    }

    pub(crate) const fn ledger(&self) -> Option<&FinishedLedger> {
        self.ledger.as_ref()
    }

    pub(crate) const fn counters(&self) -> (ReplyKind, ReplyCounters) {
        (ReplyKind::Finished, self.counters)
    }

    pub(crate) const fn source(&self) -> &Source {
        &self.source
    }
}

/// What a reading can be used for.
enum Told {
    Jobs(Finished),
    Hidden,
    OfAnother,
}

fn of(reading: Reading, cluster: &str) -> Told {
    let is_hidden = reading.visibility.as_ref().is_none_or(|visibility| visibility.may_hide("jobs"));
    match reading.reply {
        _ if reading.cluster.as_deref() != Some(cluster) => Told::OfAnother,
        Some(Reply::Finished(finished)) if !is_hidden => Told::Jobs(*finished),
        _ => Told::Hidden,
    }
}

/// The seconds of end times to read at once, after the last `seconds` had so many `jobs`.
fn next_piece(piece: i64, seconds: i64, jobs: usize) -> i64 {
    if jobs > MOST_JOBS {
        return (seconds / 2).clamp(LEAST_PIECE, HOUR);
    }
    if jobs < MOST_JOBS / 4 { piece.saturating_mul(2).min(HOUR) } else { piece }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::SlurmSettings;
    use crate::finished::Levels;
    use crate::survey::patient;

    const NOW: i64 = 1_700_000_000;
    const FREELY: Sparing = Sparing { max_duty: 1.0, is_busy: false };

    pub(super) fn plan() -> Plan {
        let levels = Levels::default();
        Plan { every: 1, window: HOUR, catch_up: 24 * HOUR, levels, efficiency: true, most_ids: 1000 }
    }

    fn accounting(records: BTreeMap<String, Arc<[u8]>>, now: i64) -> (Accounting, bool) {
        let slurm = SlurmSettings { reader: Some("/nonexistent".into()), ..Config::default().slurm };
        let mut accounting = Accounting::new(patient(&slurm), plan(), false);
        let is_missing = accounting.open("c", now, || Some(records));
        (accounting, is_missing)
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_at_the_first_start_leaves_no_round_without_an_end() {
        let (mut accounting, _) = accounting(BTreeMap::new(), NOW + 1000);
        accounting.begin(NOW, NOW, true, FREELY);
        assert!(accounting.work.is_none(), "there is nothing to read before the floor");
        accounting.begin(NOW + 1, NOW + 1000, true, FREELY);
        assert!(accounting.asked && accounting.work.is_some());
        assert_eq!(accounting.counters.skipped_round, 0);
    }

    #[tokio::test]
    async fn counts_that_a_disk_has_not_taken_yet_are_not_counted_on_by_a_collector_that_was_off() {
        let first = FinishedLedger::first("c", NOW);
        let round = FinishedRound::new(NOW, HOUR, Levels::default());
        let span = RememberedSpan { seconds: 25 * HOUR, ids: 1000 };
        let records = first.records(&first.next(round, NOW, span)).unwrap();
        let (mut accounting, is_missing) = accounting(records.into_iter().collect(), NOW);
        assert!(is_missing);
        accounting.wait_for(1);
        accounting.begin(NOW + 1, NOW + 1, true, FREELY);
        assert!(!accounting.asked, "what the disk may lose is not counted as seen");
        accounting.kept();
        accounting.begin(NOW + 2, NOW + 2, true, FREELY);
        assert!(accounting.asked);
    }

    #[test]
    fn a_busy_hour_is_read_in_pieces_and_a_quiet_one_at_once() {
        let mut piece = HOUR;
        let rate = 40_000;
        for _ in 0..10 {
            piece = next_piece(piece, piece, usize::try_from(piece * rate / HOUR).unwrap());
        }
        let jobs = piece * rate / HOUR;
        assert!((1000..=4000).contains(&jobs), "{jobs} at once");
        for _ in 0..10 {
            piece = next_piece(piece, piece, 5);
        }
        assert_eq!(piece, HOUR);
        assert_eq!(next_piece(100, 100, 1_000_000), LEAST_PIECE);
    }
}
