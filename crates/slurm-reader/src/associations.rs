//! Associations and QOS of `slurm_load_assoc_mgr_info`: shares, usage and limits, one RPC for all
//! of them.
//!
//! In every type of number, floats included, slurmctld uses two values for "none" and "no limit";
//! both become `None` here.

use std::collections::BTreeMap;

use slurm_snapshot::tres::whole;
use slurm_snapshot::{
    Association, AssociationUser, Associations, QosUse, TresUse, UseAndLimits, one_more,
};
use slurm_sys::{
    assoc_mgr_info_msg_t, slurmdb_assoc_rec_t, slurmdb_assoc_usage, slurmdb_qos_rec_t,
};

use crate::long_double::LongDouble;
use crate::unpacked::Unpacked;
use crate::values::{NO_VAL, name, number, number64, text};

/// `SLURMDB_FS_USE_PARENT`: the association uses the shares of its parent.
const USE_PARENT: u32 = 0x7fff_ffff;

/// Copies the accounts and QOS of the reply, and with `users` the associations of users. Without
/// `limits` slurmctld does not count what they use, and these counts are `None`.
pub(crate) fn from_reply(
    reply: Unpacked<'_, assoc_mgr_info_msg_t>,
    users: bool,
    limits: bool,
) -> Associations {
    let names: Vec<String> = reply.tres_names().map(name).collect();
    let mut all = Associations::default();
    let mut is_fair_tree = false;
    for record in reply.assoc_list() {
        one_more(&mut all.records);
        let Some(usage) = record.usage() else { continue };
        is_fair_tree |= usage.fs_factor > 0.0;
        if users || record.user.is_null() {
            all.associations.push(association(record, usage, &names, limits));
        }
    }
    all.qos.extend(reply.qos_list().into_iter().filter_map(|record| qos(record, &names, limits)));
    if !is_fair_tree {
        // Without FAIR_TREE in PriorityFlags, and before the first calculation, it is 0 and means
        // nothing.
        all.associations.iter_mut().for_each(|association| association.level_fs = None);
    }
    all
}

/// Builds a [`UseAndLimits`]. It reads the members that associations and QOS share; the caller
/// gives those that only one of them has, or that have another name there.
macro_rules! use_and_limits {
    ($record:ident, $usage:ident, $names:ident, $counts:ident: tres {
        $($limit:ident: $ctld:ident),+ } $($member:ident: $value:expr,)+) => {{
        let of_both = |index| TresUse {
            used: used($usage.grp_used_tres(), index).filter(|_| $counts),
            used_secs: seconds($usage.usage_tres_raw(), index),
            run_secs: used($usage.grp_used_tres_run_secs(), index).filter(|_| $counts),
            grp: at($record.grp_tres_ctld(), index),
            grp_mins: at($record.grp_tres_mins_ctld(), index),
            grp_run_mins: at($record.grp_tres_run_mins_ctld(), index),
            max_per_node: at($record.max_tres_pn_ctld(), index),
            ..TresUse::default()
        };
        UseAndLimits {
            wall_used: value($usage.grp_used_wall),
            grp_jobs: number($record.grp_jobs),
            grp_submit_jobs: number($record.grp_submit_jobs),
            grp_wall: number($record.grp_wall),
            max_wall_per_job: number($record.max_wall_pj),
            tres: by_name($names, |index| TresUse { $($limit: at($record.$ctld(),
                index),)+ ..of_both(index) }),
            $($member: $value,)+
            ..UseAndLimits::default()
        }
    }};
}

pub(crate) fn association(
    record: Unpacked<'_, slurmdb_assoc_rec_t>,
    usage: Unpacked<'_, slurmdb_assoc_usage>,
    names: &[String],
    limits: bool,
) -> Association {
    let user = text(record.user());
    let is_root = user.is_none() && text(record.parent_acct()).is_none();
    let shares_raw = number(record.shares_raw).filter(|shares| !is_root && *shares != USE_PARENT);
    Association {
        account: name(record.acct()),
        shares_norm: (number(usage.level_shares).is_some() && !is_root)
            .then(|| value(usage.shares_norm))
            .flatten(),
        usage_raw: value(usage.usage_raw.to_f64()),
        usage_norm: value(usage.usage_norm.to_f64()),
        usage_efctv: value(usage.usage_efctv.to_f64()),
        fairshare: value(usage.fs_factor).filter(|factor| user.is_some() && *factor > 0.0),
        level_fs: value(usage.level_fs.to_f64()).filter(|_| shares_raw.is_some()),
        shares_raw,
        user: user.map(|name| AssociationUser { name, id: number(record.uid) }),
        partition: text(record.partition()),
        use_and_limits: use_and_limits! { record, usage, names, limits:
            tres { max_per_job: max_tres_ctld, max_mins_per_job: max_tres_mins_ctld }
            jobs_running: number(usage.used_jobs).filter(|_| limits),
            jobs_submitted: number(usage.used_submit_jobs).filter(|_| limits),
            max_jobs: number(record.max_jobs),
            max_submit_jobs: number(record.max_submit_jobs),
        },
    }
}

