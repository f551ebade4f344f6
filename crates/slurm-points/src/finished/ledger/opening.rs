//! The ledger at the start: as the queue's log has it, as much as is left of a damaged one, or a
//! first one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::HOUR;
use super::super::seen::{self, SeenIds, end_of};
use super::{COUNTS, Counts, FinishedLedger, VERSION};

/// Seconds that slurmctld's clock, and so the end of a job, may be ahead of this host's clock.
const AHEAD: i64 = 300;

/// The counts that the queue's log had at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Neither counts nor ids: nothing was ever counted here.
    Nothing,
    /// The counts of another cluster.
    OfAnother,
    /// Counts with all ids that belong to them.
    Whole,
    /// Counts that lack some ids. Jobs that ended before this moment, Unix seconds, are not counted
    /// any more.
    DamagedHour(i64),
    /// Ids without counts. The totals begin again with the jobs that end from this moment on, Unix
    /// seconds.
    NoCounts(i64),
}

impl FinishedLedger {
    /// The ledger of this cluster, from the records in the log.
    pub fn open(cluster: &str, now: i64, records: &BTreeMap<String, Arc<[u8]>>) -> (Self, Found) {
        let counts =
            records.get(COUNTS).and_then(|counts| serde_json::from_slice::<Counts>(counts).ok());
        let Some(counts) = counts.filter(|counts| counts.version == VERSION) else {
            return Self::without_counts(cluster, now, records);
        };
        let mut seen = SeenIds::new(counts.first);
        for record in hours(records) {
            seen.restore(record);
        }
        let written = seen.hours();
        seen.forget(counts.floor);
        let mut ledger = Self { counts, seen, written, ..Self::default() };
        if ledger.counts.cluster != cluster {
            return (ledger.first_of_another(cluster, now), Found::OfAnother);
        }
        let found = ledger.raise_above_damage().map_or(Found::Whole, Found::DamagedHour);
        (ledger, found)
    }

    /// Raises the floor to the end of the newest hour that has lost ids, so that none of its jobs
    /// counts a second time. Returns the floor; `None` if no ids are lost. Jobs that ended after
    /// the newest counted one may still count, so the floor stays at most 1 s above that end.
    fn raise_above_damage(&mut self) -> Option<i64> {
        let counts = &mut self.counts;
        counts.sizes.retain(|hour, _| end_of(*hour) > counts.floor);
        let hour = self.seen.newest_damaged(&counts.sizes)?;
        let latest = counts.latest.unwrap_or(i64::MAX);
        counts.floor = counts.floor.max(end_of(hour).min(latest.saturating_add(1)));
        self.seen.forget(counts.floor);
        counts.sizes = self.seen.sizes(&BTreeMap::new());
        Some(counts.floor)
    }

    /// Makes the ledger if the log has no counts. Ids without counts cannot be used, because it is
    /// not known how many are missing.
    fn without_counts(
        cluster: &str,
        now: i64,
        records: &BTreeMap<String, Arc<[u8]>>,
    ) -> (Self, Found) {
        let mut ledger = Self::first(cluster, now);
        let newest = hours(records).filter_map(|record| seen::hour_of_record(record)).max();
        let Some(newest) = newest else { return (ledger, Found::Nothing) };
        let surely = end_of(newest);
        // Nothing that was counted ended later than this, unless our clock is behind it.
        let is_behind = now < newest.saturating_mul(HOUR);
        let floor = if is_behind { surely } else { surely.min(now.saturating_add(AHEAD)) };
        ledger.counts.floor = floor;
        // A round may have used the slot of this moment; but nobody knows which rounds this host
        // has published, so it is not theirs.
        ledger.uncounted = now;
        // Something was counted, so that no clock lowers this floor.
        ledger.counts.latest = Some(floor.saturating_sub(1));
        (ledger, Found::NoCounts(floor))
    }
}

fn hours(records: &BTreeMap<String, Arc<[u8]>>) -> impl Iterator<Item = &Arc<[u8]>> {
    records.iter().filter(|(name, _)| name.starts_with(seen::PREFIX)).map(|(_, record)| record)
}
