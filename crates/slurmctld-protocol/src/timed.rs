//! Reading and writing with a deadline: a peer that is frozen, or sends a byte now and then, holds
//! up nothing. The runtime knows a connection only from the first wait that took longer than a
//! moment.

use std::io;
use std::mem;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use crate::moment::{Moments, Step};

/// Number of bytes that a read can take: most answers come with one.
const BUFFER: usize = 4096;

/// A connection on which all reads and writes end by one deadline.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    stream: OwnedFd,
    registered: Option<Registered>,
    deadline: Instant,
    /// Bytes that were received behind those that the caller asked for.
    received: Vec<u8>,
    /// Wait of a moment for this step, if the peer is on this host; `None` if it is not.
    moment: Option<(&'a mut Moments, Step)>,
}

impl<'a> Timed<'a> {
    /// Begins with a non-blocking socket.
    pub(crate) fn new(
        stream: impl Into<OwnedFd>,
        deadline: Instant,
        moment: Option<(&'a mut Moments, Step)>,
    ) -> Self {
        let stream = stream.into();
        Self { stream, registered: None, deadline, received: Vec::new(), moment }
    }

    /// Writes all of it.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::net::send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(Interest::WRITABLE).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads `count` bytes, or fewer if the stream ends before. The caller has compared `count`
    /// with a limit.
    pub(crate) async fn up_to(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < count {
            if self.registered.is_none() {
                self.wait(Interest::READABLE).await?;
            }
            let lacking = count.saturating_sub(self.received.len());
            self.received.reserve(lacking.max(BUFFER));
            match rustix::io::read(&self.stream, spare_capacity(&mut self.received)) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(Interest::READABLE).await?,
                Err(error) => return Err(error.into()),
            }
        }
        let rest = self.received.split_off(count.min(self.received.len()));
        Ok(mem::replace(&mut self.received, rest))
    }

    /// Reads exactly `count` bytes.
    pub(crate) async fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let bytes = self.up_to(count).await?;
        if bytes.len() == count { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Waits until a read or write can be tried again: on this thread for a moment, then in the
    /// runtime.
    async fn wait(&mut self, interest: Interest) -> io::Result<()> {
        if let (None, Some((moments, step))) = (&self.registered, &mut self.moment) {
            let is_reading = interest == Interest::READABLE;
            let events = if is_reading { PollFlags::IN } else { PollFlags::OUT };
            if moments.wait(*step, self.stream.as_fd(), events)? {
                return Ok(());
            }
        }
        let registered = match self.registered.take() {
            Some(registered) => registered,
            None => Registered::new(self.stream.try_clone()?)?,
        };
        self.registered.insert(registered).wait(interest, self.deadline).await
    }
}

/// A socket that the runtime watches. Only its descriptor counts, of whatever family it is.
#[derive(Debug)]
pub(crate) struct Registered(TcpStream);

impl Registered {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        TcpStream::from_std(socket.into()).map(Self)
    }

    /// Waits until `deadline` for the runtime to see the socket ready. The runtime has forgotten
    /// that afterwards, so that another call waits again.
    pub(crate) async fn wait(&self, interest: Interest, deadline: Instant) -> io::Result<()> {
        timeout_at(deadline.into(), self.0.ready(interest)).await??;
        let forgets = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // The caller's own attempt shows what it is.
        let _ = self.0.try_io(interest, forgets);
        Ok(())
    }
}
