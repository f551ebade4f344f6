//! The ids of jobs that have been counted, by the hour in which they ended; and the record of an hour.

use std::collections::{BTreeMap, BTreeSet};

use super::HOUR;

/// The version of an hour's record.
const VERSION: u8 = 2;

/// The number of names for hours: more hours than are ever read again.
const NAMES: i64 = 256;

/// Ids by hour of their end, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenIds {
    /// The counts that they belong to.
    first: i64,
    hours: BTreeMap<i64, Vec<u64>>,
}

/// The hour of a moment, Unix seconds.
pub(super) const fn hour_of(end: i64) -> i64 {
    end.div_euclid(HOUR)
}

/// The name of an hour's record.
pub(super) fn name(hour: i64) -> String {
    format!("{PREFIX}{:03}", hour.rem_euclid(NAMES))
}

/// What the names of hours begin with; in the log they come before [`super::ledger::COUNTS`].
pub(super) const PREFIX: &str = "finished.1.hour.";

impl SeenIds {
    pub(super) const fn new(first: i64) -> Self {
        Self { first, hours: BTreeMap::new() }
    }

    /// The hour in which it is.
    pub(super) fn find(&self, id: u64) -> Option<i64> {
        let has = |ids: &Vec<u64>| ids.binary_search(&id).is_ok();
        // Most ids that are found are in the newest hours.
        self.hours.iter().rev().find(|(_, ids)| has(ids)).map(|(hour, _)| *hour)
    }

    pub(super) fn add(&mut self, hour: i64, ids: &[u64]) {
        let known = self.hours.entry(hour).or_default();
        known.extend_from_slice(ids);
        known.sort_unstable();
        known.dedup();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.hours.values().map(Vec::len).sum()
    }

    pub(super) fn hours(&self) -> BTreeSet<i64> {
        self.hours.keys().copied().collect()
    }

    /// The end of the last hour that must be forgotten so that there are no more than `most` ids together with `more`; `None` if
    /// none must. The newest hour stays.
    pub(super) fn floor_for(&self, most: usize, more: &BTreeMap<i64, Vec<u64>>) -> Option<i64> {
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for (hour, ids) in self.hours.iter().chain(more) {
            let count = counts.entry(*hour).or_default();
            *count = count.saturating_add(ids.len());
        }
        let mut left: usize = counts.values().sum();
        let newest = counts.keys().next_back().copied()?;
        let over = counts.into_iter().take_while(|(hour, count)| {
            let goes = left > most && *hour < newest;
            left = left.saturating_sub(*count);
            goes
        });
        over.last().map(|(hour, _)| end_of(hour))
    }

    /// Forgets the hours that are over at `floor`, Unix seconds; returns them.
    pub(super) fn forget(&mut self, floor: i64) -> Vec<i64> {
        let over: Vec<i64> = self.hours.keys().copied().take_while(|hour| end_of(*hour) <= floor).collect();
        over.iter().for_each(|hour| drop(self.hours.remove(hour)));
        over
    }

    /// The record of an hour; empty if the hour has no ids.
    pub(super) fn record(&self, hour: i64) -> Vec<u8> {
        let Some(ids) = self.hours.get(&hour) else { return Vec::new() };
        let mut bytes = Vec::with_capacity(ids.len().saturating_mul(8).saturating_add(17));
        bytes.push(VERSION);
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(hour.to_le_bytes());
        ids.iter().for_each(|id| bytes.extend(id.to_le_bytes()));
        bytes
    }

    /// Reads a record. One that is damaged, of another version or of other counts is ignored.
    pub(super) fn restore(&mut self, record: &[u8]) {
        let Some((&VERSION, rest)) = record.split_first() else { return };
        let Some((first, rest)) = rest.split_first_chunk() else { return };
        let Some((hour, ids)) = rest.split_first_chunk() else { return };
        if i64::from_le_bytes(*first) != self.first {
            return;
        }
        let (ids, _) = ids.as_chunks();
        let ids: Vec<u64> = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();
        self.add(i64::from_le_bytes(*hour), &ids);
    }
}

/// When an hour is over, Unix seconds.
pub(super) const fn end_of(hour: i64) -> i64 {
    hour.saturating_add(1).saturating_mul(HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_back_what_was_put_in_also_ids_of_64_bits() {
        let mut seen = SeenIds::default();
        seen.add(5, &[u64::MAX, 3, 1 << 63, 3]);
        seen.add(6, &[9]);
        let mut again = SeenIds::default();
        for hour in [5, 6, 7] {
            again.restore(&seen.record(hour));
        }
        assert_eq!(again, seen);
        assert_eq!([3, 9, 4].map(|id| again.find(id)), [Some(5), Some(6), None]);
        assert_eq!(again.len(), 4);
    }

    #[test]
    fn too_many_ids_cost_the_oldest_hours_and_never_the_newest() {
        let mut seen = SeenIds::default();
        (5..8).for_each(|hour| seen.add(hour, &[10 * u64::try_from(hour).unwrap(), 1, 2]));
        let more = BTreeMap::from([(7, vec![99])]);
        assert_eq!(seen.floor_for(10, &more), None);
        assert_eq!(seen.floor_for(9, &more), Some(6 * HOUR));
        assert_eq!(seen.floor_for(7, &more), Some(6 * HOUR));
        assert_eq!(seen.floor_for(6, &more), Some(7 * HOUR));
        assert_eq!(seen.floor_for(0, &more), Some(7 * HOUR));
        assert_eq!(SeenIds::default().floor_for(0, &BTreeMap::new()), None);
    }

    #[test]
    fn what_is_no_record_is_nothing() {
        let mut seen = SeenIds::default();
        for record in [&b""[..], &[2; 17], &[1, 0, 0], &[1]] {
            seen.restore(record);
        }
        assert_eq!(seen, SeenIds::default());
    }

    #[test]
    fn an_hour_is_forgotten_when_it_is_over() {
        let mut seen = SeenIds::default();
        seen.add(5, &[1]);
        seen.add(6, &[2]);
        assert_eq!(seen.forget(6 * HOUR - 1), [0; 0]);
        assert_eq!(seen.forget(6 * HOUR), [5]);
        assert_eq!((seen.find(1), seen.find(2), seen.hours()), (None, Some(6), [6].into()));
        assert_eq!(hour_of(6 * HOUR - 1), 5);
        assert_eq!(hour_of(-1), -1);
    }

    #[test]
    fn hours_that_are_read_again_never_share_a_name() {
        let names: std::collections::BTreeSet<String> = (1000..1000 + NAMES).map(name).collect();
        assert_eq!(names.len(), 256);
        assert_eq!(name(1000), name(1000 + NAMES));
        assert!(names.iter().all(|name| name.as_str() < super::super::ledger::COUNTS));
    }
}
