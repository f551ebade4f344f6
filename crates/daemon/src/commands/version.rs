//! `--version`: the version, the commit, and the readers that are installed, with the one that this
//! host uses.

use std::fmt::Write;

use anyhow::Result;

use super::{block_on, print};
use crate::config::{Config, ConfigFile, Flags};
use crate::source::installed::{self, InstalledReader};

/// Prints the version, even if the configuration cannot be read.
pub(crate) fn version() -> Result<()> {
    let file = ConfigFile::read(None).unwrap_or_default();
    let config = Config::load(file, &Flags::default()).unwrap_or_default();
    let (readers, passed_over, none) =
        block_on(async { Ok(installed::readers(&config.slurm).await) })?;
    let mut text = format!("slurm-graphite {}\n", env!("SLURM_GRAPHITE_VERSION"));
    let width = readers.iter().map(|reader| reader.program.len()).max().unwrap_or(0);
    for InstalledReader { program, asks, is_used } in &readers {
        let used = if *is_used { ", used on this host" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "reader: {program:<width$}  {asks}{used}");
    }
    for line in config.passed_over.iter().chain(&passed_over) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(error) = none {
        let _ = writeln!(text, "used on this host: none: {error}");
    }
    print(&text)
}
