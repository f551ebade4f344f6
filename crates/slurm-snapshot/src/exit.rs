//! Why a scheduling cycle ended: sdiag's words for the indices of `schedule_exit` and `bf_exit`.
//!
//! libslurm keeps `schedule_exit2string` and `bf_exit2string` to itself; the order is that of 23.11 to 26.05.

use std::borrow::Cow;

const SCHEDULE: [&str; 6] = ["end", "max_depth", "max_job_start", "lic", "rpc_cnt", "timeout"];
const BACKFILL: [&str; 6] =
    ["end", "max_job_start", "max_job_test", "state_changed", "table_limit", "timeout"];

/// The reason at `index` of `schedule_exit`; `exit_N` where it is newer than this table.
#[must_use]
pub fn schedule_exit_name(index: usize) -> Cow<'static, str> {
    name(&SCHEDULE, index)
}

/// The reason at `index` of `bf_exit`; `exit_N` where it is newer than this table.
#[must_use]
pub fn bf_exit_name(index: usize) -> Cow<'static, str> {
    name(&BACKFILL, index)
}

fn name(table: &[&'static str], index: usize) -> Cow<'static, str> {
    table.get(index).map_or_else(|| format!("exit_{index}").into(), |&name| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_newer_than_the_table_keeps_its_number() {
        assert_eq!(schedule_exit_name(3), "lic");
        assert_eq!(bf_exit_name(3), "state_changed");
        assert_eq!(schedule_exit_name(6), "exit_6");
    }
}
