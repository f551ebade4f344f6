//! What the log says about the source of finished jobs: one line for each change.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::finished::Found;
use crate::source::SourceError;
use crate::survey::HIDDEN_REMEDY;

/// What the log has said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Nothing,
    Good,
    Failed(Instant),
    Unproved(Instant),
    Hidden,
}

impl Report {
    pub(super) fn good(&mut self, took: u64) {
        match std::mem::replace(self, Self::Good) {
            Self::Failed(since) => info!("slurmdbd answers again after {}", whole_seconds(since)),
            Self::Unproved(since) => {
                info!("slurmdbd returns jobs again after {}; all are counted", whole_seconds(since));
            }
            Self::Good => {}
            Self::Nothing | Self::Hidden => info!(elapsed_us = took, "slurmdbd answers"),
        }
    }

    pub(super) fn failed(&mut self, error: &SourceError) {
        if !matches!(self, Self::Failed(_)) {
            warn!(%error, "slurmdbd does not answer; finished jobs are counted when it answers again");
            *self = Self::Failed(Instant::now());
        }
    }

    /// `known`: the end of a row that slurmdbd should have. Without one, the cluster may be new.
    pub(super) fn unproved(&mut self, known: Option<i64>) {
        match (&self, known) {
            (Self::Unproved(_), _) => {}
            (Self::Nothing, None) => {
                info!("slurmdbd answers without any job; finished jobs are counted when it returns one");
                *self = Self::Good;
            }
            (_, None) => self.good(0),
            (_, Some(known)) => {
                warn!(
                    known,
                    "slurmdbd returns no job, not even one that it had, so its database may have failed: see slurmdbd's log; \
                     finished jobs are counted when it returns one"
                );
                *self = Self::Unproved(Instant::now());
            }
        }
    }

    pub(super) fn hidden(&mut self) {
        if std::mem::replace(self, Self::Hidden) != Self::Hidden {
            warn!(
                "PrivateData may hide jobs of other users from this one, so no finished job is counted. {HIDDEN_REMEDY}"
            );
        }
    }
}

/// What was found in the queue's log at the start.
pub(super) fn opened(found: Found) {
    match found {
        Found::Whole => {}
        Found::Nothing | Found::OfAnother => info!("finished jobs are counted from now on"),
        Found::DamagedHour(floor) => warn!(
            floor,
            "some numbers of counted jobs are missing in queue.dir; no job is counted twice, but jobs that ended before `floor` \
             and are reported only now are not counted"
        ),
        Found::NoCounts(floor) => warn!(
            floor,
            "the totals of finished jobs are missing in queue.dir; they begin at 0 again, with jobs that end after `floor`"
        ),
    }
}

fn whole_seconds(since: Instant) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(since.elapsed().as_secs()))
}
