//! slurmdbd's own statistics: `slurmdb_get_stats`, with a new connection for each request.
//!
//! slurmdbd gives them to SlurmUser, to root and to users with AdminLevel=Admin, but not to operators.

use std::collections::BTreeMap;
use std::ffi::CStr;

use slurm_snapshot::{DbdRollup, DbdStatistics, RpcType, RpcUser};
use slurm_sys::{slurmdb_rollup_stats_t, slurmdb_rpc_obj_t, slurmdb_stats_rec_t};

use crate::accounting::{DbdConnection, accounting_conf};
use crate::client::{CallError, Client, failure};
use crate::raw::{Freed, NoReply, RawReply, bytes, each, moment};

/// Indices of arrays: `DBD_ROLLUP_HOUR` and so on.
const PERIODS: [&str; 3] = ["hour", "day", "month"];

/// `ESLURM_ACCESS_DENIED`
const ACCESS_DENIED: i32 = 2002;

/// More users than ever ask one slurmdbd between two starts.
const MOST_USERS: usize = 65_536;

impl Client {
    /// slurmdbd's statistics of itself, by user too if `users`.
    ///
    /// # Errors
    /// slurmdbd did not answer, this user is not an administrator of it, or slurm.conf names no slurmdbd.
    pub(crate) fn dbd_statistics(&mut self, users: bool) -> Result<DbdStatistics, CallError> {
        let own = accounting_conf()?;
        let connection = DbdConnection::open()?;
        // The refusal is not left to slurmdbd, because libslurm's plugin of 26.05 ends the process over it: it looks
        // for a function that libslurm does not export.
        if !connection.is_administrator(&own)? {
            return Err(failure("slurmdb_get_stats", &NoReply::Errno(ACCESS_DENIED)));
        }
        let call = |out: &mut *mut slurmdb_stats_rec_t| {
            // SAFETY: the connection is open, and the pointer is valid during the call.
            unsafe { slurm_sys::slurmdb_get_stats(connection.pointer(), out) }
        };
        // SAFETY: slurmdb_get_stats leaves NULL or a record that its caller frees with its FREE.
        let reply = unsafe { RawReply::receive(call) };
        let reply = reply.map_err(|error| failure("slurmdb_get_stats", &error))?;
        // SAFETY: libslurm unpacks lists of these records or leaves them NULL, and names with their NULs.
        Ok(unsafe { from_reply(reply.get(), &own.cluster, users) })
    }
}

impl Freed for slurmdb_stats_rec_t {
    const FREE: unsafe extern "C" fn(*mut Self) = destroy;
}

/// # Safety
/// `record` was made by slurmdb_get_stats, and nobody else frees it.
unsafe extern "C" fn destroy(record: *mut slurmdb_stats_rec_t) {
    // SAFETY: the caller's promise.
    unsafe { slurm_sys::slurmdb_destroy_stats_rec(record.cast()) };
}

/// # Safety
/// Lists are NULL or have elements of the type in their names, and names are NULL or end with a NUL.
unsafe fn from_reply(reply: &slurmdb_stats_rec_t, cluster: &CStr, by_user: bool) -> DbdStatistics {
    let (mut types, mut users) = (Vec::new(), Vec::new());
    let mut rollups = BTreeMap::new();
    let take = |row: &slurmdb_rpc_obj_t| {
        let id = u16::try_from(row.id).ok();
        types.extend(id.map(|id| RpcType { id, count: row.cnt, time: row.time, queue: None }));
    };
    // SAFETY: the caller's promise.
    unsafe { each(reply.rpc_list, take) };
    if by_user {
        let take = |row: &slurmdb_rpc_obj_t| {
            if users.len() < MOST_USERS {
                users.push(RpcUser { id: row.id, count: row.cnt, time: row.time, ..RpcUser::default() });
            }
        };
        // SAFETY: the caller's promise.
        unsafe { each(reply.user_list, take) };
    }
    let take = |row: &slurmdb_rollup_stats_t| {
        // SAFETY: the caller's promise of names.
        if unsafe { bytes(row.cluster_name) } == cluster.to_bytes() {
            rollups.extend(of_periods(row));
        }
    };
    // SAFETY: the caller's promise.
    unsafe { each(reply.rollup_stats, take) };
    DbdStatistics { since: reply.time_start, types, users, rollups }
}

/// The roll-ups of each period about which anything is known.
fn of_periods(row: &slurmdb_rollup_stats_t) -> impl Iterator<Item = (String, DbdRollup)> {
    PERIODS.into_iter().enumerate().filter_map(|(place, period)| {
        let time = |times: &[u64]| times.get(place).copied().filter(|time| *time > 0);
        let rollup = DbdRollup {
            count: row.count.get(place).copied()?.into(),
            last: time(&row.time_last),
            max: time(&row.time_max),
            total: time(&row.time_total),
            end: row.timestamp.get(place).copied().and_then(moment),
        };
        (rollup.total.is_some() || rollup.end.is_some()).then(|| (period.to_owned(), rollup))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_cluster_that_has_not_been_rolled_up_nothing_is_told_and_of_the_first_time_no_last_one() {
        let nothing = slurmdb_rollup_stats_t::default();
        assert_eq!(of_periods(&nothing).count(), 0);
        let first = slurmdb_rollup_stats_t {
            time_total: [700, 0, 0],
            timestamp: [7200, 3600, 0],
            ..slurmdb_rollup_stats_t::default()
        };
        let found: Vec<_> = of_periods(&first).collect();
        let hour = DbdRollup { total: Some(700), end: Some(7200), ..DbdRollup::default() };
        let day = DbdRollup { end: Some(3600), ..DbdRollup::default() };
        assert_eq!(found, [("hour".to_owned(), hour), ("day".to_owned(), day)]);
    }

    #[test]
    fn a_record_of_nothing_has_no_rows() {
        let record = slurmdb_stats_rec_t::default();
        // SAFETY: every list is NULL.
        let found = unsafe { from_reply(&record, c"sandbox", true) };
        assert_eq!(found, DbdStatistics::default());
    }
}
