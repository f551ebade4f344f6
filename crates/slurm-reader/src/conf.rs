//! `slurm_load_ctl_conf`: the cluster's name and PrivateData; also the controllers in libslurm's
//! own configuration.

use nix::unistd::Uid;
use slurm_snapshot::{Visibility, flag_words};
use slurm_sys::slurm_conf_t;

use crate::unpacked::Unpacked;
use crate::values::{lossy, text};

/// The words of PrivateData in slurm.conf, by bit.
const PRIVATE: [&str; 9] = [
    "jobs",
    "nodes",
    "partitions",
    "usage",
    "users",
    "accounts",
    "reservations",
    "cloud",
    "events",
];

/// `ACCOUNTING_ENFORCE_LIMITS`: the bit for `limits` in AccountingStorageEnforce.
const ENFORCE_LIMITS: u16 = 2;

/// The parts of slurmctld's configuration that are needed here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Moment at which slurmctld wrote the reply: Unix seconds on its clock. The `since` of the
    /// next request.
    pub last_update: i64,
    /// ClusterName; `None` if slurmctld sent none.
    pub cluster: Option<String>,
    /// The part that this process's user may not see. `privileged` is `None` if slurmdbd decides.
    pub visibility: Visibility,
    /// Whether AccountingStorageType is slurmdbd, so that there are associations.
    pub slurmdbd: bool,
    /// Whether slurmctld counts what associations use: AccountingStorageEnforce has `limits`.
    pub limits: bool,
}

impl Conf {
    /// Whether another configuration is this one, sent again.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        *self == Self { last_update: self.last_update, ..other.clone() }
    }

    /// Whether slurmdbd decides what this user may see: its decision may change at any time.
    pub(crate) fn depends_on_slurmdbd(&self) -> bool {
        self.visibility.privileged.is_none() && !self.visibility.private.is_empty()
    }
}

/// Copies the needed parts of slurmctld's configuration.
pub(crate) fn from_reply(reply: Unpacked<'_, slurm_conf_t>) -> Conf {
    let accounting = text(reply.accounting_storage_type());
    let privileged =
        privileged(Uid::effective().as_raw(), reply.slurm_user_id, accounting.as_deref());
    Conf {
        last_update: reply.last_update,
        cluster: text(reply.cluster_name()),
        visibility: Visibility { private: private(reply.private_data), privileged },
        limits: reply.accounting_storage_enforce & ENFORCE_LIMITS != 0,
        slurmdbd: accounting.is_some_and(|plugin| plugin.ends_with("/slurmdbd")),
    }
}

/// Returns the names of the hosts in SlurmctldHost, the primary first.
pub(crate) fn controllers(conf: Unpacked<'_, slurm_conf_t>) -> Vec<String> {
    conf.control_machine().map(lossy).collect()
}

fn private(bits: u16) -> Vec<String> {
    flag_words(bits.into(), |bit| PRIVATE.get(usize::try_from(bit).ok()?).copied())
}

/// Whether this user sees what PrivateData hides, as root and SlurmUser do. Operators are defined
/// in slurmdbd: without slurmdbd there are none, and with it the answer is `None`, and
/// [`crate::rpcs::Rpcs::operator`] asks.
fn privileged(me: u32, slurm_user: u32, accounting: Option<&str>) -> Option<bool> {
    if me == 0 || me == slurm_user {
        return Some(true);
    }
    let has_operators = accounting.is_some_and(|kind| kind.contains("slurmdbd"));
    if has_operators { None } else { Some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked::made;

    #[test]
    fn privileges_are_claimed_only_where_they_are_certain() {
        assert_eq!(privileged(0, 64030, Some("accounting_storage/slurmdbd")), Some(true));
        assert_eq!(privileged(64030, 64030, None), Some(true));
        assert_eq!(privileged(1000, 64030, Some("accounting_storage/slurmdbd")), None);
        assert_eq!(privileged(1000, 64030, Some("accounting_storage/none")), Some(false));
        assert_eq!(privileged(1000, 64030, None), Some(false));
    }

    #[test]
    fn what_is_private_is_said_in_the_words_of_slurm_conf() {
        assert_eq!(private(0b0100_0011), ["jobs", "nodes", "reservations"]);
        assert_eq!(private(0x8080), ["cloud", "other"]);
    }

    #[test]
    fn a_configuration_of_nothing_is_no_harm() {
        let reply = slurm_conf_t { control_cnt: u32::MAX, ..Default::default() };
        let conf = from_reply(made(&reply));
        assert_eq!((conf.cluster, conf.visibility.private), (None, vec![]));
        assert_eq!(controllers(made(&reply)), [""; 0]);
    }
}
