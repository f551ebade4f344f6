//! States, flags and reasons of jobs and nodes, which come and go. Each is a level of paths.
//!
//! When nothing is in a state any more, its count is 0, and a graph must show 0 instead of the last value. So from the
//! first time that a state was seen, it has a point in every round until the daemon ends. States that were never seen
//! have no path.

use std::collections::{BTreeMap, BTreeSet};

use crate::levels::{AnyLevel, Name, Points, WordLevel};

/// The words seen so far, by their level and its names.
#[derive(Default)]
pub(crate) struct SeenStates(BTreeMap<(&'static str, Vec<String>), SeenWords>);

struct SeenWords {
    level: &'static dyn Zero,
    words: BTreeSet<String>,
    /// In this round.
    is_pushed: bool,
}

/// A level of words, whatever its figures are made of.
trait Zero: Sync {
    fn push_zero(&self, points: &mut Points<'_>, names: &[String], word: &str);
}

impl<T: Default, const N: usize> Zero for WordLevel<T, N> {
    fn push_zero(&self, points: &mut Points<'_>, names: &[String], word: &str) {
        points.push_word(self, names, word, &T::default());
    }
}

impl SeenStates {
    /// Adds the metrics of each word of a level; words of `always`, and words seen before, are 0 if they are absent.
    pub(crate) fn push<T: Default, const N: usize>(
        &mut self,
        points: &mut Points<'_>,
        level: &'static WordLevel<T, N>,
        names: [Name<'_>; N],
        always: &[&str],
        words: &BTreeMap<String, T>,
    ) {
        let names: Vec<String> = names.iter().map(|name| name.as_str().to_owned()).collect();
        let new = || SeenWords { level, words: BTreeSet::new(), is_pushed: false };
        let seen = self.0.entry((level.below(), names.clone())).or_insert_with(new);
        seen.words.extend(always.iter().map(|word| (*word).to_owned()));
        for word in words.keys() {
            if !seen.words.contains(word) {
                seen.words.insert(word.clone());
            }
        }
        let nothing = T::default();
        for word in &seen.words {
            points.push_word(level, &names, word, words.get(word).unwrap_or(&nothing));
        }
        seen.is_pushed = true;
    }

    /// Ends the round: words of levels that were not pushed in it, such as those of a partition without jobs, are 0 too.
    pub(crate) fn end(&mut self, points: &mut Points<'_>) {
        for ((_, names), seen) in &mut self.0 {
            if !std::mem::take(&mut seen.is_pushed) {
                seen.words.iter().for_each(|word| seen.level.push_zero(points, names, word));
            }
        }
    }

    /// Ends the round, and forgets the levels that were not pushed in it: what was there is counted elsewhere now.
    pub(crate) fn forget_absent(&mut self) {
        self.0.retain(|_, seen| std::mem::take(&mut seen.is_pushed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels;
    use crate::metric::{Metric, average, number};

    const METRICS: &[Metric<u32>] = &[average("jobs", "count", |&n| number(n), "")];

    levels! {
        LEVELS:
        STATE: WordLevel<u32, 1> = ("<partition>.<state>", METRICS, "");
    }

    fn round(words: &mut SeenStates, levels: &[(&str, &[(&str, u32)])]) -> Vec<(String, f64)> {
        assert_eq!(LEVELS.len(), 1);
        let mut batch = carbon_wire::Batch::new(0);
        let mut points = Points::new("c", &mut batch);
        for (partition, now) in levels {
            let now = now.iter().map(|(word, n)| ((*word).to_owned(), *n)).collect();
            words.push(&mut points, &STATE, [Name::of(partition)], &["running"], &now);
        }
        words.end(&mut points);
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
        round(&mut words, &[("debug", &[("pending", 3)]), ("gpu", &[])]);
        let second = round(&mut words, &[("gpu", &[])]);
        assert_eq!(second.len(), 3);
        assert!(second.contains(&("c.debug.pending.gauge-jobs".into(), 0.0)));
    }
}
