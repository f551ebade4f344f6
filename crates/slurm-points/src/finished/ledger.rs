//! The ledger of finished jobs: what has been counted, and the next commit.
//!
//! The counts, and the ids of each hour, are records in the queue's log. They are on disk together
//! with the batch of their round, or not at all: docs/development/decisions.md explains why every
//! job is counted once.

mod commit;
mod opening;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slurm_snapshot::{FinishedJob, Used};

pub use self::opening::Found;
use super::HOUR;
use super::seen::{self, Counted, Seen, SeenId, SeenIds};
use super::tally::{self, Figures, Tally};

/// The name of the record that has the counts in the queue's log.
pub(super) const COUNTS: &str = "finished.2.counts";

/// The version of the format of the counts.
const VERSION: u32 = 2;

/// Hours before now from which ends of jobs are read at most. The records of hours have 256 names.
const MOST_HOURS: i64 = 240;

/// Seconds by which the floor or a slot may be ahead of the clock. If it is more, that clock or an
/// earlier one was wrong.
const FAR_AHEAD: i64 = HOUR;

/// Number of ended runs that are remembered: more resized jobs than are requeued in a day.
const MOST_ENDED_RUNS: usize = 1000;

/// Time after which a name that is not used may lose its level to another name, s: from the newest
/// end of a job of it that had started to the newest end of all jobs.
const UNUSED: i64 = 30 * 24 * HOUR;

/// The counts of finished jobs, as a commit stores them. The ids of the jobs have records of their
/// own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    version: u32,
    /// Name of the cluster whose jobs are counted.
    pub cluster: String,
    /// Moment at which counting began, Unix seconds. Records of hours with another `first` are
    /// ignored: in 22.05 the jobs of every cluster have the same ids.
    first: i64,
    /// Oldest end of a job that is counted, Unix seconds.
    floor: i64,
    /// The floor before it was lowered to a clock that was set back, Unix seconds; `None` if it was
    /// not, or has risen again.
    lowered_from: Option<i64>,
    /// The newest end of a row that was counted, Unix seconds; `None` if none was.
    latest: Option<i64>,
    /// The newest hour with counted jobs that ended before the floor, in hours since 1970. Its ids
    /// are forgotten, but slurmdbd may still have its rows.
    forgotten: Option<i64>,
    /// Whether the totals include the CPU time of steps.
    pub(crate) efficiency: bool,
    /// Moment at which the last round began, Unix seconds; `None` before the first.
    moment: Option<i64>,
    /// The timestamp of the last round that was published, Unix seconds; 0 before the first.
    pub slot: i64,
    /// Totals since the first start, by level.
    pub totals: BTreeMap<String, Tally>,
    /// The figures that the last round has added, by level.
    pub round: BTreeMap<String, Figures>,
    /// Figures about how the last round was read.
    pub reading: RoundReading,
    pub(crate) late_total: u64,
    pub(crate) changed_total: u64,
    pub(crate) steps_unknown_total: u64,
    /// The newest end of a job that had started, Unix seconds, for each level that belongs to a
    /// name.
    used: BTreeMap<String, i64>,
    /// Runs after which the next run of the same job may have the same row, the newest last.
    ended_runs: Vec<EndedRun>,
    /// Number of ids that each hour has with this commit. An hour that has fewer when the daemon
    /// starts is damaged.
    sizes: BTreeMap<i64, usize>,
}

impl Counts {
    /// Whether a level exists and stays. The level of a name that has not been used for [`UNUSED`]
    /// goes when another name needs it.
    pub(super) fn has_level(&self, level: &str) -> bool {
        let latest = self.latest.unwrap_or(i64::MIN);
        self.totals.contains_key(level)
            && self.used.get(level).is_none_or(|used| latest.saturating_sub(*used) <= UNUSED)
    }
}

