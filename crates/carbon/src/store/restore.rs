//! Reads the log at the start: its contents, what is lost, and to which destinations that belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::folder::MOST_NUMBER;
use super::log::{Log, LoggedBatch, LoggedCount, Segment};
use super::record::{
    self, BatchHead, Content, Done, FrameHead, Group, Head, Record, StateFiles, Totals, Written,
};
use super::{Counted, NO_BATCH, Restored, StoreError, Summary, Why, disk, folder};
use crate::clock::Moment;

/// Missing records: the segment that shows it, their numbers, and the points that each destination
/// has lost with them.
#[derive(Debug)]
struct Gap {
    shown_by: u64,
    numbers: Range<u64>,
    lost: Totals,
}

/// The name under which records that are damaged or missing are counted, in place of a destination.
/// Like points, they are counted only once.
const RECORDS: &str = "";

/// The state of reading the log once.
#[derive(Debug, Default)]
struct Scan {
    log: Log,
    /// The boot id of the segment that is being read.
    boot: Option<[u8; 16]>,
    /// By the id of a batch: its summary, and the number of points in its damaged frames.
    summaries: BTreeMap<u64, (Summary, u64)>,
    gaps: Vec<Gap>,
    /// By segment: the offset at which its last record that counts ends.
    whole: BTreeMap<u64, u64>,
    /// Segments whose commits have failed.
    void: BTreeSet<u64>,
    /// By segment: the numbers between its last record and the next segment, and its totals.
    ends: BTreeMap<u64, (Range<u64>, Totals)>,
    /// The points of every [`Done`] of the log, by the number of the batch's record, destination and
    /// id. Of what two starts have counted of a record, the later one says the sum.
    done: BTreeMap<(u64, Arc<str>, u64), u64>,
    /// The destinations that may have been written to after the last record.
    writing: Vec<Arc<str>>,
    /// By record that names states: its segment, and these states.
    named: Vec<(u64, StateFiles)>,
}

/// Adds points of a destination.
fn add(points: &mut Totals, to: &Arc<str>, more: u64) {
    let sum = points.entry(Arc::clone(to)).or_default();
    *sum = sum.saturating_add(more);
}

/// Each frame's head with its bytes in `body`; they are fewer than the head says if the body was
/// cut.
fn frames(heads: Vec<FrameHead>, mut body: &[u8]) -> impl Iterator<Item = (FrameHead, &[u8])> {
    heads.into_iter().map(move |head| {
        let length = usize::try_from(head.bytes).unwrap_or(usize::MAX).min(body.len());
        let (its, rest) = body.split_at_checked(length).unwrap_or_default();
        body = rest;
        (head, its)
    })
}

/// Whether a frame of the record's batch is not what was written. If the record is the last one, a
/// kill has cut it off, and its commit has not returned.
fn is_torn(content: &Content, body: &[u8]) -> bool {
    let Content::Group(Group { batch: Some(batch), .. }) = content else { return false };
    frames(batch.frames.clone(), body).any(|(head, its)| !head.fits(batch.id, its))
}

/// Whether a segment has no record that counts: only a `begin`, and perhaps a torn record at its
/// end. A torn record before others counts, because it may have undamaged frames.
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

/// Takes away the segments at the end without a record that counts, the newest first.
fn split_off_empty(dir: &Path, numbers: &mut Vec<u64>) -> Vec<(u64, Vec<u8>)> {
    let mut empty = Vec::new();
    while let Some(&last) = numbers.last()
        && let Ok(bytes) = disk::read(&folder::segment(dir, last))
        && has_no_records(&bytes)
    {
        empty.push((last, bytes));
        numbers.pop();
    }
    empty
}

fn io_error(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), source }
}

