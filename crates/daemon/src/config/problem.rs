//! The problems of a configuration, and where they are.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Everything that is wrong with a configuration; as an error never empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    /// The file that the line numbers are of.
    pub(super) file: Option<PathBuf>,
    /// Whether some users of this host may not read the configuration file.
    pub(super) is_private: bool,
    pub(super) list: Vec<Problem>,
    /// Line of each key that was read, from 1, by the key's full name.
    pub(super) lines: BTreeMap<String, usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Line of the file that has the problem, from 1. `None`: no single line has it.
    pub(super) line: Option<usize>,
    /// Full name of the key that has the problem, or a flag with its dashes, or the file's path.
    pub(super) key: String,
    pub(super) text: String,
}

impl Problems {
    /// Makes an error of a single problem that no single line of the file has.
    pub(super) fn one(key: impl Into<String>, text: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(key, text);
        problems
    }

    /// Adds a problem that no single line of the file has.
    pub(super) fn add(&mut self, key: impl Into<String>, text: impl Into<String>) {
        self.list.push(Problem { line: None, key: key.into(), text: text.into() });
    }

    /// The problems as every user of this host may read them. Those of a file that not everybody
    /// may read are without text, which may quote a value.
    pub(crate) fn public(&self) -> String {
        let lines = self.to_string();
        if !self.is_private {
            return lines;
        }
        let keys: Vec<&str> = self.list.iter().map(|problem| problem.key.as_str()).collect();
        format!("problems in {}; the log says which", keys.join(", "))
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
        let file =
            self.file.as_ref().map_or_else(String::new, |file| format!("{}: ", file.display()));
        let problems = self.list.iter().map(|Problem { line, key, text }| match line {
            Some(line) => format!("{file}line {line}: {key}: {text}"),
            None => format!("{key}: {text}"),
        });
        f.write_str(&problems.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use crate::config::{Config, ConfigFile, Flags};

    #[test]
    fn a_value_of_a_file_that_not_everybody_may_read_is_not_told_to_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, "[slurm]\nrest = \"http://me:secret@host\"\ninterval = 5\n").unwrap();
        for (mode, is_public) in [(0o644, true), (0o640, false), (0o600, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let file = ConfigFile::read(Some(&path)).unwrap();
            let problems = Config::load(file, &Flags::default()).unwrap_err();
            assert!(problems.to_string().contains("secret"), "{problems}");
            let public = problems.public();
            assert_eq!(public.contains("secret"), is_public, "{mode:o}: {public}");
            assert!(public.contains("slurm.rest") && public.contains("slurm.interval"), "{public}");
        }
    }
}
