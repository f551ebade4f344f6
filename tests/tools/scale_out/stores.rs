//! Three stores of one kind, and the number of points of each tick in each of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Carbon, Folder, Process, Series, VictoriaMetrics};

use super::feed::{POINTS, STEP};
use super::victoria;

/// By timestamp, how many of its series have a point in each store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) series: Vec<usize>,
    points: Vec<BTreeMap<u64, usize>>,
}

impl Counts {
    /// Missing points of a tick, by store. Each series belongs to one store.
    pub(crate) fn missing(&self, timestamp: u64) -> Vec<usize> {
        let stores = self.series.iter().zip(&self.points);
        stores
            .map(|(series, points)| {
                series.saturating_sub(points.get(&timestamp).copied().unwrap_or(0))
            })
            .collect()
    }
}

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
                    Series::read(&file)
                        .map_or(Vec::new(), |series| series.points.into_keys().collect())
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

/// The contents of all stores.
pub(crate) fn counts(stores: &[Store]) -> Result<Counts> {
    let mut counts = Counts::default();
    for store in stores {
        let series = store.series()?;
        let mut points = BTreeMap::new();
        for timestamp in series.iter().flatten() {
            *points.entry(*timestamp).or_insert(0) += 1;
        }
        counts.series.push(series.len());
        counts.points.push(points);
    }
    let all: usize = counts.series.iter().sum();
    ensure!(all <= POINTS, "{all} series: some are in two stores");
    Ok(counts)
}

/// Three carbon-caches.
pub(crate) fn caches(folder: &Folder) -> Result<Vec<Carbon>> {
    let options = Options::keeping(&format!("{STEP}s:1h"));
    ["cache0", "cache1", "cache2"]
        .into_iter()
        .map(|name| Carbon::start(folder, name, &options))
        .collect()
}

/// Three VictoriaMetrics.
pub(crate) fn victorias(folder: &Folder) -> Result<Vec<VictoriaMetrics>> {
    let program = victoria("victoria-metrics")?;
    let start = |name: &str| {
        let mut store = VictoriaMetrics::start_program(
            folder,
            name,
            &program,
            &["-dedup.minScrapeInterval=1ms"],
        )?;
        store.process.wait_ready()?;
        Ok(store)
    };
    ["store0", "store1", "store2"].into_iter().map(start).collect()
}