impl Log {
    /// Reads the log in `dir`, and removes from the disk what does not count: otherwise a later
    /// start would find it after all, or damage in its place. Nothing is changed before all of the
    /// log is read. With `anyway`, pages that the disk refuses to read count as damaged.
    pub(super) fn open(
        dir: &Path,
        max_bytes: u64,
        anyway: bool,
    ) -> Result<(Self, Restored), StoreError> {
        let mut numbers = folder::segments(dir).map_err(|source| io_error(dir, source))?;
        let empty = split_off_empty(dir, &mut numbers);
        let nothing = Self { dir: dir.to_owned(), boot: disk::boot(), ..Self::default() };
        let mut scan = Scan { log: nothing, ..Scan::default() };
        let unread = scan.read_segments(&numbers, anyway)?;
        let lost = scan.read_empty(&empty);
        let mut gone: Vec<u64> = empty.iter().map(|(segment, _)| *segment).collect();
        gone.extend(scan.split_off_void(&mut numbers));
        scan.log.last = numbers.last().copied().unwrap_or(0);
        scan.log.number = scan.log.number.max(scan.log.last.saturating_add(1));
        scan.keep_shown(lost);
        let states = scan.take_newest_names();
        let damaged_states = scan.log.read_states(states, anyway)?;
        // Nothing is cut off where a page was not read.
        let is_read = !unread.contains(&scan.log.last);
        let end = scan.whole.get(&scan.log.last).copied().filter(|_| is_read);
        scan.log.repair(&gone, end)?;
        // What was not read may name them.
        if unread.is_empty() {
            scan.log.remove_unnamed();
        }
        let (mut log, mut restored) = scan.take();
        restored.damaged_states = damaged_states;
        log.max_bytes = max_bytes;
        // What shows the losses may be cut off now. Where a page was not read, nothing is.
        if !log.settled.is_empty() && unread.is_empty() {
            log.commit_losses();
        }
        log.keep_reserve();
        Ok((log, restored))
    }

    /// Reads the states. Returns the names of those that are damaged or missing.
    fn read_states(&mut self, states: StateFiles, anyway: bool) -> Result<Vec<String>, StoreError> {
        let mut damaged = Vec::new();
        let is_refused = |source: &io::Error| {
            source.kind() != ErrorKind::NotFound && !(anyway && disk::is_damage(source))
        };
        for (name, file) in states {
            let path = folder::state(&self.dir, file.number);
            match disk::read(&path) {
                Ok(bytes) if crc32fast::hash(&bytes) == file.sum => {
                    self.states.insert(name, (file, bytes.into()));
                }
                Err(source) if is_refused(&source) => return Err(StoreError::Io { path, source }),
                _ => damaged.push(name),
            }
        }
        Ok(damaged)
    }

    /// Cuts off what is behind `end` in the newest segment, removes the segments in `gone`, and
    /// makes durable what is left. `None`: nothing is cut off.
    fn repair(&mut self, gone: &[u64], end: Option<u64>) -> Result<(), StoreError> {
        let path = folder::segment(&self.dir, self.last);
        let io = |source| StoreError::Io { path: path.clone(), source };
        if let Some((newest, end)) = self.segments.get_mut(&self.last).zip(end) {
            let file = File::options().append(true).open(&path).map_err(io)?;
            if newest.bytes > end {
                disk::truncate(&file, end).map_err(io)?;
                newest.bytes = end;
            }
            disk::sync(&file).map_err(io)?;
        }
        for segment in gone {
            disk::remove(&folder::segment(&self.dir, *segment)).map_err(io)?;
        }
        File::open(&self.dir).and_then(|dir| disk::sync(&dir)).map_err(io)?;
        // A later start may find one that cannot be removed now, and nothing else has its number.
        self.state_files = folder::states(&self.dir).map_err(io)?.into_iter().collect();
        Ok(())
    }
}

impl Restored {
    fn note_due(&mut self, id: u64, logged: &LoggedBatch) {
        self.due.extend(logged.due.iter().map(|to| (Arc::clone(to), id)));
        let (written, others): (Vec<_>, Vec<_>) =
            logged.due.iter().cloned().partition(|to| logged.written.contains(to));
        self.written.extend(written.into_iter().map(|to| (to, id)));
        let perhaps_written = others.into_iter().filter(|to| logged.perhaps_written.contains(to));
        self.perhaps_written.extend(perhaps_written.map(|to| (to, id)));
    }
}

