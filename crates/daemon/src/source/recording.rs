//! A recording: a file with a reader's answers, one per line, which is read instead of a reader.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use slurm_snapshot::{Answer, LineError, Reading};

/// A recording that cannot be read on. What prints it prints its source behind it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RecordingError {
    #[error("{}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: line {line}", .path.display())]
    Line { path: PathBuf, line: usize, source: LineError },
}

/// The readings of the recording at `path`, in order. Hellos and failures are passed over.
pub(crate) fn readings(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Reading, RecordingError>> + use<>, RecordingError> {
    let path = path.to_owned();
    let file = File::open(&path).map_err(|source| RecordingError::Read { path: path.clone(), source })?;
    let lines = BufReader::new(file).split(b'\n').enumerate();
    Ok(lines.filter_map(move |(index, line)| {
        let read = line.map_err(|source| RecordingError::Read { path: path.clone(), source });
        let answer = read.and_then(|line| {
            if line.trim_ascii().is_empty() {
                return Ok(None);
            }
            Answer::parse(&line).map(Some).map_err(|source| RecordingError::Line {
                path: path.clone(),
                line: index + 1,
                source,
            })
        });
        match answer {
            Ok(Some(Answer::Reading(reading))) => Some(Ok(*reading)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }))
}
