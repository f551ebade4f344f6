//! What collectors must know again after a restart: a small file each, beside the queue's.
//!
//! Without `queue.dir` nothing is kept beyond the daemon's end. A memory is JSON; what it means is its collector's. A file
//! that cannot be read or written costs the memory and nothing else: that is said, and the daemon goes on. Files are
//! replaced whole, so that none is ever half written.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::IgnoredAny;
use tracing::warn;

/// The longest memory that is read; a collector's has some tens of KB.
const MOST: u64 = 4 << 20;

/// Where memories are kept.
#[derive(Clone, Debug)]
pub(crate) struct Memories {
    dir: Option<PathBuf>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// What was kept since this start: a reload must not depend on a disk, nor on there being one.
    latest: HashMap<&'static str, String>,
    /// What is not on disk yet.
    unwritten: BTreeSet<&'static str>,
    /// Whether a thread is at it.
    writing: bool,
}

impl Memories {
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, kept: Arc::default() }
    }

    /// What the collector `name` had to remember.
    pub(crate) fn load(&self, name: &str) -> Option<String> {
        if let Some(memory) = lock(&self.kept).latest.get(name) {
            return Some(memory.clone());
        }
        let file = file(self.dir.as_ref()?, name);
        match read(&file) {
            Ok(memory) => Some(memory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                warn!(file = %file.display(), %error, "what a collector had to remember cannot be read; it begins anew");
                None
            }
        }
    }

    /// Keeps `memory` for the collector `name`, by a thread of its own: a disk that hangs must not hold up ticks. There is
    /// never more than one, so that what came later is what stays.
    pub(crate) fn save(&self, name: &'static str, memory: String) {
        let mut kept = lock(&self.kept);
        kept.latest.insert(name, memory);
        let Some(dir) = self.dir.clone() else { return };
        kept.unwritten.insert(name);
        if !std::mem::replace(&mut kept.writing, true) {
            let kept = Arc::clone(&self.kept);
            tokio::task::spawn_blocking(move || {
                while let Some((name, memory)) = next(&kept) {
                    let file = file(&dir, name);
                    if let Err(error) = replace(&file, &memory) {
                        warn!(file = %file.display(), %error, "what a collector must remember cannot be written");
                    }
                }
            });
        }
    }
}

/// What is to be written now; without such a thing the thread is done.
fn next(kept: &Mutex<Kept>) -> Option<(&'static str, String)> {
    let mut kept = lock(kept);
    let name = kept.unwritten.pop_first();
    kept.writing = name.is_some();
    name.and_then(|name| Some((name, kept.latest.get(name)?.clone())))
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
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
    file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let beside = file.with_extension("new");
    std::fs::write(&beside, memory)?;
    std::fs::File::open(&beside)?.sync_all()?;
    std::fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_and_what_cannot_be_read_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let memories = Memories::new(Some(folder.path().to_owned()));
        assert_eq!(memories.load("rpc_stats"), None);
        replace(&folder.path().join("rpc_stats.json"), "{}").unwrap();
        assert_eq!(memories.load("rpc_stats").as_deref(), Some("{}"));
        std::fs::write(folder.path().join("rpc_stats.json"), [0xff, 0xfe]).unwrap();
        assert_eq!(memories.load("rpc_stats"), None, "a torn disk is no reason to stop");
        std::fs::write(folder.path().join("rpc_stats.json"), "{\"users\":[").unwrap();
        assert_eq!(memories.load("rpc_stats"), None, "half a file neither");
        let large = std::fs::File::create(folder.path().join("rpc_stats.json")).unwrap();
        large.set_len(MOST + 1).unwrap();
        assert_eq!(memories.load("rpc_stats"), None);
        assert_eq!(Memories::new(None).load("rpc_stats"), None);
    }

    #[tokio::test]
    async fn what_came_last_is_what_stays_on_disk_and_for_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let memories = Memories::new(Some(folder.path().to_owned()));
        for number in 0..=1000 {
            memories.save("rpc_stats", number.to_string());
        }
        assert_eq!(memories.load("rpc_stats").as_deref(), Some("1000"), "before the disk has it");
        while lock(&memories.kept).writing {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(Memories::new(memories.dir.clone()).load("rpc_stats").as_deref(), Some("1000"));
        let nowhere = Memories::new(None);
        nowhere.save("rpc_stats", "1".to_owned());
        assert_eq!(nowhere.load("rpc_stats").as_deref(), Some("1"), "a reload is no restart");
    }
}
