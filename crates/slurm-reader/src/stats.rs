//! `stats_info_response_msg_t` of every release as one plain type.
//!
//! This file depends on the release: fields that the release lacks according to `slurm_ge_*` are `None`. The numbers
//! are copied unchanged; sdiag's arithmetic is elsewhere. Makes no call.

use slurm_snapshot::Statistics;
use slurm_sys::stats_info_response_msg_t;

use crate::rpc;
use crate::unpacked::Unpacked;
use crate::values::moment;

/// All members: those that are copied, those that only readers of slurmrestd may lack, moments, and the others.
macro_rules! statistics {
    (
        $reply:ident:
        copied { $($copied:ident)+ }
        known { $($known:ident)+ }
        moments { $($moment:ident)+ }
        $($other:ident: $value:expr,)+
    ) => {
        Statistics {
            $($copied: $reply.$copied,)+
            $($known: Some($reply.$known),)+
            $($moment: moment($reply.$moment),)+
            $($other: $value,)+
        }
    };
}

/// Copies the reply; its RPC tables only with `rpc`.
pub(crate) fn from_reply(reply: Unpacked<'_, stats_info_response_msg_t>, rpc: bool) -> Statistics {
    #[cfg(slurm_ge_2311)]
    let [schedule_exit, bf_exit] = [reply.schedule_exit(), reply.bf_exit()].map(|exits| Some(exits.to_vec()));
    #[cfg(not(slurm_ge_2311))]
    let [schedule_exit, bf_exit] = [None, None];

    #[cfg(slurm_ge_2405)]
    let rpc_queue_enabled = Some(reply.rpc_queue_enabled != 0);
    #[cfg(not(slurm_ge_2405))]
    let rpc_queue_enabled = None;

    #[cfg(slurm_ge_2511)]
    let schedule_cycle_sum = reply.schedule_cycle_sum;
    #[cfg(not(slurm_ge_2511))]
    let schedule_cycle_sum = reply.schedule_cycle_sum.into();

    statistics! { reply:
        copied { req_time req_time_start server_thread_count agent_queue_size agent_count agent_thread_count
            dbd_agent_queue_size gettimeofday_latency schedule_cycle_max schedule_cycle_last schedule_cycle_counter
            schedule_queue_len jobs_submitted jobs_started jobs_completed jobs_canceled jobs_failed jobs_pending
            jobs_running bf_backfilled_jobs bf_last_backfilled_jobs bf_backfilled_het_jobs bf_cycle_counter
            bf_cycle_last bf_queue_len bf_active }
        known { schedule_cycle_depth bf_cycle_sum bf_cycle_max bf_last_depth bf_last_depth_try bf_depth_sum
            bf_depth_try_sum bf_queue_len_sum bf_table_size bf_table_size_sum }
        moments { job_states_ts bf_when_last_cycle }
        schedule_cycle_sum: Some(schedule_cycle_sum),
        schedule_exit: schedule_exit,
        bf_exit: bf_exit,
        rpc_queue_enabled: rpc_queue_enabled,
        means: None,
        rpc: rpc.then(|| rpc::from_reply(reply)),
    }
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
