//! The RPC tables of `stats_info_response_msg_t`.
//!
//! This file depends on the release: the queue's columns came with 24.05. The tables have the same limits as in
//! slurmctld, because 24.05 to 25.11.6 send garbage after a full table of users.

use slurm_snapshot::{DumpedRpcs, PendingRpc, RpcQueue, RpcTables, RpcType, RpcUser};
use slurm_sys::stats_info_response_msg_t;

use crate::raw::{slice, text};

/// The most message types that slurmctld counts.
const MAX_TYPES: usize = 100;

/// The most users that slurmctld counts; the first is root.
const MAX_USERS: usize = 200;

/// The most message types, and messages, that slurmctld packs of those waiting for an agent: 100 (MAX_RPC_PACK_CNT) and
/// 25 (DUMP_RPC_COUNT) in 22.05.
const MAX_PENDING: usize = 100;

/// Copies the tables. A table with a NULL array is empty.
///
/// # Safety
/// Each array of `reply` is NULL or as long as its count says, and its strings are NULL or end with a NUL.
pub(crate) unsafe fn from_reply(reply: &stats_info_response_msg_t) -> RpcTables {
    RpcTables {
        // SAFETY: the caller's promise.
        types: unsafe { types(reply) },
        // SAFETY: the caller's promise.
        users: unsafe { users(reply) },
        // SAFETY: the caller's promise.
        pending: Some(unsafe { pending(reply) }),
        // SAFETY: the caller's promise.
        dumped: unsafe { dumped(reply) },
    }
}

/// # Safety
/// The rpc_type_* are NULL or rpc_type_size long.
unsafe fn types(reply: &stats_info_response_msg_t) -> Vec<RpcType> {
    let size = reply.rpc_type_size;
    // SAFETY: the caller promises that rpc_type_id is NULL or rpc_type_size long.
    let ids = unsafe { slice(reply.rpc_type_id, size, MAX_TYPES) };
    // SAFETY: the caller promises that rpc_type_cnt is NULL or rpc_type_size long.
    let counts = unsafe { slice(reply.rpc_type_cnt, size, MAX_TYPES) };
    // SAFETY: the caller promises that rpc_type_time is NULL or rpc_type_size long.
    let times = unsafe { slice(reply.rpc_type_time, size, MAX_TYPES) };
    // SAFETY: the caller's promise.
    let mut queues = unsafe { queues(reply) };
    let rows = ids.iter().zip(counts).zip(times);
    rows.map(|((&id, &count), &time)| RpcType { id, count, time, queue: queues.next() }).collect()
}

#[cfg(not(slurm_ge_2405))]
/// # Safety
/// Always safe: this release has no such columns.
unsafe fn queues(_: &stats_info_response_msg_t) -> impl Iterator<Item = RpcQueue> {
    std::iter::empty()
}

/// The columns of the RPC queue, which are NULL unless it is enabled.
///
/// # Safety
/// The rpc_type_* are NULL or rpc_type_size long.
#[cfg(slurm_ge_2405)]
unsafe fn queues(reply: &stats_info_response_msg_t) -> impl Iterator<Item = RpcQueue> {
    let size = reply.rpc_type_size;
    // SAFETY: the caller promises that rpc_type_queued is NULL or rpc_type_size long.
    let queued = unsafe { slice(reply.rpc_type_queued, size, MAX_TYPES) };
    // SAFETY: the caller promises that rpc_type_dropped is NULL or rpc_type_size long.
    let dropped = unsafe { slice(reply.rpc_type_dropped, size, MAX_TYPES) };
    // SAFETY: the caller promises that rpc_type_cycle_last is NULL or rpc_type_size long.
    let last = unsafe { slice(reply.rpc_type_cycle_last, size, MAX_TYPES) };
    // SAFETY: the caller promises that rpc_type_cycle_max is NULL or rpc_type_size long.
    let max = unsafe { slice(reply.rpc_type_cycle_max, size, MAX_TYPES) };
    let rows = queued.iter().zip(dropped).zip(last).zip(max);
    rows.map(|(((&queued, &dropped), &cycle_last), &cycle_max)| RpcQueue {
        queued,
        dropped,
        cycle_last,
        cycle_max,
    })
}

