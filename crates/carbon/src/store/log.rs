//! The log: what it has, one commit after the other, and what goes from its front.
//!
//! Only the newest segment is written, and after an error never again: the next commit begins another, with all that it needs
//! from memory. A segment goes when nothing of it is due; or the oldest goes with what is due, to keep `max_bytes`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::record::{self, Content, Done, Named, Records, Totals};
use super::{Changes, Kept, StoreError, disk};
use crate::path::fnv1a;
use crate::wire::Frame;

/// The largest segment, but for one commit that is larger.
const MOST_SEGMENT: u64 = 4 << 20;
/// Memory for heads that is kept from one commit to the next.
const MOST_HEADS: usize = 64 << 10;

/// A batch in the log.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) head: u32,
    pub(super) number: u64,
    pub(super) points: u64,
    /// The keys of the destinations that are not done with it.
    pub(super) due: Vec<u64>,
}

/// A segment: its bytes, and how many batches in it are due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) bytes: u64,
    pub(super) due: usize,
}

/// The segment that is being written.
#[derive(Debug)]
pub(super) struct Newest {
    segment: u64,
    file: File,
    totals: Totals,
}

/// The log of one folder.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) dir: PathBuf,
    pub(super) max_bytes: u64,
    pub(super) boot: [u8; 16],
    pub(super) destinations: Vec<Named<Arc<str>>>,
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) batches: BTreeMap<u64, Entry>,
    /// The newest of each name, with its segment.
    pub(super) states: BTreeMap<String, (u64, Arc<[u8]>)>,
    /// By destination and id: segment, points.
    pub(super) evicted: BTreeMap<(u64, u64), (u64, u64)>,
    /// What the next commit says besides of what was found at the start.
    pub(super) settled: Vec<Done>,
    /// The next record's number.
    pub(super) number: u64,
    /// The segment that was written last, and its totals at its end.
    pub(super) last: (u64, Totals),
    pub(super) newest: Option<Newest>,
    pub(super) read: Option<(u64, File)>,
    pub(super) heads: Vec<u8>,
}

impl Log {
    fn segment_bytes(&self) -> u64 {
        (self.max_bytes / 8).min(MOST_SEGMENT)
    }

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// These destinations are configured from now on, and `moved` has another name.
    pub(super) fn configure(
        &mut self,
        names: &[Arc<str>],
        moved: Option<&(Arc<str>, Arc<str>)>,
        max_bytes: u64,
    ) {
        self.max_bytes = max_bytes;
        if let Some((from, to)) = moved
            && let Some(destination) = self.destinations.iter_mut().find(|known| known.name == *from)
        {
            destination.name = Arc::clone(to);
        }
        for destination in &mut self.destinations {
            destination.configured = names.contains(&destination.name);
        }
        for name in names {
            self.key(name);
        }
        // The next one begins with their names.
        self.newest = None;
    }

    /// The key of a destination.
    fn key(&mut self, name: &Arc<str>) -> u64 {
        if let Some(known) = self.destinations.iter().find(|known| known.name == *name) {
            return known.key;
        }
        let mut key = fnv1a(name);
        while self.destinations.iter().any(|known| known.key == key) {
            key = key.wrapping_add(1);
        }
        self.destinations.push(Named { key, configured: true, name: Arc::clone(name) });
        self.newest = None;
        key
    }

