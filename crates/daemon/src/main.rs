//! `slurm-graphite`: slurmctld's scheduler statistics in Graphite.
//!
//! docs/development/code-structure.md says where things are, and what names mean.

#![forbid(unsafe_code)]
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests may wait"))]

mod accounting;
mod cli;
mod clock;
mod cluster;
mod commands;
mod config;
mod follow;
mod grid;
mod host;
mod isolation;
mod notify;
mod printable;
mod self_metrics;
mod source;
mod status;
mod status_socket;
mod survey;
mod tagged;
mod telemetry;
#[cfg(test)]
mod tests;
#[expect(clippy::disallowed_methods, reason = "at the start, or in a thread")]
mod trust;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// sysexits.h: the command was used wrongly.
const EX_USAGE: u8 = 64;
/// sysexits.h: there is no daemon, or it does not answer.
const EX_UNAVAILABLE: u8 = 69;
/// sysexits.h: something in the configuration is wrong. systemd and supervisord do not restart over
/// it.
const EX_CONFIG: u8 = 78;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        // -V is one line, and clap's.
        Err(error)
            if error.kind() == ErrorKind::DisplayVersion
                && std::env::args_os().any(|arg| arg == "--version") =>
        {
            return exit(commands::version());
        }
        Err(error) => {
            // It goes to stdout for --help; nothing can be done about a closed one.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    exit(commands::execute(cli.command))
}

fn exit(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => {
            telemetry::finish("");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let code = if error.is::<config::Problems>() {
                EX_CONFIG
            } else if error.is::<status_socket::StatusError>() {
                EX_UNAVAILABLE
            } else {
                1
            };
            telemetry::finish(&printable::printable_lines(&format!(
                "slurm-graphite: {error:#}
"
            )));
            ExitCode::from(code)
        }
    }
}
