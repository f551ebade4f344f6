//! Reads the log at the start: its contents, what is lost, and to which destinations that belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::folder::MOST_NUMBER;
use super::log::{Log, LoggedBatch, Segment};
use super::record::{self, Content, Done, FrameHead, Head, Record, Totals};
use super::{Restored, StoreError, Summary, disk, folder};
use crate::clock::Moment;

/// The numbers of missing records, and the points that each destination has lost with them.
type Gap = (Range<u64>, Totals);

/// The state of reading the log once.
#[derive(Debug, Default)]
struct Scan {
    log: Log,
    /// The boot id of the segment that is being read.
    boot: Option<[u8; 16]>,
    /// Each batch, with the number of points in its damaged frames.
    summaries: BTreeMap<u64, (Summary, u64)>,
    gaps: Vec<Gap>,
    /// By segment: the numbers between its last record and the next segment, and its totals.
    ends: BTreeMap<u64, Gap>,
    /// The number of the batch's record, destination, id, points.
    done: BTreeSet<(u64, Arc<str>, u64, u64)>,
    /// The destinations that may have been written to after the last record, and the number of the
    /// record that says so.
    writing: (u64, Vec<Arc<str>>),
}

/// Adds points of a destination.
fn add(points: &mut Totals, to: &Arc<str>, more: u64) {
    let sum = points.entry(Arc::clone(to)).or_default();
    *sum = sum.saturating_add(more);
}

/// Each frame's head with its bytes, which may be fewer.
fn frames(heads: Vec<FrameHead>, mut body: &[u8]) -> impl Iterator<Item = (FrameHead, &[u8])> {
    heads.into_iter().map(move |head| {
        let length = usize::try_from(head.bytes).unwrap_or(usize::MAX).min(body.len());
        let (its, rest) = body.split_at_checked(length).unwrap_or_default();
        body = rest;
        (head, its)
    })
}

/// Whether a kill cut off this record if it is the last one: its commit has not returned.
fn is_torn(content: &Content, body: &[u8]) -> bool {
    match content {
        Content::Batch { id, frames: heads, .. } => {
            frames(heads.clone(), body).any(|(head, its)| !head.fits(*id, its))
        }
        Content::State { sum, .. } => crc32fast::hash(body) != *sum,
        _ => false,
    }
}

/// Whether these are a `begin`, and perhaps a last record that is torn. One that is torn before
/// others may have undamaged frames.
fn has_no_records(bytes: &[u8]) -> bool {
    let mut records = record::records(bytes).peekable();
    while let Some(record) = records.next() {
        let Ok(Record { head: Head { content, .. }, body, .. }) = record else { return false };
        let is_torn_end = records.peek().is_none() && is_torn(&content, body);
        if !matches!(content, Content::Begin { .. }) && !is_torn_end {
            return false;
        }
    }
    true
}

/// Removes a segment without records. Returns what it had.
fn remove_without_records(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok().filter(|bytes| has_no_records(bytes))?;
    disk::remove(path).is_ok().then_some(bytes)
}

impl Log {
    /// Reads the log in `dir`. With `anyway`, pages that the disk refuses to read count as damaged.
    pub(super) fn open(
        dir: &Path,
        max_bytes: u64,
        anyway: bool,
    ) -> Result<(Self, Restored), StoreError> {
        let io = |path: &Path, source| StoreError::Io { path: path.to_owned(), source };
        let mut numbers = folder::segments(dir).map_err(|source| io(dir, source))?;
        // Once a next segment exists, they would look like gaps, and so would a torn end of the one
        // before.
        let mut without_records = Vec::new();
        while let Some(&last) = numbers.last()
            && let Some(bytes) = remove_without_records(&folder::segment(dir, last))
        {
            without_records.push((last, bytes));
            numbers.pop();
        }
        let mut scan =
            Scan { log: Self { dir: dir.to_owned(), ..Self::default() }, ..Scan::default() };
        scan.log.boot = disk::boot();
        let (mut refused, mut is_empty) = (None, true);
        for (index, &segment) in numbers.iter().enumerate() {
            let path = folder::segment(dir, segment);
            let bytes = match fs::read(&path) {
                Err(source) if anyway => {
                    refused = Some(io(&path, source));
                    disk::read_pages(&path)
                }
                read => read,
            };
            let bytes = bytes.map_err(|source| io(&path, source))?;
            let limit = numbers.get(index + 1).copied();
            let has_records = scan.segment(segment, limit, &bytes);
            let has_records = has_records
                .map_err(|version| StoreError::OtherVersion { path: path.clone(), version })?;
            is_empty &= !has_records;
            let bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            scan.log.segments.insert(segment, Segment { bytes, due: 0 });
            scan.log.last = segment;
        }
        for (segment, bytes) in without_records.into_iter().rev() {
            let (number, totals) = (scan.log.number, scan.log.totals.clone());
            let gaps = scan.gaps.len();
            // What it says of destinations holds.
            let _ = scan.segment(segment, None, &bytes);
            scan.log.totals = totals;
            let has_lost = scan.gaps.iter().skip(gaps).any(|(_, lost)| !lost.is_empty());
            if has_lost {
                // A loss is settled under its number, which no other batch may get.
                scan.log.number = scan.log.number.max(segment);
            } else if !scan.log.segments.is_empty() {
                scan.log.number = number;
            }
        }
        // A disk that returns nothing at all may return everything later.
        if let Some(error) = refused.filter(|_| is_empty) {
            return Err(error);
        }
        // There may be a segment without a record.
        scan.log.number = scan.log.number.max(scan.log.last.saturating_add(1));
        let (mut log, restored) = scan.take();
        log.max_bytes = max_bytes;
        log.keep_reserve();
        Ok((log, restored))
    }
}

