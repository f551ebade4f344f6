//! Why a request to slurmrestd has no reading.

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
}