/// Figures about the reading of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundReading {
    /// Time that slurmdbd took for all requests of the round, µs.
    pub elapsed: u64,
    /// Number of rows of jobs that ended in the last `window`, counted in this round or before;
    /// `None` if only a part of that time was read.
    pub window_jobs: Option<u64>,
    /// Jobs counted in this round that ended more than 60 s before the round before it.
    pub(crate) late_jobs: u64,
    /// Seconds since the first of the late jobs ended; 0 if there is none.
    pub(crate) oldest_late: u64,
    /// Texts in slurmdbd's answers that could not be parsed.
    pub(crate) unparsed: u64,
    /// Rows that have changed since they were counted.
    pub(crate) changed: u64,
    /// Jobs counted in this round without the CPU time of their steps, because slurmdbd did not
    /// return the steps.
    pub steps_unknown: u64,
    /// Whether slurmdbd's empty answer about an older part of the time is unproved: its jobs are
    /// still to be counted.
    pub unproved: bool,
}

/// A counted run of a job that was resized. If the job is requeued, its next run has the same row
/// in slurmdbd, which may have another id from 24.11 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndedRun {
    job: u32,
    submit: i64,
    pub(super) counted: Counted,
    /// The use that was counted of the run's row, in the order of [`tally::use_of`].
    pub(super) counted_use: [u64; 5],
}

impl EndedRun {
    /// Whether a row may be such a run. slurmdbd's key has the moment of a job's last resize as its
    /// submission, so the row of a resized job started then or before.
    pub(super) fn may_be(job: &FinishedJob, counted: Counted) -> bool {
        counted.kind.may_run_again() && job.wait.is_some() && job.start <= job.submit
    }

    pub(super) fn from_job(job: &FinishedJob, counted: Counted) -> Self {
        let counted_use = tally::use_of(job);
        Self { job: job.job, submit: job.submit, counted, counted_use }
    }

    fn is_of(&self, job: &FinishedJob) -> bool {
        (self.job, self.submit) == (job.job, job.submit)
    }

    /// Returns the runs that ended at `floor` or later, but only the last [`MOST_ENDED_RUNS`].
    fn newest(mut runs: Vec<Self>, floor: i64) -> Vec<Self> {
        runs.retain(|run| run.counted.end >= floor);
        runs.split_off(runs.len().saturating_sub(MOST_ENDED_RUNS))
    }
}

/// Time for which a row that may still grow must look the same before it counts, s.
const SAME: i64 = 180;

/// Time after the first reading of a row that may still grow, after which it counts in any case, s.
const AT_THE_LATEST: i64 = 600;

/// A row that slurmdbd may not have completely yet, so that it waits to be counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete {
    /// Moment at which the row was first read, Unix seconds.
    first: i64,
    /// Moment at which the row was first read as it looks now, Unix seconds.
    since: i64,
    end: i64,
    /// The parts of the row that may still change: a hash with whether its names are known, and the
    /// use of its steps, `None` if slurmdbd has not returned them.
    look: (u64, Option<Used>),
}

impl Incomplete {
    /// Compares a row that is read at `now`, Unix seconds, with how it was `known`. Without its
    /// steps, a row never looks the same as before.
    pub(super) fn look(
        job: &FinishedJob,
        has_names: bool,
        steps: Option<Used>,
        known: Option<Self>,
        now: i64,
    ) -> Self {
        let look = (seen::hash_row(job) << 1 | u64::from(has_names), steps);
        // A clock that was ahead for a moment must not hold the job back for as long.
        let known = known.map(|known| Self { first: known.first.min(now), ..known });
        let first = known.map_or(now, |known| known.first);
        let same = known.filter(|known| known.look == look && steps.is_some());
        Self { first, since: same.map_or(now, |known| known.since.min(now)), end: job.end, look }
    }

    pub(super) const fn is_over(self, now: i64) -> bool {
        now.saturating_sub(self.since) >= SAME || now.saturating_sub(self.first) >= AT_THE_LATEST
    }
}

/// The counts that are on disk, and the ids of the counted jobs that ended since the floor.
#[derive(Debug, Default)]
pub struct FinishedLedger {
    counts: Counts,
    seen: SeenIds,
    /// Hours that have a record in the queue's log.
    written: BTreeSet<i64>,
    /// Rows that wait to be counted because they may still grow, by id.
    incomplete: BTreeMap<u64, Incomplete>,
    /// The last slot that a batch without counts has used, Unix seconds.
    uncounted: i64,
}

