//! One kind of reply over several rounds: when it may be requested, its last outcome, and whether
//! it may be published.

use std::sync::Arc;
use std::time::Duration;

use slurm_points::replies::ReplyCounters;
use slurm_snapshot::{Reading, Reply, ReplyKind, ReplyOptions, one_more};
use tracing::{info, warn};

use super::duty::DutyLimit;
use crate::source::Outcome;

/// Longest time that a failed request counts for slurmctld's duty: at a duty of 5 %, the next
/// request is sent after ten minutes.
const LONGEST_FAILURE: Duration = Duration::from_secs(30);

pub(crate) const HIDDEN_REMEDY: &str = "Run the daemon as SlurmUser, or make its user an operator: \
    `sacctmgr modify user NAME set adminlevel=operator`.";

/// One kind of reply: when it may be requested, its last outcome, its counters.
#[derive(Debug, Default)]
pub(super) struct ReplyState {
    pub(super) duty: DutyLimit,
    /// The last whole reply that was published, to which slurmctld's "unchanged" refers.
    pub(super) kept: Option<Arc<Reading>>,
    pub(super) counters: ReplyCounters,
    /// The reason why the last request brought no reading, and advice.
    pub(super) failure: Option<String>,
    logged: LoggedReply,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LoggedReply {
    #[default]
    Nothing,
    Good,
    Failed,
    Hidden,
}

impl ReplyState {
    pub(super) fn is_known(&self) -> bool {
        self.logged != LoggedReply::Nothing || self.counters.skipped_busy > 0
    }

    /// The `since` of the next request, Unix seconds: slurmctld sends nothing if nothing has
    /// changed since then. `None` requests the whole reply.
    pub(super) fn since(&self) -> Option<i64> {
        self.kept.as_ref()?.reply.as_ref()?.last_update()
    }

    /// Takes the outcome of a request for this reply. Returns a reading to publish, if there is
    /// one.
    pub(super) fn handle_outcome(
        &mut self,
        kind: ReplyKind,
        options: ReplyOptions,
        outcome: Outcome,
    ) -> Option<Arc<Reading>> {
        let mut reading = match outcome {
            Ok(reading) => reading,
            Err(error) => {
                one_more(&mut self.counters.readings_failed);
                self.counters.duration = None;
                // A controller that comes back may be another, with other moments.
                self.kept = None;
                self.failure = Some(format!("{error}. {}", error.advice()));
                if self.logged != LoggedReply::Failed {
                    warn!(reply = kind.name(), %error, hint = error.advice(), "no reading; trying \
                        again when it is due");
                }
                self.logged = LoggedReply::Failed;
                return None;
            }
        };
        one_more(&mut self.counters.readings_ok);
        self.counters.duration = Some(reading.elapsed);
        self.failure = None;
        // Whether slurmctld may hide a part of the reply from the daemon's user.
        let visibility = reading.visibility.as_ref();
        let is_hidden = !kind.row().private.is_empty()
            && visibility.is_none_or(|seen| kind.row().is_hidden(seen));
        let lacks_partitions = kind == ReplyKind::Nodes
            && options.partitions
            && visibility.is_some_and(|seen| seen.may_hide("partitions"));
        self.counters.hidden = is_hidden || lacks_partitions;
        // Also for an unchanged reply, from which they were removed before.
        if let (true, Some(Reply::Nodes(nodes))) = (lacks_partitions, &mut reading.reply) {
            nodes.partitions = None;
        }
        self.say_change(kind, reading.elapsed);
        if is_hidden {
            self.failure =
                Some(format!("PrivateData may hide some of it from this user. {HIDDEN_REMEDY}"));
            return None;
        }
        if !matches!(reading.reply, Some(Reply::Unchanged)) {
            return Some(Arc::from(reading));
        }
        one_more(&mut self.counters.readings_unchanged);
        // Not if it is of another cluster: slurm.conf has been replaced.
        self.kept = self.kept.take().filter(|kept| kept.cluster == reading.cluster);
        self.kept.clone()
    }

    /// Logs once that the reply comes, or that a part of it may be hidden. After such a change the
    /// next request is for the whole reply.
    fn say_change(&mut self, kind: ReplyKind, elapsed_us: u64) {
        let logged = if self.counters.hidden { LoggedReply::Hidden } else { LoggedReply::Good };
        if std::mem::replace(&mut self.logged, logged) == logged {
            return;
        }
        // The reply before has more or less than may be seen now.
        self.kept = None;
        let reply = kind.name();
        if self.counters.hidden {
            warn!(
                reply,
                "slurm.conf's PrivateData may hide part of this from the daemon's user, so none of \
                    it is published. {HIDDEN_REMEDY}"
            );
        } else {
            info!(reply, elapsed_us, "slurmctld answers");
        }
    }
}

/// Returns the time that slurmctld may have spent on a request. For a failure it is the time until
/// that, [`LONGEST_FAILURE`] at most, or 0 if the request was not sent.
pub(super) fn cost(outcome: &Outcome, elapsed: Duration) -> Duration {
    match outcome {
        Ok(reading) => Duration::from_micros(reading.elapsed),
        Err(error) if error.was_asked() => elapsed.min(LONGEST_FAILURE),
        Err(_) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{Nodes, Partitions, Release, Visibility};

    use super::*;

    fn nodes(reply: Reply) -> Outcome {
        let private = vec!["partitions".to_owned()];
        Ok(Box::new(Reading {
            id: 1,
            time: 0.0,
            elapsed: 9,
            release: Release::new(22, 5),
            reply: Some(reply),
            visibility: Some(Visibility { private, privileged: Some(false) }),
            ..Reading::default()
        }))
    }

    #[test]
    fn hidden_partitions_stay_hidden_while_nothing_changes() {
        let options = ReplyOptions { partitions: true, ..ReplyOptions::default() };
        let whole = Nodes { partitions: Some(Partitions::default()), ..Nodes::default() };
        let whole = Reply::Nodes(Box::new(whole));
        let mut state = ReplyState::default();
        for (round, reply) in
            [whole.clone(), Reply::Unchanged, whole, Reply::Unchanged].into_iter().enumerate()
        {
            state.kept = state.handle_outcome(ReplyKind::Nodes, options, nodes(reply));
            let reply = state.kept.as_ref().and_then(|kept| kept.reply.clone());
            assert_eq!(reply, Some(Reply::Nodes(Box::default())), "the nodes, and no partition");
            assert_eq!(
                (state.logged, state.counters.hidden),
                (LoggedReply::Hidden, true),
                "round {round}"
            );
        }
        let options = ReplyOptions::default();
        state.handle_outcome(ReplyKind::Nodes, options, nodes(Reply::Unchanged));
        assert_eq!(
            (state.logged, state.counters.hidden),
            (LoggedReply::Good, false),
            "nobody wants partitions"
        );
    }
}
