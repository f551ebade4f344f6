//! The log: its contents, commit by commit, and what is removed from its front. store.rs says what
//! it promises, room.rs what happens on a full disk.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::folder::{self, Named};
use super::record::{self, Content, Done, FrameHead, Head, Totals, as_u32};
use super::{Changes, StoreError, disk};
use crate::clock::Moment;
use carbon_wire::{Frame, points};

/// The smallest useful `max_bytes` with a folder. An eighth of it stays free for the next commit,
/// and another eighth is removed when it is full. The rest holds more than an hour of ticks of 18
/// KB at 30 s. A single tick of 80,000 points would exceed this bound.
pub const LEAST_FILE_BYTES: u64 = 4 << 20;
/// The largest size of a segment, without a single larger batch and the states in it. It is an
/// eighth of the least `max_bytes`, so that a `max_bytes` that is lowered removes little at a time.
const MOST_SEGMENT: u64 = LEAST_FILE_BYTES / 8;

#[derive(Clone, Debug)]
pub(super) struct LoggedBatch {
    pub(super) segment: u64,
    pub(super) offset: u64,
    /// The length of its record without the body.
    pub(super) length: u32,
    pub(super) number: u64,
    pub(super) points: u64,
    /// The destinations that are not done with it.
    pub(super) due: Vec<Arc<str>>,
    /// Those to which it was written before the log was opened.
    pub(super) written: Vec<Arc<str>>,
    /// Those to which it may have been written when an earlier run was killed.
    pub(super) perhaps_written: Vec<Arc<str>>,
}

/// A segment: its bytes, and how many batches in it are due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) bytes: u64,
    pub(super) due: usize,
}

/// The log of one folder.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) dir: PathBuf,
    pub(super) max_bytes: u64,
    pub(super) boot: [u8; 16],
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) batches: BTreeMap<u64, LoggedBatch>,
    /// The newest bytes of each name, with their segment.
    pub(super) states: BTreeMap<String, (u64, Arc<[u8]>)>,
    /// By destination and id: segment, points.
    pub(super) evicted: BTreeMap<(Arc<str>, u64), (u64, u64)>,
    /// What was found at the start, for the next commit to record.
    pub(super) settled: Vec<Done>,
    /// What may have been written before the start, for the next commit to record.
    pub(super) perhaps_written: Vec<(Arc<str>, u64)>,
    /// The destinations that may be written to.
    pub(super) writing: Vec<Arc<str>>,
    /// The next record's number.
    pub(super) number: u64,
    /// The segment that was written last, and how many points it has had for each destination so
    /// far.
    pub(super) last: u64,
    pub(super) totals: Totals,
    /// The last segment's file, if more may be written to it.
    pub(super) newest: Option<(File, Named)>,
    /// Whether a segment was removed since the folder was synced.
    pub(super) is_removal_unsynced: bool,
    /// The size of the reserve; `None`: there is none.
    pub(super) reserve: Option<u64>,
}

/// The largest size of a segment for this `max_bytes`.
pub(crate) fn segment_bytes(max_bytes: u64) -> u64 {
    (max_bytes / 8).min(MOST_SEGMENT)
}

impl Log {
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// The size of the newest states together.
    pub(super) fn states_bytes(&self) -> u64 {
        let sizes = self.states.values().map(|(_, bytes)| bytes.len());
        u64::try_from(sizes.sum::<usize>()).unwrap_or(u64::MAX)
    }

    /// Whether the newest segment is still in the folder; `None`: there is none to look for.
    pub(super) fn is_there(&self) -> Option<bool> {
        self.newest.as_ref().map(|(_, named)| named.is_there())
    }

    /// Makes the changes durable with one write and one sync. Returns the batches that were removed
    /// to make room.
    pub(super) fn commit(&mut self, changes: &Changes) -> Result<Vec<u64>, StoreError> {
        self.max_bytes = changes.max_bytes.unwrap_or(self.max_bytes);
        let finished = self.finished_by(changes);
        let dropped = match self.write_changes(changes, &finished, None) {
            Err(error) if error.is_full() && self.make_room(changes, &finished) => {
                // First the reserve, if it was used: without it the states could not leave the last
                // segment.
                self.keep_reserve();
                let has_copies = !self.states.is_empty() || !self.evicted.is_empty();
                if has_copies && self.reserve.is_none() {
                    return Err(error);
                }
                self.write_changes(changes, &finished, None)?
            }
            written => written?,
        };
        self.keep_reserve();
        Ok(dropped)
    }

