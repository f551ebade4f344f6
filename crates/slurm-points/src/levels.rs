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

/// The figures that are made of a `T`.
pub type Table<T> = &'static [Metric<T>];

/// A list of levels.
pub type LevelList = &'static [DocumentedLevel];

/// A level, for the documentation.
pub struct DocumentedLevel {
    /// The part after the prefix, with what varies in angle brackets:
    /// `slurm_rpc_stats.type.<type>`.
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

/// The ways in which a name gets paths in place of a variable part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// A word of Slurm, of this program, or of its configuration. Readers write `other` for one
    /// that they do not know.
    Closed,
    /// A name that administrators configure: so many have paths, as long as replies have them.
    Configured(usize),
    /// A name that administrators configure, where a reply lacks the name while it is not used: so
    /// many have paths. Meanwhile its figures are 0.
    Used(usize),
    /// As `Configured`, and as many have paths as the collector's setting says.
    Chosen,
    /// A name that any user can invent: one with a job that has started, `Points::give`.
    Invented,
    /// A user: user_paths.rs.
    Ranked,
}

/// A level with `N` variable parts.
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

    /// Its figures without their values.
    pub fn leaves(&self) -> Vec<Leaf> {
        self.tables.leaves()
    }

    /// Its path below the prefix, with these names for the variable parts.
    pub(crate) fn filled(&self, names: &[Name<'_>]) -> String {
        let mut names = names.iter().zip(self.names).peekable();
        let part = |part: &'static str| match names.next_if(|_| part.starts_with('<')) {
            Some((name, rule)) => name.in_path(rule),
            None => part.into(),
        };
        self.below.split('.').map(part).collect::<Vec<_>>().join(".")
    }
}

/// A level, whatever its figures are made of.
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

/// A name for a variable part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name<'a> {
    pub(crate) text: &'a str,
    pub(crate) is_component: bool,
}

impl<'a> Name<'a> {
    /// The sum of the names that have no paths.
    pub(crate) const OTHER: Self = Self::component("");

    /// Takes any name.
    pub const fn new(text: &'a str) -> Self {
        Self { text, is_component: false }
    }

    /// Takes a name that is a component already: another hash would be added to one that ends with
    /// a hash.
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

/// The component of sums.
pub(crate) const OTHER: &str = "other";

/// The figures of a level: one table, or several that are made of different values.
pub trait MetricTables: Sync {
    /// The value that the tables are made of.
    type Of<'a>;

    /// The leaves without their values.
    fn leaves(&self) -> Vec<Leaf>;

    /// Gives each leaf, in two parts, with its value if it has one.
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
