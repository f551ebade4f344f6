//! Levels of paths: what a path has between the prefix and the leaf, and the figures there.
//!
//! A level is declared once, in a list of `levels!`, and only such a level can be pushed: with as
//! many names as it has variable parts, and with what its figures are made of. How a name gets
//! paths is declared with it ([`Names`]), and named_paths.rs keeps all names to that. The one
//! exception is finished jobs: their ledger names its levels itself, and collectors/finished.rs
//! publishes only those that its own list documents.

use std::borrow::Cow;

use carbon_wire::path;

use crate::metric::{Leaf, Metric, MetricTotals};

/// Declares levels, each a static, and the list of them, in the documentation's order.
#[macro_export]
macro_rules! levels {
    ($(#[$meta:meta])* $visibility:vis $list:ident: $(
        $name:ident: Level<$tables:ty, $count:literal> = ($below:expr, [$($names:expr),*],
            $of:expr, $about:expr);
    )+) => {
        $(static $name: $crate::levels::Level<$tables, $count> =
            $crate::levels::Level::in_list($below, [$($names),*], $of);)+
        $(#[$meta])*
        $visibility const $list: $crate::levels::LevelList = &[$($crate::levels::DocumentedLevel {
            below: $below,
            about: $about,
            leaves: || $name.leaves(),
        }),+];
    };
}

/// A table of figures whose values are computed from a `T`.
pub type Table<T> = &'static [Metric<T>];

/// A list of levels of paths, as docs/metrics.md has them.
pub type LevelList = &'static [DocumentedLevel];

/// A level of paths as docs/metrics.md describes it.
pub struct DocumentedLevel {
    /// The part after the prefix, with what varies in angle brackets:
    /// `slurm_rpc_stats.type.<type>`.
    pub below: &'static str,
    /// One sentence or two about the level for the documentation. If empty, the level continues the
    /// one before it.
    pub about: &'static str,
    #[doc(hidden)]
    pub leaves: fn() -> Vec<Leaf>,
}

impl DocumentedLevel {
    /// Returns the figures of the level, in sdiag's order.
    pub fn leaves(&self) -> Vec<Leaf> {
        (self.leaves)()
    }
}

/// The rule by which a name gets paths, in place of a variable part of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// A word of Slurm, of this program, or of its configuration. Readers write `other` for a word
    /// that they do not know.
    Closed,
    /// A name that administrators configure. At most this number of names have paths, each as long
    /// as replies have it.
    Configured(usize),
    /// A name that administrators configure, and that replies lack while it is not used. At most
    /// this number of names have paths. While a name is not used, its figures are 0.
    Used(usize),
    /// A name that administrators configure. At most as many names have paths as the collector's
    /// setting says, each as long as replies have it.
    Chosen,
    /// A name that any user can invent. It gets paths only through `Points::give`, when a job of it
    /// has started.
    Invented,
    /// A user. user_paths.rs decides which users have paths.
    Ranked,
}

/// A level of paths with `N` variable parts, and the tables of its figures.
pub struct Level<L: 'static, const N: usize> {
    pub(crate) below: &'static str,
    pub(crate) names: [Names; N],
    pub(crate) tables: L,
}

impl<L: MetricTables, const N: usize> Level<L, N> {
    /// Makes a level, for `levels!` alone.
    #[doc(hidden)]
    pub const fn in_list(below: &'static str, names: [Names; N], tables: L) -> Self {
        assert!(variable_parts(below) == N, "as many names as variable parts");
        Self { below, names, tables }
    }

    /// Returns the figures of the level without their values.
    pub fn leaves(&self) -> Vec<Leaf> {
        self.tables.leaves()
    }

