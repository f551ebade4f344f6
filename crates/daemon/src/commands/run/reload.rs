//! SIGHUP: the configuration is read again, and what has changed in it takes effect:
//! [`ReloadPlan`].

use std::collections::BTreeMap;
use std::mem;

use carbon::Sender;
use slurm_points::collectors::TickOutcome;
use tracing::{error, info, warn};
use waiting_threads::Job;

use super::{Daemon, addresses, load, names, remembering};
use crate::cli::Options;
use crate::clock::{self, or_never};
use crate::config::{Config, Problems};
use crate::grid::Grid;
use crate::status::RefusedEntry;
use crate::telemetry::Logging;

/// The result of reading the configuration.
pub(super) type ReadConfig = Box<Result<Config, Problems>>;

/// A configuration that is being read.
pub(super) struct Loading {
    job: Job<ReadConfig>,
    /// Whether the configuration must be read once more, because another SIGHUP came meanwhile.
    again: bool,
}

impl Loading {
    /// Waits until the configuration has been read. Safe to cancel.
    pub(super) async fn until_read(&self) -> ReadConfig {
        or_never(self.job.answer().await.map(std::future::ready)).await
    }
}

/// The parts of the daemon that a reload must change, found by comparing the old configuration with
/// the new one. All other parts are given the new configuration, or read it when they need it.
#[derive(Debug, PartialEq, Eq)]
struct ReloadPlan {
    log: bool,
    grid: bool,
    /// Whether queue.dir has changed. The queue stays in the old folder until a restart.
    queue_dir: bool,
    /// Names of the destinations that have not changed and keep their connections. A destination
    /// that has changed under the same name keeps its ticks and counters.
    connections: Vec<String>,
    cluster: ClusterChange,
}

#[derive(Debug, PartialEq, Eq)]
enum ClusterChange {
    /// A change of `[slurm]`. The cluster may be another one, so nothing goes under the old one's
    /// name.
    Another,
    /// No change of `[slurm]`. The collectors with these names start again. Any other continues
    /// with its last reading and all that it has counted.
    Collectors(Vec<&'static str>),
}

impl ReloadPlan {
    fn compare(old: &Config, new: &Config) -> Self {
        let grid = new.interval != old.interval;
        let stay = new.carbon.iter().filter(|to| old.carbon.contains(to));
        let enabled = new.collectors.enabled().map(|(collector, _)| collector.name);
        let changed = enabled.filter(|name| grid || !new.collectors.is_same(&old.collectors, name));
        Self {
            log: new.log != old.log,
            grid,
            queue_dir: new.queue.dir != old.queue.dir,
            connections: stay.map(|to| to.name.clone()).collect(),
            cluster: match new.slurm == old.slurm {
                true => ClusterChange::Collectors(changed.collect()),
                false => ClusterChange::Another,
            },
        }
    }

    /// Whether the tick under way ends without slurmctld's figures, under the old prefix, because
    /// the interval or slurmctld is another.
    fn gives_up_tick(&self) -> bool {
        self.grid || self.cluster == ClusterChange::Another
    }
}

impl Daemon {
    /// Reads the configuration on another thread, because its file system may hang.
    pub(super) fn read_configuration(&mut self, options: &Options) {
        if let Some(loading) = &mut self.loading {
            loading.again = true;
            return;
        }
        let options = options.clone();
        let work = move || Box::new(load(&options).and_then(Config::with_destination));
        match waiting_threads::begin("the configuration", work) {
            Ok(job) => self.loading = Some(Loading { job, again: false }),
            Err(error) => {
                error!(%error, "the configuration cannot be read again; send SIGHUP later")
            }
        }
    }

    /// Applies or refuses the configuration that was read.
    pub(super) fn apply_read(&mut self, read: ReadConfig, options: &Options, logging: &Logging) {
        if self.loading.take().is_some_and(|loading| loading.again) {
            return self.read_configuration(options);
        }
        self.reload(*read, logging);
    }

    /// Applies the whole new configuration. If it has problems, logs them and keeps the old one as
    /// it was.
    fn reload(&mut self, config: Result<Config, Problems>, logging: &Logging) {
        let mut config = match config {
            Ok(config) => config,
            Err(problems) => {
                error!("the new configuration is refused, the old one stays in use:\n{problems}");
                self.refused = Some(RefusedEntry::new(&problems));
                return self.send_status();
            }
        };
        self.refused = None;
        let plan = ReloadPlan::compare(&self.config, &config);
        if plan.log {
            logging.change(config.log);
        }
        if let Some(ended) = plan.gives_up_tick().then(|| self.cluster.end_slot()).flatten() {
            self.emit(ended.timestamp, TickOutcome::GivenUp);
        }
        if plan.grid {
            self.grid = Grid::new(config.interval, clock::now());
        }
        if plan.queue_dir {
            warn!(
                "queue.dir has changed; the new directory is used after a restart of the daemon, \
                    which does not send what is in the old one: stop it, move the queue-* \
                    files, and start it"
            );
            config.queue.dir.clone_from(&self.config.queue.dir);
        }
        self.change_destinations(&config, &plan.connections);
        self.remember(i64::MAX);
        let Self { cluster, queue, readers, .. } = self;
        let name = cluster.name().map(str::to_owned);
        let memory: &dyn Fn(&str) -> _ =
            &|collector| remembering::memory(queue, collector, name.as_deref());
        match plan.cluster {
            ClusterChange::Another => cluster.replace(&config, readers, memory),
            ClusterChange::Collectors(changed) => {
                cluster.reconfigure(&config, &changed, readers, memory)
            }
        }
        self.config = config;
        info!(
            interval = self.config.interval,
            prefix = %self.config.prefix,
            destinations = addresses(&self.config.carbon),
            "the new configuration is in use"
        );
        self.send_status();
    }

