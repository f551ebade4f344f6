//! Metrics: what a value is called, what it means, and how it comes into a batch.

use std::borrow::Cow;

use serde::Serialize;

/// One published metric of a `T`.
pub struct Metric<T> {
    /// The path's last component, behind `gauge-`.
    pub leaf: Text,
    pub(crate) unit: Text,
    pub(crate) rollup: Rollup,
    /// Explains the figure to an administrator.
    pub(crate) meaning: Text,
    /// Computes the value; `None` publishes nothing.
    pub(crate) value: Value<T>,
}

type Text = &'static str;
type Value<T> = fn(&T) -> Option<f64>;

/// A metric of which a coarser archive keeps the average.
pub const fn average<T>(leaf: Text, unit: Text, value: Value<T>, meaning: Text) -> Metric<T> {
    Metric { leaf, unit, rollup: Rollup::Average, meaning, value }
}

/// A counter or a moment, of which a coarser archive keeps the last value.
pub const fn last<T>(leaf: Text, unit: Text, value: Value<T>, meaning: Text) -> Metric<T> {
    Metric { leaf, unit, rollup: Rollup::Last, meaning, value }
}

/// A metric of which a coarser archive keeps the greatest value.
pub const fn max<T>(leaf: Text, unit: Text, value: Value<T>, meaning: Text) -> Metric<T> {
    Metric { leaf, unit, rollup: Rollup::Max, meaning, value }
}

/// Declares tables of metrics. A value may be any that [`crate::metric::number`] takes. A leaf
/// without quotes is also the name of the member that it publishes.
#[macro_export]
macro_rules! metrics {
    ($($(#[$meta:meta])* $visibility:vis $table:ident: $of:ty =
        $($rollup:ident($($metric:tt)+)),+;)+) => {$(
        $(#[$meta])*
        $visibility const $table:
            &[$crate::metric::Metric<$of>] = &[$($crate::metrics!(@$rollup $($metric)+)),+];
    )+};
    (@$rollup:ident $leaf:expr, $unit:literal, |$it:pat_param| $value:expr, $meaning:expr) => {
        $crate::metric::$rollup($leaf, $unit, |$it| $crate::metric::number($value), $meaning)
    };
    (@$rollup:ident $member:ident, $unit:literal, $meaning:expr) => {
        $crate::metrics!(@$rollup stringify!($member), $unit, |it| it.$member, $meaning)
    };
}

/// The number that a coarser archive should keep of a metric: Carbon's `aggregationMethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollup {
    /// The mean value.
    Average,
    /// The last value: for moments, and for counters, which only their last value continues.
    Last,
    /// The greatest value.
    Max,
}

impl Rollup {
    /// Returns Carbon's word for this roll-up.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::Last => "last",
            Self::Max => "max",
        }
    }
}

/// A [`Metric`] without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The end of the metric's path, after `gauge-`.
    pub leaf: Cow<'static, str>,
    /// The unit of its values.
    pub unit: &'static str,
    /// The number that a coarser archive should keep of many points.
    pub rollup: Rollup,
    /// Explains the figure.
    pub meaning: Cow<'static, str>,
}

/// Metrics as sums since the first start; their leaves end in `_total`.
pub(crate) struct MetricTotals<T: 'static>(pub(crate) &'static [Metric<T>]);

impl<T> Metric<T> {
    pub(crate) fn without_value(&self) -> Leaf {
        let &Self { leaf, unit, rollup, meaning, .. } = self;
        Leaf { leaf: leaf.into(), unit, rollup, meaning: meaning.into() }
    }

    pub(crate) fn total_without_value(&self) -> Leaf {
        let &Self { leaf, unit, .. } = self;
        let meaning = format!("{leaf} since the first start").into();
        Leaf { leaf: format!("{leaf}_total").into(), unit, rollup: Rollup::Last, meaning }
    }
}

/// A number that can be published. Graphite's values are floats: whole numbers are exact up to
/// 2^53.
pub trait AsNumber {
    /// Returns the number as a float; `None` publishes nothing.
    fn number(self) -> Option<f64>;
}

/// Converts the value of a metric to what is published; `None` is no point.
pub fn number(value: impl AsNumber) -> Option<f64> {
    value.number()
}

macro_rules! impl_number {
    ($($of:ty)+) => {$(
        impl AsNumber for $of {
            fn number(self) -> Option<f64> {
                Some(self as f64)
            }
        }
    )+};
}

impl_number!(u16 u32 u64 i64 usize f64);

impl AsNumber for bool {
    fn number(self) -> Option<f64> {
        Some(self.into())
    }
}

impl<N: AsNumber> AsNumber for Option<N> {
    fn number(self) -> Option<f64> {
        self?.number()
    }
}

/// Converts an amount in MiB, in which Slurm counts all memory, to bytes.
pub(crate) fn mebibytes(value: u64) -> Option<f64> {
    number(value.saturating_mul(1 << 20))
}
