//! What a start must find, and what it may. It follows from what was asked of the log and what it
//! answered, not from its files.

use std::collections::{BTreeMap, BTreeSet};

use carbon_wire::points;

use super::super::*;
use super::steps::{frames, points_of};

/// What has become of the bytes of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Bytes {
    /// They end somewhere.
    Whole,
    /// Some of what was not synced are missing before others.
    WithHoles,
    /// A bit was flipped.
    Flipped,
}

/// A destination and a batch.
pub(super) type Pair = (Arc<str>, u64);

/// What a start must find, and what it may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    /// Batches that were committed and are not done, and those that may be there: their commit has
    /// failed or was interrupted, or that which says that they are done.
    due: BTreeSet<Pair>,
    pub(super) perhaps_due: BTreeSet<Pair>,
    pub(super) was_done: BTreeSet<Pair>,
    /// Those that were ever committed: that others are done need not be recorded.
    committed: BTreeSet<Pair>,
    /// Of batches that a start has found damaged, and counted: the points that are left.
    left: BTreeMap<Pair, u64>,
    /// The state that was committed last, and those of commits that have failed since.
    pub(super) state: u64,
    newer: BTreeSet<u64>,
    /// What was counted in memory when it was removed, and is in no tick on the disk: it is there,
    /// or counted. And what may be counted.
    counted: BTreeSet<Pair>,
    perhaps_counted: BTreeSet<Pair>,
    /// Points that a start has counted as damaged, and that are in no tick: surely, and perhaps.
    damaged: BTreeMap<Arc<str>, u64>,
    perhaps_damaged: BTreeMap<Arc<str>, u64>,
    is_telling: bool,
    /// Batches that are one group with a state.
    with_state: BTreeSet<u64>,
    /// What was written.
    written: BTreeSet<Pair>,
    /// What may have been when an earlier run ended, and whether this one may write now.
    perhaps_written: BTreeSet<Pair>,
    is_writing: bool,
    /// Batches that were written again after their commit had failed, and may be there twice: if the
    /// second copy is damaged, nobody knows that it was one, and it is counted.
    perhaps_twice: BTreeSet<Pair>,
    /// A sync has failed, and a start has believed what it did not write: that is counted when it
    /// is gone, twice if it was written twice.
    pub(super) has_failed: bool,
    is_unsure: bool,
    /// What this run's start has found. It counts as committed after the first commit.
    found: Option<Found>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Found {
    /// What might have been due.
    before: BTreeSet<Pair>,
    due: BTreeMap<Pair, u64>,
    state: u64,
    damaged: BTreeMap<Arc<str>, u64>,
    written: BTreeSet<Pair>,
    perhaps_written: BTreeSet<Pair>,
}

/// The batch of this group has the state's number; a state without one is odd.
fn needs(state: u64) -> Option<u64> {
    Some(state).filter(|state| *state > 0 && state.is_multiple_of(2))
}

impl Truth {
    pub(super) fn attempt(&mut self, changes: &Changes) {
        for kept in &changes.append {
            self.perhaps_due.extend(kept.due.iter().map(|to| (Arc::clone(to), kept.id)));
            self.with_state.extend(kept.has_states.then_some(kept.id));
        }
        for pair in changes.counted.iter().map(pair) {
            if self.due.contains(&pair) {
                self.counted.insert(pair.clone());
            }
            self.perhaps_counted.insert(pair);
        }
        for pair in self.done_by(changes) {
            self.due.remove(&pair);
            self.written.remove(&pair);
            self.perhaps_written.remove(&pair);
            // Only a commit that failed may have dropped and counted it.
            if !changes.counted.iter().any(|its| its.id == pair.1 && its.to == pair.0) {
                self.counted.remove(&pair);
            }
            self.was_done.insert(pair);
        }
        self.tell(changes);
        self.is_telling = !changes.told.is_empty();
        self.newer.extend(changes.states.values().map(|bytes| value(bytes)));
        self.is_writing &= changes.writing.as_ref().is_none_or(|writing| !writing.is_empty());
    }

    /// These changes are owed since a commit has failed.
    pub(super) fn write_again(&mut self, owed: &Changes) {
        let pairs = |its: &AppendedBatch| {
            let id = its.id;
            its.due.iter().map(move |to| (Arc::clone(to), id)).collect::<Vec<_>>()
        };
        self.perhaps_twice.extend(owed.append.iter().flat_map(pairs));
    }

    /// What is proved or told need not be counted any more.
    fn tell(&mut self, changes: &Changes) {
        for pair in changes.done.iter().chain(&changes.told) {
            self.counted.remove(pair);
        }
        if !changes.told.is_empty() {
            self.damaged.clear();
        }
    }

    fn done_by(&self, changes: &Changes) -> Vec<Pair> {
        let forgotten = self.perhaps_due.iter().filter(|(_, id)| changes.forget.contains(id));
        changes.done.iter().chain(forgotten).cloned().collect()
    }