impl Scan {
    /// Reads these segments. Returns those of which the disk refuses to read a part; without
    /// `anyway` that is an error.
    fn read_segments(
        &mut self,
        numbers: &[u64],
        anyway: bool,
    ) -> Result<BTreeSet<u64>, StoreError> {
        let (mut refused, mut is_empty) = (None, true);
        let mut unread = BTreeSet::new();
        for (index, &segment) in numbers.iter().enumerate() {
            let path = folder::segment(&self.log.dir, segment);
            let read = disk::read(&path);
            let bytes = match read {
                Err(source) if anyway && disk::is_damage(&source) => {
                    unread.insert(segment);
                    refused = Some(io_error(&path, source));
                    disk::read_pages(&path)
                }
                read => read,
            };
            let bytes = bytes.map_err(|source| io_error(&path, source))?;
            let limit = numbers.get(index + 1).copied();
            let has_records = self.segment(segment, limit, &bytes);
            let has_records = has_records
                .map_err(|version| StoreError::OtherVersion { path: path.clone(), version })?;
            is_empty &= !has_records;
            let bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            self.log.segments.insert(segment, Segment { bytes, due: 0 });
            self.log.last = segment;
        }
        // A disk that returns nothing at all may return everything later.
        refused.filter(|_| is_empty).map_or(Ok(unread), Err)
    }

    /// Reads the segments at the end that have no record. Returns the losses that they show: their
    /// totals for the segments before are right.
    fn read_empty(&mut self, empty: &[(u64, Vec<u8>)]) -> Totals {
        let named = self.named.len();
        for (segment, bytes) in empty.iter().rev() {
            let (number, totals) = (self.log.number, self.log.totals.clone());
            let _ = self.segment(*segment, None, bytes);
            self.log.totals = totals;
            if !self.log.segments.is_empty() {
                self.log.number = number;
            }
        }
        self.named.truncate(named);
        let first = empty.last().map_or(u64::MAX, |(segment, _)| *segment);
        let shown = self.gaps.extract_if(.., |gap| gap.shown_by >= first);
        // Two segments may show the same gap before them, which counts once. A gap within a segment
        // is shown by that segment alone.
        let key = |Gap { shown_by, numbers, .. }: &Gap| {
            ((numbers.end > *shown_by).then_some(*shown_by), numbers.start)
        };
        let shown: BTreeMap<_, Totals> = shown.map(|gap| (key(&gap), gap.lost)).collect();
        let mut lost = Totals::new();
        shown.values().flatten().for_each(|(to, points)| add(&mut lost, to, *points));
        lost
    }

    /// Puts what segments without a record have shown behind the last record that stays, as one
    /// record whose number no batch gets. The next `begin` shows it too, so that what is settled
    /// now is never taken from another loss.
    fn keep_shown(&mut self, lost: Totals) {
        if lost.is_empty() {
            return;
        }
        let number = self.log.number;
        self.log.number = number.saturating_add(1);
        lost.iter().for_each(|(to, points)| add(&mut self.log.totals, to, *points));
        let shown_by = self.log.number;
        self.gaps.push(Gap { shown_by, numbers: number..self.log.number, lost });
    }

    /// Takes away the segments at the end whose commits have failed. Their numbers are used again.
    fn split_off_void(&mut self, numbers: &mut Vec<u64>) -> Vec<u64> {
        let mut gone = Vec::new();
        while let Some(last) = numbers.pop_if(|last| self.void.contains(last)) {
            gone.push(last);
            self.log.segments.remove(&last);
            if let Some((numbers, totals)) = numbers.last().and_then(|newest| self.ends.get(newest))
            {
                (self.log.number, self.log.totals) = (numbers.start, totals.clone());
            }
        }
        gone
    }

    /// Takes the states that the newest record with states names. The log gets the numbers of the
    /// files which that record and the one before it name.
    fn take_newest_names(&mut self) -> StateFiles {
        let newest = self.named.pop().unwrap_or_default().1;
        let before = self.named.pop().unwrap_or_default().1;
        self.log.named =
            [&newest, &before].map(|states| states.values().map(|file| file.number).collect());
        newest
    }

