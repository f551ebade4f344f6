//! `[slurm] follow` in the daemon's loop: what pings show, and which figures may be sent.

use slurm_points::collectors::TickOutcome;
use slurm_snapshot::RpcTables;
use tracing::warn;

use super::Daemon;
use crate::config::Problems;
use crate::follow::ahead_of;
use crate::isolation::Verdict;
use crate::source::Outcome;

/// Messages that only slurmd and its steps send: MESSAGE_NODE_REGISTRATION_STATUS,
/// REQUEST_STEP_COMPLETE, REQUEST_COMPLETE_BATCH_SCRIPT and MESSAGE_EPILOG_COMPLETE, by numbers
/// that no release has changed.
const OF_NODES: [u16; 4] = [1002, 5016, 5018, 6012];

fn of_nodes(tables: &RpcTables) -> u64 {
    let rows = tables.types.iter().filter(|row| OF_NODES.contains(&row.id));
    rows.map(|row| u64::from(row.count)).sum()
}

impl Daemon {
    /// Handles the answer of the controllers before this host's, or its absence. An error if this
    /// host is not a controller.
    pub(super) fn handle_ping(&mut self, outcome: Outcome) -> Result<(), Problems> {
        let (ahead, name) = ahead_of(outcome).unzip();
        // A host that was found once is not looked up in vain for good: an address may be away for
        // a moment.
        let is_known = self.cluster.follow.as_ref().is_some_and(|follow| follow.was_found);
        if let Some(ahead) = ahead.as_ref().filter(|ahead| ahead.own.is_none() && !is_known) {
            return Err(self.config.not_a_controller(&ahead.hosts));
        }
        if let Some(name) = name.flatten() {
            let _ = self.accept_cluster_name(&name);
        }
        let ended = self.cluster.handle_ping(ahead.filter(|ahead| ahead.own.is_some()));
        self.publish_ended_tick(ended);
        Ok(())
    }

    /// Confirms or withdraws the figures that were collected while this host was isolated and
    /// another controller may have been active. `outcome` is that of the newest tick.
    pub(super) fn confirm_or_withdraw(&mut self, outcome: &TickOutcome) {
        // Without `follow` this host publishes whatever others do.
        let Some(follow) = &mut self.cluster.follow else { return self.queue.confirm() };
        let statistics = outcome.reading().and_then(|reading| reading.statistics.as_ref());
        let nodes = statistics.and_then(|statistics| statistics.rpc.as_ref()).map(of_nodes);
        // One receiver may be on this side of the cut.
        let mut receivers = self.senders.iter().map(|(_, sender)| sender.status());
        let answers = receivers.try_fold(u64::MAX, |least, status| {
            (status.connected && !status.in_doubt)
                .then(|| least.min(status.renewals.saturating_add(status.seen_to_run)))
        });
        match follow.judge_isolation(nodes, answers) {
            Verdict::Wait => {}
            Verdict::Confirm => self.queue.confirm(),
            Verdict::Withdraw => {
                let ticks = self.queue.withdraw();
                if ticks > 0 && follow.note_withdrawal() {
                    warn!(
                        ticks,
                        "this host was isolated, and another controller may have been active: \
                            unsent figures of the cluster are dropped"
                    );
                }
            }
        }
    }
}
