//! The socket for `status`: status.sock in the folder that RUNTIME_DIRECTORY names, which systemd
//! creates. Any user of the host may connect, and nothing that a client sends is read. It costs
//! nothing until somebody asks.

use std::fs::{File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::host::{RUNTIME_FOLDER, runtime_folder};
use crate::status::StatusDocument;
use crate::trust::check_own_folder;

const NAME: &str = "status.sock";
/// Name of the file that is locked as long as a daemon listens in its folder.
const LOCK: &str = "status.lock";
/// Time that a daemon may take to answer. It does so between two ticks, within milliseconds.
const DEADLINE: Duration = Duration::from_secs(5);
/// Number of bytes after which an answer is cut, far over those of the longest one.
const LONGEST: u64 = 16 << 20;

/// The daemon's end of the socket for `status`.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    /// The socket, with the lock on its folder.
    listener: Option<(UnixListener, File)>,
    /// A spare file descriptor, which is closed so that a client can still be accepted when no
    /// other is left.
    reserve: Option<OwnedFd>,
}

/// A client that has asked.
#[derive(Debug)]
pub(crate) struct Asker(UnixStream);

/// A reason why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StatusError(String);

impl StatusSocket {
    /// Listens where RUNTIME_DIRECTORY says. Without it, if that fails, or if another daemon
    /// listens there, no client is answered.
    pub(crate) fn listen() -> Self {
        let listener = runtime_folder().and_then(|folder| {
            let path = folder.join(NAME);
            lock(&folder)
                .and_then(|lock| Ok((listen(&path)?, lock)))
                .inspect_err(|error| {
                    warn!(path = %path.display(), %error, "`slurm-graphite status` cannot reach \
                        this daemon");
                })
                .ok()
        });
        Self { listener, reserve: None }
    }

    /// Waits for the next client; never returns if none can connect. Safe to cancel.
    pub(crate) async fn asked(&mut self) -> Asker {
        if let (None, Some((listener, _))) = (&self.reserve, &self.listener) {
            self.reserve = listener.as_fd().try_clone_to_owned().ok();
        }
        while let Some((listener, _)) = &self.listener {
            match listener.accept().await {
                Ok((stream, _)) => return Asker(stream),
                Err(error) => {
                    debug!(%error, "status requests are not answered now");
                    // Most likely there are no file descriptors left.
                    if self.reserve.take().is_none() {
                        sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        }
        std::future::pending().await
    }
}

impl Asker {
    /// Sends the document and closes the connection, without waiting: the document is smaller than
    /// a socket's buffer.
    pub(crate) fn answer(self, document: &StatusDocument) {
        let written = serde_json::to_vec(document)
            .map_err(io::Error::other)
            .and_then(|bytes| self.0.into_std()?.write_all(&bytes));
        if let Err(error) = written {
            debug!(%error, "the client that requested the status has disconnected");
        }
    }
}

/// Asks the daemon at `socket`, or at the usual place.
pub(crate) async fn ask(socket: Option<&Path>) -> Result<StatusDocument, StatusError> {
    let usual = || runtime_folder().unwrap_or_else(|| RUNTIME_FOLDER.into()).join(NAME);
    let path = socket.map_or_else(usual, Path::to_owned);
    let mut bytes = Vec::new();
    let read = async {
        let stream = UnixStream::connect(&path).await?;
        stream.take(LONGEST).read_to_end(&mut bytes).await
    };
    let read = timeout(DEADLINE, read).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
    let at = path.display();
    let why = match read.map(|_| serde_json::from_slice(&bytes)) {
        Ok(Ok(document)) => return Ok(document),
        Ok(Err(error)) => {
            format!(
                "the program that answers at {at} is not slurm-graphite of this version: {error}"
            )
        }
        // As many wait for a daemon that answers nobody as the kernel lets.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            format!(
                "the daemon at {at} has not answered within {} s: it is stopped or hangs, or its \
                    host is overloaded",
                DEADLINE.as_secs()
            )
        }
        Err(error) => format!(
            "no daemon answers at {at}: {error}\nIs it running? `systemctl status slurm-graphite`. \
             Without systemd the daemon listens in the directory that RUNTIME_DIRECTORY names."
        ),
    };
    Err(StatusError(why))
}

/// Locks the folder, so that the socket of a daemon that listens is not taken over. The lock of a
/// daemon that was killed is free.
#[expect(clippy::disallowed_methods, reason = "at the start")]
fn lock(folder: &Path) -> io::Result<File> {
    check_own_folder(folder).map_err(io::Error::other)?;
    // A pipe in its place would hang the start, and a link lead elsewhere.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(folder.join(LOCK))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("status.lock is not a regular file: remove it"));
    }
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another daemon listens in this directory; start each with a RUNTIME_DIRECTORY of its \
                own",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Listens under another name first, which is then renamed to `path`. So the socket takes the place
/// of one that an earlier run has left, and is not seen before its mode is set.
#[expect(clippy::disallowed_methods, reason = "at the start")]
fn listen(path: &Path) -> io::Result<UnixListener> {
    let new = path.with_extension("new");
    // If it is still there, the next line says so.
    let _ = std::fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o666))?;
    std::fs::rename(&new, path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// The daemon's start hung for ever in the open of the pipe, deaf to SIGTERM.
    #[test]
    fn a_pipe_or_a_link_in_the_place_of_the_lock_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK);
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        lock(folder.path()).unwrap_err();
        let reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        let said = lock(folder.path()).unwrap_err().to_string();
        assert!(said.contains("not a regular file"), "{said}");
        drop(reader);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), &path).unwrap();
        lock(folder.path()).unwrap_err();
        assert!(!folder.path().join("other").exists());
        std::fs::remove_file(&path).unwrap();
        lock(folder.path()).unwrap();
    }
}
