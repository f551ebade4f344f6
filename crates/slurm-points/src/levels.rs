//! Levels of paths: what a path has between the prefix and the leaf, and the figures there.
//!
//! A level is declared once, in a list of `levels!`, and only such a level can be pushed: with as many names as it has
//! variable parts, and with what its figures are made of. The one exception is finished jobs: their ledger names its levels itself, and
//! collectors/finished.rs publishes only those that its own list documents.

use std::borrow::Cow;

use carbon_wire::{Batch, path};

use crate::metric::{Leaf, Metric, MetricTotals};

/// Declares levels, each a static, and the list of them, in the documentation's order.
#[macro_export]
macro_rules! levels {
    ($(#[$meta:meta])* $visibility:vis $list:ident: $($name:ident: Level<$tables:ty, $names:literal> = ($below:expr, $of:expr, $about:expr);)+) => {
        $(static $name: $crate::levels::Level<$tables, $names> = $crate::levels::Level::in_list($below, $of);)+
        $(#[$meta])*
        $visibility const $list: $crate::levels::LevelList =
            &[$($crate::levels::DocumentedLevel { below: $below, about: $about, leaves: || $name.leaves() }),+];
    };
}

/// The figures that are made of a `T`.
pub type Table<T> = &'static [Metric<T>];

/// A list of levels.
pub type LevelList = &'static [DocumentedLevel];

/// A level, for the documentation.
pub struct DocumentedLevel {
    /// The part after the prefix, with what varies in angle brackets: `slurm_rpc_stats.type.<type>`.
    pub below: &'static str,
    /// One sentence or two for the documentation.
    pub about: &'static str,
    #[doc(hidden)]
    pub leaves: fn() -> Vec<Leaf>,
}

impl DocumentedLevel {
    /// Its figures, in sdiag's order.
    pub fn leaves(&self) -> Vec<Leaf> {
        (self.leaves)()
    }
}

/// A level with `N` variable parts.
pub struct Level<L: 'static, const N: usize> {
    below: &'static str,
    tables: L,
}

impl<L: MetricTables, const N: usize> Level<L, N> {
    /// For `levels!` alone.
    #[doc(hidden)]
    pub const fn in_list(below: &'static str, tables: L) -> Self {
        assert!(variable_parts(below) == N, "as many names as variable parts");
        Self { below, tables }
    }

    /// Its figures without their values.
    pub fn leaves(&self) -> Vec<Leaf> {
        self.tables.leaves()
    }

    /// Its path below the prefix, with these names for the variable parts.
    pub(crate) fn filled<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> String {
        let mut names = names.into_iter();
        let part =
            |part: &'static str| if part.starts_with('<') { names.next().unwrap_or(part) } else { part };
        self.below.split('.').map(part).collect::<Vec<_>>().join(".")
    }
}

const fn variable_parts(below: &str) -> usize {
    let (mut bytes, mut parts) = (below.as_bytes(), 0);
    while let [byte, rest @ ..] = bytes {
        if *byte == b'<' {
            parts += 1;
        }
        bytes = rest;
    }
    parts
}

/// A legal path component for a variable part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name<'a>(Cow<'a, str>);

impl<'a> Name<'a> {
    /// For any name.
    #[must_use]
    pub fn of(name: &'a str) -> Self {
        Self(path::component(name))
    }

    /// For what is a component already: another hash would be added to one that ends with a hash.
    pub(crate) const fn component(component: &'a str) -> Self {
        Self(Cow::Borrowed(component))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The figures of a level: one table, or several that are made of different values.
pub trait MetricTables: Sync {
    /// What they are made of.
    type Of<'a>;

    /// Without their values.
    fn leaves(&self) -> Vec<Leaf>;

    /// Gives each leaf, in two parts, with its value.
    fn each(&self, of: Self::Of<'_>, push: &mut dyn FnMut(&str, &str, f64));
}

impl<T: 'static> MetricTables for Table<T> {
    type Of<'a> = &'a T;

    fn leaves(&self) -> Vec<Leaf> {
        self.iter().map(Metric::without_value).collect()
    }

    fn each(&self, of: &T, push: &mut dyn FnMut(&str, &str, f64)) {
        for metric in *self {
            if let Some(value) = (metric.value)(of) {
                push(metric.leaf, "", value);
            }
        }
    }
}

impl<T: 'static> MetricTables for MetricTotals<T> {
    type Of<'a> = &'a T;

    fn leaves(&self) -> Vec<Leaf> {
        self.0.iter().map(Metric::total_without_value).collect()
    }

    fn each(&self, of: &T, push: &mut dyn FnMut(&str, &str, f64)) {
        self.0.each(of, &mut |leaf, _, value| push(leaf, "_total", value));
    }
}

impl<A: MetricTables, B: MetricTables> MetricTables for (A, B) {
    type Of<'a> = (A::Of<'a>, B::Of<'a>);

    fn leaves(&self) -> Vec<Leaf> {
        self.0.leaves().into_iter().chain(self.1.leaves()).collect()
    }

    fn each(&self, (first, second): Self::Of<'_>, push: &mut dyn FnMut(&str, &str, f64)) {
        self.0.each(first, push);
        self.1.each(second, push);
    }
}

/// Adds points to a batch, below the prefix.
pub struct Points<'a> {
    prefix: &'a str,
    batch: &'a mut Batch,
}

impl Points<'_> {
    /// For a batch.
    pub const fn new<'a>(prefix: &'a str, batch: &'a mut Batch) -> Points<'a> {
        Points { prefix, batch }
    }

    /// Adds the figures of `of` at a level, with these names for its variable parts.
    pub fn push<L: MetricTables, const N: usize>(
        &mut self,
        level: &'static Level<L, N>,
        names: [Name<'_>; N],
        of: L::Of<'_>,
    ) {
        self.push_below(level, &level.filled(names.iter().map(Name::as_str)), of);
    }

    pub(crate) fn push_below<L: MetricTables, const N: usize>(
        &mut self,
        level: &Level<L, N>,
        below: &str,
        of: L::Of<'_>,
    ) {
        level.tables.each(of, &mut |leaf, suffix, value| {
            self.batch.push_joined(&[self.prefix, ".", below, ".gauge-", leaf, suffix], value);
        });
    }
}
