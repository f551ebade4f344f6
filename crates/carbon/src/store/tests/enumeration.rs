//! Every short history of the log, each kill and each power cut in it, and what docs/losses.md says
//! of them.
//!
//! The real log runs in a real folder. What it has done to its files is made into every folder that
//! a crash may leave (crashes.rs). The log is opened there, commits, and is opened again. What must
//! be found then, [`Truth`], follows from what was asked of the log and what it answered, not from
//! its files. A second crash begins where a first one ended: after a kill, with everything unsynced.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Arguments;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use carbon_wire::points;

use super::crashes::{Disk, Files, hash};
use super::*;

/// Segments of 500 bytes.
const MAX_BYTES: u64 = 4000;

/// What has become of the bytes of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Bytes {
    /// They end somewhere.
    Whole,
    /// Some of what was not synced are missing before others.
    WithHoles,
    /// A bit was flipped.
    Flipped,
}

/// A destination and a batch.
type Pair = (Arc<str>, u64);

/// What is asked of the log, and what the disk does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// One batch, for both destinations.
    One,
    Two,
    /// One that fills a segment.
    Large,
    /// A batch with a state, one group.
    WithState,
    State,
    /// The oldest batch is done for one destination.
    Done,
    /// The oldest batch is forgotten.
    Forget,
    /// All batches are forgotten, and there is a new one.
    Replace,
    /// The oldest batch is forgotten, and was written to one destination.
    Evict,
    /// It is forgotten, because it is too old.
    Expire,
    /// One destination may be written to.
    Connect,
    /// The oldest batch was written to it.
    Written,
    Nothing,
    /// A batch whose sync fails.
    SyncFails,
    /// The same, and no file can be removed.
    NothingGoes,
    /// The same, and none can be removed until the daemon ends.
    NothingGoesAnyMore,
    /// As `Replace`, and no file can be removed.
    RemovalFails,
    /// As `Replace`, and the disk takes nothing and removes nothing.
    FullAndKept,
    /// A batch, and the disk takes part of its head, or part of its frames.
    FullHead,
    FullFrames,
    /// As `Replace`, and the disk takes part of it.
    FullReplace,
    /// `max_bytes` leaves room for two segments.
    Shrink,
    /// The daemon ends and starts.
    Restart,
}

const ALL: [Step; 23] = [
    Step::One,
    Step::Two,
    Step::Large,
    Step::WithState,
    Step::State,
    Step::Done,
    Step::Forget,
    Step::Replace,
    Step::Evict,
    Step::Expire,
    Step::Connect,
    Step::Written,
    Step::Nothing,
    Step::SyncFails,
    Step::NothingGoes,
    Step::NothingGoesAnyMore,
    Step::RemovalFails,
    Step::FullAndKept,
    Step::FullHead,
    Step::FullFrames,
    Step::FullReplace,
    Step::Shrink,
    Step::Restart,
];

/// Those after which a last step finds another log.
const FEW: [Step; 5] =
    [Step::Two, Step::WithState, Step::Replace, Step::NothingGoesAnyMore, Step::Restart];

/// What longer enumerations have found.
const FOUND: [&[Step]; 7] = [
    &[Step::One, Step::Restart, Step::FullAndKept, Step::One],
    &[Step::One, Step::FullReplace, Step::Forget],
    &[Step::State, Step::SyncFails, Step::Done],
    &[Step::Shrink, Step::NothingGoes, Step::One],
    &[Step::One, Step::Written, Step::Connect],
    &[Step::Large, Step::Shrink, Step::SyncFails],
    &[Step::Shrink, Step::Evict, Step::One],
];

/// Large batches have odd ids.
fn parts_of(id: u64) -> u8 {
    if id % 2 == 1 { 20 } else { 2 }
}

fn frames(id: u64) -> Vec<Frame> {
    (0..parts_of(id)).map(|part| frame(id, part)).collect()
}

fn points_of(id: u64) -> u64 {
    u64::from(parts_of(id)) * 5
}