/// # Safety
/// The rpc_user_* are NULL or rpc_user_size long.
unsafe fn users(reply: &stats_info_response_msg_t) -> Vec<RpcUser> {
    let size = reply.rpc_user_size;
    // SAFETY: the caller promises that rpc_user_id is NULL or rpc_user_size long.
    let ids = unsafe { slice(reply.rpc_user_id, size, MAX_USERS) };
    // SAFETY: the caller promises that rpc_user_cnt is NULL or rpc_user_size long.
    let counts = unsafe { slice(reply.rpc_user_cnt, size, MAX_USERS) };
    // SAFETY: the caller promises that rpc_user_time is NULL or rpc_user_size long.
    let times = unsafe { slice(reply.rpc_user_time, size, MAX_USERS) };
    let rows = ids.iter().zip(counts).zip(times);
    rows.map(|((&id, &count), &time)| RpcUser { id, count, time, ..RpcUser::default() }).collect()
}

/// # Safety
/// rpc_queue_type_id and rpc_queue_count are NULL or rpc_queue_type_count long.
unsafe fn pending(reply: &stats_info_response_msg_t) -> Vec<PendingRpc> {
    let size = reply.rpc_queue_type_count;
    // SAFETY: the caller promises that rpc_queue_type_id is NULL or rpc_queue_type_count long.
    let ids = unsafe { slice(reply.rpc_queue_type_id, size, MAX_PENDING) };
    // SAFETY: the caller promises that rpc_queue_count is NULL or rpc_queue_type_count long.
    let counts = unsafe { slice(reply.rpc_queue_count, size, MAX_PENDING) };
    ids.iter().zip(counts).map(|(&id, &count)| PendingRpc { id, count }).collect()
}

