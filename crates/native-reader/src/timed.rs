//! Reading and writing with a deadline: a peer that is frozen, or sends a byte now and then, holds up nothing.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// A connection that must be done with at a certain time.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    stream: S,
    deadline: Instant,
    /// When the time-out of reads was last set.
    armed: Option<Instant>,
}

/// By how much a read may end late, because its time-out is not set again for each piece.
const SLACK: Duration = Duration::from_millis(50);

/// A send buffer always has room for this much, so that it cannot block.
const NEVER_BLOCKS: usize = 4096;

/// The time until `deadline`; an error if it has passed.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    // A shorter time-out would be none.
    if left < Duration::from_millis(1) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Timed<UnixStream> {
    /// Connects to a local socket. A server that is frozen blocks this as soon as its queue is full.
    pub(crate) fn connect(path: &Path, deadline: Instant) -> io::Result<Self> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)?))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self::new(socket.into(), deadline))
    }
}

impl<S: Read + Write + AsFd> Timed<S> {
    pub(crate) fn new(stream: S, deadline: Instant) -> Self {
        Self { stream, deadline, armed: None }
    }

    /// Writes all of it.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if bytes.len() > NEVER_BLOCKS {
                set_socket_timeout(&self.stream, Timeout::Send, Some(left(self.deadline)?))?;
            }
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_time(error)),
            }
        }
        Ok(())
    }

    /// Fills `buffer`, and returns how much of it was filled before the end of the stream.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0_usize;
        while let Some(free) = buffer.get_mut(filled..).filter(|free| !free.is_empty()) {
            self.arm()?;
            match self.stream.read(free) {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_time(error)),
            }
        }
        Ok(filled)
    }

    fn arm(&mut self) -> io::Result<()> {
        if self.armed.is_none_or(|armed| armed.elapsed() > SLACK) {
            set_socket_timeout(&self.stream, Timeout::Recv, Some(left(self.deadline)?))?;
            self.armed = Some(Instant::now());
        }
        Ok(())
    }

    /// Exactly `count` bytes, which the caller has compared with a limit.
    pub(crate) fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        if self.fill(&mut bytes)? == count { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// A time-out of the socket is `EAGAIN`.
fn in_time(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
