//! What collectors must remember across restarts: one small file each, next to the queue's.
//!
//! Without `queue.dir` nothing is kept after the daemon ends. A memory is JSON, and only its collector knows what it
//! means. If a file cannot be read or written, only that memory is lost: the daemon says so and continues. Files are
//! replaced whole, so that none is ever half written.

use std::collections::{BTreeSet, HashMap};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::IgnoredAny;
use tracing::warn;

/// The longest memory that is read; a collector's has some tens of KB.
const MOST: u64 = 4 << 20;

/// How long the disk may take to read them.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Memories {
    dir: Option<PathBuf>,
    kept: Arc<Mutex<KeptMemories>>,
}

#[derive(Debug, Default)]
struct KeptMemories {
    /// What was read or kept since this start: a reload must not depend on a disk, nor on there being one.
    latest: HashMap<&'static str, String>,
    /// What is not on disk yet.
    unwritten: BTreeSet<&'static str>,
    /// Whether a thread is writing.
    writing: bool,
    /// Whether the log says that they cannot be written.
    said: bool,
}

impl Memories {
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, kept: Arc::default() }
    }

    /// Reads what these collectors had remembered, for at most [`PATIENCE`]. If the disk hangs, they start without it.
    pub(crate) async fn read(&self, names: Vec<&'static str>) {
        let Some(dir) = self.dir.clone() else { return };
        let kept = Arc::clone(&self.kept);
        let unknown =
            names.into_iter().filter(|name| !lock(&kept).latest.contains_key(name)).collect::<Vec<_>>();
        if unknown.is_empty() {
            return;
        }
        let reading = tokio::task::spawn_blocking(move || {
            for name in unknown {
                if let Some(memory) = read_or_say(&file(&dir, name)) {
                    lock(&kept).latest.entry(name).or_insert(memory);
                }
            }
        });
        if tokio::time::timeout(PATIENCE, reading).await.is_err() {
            warn!(
                "the disk does not answer, so the list of users with paths cannot be read and is made again"
            );
        }
    }

    /// What the collector `name` remembered, if it has been read or saved.
    pub(crate) fn recall(&self, name: &str) -> Option<String> {
        lock(&self.kept).latest.get(name).cloned()
    }

    /// Saves these memories, and those that could not be written before, in a thread of its own, so that a disk that hangs
    /// does not delay ticks. There is only one such thread at a time, so that the newest memory stays.
    pub(crate) fn save(&self, memories: impl IntoIterator<Item = (&'static str, String)>) {
        let mut kept = lock(&self.kept);
        for (name, memory) in memories {
            kept.latest.insert(name, memory);
            kept.unwritten.insert(name);
        }
        let Some(dir) = self.dir.clone().filter(|_| !kept.unwritten.is_empty()) else { return };
        if !std::mem::replace(&mut kept.writing, true) {
            let kept = Arc::clone(&self.kept);
            tokio::task::spawn_blocking(move || write(&dir, &kept));
        }
    }
}

/// Writes what is not written yet; what fails is tried again the next time.
fn write(dir: &Path, kept: &Mutex<KeptMemories>) {
    let mut failed = BTreeSet::new();
    while let Some((name, memory)) = next(kept, &mut failed) {
        let file = file(dir, name);
        if let Err(error) = replace(&file, &memory) {
            failed.insert(name);
            if !std::mem::replace(&mut lock(kept).said, true) {
                warn!(file = %file.display(), %error, "the list of users with paths cannot be written; trying again at every tick");
            }
        }
    }
}

/// The next memory to write; without one the thread ends.
fn next(kept: &Mutex<KeptMemories>, failed: &mut BTreeSet<&'static str>) -> Option<(&'static str, String)> {
    let mut kept = lock(kept);
    let name = kept.unwritten.pop_first();
    kept.writing = name.is_some();
    if name.is_none() {
        kept.said &= !failed.is_empty();
        kept.unwritten.append(failed);
    }
    name.and_then(|name| Some((name, kept.latest.get(name)?.clone())))
}

