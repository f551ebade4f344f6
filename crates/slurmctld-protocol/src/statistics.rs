//! The statistics of every release, unpacked: one function with the three changes of their layout.
//!
//! Slurm's `_pack_stats_response_msg` is the authority. Rows beyond a table's limit are read and
//! dropped. At the end no byte may be missing or left.

#[cfg(test)]
mod tests;

use slurm_snapshot::{
    DumpedRpcs, MOST_EXIT_REASONS, MOST_PENDING_RPCS, MOST_RPC_TYPES, MOST_RPC_USERS, PendingRpc,
    Release, RpcQueue, RpcTables, RpcType, RpcUser, Statistics, moment,
};

use crate::pack::{Short, Unpack};

/// Unpacks the statistics in a reply to a request with this protocol number. They have the RPC
/// tables only with `rpc`.
pub(crate) fn unpack(body: &[u8], number: u16, rpc: bool) -> Result<Statistics, Short> {
    let mut reply = Unpack(body);
    let from = &mut reply;
    let release = Release::of_library(number.into()).ok_or(Short)?;
    // 64 bits for a sum, and no parts_packed.
    let is_wide = release >= Release::new(25, 11);
    // parts_packed: the answer to a reset has no scheduler's part, and none was requested.
    if !is_wide && from.u32()? == 0 {
        return Err(Short);
    }
    // In the order of the bytes: members of a literal are evaluated as they are written.
    let statistics = Statistics {
        req_time: from.i64()?,
        req_time_start: from.i64()?,
        server_thread_count: from.u32()?,
        agent_queue_size: from.u32()?,
        agent_count: from.u32()?,
        agent_thread_count: from.u32()?,
        dbd_agent_queue_size: from.u32()?,
        gettimeofday_latency: from.u32()?,
        jobs_submitted: from.u32()?,
        jobs_started: from.u32()?,
        jobs_completed: from.u32()?,
        jobs_canceled: from.u32()?,
        jobs_failed: from.u32()?,
        jobs_pending: from.u32()?,
        jobs_running: from.u32()?,
        job_states_ts: moment(from.i64()?),
        schedule_cycle_max: from.u32()?,
        schedule_cycle_last: from.u32()?,
        schedule_cycle_sum: Some(if is_wide { from.u64()? } else { from.u32()?.into() }),
        schedule_cycle_counter: from.u32()?,
        schedule_cycle_depth: Some(from.u32()?),
        schedule_exit: exits(from, release)?,
        schedule_queue_len: from.u32()?,
        bf_backfilled_jobs: from.u32()?,
        bf_last_backfilled_jobs: from.u32()?,
        bf_cycle_counter: from.u32()?,
        bf_cycle_sum: Some(from.u64()?),
        bf_cycle_last: from.u32()?,
        bf_last_depth: Some(from.u32()?),
        bf_last_depth_try: Some(from.u32()?),
        bf_queue_len: from.u32()?,
        bf_cycle_max: Some(from.u32()?),
        bf_when_last_cycle: moment(from.i64()?),
        bf_depth_sum: Some(from.u32()?),
        bf_depth_try_sum: Some(from.u32()?),
        bf_queue_len_sum: Some(from.u32()?),
        bf_table_size: Some(from.u32()?),
        bf_table_size_sum: Some(from.u32()?),
        bf_active: from.u32()?,
        bf_backfilled_het_jobs: from.u32()?,
        bf_exit: exits(from, release)?,
        means: None,
        rpc_queue_enabled: None,
        rpc: None,
    };
    let (tables, rpc_queue_enabled) = tables(from, release)?;
    if !reply.is_at_end() {
        return Err(Short);
    }
    Ok(Statistics { rpc: rpc.then_some(tables), rpc_queue_enabled, ..statistics })
}

fn exits(from: &mut Unpack<'_>, release: Release) -> Result<Option<Vec<u32>>, Short> {
    (release >= Release::new(23, 11)).then(|| from.list(MOST_EXIT_REASONS, Unpack::u32)).transpose()
}

fn tables(from: &mut Unpack<'_>, release: Release) -> Result<(RpcTables, Option<bool>), Short> {
    let size = limited(from.u32()?, MOST_RPC_TYPES);
    let ids = from.list(size, Unpack::u16)?;
    let counts = from.list(size, Unpack::u32)?;
    let times = from.list(size, Unpack::u64)?;
    let enabled =
        (release >= Release::new(24, 5)).then(|| from.u8()).transpose()?.map(|byte| byte != 0);
    let mut queues =
        if enabled == Some(true) { queues(from, size)? } else { Vec::new() }.into_iter();
    let rows = ids.into_iter().zip(counts).zip(times);
    let types =
        rows.map(|((id, count), time)| RpcType { id, count, time, queue: queues.next() }).collect();

    let size = limited(from.u32()?, MOST_RPC_USERS);
    let ids = from.list(size, Unpack::u32)?;
    let counts = from.list(size, Unpack::u32)?;
    let times = from.list(size, Unpack::u64)?;
    let rows = ids.into_iter().zip(counts).zip(times);
    let users =
        rows.map(|((id, count), time)| RpcUser { id, count, time, ..RpcUser::default() }).collect();

    let pending = pairs(from, Unpack::u32, |(id, count)| PendingRpc { id, count })?;
    let dumped = pairs(from, Unpack::text, |(id, hostlist)| DumpedRpcs { id, hostlist })?;
    Ok((RpcTables { types, users, pending: Some(pending), dumped }, enabled))
}

/// The rows of two lists that are as long as each other.
fn pairs<'a, T, R>(
    from: &mut Unpack<'a>,
    each: fn(&mut Unpack<'a>) -> Result<T, Short>,
    row: fn((u32, T)) -> R,
) -> Result<Vec<R>, Short> {
    let (ids, values) =
        (from.list(MOST_PENDING_RPCS, Unpack::u32)?, from.list(MOST_PENDING_RPCS, each)?);
    if ids.len() != values.len() {
        return Err(Short);
    }
    Ok(ids.into_iter().zip(values).map(row).collect())
}

fn queues(from: &mut Unpack<'_>, size: usize) -> Result<Vec<RpcQueue>, Short> {
    let queued = from.list(size, Unpack::u16)?;
    let dropped = from.list(size, Unpack::u64)?;
    let last = from.list(size, Unpack::u16)?;
    let max = from.list(size, Unpack::u16)?;
    let rows = queued.into_iter().zip(dropped).zip(last).zip(max);
    let row = |(((queued, dropped), cycle_last), cycle_max)| RpcQueue {
        queued,
        dropped,
        cycle_last,
        cycle_max,
    };
    Ok(rows.map(row).collect())
}

/// Returns the number of rows of a table: as many as slurmctld reports, but no more than `most`,
/// its own limit.
fn limited(size: u32, most: usize) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX).min(most)
}
