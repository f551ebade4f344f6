//! States, flags and reasons of jobs and nodes, which come and go. Each is a level of paths.
//!
//! When nothing is in a state any more, its count is 0, and a graph must show 0 instead of the last value. So from the
//! first time that a state was seen, it has a point in every round until the daemon ends. States that were never seen
//! have no path.

use std::collections::{BTreeMap, BTreeSet};

use carbon_wire::path;

use crate::levels::{Level, Name, Points, Table};

/// The words seen so far, by the path up to them.
#[derive(Default)]
pub(crate) struct SeenStates(BTreeMap<String, SeenWords>);

struct SeenWords {
    words: BTreeSet<String>,
    /// In this round.
    is_pushed: bool,
    /// Adds zeroes at a path.
    push_zero: PushAt,
}

type PushAt = Box<dyn Fn(&mut Points<'_>, &str) + Send>;

impl SeenStates {
    /// Adds the metrics of each word of a level, which is its last variable part, behind the `names`. Words of `always`, and
    /// words seen before, are 0 if they are absent.
    pub(crate) fn push<T: Default, const N: usize, const PARTS: usize>(
        &mut self,
        points: &mut Points<'_>,
        level: &'static Level<Table<T>, PARTS>,
        names: [Name<'_>; N],
        always: &[&str],
        words: &BTreeMap<String, T>,
    ) {
        const { assert!(PARTS == N + 1, "as many names as variable parts, and a word") };
        let start = level.filled(names.iter().map(Name::as_str).chain([""]));
        let seen = self.0.entry(start.clone()).or_insert_with(|| SeenWords {
            words: BTreeSet::new(),
            is_pushed: false,
            push_zero: Box::new(|points, below| points.push_below(level, below, &T::default())),
        });
        let always = always.iter().map(|word| (*word).to_owned());
        seen.words.extend(always.chain(words.keys().cloned()));
        for word in &seen.words {
            let below = below(&start, word);
            match words.get(word) {
                Some(of) => points.push_below(level, &below, of),
                None => (seen.push_zero)(points, &below),
            }
        }
        seen.is_pushed = true;
    }

    /// Ends the round: words of levels that were not pushed in it, such as those of a partition without jobs, are 0 too.
    pub(crate) fn end(&mut self, points: &mut Points<'_>) {
        for (start, seen) in &mut self.0 {
            if !std::mem::take(&mut seen.is_pushed) {
                seen.words.iter().for_each(|word| (seen.push_zero)(points, &below(start, word)));
            }
        }
    }

    /// Ends the round, and forgets the levels that were not pushed in it: what was there is counted elsewhere now.
    pub(crate) fn forget_absent(&mut self) {
        self.0.retain(|_, seen| std::mem::take(&mut seen.is_pushed));
    }
}

fn below(start: &str, word: &str) -> String {
    format!("{start}{}", path::component(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    metrics! { METRICS: u32 = average("jobs", "count", |n| *n, ""); }

    levels! {
        LEVELS:
        STATE: Level<Table<u32>, 2> = ("<partition>.<state>", METRICS, "");
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
