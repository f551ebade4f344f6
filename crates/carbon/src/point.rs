//! Datapoints, and the batch that holds those of one tick under one timestamp.
//!
//! One item that Carbon cannot read costs the whole frame and the connection, so that a batch takes only legal
//! paths and finite values, and counts what it refuses.

use crate::path;

/// One value of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    path: String,
    value: f64,
}

impl Point {
    /// The metric path, legal.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value, finite.
    #[must_use]
    pub const fn value(&self) -> f64 {
        self.value
    }
}

/// The points of one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    timestamp: i64,
    points: Vec<Point>,
    refused: u64,
}

impl Batch {
    /// An empty batch for `timestamp`, Unix seconds.
    #[must_use]
    pub const fn new(timestamp: i64) -> Self {
        Self { timestamp, points: Vec::new(), refused: 0 }
    }

    /// Adds a point, unless its path is not legal, its value is NaN or infinite, or the batch's time is before 1970 or behind
    /// 2106, which receivers cannot read: that is counted.
    pub fn push(&mut self, path: String, value: f64) {
        if value.is_finite() && u32::try_from(self.timestamp).is_ok() && path::check(&path).is_ok() {
            self.points.push(Point { path, value });
        } else {
            self.refused = self.refused.saturating_add(1);
        }
    }

    /// Unix seconds, the same for every point.
    #[must_use]
    pub const fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// The points, in the order they came in.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// How many points were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// About how many bytes of memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let paths: usize = self.points.iter().map(|point| point.path.len()).sum();
        size_of::<Self>() + paths + self.points.len() * size_of::<Point>()
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
            prop_assert!(batch.points().iter().all(|p| p.value().is_finite() && path::check(p.path()).is_ok()));
            prop_assert_eq!(batch.points().len() as u64 + batch.refused(), offered as u64);
        }
    }

    #[test]
    fn nan_and_infinity_are_counted_not_sent() {
        let mut batch = Batch::new(30);
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
            batch.push("a.b".into(), value);
        }
        assert_eq!((batch.points().len(), batch.refused()), (1, 3));
    }
}
