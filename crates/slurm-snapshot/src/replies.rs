//! The one table of replies: everything that can be requested from slurmctld and slurmdbd is a row
//! of it.
//!
//! The daemon and the readers share it. A collector names the rows that it needs, and their
//! [`ReplyOptions`], which go unchanged into the request line for the reader.

use std::ops::BitOr;

use serde::{Deserialize, Serialize};

use crate::associations::Associations;
use crate::dbd_statistics::DbdStatistics;
use crate::finished::Finished;
use crate::jobs::Jobs;
use crate::lists::{Ahead, Controller, Licenses, Reservations, Visibility};
use crate::nodes::Nodes;

/// The kinds of requests to slurmctld and slurmdbd. A survey requests in this order: cheap replies
/// first, and the controllers last, because a controller that hangs blocks for MessageTimeout (10
/// s).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// `slurm_get_statistics`.
    #[default]
    Statistics,
    /// `slurm_reset_statistics`: needs an operator of the cluster; the reply is empty.
    Reset,
    /// `slurm_load_licenses`.
    Licenses,
    /// `slurm_load_reservations`.
    Reservations,
    /// `slurm_load_node`, and `slurm_load_partitions` with [`ReplyOptions::partitions`].
    Nodes,
    /// `slurm_load_jobs`.
    Jobs,
    /// `slurm_load_assoc_mgr_info`: all associations and QOS.
    Associations,
    /// `slurm_ping` of each controller.
    Controllers,
    /// `slurmdb_jobs_get`: the jobs that ended from [`crate::Request::since`] to
    /// [`crate::Request::until`].
    Finished,
    /// `slurmdb_get_stats`: slurmdbd's statistics of itself.
    Slurmdbd,
}

/// The facts about a reply that must be known before it is requested.
#[derive(Clone, Copy, Debug)]
pub struct ReplyRow {
    /// The kind of request that the reply answers.
    pub kind: ReplyKind,
    /// Name of the reply in request lines, logs and metric paths.
    pub name: &'static str,
    /// The role of the reader that sends the request.
    pub role: Role,
    /// The cost of the reply for slurmctld.
    pub cost: Cost,
    /// Whether slurmctld can answer that the reply has not changed, by a rule that covers every
    /// figure that is made of the reply. The comments in the table say why it does: what sets the
    /// time that slurmctld compares with, in its source from 20.11 to 26.11.
    pub unchanged: bool,
    /// The words of slurm.conf's PrivateData that hide some of the reply from all users except
    /// operators.
    pub private: &'static [&'static str],
    /// The reason why the reply is not requested from slurmrestd; `None` if it is.
    pub not_over_rest: Option<&'static str>,
}

/// A reader process, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The reader that every tick waits for.
    Statistics,
    /// The reader that asks slurmctld for everything but its statistics: jobs, nodes and so on. No
    /// tick waits for its replies.
    Surveys,
    /// The reader that asks slurmdbd, which may block for minutes.
    Accounting,
}

/// The costs of a reply for slurmctld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The request takes none of slurmctld's locks.
    None,
    /// The request holds slurmctld's locks while it walks a whole list.
    Locks,
}

