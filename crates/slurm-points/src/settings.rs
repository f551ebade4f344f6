//! A collector's settings: how the collector declares them, and their values in the configuration.

use std::collections::BTreeMap;

/// One key of a collector's table in the configuration, beyond those that every collector has.
pub struct Setting {
    /// The key in the collector's table.
    pub key: &'static str,
    /// The value if the configuration has none.
    pub default: Value,
    /// The comment about the key in the shipped configuration.
    pub comment: &'static str,
}

/// Counts jobs by state only: required if slurmrestd is asked.
pub const STATES_ONLY: Setting = Setting {
    key: "states_only",
    default: Value::Flag(false),
    comment: "\
Required with [slurm] rest: only how many jobs are in each state, because a full list of 5,000
jobs makes slurmrestd grow by up to 2 GB. Their states make it grow by up to 180 MB (24.11;
26.05: 53 MB); each task of an array counts as a job for that. accounts, qos and users have no
effect then. Needs Slurm 24.05 or newer.",
};

/// Gives paths to QOS; it is remembered which have them.
pub const QOS: Setting = Setting {
    key: "qos",
    default: Value::Flag(true),
    comment: "\
By QOS too: at most 1000 have paths of their own. A QOS gets them when one of its jobs has
started, and loses them after 30 days without one. All others are in other_qos.",
};

/// Counts events of nodes from one reply to the next, and remembers them.
pub const EVENTS: Setting = Setting {
    key: "events",
    default: Value::Flag(false),
    comment: "\
Also outages and repairs, reboots, and restarts of slurmd, in total and by partition:
slurm_nodes.events. About fifty paths for each partition. Their sums are remembered in queue.dir.",
};

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// On or off.
    Flag(bool),
    /// Number of users that have paths of their own, at most [`crate::user_paths::MOST_USERS`]; 0:
    /// no path for any user.
    Users(usize),
    /// Number of names that have paths of their own, at most [`MOST_NAMES`].
    Names(usize),
    /// A time in seconds, within [`TIMES`].
    Seconds(u32),
}

/// Number of names that a [`Value::Names`] may give paths to at most.
pub const MOST_NAMES: usize = 1000;

/// The least and the most of [`Value::Seconds`]: ten minutes and a week.
pub const TIMES: (u32, u32) = (600, 604_800);

/// The configuration of one collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether the collector is enabled.
    pub enabled: bool,
    /// Seconds between two rounds of a survey collector, a multiple of the daemon's interval;
    /// `None` is the first multiple that is a minute or more.
    pub interval: Option<u32>,
    /// The values of the collector's settings, by key.
    pub values: BTreeMap<&'static str, Value>,
}

impl Settings {
    /// Returns the default values of these settings.
    pub fn new(enabled: bool, settings: &[Setting]) -> Self {
        let values = settings.iter().map(|setting| (setting.key, setting.default)).collect();
        Self { enabled, interval: None, values }
    }

    /// Whether this setting is on.
    pub fn flag(&self, setting: &Setting) -> bool {
        self.values.get(setting.key) == Some(&Value::Flag(true))
    }

    /// Returns the number of users that have paths of their own; `None` if the collector has no
    /// such setting.
    pub fn users(&self) -> Option<usize> {
        self.values.values().find_map(|value| match value {
            Value::Users(users) => Some(*users),
            Value::Flag(_) | Value::Names(_) | Value::Seconds(_) => None,
        })
    }

    /// Returns the number of names that have paths of their own; `None` if the collector has no
    /// such setting.
    pub(crate) fn most_names(&self) -> Option<usize> {
        self.values.values().find_map(|value| match value {
            Value::Names(names) => Some(*names),
            Value::Flag(_) | Value::Users(_) | Value::Seconds(_) => None,
        })
    }

    /// Whether a setting bounds the number of users or names that have paths.
    pub(crate) fn bounds_paths(&self) -> bool {
        let bounds = |value: &Value| matches!(value, Value::Users(1..) | Value::Names(1..));
        !self.flag(&STATES_ONLY) && (self.flag(&QOS) || self.values.values().any(bounds))
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

    /// Returns the seconds between two rounds of a survey collector, if the daemon has a tick every
    /// `tick` seconds.
    pub fn interval(&self, tick: u32) -> u32 {
        self.interval.unwrap_or(60).max(1).next_multiple_of(tick.max(1))
    }
}
