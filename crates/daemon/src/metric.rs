//! Metrics: what a value is called, what it means, and how it comes into a batch.

use carbon::Batch;
use serde::Serialize;

use crate::derive::exact_f64;

/// One published metric of a `T`.
pub(crate) struct Metric<T: ?Sized> {
    /// The path's last component, behind `gauge-`.
    pub(crate) leaf: &'static str,
    /// µs, count and so on.
    pub(crate) unit: &'static str,
    /// How Carbon should roll it up.
    pub(crate) rollup: Rollup,
    /// What it tells an administrator.
    pub(crate) meaning: &'static str,
    /// `None` publishes nothing.
    pub(crate) value: fn(&T) -> Option<f64>,
}

/// What a coarser archive should keep of a metric: Carbon's `aggregationMethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rollup {
    Average,
    /// Counters, which only their last value continues, and moments.
    Last,
    Max,
}

impl Rollup {
    /// As Carbon writes it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::Last => "last",
            Self::Max => "max",
        }
    }
}

/// Metrics of whatever type, as the documentation has them.
pub(crate) trait Leaves {
    fn leaves(&self) -> Vec<Leaf>;
}

/// What a [`Metric`] says about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) leaf: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) rollup: Rollup,
    pub(crate) meaning: &'static str,
}

/// Where a collector's points go: the tick's batch, below its prefix.
pub(crate) struct Points<'a> {
    prefix: &'a str,
    batch: &'a mut Batch,
}

impl Points<'_> {
    pub(crate) const fn new<'a>(prefix: &'a str, batch: &'a mut Batch) -> Points<'a> {
        Points { prefix, batch }
    }

    /// The metrics of `of` below `below`, which is behind the prefix.
    pub(crate) fn push<T: ?Sized>(&mut self, below: &str, metrics: &[Metric<T>], of: &T) {
        for metric in metrics {
            if let Some(value) = (metric.value)(of) {
                self.batch.push_joined(&[self.prefix, ".", below, ".gauge-", metric.leaf], value);
            }
        }
    }
}

/// A metric that is always there. Graphite's values are floats: whole numbers stay exact up to 2^53.
#[expect(clippy::unnecessary_wraps, reason = "what a metric's value is")]
pub(crate) fn count(value: u64) -> Option<f64> {
    Some(exact_f64(value))
}

/// Bytes of what Slurm counts in MiB, as it does all memory.
pub(crate) fn mebibytes(value: u64) -> Option<f64> {
    count(value.saturating_mul(1 << 20))
}

impl<T: ?Sized> Leaves for &[Metric<T>] {
    fn leaves(&self) -> Vec<Leaf> {
        let leaf = |metric: &Metric<T>| {
            let &Metric { leaf, unit, rollup, meaning, .. } = metric;
            Leaf { leaf, unit, rollup, meaning }
        };
        self.iter().map(leaf).collect()
    }
}

/// Metrics of two types below one level.
impl<A: ?Sized, B: ?Sized> Leaves for (&[Metric<A>], &[Metric<B>]) {
    fn leaves(&self) -> Vec<Leaf> {
        let (first, second) = (Leaves::leaves(&self.0), Leaves::leaves(&self.1));
        first.into_iter().chain(second).collect()
    }
}