    pub(super) fn commit(&mut self, changes: &Changes, dropped: &[u64]) {
        if let Some(found) = self.found.take() {
            let is_there =
                |pair: &Pair| found.due.contains_key(pair) || !found.before.contains(pair);
            self.perhaps_due.retain(is_there);
            self.perhaps_due.extend(found.due.keys().cloned());
            // Its id is given again.
            let perhaps_due = &self.perhaps_due;
            self.with_state.retain(|id| perhaps_due.iter().any(|(_, due)| due == id));
            self.due.retain(is_there);
            self.written
                .retain(|pair| found.written.contains(pair) || !found.before.contains(pair));
            self.state = found.state;
            self.newer.retain(|state| *state > found.state);
            self.committed.extend(found.due.keys().cloned());
            let still = found.due.keys().filter(|pair| !self.was_done.contains(*pair));
            self.due.extend(still.cloned());
            self.left.extend(found.due);
            // What this commit tells may be in a later part of it.
            self.damaged = if self.is_telling { BTreeMap::new() } else { found.damaged.clone() };
            self.perhaps_damaged = found.damaged;
            self.perhaps_written.extend(found.perhaps_written);
        }
        for kept in &changes.append {
            let pairs = kept.due.iter().map(|to| (Arc::clone(to), kept.id));
            self.committed.extend(pairs.clone());
            self.due.extend(pairs);
        }
        for pair in self.done_by(changes) {
            self.due.remove(&pair);
            if self.committed.contains(&pair) {
                self.perhaps_due.remove(&pair);
            }
        }
        self.counted.extend(changes.counted.iter().map(pair));
        self.tell(changes);
        for pair in changes.done.iter().chain(&changes.told) {
            self.perhaps_counted.remove(pair);
        }
        if !changes.told.is_empty() {
            self.perhaps_damaged.clear();
        }
        self.written.extend(changes.written.iter().cloned());
        if let Some(bytes) = changes.states.values().next() {
            self.state = value(bytes);
            self.newer.clear();
        }
        if let Some(writing) = &changes.writing {
            self.is_writing = !writing.is_empty();
        }
        self.drop_batches(dropped);
        self.perhaps_due.extend(self.due.iter().cloned());
    }

    /// `max_bytes` has removed them, and the log has said so.
    pub(super) fn drop_batches(&mut self, dropped: &[u64]) {
        let its = |pairs: &BTreeSet<Pair>| -> BTreeSet<Pair> {
            pairs.iter().filter(|(_, id)| dropped.contains(id)).cloned().collect()
        };
        let (due, perhaps_due) = (its(&self.due), its(&self.perhaps_due));
        self.counted.extend(due);
        self.perhaps_counted.extend(perhaps_due.iter().cloned());
        self.was_done.extend(perhaps_due);
        for pairs in [&mut self.due, &mut self.written, &mut self.perhaps_written] {
            pairs.retain(|(_, id)| !dropped.contains(id));
        }
    }

