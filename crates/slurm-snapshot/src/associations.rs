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
    /// Records in the reply, without the QOS.
    pub records: u64,
    /// In slurmctld's order, which is that of the tree: accounts, and users' associations if
    /// requested.
    pub associations: Vec<Association>,
    /// In slurmctld's order.
    pub qos: Vec<QosUse>,
}

/// An account, or a user in an account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Association {
    /// The account.
    pub account: String,
    /// The user; `None` for an account.
    pub user: Option<AssociationUser>,
    /// The partition it is limited to; `None`: all of them.
    pub partition: Option<String>,
    /// RawShares: its share among its siblings; `None` for the root association, and for one that
    /// uses its parent's.
    pub shares_raw: Option<u32>,
    /// Its RawShares divided by those of all its siblings.
    pub shares_norm: Option<f64>,
    /// TRES-seconds, weighted by TRESBillingWeights, after decay.
    pub usage_raw: Option<f64>,
    /// RawUsage divided by that of the cluster.
    pub usage_norm: Option<f64>,
    /// The usage that counts against its share.
    pub usage_efctv: Option<f64>,
    /// The fairshare factor of a user: 0 to 1.
    pub fairshare: Option<f64>,
    /// Its share divided by its usage, among its siblings; `None` if nothing was used, because it
    /// is infinite then.
    pub level_fs: Option<f64>,
    /// Its jobs and limits.
    pub use_and_limits: UseAndLimits,
}

/// The user of an association.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssociationUser {
    /// The name.
    pub name: String,
    /// The user id; `None` if slurmctld's host does not know the user.
    pub id: Option<u32>,
}

/// A QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosUse {
    /// Its name.
    pub name: String,
    /// As in an association.
    pub usage_raw: Option<f64>,
    /// Its jobs and limits.
    pub use_and_limits: UseAndLimits,
}

as_array! {
    /// The current use, and the limits; a limit that is not set is `None`.
    #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct UseAndLimits {
        /// Running jobs; `None` if slurmctld does not count them, because AccountingStorageEnforce
        /// lacks `limits`.
        pub jobs_running: Option<u32>,
        /// Running and pending jobs; like the former.
        pub jobs_submitted: Option<u32>,
        /// Wall time of its jobs after decay, s.
        pub wall_used: Option<f64>,
        /// GrpJobs.
        pub grp_jobs: Option<u32>,
        /// GrpSubmitJobs.
        pub grp_submit_jobs: Option<u32>,
        /// GrpWall, min.
        pub grp_wall: Option<u32>,
        /// MaxJobs of an association.
        pub max_jobs: Option<u32>,
        /// MaxSubmitJobs of an association.
        pub max_submit_jobs: Option<u32>,
        /// MaxJobsPU of a QOS.
        pub max_jobs_per_user: Option<u32>,
        /// MaxJobsPA of a QOS.
        pub max_jobs_per_account: Option<u32>,
        /// MaxSubmitPU of a QOS.
        pub max_submit_jobs_per_user: Option<u32>,
        /// MaxSubmitPA of a QOS.
        pub max_submit_jobs_per_account: Option<u32>,
        /// MaxWall of one job, min.
        pub max_wall_per_job: Option<u32>,
        /// By TRES, in Slurm's words (`cpu`, `mem`, `gres/gpu`): those that are used, were used, or
        /// have a limit.
        pub tres: BTreeMap<String, TresUse>,
    }
}

as_array! {
    /// One TRES: memory in MiB, everything else as Slurm counts it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct TresUse {
        /// Allocated to running jobs; `None` if slurmctld does not count that.
        pub used: Option<u64>,
        /// TRES-seconds used, after decay.
        pub used_secs: Option<u64>,
        /// TRES-seconds that running jobs may still use, by their time limits; like `used`.
        pub run_secs: Option<u64>,
        /// GrpTRES.
        pub grp: Option<u64>,
        /// GrpTRESMins.
        pub grp_mins: Option<u64>,
        /// GrpTRESRunMins.
        pub grp_run_mins: Option<u64>,
        /// MaxTRES of one job.
        pub max_per_job: Option<u64>,
        /// MaxTRESPerNode of one job.
        pub max_per_node: Option<u64>,
        /// MaxTRESMins of one job.
        pub max_mins_per_job: Option<u64>,
        /// MaxTRESPU of a QOS.
        pub max_per_user: Option<u64>,
        /// MaxTRESPA of a QOS.
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
