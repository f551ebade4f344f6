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
    /// `None`: no single line of the file has it.
    pub(super) line: Option<usize>,
    /// Or a flag, with its dashes.
    pub(super) key: String,
    pub(super) text: String,
}

impl Problems {
    /// This one alone.
    pub(super) fn of(key: impl Into<String>, text: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(key, text);
        problems
    }

    /// Adds a problem that no single line of the file has.
    pub(super) fn add(&mut self, key: impl Into<String>, text: impl Into<String>) {
        self.list.push(Problem { line: None, key: key.into(), text: text.into() });
    }

    /// Gives a problem of several keys the line of the key that it names.
    pub(super) fn locate(mut self) -> Self {
        for problem in &mut self.list {
            problem.line = problem.line.or_else(|| self.lines.get(&problem.key).copied());
        }
        self
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_ref().map_or_else(String::new, |file| format!("{}: ", file.display()));
        let problems = self.list.iter().map(|Problem { line, key, text }| match line {
            Some(line) => format!("{file}line {line}: {key}: {text}"),
            None => format!("{key}: {text}"),
        });
        f.write_str(&problems.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Problems {}
