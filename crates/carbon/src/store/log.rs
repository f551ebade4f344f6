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
use super::record::{
    self, BatchHead, Content, Done, FrameHead, Group, Head, StateFile, StateFiles, Totals, Written,
    as_u32,
};
use super::{AppendedBatch, Changes, Counted, StoreError, Why, disk};
use crate::clock::Moment;
use carbon_wire::{Frame, points};

/// The smallest useful `max_bytes` with a folder. An eighth of it stays free for the next commit,
/// and another eighth is removed when it is full. The rest holds more than an hour of ticks of 18
/// KB at 30 s. A single tick of 80,000 points would exceed this bound.
pub const LEAST_FILE_BYTES: u64 = 4 << 20;
/// The largest size of a segment, bytes, unless a single batch is larger. It is an eighth of the
/// least `max_bytes`, so that a `max_bytes` that is lowered removes little at a time.
const MOST_SEGMENT: u64 = LEAST_FILE_BYTES / 8;

#[derive(Clone, Debug, Default)]
pub(super) struct LoggedBatch {
    pub(super) segment: u64,
    pub(super) offset: u64,
    /// The length of the batch's record without the body, bytes.
    pub(super) length: u32,
    pub(super) number: u64,
    pub(super) points: u64,
    /// The destinations that are not done with the batch.
    pub(super) due: Vec<Arc<str>>,
    /// The destinations to which the batch was written.
    pub(super) written: Vec<Arc<str>>,
    /// The destinations to which the batch may have been written when an earlier run was killed.
    pub(super) perhaps_written: Vec<Arc<str>>,
}

/// A segment: its bytes, and how many batches in it are due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) bytes: u64,
    pub(super) due: usize,
}

/// The newest bytes of each state, by its name, with their file.
type States = BTreeMap<String, (StateFile, Arc<[u8]>)>;

/// Counted points that, as far as is known, no tick on the disk has told.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedCount {
    /// The segment that has the count; `None`: the next commit records it.
    pub(super) segment: Option<u64>,
    pub(super) points: u64,
    pub(super) why: Why,
}

impl LoggedCount {
    pub(super) fn of_batch(&self, id: u64, to: &Arc<str>) -> Counted {
        Counted { to: Arc::clone(to), id, points: self.points, why: self.why }
    }
}

/// The records of one commit, and the state of the log after them.
struct Commit<'a> {
    segment: u64,
    /// The length of the segment with these records, bytes.
    end: u64,
    /// The next record's number.
    number: u64,
    totals: Totals,
    parts: Vec<Cow<'a, [u8]>>,
    appended: BTreeMap<u64, LoggedBatch>,
    /// The last group, which has all changes that are not batches.
    last: Group,
}

impl<'a> Commit<'a> {
    fn begin_segment(&mut self, log: &Log) {
        let (previous, boot) = (log.last, log.boot);
        let content = Content::Begin { previous, boot, states: state_files(&log.states) };
        let totals = std::mem::take(&mut self.totals);
        let head = record::before_body(&Head { number: self.number, totals, body: 0, content });
        self.end += u64::from(as_u32(head.len()));
        self.parts.push(Cow::Owned(head));
    }

    /// Adds the record of a group. Its body is the frames of `kept`, the group's batch, if it has
    /// one.
    fn add_group(&mut self, group: Group, kept: Option<&'a AppendedBatch>) {
        let body = kept.into_iter().flat_map(|kept| kept.frames.iter());
        let body: Vec<&[u8]> = body.map(|frame| frame.body.as_slice()).collect();
        let bytes = as_u32(body.iter().map(|part| part.len()).sum());
        let content = Content::Group(group);
        let head = Head { number: self.number, totals: self.totals.clone(), body: bytes, content };
        let before_body = record::before_body(&head);
        let length = as_u32(before_body.len());
        if let Some(logged) = kept.and_then(|kept| self.appended.get_mut(&kept.id)) {
            (logged.offset, logged.length) = (self.end, length);
            for to in &logged.due {
                let total = self.totals.entry(Arc::clone(to)).or_default();
                *total = total.saturating_add(logged.points);
            }
        }
        self.end += u64::from(length) + u64::from(bytes);
        self.parts.push(Cow::Owned(before_body));
        self.parts.extend(body.into_iter().map(Cow::Borrowed));
        self.number = self.number.saturating_add(1);
        if let Content::Group(last) = head.content {
            self.last = last;
        }
    }
}

