//! `[slurm] follow` in the daemon's loop: which ticks ask slurmctld, and what a waiting host publishes.

use std::time::Duration;

use carbon::Batch;
use slurm_snapshot::RpcTables;
use tracing::{info, warn};

use super::{Daemon, LoggedState, remembering};
use crate::clock::unix_now;
use crate::collecting::Collecting;
use crate::collectors::TickOutcome;
use crate::config::Problems;
use crate::follow::{Follow, FollowStep, TickRole, ahead_of};
use crate::isolation::Verdict;
use crate::source::Outcome;

/// What only slurmd and its steps send: MESSAGE_NODE_REGISTRATION_STATUS, REQUEST_STEP_COMPLETE,
/// REQUEST_COMPLETE_BATCH_SCRIPT and MESSAGE_EPILOG_COMPLETE, by numbers that no release has changed.
const OF_NODES: [u16; 4] = [1002, 5016, 5018, 6012];

fn of_nodes(tables: &RpcTables) -> u64 {
    let rows = tables.types.iter().filter(|row| OF_NODES.contains(&row.id));
    rows.map(|row| u64::from(row.count)).sum()
}

impl Daemon {
    /// Begins a tick: slurmctld is asked at once, or when it is known whether this host's slurmctld is the active one.
    pub(super) fn begin(&mut self, timestamp: i64) {
        let Some(follow) = &mut self.follow else { return self.ask(timestamp) };
        if let Some(before) = follow.give_up() {
            self.health.ticks_skipped = self.health.ticks_skipped.saturating_add(1);
            self.emit(before, TickOutcome::Failed);
        }
        let step = self.follow.as_mut().map(|follow| follow.begin(timestamp));
        self.go_on(timestamp, step.unwrap_or(FollowStep::Ask));
    }

    /// A tick while an answer is awaited. Where the daemon follows, that answer may be late because slurmctld has just taken over: libslurm
    /// tries a closed port again after a second. So the tick is begun behind it, as long as its slot is not over.
    pub(super) fn defer(&mut self, timestamp: i64) {
        let skipped = match &mut self.follow {
            Some(follow) => follow.defer(timestamp),
            None => Some(timestamp),
        };
        if let Some(skipped) = skipped {
            self.health.ticks_skipped = self.health.ticks_skipped.saturating_add(1);
            self.emit(skipped, TickOutcome::Failed);
        }
    }

    /// The answer is there: the tick that came meanwhile begins.
    pub(super) fn begin_deferred(&mut self) {
        if let Some(timestamp) = self.follow.as_mut().and_then(Follow::deferred) {
            self.begin(timestamp);
        }
    }

    fn go_on(&mut self, timestamp: i64, step: FollowStep) {
        match step {
            FollowStep::Ask => self.ask(timestamp),
            FollowStep::Wait => {}
            FollowStep::Standby => {
                self.note_standby();
                self.emit(timestamp, TickOutcome::Standby);
                self.tell_status();
            }
        }
    }

    /// Called when the tick has waited long enough for a ping.
    pub(super) fn waited(&mut self) {
        if let Some(timestamp) = self.follow.as_mut().and_then(Follow::give_up) {
            self.ask(timestamp);
        }
    }

    /// Handles the answer of the controllers before this host's, or its absence. An error if this host is not a
    /// controller.
    pub(super) fn pinged(&mut self, outcome: Outcome) -> Result<(), Problems> {
        let Some(follow) = &mut self.follow else { return Ok(()) };
        let (ahead, cluster) = ahead_of(outcome).unzip();
        // A host that was found once is not looked up in vain for good: an address may be away for a moment.
        let is_known = follow.knows_its_host();
        if let Some(ahead) = ahead.as_ref().filter(|ahead| ahead.own.is_none() && !is_known) {
            return Err(self.config.not_a_controller(&ahead.hosts));
        }
        let waited = follow.pinged(ahead.filter(|ahead| ahead.own.is_some()));
        if let Some(cluster) = cluster.flatten() {
            self.know_cluster(&cluster);
        }
        if let Some((timestamp, step)) = waited {
            self.go_on(timestamp, step);
        }
        Ok(())
    }

