//! Room on a full disk, which may be full of the queue itself.
//!
//! What is done is recorded by a write, so on a full disk nothing would ever leave. But a batch
//! whose record is gone counts as done. Only counts must be on the disk before what they count is
//! gone, and the reserve is the room for them: a file of zeros, removed when it is needed and made
//! again when there is room.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use super::folder::RESERVE;
use super::log::Log;
use super::{Changes, NO_BATCH, disk};

/// The size of the reserve, bytes.
const RESERVE_BYTES: u64 = 64 << 10;

impl Log {
    /// Removes segments from the front in which nothing is due once these changes are made. Returns
    /// whether there may be room now.
    pub(super) fn make_room(&mut self, changes: &Changes, finished: &BTreeSet<u64>) -> bool {
        let idle = self.idle(finished);
        let front: Vec<u64> =
            self.segments.keys().copied().take_while(|number| idle.contains(number)).collect();
        let needed = self.with_counts(changes);
        let free: Vec<u64> =
            front.iter().copied().take_while(|number| !needed.contains(number)).collect();
        if !free.is_empty() {
            return self.give_up(&free);
        }
        if front.is_empty() {
            return false;
        }
        if std::mem::take(&mut self.has_reserve) {
            let _ = disk::remove(&self.dir.join(RESERVE));
        }
        if front.contains(&self.last) {
            self.newest = None;
        }
        let is_counted = |(to, id): &&(Arc<str>, u64)| {
            let is_new = changes.counted.iter().any(|its| its.id == *id);
            is_new || self.counted.contains_key(&(*id, Arc::clone(to)))
        };
        let done = changes.done.iter().filter(is_counted).cloned().collect();
        let counts = Changes { counted: changes.counted.clone(), done, ..Changes::default() };
        self.write_changes(&counts, finished, Some(front)).is_ok()
    }

    /// The segments that must not leave before the changes are written: those with counts that the
    /// changes do not record as done, and the last one if it has to name states. Counts are told
    /// only when the changes that say so are written.
    fn with_counts(&self, changes: &Changes) -> BTreeSet<u64> {
        let proved: BTreeSet<_> = changes.done.iter().collect();
        let is_open = |to: &Arc<str>, id: u64| !proved.contains(&(Arc::clone(to), id));
        let counted = self.counted.iter().filter(|((id, to), _)| is_open(to, *id));
        let new = changes.counted.iter().filter(|its| is_open(&its.to, its.id));
        let new = new.filter_map(|its| Some(self.batches.get(&(its.id & !NO_BATCH))?.segment));
        let states = (!self.states.is_empty()).then_some(self.last);
        counted.filter_map(|(_, its)| its.segment).chain(new).chain(states).collect()
    }

    /// Removes segments without writing a record about it. Returns whether any is gone.
    fn give_up(&mut self, segments: &[u64]) -> bool {
        if segments.contains(&self.last) {
            // An open file would keep its space.
            self.newest = None;
        }
        let before = self.segments.len();
        self.remove(segments);
        self.segments.len() < before
    }

    /// Commits the losses that the start has found, on a full disk in the room of the reserve. What
    /// the disk refuses is in the next commit.
    pub(super) fn commit_losses(&mut self) {
        for _ in 0..2 {
            match self.write_changes(&Changes::default(), &BTreeSet::new(), Some(vec![])) {
                Err(error) if error.is_full() => drop(disk::remove(&self.dir.join(RESERVE))),
                _ => return,
            }
        }
    }

    /// Makes the reserve if there is none.
    pub(super) fn keep_reserve(&mut self) {
        if self.has_reserve {
            return;
        }
        let path = self.dir.join(RESERVE);
        let is_whole =
            |metadata: fs::Metadata| metadata.is_file() && metadata.len() == RESERVE_BYTES;
        self.has_reserve = fs::symlink_metadata(&path).is_ok_and(is_whole);
        if self.has_reserve {
            return;
        }
        let zeros = vec![0; usize::try_from(RESERVE_BYTES).unwrap_or(0)];
        let _ = fs::remove_file(&path);
        let written = disk::create(&path).and_then(|file| disk::write(&file, &[Cow::Owned(zeros)]));
        self.has_reserve = written.is_ok();
        if written.is_err() {
            let _ = fs::remove_file(&path);
        }
    }
}
