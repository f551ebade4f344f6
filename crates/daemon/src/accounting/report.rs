//! The log's lines about the source of finished jobs: one for each change.

use std::mem;
use std::time::Duration;

use carbon::in_words;
use slurm_points::finished::Found;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::source::SourceError;
use crate::survey::HIDDEN_REMEDY;

/// The state of finished jobs as the log has it, so that only a change is logged.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) slurmdbd: SlurmdbdReport,
    pub(super) progress: Progress,
    /// Whether the log says that there is no room for the ids of all jobs of `catch_up`.
    short: bool,
    /// Whether the log says that the clock is far behind the jobs that were counted.
    behind: bool,
}

/// The state of slurmdbd's answers that the log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SlurmdbdReport {
    #[default]
    Nothing,
    Good,
    Failed(Instant),
    Unproved(Instant),
    Hidden,
}

/// Time for which no round reads the `window`, although jobs start, before finished jobs are late.
const BEHIND_AFTER: Duration = Duration::from_secs(3600);

/// The time since a round last read the `window`, and whether jobs have started in it.
#[derive(Debug)]
pub(super) struct Progress {
    /// Moment at which a round last read the `window`, or, before the first, at which the wait for
    /// one began.
    whole_at: Instant,
    started: Option<u64>,
    /// Whether jobs have started since `whole_at`. An idle cluster is not late.
    is_due: bool,
    is_reported: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self { whole_at: Instant::now(), started: None, is_due: false, is_reported: false }
    }
}

impl Progress {
    /// Takes how many jobs slurmctld has started since its statistics begin.
    pub(super) fn note_started(&mut self, started: u64) {
        self.is_due |= self.started.is_some_and(|before| started > before);
        self.started = Some(started);
        if let (Some(since), false) = (self.behind(), self.is_reported) {
            self.is_reported = true;
            warn!(
                "finished jobs are not counted: for {} no round could read all of them from \
                 slurmdbd; see the lines about slurmdbd above, and slurmdbd's log",
                in_words(since)
            );
        }
    }

    /// Takes that a round has read all that it had to, or at least the `window`.
    pub(super) fn whole(&mut self) {
        self.whole_at = Instant::now();
        self.is_due = false;
        self.is_reported = false;
    }

    /// Time since a round last read the `window`, if that is more than [`BEHIND_AFTER`] and jobs
    /// have started since; else `None`.
    pub(super) fn behind(&self) -> Option<Duration> {
        Some(self.whole_at.elapsed()).filter(|since| self.is_due && *since > BEHIND_AFTER)
    }
}

impl Report {
    /// Notes the state of slurmdbd's answers. Returns the state that was noted before, or `None` if
    /// it is the same.
    fn change(&mut self, to: SlurmdbdReport) -> Option<SlurmdbdReport> {
        let is_another = mem::discriminant(&to) != mem::discriminant(&self.slurmdbd);
        is_another.then(|| mem::replace(&mut self.slurmdbd, to))
    }

    /// Logs, if that is news, that a round has read all it had to. Its requests took `took` µs.
    pub(super) fn whole(&mut self, took: u64) {
        self.good(took);
    }

    fn good(&mut self, took: u64) {
        match self.change(SlurmdbdReport::Good) {
            Some(SlurmdbdReport::Failed(since)) => {
                info!(
                    "finished jobs are read from slurmdbd again after {}",
                    in_words(since.elapsed())
                );
            }
            Some(SlurmdbdReport::Unproved(since)) => {
                info!(
                    "slurmdbd returns jobs again after {}; all are counted",
                    in_words(since.elapsed())
                );
            }
            Some(_) => info!(elapsed_us = took, "slurmdbd answers"),
            None => {}
        }
    }

    pub(super) fn failed(&mut self, error: &SourceError) {
        if self.change(SlurmdbdReport::Failed(Instant::now())).is_some() {
            warn!(%error, "finished jobs cannot be read from slurmdbd; they are counted when they \
                can");
        }
    }

    /// Logs, if that is news, that slurmdbd returned no job, although it should have one that ended
    /// at `known`, Unix seconds. Without `known` the cluster may be new.
    pub(super) fn unproved(&mut self, known: Option<i64>) {
        match (self.slurmdbd, known) {
            (SlurmdbdReport::Unproved(_), _) => {}
            (SlurmdbdReport::Nothing, None) => {
                info!(
                    "slurmdbd answers without any job; finished jobs are counted when it returns \
                        one"
                );
                self.slurmdbd = SlurmdbdReport::Good;
            }
            (_, None) => self.good(0),
            (_, Some(known)) => {
                warn!(
                    known,
                    "slurmdbd returns no job, not even one that it had, so its database may have \
                     failed: see slurmdbd's log; finished jobs are counted when it returns one"
                );
                self.slurmdbd = SlurmdbdReport::Unproved(Instant::now());
            }
        }
    }

    pub(super) fn hidden(&mut self) {
        if self.change(SlurmdbdReport::Hidden).is_some() {
            warn!(
                "PrivateData may hide jobs of other users from this one, so no finished job is \
                    counted. {HIDDEN_REMEDY}"
            );
        }
    }

    /// Logs once that there is room for only `most` ids, which are not those of all jobs of
    /// `catch_up`.
    pub(super) fn short(&mut self, most: usize) {
        if !mem::replace(&mut self.short, true) {
            warn!(
                most,
                "queue.max_bytes has no room for the ids of all jobs of catch_up: jobs that are \
                    reported very late are not counted"
            );
        }
    }

    /// Logs once that the clock is far behind: it says `now`, and no job that ended before `floor`
    /// is read. Both are Unix seconds.
    pub(super) fn behind(&mut self, floor: i64, now: i64) {
        if !mem::replace(&mut self.behind, true) {
            warn!(
                floor,
                now,
                "the clock is far behind the jobs that were counted: it was ahead then, or is \
                    behind now; in ten minutes finished jobs are counted by this clock"
            );
        }
    }

    /// Reports that jobs were counted up to `floor`, a time in the future: the clock was ahead. It
    /// has been steady since, so its time `now` is believed. Both are Unix seconds.
    pub(super) fn clock_was_ahead(&mut self, floor: i64, now: i64) {
        self.behind = false;
        warn!(
            floor,
            now,
            "the clock was ahead when jobs were counted; finished jobs are counted again if they \
                ended since `now`; others that were not counted before are lost"
        );
    }

    pub(super) const fn in_time(&mut self) {
        self.behind = false;
    }
}

/// Logs what was found of the ledger in the queue's log at the start.
pub(super) fn opened(found: Found) {
    match found {
        Found::Whole => {}
        Found::Nothing | Found::OfAnother => info!("finished jobs are counted from now on"),
        Found::DamagedHour(floor) => warn!(
            floor,
            "some numbers of counted jobs are missing in queue.dir; no job is counted twice, but \
             jobs that ended before `floor` and are reported only now are not counted"
        ),
        Found::NoCounts(floor) => warn!(
            floor,
            "the totals of finished jobs are missing in queue.dir; they begin at 0 again, with \
                jobs that end after `floor`"
        ),
    }
}
