//! How this reader shows who it is, and how it checks who answers.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use reader_process::TokenFile;

use crate::message::{Message, Plugin, request_hash};
use crate::munge::{Munge, MungeError};
use crate::problem::{Cause, NativeProblem};
use crate::sackd;
use crate::slurm_conf::{AuthType, SlurmConf};

/// One way to show it.
#[derive(Debug)]
pub(crate) enum Identity<'a> {
    Munge(&'a Munge),
    /// The sockets at which sackd may listen.
    Slurm(Vec<PathBuf>),
    Token(&'a mut TokenFile),
}

impl<'a> Identity<'a> {
    /// A token, if there is a file with one; else what slurm.conf says.
    pub(crate) fn new(conf: &'a SlurmConf, token: Option<&'a mut TokenFile>) -> Self {
        match (token, &conf.auth) {
            (Some(token), _) => Self::Token(token),
            (None, AuthType::Munge(munge)) => Self::Munge(munge),
            (None, AuthType::Slurm) => Self::Slurm(sackd::sockets(conf.cluster.as_deref())),
        }
    }

    /// A new credential for one request with this number, which only SlurmUser can use.
    pub(crate) fn credential(
        &mut self,
        number: u16,
        slurm_user: Option<u32>,
        deadline: Instant,
    ) -> Result<(Plugin, Vec<u8>), NativeProblem> {
        match self {
            Self::Munge(munge) => {
                let made = munge.encode(&request_hash(number), slurm_user, deadline);
                made.map(|text| (Plugin::Munge, text)).map_err(|error| of_munge(munge, error))
            }
            Self::Slurm(sockets) => {
                let made = sackd::token(sockets, number, &request_hash(number), slurm_user, deadline);
                made.map(|text| (Plugin::Slurm, text)).map_err(|error| {
                    NativeProblem::new(cause(&error), format!("sackd's socket (sack.socket): {error}"))
                })
            }
            Self::Token(file) => {
                file.read().map_err(|text| NativeProblem::new(Cause::TokenFile, text))?;
                let token = file.secret().unwrap_or_default().as_bytes();
                Ok((Plugin::Jwt, token.to_vec()))
            }
        }
    }

    /// Whether a reply has a credential that can be checked; an error unless root or SlurmUser made it for this very reply.
    /// That is more than libslurm asks for.
    pub(crate) fn check(
        &self,
        message: &Message<'_>,
        slurm_user: Option<u32>,
        deadline: Instant,
    ) -> Result<bool, NativeProblem> {
        let (Self::Munge(munge), Some(credential)) = (self, message.credential) else { return Ok(false) };
        let decoded = munge.decode(credential, deadline).map_err(|error| match error {
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
    // A local socket whose queue is full says that it would block.
    let is_late = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
    if is_late { Cause::CredentialTimeout } else { Cause::NoCredential }
}
