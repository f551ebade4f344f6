//! `slurm-graphite-rest-reader`: a reader without libslurm. It parses arguments, binds itself to the daemon that
//! started it, then converses.
//!
//! It never outlives its daemon, and only answers reach stdout. A problem with slurmrestd, a token or a certificate is
//! an answer and never ends the reader. Exit status: 0 when the input ends, 1 when something went wrong, 64 for bad
//! usage.

#![forbid(unsafe_code)]

mod api;
mod args;
mod decode;
mod http;
mod lossy;
mod problem;
mod refusal;
mod serve;
#[cfg(feature = "tls")]
mod tls;

use std::process::ExitCode;

use reader_process::{USAGE, log, print};

use self::args::{ReaderMode, RestArguments};

fn main() -> ExitCode {
    let settings = match args::parse(std::env::args_os().skip(1)) {
        Ok(ReaderMode::Serve(settings)) => settings,
        Ok(ReaderMode::Help) => return print(args::HELP),
        Ok(ReaderMode::Version) => {
            return print(concat!("slurm-graphite-rest-reader ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Err(error) => {
            log(&error);
            return USAGE.into();
        }
    };
    reader_process::end(run(settings))
}

fn run(settings: RestArguments) -> Result<(), Box<dyn std::error::Error>> {
    // No core file, and no look into its memory by other processes of its user: the token is there.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    if let Some(input) = reader_process::input()? {
        serve::serve(settings, input, std::io::stdout().lock())?;
    }
    Ok(())
}
