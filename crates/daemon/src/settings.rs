//! A collector's settings: how the collector declares them, and their values in the configuration.

use std::collections::BTreeMap;

/// One key of a collector's table in the configuration, beyond those that every collector has.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) default: Value,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test makes the shipped configuration of it"))]
    pub(crate) comment: &'static str,
}

/// Of jobs: required if slurmrestd is asked.
pub(crate) const STATES_ONLY: Setting = Setting {
    key: "states_only",
    default: Value::Flag(false),
    comment: "\
Required with [slurm] rest: only how many jobs are in each state, because a full list of 5,000 jobs makes slurmrestd grow by up
to 2 GB. Their states make it grow by up to 180 MB (24.11; 26.05: 53 MB); each task of an array counts as a job for
that. accounts, qos and users have no effect then. Needs Slurm 24.05 or newer.",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Flag(bool),
    /// How many users have paths of their own, at most [`crate::user_paths::MOST_USERS`]; 0: no path for any user.
    Users(usize),
    /// How many names have paths of their own, at most [`MOST_NAMES`].
    Names(usize),
    /// A time, from [`TIMES`].
    Seconds(u32),
}

/// The most of [`Value::Names`].
pub(crate) const MOST_NAMES: usize = 1000;

/// The least and the most of [`Value::Seconds`]: ten minutes and a week.
pub(crate) const TIMES: (u32, u32) = (600, 604_800);

/// What the configuration says about one collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) enabled: bool,
    /// Of a survey collector, seconds: a multiple of the daemon's interval; `None`: the first one from a minute on.
    pub(crate) interval: Option<u32>,
    pub(crate) values: BTreeMap<&'static str, Value>,
}

impl Settings {
    pub(crate) fn new(enabled: bool, settings: &[Setting]) -> Self {
        let values = settings.iter().map(|setting| (setting.key, setting.default)).collect();
        Self { enabled, interval: None, values }
    }

    pub(crate) fn flag(&self, setting: &Setting) -> bool {
        self.values.get(setting.key) == Some(&Value::Flag(true))
    }

    /// How many users have paths of their own, where a collector has such a setting.
    pub(crate) fn users(&self) -> Option<usize> {
        self.values.values().find_map(|value| match value {
            Value::Users(users) => Some(*users),
            Value::Flag(_) | Value::Names(_) | Value::Seconds(_) => None,
        })
    }

    /// Whether only so many users or names have paths.
    pub(crate) fn bounds_paths(&self) -> bool {
        self.values.values().any(|value| matches!(value, Value::Users(1..) | Value::Names(1..)))
    }

    pub(crate) fn names(&self, setting: &Setting) -> usize {
        match self.values.get(setting.key) {
            Some(Value::Names(names)) => *names,
            _ => 0,
        }
    }

    pub(crate) fn seconds(&self, setting: &Setting) -> u32 {
        match self.values.get(setting.key).unwrap_or(&setting.default) {
            Value::Seconds(seconds) => *seconds,
            _ => 0,
        }
    }

    /// Seconds between two rounds of a survey collector, where the daemon has a tick every `tick`.
    pub(crate) fn interval(&self, tick: u32) -> u32 {
        self.interval.unwrap_or(60).max(1).next_multiple_of(tick.max(1))
    }
}
