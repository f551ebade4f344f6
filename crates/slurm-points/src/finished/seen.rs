//! The ids of jobs that have been counted, by the hour in which they ended; and the record of an
//! hour.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slurm_snapshot::{FinishedJob, RESIZING};

use super::HOUR;

/// The version of an hour's record.
const VERSION: u8 = 2;

/// The number of names for hours: more hours than are ever read again.
const NAMES: i64 = 256;

/// An id with the mark of the row that was counted under it.
pub(super) type SeenId = (u64, Mark);

/// Bytes of an id and its mark in a record.
pub const ID_BYTES: u64 = 14;

/// Bytes of a mark in a record.
const MARK_BYTES: usize = 6;

/// The kind of job that a row was counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CountedAs {
    Job,
    /// A job, or tasks of an array, that had not started.
    NeverStarted,
    Requeued,
    NodeFail,
    Preempted,
    /// A part of a job that changed its size.
    Part,
}

/// The kinds of counted rows, in the order of their numbers in marks.
const COUNTED_AS: [CountedAs; 6] = [
    CountedAs::Job,
    CountedAs::NeverStarted,
    CountedAs::Requeued,
    CountedAs::NodeFail,
    CountedAs::Preempted,
    CountedAs::Part,
];

impl CountedAs {
    pub(super) const fn from_job(job: &FinishedJob) -> Self {
        match job.state {
            RESIZING => Self::Part,
            _ if job.wait.is_none() => Self::NeverStarted,
            1024 => Self::Requeued,
            7 => Self::NodeFail,
            8 => Self::Preempted,
            _ => Self::Job,
        }
    }

    /// Whether another run of the job may follow in the same row. slurmdbd's key is the job and its
    /// submission, for which slurmctld takes the moment of its last resize, also when it is
    /// requeued.
    pub(super) const fn may_run_again(self) -> bool {
        matches!(self, Self::Requeued | Self::NodeFail | Self::Preempted | Self::Part)
    }
}

/// The part of a row that was counted: its end then, Unix seconds, and the kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) end: i64,
    pub(super) kind: CountedAs,
}

impl Counted {
    pub(super) const fn from_job(job: &FinishedJob) -> Self {
        Self { end: job.end, kind: CountedAs::from_job(job) }
    }

    /// Whether a counted row that has another end now is another run of its job, and so counts as
    /// another job. Otherwise only its further time counts.
    pub(super) fn is_run_again(self, job: &FinishedJob) -> bool {
        let starts_again = match self.kind {
            CountedAs::NeverStarted => job.start >= self.end,
            // A job of 0 s whose end moves is none.
            _ => job.start > self.end,
        };
        job.wait.is_some() && starts_again
            || self.kind.may_run_again() && self.kind != CountedAs::from_job(job)
    }

    /// Returns the moment, Unix seconds, from which on the time of a counted row is not counted
    /// yet.
    pub(super) fn uncounted_from(self, job: &FinishedJob) -> i64 {
        match self.kind {
            CountedAs::NeverStarted => job.start,
            _ => job.start.max(self.end),
        }
    }

    /// Returns what is counted of the row after it has been read again.
    pub(super) fn after(self, job: &FinishedJob) -> Self {
        let goes_on = job.end > self.end;
        let now = CountedAs::from_job(job);
        let has_started = self.kind == CountedAs::NeverStarted && now != CountedAs::NeverStarted;
        let takes_kind = goes_on && (self.is_run_again(job) || has_started) || now.may_run_again();
        Self { end: self.end.max(job.end), kind: if takes_kind { now } else { self.kind } }
    }

    /// Returns what a counted row with a later end adds to the counts: a job, or, like a part of a
    /// job, only time. Between two runs it includes the time in the queue, as in sacct, where a row
    /// has one start.
    pub(super) fn rest_of(self, job: &FinishedJob) -> FinishedJob {
        let from = self.uncounted_from(job);
        let run = u64::try_from(job.end.saturating_sub(from)).unwrap_or(0).min(job.run);
        let has_waited = from > job.start;
        let wait = job.wait.map(|wait| if has_waited { 0 } else { wait });
        let state = if self.is_run_again(job) { job.state } else { RESIZING };
        FinishedJob { run, wait, state, ..*job }
    }
}

