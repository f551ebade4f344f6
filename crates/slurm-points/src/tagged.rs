//! A path as a name with tags, for destinations with `tags = true`.
//!
//! `cluster.alpha.slurm_jobs.state.running.gauge-jobs` is
//! `slurm_jobs.state.jobs;cluster=alpha;state=running`. The variable parts of a path are declared
//! with its metrics ([`DocumentedLevel::below`]), and become tags; the rest is the metric's name.
//! The queue's log keeps paths, and names are made when a frame is sent. So only destinations with
//! tags pay for them, and ticks of an earlier run get tags too.

use carbon_wire::path;

use crate::collectors::{COLLECTORS, Collector, fits};
use crate::levels::{DocumentedLevel, LevelList};

/// The longest value of a tag, bytes: what fits into graphite-web's database.
pub const MAX_VALUE: usize = 191;

/// The tag that the prefix becomes, and the default prefix.
const CLUSTER: &str = "cluster";
/// A second tag that a prefix becomes if it is neither the default nor below the default.
const PREFIX: &str = "prefix";

/// The name with tags for a path of this program, in Carbon's form: tags in alphabetical order.
/// `own`: the levels of the daemon's own figures.
pub fn tagged(path: &str, own: LevelList) -> String {
    let Some((level, leaf)) = path.rsplit_once(".gauge-") else { return path.to_owned() };
    let Split { prefix, below, declared } = split(level, own);
    let mut name = String::with_capacity(path.len().saturating_add(64));
    let mut tags = cluster_tags(prefix);
    // A level that is not declared comes from an older version.
    for (component, declared) in below.split('.').zip(declared.unwrap_or(below).split('.')) {
        match declared.strip_prefix('<').and_then(|varies| varies.strip_suffix('>')) {
            Some(tag) => tags.push((tag, component)),
            None => name.extend([component, "."]),
        }
    }
    name.push_str(leaf);
    tags.sort_unstable();
    for (tag, value) in tags {
        name.extend([";", tag, "=", &path::shortened(value, MAX_VALUE)]);
    }
    name
}

/// The tags that the prefix becomes. `hpc` and `cluster.hpc` are two prefixes: the first has a tag
/// more.
fn cluster_tags(prefix: &str) -> Vec<(&'static str, &str)> {
    let is_below = |prefix: &str| prefix.split('.').next() == Some(CLUSTER);
    match prefix.strip_prefix("cluster.") {
        Some(cluster) if !is_below(cluster) => vec![(CLUSTER, cluster)],
        None if prefix == CLUSTER => vec![(CLUSTER, prefix)],
        _ => vec![(CLUSTER, prefix), (PREFIX, prefix)],
    }
}

/// The parts of a path without its leaf.
struct Split<'a> {
    prefix: &'a str,
    below: &'a str,
    /// The level as it is declared, with what varies in angle brackets; `None` if no level fits.
    declared: Option<&'static str>,
}

/// Splits a path without its leaf where the first declared level begins. A component of the prefix
/// may look like the beginning of a level.
fn split<'a>(level: &'a str, own: LevelList) -> Split<'a> {
    let mut splits = level.match_indices(".slurm_").filter_map(|(dot, _)| {
        let (prefix, below) = level.split_at_checked(dot)?;
        Some((prefix, below.strip_prefix('.')?))
    });
    let found = splits.clone().find_map(|(prefix, below)| {
        let declared =
            every_level(own).map(|level| level.below).find(|declared| fits(declared, below));
        declared.map(|declared| Split { prefix, below, declared: Some(declared) })
    });
    found.unwrap_or_else(|| {
        let (prefix, below) = splits.next().unwrap_or((CLUSTER, level));
        Split { prefix, below, declared: None }
    })
}

/// Every declared level, the collectors' first.
pub fn every_level(own: LevelList) -> impl Iterator<Item = &'static DocumentedLevel> {
    COLLECTORS.iter().flat_map(Collector::every_level).chain(own)
}
