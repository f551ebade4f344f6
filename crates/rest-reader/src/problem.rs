//! Why a request to slurmrestd has no reading, and what to do about it.

use slurm_snapshot::Stage;

/// What failed, and how far the request came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct RestProblem {
    pub(crate) stage: Stage,
    /// Slurm's own number; 0 where there is none.
    pub(crate) errno: i32,
    pub(crate) text: String,
}

impl RestProblem {
    pub(crate) fn new(stage: Stage, text: impl Into<String>) -> Self {
        Self { stage, errno: 0, text: text.into() }
    }

    /// What an administrator would look at first.
    pub(crate) const fn advice(&self) -> &'static str {
        match self.stage {
            Stage::Unsupported => "It takes a host with libslurm: [slurm] conf instead of rest.",
            Stage::TokenFile => {
                "token_file must hold what `scontrol token username=NAME lifespan=SECONDS` prints, readable by the daemon's user."
            }
            Stage::Connect => {
                "Is slurmrestd running, and its port or socket open to this host? `systemctl status slurmrestd` there."
            }
            Stage::Tls => {
                "The certificate must be for the name in [slurm] rest, and of an authority that this host knows or ca_file \
                 names. slurmrestd itself speaks no TLS up to 26.05: https:// is a proxy's in front of it."
            }
            Stage::Http => {
                "Does [slurm] rest name slurmrestd's own port, or a proxy that passes everything on? Try it with curl."
            }
            Stage::Version => {
                "slurmrestd of 20.11 to 26.05 is known. Is it started with the plugins openapi/slurmctld (from 23.11), or \
                 openapi/v0.0.38 (22.05)? Is there a path in front of /slurm?"
            }
            Stage::Token => {
                "It has ended, is another user's or of another key, or AuthAltTypes=auth/jwt is missing in slurm.conf. Renew it: \
                 `scontrol token username=NAME lifespan=SECONDS`. On a socket, run the daemon as slurmrestd's user."
            }
            Stage::Slurmctld => {
                "slurmrestd answers, and slurmctld does not, or refuses. Try `scontrol ping` and `sdiag` there."
            }
        }
    }
}
