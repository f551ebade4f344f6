//! Associations and QOS, from the reply of `slurm_load_assoc_mgr_info`: shares, usage and limits, as sshare and
//! sacctmgr show them.
//!
//! A figure that slurmctld has not calculated, or that is infinite, is `None`: sshare prints nothing or `inf` for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All associations of this cluster, and all QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Associations {
    /// Records in the reply, without the QOS.
    pub records: u64,
    /// In slurmctld's order, which is that of the tree: accounts, and users' associations if requested.
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
    /// The account above it; `None` for root and for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The user; `None` for an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<AssociationUser>,
    /// The partition it is limited to; `None`: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Its share among its siblings.
    pub shares: SharesRaw,
    /// Its RawShares divided by those of all its siblings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares_norm: Option<f64>,
    /// TRES-seconds, weighted by TRESBillingWeights, after decay.
    pub usage_raw: f64,
    /// RawUsage divided by that of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_norm: Option<f64>,
    /// The usage that counts against its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_efctv: Option<f64>,
    /// The fairshare factor of a user: 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairshare: Option<f64>,
    /// Its share divided by its usage, among its siblings; `None` if nothing was used, because it is infinite then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
}

/// RawShares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharesRaw {
    /// The root association has none.
    #[default]
    None,
    /// It uses the shares of its parent.
    Parent,
    /// This number of shares.
    Shares(u32),
}

/// A QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosUse {
    /// Its name.
    pub name: String,
    /// As in an association.
    pub usage_raw: f64,
    /// Its jobs and limits.
    pub use_and_limits: UseAndLimits,
}

/// The current use, and the limits; a limit that is not set is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UseAndLimits {
    /// Running jobs.
    pub jobs_running: u32,
    /// Running and pending jobs.
    pub jobs_submitted: u32,
    /// Wall time of its jobs after decay, s.
    pub wall_used: f64,
    /// GrpJobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grp_jobs: Option<u32>,
    /// GrpSubmitJobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grp_submit_jobs: Option<u32>,
    /// GrpWall, min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grp_wall: Option<u32>,
    /// MaxJobs of an association.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs: Option<u32>,
    /// MaxSubmitJobs of an association.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_submit_jobs: Option<u32>,
    /// MaxJobsPU of a QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs_per_user: Option<u32>,
    /// MaxJobsPA of a QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs_per_account: Option<u32>,
    /// MaxSubmitPU of a QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_submit_jobs_per_user: Option<u32>,
    /// MaxSubmitPA of a QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_submit_jobs_per_account: Option<u32>,
    /// MaxWall of one job, min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall_per_job: Option<u32>,
    /// By TRES, in Slurm's words (`cpu`, `mem`, `gres/gpu`): those that are used, were used, or have a limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tres: BTreeMap<String, TresUse>,
}

/// One TRES: memory in MiB, everything else as Slurm counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TresUse {
    /// Allocated to running jobs.
    pub used: u64,
    /// TRES-seconds used, after decay.
    pub used_secs: u64,
    /// TRES-seconds that running jobs may still use, by their time limits.
    pub run_secs: u64,
    /// GrpTRES.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grp: Option<u64>,
    /// GrpTRESMins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grp_mins: Option<u64>,
    /// GrpTRESRunMins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grp_run_mins: Option<u64>,
    /// MaxTRES of one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_job: Option<u64>,
    /// MaxTRESPerNode of one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_node: Option<u64>,
    /// MaxTRESMins of one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mins_per_job: Option<u64>,
    /// MaxTRESPU of a QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_user: Option<u64>,
    /// MaxTRESPA of a QOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_account: Option<u64>,
}
