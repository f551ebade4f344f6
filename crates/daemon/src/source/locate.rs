//! Which reader program to start: one is installed for each libslurm, and the host has one libslurm.

use std::path::{Path, PathBuf};

use crate::config::Slurm;

const NAME: &str = "slurm-graphite-reader";
const PACKAGED: &str = "/usr/libexec/slurm-graphite";

/// There is no reader to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NoReader {
    #[error(
        "there is no {NAME} in {0}; install the reader for this host's libslurm, or say where it is with [slurm] reader"
    )]
    Nowhere(String),
    #[error("no reader fits this host's libslurm; install the one that does ({0})")]
    Unfit(String),
}

/// The programs to try, in that order: the newest libslurm first.
pub(super) fn readers(slurm: &Slurm) -> Result<Vec<PathBuf>, NoReader> {
    if let Some(reader) = &slurm.reader {
        return Ok(vec![reader.clone()]);
    }
    let folders = folders();
    let found = found_in(&folders);
    if found.is_empty() {
        let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        return Err(NoReader::Nowhere(looked.join(", ")));
    }
    Ok(found)
}

/// Beside this program, where it was built; in libexec below the same prefix, where it was installed.
fn folders() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let installed = own.as_deref().and_then(Path::parent).map(|prefix| prefix.join("libexec/slurm-graphite"));
    let mut folders: Vec<PathBuf> = own.into_iter().chain(installed).collect();
    if !folders.iter().any(|folder| folder == Path::new(PACKAGED)) {
        folders.push(PACKAGED.into());
    }
    folders
}

fn found_in(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let soname = soname_number(path.file_name()?.to_str()?)?;
            path.is_file().then_some((soname, path))
        })
        .collect();
    // Stable: of the same number, the folder that comes first.
    found.sort_by_key(|(soname, _)| std::cmp::Reverse(*soname));
    found.into_iter().map(|(_, path)| path).collect()
}

/// 42 of `slurm-graphite-reader-42`; of the plain name, which was built here, more than any.
fn soname_number(name: &str) -> Option<u32> {
    match name.strip_prefix(NAME)? {
        "" => Some(u32::MAX),
        suffix => suffix.strip_prefix('-')?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_is_tried_first_and_other_files_never() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "slurm-graphite",
            "slurm-graphite-reader-38",
            "slurm-graphite-reader-42",
            "slurm-graphite-reader.d",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("slurm-graphite-reader-45")).unwrap();
        let found = found_in(&[folder.path().to_owned(), "/nowhere".into()]);
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["slurm-graphite-reader-42", "slurm-graphite-reader-38"]);
    }
}
