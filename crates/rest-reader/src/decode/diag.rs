//! `diag`: what sdiag shows.
//!
//! One table has every member that is read, its name in the API, which is not always libslurm's, and its destination.
//! slurmrestd's quotients are used only if their sum is absent. Two of them are used only in those versions where they
//! are what their name says: the mean table size up to v0.0.38, because after that it is the mean queue length, and the
//! mean queue length from v0.0.38 on, because before that it is the mean table size (in all of v0.0.36, and in v0.0.37
//! until 21.08.7).

use serde::de::{Error, MapAccess};
use slurm_snapshot::{DumpedRpcs, Means, PendingRpc, RpcQueue, RpcTables, RpcType, RpcUser, Statistics};

use super::lenient::{Flag, Number, Text, Words};
use super::object::{Fill, Members, each};
use super::wrong;

/// The most rows of slurmctld's tables, as in its own libslurm.
const MAX_TYPES: usize = 100;
const MAX_USERS: usize = 200;
const MAX_PENDING: usize = 100;

/// The last version in which `bf_table_size_mean` is a mean of table sizes.
const LAST_TABLE_SIZE_MEAN: u8 = 38;

/// The first version in which `bf_queue_len_mean` is a mean of queue lengths.
const FIRST_QUEUE_LEN_MEAN: u8 = 38;

/// Where a member's value is stored.
#[derive(Clone, Copy)]
enum Goes {
    /// Present in every version; an answer without it is not an answer to `diag`.
    To(fn(&mut Statistics) -> &mut u32),
    Some32(fn(&mut Statistics) -> &mut Option<u32>),
    Some64(fn(&mut Statistics) -> &mut Option<u64>),
    Moment(fn(&mut Statistics) -> &mut Option<i64>),
    Mean(fn(&mut Means) -> &mut Option<u64>),
    ReqTime,
    ReqTimeStart,
    Active,
    ScheduleExit,
    BfExit,
    Types,
    Users,
    Pending,
    Dumped,
}

#[rustfmt::skip]
const MEMBERS: [(&str, Goes); 53] = [
    ("parts_packed", Goes::Some32(|s| &mut s.parts_packed)),
    ("req_time", Goes::ReqTime),
    ("req_time_start", Goes::ReqTimeStart),
    ("server_thread_count", Goes::To(|s| &mut s.server_thread_count)),
    ("agent_queue_size", Goes::To(|s| &mut s.agent_queue_size)),
    ("agent_count", Goes::To(|s| &mut s.agent_count)),
    ("agent_thread_count", Goes::To(|s| &mut s.agent_thread_count)),
    ("dbd_agent_queue_size", Goes::To(|s| &mut s.dbd_agent_queue_size)),
    ("gettimeofday_latency", Goes::To(|s| &mut s.gettimeofday_latency)),
    ("schedule_cycle_max", Goes::To(|s| &mut s.schedule_cycle_max)),
    ("schedule_cycle_last", Goes::To(|s| &mut s.schedule_cycle_last)),
    ("schedule_cycle_sum", Goes::Some64(|s| &mut s.schedule_cycle_sum)),
    ("schedule_cycle_total", Goes::To(|s| &mut s.schedule_cycle_counter)),
    ("schedule_cycle_mean", Goes::Mean(|m| &mut m.schedule_cycle)),
    ("schedule_cycle_mean_depth", Goes::Mean(|m| &mut m.schedule_depth)),
    ("schedule_cycle_depth", Goes::Some32(|s| &mut s.schedule_cycle_depth)),
    ("schedule_exit", Goes::ScheduleExit),
    ("schedule_queue_length", Goes::To(|s| &mut s.schedule_queue_len)),
    ("jobs_submitted", Goes::To(|s| &mut s.jobs_submitted)),
    ("jobs_started", Goes::To(|s| &mut s.jobs_started)),
    ("jobs_completed", Goes::To(|s| &mut s.jobs_completed)),
    ("jobs_canceled", Goes::To(|s| &mut s.jobs_canceled)),
    ("jobs_failed", Goes::To(|s| &mut s.jobs_failed)),
    ("jobs_pending", Goes::To(|s| &mut s.jobs_pending)),
    ("jobs_running", Goes::To(|s| &mut s.jobs_running)),
    ("job_states_ts", Goes::Moment(|s| &mut s.job_states_ts)),
    ("bf_backfilled_jobs", Goes::To(|s| &mut s.bf_backfilled_jobs)),
    ("bf_last_backfilled_jobs", Goes::To(|s| &mut s.bf_last_backfilled_jobs)),
    ("bf_backfilled_het_jobs", Goes::To(|s| &mut s.bf_backfilled_het_jobs)),
    ("bf_cycle_counter", Goes::To(|s| &mut s.bf_cycle_counter)),
    ("bf_cycle_mean", Goes::Mean(|m| &mut m.bf_cycle)),
    ("bf_depth_mean", Goes::Mean(|m| &mut m.bf_depth)),
    ("bf_depth_mean_try", Goes::Mean(|m| &mut m.bf_depth_try)),
    ("bf_cycle_sum", Goes::Some64(|s| &mut s.bf_cycle_sum)),
    ("bf_cycle_last", Goes::To(|s| &mut s.bf_cycle_last)),
    ("bf_cycle_max", Goes::Some32(|s| &mut s.bf_cycle_max)),
    ("bf_exit", Goes::BfExit),
    ("bf_last_depth", Goes::Some32(|s| &mut s.bf_last_depth)),
    ("bf_last_depth_try", Goes::Some32(|s| &mut s.bf_last_depth_try)),
    ("bf_depth_sum", Goes::Some32(|s| &mut s.bf_depth_sum)),
    ("bf_depth_try_sum", Goes::Some32(|s| &mut s.bf_depth_try_sum)),
    ("bf_queue_len", Goes::To(|s| &mut s.bf_queue_len)),
    ("bf_queue_len_mean", Goes::Mean(|m| &mut m.bf_queue_len)),
    ("bf_queue_len_sum", Goes::Some32(|s| &mut s.bf_queue_len_sum)),
    ("bf_table_size", Goes::Some32(|s| &mut s.bf_table_size)),
    ("bf_table_size_sum", Goes::Some32(|s| &mut s.bf_table_size_sum)),
    ("bf_table_size_mean", Goes::Mean(|m| &mut m.bf_table_size)),
    ("bf_when_last_cycle", Goes::Moment(|s| &mut s.bf_when_last_cycle)),
    ("bf_active", Goes::Active),
    ("rpcs_by_message_type", Goes::Types),
    ("rpcs_by_user", Goes::Users),
    ("pending_rpcs", Goes::Pending),
    ("pending_rpcs_by_hostlist", Goes::Dumped),
];

