//! The configuration of finished jobs: what is read, and what is kept.

use slurm_points::collectors::FinishedSettings;
use slurm_points::finished::{HOUR, ID_BYTES, Levels};
use slurm_snapshot::{ReplyKind, ReplyOptions, Request};

use crate::config::Config;

/// Seconds that slurmctld's clock may be ahead of ours.
pub(super) const AHEAD: i64 = 300;

/// Divisor of `queue.max_bytes`: the ids of counted jobs may take one eighth of it.
const PART: u64 = 8;

/// The settings of finished jobs: which times are read, and how many ids are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Seconds between two rounds.
    pub(crate) every: i64,
    /// Length of the time that each round reads again, seconds.
    pub(crate) window: i64,
    /// Seconds after its end within which a job may still be reported.
    pub(crate) catch_up: i64,
    pub(crate) levels: Levels,
    /// Whether the CPU time that the steps of finished jobs have used is read.
    pub(crate) efficiency: bool,
    /// Largest number of ids of counted jobs that are remembered.
    pub(crate) most_ids: usize,
}

impl Plan {
    /// Returns the settings, or `None` if the configuration does not count finished jobs.
    pub(crate) fn from_config(config: &Config) -> Option<Self> {
        let (every, finished) = config.collectors.finished(config.interval)?;
        let most_ids =
            usize::try_from(config.queue.limits.max_bytes / PART / ID_BYTES).unwrap_or(usize::MAX);
        let [every, window, catch_up] = [every, finished.window, finished.catch_up].map(i64::from);
        let FinishedSettings { levels, efficiency, .. } = finished;
        Some(Self { every, window, catch_up, levels, efficiency, most_ids })
    }

    /// Returns the time for which the id of a counted job is kept after its end, seconds. A job may
    /// be reported as late as `catch_up`, and the hour in which that ends is kept whole.
    pub(crate) fn kept_seconds(&self) -> i64 {
        self.catch_up.max(self.window).saturating_add(HOUR)
    }

    /// Returns the request for the jobs that ended from `since` to `until`, Unix seconds, both
    /// included. slurmdbd should have rows that ended at the moments in `known`, which prove an
    /// answer without jobs.
    pub(crate) fn request(&self, since: i64, until: i64, known: Vec<i64>) -> Request {
        let qos = self.levels.qos > 0;
        let users = self.levels.users > 0;
        let steps = self.efficiency;
        let options = ReplyOptions { qos, users, steps, ..ReplyOptions::default() };
        Request {
            since: Some(since),
            until: Some(until),
            known,
            ..Request::new(ReplyKind::Finished, options)
        }
    }
}
