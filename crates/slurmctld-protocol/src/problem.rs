//! The reasons why there is no reading, and where an administrator looks first.
//!
//! Errors have the numbers that libslurm gives them, so that both readers' failures are understood
//! alike. Nothing that a peer has sent is repeated, but numbers and munged's own texts.

use slurm_snapshot::{Stage, errno};

/// Advice about a missing libslurm. Debian's and Ubuntu's slurm-client does not bring it.
pub const INSTALL_LIBSLURM: &str = "Install libslurm, and the reader for it if that is missing. \
     Debian, Ubuntu: apt-get install slurm-wlm-basic-plugins and what `apt-cache search \
     --names-only '^libslurm[0-9]'` shows; RHEL, Rocky, Alma: dnf install slurm.";

use crate::conf_lines::ConfError;
use crate::number::Refusal;

/// The causes of a failed request to slurmctld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// slurm.conf cannot be read, or needs what this reader lacks.
    Conf,
    /// The request is one that only libslurm can make.
    Unsupported,
    /// The kernel does not say who listens, or whether an address is this host's.
    Kernel,
    /// munged or sackd gave no credential.
    NoCredential,
    /// munged or sackd did not answer in time.
    CredentialTimeout,
    /// The controller's name has no address, or its look-up gave none in time.
    Name,
    Connect,
    ConnectTimeout,
    /// The connection stands, and no reply comes.
    Silent,
    /// slurmctld refuses the number or the credential, in this way. `None`: nothing was sent,
    /// because it has refused before; or the credential of its reply is not valid here.
    Refused(Option<Refusal>),
    /// The controller, or each one that answers, is a backup that waits to take over.
    Standby,
    /// slurmctld limits requests: by rl_enable, or because a queue is full.
    Busy,
    /// slurmctld answers with another error number.
    Code(u32),
    /// An answer that is no reply, or ends early.
    Reply,
    /// A user who is neither root nor SlurmUser listens or answers in slurmctld's place; or a reply
    /// lacks the credential that is due, or has one of another message.
    Imposter,
}

/// A reason why there is no reading, with its words for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct NativeProblem {
    pub(crate) cause: Cause,
    pub(crate) text: String,
}

impl From<ConfError> for NativeProblem {
    fn from(error: ConfError) -> Self {
        Self::new(Cause::Conf, error.to_string())
    }
}

impl NativeProblem {
    pub(crate) fn new(cause: Cause, text: impl Into<String>) -> Self {
        Self { cause, text: text.into() }
    }

    /// Returns Slurm's error number for the problem; 0 if it is slurm.conf's, or the request is not
    /// possible.
    pub(crate) fn errno(&self) -> i32 {
        match self.cause {
            Cause::Conf | Cause::Unsupported | Cause::Kernel => 0,
            Cause::NoCredential
            | Cause::CredentialTimeout
            | Cause::Refused(_)
            | Cause::Imposter => errno::PROTOCOL_AUTHENTICATION_ERROR,
            Cause::Name | Cause::Connect | Cause::ConnectTimeout => {
                errno::CTLD_COMMUNICATIONS_CONNECTION_ERROR
            }
            Cause::Silent => errno::PROTOCOL_SOCKET_IMPL_TIMEOUT,
            Cause::Standby => errno::IN_STANDBY_MODE,
            Cause::Busy => errno::CTLD_COMMUNICATIONS_BACKOFF,
            Cause::Code(code) => i32::try_from(code).unwrap_or(errno::ERROR),
            Cause::Reply => errno::PROTOCOL_INCOMPLETE_PACKET,
        }
    }

    /// Returns the stage of a failure that slurmctld has not worked on; `None` for any other.
    pub(crate) const fn stage(&self) -> Option<Stage> {
        match self.cause {
            Cause::Conf | Cause::Unsupported | Cause::Kernel => Some(Stage::Unsupported),
            Cause::Imposter => Some(Stage::Listener),
            _ => None,
        }
    }

    /// Advice where an administrator should look first.
    pub(crate) const fn advice(&self) -> &'static str {
        match self.cause {
            Cause::Conf => {
                "Correct slurm.conf, name another with [slurm] conf, or use libslurm's reader."
            }
            Cause::Unsupported => INSTALL_LIBSLURM,
            Cause::Kernel => {
                "`modprobe tcp_diag`, and let the service use AF_NETLINK (RestrictAddressFamilies of \
                 its unit); or use libslurm's reader."
            }
            Cause::NoCredential => {
                "Is munged running here (sackd, with AuthType=auth/slurm), and may the daemon's \
                 user connect to its socket? Try `munge -n | unmunge`."
            }
            Cause::CredentialTimeout => {
                "munged (or sackd) accepts connections but does not answer: is it stopped? Restart \
                    it."
            }
            Cause::Name => {
                "Does the controller's name in slurm.conf have an address here? Try `getent ahosts \
                    NAME`."
            }
            Cause::Connect => {
                "Is slurmctld running, and its port open to this host? Try `scontrol ping` there."
            }
            Cause::ConnectTimeout => {
                "Is the controller's host up, and does no firewall drop packets to slurmctld's \
                    port?"
            }
            Cause::Silent => {
                "slurmctld accepts connections but does not answer: is it stopped or overloaded?"
            }
            Cause::Refused(_) => {
                "munge.key (the key of auth/slurm) or the clock differs between the two hosts: try \
                 `munge -n | ssh CONTROLLER unmunge`. Or it is a release that this reader does not \
                 know: slurmctld's log says so, and `slurm-graphite --version` names those that it \
                 knows."
            }
            Cause::Standby => {
                "No controller is active: the backup has not taken over yet. Try `scontrol ping`."
            }
            Cause::Busy => {
                "slurmctld limits requests (SlurmctldParameters=rl_enable, or its RPC queue). \
                 Exempt the daemon's user, or raise the limit."
            }
            Cause::Code(_) => {
                "Look the number up in Slurm's slurm_errno.h, and see slurmctld's log."
            }
            Cause::Reply => {
                "Is it slurmctld that listens there? If so, it packs its statistics in a way that \
                 this reader does not know: use libslurm's reader, and report this."
            }
            Cause::Imposter => {
                "If this host does not know slurm.conf's SlurmUser, create that user with the \
                 number that it has on slurmctld's host. Otherwise another user's program answers \
                 in slurmctld's place: find it with `ss -ltnp`."
            }
        }
    }
}
