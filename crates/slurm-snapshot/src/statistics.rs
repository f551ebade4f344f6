//! The scheduler's statistics: `stats_info_response_msg_t` of every release as one plain type.
//!
//! Names are slurm.h's. Times are µs where they are durations and Unix seconds where they are
//! moments; a moment that never was (0 in the reply) is `None`, and so is anything that a reader of
//! slurmrestd cannot know.

use serde::{Deserialize, Serialize};

/// Calls a macro with the members of [`Statistics`] that are one number, under libslurm's names,
/// and slurmrestd's where that is another. `needed`: every version of slurmrestd's API has it, and
/// an answer without it is no answer.
#[macro_export]
macro_rules! numbers_of_statistics {
    ($macro:ident! $with:tt) => {
        $macro! { $with
            needed { server_thread_count agent_queue_size agent_count agent_thread_count
                dbd_agent_queue_size gettimeofday_latency schedule_cycle_max schedule_cycle_last
                schedule_cycle_counter = schedule_cycle_total
                schedule_queue_len = schedule_queue_length
                jobs_submitted jobs_started jobs_completed jobs_canceled jobs_failed jobs_pending
                jobs_running bf_backfilled_jobs bf_last_backfilled_jobs bf_backfilled_het_jobs
                bf_cycle_counter bf_cycle_last bf_queue_len }
            number { schedule_cycle_sum schedule_cycle_depth bf_cycle_sum bf_cycle_max
                bf_last_depth bf_last_depth_try bf_depth_sum bf_depth_try_sum bf_queue_len_sum
                bf_table_size bf_table_size_sum }
            moment { job_states_ts bf_when_last_cycle }
        }
    };
}

/// Everything slurmctld counts about itself and its schedulers.
///
/// Sums and counters run since slurmctld's last reset: midnight UTC, `sdiag --reset` or its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Moment at which slurmctld answered: Unix seconds on its clock.
    pub req_time: i64,
    /// Moment at which slurmctld's counters were last reset: Unix seconds on its clock.
    pub req_time_start: i64,
    /// Number of RPCs being served at this moment, one thread each.
    pub server_thread_count: u32,
    /// Messages to nodes that wait for an agent.
    pub agent_queue_size: u32,
    /// Number of agents that are sending messages to nodes.
    pub agent_count: u32,
    /// Number of threads of the agents that are sending messages to nodes.
    pub agent_thread_count: u32,
    /// Number of messages that wait to be sent to slurmdbd.
    pub dbd_agent_queue_size: u32,
    /// µs that 1,000 calls of `gettimeofday` took on slurmctld's host.
    pub gettimeofday_latency: u32,

    /// Length of the longest main scheduling cycle, µs.
    pub schedule_cycle_max: u32,
    /// Length of the last main scheduling cycle, µs.
    pub schedule_cycle_last: u32,
    /// Sum of the lengths of the main scheduling cycles, µs. A `u32` that wraps in slurmctld up to
    /// 25.05.
    pub schedule_cycle_sum: Option<u64>,
    /// Number of main scheduling cycles.
    pub schedule_cycle_counter: u32,
    /// Sum of the jobs looked at in main scheduling cycles.
    pub schedule_cycle_depth: Option<u32>,
    /// Entries in the queue of the last main scheduling cycle, one for each partition of a job.
    pub schedule_queue_len: u32,
    /// Number of main scheduling cycles by the reason why they ended ([`crate::MAIN_EXITS`]);
    /// `None` before 23.11.
    pub schedule_exit: Option<Vec<u32>>,

    /// Jobs submitted.
    pub jobs_submitted: u32,
    /// Jobs started.
    pub jobs_started: u32,
    /// Jobs completed.
    pub jobs_completed: u32,
    /// Jobs cancelled.
    pub jobs_canceled: u32,
    /// Jobs failed.
    pub jobs_failed: u32,
    /// Jobs pending when slurmctld last counted them. [`Statistics::jobs_pending`] is what is
    /// published.
    pub jobs_pending: u32,
    /// Jobs running when slurmctld last counted them. [`Statistics::jobs_running`] is what is
    /// published.
    pub jobs_running: u32,
    /// Moment at which slurmctld counted the pending and running jobs: Unix seconds, up to about 30
    /// s ago. `None` until it first does so after its start.
    pub job_states_ts: Option<i64>,

    /// Jobs started by backfill since slurmctld's start.
    pub bf_backfilled_jobs: u32,
    /// Jobs started by backfill since the last reset.
    pub bf_last_backfilled_jobs: u32,
    /// Components of het jobs started by backfill.
    pub bf_backfilled_het_jobs: u32,
    /// Number of backfill cycles.
    pub bf_cycle_counter: u32,
    /// Sum of the lengths of the backfill cycles, µs.
    pub bf_cycle_sum: Option<u64>,
    /// Length of the last backfill cycle, µs.
    pub bf_cycle_last: u32,
    /// Length of the longest backfill cycle, µs.
    pub bf_cycle_max: Option<u32>,
    /// Jobs looked at in the last backfill cycle.
    pub bf_last_depth: Option<u32>,
    /// Jobs that the last backfill cycle tried to start.
    pub bf_last_depth_try: Option<u32>,
    /// Sum of the jobs looked at over the backfill cycles.
    pub bf_depth_sum: Option<u32>,
    /// Sum of the jobs that the backfill cycles tried to start.
    pub bf_depth_try_sum: Option<u32>,
    /// Entries in the queue of the last backfill cycle, one for each partition of a job.
    pub bf_queue_len: u32,
    /// Sum of the jobs pending over the backfill cycles.
    pub bf_queue_len_sum: Option<u32>,
    /// Time slots in the last backfill cycle's table.
    pub bf_table_size: Option<u32>,
    /// Sum of the time slots over the backfill cycles.
    pub bf_table_size_sum: Option<u32>,
    /// Moment at which the last backfill cycle began: Unix seconds; `None` if there was none.
    pub bf_when_last_cycle: Option<i64>,
    /// Whether a backfill cycle is running: 0 or 1.
    pub bf_active: u32,
    /// Number of backfill cycles by the reason why they ended ([`crate::BACKFILL_EXITS`]); `None`
    /// before 23.11.
    pub bf_exit: Option<Vec<u32>>,

    /// Whether slurmctld queues RPCs by type (`SlurmctldParameters=enable_rpc_queue`); `None`
    /// before 24.05.
    pub rpc_queue_enabled: Option<bool>,
    /// Means since slurmctld's last reset, as slurmrestd reports them; `None` if the sums behind
    /// them are known.
    pub means: Option<Means>,
    /// The RPC tables, if they were requested.
    pub rpc: Option<RpcTables>,
}