/// # Safety
/// rpc_dump_types and rpc_dump_hostlist are NULL or rpc_dump_count long; the strings are NULL or end with a NUL.
unsafe fn dumped(reply: &stats_info_response_msg_t) -> Vec<DumpedRpcs> {
    let size = reply.rpc_dump_count;
    // SAFETY: the caller promises that rpc_dump_types is NULL or rpc_dump_count long.
    let ids = unsafe { slice(reply.rpc_dump_types, size, MAX_PENDING) };
    // SAFETY: the caller promises that rpc_dump_hostlist is NULL or rpc_dump_count long.
    let hostlists = unsafe { slice(reply.rpc_dump_hostlist, size, MAX_PENDING) };
    let rows = ids.iter().zip(hostlists);
    rows.map(|(&id, &hostlist)| {
        // SAFETY: the caller promises that a host list is NULL or ends with a NUL.
        let hostlist = unsafe { text(hostlist) };
        DumpedRpcs { id, hostlist: hostlist.unwrap_or_default() }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;
    use std::ptr;

    use super::*;

    fn copied(reply: &stats_info_response_msg_t) -> RpcTables {
        // SAFETY: the arrays of these tests are NULL or as long as they say, their strings literals.
        unsafe { from_reply(reply) }
    }

    #[test]
    fn null_arrays_are_empty_whatever_their_counts() {
        let reply = stats_info_response_msg_t {
            rpc_type_size: 7,
            rpc_user_size: u32::MAX,
            rpc_queue_type_count: 7,
            rpc_dump_count: u32::MAX,
            ..Default::default()
        };
        assert_eq!(copied(&reply), RpcTables { pending: Some(Vec::new()), ..RpcTables::default() });
    }

    #[test]
    fn a_table_of_which_one_array_is_null_is_empty() {
        let mut ids = [2035_u16, 1008];
        let reply = stats_info_response_msg_t {
            rpc_type_size: 2,
            rpc_type_id: ids.as_mut_ptr(),
            ..Default::default()
        };
        assert_eq!(copied(&reply).types, []);
    }

    #[test]
    fn rows_are_put_together_from_their_columns() {
        let (mut ids, mut counts, mut times) = ([2035_u16, 1008], [3_u32, u32::MAX], [u64::MAX, 9]);
        let (mut uids, mut user_counts, mut user_times) = ([0_u32, u32::MAX], [1_u32, 2], [3_u64, 4]);
        let (mut pending_ids, mut pending_counts) = ([6009_u32], [12_u32]);
        let reply = stats_info_response_msg_t {
            rpc_type_size: 2,
            rpc_type_id: ids.as_mut_ptr(),
            rpc_type_cnt: counts.as_mut_ptr(),
            rpc_type_time: times.as_mut_ptr(),
            rpc_user_size: 2,
            rpc_user_id: uids.as_mut_ptr(),
            rpc_user_cnt: user_counts.as_mut_ptr(),
            rpc_user_time: user_times.as_mut_ptr(),
            rpc_queue_type_count: 1,
            rpc_queue_type_id: pending_ids.as_mut_ptr(),
            rpc_queue_count: pending_counts.as_mut_ptr(),
            ..Default::default()
        };
        let tables = copied(&reply);
        let row = |id, count, time| RpcType { id, count, time, queue: None };
        assert_eq!(tables.types, [row(2035, 3, u64::MAX), row(1008, u32::MAX, 9)]);
        let user = |id, count, time| RpcUser { id, count, time, ..RpcUser::default() };
        assert_eq!(tables.users, [user(0, 1, 3), user(u32::MAX, 2, 4)]);
        assert_eq!(tables.pending, Some(vec![PendingRpc { id: 6009, count: 12 }]));
    }

    #[test]
    fn tables_end_where_slurmctlds_do() {
        let (mut ids, mut counts, mut times) = ([1_u16; 150], [2_u32; 150], [3_u64; 150]);
        let (mut uids, mut user_counts, mut user_times) = ([4_u32; 300], [5_u32; 300], [6_u64; 300]);
        let reply = stats_info_response_msg_t {
            rpc_type_size: 150,
            rpc_type_id: ids.as_mut_ptr(),
            rpc_type_cnt: counts.as_mut_ptr(),
            rpc_type_time: times.as_mut_ptr(),
            rpc_user_size: 300,
            rpc_user_id: uids.as_mut_ptr(),
            rpc_user_cnt: user_counts.as_mut_ptr(),
            rpc_user_time: user_times.as_mut_ptr(),
            ..Default::default()
        };
        let tables = copied(&reply);
        assert_eq!((tables.types.len(), tables.users.len()), (100, 200));
    }

    #[test]
    fn host_lists_may_be_null_or_not_utf8() {
        let mut ids = [6009_u32, 6011, 1008];
        let lists = [c"n[1-3]".as_ptr(), ptr::null(), c"n\xff".as_ptr()];
        let mut lists = lists.map(<*const c_char>::cast_mut);
        let reply = stats_info_response_msg_t {
            rpc_dump_count: 3,
            rpc_dump_types: ids.as_mut_ptr(),
            rpc_dump_hostlist: lists.as_mut_ptr(),
            ..Default::default()
        };
        let dumped = |id, hostlist: &str| DumpedRpcs { id, hostlist: hostlist.to_owned() };
        assert_eq!(
            copied(&reply).dumped,
            [dumped(6009, "n[1-3]"), dumped(6011, ""), dumped(1008, "n\u{fffd}")]
        );
    }

    #[cfg(slurm_ge_2405)]
    #[test]
    fn the_queues_columns_are_there_only_where_it_is_enabled() {
        let (mut ids, mut counts, mut times) = ([2035_u16], [3_u32], [4_u64]);
        let (mut queued, mut dropped, mut last, mut max) = ([5_u16], [u64::MAX], [6_u16], [7_u16]);
        let mut reply = stats_info_response_msg_t {
            rpc_type_size: 1,
            rpc_type_id: ids.as_mut_ptr(),
            rpc_type_cnt: counts.as_mut_ptr(),
            rpc_type_time: times.as_mut_ptr(),
            rpc_queue_enabled: 1,
            rpc_type_queued: queued.as_mut_ptr(),
            rpc_type_dropped: dropped.as_mut_ptr(),
            rpc_type_cycle_last: last.as_mut_ptr(),
            rpc_type_cycle_max: max.as_mut_ptr(),
            ..Default::default()
        };
        let row = |queue| RpcType { id: 2035, count: 3, time: 4, queue };
        let queue = RpcQueue { queued: 5, dropped: u64::MAX, cycle_last: 6, cycle_max: 7 };
        assert_eq!(copied(&reply).types, [row(Some(queue))]);
        reply.rpc_type_queued = ptr::null_mut();
        assert_eq!(copied(&reply).types, [row(None)]);
    }
}
