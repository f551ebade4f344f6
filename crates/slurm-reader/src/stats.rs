//! `stats_info_response_msg_t` of every release as one plain type.
//!
//! This file depends on the release: fields that the release lacks according to `slurm_ge_*` are
//! `None`. The numbers are copied unchanged; sdiag's arithmetic is elsewhere. Makes no call.

use std::convert::identity as needed;

use slurm_snapshot::{Statistics, moment, numbers_of_statistics};
use slurm_sys::stats_info_response_msg_t;

use crate::rpc;
use crate::unpacked::Unpacked;

/// Returns a number of the reply as a member that is an `Option` because slurmrestd may lack it.
/// The width of one of these numbers depends on the release.
fn number<T, U: From<T>>(value: T) -> Option<U> {
    Some(value.into())
}

/// Builds the [`Statistics`] from the numbers of the reply and from the other members that are
/// given.
macro_rules! statistics {
    (($reply:ident, $($other:ident: $value:expr,)+)
        $($read:ident { $($member:ident $(= $api:ident)?)+ })+) => {
        Statistics {
            $($($member: $read($reply.$member),)+)+
            $($other: $value,)+
        }
    };
}

/// Copies the statistics of the reply, and with `rpc` its RPC tables.
pub(crate) fn from_reply(reply: Unpacked<'_, stats_info_response_msg_t>, rpc: bool) -> Statistics {
    #[cfg(slurm_ge_2311)]
    let [schedule_exit, bf_exit] =
        [reply.schedule_exit(), reply.bf_exit()].map(|exits| Some(exits.to_vec()));
    #[cfg(not(slurm_ge_2311))]
    let [schedule_exit, bf_exit] = [None, None];

    #[cfg(slurm_ge_2405)]
    let rpc_queue_enabled = Some(reply.rpc_queue_enabled != 0);
    #[cfg(not(slurm_ge_2405))]
    let rpc_queue_enabled = None;

    numbers_of_statistics! { statistics! (reply,
        req_time: reply.req_time,
        req_time_start: reply.req_time_start,
        bf_active: reply.bf_active,
        schedule_exit: schedule_exit,
        bf_exit: bf_exit,
        rpc_queue_enabled: rpc_queue_enabled,
        means: None,
        rpc: rpc.then(|| rpc::from_reply(reply)),
    ) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked::made;

    fn copied(reply: &stats_info_response_msg_t, rpc: bool) -> Statistics {
        from_reply(made(reply), rpc)
    }

    #[test]
    fn the_greatest_values_survive() {
        let reply = stats_info_response_msg_t {
            req_time: i64::MAX,
            schedule_cycle_max: u32::MAX,
            schedule_cycle_sum: !0,
            bf_cycle_sum: u64::MAX,
            bf_active: 1,
            job_states_ts: 1_700_000_000,
            ..Default::default()
        };
        let statistics = copied(&reply, false);
        assert_eq!(statistics.req_time, i64::MAX);
        assert_eq!(statistics.schedule_cycle_max, u32::MAX);
        let widest = if cfg!(slurm_ge_2511) { u64::MAX } else { u64::from(u32::MAX) };
        assert_eq!(statistics.schedule_cycle_sum, Some(widest));
        assert_eq!(statistics.bf_cycle_sum, Some(u64::MAX));
        assert_eq!(statistics.bf_active, 1);
        assert_eq!(statistics.job_states_ts, Some(1_700_000_000));
    }

    #[test]
    fn a_slurmctld_that_has_just_started_has_done_nothing_yet() {
        let statistics = copied(&stats_info_response_msg_t::default(), true);
        assert_eq!(statistics.job_states_ts, None);
        assert_eq!(statistics.bf_when_last_cycle, None);
        assert_eq!(
            statistics.rpc,
            Some(slurm_snapshot::RpcTables { pending: Some(Vec::new()), ..Default::default() })
        );
    }

    #[test]
    fn tables_that_were_not_asked_for_are_not_copied() {
        assert_eq!(copied(&stats_info_response_msg_t::default(), false).rpc, None);
    }

    #[test]
    fn what_the_release_lacks_is_none() {
        let statistics = copied(&stats_info_response_msg_t::default(), false);
        assert_eq!(statistics.schedule_exit.is_some(), cfg!(slurm_ge_2311));
        assert_eq!(statistics.bf_exit.is_some(), cfg!(slurm_ge_2311));
        assert_eq!(statistics.rpc_queue_enabled.is_some(), cfg!(slurm_ge_2405));
    }

    #[cfg(slurm_ge_2311)]
    #[test]
    fn exits_are_walked_by_their_count() {
        let mut exits = [5_u32, 0, 7];
        let mut reply = stats_info_response_msg_t {
            schedule_exit: exits.as_mut_ptr(),
            schedule_exit_cnt: 3,
            bf_exit_cnt: 6,
            ..Default::default()
        };
        assert_eq!(copied(&reply, false).schedule_exit, Some(vec![5, 0, 7]));
        assert_eq!(copied(&reply, false).bf_exit, Some(vec![]), "NULL, whatever the count");
        reply.schedule_exit_cnt = 1;
        assert_eq!(copied(&reply, false).schedule_exit, Some(vec![5]));
    }
}
