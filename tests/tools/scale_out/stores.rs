//! Three stores of one kind, and how many points are missing in them.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Carbon, Folder, Process, Series, VictoriaMetrics};

use super::feed::{POINTS, STEP};
use super::victoria;

/// One store.
pub(crate) enum Store {
    Cache(Carbon),
    Victoria(VictoriaMetrics),
}

impl Store {
    pub(crate) fn process(&mut self) -> &mut Process {
        match self {
            Self::Cache(cache) => &mut cache.process,
            Self::Victoria(store) => &mut store.process,
        }
    }

    /// Its series, each as the timestamps of its points.
    fn series(&self) -> Result<Vec<Vec<u64>>> {
        match self {
            Self::Cache(cache) => {
                // A file that is just being created has no archive yet.
                let read = |file: PathBuf| {
                    Series::read(&file).map_or(Vec::new(), |series| series.points.into_keys().collect())
                };
                Ok(cache.paths().into_values().map(read).collect())
            }
            Self::Victoria(store) => {
                let series = store.export("{__name__=~\"cluster.scale.*\"}")?;
                Ok(series.into_values().map(|points| points.into_keys().collect()).collect())
            }
        }
    }
}

/// How many series each store has, and how many points of these ticks are missing. Each series belongs to one store.
pub(crate) fn counts(stores: &[Store], ticks: &[u64]) -> Result<(Vec<usize>, usize)> {
    let (mut counts, mut missing) = (Vec::new(), 0);
    for store in stores {
        let series = store.series()?;
        missing +=
            series.iter().flat_map(|points| ticks.iter().filter(move |tick| !points.contains(tick))).count();
        counts.push(series.len());
    }
    let all: usize = counts.iter().sum();
    ensure!(all <= POINTS, "{all} series: some are in two stores");
    Ok((counts, missing))
}

/// Three carbon-caches.
pub(crate) fn caches(folder: &Folder) -> Result<Vec<Carbon>> {
    let options = Options::keeping(&format!("{STEP}s:1h"));
    ["cache0", "cache1", "cache2"].into_iter().map(|name| Carbon::start(folder, name, &options)).collect()
}

/// Three VictoriaMetrics.
pub(crate) fn victorias(folder: &Folder) -> Result<Vec<VictoriaMetrics>> {
    let program = victoria("victoria-metrics")?;
    let start = |name: &str| {
        let mut store = VictoriaMetrics::of(folder, name, &program, &["-dedup.minScrapeInterval=1ms"])?;
        store.process.wait_ready()?;
        Ok(store)
    };
    ["store0", "store1", "store2"].into_iter().map(start).collect()
}
