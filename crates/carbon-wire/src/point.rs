//! Datapoints, and the batch that holds points under one timestamp.
//!
//! One item that Carbon cannot read costs the whole frame and the connection. So a batch accepts
//! only legal paths and finite values, and counts what it refuses.

use std::collections::HashSet;

use crate::path;

/// One value of one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<'a> {
    path: &'a str,
    value: f64,
}

impl<'a> Point<'a> {
    /// The metric path, legal.
    #[must_use]
    pub const fn path(&self) -> &'a str {
        self.path
    }

    /// The value, finite.
    #[must_use]
    pub const fn value(&self) -> f64 {
        self.value
    }
}

/// The points under one timestamp: of a tick, a survey or a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    timestamp: i64,
    /// All paths in one string: an allocation for each would cost more than the path itself.
    paths: String,
    /// The end of each point's path in `paths`, bytes, and the point's value.
    points: Vec<(usize, f64)>,
    refused: u64,
}

impl Batch {
    /// An empty batch for `timestamp`, Unix seconds.
    #[must_use]
    pub const fn new(timestamp: i64) -> Self {
        Self { timestamp, paths: String::new(), points: Vec::new(), refused: 0 }
    }

    /// Empties the batch for another tick at `timestamp`, Unix seconds. It keeps its memory: a
    /// batch that grows from nothing uses three times as much.
    pub fn restart(&mut self, timestamp: i64) {
        (self.timestamp, self.refused) = (timestamp, 0);
        self.paths.clear();
        self.points.clear();
    }

    /// Adds a point. It is refused and counted if its path is not legal, its value is NaN or
    /// infinite, or the batch's time is before 1970 or after 2106, which receivers cannot read.
    pub fn push(&mut self, path: String, value: f64) {
        self.push_joined(&[&path], value);
    }

    /// Adds a point whose path is in several parts, which need not be joined first. It is refused
    /// as in [`Batch::push`].
    pub fn push_joined(&mut self, path: &[&str], value: f64) {
        let start = self.paths.len();
        path.iter().for_each(|part| self.paths.push_str(part));
        let path = self.paths.get(start..).unwrap_or_default();
        if value.is_finite() && u32::try_from(self.timestamp).is_ok() && path::check(path).is_ok() {
            self.points.push((self.paths.len(), value));
        } else {
            self.paths.truncate(start);
            self.refused += 1;
        }
    }

    /// Refuses points that have the path of an earlier one: Carbon would keep only one of them.
    pub fn refuse_repeated(&mut self) {
        let mut seen = HashSet::with_capacity(self.points.len());
        if self.points().all(|point| seen.insert(point.path())) {
            return;
        }
        let mut unique = Self { refused: self.refused, ..Self::new(self.timestamp) };
        seen.clear();
        for point in self.points() {
            match seen.insert(point.path()) {
                true => unique.push_joined(&[point.path()], point.value()),
                false => unique.refused += 1,
            }
        }
        *self = unique;
    }

    /// The timestamp of every point, Unix seconds.
    #[must_use]
    pub const fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// The points, in the order in which they were added.
    pub fn points(&self) -> impl ExactSizeIterator<Item = Point<'_>> + Clone {
        let mut start = 0;
        self.points.iter().map(move |&(end, value)| {
            let path = self.paths.get(start..end).unwrap_or_default();
            start = end;
            Point { path, value }
        })
    }

    /// The number of refused points.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_legal_paths_and_finite_values_get_in(
            points in proptest::collection::vec((any::<String>(), proptest::num::f64::ANY), 0..50),
        ) {
            let mut batch = Batch::new(0);
            let offered = points.len();
            for (path, value) in points {
                batch.push(path, value);
            }
            prop_assert!(batch.points().all(|p| p.value().is_finite()
                && path::check(p.path()).is_ok()));
            prop_assert_eq!(batch.points().len() as u64 + batch.refused(), offered as u64);
        }
    }

    #[test]
    fn nan_and_infinity_are_counted_not_sent() {
        let mut batch = Batch::new(30);
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            batch.push_joined(&["a", ".b"], value);
        }
        assert_eq!((batch.points().len(), batch.refused()), (1, 3));
    }
}
