//! Names that have paths, and the figures that were published there. In Graphite a path is a file
//! that stays, so a peer that invents names gets a bounded number of paths for the life of the
//! daemon, not only in one reply.
//!
//! Each level declares how its names get paths ([`Names`]). A configured name keeps its slot for 30
//! days after the last reply that had it, an invented one for 30 days after its last job that had
//! started: so names that come and go get no more paths than names that stay. A name that leaves
//! gets one last round of 0, because dashboards keep last values. A word that was seen once, such
//! as a state, is 0 in every later round without it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use carbon_wire::Batch;
use serde::{Deserialize, Serialize};

use crate::levels::{AnyLevel, Level, MetricTables, Name, Names, Table};
use crate::settings::Settings;
use crate::user_paths::{Candidate, SavedPath, UserPaths};

/// Time that a slot is kept after its name was seen last, s.
const KEPT: i64 = 30 * 86_400;

/// Time after which the memory is written if no slot was given or taken, s.
const WRITTEN_EVERY: i64 = 3600;

/// Number of words that may have paths at one place of a path: more than Slurm has for anything.
const MOST_WORDS: usize = 256;

/// The names of one collector that have paths, or had them not long ago.
#[derive(Default)]
pub struct NamedPaths {
    /// `None` if users have no paths of their own.
    users: Option<UserPaths>,
    /// Number of names that may have paths at a place of [`Names::Chosen`], as the setting says.
    most_chosen: usize,
    /// Levels at which a name has found no path left, with the number of names that may have paths;
    /// `None` once that is reported.
    full: BTreeMap<&'static str, Option<usize>>,
    /// The names at each place of a path, by the path before them.
    sets: BTreeMap<String, NameSet>,
    /// Names of sets that no round has had since the start, with the moment at which each was last
    /// seen.
    remembered: BTreeMap<String, BTreeMap<String, i64>>,
    /// Whether a change is not written yet that cannot wait: another name, or a name that was away.
    fresh: bool,
    /// Whether later moments are not written yet.
    moved: bool,
    /// Moment at which the memory was last written, Unix seconds.
    written: i64,
    /// The number of the round since the start.
    round: u64,
    /// The timestamp of the round, Unix seconds.
    now: i64,
}

/// The memory of names that outlasts restarts of the daemon.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Saved {
    users: Vec<SavedPath>,
    names: BTreeMap<String, BTreeMap<String, i64>>,
}

/// The names at one place of a path.
struct NameSet {
    names: Names,
    /// Number of names that may have slots here.
    most: usize,
    /// The set of the name with which the path before this set ends, and that name; `None` if the
    /// path has no name before.
    parent: Option<(String, String)>,
    slots: BTreeMap<String, Slot>,
}

/// A name that has paths, or had them not long ago.
#[derive(Default)]
struct Slot {
    /// Moment at which a reply last had the name, or, of an invented name, a job of it that had
    /// started, Unix seconds.
    seen: i64,
    is_component: bool,
    /// The number of the last round that had the name.
    round: u64,
    /// The figures that were last published at the paths that end with the name.
    pushed: Vec<Pushed>,
}

/// The figures that were last published at one level, as bits in the order of its leaves.
struct Pushed {
    level: &'static dyn AnyLevel,
    leaves: u64,
    /// The leaves that are 0 in a round without the name.
    filled: u64,
    round: u64,
}

impl NamedPaths {
    /// Makes the names of a collector with these settings, and continues with the memory that an
    /// earlier run has stored.
    pub(crate) fn new(settings: &Settings, memory: Option<&str>) -> Self {
        let saved =
            memory.and_then(|text| serde_json::from_str::<Saved>(text).ok()).unwrap_or_default();
        let users = settings.users().filter(|users| *users > 0);
        Self {
            users: users.map(|users| UserPaths::new(users, saved.users)),
            most_chosen: settings.most_names().unwrap_or(0),
            remembered: saved.names,
            ..Self::default()
        }
    }

    /// Begins a round.
    const fn begin(&mut self, now: i64) {
        self.round = self.round.wrapping_add(1);
        self.now = now;
    }

