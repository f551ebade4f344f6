//! Batches for the queue, made of the outcome of a tick and of a survey.

use std::mem;

use carbon::Batch;
use slurm_points::collectors::TickOutcome;
use slurm_points::replies::RoundResult;
use slurm_snapshot::{Reading, Reply, add_to};
use tracing::{debug, info, trace, warn};

use super::{Daemon, remembering};
use crate::clock::{boot_now, unix_now};
use crate::self_metrics::DestinationMetrics;
use crate::source::{Outcome, SourceError};

impl Daemon {
    /// Hands a batch to the queue, and to every destination with it. Figures of the cluster are
    /// provisional while this host is isolated: they may have to be dropped.
    fn push(&mut self, batch: &Batch, is_provisional: bool) {
        self.remember(batch.timestamp());
        self.note_batch(batch);
        if batch.points().len() == 0 {
            return;
        }
        if is_provisional { self.queue.push_provisional(batch) } else { self.queue.push(batch) }
    }

    /// Publishes the outcome of a request for the statistics. `tick` is the tick that it is for,
    /// Unix seconds. `None`: the slot of that tick is over, so a reading is discarded.
    pub(super) fn publish_answer(&mut self, tick: Option<i64>, outcome: Outcome) {
        let outcome = outcome.and_then(|reading| self.of_this_cluster(reading));
        if outcome.as_ref().is_ok_and(|reading| reading.reply == Some(Reply::Standby)) {
            self.cluster.note_standby();
            if let Some(timestamp) = tick {
                self.emit(timestamp, TickOutcome::Standby);
            }
            return self.send_status();
        }
        match &outcome {
            Ok(_) => self.health.readings_ok += 1,
            Err(_) => self.health.readings_failed += 1,
        }
        self.cluster.seen.note_answer(&outcome, boot_now());
        match (tick, outcome) {
            (Some(timestamp), outcome) => self.emit(
                timestamp,
                outcome.map_or(TickOutcome::Failed, |reading| TickOutcome::Reading(reading.into())),
            ),
            (None, Ok(_)) => {
                self.health.ticks_late += 1;
                debug!("a reading came after its tick and is discarded");
            }
            (None, Err(_)) => {}
        }
        self.send_status();
    }

    /// Returns the reading, or an error if it is another cluster's.
    fn of_this_cluster(&mut self, reading: Box<Reading>) -> Outcome {
        match &reading.cluster {
            Some(new) if !self.accept_cluster_name(new) => {
                let known = self.cluster.name().unwrap_or_default().to_owned();
                Err(SourceError::OtherCluster { known, new: new.clone() })
            }
            _ => Ok(reading),
        }
    }

    /// Makes the tick's batch and hands it to every destination. Without a reading it has only the
    /// daemon's own figures.
    pub(super) fn emit(&mut self, timestamp: i64, outcome: TickOutcome) {
        let reading = outcome.reading();
        self.health.ticks_run += 1;
        self.health.slurmctld_up = match outcome {
            TickOutcome::GivenUp | TickOutcome::Standby => None,
            _ => Some(reading.is_some()),
        };
        self.health.reading_duration = reading.map(|reading| reading.elapsed);
        self.health.reader_restarts = self.readers.restarts();
        self.health.reload_refused = self.refused.is_some();
        self.note_reader();
        self.health.token_expires_in = self.cluster.token.left(unix_now());
        let surveys = self.cluster.survey_source().and_then(|source| source.status().pid);
        self.health.look_at_memory(self.cluster.statistics.status().pid, surveys);
        let prefix = self.cluster.prefix(&self.config.prefix, &self.host);
        let is_published = self.apply_role(&outcome);
        self.health.follow = self.cluster.follow.as_ref().and_then(|follow| follow.figures);
        let Some(prefix) = prefix else { return };
        let mut batch = mem::take(&mut self.batch);
        batch.restart(timestamp);
        // Only what another controller's host may have sent too is apart from the daemon's own
        // figures.
        let is_isolated = is_published && self.cluster.is_isolated();
        let mut cluster = Batch::new(timestamp);
        if is_published {
            let batch = if is_isolated { &mut cluster } else { &mut batch };
            self.cluster.collecting.collect(timestamp, &outcome, &prefix, batch);
        }
        self.cluster.collecting.notices().iter().for_each(|notice| warn!("{notice}"));
        let destinations: Vec<(String, DestinationMetrics)> = self
            .senders
            .iter()
            .map(|(to, sender)| {
                (to.name.clone(), DestinationMetrics { status: sender.status(), now: timestamp })
            })
            .collect();
        let queue = self.queue.status();
        let replies = self.cluster.counters();
        self.health.points(&prefix, &self.host, &queue, &destinations, replies, &mut batch);
        self.remember(timestamp);
        self.note_batch(&batch);
        self.queue.push_with_counts(&batch);
        // Last, so that it is the newest.
        self.push(&cluster, true);
        self.batch = batch;
        if !matches!(outcome, TickOutcome::GivenUp) {
            let statistics = outcome.reading().and_then(|reading| reading.statistics.as_ref());
            if is_published {
                let done =
                    self.cluster.begin_surveys(timestamp, outcome.reading().map(AsRef::as_ref));
                done.into_iter().flatten().for_each(|done| self.emit_survey(done));
            }
            // Without either, what others publish is not known.
            if is_published || matches!(outcome, TickOutcome::Standby) {
                self.begin_accounting(timestamp, statistics, is_published);
            }
        }
    }

    /// Applies what a tick's outcome shows about who is active. Returns whether figures of the
    /// cluster are published.
    fn apply_role(&mut self, outcome: &TickOutcome) -> bool {
        self.confirm_or_withdraw(outcome);
        let (is_published, change) = self.cluster.handle_tick(outcome, self.config.interval);
        if change.handover {
            info!("the active slurmctld runs on this host now; its figures are published");
            self.remember(i64::MAX);
            let Self { cluster, queue, config, .. } = self;
            let name = cluster.name().map(str::to_owned);
            cluster
                .restart_collectors(config, |it| remembering::memory(queue, it, name.as_deref()));
        }
        is_published
    }

    /// Makes a batch of the result of a survey, and hands it to the queue. The batch of the
    /// survey's tick was sent long before.
    pub(super) fn emit_survey(&mut self, done: RoundResult) {
        let Some(prefix) = self.config.prefix.expand(self.cluster.name(), &self.host) else {
            return;
        };
        let mut batch = Batch::new(done.timestamp);
        self.cluster.collect_survey(done, &prefix, &mut batch);
        self.push(&batch, self.cluster.is_isolated());
    }

    /// Counts the points that the batch refused, and traces those that it has. Tests compare the
    /// trace with the points that arrived.
    pub(super) fn note_batch(&mut self, batch: &Batch) {
        add_to(&mut self.health.points_refused, batch.refused());
        if batch.points().len() > 0 {
            trace!(tick = batch.timestamp(), lines = carbon::lines(batch), "tick collected");
        }
    }
}
