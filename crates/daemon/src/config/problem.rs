//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

/// Everything that is wrong with a configuration; never empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problems {
    /// Whose lines are meant.
    pub(super) file: Option<PathBuf>,
    pub(super) list: Vec<Problem>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) location: KeyLocation,
    pub(super) key: String,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyLocation {
    Line(usize),
    Flag,
    Whole,
}

impl Problem {
    /// Of more than a line of the file.
    pub(super) fn whole(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { location: KeyLocation::Whole, key: key.into(), text: text.into() }
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(list: Vec<Problem>) -> Self {
        Self { file: None, list }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { location, key, text }) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match location {
                KeyLocation::Line(line) => {
                    if let Some(file) = &self.file {
                        write!(f, "{}: ", file.display())?;
                    }
                    write!(f, "line {line}: {key}: {text}")?;
                }
                KeyLocation::Flag => write!(f, "--{key}: {text}")?,
                KeyLocation::Whole => write!(f, "{key}: {text}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