    /// The memory to write, if enough has changed.
    pub(crate) fn changed_memory(&mut self) -> Option<String> {
        let is_late = self.now.saturating_sub(self.written) >= WRITTEN_EVERY;
        let has_changed = self.fresh || (self.moved && is_late);
        if !has_changed && !self.users.as_ref().is_some_and(UserPaths::is_due) {
            return None;
        }
        self.fresh = false;
        self.moved = false;
        self.written = self.now;
        let mut names = self.remembered.clone();
        names.values_mut().for_each(|slots| slots.retain(|_, seen| is_kept(*seen, self.now)));
        for (start, set) in self.sets.iter().filter(|(_, set)| set.names.is_held()) {
            let slots = set.slots.iter().filter(|(name, _)| !name.is_empty());
            names.insert(
                start.clone(),
                slots.map(|(name, slot)| (name.clone(), slot.seen)).collect(),
            );
        }
        names.retain(|_, slots| !slots.is_empty());
        let users = self.users.as_mut().map(UserPaths::write).unwrap_or_default();
        serde_json::to_string(&Saved { users, names }).ok()
    }

    /// The names that have slots at the first variable part of a level.
    pub(crate) fn started<L: MetricTables, const N: usize>(
        &self,
        level: &Level<L, N>,
    ) -> BTreeSet<String> {
        let slots = self.sets.get(level.start()).map(|set| &set.slots);
        let slots = slots.into_iter().flatten().filter(|(_, slot)| is_kept(slot.seen, self.now));
        slots.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the set of names behind the path `start`. The first name there makes the set.
    fn set(&mut self, start: &str, names: Names, parent: Option<(String, String)>) -> &mut NameSet {
        let remembered = &mut self.remembered;
        let most = match names {
            Names::Closed => MOST_WORDS,
            Names::Configured(most) | Names::Used(most) => most,
            Names::Chosen => self.most_chosen,
            Names::Invented => 0,
            Names::Ranked => usize::MAX,
        };
        self.sets.entry(start.to_owned()).or_insert_with(|| {
            let slots = remembered.remove(start).unwrap_or_default();
            let mut slots: Vec<(String, i64)> = slots.into_iter().collect();
            if names == Names::Chosen {
                // The setting may be lower than it was.
                slots.sort_by_key(|(_, seen)| Reverse(*seen));
                slots.truncate(most);
            }
            let slots = slots.into_iter();
            let slots =
                slots.map(|(name, seen)| (name, Slot { seen, ..Slot::default() })).collect();
            NameSet { names, most, parent, slots }
        })
    }

    /// Returns the path of a level with these names, and the slot of the last name; `None` if a
    /// name has no paths.
    fn admit(
        &mut self,
        below: &'static str,
        rules: &[Names],
        names: &[Name<'_>],
    ) -> Option<(String, &mut Slot)> {
        let mut path = String::new();
        let mut parent = None;
        let mut names = names.iter().zip(rules);
        for part in below.split_inclusive('.') {
            if !part.starts_with('<') {
                path += part;
                continue;
            }
            let (name, rule) = names.next()?;
            let now = self.now;
            let round = self.round;
            let set = self.set(&path, *rule, parent.take());
            debug_assert_eq!(set.names, *rule, "two levels differ about the names at {path}");
            let most = set.most;
            let Some(change) = set.admit(*name, now, round) else {
                if rule.are_configured() {
                    self.full.entry(below).or_insert(Some(most));
                }
                return None;
            };
            self.note(change);
            parent = Some((path.clone(), name.text.to_owned()));
            path += &name.in_path(*rule);
            path += if part.ends_with('.') { "." } else { "" };
        }
        let (start, name) = parent?;
        Some((path, self.sets.get_mut(&start)?.slots.get_mut(&name)?))
    }

    /// Takes the levels in which a name has found no path left since the last call, each with the
    /// number of its paths. A level is returned once in the life of the process.
    pub(crate) fn full_levels(&mut self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.full.iter_mut().filter_map(|(level, most)| Some((*level, most.take()?)))
    }

    const fn note(&mut self, change: Change) {
        self.fresh |= change.is_fresh;
        self.moved |= change.is_moved;
    }

    /// Drops each set behind a name that has no slot any more. A set whose names are held stays
    /// until none of them has a slot, because its names would get other slots.
    fn drop_orphans(&mut self) {
        let stays = |set: &NameSet| {
            let Some((start, name)) = &set.parent else { return true };
            let has_parent =
                self.sets.get(start).is_some_and(|parent| parent.slots.contains_key(name));
            has_parent || (set.names.is_held() && !set.slots.is_empty())
        };
        let orphans = self.sets.iter().filter(|(_, set)| !stays(set));
        let orphans: Vec<String> = orphans.map(|(start, _)| start.clone()).collect();
        self.sets.retain(|start, _| !orphans.contains(start));
    }

    /// Whether the path before a set still has points.
    fn is_here(&self, set: &NameSet) -> bool {
        let Some((start, name)) = &set.parent else { return true };
        let parent = self.sets.get(start).filter(|parent| self.is_here(parent));
        let slot = parent.and_then(|parent| Some((parent.names, parent.slots.get(name)?)));
        slot.is_some_and(|(names, slot)| slot.is_here(names, self.now, self.round))
    }
}

/// A change of what [`NamedPaths`] remembers.
#[derive(Clone, Copy, Default)]
struct Change {
    is_fresh: bool,
    is_moved: bool,
}

impl Change {
    fn moved(from: i64, to: i64) -> Self {
        Self { is_fresh: to.saturating_sub(from) >= WRITTEN_EVERY, is_moved: from != to }
    }
}

impl NameSet {
    fn admit(&mut self, name: Name<'_>, now: i64, round: u64) -> Option<Change> {
        let count = self.slots.len();
        if let Some(slot) = self.slots.get_mut(name.text) {
            if self.names == Names::Invented {
                return is_kept(slot.seen, now).then(Change::default);
            }
            let change = Change::moved(slot.seen, now);
            slot.round = round;
            slot.seen = now;
            slot.is_component = name.is_component;
            return Some(if self.names.is_held() { change } else { Change::default() });
        }
        let is_sum = name == Name::OTHER && self.names.are_configured();
        let has_room = is_sum || count < self.most;
        let slot = Slot { seen: now, round, is_component: name.is_component, ..Slot::default() };
        has_room.then(|| self.slots.insert(name.text.to_owned(), slot))?;
        Some(Change { is_fresh: self.names.is_held(), is_moved: false })
    }

    /// Gives slots to names that have started jobs, by rank, while fewer than `most` have one.
    /// Returns what has changed.
    fn give(&mut self, now: i64, most: usize, started: BTreeMap<&str, u64>) -> Change {
        let mut change = Change::default();
        let mut new = Vec::new();
        for (name, rank) in started {
            match self.slots.get_mut(name).filter(|slot| is_kept(slot.seen, now)) {
                Some(slot) => {
                    let moved = Change::moved(mem::replace(&mut slot.seen, now), now);
                    change.is_fresh |= moved.is_fresh;
                    change.is_moved |= moved.is_moved;
                }
                None => new.push((Reverse(rank), name)),
            }
        }
        let kept = self.slots.values_mut().filter(|slot| is_kept(slot.seen, now));
        let mut kept: Vec<&mut Slot> = kept.collect();
        kept.sort_by_key(|slot| Reverse(slot.seen));
        let free = most.saturating_sub(kept.len());
        // The setting is lower than it was.
        kept.into_iter().skip(most).for_each(|slot| slot.seen = i64::MIN);
        new.sort();
        new.truncate(free);
        change.is_fresh |= !new.is_empty();
        new.into_iter()
            .for_each(|(_, name)| self.slots.entry(name.to_owned()).or_default().seen = now);
        change
    }
}

impl Names {
    /// Whether a name's slot is held while the name is absent, and remembered.
    const fn is_held(self) -> bool {
        self.are_configured() || matches!(self, Self::Invented)
    }

    /// Whether an administrator configures the names.
    const fn are_configured(self) -> bool {
        matches!(self, Self::Configured(_) | Self::Used(_) | Self::Chosen)
    }
}

impl Slot {
    /// Whether the name still has points.
    const fn is_here(&self, names: Names, now: i64, round: u64) -> bool {
        match names {
            Names::Closed => true,
            Names::Configured(_) | Names::Chosen | Names::Ranked => self.round == round,
            Names::Used(_) | Names::Invented => is_kept(self.seen, now),
        }
    }
}

const fn is_kept(seen: i64, now: i64) -> bool {
    now.saturating_sub(seen) < KEPT
}

impl<L: MetricTables, const N: usize> Level<L, N> {
    /// Returns the text before the level's first variable part.
    fn start(&self) -> &'static str {
        self.below.split_once('<').map_or(self.below, |(start, _)| start)
    }
}

/// Adds points to a batch, below the prefix, and keeps names to what their levels declare.
pub struct Points<'a> {
    prefix: &'a str,
    batch: &'a mut Batch,
    pub(crate) paths: &'a mut NamedPaths,
}

