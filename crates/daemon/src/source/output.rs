//! The lines that a reader process writes.
//!
//! libslurm's reader answers within some milliseconds, so its line is waited for in poll(2) first,
//! and the runtime watches the pipe only from a wait that took longer than a moment to the end of
//! that line. What comes between two requests is found by the next one.

use std::io;
use std::mem;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::PollFlags;
use rustix::io::Errno;
use slurmctld_protocol::{Moments, Step};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::task::coop::consume_budget;

/// Length at which a line is given up, bytes. It is far over the longest answer, which has 100,000
/// nodes, each in 500 bytes.
pub(super) const LONGEST_LINE: usize = 64 << 20;
/// Bytes that a read can take: most answers come in one.
const BUFFER: usize = 16 << 10;

/// The stdout of a reader.
#[derive(Debug)]
pub(super) struct ReaderOutput {
    pipe: OwnedFd,
    registered: Option<Receiver>,
    moments: Moments,
    /// The last line, and the bytes that came after it.
    received: Vec<u8>,
    /// Length of the last line in `received`, bytes; 0 if it was removed.
    line: usize,
}

impl ReaderOutput {
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let moments = Moments::default();
        Ok(Self { pipe, registered: None, moments, received: Vec::new(), line: 0 })
    }

    /// Begins a request. Returns `false` if the reader has written something that nobody asked for.
    pub(super) fn begin_request(&mut self) -> bool {
        self.moments.begin_tick();
        self.received.drain(..mem::take(&mut self.line));
        // Whether it has ended is seen by what reads its answer.
        let _ = self.read();
        self.received.is_empty()
    }

    /// Waits for the next line, which has no newline at the pipe's end, or from [`LONGEST_LINE`]
    /// bytes on. Safe to cancel.
    pub(super) async fn next_line(&mut self) -> io::Result<&[u8]> {
        self.received.drain(..mem::take(&mut self.line));
        let mut searched = 0;
        loop {
            let rest = self.received.get(searched..).unwrap_or_default();
            if rest.contains(&b'\n') {
                let before = rest.iter().take_while(|byte| **byte != b'\n').count();
                self.line = searched.saturating_add(before).saturating_add(1);
                break;
            }
            searched = self.received.len();
            if searched >= LONGEST_LINE || self.receive().await? == 0 {
                self.line = self.received.len();
                break;
            }
        }
        self.registered = None;
        Ok(self.received.get(..self.line).unwrap_or_default())
    }

    /// Waits for more bytes, and returns how many have come; 0: the pipe has ended.
    async fn receive(&mut self) -> io::Result<usize> {
        loop {
            // One that writes as fast as it is read holds up nobody else.
            consume_budget().await;
            if let Some(registered) = &mut self.registered {
                self.received.reserve(BUFFER);
                return registered.read_buf(&mut self.received).await;
            }
            if !self.moments.wait(Step::Line, self.pipe.as_fd(), PollFlags::IN)? {
                self.registered = Some(Receiver::from_owned_fd(self.pipe.try_clone()?)?);
                continue;
            }
            match self.read() {
                Err(Errno::AGAIN | Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }

    fn read(&mut self) -> Result<usize, Errno> {
        self.received.reserve(BUFFER);
        rustix::io::read(&self.pipe, spare_capacity(&mut self.received))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn output() -> (io::PipeWriter, ReaderOutput) {
        let (near, far) = io::pipe().unwrap();
        (far, ReaderOutput::new(near.into()).unwrap())
    }

    #[tokio::test]
    async fn what_comes_behind_a_line_is_the_next_or_found_by_the_next_request() {
        let (mut far, mut output) = output();
        far.write_all(b"hello\nworld\nno").unwrap();
        assert_eq!(output.next_line().await.unwrap(), b"hello\n");
        assert_eq!(output.next_line().await.unwrap(), b"world\n");
        assert!(!output.begin_request());
        far.write_all(b"body\n").unwrap();
        assert_eq!(output.next_line().await.unwrap(), b"nobody\n");
        assert!(output.begin_request());
        far.write_all(b"unasked\n").unwrap();
        assert!(!output.begin_request());
        drop(far);
        assert_eq!(output.next_line().await.unwrap(), b"unasked\n");
        assert_eq!(output.next_line().await.unwrap(), b"");
    }

    /// The first wait is on the thread, and the second in the runtime, which forgets the pipe then.
    #[tokio::test]
    async fn a_line_that_comes_late_and_in_pieces_is_waited_for_by_the_runtime() {
        let (mut far, mut output) = output();
        assert!(output.begin_request());
        let line = [&[b'x'; 200_000][..], b"\n"].concat();
        let pieces = line.clone();
        let writer = thread::spawn(move || {
            for piece in pieces.chunks(70_000) {
                thread::park_timeout(Duration::from_millis(200));
                far.write_all(piece).unwrap();
            }
            far
        });
        let mut turns = 0;
        let found = tokio::select! {
            found = output.next_line() => found.unwrap().to_vec(),
            () = async { loop {
                turns += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            } } => Vec::new(),
        };
        assert!(found == line && turns > 10, "{turns} turns");
        assert!(output.registered.is_none());
        drop(writer.join().unwrap());
    }

    /// Guards against an error: a reader's output was read as long as there was any, and no tick
    /// began.
    #[tokio::test]
    async fn one_that_writes_as_fast_as_it_is_read_holds_up_nobody_else() {
        let (mut far, mut output) = output();
        let writer = thread::spawn(move || {
            let zeros = [0; 64 << 10];
            while far.write_all(&zeros).is_ok() {}
        });
        assert!(output.begin_request());
        // A count, not a time: on a busy host everybody waits.
        let mut turns = 0;
        let length = tokio::select! {
            line = output.next_line() => line.unwrap().len(),
            () = async { loop {
                turns += 1;
                tokio::task::yield_now().await;
            } } => 0,
        };
        assert!(length >= LONGEST_LINE && turns > 5, "{turns}");
        drop(output);
        writer.join().unwrap();
    }
}
