//! The oldest end that a round must read. A job that ended before slurmctld's queue for slurmdbd
//! was last empty is in slurmdbd, and the first whole round after that has read it.
//!
//! So a restart, an outage, a sleep, a clock that was set and a queue that was not empty are one
//! case. This holds if `window`, by which a round reads further back, is longer than the difference
//! of the two clocks and than slurmdbd's CommitDelay.

use slurm_points::finished::{FinishedRound, HOUR};

/// The moments from which the oldest end that a round must read follows, Unix seconds. None lies
/// ahead of the clock when it is used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watermark {
    /// Newest tick at which slurmctld's queue for slurmdbd was empty; `None`: at none yet.
    pub(super) quiet: Option<i64>,
    /// Moment before which every end that reached slurmdbd in time has been read, Unix seconds.
    pub(super) read_until: Option<i64>,
    /// Begin of the last round that read everything since the ledger's floor. There is one an hour,
    /// because an end may be set late. `None`: the next round does.
    pub(super) read_all_at: Option<i64>,
}

impl Watermark {
    pub(super) const fn note_queue(&mut self, records: u64, now: i64) {
        if records == 0 {
            self.quiet = Some(now);
        }
    }

    /// Makes the next round read everything since the ledger's floor.
    pub(super) const fn read_all(&mut self) {
        self.read_all_at = None;
    }

    /// Returns the oldest end that a round at `now` must read; `None`: everything since the
    /// ledger's floor. `incomplete` is the oldest end of a job that waits for its steps or for a
    /// part of its row. Because of such a job, or of a queue that is never empty, a round reads
    /// back to the begin of the last reading of everything, and `window` before it, but no further.
    pub(super) fn next_from(
        &mut self,
        now: i64,
        window: i64,
        incomplete: Option<i64>,
    ) -> Option<i64> {
        // A clock that was ahead must not hold jobs back for as long.
        for moment in [&mut self.quiet, &mut self.read_until, &mut self.read_all_at] {
            *moment = moment.map(|moment| moment.min(now));
        }
        let all_at = self.read_all_at.filter(|at| now.saturating_sub(*at) < HOUR)?;
        let from = self.read_until.unwrap_or(all_at).min(incomplete.unwrap_or(now)).max(all_at);
        Some(from.saturating_sub(window))
    }

    /// Takes that this round has read all it had to. `quiet` is the moment at which the queue had
    /// last been empty when it began.
    pub(super) fn whole(&mut self, round: &FinishedRound, quiet: Option<i64>) {
        self.read_until = self.read_until.max(quiet);
        if round.is_full {
            self.read_all_at = Some(round.moment);
        }
    }
}
