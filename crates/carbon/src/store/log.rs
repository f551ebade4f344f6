//! The write-ahead log as an earlier run left it: whether commits lie behind what SQLite could read of it.
//!
//! SQLite takes a damaged place for the end of the log, and says nothing of what follows. A commit that a crash cut short has no
//! last frame and is not counted; nor is what a truncated log no longer has: nothing tells of it. The format is that
//! of <https://www.sqlite.org/fileformat2.html#walformat>.

use std::fs;
use std::path::{Path, PathBuf};

use super::NAME;
use super::aside::{aside, log_of};

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const PAGE: usize = 4096;

/// The number of frames up to and including each commit in the log, in order; none where there is no log.
pub(super) fn commits(log: &Path) -> Vec<usize> {
    let bytes = fs::read(log).unwrap_or_default();
    let salt = bytes.get(16..24);
    let frames = bytes.get(HEADER..).unwrap_or_default().chunks_exact(FRAME_HEADER + PAGE);
    // Frames of an earlier lap lie behind, under another salt. The header's may itself be damaged.
    let first = bytes.get(HEADER + 8..HEADER + 16);
    let commits = frames.enumerate().filter(|(_, frame)| {
        let (size, frame_salt) = (frame.get(4..8), frame.get(8..16));
        size.is_some_and(|size| size != [0; 4]) && (frame_salt == salt || frame_salt == first)
    });
    commits.map(|(index, _)| index + 1).collect()
}

/// Copies a log with commits behind the `read` frames that could be read, since what is written next goes over them; returns
/// their number and the copy.
pub(super) fn keep_unread(dir: &Path, commits: &[usize], read: usize) -> Option<(usize, PathBuf)> {
    let unread = commits.iter().filter(|&&commit| commit > read).count();
    let (log, copy) = (log_of(&dir.join(NAME)), log_of(&aside(dir)));
    (unread > 0).then(|| fs::copy(&log, &copy).map_or((unread, log), |_| (unread, copy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_of_the_present_lap_are_counted() {
        let file = std::env::temp_dir().join(format!("carbon-log-{}", std::process::id()));
        let mut bytes = vec![0; HEADER];
        bytes[16..24].copy_from_slice(b"saltsalt");
        for (size, salt) in [(0, b"saltsalt"), (2, b"saltsalt"), (3, b"saltsalt"), (9, b"earlier!")] {
            bytes.extend([0, 0, 0, 1, 0, 0, 0, size]);
            bytes.extend(salt);
            bytes.extend([0; 8 + PAGE]);
        }
        fs::write(&file, &bytes).unwrap();
        assert_eq!(commits(&file), [2, 3]);
        bytes[16] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(commits(&file), [2, 3], "the header's salt is damaged");
        fs::remove_file(&file).unwrap();
        assert!(commits(&file).is_empty());
    }
}
