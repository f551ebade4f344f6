//! Three stores of one kind, and the number of points of each tick in each of them.

use std::collections::BTreeMap;

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
            .map(|(series, points)| series.saturating_sub(points.get(&timestamp).copied().unwrap_or(0)))
            .collect()
    }
}

pub(crate) trait Stores {
    fn processes(&mut self) -> Vec<&mut Process>;
    /// The series of one store, each as the timestamps of its points.
    fn series(&self, store: usize) -> Result<Vec<Vec<u64>>>;

    fn counts(&mut self) -> Result<Counts> {
        let mut counts = Counts::default();
        for store in 0..self.processes().len() {
            let series = self.series(store)?;
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
}

pub(crate) struct Caches {
    pub(crate) all: Vec<Carbon>,
}

impl Caches {
    pub(crate) fn start(folder: &Folder) -> Result<Self> {
        let schemas = format!("[all]\npattern = .*\nretentions = {STEP}s:1h\n");
        let start = |name: &str| {
            Carbon::start(folder, name, &Options { schemas: schemas.clone(), ..Options::default() })
        };
        Ok(Self { all: ["cache0", "cache1", "cache2"].into_iter().map(start).collect::<Result<_>>()? })
    }
}

impl Stores for Caches {
    fn processes(&mut self) -> Vec<&mut Process> {
        self.all.iter_mut().map(|cache| &mut cache.process).collect()
    }

    fn series(&self, store: usize) -> Result<Vec<Vec<u64>>> {
        let files = self.all.get(store).map(|cache| cache.paths().into_values()).into_iter().flatten();
        // A file that is just being created has no archive yet.
        Ok(files
            .map(|file| Series::read(&file).map_or(Vec::new(), |series| series.points.into_keys().collect()))
            .collect())
    }
}

pub(crate) struct Victorias {
    pub(crate) all: Vec<VictoriaMetrics>,
}

impl Victorias {
    pub(crate) fn start(folder: &Folder) -> Result<Self> {
        let program = victoria("victoria-metrics")?;
        let start = |name: &str| {
            let mut store = VictoriaMetrics::of(folder, name, &program, &["-dedup.minScrapeInterval=1ms"])?;
            store.process.wait_ready()?;
            Ok(store)
        };
        Ok(Self { all: ["store0", "store1", "store2"].into_iter().map(start).collect::<Result<_>>()? })
    }
}

impl Stores for Victorias {
    fn processes(&mut self) -> Vec<&mut Process> {
        self.all.iter_mut().map(|store| &mut store.process).collect()
    }

    fn series(&self, store: usize) -> Result<Vec<Vec<u64>>> {
        let Some(store) = self.all.get(store) else { return Ok(Vec::new()) };
        let series = store.export("{__name__=~\"cluster.scale.*\"}")?;
        Ok(series.into_values().map(|points| points.into_keys().collect()).collect())
    }
}
