//! Readings into points: one file a collector, and the table of all of them.
//!
//! A collector is a pure function of the round and of its own last reading: no clock, no log, and it knows no
//! other collector. To add one, write its file, its entry in [`COLLECTORS`] and its table in the configuration;
//! CONTRIBUTING.md has the steps.

use std::sync::Arc;

use slurm_snapshot::Reading;

use crate::config::{Collectors, Config};
use crate::figure::{Leaves, Points};
use crate::source::Wanted;
use crate::survey::{Findings, Kind, Needs};

mod controllers;
mod health;
mod jobs;
mod licenses;
mod nodes;
mod partitions;
mod reservations;
mod rpc_stats;
mod sched_exit;
mod sched_interval;
mod sched_stats;

/// A kind of figures that can be had or not.
pub(crate) struct Collector {
    /// Its file, and its table in the configuration: `[collectors.NAME]`.
    pub(crate) name: &'static str,
    /// Every path that it may make.
    pub(crate) paths: &'static [Paths],
    /// One that begins, unless the configuration has it off.
    pub(crate) start: fn(&Settings<'_>) -> Option<Box<dyn Collect>>,
}

/// The paths below one level, for the documentation.
pub(crate) struct Paths {
    /// Behind the prefix; what varies in angle brackets: `slurm_rpc_stats.type.<type>`.
    pub(crate) below: &'static str,
    /// One sentence or two for the documentation.
    pub(crate) about: &'static str,
    /// In sdiag's order.
    pub(crate) leaves: &'static (dyn Leaves + Sync),
}

/// What a collector begins with.
pub(crate) struct Settings<'a> {
    /// Seconds between two ticks.
    pub(crate) interval: u32,
    pub(crate) collectors: &'a Collectors,
    /// What this collector had to remember when the daemon last ended.
    pub(crate) memory: Option<&'a str>,
}

/// One tick, as collectors see it.
pub(crate) struct Round<'a> {
    /// Its planned moment, Unix seconds.
    pub(crate) timestamp: i64,
    /// The statistics; absent when slurmctld was not read in time, and in a survey's round.
    pub(crate) reading: Option<&'a Arc<Reading>>,
    /// The reading was given up for a reload: whether slurmctld answers is not known.
    pub(crate) given_up: bool,
    /// What a survey has found out; absent in a tick's own round.
    pub(crate) findings: Option<&'a Findings>,
}

impl<'a> Round<'a> {
    /// A tick's own.
    pub(crate) const fn tick(timestamp: i64, reading: Option<&'a Arc<Reading>>) -> Self {
        Self { timestamp, reading, given_up: false, findings: None }
    }

    /// A tick whose reading a reload has cut short.
    pub(crate) const fn given_up(timestamp: i64) -> Self {
        Self { timestamp, reading: None, given_up: true, findings: None }
    }

    /// A survey's.
    pub(crate) const fn survey(timestamp: i64, findings: &'a Findings) -> Self {
        Self { timestamp, reading: None, given_up: false, findings: Some(findings) }
    }
}

/// A collector at work.
pub(crate) trait Collect: Send {
    /// What the reading must hold for it.
    fn wanted(&self) -> Wanted {
        Wanted::default()
    }

    /// What it needs to know of the cluster itself. One that needs nothing takes part in every tick's round, one that
    /// does in survey rounds alone.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Seconds between two survey rounds, of one that takes part in them.
    fn every(&self) -> u32 {
        0
    }

    /// The round's points.
    fn collect(&mut self, round: &Round<'_>, points: &mut Points<'_>);

    /// What it must know again after the daemon's next start, where that has changed since it was last asked for.
    fn changed_memory(&mut self) -> Option<String> {
        None
    }
}

/// Every collector there is, in the documentation's order.
pub(crate) const COLLECTORS: &[Collector] = &[
    sched_stats::COLLECTOR,
    sched_interval::COLLECTOR,
    sched_exit::COLLECTOR,
    rpc_stats::COLLECTOR,
    health::COLLECTOR,
    jobs::COLLECTOR,
    nodes::COLLECTOR,
    partitions::COLLECTOR,
    licenses::COLLECTOR,
    reservations::COLLECTOR,
    controllers::COLLECTOR,
];