/// The table, in the order of [`ReplyKind`].
pub const REPLIES: [ReplyRow; 10] = [
    ReplyRow {
        role: Role::Statistics,
        cost: Cost::None,
        ..row(ReplyKind::Statistics, "statistics")
    },
    ReplyRow { role: Role::Statistics, cost: Cost::None, ..row(ReplyKind::Reset, "reset") },
    // Not `unchanged`: only jobs and the configuration set last_license_update, but what
    // reservations set aside is computed while the reply is packed, from those that are active
    // then.
    row(ReplyKind::Licenses, "licenses"),
    // Creating, changing, moving on and removing one sets last_resv_update, and so does packing one
    // with TIME_FLOAT, whose times move with the clock. That one begins or ends is decided here,
    // from its times.
    ReplyRow {
        unchanged: true,
        private: &["reservations"],
        ..row(ReplyKind::Reservations, "reservations")
    },
    // States, reasons, allocations, load, memory, GRES and features set last_node_update;
    // partitions, which are requested as well, set last_part_update. Power saving does not up to 22.05, so a reader
    // of such a release does not ask whether nodes have changed where power saving is configured,
    // or while a node is reserved: that its reservation is over does not either. When a node or its
    // slurmd started may be seen only with the next change.
    ReplyRow { unchanged: true, private: &["nodes"], ..row(ReplyKind::Nodes, "nodes") },
    // Every submission, start, end and change of a job sets last_job_update. Not always set by it:
    // the reason and the eligible time, when a dependency or a begin time is over; the scheduler
    // then tries the job, and the result is a change. Backfill's plans never do, and some reasons
    // not (BeginTime), so a reader does not ask while a job waits.
    ReplyRow {
        unchanged: true,
        private: &["jobs"],
        not_over_rest: Some(
            "a list of 5,000 jobs makes slurmrestd grow by up to 2 GB, and it keeps that memory",
        ),
        ..row(ReplyKind::Jobs, "jobs")
    },
    ReplyRow {
        private: &["usage", "users"],
        not_over_rest: Some(
            "slurmrestd gives shares and limits in two answers, one of which comes from slurmdbd",
        ),
        ..row(ReplyKind::Associations, "associations")
    },
    ReplyRow { cost: Cost::None, ..row(ReplyKind::Controllers, "controllers") },
    ReplyRow {
        role: Role::Accounting,
        cost: Cost::None,
        private: &["jobs"],
        not_over_rest: Some(
            "slurmrestd does not give the numbers that are needed to count each job once",
        ),
        ..row(ReplyKind::Finished, "finished")
    },
    ReplyRow {
        role: Role::Accounting,
        cost: Cost::None,
        not_over_rest: Some("slurmdbd is read by libslurm alone"),
        ..row(ReplyKind::Slurmdbd, "slurmdbd")
    },
];

/// Returns a row with the values that most rows have.
const fn row(kind: ReplyKind, name: &'static str) -> ReplyRow {
    ReplyRow {
        kind,
        name,
        role: Role::Surveys,
        cost: Cost::Locks,
        unchanged: false,
        private: &[],
        not_over_rest: None,
    }
}

impl ReplyRow {
    /// Whether slurmctld may hide some of the reply from a user with this visibility.
    pub fn is_hidden(&self, visibility: &Visibility) -> bool {
        self.private.iter().any(|word| visibility.may_hide(word))
    }
}

impl ReplyKind {
    /// Returns the row of the table for this kind of request.
    #[expect(
        clippy::indexing_slicing,
        reason = "each kind has a row, in the same order: a test compares them"
    )]
    pub const fn row(self) -> &'static ReplyRow {
        const TABLE: &[ReplyRow] = &REPLIES;
        &TABLE[self as usize]
    }

    /// Returns the name of this kind of request in request lines, logs and metric paths.
    pub const fn name(self) -> &'static str {
        self.row().name
    }
}

/// The contents of replies beyond their totals; each reply uses the options that concern it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplyOptions {
    /// Whether the statistics include the RPC tables.
    pub rpc: bool,
    /// Whether replies include jobs by user, the associations of users, and slurmdbd's RPCs by
    /// user; also the names of these users and of those in slurmctld's RPC tables.
    pub users: bool,
    /// Whether the jobs are also counted by account.
    pub accounts: bool,
    /// Whether the jobs are also counted by QOS. For finished jobs: whether their QOS get names.
    pub qos: bool,
    /// Whether the nodes are also counted by partition.
    pub partitions: bool,
    /// Whether the reply of the nodes includes each node by itself.
    pub rows: bool,
    /// Whether the nodes are also counted by active feature.
    pub features: bool,
    /// Whether the reply of the nodes includes the state and the starts of each node, and with
    /// `partitions` which nodes are in each partition.
    pub marks: bool,
    /// Whether only the number of jobs in each state is needed: slurmrestd is asked for no more.
    pub states_only: bool,
    /// Whether `[slurm] follow` is set. Then statistics are requested only from this host's own
    /// slurmctld, and the reply of the controllers is where this host is among them, and whether
    /// one before it answers.
    pub follow: bool,
    /// Whether the finished jobs include the ids needed to request their steps.
    pub steps: bool,
}

