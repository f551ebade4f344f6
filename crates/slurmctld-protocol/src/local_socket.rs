//! The local socket of munged or sackd.
//!
//! Its path may be on a file system that hangs, so a thread opens it. If its folder is in memory
//! (tmpfs, as /run is), connections go to its path. Else they go to what was opened, by way of
//! /proc/self/fd, which costs a tenth of a tick, and no path is looked up until that socket has no
//! server any more.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::time::sleep;

use crate::moment::{Moments, Step};
use crate::timed::Timed;

/// Type of a file system in memory, `TMPFS_MAGIC`.
const TMPFS: u64 = 0x0102_1994;

/// Time between two attempts to connect to a socket whose backlog is full (`EAGAIN`). The kernel
/// does not say when there is room again.
const AGAIN: Duration = Duration::from_millis(50);

/// A connection to munged or sackd.
pub(crate) type LocalStream<'a> = Timed<'a>;

/// The sockets to try, and those of them that exist.
#[derive(Debug, Default)]
pub(crate) struct LocalSocket {
    paths: Vec<PathBuf>,
    open: Vec<Place>,
}

/// The place at which one of the sockets is reached.
#[derive(Debug)]
enum Place {
    InMemory(SocketAddrUnix),
    Open(OwnedFd),
}

impl Place {
    fn address(&self) -> io::Result<SocketAddrUnix> {
        match self {
            Self::InMemory(address) => Ok(address.clone()),
            Self::Open(socket) => {
                Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}", socket.as_raw_fd()))?)
            }
        }
    }
}

impl LocalSocket {
    /// Connects to the first of these sockets that accepts a connection.
    pub(crate) async fn connect<'a>(
        &mut self,
        paths: &[PathBuf],
        deadline: Instant,
        moment: (&'a mut Moments, Step),
    ) -> io::Result<LocalStream<'a>> {
        let stream = self.connect_again(paths, deadline).await?;
        Ok(Timed::new(stream, deadline, Some(moment)))
    }

    async fn connect_again(&mut self, paths: &[PathBuf], deadline: Instant) -> io::Result<OwnedFd> {
        if self.paths == paths {
            match self.connect_to_open(deadline).await {
                // Its server may have started again, with another socket.
                Err(error) if error.kind() != ErrorKind::TimedOut => {}
                connected => return connected,
            }
        }
        self.open = open(paths, deadline).await?;
        self.paths = paths.to_vec();
        self.connect_to_open(deadline).await
    }

    async fn connect_to_open(&self, deadline: Instant) -> io::Result<OwnedFd> {
        let mut failure = ErrorKind::NotFound.into();
        for place in &self.open {
            match connect(&place.address()?, deadline).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

async fn connect(address: &SocketAddrUnix, deadline: Instant) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    while Instant::now() < deadline {
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(socket),
            Err(Errno::AGAIN) => sleep(AGAIN).await,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// Opens those of these sockets that exist, in a thread.
async fn open(paths: &[PathBuf], deadline: Instant) -> io::Result<Vec<Place>> {
    let owner = format!("the socket {paths:?}");
    let paths = paths.to_vec();
    let open = move || {
        let mut found = Vec::new();
        let mut failure = Errno::NOENT;
        for path in paths {
            match rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(socket) => found.push(in_memory(&path).unwrap_or(Place::Open(socket))),
                Err(Errno::NOENT) => {}
                Err(error) => failure = error,
            }
        }
        if found.is_empty() { Err(failure.into()) } else { Ok(found) }
    };
    let patience = deadline.saturating_duration_since(Instant::now());
    waiting_threads::ask(&owner, "", patience, open).await?
}

/// Returns a socket's path without links, if its folder is in memory, so that to look it up waits
/// for nothing.
fn in_memory(path: &Path) -> Option<Place> {
    let path = path.canonicalize().ok()?;
    let found = rustix::fs::statfs(path.parent()?).ok()?;
    (u64::try_from(found.f_type) == Ok(TMPFS))
        .then(|| SocketAddrUnix::new(&path).ok().map(Place::InMemory))?
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn within(time: Duration) -> Instant {
        Instant::now() + time
    }

    #[tokio::test]
    async fn a_server_that_starts_again_is_found_and_the_first_socket_that_accepts_counts() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["absent", "dead", "good"].map(|name| folder.path().join(name));
        let mut socket = LocalSocket::default();
        let soon = || within(Duration::from_secs(60));
        let error = socket.connect_again(&paths, soon()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        drop(UnixListener::bind(&paths[1]).unwrap());
        let error = socket.connect_again(&paths, soon()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            let good = UnixListener::bind(&paths[2]).unwrap();
            for _ in 0..2 {
                let _client = socket.connect_again(&paths, soon()).await.unwrap();
                good.accept().unwrap();
            }
            fs::remove_file(&paths[2]).unwrap();
        }
    }

    /// munge's unit makes its folder again at each start.
    #[tokio::test]
    async fn a_socket_in_memory_is_reached_by_its_path_also_when_its_folder_is_another() {
        let memory = Path::new("/dev/shm");
        if rustix::fs::statfs(memory).is_ok_and(|found| u64::try_from(found.f_type) != Ok(TMPFS)) {
            return;
        }
        let folder = tempfile::tempdir_in(memory).unwrap();
        let path = [folder.path().join("munge/sock")];
        let mut socket = LocalSocket::default();
        for _ in 0..2 {
            fs::create_dir(folder.path().join("munge")).unwrap();
            let server = UnixListener::bind(&path[0]).unwrap();
            socket.connect_again(&path, within(Duration::from_secs(60))).await.unwrap();
            server.accept().unwrap();
            assert!(matches!(*socket.open, [Place::InMemory(_)]), "{socket:?}");
            fs::remove_dir_all(folder.path().join("munge")).unwrap();
        }
    }

    /// With a full queue a connection is refused at once, and nothing tells when there is room.
    #[tokio::test]
    async fn a_full_queue_is_tried_again_until_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = [folder.path().join("full")];
        let kind = rustix::net::SocketType::STREAM;
        let listener = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
        let address = rustix::net::SocketAddrUnix::new(&path[0]).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut socket = LocalSocket::default();
        let _first = socket.connect_again(&path, within(Duration::from_secs(60))).await.unwrap();
        let begin = Instant::now();
        let error =
            socket.connect_again(&path, within(Duration::from_millis(200))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begin.elapsed() >= Duration::from_millis(200), "it gave up at once");
        let room = async {
            sleep(AGAIN.saturating_mul(3)).await;
            rustix::net::accept(&listener).unwrap()
        };
        let (second, _) =
            tokio::join!(socket.connect_again(&path, within(Duration::from_secs(60))), room);
        second.unwrap();
    }
}
