//! `diag`: what sdiag shows.
//!
//! slurm-snapshot's table has the numbers, and their names in the API. slurmrestd's quotients are
//! used only if their sum is absent. The mean table size is used only in v0.0.38, because after
//! that it is the mean queue length.

use slurm_snapshot::{
    DumpedRpcs, MOST_PENDING_RPCS, MOST_RPC_TYPES, MOST_RPC_USERS, Means, PendingRpc, RpcQueue,
    RpcTables, RpcType, RpcUser, Statistics, numbers_of_statistics,
};

use super::Payload;
use super::item::Item;

/// The last version in which `bf_table_size_mean` is a mean of table sizes.
const LAST_TABLE_SIZE_MEAN: u32 = 38;

/// Generates how each member is read, and the list of the members' names in the API. A new member
/// of [`Statistics`] does not compile before it is read here, or absent here by its name.
macro_rules! members {
    ((|$item:ident| $($quotient:ident = $mean:ident)+)
        $($read:ident { $($member:ident $(= $api:ident)?)+ })+) => {
        /// The names of the members of the object and of its rows.
        const MEMBERS: &[&str] = &[
            $($(members!(@$member $($api)?),)+)+ $(stringify!($quotient),)+
            "req_time", "req_time_start", "bf_active", "schedule_exit", "bf_exit", "type_id",
                "user_id", "count",
            "total_time", "user", "queued", "dropped", "cycle_last", "cycle_max",
        ];

        fn read_members($item: Item<'_>, req_time: i64) -> Result<(Statistics, Means), String> {
            let active = $item.flag("bf_active").ok_or("bf_active is neither true nor false")?;
            let means = Means { $($mean: $item.number(stringify!($quotient))?,)+ };
            let statistics = Statistics {
                req_time,
                // slurmctld counts from 0 until it first looks at its clock.
                req_time_start: $item.moment("req_time_start")?.unwrap_or(0),
                bf_active: active.into(),
                schedule_exit: exits($item.object("schedule_exit")?, SCHEDULE_EXITS)?,
                bf_exit: exits($item.object("bf_exit")?, BF_EXITS)?,
                $($($member: $item.$read(members!(@$member $($api)?))?,)+)+
                means: None,
                rpc_queue_enabled: None,
                rpc: None,
            };
            Ok((statistics, means))
        }
    };
    (@$member:ident) => { stringify!($member) };
    (@$member:ident $api:ident) => { stringify!($api) };
}

numbers_of_statistics! { members! (|item|
    schedule_cycle_mean = schedule_cycle
    schedule_cycle_mean_depth = schedule_depth
    bf_cycle_mean = bf_cycle
    bf_depth_mean = bf_depth
    bf_depth_mean_try = bf_depth_try
    bf_queue_len_mean = bf_queue_len
    bf_table_size_mean = bf_table_size
) }

/// The reasons why a scheduling cycle ended, in slurmctld's order.
const SCHEDULE_EXITS: &[&str] =
    words![end_job_queue default_queue_depth max_job_start licenses max_rpc_cnt max_sched_time];
const BF_EXITS: &[&str] = words![
    end_job_queue bf_max_job_start bf_max_job_test state_changed bf_node_space_size bf_max_time
];

const TYPES: &str = "rpcs_by_message_type";
const USERS: &str = "rpcs_by_user";
const PENDING: &str = "pending_rpcs";
const DUMPED: &str = "pending_rpcs_by_hostlist";

/// The answer to `diag`.
#[derive(Debug, Default)]
pub(crate) struct Diag {
    /// N of v0.0.N, the version of the API that answers.
    version: u32,
    /// Whether the RPC tables are requested.
    rpc: bool,
    /// Whether the names of the users in these tables are requested.
    names: bool,
    tables: RpcTables,
    pub(crate) statistics: Option<Statistics>,
}

impl Diag {
    pub(crate) fn new(version: u32, rpc: bool, names: bool) -> Self {
        Self { version, rpc, names, ..Self::default() }
    }
}

impl Payload for Diag {
    const NAME: &'static str = "statistics";
    const READ: &'static [&'static str] = MEMBERS;
    const LISTS: &'static [&'static str] = &[TYPES, USERS, PENDING, DUMPED];

    fn item(&mut self, list: &str, item: Item<'_>) -> Result<(), String> {
        if list != Self::NAME && !self.rpc {
            return Ok(());
        }
        let tables = &mut self.tables;
        match list {
            TYPES => push(&mut tables.types, MOST_RPC_TYPES, rpc_type(item)?),
            USERS => push(&mut tables.users, MOST_RPC_USERS, rpc_user(item, self.names)?),
            PENDING => {
                push(
                    tables.pending.get_or_insert_default(),
                    MOST_PENDING_RPCS,
                    PendingRpc { id: item.needed("type_id")?, count: item.needed("count")? },
                );
            }
            DUMPED => push(&mut tables.dumped, MOST_PENDING_RPCS, dumped(item)?),
            _ => self.statistics = self.statistics_of(item)?,
        }
        Ok(())
    }

    fn end_answer(&mut self, _: i64) -> Result<(), String> {
        if self.statistics.is_some() {
            Ok(())
        } else {
            Err("the response contains no statistics".to_owned())
        }
    }
}

