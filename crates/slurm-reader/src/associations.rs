//! Associations and QOS of `slurm_load_assoc_mgr_info`: shares, usage and limits, one RPC for all of them.
//!
//! In every type of number, floats included, slurmctld uses two values for "none" and "no limit"; both are `None` here.

use std::ptr;

use slurm_snapshot::tres::whole;
use slurm_snapshot::{Association, AssociationUser, Associations, QosUse, SharesRaw, TresUse, UseAndLimits};
use slurm_sys::{
    assoc_mgr_info_msg_t, slurmdb_assoc_rec_t, slurmdb_assoc_usage, slurmdb_qos_rec_t, slurmdb_qos_usage_t,
};

use crate::long_double::LongDouble;
use crate::raw::{self, number, number64, slice, text};

/// More TRES than any cluster has.
const MAX_TRES: usize = 1000;

/// `NO_VAL`.
const NO_VAL: u32 = 0xffff_fffe;

/// `SLURMDB_FS_USE_PARENT`: it uses the shares of its parent.
const USE_PARENT: u32 = 0x7fff_ffff;

/// Copies the accounts and QOS of the reply, and with `users` the associations of users.
///
/// # Safety
/// The lists of `reply` are NULL or libslurm's, with records of the type in their names. `reply` has as many TRES names
/// as its count says, and each array of a record has as many numbers as the count in its usage. Strings are NULL or end
/// with a NUL.
pub(crate) unsafe fn from_reply(reply: &assoc_mgr_info_msg_t, users: bool) -> Associations {
    // SAFETY: the caller promises as many names as the count says.
    let names = unsafe { slice(reply.tres_names, reply.tres_cnt, MAX_TRES) };
    // SAFETY: the caller promises NULL or a string for each.
    let names: Vec<String> = names.iter().map(|name| unsafe { text(*name) }.unwrap_or_default()).collect();
    let mut all = Associations::default();
    let mut is_fair_tree = false;
    let mut add = |record: &slurmdb_assoc_rec_t| {
        all.records = all.records.saturating_add(1);
        // SAFETY: the caller promises NULL or libslurm's.
        let Some(usage) = (unsafe { record.usage.as_ref() }) else { return };
        is_fair_tree |= usage.fs_factor > 0.0;
        if users || record.user.is_null() {
            // SAFETY: the caller's promise.
            all.associations.push(unsafe { association(record, usage, &names) });
        }
    };
    // SAFETY: the caller promises NULL, or a list of such records.
    unsafe { raw::each(reply.assoc_list, &mut add) };
    let add = |record: &slurmdb_qos_rec_t| {
        // SAFETY: the caller's promise.
        all.qos.extend(unsafe { qos(record, &names) });
    };
    // SAFETY: the same.
    unsafe { raw::each(reply.qos_list, add) };
    if !is_fair_tree {
        // Without FAIR_TREE in PriorityFlags, and before the first calculation, it is 0 and means nothing.
        all.associations.iter_mut().for_each(|association| association.level_fs = None);
    }
    all
}

