//! Names with tags for all paths of this program, those of the daemon's own figures included.

use slurm_points::levels::DocumentedLevel;
use slurm_points::tagged;

use crate::self_metrics::LEVELS;

/// The name with tags for a path.
pub(crate) fn tagged(path: &str) -> String {
    tagged::tagged(path, LEVELS)
}

/// Every declared level, the collectors' first.
pub(crate) fn every_level() -> impl Iterator<Item = &'static DocumentedLevel> {
    tagged::every_level(LEVELS)
}

#[cfg(test)]
mod tests;
