//! Setting aside what cannot be used: renamed, with its log, and never deleted.

use std::fs;
use std::path::{Path, PathBuf};

use super::{NAME, StoreError};

/// Renames what is there, with its log, and returns the new name.
pub(super) fn move_aside(dir: &Path) -> Result<PathBuf, StoreError> {
    let (path, aside) = (dir.join(NAME), aside(dir));
    fs::rename(&path, &aside).map_err(|source| StoreError::Folder { path, source })?;
    // The log belongs to it: a new file beside it would be taken for damaged too.
    let _ = fs::rename(log_of(&dir.join(NAME)), log_of(&aside));
    Ok(aside)
}

/// Undoes [`move_aside`]; what has been made in between goes.
pub(super) fn put_back(dir: &Path, aside: &Path) {
    let path = dir.join(NAME);
    // A log of the new file would be taken for the old one's.
    let _ = fs::remove_file(log_of(&path));
    let _ = fs::rename(log_of(aside), log_of(&path));
    let _ = fs::rename(aside, path);
}

/// A name for what is set aside.
pub(super) fn aside(dir: &Path) -> PathBuf {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    // A second one in the same second would hide the first.
    (0..1000)
        .map(|n| dir.join(format!("{NAME}.broken-{seconds}-{n}")))
        .find(|aside| !aside.exists() && !log_of(aside).exists())
        .unwrap_or_else(|| dir.join(format!("{NAME}.broken")))
}

/// The write-ahead log of a file.
pub(super) fn log_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}
