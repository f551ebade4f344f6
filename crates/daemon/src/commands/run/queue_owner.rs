//! The owner of the queue's directory must be the daemon's user: root's files in it would lock the
//! service out, which then runs from memory.
//!
//! Root is refused instead of giving its files away, because a chown in a directory that somebody
//! else controls can be led to any file of the host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::host::user;

/// Time that the disk may take to say whose the directory is.
const PATIENCE: Duration = Duration::from_secs(1);

/// Checks whose the queue's directory is, for a second at most: a disk that hangs must not keep the
/// daemon from starting.
///
/// # Errors
/// The daemon runs as root, and the directory belongs to another user.
pub(super) async fn check(dir: Option<PathBuf>) -> Result<()> {
    let Some(dir) = dir else { return Ok(()) };
    let looked =
        waiting_threads::ask("queue.dir", "whose it is", PATIENCE, move || look(&dir)).await;
    looked.unwrap_or(Ok(()))
}

fn look(dir: &Path) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let Ok(folder) = fs::metadata(dir) else { return Ok(()) };
    let name = dir.display();
    let owner = user(folder.uid());
    if own == 0 && folder.uid() != 0 {
        bail!(
            "queue.dir {name} belongs to {owner}, and files that root writes there would be closed \
             to it: run this as {owner} (runuser -u {owner} -- slurm-graphite run), or with \
             --queue-dir DIR"
        );
    }
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let queue = files.filter(|file| file.file_name().to_string_lossy().starts_with("queue"));
    let theirs = queue.filter_map(|file| Some((file.path(), file.metadata().ok()?.uid())));
    if own == folder.uid()
        && let Some((file, uid)) = theirs.into_iter().find(|(_, uid)| *uid != own)
    {
        tracing::error!(
            file = %file.display(),
            "it belongs to {}, so the queue may stay in memory: as root, chown -R {owner}: {name}",
            user(uid)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root's files would have closed the directory to the service, which then ran from memory.
    #[test]
    fn root_is_refused_where_the_directory_is_somebody_elses() {
        let dir = tempfile::tempdir().unwrap();
        look(dir.path()).unwrap();
        // Only root can give it away.
        if std::os::unix::fs::chown(dir.path(), Some(65_534), None).is_ok() {
            let error = look(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("belongs to {}", user(65_534))), "{error}");
        }
    }
}