    /// Makes the changes durable: one write, one sync. Returns the batches that went to make room.
    pub(super) fn commit(&mut self, changes: &Changes) -> Result<Vec<u64>, StoreError> {
        let due: Vec<Vec<u64>> =
            changes.append.iter().map(|kept| kept.due.iter().map(|name| self.key(name)).collect()).collect();
        let done: Vec<(u64, u64)> = changes.done.iter().map(|(name, id)| (self.key(name), *id)).collect();
        let evicted: Vec<_> =
            changes.evicted.iter().map(|(name, id, points)| (self.key(name), *id, *points)).collect();
        let bodies = changes.append.iter().flat_map(|kept| kept.frames.iter()).map(|frame| frame.body.len());
        let states = changes.states.values().map(|bytes| bytes.len());
        let size = u64::try_from(bodies.chain(states).sum::<usize>()).unwrap_or(u64::MAX);
        let newest = self.newest.take();
        let bytes = newest.as_ref().and_then(|newest| self.segments.get(&newest.segment));
        let bytes = bytes.map_or(0, |segment| segment.bytes);
        let newest = newest.filter(|_| bytes.saturating_add(size) <= self.segment_bytes());
        let segment = newest.as_ref().map_or(self.number, |newest| newest.segment);
        let gone = self.leaving(segment, size);
        let mut records = Records {
            heads: std::mem::take(&mut self.heads),
            bodies: Vec::new(),
            number: self.number,
            totals: newest.as_ref().map_or_else(|| self.last.1.clone(), |newest| newest.totals.clone()),
            bytes: newest.as_ref().map_or(0, |_| bytes),
        };
        records.heads.clear();
        if newest.is_none() {
            self.forget_destinations(&due);
            records.begin(self.last.0, self.boot, &self.destinations);
        }
        let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
        for (kept, due) in changes.append.iter().zip(due).filter(|(_, due)| !due.is_empty()) {
            let (points, number) = (kept.points(), records.number);
            let (offset, head) = records.batch(kept, &due, points);
            entries.insert(kept.id, Entry { segment, offset, head, number, points, due });
        }
        let done = self.done(&entries, &done, &changes.forget);
        if !done.is_empty() {
            records.done(&done);
        }
        let copied = |from: &u64| gone.contains(from);
        let copies: Vec<_> = self.states.iter().filter(|(_, (from, _))| copied(from)).collect();
        let copies = copies.into_iter().filter(|(name, _)| !changes.states.contains_key(*name));
        let mut states: Vec<(String, Arc<[u8]>)> =
            copies.map(|(name, (_, bytes))| (name.clone(), Arc::clone(bytes))).collect();
        states.extend(changes.states.iter().map(|(name, bytes)| (name.clone(), Arc::clone(bytes))));
        states.iter().for_each(|(name, bytes)| records.state(name, bytes));
        let copies = self.evicted.iter().filter(|(_, (from, _))| copied(from));
        let copies = copies.map(|(&(key, id), &(_, points))| (key, id, points));
        let is_done = |key, id| done.iter().any(|done| (done.key, done.id) == (key, id));
        let evicted: Vec<_> = copies.filter(|&(key, id, _)| !is_done(key, id)).chain(evicted).collect();
        if !evicted.is_empty() {
            records.evicted(&evicted);
        }
        let written = self.write(newest, segment, &records);
        let Records { mut heads, number, totals, bytes, .. } = records;
        heads.shrink_to(MOST_HEADS);
        self.heads = heads;
        let newest = written?;
        (self.number, self.last) = (number, (segment, totals.clone()));
        self.newest = Some(Newest { totals, ..newest });
        self.segments.entry(segment).or_default().bytes = bytes;
        entries.into_iter().for_each(|(id, entry)| self.keep(id, entry));
        self.settled.clear();
        done.into_iter().for_each(|done| self.finish(done));
        self.states.extend(states.into_iter().map(|(name, bytes)| (name, (segment, bytes))));
        self.evicted.extend(evicted.into_iter().map(|(key, id, points)| ((key, id), (segment, points))));
        Ok(self.remove(&gone))
    }

    /// Writes them behind `newest`, or to a segment of their own.
    fn write(
        &mut self,
        newest: Option<Newest>,
        segment: u64,
        records: &Records<'_>,
    ) -> Result<Newest, StoreError> {
        let path = disk::segment(&self.dir, segment);
        let is_new = newest.is_none();
        let write = || {
            let newest = match newest {
                Some(newest) => newest,
                None => {
                    let file = File::options().append(true).create_new(true).open(&path)?;
                    Newest { segment, file, totals: Totals::new() }
                }
            };
            disk::write(&newest.file, &records.heads, &records.bodies)?;
            disk::sync(&newest.file)?;
            if is_new {
                disk::sync(&File::open(&self.dir)?)?;
            }
            Ok(newest)
        };
        let written: io::Result<Newest> = write();
        written.map_err(|source| {
            let left = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            // Nothing counts that is in a new one.
            if !is_new || fs::remove_file(&path).is_err() {
                self.segments.entry(segment).or_default().bytes = left;
                self.number = self.number.saturating_add(u64::from(is_new));
            }
            StoreError::Io { path, source }
        })
    }

    /// What a commit says is done, as far as the log has it.
    fn done(&self, appended: &BTreeMap<u64, Entry>, done: &[(u64, u64)], forget: &[u64]) -> Vec<Done> {
        let find = |id: u64| appended.get(&id).or_else(|| self.batches.get(&id));
        let entry = |id: u64, key: u64| {
            let entry = find(id).filter(|entry| entry.due.contains(&key));
            let entry = entry.map(|entry| Done { key, number: entry.number, id, points: entry.points });
            let gone =
                || self.evicted.contains_key(&(key, id)).then_some(Done { key, number: 0, id, points: 0 });
            entry.or_else(gone)
        };
        let forgotten = forget.iter().flat_map(|&id| {
            let due = find(id).map_or(&[][..], |entry| &entry.due);
            due.iter().map(move |&key| (key, id))
        });
        let told = done.iter().copied().chain(forgotten).filter_map(|(key, id)| entry(id, key));
        self.settled.iter().copied().chain(told).collect()
    }

