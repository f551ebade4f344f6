//! Turns readings into points: one file per collector, and the table of all collectors.
//!
//! A collector is a pure function of a tick's outcome, or of a survey's replies, and of its own
//! last reading: no clock, no log, and it knows no other collector. To add one, write its file and
//! its entry in [`COLLECTORS`]; CONTRIBUTING.md has the steps.

use std::sync::Arc;

use slurm_snapshot::{PublishedJobs, Reading, ReplyKind, ReplyOptions, Role, Statistics};

use crate::levels::{DocumentedLevel, LevelList};
use crate::named_paths::{NamedPaths, Points};
use crate::replies::SurveyReplies;
use crate::settings::{STATES_ONLY, Setting, Settings};

mod associations;
mod controllers;
mod finished;
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
mod slurmdbd;

pub use self::finished::{
    FinishedSettings, batch as finished_batch, paths as finished_paths, unproved_batch,
};

/// A kind of metrics that can be enabled or disabled.
pub struct Collector {
    /// The name of the collector's file, and of its table in the configuration,
    /// `[collectors.NAME]`.
    pub name: &'static str,
    /// The comment about the collector in the shipped configuration.
    pub comment: &'static str,
    /// The keys of the collector's table beyond `enabled`, and a survey collector's `interval`.
    pub settings: &'static [Setting],
    /// Every level of paths at which the collector may make points. A level without a text of its
    /// own continues the one before it.
    pub(crate) levels: &'static [LevelList],
    /// The input of the collector: the statistics of every tick, or replies of surveys.
    pub replies: &'static [ReplyKind],
    pub(crate) start: Start,
}

/// The ways in which a collector is started.
pub(crate) enum Start {
    /// The collector takes part in every tick, and is on by default.
    Tick(fn(&Begin<'_>) -> Box<TickCollector>),
    /// The collector takes part in surveys, and is off by default.
    Survey(fn(&Begin<'_>) -> Box<SurveyCollector>),
    /// The collector is that of finished jobs, which have rounds and a memory of their own, and is
    /// off by default.
    Finished,
}

/// The facts that a collector is started with.
pub(crate) struct Begin<'a> {
    /// Seconds between two ticks.
    pub(crate) interval: u32,
    pub(crate) settings: &'a Settings,
    /// The memory that this collector had when the daemon last ended.
    pub(crate) memory: Option<&'a str>,
}

impl Collector {
    /// Whether the collector has rounds of its own instead of taking part in every tick.
    pub fn is_survey(&self) -> bool {
        !matches!(self.start, Start::Tick(_))
    }

    /// Returns the role of the reader that asks for the collector's replies.
    pub fn role(&self) -> Role {
        self.replies.first().map_or(Role::Statistics, |reply| reply.row().role)
    }

    /// Returns the word behind `slurm_` in the collector's paths: its name, except for finished
    /// jobs.
    pub fn family(&self) -> &'static str {
        let first = self.every_level().next().and_then(|level| level.below.split('.').next());
        first.and_then(|family| family.strip_prefix("slurm_")).unwrap_or(self.name)
    }

    /// Returns every level at which the collector may make points.
    pub fn every_level(&self) -> impl Iterator<Item = &'static DocumentedLevel> {
        self.levels.iter().copied().flatten()
    }

    /// Returns the levels at which the collector makes points with these settings.
    pub fn levels_with(
        &self,
        settings: &Settings,
    ) -> impl Iterator<Item = &'static DocumentedLevel> {
        let levels = if settings.flag(&STATES_ONLY) { &[jobs::OF_STATES] } else { self.levels };
        levels.iter().copied().flatten()
    }
}

/// The outcome of a tick's request.
#[derive(Clone, Debug)]
pub enum TickOutcome {
    /// slurmctld has answered.
    Reading(Arc<Reading>),
    /// The request failed, or took too long.
    Failed,
    /// The daemon reloaded its configuration and gave up this request before its end, so it is not
    /// known whether slurmctld would have answered.
    GivenUp,
    /// This host's slurmctld is a backup that waits. No collector ever sees it.
    Standby,
}

impl TickOutcome {
    /// The reading, if there is one.
    pub const fn reading(&self) -> Option<&Arc<Reading>> {
        match self {
            Self::Reading(reading) => Some(reading),
            Self::Failed | Self::GivenUp | Self::Standby => None,
        }
    }

    /// Returns the reading and its statistics; `None` if there is no reading, or if it is the
    /// answer to a reset, which has no statistics.
    fn statistics(&self) -> Option<(&Arc<Reading>, &Statistics)> {
        let reading = self.reading()?;
        Some((reading, reading.statistics.as_ref()?))
    }
}

