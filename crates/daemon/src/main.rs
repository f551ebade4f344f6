//! `slurm-graphite`: slurmctld's scheduler statistics in Graphite.
//!
//! docs/code-structure.md says which file does what, and what each may touch.

#![forbid(unsafe_code)]

mod accounting;
mod cli;
mod clock;
mod collecting;
mod collector_memory;
mod collectors;
mod commands;
mod config;
#[cfg(test)]
#[path = "../tests/inside/counter_model.rs"]
mod counter_model;
mod derive;
mod finished;
mod grid;
mod metric;
mod node_metrics;
mod notify;
mod prefix;
mod replies;
mod self_metrics;
mod settings;
mod source;
mod survey;
mod telemetry;
mod url;
mod user_paths;
mod zero_fill;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// sysexits.h: the command was used wrongly.
const EX_USAGE: u8 = 64;
/// sysexits.h: something in the configuration is wrong. systemd and supervisord do not restart over it.
const EX_CONFIG: u8 = 78;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // It goes to stdout for --help; nothing can be done about a closed one.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match commands::execute(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<config::Problems>() { EX_CONFIG } else { 1 };
            let _ = writeln!(std::io::stderr(), "slurm-graphite: {error:#}");
            ExitCode::from(code)
        }
    }
}
