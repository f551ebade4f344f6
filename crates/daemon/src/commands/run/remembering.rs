//! What collectors must know after a restart: bytes in the queue's log, by the collector's name.
//!
//! Without `queue.dir` they last as long as the process. Only the collector knows what they mean, and ignores what it
//! cannot read.

use std::time::Duration;

use carbon::Queue;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Daemon;
use crate::config::ReaderChoice;
use crate::source::ReaderKind;

/// How long a start waits until the queue's files, which may be 256 MiB, have been read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Seconds between two times that they are stored, because with users and accounts by name they are long.
const EVERY: i64 = 60;

/// The name of a collector's bytes in the log.
fn key(collector: &str) -> String {
    format!("collector.{collector}")
}

/// Waits until the queue's files have been read. If the disk hangs, collectors start without a memory.
pub(super) async fn wait(queue: &Queue) {
    if timeout(PATIENCE, queue.read()).await.is_err() {
        warn!("the queue's files cannot be read yet, so the list of users with paths is made again");
    }
}

/// What the collector stored last.
pub(super) fn memory(queue: &Queue, collector: &str) -> Option<String> {
    String::from_utf8(queue.stored(&key(collector))?.to_vec()).ok()
}

/// Where the log says which reader was used last.
const READER: &str = "reader";

impl Daemon {
    /// Notes which reader is used, and warns where `auto` does not use libslurm's any more: surveys and accounting need it.
    pub(super) fn note_reader(&mut self) {
        let Some(kind) = self.cluster.reader_kind() else { return };
        // Before the log has been read it is not known what was used before the daemon's start.
        if self.health.reader == Some(kind.number()) || !self.queue.is_read() {
            return;
        }
        self.health.reader = Some(kind.number());
        let before = self.queue.stored(READER);
        let is_same = before.as_deref() == Some(kind.name().as_bytes());
        if !is_same {
            self.queue.keep([(READER.to_owned(), kind.name().as_bytes().into())]);
        }
        let is_change = before.is_some() && !is_same;
        let is_lacking = is_change || self.cluster.needs_more_than_statistics();
        if kind == ReaderKind::Native && self.config.slurm.reader == ReaderChoice::Auto && is_lacking {
            warn!(
                "this host has no libslurm with a matching reader, so the native reader is used; it reads only the statistics: jobs, nodes \
                 and accounting are missing until libslurm and its reader are installed"
            );
        } else if is_change {
            info!(reader = kind.name(), "another reader than before is used");
        }
    }

    /// Stores what has changed since the last time, but not twice in a minute. `now`: Unix seconds, or the end of time
    /// for what must not wait.
    pub(super) fn remember(&mut self, now: i64) {
        // What the log has is newer than what a collector has made without it.
        if (0..EVERY).contains(&now.saturating_sub(self.remembered)) || !self.queue.is_read() {
            return;
        }
        let memories = self.cluster.changed_memories();
        let memories: Vec<_> =
            memories.map(|(name, memory)| (key(name), memory.into_bytes().into())).collect();
        if !memories.is_empty() {
            self.remembered = self.last_tick.unwrap_or_default();
            self.queue.keep(memories);
        }
    }
}
