//! slurmdbd's own statistics: `slurmdb_get_stats`, with a new connection for each request.
//!
//! slurmdbd gives its statistics to SlurmUser, to root and to users with AdminLevel=Admin, but not
//! to operators.

use std::ffi::CStr;

use slurm_snapshot::{DbdRollup, DbdStatistics, RpcType, RpcUser, errno, moment};
use slurm_sys::{
    SLURMDB_ADMIN_SUPER_USER, slurmdb_rollup_stats_t, slurmdb_rpc_obj_t, slurmdb_stats_rec_t,
};

use crate::accounting::{accounting_conf, has_level};
use crate::calls::{CallError, CallResult, Libslurm};
use crate::unpacked::Unpacked;

/// Names of the periods of roll-ups, in the order of `DBD_ROLLUP_HOUR` and so on, which are indices
/// of slurmdbd's arrays.
const PERIODS: [&str; 3] = ["hour", "day", "month"];

/// Most users that are read from the reply: more than ever ask one slurmdbd between two starts.
const MOST_USERS: usize = 65_536;

/// slurmdbd's statistics of itself, by user too if `users`.
pub(crate) fn load(libslurm: &mut Libslurm, users: bool) -> CallResult<DbdStatistics> {
    let own = accounting_conf(libslurm)?;
    let connection = libslurm.connect()?;
    // The refusal is not left to slurmdbd, because libslurm's plugin of 26.05 ends the process over
    // it: it looks for a function that libslurm does not export.
    if !has_level(&connection, &own, SLURMDB_ADMIN_SUPER_USER)? {
        return Err(CallError::new("slurmdb_get_stats", errno::ACCESS_DENIED));
    }
    Ok(from_reply(connection.statistics()?.get(), &own.cluster, users))
}

fn from_reply(
    reply: Unpacked<'_, slurmdb_stats_rec_t>,
    cluster: &CStr,
    by_user: bool,
) -> DbdStatistics {
    let is_own =
        |row: &Unpacked<'_, slurmdb_rollup_stats_t>| row.cluster_name() == cluster.to_bytes();
    let rpc_type = |row: Unpacked<'_, slurmdb_rpc_obj_t>| {
        let id = u16::try_from(row.id).ok()?;
        Some(RpcType { id, count: row.cnt, time: row.time, queue: None })
    };
    let rpc_user = |row: Unpacked<'_, slurmdb_rpc_obj_t>| RpcUser {
        id: row.id,
        count: row.cnt,
        time: row.time,
        ..RpcUser::default()
    };
    let users = if by_user { reply.user_list() } else { Vec::new() };
    DbdStatistics {
        since: reply.time_start,
        types: reply.rpc_list().into_iter().filter_map(rpc_type).collect(),
        users: users.into_iter().take(MOST_USERS).map(rpc_user).collect(),
        rollups: reply
            .rollup_stats()
            .iter()
            .filter(|row| is_own(row))
            .flat_map(|row| rollups(row))
            .collect(),
    }
}

/// Returns the roll-ups of one cluster by period, without periods about which nothing is known.
fn rollups(row: &slurmdb_rollup_stats_t) -> impl Iterator<Item = (String, DbdRollup)> {
    PERIODS.into_iter().enumerate().filter_map(|(index, period)| {
        let time = |times: &[u64]| times.get(index).copied().filter(|time| *time > 0);
        let rollup = DbdRollup {
            count: row.count.get(index).copied()?.into(),
            last: time(&row.time_last),
            max: time(&row.time_max),
            total: time(&row.time_total),
            end: row.timestamp.get(index).copied().and_then(moment),
        };
        (rollup.total.is_some() || rollup.end.is_some()).then(|| (period.to_owned(), rollup))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked::made;

    #[test]
    fn of_a_cluster_that_has_not_been_rolled_up_nothing_is_reported_and_of_the_first_time_no_last_one()
     {
        let nothing = slurmdb_rollup_stats_t::default();
        assert_eq!(rollups(&nothing).count(), 0);
        let first = slurmdb_rollup_stats_t {
            time_total: [700, 0, 0],
            timestamp: [7200, 3600, 0],
            ..slurmdb_rollup_stats_t::default()
        };
        let found: Vec<_> = rollups(&first).collect();
        let hour = DbdRollup { total: Some(700), end: Some(7200), ..DbdRollup::default() };
        let day = DbdRollup { end: Some(3600), ..DbdRollup::default() };
        assert_eq!(found, [("hour".to_owned(), hour), ("day".to_owned(), day)]);
    }

    #[test]
    fn a_record_of_nothing_has_no_rows() {
        let record = slurmdb_stats_rec_t::default();
        let found = from_reply(made(&record), c"sandbox", true);
        assert_eq!(found, DbdStatistics::default());
    }
}
