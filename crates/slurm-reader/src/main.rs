//! `slurm-graphite-reader`: parses arguments, binds itself to the daemon that started it, then converses.
//!
//! Whatever happens inside libslurm, no reader outlives its daemon, and only answers reach stdout. Exit status: 0 when
//! the input ends, 1 when something went wrong (libslurm uses it too), 64 for wrong usage, 69 if the loaded libslurm is
//! not the one that the reader was built for.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use reader_process::{USAGE, log, print};
use slurm_reader::args::{self, ReaderMode};
use slurm_reader::calls;
use slurm_reader::client::Client;
use slurm_reader::serve::serve;
use slurm_reader::version;
use slurm_snapshot::{Hello, PROTOCOL, WRONG_LIBRARY};

fn main() -> ExitCode {
    let conf = match args::parse(std::env::args_os().skip(1)) {
        Ok(ReaderMode::Serve(conf)) => conf,
        Ok(ReaderMode::Help) => return print(args::HELP),
        Ok(ReaderMode::Version) => {
            let printed = print(&version_text());
            return if fits() { printed } else { WRONG_LIBRARY.into() };
        }
        Err(error) => {
            log(&error);
            return USAGE.into();
        }
    };
    if !fits() {
        return WRONG_LIBRARY.into();
    }
    reader_process::end(run(conf, calls::api_version()))
}

/// Whether the loaded libslurm is the one that the reader was built for; if not, logs it.
fn fits() -> bool {
    version::check(calls::api_version(), version::built_for()).inspect_err(|refusal| log(refusal)).is_ok()
}

fn run(conf: Option<CString>, api_version: u32) -> Result<(), Box<dyn std::error::Error>> {
    let Some(input) = reader_process::input()? else { return Ok(()) };
    // Answers go to a separate descriptor; whatever libslurm and its plugins print goes to stderr.
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(io::stderr())?;

    let mut client = Client::init(conf.as_deref());
    let hello =
        Hello { protocol: PROTOCOL, release: Some(version::built_for()), api_version: Some(api_version) };
    serve(&mut client, hello, input, output)?;
    Ok(())
}

fn version_text() -> String {
    format!("slurm-graphite-reader {} for Slurm {}\n", env!("CARGO_PKG_VERSION"), version::built_for())
}
