//! Readings into points: one file a collector, and the table of all of them.
//!
//! A collector is pure: no clock, no configuration, no log, and it knows no other collector. To add one, write
//! its file and its line in [`COLLECTORS`]; CONTRIBUTING.md has the steps.

use slurm_snapshot::Statistics;

mod sched_stats;

/// One published figure of a `T`.
pub(crate) struct Figure<T> {
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

/// What a coarser archive should keep of a figure: Carbon's `aggregationMethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rollup {
    Average,
    /// Counters, which only their last value continues, and moments.
    Last,
    Max,
}

/// A family of figures from the statistics.
pub(crate) struct Collector {
    /// The path's component behind the prefix.
    pub(crate) family: &'static str,
    /// One sentence for the documentation.
    pub(crate) about: &'static str,
    /// In sdiag's order.
    pub(crate) figures: &'static [Figure<Statistics>],
}

/// Every collector there is.
pub(crate) const COLLECTORS: &[Collector] = &[sched_stats::COLLECTOR];

impl<T> Figure<T> {
    /// `family.gauge-leaf` and the value, where there is one.
    pub(crate) fn point(&self, family: &str, of: &T) -> Option<(String, f64)> {
        (self.value)(of).map(|value| (format!("{family}.gauge-{}", self.leaf), value))
    }
}

impl Collector {
    /// The points of `statistics` below `prefix`.
    pub(crate) fn points<'a>(
        &'a self,
        prefix: &str,
        statistics: &'a Statistics,
    ) -> impl Iterator<Item = (String, f64)> + 'a {
        let family = format!("{prefix}.{}", self.family);
        self.figures.iter().filter_map(move |figure| figure.point(&family, statistics))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_in_the_table() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/collectors");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let mut table: Vec<&str> =
            COLLECTORS.iter().map(|collector| collector.family.strip_prefix("slurm_").unwrap()).collect();
        table.sort_unstable();
        assert_eq!(files, table);
    }

    #[test]
    fn no_path_is_there_twice_and_all_are_legal() {
        let mut paths: Vec<String> = COLLECTORS
            .iter()
            .flat_map(|c| c.figures.iter().map(|f| format!("cluster.{}.gauge-{}", c.family, f.leaf)))
            .collect();
        assert!(paths.iter().all(|path| carbon::path::check(path).is_ok()));
        paths.sort();
        assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
