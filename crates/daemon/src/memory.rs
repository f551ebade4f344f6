//! What collectors must know again after a restart: a small file each, beside the queue's.
//!
//! Without `queue.dir` nothing is kept. A file that cannot be read or written costs the memory and nothing else:
//! that is said, and the daemon goes on. Files are replaced whole, so that none is ever half written.

use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

/// The longest memory that is read; a collector's has some tens of KB.
const MOST: u64 = 4 << 20;

/// Where memories are kept.
#[derive(Clone, Debug)]
pub(crate) struct Memories {
    dir: Option<PathBuf>,
}

impl Memories {
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    /// What the collector `name` had to remember.
    pub(crate) fn load(&self, name: &str) -> Option<String> {
        let file = self.file(name)?;
        match read(&file) {
            Ok(memory) => Some(memory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                warn!(file = %file.display(), %error, "what a collector had to remember cannot be read; it begins anew");
                None
            }
        }
    }

    /// Keeps `memory` for the collector `name`, in a thread of its own: a disk that hangs must not hold up ticks.
    pub(crate) fn save(&self, name: &'static str, memory: String) {
        let Some(file) = self.file(name) else { return };
        tokio::task::spawn_blocking(move || {
            if let Err(error) = replace(&file, &memory) {
                warn!(file = %file.display(), %error, "what a collector must remember cannot be written");
            }
        });
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.join(format!("{name}.json")))
    }
}

fn read(file: &Path) -> io::Result<String> {
    if file.metadata()?.len() > MOST {
        return Err(io::Error::other(format!("it has more than {MOST} bytes")));
    }
    std::fs::read_to_string(file)
}

fn replace(file: &Path, memory: &str) -> io::Result<()> {
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
        let large = std::fs::File::create(folder.path().join("rpc_stats.json")).unwrap();
        large.set_len(MOST + 1).unwrap();
        assert_eq!(memories.load("rpc_stats"), None);
        assert_eq!(Memories::new(None).load("rpc_stats"), None);
    }
}