    /// Reads the next segment; the one after it begins at `limit`. Returns whether it has any
    /// record except its `begin`.
    fn segment(&mut self, segment: u64, limit: Option<u64>, bytes: &[u8]) -> Result<bool, u8> {
        let before = std::mem::take(&mut self.log.totals);
        let between = std::mem::replace(&mut self.log.number, segment)..segment;
        self.ends.insert(self.log.last, (between.clone(), before));
        let mut has_records = false;
        self.boot = None;
        let mut records = record::records(bytes).peekable();
        while let Some(record) = records.next() {
            let Record { offset, length, head, body } = record?;
            let offset = u64::try_from(offset).unwrap_or(u64::MAX);
            let after_head = offset.saturating_add(length.into());
            let end = after_head.saturating_add(u64::try_from(body.len()).unwrap_or(u64::MAX));
            let Head { number, totals, content, .. } = head;
            let is_last = limit.is_none() && records.peek().is_none();
            let is_torn_end = is_last && is_torn(&content, body);
            if !is_torn_end && limit.is_none_or(|limit| number < limit) {
                self.whole.insert(segment, end);
            }
            if let Content::Begin { previous, boot, states } = content {
                self.boot = Some(boot);
                if previous < self.log.last {
                    self.void(previous);
                }
                self.named.push((segment, states));
                // It knows the totals of the segment before it, and of no other. If that was the
                // first, it has left.
                if self.log.segments.range(..=previous).next().is_some() {
                    let its_end = self.ends.get(&previous).cloned();
                    let (numbers, had) =
                        its_end.unwrap_or_else(|| (between.clone(), Totals::new()));
                    self.gap(segment, numbers, &totals, &had);
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
                self.gap(segment, self.log.number..number, &there_were, &had);
            }
            self.log.number = number.saturating_add(1);
            let logged = LoggedBatch { segment, offset, length, number, ..LoggedBatch::default() };
            if is_torn_end {
                // It is cut off, and the next record takes its number.
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
        self.named.retain(|(its, _)| *its <= segment);
        self.void.extend(self.log.segments.range(segment.saturating_add(1)..).map(|(its, _)| its));
        // What its end has lost is said by each segment that names it.
        let end = self.ends.get(&segment).map_or(segment, |(numbers, _)| numbers.start);
        self.gaps.retain(|gap| gap.numbers.start < end);
    }

    fn gap(&mut self, shown_by: u64, numbers: Range<u64>, there_were: &Totals, there_are: &Totals) {
        let lost = |(to, points): (&Arc<str>, &u64)| {
            let points = points.saturating_sub(there_are.get(to).copied().unwrap_or(0));
            (points > 0).then(|| (Arc::clone(to), points))
        };
        let lost: Totals = there_were.iter().filter_map(lost).collect();
        if !lost.is_empty() || !numbers.is_empty() {
            self.gaps.push(Gap { shown_by, numbers, lost });
        }
    }

    fn record(&mut self, logged: LoggedBatch, content: Content, body: &[u8]) {
        let Content::Group(Group { batch, done, counted, written, states }) = content else {
            return;
        };
        let segment = logged.segment;
        if let Some(batch) = batch {
            self.batch(logged, batch, body);
        }
        for Done { to, number, id, points } in done {
            self.log.counted.remove(&(id, Arc::clone(&to)));
            if let Some(its) = self.log.batches.get_mut(&id) {
                its.due.retain(|other| *other != to);
            }
            let most = self.done.entry((number, to, id)).or_default();
            *most = points.max(*most);
        }
        for Counted { to, id, points, why } in counted {
            let count = LoggedCount { segment: Some(segment), points, why };
            self.log.counted.insert((id, to), count);
        }
        if let Some(Written { ids, perhaps_written, writing }) = written {
            for (to, id) in perhaps_written {
                self.log.batches.entry(id).and_modify(|its| its.perhaps_written.push(to));
            }
            for (to, id) in ids {
                self.log.batches.entry(id).and_modify(|its| its.written.push(to));
            }
            self.writing = writing;
        }
        self.named.extend(states.map(|states| (segment, states)));
    }

    fn batch(&mut self, mut logged: LoggedBatch, batch: BatchHead, body: &[u8]) {
        let BatchHead { id, timestamp, pushed, due, frames: heads } = batch;
        let is_this_boot = self.boot == Some(self.log.boot) && self.log.boot != disk::NO_BOOT;
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
        if damaged > 0 && before.is_some_and(|(_, its_damage)| *its_damage == 0) {
            // A copy, for files that came back.
            return;
        }
        (logged.points, logged.due) = (summary.points, due);
        self.log.batches.insert(id, logged);
        self.summaries.insert(id, (summary, damaged));
    }

    /// Returns the log and its contents for the queue. Losses are counted, and counted only once.
    fn take(self) -> (Log, Restored) {
        let Self { mut log, summaries, gaps, done, writing, .. } = self;
        let states = log.states.iter();
        let mut restored = Restored {
            states: states.map(|(name, (_, bytes))| (name.clone(), Arc::clone(bytes))).collect(),
            ..Restored::default()
        };
        // Without those that an earlier start has counted, and those that were done before they
        // were removed.
        let (mut settled, mut counted, mut damaged_records) = (Vec::new(), Vec::new(), 0_u64);
        let mut count_lost = |to: Arc<str>, numbers: Range<u64>, points: u64, only: Option<u64>| {
            let first = (numbers.start, Arc::from(""), 0);
            let its = done.range(first..).take_while(|((number, ..), _)| numbers.contains(number));
            let its =
                its.filter(|((_, name, id), _)| *name == to && only.is_none_or(|only| only == *id));
            let left = its.fold(points, |left, (_, part)| left.saturating_sub(*part));
            if left == 0 {
                return;
            }
            if *to == *RECORDS {
                damaged_records = damaged_records.saturating_add(left);
            } else {
                let count = LoggedCount { segment: None, points: left, why: Why::Damaged };
                counted.push(((numbers.start | NO_BATCH, Arc::clone(&to)), count));
            }
            let before = done.get(&(numbers.start, Arc::clone(&to), 0)).copied().unwrap_or(0);
            let all = before.saturating_add(left);
            settled.push(Done { to, number: numbers.start, id: 0, points: all });
        };
        for Gap { numbers, lost, .. } in gaps {
            let records = numbers.end.saturating_sub(numbers.start);
            count_lost(Arc::from(RECORDS), numbers.clone(), records, None);
            lost.into_iter().for_each(|(to, points)| count_lost(to, numbers.clone(), points, None));
        }
        for (id, mut logged) in std::mem::take(&mut log.batches) {
            let Some(&(summary, damaged)) = summaries.get(&id) else { continue };
            let numbers = logged.number..logged.number.saturating_add(1);
            let is_damaged = damaged > 0 && !logged.due.is_empty();
            count_lost(Arc::from(RECORDS), numbers.clone(), is_damaged.into(), None);
            for to in &logged.due {
                count_lost(Arc::clone(to), numbers.clone(), damaged, Some(0));
            }
            logged.perhaps_written.extend(writing.iter().cloned());
            if logged.points > 0 && !logged.due.is_empty() {
                restored.batches.insert(id, summary);
                restored.note_due(id, &logged);
                log.keep(id, logged);
            }
        }
        restored.damaged = damaged_records;
        log.perhaps_written.extend(restored.perhaps_written.iter().cloned());
        log.settled.append(&mut settled);
        for (key, count) in counted {
            let all = log.counted.entry(key).or_insert(LoggedCount { points: 0, ..count });
            *all = LoggedCount { points: all.points.saturating_add(count.points), ..count };
        }
        // What is due was counted while these files were elsewhere, or its segment is back.
        let batches = &log.batches;
        log.counted
            .retain(|(id, to), _| batches.get(id).is_none_or(|logged| !logged.due.contains(to)));
        let all = log.counted.iter();
        restored.counted = all.map(|((id, to), its)| its.of_batch(*id, to)).collect();
        (log, restored)
    }
}