/// Why a scheduling cycle ended, in slurmctld's order.
const SCHEDULE_EXITS: [&str; 6] =
    ["end_job_queue", "default_queue_depth", "max_job_start", "licenses", "max_rpc_cnt", "max_sched_time"];
const BF_EXITS: [&str; 6] = [
    "end_job_queue",
    "bf_max_job_start",
    "bf_max_job_test",
    "state_changed",
    "bf_node_space_size",
    "bf_max_time",
];

/// The answer to `diag`.
#[derive(Debug, Default)]
pub(crate) struct Diag {
    asked: Asked,
    pub(crate) statistics: Option<Statistics>,
}

/// How `diag` was asked.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// N of v0.0.N.
    version: u8,
    rpc: bool,
    names: bool,
}

impl Diag {
    pub(crate) fn new(version: u8, rpc: bool, names: bool) -> Self {
        Self { asked: Asked { version, rpc, names }, statistics: None }
    }
}

impl Members for Diag {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name != "statistics" {
            return Ok(false);
        }
        if self.statistics.is_some() {
            return Err(wrong("the response contains the statistics twice"));
        }
        let mut reading = ReadingDiag { asked: self.asked, ..ReadingDiag::default() };
        map.next_value_seed(Fill(&mut reading))?;
        // In 22.05 a refused answer has statistics too, with empty arrays.
        self.statistics = (reading.seen & REQ_TIME != 0).then_some(reading.statistics);
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.statistics.is_some() { Ok(()) } else { Err(wrong("the response contains no statistics")) }
    }
}

/// The bit of `req_time` among the members seen.
const REQ_TIME: u64 = 1 << 1;

#[derive(Default)]
struct ReadingDiag {
    asked: Asked,
    statistics: Statistics,
    means: Means,
    tables: RpcTables,
    has_tables: bool,
    /// The members seen so far, by their index in [`MEMBERS`].
    seen: u64,
    /// The most probable index of the next member: all versions have nearly the same order.
    next: usize,
}

impl ReadingDiag {
    fn find(&mut self, name: &str) -> Option<(usize, Goes)> {
        let found = |&(_, (known, _)): &(usize, &(&str, Goes))| *known == name;
        let mut after = MEMBERS.iter().enumerate().skip(self.next);
        let (place, &(_, goes)) =
            after.find(|item| found(item)).or_else(|| MEMBERS.iter().enumerate().find(found))?;
        self.next = place.saturating_add(1);
        Some((place, goes))
    }
}

