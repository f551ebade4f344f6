//! What has been counted, and the next commit.
//!
//! Counts and hours are states in the queue, which are on the disk together with the batch of their
//! round, or not at all: docs/development/decisions.md explains why every job is counted once.

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

/// The name of the counts.
pub(super) const COUNTS: &str = "finished.2.counts";

/// The version of the counts.
const VERSION: u32 = 2;

/// Nothing further back is read: there are names for 256 hours.
const MOST_HOURS: i64 = 240;

/// A slot further ahead than this comes from a clock that was wrong.
const FAR_AHEAD: i64 = HOUR;

/// More resized jobs than are requeued in a day.
const MOST_ENDED_RUNS: usize = 1000;

/// A level of its own is free for another name when none of its jobs has started for this long, s.
const UNUSED: i64 = 30 * 24 * HOUR;

/// The content of a commit, without ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    version: u32,
    /// Whose jobs they are.
    pub cluster: String,
    /// When counting began, Unix seconds. Records of hours with another `first` are ignored: in
    /// 22.05 the jobs of every cluster have the same ids.
    first: i64,
    /// Nothing that ended before is counted, Unix seconds.
    floor: i64,
    /// Where the floor was before it was lowered to a clock that was set back.
    lowered_from: Option<i64>,
    /// The newest end that was counted.
    latest: Option<i64>,
    /// The newest hour before the floor of which a job was counted: slurmdbd may still have its
    /// rows.
    forgotten: Option<i64>,
    /// Whether they include the CPU time of steps.
    pub(crate) efficiency: bool,
    /// When the round began; `None` before the first.
    moment: Option<i64>,
    /// The timestamp of its batch; 0 before the first.
    pub slot: i64,
    /// Since the first start, by level.
    pub totals: BTreeMap<String, Tally>,
    /// What the round has added, by level.
    pub round: BTreeMap<String, Figures>,
    /// How the round was read.
    pub reading: RoundReading,
    pub(crate) late_total: u64,
    pub(crate) changed_total: u64,
    pub(crate) steps_unknown_total: u64,
    /// The newest end of a job that had started, of each level that belongs to a name.
    used: BTreeMap<String, i64>,
    /// Runs after which another one may have the same row, the newest last.
    ended_runs: Vec<EndedRun>,
    /// How many ids each hour has with this commit. One that has fewer at the start is damaged.
    sizes: BTreeMap<i64, usize>,
}

impl Counts {
    /// Whether the level is there and stays. If none of its jobs has started for a long time, it
    /// goes when another name needs a level.
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
    /// Of all its requests, µs.
    pub elapsed: u64,
    /// Rows of jobs that ended in the last `window`, counted now or before; `None` if only a part
    /// of that was read.
    pub window_jobs: Option<u64>,
    /// Jobs counted now that ended before the last round, and seconds since the first of them
    /// ended.
    pub(crate) late_jobs: u64,
    pub(crate) oldest_late: u64,
    pub(crate) unparsed: u64,
    /// Rows that have changed since they were counted.
    pub(crate) changed: u64,
    /// Jobs counted now without what their steps have used, because slurmdbd did not return them.
    pub steps_unknown: u64,
    /// Whether an older piece is not proved: it is still to be counted.
    pub unproved: bool,
}

/// A run of a job that was resized: if it is requeued, its next run has the same row, which may
/// have another id from 24.11 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndedRun {
    job: u32,
    submit: i64,
    pub(super) counted: Counted,
    /// What was counted of its row, as [`tally::use_of`] has it.
    pub(super) counted_use: [u64; 5],
}

impl EndedRun {
    /// Whether a row may be such a run: that of a resized job was submitted, by slurmdbd's key, when
    /// it was resized, and started then or before.
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

    /// The newest of these.
    fn newest(mut runs: Vec<Self>, floor: i64) -> Vec<Self> {
        runs.retain(|run| run.counted.end >= floor);
        runs.split_off(runs.len().saturating_sub(MOST_ENDED_RUNS))
    }
}

/// A row that may still grow counts when it has looked the same for this long, s.
const SAME: i64 = 180;

/// It counts this long after it was first read, whatever it looks like, s.
const AT_THE_LATEST: i64 = 600;

/// A row that is not complete yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete {
    /// When it was first read, Unix seconds.
    first: i64,
    /// When it was first read as it is, Unix seconds.
    since: i64,
    end: i64,
    /// What may still change.
    look: (u64, Option<Used>),
}

