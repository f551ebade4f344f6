//! The commit of a round: what must be on disk before its jobs count.

use std::collections::{BTreeMap, BTreeSet};

use super::super::HOUR;
use super::super::round::{FinishedRound, Levels};
use super::super::seen::{self, SeenIds, end_of, hour_of};
use super::super::tally::{Figures, Tally};
use super::{Counts, EndedRun, FinishedLedger, Incomplete, Next, RememberedSpan, VERSION};

impl FinishedLedger {
    /// Makes the commit of `round`. `slot` is the timestamp of its batch, if this host publishes
    /// it.
    pub fn next(&self, mut round: FinishedRound, slot: i64, span: RememberedSpan) -> Next {
        let old = &self.counts;
        let mut used = old.used.clone();
        used.extend(round.used());
        let figures = round.figures();
        let totals = self.totals(&round.levels, &figures, &used);
        used.retain(|level, _| totals.contains_key(level));
        // One that a full reading has not found is gone.
        let has_all = round.is_complete && round.is_full;
        let mut incomplete = if has_all { BTreeMap::new() } else { self.incomplete.clone() };
        incomplete.append(&mut round.incomplete);
        incomplete.retain(|id, _| !round.has_counted(*id));
        let latest = old.latest.max(round.latest);
        let floor = match latest {
            Some(latest) if round.is_complete => self.raised_floor(&incomplete, latest, span),
            _ => old.floor,
        };
        let mut sizes = self.seen.sizes(&round.ids);
        let bound = SeenIds::floor_for(&sizes, span.ids);
        let floor_above = floor.max(bound.unwrap_or(floor));
        let forgotten = sizes.keys().copied().filter(|hour| end_of(*hour) <= floor_above).max();
        sizes.retain(|hour, _| end_of(*hour) > floor_above);
        let mut ids = round.ids;
        ids.retain(|hour, _| end_of(*hour) > floor_above);
        let live: BTreeSet<String> =
            ids.keys().chain(sizes.keys()).copied().map(seen::name).collect();
        let is_over =
            |hour: &&i64| end_of(**hour) <= floor_above && !live.contains(&seen::name(**hour));
        let emptied = self.written.iter().filter(is_over).copied().collect();
        let changed_total = old.changed_total.saturating_add(round.reading.changed);
        let late_total = old.late_total.saturating_add(round.reading.late_jobs);
        let steps_unknown_total =
            old.steps_unknown_total.saturating_add(round.reading.steps_unknown);
        let is_silent = round.is_silent;
        let slot = if is_silent { old.slot } else { slot };
        let ended_runs = old.ended_runs.iter().copied().chain(round.ended_runs).collect();
        let counts = Counts {
            version: VERSION,
            cluster: old.cluster.clone(),
            first: old.first,
            efficiency: round.efficiency,
            floor: floor_above,
            lowered_from: old.lowered_from,
            latest,
            forgotten: old.forgotten.max(forgotten),
            moment: Some(round.moment),
            slot,
            totals,
            round: figures,
            reading: round.reading,
            late_total,
            changed_total,
            steps_unknown_total,
            used,
            ended_runs: EndedRun::newest(ended_runs, floor_above),
            sizes,
        };
        let is_short = bound.is_some_and(|bound| bound > floor);
        Next { is_short, is_silent, counts, incomplete, ids, emptied }
    }

    /// Returns the totals by level after a round. If more names have levels than the settings say,
    /// some lose theirs, the longest unused first: but only names that have not been used for 30
    /// days and that this round does not have.
    fn totals(
        &self,
        levels: &Levels,
        figures: &BTreeMap<String, Figures>,
        used: &BTreeMap<String, i64>,
    ) -> BTreeMap<String, Tally> {
        let mut totals = self.counts.totals.clone();
        totals.retain(|level, _| levels.has(level));
        for (level, figures) in figures {
            totals.entry(level.clone()).or_default().add(&figures.sums);
        }
        totals.entry("total".to_owned()).or_default();
        for (own, most) in levels.own() {
            let all = totals.keys().filter(|level| level.starts_with(own)).count();
            let stays = |level: &str| self.counts.has_level(level) || figures.contains_key(level);
            let goes = totals.keys().filter(|level| level.starts_with(own) && !stays(level));
            let mut goes: Vec<(Option<i64>, String)> =
                goes.map(|level| (used.get(level).copied(), level.clone())).collect();
            goes.sort_unstable();
            for (_, level) in goes.into_iter().take(all.saturating_sub(most)) {
                totals.remove(&level);
            }
        }
        totals
    }

    /// Returns the floor after a complete round, Unix seconds: `span.seconds` before the hour of
    /// `latest`, the newest end, or of the oldest row that waits to be counted, if that is earlier.
    /// The floor never falls.
    fn raised_floor(
        &self,
        incomplete: &BTreeMap<u64, Incomplete>,
        latest: i64,
        span: RememberedSpan,
    ) -> i64 {
        let first = incomplete.values().map(|job| job.end).min().unwrap_or(latest).min(latest);
        let floor = hour_of(first).saturating_mul(HOUR).saturating_sub(span.seconds);
        self.counts.floor.max(floor)
    }
}
