//! `--version`: the version, the commit, and the readers that are installed, with the one that this host uses.

use std::fmt::Write;

use anyhow::Result;

use super::{block_on, print};
use crate::config::{Config, ConfigFile, Flags};
use crate::source::installed;

/// Prints the version, even if the configuration cannot be read.
pub(crate) fn version() -> Result<()> {
    let file = ConfigFile::read(None).unwrap_or_default();
    let config = Config::load(file, &Flags::default()).unwrap_or_default();
    let (readers, none) = block_on(async { Ok(installed::readers(&config.slurm).await) })?;
    let mut text = format!("slurm-graphite {}\n", env!("SLURM_GRAPHITE_VERSION"));
    let programs: Vec<String> = readers.iter().map(|reader| reader.program.display().to_string()).collect();
    let width = programs.iter().map(String::len).max().unwrap_or(0);
    for (reader, program) in readers.iter().zip(&programs) {
        let used = if reader.is_used { ", used on this host" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "reader: {program:<width$}  {}{used}", reader.asks);
    }
    if let Some(error) = none {
        let _ = writeln!(text, "used on this host: none: {error}");
    }
    print(&text)
}
