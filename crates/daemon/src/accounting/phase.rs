//! The phases of finished jobs: they wait for the next round, for slurmdbd, or for the disk.

use slurm_points::finished::{FinishedRound, Next};

use super::plan::AHEAD;
use super::steps::Measuring;

/// The thing that finished jobs wait for, exactly one at a time. A round begins in `Idle` alone.
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// A request of this round is under way.
    Reading(Box<RoundUnderWay>),
    /// A request of a round that was given up is under way; its answer is dropped.
    GivenUp,
    /// The queue has a commit, and reports this ticket when that is on disk. It is of what a round
    /// has read or, with `None`, of the ledger as it is.
    Committing(u64, Option<Box<Next>>),
}

/// A round that slurmdbd answers piece by piece, the newest first.
#[derive(Debug)]
pub(super) struct RoundUnderWay {
    pub(super) round: FinishedRound,
    /// Oldest end of a job that is left to read, Unix seconds, included.
    pub(super) from: i64,
    /// Newest end of a job that is left to read, Unix seconds, included.
    pub(super) to: i64,
    /// Oldest end of a job in the piece that is being read, Unix seconds, included.
    pub(super) since: i64,
    /// Last tick before the round at which slurmctld's queue for slurmdbd was empty, Unix seconds;
    /// `None`: there was none.
    pub(super) quiet: Option<i64>,
    /// Oldest end of a job that the round has read so far, Unix seconds. slurmdbd must still have
    /// that job, which proves an older piece without any.
    pub(super) oldest: Option<i64>,
    /// Whether this host publishes the round, and not another host.
    pub(super) is_published: bool,
    /// The piece of jobs whose steps are being requested; `None`: the jobs of a piece are.
    pub(super) measuring: Option<Measuring>,
}

/// A span of end times, both Unix seconds and included, whose jobs could not be had in one request,
/// and when that was.
#[derive(Debug)]
pub(super) struct HeavySpan {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) failed: i64,
}

impl HeavySpan {
    /// Length of its pieces, seconds. In a shorter one within it they are shorter.
    pub(super) const fn piece(&self) -> i64 {
        self.to.saturating_sub(self.from) / 2
    }

    pub(super) fn has(&self, end: i64) -> bool {
        (self.from..=self.to).contains(&end)
    }
}

/// The ways in which a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// A request failed or could not be made.
    Cut,
    /// A piece was empty, and nothing shows that slurmdbd's database had answered.
    Unproved,
}

impl RoundUnderWay {
    /// Begins a round. If `rebuild` is given, jobs that ended until then, Unix seconds, may have
    /// been counted by another host's daemon: the round only marks them as seen, and is not
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
        Self { round, from, to, since: to, quiet, oldest: None, is_published, measuring: None }
    }

    /// Returns the oldest end of the next piece, Unix seconds, if that is `piece` seconds long;
    /// `None` if everything has been read. The first piece also has ends that are ahead of our
    /// clock.
    pub(super) fn next_piece(&self, piece: i64) -> Option<i64> {
        let ahead = if self.round.has_answer() { 0 } else { AHEAD };
        let since = self.to.saturating_sub(piece).saturating_sub(ahead);
        (self.from <= self.to).then(|| self.from.max(since))
    }
}
