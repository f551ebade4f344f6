//! Why a scheduling cycle ended: names and sdiag's words for the indices of `schedule_exit` and `bf_exit`.
//!
//! libslurm keeps `schedule_exit2string` and `bf_exit2string` to itself; the order is that of 23.11 to 26.05.

use std::borrow::Cow;

/// (name, sdiag's words)
type Reason = (&'static str, &'static str);

const SCHEDULE: [Reason; 6] = [
    ("end", "End of job queue"),
    ("max_depth", "Hit default_queue_depth"),
    ("max_job_start", "Hit sched_max_job_start"),
    ("lic", "Blocked on licenses"),
    ("rpc_cnt", "Hit max_rpc_cnt"),
    ("timeout", "Timeout (max_sched_time)"),
];
const BACKFILL: [Reason; 6] = [
    ("end", "End of job queue"),
    ("max_job_start", "Hit bf_max_job_start"),
    ("max_job_test", "Hit bf_max_job_test"),
    ("state_changed", "System state changed"),
    ("table_limit", "Hit table size limit (bf_node_space_size)"),
    ("timeout", "Timeout (bf_max_time)"),
];

/// The reason at `index` of `schedule_exit`; `exit_N` where it is newer than this table.
#[must_use]
pub fn schedule_exit_name(index: usize) -> Cow<'static, str> {
    found(&SCHEDULE, index, |reason| reason.0)
}

/// The same in sdiag's words.
#[must_use]
pub fn schedule_exit_text(index: usize) -> Cow<'static, str> {
    found(&SCHEDULE, index, |reason| reason.1)
}

/// The reason at `index` of `bf_exit`; `exit_N` where it is newer than this table.
#[must_use]
pub fn bf_exit_name(index: usize) -> Cow<'static, str> {
    found(&BACKFILL, index, |reason| reason.0)
}

/// The same in sdiag's words.
#[must_use]
pub fn bf_exit_text(index: usize) -> Cow<'static, str> {
    found(&BACKFILL, index, |reason| reason.1)
}

fn found(table: &[Reason], index: usize, word: impl Fn(&Reason) -> &'static str) -> Cow<'static, str> {
    table.get(index).map_or_else(|| format!("exit_{index}").into(), |reason| word(reason).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_newer_than_the_table_keeps_its_number() {
        assert_eq!(schedule_exit_name(3), "lic");
        assert_eq!(bf_exit_name(3), "state_changed");
        assert_eq!(schedule_exit_name(6), "exit_6");
        assert_eq!(bf_exit_text(6), "exit_6");
    }
}
