//! Reports of the daemon about itself: to systemd in words, and to `status` on request.

use std::time::Duration;

use carbon::{Destination, Sender, Status};

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
            destinations: self.senders.iter().map(destination_entry).collect(),
            queue: QueueEntry {
                dir: settings.dir.clone(),
                max_bytes: settings.limits.max_bytes,
                max_age: settings.limits.max_age.as_secs(),
                status: self.queue.status(),
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
}

fn destination_entry((to, sender): &(Destination, Sender)) -> DestinationEntry {
    DestinationEntry {
        name: to.name.clone(),
        address: to.address.to_string(),
        error: sender.last_error().map(|error| error.to_string()),
        status: sender.status(),
    }
}

/// The moment that was `age` ago, Unix seconds.
fn ago(age: Duration) -> i64 {
    unix_now().saturating_sub(i64::try_from(age.as_secs()).unwrap_or(i64::MAX))
}

fn destination_words(name: &str, status: &Status) -> String {
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
