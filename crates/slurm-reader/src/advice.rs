//! Advice where an administrator should look first, by Slurm's error number (slurm_errno.h).

use slurm_snapshot::errno as slurm;

use crate::accounting::ACCOUNTING_CONF;
use crate::listeners::TOKEN;

/// The advice for `errno`; `None` if there is none. `call` is the function that failed.
pub(crate) fn advice(call: &str, errno: i32) -> Option<&'static str> {
    if call.starts_with("slurmdb_") {
        return Some(of_slurmdbd(errno));
    }
    if call == TOKEN {
        return Some(
            "Find the program with `ss -ltnp`. Munge, or [slurm] rest over https:// or a socket, \
                needs no such check.",
        );
    }
    if call == ACCOUNTING_CONF {
        return Some(
            "Finished jobs and shares are in slurmdbd alone: slurm.conf's AccountingStorageType \
                must be accounting_storage/slurmdbd. Where there is none, leave out `--finished`, \
                and switch off [collectors.finished] and the others that read it.",
        );
    }
    Some(match errno {
        1001 | slurm::CTLD_COMMUNICATIONS_CONNECTION_ERROR => {
            "Is slurmctld running, and its port open to this host? Try `scontrol ping`."
        }
        slurm::PROTOCOL_AUTHENTICATION_ERROR => {
            "Is munged running here with the cluster's key, and are the clocks synchronized? Try \
                `munge -n | unmunge`."
        }
        slurm::PROTOCOL_SOCKET_IMPL_TIMEOUT => {
            "slurmctld accepts connections but does not answer: is it stopped or overloaded?"
        }
        // The result of another cluster's munge key.
        slurm::PROTOCOL_SOCKET_ZERO_BYTES_SENT => {
            "slurmctld closed the connection, most often because it rejects this host's \
             credential. Are munge.key and the clocks the same on both hosts? See its log, and try \
             `munge -n | ssh CONTROLLER unmunge`."
        }
        slurm::USER_ID_MISSING | slurm::ACCESS_DENIED => {
            "Only an operator of the cluster may do this: `sacctmgr modify user ... set \
                adminlevel=operator`."
        }
        slurm::ERROR => {
            "Is slurmctld newer than this host's libslurm by more than two releases (three from \
             24.11 on)? Then `sdiag` fails here too: install Slurm's client of a newer release, \
             and the reader for it."
        }
        _ => return None,
    })
}

fn of_slurmdbd(errno: i32) -> &'static str {
    match errno {
        // Operators are refused too.
        slurm::ACCESS_DENIED => {
            "slurmdbd gives its statistics only to administrators. Run the daemon as SlurmUser, or \
             make its user one: `sacctmgr modify user NAME set adminlevel=admin`."
        }
        _ => "Is slurmdbd running? Does `sacctmgr show cluster` work on this host, as this user?",
    }
}

// The numbers of older headers have no type, and slurm-sys has none of them.
#[cfg(all(test, slurm_ge_2205))]
mod tests {
    use slurm_sys as c;

    use super::slurm;

    #[test]
    fn no_number_of_an_error_is_another_than_in_slurm_errno_h() {
        for (ours, slurms) in [
            (slurm::UNEXPECTED_MSG_ERROR, c::SLURM_UNEXPECTED_MSG_ERROR),
            (slurm::PROTOCOL_AUTHENTICATION_ERROR, c::SLURM_PROTOCOL_AUTHENTICATION_ERROR),
            (
                slurm::CTLD_COMMUNICATIONS_CONNECTION_ERROR,
                c::SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR,
            ),
            (slurm::NO_CHANGE_IN_DATA, c::SLURM_NO_CHANGE_IN_DATA),
            (slurm::ACCESS_DENIED, c::ESLURM_ACCESS_DENIED),
            (slurm::USER_ID_MISSING, c::ESLURM_USER_ID_MISSING),
            (slurm::PROTOCOL_SOCKET_ZERO_BYTES_SENT, c::SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT),
            (slurm::IN_STANDBY_MODE, c::ESLURM_IN_STANDBY_MODE),
            (slurm::PROTOCOL_INCOMPLETE_PACKET, c::ESLURM_PROTOCOL_INCOMPLETE_PACKET),
            (slurm::PROTOCOL_SOCKET_IMPL_TIMEOUT, c::SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT),
            (slurm::DB_CONNECTION, c::ESLURM_DB_CONNECTION),
            (slurm::DB_QUERY_TOO_WIDE, c::ESLURM_DB_QUERY_TOO_WIDE),
        ] {
            assert_eq!(i64::from(ours), i64::from(slurms));
        }
    }
}