/// The mark of a counted row: hashes of its job and of what would change its figures, the end until
/// which it was counted, and the kind of job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Mark(u64);

impl Mark {
    /// Makes a mark: 16 bits each of the hashes of the job and of the row, then 12 for the second
    /// of the end in its hour, and 4 for the kind of job.
    pub(super) fn new(job: &FinishedJob, counted: Counted) -> Self {
        // Otherwise the mark of a later hour has it.
        let end = if hour_of(counted.end) == hour_of(job.end) { counted.end } else { job.end };
        let second = u64::try_from(end.rem_euclid(HOUR)).unwrap_or(0);
        let kind = COUNTED_AS.iter().zip(0..).find(|(kind, _)| **kind == counted.kind);
        let kind: u64 = kind.map_or(0, |(_, number)| number);
        Self(hash_row(job) << 16 | second << 4 | kind)
    }

    /// Whether the mark is of this job. A row keeps its submission for ever, so another submission
    /// is another job.
    fn is_of_same_job(self, job: &FinishedJob) -> bool {
        self.0 >> 32 == hash_row(job) >> 16
    }

    fn is_of_same_row(self, job: &FinishedJob) -> bool {
        self.0 >> 16 == hash_row(job)
    }

    /// Returns what was counted of the row, if the mark is in the record of this hour.
    fn counted(self, hour: i64) -> Counted {
        let second = i64::try_from(self.0 >> 4 & 0xfff).unwrap_or(0);
        let kind = usize::try_from(self.0 & 0xf).ok().and_then(|kind| COUNTED_AS.get(kind));
        Counted {
            end: hour.saturating_mul(HOUR).saturating_add(second),
            kind: kind.copied().unwrap_or(CountedAs::Job),
        }
    }
}

/// Returns 16 bits of a hash of the job's submission, then 16 of what would change its figures.
pub(super) fn hash_row(job: &FinishedJob) -> u64 {
    let wait = job.wait.map_or(0, |wait| wait.saturating_add(1));
    let state = u64::from(job.state);
    let end = job.end.cast_unsigned();
    let [cpus, gpus, nodes, billing] = [job.cpus, job.gpus, job.nodes, job.billing];
    let row = hash(&[state, end, wait, job.run, job.tasks, cpus, gpus, nodes, billing]);
    hash(&[job.submit.cast_unsigned()]) << 16 | row
}

/// 16 bits of a hash that is the same in every build.
fn hash(words: &[u64]) -> u64 {
    let mixed = words.iter().fold(0_u64, |hash, word| {
        let mixed = (hash ^ word).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    });
    let [.., high, low] = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
    u64::from(high) << 8 | u64::from(low)
}

/// The ledger's knowledge about a row that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The row was not counted. Its id may have belonged to another job before.
    Never,
    /// The row was counted as it is now.
    Same,
    /// The row was counted as it is now, but under another id: from 24.11 on the start of a job's
    /// next run gives the row of the run before a new id.
    Renamed(Counted),
    /// The row was counted when it was different, and does not end later now.
    Changed(Counted),
    /// The row was counted when its end was earlier.
    GoesOn(Counted),
}

impl Seen {
    pub(super) const fn of_counted(counted: Counted, job: &FinishedJob) -> Self {
        if job.end > counted.end { Self::GoesOn(counted) } else { Self::Changed(counted) }
    }
}

/// Ids of counted jobs, by the hour of their end, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenIds {
    /// The `first` of the counts that the ids belong to, Unix seconds.
    first: i64,
    hours: BTreeMap<i64, Vec<SeenId>>,
}

/// Returns the hour of a moment in Unix seconds, in hours since 1970.
pub(super) const fn hour_of(end: i64) -> i64 {
    end.div_euclid(HOUR)
}

/// Returns the name of an hour's record in the queue's log.
pub(super) fn name(hour: i64) -> String {
    format!("{PREFIX}{:03}", hour.rem_euclid(NAMES))
}

/// The beginning of the name of every hour's record.
pub(super) const PREFIX: &str = "finished.1.hour.";

