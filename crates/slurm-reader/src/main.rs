//! `slurm-graphite-reader`: parses arguments, binds itself to the daemon that started it, then
//! converses.
//!
//! Whatever happens inside libslurm, no reader outlives its daemon, and only answers reach stdout.
//! Exit status: 0 when the input ends, 1 when something went wrong (libslurm uses it too), 64 for
//! wrong usage, 69 if the loaded libslurm is not the one that the reader was built for.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use reader_process::log;
use reader_process::start::{ReaderMode, start};
use slurm_reader::args;
use slurm_reader::calls;
use slurm_reader::client::Client;
use slurm_reader::serve::serve;
use slurm_reader::version;
use slurm_snapshot::{Hello, PROTOCOL, WRONG_LIBRARY};

fn main() -> ExitCode {
    let mode = args::parse(lexopt::Parser::from_env());
    let fits = matches!(mode, Ok(ReaderMode::Help) | Err(_)) || fits();
    if !fits && matches!(mode, Ok(ReaderMode::Serve(_))) {
        return WRONG_LIBRARY.into();
    }
    let built_for = version::built_for();
    let version =
        format!("slurm-graphite-reader {} for Slurm {built_for}\n", env!("CARGO_PKG_VERSION"));
    let ended = start(args::HELP, &version, mode, run);
    if fits { ended } else { WRONG_LIBRARY.into() }
}

/// Whether the loaded libslurm is the one that the reader was built for; if not, logs it.
fn fits() -> bool {
    version::check(calls::api_version(), version::built_for())
        .inspect_err(|refusal| log(refusal))
        .is_ok()
}

fn run(conf: Option<CString>, input: File) -> io::Result<()> {
    // Answers go to a separate descriptor; whatever libslurm and its plugins print goes to stderr.
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(io::stderr())?;

    let mut client = Client::init(conf.as_deref());
    serve(
        &mut client,
        Hello { protocol: PROTOCOL, release: Some(version::built_for()) },
        input,
        output,
    )
}
