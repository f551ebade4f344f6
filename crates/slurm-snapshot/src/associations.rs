//! Associations and QOS, from the reply of `slurm_load_assoc_mgr_info`: shares, usage and limits,
//! as sshare and sacctmgr show them.
//!
//! A figure that slurmctld has not calculated, or that is infinite, is `None`: sshare prints
//! nothing or `inf` for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All associations of this cluster, and all QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Associations {
    /// Number of associations in the reply, also of those that were not requested.
    pub records: u64,
    /// The accounts, and if requested the associations of users, in slurmctld's order, which is
    /// that of the tree.
    pub associations: Vec<Association>,
    /// All QOS, in slurmctld's order.
    pub qos: Vec<QosUse>,
}

/// An association: an account, or a user in an account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Association {
    /// Name of the account.
    pub account: String,
    /// The user; `None` for an account.
    pub user: Option<AssociationUser>,
    /// The partition that the association is limited to; `None`: all of them.
    pub partition: Option<String>,
    /// RawShares: the association's share among its siblings. `None` for the root association, and
    /// for an association that uses its parent's share.
    pub shares_raw: Option<u32>,
    /// NormShares: RawShares divided by the sum of RawShares of all siblings. `None` for the root
    /// association.
    pub shares_norm: Option<f64>,
    /// RawUsage: TRES-seconds, weighted by TRESBillingWeights, after decay.
    pub usage_raw: Option<f64>,
    /// NormUsage: RawUsage divided by that of the cluster.
    pub usage_norm: Option<f64>,
    /// EffectvUsage: the usage that counts against the association's share.
    pub usage_efctv: Option<f64>,
    /// The fairshare factor of a user, at most 1. `None` for an account, and while the factor is 0,
    /// as it is before slurmctld has calculated it.
    pub fairshare: Option<f64>,
    /// LevelFS: the association's share divided by its usage, among its siblings. `None` without
    /// Fair Tree, if `shares_raw` is `None`, and if nothing was used, because it is infinite then.
    pub level_fs: Option<f64>,
    /// Use and limits of the association.
    pub use_and_limits: UseAndLimits,
}

/// The user of an association.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssociationUser {
    /// Name of the user.
    pub name: String,
    /// The user id; `None` if slurmctld's host does not know the user.
    pub id: Option<u32>,
}

/// A QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosUse {
    /// Name of the QOS.
    pub name: String,
    /// RawUsage: TRES-seconds, weighted by TRESBillingWeights, after decay.
    pub usage_raw: Option<f64>,
    /// Use and limits of the QOS.
    pub use_and_limits: UseAndLimits,
}

as_array! {
    /// The current use of an association or a QOS, and its limits; a limit that is not set is
    /// `None`.
    #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct UseAndLimits {
        /// Number of running jobs; `None` if slurmctld does not count them, because
        /// AccountingStorageEnforce lacks `limits`.
        pub jobs_running: Option<u32>,
        /// Number of running and pending jobs; `None` as for running jobs.
        pub jobs_submitted: Option<u32>,
        /// Wall time of all jobs after decay, s.
        pub wall_used: Option<f64>,
        /// The limit GrpJobs: running jobs.
        pub grp_jobs: Option<u32>,
        /// The limit GrpSubmitJobs: running and pending jobs.
        pub grp_submit_jobs: Option<u32>,
        /// The limit GrpWall: wall time of all jobs together, min.
        pub grp_wall: Option<u32>,
        /// The limit MaxJobs of an association: running jobs.
        pub max_jobs: Option<u32>,
        /// The limit MaxSubmitJobs of an association: running and pending jobs.
        pub max_submit_jobs: Option<u32>,
        /// The limit MaxJobsPU of a QOS: running jobs of each user.
        pub max_jobs_per_user: Option<u32>,
        /// The limit MaxJobsPA of a QOS: running jobs of each account.
        pub max_jobs_per_account: Option<u32>,
        /// The limit MaxSubmitPU of a QOS: running and pending jobs of each user.
        pub max_submit_jobs_per_user: Option<u32>,
        /// The limit MaxSubmitPA of a QOS: running and pending jobs of each account.
        pub max_submit_jobs_per_account: Option<u32>,
        /// The limit MaxWall: wall time of one job, min.
        pub max_wall_per_job: Option<u32>,
        /// Use and limits by TRES, in Slurm's words (`cpu`, `mem`, `gres/gpu`): the TRES that are
        /// used, were used, or have a limit.
        pub tres: BTreeMap<String, TresUse>,
    }
}

as_array! {
    /// Use and limits of one TRES: memory in MiB, everything else as Slurm counts it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct TresUse {
        /// Amount allocated to running jobs; `None` if slurmctld does not count it, because
        /// AccountingStorageEnforce lacks `limits`.
        pub used: Option<u64>,
        /// TRES-seconds used, after decay.
        pub used_secs: Option<u64>,
        /// TRES-seconds that running jobs may still use, by their time limits; `None` as for
        /// `used`.
        pub run_secs: Option<u64>,
        /// The limit GrpTRES: amount for all running jobs together.
        pub grp: Option<u64>,
        /// The limit GrpTRESMins: TRES-minutes of all jobs together, also those that were used.
        pub grp_mins: Option<u64>,
        /// The limit GrpTRESRunMins: TRES-minutes that running jobs may still use.
        pub grp_run_mins: Option<u64>,
        /// The limit MaxTRES: amount for one job.
        pub max_per_job: Option<u64>,
        /// The limit MaxTRESPerNode: amount for one job on each of its nodes.
        pub max_per_node: Option<u64>,
        /// The limit MaxTRESMins: TRES-minutes of one job.
        pub max_mins_per_job: Option<u64>,
        /// The limit MaxTRESPU of a QOS: amount for each user.
        pub max_per_user: Option<u64>,
        /// The limit MaxTRESPA of a QOS: amount for each account.
        pub max_per_account: Option<u64>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_comes_back_where_it_was_from_an_array() {
        let tres = TresUse {
            used: Some(1),
            used_secs: Some(2),
            run_secs: Some(3),
            grp: Some(4),
            grp_mins: Some(5),
            grp_run_mins: Some(6),
            max_per_job: Some(7),
            max_per_node: Some(8),
            max_mins_per_job: Some(9),
            max_per_user: Some(10),
            max_per_account: None,
        };
        let limits = UseAndLimits {
            jobs_running: Some(1),
            jobs_submitted: Some(2),
            wall_used: Some(3.5),
            grp_jobs: Some(4),
            grp_submit_jobs: Some(5),
            grp_wall: Some(6),
            max_jobs: Some(7),
            max_submit_jobs: None,
            max_jobs_per_user: Some(9),
            max_jobs_per_account: Some(10),
            max_submit_jobs_per_user: Some(11),
            max_submit_jobs_per_account: Some(12),
            max_wall_per_job: Some(13),
            tres: [("cpu".to_owned(), tres)].into(),
        };
        let line = serde_json::to_string(&limits).unwrap();
        let array = r#"[1,2,3.5,4,5,6,7,null,9,10,11,12,13,{"cpu":[1,2,3,4,5,6,7,8,9,10,null]}]"#;
        assert_eq!(line, array);
        assert_eq!(serde_json::from_str::<UseAndLimits>(&line).unwrap(), limits);
    }
}
