//! From when a round must read: what ended before slurmctld's queue for slurmdbd was last empty is in
//! slurmdbd, and has been read by the first whole round after that.
//!
//! So a restart, an outage, a sleep, a clock that was set and a queue that was not empty are one
//! case. It holds if the `window` before is longer than the two clocks differ and than slurmdbd's
//! CommitDelay.

use slurm_points::finished::{FinishedRound, HOUR};

/// Unix seconds, each at most now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watermark {
    /// The newest tick at which the queue was empty.
    pub(super) quiet: Option<i64>,
    /// Moment before which every end that reached slurmdbd in time has been read, Unix seconds.
    pub(super) read_until: Option<i64>,
    /// Begin of the last round that read everything since the floor. There is one an hour, because
    /// an end may be set late.
    pub(super) read_all_at: Option<i64>,
}

impl Watermark {
    pub(super) const fn note_queue(&mut self, records: u64, now: i64) {
        if records == 0 {
            self.quiet = Some(now);
        }
    }

    /// The next round reads everything since the floor.
    pub(super) const fn read_all(&mut self) {
        self.read_all_at = None;
    }

    /// From when a round at `now` must read; `None`: everything since the floor. `incomplete` is
    /// the oldest end of a row that waits. Behind a queue that is never empty, or such a row, it is
    /// not more than since the last reading of everything.
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

    /// This round, which began when the queue had last been empty at `quiet`, has read what it had
    /// to.
    pub(super) fn whole(&mut self, round: &FinishedRound, quiet: Option<i64>) {
        self.read_until = self.read_until.max(quiet);
        if round.is_full {
            self.read_all_at = Some(round.moment);
        }
    }
}