impl Points<'_> {
    /// Begins a round, whose points go into `batch`. `paths` are the names that have paths.
    pub const fn new<'a>(
        prefix: &'a str,
        batch: &'a mut Batch,
        paths: &'a mut NamedPaths,
    ) -> Points<'a> {
        paths.begin(batch.timestamp());
        Points { prefix, batch, paths }
    }

    /// Adds the figures of `of` at a level, with these names for its variable parts, if they all
    /// have paths.
    pub fn push<L: MetricTables, const N: usize>(
        &mut self,
        level: &'static Level<L, N>,
        names: [Name<'_>; N],
        of: L::Of<'_>,
    ) {
        self.push_filled(level, &names, of, 0);
    }

    /// Adds the figures of each word of a level, which is its last variable part, behind the
    /// `names`. Words of `always`, and words seen before, are 0 if they are absent.
    pub(crate) fn push_words<T: Default, const N: usize, const PARTS: usize>(
        &mut self,
        level: &'static Level<Table<T>, PARTS>,
        names: [Name<'_>; N],
        always: &[&str],
        words: &BTreeMap<String, T>,
    ) {
        let none = T::default();
        let always = always.iter().map(|word| (*word, &none));
        let all: BTreeMap<&str, &T> =
            always.chain(words.iter().map(|(word, of)| (word.as_str(), of))).collect();
        for (word, of) in all {
            self.push_word(level, names, Name::new(word), of);
        }
    }

    /// Adds the figures of each word of a level whose words are names, behind the `names`. The
    /// words without paths are added to `other`, whose figures are at the path `other` unless they
    /// are 0.
    pub(crate) fn push_summed<T: Copy + Default + PartialEq, const N: usize, const PARTS: usize>(
        &mut self,
        level: &'static Level<Table<T>, PARTS>,
        names: [Name<'_>; N],
        words: &BTreeMap<String, T>,
        mut other: T,
        add: fn(&mut T, T),
    ) {
        for (word, of) in words {
            if !self.push_word(level, names, Name::new(word), of) {
                add(&mut other, *of);
            }
        }
        if other != T::default() {
            self.push_word(level, names, Name::OTHER, &other);
        }
    }

    /// Adds the figures of each type of a GRES as words, and at `untyped` those without a type.
    pub(crate) fn push_types<T: Copy + Default + PartialEq, const N: usize, const PARTS: usize>(
        &mut self,
        level: &'static Level<Table<T>, PARTS>,
        untyped: &'static Level<Table<T>, N>,
        names: [Name<'_>; N],
        types: &BTreeMap<String, T>,
        add: fn(&mut T, T),
    ) {
        let mut types = types.clone();
        if let Some(of) = types.remove("") {
            self.push(untyped, names, &of);
        }
        self.push_summed(level, names, &types, T::default(), add);
    }

    fn push_word<T: Default, const N: usize, const PARTS: usize>(
        &mut self,
        level: &'static Level<Table<T>, PARTS>,
        names: [Name<'_>; N],
        word: Name<'_>,
        of: &T,
    ) -> bool {
        const { assert!(PARTS == N + 1, "as many names as variable parts, and a word") };
        let mut filled = Leaves::default();
        level.tables.each(&T::default(), &mut |_, _, value| filled.note(value));
        let names: Vec<Name<'_>> = names.into_iter().chain([word]).collect();
        self.push_filled(level, &names, of, filled.present)
    }

    fn push_filled<L: MetricTables, const N: usize>(
        &mut self,
        level: &'static Level<L, N>,
        names: &[Name<'_>],
        of: L::Of<'_>,
        filled: u64,
    ) -> bool {
        let Self { prefix, batch, paths } = self;
        let round = paths.round;
        let push = |below: &str| {
            let mut leaves = Leaves::default();
            level.tables.each(of, &mut |leaf, suffix, value| {
                leaves.note(value);
                if let Some(value) = value {
                    batch.push_joined(&[prefix, ".", below, ".gauge-", leaf, suffix], value);
                }
            });
            leaves.present
        };
        if filled == 0 && level.names.iter().all(|names| *names == Names::Closed) {
            push(&level.filled(names));
            return true;
        }
        let Some((below, slot)) = paths.admit(level.below, &level.names, names) else {
            return false;
        };
        let level: &'static dyn AnyLevel = level;
        let before = slot.pushed.iter_mut().find(|pushed| std::ptr::addr_eq(pushed.level, level));
        match before {
            // A reply that has a name twice.
            Some(pushed) if pushed.round == round => {}
            Some(pushed) => (pushed.leaves, pushed.round) = (push(&below), round),
            None => slot.pushed.push(Pushed { level, leaves: push(&below), filled, round }),
        }
        true
    }

    /// Ends a round of a collector whose replies have come. Figures of an earlier round that this
    /// round lacks become 0: of a word in every round, of a name that has left for the last time.
    pub(crate) fn end_round(&mut self) {
        let Self { prefix, batch, paths } = self;
        let now = paths.now;
        let round = paths.round;
        let here: Vec<bool> = paths.sets.values().map(|set| paths.is_here(set)).collect();
        for ((start, set), is_here) in paths.sets.iter_mut().zip(here) {
            let names = set.names;
            for (text, slot) in &mut set.slots {
                let is_here = is_here && slot.is_here(names, now, round);
                let name = Name { text, is_component: slot.is_component }.in_path(names);
                for pushed in &mut slot.pushed {
                    let zeroes =
                        if is_here { pushed.filled & pushed.leaves } else { pushed.leaves };
                    if pushed.round == round || zeroes == 0 {
                        continue;
                    }
                    let end = pushed.level.below().rsplit_once('>').map_or("", |(_, end)| end);
                    let leaves = pushed.level.every_leaf().into_iter().enumerate();
                    for (_, leaf) in leaves.filter(|(bit, _)| zeroes >> bit & 1 == 1) {
                        batch.push_joined(
                            &[prefix, ".", start, &name, end, ".gauge-", &leaf.leaf],
                            0.0,
                        );
                    }
                }
                if !is_here {
                    slot.pushed.clear();
                }
                // A moment in the future comes from a clock that was wrong.
                slot.seen = slot.seen.min(now);
            }
            let stays = |slot: &Slot| match names {
                Names::Closed => true,
                Names::Ranked => slot.round == round,
                _ => is_kept(slot.seen, now),
            };
            let count = set.slots.len();
            set.slots.retain(|_, slot| stays(slot));
            paths.fresh |= names.is_held() && set.slots.len() < count;
        }
        self.paths.drop_orphans();
    }

    /// Gives paths to names that have started jobs, by rank, while fewer than `most` have them.
    pub(crate) fn give<L: MetricTables, const N: usize>(
        &mut self,
        level: &Level<L, N>,
        most: usize,
        started: BTreeMap<&str, u64>,
    ) {
        let now = self.paths.now;
        let change = self.paths.set(level.start(), Names::Invented, None).give(now, most, started);
        self.paths.note(change);
    }

    /// Ranks the users of a round, and gives paths to the first.
    pub(crate) fn rank(&mut self, users: &[Candidate<'_>]) {
        let now = self.paths.now;
        self.paths.users.iter_mut().for_each(|paths| paths.update(now, users));
    }

    /// The path component of a user who has paths.
    pub(crate) fn user(&self, user: &Candidate<'_>) -> Option<String> {
        self.paths.users.as_ref()?.member(user).map(str::to_owned)
    }
}

/// The leaves of a level that have a value, as bits in the order of the leaves.
#[derive(Default)]
struct Leaves {
    present: u64,
    count: u32,
}

impl Leaves {
    fn note(&mut self, value: Option<f64>) {
        let bit = 1_u64.checked_shl(self.count).filter(|_| value.is_some());
        self.present |= bit.unwrap_or(0);
        self.count = self.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
