//! The collectors as they are configured, as plain data. The configuration itself is the daemon's.

use std::collections::{BTreeMap, BTreeSet};

use slurm_snapshot::ReplyKind;

use crate::collectors::{COLLECTORS, Collector, FinishedSettings, Start};
#[cfg(test)]
use crate::settings::Value;
use crate::settings::{EVENTS, STATES_ONLY, Settings};

/// The configuration of all collectors, which is `[collectors.NAME]` in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Collectors {
    /// The share of wall-clock time that slurmctld may spend on one expensive reply: more than 0,
    /// at most 1.
    pub max_duty: f64,
    /// Number of RPCs that slurmctld may serve at once and is still asked for an expensive reply.
    pub max_threads: u32,
    /// Whether slurmrestd is asked, which does not have all replies.
    pub over_rest: bool,
    settings: BTreeMap<&'static str, Settings>,
}

impl Default for Collectors {
    fn default() -> Self {
        let settings =
            |collector: &Collector| Settings::new(!collector.is_survey(), collector.settings);
        let settings = COLLECTORS.iter().map(|collector| (collector.name, settings(collector)));
        Self { max_duty: 0.05, max_threads: 100, over_rest: false, settings: settings.collect() }
    }
}

impl Collectors {
    /// All collectors, enabled or not.
    pub fn all(&self) -> impl Iterator<Item = (&'static Collector, &Settings)> {
        COLLECTORS
            .iter()
            .filter_map(|collector| Some((collector, self.settings.get(collector.name)?)))
    }

    /// The collectors that are enabled.
    pub fn enabled(&self) -> impl Iterator<Item = (&'static Collector, &Settings)> {
        self.all().filter(|(_, settings)| settings.enabled)
    }

    /// Returns the replies that a collector asks for. Replies that slurmrestd does not have are
    /// left out if slurmrestd is asked.
    pub fn replies(&self, collector: &Collector, settings: &Settings) -> BTreeSet<ReplyKind> {
        let all = !self.over_rest || settings.flag(&STATES_ONLY);
        let replies = collector.replies.iter().copied();
        replies.filter(|reply| all || reply.row().not_over_rest.is_none()).collect()
    }

    /// The replies that a survey asks for.
    pub fn survey_replies(&self) -> BTreeSet<ReplyKind> {
        let surveys = self.enabled().filter(|(collector, _)| collector.is_survey());
        surveys.flat_map(|(collector, settings)| self.replies(collector, settings)).collect()
    }

    /// Returns the seconds between two rounds of finished jobs, with a tick every `tick` seconds,
    /// and the settings; `None` if finished jobs are not counted.
    pub fn finished(&self, tick: u32) -> Option<(u32, FinishedSettings)> {
        let is_it = |collector: &Collector| matches!(collector.start, Start::Finished);
        let (_, settings) = self.enabled().find(|(collector, _)| is_it(collector))?;
        Some((settings.interval(tick), FinishedSettings::from_settings(settings)))
    }

    /// Whether the collector `name` has the same settings in both configurations.
    pub fn is_same(&self, other: &Self, name: &str) -> bool {
        self.settings.get(name) == other.settings.get(name)
    }

    /// Whether an enabled collector must know after a restart which names have paths, or what it
    /// has counted. Finished jobs do not count here: they have a memory of their own.
    pub fn remember(&self) -> bool {
        self.enabled().any(|(collector, settings)| {
            let remembers = settings.bounds_paths() || settings.flag(&EVENTS);
            remembers && !matches!(collector.start, Start::Finished)
        })
    }

    /// Returns the settings of one collector, which the configuration may change; `None` if there
    /// is no such collector.
    pub fn settings_mut(&mut self, name: &str) -> Option<&mut Settings> {
        self.settings.get_mut(name)
    }

    /// Enables one more collector, with these values.
    #[cfg(test)]
    pub(crate) fn with(mut self, name: &str, values: &[(&'static str, Value)]) -> Self {
        let settings = self.settings.get_mut(name).unwrap();
        settings.enabled = true;
        settings.values.extend(values.iter().copied());
        self
    }
}