    /// The batches that nobody needs after these changes.
    fn finished_by(&self, changes: &Changes) -> BTreeSet<u64> {
        let mut left: BTreeMap<u64, Vec<&Arc<str>>> = BTreeMap::new();
        for (to, id) in &changes.done {
            if let Some(logged) = self.batches.get(id) {
                left.entry(*id)
                    .or_insert_with(|| logged.due.iter().collect())
                    .retain(|due| *due != to);
            }
        }
        let finished = left.into_iter().filter(|(_, due)| due.is_empty()).map(|(id, _)| id);
        finished
            .chain(changes.forget.iter().copied().filter(|id| self.batches.contains_key(id)))
            .collect()
    }

    /// One write of the changes, after which the segments in `gone` are removed; otherwise those
    /// that [`Log::leaving`] names.
    pub(super) fn write_changes(
        &mut self,
        changes: &Changes,
        finished: &BTreeSet<u64>,
        gone: Option<Vec<u64>>,
    ) -> Result<Vec<u64>, StoreError> {
        let frames = changes.append.iter().flat_map(|kept| kept.frames.iter());
        let sizes = frames
            .map(|frame| frame.body.len())
            .chain(changes.states.values().map(|bytes| bytes.len()));
        let size = u64::try_from(sizes.sum::<usize>()).unwrap_or(u64::MAX);
        let before = self.segments.get(&self.last).map_or(0, |segment| segment.bytes);
        // Copies of large states would fill each segment at once, and go to the next with the next
        // commit.
        let most = segment_bytes(self.max_bytes).saturating_add(self.states_bytes());
        let newest = self.newest.take().filter(|_| before.saturating_add(size) <= most);
        let (segment, before) =
            if newest.is_some() { (self.last, before) } else { (self.number, 0) };
        let gone = gone.unwrap_or_else(|| self.leaving(segment, size, finished));

        let (mut number, mut totals) = (self.number, self.totals.clone());
        let (mut parts, mut end) = (Vec::new(), before);
        if newest.is_none() {
            let content = Content::Begin { previous: self.last, boot: self.boot };
            let head = Head { number, totals: std::mem::take(&mut totals), body: 0, content };
            let head = record::before_body(&head);
            end += u64::from(as_u32(head.len()));
            parts.push(Cow::Owned(head));
        }
        let mut put = |content, totals: &Totals, body: Vec<_>| {
            let bytes = as_u32(body.iter().map(|part: &&[u8]| part.len()).sum());
            let head = Head { number, totals: totals.clone(), body: bytes, content };
            let head = record::before_body(&head);
            let (offset, length) = (end, as_u32(head.len()));
            end += u64::from(length) + u64::from(bytes);
            parts.push(Cow::Owned(head));
            parts.extend(body.into_iter().map(Cow::Borrowed));
            let its_number = number;
            number = number.saturating_add(1);
            (its_number, offset, length)
        };
        let mut appended = BTreeMap::new();
        for kept in changes.append.iter().filter(|kept| !kept.due.is_empty()) {
            let (id, points, due) = (kept.id, points(&kept.frames), kept.due.clone());
            let frames = kept.frames.iter().map(|frame| FrameHead::new(id, frame)).collect();
            let millis =
                |pushed: Moment| u64::try_from(pushed.boot.as_millis()).unwrap_or(u64::MAX);
            let pushed = kept.pushed.map(|pushed| (millis(pushed), pushed.wall));
            let content =
                Content::Batch { id, timestamp: kept.timestamp, pushed, due: due.clone(), frames };
            let body = kept.frames.iter().map(|frame| frame.body.as_slice()).collect();
            let (number, offset, length) = put(content, &totals, body);
            for to in &due {
                let total = totals.entry(Arc::clone(to)).or_default();
                *total = total.saturating_add(points);
            }
            appended.insert(
                id,
                LoggedBatch {
                    segment,
                    offset,
                    length,
                    number,
                    points,
                    due,
                    written: Vec::new(),
                    perhaps_written: Vec::new(),
                },
            );
        }
        let done = self.done(&appended, changes);
        if !done.is_empty() {
            put(Content::Done(done.clone()), &totals, Vec::new());
        }
        let is_due = |(to, id): &&(Arc<str>, u64)| {
            let logged = appended.get(id).or_else(|| self.batches.get(id));
            logged.is_some_and(|logged| logged.due.contains(to))
        };
        let ids: Vec<_> = changes.written.iter().filter(is_due).cloned().collect();
        let perhaps_written: Vec<_> = self.perhaps_written.iter().filter(is_due).cloned().collect();
        let writing = changes.writing.clone().unwrap_or_else(|| self.writing.clone());
        let is_recorded = newest.is_some() || writing.is_empty();
        if !ids.is_empty() || !perhaps_written.is_empty() || writing != self.writing || !is_recorded
        {
            let content = Content::Written { ids, perhaps_written, writing: writing.clone() };
            put(content, &totals, Vec::new());
        }
        // The newest states of segments that will be removed are copied.
        let mut states = changes.states.clone();
        for (name, (_, bytes)) in self.states.iter().filter(|(_, (from, _))| gone.contains(from)) {
            states.entry(name.clone()).or_insert_with(|| Arc::clone(bytes));
        }
        for (name, bytes) in &states {
            let content = Content::State { name: name.clone(), sum: crc32fast::hash(bytes) };
            put(content, &totals, vec![bytes]);
        }
        let copied = self.evicted.iter().filter(|(_, (from, _))| gone.contains(from));
        let copied = copied.map(|((to, id), (_, points))| (Arc::clone(to), *id, *points));
        // What was proved or counted in the meantime is not copied.
        let is_open =
            |(to, id, _): &_| !changes.done.iter().any(|done| done.0 == *to && done.1 == *id);
        let evicted: Vec<_> =
            copied.chain(changes.evicted.iter().cloned()).filter(is_open).collect();
        if !evicted.is_empty() {
            put(Content::Evicted(evicted.clone()), &totals, Vec::new());
        }

        if number == self.number {
            // There is no segment without a record. What was done may have left without one.
            self.newest = newest;
            let synced = if self.is_removal_unsynced { self.sync_folder() } else { Ok(()) };
            synced.map_err(|source| StoreError::Io { path: self.dir.clone(), source })?;
            return Ok(self.remove(&gone));
        }
        self.newest = Some(self.write(newest, (segment, before), &parts)?);
        (self.number, self.last, self.totals) = (number, segment, totals);
        self.segments.entry(segment).or_default().bytes = end;
        (self.settled, self.perhaps_written, self.writing) = (Vec::new(), Vec::new(), writing);
        appended.into_iter().for_each(|(id, logged)| self.keep(id, logged));
        done.iter().for_each(|done| self.finish(done));
        self.states.extend(states.into_iter().map(|(name, bytes)| (name, (segment, bytes))));
        let evicted = evicted.into_iter().map(|(to, id, points)| ((to, id), (segment, points)));
        self.evicted.extend(evicted);
        let dropped = self.remove(&gone);
        Ok(dropped)
    }

