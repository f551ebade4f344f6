//! `slurm-graphite-native-reader`: a reader that speaks slurmctld's own protocol, without libslurm. It parses arguments, binds
//! itself to the daemon that started it, then converses.
//!
//! It never outlives its daemon, and only answers reach stdout. A problem with slurm.conf, munged, a token or slurmctld
//! is an answer and never ends the reader. Exit status: 0 when the input ends, 1 when something went wrong, 64 for bad
//! usage.

#![forbid(unsafe_code)]

mod args;
mod cluster;
mod conf_lines;
mod credential;
mod exchange;
mod hosts;
mod listener;
mod message;
mod munge;
mod number;
mod pack;
mod problem;
mod remembered;
mod sackd;
mod serve;
mod slurm_conf;
mod statistics;
mod timed;

use std::process::ExitCode;

use self::cluster::Cluster;

fn main() -> ExitCode {
    let version = concat!("slurm-graphite-native-reader ", env!("CARGO_PKG_VERSION"), "\n");
    let mode = args::parse(lexopt::Parser::from_env());
    reader_process::start::start(args::HELP, version, mode, |arguments, input| {
        serve::serve(Cluster::new(arguments), input, std::io::stdout().lock())
    })
}
