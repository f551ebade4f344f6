//! `slurm-graphite-rest-reader`: a reader without libslurm. Arguments, ties to the daemon that started it, then the
//! conversation.
//!
//! It outlives no daemon, and nothing but answers reaches stdout. What is wrong with slurmrestd, a token or a
//! certificate is an answer, never its end. Exit status: 0 when the input ends, 1 when something went wrong, 64 for bad
//! usage.

#![forbid(unsafe_code)]

mod api;
mod args;
mod decode;
mod http;
mod lossy;
mod problem;
mod serve;
#[cfg(feature = "tls")]
mod tls;
mod token;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use self::args::{Command, Settings};

const USAGE: u8 = 64;

fn main() -> ExitCode {
    let settings = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(settings)) => settings,
        Ok(Command::Help) => return print(args::HELP),
        Ok(Command::Version) => {
            return print(concat!("slurm-graphite-rest-reader ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Err(error) => {
            log(&error);
            return USAGE.into();
        }
    };
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&*error);
            ExitCode::FAILURE
        }
    }
}

fn run(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    if is_started_by_a_program(&input)? && !tie_to_parent(&input)? {
        return Ok(());
    }
    serve::serve(settings, input, io::stdout().lock())?;
    Ok(())
}

/// A person in a terminal, or a file, may go away without the reader.
fn is_started_by_a_program(input: &File) -> io::Result<bool> {
    let kind = input.metadata()?.file_type();
    Ok(kind.is_fifo() || kind.is_socket())
}

/// Dies with the parent from here on; false if the parent is gone already.
fn tie_to_parent(input: &File) -> io::Result<bool> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut stdin = [PollFd::new(input, PollFlags::IN)];
    rustix::event::poll(&mut stdin, Some(&Timespec::default()))?;
    let [stdin] = stdin;
    // With requests still to be read, a closed pipe is how `echo ... | slurm-graphite-rest-reader` looks.
    Ok(stdin.revents().contains(PollFlags::IN) || !stdin.revents().contains(PollFlags::HUP))
}

/// A line for the daemon's log. That nobody reads it is no reason to stop.
fn log(message: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