    /// Appends to `newest`, which has this many bytes, or writes a new segment.
    fn write(
        &mut self,
        newest: Option<(File, Named)>,
        (segment, before): (u64, u64),
        parts: &[Cow<'_, [u8]>],
    ) -> Result<(File, Named), StoreError> {
        let (path, is_new) = (folder::segment(&self.dir, segment), newest.is_none());
        let error = |source| StoreError::Io { path: path.clone(), source };
        let create = || {
            let file = disk::create(&path)?;
            let named = Named::new(&file, &path)?;
            Ok((file, named))
        };
        let newest = newest.map_or_else(create, Ok).map_err(error)?;
        let written = disk::write(&newest.0, parts);
        let is_torn = written.is_err();
        // On a full disk batches may have left without a record.
        let has_names = is_new || self.is_removal_unsynced;
        let synced = written.and_then(|()| disk::sync(&newest.0)).and_then(|()| match has_names {
            true => self.sync_folder(),
            false => Ok(()),
        });
        let Err(source) = synced else { return Ok(newest) };
        let error = error(source);
        // Nothing in a new segment counts. A torn end is cut off; after a sync that failed nobody
        // knows what is there. A full disk may take more of it later; what else was refused, such
        // as a file that is too large, may only concern this file.
        if !is_new && is_torn && disk::truncate(&newest.0, before).is_ok() {
            self.newest = Some(newest).filter(|_| error.is_full());
        } else if let Ok(left) = fs::metadata(&path)
            && (!is_new || disk::remove(&path).is_err())
        {
            self.segments.entry(segment).or_default().bytes = left.len();
            self.number = self.number.saturating_add(u64::from(is_new));
        }
        Err(error)
    }

    /// The changes that say a batch is done, for batches that are in the log.
    fn done(&self, appended: &BTreeMap<u64, LoggedBatch>, changes: &Changes) -> Vec<Done> {
        let find = |id: &u64| appended.get(id).or_else(|| self.batches.get(id));
        let done_batch = |to: &Arc<str>, id: u64| {
            let logged = find(&id)
                .filter(|logged| logged.due.contains(to))
                .map(|logged| (logged.number, logged.points));
            let gone = || self.evicted.contains_key(&(Arc::clone(to), id)).then_some((0, 0));
            logged.or_else(gone).map(|(number, points)| Done {
                to: Arc::clone(to),
                number,
                id,
                points,
            })
        };
        let done = changes.done.iter().filter_map(|(to, id)| done_batch(to, *id));
        let forgotten = changes.forget.iter().filter_map(|id| Some((*id, find(id)?)));
        let forgotten =
            forgotten.flat_map(|(id, its)| its.due.iter().filter_map(move |to| done_batch(to, id)));
        self.settled.iter().cloned().chain(done).chain(forgotten).collect()
    }

    /// Registers a batch that is now in the log; earlier copies of it no longer count.
    pub(super) fn keep(&mut self, id: u64, logged: LoggedBatch) {
        self.segments.entry(logged.segment).or_default().due += 1;
        let before = self.batches.insert(id, logged);
        self.leave(before);
    }

    fn leave(&mut self, logged: Option<LoggedBatch>) {
        if let Some(segment) = logged.and_then(|logged| self.segments.get_mut(&logged.segment)) {
            segment.due = segment.due.saturating_sub(1);
        }
    }

    fn finish(&mut self, Done { to, id, .. }: &Done) {
        self.evicted.remove(&(Arc::clone(to), *id));
        let Some(logged) = self.batches.get_mut(id) else { return };
        logged.due.retain(|other| other != to);
        if logged.due.is_empty() {
            let logged = self.batches.remove(id);
            self.leave(logged);
        }
    }

    /// The segments to remove with a commit of `size` bytes to `segment`: from the front, as long
    /// as nothing in them is due after it or the log would be too large. Room for one more commit
    /// stays free.
    fn leaving(&self, segment: u64, size: u64, finished: &BTreeSet<u64>) -> Vec<u64> {
        let bound = self.max_bytes.saturating_sub(segment_bytes(self.max_bytes).max(size));
        let mut bytes = self.bytes().saturating_add(size);
        let idle = self.idle(finished);
        let front = self.segments.range(..segment).take_while(|(number, front)| {
            let goes = bytes > bound || idle.contains(number);
            bytes = bytes.saturating_sub(front.bytes);
            goes
        });
        front.map(|(&front, _)| front).collect()
    }

    /// The segments in which nothing is due once these batches are finished.
    pub(super) fn idle(&self, finished: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for logged in finished.iter().filter_map(|id| self.batches.get(id)) {
            *counts.entry(logged.segment).or_default() += 1;
        }
        let due = |number| counts.get(number).copied().unwrap_or(0);
        self.segments
            .iter()
            .filter(|(number, its)| its.due <= due(*number))
            .map(|(&number, _)| number)
            .collect()
    }

    /// Removes segments. Returns the batches that were due in them.
    pub(super) fn remove(&mut self, gone: &[u64]) -> Vec<u64> {
        for segment in gone {
            if let Err(error) = self.remove_next(*segment) {
                // What is done in it may be recorded in the next ones.
                tracing::debug!(%error, segment, "a segment of the queue cannot be removed now");
                break;
            }
            self.segments.remove(segment);
        }
        let due = self.batches.iter().filter(|(_, logged)| gone.contains(&logged.segment));
        let dropped: Vec<u64> =
            if gone.is_empty() { Vec::new() } else { due.map(|(&id, _)| id).collect() };
        dropped.iter().for_each(|id| drop(self.batches.remove(id)));
        dropped
    }

    /// Removes a segment when it is certain that those before it are gone: a power cut must not
    /// bring one back whose batches are done by the records of a later one.
    fn remove_next(&mut self, segment: u64) -> io::Result<()> {
        if self.is_removal_unsynced {
            self.sync_folder()?;
        }
        self.is_removal_unsynced = true;
        match disk::remove(&folder::segment(&self.dir, segment)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        disk::sync(&File::open(&self.dir)?)?;
        self.is_removal_unsynced = false;
        Ok(())
    }

    /// The frames of a batch that are undamaged.
    pub(super) fn load(&self, id: u64) -> Result<Arc<[Frame]>, StoreError> {
        let LoggedBatch { segment, offset, length, .. } =
            *self.batches.get(&id).ok_or(StoreError::Missing)?;
        let path = folder::segment(&self.dir, segment);
        let damaged = || StoreError::Damaged { path: path.clone() };
        let refused = |source: io::Error| match source.kind() {
            ErrorKind::NotFound | ErrorKind::UnexpectedEof => damaged(),
            _ => StoreError::Io { path: path.clone(), source },
        };
        let file = File::open(&path).map_err(refused)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut bytes, offset).map_err(refused)?;
        let record = record::first(&bytes).and_then(Result::ok).ok_or_else(damaged)?;
        let Content::Batch { frames: heads, .. } = record.head.content else {
            return Err(damaged());
        };
        let mut at = offset.saturating_add(length.into());
        let mut frames = Vec::with_capacity(heads.len());
        for head in heads {
            let mut body = vec![0; usize::try_from(head.bytes).unwrap_or(0)];
            match file.read_exact_at(&mut body, at) {
                Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                    return Err(refused(error));
                }
                Ok(()) if head.fits(id, &body) => frames.push(Frame { points: head.points, body }),
                _ => {}
            }
            at = at.saturating_add(head.bytes.into());
        }
        Ok(frames.into())
    }
}
