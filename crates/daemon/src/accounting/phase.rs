//! What finished jobs wait for: nothing, slurmdbd, or the disk.

use slurm_points::finished::{FinishedRound, Next};

use super::plan::AHEAD;
use super::steps::Measuring;

/// Exactly one of these is true. A round begins in `Idle` alone.
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// A request of this round is under way.
    Reading(Box<RoundUnderWay>),
    /// A request of a round that was given up is under way; its answer is dropped.
    GivenUp,
    /// The queue reports this ticket when it is on disk: what a round has read, or the ledger as it
    /// is.
    Committing(u64, Option<Box<Next>>),
}

/// A round that slurmdbd answers piece by piece, the newest first.
#[derive(Debug)]
pub(super) struct RoundUnderWay {
    pub(super) round: FinishedRound,
    /// What is left to read: from here to there, Unix seconds. Both belong to it.
    pub(super) from: i64,
    pub(super) to: i64,
    /// When slurmctld's queue for slurmdbd had last been empty as it began, Unix seconds.
    pub(super) quiet: Option<i64>,
    /// The oldest end of the rows that it has read: they prove pieces without a job.
    pub(super) oldest: Option<i64>,
    /// Whether this host publishes, or another.
    pub(super) is_published: bool,
    /// The piece whose steps are requested; `None`: a piece of jobs is.
    pub(super) measuring: Option<Measuring>,
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// A request failed or could not be made.
    Cut,
    /// A piece was empty, and nothing shows that slurmdbd's database had answered.
    Unproved,
}

impl RoundUnderWay {
    /// What ended until `rebuild`, Unix seconds, is another daemon's: it is marked as seen, and not
    /// published.
    pub(super) fn new(
        mut round: FinishedRound,
        from: i64,
        quiet: Option<i64>,
        rebuild: Option<i64>,
        is_published: bool,
    ) -> Self {
        let to = round.moment.saturating_add(AHEAD);
        round.is_silent = !is_published || rebuild.is_some();
        round.until = rebuild;
        Self { round, from, to, quiet, oldest: None, is_published, measuring: None }
    }

    /// The beginning of the next piece; `None` if everything has been read. The first piece has
    /// what is ahead of our clock too.
    pub(super) fn next_piece(&self, piece: i64) -> Option<i64> {
        let ahead = if self.round.has_answer() { 0 } else { AHEAD };
        let since = self.to.saturating_sub(piece).saturating_sub(ahead);
        (self.from <= self.to).then(|| self.from.max(since))
    }
}
