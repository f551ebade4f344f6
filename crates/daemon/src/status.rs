//! The document that a running daemon sends to `slurm-graphite status`, in JSON. Moments are Unix
//! seconds.
//!
//! Any user of the host may read it, because it has no data about the cluster's users.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clock::unix_now;
use crate::config::Problems;

/// The daemon at one moment. A member that an older daemon does not tell has its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StatusDocument {
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// The last reload, if it was refused: the daemon uses the configuration from before.
    pub(crate) refused: Option<RefusedEntry>,
    pub(crate) started: i64,
    pub(crate) now: i64,
    /// Seconds between two ticks.
    pub(crate) interval: u32,
    /// The timestamp of the last tick.
    pub(crate) last_tick: Option<i64>,
    pub(crate) slurmctld: SlurmctldEntry,
    pub(crate) destinations: Vec<DestinationEntry>,
    pub(crate) queue: QueueEntry,
    /// Moment since which no round of finished jobs could read all it had to although jobs start,
    /// if that is more than an hour ago.
    pub(crate) finished_behind_since: Option<i64>,
    pub(crate) readers: Vec<ReaderEntry>,
}

/// A reload that was refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RefusedEntry {
    pub(crate) at: i64,
    /// The problems of the configuration, a line each.
    pub(crate) why: String,
}

impl RefusedEntry {
    /// Keeps the first 20 lines of the problems, so that the document fits into the buffer of the
    /// socket for `status`.
    pub(crate) fn new(problems: &Problems) -> Self {
        let text = problems.public();
        let lines: Vec<&str> = text.lines().collect();
        let (shown, others) = lines.split_at(lines.len().min(20));
        let more = others.len();
        let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
        Self { at: unix_now(), why: shown.join("\n") + &more }
    }
}

/// slurmctld, as the readings of every tick show it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlurmctldEntry {
    pub(crate) cluster: Option<String>,
    /// Whether nothing is sent, because the prefix needs the cluster's name, which no reading has
    /// had.
    pub(crate) nameless: bool,
    /// Whether the last reading succeeded; `None` before the first.
    pub(crate) answers: Option<bool>,
    /// Moment since which `answers` and `standby` are as they are.
    pub(crate) since: Option<i64>,
    /// The reason why the last reading failed.
    pub(crate) error: Option<String>,
    pub(crate) last_answer: Option<i64>,
    /// Whether, with `[slurm] follow`, this host's slurmctld is a backup that waits, so that
    /// another host's daemon publishes.
    pub(crate) standby: bool,
}

/// A destination, as `status` shows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DestinationEntry {
    pub(crate) name: String,
    pub(crate) address: String,
    /// The reason why there was no connection last; `None`: the present one works.
    pub(crate) error: Option<String>,
    #[serde(flatten)]
    pub(crate) status: carbon::Status,
}

/// The queue, as `status` shows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QueueEntry {
    /// Folder of the queue's files; `None`: the queue is in memory.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) max_bytes: u64,
    /// Age at which a tick is dropped from the queue, seconds.
    pub(crate) max_age: u64,
    #[serde(flatten)]
    pub(crate) status: carbon::QueueStatus,
}

/// A reader, as `status` shows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ReaderEntry {
    pub(crate) role: String,
    /// `libslurm`, `native` or `slurmrestd`; `None`: none has been started.
    pub(crate) kind: Option<String>,
    /// The release of its libslurm; `None`: it is slurmrestd's reader, or none has been started.
    pub(crate) release: Option<String>,
    /// Process id of the reader; `None`: there is no reader at the moment, or it is the native one,
    /// which is in the daemon's process.
    pub(crate) pid: Option<u32>,
    /// Number of readers of this role that were started again.
    pub(crate) restarts: u64,
}