/// Number of the message type `REQUEST_STATS_INFO`, which `sdiag --reset` sends too.
const STATS_INFO: u16 = 2035;

/// Whether slurmctld was restarted, or another controller took over, between two statistics. Then
/// figures are lost that survive `sdiag --reset` and midnight.
#[must_use]
pub fn restarted(old: &Statistics, new: &Statistics) -> bool {
    new.req_time_start <= 0
        || new.req_time_start < old.req_time_start
        || (old.bf_when_last_cycle.is_some() && new.bf_when_last_cycle.is_none())
        || (old.bf_table_size > Some(0) && new.bf_table_size == Some(0))
        || (old.schedule_cycle_last > 0
            && new.schedule_cycle_last == 0
            && new.schedule_cycle_counter == 0)
}

/// Whether slurmctld is older than its counters, so that a reset began them and not its start.
/// After `sdiag --reset`, `REQUEST_STATS_INFO` is the first row of the RPC tables; a slurmctld that
/// starts receives other RPCs first. The time of the last backfill cycle shows nothing, because
/// slurmctld restores it from its saved state (22.05).
#[must_use]
pub fn by_command(new: &Statistics) -> bool {
    let since = new.req_time_start;
    let first = new.rpc.as_ref().and_then(|tables| tables.types.first());
    new.job_states_ts.is_some_and(|counted| counted < since)
        || (new.schedule_cycle_counter == 0 && new.schedule_cycle_last > 0)
        || (new.bf_cycle_counter == 0 && new.bf_table_size > Some(0))
        || first.is_some_and(|row| row.id == STATS_INFO)
}

/// Returns a time on Slurm's clock, Unix seconds; `None` for a moment that never was: 0, a negative
/// number, or C's `NO_VAL` or `INFINITE` and above.
#[must_use]
pub const fn moment(time: i64) -> Option<i64> {
    if 0 < time && time < 0xffff_fffe { Some(time) } else { None }
}

impl Statistics {
    /// Returns the jobs that were pending when slurmctld last counted them. `None` until it first
    /// counts them after its start, for up to 30 s, because it sends 0 till then.
    pub fn jobs_pending(&self) -> Option<u32> {
        self.job_states_ts.and(Some(self.jobs_pending))
    }

