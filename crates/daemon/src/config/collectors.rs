//! `[collectors]`: which figures are published, how often, and what for each of them is bounded.

use super::problem::{Place, Problem};
use super::section::Section;
use super::value::interval;
use crate::members::MOST_USERS;

/// Which figures are published: `[collectors.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Collectors {
    /// Of all time, the share that slurmctld may spend on one expensive reply: more than 0, at most 1.
    pub(crate) max_duty: f64,
    /// More threads than these at work in slurmctld, and it is not asked for an expensive reply.
    pub(crate) max_threads: u32,
    pub(crate) sched_stats: OnOff,
    pub(crate) sched_interval: OnOff,
    pub(crate) sched_exit: OnOff,
    pub(crate) rpc_stats: RpcStats,
    pub(crate) health: OnOff,
    pub(crate) jobs: Jobs,
    pub(crate) nodes: Nodes,
    pub(crate) partitions: Survey,
    pub(crate) licenses: Survey,
    pub(crate) reservations: Survey,
    pub(crate) controllers: Survey,
}

/// A collector that has no more to it than being on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnOff {
    pub(crate) enabled: bool,
}

/// slurmctld's RPC tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RpcStats {
    pub(crate) enabled: bool,
    /// How many users of an interval get paths of their own; 0: no path for any user.
    pub(crate) users: usize,
}

/// A collector whose replies cost slurmctld something: off unless asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) enabled: bool,
    /// Seconds: a multiple of the daemon's interval; `None`: the first one from a minute on.
    interval: Option<u32>,
}

/// The queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jobs {
    pub(crate) survey: Survey,
    /// By account too.
    pub(crate) accounts: bool,
    /// By QOS too.
    pub(crate) qos: bool,
    /// How many users get paths of their own; 0: no path for any user.
    pub(crate) users: usize,
    /// How many jobs are in each state, and no more: all that slurmrestd is asked for.
    pub(crate) states_only: bool,
}

/// The nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) survey: Survey,
    /// Each node by itself too.
    pub(crate) each: bool,
}

impl Default for Collectors {
    fn default() -> Self {
        let on = OnOff { enabled: true };
        Self {
            max_duty: 0.05,
            max_threads: 100,
            sched_stats: on,
            sched_interval: on,
            sched_exit: on,
            rpc_stats: RpcStats { enabled: true, users: 0 },
            health: on,
            jobs: Jobs {
                survey: Survey::default(),
                accounts: false,
                qos: true,
                users: 0,
                states_only: false,
            },
            nodes: Nodes::default(),
            partitions: Survey::default(),
            licenses: Survey::default(),
            reservations: Survey::default(),
            controllers: Survey::default(),
        }
    }
}

impl Collectors {
    /// Whether the collector `name` has the same settings in both.
    pub(crate) fn is_same(&self, other: &Self, name: &str) -> bool {
        match name {
            "sched_stats" => self.sched_stats == other.sched_stats,
            "sched_interval" => self.sched_interval == other.sched_interval,
            "sched_exit" => self.sched_exit == other.sched_exit,
            "rpc_stats" => self.rpc_stats == other.rpc_stats,
            "health" => self.health == other.health,
            "jobs" => self.jobs == other.jobs,
            "nodes" => self.nodes == other.nodes,
            "partitions" => self.partitions == other.partitions,
            "licenses" => self.licenses == other.licenses,
            "reservations" => self.reservations == other.reservations,
            "controllers" => self.controllers == other.controllers,
            _ => false,
        }
    }