/// A commit of the ledger that is not on disk yet.
#[derive(Debug)]
pub struct Next {
    counts: Counts,
    incomplete: BTreeMap<u64, Incomplete>,
    /// The ids that the commit adds, by the hour in which the jobs ended.
    ids: BTreeMap<i64, Vec<SeenId>>,
    /// Hours whose records become empty, because they ended before the floor.
    emptied: Vec<i64>,
    /// Whether the floor has risen because there were too many ids.
    pub is_short: bool,
    /// Whether another host's daemon publishes the figures of this round.
    pub is_silent: bool,
}

impl Next {
    /// Returns the counts that the batch of the round is made of.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// The bounds of the ids that are remembered.
#[derive(Clone, Copy, Debug)]
pub struct RememberedSpan {
    /// Length of the time before the newest end whose ids are remembered, seconds.
    pub seconds: i64,
    /// Number of ids that are remembered at most.
    pub ids: usize,
}

impl FinishedLedger {
    /// The first ledger of a cluster: jobs that ended before `now` are not counted.
    pub fn first(cluster: &str, now: i64) -> Self {
        let cluster = cluster.to_owned();
        let counts =
            Counts { version: VERSION, cluster, first: now, floor: now, ..Counts::default() };
        Self { counts, seen: SeenIds::new(now), ..Self::default() }
    }

    /// Makes the first ledger of another cluster, in place of this one. Both clusters may have the
    /// same paths, so no slot is used again.
    pub fn first_of_another(&self, cluster: &str, now: i64) -> Self {
        let first = now.max(self.counts.first.saturating_add(1));
        let mut ledger = Self::first(cluster, now);
        (ledger.counts.first, ledger.counts.slot, ledger.seen) =
            (first, self.counts.slot, SeenIds::new(first));
        // What is on the disk under their names goes when the new ledger has no use for it.
        ledger.written.clone_from(&self.written);
        ledger
    }

    /// Returns the totals, and the figures of the last round.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Oldest end of a job that is counted, Unix seconds.
    pub const fn floor(&self) -> i64 {
        self.counts.floor
    }

    /// Returns the oldest end that is read at `now`, Unix seconds: the floor, but at most 240 hours
    /// ago.
    pub fn unread_from(&self, now: i64) -> i64 {
        self.counts.floor.max(now.saturating_sub(MOST_HOURS.saturating_mul(HOUR)))
    }

    pub(super) fn look(&self, job: &FinishedJob) -> Seen {
        match (self.seen.look(job), self.ended_run(job)) {
            (Seen::Never, Some(run)) if job.end == run.counted.end => Seen::Renamed(run.counted),
            (Seen::Never, Some(run)) => Seen::of_counted(run.counted, job),
            (seen, _) => seen,
        }
    }

    pub(super) fn ended_run(&self, job: &FinishedJob) -> Option<EndedRun> {
        self.counts.ended_runs.iter().rfind(|run| run.is_of(job)).copied()
    }

    /// The end of the newest job that was counted, Unix seconds: slurmdbd should still have its
    /// row.
    pub const fn latest(&self) -> Option<i64> {
        self.counts.latest
    }

    /// Returns the beginning of the newest hour with counted jobs that begins before `since`. Both
    /// are Unix seconds.
    pub fn counted_before(&self, since: i64) -> Option<i64> {
        let hour = self.seen.hour_before(since).or(self.counts.forgotten)?;
        Some(hour.saturating_mul(HOUR)).filter(|begin| *begin < since)
    }

    pub(super) const fn last_moment(&self) -> Option<i64> {
        self.counts.moment
    }

    pub(super) fn incomplete(&self, id: u64) -> Option<Incomplete> {
        self.incomplete.get(&id).copied()
    }

    /// Returns the oldest end of a row that waits to be counted because it may still grow, Unix
    /// seconds.
    pub fn oldest_incomplete(&self) -> Option<i64> {
        self.incomplete.values().map(|incomplete| incomplete.end).min()
    }

    /// Whether the floor is more than an hour after `now`, Unix seconds, because the clock was far
    /// ahead, or is far behind. Nothing is read then.
    pub const fn is_ahead(&self, now: i64) -> bool {
        self.counts.floor > now.saturating_add(FAR_AHEAD)
    }

