//! What is in the log at the start, what of it is lost, and whose it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::log::{Entry, Log, Segment};
use super::record::{self, Content, Done, Named, Record, Totals, add, total};
use super::{Restored, StoreError, Summary, disk, moved};

/// A batch that was found, with the points of the frames that are not what was written.
#[derive(Debug)]
struct Found {
    entry: Entry,
    summary: Summary,
    damaged: u64,
}

/// Records that are gone, and the points that each destination has lost with them.
#[derive(Debug)]
struct Gap {
    numbers: std::ops::Range<u64>,
    lost: Totals,
}

/// One reading of the log.
#[derive(Debug, Default)]
struct Scan {
    boot: [u8; 16],
    /// Of the segment that is read.
    boot_of_segment: Option<[u8; 16]>,
    next: u64,
    totals: Totals,
    found: BTreeMap<u64, Found>,
    gaps: Vec<Gap>,
    /// By the number of the batch's record, destination, id.
    done: BTreeMap<(u64, u64, u64), u64>,
    states: BTreeMap<String, (u64, Arc<[u8]>)>,
    evicted: BTreeMap<(u64, u64), (u64, u64)>,
    destinations: Vec<Named<Arc<str>>>,
    /// The last record of all, where it is not whole: as after a power cut.
    torn: Vec<Done>,
}

impl Log {
    /// Reads the log in `dir`. With `anyway` what the disk refuses to read counts as damaged.
    pub(super) fn open(
        dir: &Path,
        max_bytes: u64,
        names: &[Arc<str>],
        anyway: bool,
    ) -> Result<(Self, Restored), StoreError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { path, source }
        };
        let numbers = disk::segments(dir).map_err(io(dir))?;
        let mut scan = Scan { boot: disk::boot(), ..Scan::default() };
        let (mut segments, mut last) = (BTreeMap::new(), None);
        for (index, &segment) in numbers.iter().enumerate() {
            let path = disk::segment(dir, segment);
            let bytes = disk::read(&path, anyway).map_err(io(&path))?;
            let limit = numbers.get(index + 1).copied();
            let newer = |version| StoreError::Newer { path: path.clone(), version };
            scan.segment(segment, last, limit, &bytes).map_err(newer)?;
            segments
                .insert(segment, Segment { bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX), due: 0 });
            last = Some(segment);
        }
        // A segment may be there without a record.
        let number = scan.next.max(last.map_or(1, |last| last.saturating_add(1)));
        let mut log = Self {
            dir: dir.to_owned(),
            max_bytes,
            boot: scan.boot,
            destinations: std::mem::take(&mut scan.destinations),
            segments,
            batches: BTreeMap::new(),
            states: std::mem::take(&mut scan.states),
            evicted: BTreeMap::new(),
            settled: std::mem::take(&mut scan.torn),
            number,
            last: (last.unwrap_or(0), std::mem::take(&mut scan.totals)),
            newest: None,
            read: None,
            heads: Vec::new(),
        };
        let before: Vec<_> = log.destinations.iter().filter(|known| known.configured).collect();
        let before: Vec<Arc<str>> = before.into_iter().map(|known| Arc::clone(&known.name)).collect();
        let is_known = |name: &Arc<str>| log.destinations.iter().any(|known| known.name == *name);
        let moved = moved(&before, names, is_known);
        log.configure(names, moved.as_ref(), max_bytes);
        let restored = log.take(scan);
        Ok((log, Restored { moved, ..restored }))
    }

    /// Takes over what was found, and counts what is lost.
    fn take(&mut self, scan: Scan) -> Restored {
        let states = self.states.iter().map(|(name, (_, bytes))| (name.clone(), Arc::clone(bytes))).collect();
        let damaged = scan.gaps.iter().map(|gap| gap.numbers.end.saturating_sub(gap.numbers.start)).sum();
        let mut restored = Restored { states, damaged, ..Restored::default() };
        let configured = self.destinations.iter().filter(|known| known.configured);
        let everybody: Vec<u64> = configured.map(|known| known.key).collect();
        // What is of a destination without a name goes to all: sending twice does less harm than a loss.
        let whose = |keys: &mut Vec<u64>| {
            if keys.iter().any(|key| !self.destinations.iter().any(|known| known.key == *key)) {
                keys.extend(&everybody);
                keys.retain(|key| self.destinations.iter().any(|known| known.key == *key));
                keys.sort_unstable();
                keys.dedup();
            }
        };
        let mut lost = Totals::new();
        let mut settled = Vec::new();
        let counted = |key, number| scan.done.get(&(number, key, 0)).copied().unwrap_or(0);
        for Gap { numbers, lost: in_gap } in &scan.gaps {
            for &(key, points) in in_gap {
                let done = scan.done.range((numbers.start, 0, 0)..(numbers.end, 0, 0));
                let done: u64 =
                    done.filter(|((_, other, _), _)| *other == key).map(|(_, points)| points).sum();
                let points = points.saturating_sub(done);
                if points > 0 {
                    settled.push(Done { key, number: numbers.start, id: 0, points });
                    let mut keys = vec![key];
                    whose(&mut keys);
                    keys.into_iter().for_each(|key| add(&mut lost, key, points));
                }
            }
        }
        let mut batches = BTreeMap::new();
        for (id, Found { mut entry, summary, damaged }) in scan.found {
            whose(&mut entry.due);
            for &key in entry.due.iter().filter(|_| damaged > 0) {
                let points = damaged.saturating_sub(counted(key, entry.number));
                if points > 0 {
                    restored.damaged = restored.damaged.saturating_add(1);
                    settled.push(Done { key, number: entry.number, id: 0, points });
                    add(&mut lost, key, points);
                }
                if summary.points == 0 {
                    settled.push(Done { key, number: entry.number, id, points: 0 });
                }
            }
            if summary.points > 0 && !entry.due.is_empty() {
                batches.insert(id, (entry, summary));
            }
        }
        let mut unproved = Totals::new();
        for (&(key, id), &(_, points)) in &scan.evicted {
            settled.push(Done { key, number: 0, id, points: 0 });
            add(&mut unproved, key, points);
        }
        self.settled.extend(settled);
        let named = |points: Totals| {
            let name = |key| self.destinations.iter().find(|known| known.key == key);
            let named =
                points.into_iter().filter_map(|(key, points)| Some((Arc::clone(&name(key)?.name), points)));
            named.collect()
        };
        (restored.lost, restored.unproved) = (named(lost), named(unproved));
        for (id, (entry, summary)) in batches {
            let due =
                entry.due.iter().filter_map(|key| self.destinations.iter().find(|known| known.key == *key));
            restored.due.extend(due.map(|known| (Arc::clone(&known.name), id)));
            restored.batches.insert(id, summary);
            self.keep(id, entry);
        }
        restored
    }
}