impl SeenIds {
    pub(super) const fn new(first: i64) -> Self {
        Self { first, hours: BTreeMap::new() }
    }

    pub(super) fn look(&self, job: &FinishedJob) -> Seen {
        let found = |ids: &[SeenId]| {
            let at = ids.binary_search_by_key(&job.id, |(id, _)| *id).ok()?;
            ids.get(at).map(|(_, seen)| *seen).filter(|seen| seen.is_of_same_job(job))
        };
        let hour = hour_of(job.end);
        let own = self.hours.get(&hour).and_then(|ids| found(ids));
        // Two rows may have one hash, but none that goes on is taken for the one before.
        let is_same = |mark: Mark| mark.is_of_same_row(job) && job.end <= mark.counted(hour).end;
        if own.is_some_and(is_same) {
            return Seen::Same;
        }
        // The newest says until when it was counted. Most ids that are found are in the newest
        // hours.
        let newest = self.hours.iter().rev();
        newest
            .filter_map(|(hour, ids)| Some(found(ids)?.counted(*hour)))
            .next()
            .map_or(Seen::Never, |counted| Seen::of_counted(counted, job))
    }

    /// Adds ids to an hour. If an id is known already, its mark is replaced.
    pub(super) fn add(&mut self, hour: i64, ids: &[SeenId]) {
        let known = self.hours.entry(hour).or_default();
        let mut all = ids.to_vec();
        all.append(known);
        all.sort_by_key(|(id, _)| *id);
        all.dedup_by_key(|(id, _)| *id);
        *known = all;
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.hours.values().map(Vec::len).sum()
    }

    pub(super) fn hours(&self) -> BTreeSet<i64> {
        self.hours.keys().copied().collect()
    }

    /// The newest hour with ids that begins before `since`, Unix seconds.
    pub(super) fn hour_before(&self, since: i64) -> Option<i64> {
        self.hours.range(..=hour_of(since.saturating_sub(1))).next_back().map(|(hour, _)| *hour)
    }

    /// Returns the number of ids that each hour has together with `more`.
    pub(super) fn sizes(&self, more: &BTreeMap<i64, Vec<SeenId>>) -> BTreeMap<i64, usize> {
        let mut sizes: BTreeMap<i64, usize> =
            self.hours.iter().map(|(hour, ids)| (*hour, ids.len())).collect();
        for (hour, ids) in more {
            let known = self.hours.get(hour).map_or(&[][..], Vec::as_slice);
            let is_new = |id: &u64| known.binary_search_by_key(id, |(id, _)| *id).is_err();
            let new: BTreeSet<u64> = ids.iter().map(|(id, _)| *id).filter(is_new).collect();
            let size = sizes.entry(*hour).or_default();
            *size = size.saturating_add(new.len());
        }
        sizes
    }

    /// The newest hour that has fewer ids than `sizes` says.
    pub(super) fn newest_damaged(&self, sizes: &BTreeMap<i64, usize>) -> Option<i64> {
        let has_all = |hour: &i64, size: usize| self.hours.get(hour).map_or(0, Vec::len) >= size;
        sizes.iter().rev().find(|(hour, size)| !has_all(hour, **size)).map(|(hour, _)| *hour)
    }

    /// Returns the end, Unix seconds, of the last hour that must be forgotten so that no more than
    /// `most` ids are left; `None` if no hour must be. `sizes` has the number of ids of each hour.
    /// The newest hour always stays.
    pub(super) fn floor_for(sizes: &BTreeMap<i64, usize>, most: usize) -> Option<i64> {
        let mut left: usize = sizes.values().sum();
        let newest = sizes.keys().next_back().copied()?;
        let over = sizes.iter().take_while(|(hour, count)| {
            let goes = left > most && **hour < newest;
            left = left.saturating_sub(**count);
            goes
        });
        over.last().map(|(hour, _)| end_of(*hour))
    }

    /// Forgets the hours that are over at `floor`, Unix seconds; returns them.
    pub(super) fn forget(&mut self, floor: i64) -> Vec<i64> {
        let over: Vec<i64> =
            self.hours.keys().copied().take_while(|hour| end_of(*hour) <= floor).collect();
        over.iter().for_each(|hour| drop(self.hours.remove(hour)));
        over
    }

