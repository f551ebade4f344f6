//! States, flags and reasons of jobs and nodes, which come and go. Each is a level of paths.
//!
//! When nothing is in a state any more, its count is 0, and a graph must show 0 instead of the last value. So from the
//! first time that a state was seen, it has a point in every round until the daemon ends. States that were never seen
//! have no path.

use std::collections::{BTreeMap, BTreeSet};

use carbon_wire::path;

use crate::metric::{Metric, Points};

/// The words seen so far, each with the level that it is below.
#[derive(Debug, Default)]
pub(crate) struct SeenStates {
    seen: BTreeMap<String, BTreeSet<String>>,
    /// The levels pushed in this round.
    spoken: BTreeSet<String>,
}

impl SeenStates {
    /// Adds the metrics of each word below `level`; words of `always`, and words seen before, are 0 if they are absent.
    pub(crate) fn push<T: Default>(
        &mut self,
        points: &mut Points<'_>,
        level: &str,
        always: &[&str],
        words: &BTreeMap<String, T>,
        metrics: &[Metric<T>],
    ) {
        let seen = self.seen.entry(level.to_owned()).or_default();
        seen.extend(always.iter().map(|word| (*word).to_owned()));
        for word in words.keys() {
            if !seen.contains(word) {
                seen.insert(word.clone());
            }
        }
        let nothing = T::default();
        for word in &*seen {
            let of = words.get(word).unwrap_or(&nothing);
            points.push(&format!("{level}.{}", path::component(word)), metrics, of);
        }
        self.spoken.insert(level.to_owned());
    }

    /// Ends the round: words below levels that were not pushed in it, such as a partition without jobs, are 0 too.
    pub(crate) fn end<T: Default>(&mut self, points: &mut Points<'_>, metrics: &[Metric<T>]) {
        let nothing = T::default();
        for (level, words) in self.seen.iter().filter(|(level, _)| !self.spoken.contains(*level)) {
            for word in words {
                points.push(&format!("{level}.{}", path::component(word)), metrics, &nothing);
            }
        }
        self.spoken.clear();
    }

    /// Ends the round, and forgets the levels that were not pushed in it: what was below them is counted elsewhere now.
    pub(crate) fn end_silently(&mut self) {
        let spoken = std::mem::take(&mut self.spoken);
        self.seen.retain(|level, _| spoken.contains(level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{average, number};

    const METRICS: &[Metric<u32>] = &[average("jobs", "count", |&n| number(n), "")];

    fn round(words: &mut SeenStates, levels: &[(&str, &[(&str, u32)])]) -> Vec<(String, f64)> {
        let mut batch = carbon_wire::Batch::new(0);
        let mut points = Points::new("c", &mut batch);
        for (level, now) in levels {
            let now = now.iter().map(|(word, n)| ((*word).to_owned(), *n)).collect();
            words.push(&mut points, level, &["running"], &now, METRICS);
        }
        words.end(&mut points, METRICS);
        batch.points().map(|point| (point.path().to_owned(), point.value())).collect()
    }

    #[test]
    fn a_state_that_nobody_is_in_any_more_is_a_zero_and_no_hole() {
        let mut words = SeenStates::default();
        let first = round(&mut words, &[("s", &[("pending", 3)])]);
        assert_eq!(first, [("c.s.pending.gauge-jobs".into(), 3.0), ("c.s.running.gauge-jobs".into(), 0.0)]);
        let second = round(&mut words, &[("s", &[("running", 2)])]);
        assert_eq!(second, [("c.s.pending.gauge-jobs".into(), 0.0), ("c.s.running.gauge-jobs".into(), 2.0)]);
    }

    #[test]
    fn a_level_that_is_gone_is_zeroes() {
        let mut words = SeenStates::default();
        round(&mut words, &[("p.debug", &[("pending", 3)]), ("p.gpu", &[])]);
        let second = round(&mut words, &[("p.gpu", &[])]);
        assert_eq!(second.len(), 3);
        assert!(second.contains(&("c.p.debug.pending.gauge-jobs".into(), 0.0)));
    }
}
