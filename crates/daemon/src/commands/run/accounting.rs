//! Finished jobs' part in the daemon's loop: between slurmdbd, the ledger and the queue.

use slurm_points::collectors::{finished_batch, unproved_batch};
use slurm_snapshot::Statistics;

use super::Daemon;
use crate::clock::unix_now;
use crate::source::Outcome;

impl Daemon {
    /// Begins a round of finished jobs if one is due at this tick. If `counts` is false, jobs are
    /// only marked as seen. `statistics` are this tick's; they say how many records slurmctld could
    /// not send to slurmdbd, and how many jobs it has started.
    pub(super) fn begin_accounting(
        &mut self,
        timestamp: i64,
        statistics: Option<&Statistics>,
        counts: bool,
    ) {
        // Counts are a cluster's, and their batch needs a prefix.
        let Some(name) = self.cluster.name().map(str::to_owned) else { return };
        if self.config.prefix.expand(Some(&name), &self.host).is_none() {
            return;
        }
        let Some(accounting) = &mut self.cluster.finished else { return };
        let now = unix_now();
        accounting.open(&name, now, || self.queue.states(), |records| self.queue.keep(records));
        if let Some(statistics) = statistics {
            let records = statistics.dbd_agent_queue_size;
            let started = statistics.jobs_started;
            accounting.note_statistics(records.into(), started.into(), now);
        }
        accounting.begin_round(timestamp, now, counts);
    }

    /// Handles slurmdbd's reply with finished jobs, or its absence.
    pub(super) fn handle_slurmdbd_reply(&mut self, outcome: Outcome) {
        let Some(accounting) = &mut self.cluster.finished else { return };
        let mut counted = None;
        let unproved = accounting.take_reply(outcome, unix_now(), |counts, records| {
            counted = counts.and_then(|counts| {
                let prefix = self.config.prefix.expand(Some(&counts.cluster), &self.host)?;
                Some(finished_batch(counts, &prefix))
            });
            match &counted {
                Some(batch) => self.queue.push_with(batch, records),
                None => self.queue.keep(records),
            }
        });
        if let Some(batch) = counted {
            self.note_batch(&batch);
        }
        if let (Some(slot), Some(prefix)) = (unproved, self.finished_prefix()) {
            let batch = unproved_batch(slot, &prefix);
            self.note_batch(&batch);
            self.queue.push(&batch);
        }
    }

    /// The prefix of the cluster whose jobs are counted.
    fn finished_prefix(&self) -> Option<String> {
        let ledger = self.cluster.finished.as_ref()?.ledger()?;
        self.config.prefix.expand(Some(&ledger.counts().cluster), &self.host)
    }
}