    /// Handles the answer of a slurmctld that is a standby.
    pub(super) fn answered_standby(&mut self, cluster: Option<String>) {
        if let Some(cluster) = cluster {
            self.know_cluster(&cluster);
        }
        self.note_standby();
        if let Some(timestamp) = self.pending.take() {
            self.emit(timestamp, TickOutcome::Standby);
        }
        self.tell_status();
    }

    /// Decides about the figures that were collected while another controller may have been active.
    fn look_outside(&mut self, outcome: &TickOutcome) {
        // Without `follow` this host publishes whatever others do.
        let Some(follow) = &mut self.follow else { return self.queue.confirm() };
        let statistics = outcome.reading().and_then(|reading| reading.statistics.as_ref());
        let nodes = statistics.and_then(|statistics| statistics.rpc.as_ref()).map(of_nodes);
        // One receiver may be on this side of the cut.
        let mut receivers = self.senders.iter().map(|(_, sender)| sender.status());
        let answers = receivers.try_fold(u64::MAX, |least, status| {
            (status.connected && !status.in_doubt)
                .then(|| least.min(status.renewals.saturating_add(status.seen_to_run)))
        });
        match follow.look_outside(nodes, answers) {
            Verdict::Wait => {}
            Verdict::Confirm => self.queue.confirm(),
            Verdict::Withdraw => {
                let ticks = self.queue.withdraw();
                if ticks > 0 && follow.was_isolated() {
                    warn!(
                        ticks,
                        "this host was isolated, and another controller may have been active: unsent figures of the cluster are dropped"
                    );
                }
            }
        }
    }

    /// Hands figures of the cluster to the queue. While this host is isolated, they may have to be dropped.
    pub(super) fn keep_cluster(&mut self, batch: &Batch) {
        let is_isolated = self.follow.as_ref().is_some_and(Follow::is_isolated);
        self.keep_as(batch, is_isolated);
    }

    fn note_standby(&mut self) {
        self.slurmctld.note_standby(unix_now());
        if self.logged != LoggedState::Standby {
            let ahead = self.follow.as_ref().and_then(Follow::host_ahead);
            info!(ahead, "this host's slurmctld is a backup; only the daemon's own figures are published");
            self.logged = LoggedState::Standby;
        }
    }

    /// What a tick's outcome says about who is active; whether figures of the cluster are published.
    pub(super) fn follow_outcome(&mut self, outcome: &TickOutcome) -> bool {
        self.look_outside(outcome);
        let Some(follow) = &mut self.follow else { return true };
        let role = match outcome {
            TickOutcome::Reading(reading) => {
                TickRole::Active(reading.statistics.as_ref().map(|statistics| statistics.req_time_start))
            }
            TickOutcome::Standby => TickRole::Standby,
            TickOutcome::Failed => TickRole::Down,
            TickOutcome::GivenUp => {
                // Nothing is known of this tick.
                (self.health.standby, self.health.handover) = (None, None);
                return false;
            }
        };
        let change = follow.note(role, Duration::from_secs(self.config.interval.into()));
        let is_active = matches!(role, TickRole::Active(_));
        (self.health.standby, self.health.handover) = (Some(!is_active), Some(change.handover));
        if change.handover {
            info!("the active slurmctld runs on this host now; its figures are published");
            // Nothing is compared with a reading from before others were active.
            self.remember(i64::MAX);
            let memory = |name| remembering::memory(&self.queue, name);
            self.collecting = Collecting::start(self.config.interval, &self.config.collectors, memory);
            if let Some(survey) = &mut self.survey {
                survey.reconfigure(self.config.collectors.max_duty, self.config.collectors.max_threads);
            }
        }
        if let Some(accounting) = &mut self.accounting {
            if change.is_return {
                accounting.rebuild();
            } else if role == TickRole::Standby {
                accounting.silence_round();
            }
        }
        is_active
    }
}