/// The log of one folder.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) dir: PathBuf,
    pub(super) max_bytes: u64,
    pub(super) boot: [u8; 16],
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) batches: BTreeMap<u64, LoggedBatch>,
    pub(super) states: States,
    /// The numbers of the files that the newest record with states and the one before it name.
    pub(super) named: [BTreeSet<u64>; 2],
    /// The numbers of all files of states in the folder.
    pub(super) state_files: BTreeSet<u64>,
    /// The counts that no tick on the disk has told, by batch and destination.
    pub(super) counted: BTreeMap<(u64, Arc<str>), LoggedCount>,
    /// Losses that the start has found and counted, for the next commit to record.
    pub(super) settled: Vec<Done>,
    /// Pairs of a destination and a batch that may have been written to it before the start, for
    /// the next commit to record.
    pub(super) perhaps_written: Vec<(Arc<str>, u64)>,
    /// The destinations that may be written to.
    pub(super) writing: Vec<Arc<str>>,
    /// The next record's number.
    pub(super) number: u64,
    /// The segment that was written last.
    pub(super) last: u64,
    /// Points of the batches in the last segment so far, by destination.
    pub(super) totals: Totals,
    /// The last segment's file, if more may be written to it.
    pub(super) newest: Option<(File, Named)>,
    /// Whether a segment was removed since the folder was synced.
    pub(super) is_removal_unsynced: bool,
    /// Whether there is a reserve.
    pub(super) has_reserve: bool,
}

fn state_files(states: &States) -> StateFiles {
    states.iter().map(|(name, (file, _))| (name.clone(), *file)).collect()
}

