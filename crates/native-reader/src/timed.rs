//! Reading and writing with a deadline: a peer that is frozen, or sends a byte now and then, holds up nothing.

use std::io::{self, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// A connection that must be done with at a certain time.
#[derive(Debug)]
pub(crate) struct Timed(BufReader<Socket>);

#[derive(Debug)]
struct Socket {
    socket: OwnedFd,
    deadline: Instant,
    /// When the time-out of reads was last set.
    armed: Option<Instant>,
}

/// Most answers come with one read.
const BUFFER: usize = 4096;

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

impl Timed {
    /// Connects to a local socket. A server that is frozen blocks this as soon as its queue is full.
    pub(crate) fn unix(path: &Path, deadline: Instant) -> io::Result<Self> {
        Self::connect(AddressFamily::UNIX, &SocketAddrUnix::new(path)?, deadline)
    }

    /// Connects to a port.
    pub(crate) fn tcp(address: SocketAddr, deadline: Instant) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        Self::connect(family, &address, deadline)
    }

    fn connect(family: AddressFamily, address: &impl SocketAddrArg, deadline: Instant) -> io::Result<Self> {
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // It is for connecting too: socket(7).
        set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)?))?;
        rustix::net::connect(&socket, address).map_err(in_time)?;
        Ok(Self(BufReader::with_capacity(BUFFER, Socket { socket, deadline, armed: None })))
    }

    /// From now on this is the deadline.
    pub(crate) fn until(&mut self, deadline: Instant) {
        let socket = self.0.get_mut();
        (socket.deadline, socket.armed) = (deadline, None);
    }

    /// Whether the other end is a port of this host.
    pub(crate) fn is_within_host(&self, peer: SocketAddr) -> bool {
        let near =
            || rustix::net::getsockname(&self.0.get_ref().socket).ok().and_then(|near| near.try_into().ok());
        peer.ip().is_loopback()
            || peer.ip().is_unspecified()
            || near().is_some_and(|near: SocketAddr| near.ip() == peer.ip())
    }

    /// Writes all of it.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Socket { socket, deadline, .. } = self.0.get_mut();
        while !bytes.is_empty() {
            if bytes.len() > NEVER_BLOCKS {
                set_socket_timeout(&*socket, Timeout::Send, Some(left(*deadline)?))?;
            }
            match rustix::net::send(&*socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(in_time(error)),
            }
        }
        Ok(())
    }

    /// So many bytes, which the caller has compared with a limit, or fewer if the stream ends before.
    pub(crate) fn up_to(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(count);
        self.0.by_ref().take(count.try_into().unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Exactly so many.
    pub(crate) fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let bytes = self.up_to(count)?;
        if bytes.len() == count { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.armed.is_none_or(|armed| armed.elapsed() > SLACK) {
            set_socket_timeout(&self.socket, Timeout::Recv, Some(left(self.deadline)?))?;
            self.armed = Some(Instant::now());
        }
        rustix::io::read(&self.socket, buffer).map_err(in_time)
    }
}

/// What a time-out of the socket is: `EINPROGRESS` where a port does not answer, otherwise `EAGAIN`.
fn in_time(error: Errno) -> io::Error {
    match error {
        Errno::AGAIN | Errno::INPROGRESS => io::ErrorKind::TimedOut.into(),
        error => error.into(),
    }
}