impl Incomplete {
    /// A row as it is read at `now`, Unix seconds, after it was `known`. Without its steps, of which
    /// nothing is known then, it has not been seen as it is.
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

/// The counts on disk, and the ids of all counted jobs.
#[derive(Debug, Default)]
pub struct FinishedLedger {
    counts: Counts,
    seen: SeenIds,
    /// Hours that have a record.
    written: BTreeSet<i64>,
    /// Rows that are not complete yet.
    incomplete: BTreeMap<u64, Incomplete>,
    /// The last slot that was used without counts.
    uncounted: i64,
}

/// A commit that is not on disk yet.
#[derive(Debug)]
pub struct Next {
    counts: Counts,
    incomplete: BTreeMap<u64, Incomplete>,
    /// The ids that it adds, by hour.
    ids: BTreeMap<i64, Vec<SeenId>>,
    emptied: Vec<i64>,
    /// Whether the floor has moved because there are too many ids.
    pub is_short: bool,
    /// Another host's daemon publishes it.
    pub is_silent: bool,
}

impl Next {
    /// What the batch is made of.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// How many ids are remembered.
#[derive(Clone, Copy, Debug)]
pub struct RememberedSpan {
    /// Seconds of end times.
    pub seconds: i64,
    /// The most ids.
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

    /// The first ledger of another cluster. Its paths may be the same, so no slot is used again.
    pub fn first_of_another(&self, cluster: &str, now: i64) -> Self {
        let first = now.max(self.counts.first.saturating_add(1));
        let mut ledger = Self::first(cluster, now);
        (ledger.counts.first, ledger.counts.slot, ledger.seen) =
            (first, self.counts.slot, SeenIds::new(first));
        // What is on the disk under their names goes when the new ledger has no use for it.
        ledger.written.clone_from(&self.written);
        ledger
    }

    /// The totals and the last round.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Jobs that ended before this are not counted, Unix seconds.
    pub const fn floor(&self) -> i64 {
        self.counts.floor
    }

    /// From when everything must be read at `now`, Unix seconds.
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

    /// The beginning of the newest hour before `since` of which a job was counted, Unix seconds.
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

    /// The oldest end of a row that is not complete, Unix seconds.
    pub fn oldest_incomplete(&self) -> Option<i64> {
        self.incomplete.values().map(|incomplete| incomplete.end).min()
    }

    /// Whether nothing is read at `now`, Unix seconds, because the clock was far ahead, or is far
    /// behind.
    pub const fn is_ahead(&self, now: i64) -> bool {
        self.counts.floor > now.saturating_add(FAR_AHEAD)
    }

    /// Raises a floor again that was lowered to a clock that was behind, or that has caught up since.
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

    /// Lowers what comes from a clock that was ahead. Ids of what ended before the floor are
    /// forgotten, so if it is this clock that is behind, the floor rises again when it is right.
    pub fn lower_floor(&mut self, now: i64) {
        let counts = &mut self.counts;
        counts.lowered_from = counts.lowered_from.max(Some(counts.floor));
        counts.floor = now;
        counts.latest = counts.latest.map(|latest| latest.min(now));
        counts.moment = counts.moment.map(|moment| moment.min(now));
    }

    /// The slot of a round that ends at `now`, if there is a round every `every` seconds: the open
    /// one, but never one that was used.
    pub fn slot(&self, now: i64, every: i64) -> i64 {
        let every = every.max(1);
        let open = now.div_euclid(every).saturating_mul(every);
        let used = self.counts.slot.max(self.uncounted);
        let next = used.div_euclid(every).saturating_add(1).saturating_mul(every);
        if used <= 0 || next > now.saturating_add(FAR_AHEAD) { open } else { open.max(next) }
    }

    /// The slot of a round without counts, which is used with that; `None` while slots are ahead of
    /// the clock.
    pub fn use_slot(&mut self, now: i64, every: i64) -> Option<i64> {
        let slot = self.slot(now, every);
        let is_open = slot <= now;
        self.uncounted = if is_open { slot } else { self.uncounted };
        is_open.then_some(slot)
    }

    /// Whether a round is due at a tick that is a multiple of `every`. While slots are ahead of the
    /// clock, which was set back, only every second one is, until the clock has caught up.
    pub fn is_due(&self, timestamp: i64, every: i64) -> bool {
        let is_ahead = self.slot(timestamp, every) > timestamp;
        !is_ahead || timestamp.rem_euclid(every.max(1).saturating_mul(2)) == 0
    }

    /// The records of a commit, by name.
    ///
    /// # Errors
    /// They cannot be written as JSON.
    pub fn records(&self, next: &Next) -> serde_json::Result<Vec<(String, Arc<[u8]>)>> {
        let hours = next.ids.iter().map(|(hour, ids)| {
            let record = self.seen.record_with(*hour, ids);
            (seen::name(*hour), Arc::from(record))
        });
        let emptied = next.emptied.iter().map(|hour| (seen::name(*hour), Arc::from([])));
        Ok(emptied.chain(hours).chain([record(&next.counts)?]).collect())
    }

    /// The record of the counts as they are.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn record(&self) -> serde_json::Result<(String, Arc<[u8]>)> {
        record(&self.counts)
    }

    /// The commit is on disk.
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

    /// How many ids are remembered.
    #[cfg(test)]
    pub(crate) fn ids(&self) -> usize {
        self.seen.len()
    }
}

fn record(counts: &Counts) -> serde_json::Result<(String, Arc<[u8]>)> {
    Ok((COUNTS.to_owned(), Arc::from(serde_json::to_vec(counts)?)))
}