    /// Returns the path of the level below the prefix, with these names for the variable parts.
    pub(crate) fn filled(&self, names: &[Name<'_>]) -> String {
        let mut names = names.iter().zip(self.names).peekable();
        let part = |part: &'static str| match names.next_if(|_| part.starts_with('<')) {
            Some((name, rule)) => name.in_path(rule),
            None => part.into(),
        };
        self.below.split('.').map(part).collect::<Vec<_>>().join(".")
    }
}

/// A level of paths, whatever its figures are computed from.
pub(crate) trait AnyLevel: Sync {
    fn below(&self) -> &'static str;
    fn every_leaf(&self) -> Vec<Leaf>;
}

impl<L: MetricTables, const N: usize> AnyLevel for Level<L, N> {
    fn below(&self) -> &'static str {
        self.below
    }

    fn every_leaf(&self) -> Vec<Leaf> {
        self.leaves()
    }
}

const fn variable_parts(below: &str) -> usize {
    let mut bytes = below.as_bytes();
    let mut parts = 0;
    while let [byte, rest @ ..] = bytes {
        if *byte == b'<' {
            parts += 1;
        }
        bytes = rest;
    }
    parts
}

/// A name for a variable part of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name<'a> {
    pub(crate) text: &'a str,
    pub(crate) is_component: bool,
}

impl<'a> Name<'a> {
    /// The name of the sum over all names that have no paths.
    pub(crate) const OTHER: Self = Self::component("");

    /// Makes a name of any text.
    pub const fn new(text: &'a str) -> Self {
        Self { text, is_component: false }
    }

    /// Takes a name that is a legal path component already. It is not made legal again, because a
    /// name that ends with a hash would get another hash.
    pub(crate) const fn component(text: &'a str) -> Self {
        Self { text, is_component: true }
    }

    /// The name as a legal path component. `other` is a sum, and no name.
    pub(crate) fn in_path(self, names: Names) -> Cow<'a, str> {
        match self.text {
            "" if self.is_component => OTHER.into(),
            text if self.is_component => text.into(),
            OTHER if names != Names::Closed => path::marked(OTHER).into(),
            text => path::component(text),
        }
    }
}

/// The path component of the sum over names that have no paths.
pub(crate) const OTHER: &str = "other";

/// The figures of a level: one table, or several that are made of different values.
pub trait MetricTables: Sync {
    /// The value that the figures of the tables are computed from.
    type Of<'a>;

    /// Returns the leaves of all tables without their values.
    fn leaves(&self) -> Vec<Leaf>;

    /// Calls `push` for each leaf, with its text in two parts and its value; `None` if it has no
    /// value.
    fn each(&self, of: Self::Of<'_>, push: &mut dyn FnMut(&str, &str, Option<f64>));
}

impl<T: 'static> MetricTables for Table<T> {
    type Of<'a> = &'a T;

    fn leaves(&self) -> Vec<Leaf> {
        self.iter().map(Metric::without_value).collect()
    }

    fn each(&self, of: &T, push: &mut dyn FnMut(&str, &str, Option<f64>)) {
        self.iter().for_each(|metric| push(metric.leaf, "", (metric.value)(of)));
    }
}

impl<T: 'static> MetricTables for MetricTotals<T> {
    type Of<'a> = &'a T;

    fn leaves(&self) -> Vec<Leaf> {
        self.0.iter().map(Metric::total_without_value).collect()
    }

    fn each(&self, of: &T, push: &mut dyn FnMut(&str, &str, Option<f64>)) {
        self.0.each(of, &mut |leaf, _, value| push(leaf, "_total", value));
    }
}

impl<A: MetricTables, B: MetricTables> MetricTables for (A, B) {
    type Of<'a> = (A::Of<'a>, B::Of<'a>);

    fn leaves(&self) -> Vec<Leaf> {
        self.0.leaves().into_iter().chain(self.1.leaves()).collect()
    }

    fn each(&self, (first, second): Self::Of<'_>, push: &mut dyn FnMut(&str, &str, Option<f64>)) {
        self.0.each(first, push);
        self.1.each(second, push);
    }
}
