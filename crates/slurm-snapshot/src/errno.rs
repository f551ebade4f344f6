//! Slurm's numbers of errors, by their names in slurm_errno.h without `SLURM` and `ESLURM`.

/// The error that most often means a reply that libslurm cannot unpack; slurmrestd of 22.05 gives
/// it for any failure.
pub const ERROR: i32 = -1;
pub const UNEXPECTED_MSG_ERROR: i32 = 1000;
pub const PROTOCOL_AUTHENTICATION_ERROR: i32 = 1007;
pub const CTLD_COMMUNICATIONS_CONNECTION_ERROR: i32 = 1800;
pub const CTLD_COMMUNICATIONS_BACKOFF: i32 = 1804;
pub const CTLD_COMMUNICATIONS_HARD_DROP: i32 = 1805;
pub const NO_CHANGE_IN_DATA: i32 = 1900;
pub const ACCESS_DENIED: i32 = 2002;
pub const USER_ID_MISSING: i32 = 2010;
pub const IN_STANDBY_MODE: i32 = 2027;
pub const PROTOCOL_INCOMPLETE_PACKET: i32 = 5003;
pub const PROTOCOL_SOCKET_IMPL_TIMEOUT: i32 = 5004;
pub const PROTOCOL_SOCKET_ZERO_BYTES_SENT: i32 = 5005;
pub const DB_CONNECTION: i32 = 7000;
/// The error for a requested time that is longer than slurmdbd.conf's MaxQueryTimeRange, if the
/// user is no operator.
pub const DB_QUERY_TOO_WIDE: i32 = 7007;

/// Whether the credential may be the cause of this error: it cannot be made, or slurmctld rejects
/// it or the user whom it names. slurmctld closes the connection without a word (5005) if it cannot
/// read a credential; that of 23.02 answers with a message that libslurm does not expect (1000).
pub const fn concerns_credential(errno: i32) -> bool {
    matches!(
        errno,
        UNEXPECTED_MSG_ERROR
            | PROTOCOL_AUTHENTICATION_ERROR
            | ACCESS_DENIED
            | USER_ID_MISSING
            | PROTOCOL_SOCKET_ZERO_BYTES_SENT
            // ESLURM_AUTH_CRED_INVALID and those after it
            | 6000..7000
    )
}
