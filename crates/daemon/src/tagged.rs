//! Names with tags for all paths of this program, those of the daemon's own figures included.

use slurm_points::collectors::Paths;
use slurm_points::tagged;

use crate::self_metrics::PATHS;

/// The name with tags for a path.
pub(crate) fn tagged(path: &str) -> String {
    tagged::tagged(path, PATHS)
}

/// The same for the documentation, for every figure below a declared level.
pub(crate) fn documented(paths: &Paths) -> String {
    tagged::documented(paths, PATHS)
}

/// Every declared level, the collectors' first.
pub(crate) fn every_path() -> impl Iterator<Item = &'static Paths> {
    tagged::every_path(PATHS)
}

#[cfg(test)]
#[path = "../tests/inside/tagged.rs"]
mod tests;
