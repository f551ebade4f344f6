//! `stats`: what sdiag prints, in its words and order, names resolved; as a recording with `--json`.

mod compared;
mod document;

use anyhow::Result;
use slurm_snapshot::{Answer, ReplyKind, ReplyOptions, Request};

pub(super) use self::compared::{Compared, RankedRow, Served};
pub(super) use self::document::document;
use super::{block_on, load_what_is_readable, log_errors, print, read_or_advise};
use crate::cli::Options;

/// All that sdiag shows.
pub(super) fn all() -> Request {
    let options = ReplyOptions { rpc: true, users: true, ..ReplyOptions::default() };
    Request::new(ReplyKind::Statistics, options)
}

pub(super) fn stats(options: &Options, json: bool, reset: bool) -> Result<()> {
    let config = load_what_is_readable(options)?;
    log_errors(options, &config);
    let request = if reset { Request::new(ReplyKind::Reset, ReplyOptions::default()) } else { all() };
    let reading = block_on(read_or_advise(config.slurm, request))?;
    if reset {
        return print("The statistics of slurmctld have been reset.\n");
    }
    if json {
        let line = serde_json::to_string(&Answer::Reading(reading))?;
        return print(&format!("{line}\n"));
    }
    print(&document(&reading, None))
}
