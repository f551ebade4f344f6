//! The lines of slurm.conf and of what it includes, as Slurm's parse_config.c reads them: comments,
//! continued lines, escapes.
//!
//! Only regular files are read. The limits of their size, number and depth are beyond all that
//! Slurm is used with.
//!
//! Slurm up to 22.05 looks for a relative `Include` beside the file that includes it, from 23.02 on
//! beside slurm.conf. A pattern that is no file is passed over, as by Slurm from 23.11 on.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use reader_process::open_regular_file;

/// Largest number of bytes of all files together.
const MOST: u64 = 64 << 20;

/// Largest number of files, those included by others among them.
const FILES: usize = 10_000;

/// Largest depth of files that include each other.
const DEPTH: usize = 32;

/// The protocol number of 23.02, the first release that looks for included files beside slurm.conf.
const BESIDE_CONF: u16 = 39;

/// A reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub(crate) struct ConfError {
    pub(crate) path: PathBuf,
    pub(crate) what: String,
}

/// slurm.conf and the files that it includes, and how much of them was read so far.
#[derive(Debug)]
pub(crate) struct ConfFiles {
    /// Folder of slurm.conf.
    folder: PathBuf,
    /// Protocol number of this host's Slurm; `None`: it is not known.
    number: Option<u16>,
    files: usize,
    left: u64,
    /// The lower-case ClusterName, for `%c`.
    cluster: Option<String>,
    /// A note for a person: which of two files was read.
    pub(crate) note: Option<String>,
}

impl ConfFiles {
    /// Prepares to read this slurm.conf; no file is read yet. `number`, the protocol number of this
    /// host's Slurm, decides where relative `Include`s are looked for first.
    pub(crate) fn new(conf: &Path, number: Option<u16>) -> Self {
        let folder = conf.parent().unwrap_or(Path::new("/")).to_owned();
        Self { folder, number, files: 0, left: MOST, cluster: None, note: None }
    }

    /// Calls `each` with the keys and values of this file and those that it includes, in order.
    pub(crate) fn read_lines(
        &mut self,
        path: &Path,
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), ConfError> {
        self.read_nested_lines(path, 0, each)
    }