impl Members for ReadingDiag {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        let Some((place, goes)) = self.find(name) else { return Ok(false) };
        let bit = 1_u64.checked_shl(u32::try_from(place).unwrap_or(u32::MAX)).unwrap_or(0);
        if self.seen & bit != 0 {
            return Err(wrong(format_args!("{name} occurs twice")));
        }
        let s = &mut self.statistics;
        match goes {
            Goes::To(of) => match map.next_value::<Number>()?.within(name)? {
                Some(number) => *of(s) = number,
                None => return Ok(true),
            },
            Goes::Some32(of) => *of(s) = map.next_value::<Number>()?.within(name)?,
            Goes::Some64(of) => *of(s) = map.next_value::<Number>()?.within(name)?,
            Goes::Moment(of) => *of(s) = map.next_value::<Number>()?.moment(name)?,
            Goes::Mean(of) => *of(&mut self.means) = map.next_value::<Number>()?.within(name)?,
            Goes::ReqTime => match map.next_value::<Number>()?.moment(name)? {
                Some(moment) => s.req_time = moment,
                None => return Ok(true),
            },
            // slurmctld counts from 0 until it first looks at its clock.
            Goes::ReqTimeStart => s.req_time_start = map.next_value::<Number>()?.moment(name)?.unwrap_or(0),
            Goes::Active => {
                let active = map.next_value::<Flag>()?.0;
                s.bf_active = active.ok_or_else(|| wrong("bf_active is neither true nor false"))?.into();
            }
            Goes::ScheduleExit => {
                map.next_value_seed(Fill(&mut Exits { names: &SCHEDULE_EXITS, to: &mut s.schedule_exit }))?;
            }
            Goes::BfExit => {
                map.next_value_seed(Fill(&mut Exits { names: &BF_EXITS, to: &mut s.bf_exit }))?;
            }
            Goes::Types | Goes::Users | Goes::Pending | Goes::Dumped if !self.asked.rpc => return Ok(false),
            Goes::Types => {
                self.has_tables = true;
                let types = &mut self.tables.types;
                map.next_value_seed(each(|row: RpcRow| row.add_type(types)))?;
            }
            Goes::Users => {
                self.has_tables = true;
                let (users, names) = (&mut self.tables.users, self.asked.names);
                map.next_value_seed(each(|row: RpcRow| row.add_user(users, names)))?;
            }
            Goes::Pending => {
                let pending = self.tables.pending.get_or_insert_default();
                map.next_value_seed(each(|row: RpcRow| row.add_pending(pending)))?;
            }
            Goes::Dumped => {
                let dumped = &mut self.tables.dumped;
                map.next_value_seed(each(|row: Dump| row.add(dumped)))?;
            }
        }
        self.seen |= bit;
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.seen & REQ_TIME == 0 {
            return Ok(());
        }
        for (place, (name, goes)) in (0_u32..).zip(&MEMBERS) {
            let is_needed = matches!(goes, Goes::To(_) | Goes::ReqTimeStart | Goes::Active);
            if is_needed && self.seen & 1_u64.checked_shl(place).unwrap_or(0) == 0 {
                return Err(wrong(format_args!("{name} is missing")));
            }
        }
        let (s, told) = (&mut self.statistics, &self.means);
        let sizes = told.bf_table_size.filter(|_| self.asked.version <= LAST_TABLE_SIZE_MEAN);
        let lengths = told.bf_queue_len.filter(|_| self.asked.version >= FIRST_QUEUE_LEN_MEAN);
        let means = Means {
            schedule_cycle: told.schedule_cycle.filter(|_| s.schedule_cycle_sum.is_none()),
            schedule_depth: told.schedule_depth.filter(|_| s.schedule_cycle_depth.is_none()),
            bf_cycle: told.bf_cycle.filter(|_| s.bf_cycle_sum.is_none()),
            bf_depth: told.bf_depth.filter(|_| s.bf_depth_sum.is_none()),
            bf_depth_try: told.bf_depth_try.filter(|_| s.bf_depth_try_sum.is_none()),
            bf_queue_len: lengths.filter(|_| s.bf_queue_len_sum.is_none()),
            bf_table_size: sizes.filter(|_| s.bf_table_size_sum.is_none()),
        };
        s.means = (means != Means::default()).then_some(means);
        if self.has_tables {
            let mut tables = std::mem::take(&mut self.tables);
            // slurmrestd never reports whether RPCs are queued. They are if a queue has done something.
            let busy = |queue: &RpcQueue| *queue != RpcQueue::default();
            let is_queued = tables.types.iter().filter_map(|row| row.queue.as_ref()).any(busy);
            if is_queued {
                s.rpc_queue_enabled = Some(true);
            } else {
                tables.types.iter_mut().for_each(|row| row.queue = None);
            }
            s.rpc = Some(tables);
        }
        Ok(())
    }
}

