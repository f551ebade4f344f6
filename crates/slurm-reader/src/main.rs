//! `slurm-graphite-reader`: arguments, ties to the daemon that started it, then the conversation.
//!
//! Whatever happens inside libslurm, no reader outlives its daemon, and nothing but answers reaches stdout.
//! Exit status: 0 when the input ends, 1 when something went wrong (libslurm's own too), 64 for bad usage, 69 where the
//! loaded libslurm is not the one that it is built for.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use slurm_reader::args::{self, Command};
use slurm_reader::client::{self, Client};
use slurm_reader::serve::{log, serve};
use slurm_reader::version;
use slurm_snapshot::{Hello, PROTOCOL, WRONG_LIBRARY};

const USAGE: u8 = 64;

fn main() -> ExitCode {
    let conf = match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(conf)) => conf,
        Ok(Command::Help) => return print(args::HELP),
        Ok(Command::Version) => return print(&version_text()),
        Err(error) => {
            log(&error);
            return USAGE.into();
        }
    };
    let api_version = client::api_version();
    if let Err(refusal) = version::check(api_version, version::built_for()) {
        log(&refusal);
        return WRONG_LIBRARY.into();
    }
    match run(conf, api_version) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(conf: Option<CString>, api_version: u32) -> Result<(), Box<dyn std::error::Error>> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    if is_started_by_a_program(&input)? && !tie_to_parent(&input)? {
        return Ok(());
    }
    // Answers go out by a descriptor of their own; whatever libslurm and its plugins print goes to stderr.
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(io::stderr())?;

    let mut client = Client::init(conf.as_deref());
    let hello =
        Hello { protocol: PROTOCOL, release: Some(version::built_for()), api_version: Some(api_version) };
    serve(&mut client, hello, input, output)?;
    Ok(())
}

/// A person in a terminal, or a file, may go away without the reader.
fn is_started_by_a_program(input: &File) -> io::Result<bool> {
    let kind = input.metadata()?.file_type();
    Ok(kind.is_fifo() || kind.is_socket())
}

/// Dies with the parent from here on, even while stuck within libslurm; false if the parent is gone already.
fn tie_to_parent(input: &File) -> io::Result<bool> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut stdin = [PollFd::new(input, PollFlags::IN)];
    rustix::event::poll(&mut stdin, Some(&Timespec::default()))?;
    let [stdin] = stdin;
    // With requests still to be read, a closed pipe is how `echo ... | slurm-graphite-reader` looks.
    Ok(stdin.revents().contains(PollFlags::IN) || !stdin.revents().contains(PollFlags::HUP))
}

fn version_text() -> String {
    format!("slurm-graphite-reader {} for Slurm {}\n", env!("CARGO_PKG_VERSION"), version::built_for())
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