    /// Compares what a start has found.
    pub(super) fn check(
        &self,
        log: &Log,
        restored: &Restored,
        bytes: Bytes,
    ) -> Result<BTreeMap<Pair, u64>, String> {
        let is_damaged = bytes == Bytes::Flipped;
        let is_whole = bytes == Bytes::Whole && !self.is_unsure;
        let mut loaded = BTreeMap::new();
        for id in restored.due.iter().map(|(_, id)| id).collect::<BTreeSet<_>>() {
            let its = log.load(*id).map_err(|error| format!("not loaded: {error}"))?;
            let mut written = frames(*id).into_iter();
            if !its.iter().all(|frame| written.any(|other| other == *frame)) {
                return Err(format!("wrong: frames of {id}"));
            }
            let (points, summary) = (points(&its), restored.batches[id]);
            if (summary.points, summary.timestamp) != (points, id.cast_signed()) {
                return Err(format!("wrong: {summary:?} of {id}, which has {points} points"));
            }
            loaded.insert(*id, points);
        }
        let due = restored.due.iter().map(|(to, id)| ((Arc::clone(to), *id), loaded[id]));
        let found: BTreeMap<Pair, u64> = due.collect();
        let again = |pair: &&Pair| {
            !(self.perhaps_due.contains(*pair) || is_damaged && self.was_done.contains(*pair))
        };
        if let Some(pair) = found.keys().find(again) {
            return Err(format!("due again: {pair:?}"));
        }
        for to in ["a", "b"] {
            let missing = |pairs: &BTreeSet<Pair>| -> u64 {
                let its = pairs.iter().filter(|(name, _)| **name == *to);
                its.map(|pair| {
                    let all = self.left.get(pair).copied().unwrap_or(points_of(pair.1));
                    all - found.get(pair).copied().unwrap_or(0)
                })
                .sum()
            };
            let lost = restored.lost().get(to).copied().unwrap_or(0);
            let of_destination =
                |points: &BTreeMap<Arc<str>, u64>| points.get(to).copied().unwrap_or(0);
            let surely = missing(&self.due) + of_destination(&self.damaged);
            let perhaps = missing(&self.perhaps_due) + of_destination(&self.perhaps_damaged);
            if lost < surely {
                return Err(format!("lost: {surely} points of {to}, {lost} counted"));
            }
            let twice = found.keys().filter(|pair| *pair.0 == *to && bytes != Bytes::Whole);
            let twice = twice.filter(|pair| self.perhaps_twice.contains(*pair));
            let twice: u64 = twice.map(|(_, id)| points_of(*id)).sum();
            if lost > perhaps + twice && !self.is_unsure {
                return Err(format!("counted: {lost} points of {to}, {perhaps} missing"));
            }
            let lost = lost.saturating_sub(of_destination(&self.perhaps_damaged));
            if lost > 0 && is_whole {
                return Err(format!("told lost: {lost} points of {to}, {surely} missing"));
            }
        }
        let its = restored.counted.iter().filter(|its| its.why != Why::Damaged);
        let counted: BTreeMap<Pair, u64> = its.map(|its| (pair(its), its.points)).collect();
        let is_there = |pair: &&Pair| found.contains_key(*pair) || counted.contains_key(*pair);
        if let Some(pair) = self.counted.iter().find(|pair| !is_there(pair))
            && !is_damaged
        {
            return Err(format!("not counted: {pair:?}"));
        }
        for (pair, points) in &counted {
            let left = self.left.get(pair).copied().unwrap_or(points_of(pair.1));
            if !self.perhaps_counted.contains(pair) && !is_damaged {
                return Err(format!("counted twice: {pair:?}"));
            }
            if found.contains_key(pair) || *points != left && !is_damaged {
                return Err(format!(
                    "counted wrong: {points} points of {pair:?}, which has {left}"
                ));
            }
        }
        if !restored.damaged_states.is_empty() && !is_damaged {
            return Err(format!("damaged states: {:?}", restored.damaged_states));
        }
        if restored.damaged > 0 && is_whole {
            return Err(format!("told as damage: {} records: {:?}", restored.damaged, log.settled));
        }
        let state = restored.states.get("state").map_or(0, |bytes| value(bytes));
        if state != self.state && !self.newer.contains(&state) && !is_damaged {
            return Err(format!("state: {state}, not {} or {:?}", self.state, self.newer));
        }
        let told: BTreeSet<&Pair> =
            restored.written.iter().chain(&restored.perhaps_written).collect();
        for pair in found.keys() {
            let is_first = needs(state) == Some(pair.1);
            let is_writing = self.is_writing && *pair.0 == *"a" && self.due.contains(pair);
            if self.written.contains(pair) && !restored.written.contains(pair) && !is_damaged {
                return Err(format!("not written: {pair:?} of {is_first}"));
            }
            let perhaps = self.perhaps_written.contains(pair) || is_writing;
            if perhaps && !told.contains(pair) && !is_damaged {
                return Err(format!("never written: {pair:?}"));
            }
        }
        let with_state = found.keys().filter(|(_, id)| self.with_state.contains(id));
        if let Some((_, id)) = with_state.max_by_key(|(_, id)| *id)
            && *id > state
            && !is_damaged
        {
            return Err(format!("batch without its state: {id}, {state}"));
        }
        if let Some(id) = needs(state) {
            let its = self.perhaps_due.iter().filter(|pair| pair.1 == id);
            let mut its = its.filter(|pair| !self.was_done.contains(*pair));
            if let Some(pair) = its.find(|pair| !found.contains_key(*pair))
                && !is_damaged
            {
                return Err(format!("state without its batch: {pair:?}"));
            }
        }
        Ok(found)
    }

    /// A start has found this.
    pub(super) fn start(&mut self, found: BTreeMap<Pair, u64>, restored: &Restored) {
        let told = restored.written.iter().chain(&restored.perhaps_written).cloned().collect();
        let is_back = |pair: &Pair| found.contains_key(pair);
        for pair in self.counted.extract_if(.., |pair| is_back(pair)) {
            self.was_done.remove(&pair);
        }
        // Damage may have cost a count.
        let is_counted = |to: &Pair| restored.counted.iter().any(|its| pair(its) == *to);
        self.counted.retain(is_counted);
        self.perhaps_counted.retain(|pair| !is_back(pair));
        let state = restored.states.get("state").map_or(0, |bytes| value(bytes));
        let before = self.perhaps_due.clone();
        self.found = Some(Found {
            before,
            due: found,
            state,
            damaged: restored.lost(),
            written: restored.written.iter().cloned().collect(),
            perhaps_written: told,
        });
        self.is_writing = false;
        self.is_unsure = self.has_failed;
    }
}

pub(super) fn pair(counted: &Counted) -> Pair {
    (Arc::clone(&counted.to), counted.id)
}

pub(super) fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}
