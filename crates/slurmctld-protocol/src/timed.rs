//! Reading and writing with a deadline: a peer that is frozen, or sends a byte now and then, holds
//! up nothing.

use std::io;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::time::timeout_at;

/// Most answers come with one read.
const BUFFER: usize = 4096;

/// A connection that must be done with at a certain time.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    stream: BufReader<S>,
    deadline: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Timed<S> {
    pub(crate) fn new(stream: S, deadline: Instant) -> Self {
        Self { stream: BufReader::with_capacity(BUFFER, stream), deadline }
    }

    /// Writes all of it.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout_at(self.deadline.into(), self.stream.write_all(bytes)).await?
    }

    /// So many bytes, which the caller has compared with a limit, or fewer if the stream ends
    /// before.
    pub(crate) async fn up_to(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(count);
        let mut stream = (&mut self.stream).take(count.try_into().unwrap_or(u64::MAX));
        timeout_at(self.deadline.into(), stream.read_to_end(&mut bytes)).await??;
        Ok(bytes)
    }

    /// Exactly so many.
    pub(crate) async fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let bytes = self.up_to(count).await?;
        if bytes.len() == count { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
