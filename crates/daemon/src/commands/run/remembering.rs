//! The memories of collectors, which outlast a restart: bytes in the queue's log, by the
//! collector's name. Their first line is the cluster's name, empty while that is not known.
//!
//! Without `queue.dir` they last as long as the process. Only the collector knows what the other
//! lines mean, and ignores what it cannot read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use carbon::Queue;
use reader_process::open_regular_file;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::Daemon;
use crate::config::ReaderChoice;
use crate::source::ReaderKind;

/// Time that a start waits until the queue's files, which may be 256 MiB, have been read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Least seconds between two times that memories are stored. They are long with users and accounts
/// by name.
const EVERY: i64 = 60;

/// The name of a collector's bytes in the log.
fn key(collector: &str) -> String {
    format!("collector.{collector}")
}

/// Waits until the queue's files have been read. If the disk hangs, collectors start without a
/// memory.
pub(super) async fn wait(queue: &Queue) {
    if timeout(PATIENCE, queue.wait_until_read()).await.is_err() {
        warn!("the queue's files cannot be read yet, so what collectors remember begins again");
    }
}

/// The memory that the collector stored last, unless it was stored under another name than
/// `cluster`. A name that is not known fits any.
pub(super) fn memory(queue: &Queue, collector: &str, cluster: Option<&str>) -> Option<String> {
    let (of, memory) = stored(queue, collector)?;
    (of.is_empty() || cluster.is_none_or(|name| name == of)).then_some(memory)
}

/// Returns the memory that the collector stored last, behind the name of its cluster.
fn stored(queue: &Queue, collector: &str) -> Option<(String, String)> {
    let text = String::from_utf8(queue.stored(&key(collector))?.to_vec()).ok()?;
    let (cluster, memory) = text.split_once('\n')?;
    Some((cluster.to_owned(), memory.to_owned()))
}

/// The file in queue.dir with the reader that was used last. It is not in the log, whose first
/// segment it would hold on a full disk.
const READER: &str = "reader";

/// Reads a file of queue.dir, and does not wait for a pipe in its place.
fn read_file(path: &Path) -> io::Result<String> {
    io::read_to_string(open_regular_file(path)?.0)
}

/// Writes `text` to a new file at `path`. It first removes what is there, such as a link or a file
/// of another mode.
#[expect(clippy::disallowed_methods, reason = "in the thread of its caller, which may wait")]
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

impl Daemon {
    /// Notes which kind of reader is used, and logs if it was another one before. Warns if `auto`
    /// has taken the native reader in place of another, or although collectors need more than the
    /// statistics.
    pub(super) fn note_reader(&mut self) {
        let Some(kind) = self.cluster.statistics.status().kind() else { return };
        if self.health.reader == Some(kind as u32) {
            return;
        }
        let was_another = self.health.reader.replace(kind as u32).is_some();
        let is_auto = self.config.slurm.reader == ReaderChoice::Auto;
        let is_lacking = self.cluster.needs_more_than_statistics();
        let path = self.config.queue.dir.as_ref().map(|dir| dir.join(READER));
        // The disk may hang, and then this is not written.
        let _ = waiting_threads::begin("queue.dir/reader", move || {
            let before = path.as_deref().and_then(|path| read_file(path).ok());
            let is_change =
                was_another || before.as_deref().is_some_and(|before| before != kind.name());
            if let Some(path) = path.filter(|_| before.as_deref() != Some(kind.name()))
                && let Err(error) = replace_file(&path, kind.name())
            {
                debug!(%error, path = %path.display(), "which reader is used cannot be written");
            }
            if kind == ReaderKind::Native && is_auto && (is_change || is_lacking) {
                warn!(
                    "this host has no libslurm with a matching reader, so the native reader is \
                     used; it reads only the statistics: jobs, nodes and accounting are missing \
                     until libslurm and its reader are installed"
                );
            } else if is_change {
                info!(reader = kind.name(), "another reader than before is used");
            }
        });
    }

    /// Takes the cluster's name from a reply. `false`: the name is another cluster's, and the reply
    /// must not be used.
    pub(super) fn accept_cluster_name(&mut self, name: &str) -> bool {
        let Self { cluster, queue, config, .. } = self;
        cluster.accept_name(name, config, &|collector| memory(queue, collector, Some(name)))
    }

    /// Stores the collectors' memories that have changed since the last time, but not twice in a
    /// minute. `now` is in Unix seconds; `i64::MAX` stores them in any case.
    pub(super) fn remember(&mut self, now: i64) {
        // What the log has is newer than what a collector has made without it.
        if (0..EVERY).contains(&now.saturating_sub(self.remembered)) || !self.queue.is_read() {
            return;
        }
        let cluster = self.cluster.name().map(str::to_owned);
        // Without a name it may be of the cluster whose memory it began with.
        let before = |collector: &str| {
            stored(&self.queue, collector).map_or_else(String::new, |(name, _)| name)
        };
        let memories = self.cluster.collecting.changed_memories().map(|(collector, memory)| {
            let owner = cluster.clone().unwrap_or_else(|| before(&collector));
            (key(&collector), format!("{owner}\n{memory}").into_bytes().into())
        });
        let memories: Vec<_> = memories.collect();
        if !memories.is_empty() {
            self.remembered = self.last_tick.unwrap_or_default();
            self.queue.keep(memories);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use carbon::Limits;

    use super::*;

    #[test]
    fn a_link_in_the_queues_folder_does_not_lead_a_write_to_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["reader", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        for text in ["libslurm", "native"] {
            replace_file(&path, text).unwrap();
            let mode = path.symlink_metadata().unwrap().permissions().mode();
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode & 0o7777), (text, 0o600));
        }
        assert_eq!(fs::read(&other).unwrap(), b"kept");
    }

    /// An empty first line means that the cluster's name was not known when the memory was stored:
    /// that memory fits any cluster. Text without a first line is never recalled.
    #[test]
    fn what_was_stored_under_another_name_is_not_recalled() {
        let queue = Queue::open(None, Limits::default(), &[]);
        let texts = [("alphas", "alpha\nit"), ("nobodys", "\nit"), ("no_first_line", "it")];
        queue.keep(texts.map(|(collector, text)| (key(collector), text.as_bytes().into())));
        let recalled = |cluster| {
            ["alphas", "nobodys", "no_first_line"].map(|it| memory(&queue, it, cluster).is_some())
        };
        assert_eq!(recalled(Some("alpha")), [true, true, false]);
        assert_eq!(recalled(Some("beta")), [false, true, false]);
        assert_eq!(recalled(None), [true, true, false]);
    }
}