/// A running collector. `Input` is the outcome of a tick, or the replies of a survey.
pub(crate) trait Collect<Input>: Send {
    /// Returns the options that the collector's replies must have.
    fn options(&self) -> ReplyOptions {
        ReplyOptions::default()
    }

    /// Adds the points of the tick planned for `timestamp`, Unix seconds, or of the survey that
    /// began at this tick.
    fn collect(&mut self, timestamp: i64, input: &Input, points: &mut Points<'_>);

    /// Returns the accounts and QOS that the reader must count by name; `None` if the collector
    /// counts no jobs.
    fn published_jobs(&self, _: &NamedPaths) -> Option<PublishedJobs> {
        None
    }

    /// Takes a notice for an administrator. Each is returned once.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// Returns the memory that the collector needs after a restart of the daemon, besides its
    /// names, if that has changed since the last call.
    fn changed_memory(&mut self) -> Option<String> {
        None
    }
}

pub(crate) type TickCollector = dyn Collect<TickOutcome>;

pub(crate) type SurveyCollector = dyn Collect<SurveyReplies>;

/// All collectors, in the documentation's order.
pub const COLLECTORS: &[Collector] = &[
    sched_stats::COLLECTOR,
    sched_interval::COLLECTOR,
    sched_exit::COLLECTOR,
    rpc_stats::COLLECTOR,
    health::COLLECTOR,
    jobs::COLLECTOR,
    finished::COLLECTOR,
    nodes::COLLECTOR,
    partitions::COLLECTOR,
    licenses::COLLECTOR,
    reservations::COLLECTOR,
    associations::COLLECTOR,
    controllers::COLLECTOR,
    slurmdbd::COLLECTOR,
];

/// Whether `level`, the part of a path after the prefix, fits the `documented` one, whose variable
/// parts fit anything.
pub fn fits(documented: &str, level: &str) -> bool {
    let (mut given, mut documented) = (level.split('.'), documented.split('.'));
    loop {
        match (given.next(), documented.next()) {
            (None, None) => return true,
            (Some(given), Some(documented))
                if documented.starts_with('<') || given == documented => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    mod ageing;

    use super::*;
    use crate::collecting::Running;
    use crate::settings::Value;

    /// The points that a running collector makes of a survey's round.
    pub(super) fn surveyed(
        collector: &mut Running<SurveyCollector>,
        timestamp: i64,
        replies: &SurveyReplies,
    ) -> Vec<String> {
        let mut batch = carbon_wire::Batch::new(timestamp);
        collector.collect(timestamp, replies, "c", &mut batch);
        assert_eq!(batch.refused(), 0);
        batch.points().map(|point| format!("{} {}", point.path(), point.value())).collect()
    }

    /// A survey collector that begins with these settings, the others as they are by default.
    pub(super) fn started(
        collector: &Collector,
        values: &[(&'static str, Value)],
    ) -> Running<SurveyCollector> {
        remembering(collector, values, None)
    }

    /// A survey collector that begins with these settings, and with the names that an earlier one
    /// has stored.
    pub(super) fn remembering(
        collector: &Collector,
        values: &[(&'static str, Value)],
        memory: Option<&str>,
    ) -> Running<SurveyCollector> {
        let mut settings = Settings::new(true, collector.settings);
        settings.values.extend(values.iter().copied());
        let Start::Survey(start) = collector.start else {
            panic!("{} takes part in no survey", collector.name)
        };
        Running {
            name: collector.name,
            role: collector.role(),
            replies: collector.replies.iter().copied().collect(),
            every: 30,
            paths: NamedPaths::new(&settings, memory),
            collector: start(&Begin { interval: 30, settings: &settings, memory: None }),
        }
    }

    pub(super) fn has_all(points: &[String], expected: &[&str]) {
        for point in expected {
            assert!(points.iter().any(|other| other == point), "{point} is not in {points:#?}");
        }
    }

    #[test]
    fn a_collector_is_made_of_statistics_or_of_one_readers_replies() {
        for collector in COLLECTORS {
            let role = collector.role();
            let fits = match collector.start {
                Start::Tick(_) => role == Role::Statistics,
                Start::Survey(_) => role != Role::Statistics,
                Start::Finished => role == Role::Accounting,
            };
            let is_one = collector.replies.iter().all(|reply| reply.row().role == role);
            assert!(fits && is_one && !collector.replies.is_empty(), "{}", collector.name);
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
            .flat_map(Collector::every_level)
            .flat_map(|level| level.leaves().into_iter().map(|l| (level.below, l.leaf)))
            .map(|(below, leaf)| format!("cluster.{below}.gauge-{leaf}"))
            .collect();
        let filled = |path: &String| path.replace(['<', '>'], "");
        assert!(paths.iter().all(|path| carbon_wire::path::check(&filled(path)).is_ok()));
        paths.sort();
        assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