/// The documented paths of the collectors that are on.
pub(crate) fn published(config: &Config) -> Vec<Published> {
    let Config { interval, collectors, .. } = config;
    let running = COLLECTORS.iter().filter_map(|collector| {
        let running = (collector.start)(&Settings { interval: *interval, collectors, memory: None })?;
        let every = if running.needs().is_empty() { *interval } else { running.every() };
        Some(Published { paths: collector.paths, every, needs: running.needs() })
    });
    running.collect()
}

/// What one collector publishes.
pub(crate) struct Published {
    pub(crate) paths: &'static [Paths],
    /// Seconds between two points.
    pub(crate) every: u32,
    /// What a survey must find out for it.
    pub(crate) needs: Needs,
}

/// The expensive replies that are asked for, by their names in paths.
pub(crate) fn replies(config: &Config) -> impl Iterator<Item = &'static str> {
    let all = published(config);
    let needs = all.iter().map(|collector| collector.needs).fold(Needs::default(), Needs::and);
    needs.kinds().map(Kind::name)
}

/// Whether `level`, which is behind the prefix, is one of the `documented`: what varies fits anything.
pub(crate) fn fits(documented: &str, level: &str) -> bool {
    let (mut given, mut documented) = (level.split('.'), documented.split('.'));
    loop {
        match (given.next(), documented.next()) {
            (None, None) => return true,
            (Some(given), Some(documented)) if documented.starts_with('<') || given == documented => {}
            _ => return false,
        }
    }
}

/// The points that a running collector makes of a survey's round, for its tests.
#[cfg(test)]
fn surveyed(collector: &mut dyn Collect, timestamp: i64, findings: &Findings) -> Vec<String> {
    let mut batch = carbon::Batch::new(timestamp);
    let mut points = Points::new("c", &mut batch);
    collector.collect(&Round::survey(timestamp, findings), &mut points);
    assert_eq!(batch.refused(), 0);
    batch.points().map(|point| format!("{} {}", point.path(), point.value())).collect()
}

/// A collector that begins with this configuration, for its tests.
#[cfg(test)]
fn started(collector: &Collector, toml: &str) -> Option<Box<dyn Collect>> {
    let config = crate::config::Config::of(toml);
    (collector.start)(&Settings { interval: config.interval, collectors: &config.collectors, memory: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replies_of_the_documentation_are_those_that_a_survey_asks_for() {
        let replies = |toml: &str| replies(&Config::of(toml)).collect::<Vec<_>>();
        assert_eq!(replies(""), [""; 0]);
        assert_eq!(replies("[collectors.partitions]\nenabled = true"), ["nodes", "jobs"]);
        assert_eq!(replies("[collectors.licenses]\nenabled = true"), ["licenses"]);
        let all: String = ["jobs", "nodes", "partitions", "licenses", "reservations", "controllers"]
            .map(|name| format!("[collectors.{name}]\nenabled = true\n"))
            .concat();
        assert_eq!(replies(&all).len(), 5);
    }

    #[test]
    fn a_reload_restarts_only_what_has_other_settings() {
        let old = Config::default().collectors;
        for (name, toml) in [
            ("sched_stats", "enabled = false"),
            ("sched_interval", "enabled = false"),
            ("sched_exit", "enabled = false"),
            ("rpc_stats", "users = 1"),
            ("health", "enabled = false"),
            ("jobs", "accounts = true"),
            ("nodes", "each = true"),
            ("partitions", "interval = \"5m\""),
            ("licenses", "enabled = true"),
            ("reservations", "enabled = true"),
            ("controllers", "enabled = true"),
        ] {
            let new = Config::of(&format!("[collectors.{name}]\n{toml}")).collectors;
            for collector in COLLECTORS {
                assert_eq!(new.is_same(&old, collector.name), collector.name != name, "{}", collector.name);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_in_the_table() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/collectors");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let mut table: Vec<&str> = COLLECTORS.iter().map(|collector| collector.name).collect();
        table.sort_unstable();
        assert_eq!(files, table);
    }

    #[test]
    fn no_path_is_there_twice_and_all_are_legal() {
        let mut paths: Vec<String> = COLLECTORS
            .iter()
            .flat_map(|collector| collector.paths)
            .flat_map(|paths| paths.leaves.leaves().into_iter().map(|l| (paths.below, l.leaf)))
            .map(|(below, leaf)| format!("cluster.{below}.gauge-{leaf}"))
            .collect();
        let filled = |path: &String| path.replace(['<', '>'], "");
        assert!(paths.iter().all(|path| carbon::path::check(&filled(path)).is_ok()));
        paths.sort();
        assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