/// # Safety
/// As for [`from_reply`], but for one record.
unsafe fn association(
    record: &slurmdb_assoc_rec_t,
    usage: &slurmdb_assoc_usage,
    names: &[String],
) -> Association {
    // SAFETY: the caller promises NULL or a string.
    let some = |string| unsafe { text(string) }.filter(|text| !text.is_empty());
    let user = some(record.user);
    let parent = some(record.parent_acct);
    let is_root = user.is_none() && parent.is_none();
    let shares = match record.shares_raw {
        _ if is_root => SharesRaw::None,
        USE_PARENT => SharesRaw::Parent,
        shares => number(shares).map_or(SharesRaw::None, SharesRaw::Shares),
    };
    let arrays = Arrays {
        count: usage.tres_cnt,
        used: [usage.grp_used_tres, usage.grp_used_tres_run_secs],
        used_secs: usage.usage_tres_raw,
        grp: [record.grp_tres_ctld, record.grp_tres_mins_ctld, record.grp_tres_run_mins_ctld],
        max: [record.max_tres_ctld, record.max_tres_pn_ctld, record.max_tres_mins_ctld],
        max_of_qos: [ptr::null(); 2],
    };
    Association {
        account: some(record.acct).unwrap_or_default(),
        parent: parent.filter(|_| user.is_none()),
        shares_norm: (number(usage.level_shares).is_some() && !is_root)
            .then(|| value(usage.shares_norm))
            .flatten(),
        usage_raw: value(usage.usage_raw.to_f64()).unwrap_or(0.0),
        usage_norm: value(usage.usage_norm.to_f64()),
        usage_efctv: value(usage.usage_efctv.to_f64()),
        fairshare: value(usage.fs_factor).filter(|factor| user.is_some() && *factor > 0.0),
        level_fs: value(usage.level_fs.to_f64()).filter(|_| matches!(shares, SharesRaw::Shares(_))),
        shares,
        user: user.map(|name| AssociationUser { name, id: number(record.uid) }),
        partition: some(record.partition),
        use_and_limits: UseAndLimits {
            jobs_running: usage.used_jobs,
            jobs_submitted: usage.used_submit_jobs,
            wall_used: value(usage.grp_used_wall).unwrap_or(0.0),
            grp_jobs: number(record.grp_jobs),
            grp_submit_jobs: number(record.grp_submit_jobs),
            grp_wall: number(record.grp_wall),
            max_jobs: number(record.max_jobs),
            max_submit_jobs: number(record.max_submit_jobs),
            max_wall_per_job: number(record.max_wall_pj),
            // SAFETY: the caller's promise.
            tres: unsafe { arrays.by_name(names) },
            ..UseAndLimits::default()
        },
    }
}

/// # Safety
/// As for [`from_reply`], but for one record.
unsafe fn qos(record: &slurmdb_qos_rec_t, names: &[String]) -> Option<QosUse> {
    // SAFETY: the caller promises NULL or libslurm's.
    let usage: &slurmdb_qos_usage_t = unsafe { record.usage.as_ref() }?;
    let arrays = Arrays {
        count: usage.tres_cnt,
        used: [usage.grp_used_tres, usage.grp_used_tres_run_secs],
        used_secs: usage.usage_tres_raw,
        grp: [record.grp_tres_ctld, record.grp_tres_mins_ctld, record.grp_tres_run_mins_ctld],
        max: [record.max_tres_pj_ctld, record.max_tres_pn_ctld, record.max_tres_mins_pj_ctld],
        max_of_qos: [record.max_tres_pu_ctld, record.max_tres_pa_ctld],
    };
    Some(QosUse {
        // SAFETY: the caller promises NULL or a string.
        name: unsafe { text(record.name) }.unwrap_or_default(),
        usage_raw: value(usage.usage_raw.to_f64()).unwrap_or(0.0),
        use_and_limits: UseAndLimits {
            jobs_running: usage.grp_used_jobs,
            jobs_submitted: usage.grp_used_submit_jobs,
            wall_used: value(usage.grp_used_wall).unwrap_or(0.0),
            grp_jobs: number(record.grp_jobs),
            grp_submit_jobs: number(record.grp_submit_jobs),
            grp_wall: number(record.grp_wall),
            max_jobs_per_user: number(record.max_jobs_pu),
            max_jobs_per_account: number(record.max_jobs_pa),
            max_submit_jobs_per_user: number(record.max_submit_jobs_pu),
            max_submit_jobs_per_account: number(record.max_submit_jobs_pa),
            max_wall_per_job: number(record.max_wall_pj),
            // SAFETY: the caller's promise.
            tres: unsafe { arrays.by_name(names) },
            ..UseAndLimits::default()
        },
    })
}

/// The arrays of one record: each is NULL or has a number for each TRES.
struct Arrays<L> {
    count: u32,
    /// Allocated; seconds that running jobs may still use.
    used: [*const u64; 2],
    used_secs: *const L,
    /// At once, minutes, minutes of running jobs.
    grp: [*const u64; 3],
    /// Per job, per node, minutes per job.
    max: [*const u64; 3],
    /// Per user, per account.
    max_of_qos: [*const u64; 2],
}

