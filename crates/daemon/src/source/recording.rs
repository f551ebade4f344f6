//! A recording: a file with a reader's answers, one per line, which is read instead of a reader.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use slurm_snapshot::{Answer, Reading};

/// The readings of the recording at `path`, in order. Hellos and failures are passed over.
pub(crate) fn readings(path: &Path) -> Result<impl Iterator<Item = Result<Reading>> + use<>> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let lines = (1..).zip(BufReader::new(file).split(b'\n'));
    Ok(lines.filter_map(move |(number, line)| {
        let answer = line.map_err(Into::into).and_then(|line| match line.trim_ascii() {
            b"" => Ok(None),
            line => Answer::parse(line).map(Some).map_err(anyhow::Error::from),
        });
        match answer.with_context(|| format!("{name}: line {number}")) {
            Ok(Some(Answer::Reading(reading))) => Some(Ok(*reading)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }))
}
