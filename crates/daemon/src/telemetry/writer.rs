//! The lines of the log on their way to stderr, which may be a pipe that nobody reads: they wait in
//! a bounded queue, and a thread writes them. What finds no room there is dropped and counted. It
//! must not know what is in a line.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata, warn};
use tracing_subscriber::fmt::MakeWriter;

/// Number of bytes of waiting lines above which another line is dropped. A line of WARN may make
/// twice as many wait, and one of ERROR three times.
const ROOM: usize = 256 << 10;
/// Bytes that a line needs besides its text.
const EACH: usize = 64;
/// Time that the end of the process waits for lines to be written.
const PATIENCE: Duration = Duration::from_secs(1);
const STACK: usize = 128 << 10;

static QUEUE: LineQueue = LineQueue::new();

#[derive(Debug)]
struct LineQueue {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug)]
struct Lines {
    waiting: VecDeque<Vec<u8>>,
    /// Bytes of the lines that wait, and of the one that is being written.
    bytes: usize,
    /// Number of lines that were not written since the log last said so.
    dropped: u64,
    has_thread: bool,
}

impl Lines {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, dropped: 0, has_thread: false }
    }

    /// Adds a line, or counts it as dropped if it finds no room. A line may be of any length if no
    /// other waits.
    fn push(&mut self, level: Level, line: &[u8]) {
        let room = match level {
            Level::ERROR => 3 * ROOM,
            Level::WARN => 2 * ROOM,
            _ => ROOM,
        };
        let bytes = self.bytes.saturating_add(line.len()).saturating_add(EACH);
        if self.bytes > 0 && bytes > room {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.bytes = bytes;
        self.waiting.push_back(line.to_owned());
    }
}

impl LineQueue {
    const fn new() -> Self {
        Self { lines: Mutex::new(Lines::new()), changed: Condvar::new() }
    }

    /// Locks the lines. A panic elsewhere does no harm, because no change under this lock can fail
    /// half-way.
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&'static self, level: Level, line: &[u8]) {
        let mut lines = self.lock();
        lines.push(level, line);
        if !lines.has_thread {
            // If the system has none now, lines wait for the next attempt.
            let thread = thread::Builder::new().name("log".to_owned()).stack_size(STACK);
            lines.has_thread = thread.spawn(|| self.write_lines()).is_ok();
        }
        drop(lines);
        self.changed.notify_all();
    }

    fn write_lines(&self) {
        loop {
            let is_empty = |lines: &mut Lines| lines.waiting.is_empty();
            let lines = self.changed.wait_while(self.lock(), is_empty);
            let Some(line) = lines.unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
            else {
                continue;
            };
            let written = write_to_stderr(&line);
            let mut lines = self.lock();
            let mut dropped = 0;
            match written {
                Err(_) => lines.dropped = lines.dropped.saturating_add(1),
                Ok(()) if lines.bytes <= ROOM / 2 => dropped = std::mem::take(&mut lines.dropped),
                Ok(()) => {}
            }
            drop(lines);
            if dropped > 0 {
                warn!(
                    lines = dropped,
                    "lines of the log were dropped because stderr did not take them in time"
                );
            }
            let mut lines = self.lock();
            lines.bytes = lines.bytes.saturating_sub(line.len().saturating_add(EACH));
            drop(lines);
            self.changed.notify_all();
        }
    }

    fn flush(&self) {
        let _ = self.changed.wait_timeout_while(self.lock(), PATIENCE, |lines| lines.bytes > 0);
    }
}

/// Writes to stderr without std's lock, which would be kept as long as nobody reads.
fn write_to_stderr(mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(io::stderr().as_fd(), line))?;
        line = line.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Makes the writers of single lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogWriter(Level);

impl Default for LogWriter {
    fn default() -> Self {
        Self(Level::INFO)
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> Self {
        Self(*meta.level())
    }
}

impl Write for LogWriter {
    /// Takes a whole line at once, as tracing-subscriber writes it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        QUEUE.push(self.0, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the last words of a command after all that was logged. If something was logged, it waits
/// for a second at most.
pub(crate) fn finish(text: &str) {
    if !QUEUE.lock().has_thread {
        // Nobody is left to be told when stderr is closed.
        let _ = write_to_stderr(text.as_bytes());
        return;
    }
    if !text.is_empty() {
        QUEUE.push(Level::ERROR, text.as_bytes());
    }
    QUEUE.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However much is logged at one level, the next has room, and what has none is counted.
    #[test]
    fn a_flood_is_bounded_and_leaves_room_for_what_is_worse() {
        let mut lines = Lines::new();
        let line = [b'x'; 100];
        let mut pushed = 0;
        let mut before = 0;
        for level in [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR] {
            for _ in 0..10_000 {
                lines.push(level, &line);
                pushed += 1;
            }
            let bytes: usize = lines.waiting.iter().map(Vec::len).sum();
            let grows = level == Level::TRACE || level <= Level::WARN;
            assert_eq!(bytes > before, grows, "{level}");
            before = bytes;
        }
        assert!(before < 1 << 20, "{before}");
        assert_eq!(lines.dropped, pushed - lines.waiting.len() as u64);
    }

    #[test]
    fn a_line_longer_than_the_room_is_written_if_none_waits() {
        let mut lines = Lines::new();
        for _ in 0..2 {
            lines.push(Level::ERROR, &vec![b'x'; 10 * ROOM]);
        }
        assert_eq!((lines.waiting.len(), lines.dropped), (1, 1));
    }
}