impl Diag {
    fn statistics_of(&mut self, item: Item<'_>) -> Result<Option<Statistics>, String> {
        // In 22.05 a refused answer has statistics too, with empty arrays.
        let Some(req_time) = item.moment("req_time")? else { return Ok(None) };
        if !item.has("req_time_start") {
            return Err("req_time_start is missing".to_owned());
        }
        let (mut s, means) = read_members(item, req_time)?;
        let means = self.meaningful(means, &s);
        s.means = (means != Means::default()).then_some(means);
        if self.rpc && (item.has(TYPES) || item.has(USERS)) {
            let mut tables = std::mem::take(&mut self.tables);
            if item.has(PENDING) {
                // No message waits: 0, and not an older version that does not tell.
                tables.pending.get_or_insert_default();
            }
            // slurmrestd never reports whether RPCs are queued. They are if a queue has done
            // something.
            let busy = |queue: &RpcQueue| *queue != RpcQueue::default();
            if tables.types.iter().filter_map(|row| row.queue.as_ref()).any(busy) {
                s.rpc_queue_enabled = Some(true);
            } else {
                tables.types.iter_mut().for_each(|row| row.queue = None);
            }
            s.rpc = Some(tables);
        }
        Ok(Some(s))
    }

    /// Keeps the means whose sums are absent, and which mean what their names say in this version.
    fn meaningful(&self, means: Means, s: &Statistics) -> Means {
        let sizes = means.bf_table_size.filter(|_| self.version <= LAST_TABLE_SIZE_MEAN);
        Means {
            schedule_cycle: means.schedule_cycle.filter(|_| s.schedule_cycle_sum.is_none()),
            schedule_depth: means.schedule_depth.filter(|_| s.schedule_cycle_depth.is_none()),
            bf_cycle: means.bf_cycle.filter(|_| s.bf_cycle_sum.is_none()),
            bf_depth: means.bf_depth.filter(|_| s.bf_depth_sum.is_none()),
            bf_depth_try: means.bf_depth_try.filter(|_| s.bf_depth_try_sum.is_none()),
            bf_queue_len: means.bf_queue_len.filter(|_| s.bf_queue_len_sum.is_none()),
            bf_table_size: sizes.filter(|_| s.bf_table_size_sum.is_none()),
        }
    }
}

fn push<T>(rows: &mut Vec<T>, most: usize, row: T) {
    if rows.len() < most {
        rows.push(row);
    }
}

/// Reads an object of counts by reason; `None` if it lacks a reason.
fn exits(item: Item<'_>, reasons: &[&str]) -> Result<Option<Vec<u32>>, String> {
    let counts: Vec<Option<u32>> =
        reasons.iter().map(|reason| item.number(reason)).collect::<Result<_, _>>()?;
    Ok(counts.into_iter().collect())
}

fn rpc_type(row: Item<'_>) -> Result<RpcType, String> {
    let queued = row.number("queued")?;
    let dropped = row.number("dropped")?;
    let queue = match (queued, dropped, row.number("cycle_last")?, row.number("cycle_max")?) {
        (Some(queued), Some(dropped), Some(cycle_last), Some(cycle_max)) => {
            Some(RpcQueue { queued, dropped, cycle_last, cycle_max })
        }
        _ => None,
    };
    Ok(RpcType {
        id: row.needed("type_id")?,
        count: row.needed("count")?,
        time: row.needed("total_time")?,
        queue,
    })
}

fn rpc_user(row: Item<'_>, names: bool) -> Result<RpcUser, String> {
    let id: u32 = row.needed("user_id")?;
    // A user without a name is identified by the number.
    let name =
        Some(row.name("user")?).filter(|name| names && !name.is_empty() && *name != id.to_string());
    Ok(RpcUser {
        id,
        name,
        looking_up: false,
        count: row.needed("count")?,
        time: row.needed("total_time")?,
    })
}

/// Reads messages that wait, with a list of their nodes, which slurmrestd calls `count`. The first
/// 1,000 characters of the list are enough to see which nodes they are.
fn dumped(row: Item<'_>) -> Result<DumpedRpcs, String> {
    let nodes = row.words("count")?.join(",");
    let mut hostlist: String = nodes.chars().take(1000).collect();
    if hostlist.len() < nodes.len() {
        hostlist.truncate(hostlist.rfind(',').map_or(0, |comma| comma.saturating_add(1)));
        hostlist.push_str("...");
    }
    Ok(DumpedRpcs { id: row.needed("type_id")?, hostlist })
}
