//! `stats`: what sdiag prints, in its words and order, names resolved; as a recording with `--json`.

mod compared;
mod document;

use anyhow::Result;
use slurm_snapshot::Answer;

pub(super) use self::compared::{Compared, Row, type_name, user_name};
pub(super) use self::document::document;
use super::{block_on, load, log_errors, print, read_or_advise};
use crate::cli::Options;
use crate::source::Wanted;

/// All that sdiag shows.
pub(super) const ALL: Wanted = Wanted { rpc: true, names: true, reset: false };

pub(super) fn stats(options: &Options, json: bool, reset: bool) -> Result<()> {
    let config = load(options)?;
    log_errors(options, &config);
    let reading = block_on(async { read_or_advise(config.slurm, Wanted { reset, ..ALL }).await })?;
    if reset {
        return print("The statistics of slurmctld have been reset.\n");
    }
    if json {
        let line = serde_json::to_string(&Answer::Reading(reading))?;
        return print(&format!("{line}\n"));
    }
    print(&document(&reading, None))
}
