//! The reasons why a scheduling cycle ended: names and sdiag's words for the indices of
//! `schedule_exit` and `bf_exit`.
//!
//! libslurm does not export `schedule_exit2string` and `bf_exit2string`. The order is that of 23.11
//! to 26.11.

use std::borrow::Cow;

/// The reasons of one scheduler, by index: a name, and sdiag's words.
#[derive(Clone, Copy, Debug)]
pub struct ExitReasons(&'static [(&'static str, &'static str)]);

/// The reasons why a main scheduling cycle ended, in the order of `schedule_exit`.
pub const MAIN_EXITS: ExitReasons = ExitReasons(&[
    ("end", "End of job queue"),
    ("max_depth", "Hit default_queue_depth"),
    ("max_job_start", "Hit sched_max_job_start"),
    ("lic", "Blocked on licenses"),
    ("rpc_cnt", "Hit max_rpc_cnt"),
    ("timeout", "Timeout (max_sched_time)"),
]);

/// The reasons why a backfill cycle ended, in the order of `bf_exit`.
pub const BACKFILL_EXITS: ExitReasons = ExitReasons(&[
    ("end", "End of job queue"),
    ("max_job_start", "Hit bf_max_job_start"),
    ("max_job_test", "Hit bf_max_job_test"),
    ("state_changed", "System state changed"),
    ("table_limit", "Hit table size limit (bf_node_space_size)"),
    ("timeout", "Timeout (bf_max_time)"),
]);

impl ExitReasons {
    /// Returns the name of the reason with this index; `other` if it is newer than this table.
    pub fn name(self, index: usize) -> &'static str {
        self.0.get(index).map_or("other", |(name, _)| name)
    }

    /// Returns the reason with this index in sdiag's words; `exit_N` if it is newer than this
    /// table.
    pub fn text(self, index: usize) -> Cow<'static, str> {
        self.0.get(index).map_or_else(|| format!("exit_{index}").into(), |(_, text)| (*text).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_newer_than_the_table_keeps_its_number() {
        assert_eq!(MAIN_EXITS.name(3), "lic");
        assert_eq!(BACKFILL_EXITS.name(3), "state_changed");
        assert_eq!(MAIN_EXITS.name(6), "other");
        assert_eq!(BACKFILL_EXITS.text(6), "exit_6");
    }
}
