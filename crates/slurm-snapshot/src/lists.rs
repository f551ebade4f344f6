//! Lists: licences, reservations and controllers; also PrivateData.
//!
//! A list is bounded if a cluster may have any number of its items; the count next to it is not.

use serde::{Deserialize, Serialize};

/// Licences that slurmctld hands out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licenses {
    /// When slurmctld wrote the reply: Unix seconds on its clock. The `since` of the next request.
    pub last_update: i64,
    /// In slurmctld's order.
    pub licenses: Vec<License>,
}

/// One kind of licence, or one layer of a hierarchical resource: its layers have one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct License {
    /// Its name.
    pub name: String,
    /// The nodes of a layer, as a hostlist expression. A reader older than 25.05 sees the layers without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// All there are; `None` where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Held by jobs.
    pub used: u32,
    /// To be had; `None` where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u32>,
    /// Set aside by reservations.
    pub reserved: u32,
    /// Counted by slurmdbd for several clusters.
    pub remote: bool,
}

/// Reservations of nodes, cores or licences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservations {
    /// When slurmctld wrote the reply: Unix seconds on its clock. The `since` of the next request.
    pub last_update: i64,
    /// How many there are.
    pub count: u64,
    /// The first 1,000 of them, in slurmctld's order.
    pub reservations: Vec<Reservation>,
}

/// One reservation. It is active while `start_time <= now < end_time`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// Its name.
    pub name: String,
    /// Nodes.
    pub nodes: u32,
    /// Cores.
    pub cores: u32,
    /// Unix seconds on slurmctld's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<i64>,
    /// Unix seconds on slurmctld's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<i64>,
    /// For maintenance.
    pub maint: bool,
}

/// One slurmctld, asked by `slurm_ping`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Its host, as SlurmctldHost names it.
    pub host: String,
    /// 0 is the primary, 1 the first backup.
    pub index: u32,
    /// It answered.
    pub up: bool,
    /// How long it took to answer or to be given up, µs.
    pub elapsed: Option<u64>,
}

/// This host among the controllers of SlurmctldHost, as its own libslurm knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ahead {
    /// SlurmctldHost, the primary first.
    pub hosts: Vec<String>,
    /// Which of them this host is; `None`: none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<u32>,
    /// One before it that answered a ping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u32>,
    /// SlurmctldTimeout, seconds: no backup takes over sooner.
    pub timeout: u16,
}

/// What this caller may not see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visibility {
    /// What slurm.conf's PrivateData names, in its words: `jobs`, `nodes`, `partitions`, `reservations`, `cloud` …
    pub private: Vec<String>,
    /// Whether the reader's user sees private data all the same: root, SlurmUser, or an operator in slurmdbd's
    /// records. `None` where slurmctld has not said: then it is not to be relied on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
}

impl Visibility {
    /// Whether replies may lack some of `what`, a word of PrivateData.
    #[must_use]
    pub fn may_hide(&self, what: &str) -> bool {
        self.privileged != Some(true) && self.private.iter().any(|word| word == what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_known_to_see_everything_is_believed_to() {
        let of = |privileged| Visibility { private: vec!["jobs".to_owned()], privileged };
        assert!(of(None).may_hide("jobs"));
        assert!(of(Some(false)).may_hide("jobs"));
        assert!(!of(Some(true)).may_hide("jobs"));
        assert!(!of(Some(false)).may_hide("nodes"));
    }
}
