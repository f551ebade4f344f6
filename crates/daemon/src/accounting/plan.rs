//! The configuration of finished jobs: what is read, and what is kept.

use slurm_points::collectors::FinishedSettings;
use slurm_points::finished::{HOUR, ID_BYTES, Levels};
use slurm_snapshot::{ReplyKind, ReplyOptions, Request};

use crate::config::Config;

/// Seconds that slurmctld's clock may be ahead of ours.
pub(super) const AHEAD: i64 = 300;

/// Ids may take this fraction of `queue.max_bytes`: one eighth.
const PART: u64 = 8;

/// The settings of finished jobs: which times are read, and how many ids are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Seconds between two rounds.
    pub(crate) every: i64,
    /// Seconds of end times that each round reads.
    pub(crate) window: i64,
    /// Seconds after its end within which a job may still be reported.
    pub(crate) catch_up: i64,
    pub(crate) levels: Levels,
    /// Whether the CPU time of their steps is read.
    pub(crate) efficiency: bool,
    /// Number of ids that are remembered.
    pub(crate) most_ids: usize,
}

impl Plan {
    /// `None` if the configuration does not count finished jobs.
    pub(crate) fn from_config(config: &Config) -> Option<Self> {
        let (every, finished) = config.collectors.finished(config.interval)?;
        let most_ids =
            usize::try_from(config.queue.limits.max_bytes / PART / ID_BYTES).unwrap_or(usize::MAX);
        let [every, window, catch_up] = [every, finished.window, finished.catch_up].map(i64::from);
        let FinishedSettings { levels, efficiency, .. } = finished;
        Some(Self { every, window, catch_up, levels, efficiency, most_ids })
    }

    /// The seconds of end times whose ids are kept: a job may come as late as `catch_up`, and the
    /// hour in which that ends is kept whole.
    pub(crate) fn kept_seconds(&self) -> i64 {
        self.catch_up.max(self.window).saturating_add(HOUR)
    }

    /// The request for the jobs that ended from `since` to `until`, Unix seconds, both included.
    /// slurmdbd should have rows that ended at `known`.
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