    /// The collectors that have something to remember across restarts of the daemon.
    pub(crate) fn remembering(&self) -> Vec<&'static str> {
        let all = [
            ("rpc_stats", self.rpc_stats.enabled && self.rpc_stats.users > 0),
            ("jobs", self.jobs.survey.enabled && self.jobs.users > 0),
        ];
        all.into_iter().filter_map(|(name, remembers)| remembers.then_some(name)).collect()
    }

    pub(super) fn apply(&mut self, mut all: Section<'_, '_>) {
        all.set("max_duty", percent, &mut self.max_duty);
        all.set_number("max_threads", positive, &mut self.max_threads);
        for (name, on_off) in [
            ("sched_stats", &mut self.sched_stats),
            ("sched_interval", &mut self.sched_interval),
            ("sched_exit", &mut self.sched_exit),
            ("health", &mut self.health),
        ] {
            if let Some(mut table) = all.section(name) {
                table.set_flag("enabled", &mut on_off.enabled);
                table.end();
            }
        }
        if let Some(mut rpc_stats) = all.section("rpc_stats") {
            rpc_stats.set_flag("enabled", &mut self.rpc_stats.enabled);
            rpc_stats.set_number("users", users, &mut self.rpc_stats.users);
            rpc_stats.end();
        }
        if let Some(mut jobs) = all.section("jobs") {
            jobs.set_flag("accounts", &mut self.jobs.accounts);
            jobs.set_flag("qos", &mut self.jobs.qos);
            jobs.set_number("users", users, &mut self.jobs.users);
            jobs.set_flag("states_only", &mut self.jobs.states_only);
            self.jobs.survey.apply(jobs);
        }
        if let Some(mut nodes) = all.section("nodes") {
            nodes.set_flag("each", &mut self.nodes.each);
            self.nodes.survey.apply(nodes);
        }
        for (name, survey) in [
            ("partitions", &mut self.partitions),
            ("licenses", &mut self.licenses),
            ("reservations", &mut self.reservations),
            ("controllers", &mut self.controllers),
        ] {
            if let Some(table) = all.section(name) {
                survey.apply(table);
            }
        }
        all.end();
    }

    /// The surveys by name, whether they are enabled or not.
    pub(crate) fn surveys(&self) -> [(&'static str, Survey); 6] {
        [
            ("jobs", self.jobs.survey),
            ("nodes", self.nodes.survey),
            ("partitions", self.partitions),
            ("licenses", self.licenses),
            ("reservations", self.reservations),
            ("controllers", self.controllers),
        ]
    }

    /// That surveys fall on ticks, of which one comes every `base` seconds.
    pub(super) fn check_intervals(&self, base: u32, problems: &mut Vec<Problem>) {
        for (name, survey) in self.surveys() {
            if let Some(seconds) = survey.interval.filter(|seconds| seconds % base.max(1) != 0) {
                let text = format!("{seconds} s is no multiple of interval, which is {base} s");
                let key = format!("collectors.{name}.interval");
                problems.push(Problem { place: Place::Whole, key, text });
            }
        }
        let (jobs, partitions) = (self.jobs.survey, self.partitions);
        let (often, seldom) = (jobs.interval(base), partitions.interval(base));
        // Otherwise jobs that start between two of its rounds would be told of to the partitions alone.
        if jobs.enabled && partitions.enabled && seldom % often.max(1) != 0 {
            let text = format!(
                "{seldom} s is no multiple of that of collectors.jobs, which is {often} s and whose reply it shares"
            );
            problems.push(Problem {
                place: Place::Whole,
                key: "collectors.partitions.interval".into(),
                text,
            });
        }
    }
}

impl Survey {
    /// Seconds between two of its readings, where the daemon has a tick every `interval`.
    pub(crate) fn interval(self, interval: u32) -> u32 {
        self.interval.unwrap_or(60).max(1).next_multiple_of(interval.max(1))
    }

    fn apply(&mut self, mut table: Section<'_, '_>) {
        table.set_flag("enabled", &mut self.enabled);
        table.set_some("interval", interval, &mut self.interval);
        table.end();
    }
}

fn percent(text: &str) -> Result<f64, String> {
    text.strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok())
        .filter(|&percent| percent > 0.0 && percent <= 100.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("{text:?} is not a share from above 0% to 100%, such as \"5%\""))
}

fn positive(number: i64) -> Result<u32, String> {
    u32::try_from(number)
        .ok()
        .filter(|&number| number > 0)
        .ok_or_else(|| format!("{number} is not from 1 to {}", u32::MAX))
}

/// How many users may have paths of their own.
fn users(number: i64) -> Result<usize, String> {
    usize::try_from(number).ok().filter(|&users| users <= MOST_USERS).ok_or_else(|| {
        format!("{number} is not from 0 to {MOST_USERS}; in Graphite a path is a file for ever")
    })
}
