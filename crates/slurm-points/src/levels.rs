//! LevelList of paths: what a path has between the prefix and the leaf, and the figures there.
//!
//! A level is declared once, in a list of `levels!`, and only such a level can be pushed: with as many names as it has
//! variable parts, and with what its figures are made of.

use std::borrow::Cow;

use carbon_wire::{Batch, path};

use crate::metric::{Leaf, Metric, MetricTotals};

/// Declares levels, each a static, and the list of them, in the documentation's order.
#[macro_export]
macro_rules! levels {
    ($(#[$meta:meta])* $visibility:vis $list:ident: $($name:ident: $kind:ident<$of:ty, $names:literal> = ($below:expr, $tables:expr, $about:expr);)+) => {
        $(static $name: $crate::levels::$kind<$of, $names> = $crate::levels::$kind::in_list($below, $tables, $about);)+
        $(#[$meta])*
        $visibility const $list: $crate::levels::LevelList = &[$(&$name),+];
    };
}

/// The figures that are made of a `T`.
pub type Table<T> = &'static [Metric<T>];

/// A list of levels.
pub type LevelList = &'static [&'static dyn AnyLevel];

/// A level, for the documentation.
pub trait AnyLevel: Sync {
    /// The part after the prefix, with what varies in angle brackets: `slurm_rpc_stats.type.<type>`.
    fn below(&self) -> &'static str;
    /// One sentence or two for the documentation.
    fn about(&self) -> &'static str;
    /// In sdiag's order.
    fn leaves(&self) -> Vec<Leaf>;
}

/// A level with `N` variable parts.
pub struct Level<L: 'static, const N: usize> {
    below: &'static str,
    about: &'static str,
    pub(crate) tables: L,
}

/// A level whose last variable part is a word that comes and goes, behind `N` names: zero_fill.rs.
pub struct WordLevel<T: 'static, const N: usize> {
    below: &'static str,
    about: &'static str,
    pub(crate) metrics: Table<T>,
}

impl<L, const N: usize> Level<L, N> {
    /// For `levels!` alone.
    #[doc(hidden)]
    pub const fn in_list(below: &'static str, tables: L, about: &'static str) -> Self {
        assert!(variable_parts(below) == N, "as many names as variable parts");
        Self { below, about, tables }
    }

    pub(crate) fn fill(&self, into: &mut String, names: &[Name<'_>; N]) {
        fill(into, self.below, names.iter().map(Name::as_str));
    }
}

impl<T, const N: usize> WordLevel<T, N> {
    /// For `levels!` alone.
    #[doc(hidden)]
    pub const fn in_list(below: &'static str, metrics: Table<T>, about: &'static str) -> Self {
        assert!(variable_parts(below) == N + 1, "as many names as variable parts, and a word");
        Self { below, about, metrics }
    }

    pub(crate) fn fill(&self, into: &mut String, names: &[String], word: &str) {
        fill(into, self.below, names.iter().map(String::as_str).chain([&*path::component(word)]));
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
const fn variable_parts(below: &str) -> usize {
    let (bytes, mut at, mut parts) = (below.as_bytes(), 0, 0);
    while at < bytes.len() {
        if bytes[at] == b'<' {
            parts += 1;
        }
        at += 1;
    }
    parts
}

/// Writes `below` with these names for its variable parts.
fn fill<'a>(into: &mut String, below: &str, mut names: impl Iterator<Item = &'a str>) {
    into.clear();
    for (place, part) in below.split('.').enumerate() {
        if place > 0 {
            into.push('.');
        }
        into.push_str(if part.starts_with('<') { names.next().unwrap_or(part) } else { part });
    }
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

/// Figures that are only there with a setting.
pub struct Optional<L>(pub(crate) L);

impl<L: MetricTables> MetricTables for Optional<L> {
    type Of<'a> = Option<L::Of<'a>>;

    fn leaves(&self) -> Vec<Leaf> {
        self.0.leaves()
    }

    fn each(&self, of: Self::Of<'_>, push: &mut dyn FnMut(&str, &str, f64)) {
        if let Some(of) = of {
            self.0.each(of, push);
        }
    }
}

impl<L: MetricTables, const N: usize> AnyLevel for Level<L, N> {
    fn below(&self) -> &'static str {
        self.below
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn leaves(&self) -> Vec<Leaf> {
        self.tables.leaves()
    }
}

impl<T, const N: usize> AnyLevel for WordLevel<T, N> {
    fn below(&self) -> &'static str {
        self.below
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn leaves(&self) -> Vec<Leaf> {
        self.metrics.leaves()
    }
}

/// Adds points to a batch, below the prefix.
pub struct Points<'a> {
    prefix: &'a str,
    batch: &'a mut Batch,
    /// The level that is pushed, kept for its memory.
    below: String,
}

impl Points<'_> {
    /// For a batch.
    pub const fn new<'a>(prefix: &'a str, batch: &'a mut Batch) -> Points<'a> {
        Points { prefix, batch, below: String::new() }
    }

    /// Adds the figures of `of` at a level, with these names for its variable parts.
    pub fn push<L: MetricTables, const N: usize>(
        &mut self,
        level: &'static Level<L, N>,
        names: [Name<'_>; N],
        of: L::Of<'_>,
    ) {
        level.fill(&mut self.below, &names);
        self.push_filled(&level.tables, of);
    }

    pub(crate) fn push_word<T, const N: usize>(
        &mut self,
        level: &WordLevel<T, N>,
        names: &[String],
        word: &str,
        of: &T,
    ) {
        level.fill(&mut self.below, names, word);
        self.push_filled(&level.metrics, of);
    }

    fn push_filled<L: MetricTables>(&mut self, tables: &L, of: L::Of<'_>) {
        let Self { prefix, batch, below } = self;
        tables.each(of, &mut |leaf, suffix, value| {
            batch.push_joined(&[prefix, ".", below, ".gauge-", leaf, suffix], value);
        });
    }
}