impl<L: LongDouble> Arrays<L> {
    /// The TRES that are used, were used, or have a limit.
    ///
    /// # Safety
    /// Each array is NULL or has as many numbers as the count says.
    unsafe fn by_name(&self, names: &[String]) -> std::collections::BTreeMap<String, TresUse> {
        let numbers = |array: *const u64| {
            // SAFETY: the caller's promise.
            unsafe { slice(array, self.count, MAX_TRES) }
        };
        // SAFETY: the same.
        let used_secs = unsafe { slice(self.used_secs, self.count, MAX_TRES) };
        let tres = |place: usize| {
            let of = |array| numbers(array).get(place).copied().and_then(number64);
            let [used, run_secs] = self.used.map(|array| of(array).unwrap_or(0));
            let [grp, grp_mins, grp_run_mins] = self.grp.map(of);
            let [max_per_job, max_per_node, max_mins_per_job] = self.max.map(of);
            let [max_per_user, max_per_account] = self.max_of_qos.map(of);
            let used_secs = used_secs.get(place).map_or(0, |secs| whole(secs.to_f64()));
            TresUse {
                used,
                used_secs,
                run_secs,
                grp,
                grp_mins,
                grp_run_mins,
                max_per_job,
                max_per_node,
                max_mins_per_job,
                max_per_user,
                max_per_account,
            }
        };
        let all = names.iter().enumerate().map(|(place, name)| (name.clone(), tres(place)));
        all.filter(|(_, tres)| *tres != TresUse::default()).collect()
    }
}

/// A float; `None` if it is a value that means none or no limit, or not a number.
fn value(value: f64) -> Option<f64> {
    const NO_VAL64: f64 = 18_446_744_073_709_551_614.0;
    let is_none = value == f64::from(NO_VAL) || value == f64::from(u32::MAX) || value >= NO_VAL64;
    (value.is_finite() && !is_none).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_that_mean_none_are_none_and_others_stay() {
        for none in [4_294_967_294.0, 4_294_967_295.0, 1.844_674_407_370_955_2e19, f64::INFINITY, f64::NAN] {
            assert_eq!(value(none), None, "{none}");
        }
        for some in [0.0, 1.0, 0.333, 5e9, -1.0] {
            assert_eq!(value(some), Some(some));
        }
    }

    fn seen(record: &slurmdb_assoc_rec_t, names: &[String]) -> Association {
        // SAFETY: its usage is one of this test's.
        let usage = unsafe { record.usage.as_ref() }.unwrap();
        // SAFETY: its strings are NULL or literals, and its arrays NULL or as long as the usage says.
        unsafe { association(record, usage, names) }
    }

    #[test]
    fn limits_that_are_not_set_and_tres_that_nobody_has_used_are_not_there() {
        let mut usage =
            slurmdb_assoc_usage { tres_cnt: 3, fs_factor: 0.5, level_shares: 4, ..Default::default() };
        let mut used = [2, 0, 0];
        let mut limits = [u64::MAX, 0xffff_ffff_ffff_fffe, 64];
        usage.grp_used_tres = used.as_mut_ptr();
        let mut record = slurmdb_assoc_rec_t {
            acct: c"physics".as_ptr().cast_mut(),
            user: c"ann".as_ptr().cast_mut(),
            uid: NO_VAL,
            shares_raw: USE_PARENT,
            grp_jobs: u32::MAX,
            max_jobs: 0,
            grp_tres_ctld: limits.as_mut_ptr(),
            usage: &raw mut usage,
            ..Default::default()
        };
        let names = ["cpu", "mem", "gres/gpu"].map(str::to_owned);
        let seen_once = seen(&record, &names);
        let limits = &seen_once.use_and_limits;
        assert_eq!((limits.grp_jobs, limits.max_jobs), (None, Some(0)), "a limit of 0 is a limit");
        let expected = [
            ("cpu".to_owned(), TresUse { used: 2, ..TresUse::default() }),
            ("gres/gpu".to_owned(), TresUse { grp: Some(64), ..TresUse::default() }),
        ];
        assert_eq!(limits.tres, expected.into());
        assert_eq!(seen_once.user, Some(AssociationUser { name: "ann".to_owned(), id: None }));
        assert_eq!((seen_once.shares, seen_once.level_fs), (SharesRaw::Parent, None));
        assert_eq!(seen_once.fairshare, Some(0.5));

        record.user = std::ptr::null_mut();
        let root = seen(&record, &names);
        assert_eq!((root.shares, root.shares_norm, root.fairshare), (SharesRaw::None, None, None));
    }

    #[test]
    fn a_reply_of_nothing_has_no_associations() {
        let reply = assoc_mgr_info_msg_t { tres_cnt: u32::MAX, ..Default::default() };
        // SAFETY: the lists and the names are NULL.
        assert_eq!(unsafe { from_reply(&reply, true) }, Associations::default());
    }
}
