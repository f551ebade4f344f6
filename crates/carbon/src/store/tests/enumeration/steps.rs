//! What is asked of the log, step by step, and a daemon that asks it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::truth::{Bytes, Pair, Truth, pair};

/// Segments of 500 bytes.
const MAX_BYTES: u64 = 4000;

/// What is asked of the log, and what the disk does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
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

pub(super) const ALL: [Step; 23] = [
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
pub(super) const FEW: [Step; 5] =
    [Step::Two, Step::WithState, Step::Replace, Step::NothingGoesAnyMore, Step::Restart];

/// The first commits after a crash, in which the second one comes; CI tries the first three.
pub(super) const SECOND: [Step; 7] =
    [Step::One, Step::Replace, Step::Done, Step::Forget, Step::Written, Step::Connect, Step::State];

/// What longer enumerations have found.
pub(super) const FOUND: [&[Step]; 9] = [
    &[Step::One, Step::Restart, Step::FullAndKept, Step::One],
    &[Step::One, Step::FullReplace, Step::Forget],
    &[Step::State, Step::SyncFails, Step::Done],
    &[Step::Shrink, Step::NothingGoes, Step::One],
    &[Step::One, Step::Written, Step::Connect],
    &[Step::Large, Step::Shrink, Step::SyncFails],
    &[Step::Shrink, Step::Evict, Step::One],
    &[Step::Two, Step::NothingGoesAnyMore, Step::NothingGoesAnyMore, Step::One],
    &[Step::One, Step::Expire, Step::Connect],
];

/// Large batches have odd ids.
fn parts_of(id: u64) -> u8 {
    if id % 2 == 1 { 20 } else { 2 }
}

pub(super) fn frames(id: u64) -> Vec<Frame> {
    (0..parts_of(id)).map(|part| frame(id, part)).collect()
}

pub(super) fn points_of(id: u64) -> u64 {
    u64::from(parts_of(id)) * 5
}

/// A daemon above the log: what is in its memory.
pub(super) struct Daemon<'a> {
    dir: &'a Path,
    log: Log,
    owed: Changes,
    due: BTreeMap<u64, BTreeSet<Arc<str>>>,
    /// What the next tick tells.
    told: Vec<Pair>,
    pub(super) truth: Truth,
    next: u64,
    /// What holds from this call on.
    pub(super) truths: Vec<(usize, Truth)>,
    nothing_goes: bool,
}

impl<'a> Daemon<'a> {
    pub(super) fn start(dir: &'a Path, mut truth: Truth, bytes: Bytes) -> Result<Self, String> {
        let first = faults::is_recording().then(|| (0, truth.clone()));
        let (log, restored) = Log::open(dir, MAX_BYTES, false).map_err(|e| format!("open: {e}"))?;
        let found = truth.check(&log, &restored, bytes)?;
        let mut due: BTreeMap<u64, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (to, id) in found.keys() {
            due.entry(*id).or_default().insert(Arc::clone(to));
        }
        truth.start(found, &restored);
        let told = restored.counted.iter().map(pair).collect();
        // Damage may bring a batch back whose id the truth has forgotten.
        let known = truth.perhaps_due.iter().chain(&truth.was_done).map(|(_, id)| id);
        let next = known.chain(due.keys()).map(|id| id / 2 * 2 + 2);
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
        self.truth.write_again(&self.owed);
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

    pub(super) fn step(&mut self, step: Step) -> Result<(), String> {
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
