//! SIGHUP: the configuration is read again, and what has changed in it takes effect.

use std::collections::BTreeMap;

use carbon::Sender;
use slurm_snapshot::Role;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tracing::{error, info, warn};

use super::accounting::start_accounting;
use super::{
    Daemon, LoggedState, START_DEADLINE, SlurmctldSeen, addresses, load, names, remembering, start_survey,
};
use crate::accounting::Plan;
use crate::cli::Options;
use crate::clock::{self, unix_now};
use crate::collectors::TickOutcome;
use crate::config::{Config, Problems};
use crate::follow::Follow;
use crate::grid::Grid;
use crate::source::Source;
use crate::source::rest::Expiry;
use crate::status::RefusedEntry;
use crate::survey::{Survey, patient};
use crate::telemetry::Logging;

/// The result of reading the configuration.
pub(super) type Read = Result<Box<Result<Config, Problems>>, JoinError>;

/// A configuration that is being read.
pub(super) struct Loading {
    task: JoinHandle<Box<Result<Config, Problems>>>,
    /// It may have changed again since it was read.
    again: bool,
}

impl Loading {
    /// Waits until it has been read. Safe to cancel.
    pub(super) async fn read(&mut self) -> Read {
        (&mut self.task).await
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
        let task = spawn_blocking(move || Box::new(load(&options).and_then(Config::with_destination)));
        self.loading = Some(Loading { task, again: false });
    }

    /// Applies or refuses the configuration that was read.
    pub(super) fn read(&mut self, read: Read, options: &Options, logging: &Logging) {
        if self.loading.take().is_some_and(|loading| loading.again) {
            return self.read_configuration(options);
        }
        match read {
            Ok(config) => self.reload(*config, logging),
            Err(error) => error!(%error, "reading the configuration"),
        }
    }

    /// The whole new configuration, or the old one as it was.
    fn reload(&mut self, config: Result<Config, Problems>, logging: &Logging) {
        let config = match config {
            Ok(config) => config,
            Err(problems) => {
                error!("the new configuration is refused, the old one stays in use:\n{problems}");
                self.refused = Some(RefusedEntry { at: unix_now(), why: problems.to_string() });
                self.health.reload_refused = true;
                return self.tell_status();
            }
        };
        (self.refused, self.health.reload_refused) = (None, false);
        if config.log != self.config.log {
            logging.change(config.log);
        }
        if (config.interval, &config.slurm) != (self.config.interval, &self.config.slurm)
            && let Some(timestamp) = self.pending.take().or_else(|| {
                self.follow.as_mut().and_then(|follow| follow.give_up().or_else(|| follow.deferred()))
            })
        {
            self.emit(timestamp, TickOutcome::GivenUp);
        }
        if config.interval != self.config.interval {
            self.grid = Grid::new(config.interval, clock::now());
        }
        if config.slurm != self.config.slurm {
            self.asked = false;
            // Another cluster, perhaps: nothing goes under the old one's name.
            (self.cluster, self.logged, self.outage) = (None, LoggedState::Nothing, None);
            self.slurmctld = SlurmctldSeen::default();
            let pings = self.follow.as_ref().map_or(0, |follow| follow.source().restarts());
            let before = self.source.restarts().saturating_add(pings);
            self.restarts_before = self.restarts_before.saturating_add(before);
            self.expiry = Expiry::default();
            self.source = Source::start(config.slurm.clone(), START_DEADLINE);
            self.follow = Follow::start(&config.slurm);
            (self.health.standby, self.health.handover) = (None, None);
        }
        if config.queue.dir != self.config.queue.dir {
            warn!(
                "queue.dir has changed; the new directory is used after a restart of the daemon, which does not send what is in the old one: stop it, move the queue-*.log files, and start it"
            );
        }
        self.change_destinations(&config);
        let third = self.dbd_source().map_or(0, Source::restarts);
        self.change_collecting(&config);
        self.change_accounting(&config);
        if config.slurm != self.config.slurm || self.dbd_source().is_none() {
            self.restarts_before = self.restarts_before.saturating_add(third);
        }
        self.config = config;
        info!(
            interval = self.config.interval,
            prefix = %self.config.prefix,
            destinations = addresses(&self.config.carbon),
            "the new configuration is in use"
        );
        self.tell_status();
    }

    /// A collector whose settings stay continues with its last reading and all that it has counted, and so does the survey.
    fn change_collecting(&mut self, config: &Config) {
        self.remember(i64::MAX);
        let (old, new) = (&self.config, config);
        let is_another = new.slurm != old.slurm;
        let all_anew = is_another || new.interval != old.interval;
        let stays = |name| !all_anew && new.collectors.is_same(&old.collectors, name);
        let memory = |name| remembering::memory(&self.queue, name);
        self.collecting =
            std::mem::take(&mut self.collecting).restart(new.interval, &new.collectors, stays, memory);
        let before = self.survey.as_ref().map_or(0, |survey| survey.source().restarts());
        let changed = |survey: Option<Survey>, role, source: Option<Source>| {
            let stays = !is_another && self.collecting.needs(role).is_some();
            let Some(mut survey) = survey.filter(|_| stays) else {
                return start_survey(new, &self.collecting, role, source.filter(|_| !is_another));
            };
            if all_anew || new.collectors != old.collectors {
                survey.reconfigure(new.collectors.max_duty, new.collectors.max_threads);
            }
            Some(survey)
        };
        let of_finished = self.accounting.as_ref().map(|accounting| accounting.source().share());
        self.survey = changed(self.survey.take(), Role::Surveys, None);
        self.dbd_survey = changed(self.dbd_survey.take(), Role::Accounting, of_finished);
        if is_another || self.survey.is_none() {
            self.restarts_before = self.restarts_before.saturating_add(before);
        }
    }

    /// What has been counted of finished jobs stays.
    fn change_accounting(&mut self, config: &Config) {
        let shared = self.dbd_survey.as_ref().map(|survey| survey.source().share());
        let is_another = config.slurm != self.config.slurm;
        match (Plan::of(config), &mut self.accounting) {
            (Some(plan), Some(accounting)) => {
                let source = is_another.then(|| shared.unwrap_or_else(|| patient(&config.slurm)));
                accounting.reconfigure(source, plan);
            }
            (Some(_), None) => self.accounting = start_accounting(config, shared),
            (None, _) => self.accounting = None,
        }
    }

    /// What stays as it is keeps its connection; what changes keeps its place in the queue and its counters; what
    /// goes is said.
    fn change_destinations(&mut self, config: &Config) {
        let before = std::mem::take(&mut self.senders);
        let mut kept: BTreeMap<String, _> =
            before.into_iter().map(|(old, sender)| (old.name.clone(), (old, sender))).collect();
        self.queue.reconfigure(config.queue.limits.clone(), &names(&config.carbon));
        for to in &config.carbon {
            let sender = match kept.remove(&to.name) {
                Some((old, sender)) if old == *to => sender,
                Some((_, sender)) => {
                    sender.stop();
                    Sender::start(to.clone(), &self.queue)
                }
                None => Sender::start(to.clone(), &self.queue),
            };
            self.senders.push((to.clone(), sender));
        }
        kept.into_values().for_each(|(_, sender)| sender.stop());
    }
}