    fn change_destinations(&mut self, config: &Config, connections: &[String]) {
        self.queue.reconfigure(config.queue.limits.clone(), &names(&config.carbon));
        let mut stay = BTreeMap::new();
        for (to, sender) in mem::take(&mut self.senders) {
            if connections.contains(&to.name) {
                stay.insert(to.name, sender);
            } else {
                sender.stop();
            }
        }
        for to in &config.carbon {
            let sender =
                stay.remove(&to.name).unwrap_or_else(|| Sender::start(to.clone(), &self.queue));
            self.senders.push((to.clone(), sender));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "[[carbon]]\nname = \"main\"\naddress = \"a:2004\"\n[collectors.partitions]\n\
        enabled = true\n[collectors.nodes]\nenabled = true\n";

    /// Returns the plan of a reload from `OLD` to the same text with `from` replaced by `to`.
    fn plan(from: &str, to: &str) -> ReloadPlan {
        assert!(OLD.contains(from), "{from}");
        let with_dir = |text: &str| Config::parse_valid(&format!("queue.dir = \"/q\"\n{text}"));
        ReloadPlan::compare(&with_dir(OLD), &with_dir(&OLD.replacen(from, to, 1)))
    }

    fn nothing() -> ReloadPlan {
        ReloadPlan {
            log: false,
            grid: false,
            queue_dir: false,
            connections: vec!["main".to_owned()],
            cluster: ClusterChange::Collectors(Vec::new()),
        }
    }

    #[test]
    fn what_has_not_changed_stays() {
        assert_eq!(plan("", ""), nothing());
        assert_eq!(
            plan("", "prefix = \"{cluster}\"\nqueue.max_age = \"1h\"\n"),
            nothing(),
            "read when needed"
        );
        assert_eq!(plan("", "log.level = \"debug\"\n"), ReloadPlan { log: true, ..nothing() });
    }

    #[test]
    fn another_folder_waits_for_a_restart() {
        let [old, new] =
            ["/q", "/r"].map(|dir| Config::parse_valid(&format!("queue.dir = \"{dir}\"\n{OLD}")));
        assert_eq!(ReloadPlan::compare(&old, &new), ReloadPlan { queue_dir: true, ..nothing() });
    }

    #[test]
    fn another_interval_gives_up_the_tick_and_every_collector_starts_again() {
        let all = Config::parse_valid(OLD).collectors;
        let all = all.enabled().map(|(collector, _)| collector.name).collect();
        let found = plan("", "interval = \"7s\"\n");
        assert!(found.gives_up_tick());
        assert_eq!(
            found,
            ReloadPlan { grid: true, cluster: ClusterChange::Collectors(all), ..nothing() }
        );
    }

    #[test]
    fn one_collector_starts_again_where_only_its_settings_are_others() {
        let changed = |to| match plan("[collectors.nodes]\nenabled = true", to).cluster {
            ClusterChange::Collectors(changed) => changed,
            ClusterChange::Another => panic!("slurmctld is the same"),
        };
        assert_eq!(changed("[collectors.nodes]\nenabled = true\neach = true"), ["nodes"]);
        assert_eq!(
            changed("[collectors.nodes]\nenabled = false"),
            [""; 0],
            "what ends needs nothing"
        );
        assert_eq!(
            changed("[collectors.nodes]\nenabled = true\n[collectors.licenses]\nenabled = true"),
            ["licenses"]
        );
    }

    /// Each key by itself: whichever is forgotten, the figures of one slurmctld would go out as
    /// another's.
    #[test]
    fn any_change_of_slurm_is_another_cluster() {
        for slurm in [
            "conf = \"/other/slurm.conf\"",
            "reader = \"/other/reader\"",
            "timeout = \"9s\"",
            "follow = \"slurmctld\"",
            "rest = \"http://127.0.0.1:6820\"\ntoken_file = \"/token\"",
        ] {
            let plan = plan(
                "[collectors.partitions]",
                &format!("[slurm]\n{slurm}\n[collectors.partitions]"),
            );
            assert!(plan.gives_up_tick());
            assert_eq!(
                plan,
                ReloadPlan { cluster: ClusterChange::Another, ..nothing() },
                "{slurm}"
            );
        }
    }

    #[test]
    fn a_destination_keeps_its_connection_by_name_and_settings() {
        let second = "[[carbon]]\nname = \"second\"\naddress = \"b:2004\"\n";
        for (from, to, stays) in [
            ("a:2004", "c:2004", false),
            ("main", "first", false),
            ("[[carbon]]", &format!("{second}[[carbon]]"), true),
        ] {
            let connections = stays.then(|| "main".to_owned()).into_iter().collect();
            assert_eq!(plan(from, to), ReloadPlan { connections, ..nothing() }, "{to}");
        }
    }
}
