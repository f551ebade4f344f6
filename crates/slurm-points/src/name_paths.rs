//! Which names have their own paths, of a kind that any user can invent, such as accounts where nothing enforces them.
//! Bounded over time, because in Graphite a path is a file that stays.
//!
//! A slot is given to a name with a job that has started, and it is free again after 30 days without one. Pure: the
//! moment and the names are arguments.

use std::collections::BTreeMap;

/// How long a slot is kept without a job that has started.
const KEPT: i64 = 30 * 86_400;

/// How often the memory is written if no slot was given or taken.
const WRITTEN_EVERY: i64 = 3600;

#[derive(Debug)]
pub(crate) struct NamePaths {
    most: usize,
    /// When a started job of each name was last seen, Unix seconds.
    slots: BTreeMap<String, i64>,
    /// What is not written yet: `fresh`, other names; `moved`, only later moments.
    fresh: bool,
    moved: bool,
    written: i64,
    now: i64,
}

impl NamePaths {
    /// `most` slots, and those remembered.
    pub(crate) fn new(most: usize, remembered: BTreeMap<String, i64>) -> Self {
        let mut slots: Vec<_> = remembered.into_iter().collect();
        slots.sort_by_key(|(_, seen)| std::cmp::Reverse(*seen));
        slots.truncate(most);
        let slots = slots.into_iter().collect();
        Self { most, slots, fresh: false, moved: false, written: i64::MIN, now: i64::MIN }
    }

    /// Takes the names of which a round has started jobs: frees the slots whose time is over, and gives those that are free to the new names
    /// with the highest rank.
    pub(crate) fn update(&mut self, now: i64, started: BTreeMap<String, u64>) {
        self.now = now;
        let before = self.slots.len();
        // A moment in the future comes from a clock that was wrong.
        self.slots.values_mut().for_each(|seen| *seen = now.min(*seen));
        self.slots.retain(|_, seen| now.saturating_sub(*seen) < KEPT);
        self.fresh |= self.slots.len() < before;
        let mut new = Vec::new();
        for (name, rank) in started {
            match self.slots.get_mut(&name) {
                Some(seen) => self.moved |= std::mem::replace(seen, now) != now,
                None => new.push((std::cmp::Reverse(rank), name)),
            }
        }
        new.sort();
        new.truncate(self.most.saturating_sub(self.slots.len()));
        self.fresh |= !new.is_empty();
        self.slots.extend(new.into_iter().map(|(_, name)| (name, now)));
    }

    /// The names that have slots.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.keys().map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.slots.contains_key(name)
    }

    /// Whether enough has changed to be written.
    pub(crate) const fn is_due(&self) -> bool {
        self.fresh || (self.moved && self.now.saturating_sub(self.written) >= WRITTEN_EVERY)
    }

    /// What must be remembered, which is written now.
    pub(crate) const fn write(&mut self) -> &BTreeMap<String, i64> {
        (self.fresh, self.moved, self.written) = (false, false, self.now);
        &self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn started<const N: usize>(names: [(&str, u64); N]) -> BTreeMap<String, u64> {
        names.map(|(name, rank)| (name.to_owned(), rank)).into()
    }

    fn names(paths: &NamePaths) -> Vec<&str> {
        paths.names().collect()
    }

    #[test]
    fn the_first_slots_go_by_rank_and_a_slot_is_free_after_30_days_without_a_started_job() {
        let mut paths = NamePaths::new(2, BTreeMap::new());
        paths.update(0, started([("a", 1), ("b", 9), ("c", 5)]));
        assert_eq!(names(&paths), ["b", "c"]);
        paths.update(20 * DAY, started([("a", 100), ("b", 0)]));
        assert_eq!(names(&paths), ["b", "c"], "its time is not over");
        paths.update(30 * DAY - 1, started([("a", 100)]));
        assert_eq!(names(&paths), ["b", "c"]);
        paths.update(30 * DAY, started([("a", 100)]));
        assert_eq!(names(&paths), ["a", "b"], "the series goes to another name");
        assert!(paths.has("a") && !paths.has("c"));
    }

    /// Otherwise each restart would give every slot to another name, and every name is files that stay.
    #[test]
    fn slots_are_remembered_and_fewer_of_them_keep_the_latest() {
        let mut paths = NamePaths::new(3, BTreeMap::new());
        for (at, name) in [(0, "a"), (10, "b"), (20, "c")] {
            paths.update(at, started([(name, 1)]));
        }
        assert!(paths.is_due());
        let remembered = paths.write().clone();
        paths.update(30, started([("c", 1)]));
        assert!(!paths.is_due(), "once an hour is enough for moments");
        paths.update(20 + WRITTEN_EVERY, started([]));
        assert!(paths.is_due());
        let mut again = NamePaths::new(2, remembered);
        again.update(30, started([("d", 9)]));
        assert_eq!(names(&again), ["b", "c"]);
    }

    #[test]
    fn a_moment_in_the_future_does_not_keep_a_slot_for_years() {
        let mut paths = NamePaths::new(1, [("a".to_owned(), 900 * DAY)].into());
        paths.update(DAY, started([]));
        paths.update(31 * DAY, started([]));
        assert_eq!(names(&paths), [""; 0]);
    }
}
