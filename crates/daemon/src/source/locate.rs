//! Which reader program to start: one is installed for each libslurm, and the host has one libslurm.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::config::SlurmSettings;

const NAME: &str = "slurm-graphite-reader";
/// The one of slurmrestd.
const REST_NAME: &str = "slurm-graphite-rest-reader";
const PACKAGED: &str = "/usr/libexec/slurm-graphite";

#[cfg(target_arch = "x86_64")]
const TRIPLET: &str = "/usr/lib/x86_64-linux-gnu";
#[cfg(not(target_arch = "x86_64"))]
const TRIPLET: &str = "/usr/lib/aarch64-linux-gnu";

/// Where distributions, and sites with a Slurm of their own, have libslurm.
const LIBRARY_FOLDERS: [&str; 7] = [
    TRIPLET,
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
    "/opt/slurm/lib64",
    "/opt/slurm/lib",
];

/// There is no reader to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NoReader {
    #[error("there is no {NAME} in {folders}; {advice}, or name its path with [slurm] reader")]
    Nowhere { folders: String, advice: String },
    #[error(
        "there is no {REST_NAME} in {folders}; install the package {REST_NAME}, or name its path with [slurm] reader"
    )]
    NoRest { folders: String },
    #[error("no reader fits this host's libslurm ({tried}); {advice}")]
    Unfit { tried: String, advice: String },
}

impl NoReader {
    fn nowhere(over_rest: bool, folders: &[PathBuf]) -> Self {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let folders = folders.join(", ");
        match over_rest {
            true => Self::NoRest { folders },
            false => Self::Nowhere { folders, advice: install(&libraries(&loaders_path())) },
        }
    }

    /// `tried` are the readers that the dynamic loader refused, each with its words.
    pub(super) fn unfit(tried: &[String]) -> Self {
        Self::Unfit { tried: summary(tried), advice: install(&libraries(&loaders_path())) }
    }
}

/// Of the readers of all releases all but one have no library here: of those the numbers say enough.
fn summary(tried: &[String]) -> String {
    let number = |text: &str| {
        let (_, library) = text.rsplit_once("libslurm.so.")?;
        let (number, why) = library.split_once(':')?;
        why.contains("cannot open shared object file").then(|| number.to_owned())
    };
    let numbers: Vec<String> = tried.iter().filter_map(|text| number(text)).collect();
    if numbers.len() < 2 {
        return tried.join("; ");
    }
    let others = tried.iter().filter(|text| number(text).is_none()).cloned();
    let absent = format!("the dynamic loader finds no libslurm.so.{}", numbers.join(", "));
    others.chain([absent]).collect::<Vec<_>>().join("; ")
}

/// What to install where these libslurm.so.N are.
fn install(sonames: &[u32]) -> String {
    let packages: Vec<String> = sonames.iter().map(|soname| format!("{NAME}-{soname}")).collect();
    if packages.is_empty() {
        return format!(
            "no libslurm was seen here: install Slurm's library (Debian, Ubuntu: slurm-wlm-basic-plugins and what \
             `apt-cache search --names-only '^libslurm[0-9]'` names; RHEL, Rocky, Alma: slurm) and, for its libslurm.so.N, \
             {NAME}-N where that is not here yet"
        );
    }
    let packages = packages.join(" or ");
    format!("install the package {packages} (Debian, Ubuntu: apt install; RHEL, Rocky, Alma: dnf install)")
}

/// The folders in which the dynamic loader looks first.
fn loaders_path() -> OsString {
    std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()
}

/// N of every libslurm.so.N that the loader may find: in the folders of `path`, or else in the usual ones.
fn libraries(path: &OsStr) -> Vec<u32> {
    let first = libraries_in(std::env::split_paths(path));
    if first.is_empty() { libraries_in(LIBRARY_FOLDERS) } else { first }
}

/// N of every libslurm.so.N in these folders, the newest first.
fn libraries_in(folders: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<u32> {
    let entries = folders.into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut sonames: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("libslurm.so.")?.parse().ok())
        .collect();
    sonames.sort_unstable_by_key(|&soname| std::cmp::Reverse(soname));
    sonames.dedup();
    sonames
}

/// The programs to try, in that order: the newest libslurm first.
pub(super) fn readers(slurm: &SlurmSettings) -> Result<Vec<PathBuf>, NoReader> {
    if let Some(reader) = &slurm.reader {
        return Ok(vec![reader.clone()]);
    }
    let over_rest = slurm.rest.endpoint.is_some();
    let folders = folders();
    let found = if over_rest { rest_in(&folders).into_iter().collect() } else { found_in(&folders) };
    if found.is_empty() { Err(NoReader::nowhere(over_rest, &folders)) } else { Ok(found) }
}

/// Every reader that is installed: of libslurm, the newest first, and of slurmrestd.
pub(super) fn installed() -> Vec<PathBuf> {
    let folders = folders();
    found_in(&folders).into_iter().chain(rest_in(&folders)).collect()
}

fn rest_in(folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(REST_NAME)).find(|path| path.is_file())
}

/// Whether it is the reader of slurmrestd.
pub(super) fn is_rest(program: &Path) -> bool {
    program.file_name() == Some(REST_NAME.as_ref())
}

/// N of its libslurm.so.N, as its name tells.
pub(super) fn number(program: &Path) -> Option<u32> {
    soname_number(program.file_name()?.to_str()?)
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

    #[test]
    fn what_to_install_is_the_package_for_the_library_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let generic = install(&libraries_in([path, "/nowhere"]));
        assert!(
            generic.contains("slurm-wlm-basic-plugins") && generic.contains("slurm-graphite-reader-N"),
            "{generic}"
        );
        for name in
            ["libslurm.so", "libslurm.so.38", "libslurm.so.38.0.0", "libslurmfull.so", "libslurmdb.so.38"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let advice = install(&libraries_in([path, path]));
        assert_eq!(
            advice,
            "install the package slurm-graphite-reader-38 (Debian, Ubuntu: apt install; RHEL, Rocky, Alma: dnf install)"
        );
        std::fs::write(folder.path().join("libslurm.so.42"), "").unwrap();
        let both = install(&libraries_in([path]));
        assert!(both.contains("slurm-graphite-reader-42 or slurm-graphite-reader-38"), "{both}");
    }

    /// A line of 2 KB, before.
    #[test]
    fn readers_whose_library_is_not_here_are_numbers_and_others_keep_their_words() {
        let said = |number: u32| {
            format!(
                "/l/slurm-graphite-reader-{number}: x: error while loading shared libraries: libslurm.so.{number}: cannot open shared object file: No such file or directory"
            )
        };
        let other = "/l/slurm-graphite-reader-38: the loaded libslurm is libslurm.so.39 of Slurm 23.02";
        assert_eq!(
            summary(&[said(45), other.to_owned(), said(36)]),
            format!("{other}; the dynamic loader finds no libslurm.so.45, 36")
        );
        assert_eq!(summary(&[said(38)]), said(38));
    }

    /// The host may have another one that nobody uses.
    #[test]
    fn the_library_that_ld_library_path_names_is_the_one_that_needs_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libslurm.so.41"), "").unwrap();
        let path = std::env::join_paths([Path::new("/nowhere"), folder.path()]).unwrap();
        assert_eq!(libraries(&path), [41]);
        assert_eq!(libraries("/nowhere".as_ref()), libraries_in(LIBRARY_FOLDERS));
    }
}
