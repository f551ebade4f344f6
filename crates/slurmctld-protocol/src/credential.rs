//! Credentials: how this program shows who it is, and how it checks who answers.

use std::path::PathBuf;
use std::time::Instant;
use std::{io, slice};

use crate::local_socket::LocalSocket;
use crate::message::{Message, Plugin, request_hash};
use crate::moment::{Moments, Step};
use crate::munge::{self, Munge, MungeError};
use crate::problem::{Cause, NativeProblem};
use crate::sackd;
use crate::slurm_conf::AuthType;

impl AuthType {
    fn paths(&self) -> &[PathBuf] {
        match self {
            Self::Munge(munge) => slice::from_ref(&munge.socket),
            Self::Slurm(paths) => paths,
        }
    }

    /// Makes a credential for one request with this protocol number, which only SlurmUser can use,
    /// or anyone if this host does not know SlurmUser's number.
    pub(crate) async fn credential(
        &self,
        socket: &mut LocalSocket,
        moments: &mut Moments,
        number: u16,
        slurm_user: Option<u32>,
        deadline: Instant,
    ) -> Result<(Plugin, Vec<u8>), NativeProblem> {
        let hash = request_hash(number);
        let make = async {
            let server =
                socket.connect(self.paths(), deadline, (moments, Step::Credential)).await?;
            Ok(match self {
                Self::Munge(Munge { ttl, .. }) => {
                    (Plugin::Munge, munge::encode(server, *ttl, &hash, slurm_user).await?)
                }
                Self::Slurm(_) => {
                    (Plugin::Slurm, sackd::token(server, number, &hash, slurm_user).await?)
                }
            })
        };
        make.await.map_err(|error| self.problem(&error))
    }

    /// Whether a reply has a credential that can be checked. It is an error unless root or
    /// SlurmUser made the credential for this very reply. That is more than libslurm asks for.
    pub(crate) async fn check(
        &self,
        socket: &mut LocalSocket,
        moments: &mut Moments,
        message: &Message<'_>,
        slurm_user: Option<u32>,
        deadline: Instant,
    ) -> Result<bool, NativeProblem> {
        let (Self::Munge(_), Some(credential)) = (self, message.credential) else {
            return Ok(false);
        };
        let decode = async {
            let server = socket.connect(self.paths(), deadline, (moments, Step::Check)).await?;
            munge::decode(server, credential).await
        };
        let decoded = decode.await.map_err(|error| match error {
            MungeError::Refused { .. } => {
                let text = format!("the reply's credential is not valid here: {error}");
                NativeProblem::new(Cause::Refused(None), text)
            }
            error => self.problem(&error),
        })?;
        if decoded.uid != 0 && Some(decoded.uid) != slurm_user {
            let unknown = unknown(slurm_user);
            let text = format!(
                "the reply is from user {}, who is neither root nor SlurmUser{unknown}",
                decoded.uid
            );
            return Err(NativeProblem::new(Cause::Imposter, text));
        }
        if !message.is_bound_by(&decoded.payload) {
            let text = "the reply's credential was made for another message";
            return Err(NativeProblem::new(Cause::Imposter, text));
        }
        Ok(true)
    }

    fn problem(&self, error: &MungeError) -> NativeProblem {
        let cause = match error {
            MungeError::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                Cause::CredentialTimeout
            }
            _ => Cause::NoCredential,
        };
        let whose = match self {
            Self::Munge(munge) => format!("munged's socket {}", munge.socket.display()),
            Self::Slurm(_) => "sackd's socket (sack.socket)".to_owned(),
        };
        NativeProblem::new(cause, format!("{whose}: {error}"))
    }
}

/// Returns a remark for the error about a user who is not SlurmUser. It is empty if SlurmUser's
/// number is known.
pub(crate) const fn unknown(slurm_user: Option<u32>) -> &'static str {
    if slurm_user.is_some() { "" } else { " (this host does not know slurm.conf's SlurmUser)" }
}