    /// Raises the floor to where it was before it was lowered, when the clock has reached that
    /// moment.
    pub fn raise_floor(&mut self, now: i64) {
        let counts = &mut self.counts;
        if let Some(from) = counts.lowered_from.filter(|from| now >= *from) {
            counts.floor = counts.floor.max(from);
            counts.lowered_from = None;
        }
    }

    /// Whether anything was ever counted. If not, no clock makes a job count twice.
    pub const fn has_counted(&self) -> bool {
        self.counts.latest.is_some()
    }

    /// Lowers the floor, and the other moments that come from a clock that was ahead, to `now`,
    /// Unix seconds. Ids of jobs that ended before the old floor are forgotten. So if `now` is
    /// wrong and too early, [`FinishedLedger::raise_floor`] raises the floor again later.
    pub fn lower_floor(&mut self, now: i64) {
        let counts = &mut self.counts;
        if counts.latest.is_some() {
            counts.lowered_from = counts.lowered_from.max(Some(counts.floor));
        }
        counts.floor = now;
        counts.latest = counts.latest.map(|latest| latest.min(now));
        counts.moment = counts.moment.map(|moment| moment.min(now));
    }

    /// Returns the slot of a round that ends at `now`, Unix seconds, with a round every `every`
    /// seconds: the current one, or the next one that was not used. Used slots more than an hour
    /// ahead come from a wrong clock and are ignored.
    pub fn slot(&self, now: i64, every: i64) -> i64 {
        let every = every.max(1);
        let open = now.div_euclid(every).saturating_mul(every);
        let used = self.counts.slot.max(self.uncounted);
        let next = used.div_euclid(every).saturating_add(1).saturating_mul(every);
        if used <= 0 || next > now.saturating_add(FAR_AHEAD) { open } else { open.max(next) }
    }

    /// Returns the slot of a round without counts, which counts as used from now on; `None` while
    /// the next free slot is ahead of the clock.
    pub fn use_slot(&mut self, now: i64, every: i64) -> Option<i64> {
        let slot = self.slot(now, every);
        let is_open = slot <= now;
        self.uncounted = if is_open { slot } else { self.uncounted };
        is_open.then_some(slot)
    }

    /// Whether a round is due at a tick that is a multiple of `every`, seconds. After the clock was
    /// set back, the next free slot is ahead of it. Until the clock has caught up, a round is due
    /// only at every second multiple.
    pub fn is_due(&self, timestamp: i64, every: i64) -> bool {
        let is_ahead = self.slot(timestamp, every) > timestamp;
        !is_ahead || timestamp.rem_euclid(every.max(1).saturating_mul(2)) == 0
    }

    /// Makes the records of a commit for the queue's log, each with its name.
    ///
    /// # Errors
    /// If the counts cannot be written as JSON.
    pub fn records(&self, next: &Next) -> serde_json::Result<Vec<(String, Arc<[u8]>)>> {
        let hours = next.ids.iter().map(|(hour, ids)| {
            let record = self.seen.record_with(*hour, ids);
            (seen::name(*hour), Arc::from(record))
        });
        let emptied = next.emptied.iter().map(|hour| (seen::name(*hour), Arc::from([])));
        Ok(emptied.chain(hours).chain([record(&next.counts)?]).collect())
    }

    /// Makes the record of the present counts for the queue's log, with its name.
    ///
    /// # Errors
    /// If the counts cannot be written as JSON.
    pub fn record(&self) -> serde_json::Result<(String, Arc<[u8]>)> {
        record(&self.counts)
    }

    /// Takes over a commit that is on disk now.
    pub fn adopt(&mut self, next: Next) {
        let Next { counts, incomplete, ids, emptied, .. } = next;
        self.incomplete = incomplete;
        for (hour, ids) in &ids {
            self.seen.add(*hour, ids);
        }
        self.written.extend(ids.into_keys());
        self.written.retain(|hour| !emptied.contains(hour));
        self.seen.forget(counts.floor);
        self.counts = counts;
    }

    /// Number of ids that are remembered.
    #[cfg(test)]
    pub(crate) fn ids(&self) -> usize {
        self.seen.len()
    }
}

fn record(counts: &Counts) -> serde_json::Result<(String, Arc<[u8]>)> {
    Ok((COUNTS.to_owned(), Arc::from(serde_json::to_vec(counts)?)))
}