impl Scan {
    /// Reads the next segment; the one after it begins at `limit`. Returns whether it has any
    /// record except its `begin`.
    fn segment(&mut self, segment: u64, limit: Option<u64>, bytes: &[u8]) -> Result<bool, u8> {
        let before = std::mem::take(&mut self.log.totals);
        let end = std::mem::replace(&mut self.log.number, segment);
        self.ends.insert(self.log.last, (end..segment, before));
        let mut has_records = false;
        self.boot = None;
        let mut records = record::records(bytes).peekable();
        while let Some(record) = records.next() {
            let Record { offset, length, head, body } = record?;
            let Head { number, totals, content, .. } = head;
            if let Content::Begin { previous, boot } = content {
                self.boot = Some(boot);
                if !self.log.segments.is_empty() {
                    if previous != self.log.last && self.ends.contains_key(&previous) {
                        self.void(previous);
                    }
                    // It knows the totals of the segment before it, and of no other.
                    let before = self.ends.get(&previous).cloned();
                    let (numbers, had) = before.unwrap_or_else(|| (end..segment, Totals::new()));
                    self.gap(numbers, &totals, &had);
                }
                continue;
            }
            has_records = true;
            if number < self.log.number || number >= limit.unwrap_or(MOST_NUMBER) {
                continue;
            }
            let had = std::mem::replace(&mut self.log.totals, totals);
            if number > self.log.number {
                let there_were = self.log.totals.clone();
                self.gap(self.log.number..number, &there_were, &had);
            }
            self.log.number = number.saturating_add(1);
            let is_last = limit.is_none() && records.peek().is_none();
            let logged = LoggedBatch {
                segment,
                offset: u64::try_from(offset).unwrap_or(u64::MAX),
                length,
                number,
                points: 0,
                due: Vec::new(),
                written: Vec::new(),
                perhaps_written: Vec::new(),
            };
            if is_last && is_torn(&content, body) {
                // The next record takes its number, so that it is not there after it either.
                self.log.number = number;
                continue;
            }
            self.record(logged, content, body);
        }
        Ok(has_records)
    }

    /// Drops what came from the segments after this one, because their commits have failed.
    fn void(&mut self, segment: u64) {
        self.log.batches.retain(|_, logged| logged.segment <= segment);
        let end = self.ends.get(&segment).map_or(u64::MAX, |(numbers, _)| numbers.end);
        self.gaps.retain(|(numbers, _)| numbers.start < end);
    }

    fn gap(&mut self, numbers: Range<u64>, there_were: &Totals, there_are: &Totals) {
        let lost = |(to, points): (&Arc<str>, &u64)| {
            let points = points.saturating_sub(there_are.get(to).copied().unwrap_or(0));
            (points > 0).then(|| (Arc::clone(to), points))
        };
        let lost: Totals = there_were.iter().filter_map(lost).collect();
        if !lost.is_empty() || !numbers.is_empty() {
            self.gaps.push((numbers, lost));
        }
    }

