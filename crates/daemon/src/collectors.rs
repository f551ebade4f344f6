//! Readings into points: one file a collector, and the table of all of them.
//!
//! A collector is a pure function of the round and of its own last reading: no clock, no log, and it knows no
//! other collector. To add one, write its file, its entry in [`COLLECTORS`] and its table in the configuration;
//! CONTRIBUTING.md has the steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use carbon::Batch;
use slurm_snapshot::Reading;

use crate::config::{Collectors, Config};
use crate::derive::whole;
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

/// One published figure of a `T`.
pub(crate) struct Figure<T: ?Sized> {
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

/// Figures of whatever type, as the documentation has them.
pub(crate) trait Leaves {
    fn leaves(&self) -> Vec<Leaf>;
}

/// What a [`Figure`] says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) leaf: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) rollup: Rollup,
    pub(crate) meaning: &'static str,
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

/// Where a collector's points go: the tick's batch, below its prefix.
pub(crate) struct Points<'a> {
    prefix: &'a str,
    batch: &'a mut Batch,
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

/// The collectors of a configuration.
#[derive(Default)]
pub(crate) struct Collecting(Vec<(&'static str, Box<dyn Collect>)>);

impl Collecting {
    /// Begins with those that are on; `memory` gives what each had to remember.
    pub(crate) fn start(
        interval: u32,
        collectors: &Collectors,
        memory: impl Fn(&'static str) -> Option<String>,
    ) -> Self {
        Self(Vec::new()).restart(interval, collectors, |_| false, memory)
    }

    /// The same with other settings: those that are the same for `stays` go on with all that they have counted.
    pub(crate) fn restart(
        self,
        interval: u32,
        collectors: &Collectors,
        stays: impl Fn(&'static str) -> bool,
        memory: impl Fn(&'static str) -> Option<String>,
    ) -> Self {
        let mut before: BTreeMap<_, _> = self.0.into_iter().collect();
        let started = COLLECTORS.iter().filter_map(|collector| {
            let kept = before.remove(collector.name).filter(|_| stays(collector.name));
            let running = kept.or_else(|| {
                let memory = memory(collector.name);
                (collector.start)(&Settings { interval, collectors, memory: memory.as_deref() })
            });
            running.map(|running| (collector.name, running))
        });
        Self(started.collect())
    }

    /// What a reading must hold for all of them.
    pub(crate) fn wanted(&self) -> Wanted {
        self.0.iter().map(|(_, collector)| collector.wanted()).fold(Wanted::default(), Wanted::and)
    }

    /// Every collector's points of a tick's own round.
    pub(crate) fn collect(&mut self, round: &Round<'_>, prefix: &str, batch: &mut Batch) {
        self.collect_from(|collector| collector.needs().is_empty(), round, prefix, batch);
    }

    /// The points of a survey's round that asked for `asked`, of the collectors that it was for and whose slot is not over
    /// at `now`, Unix seconds: not of one that a reload has made since, to which what was not asked for would look like
    /// nothing.
    pub(crate) fn collect_survey(
        &mut self,
        due: Due,
        asked: Needs,
        now: i64,
        round: &Round<'_>,
        prefix: &str,
        batch: &mut Batch,
    ) {
        let was_asked = |collector: &dyn Collect| collector.needs().and(asked) == asked;
        let in_time =
            |collector: &dyn Collect| now < round.timestamp.saturating_add(collector.every().into());
        let which = |it: &dyn Collect| due.includes(it) && was_asked(it) && in_time(it);
        self.collect_from(which, round, prefix, batch);
    }

    /// What a survey must find out: for each collector that it would be for, and every how many seconds that is due.
    pub(crate) fn survey(&self, due: Due) -> Vec<(Needs, u32)> {
        let running = self.0.iter().map(|(_, running)| &**running);
        running.filter(|running| due.includes(*running)).map(|it| (it.needs(), it.every())).collect()
    }

    /// What all collectors together need to know of the cluster itself.
    pub(crate) fn needs(&self) -> Needs {
        self.survey(Due::Always).into_iter().fold(Needs::default(), |all, (needs, _)| all.and(needs))
    }

    fn collect_from(
        &mut self,
        which: impl Fn(&dyn Collect) -> bool,
        round: &Round<'_>,
        prefix: &str,
        batch: &mut Batch,
    ) {
        let mut points = Points { prefix, batch };
        let running = self.0.iter_mut().map(|(_, collector)| collector);
        running.filter(|running| which(&***running)).for_each(|running| running.collect(round, &mut points));
    }

    /// What must be remembered, by the collector's name, where it has changed.
    pub(crate) fn changed_memories(&mut self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.0
            .iter_mut()
            .filter_map(|(name, collector)| collector.changed_memory().map(|memory| (*name, memory)))
    }
}

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

/// The collectors that a survey is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Those whose interval divides this tick, Unix seconds.
    At(i64),
    /// All that take part in surveys.
    Always,
}

impl Due {
    fn includes(self, collector: &dyn Collect) -> bool {
        let is_due = match self {
            Self::At(timestamp) => timestamp.rem_euclid(i64::from(collector.every().max(1))) == 0,
            Self::Always => true,
        };
        is_due && !collector.needs().is_empty()
    }
}

impl Points<'_> {
    pub(crate) const fn new<'a>(prefix: &'a str, batch: &'a mut Batch) -> Points<'a> {
        Points { prefix, batch }
    }

    /// The figures of `of` below `below`, which is behind the prefix.
    pub(crate) fn push<T: ?Sized>(&mut self, below: &str, figures: &[Figure<T>], of: &T) {
        for figure in figures {
            if let Some(value) = (figure.value)(of) {
                // Put together in one piece: format! takes twice as long, of thousands of points a tick.
                self.batch.push([self.prefix, ".", below, ".gauge-", figure.leaf].concat(), value);
            }
        }
    }
}

/// A figure that is always there. Graphite's values are floats: whole numbers stay exact up to 2^53.
#[expect(clippy::unnecessary_wraps, reason = "what a figure's value is")]
pub(crate) fn count(value: u64) -> Option<f64> {
    Some(whole(value))
}

impl<T: ?Sized> Leaves for &[Figure<T>] {
    fn leaves(&self) -> Vec<Leaf> {
        let leaf = |figure: &Figure<T>| {
            let &Figure { leaf, unit, rollup, meaning, .. } = figure;
            Leaf { leaf, unit, rollup, meaning }
        };
        self.iter().map(leaf).collect()
    }
}

/// Figures of two types below one level.
impl<A: ?Sized, B: ?Sized> Leaves for (&[Figure<A>], &[Figure<B>]) {
    fn leaves(&self) -> Vec<Leaf> {
        let (first, second) = (Leaves::leaves(&self.0), Leaves::leaves(&self.1));
        first.into_iter().chain(second).collect()
    }
}

/// The points that a running collector makes of a survey's round, for its tests.
#[cfg(test)]
fn surveyed(collector: &mut dyn Collect, timestamp: i64, findings: &Findings) -> Vec<String> {
    let mut batch = Batch::new(timestamp);
    let mut points = Points::new("c", &mut batch);
    collector.collect(&Round::survey(timestamp, findings), &mut points);
    assert_eq!(batch.refused(), 0);
    batch.points().iter().map(|point| format!("{} {}", point.path(), point.value())).collect()
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
    fn out_of_the_box_slurmctld_is_asked_for_its_statistics_alone() {
        let config = crate::config::Config::default();
        let collecting = Collecting::start(30, &config.collectors, |_| None);
        assert_eq!(collecting.survey(Due::Always), []);
    }

    #[test]
    fn a_survey_is_for_those_whose_interval_divides_the_tick() {
        let config = crate::config::Config::of(
            "[collectors.nodes]\nenabled = true\n[collectors.jobs]\nenabled = true\ninterval = \"5m\"",
        );
        let collecting = Collecting::start(30, &config.collectors, |_| None);
        let due = |at| -> Vec<(bool, bool, u32)> {
            let due = collecting.survey(Due::At(at)).into_iter();
            due.map(|(needs, every)| (needs.jobs, needs.nodes, every)).collect()
        };
        assert_eq!(due(30), []);
        assert_eq!(due(60), [(false, true, 60)]);
        assert_eq!(due(300), [(true, false, 300), (false, true, 60)]);
    }

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
    fn a_collector_that_a_reload_leaves_alone_keeps_what_it_has_counted() {
        let lines = |collecting: &mut Collecting, timestamp| {
            let mut batch = Batch::new(timestamp);
            collecting.collect(&Round::tick(timestamp, None), "c", &mut batch);
            carbon::lines(&batch)
        };
        let mut reading: Reading =
            serde_json::from_str(r#"{"id":1,"time":30.0,"elapsed":1,"release":"24.11"}"#).unwrap();
        reading.statistics = Some(slurm_snapshot::Statistics::default());
        let reading = Arc::new(reading);
        let (config, none) = (Config::default(), |_: &'static str| None);
        let mut collecting = Collecting::start(30, &config.collectors, none);
        collecting.collect(&Round::tick(30, Some(&reading)), "c", &mut Batch::new(30));
        let other = Config::of("[collectors.rpc_stats]\nusers = 3").collectors;
        let mut collecting =
            collecting.restart(30, &other, |name| other.is_same(&config.collectors, name), none);
        assert!(lines(&mut collecting, 90).contains("seconds_since_reading 60 90"));
        assert!(collecting.wanted().names, "the new settings are in use");
        let mut anew = collecting.restart(30, &other, |_| false, none);
        assert!(!lines(&mut anew, 120).contains("seconds_since_reading"));
    }

    #[test]
    fn a_round_that_asked_for_less_than_a_new_collector_needs_is_not_its() {
        let config = Config::of("[collectors.jobs]\nenabled = true\naccounts = true");
        let mut collecting = Collecting::start(30, &config.collectors, |_| None);
        let needs = collecting.needs();
        let findings = Findings::of(slurm_snapshot::Reply::Jobs(Box::default()));
        let mut points = |asked| {
            let mut batch = Batch::new(60);
            collecting.collect_survey(Due::At(60), asked, 61, &Round::survey(60, &findings), "c", &mut batch);
            batch.points().len()
        };
        assert_eq!(points(Needs { accounts: false, ..needs }), 0);
        assert!(points(Needs { nodes: true, ..needs }) > 0);
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