/// What a start must find, and what it may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Truth {
    /// Batches that were committed and are not done, and those that may be there: their commit has
    /// failed or was interrupted, or that which says that they are done.
    due: BTreeSet<Pair>,
    perhaps_due: BTreeSet<Pair>,
    was_done: BTreeSet<Pair>,
    /// Those that were ever committed: that others are done need not be recorded.
    committed: BTreeSet<Pair>,
    /// Of batches that a start has found damaged, and counted: the points that are left.
    left: BTreeMap<Pair, u64>,
    /// The state that was committed last, and those of commits that have failed since.
    state: u64,
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
    /// A sync has failed, and a start has believed what it did not write: that is counted when it
    /// is gone, twice if it was written twice.
    has_failed: bool,
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
    fn attempt(&mut self, changes: &Changes) {
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

    fn commit(&mut self, changes: &Changes, dropped: &[u64]) {
        if let Some(found) = self.found.take() {
            let is_there =
                |pair: &Pair| found.due.contains_key(pair) || !found.before.contains(pair);
            self.perhaps_due.retain(is_there);
            self.perhaps_due.extend(found.due.keys().cloned());
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
    fn drop_batches(&mut self, dropped: &[u64]) {
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
    fn check(
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
            let of = |points: &BTreeMap<Arc<str>, u64>| points.get(to).copied().unwrap_or(0);
            let surely = missing(&self.due) + of(&self.damaged);
            let perhaps = missing(&self.perhaps_due) + of(&self.perhaps_damaged);
            if lost < surely {
                return Err(format!("lost: {surely} points of {to}, {lost} counted"));
            }
            if lost > perhaps && !self.is_unsure {
                return Err(format!("counted: {lost} points of {to}, {perhaps} missing"));
            }
            let lost = lost.saturating_sub(of(&self.perhaps_damaged));
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
    fn start(&mut self, found: BTreeMap<Pair, u64>, restored: &Restored) {
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

fn pair(counted: &Counted) -> Pair {
    (Arc::clone(&counted.to), counted.id)
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// A daemon above the log: what is in its memory.
struct Daemon<'a> {
    dir: &'a Path,
    log: Log,
    owed: Changes,
    due: BTreeMap<u64, BTreeSet<Arc<str>>>,
    /// What the next tick tells.
    told: Vec<Pair>,
    truth: Truth,
    next: u64,
    /// What holds from this call on.
    truths: Vec<(usize, Truth)>,
    nothing_goes: bool,
}

impl<'a> Daemon<'a> {
    fn start(dir: &'a Path, mut truth: Truth, bytes: Bytes) -> Result<Self, String> {
        let first = faults::is_recording().then(|| (0, truth.clone()));
        let (log, restored) = Log::open(dir, MAX_BYTES, false).map_err(|e| format!("open: {e}"))?;
        let found = truth.check(&log, &restored, bytes)?;
        let mut due: BTreeMap<u64, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (to, id) in found.keys() {
            due.entry(*id).or_default().insert(Arc::clone(to));
        }
        truth.start(found, &restored);
        let told = restored.counted.iter().map(pair).collect();
        let next = truth.perhaps_due.iter().chain(&truth.was_done).map(|(_, id)| id / 2 * 2 + 2);
        let next = next.chain([truth.state + 2]).max().unwrap_or(2) / 2 * 2;
        let mut daemon = Self {
            dir,
            log,
            owed: Changes::default(),
            due,
            told,
            truth,
            next,
            truths: first.into_iter().collect(),
            nothing_goes: false,
        };
        daemon.note_truth();
        Ok(daemon)
    }

    fn note_truth(&mut self) {
        if faults::is_recording() {
            self.truths.push((faults::recorded(), self.truth.clone()));
        }
    }

    fn commit(&mut self, changes: Changes) -> Result<(), StoreError> {
        let first = self.truths.len();
        self.truth.attempt(&changes);
        self.note_truth();
        let changes = std::mem::take(&mut self.owed).and(changes);
        let mut pieces = changes.pieces(self.log.max_bytes).into_iter();
        while let Some(piece) = pieces.next() {
            match self.log.commit(&piece) {
                Ok(dropped) => {
                    self.truths[first..]
                        .iter_mut()
                        .for_each(|(_, truth)| truth.drop_batches(&dropped));
                    for (id, due) in self.due.extract_if(.., |id, _| dropped.contains(id)) {
                        self.told.extend(due.into_iter().map(|to| (to, id)));
                    }
                    self.truth.commit(&piece, &dropped);
                    self.note_truth();
                }
                Err(error) => {
                    // A start may find its record, which drops what `max_bytes` has no room for.
                    if self.log.max_bytes < MAX_BYTES {
                        let dropped: Vec<u64> = self.log.batches.keys().copied().collect();
                        self.truths[first..]
                            .iter_mut()
                            .for_each(|(_, truth)| truth.drop_batches(&dropped));
                        self.truth.drop_batches(&dropped);
                    }
                    self.owed = pieces.fold(piece, Changes::and);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, ids: &[u64]) -> Changes {
        let append = ids
            .iter()
            .map(|&id| AppendedBatch { frames: frames(id).into(), ..kept(id, &["a", "b"]) });
        self.due.extend(ids.iter().map(|&id| (id, [name("a"), name("b")].into())));
        self.next += 2 * u64::try_from(ids.len()).unwrap();
        let (append, told) = (append.collect(), std::mem::take(&mut self.told));
        Changes { append, told, ..Changes::default() }
    }

    fn replace(&mut self) -> Changes {
        let forget = std::mem::take(&mut self.due).into_keys().collect();
        Changes { forget, ..self.append(&[self.next]) }
    }

    fn restart(&mut self) -> Result<(), String> {
        let writing = Some(Vec::new());
        let _ = self.commit(Changes { writing, ..Changes::default() });
        self.log = Log::default();
        let truths = std::mem::take(&mut self.truths);
        *self = Self::start(self.dir, self.truth.clone(), Bytes::Whole)?;
        self.truths.splice(..1, truths);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        let (none, next) = (Changes::default(), self.next);
        let oldest = self.due.keys().next().copied();
        let a = || name("a");
        let its_first = |daemon: &Self| {
            let its = daemon.due.iter().find(|(_, due)| due.contains("a"));
            its.map(|(id, _)| (a(), *id))
        };
        let changes = match step {
            Step::One
            | Step::SyncFails
            | Step::NothingGoes
            | Step::NothingGoesAnyMore
            | Step::FullHead
            | Step::FullFrames => self.append(&[next]),
            Step::Two => self.append(&[next, next + 2]),
            Step::Large => self.append(&[next + 1]),
            Step::WithState => {
                let states = state("state", &next.to_le_bytes()).states;
                let mut changes = self.append(&[next]);
                changes.append[0].has_states = true;
                Changes { states, ..changes }
            }
            Step::State => {
                self.next += 2;
                state("state", &(next + 1).to_le_bytes())
            }
            Step::Done => {
                let done: Vec<_> = its_first(self).into_iter().collect();
                for (to, id) in &done {
                    let due = self.due.get_mut(id).unwrap();
                    due.remove(to);
                    if due.is_empty() {
                        self.due.remove(id);
                    }
                }
                Changes { done, ..none }
            }
            Step::Forget => {
                oldest.map(|id| self.due.remove(&id));
                Changes { forget: oldest.into_iter().collect(), ..none }
            }
            Step::Replace | Step::RemovalFails | Step::FullReplace | Step::FullAndKept => {
                self.replace()
            }
            Step::Evict => {
                let first = its_first(self);
                first.as_ref().map(|(_, id)| self.due.remove(id));
                let forget = first.iter().map(|(_, id)| *id).collect();
                let counted: Vec<_> =
                    first.into_iter().map(|(to, id)| (to, id, points_of(id))).collect();
                let counted: Vec<_> =
                    counted.iter().map(|(to, id, points)| (&**to, *id, *points)).collect();
                Changes { forget, counted: unproved(&counted), ..none }
            }
            Step::Expire => {
                let old = self.due.pop_first();
                let forget = old.iter().map(|(id, _)| *id).collect();
                let its =
                    old.into_iter().flat_map(|(id, due)| due.into_iter().map(move |to| (to, id)));
                let counted = its.map(|(to, id)| {
                    self.told.push((Arc::clone(&to), id));
                    Counted { to, id, points: points_of(id), why: Why::Age }
                });
                Changes { forget, counted: counted.collect(), ..none }
            }
            Step::Connect => Changes { writing: Some(vec![a()]), ..none },
            Step::Written => Changes { written: its_first(self).into_iter().collect(), ..none },
            Step::Nothing => none,
            Step::Shrink => Changes { max_bytes: Some(1000), ..self.append(&[next + 1]) },
            Step::Restart => return self.restart(),
        };
        faults::set_room(match step {
            Step::FullAndKept => Some(0),
            Step::FullHead => Some(40),
            Step::FullFrames | Step::FullReplace => Some(100),
            _ => None,
        });
        let is_synced =
            !matches!(step, Step::SyncFails | Step::NothingGoes | Step::NothingGoesAnyMore);
        faults::set_syncs((!is_synced).then_some(0));
        self.nothing_goes |= step == Step::NothingGoesAnyMore;
        let is_kept = matches!(step, Step::NothingGoes | Step::RemovalFails | Step::FullAndKept);
        faults::set_keeps_files(is_kept || self.nothing_goes);
        self.truth.has_failed |= !is_synced;
        let committed = self.commit(changes);
        faults::set_room(None);
        faults::set_syncs(None);
        faults::set_keeps_files(false);
        let full = [Step::FullAndKept, Step::FullHead, Step::FullFrames, Step::FullReplace];
        let may_fail = !is_synced || full.contains(&step);
        committed.or_else(|error| if may_fail { Ok(()) } else { Err(format!("commit: {error}")) })
    }
}

/// Makes the folder have these segments.
fn write_files(dir: &Path, files: &Files) {
    let states = folder::states(dir).unwrap().into_iter().map(|its| folder::state(dir, its));
    for path in segments(dir).into_iter().chain(states) {
        if !files.contains_key(path.file_name().unwrap().to_str().unwrap()) {
            fs::remove_file(path).unwrap();
        }
    }
    files.iter().for_each(|(name, bytes)| fs::write(dir.join(&**name), &**bytes).unwrap());
}

/// The files that the log reads.
fn read_files(dir: &Path) -> Files {
    let states = folder::states(dir).unwrap().into_iter().map(|its| folder::state(dir, its));
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        (Arc::from(name), fs::read(&path).unwrap().into())
    };
    segments(dir).into_iter().chain(states).map(read).collect()
}

/// Takes a disk after a crash, what has become of its bytes, the truth with its hash, and which crash
/// it was.
type Then<'a> = dyn FnMut(Disk, Bytes, (&Truth, u64), Arguments<'_>) + 'a;

/// What was tried, and what was wrong, with the first example of each kind.
#[derive(Default)]
struct Tried {
    checked: Mutex<HashSet<u64>>,
    /// What was checked after a start and a commit: most crashes are repaired to the same.
    repaired: Mutex<HashSet<u64>>,
    crashed: Mutex<HashSet<u64>>,
    states: AtomicU64,
    wrong: Mutex<BTreeMap<String, (u64, String)>>,
}

impl Tried {
    fn note(&self, error: &str, history: Arguments<'_>) {
        let history = history.to_string();
        let kind = error.split(':').next().unwrap().to_owned();
        let mut wrong = self.wrong.lock().unwrap();
        let (times, example) = wrong.entry(kind).or_default();
        *times += 1;
        if *times == 1 || history.len() < example.find(':').unwrap_or(0) {
            *example = format!("{history}: {error}");
        }
    }

    /// Opens the folder, commits, and opens it again.
    fn check(
        &self,
        dir: &Path,
        files: &Files,
        (truth, its_hash): (&Truth, u64),
        bytes: Bytes,
        history: Arguments<'_>,
    ) {
        if !self.checked.lock().unwrap().insert(hash(&(files, its_hash, bytes))) {
            return;
        }
        self.states.fetch_add(1, Ordering::Relaxed);
        write_files(dir, files);
        let checked = Daemon::start(dir, truth.clone(), bytes).and_then(|mut daemon| {
            daemon.step(Step::One)?;
            let truth = std::mem::take(&mut daemon.truth);
            drop(daemon);
            if !self.repaired.lock().unwrap().insert(hash(&(read_files(dir), &truth))) {
                return Ok(());
            }
            Daemon::start(dir, truth, Bytes::Whole)
                .map(drop)
                .map_err(|error| format!("second start, {error}"))
        });
        if let Err(error) = checked {
            self.note(&error, history);
        }
    }

    /// Each crash in the calls from `from` on, perhaps with holes in what was written. `truths` say
    /// what holds from which call on; each comes with its hash.
    fn crash(
        (disk, calls): (&Disk, &[faults::Call]),
        (from, truths): (usize, &[(usize, Truth)]),
        with_holes: bool,
        then: &mut Then<'_>,
    ) {
        let mut disk = disk.clone();
        for at in 0..=calls.len() {
            if at >= from {
                let truth = &truths.iter().rev().find(|(first, _)| *first <= at).unwrap().1;
                let truth = (truth, hash(truth));
                let in_order = disk.after_power_cut(false);
                for files in &in_order {
                    then(Disk::new(files), Bytes::Whole, truth, format_args!("power at {at}"));
                }
                let anyhow = if with_holes { disk.after_power_cut(true) } else { BTreeSet::new() };
                for files in anyhow.difference(&in_order) {
                    then(Disk::new(files), Bytes::WithHoles, truth, format_args!("holes at {at}"));
                }
                let parts = calls.get(at).map(|call| disk.parts_of(call)).unwrap_or_default();
                for part in parts.into_iter().chain([disk.clone()]) {
                    then(part, Bytes::Whole, truth, format_args!("kill at {at}"));
                }
            }
            if let Some(call) = calls.get(at) {
                disk.call(call);
            }
        }
    }

    /// Each head that is damaged after these calls, except in the last record, which looks like the
    /// end of a kill.
    fn flip_heads(
        &self,
        dir: &Path,
        calls: &[faults::Call],
        truths: &[(usize, Truth)],
        history: Arguments<'_>,
    ) {
        let mut disk = Disk::default();
        calls.iter().for_each(|call| disk.call(call));
        let (files, (_, truth)) = (disk.files(), truths.last().unwrap());
        let truth = (truth, hash(truth));
        let heads = |bytes: &[u8]| -> Vec<usize> {
            record::records(bytes).map(|record| record.unwrap().offset).collect()
        };
        let logs = files.iter().filter(|(name, _)| name.ends_with(".log"));
        let mut logs: Vec<_> = logs.map(|(name, bytes)| (name, heads(bytes))).collect();
        logs.retain(|(_, heads)| !heads.is_empty());
        let newest = logs.last().map(|(name, _)| (*name).clone());
        for (name, heads) in logs {
            let last = heads.last().copied().filter(|_| Some(name) == newest.as_ref());
            for at in heads.into_iter().filter(|at| last.is_none_or(|last| *at < last)) {
                let mut files = files.clone();
                let mut bytes = files[name].to_vec();
                bytes[at + 5] ^= 1;
                files.insert(Arc::clone(name), bytes.into());
                let at = format_args!("{history}, head at {at} of {name}");
                self.check(dir, &files, truth, Bytes::Flipped, at);
            }
        }
    }

    /// A daemon that finds this disk makes these steps: its calls, from the last step on, and its
    /// truths.
    #[expect(clippy::type_complexity, reason = "used twice")]
    fn run(
        dir: &Path,
        (disk, truth, bytes): (&Disk, &Truth, Bytes),
        steps: &[Step],
    ) -> Result<(Vec<faults::Call>, usize, Vec<(usize, Truth)>), String> {
        write_files(dir, &disk.files());
        faults::record();
        let run = Daemon::start(dir, truth.clone(), bytes).and_then(|mut daemon| {
            let mut from = 0;
            for step in steps {
                from = faults::recorded();
                daemon.step(*step)?;
            }
            Ok((from, daemon.truths))
        });
        let calls = faults::take_record();
        run.map(|(from, truths)| (calls, from, truths))
    }

    /// Each crash in the last step of this history, and of each the crashes in the start and the
    /// commit that follow.
    fn history(&self, dir: &Path, history: &[Step], crashes: usize) {
        let (empty, nothing) = (Disk::default(), Truth::default());
        let (calls, from, truths) = match Self::run(dir, (&empty, &nothing, Bytes::Whole), history)
        {
            Ok(run) => run,
            Err(error) => return self.note(&error, format_args!("{history:?}")),
        };
        if crashes == 1 {
            self.flip_heads(dir, &calls, &truths, format_args!("{history:?}"));
        }
        let is_only = crashes == 1;
        Self::crash((&empty, &calls), (from, &truths), is_only, &mut |disk, bytes, truth, at| {
            if is_only {
                let at = format_args!("{history:?}, {at}");
                return self.check(dir, &disk.files(), truth, bytes, at);
            }
            if !self.crashed.lock().unwrap().insert(hash(&(&disk, truth.1))) {
                return;
            }
            for step in [Step::One, Step::Replace] {
                let (calls, _, truths) = match Self::run(dir, (&disk, truth.0, bytes), &[step]) {
                    Ok(run) => run,
                    Err(error) => {
                        self.note(&error, format_args!("{history:?}, {at}, {step:?}"));
                        continue;
                    }
                };
                Self::crash(
                    (&disk, &calls),
                    (0, &truths),
                    false,
                    &mut |disk, bytes, truth, then| {
                        let at = format_args!("{history:?}, {at}, {step:?}, {then}");
                        self.check(dir, &disk.files(), truth, bytes, at);
                    },
                );
            }
        });
    }
}

/// All histories of up to so many steps, the last of which is any, the others of `first`.
fn histories(steps: usize, first: &[Step]) -> Vec<Vec<Step>> {
    let (mut all, mut begun) = (Vec::new(), vec![Vec::new()]);
    for _ in 0..steps {
        let with = |history: &Vec<Step>, step: &Step| [history.as_slice(), &[*step]].concat();
        for history in &begun {
            all.extend(ALL.iter().map(|step| with(history, step)));
        }
        let longer =
            begun.iter().flat_map(|history| first.iter().map(move |step| with(history, step)));
        begun = longer.collect();
    }
    all
}

/// Tries these histories, with so many crashes.
#[expect(clippy::print_stdout, reason = "the documents say how many states there are")]
fn enumerate(histories: &[Vec<Step>], crashes: usize) {
    let (started, tried) = (Instant::now(), Tried::default());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let memory = Path::new("/dev/shm");
                let parent = if memory.exists() { memory.to_owned() } else { std::env::temp_dir() };
                let dir = tempfile::tempdir_in(parent).unwrap();
                loop {
                    let nth = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                    let Some(history) = histories.get(nth) else { return };
                    tried.history(dir.path(), history, crashes);
                }
            });
        }
    });
    let wrong = tried.wrong.into_inner().unwrap();
    let states = tried.states.into_inner();
    println!("{} histories, {states} states in {:?}", histories.len(), started.elapsed());
    assert!(wrong.is_empty(), "{states} states: {wrong:#?}");
}

#[test]
fn each_crash_after_three_steps_leaves_what_losses_md_promises() {
    enumerate(&histories(3, &FEW), 1);
}

#[test]
fn each_crash_after_what_was_found_leaves_what_losses_md_promises() {
    enumerate(&FOUND.map(<[Step]>::to_vec), 1);
}

#[test]
fn each_second_crash_after_two_steps_leaves_what_losses_md_promises() {
    enumerate(&histories(2, &FEW), 2);
}

#[test]
#[ignore = "`make loss-long`"]
fn each_crash_after_four_steps_and_each_second_after_three_leave_what_losses_md_promises() {
    enumerate(&histories(3, &ALL), 1);
    enumerate(&histories(4, &FEW), 1);
    enumerate(&histories(2, &ALL), 2);
    enumerate(&histories(3, &FEW), 2);
}