    fn record(&mut self, mut logged: LoggedBatch, content: Content, body: &[u8]) {
        let number = logged.number;
        match content {
            Content::Begin { .. } => {}
            Content::Batch { id, timestamp, pushed, due, frames: heads } => {
                let is_this_boot =
                    self.boot == Some(self.log.boot) && self.log.boot != disk::NO_BOOT;
                let moment = |(boot, wall)| Moment { boot: Duration::from_millis(boot), wall };
                let pushed = pushed.filter(|_| is_this_boot).map(moment);
                let mut summary = Summary { timestamp, pushed, points: 0, bytes: 0 };
                let mut damaged = 0;
                for (frame, its) in frames(heads, body) {
                    if frame.fits(id, its) {
                        summary.points = summary.points.saturating_add(frame.points.into());
                        summary.bytes = summary.bytes.saturating_add(its.len());
                    } else {
                        damaged = u64::saturating_add(damaged, frame.points.into());
                    }
                }
                let points = summary.points.saturating_add(damaged);
                for to in &due {
                    add(&mut self.log.totals, to, points);
                }
                let before = self.summaries.get(&id).filter(|_| self.log.batches.contains_key(&id));
                if damaged > 0 && before.is_some_and(|(_, damaged)| *damaged == 0) {
                    // A copy, for files that came back.
                    return;
                }
                (logged.points, logged.due) = (summary.points, due);
                self.log.batches.insert(id, logged);
                self.summaries.insert(id, (summary, damaged));
            }
            Content::Done(batches) => {
                for Done { to, number, id, points } in batches {
                    self.log.evicted.remove(&(Arc::clone(&to), id));
                    if let Some(logged) = self.log.batches.get_mut(&id) {
                        logged.due.retain(|other| *other != to);
                    }
                    self.done.insert((number, to, id, points));
                }
            }
            Content::State { name, sum } if crc32fast::hash(body) == sum => {
                self.log.states.insert(name, (logged.segment, Arc::from(body)));
            }
            Content::State { .. } => {
                self.gaps.push((number..number.saturating_add(1), Totals::new()))
            }
            Content::Written { ids, perhaps_written, writing } => {
                for (to, id) in perhaps_written {
                    self.log.batches.entry(id).and_modify(|logged| logged.perhaps_written.push(to));
                }
                for (to, id) in ids {
                    self.log.batches.entry(id).and_modify(|logged| logged.written.push(to));
                }
                self.writing = (number, writing);
            }
            Content::Evicted(batches) => {
                let its = batches
                    .into_iter()
                    .map(|(to, id, points)| ((to, id), (logged.segment, points)));
                self.log.evicted.extend(its);
            }
        }
    }

    /// The log and its contents. Losses are counted, and counted only once.
    fn take(self) -> (Log, Restored) {
        let Self { mut log, summaries, gaps, done, writing: (_, writing), .. } = self;
        let mut restored = Restored {
            states: log
                .states
                .iter()
                .map(|(name, (_, bytes))| (name.clone(), Arc::clone(bytes)))
                .collect(),
            damaged: gaps.iter().fold(0, |sum, (numbers, _)| {
                u64::saturating_add(sum, numbers.end.saturating_sub(numbers.start))
            }),
            ..Restored::default()
        };
        // Without those that an earlier start has counted, and those that were done before they
        // were removed.
        let mut settled = Vec::new();
        let mut count = |to: Arc<str>, numbers: Range<u64>, points: u64, only: Option<u64>| {
            let first = (numbers.start, Arc::from(""), 0, 0);
            let its = done.range(first..).take_while(|(number, ..)| numbers.contains(number));
            let its =
                its.filter(|(_, name, id, _)| *name == to && only.is_none_or(|only| only == *id));
            let points = its.fold(points, |left, (.., points)| left.saturating_sub(*points));
            if points > 0 {
                add(&mut restored.lost, &to, points);
                settled.push(Done { to, number: numbers.start, id: 0, points });
            }
        };
        for (numbers, lost) in gaps {
            lost.into_iter().for_each(|(to, points)| count(to, numbers.clone(), points, None));
        }
        for (id, logged) in std::mem::take(&mut log.batches) {
            let Some(&(summary, damaged)) = summaries.get(&id) else { continue };
            restored.damaged += u64::from(damaged > 0 && !logged.due.is_empty());
            for to in &logged.due {
                count(
                    Arc::clone(to),
                    logged.number..logged.number.saturating_add(1),
                    damaged,
                    Some(0),
                );
            }
            if logged.points > 0 && !logged.due.is_empty() {
                restored.due.extend(logged.due.iter().map(|to| (Arc::clone(to), id)));
                let (written, others): (Vec<_>, Vec<_>) =
                    logged.due.iter().cloned().partition(|to| logged.written.contains(to));
                restored.written.extend(written.into_iter().map(|to| (to, id)));
                let may_be_written =
                    |to: &Arc<str>| writing.contains(to) || logged.perhaps_written.contains(to);
                let perhaps_written = others.into_iter().filter(may_be_written);
                log.perhaps_written.extend(perhaps_written.map(|to| (to, id)));
                restored.batches.insert(id, summary);
                log.keep(id, logged);
            }
        }
        restored.perhaps_written.extend(log.perhaps_written.iter().cloned());
        log.settled.append(&mut settled);
        // It can no longer be proved that they were read. What is due was evicted while these files
        // were elsewhere.
        let mut evicted = std::mem::take(&mut log.evicted);
        evicted.retain(|(to, id), _| {
            log.batches.get(id).is_none_or(|logged| !logged.due.contains(to))
        });
        for ((to, id), (_, points)) in evicted {
            add(&mut restored.unproved, &to, points);
            log.settled.push(Done { to, number: 0, id, points: 0 });
        }
        (log, restored)
    }
}
