//! The local socket of munged or sackd.
//!
//! Its path may be on a file system that hangs, so a thread opens it. From then on connections go
//! to what was opened, by way of /proc/self/fd, and no path is looked up until that socket has no
//! server any more.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::time::sleep;

use crate::timed::Timed;

/// A socket whose queue is full refuses at once, and nothing tells when there is room.
const AGAIN: Duration = Duration::from_millis(50);

/// A connection to it.
pub(crate) type LocalStream = Timed<UnixStream>;

/// The sockets to try, and those of them that exist.
#[derive(Debug, Default)]
pub(crate) struct LocalSocket {
    paths: Vec<PathBuf>,
    open: Vec<OwnedFd>,
}

impl LocalSocket {
    /// Connects to the first that accepts it.
    pub(crate) async fn connect(
        &mut self,
        paths: &[PathBuf],
        deadline: Instant,
    ) -> io::Result<LocalStream> {
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

    async fn connect_to_open(&self, deadline: Instant) -> io::Result<LocalStream> {
        let mut failure = ErrorKind::NotFound.into();
        for socket in &self.open {
            match connect(socket, deadline).await {
                Ok(stream) => return Ok(Timed::new(stream, deadline)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

async fn connect(socket: &OwnedFd, deadline: Instant) -> io::Result<UnixStream> {
    let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
    while Instant::now() < deadline {
        match UnixStream::connect(&path).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(AGAIN).await,
            connected => return connected,
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// Those that exist, in a thread.
async fn open(paths: &[PathBuf], deadline: Instant) -> io::Result<Vec<OwnedFd>> {
    let owner = format!("the socket {paths:?}");
    let paths = paths.to_vec();
    let open = move || {
        let mut found = Vec::new();
        let mut failure = Errno::NOENT;
        for path in paths {
            match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(socket) => found.push(socket),
                Err(Errno::NOENT) => {}
                Err(error) => failure = error,
            }
        }
        if found.is_empty() { Err(failure.into()) } else { Ok(found) }
    };
    let patience = deadline.saturating_duration_since(Instant::now());
    waiting_threads::ask(&owner, "", patience, open).await?
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
        let error = socket.connect(&paths, soon()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        drop(UnixListener::bind(&paths[1]).unwrap());
        let error = socket.connect(&paths, soon()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            let good = UnixListener::bind(&paths[2]).unwrap();
            for _ in 0..2 {
                let _client = socket.connect(&paths, soon()).await.unwrap();
                good.accept().unwrap();
            }
            fs::remove_file(&paths[2]).unwrap();
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
        let _first = socket.connect(&path, within(Duration::from_secs(60))).await.unwrap();
        let begin = Instant::now();
        let error = socket.connect(&path, within(Duration::from_millis(200))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begin.elapsed() >= Duration::from_millis(200), "it gave up at once");
        let room = async {
            sleep(AGAIN.saturating_mul(3)).await;
            rustix::net::accept(&listener).unwrap()
        };
        let (second, _) =
            tokio::join!(socket.connect(&path, within(Duration::from_secs(60))), room);
        second.unwrap();
    }
}
