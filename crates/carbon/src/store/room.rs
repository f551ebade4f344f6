//! Room on a full disk, which may be full of the queue itself.
//!
//! What is done is recorded by a write, so on a full disk nothing would ever leave. But a batch
//! whose record is gone counts as done. Only what is copied when a segment leaves (store.rs) must
//! be written first, and the reserve is the room for that: a file of zeros, removed when it is
//! needed and made again when there is room.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;

use super::folder::RESERVE;
use super::log::Log;
use super::{Changes, disk};

/// What the reserve has in addition to the size of all states.
const RESERVE_BYTES: u64 = 64 << 10;

impl Log {
    /// Removes segments from the front in which nothing is due once these changes are made. Returns
    /// whether there may be room now.
    pub(super) fn make_room(&mut self, changes: &Changes, finished: &BTreeSet<u64>) -> bool {
        let idle = self.idle(finished);
        let front: Vec<u64> =
            self.segments.keys().copied().take_while(|number| idle.contains(number)).collect();
        let needed = self.with_last_copies(changes);
        let free: Vec<u64> =
            front.iter().copied().take_while(|number| !needed.contains(number)).collect();
        if !free.is_empty() {
            return self.give_up(&free);
        }
        if front.is_empty() {
            return false;
        }
        if self.reserve.take().is_some() {
            let _ = disk::remove(&self.dir.join(RESERVE));
        }
        if front.contains(&self.last) {
            self.newest = None;
        }
        self.write_changes(&Changes::default(), finished, Some(front)).is_ok()
    }

    /// Segments that have the newest copy of a state, or of an evicted batch that these changes do
    /// not prove.
    fn with_last_copies(&self, changes: &Changes) -> BTreeSet<u64> {
        let proved: BTreeSet<_> = changes.done.iter().collect();
        let evicted = self.evicted.iter().filter(|(batch, _)| !proved.contains(batch));
        let states = self.states.values().map(|(segment, _)| *segment);
        states.chain(evicted.map(|(_, (segment, _))| *segment)).collect()
    }

    /// Removes segments without a record. Returns whether any is gone.
    fn give_up(&mut self, segments: &[u64]) -> bool {
        if segments.contains(&self.last) {
            // An open file would keep its space.
            self.newest = None;
        }
        let before = self.segments.len();
        // Nobody needs the batches in them.
        self.remove(segments);
        self.evicted.retain(|_, (segment, _)| !segments.contains(segment));
        self.segments.len() < before
    }

    /// Makes the reserve if there is none, or if it is too small for the states.
    pub(super) fn keep_reserve(&mut self) {
        let states = self.states_bytes();
        // It need not be made again for each state that grows a little.
        if self.reserve.is_some_and(|bytes| bytes >= states.saturating_add(RESERVE_BYTES / 2)) {
            return;
        }
        let (path, bytes) = (self.dir.join(RESERVE), states.saturating_add(RESERVE_BYTES));
        let is_large = |metadata: fs::Metadata| metadata.is_file() && metadata.len() == bytes;
        if self.reserve.is_none() && fs::symlink_metadata(&path).is_ok_and(is_large) {
            self.reserve = Some(bytes);
            return;
        }
        let zeros = vec![0; usize::try_from(bytes).unwrap_or(0)];
        let _ = fs::remove_file(&path);
        let written = disk::create(&path).and_then(|file| disk::write(&file, &[Cow::Owned(zeros)]));
        self.reserve = written.is_ok().then_some(bytes);
        if written.is_err() {
            let _ = fs::remove_file(&path);
        }
    }
}
