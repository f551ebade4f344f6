//! The lines of slurm.conf and of what it includes, as Slurm's parse_config.c reads them: comments,
//! continued lines, escapes.
//!
//! Only regular files, of limited size, number and depth.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use reader_process::open_regular_file;

/// Bytes of one file.
const MOST: u64 = 1 << 20;

/// All files, also those inside each other.
const FILES: usize = 64;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub(crate) struct ConfError {
    pub(crate) path: PathBuf,
    pub(crate) what: String,
}

/// Files that were read so far.
#[derive(Debug, Default)]
pub(crate) struct ConfFiles {
    files: usize,
    /// The lower-case ClusterName, for `%c`.
    cluster: Option<String>,
}

impl ConfFiles {
    /// Calls `each` with the keys and values of this file and those that it includes, in order.
    pub(crate) fn read_lines(
        &mut self,
        path: &Path,
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), ConfError> {
        let wrong = |what: String| ConfError { path: path.to_owned(), what };
        self.files = self.files.saturating_add(1);
        if self.files > FILES {
            return Err(wrong("too many files include each other".to_owned()));
        }
        let text = contents(path).map_err(|error| wrong(error.to_string()))?;
        for line in lines(&text) {
            if let Some(name) = included(&line) {
                let name = self.expanded(name).ok_or_else(|| {
                    wrong(format!("Include {name}: ClusterName must be set before %c is used"))
                })?;
                // An absolute name replaces the folder.
                let inner = path.parent().unwrap_or(Path::new("/")).join(name);
                self.read_lines(&inner, each)?;
                continue;
            }
            // Keys after the first one belong to nodes and partitions.
            let Some((key, value)) = pair(&line) else { continue };
            if key.eq_ignore_ascii_case("ClusterName") {
                self.cluster = Some(value.to_ascii_lowercase());
            }
            each(key, value);
        }
        Ok(())
    }

    fn expanded(&self, name: &str) -> Option<String> {
        if !name.contains("%c") {
            return Some(name.to_owned());
        }
        Some(name.replace("%c", self.cluster.as_deref()?))
    }
}

fn contents(path: &Path) -> io::Result<String> {
    let (file, metadata) = open_regular_file(path)?;
    if metadata.len() > MOST {
        return Err(io::Error::other("longer than 1 MiB"));
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whole lines: without comments, put together where a backslash continues them, without escapes.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let mut whole = String::new();
    // Nothing continues the last line.
    text.lines().chain([""]).filter_map(move |part| {
        let part = without_comment(part).trim_end();
        let begun = part.strip_suffix('\\');
        whole.push_str(begun.unwrap_or(part));
        begun.is_none().then(|| without_escapes(&std::mem::take(&mut whole)))
    })
}

/// Up to a `#` that no odd number of backslashes precedes.
fn without_comment(line: &str) -> &str {
    let mut is_escaped = false;
    for (index, byte) in line.bytes().enumerate() {
        match byte {
            b'#' if !is_escaped => return line.get(..index).unwrap_or_default(),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    line
}

fn without_escapes(line: &str) -> String {
    let mut characters = line.chars();
    std::iter::from_fn(|| match characters.next() {
        Some('\\') => characters.next(),
        other => other,
    })
    .collect()
}

/// The name after `Include`.
fn included(line: &str) -> Option<&str> {
    let (word, rest) = line.split_at_checked("include".len())?;
    let is_directive =
        word.eq_ignore_ascii_case("include") && rest.starts_with(char::is_whitespace);
    if is_directive { rest.split_whitespace().next() } else { None }
}

/// The first `Key=value` of a line; a value may be quoted.
fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once('=')?;
    let key = key.trim();
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    if key.is_empty() || !key.bytes().all(is_key) {
        return None;
    }
    let rest = rest.trim_start();
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?.0,
        None => rest.split_whitespace().next()?,
    };
    Some((key, value))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn pairs(path: &Path) -> Result<Vec<(String, String)>, ConfError> {
        let mut found = Vec::new();
        ConfFiles::default()
            .read_lines(path, &mut |key, value| found.push((key.to_owned(), value.to_owned())))?;
        Ok(found)
    }

    #[test]
    fn comments_continued_lines_escapes_and_quotes() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        fs::write(
            &conf,
            "# A=1\n  B = two # C=3\nSlurmctld\\\nHost=\\\n  ctl\r\nD=a\\#b#c\nE=\"x y\" F=1\nG=\n\
             NodeName=n1 CPUs=4\nTwo words=3\nH=\\\\\n",
        )
        .unwrap();
        let expected = [
            ("B", "two"),
            ("SlurmctldHost", "ctl"),
            ("D", "a#b"),
            ("E", "x y"),
            ("NodeName", "n1"),
        ];
        let found = pairs(&conf).unwrap();
        assert_eq!(found[..5], expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn included_files_are_relative_to_their_own_folder_and_know_the_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(&conf, "ClusterName=Big\nINCLUDE inner/%c.conf # why\nLast=1\nIncludes=no\n")
            .unwrap();
        fs::write(inner.join("big.conf"), "A=1\ninclude  more\n").unwrap();
        fs::write(inner.join("more"), "B=2\n").unwrap();
        let keys: Vec<String> = pairs(&conf).unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["ClusterName", "A", "B", "Last", "Includes"]);
    }

    #[test]
    fn a_loop_a_pipe_a_folder_and_a_file_without_end_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        for (text, expected) in [
            ("Include slurm.conf\n", "too many files"),
            ("Include absent\n", "No such file"),
            ("Include .\n", "not a regular file"),
            ("Include %c\n", "ClusterName must be set"),
            ("Include pipe\n", "not a regular file"),
        ] {
            fs::write(&conf, text).unwrap();
            let pipe = folder.path().join("pipe");
            if !pipe.exists() {
                let kind = rustix::fs::FileType::Fifo;
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
            }
            let error = pairs(&conf).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        fs::write(&conf, vec![b'#'; 2 << 20]).unwrap();
        assert!(pairs(&conf).unwrap_err().to_string().contains("1 MiB"));
    }
}
