//! What is made of a tick: a log line about its outcome, and its batch for the queue.

use std::fmt;

use carbon::{Batch, in_words};
use slurm_snapshot::Reply;
use tokio::time::Instant;
use tracing::{debug, info, trace, warn};

use super::{Daemon, LoggedState};
use crate::accounting::Accounting;
use crate::clock::unix_now;
use crate::collecting::Collecting;
use crate::collectors::TickOutcome;
use crate::follow::Follow;
use crate::self_metrics::DestinationMetrics;
use crate::source::Outcome;
use crate::survey::Survey;

/// Consecutive ticks without a reading.
pub(super) struct Outage {
    since: Instant,
    ticks: u64,
}

impl Daemon {
    /// slurm.conf may be replaced by another cluster's. Then nothing about the old cluster is published under the new
    /// name.
    pub(super) fn know_cluster(&mut self, cluster: &str) {
        if self.cluster.as_deref() == Some(cluster) {
            return;
        }
        if let Some(old) = self.cluster.replace(cluster.to_owned()) {
            warn!(old, new = cluster, "slurm.conf now names another cluster; all collectors start again");
            self.collecting = Collecting::start(self.config.interval, &self.config.collectors, |_| None);
        }
    }

    pub(super) fn log_nameless(&mut self, nameless: bool) {
        if nameless && !self.logged_nameless {
            warn!(
                prefix = %self.config.prefix,
                "nothing is sent yet: the prefix needs the cluster's name, which slurmctld has not reported"
            );
        } else if !nameless && self.logged_nameless {
            info!(cluster = self.cluster.as_deref(), "the cluster's name is known; points are sent now");
        }
        self.logged_nameless = nameless;
    }

    /// Hands a batch to the queue, and to every destination with it.
    pub(super) fn keep(&mut self, batch: &Batch) {
        self.keep_as(batch, false);
    }

    /// The same; `is_provisional`: it may have to be dropped later.
    pub(super) fn keep_as(&mut self, batch: &Batch, is_provisional: bool) {
        self.remember(batch.timestamp());
        if batch.points().len() == 0 {
            return;
        }
        self.trace_batch(batch);
        if is_provisional { self.queue.push_provisional(batch) } else { self.queue.push(batch) }
    }

    /// Logs what was collected, which tests compare with what arrived.
    pub(super) fn trace_batch(&self, batch: &Batch) {
        trace!(tick = batch.timestamp(), lines = carbon::lines(batch), "tick collected");
    }

    pub(super) fn answered(&mut self, outcome: Outcome) {
        self.asked = false;
        self.expiry.note(&outcome, unix_now());
        if outcome.as_ref().is_ok_and(|reading| reading.reply == Some(Reply::Standby)) {
            return self.answered_standby(outcome.ok().and_then(|reading| reading.cluster));
        }
        self.slurmctld.note(&outcome, unix_now());
        match &outcome {
            Ok(_) => self.health.readings_ok += 1,
            Err(_) => self.health.readings_failed += 1,
        }
        match &outcome {
            Ok(reading) if self.logged != LoggedState::Up => {
                let outage = self.outage.take().filter(|_| self.logged == LoggedState::Down);
                let again = outage.map_or_else(String::new, |outage| outage.to_string());
                info!(
                    elapsed_us = reading.elapsed,
                    cluster = reading.cluster.as_deref(),
                    "slurmctld answers{again}"
                );
                self.logged = LoggedState::Up;
            }
            Err(error) if self.logged != LoggedState::Down => {
                warn!(%error, hint = error.advice(), "no reading; trying at every tick");
                self.logged = LoggedState::Down;
                self.outage.get_or_insert_with(Outage::begin);
            }
            Err(error) => debug!(%error, "no reading"),
            Ok(_) => {}
        }
        match (self.pending.take(), outcome) {
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
        self.tell_status();
    }

    /// Makes the tick's batch and hands it to every destination. Without a reading it has only the daemon's own
    /// figures.
    pub(super) fn emit(&mut self, timestamp: i64, outcome: TickOutcome) {
        let reading = outcome.reading();
        match outcome {
            TickOutcome::Failed => self.outage.get_or_insert_with(Outage::begin).ticks += 1,
            TickOutcome::Reading(_) | TickOutcome::Standby => self.outage = None,
            TickOutcome::GivenUp => {}
        }
        self.health.ticks_run += 1;
        self.health.slurmctld_up = match outcome {
            TickOutcome::GivenUp | TickOutcome::Standby => None,
            _ => Some(reading.is_some()),
        };
        self.health.reading_duration = reading.map(|reading| reading.elapsed);
        self.health.reader_restarts = self.restarts_before.saturating_add(self.restarts());
        self.health.token_expires_in = self.expiry.left(unix_now());
        let second_reader = self.survey.as_ref().and_then(|survey| survey.source().pid());
        self.health.look_at_memory(self.source.pid(), second_reader);
        if let Some(cluster) = reading.and_then(|reading| reading.cluster.as_ref()) {
            self.know_cluster(cluster);
        }
        let prefix = self.config.prefix.expand(self.cluster.as_deref(), &self.host);
        self.log_nameless(prefix.is_none());
        let is_published = self.follow_outcome(&outcome);
        let Some(prefix) = prefix else { return };
        let mut batch = Batch::new(timestamp);
        // Only what another controller's host may have sent too is apart from the daemon's own figures.
        let is_isolated = is_published && self.follow.as_ref().is_some_and(Follow::is_isolated);
        let mut cluster = Batch::new(timestamp);
        if is_published {
            let batch = if is_isolated { &mut cluster } else { &mut batch };
            self.collecting.collect(timestamp, &outcome, &prefix, batch);
        }
        let destinations: Vec<(String, DestinationMetrics)> = self
            .senders
            .iter()
            .map(|(to, sender)| {
                (to.name.clone(), DestinationMetrics { status: sender.status(), now: timestamp })
            })
            .collect();
        let queue = self.queue.status();
        let replies = self.survey.iter().chain(&self.dbd_survey).flat_map(Survey::counters);
        let replies = replies.chain(self.accounting.iter().map(Accounting::counters));
        self.health.points(&prefix, &self.host, &queue, &destinations, replies, &mut batch);
        let refused = batch.refused().saturating_add(cluster.refused());
        self.health.points_refused = self.health.points_refused.saturating_add(refused);
        self.keep(&batch);
        // Last, so that it is the newest.
        self.keep_as(&cluster, true);
        if !matches!(outcome, TickOutcome::GivenUp) {
            let statistics = outcome.reading().and_then(|reading| reading.statistics.as_ref());
            if is_published {
                self.begin_surveys(timestamp, outcome.reading().map(AsRef::as_ref));
            }
            // Without either, what others publish is not known.
            if is_published || matches!(outcome, TickOutcome::Standby) {
                self.begin_accounting(timestamp, statistics, is_published);
            }
        }
    }
}

impl Outage {
    fn begin() -> Self {
        Self { since: Instant::now(), ticks: 0 }
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ticks = if self.ticks == 1 { "tick" } else { "ticks" };
        write!(f, " again after {}; {} {ticks} without a reading", in_words(self.since.elapsed()), self.ticks)
    }
}
