//! Lists: licences, reservations and controllers; also PrivateData.
//!
//! A list is limited in length if a cluster may have any number of its items.

use serde::{Deserialize, Serialize};

/// More kinds of licences than this are not listed.
const MAX_LICENSES: usize = 10_000;

/// More reservations than this are not listed.
const MAX_RESERVATIONS: usize = 1000;

/// Licences that slurmctld manages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licenses {
    /// Moment at which slurmctld wrote the reply: Unix seconds on its clock. The `since` of the
    /// next request.
    pub last_update: i64,
    /// In slurmctld's order.
    pub licenses: Vec<License>,
}

/// One kind of licence, or one layer of a hierarchical resource, whose layers all have the same
/// name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct License {
    /// Its name.
    pub name: String,
    /// The nodes of a layer, as a hostlist expression. A reader older than 25.05 sees the layers
    /// without their nodes.
    pub nodes: Option<String>,
    /// Number of licences; `None` if there is no limit.
    pub total: Option<u32>,
    /// Held by jobs.
    pub used: Option<u32>,
    /// Number of licences that are available; `None` if there is no limit.
    pub free: Option<u32>,
    /// Set aside by reservations.
    pub reserved: Option<u32>,
    /// Counted by slurmdbd for several clusters.
    pub remote: bool,
    /// Number of licences of a remote one that were in use in total when its server was asked last;
    /// `None` before 23.02.
    pub last_consumed: Option<u32>,
    /// Number of these that neither this cluster nor what is kept for others explains, for a remote
    /// one; `None` before 23.02.
    pub last_deficit: Option<u32>,
}

impl Licenses {
    /// Adds one, if there is still room. Of one without limit it is not known how many are
    /// available.
    pub fn add(&mut self, license: License) {
        if self.licenses.len() < MAX_LICENSES {
            self.licenses.push(License { free: license.total.and(license.free), ..license });
        }
    }
}

/// Reservations of nodes, cores or licences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservations {
    /// Moment at which slurmctld wrote the reply: Unix seconds on its clock. The `since` of the
    /// next request.
    pub last_update: i64,
    /// The first 1,000, in slurmctld's order.
    pub reservations: Vec<Reservation>,
}

impl Reservations {
    /// Lists one if there is still room.
    pub fn add(&mut self, reservation: Reservation) {
        if self.reservations.len() < MAX_RESERVATIONS {
            self.reservations.push(reservation);
        }
    }
}

/// One reservation. It is active while `start_time <= now < end_time`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// Its name.
    pub name: String,
    /// Nodes.
    pub nodes: Option<u32>,
    /// Cores.
    pub cores: Option<u32>,
    /// Unix seconds on slurmctld's clock.
    pub start_time: Option<i64>,
    /// Unix seconds on slurmctld's clock.
    pub end_time: Option<i64>,
    /// Whether it is for maintenance.
    pub maint: bool,
    /// Whether it has TIME_FLOAT: its start stays the same time ahead, so that it never begins.
    pub floats: bool,
}

/// One slurmctld, asked by `slurm_ping`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// 0 is the primary, 1 the first backup.
    pub index: u32,
    /// Whether it answered.
    pub up: bool,
    /// Time that it took to answer, or until the reader gave up, µs.
    pub elapsed: Option<u64>,
}

/// The controllers of SlurmctldHost before and behind this host, as its own libslurm knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ahead {
    /// SlurmctldHost, the primary first.
    pub hosts: Vec<String>,
    /// The index of this host among them; `None`: it is not one of them.
    pub own: Option<u32>,
    /// The index of one before it that answered a ping.
    pub answers: Option<u32>,
    /// The state of those behind it, which take over if this host's does not answer; `None`: there
    /// is none, or one before it answered.
    pub behind: Option<Behind>,
    /// SlurmctldTimeout, seconds: no backup takes over sooner.
    pub timeout: u16,
}

/// The state of the controllers behind this host when they were pinged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Behind {
    /// One answered.
    Answers,
    /// None answered, and the host of each said that nothing listens on slurmctld's port.
    Refuses,
    /// Neither.
    Silent,
}

/// The part that the reader's user may not see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visibility {
    /// The words in slurm.conf's PrivateData: `jobs`, `nodes`, `partitions`, `reservations`,
    /// `cloud` …
    pub private: Vec<String>,
    /// Whether the reader's user sees private data anyway: root, SlurmUser, or an operator in
    /// slurmdbd's records. `None` if slurmctld has not said; then do not rely on it.
    pub privileged: Option<bool>,
}

impl Visibility {
    /// Whether replies may lack some of `what`, a word of PrivateData.
    pub fn may_hide(&self, what: &str) -> bool {
        self.privileged != Some(true) && self.private.iter().any(|word| word == what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_known_to_see_everything_is_believed_to() {
        let visibility = |privileged| Visibility { private: vec!["jobs".to_owned()], privileged };
        assert!(visibility(None).may_hide("jobs"));
        assert!(visibility(Some(false)).may_hide("jobs"));
        assert!(!visibility(Some(true)).may_hide("jobs"));
        assert!(!visibility(Some(false)).may_hide("nodes"));
    }
}