    /// Makes the record of an hour from its ids and `more` ids.
    pub(super) fn record_with(&self, hour: i64, more: &[SeenId]) -> Vec<u8> {
        let ids = self.hours.get(&hour).cloned().into_iter().map(|ids| (hour, ids));
        let mut all = Self { first: self.first, hours: ids.collect() };
        all.add(hour, more);
        let ids = all.hours.remove(&hour).unwrap_or_default();
        let mut bytes = Vec::with_capacity(ids.len().saturating_mul(14).saturating_add(17));
        bytes.push(VERSION);
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(hour.to_le_bytes());
        for (id, Mark(mark)) in ids {
            bytes.extend(id.to_le_bytes());
            bytes.extend(mark.to_le_bytes().iter().take(MARK_BYTES));
        }
        bytes
    }

    /// Adds the ids of a record. A record that is damaged, of another version or of other counts is
    /// ignored.
    pub(super) fn restore(&mut self, record: &[u8]) {
        let Some((first, hour, ids)) = parse(record) else { return };
        if first != self.first {
            return;
        }
        let (ids, _) = ids.as_chunks::<{ 8 + MARK_BYTES }>();
        let ids = ids.iter().filter_map(|bytes| {
            let (id, mark) = bytes.split_first_chunk()?;
            let [a, b, c, d, e, f] = *mark.first_chunk::<MARK_BYTES>()?;
            let mark = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
            Some((u64::from_le_bytes(*id), Mark(mark)))
        });
        self.add(hour, &ids.collect::<Vec<_>>());
    }
}

/// Returns the hour of a record; `None` if it is no record of an hour.
pub(super) fn hour_of_record(record: &[u8]) -> Option<i64> {
    parse(record).map(|(_, hour, _)| hour)
}

fn parse(record: &[u8]) -> Option<(i64, i64, &[u8])> {
    let (&VERSION, rest) = record.split_first()? else { return None };
    let (first, rest) = rest.split_first_chunk()?;
    let (hour, ids) = rest.split_first_chunk()?;
    Some((i64::from_le_bytes(*first), i64::from_le_bytes(*hour), ids))
}