fn frames_bytes(append: &[&AppendedBatch]) -> u64 {
    let frames = append.iter().flat_map(|kept| kept.frames.iter());
    let size: usize = frames.map(|frame| frame.body.len()).sum();
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// Makes one group for each batch. All other changes are in the group of the newest batch, which
/// has the counts that are told, or in a group of their own.
fn make_groups(append: &[&AppendedBatch], rest: Group) -> Vec<Group> {
    let millis = |pushed: Moment| u64::try_from(pushed.boot.as_millis()).unwrap_or(u64::MAX);
    let batch_head = |kept: &&AppendedBatch| BatchHead {
        id: kept.id,
        timestamp: kept.timestamp,
        pushed: kept.pushed.map(|pushed| (millis(pushed), pushed.wall)),
        due: kept.due.clone(),
        frames: kept.frames.iter().map(|frame| FrameHead::new(kept.id, frame)).collect(),
    };
    let mut batches: Vec<_> = append.iter().map(batch_head).collect();
    let newest = Group { batch: batches.pop(), ..rest };
    let others = batches.into_iter().map(|batch| Group { batch: Some(batch), ..Group::default() });
    others.chain(Some(newest).filter(|newest| !newest.is_empty())).collect()
}

/// The largest size of a segment for this `max_bytes`.
pub(crate) fn segment_bytes(max_bytes: u64) -> u64 {
    (max_bytes / 8).min(MOST_SEGMENT)
}

impl Log {
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
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
                // First the reserve, if it was used: without it no count could leave the last
                // segment.
                self.keep_reserve();
                if !self.counted.is_empty() && !self.has_reserve {
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

    /// Writes the changes with one write and one sync, and then removes the segments in `gone`;
    /// with `None` those that [`Log::leaving`] names. Returns the batches that were removed with
    /// them.
    pub(super) fn write_changes(
        &mut self,
        changes: &Changes,
        finished: &BTreeSet<u64>,
        gone: Option<Vec<u64>>,
    ) -> Result<Vec<u64>, StoreError> {
        let append: Vec<_> = changes.append.iter().filter(|kept| !kept.due.is_empty()).collect();
        let size = frames_bytes(&append);
        // First: if a state is refused, the newest segment may still be written to.
        let states = self.write_states(&changes.states)?;
        let (segment, before, newest) = self.choose_segment(size);
        let gone = gone.unwrap_or_else(|| self.leaving(segment, size, finished));
        let appended = self.number_batches(&append, segment);
        let dropped = self.dropped(&appended, finished, &gone);
        let rest = Group {
            batch: None,
            done: self.done(&appended, changes, &dropped),
            counted: self.counted(changes, &dropped, &gone),
            written: self.written(&appended, changes, newest.is_none()),
            states: self.named_files(states.as_ref(), &gone),
        };
        let groups = make_groups(&append, rest);
        if groups.is_empty() {
            // There is no segment without a record. What was done may have left without one.
            self.newest = newest;
            let synced = if self.is_removal_unsynced { self.sync_folder() } else { Ok(()) };
            synced.map_err(|source| StoreError::Io { path: self.dir.clone(), source })?;
            self.remove(&gone);
            return Ok(dropped);
        }
        let is_new = newest.is_none();
        let mut commit = Commit {
            segment,
            end: before,
            number: self.number,
            totals: self.totals.clone(),
            parts: Vec::new(),
            appended,
            last: Group::default(),
        };
        if is_new {
            commit.begin_segment(self);
        }
        for (nth, group) in groups.into_iter().enumerate() {
            commit.add_group(group, append.get(nth).copied());
        }
        self.newest =
            Some(self.write(newest, (segment, before), &commit.parts, states.as_ref())?);
        self.register(commit);
        if is_new {
            self.name_states();
        }
        if let Some(states) = states {
            self.states = states;
            self.name_states();
        }
        self.remove_unnamed();
        self.remove(&gone);
        Ok(dropped)
    }

    /// The segment for a commit of `size` bytes, its length before it, and its file unless it is
    /// new.
    fn choose_segment(&mut self, size: u64) -> (u64, u64, Option<(File, Named)>) {
        let before = self.segments.get(&self.last).map_or(0, |segment| segment.bytes);
        let most = segment_bytes(self.max_bytes);
        match self.newest.take().filter(|_| before.saturating_add(size) <= most) {
            Some(newest) => (self.last, before, Some(newest)),
            None => (self.number, 0, None),
        }
    }

    /// The batches with the numbers of their records. Their offsets are known only when they are
    /// encoded.
    fn number_batches(
        &self,
        append: &[&AppendedBatch],
        segment: u64,
    ) -> BTreeMap<u64, LoggedBatch> {
        let numbered = append.iter().zip(0..).map(|(kept, nth)| {
            let logged = LoggedBatch {
                segment,
                number: self.number.saturating_add(nth),
                points: points(&kept.frames),
                due: kept.due.clone(),
                ..LoggedBatch::default()
            };
            (kept.id, logged)
        });
        numbered.collect()
    }

    /// The files of states that this commit names, if it names any: those of `new`, or those of all
    /// states if the newest segment leaves, because nothing else would name them.
    fn named_files(&self, new: Option<&States>, gone: &[u64]) -> Option<StateFiles> {
        let is_named = !gone.contains(&self.last) || self.states.is_empty();
        new.or((!is_named).then_some(&self.states)).map(state_files)
    }

    /// Takes over into memory what a commit has written to the disk.
    fn register(&mut self, commit: Commit<'_>) {
        let Commit { segment, end, number, totals, appended, last, .. } = commit;
        self.number = number;
        self.last = segment;
        self.totals = totals;
        self.segments.entry(segment).or_default().bytes = end;
        self.settled.clear();
        self.perhaps_written.clear();
        appended.into_iter().for_each(|(id, logged)| self.keep(id, logged));
        last.done.iter().for_each(|done| self.finish(done));
        for Counted { to, id, points, why } in last.counted {
            let count = LoggedCount { segment: Some(segment), points, why };
            self.counted.insert((id, to), count);
        }
        if let Some(Written { ids, writing, .. }) = last.written {
            self.writing = writing;
            for (to, id) in ids {
                self.batches.entry(id).and_modify(|logged| logged.written.push(to));
            }
        }
    }

    /// The batches that are lost with the segments in `gone`.
    fn dropped(
        &self,
        appended: &BTreeMap<u64, LoggedBatch>,
        finished: &BTreeSet<u64>,
        gone: &[u64],
    ) -> Vec<u64> {
        let is_dropped = |(id, logged): &(&u64, &LoggedBatch)| {
            gone.contains(&logged.segment) && !appended.contains_key(id) && !finished.contains(id)
        };
        let dropped = self.batches.iter().filter(|_| !gone.is_empty()).filter(is_dropped);
        dropped.map(|(&id, _)| id).collect()
    }

    /// The counts that this commit records: of what is lost with the changes and with the batches
    /// in `dropped`, and those in the segments in `gone`, as far as they are open.
    fn counted(&self, changes: &Changes, dropped: &[u64], gone: &[u64]) -> Vec<Counted> {
        let leaves = |segment: Option<u64>| segment.is_none_or(|segment| gone.contains(&segment));
        let copied = self.counted.iter().filter(|(_, its)| leaves(its.segment));
        let copied = copied.filter(|((id, _), _)| !changes.forget.contains(id));
        let mut counted: Vec<_> = copied.map(|((id, to), its)| its.of_batch(*id, to)).collect();
        for (&id, logged) in dropped.iter().filter_map(|id| self.batches.get_key_value(id)) {
            let is_written =
                |to| logged.written.contains(to) || logged.perhaps_written.contains(to);
            counted.extend(logged.due.iter().map(|to| {
                let why = if is_written(to) { Why::Unproved } else { Why::Full };
                Counted { to: Arc::clone(to), id, points: logged.points, why }
            }));
        }
        counted.extend(changes.counted.iter().cloned());
        // What was told or proved in the meantime is over.
        let over: BTreeSet<_> = changes.done.iter().chain(&changes.told).collect();
        counted.retain(|its| !over.contains(&(Arc::clone(&its.to), its.id)));
        counted
    }

    /// The record of writes for this commit; `None`: nothing has changed, and no new segment needs
    /// it.
    fn written(
        &self,
        appended: &BTreeMap<u64, LoggedBatch>,
        changes: &Changes,
        is_new: bool,
    ) -> Option<Written> {
        let is_due = |(to, id): &&(Arc<str>, u64)| {
            let logged = appended.get(id).or_else(|| self.batches.get(id));
            logged.is_some_and(|logged| logged.due.contains(to))
        };
        let ids: Vec<_> = changes.written.iter().filter(is_due).cloned().collect();
        let perhaps_written: Vec<_> = self.perhaps_written.iter().filter(is_due).cloned().collect();
        let writing = changes.writing.clone().unwrap_or_else(|| self.writing.clone());
        let is_recorded = !is_new || writing.is_empty();
        let is_same = ids.is_empty() && perhaps_written.is_empty() && writing == self.writing;
        (!is_same || !is_recorded).then_some(Written { ids, perhaps_written, writing })
    }

    /// Writes new states to files of their own, which are on the disk before a record names them.
    /// Returns all states; `None`: as before.
    fn write_states(
        &mut self,
        new: &BTreeMap<String, Arc<[u8]>>,
    ) -> Result<Option<States>, StoreError> {
        if new.is_empty() {
            return Ok(None);
        }
        let mut states = self.states.clone();
        let mut made = Vec::new();
        for (name, bytes) in new {
            if bytes.is_empty() {
                states.remove(name);
                continue;
            }
            let number = self.state_files.last().map_or(1, |last| last.saturating_add(1));
            let path = folder::state(&self.dir, number);
            let written = disk::create(&path).and_then(|file| {
                made.push(number);
                self.state_files.insert(number);
                disk::write(&file, &[Cow::Borrowed(bytes)])?;
                disk::sync(&file)
            });
            if let Err(source) = written {
                return Err(self.refuse_states(made, path, source));
            }
            let sum = crc32fast::hash(bytes);
            states.insert(name.clone(), (StateFile { number, sum }, Arc::clone(bytes)));
        }
        match self.sync_folder() {
            Ok(()) => Ok(Some(states)),
            Err(source) => Err(self.refuse_states(made, self.dir.clone(), source)),
        }
    }

    /// Removes new files of states that no record names, because they may fill the disk. Returns
    /// the error.
    fn refuse_states(&mut self, made: Vec<u64>, path: PathBuf, source: io::Error) -> StoreError {
        made.into_iter().for_each(|number| self.remove_state(number));
        StoreError::Io { path, source }
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        disk::sync(&File::open(&self.dir)?)?;
        self.is_removal_unsynced = false;
        Ok(())
    }

    fn remove_state(&mut self, number: u64) {
        if disk::remove(&folder::state(&self.dir, number)).is_ok() {
            self.state_files.remove(&number);
        }
    }

    /// Notes that the newest record names the states as they are.
    fn name_states(&mut self) {
        let [newest, before] = &mut self.named;
        let files = self.states.values().map(|(file, _)| file.number);
        *before = std::mem::replace(newest, files.collect());
    }

    /// Removes the files of states that neither the newest record with states names nor the one
    /// before: one of the two may be damaged.
    pub(super) fn remove_unnamed(&mut self) {
        let needed: BTreeSet<u64> = self.named.iter().flatten().copied().collect();
        let gone: Vec<u64> = self.state_files.difference(&needed).copied().collect();
        gone.into_iter().for_each(|number| self.remove_state(number));
    }

    /// Appends `parts` to the file `newest`, whose segment has `before` bytes, or writes a new
    /// segment. Syncs what was written.
    fn write(
        &mut self,
        newest: Option<(File, Named)>,
        (segment, before): (u64, u64),
        parts: &[Cow<'_, [u8]>],
        states: Option<&States>,
    ) -> Result<(File, Named), StoreError> {
        let (path, is_new) = (folder::segment(&self.dir, segment), newest.is_none());
        let create = || {
            let file = disk::create(&path)?;
            let named = Named::new(&file, &path)?;
            Ok((file, named))
        };
        let new = states.into_iter().flat_map(States::values).map(|(file, _)| file.number);
        let is_old = |number: &u64| self.states.values().any(|(file, _)| file.number == *number);
        let new: Vec<u64> = new.filter(|number| !is_old(number)).collect();
        let newest = match newest.map_or_else(create, Ok) {
            Ok(newest) => newest,
            Err(source) => return Err(self.refuse_states(new, path, source)),
        };
        let written = disk::write(&newest.0, parts);
        let is_torn = written.is_err();
        // On a full disk batches may have left without a record.
        let has_names = is_new || self.is_removal_unsynced;
        let synced = written.and_then(|()| disk::sync(&newest.0)).and_then(|()| match has_names {
            true => self.sync_folder(),
            false => Ok(()),
        });
        let Err(source) = synced else { return Ok(newest) };
        // Nothing in a new segment counts. A torn end is cut off; after a sync that failed nobody
        // knows what is there. A full disk may take more of it later; what else was refused, such
        // as a file that is too large, may only concern this file.
        let is_removed = is_new && disk::remove(&path).is_ok();
        let unnamed = if is_torn || is_removed { new } else { Vec::new() };
        let error = self.refuse_states(unnamed, path.clone(), source);
        if !is_new && is_torn && disk::truncate(&newest.0, before).is_ok() {
            self.newest = Some(newest).filter(|_| error.is_full());
        } else if !is_removed && let Ok(left) = fs::metadata(&path) {
            self.segments.entry(segment).or_default().bytes = left.len();
            self.number = self.number.saturating_add(u64::from(is_new));
        }
        Err(error)
    }

    /// The records that say a batch is done, for batches that are in the log. Batches in `dropped`
    /// are over, too: a segment that cannot be removed now must not bring them back.
    fn done(
        &self,
        appended: &BTreeMap<u64, LoggedBatch>,
        changes: &Changes,
        dropped: &[u64],
    ) -> Vec<Done> {
        let find = |id: &u64| appended.get(id).or_else(|| self.batches.get(id));
        let done_batch = |to: &Arc<str>, id: u64| {
            let logged = find(&id)
                .filter(|logged| logged.due.contains(to))
                .map(|logged| (logged.number, logged.points));
            let gone = || self.counted.contains_key(&(id, Arc::clone(to))).then_some((0, 0));
            logged.or_else(gone).map(|(number, points)| Done {
                to: Arc::clone(to),
                number,
                id,
                points,
            })
        };
        // A batch that was counted is due again if its files have come back.
        let is_gone =
            |(to, id): &&(Arc<str>, u64)| find(id).is_none_or(|logged| !logged.due.contains(to));
        let done = changes.done.iter().chain(changes.told.iter().filter(is_gone));
        let done = done.filter_map(|(to, id)| done_batch(to, *id));
        let forgotten = changes.forget.iter().chain(dropped).flat_map(|&id| {
            let due = find(&id).into_iter().flat_map(|its| &its.due);
            let counted = self.counted.range((id, Arc::from(""))..);
            let counted = counted.map(|(key, _)| key).take_while(move |key| key.0 == id);
            let all: BTreeSet<_> = due.chain(counted.map(|(_, to)| to)).collect();
            all.into_iter().filter_map(move |to| done_batch(to, id)).collect::<Vec<_>>()
        });
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
        self.counted.remove(&(*id, Arc::clone(to)));
        let Some(logged) = self.batches.get_mut(id) else { return };
        logged.due.retain(|other| other != to);
        if logged.due.is_empty() {
            let finished = self.batches.remove(id);
            self.leave(finished);
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

    /// Removes segments, and forgets what is in them. A batch that is finished in a segment that
    /// stays may have no record of that yet.
    pub(super) fn remove(&mut self, gone: &[u64]) {
        for segment in gone {
            if let Err(error) = self.remove_next(*segment) {
                // What is done in it may be recorded in the next ones.
                tracing::debug!(%error, segment, "a segment of the queue cannot be removed now");
                break;
            }
            self.segments.remove(segment);
            self.batches.retain(|_, logged| logged.segment != *segment);
        }
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

    /// Reads the frames of a batch, without those that are damaged.
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
        let Content::Group(Group { batch: Some(BatchHead { frames: heads, .. }), .. }) =
            record.head.content
        else {
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
