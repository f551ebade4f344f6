//! The RPC tables of `stats_info_response_msg_t`.
//!
//! This file depends on the release: the queue's columns came with 24.05.

use slurm_snapshot::{DumpedRpcs, PendingRpc, RpcQueue, RpcTables, RpcType, RpcUser};
use slurm_sys::stats_info_response_msg_t;

use crate::unpacked::Unpacked;
use crate::values::lossy;

/// Copies the RPC tables of the reply. A table with a NULL array is empty.
pub(crate) fn from_reply(reply: Unpacked<'_, stats_info_response_msg_t>) -> RpcTables {
    let mut queues = queues(reply);
    let types = reply.rpc_type_id().iter().zip(reply.rpc_type_cnt()).zip(reply.rpc_type_time());
    let users = reply.rpc_user_id().iter().zip(reply.rpc_user_cnt()).zip(reply.rpc_user_time());
    let pending = reply.rpc_queue_type_id().iter().zip(reply.rpc_queue_count());
    let dumped = reply.rpc_dump_types().iter().zip(reply.rpc_dump_hostlist());
    RpcTables {
        types: types
            .map(|((&id, &count), &time)| RpcType { id, count, time, queue: queues.next() })
            .collect(),
        users: users
            .map(|((&id, &count), &time)| RpcUser { id, count, time, ..RpcUser::default() })
            .collect(),
        pending: Some(pending.map(|(&id, &count)| PendingRpc { id, count }).collect()),
        dumped: dumped
            .map(|(&id, hostlist)| DumpedRpcs { id, hostlist: lossy(hostlist) })
            .collect(),
    }
}

#[cfg(not(slurm_ge_2405))]
fn queues(_: Unpacked<'_, stats_info_response_msg_t>) -> impl Iterator<Item = RpcQueue> {
    std::iter::empty()
}

/// Returns the rows of the RPC queue, by message type; none if the queue is not enabled, because
/// its columns are NULL then.
#[cfg(slurm_ge_2405)]
fn queues(reply: Unpacked<'_, stats_info_response_msg_t>) -> impl Iterator<Item = RpcQueue> {
    let counts = reply.rpc_type_queued().iter().zip(reply.rpc_type_dropped());
    let rows = counts.zip(reply.rpc_type_cycle_last()).zip(reply.rpc_type_cycle_max());
    rows.map(|(((&queued, &dropped), &cycle_last), &cycle_max)| RpcQueue {
        queued,
        dropped,
        cycle_last,
        cycle_max,
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;
    use std::ptr;

    use super::*;
    use crate::unpacked::made;

    fn copied(reply: &stats_info_response_msg_t) -> RpcTables {
        from_reply(made(reply))
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
        let mut ids = [2035_u16, 1008];
        let mut counts = [3_u32, u32::MAX];
        let mut times = [u64::MAX, 9];
        let (mut uids, mut user_counts, mut user_times) =
            ([0_u32, u32::MAX], [1_u32, 2], [3_u64, 4]);
        let mut pending_ids = [6009_u32];
        let mut pending_counts = [12_u32];
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
        let mut ids = [1_u16; 150];
        let mut counts = [2_u32; 150];
        let mut times = [3_u64; 150];
        let (mut uids, mut user_counts, mut user_times) =
            ([4_u32; 300], [5_u32; 300], [6_u64; 300]);
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
        let mut ids = [2035_u16];
        let mut counts = [3_u32];
        let mut times = [4_u64];
        let mut queued = [5_u16];
        let mut dropped = [u64::MAX];
        let mut last = [6_u16];
        let mut max = [7_u16];
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