impl BitOr for ReplyOptions {
    type Output = Self;

    /// Returns the options that are set on either side.
    fn bitor(self, other: Self) -> Self {
        Self {
            rpc: self.rpc || other.rpc,
            users: self.users || other.users,
            accounts: self.accounts || other.accounts,
            qos: self.qos || other.qos,
            partitions: self.partitions || other.partitions,
            rows: self.rows || other.rows,
            features: self.features || other.features,
            marks: self.marks || other.marks,
            states_only: self.states_only || other.states_only,
            follow: self.follow || other.follow,
            steps: self.steps || other.steps,
        }
    }
}

/// The reply to any request, except the statistics themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// slurmctld answers that nothing has changed since the request's `since`, so the last reading
    /// is still valid.
    Unchanged,
    /// Answers [`ReplyKind::Jobs`].
    Jobs(Box<Jobs>),
    /// Answers [`ReplyKind::Nodes`].
    Nodes(Box<Nodes>),
    /// Answers [`ReplyKind::Licenses`].
    Licenses(Licenses),
    /// Answers [`ReplyKind::Reservations`].
    Reservations(Reservations),
    /// Answers [`ReplyKind::Associations`].
    Associations(Box<Associations>),
    /// Answers [`ReplyKind::Controllers`].
    Controllers(Vec<Controller>),
    /// Answers [`ReplyKind::Controllers`] with [`ReplyOptions::follow`].
    Ahead(Ahead),
    /// Answers [`ReplyKind::Statistics`] with [`ReplyOptions::follow`]: this host's slurmctld is a
    /// backup that waits.
    Standby,
    /// Answers [`ReplyKind::Finished`].
    Finished(Box<Finished>),
    /// Answers [`ReplyKind::Slurmdbd`].
    Slurmdbd(Box<DbdStatistics>),
}

impl Reply {
    /// Returns the moment at which slurmctld wrote the reply, Unix seconds on its clock: the
    /// `since` of the next request. `None` for a reply without such a moment.
    pub fn last_update(&self) -> Option<i64> {
        match self {
            Self::Jobs(jobs) => Some(jobs.last_update),
            // The older one of the two.
            Self::Nodes(nodes) => {
                let partitions = nodes.partitions.as_ref().map(|partitions| partitions.last_update);
                Some(partitions.unwrap_or(i64::MAX).min(nodes.last_update))
            }
            Self::Licenses(licenses) => Some(licenses.last_update),
            Self::Reservations(reservations) => Some(reservations.last_update),
            Self::Associations(_)
            | Self::Controllers(_)
            | Self::Ahead(_)
            | Self::Standby
            | Self::Finished(_)
            | Self::Slurmdbd(_)
            | Self::Unchanged => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_row_and_is_called_alike_there_and_on_the_line() {
        for (index, row) in REPLIES.iter().enumerate() {
            assert_eq!(row.kind as usize, index);
            assert_eq!(serde_json::to_value(row.kind).unwrap(), row.name);
            assert_eq!(row.kind.row().name, row.name);
        }
        let no_more = serde_json::from_str::<ReplyKind>("\"\"").unwrap_err().to_string();
        assert_eq!(no_more.matches('`').count() / 2 - 1, REPLIES.len(), "{no_more}");
    }

    #[test]
    fn what_either_of_two_wants_is_asked_for() {
        let (rpc, rows) = (
            ReplyOptions { rpc: true, ..Default::default() },
            ReplyOptions { rows: true, ..Default::default() },
        );
        assert_eq!(rpc | rows, ReplyOptions { rpc: true, rows: true, ..Default::default() });
    }
}
