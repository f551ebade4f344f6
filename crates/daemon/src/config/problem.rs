//! What is wrong with a configuration, and where.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Everything that is wrong with a configuration; as an error never empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    /// The file that the line numbers are of.
    pub(super) file: Option<PathBuf>,
    pub(super) list: Vec<Problem>,
    /// Of the keys that were read.
    pub(super) lines: BTreeMap<String, usize>,
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
    /// A problem that no single line of the file has.
    pub(super) fn whole(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { location: KeyLocation::Whole, key: key.into(), text: text.into() }
    }
}

impl Problems {
    /// Gives a problem of several keys the line of the key that it names.
    pub(super) fn locate(mut self) -> Self {
        for problem in self.list.iter_mut().filter(|problem| problem.location == KeyLocation::Whole) {
            if let Some(line) = self.lines.get(&problem.key) {
                problem.location = KeyLocation::Line(*line);
            }
        }
        self
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(list: Vec<Problem>) -> Self {
        Self { list, ..Self::default() }
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