/// An object of counts by reason.
struct Exits<'a> {
    names: &'static [&'static str; 6],
    to: &'a mut Option<Vec<u32>>,
}

impl Members for Exits<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        let Some(place) = self.names.iter().position(|known| *known == name) else { return Ok(false) };
        let count = map.next_value::<Number>()?.within(name)?;
        let counts = self.to.get_or_insert_with(|| vec![0; self.names.len()]);
        if let (Some(target), Some(count)) = (counts.get_mut(place), count) {
            *target = count;
        }
        Ok(true)
    }
}

/// A row of any of the tables.
#[derive(Default)]
struct RpcRow {
    id: Option<u32>,
    count: Option<u32>,
    time: Option<u64>,
    user: Option<String>,
    queued: Option<u16>,
    dropped: Option<u64>,
    cycle_last: Option<u16>,
    cycle_max: Option<u16>,
}

impl Members for RpcRow {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "type_id" | "user_id" => self.id = map.next_value::<Number>()?.within(name)?,
            "count" => self.count = map.next_value::<Number>()?.within(name)?,
            "total_time" => self.time = map.next_value::<Number>()?.within(name)?,
            "user" => self.user = map.next_value::<Text>()?.0,
            "queued" => self.queued = map.next_value::<Number>()?.within(name)?,
            "dropped" => self.dropped = map.next_value::<Number>()?.within(name)?,
            "cycle_last" => self.cycle_last = map.next_value::<Number>()?.within(name)?,
            "cycle_max" => self.cycle_max = map.next_value::<Number>()?.within(name)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl RpcRow {
    fn add_type(self, rows: &mut Vec<RpcType>) -> Result<(), String> {
        if rows.len() >= MAX_TYPES {
            return Ok(());
        }
        let id = self.id.and_then(|id| u16::try_from(id).ok());
        let (Some(id), Some(count), Some(time)) = (id, self.count, self.time) else {
            return Err("a row of rpcs_by_message_type is incomplete".to_owned());
        };
        let queue = match (self.queued, self.dropped, self.cycle_last, self.cycle_max) {
            (Some(queued), Some(dropped), Some(cycle_last), Some(cycle_max)) => {
                Some(RpcQueue { queued, dropped, cycle_last, cycle_max })
            }
            _ => None,
        };
        rows.push(RpcType { id, count, time, queue });
        Ok(())
    }

    fn add_user(self, rows: &mut Vec<RpcUser>, names: bool) -> Result<(), String> {
        if rows.len() >= MAX_USERS {
            return Ok(());
        }
        let (Some(id), Some(count), Some(time)) = (self.id, self.count, self.time) else {
            return Err("a row of rpcs_by_user is incomplete".to_owned());
        };
        // A user without a name is identified by the number.
        let name = self.user.filter(|name| names && !name.is_empty() && *name != id.to_string());
        rows.push(RpcUser { id, name, looking_up: false, count, time });
        Ok(())
    }

    fn add_pending(self, rows: &mut Vec<PendingRpc>) -> Result<(), String> {
        if rows.len() >= MAX_PENDING {
            return Ok(());
        }
        let (Some(id), Some(count)) = (self.id, self.count) else {
            return Err("a row of pending_rpcs is incomplete".to_owned());
        };
        rows.push(PendingRpc { id, count });
        Ok(())
    }
}

/// A message that waits, with its nodes, which slurmrestd calls `count`.
#[derive(Default)]
struct Dump {
    id: Option<u32>,
    nodes: Words,
}

impl Members for Dump {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "type_id" => self.id = map.next_value::<Number>()?.within(name)?,
            "count" => self.nodes = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Dump {
    fn add(self, rows: &mut Vec<DumpedRpcs>) -> Result<(), String> {
        /// Long enough to see which nodes.
        const LONGEST: usize = 1000;
        if rows.len() >= MAX_PENDING {
            return Ok(());
        }
        let id = self.id.ok_or("a row of pending_rpcs_by_hostlist is incomplete")?;
        let mut hostlist = String::new();
        for node in &self.nodes.0 {
            if hostlist.len().saturating_add(node.len()) > LONGEST {
                hostlist.push_str(",...");
                break;
            }
            if !hostlist.is_empty() {
                hostlist.push(',');
            }
            hostlist.push_str(node);
        }
        rows.push(DumpedRpcs { id, hostlist });
        Ok(())
    }
}