    fn read_nested_lines(
        &mut self,
        path: &Path,
        depth: usize,
        each: &mut dyn FnMut(&str, &str),
    ) -> Result<(), ConfError> {
        let wrong = |what: String| ConfError { path: path.to_owned(), what };
        self.files = self.files.saturating_add(1);
        if self.files > FILES || depth > DEPTH {
            return Err(wrong("too many files include each other".to_owned()));
        }
        let text = self.contents(path).map_err(|error| wrong(error.to_string()))?;
        for line in lines(&text) {
            if let Some(name) = included(&line) {
                let name = self.expanded(name).ok_or_else(|| {
                    wrong(format!("Include {name}: ClusterName must be set before %c is used"))
                })?;
                if let Some(inner) = self.included_path(path, &name) {
                    self.read_nested_lines(&inner, depth.saturating_add(1), each)?;
                }
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

    /// Finds the file of this name, which the file `outer` includes; `None`: it is a pattern, and
    /// no file.
    fn included_path(&mut self, outer: &Path, name: &str) -> Option<PathBuf> {
        // An absolute name replaces the folder.
        let beside_conf = self.folder.join(name);
        let beside = outer.parent().unwrap_or(Path::new("/")).join(name);
        let is_old = self.number.is_some_and(|number| number < BESIDE_CONF);
        let (first, second) = if is_old { (beside, beside_conf) } else { (beside_conf, beside) };
        if first.exists() {
            if first != second && second.exists() && is_other(&first, &second) {
                self.note = Some(format!(
                    "Include {name} is {}, and not {}, because Slurm {}; both exist and differ",
                    first.display(),
                    second.display(),
                    if is_old {
                        "up to 22.05 looks beside the file that includes it"
                    } else {
                        "from 23.02 on looks beside slurm.conf"
                    }
                ));
            }
            return Some(first);
        }
        if second.exists() {
            return Some(second);
        }
        (!name.contains(['*', '?', '['])).then_some(first)
    }

    fn expanded(&self, name: &str) -> Option<String> {
        if !name.contains("%c") {
            return Some(name.to_owned());
        }
        Some(name.replace("%c", self.cluster.as_deref()?))
    }

    fn contents(&mut self, path: &Path) -> io::Result<String> {
        let (file, metadata) = open_regular_file(path)?;
        let left = self.left.checked_sub(metadata.len());
        self.left = left.ok_or_else(|| io::Error::other("all files are longer than 64 MiB"))?;
        let mut bytes = Vec::new();
        file.take(metadata.len()).read_to_end(&mut bytes)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}

/// Whether two files differ.
fn is_other(one: &Path, two: &Path) -> bool {
    let same =
        |one: &fs::Metadata, two: &fs::Metadata| (one.dev(), one.ino()) == (two.dev(), two.ino());
    let known = fs::metadata(one).ok().zip(fs::metadata(two).ok());
    let Some((first, second)) = known else { return false };
    let bytes = |path: &Path| {
        open_regular_file(path).ok().and_then(|(file, _)| {
            let mut bytes = Vec::new();
            file.take(MOST).read_to_end(&mut bytes).ok().map(|_| bytes)
        })
    };
    !same(&first, &second) && (first.len() != second.len() || bytes(one) != bytes(two))
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

/// Returns a line up to its comment: a `#` that no odd number of backslashes precedes.
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

/// Returns the name of the file after `Include`; `None`: the line is another.
fn included(line: &str) -> Option<&str> {
    let (word, rest) = line.split_at_checked("include".len())?;
    let is_directive =
        word.eq_ignore_ascii_case("include") && rest.starts_with(char::is_whitespace);
    if is_directive { rest.split_whitespace().next() } else { None }
}

/// Returns the first `Key=value` of a line, whose value may be quoted; `None`: there is none.
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
    use super::*;

    fn pairs(path: &Path) -> Result<Vec<(String, String)>, ConfError> {
        let mut found = Vec::new();
        ConfFiles::new(path, None)
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
    fn included_files_are_found_where_the_release_looks_or_else_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(&conf, "ClusterName=Big\nINCLUDE inner/%c.conf # why\nLast=1\nIncludes=no\n")
            .unwrap();
        fs::write(inner.join("big.conf"), "A=1\ninclude  more\nInclude *.inc\n").unwrap();
        let read = |number| {
            let mut files = ConfFiles::new(&conf, number);
            let mut keys = Vec::new();
            files.read_lines(&conf, &mut |key, _| keys.push(key.to_owned())).map(|()| {
                assert_eq!(keys[..2], ["ClusterName", "A"]);
                assert_eq!(keys[3..], ["Last", "Includes"]);
                (keys.swap_remove(2), files.note)
            })
        };
        let [beside, beside_conf] = [inner.join("more"), folder.path().join("more")];
        assert!(read(Some(38)).unwrap_err().to_string().contains("No such file"));
        // In one place only.
        fs::write(&beside, "B=2\n").unwrap();
        for number in [None, Some(38), Some(45)] {
            assert_eq!(read(number).unwrap(), ("B".to_owned(), None), "{number:?}");
        }
        fs::rename(&beside, &beside_conf).unwrap();
        for number in [None, Some(38), Some(45)] {
            assert_eq!(read(number).unwrap(), ("B".to_owned(), None), "{number:?}");
        }
        // In both, the same, and then another.
        fs::copy(&beside_conf, &beside).unwrap();
        assert_eq!(read(Some(45)).unwrap().1, None);
        fs::write(&beside, "C=3\n").unwrap();
        for (number, expected, path) in
            [(None, "B", &beside_conf), (Some(38), "C", &beside), (Some(39), "B", &beside_conf)]
        {
            let (key, note) = read(number).unwrap();
            assert_eq!(key, expected, "{number:?}");
            let begin = format!("Include more is {}, and not ", path.display());
            assert!(note.as_ref().unwrap().starts_with(&begin), "{note:?}");
        }
    }

    /// 9,000 nodes with a line of 120 bytes each were longer than 1 MiB, and more than 63 files were
    /// "too many".
    #[test]
    fn a_file_of_10_mib_and_200_includes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        let mut text = "#".repeat(10 << 20);
        for index in 0..200 {
            fs::write(folder.path().join(index.to_string()), format!("A{index}=1\n")).unwrap();
            text.push_str(&format!("\nInclude {index}"));
        }
        fs::write(&conf, text).unwrap();
        assert_eq!(pairs(&conf).unwrap().len(), 200);
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
        fs::write(&conf, "Include slurm.conf\nInclude slurm.conf\n").unwrap();
        assert!(pairs(&conf).unwrap_err().to_string().contains("too many files"));
        let long = fs::File::create(&conf).unwrap();
        long.set_len(MOST + 1).unwrap();
        assert!(pairs(&conf).unwrap_err().to_string().contains("64 MiB"));
    }
}
