//! How this program shows who it is, and how it checks who answers.

use std::io;
use std::time::Instant;

use crate::local_socket::LocalSocket;
use crate::message::{Message, Plugin, request_hash};
use crate::munge::{Munge, MungeError};
use crate::problem::{Cause, NativeProblem};
use crate::sackd;
use crate::slurm_conf::AuthType;

impl AuthType {
    /// A new credential for one request with this number, which only SlurmUser can use.
    pub(crate) async fn credential(
        &self,
        socket: &mut LocalSocket,
        number: u16,
        slurm_user: Option<u32>,
        deadline: Instant,
    ) -> Result<(Plugin, Vec<u8>), NativeProblem> {
        let hash = request_hash(number);
        match self {
            Self::Munge(munge) => {
                let made = munge.encode(socket, &hash, slurm_user, deadline).await;
                made.map(|text| (Plugin::Munge, text)).map_err(|error| of_munge(munge, error))
            }
            Self::Slurm(paths) => {
                let made = sackd::token(socket, paths, number, &hash, slurm_user, deadline).await;
                made.map(|text| (Plugin::Slurm, text)).map_err(|error| {
                    NativeProblem::new(cause(&error), format!("sackd's socket (sack.socket): {error}"))
                })
            }
        }
    }

    /// Whether a reply has a credential that can be checked; an error unless root or SlurmUser made it for this very reply.
    /// That is more than libslurm asks for.
    pub(crate) async fn check(
        &self,
        socket: &mut LocalSocket,
        message: &Message<'_>,
        slurm_user: Option<u32>,
        deadline: Instant,
    ) -> Result<bool, NativeProblem> {
        let (Self::Munge(munge), Some(credential)) = (self, message.credential) else { return Ok(false) };
        let decoded = munge.decode(socket, credential, deadline).await.map_err(|error| match error {
            MungeError::Refused { .. } => {
                let text = format!("the reply's credential is not valid here: {error}");
                NativeProblem::new(Cause::Refused(None), text)
            }
            error => of_munge(munge, error),
        })?;
        if decoded.uid != 0 && Some(decoded.uid) != slurm_user {
            let unknown = unknown(slurm_user);
            let text =
                format!("the reply is from user {}, who is neither root nor SlurmUser{unknown}", decoded.uid);
            return Err(NativeProblem::new(Cause::Imposter, text));
        }
        if !message.is_bound_by(&decoded.payload) {
            let text = "the reply's credential was made for another message";
            return Err(NativeProblem::new(Cause::Imposter, text));
        }
        Ok(true)
    }
}

/// What to add where a user is compared with SlurmUser, if that has no number here.
pub(crate) const fn unknown(slurm_user: Option<u32>) -> &'static str {
    if slurm_user.is_some() { "" } else { " (this host does not know slurm.conf's SlurmUser)" }
}

fn of_munge(munge: &Munge, error: MungeError) -> NativeProblem {
    let cause = match &error {
        MungeError::Io(error) => cause(error),
        MungeError::Refused { .. } | MungeError::Format => Cause::NoCredential,
    };
    NativeProblem::new(cause, format!("munged's socket {}: {error}", munge.socket.display()))
}

fn cause(error: &io::Error) -> Cause {
    let is_late = error.kind() == io::ErrorKind::TimedOut;
    if is_late { Cause::CredentialTimeout } else { Cause::NoCredential }
}
