//! Finished jobs' part in the daemon's loop: between slurmdbd, the ledger and the queue.

use slurm_snapshot::Statistics;

use super::Daemon;
use crate::accounting::{Accounting, Plan};
use crate::clock::unix_now;
use crate::collectors::{finished_batch, unproved_batch};
use crate::config::Config;
use crate::source::{Outcome, Source};
use crate::survey::patient;

impl Daemon {
    /// A round, where one is due at this tick, which is published only where it `counts`. `statistics` are this tick's: the records
    /// that slurmctld could not tell slurmdbd.
    pub(super) fn begin_accounting(&mut self, timestamp: i64, statistics: Option<&Statistics>, counts: bool) {
        let Some(accounting) = &mut self.accounting else { return };
        // Counts are a cluster's, and their batch needs a prefix.
        let Some(cluster) = self.cluster.clone() else { return };
        if self.config.prefix.expand(Some(&cluster), &self.host).is_none() {
            return;
        }
        let now = unix_now();
        accounting.open(&cluster, now, || self.queue.states(), |records| self.queue.keep(records));
        if let Some(statistics) = statistics {
            accounting.note_backlog(statistics.dbd_agent_queue_size.into(), now);
        }
        accounting.begin(timestamp, now, counts);
    }

    /// slurmdbd has answered, or has not.
    pub(super) fn accounted(&mut self, outcome: Outcome) {
        let Some(accounting) = &mut self.accounting else { return };
        let unproved = accounting.answered(outcome, unix_now(), |records| self.queue.keep(records));
        if let (Some(slot), Some(prefix)) = (unproved, self.finished_prefix()) {
            let batch = unproved_batch(slot, &prefix);
            self.trace_batch(&batch);
            self.queue.push(&batch);
        }
    }

    /// What a round has counted is on disk, and its batch may be sent.
    pub(super) fn counts_kept(&mut self) {
        if !self.accounting.as_mut().is_some_and(Accounting::kept) {
            return;
        }
        let Some(prefix) = self.finished_prefix() else { return };
        let Some(ledger) = self.accounting.as_ref().and_then(Accounting::ledger) else { return };
        let batch = finished_batch(ledger.counts(), &prefix);
        self.health.points_refused = self.health.points_refused.saturating_add(batch.refused());
        let published = ledger.published();
        self.trace_batch(&batch);
        // That the queue has it is one commit with it.
        self.queue.push_with(&batch, [published]);
    }

    /// The prefix of the cluster whose jobs are counted.
    fn finished_prefix(&self) -> Option<String> {
        let ledger = self.accounting.as_ref()?.ledger()?;
        self.config.prefix.expand(Some(&ledger.counts().cluster), &self.host)
    }
}

/// Where finished jobs are counted; `source` is the reader of slurmdbd, where that runs already.
pub(super) fn start_accounting(config: &Config, source: Option<Source>) -> Option<Accounting> {
    let plan = Plan::of(config)?;
    Some(Accounting::new(source.unwrap_or_else(|| patient(&config.slurm)), plan, config.slurm.follow))
}
