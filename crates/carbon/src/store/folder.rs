//! The queue's folder: its lock, its segments by name, who may read it, and whether it is still the
//! one that was opened.

use std::fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tracing::{info, warn};

use super::StoreError;
use super::disk::OWN_FILE;

/// The file that a daemon keeps locked while it uses the folder. It contains the daemon's process
/// id.
const LOCK: &str = "queue.lock";
/// The file that keeps room free for a full disk; see room.rs.
pub(super) const RESERVE: &str = "queue.reserve";
/// The mode of the queue's folder.
const OWN_FOLDER: u32 = 0o700;
/// The bits of a mode that are the rights of the group and of all other users.
const OTHERS: u32 = 0o077;
/// Numbers of segments and records are below this, so that the next number never overflows.
pub(super) const MOST_NUMBER: u64 = 1 << 63;

/// A file that is open under a name.
#[derive(Debug)]
pub(super) struct Named {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Named {
    pub(super) fn new(file: &File, path: &Path) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }

    /// Whether the name still is that of the file. If the disk does not say, it counts as there.
    pub(super) fn is_there(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(now) => (now.dev(), now.ino()) == (self.device, self.inode),
            Err(error) => !matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
            ),
        }
    }
}

/// The lock on a folder.
#[derive(Debug)]
pub(super) struct FolderLock {
    file: File,
    named: Named,
}

impl FolderLock {
    /// Whether the lock's file has not been removed, wherever it is now.
    pub(super) fn has_name(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }

    /// Whether the lock's file is still where it was opened.
    pub(super) fn is_there(&self) -> bool {
        self.named.is_there()
    }
}

/// Creates the folder if it does not exist, and locks it.
pub(super) fn lock(dir: &Path) -> Result<FolderLock, StoreError> {
    let io = |path: &Path, source| StoreError::Io { path: path.to_owned(), source };
    DirBuilder::new()
        .recursive(true)
        .mode(OWN_FOLDER)
        .create(dir)
        .map_err(|source| io(dir, source))?;
    let path = dir.join(LOCK);
    // A pipe in its place would hang, and a link lead elsewhere.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(OWN_FILE)
        .custom_flags(flags)
        .open(&path)
        .and_then(|file| Ok((Named::new(&file, &path)?, file)));
    let (named, mut file) = opened.map_err(|source| io(&path, source))?;
    match file.try_lock() {
        Ok(()) if !named.is_there() => Err(io(&path, ErrorKind::NotFound.into())),
        Ok(()) => {
            // Only read by a process that cannot lock it.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(FolderLock { file, named })
        }
        Err(TryLockError::WouldBlock) => {
            let pid: Option<u32> =
                fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            let dir = dir.to_owned();
            Err(match pid.filter(|&pid| is_undead(pid)) {
                Some(pid) => StoreError::HeldByUndead { dir, pid },
                None => StoreError::Locked { dir, pid },
            })
        }
        Err(TryLockError::Error(source)) => Err(io(&path, source)),
    }
}

/// Whether the process `pid` has been killed and cannot end, because one of its threads is in a
/// system call that no signal ends. A process that cannot be seen may be alive, on another host or
/// in another container.
fn is_undead(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| says_undead(&status))
}

fn says_undead(status: &str) -> bool {
    const KILL: u64 = 1 << 8;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_killed = |name| {
        let pending = field(name).and_then(|bits| u64::from_str_radix(bits, 16).ok());
        pending.is_some_and(|bits| bits & KILL != 0)
    };
    match field("State:").and_then(|state| state.chars().next()) {
        Some('Z' | 'X') => true,
        Some('D') => is_killed("SigPnd:") || is_killed("ShdPnd:"),
        _ => false,
    }
}

/// The path of the segment whose first record has `number`.
pub(super) fn segment(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("queue-{number:020}.log"))
}

/// The numbers of all segments in the folder, oldest first.
pub(super) fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    numbers(dir, ".log")
}

/// The path of the file of a state that has `number`.
pub(super) fn state(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("queue-{number:020}.state"))
}

/// The numbers of all files of states in the folder.
pub(super) fn states(dir: &Path) -> io::Result<Vec<u64>> {
    numbers(dir, ".state")
}

fn numbers(dir: &Path, end: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("queue-")?.strip_suffix(end));
        let number = number
            .filter(|number| number.len() == 20 && number.bytes().all(|c| c.is_ascii_digit()));
        let number = number.and_then(|number| number.parse::<u64>().ok());
        numbers.extend(number.filter(|&number| number < MOST_NUMBER));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Takes the rights of other users away from the folder and from what the daemon has written in it.
/// What belongs to somebody else, or to a group that is not the daemon's own, stays as it is, with
/// a warning; so does a folder that has other files.
pub(super) fn narrow(dir: &Path) {
    let (mut wide, mut is_ours_alone) = (Vec::new(), true);
    for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if is_of_the_daemon(&path) && metadata.is_file() => {
                wide.push((path, metadata, OWN_FILE))
            }
            _ => is_ours_alone = false,
        }
    }
    if let Ok(metadata) = fs::metadata(dir) {
        let mode = if is_ours_alone { OWN_FOLDER } else { metadata.mode() };
        wide.push((dir.to_owned(), metadata, mode));
    }
    wide.retain(|(_, metadata, _)| metadata.mode() & OTHERS != 0);
    let mut left = Vec::new();
    for (path, metadata, mode) in wide {
        let is_narrowed = is_own(&metadata) && mode & OTHERS == 0;
        if !is_narrowed || fs::set_permissions(&path, Permissions::from_mode(mode)).is_err() {
            left.push(path);
        } else {
            info!(path = %path.display(), "other users could read the queue; its rights are now \
                {mode:o}");
        }
    }
    if let Some(path) = left.first() {
        warn!(path = %path.display(), others = left.len() - 1, "other users may read what is in \
            the queue's directory; if they should not: chmod go=");
    }
}

/// Whether this process's user and group own a file.
fn is_own(metadata: &Metadata) -> bool {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    (metadata.uid(), metadata.gid()) == (user, group)
}

/// Whether the daemon writes files with this name.
fn is_of_the_daemon(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("queue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that only stands still, or that another signal waits for, still uses its queue.
    #[test]
    fn only_what_is_killed_and_cannot_end_or_has_ended_is_undead() {
        for (state, own, shared, expected) in [
            ("R (running)", "0", "0", false),
            ("R (running)", "100", "100", false),
            ("S (sleeping)", "0", "100", false),
            ("T (stopped)", "100", "0", false),
            ("t (tracing stop)", "0", "0", false),
            ("D (disk sleep)", "0", "0", false),
            ("D (disk sleep)", "4000", "fffffffffffffeff", false),
            ("D (disk sleep)", "100", "0", true),
            ("D (disk sleep)", "0", "4100", true),
            ("Z (zombie)", "0", "0", true),
            ("X (dead)", "0", "0", true),
        ] {
            let status = format!(
                "Name:\tx\nState:\t{state}\nSigQ:\t1/2\nSigPnd:\t{own:0>16}\nShdPnd:\t{shared:0>16}\n"
            );
            assert_eq!(says_undead(&status), expected, "{status}");
        }
        assert!(!says_undead(""), "a /proc that hides it");
    }
}
