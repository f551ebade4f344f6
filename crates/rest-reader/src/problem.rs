//! The reasons why a request to slurmrestd gave no reading, and advice.

use slurm_snapshot::{Stage, errno};

/// A failed request, and how far it came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct RestProblem {
    pub(crate) stage: Stage,
    /// Slurm's own error number; 0 if there is none.
    pub(crate) errno: i32,
    pub(crate) text: String,
}

impl RestProblem {
    pub(crate) fn new(stage: Stage, text: impl Into<String>) -> Self {
        Self { stage, errno: 0, text: text.into() }
    }

    /// Advice where an administrator should look first.
    pub(crate) const fn advice(&self) -> &'static str {
        match self.stage {
            Stage::Unsupported => {
                "Use libslurm for it: [slurm] conf instead of rest, on a host with Slurm."
            }
            Stage::TokenFile => {
                "token_file must have the output of `scontrol token username=NAME \
                    lifespan=SECONDS`, and the daemon's user must be able to read it."
            }
            Stage::Connect => {
                "Is slurmrestd running, and can this host reach its port or socket? Try `systemctl \
                    status slurmrestd` there."
            }
            Stage::Listener => {
                "Find the program with `ss -ltnp`. If it is slurmrestd, or a tunnel or proxy to \
                    it, name its user with [slurm] rest_user."
            }
            Stage::Tls => {
                "The certificate must be for the name in [slurm] rest, and from an authority that \
                 this host or ca_file trusts. Up to 24.11, or without s2n, slurmrestd itself has \
                 no TLS: then https:// needs a proxy in front of it."
            }
            Stage::Http => {
                "Does [slurm] rest name slurmrestd's own port, or a proxy that forwards \
                    everything? Try it with curl."
            }
            Stage::Version => {
                "`slurm-graphite --version` says which slurmrestd this reader knows; for an older \
                 one use libslurm, [slurm] conf instead of rest. Is it started with the plugins \
                 openapi/slurmctld (from 23.11), or openapi/v0.0.38 (22.05)? Is there a path in \
                 front of /slurm?"
            }
            Stage::Token => {
                "It has expired, is for another user or from another key, or AuthAltTypes=auth/jwt \
                 is missing in slurm.conf. Renew it: `scontrol token username=NAME \
                 lifespan=SECONDS`. On a socket, run the daemon as slurmrestd's user."
            }
            Stage::Slurmctld if self.errno == errno::DB_CONNECTION => {
                "slurmrestd of 23.02 opens a connection to slurmdbd for each request, with the \
                 request's token. Is slurmdbd running, does slurmdbd.conf have slurm.conf's \
                 AuthAltTypes and AuthAltParameters, and is the token valid?"
            }
            Stage::Slurmctld => {
                "slurmrestd answers, but slurmctld does not answer or refuses. Try `scontrol ping` \
                    and `sdiag` there."
            }
        }
    }
}