fn qos(record: Unpacked<'_, slurmdb_qos_rec_t>, names: &[String], limits: bool) -> Option<QosUse> {
    let usage = record.usage()?;
    Some(QosUse {
        name: name(record.name()),
        usage_raw: value(usage.usage_raw.to_f64()),
        use_and_limits: use_and_limits! { record, usage, names, limits:
            tres {
                max_per_job: max_tres_pj_ctld, max_mins_per_job: max_tres_mins_pj_ctld,
                    max_per_user: max_tres_pu_ctld,
                max_per_account: max_tres_pa_ctld
            }
            jobs_running: number(usage.grp_used_jobs).filter(|_| limits),
            jobs_submitted: number(usage.grp_used_submit_jobs).filter(|_| limits),
            max_jobs_per_user: number(record.max_jobs_pu),
            max_jobs_per_account: number(record.max_jobs_pa),
            max_submit_jobs_per_user: number(record.max_submit_jobs_pu),
            max_submit_jobs_per_account: number(record.max_submit_jobs_pa),
        },
    })
}

/// Returns the TRES by name that are used, were used, or have a limit. `tres` reads one by its
/// index.
fn by_name(names: &[String], tres: impl Fn(usize) -> TresUse) -> BTreeMap<String, TresUse> {
    let all = names.iter().enumerate().map(|(index, name)| (name.clone(), tres(index)));
    let is_seen = |tres: &TresUse| {
        let used = tres.used.filter(|used| *used > 0);
        let run_secs = tres.run_secs.filter(|secs| *secs > 0);
        let used_secs = tres.used_secs.filter(|secs| *secs > 0);
        TresUse { used, run_secs, used_secs, ..*tres } != TresUse::default()
    };
    all.filter(|(_, tres)| is_seen(tres)).collect()
}

/// Returns the limit of the TRES with this index; `None` if it is not set, or the array is empty.
fn at(array: &[u64], index: usize) -> Option<u64> {
    array.get(index).copied().and_then(number64)
}

/// Returns the used amount of the TRES with this index; 0 if slurmctld sent no array.
fn used(array: &[u64], index: usize) -> Option<u64> {
    array.get(index).map_or(Some(0), |used| number64(*used))
}

fn seconds(array: &[impl LongDouble], index: usize) -> Option<u64> {
    array.get(index).map_or(Some(0), |seconds| value(seconds.to_f64()).map(whole))
}

/// Returns a float of the reply; `None` if it is a value that means none or no limit, infinite, or
/// not a number.
fn value(value: f64) -> Option<f64> {
    const NO_VAL64: f64 = 18_446_744_073_709_551_614.0;
    let is_none = value == f64::from(NO_VAL) || value == f64::from(u32::MAX) || value >= NO_VAL64;
    (value.is_finite() && !is_none).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked::made;

    #[test]
    fn floats_that_mean_none_are_none_and_others_stay() {
        for none in
            [4_294_967_294.0, 4_294_967_295.0, 1.844_674_407_370_955_2e19, f64::INFINITY, f64::NAN]
        {
            assert_eq!(value(none), None, "{none}");
        }
        for some in [0.0, 1.0, 0.333, 5e9, -1.0] {
            assert_eq!(value(some), Some(some));
        }
    }

    fn seen(record: &slurmdb_assoc_rec_t, names: &[String]) -> Association {
        let record = made(record);
        association(record, record.usage().unwrap(), names, true)
    }

    #[test]
    fn limits_that_are_not_set_and_tres_that_nobody_has_used_are_not_there() {
        let mut usage = slurmdb_assoc_usage {
            tres_cnt: 3,
            fs_factor: 0.5,
            level_shares: 4,
            ..Default::default()
        };
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
        let nothing =
            TresUse { used: Some(0), used_secs: Some(0), run_secs: Some(0), ..TresUse::default() };
        let expected = [
            ("cpu".to_owned(), TresUse { used: Some(2), ..nothing }),
            ("gres/gpu".to_owned(), TresUse { grp: Some(64), ..nothing }),
        ];
        assert_eq!(limits.tres, expected.into());
        assert_eq!(seen_once.user, Some(AssociationUser { name: "ann".to_owned(), id: None }));
        assert_eq!((seen_once.shares_raw, seen_once.level_fs), (None, None), "its parent's");
        assert_eq!(seen_once.fairshare, Some(0.5));

        record.user = std::ptr::null_mut();
        let root = seen(&record, &names);
        assert_eq!((root.shares_raw, root.shares_norm, root.fairshare), (None, None, None));
    }

    /// Without `limits` in AccountingStorageEnforce slurmctld leaves these counters at 0 (seen: an
    /// account with 7 running jobs), so they are `None` then, not 0.
    #[test]
    fn what_slurmctld_does_not_count_is_no_zero() {
        let names = ["cpu", "mem"].map(str::to_owned);
        let mut limits = [64, u64::MAX];
        let mut usage = slurmdb_assoc_usage { tres_cnt: 2, ..Default::default() };
        let record = slurmdb_assoc_rec_t {
            grp_tres_ctld: limits.as_mut_ptr(),
            usage: &raw mut usage,
            ..Default::default()
        };
        let record = made(&record);
        let seen =
            |limits| association(record, record.usage().unwrap(), &names, limits).use_and_limits;
        let cpu = |limits| seen(limits).tres.remove("cpu").unwrap();
        let counts = |limits| {
            (
                seen(limits).jobs_running,
                seen(limits).jobs_submitted,
                cpu(limits).used,
                cpu(limits).run_secs,
            )
        };
        assert_eq!(counts(true), (Some(0), Some(0), Some(0), Some(0)));
        assert_eq!(counts(false), (None, None, None, None));
        assert_eq!((cpu(false).grp, seen(false).tres.len()), (Some(64), 1));
    }

    #[test]
    fn a_reply_of_nothing_has_no_associations() {
        let reply = assoc_mgr_info_msg_t { tres_cnt: u32::MAX, ..Default::default() };
        assert_eq!(from_reply(made(&reply), true, true), Associations::default());
    }
}
