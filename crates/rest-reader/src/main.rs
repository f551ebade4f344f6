//! `slurm-graphite-rest-reader`: a reader without libslurm. It parses arguments, binds itself to
//! the daemon that started it, then converses.
//!
//! It never outlives its daemon, and only answers reach stdout. A problem with slurmrestd, a token
//! or a certificate is an answer and never ends the reader. Exit status: 0 when the input ends, 1
//! when something went wrong, 64 for bad usage.

#![forbid(unsafe_code)]

mod api;
mod args;
mod decode;
mod http;
mod lossy;
mod problem;
mod refusal;
mod serve;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

use std::process::ExitCode;

fn main() -> ExitCode {
    let version = concat!("slurm-graphite-rest-reader ", env!("CARGO_PKG_VERSION"), "\n");
    let mode = args::parse(lexopt::Parser::from_env());
    reader_process::start::start(args::HELP, version, mode, |settings, input| {
        // No core file, and no look into its memory by other processes of its user: the token is
        // there.
        let _ =
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        serve::serve(settings, input, std::io::stdout().lock())
    })
}
