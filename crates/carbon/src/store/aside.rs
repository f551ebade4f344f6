//! Setting aside what cannot be used: renamed, with its log and its tally. The newest few are kept for a person to look at.
//!
//! While a file's batches are taken over into a new one it has a name of its own: where that is found at a start, the new
//! one has not got them all.

use std::fs;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::{NAME, StoreError};

/// Files set aside that are kept.
const KEPT: usize = 3;

/// The file that is being taken over into a new one.
pub(super) fn pending(dir: &Path) -> PathBuf {
    dir.join(format!("{NAME}.salvage"))
}

/// Makes room for a new file: what is there is to be taken over. What was made of one whose taking over was interrupted is
/// set aside instead.
pub(super) fn begin(dir: &Path) -> Result<PathBuf, StoreError> {
    let (path, pending) = (dir.join(NAME), pending(dir));
    if pending.exists() {
        finish(dir, &path).map(|_| ())?
    } else {
        rename(&path, &pending)?
    }
    Ok(pending)
}

/// Undoes [`begin`]; what has been made in between goes.
pub(super) fn put_back(dir: &Path) {
    let path = dir.join(NAME);
    for beside in [log_of, tally_of] {
        // The new file's would be taken for the old one's.
        let _ = fs::remove_file(beside(&path));
        let _ = fs::rename(beside(&pending(dir)), beside(&path));
    }
    let _ = fs::rename(pending(dir), path);
}

/// Nothing more is to be taken over from `path`. Returns its new name; the oldest of those set aside go.
pub(super) fn finish(dir: &Path, path: &Path) -> Result<PathBuf, StoreError> {
    let to = aside(dir);
    rename(path, &to)?;
    for (_, old) in set_aside(dir).into_iter().rev().skip(KEPT) {
        warn!(file = %old.display(), "an old file that was set aside is deleted");
        for old in [log_of(&old), tally_of(&old), old] {
            let _ = fs::remove_file(old);
        }
    }
    Ok(to)
}

fn rename(path: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(path, to).map_err(|source| StoreError::Folder { path: path.to_owned(), source })?;
    // They belong to it: a new file beside them would be taken for damaged too.
    for beside in [log_of, tally_of] {
        let _ = fs::rename(beside(path), beside(to));
    }
    Ok(())
}

/// All that are set aside, oldest first: when, and the how manieth then.
fn set_aside(dir: &Path) -> Vec<((u64, u64), PathBuf)> {
    let number = |path: &PathBuf| -> Option<(u64, u64)> {
        let name = path.file_name()?.to_str()?.strip_prefix(NAME)?.strip_prefix(".broken-")?;
        let (seconds, n) = name.split_once('-')?;
        Some((seconds.parse().ok()?, n.parse().ok()?))
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<_> = entries.filter_map(|path| Some((number(&path)?, path))).collect();
    all.sort();
    all
}

/// A name for what is set aside, newer than all that are.
fn aside(dir: &Path) -> PathBuf {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (seconds, n) = match set_aside(dir).last() {
        Some(&((last, n), _)) if last >= now => (last, n.saturating_add(1)),
        _ => (now, 0),
    };
    dir.join(format!("{NAME}.broken-{seconds}-{n}"))
}

/// The write-ahead log of a file.
pub(super) fn log_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}

/// The tally of what is due from a file.
pub(super) fn tally_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-tally", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_files_set_aside_the_newest_three_stay_with_their_logs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let aside: Vec<PathBuf> = (0..5)
            .map(|_| {
                fs::write(&path, "file").unwrap();
                fs::write(log_of(&path), "log").unwrap();
                finish(dir.path(), &path).unwrap()
            })
            .collect();
        let left: Vec<PathBuf> = set_aside(dir.path()).into_iter().map(|(_, path)| path).collect();
        assert_eq!(left, aside[2..]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6);
    }
}
