//! What the daemon tells of itself when `status` asks.

use super::{Daemon, unix_now};
use crate::source::{Outcome, Source};
use crate::status::{DestinationEntry, QueueEntry, ReaderEntry, SlurmctldEntry, StatusDocument};

/// slurmctld as the outcomes have shown it.
#[derive(Debug, Default)]
pub(super) struct SlurmctldSeen(SlurmctldEntry);

impl SlurmctldSeen {
    pub(super) fn note(&mut self, outcome: &Outcome, now: i64) {
        let seen = &mut self.0;
        if seen.answers != Some(outcome.is_ok()) {
            (seen.answers, seen.since) = (Some(outcome.is_ok()), Some(now));
        }
        match outcome {
            Ok(_) => (seen.error, seen.last_answer) = (None, Some(now)),
            Err(error) => seen.error = Some(error.to_string()),
        }
    }
}

impl Daemon {
    pub(super) fn status(&self) -> StatusDocument {
        let (queue, settings) = (self.queue.status(), &self.config.queue);
        StatusDocument {
            version: env!("SLURM_GRAPHITE_VERSION").to_owned(),
            pid: std::process::id(),
            config: self.config.file.clone(),
            started: self.started,
            now: unix_now(),
            interval: self.config.interval,
            last_tick: self.last_tick,
            slurmctld: SlurmctldEntry { cluster: self.cluster.clone(), ..self.slurmctld.0.clone() },
            destinations: self.destinations(),
            queue: QueueEntry {
                dir: self.queue_dir.clone(),
                durable: queue.durable,
                file_bytes: queue.file_bytes,
                memory_bytes: queue.memory_bytes,
                max_bytes: settings.limits.max_bytes,
                max_age: settings.limits.max_age.as_secs(),
                window_short: queue.window_short,
            },
            readers: self.readers(),
        }
    }

    fn destinations(&self) -> Vec<DestinationEntry> {
        let entry = |(to, sender): &(carbon::Destination, carbon::Sender)| {
            let status = sender.status();
            let dropped = status.dropped;
            DestinationEntry {
                name: to.name.clone(),
                address: to.address.to_string(),
                connected: status.connected,
                in_doubt: status.in_doubt,
                since: i64::try_from(status.since).unwrap_or(i64::MAX),
                ticks_due: status.due,
                points_due: sender.points_due(),
                oldest_due: status.oldest_due,
                ticks_held: status.held,
                bytes_held: status.bytes,
                last_delivery: status.last_delivery,
                points_dropped: dropped.full.saturating_add(dropped.age).saturating_add(dropped.damaged),
                points_unproved: status.unproved,
            }
        };
        self.senders.iter().map(entry).collect()
    }

    fn readers(&self) -> Vec<ReaderEntry> {
        let entry = |role: &str, source: &Source| ReaderEntry {
            role: role.to_owned(),
            release: source.release().map(|release| release.to_string()),
            pid: source.pid(),
            restarts: source.restarts(),
        };
        let surveys = self.survey.as_ref().map(|survey| entry("surveys", survey.source()));
        std::iter::once(entry("statistics", &self.source)).chain(surveys).collect()
    }
}
