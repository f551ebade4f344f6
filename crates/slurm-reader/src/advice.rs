//! What an administrator should check first, by Slurm's error number (slurm_errno.h).

use crate::accounting::ACCOUNTING_CONF;

/// The advice for `errno`; `None` if there is none. `call` is the function that failed.
pub(crate) fn advice(call: &str, errno: i32) -> Option<&'static str> {
    if call.starts_with("slurmdb_") {
        return Some(of_slurmdbd(errno));
    }
    if call == ACCOUNTING_CONF {
        return Some("Disable the collectors that read slurmdbd.");
    }
    Some(match errno {
        // The two CONNECTION_ERRORs
        1001 | 1800 => "Is slurmctld running, and its port open to this host? Try `scontrol ping`.",
        // SLURM_PROTOCOL_AUTHENTICATION_ERROR
        1007 => {
            "Is munged running here with the cluster's key, and are the clocks synchronized? Try `munge -n | unmunge`."
        }
        // SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT
        5004 => "slurmctld accepts connections but does not answer: is it stopped or overloaded?",
        // SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT: the result of another cluster's munge key
        5005 => {
            "slurmctld closed the connection, most often because it rejects this host's credential. Are munge.key and the clocks \
             the same on both hosts? See its log, and try `munge -n | ssh CONTROLLER unmunge`."
        }
        // ESLURM_USER_ID_MISSING, ESLURM_ACCESS_DENIED
        2010 | 2002 => {
            "Only an operator of the cluster may do this: `sacctmgr modify user ... set adminlevel=operator`."
        }
        // SLURM_ERROR: usually a reply that libslurm cannot unpack.
        -1 => {
            "Is slurmctld newer than this host's libslurm by more than two releases (three from 24.11 on)? \
             Then `sdiag` fails here too: install Slurm's client of a newer release, and the reader for it."
        }
        _ => return None,
    })
}

fn of_slurmdbd(errno: i32) -> &'static str {
    match errno {
        // ESLURM_ACCESS_DENIED: operators are refused too.
        2002 => {
            "slurmdbd gives its statistics only to administrators. Run the daemon as SlurmUser, or make its user one: \
             `sacctmgr modify user NAME set adminlevel=admin`."
        }
        _ => "Is slurmdbd running? Does `sacctmgr show cluster` work on this host, as this user?",
    }
}
