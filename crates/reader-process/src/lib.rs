//! The common parts of readers: they end with the daemon that started them, log to stderr, answer
//! lines with lines, know users by name, and find out which program listens on this host.
//!
//! Knows neither libslurm nor HTTP.

#![forbid(unsafe_code)]

mod conversation;
pub mod listener;
pub mod names;
pub mod route;
pub mod start;
mod token;

use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use slurm_snapshot::Reading;

pub use self::conversation::converse;
pub use self::token::TokenFile;

/// Opens a file for reading. A pipe that somebody has put in its place would hang, and is refused.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_regular_file(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Returns standard input, to read requests from. If it is a pipe or a socket, this process is
/// killed from now on when the program that started it ends, even if it is stuck in a call. `None`:
/// that program has already ended.
///
/// # Errors
/// There is no standard input.
fn input() -> io::Result<Option<File>> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let kind = input.metadata()?.file_type();
    // A terminal or a file as input does not mean that a program started this reader.
    if !kind.is_fifo() && !kind.is_socket() {
        return Ok(Some(input));
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut stdin = [PollFd::new(&input, PollFlags::IN)];
    rustix::event::poll(&mut stdin, Some(&Timespec::default()))?;
    let [events] = stdin.map(|stdin| stdin.revents());
    // If requests are still to be read, a closed pipe is normal: `echo ... |
    // slurm-graphite-reader`.
    Ok((events.contains(PollFlags::IN) || !events.contains(PollFlags::HUP)).then_some(input))
}

/// Writes a line for the daemon's log. A closed stderr is no reason to stop.
pub fn log(message: &dyn Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Returns the reading with the present time: Unix time, and seconds since the host's boot.
#[must_use]
pub fn stamped(reading: Reading) -> Reading {
    // Read one right after the other: the daemon compares them to see whether the clock was set.
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // From libc: rustix reads the clock in a way that valgrind cannot follow.
    let uptime =
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0.0, |now| Duration::from(now).as_secs_f64());
    Reading { time: time.as_secs_f64(), uptime: Some(uptime), ..reading }
}

/// Converts a duration to µs.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
