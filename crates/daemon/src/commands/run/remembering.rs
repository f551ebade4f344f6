//! What collectors must know after a restart: bytes in the queue's log, by the collector's name.
//!
//! Without `queue.dir` they last as long as the process. Only the collector knows what they mean, and ignores what it
//! cannot read.

use std::time::Duration;

use carbon::Queue;
use tokio::time::timeout;
use tracing::warn;

use super::Daemon;

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

impl Daemon {
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