    /// Returns the jobs that were running when slurmctld last counted them; `None` as for
    /// [`Self::jobs_pending`].
    pub fn jobs_running(&self) -> Option<u32> {
        self.job_states_ts.and(Some(self.jobs_running))
    }
}

/// Means of scheduling cycles since slurmctld's last reset, for sums that slurmrestd does not
/// report. They are truncated as sdiag truncates them. A mean is `None` if its sum is known, or if
/// nothing was counted, for which slurmrestd writes 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Means {
    /// Mean length of a main scheduling cycle, µs.
    pub schedule_cycle: Option<u64>,
    /// Mean number of jobs looked at in a main scheduling cycle.
    pub schedule_depth: Option<u64>,
    /// Mean length of a backfill cycle, µs.
    pub bf_cycle: Option<u64>,
    /// Mean number of jobs looked at in a backfill cycle.
    pub bf_depth: Option<u64>,
    /// Mean number of jobs that a backfill cycle tried to start.
    pub bf_depth_try: Option<u64>,
    /// Mean number of jobs pending at a backfill cycle.
    pub bf_queue_len: Option<u64>,
    /// Mean number of time slots in a backfill cycle's table.
    pub bf_table_size: Option<u64>,
}

/// Most message types that slurmctld counts RPCs of.
pub const MOST_RPC_TYPES: usize = 100;
/// Largest number of users for which slurmctld counts RPCs. Rows beyond it are dropped: when its
/// table of users is full, slurmctld sends garbage behind it in releases 24.05 to 25.11.6.
pub const MOST_RPC_USERS: usize = 200;
/// Most rows of the two tables of messages that wait for an agent. slurmctld sends up to 100
/// message types (MAX_RPC_PACK_CNT), and up to 25 messages with their nodes (DUMP_RPC_COUNT).
pub const MOST_PENDING_RPCS: usize = 100;
/// Most reasons for the end of a scheduling cycle that are read from a reply. 26.05 has 6.
pub const MOST_EXIT_REASONS: usize = 100;

/// slurmctld's RPC tables. They are not reset at midnight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RpcTables {
    /// RPCs by message type, in slurmctld's order.
    pub types: Vec<RpcType>,
    /// RPCs by user, in slurmctld's order.
    pub users: Vec<RpcUser>,
    /// Messages to nodes that wait for an agent, by message type; `None` if slurmrestd does not
    /// report them.
    pub pending: Option<Vec<PendingRpc>>,
    /// The first of the messages that wait for an agent, each with its nodes.
    pub dumped: Vec<DumpedRpcs>,
}

/// The RPCs of one message type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RpcType {
    /// Message type ([`crate::rpc_name`]).
    pub id: u16,
    /// Number of RPCs of this type that were served.
    pub count: u32,
    /// Time spent on the RPCs of this type, µs.
    pub time: u64,
    /// Counts of the RPC queue for this message type; `None` before 24.05, and if the queue is not
    /// enabled.
    pub queue: Option<RpcQueue>,
}

/// One message type's place in slurmctld's RPC queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RpcQueue {
    /// Number of RPCs of this type in the queue.
    pub queued: u16,
    /// RPCs refused because the queue was full.
    pub dropped: u64,
    /// RPCs served in the last cycle of the queue.
    pub cycle_last: u16,
    /// Most RPCs served in a cycle of the queue.
    pub cycle_max: u16,
}

/// The RPCs of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RpcUser {
    /// User id.
    pub id: u32,
    /// User name, if names were requested and the reader's host knows one.
    pub name: Option<String>,
    /// Whether the name is still being looked up. If not, a missing name means that there is none.
    #[serde(default)]
    pub looking_up: bool,
    /// Number of RPCs of this user that were served.
    pub count: u32,
    /// Time spent on the RPCs of this user, µs.
    pub time: u64,
}

/// Messages of one type that wait for an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingRpc {
    /// Message type ([`crate::rpc_name`]); slurmctld stores it as a `u32` here.
    pub id: u32,
    /// Number of messages of this type that wait.
    pub count: u32,
}

/// One message that waits for an agent, and the nodes it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpedRpcs {
    /// Message type ([`crate::rpc_name`]).
    pub id: u32,
    /// Hostlist expression of the nodes that the message is for; empty if slurmctld gave none.
    pub hostlist: String,
}