fn lock(kept: &Mutex<KeptMemories>) -> MutexGuard<'_, KeptMemories> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
}

fn read_or_say(file: &Path) -> Option<String> {
    match read(file) {
        Ok(memory) => Some(memory),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            warn!(file = %file.display(), %error, "the list of users with paths cannot be read; it is made again");
            None
        }
    }
}

fn read(file: &Path) -> io::Result<String> {
    if file.metadata()?.len() > MOST {
        return Err(io::Error::other(format!("it has more than {MOST} bytes")));
    }
    let memory = std::fs::read_to_string(file)?;
    serde_json::from_str::<IgnoredAny>(&memory)?;
    Ok(memory)
}

fn replace(file: &Path, memory: &str) -> io::Result<()> {
    // The queue's own thread may not have made the folder yet.
    file.parent().map_or(Ok(()), |dir| DirBuilder::new().recursive(true).mode(0o700).create(dir))?;
    let beside = file.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    let mut new = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    new.write_all(memory.as_bytes())?;
    new.sync_all()?;
    std::fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a daemon's start does.
    async fn load(dir: Option<&Path>) -> Option<String> {
        let memories = Memories::new(dir.map(Path::to_owned));
        memories.read(vec!["rpc_stats"]).await;
        memories.recall("rpc_stats")
    }

    async fn written(memories: &Memories) {
        while lock(&memories.kept).writing {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn what_was_kept_comes_back_and_what_cannot_be_read_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Some(folder.path());
        let file = folder.path().join("rpc_stats.json");
        assert_eq!(load(dir).await, None);
        replace(&file, "{}").unwrap();
        assert_eq!(load(dir).await.as_deref(), Some("{}"));
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert_eq!(load(dir).await, None, "a torn disk is no reason to stop");
        std::fs::write(&file, "{\"users\":[").unwrap();
        assert_eq!(load(dir).await, None, "half a file neither");
        std::fs::File::create(&file).unwrap().set_len(MOST + 1).unwrap();
        assert_eq!(load(dir).await, None);
        assert_eq!(load(None).await, None);
    }

    #[tokio::test]
    async fn what_came_last_is_what_stays_on_disk_and_for_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let memories = Memories::new(Some(folder.path().to_owned()));
        for number in 0..=1000 {
            memories.save([("rpc_stats", number.to_string())]);
        }
        assert_eq!(memories.recall("rpc_stats").as_deref(), Some("1000"), "before the disk has it");
        written(&memories).await;
        assert_eq!(load(Some(folder.path())).await.as_deref(), Some("1000"));
        let nowhere = Memories::new(None);
        nowhere.save([("rpc_stats", "1".to_owned())]);
        assert_eq!(nowhere.recall("rpc_stats").as_deref(), Some("1"), "a reload is no restart");
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_written_when_the_disk_is_back_although_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("queue");
        std::fs::write(&dir, "a file where the directory should be").unwrap();
        let memories = Memories::new(Some(dir.clone()));
        memories.save([("jobs", "1".to_owned()), ("rpc_stats", "2".to_owned())]);
        written(&memories).await;
        std::fs::remove_file(&dir).unwrap();
        memories.save([]);
        written(&memories).await;
        assert_eq!(load(Some(&dir)).await.as_deref(), Some("2"));
        assert_eq!(std::fs::read_to_string(dir.join("jobs.json")).unwrap(), "1");
        assert!(lock(&memories.kept).unwritten.is_empty());
    }

    #[tokio::test]
    async fn a_disk_that_hangs_costs_the_memory_and_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("rpc_stats.json");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let start = std::time::Instant::now();
        assert_eq!(load(Some(folder.path())).await, None);
        assert!((PATIENCE..PATIENCE * 3).contains(&start.elapsed()), "{:?}", start.elapsed());
        // The runtime waits for its threads.
        drop(std::fs::File::options().write(true).open(&fifo).unwrap());
    }
}
