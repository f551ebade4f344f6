//! Lists: licences, reservations and controllers; also PrivateData.
//!
//! A list is limited in length if a cluster may have any number of its items.

use serde::{Deserialize, Serialize};

/// Number of kinds of licences that a reply lists at most.
const MAX_LICENSES: usize = 10_000;

/// Number of reservations that a reply lists at most.
const MAX_RESERVATIONS: usize = 1000;

/// Licences that slurmctld manages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licenses {
    /// Moment at which slurmctld wrote the reply: Unix seconds on its clock. The `since` of the
    /// next request.
    pub last_update: i64,
    /// The kinds of licences, at most 10,000, in slurmctld's order.
    pub licenses: Vec<License>,
}

/// One kind of licence, or one layer of a hierarchical resource, whose layers all have the same
/// name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct License {
    /// Name of the licence.
    pub name: String,
    /// The nodes of a layer of a hierarchical resource, as a hostlist expression. `None` for any
    /// other licence. A reader older than 25.05 sees the layers without their nodes.
    pub nodes: Option<String>,
    /// Number of licences; `None` if there is no limit.
    pub total: Option<u32>,
    /// Number of licences that jobs hold; `None` if slurmctld does not know it.
    pub used: Option<u32>,
    /// Number of licences that are available; `None` if there is no limit.
    pub free: Option<u32>,
    /// Number of licences that reservations set aside; `None` if slurmctld does not know it.
    pub reserved: Option<u32>,
    /// Whether the licence is a remote one, which slurmdbd counts for several clusters.
    pub remote: bool,
    /// Number of licences that all users of a remote licence had in use when its server was last
    /// asked. `None` for a local licence, and before 23.02.
    pub last_consumed: Option<u32>,
    /// Number of these licences in use that are explained neither by this cluster's jobs nor by
    /// what is kept for others. `None` for a local licence, and before 23.02.
    pub last_deficit: Option<u32>,
}

impl Licenses {
    /// Adds a kind of licence if the list has room. If its number is not limited, it is not known
    /// how many are available.
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
    /// The first 1,000 reservations, in slurmctld's order.
    pub reservations: Vec<Reservation>,
}

impl Reservations {
    /// Adds a reservation if the list has room.
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
    /// Name of the reservation.
    pub name: String,
    /// Number of nodes in the reservation; `None` if slurmctld does not know it.
    pub nodes: Option<u32>,
    /// Number of cores in the reservation; `None` if slurmctld does not know it.
    pub cores: Option<u32>,
    /// Moment at which the reservation begins: Unix seconds on slurmctld's clock.
    pub start_time: Option<i64>,
    /// Moment at which the reservation ends: Unix seconds on slurmctld's clock.
    pub end_time: Option<i64>,
    /// Whether the reservation is for maintenance (flag MAINT).
    pub maint: bool,
    /// Whether the reservation has the flag TIME_FLOAT: its start stays the same time ahead, so
    /// that it never begins.
    pub floats: bool,
}

/// One slurmctld, asked by `slurm_ping`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Index of the controller in SlurmctldHost: 0 is the primary, 1 the first backup.
    pub index: u32,
    /// Whether the controller answered the ping.
    pub up: bool,
    /// Time until the controller answered or the reader gave up, µs; `None` if slurmrestd does not
    /// report it.
    pub elapsed: Option<u64>,
}

/// The controllers of SlurmctldHost before and behind this host, from libslurm's own configuration
/// on this host, and whether they answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ahead {
    /// The names in SlurmctldHost, the primary first.
    pub hosts: Vec<String>,
    /// Index of this host in SlurmctldHost; `None` if it is not one of the controllers.
    pub own: Option<u32>,
    /// Index of a controller before this host that answered a ping; `None` if none did.
    pub answers: Option<u32>,
    /// Whether the controllers behind this host answer, which take over if this host's slurmctld
    /// does not. `None` if there are none, if this host is no controller, or if a controller before
    /// it answered.
    pub behind: Option<Behind>,
    /// SlurmctldTimeout, seconds: no backup takes over sooner.
    pub timeout: u16,
}

/// The state of the controllers behind this host when they were pinged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Behind {
    /// One of the controllers answered.
    Answers,
    /// No controller answered, and the host of each said that nothing listens on slurmctld's port.
    Refuses,
    /// No controller answered, and of at least one it is not known that nothing listens there.
    Silent,
}

/// The part of slurmctld's data that the reader's user may not see.
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
    /// Whether replies may lack some of the data that `what`, a word of PrivateData, hides.
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
