//! Reports of the daemon about itself: to systemd in words, and to `status` on request.

use std::time::Duration;

use super::{Daemon, clock_time};
use crate::accounting::Accounting;
use crate::clock::{unix_now, unix_of};
use crate::status::{DestinationEntry, QueueEntry, RefusedEntry, StatusDocument};

impl Daemon {
    /// Sends the status line to systemd.
    pub(super) fn send_status(&mut self) {
        let Self { cluster, senders, refused, notify, .. } = self;
        notify.status(|| {
            let mut words = vec![cluster.seen.words().to_owned()];
            if cluster.seen.entry.nameless {
                words.push("nothing is sent until the cluster's name is known".to_owned());
            }
            words.extend(
                senders.iter().map(|(to, sender)| destination_words(&to.name, &sender.status())),
            );
            if let Some(RefusedEntry { at, .. }) = refused {
                let at = clock_time(*at);
                words.push(format!(
                    "the new configuration was refused at {at}, the old one is in use"
                ));
            }
            words.join("; ")
        });
    }

    /// The document that `status` prints.
    pub(super) fn status(&self) -> StatusDocument {
        let queue = self.queue.status();
        let settings = &self.config.queue;
        StatusDocument {
            version: env!("SLURM_GRAPHITE_VERSION").to_owned(),
            pid: std::process::id(),
            config: self.config.file.clone(),
            refused: self.refused.clone(),
            started: unix_of(self.started),
            now: unix_now(),
            interval: self.config.interval,
            last_tick: self.last_tick,
            slurmctld: self.cluster.seen.entry(),
            destinations: self.destinations(),
            queue: QueueEntry {
                dir: settings.dir.clone(),
                durable: queue.durable,
                since: queue.durable_since,
                error: queue.error.map(|error| error.to_string()),
                file_bytes: queue.file_bytes,
                memory_bytes: queue.memory_bytes,
                max_bytes: settings.limits.max_bytes,
                max_age: settings.limits.max_age.as_secs(),
                window_short: queue.window_short,
            },
            finished_behind_since: self
                .cluster
                .finished
                .as_ref()
                .and_then(Accounting::behind)
                .map(ago),
            readers: self.cluster.readers(),
        }
    }

    fn destinations(&self) -> Vec<DestinationEntry> {
        let entry = |(to, sender): &(carbon::Destination, carbon::Sender)| DestinationEntry {
            name: to.name.clone(),
            address: to.address.to_string(),
            error: sender.last_error().map(|error| error.to_string()),
            status: sender.status(),
        };
        self.senders.iter().map(entry).collect()
    }
}

/// The moment that was `age` ago, Unix seconds.
fn ago(age: Duration) -> i64 {
    unix_now().saturating_sub(i64::try_from(age.as_secs()).unwrap_or(i64::MAX))
}

fn destination_words(name: &str, status: &carbon::Status) -> String {
    let since = clock_time(status.since);
    let state = match (status.connected, status.in_doubt) {
        _ if status.not_carbon => format!("what answers as {name} is not Carbon"),
        (true, false) => format!("sending to {name}"),
        (true, true) => format!("{name} has not shown since {since} that it reads"),
        (false, _) => format!("{name} not connected since {since}"),
    };
    let unsent = status.unsent.ticks;
    match status.oldest_unsent.filter(|_| unsent > 1 || !status.connected) {
        Some(oldest) => {
            format!("{state}, {unsent} ticks not sent, oldest from {}", clock_time(oldest))
        }
        None => state,
    }
}