    /// A batch is in the log, and no copy of it counts that was before.
    pub(super) fn keep(&mut self, id: u64, entry: Entry) {
        self.segments.entry(entry.segment).or_default().due += 1;
        let before = self.batches.insert(id, entry);
        self.leave(before);
    }

    fn leave(&mut self, entry: Option<Entry>) {
        if let Some(segment) = entry.and_then(|entry| self.segments.get_mut(&entry.segment)) {
            segment.due = segment.due.saturating_sub(1);
        }
    }

    /// A destination is done with a batch.
    pub(super) fn finish(&mut self, Done { key, id, .. }: Done) {
        self.evicted.remove(&(key, id));
        let Some(entry) = self.batches.get_mut(&id) else { return };
        entry.due.retain(|other| *other != key);
        if entry.due.is_empty() {
            let entry = self.batches.remove(&id);
            self.leave(entry);
        }
    }

    /// The segments that go with a commit of `size` bytes to `segment`: from the front, as long as nothing in them is due or
    /// there would be too much otherwise. As much as the next commit may take stays free.
    fn leaving(&self, segment: u64, size: u64) -> Vec<u64> {
        let bound = self.max_bytes.saturating_sub(self.segment_bytes().max(size));
        let mut bytes = self.bytes().saturating_add(size);
        let mut gone = Vec::new();
        for (&front, its) in self.segments.range(..segment) {
            if bytes <= bound && its.due > 0 {
                break;
            }
            bytes = bytes.saturating_sub(its.bytes);
            gone.push(front);
        }
        gone
    }

    /// Removes segments, and returns what was due in them.
    fn remove(&mut self, gone: &[u64]) -> Vec<u64> {
        let mut dropped = Vec::new();
        for segment in gone {
            match fs::remove_file(disk::segment(&self.dir, *segment)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::debug!(%error, segment, "a segment of the queue cannot be removed now");
                }
                _ => drop(self.segments.remove(segment)),
            }
        }
        if !gone.is_empty() {
            let due = self.batches.iter().filter(|(_, entry)| gone.contains(&entry.segment));
            dropped.extend(due.map(|(&id, _)| id));
            dropped.iter().for_each(|id| drop(self.batches.remove(id)));
        }
        dropped
    }

    /// Nothing is left for these, and they are configured no longer.
    fn forget_destinations(&mut self, appended: &[Vec<u64>]) {
        let is_due = |key| {
            appended.iter().any(|due| due.contains(&key))
                || self.batches.values().any(|entry| entry.due.contains(&key))
                || self.evicted.keys().any(|(other, _)| *other == key)
        };
        let mut destinations = std::mem::take(&mut self.destinations);
        destinations.retain(|known| known.configured || is_due(known.key));
        self.destinations = destinations;
    }

    /// The frames of a batch; what can be read of them `anyway`, whatever the disk says of the others.
    pub(super) fn load(&mut self, id: u64, anyway: bool) -> Result<Arc<[Frame]>, StoreError> {
        let Entry { segment, offset, head, .. } = *self.batches.get(&id).ok_or(StoreError::Gone)?;
        let path = disk::segment(&self.dir, segment);
        let io = |source: io::Error| match source.kind() {
            ErrorKind::NotFound | ErrorKind::UnexpectedEof => StoreError::Damaged { path: path.clone() },
            _ => StoreError::Io { path: path.clone(), source },
        };
        let damaged = || StoreError::Damaged { path: path.clone() };
        let file = match self.read.take().filter(|(read, _)| *read == segment) {
            Some((_, file)) => file,
            None => File::open(&path).map_err(io)?,
        };
        let mut bytes = vec![0; usize::try_from(head).unwrap_or(0)];
        let read = file.read_exact_at(&mut bytes, offset);
        read.map_err(|error| if anyway { damaged() } else { io(error) })?;
        let record = record::first(&bytes).ok_or_else(damaged)?;
        let Content::Batch { id: found, frames: heads, .. } = record.content else { return Err(damaged()) };
        let mut at = offset.saturating_add(head.into());
        let mut frames = Vec::with_capacity(heads.len());
        for head in heads.iter().filter(|_| found == id) {
            let mut body = vec![0; usize::try_from(head.bytes).unwrap_or(0)];
            match file.read_exact_at(&mut body, at) {
                Err(error) if !anyway && error.kind() != ErrorKind::UnexpectedEof => return Err(io(error)),
                Ok(()) if head.fits(id, &body) => frames.push(Frame { points: head.points, body }),
                _ => {}
            }
            at = at.saturating_add(head.bytes.into());
        }
        self.read = Some((segment, file));
        if frames.is_empty() { Err(damaged()) } else { Ok(frames.into()) }
    }
}

impl Kept {
    fn points(&self) -> u64 {
        crate::wire::points(&self.frames)
    }
}