impl Scan {
    /// Reads the next segment. `before`: the one that was read last; `limit`: where the one behind it begins.
    fn segment(
        &mut self,
        segment: u64,
        before: Option<u64>,
        limit: Option<u64>,
        bytes: &[u8],
    ) -> Result<(), u8> {
        let (end, totals) = (self.next, std::mem::take(&mut self.totals));
        self.next = segment;
        self.boot_of_segment = None;
        let mut records = record::records(bytes).peekable();
        while let Some(record) = records.next() {
            let record = record?;
            if let Content::Begin { previous, boot, destinations } = record.content {
                self.boot_of_segment = Some(boot);
                self.destinations = destinations
                    .into_iter()
                    .map(|Named { key, configured, name }| Named { key, configured, name: Arc::from(name) })
                    .collect();
                if let Some(before) = before {
                    // Of the one before, and of that alone, it knows how much there was.
                    let had = if previous == before { totals.as_slice() } else { &[] };
                    self.gap(end..segment, &record.totals, had);
                }
                continue;
            }
            if record.number < self.next || limit.is_some_and(|limit| record.number >= limit) {
                continue;
            }
            if record.number > self.next {
                let had = std::mem::take(&mut self.totals);
                self.gap(self.next..record.number, &record.totals, &had);
            }
            self.next = record.number.saturating_add(1);
            self.totals.clone_from(&record.totals);
            let is_last = limit.is_none() && records.peek().is_none();
            self.record(segment, record, is_last);
        }
        Ok(())
    }

    fn gap(&mut self, numbers: std::ops::Range<u64>, there_were: &[(u64, u64)], there_are: &[(u64, u64)]) {
        let lost =
            there_were.iter().map(|&(key, points)| (key, points.saturating_sub(total(there_are, key))));
        let lost: Totals = lost.filter(|(_, points)| *points > 0).collect();
        if !lost.is_empty() || !numbers.is_empty() {
            self.gaps.push(Gap { numbers, lost });
        }
    }

    fn record(&mut self, segment: u64, record: Record<'_>, is_last: bool) {
        let Record { offset, head, number, content, mut body, .. } = record;
        match content {
            Content::Begin { .. } => {}
            Content::Batch { id, timestamp, pushed, due, frames } => {
                let pushed = (self.boot_of_segment == Some(self.boot)).then_some(pushed);
                let mut summary = Summary { timestamp, pushed, ..Summary::default() };
                let mut damaged = 0;
                for frame in frames {
                    let length = usize::try_from(frame.bytes).unwrap_or(usize::MAX).min(body.len());
                    let (its, rest) = body.split_at_checked(length).unwrap_or_default();
                    body = rest;
                    if frame.fits(id, its) {
                        summary.points = summary.points.saturating_add(frame.points.into());
                        summary.bytes = summary.bytes.saturating_add(its.len());
                    } else {
                        damaged += u64::from(frame.points);
                    }
                }
                let points = summary.points.saturating_add(damaged);
                due.iter().for_each(|&key| add(&mut self.totals, key, points));
                if is_last && damaged > 0 {
                    self.torn = due.into_iter().map(|key| Done { key, number, id, points }).collect();
                    return;
                }
                let entry = Entry { segment, offset, head, number, points: summary.points, due };
                self.found.insert(id, Found { entry, summary, damaged });
            }
            Content::Done(entries) => {
                for Done { key, number, id, points } in entries {
                    self.done.insert((number, key, id), points);
                    self.evicted.remove(&(key, id));
                    if let Some(found) = self.found.get_mut(&id) {
                        found.entry.due.retain(|other| *other != key);
                    }
                }
            }
            Content::State { name, sum } if crc32fast::hash(body) == sum => {
                self.states.insert(name.to_owned(), (segment, Arc::from(body)));
            }
            Content::State { .. } if is_last => {}
            Content::State { .. } => self.gaps.push(Gap { numbers: number..self.next, lost: Totals::new() }),
            Content::Evicted(entries) => {
                self.evicted
                    .extend(entries.into_iter().map(|(key, id, points)| ((key, id), (segment, points))));
            }
        }
    }
}