/// Returns the moment at which an hour is over, Unix seconds.
pub(super) const fn end_of(hour: i64) -> i64 {
    hour.saturating_add(1).saturating_mul(HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> Vec<SeenId> {
        ids.iter().map(|id| (*id, Mark(7))).collect()
    }

    #[test]
    fn a_record_gives_back_what_was_put_in_also_ids_of_64_bits() {
        let mut seen = SeenIds::default();
        seen.add(5, &ids(&[u64::MAX, 3, 1 << 63, 3]));
        seen.add(6, &[(9, Mark((1 << 48) - 1))]);
        let mut again = SeenIds::default();
        for hour in [5, 6] {
            again.restore(&seen.record_with(hour, &[]));
        }
        assert_eq!(again, seen);
        assert_eq!(again.len(), 4);
        let bytes = |hour| u64::try_from(seen.record_with(hour, &[]).len()).unwrap() - 17;
        assert_eq!((bytes(5), bytes(6)), (3 * ID_BYTES, ID_BYTES));
        assert_eq!(hour_of_record(&seen.record_with(6, &[])), Some(6));
    }

    #[test]
    fn a_row_is_known_as_it_was_counted_and_another_submission_is_another_job() {
        let job = FinishedJob {
            id: 3,
            submit: 100,
            end: 5 * HOUR,
            state: 3,
            tasks: 1,
            wait: Some(1),
            run: 9,
            ..FinishedJob::default()
        };
        let mut seen = SeenIds::default();
        assert_eq!(seen.look(&job), Seen::Never);
        let as_it_is = |job: &FinishedJob| Mark::new(job, Counted::from_job(job));
        seen.add(5, &[(3, as_it_is(&job))]);
        assert_eq!(seen.look(&job), Seen::Same);
        for changed in [
            FinishedJob { state: 1024, ..job },
            FinishedJob { end: job.end + 1, ..job },
            FinishedJob { end: job.end + HOUR, ..job },
            FinishedJob { end: job.end - HOUR, ..job },
            FinishedJob { wait: None, ..job },
            FinishedJob { wait: Some(0), ..job },
            FinishedJob { run: 8, ..job },
            FinishedJob { tasks: 2, ..job },
            // slurmctld may report the resources of a row that had ended again, after a restart.
            FinishedJob { nodes: 1, ..job },
            FinishedJob { billing: 1, ..job },
        ] {
            let counted = Counted { end: job.end, kind: CountedAs::Job };
            assert_eq!(seen.look(&changed), Seen::of_counted(counted, &changed), "{changed:?}");
            let after = counted.after(&changed);
            let mut seen = seen.clone();
            seen.add(hour_of(changed.end), &[(3, Mark::new(&changed, after))]);
            assert_eq!(seen.look(&changed), Seen::Same, "it is said once");
            let later = FinishedJob { end: job.end + 2 * HOUR, ..changed };
            assert_eq!(seen.look(&later), Seen::GoesOn(after), "what was counted stays counted");
        }
        for other in [FinishedJob { submit: 101, ..job }, FinishedJob { id: 4, ..job }] {
            assert_eq!(seen.look(&other), Seen::Never, "{other:?}");
        }
    }

    /// A hash of which half the bits never change would take many jobs for one.
    #[test]
    fn submissions_and_rows_have_marks_of_their_own() {
        let marks = |of: fn(i64) -> FinishedJob| -> usize {
            (0..2000).map(|number| hash_row(&of(number))).collect::<BTreeSet<_>>().len()
        };
        let submitted =
            |submit| FinishedJob { submit: 1_700_000_000 + submit, ..FinishedJob::default() };
        let ended = |end| FinishedJob { end: 1_700_000_000 + end, ..FinishedJob::default() };
        // Of 2,000 in 65,536 about 30 have the mark of another one.
        assert!([marks(submitted), marks(ended)].iter().all(|marks| *marks > 1940));
    }

    #[test]
    fn too_many_ids_cost_the_oldest_hours_and_never_the_newest() {
        let mut seen = SeenIds::default();
        (5..8).for_each(|hour| seen.add(hour, &ids(&[10 * u64::try_from(hour).unwrap(), 1, 2])));
        let sizes = seen.sizes(&BTreeMap::from([(7, ids(&[99, 99, 1]))]));
        assert_eq!(sizes, [(5, 3), (6, 3), (7, 4)].into());
        let floor_for = |most| SeenIds::floor_for(&sizes, most);
        assert_eq!(floor_for(10), None);
        assert_eq!(floor_for(9), Some(6 * HOUR));
        assert_eq!(floor_for(7), Some(6 * HOUR));
        assert_eq!(floor_for(6), Some(7 * HOUR));
        assert_eq!(floor_for(0), Some(7 * HOUR));
        assert_eq!(SeenIds::floor_for(&BTreeMap::new(), 0), None);
    }

    #[test]
    fn what_is_no_record_is_nothing() {
        let mut seen = SeenIds::default();
        for record in [&b""[..], &[VERSION; 17], &[VERSION + 1, 0, 0], &[VERSION]] {
            seen.restore(record);
        }
        assert_eq!(seen, SeenIds::default());
    }

    #[test]
    fn an_hour_is_forgotten_when_it_is_over() {
        let mut seen = SeenIds::default();
        seen.add(5, &ids(&[1]));
        seen.add(6, &ids(&[2]));
        assert_eq!(seen.forget(6 * HOUR - 1), [0; 0]);
        assert_eq!(seen.forget(6 * HOUR), [5]);
        assert_eq!(seen.hours(), [6].into());
        assert_eq!(hour_of(6 * HOUR - 1), 5);
        assert_eq!(hour_of(-1), -1);
    }

    #[test]
    fn hours_that_are_read_again_never_share_a_name() {
        let names: BTreeSet<String> = (1000..1000 + NAMES).map(name).collect();
        assert_eq!(names.len(), 256);
        assert_eq!(name(1000), name(1000 + NAMES));
        assert!(names.iter().all(|name| name.as_str() < super::super::ledger::COUNTS));
    }
}
