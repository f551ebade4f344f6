//! The choice of the reader program: one is installed for each libslurm, and the host has one
//! libslurm, or none.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use slurmctld_protocol::INSTALL_LIBSLURM;

use super::conf;
use crate::config::{ReaderChoice, SlurmSettings};
use crate::trust::{Disbelief, check_found_file};

const NAME: &str = "slurm-graphite-reader";
/// Name of the reader program that asks slurmrestd.
const REST_NAME: &str = "slurm-graphite-rest-reader";
/// The variable with a token that libslurm uses instead of munge.
pub(crate) const TOKEN: &str = "SLURM_JWT";
const PACKAGED: &str = "/usr/libexec/slurm-graphite";
/// The folder of readers below the prefix of an installation.
const LIBEXEC: &str = "libexec/slurm-graphite";
/// Time that the search may take: file systems over the network are slow, and may hang.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(target_arch = "x86_64")]
const TRIPLET: &str = "/usr/lib/x86_64-linux-gnu";
#[cfg(not(target_arch = "x86_64"))]
const TRIPLET: &str = "/usr/lib/aarch64-linux-gnu";

/// Folders where distributions, and sites with a Slurm of their own, have libslurm.
const LIBRARY_FOLDERS: [&str; 7] = [
    TRIPLET,
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
    "/opt/slurm/lib64",
    "/opt/slurm/lib",
];

/// The way in which a reader asks Slurm. Its number is the value of the figure `reader`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReaderKind {
    /// The reader asks slurmctld, by libslurm.
    #[default]
    Libslurm,
    /// This process asks slurmctld in its own protocol, only for the statistics.
    Native,
    /// The reader asks slurmrestd.
    Rest,
}

impl ReaderKind {
    /// The kind of a reader with these settings.
    pub(super) fn for_program(program: &Path, slurm: &SlurmSettings) -> Self {
        if slurm.rest.endpoint.is_some() { Self::Rest } else { Self::named(program) }
    }

    /// The kind that the program's name tells.
    pub(super) fn named(program: &Path) -> Self {
        match program.file_name() {
            Some(name) if name == REST_NAME => Self::Rest,
            _ => Self::Libslurm,
        }
    }

    /// The name in `status`, and in the daemon's memory.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Libslurm => "libslurm",
            Self::Native => "native",
            Self::Rest => "slurmrestd",
        }
    }

    /// The program whose messages are on its stderr: libslurm logs there.
    pub(super) const fn speaker(self) -> &'static str {
        match self {
            Self::Libslurm => "libslurm",
            Self::Native | Self::Rest => "the reader",
        }
    }
}

/// The dynamic loader's words about a library that it does not find.
const ABSENT: &str = "cannot open shared object file";

/// A reason why there is no reader to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NoReader {
    #[error("there is no {name} in {folders}; {advice}, or name its path with [slurm] reader")]
    Nowhere { name: &'static str, folders: String, advice: String },
    #[error("no reader fits this host's libslurm ({tried}); {advice}")]
    Unfit { tried: String, advice: String },
    /// Readers are installed, but the libslurm that they need is not.
    #[error("this host has no libslurm. {INSTALL_LIBSLURM}")]
    NoLibrary,
    /// The native reader cannot take the place of libslurm's, because of the setting that is named
    /// here.
    #[error("{0} needs libslurm's reader: {1}")]
    Needed(&'static str, Box<Self>),
    /// There is neither slurm.conf nor libslurm. slurm.conf is named, because the native reader
    /// needs no libslurm.
    #[error("there is no {}; with it and munge the statistics can be read, also without libslurm",
        conf::USUAL.join(" or "))]
    NoConf,
    #[error("{}", .0.join("; "))]
    PassedOver(Vec<String>),
    #[error("looking for the installed readers: {0}")]
    Unsearched(io::Error),
}

impl NoReader {
    /// Returns the error if none of the readers in `tried` fits, each with its words. `sonames` are
    /// N of each libslurm.so.N that was found. If there is none, and the dynamic loader misses one
    /// for each reader, libslurm is missing; else the readers' words say more.
    pub(super) fn unfit(tried: &[String], sonames: &[u32], slurm: &SlurmSettings) -> Self {
        let is_absent = sonames.is_empty() && tried.iter().all(|text| text.contains(ABSENT));
        let unfit = || Self::Unfit { tried: summary(tried), advice: install(sonames) };
        (if is_absent { Self::NoLibrary } else { unfit() }).with_need(slurm)
    }

    /// Names what needs libslurm, if `auto` would otherwise have used the native reader.
    fn with_need(self, slurm: &SlurmSettings) -> Self {
        match needs_libslurm(slurm) {
            Some(need) => Self::Needed(need, Box::new(self)),
            None => self,
        }
    }

    /// Advice where an administrator would look first.
    pub(super) const fn advice(&self) -> &'static str {
        match self {
            Self::NoLibrary => {
                "For the statistics alone, the cluster's slurm.conf in /etc/slurm and munge are \
                    enough. If Slurm is in a directory of its own, name the one of its libslurm \
                    in LD_LIBRARY_PATH."
            }
            Self::Needed(..) => "Without it, slurm.conf and munge are enough for the statistics.",
            Self::NoConf => {
                "Copy the cluster's slurm.conf to this host, or name its place with [slurm] conf."
            }
            Self::PassedOver(_) => {
                "Install readers and program as root, or name the reader with [slurm] reader."
            }
            Self::Unsearched(_) => {
                "Is slurm.conf, libslurm or a reader on a file system that hangs?"
            }
            _ => {
                "`slurm-graphite --version` shows which readers are installed, and for which Slurm \
                    each is."
            }
        }
    }
}

/// Sums up why no reader could be used. The readers of all releases but one have no library here,
/// so for those the numbers are enough.
fn summary(tried: &[String]) -> String {
    let number = |text: &str| {
        let (_, library) = text.rsplit_once("libslurm.so.")?;
        let (number, why) = library.split_once(':')?;
        why.contains(ABSENT).then(|| number.to_owned())
    };
    let numbers: Vec<String> = tried.iter().filter_map(|text| number(text)).collect();
    if numbers.len() < 2 {
        return tried.join("; ");
    }
    let others = tried.iter().filter(|text| number(text).is_none()).cloned();
    let absent = format!("the dynamic loader finds no libslurm.so.{}", numbers.join(", "));
    others.chain([absent]).collect::<Vec<_>>().join("; ")
}

/// Says which package to install for these libslurm.so.N. Without any, it is the one for a libslurm
/// that is still to come, or that is in a folder of its own.
fn install(sonames: &[u32]) -> String {
    let packages: Vec<String> = sonames.iter().map(|soname| format!("{NAME}-{soname}")).collect();
    let packages = match packages.is_empty() {
        true => format!("{NAME}-N for libslurm.so.N"),
        false => packages.join(" or "),
    };
    format!(
        "install the package {packages} (Debian, Ubuntu: apt install; RHEL, Rocky, Alma: dnf \
            install)"
    )
}

/// The folders in which the dynamic loader looks first.
fn loaders_path() -> OsString {
    std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()
}

/// N of every libslurm.so.N that the loader may find: in the folders of `path`, or else in the
/// usual ones.
fn libraries(path: &OsStr) -> Vec<u32> {
    let first = libraries_in(std::env::split_paths(path));
    if first.is_empty() { libraries_in(LIBRARY_FOLDERS) } else { first }
}

/// N of every libslurm.so.N in these folders, the newest first.
fn libraries_in(folders: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<u32> {
    let found = numbered(folders, |name| name.strip_prefix("libslurm.so.")?.parse().ok());
    let mut sonames: Vec<u32> = found.into_iter().map(|(soname, _)| soname).collect();
    sonames.dedup();
    sonames
}

/// Files in these folders that have a number, the highest first. Of two files with the same number,
/// the one in the earlier folder is taken.
fn numbered(
    folders: impl IntoIterator<Item = impl AsRef<Path>>,
    number: impl Fn(&str) -> Option<u32>,
) -> Vec<(u32, PathBuf)> {
    let entries =
        folders.into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path())))
        .collect();
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found
}

/// The readers that are installed on this host.
pub(super) struct LocatedReaders {
    /// The programs, in the order in which they are tried.
    pub(super) programs: Vec<PathBuf>,
    /// Whether the native reader is used if none of the programs fits.
    pub(super) is_native: bool,
    /// N of every libslurm.so.N that was found on this host.
    pub(super) sonames: Vec<u32>,
    /// Files that change when a libslurm or a reader of one is installed.
    pub(super) signs: Vec<PathBuf>,
    /// Readers that are not believed, and why.
    pub(super) passed_over: Vec<String>,
}

/// The readers that were found.
#[derive(Default)]
pub(super) struct FoundReaders {
    /// The programs, in the order in which they are tried.
    pub(super) programs: Vec<PathBuf>,
    /// Whether the native reader is used if none of the programs fits.
    pub(super) is_native: bool,
    /// The programs that are not believed, and why.
    pub(super) passed_over: Vec<String>,
}

impl FoundReaders {
    /// Keeps those of these programs that only trusted users can have put there.
    fn believe(found: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut readers = Self::default();
        for program in found.into_iter().filter(|path| path.is_file()) {
            match check_found_file(&program) {
                Ok(()) => readers.programs.push(program),
                Err(Disbelief::Unseen(_)) => {}
                Err(error) => readers.passed_over.push(passed_over(&program, &error)),
            }
        }
        readers
    }
}

/// Looks, in a thread, for the readers that these settings need.
pub(super) async fn locate_readers(slurm: &SlurmSettings) -> Result<LocatedReaders, NoReader> {
    let (slurm, sought) =
        (slurm.clone(), (&slurm.reader, &slurm.conf, slurm.follow, slurm.rest.endpoint.is_some()));
    let question = format!("{sought:?}");
    let search = move || {
        let FoundReaders { programs, is_native, passed_over } = readers(&slurm)?;
        let (sonames, signs) = (installed_libraries(), signs_of_libslurm());
        Ok(LocatedReaders { programs, is_native, sonames, signs, passed_over })
    };
    let located = waiting_threads::ask("installed readers", &question, PATIENCE, search).await;
    located.unwrap_or_else(|error| Err(NoReader::Unsearched(error)))
}

/// N of every libslurm.so.N that the dynamic loader may find.
pub(super) fn installed_libraries() -> Vec<u32> {
    libraries(&loaders_path())
}

/// Returns the programs to try with these settings, the one for the newest libslurm first.
pub(super) fn readers(slurm: &SlurmSettings) -> Result<FoundReaders, NoReader> {
    let folders = folders();
    let (name, mut found, is_native) = match &slurm.reader {
        ReaderChoice::Program(program) => {
            let programs = vec![program.clone()];
            return Ok(FoundReaders { programs, ..FoundReaders::default() });
        }
        _ if slurm.rest.endpoint.is_some() => {
            (REST_NAME, FoundReaders::believe(all_in(REST_NAME, &folders)), false)
        }
        ReaderChoice::Native => (NAME, FoundReaders::default(), true),
        ReaderChoice::Auto => (NAME, found_in(&folders), may_be_native(slurm)),
        ReaderChoice::Libslurm => (NAME, found_in(&folders), false),
    };
    found.is_native = is_native;
    if is_native || !found.programs.is_empty() {
        return Ok(found);
    }
    if !found.passed_over.is_empty() {
        return Err(NoReader::PassedOver(found.passed_over).with_need(slurm));
    }
    let could_be_native =
        slurm.reader == ReaderChoice::Auto && name == NAME && needs_libslurm(slurm).is_none();
    if could_be_native && installed_libraries().is_empty() {
        return Err(NoReader::NoConf);
    }
    let advice = match name {
        NAME => match &*installed_libraries() {
            [] => {
                format!("this host has no libslurm either: install Slurm's, then {}", install(&[]))
            }
            sonames => install(sonames),
        },
        _ => format!("install the package {name}"),
    };
    let folders: Vec<_> = folders.iter().map(|folder| folder.to_string_lossy()).collect();
    Err(NoReader::Nowhere { name, folders: folders.join(", "), advice }.with_need(slurm))
}

/// Names the setting that keeps `auto` from the native reader: only libslurm's reader pings the
/// other controllers, and takes a token from SLURM_JWT.
fn needs_libslurm(slurm: &SlurmSettings) -> Option<&'static str> {
    if slurm.reader != ReaderChoice::Auto || slurm.rest.endpoint.is_some() {
        return None;
    }
    let token = || std::env::var_os(TOKEN).map(|_| "the token in SLURM_JWT");
    slurm.follow.then_some("[slurm] follow").or_else(token)
}

/// Whether the native reader can take the place of libslurm's, which alone asks slurmctld for a
/// slurm.conf that is not here.
fn may_be_native(slurm: &SlurmSettings) -> bool {
    let has_conf = || {
        conf::named(slurm.conf.as_deref()).is_some()
            || conf::USUAL.iter().any(|path| Path::new(path).exists())
    };
    needs_libslurm(slurm).is_none() && has_conf()
}

/// Every reader that is installed: of libslurm, the newest first, and that of slurmrestd.
pub(super) fn installed() -> FoundReaders {
    let folders = folders();
    let mut found = found_in(&folders);
    let rest = FoundReaders::believe(all_in(REST_NAME, &folders));
    found.programs.extend(rest.programs.into_iter().next());
    found.passed_over.extend(rest.passed_over);
    found
}

fn signs_of_libslurm() -> Vec<PathBuf> {
    let path = loaders_path();
    let loaders = std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty());
    // Not this program's own folder, such as /usr/bin, which changes with each package.
    let readers = folders().into_iter().filter(|folder| folder.ends_with(LIBEXEC));
    loaders.chain(["/etc/ld.so.cache".into()]).chain(readers).collect()
}

fn all_in(name: &str, folders: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    folders.iter().map(move |folder| folder.join(name))
}

fn passed_over(program: &Path, error: &Disbelief) -> String {
    format!(
        "{} is passed over: {error}, so others than root, this user and the owner of this program \
            could have put it there",
        program.display()
    )
}

/// Returns N of the libslurm.so.N that a reader is built for, as its name tells.
pub(super) fn number(program: &Path) -> Option<u32> {
    soname_number(program.file_name()?.to_str()?)
}

/// Returns the folders that may have readers: that of this program, where it was built; libexec
/// below the same prefix, where it was installed; and the packages' folder.
fn folders() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let installed = own.as_deref().and_then(Path::parent).map(|prefix| prefix.join(LIBEXEC));
    let mut folders: Vec<PathBuf> = own.into_iter().chain(installed).collect();
    if !folders.iter().any(|folder| folder == Path::new(PACKAGED)) {
        folders.push(PACKAGED.into());
    }
    folders
}

fn found_in(folders: &[PathBuf]) -> FoundReaders {
    FoundReaders::believe(numbered(folders, soname_number).into_iter().map(|(_, path)| path))
}

/// Returns 42 for `slurm-graphite-reader-42`. For the plain name, of a reader that was built here,
/// it is more than any.
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
        let found = found_in(&[folder.path().to_owned(), "/nowhere".into()]).programs;
        let names: Vec<_> =
            found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["slurm-graphite-reader-42", "slurm-graphite-reader-38"]);
    }

    #[test]
    fn what_to_install_is_the_package_for_the_library_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let generic = install(&libraries_in([path, "/nowhere"]));
        assert!(generic.contains("slurm-graphite-reader-N for libslurm.so.N"), "{generic}");
        for name in [
            "libslurm.so",
            "libslurm.so.38",
            "libslurm.so.38.0.0",
            "libslurmfull.so",
            "libslurmdb.so.38",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let advice = install(&libraries_in([path, path]));
        assert_eq!(
            advice,
            "install the package slurm-graphite-reader-38 (Debian, Ubuntu: apt install; RHEL, \
                Rocky, Alma: dnf install)"
        );
        std::fs::write(folder.path().join("libslurm.so.42"), "").unwrap();
        let both = install(&libraries_in([path]));
        assert!(both.contains("slurm-graphite-reader-42 or slurm-graphite-reader-38"), "{both}");
    }

    /// Guards against an error: the line was 2 KB long.
    #[test]
    fn readers_whose_library_is_not_here_are_numbers_and_others_keep_their_words() {
        let said = |number: u32| {
            format!(
                "/l/slurm-graphite-reader-{number}: x: error while loading shared libraries: \
                    libslurm.so.{number}: cannot open shared object file: No such file or directory"
            )
        };
        let other =
            "/l/slurm-graphite-reader-38: the loaded libslurm is libslurm.so.39 of Slurm 23.02";
        assert_eq!(
            summary(&[said(45), other.to_owned(), said(36)]),
            format!("{other}; the dynamic loader finds no libslurm.so.45, 36")
        );
        assert_eq!(summary(&[said(38)]), said(38));
        // Nothing is said of the readers where no libslurm is installed, and they are not to be
        // installed again.
        let mut slurm = crate::config::Config::default().slurm;
        let none = NoReader::unfit(&[said(45), said(38)], &[], &slurm).to_string();
        assert!(
            none.starts_with("this host has no libslurm. Install") && none.len() < 400,
            "{none}"
        );
        assert!(!none.contains("slurm-graphite-reader"), "{none}");
        for (tried, sonames) in [(said(38), &[39][..]), (other.to_owned(), &[])] {
            let unfit = NoReader::unfit(&[tried], sonames, &slurm);
            assert!(matches!(unfit, NoReader::Unfit { .. }));
        }
        // The native reader was said to be enough.
        slurm.follow = true;
        let needed = NoReader::unfit(&[said(38)], &[], &slurm).to_string();
        let cause = "[slurm] follow needs libslurm's reader: this host has no libslurm. Install";
        assert!(needed.starts_with(cause) && !needed.contains("slurm.conf"), "{needed}");
    }

    /// The host may have another libslurm that nobody uses.
    #[test]
    fn the_library_that_ld_library_path_names_is_the_one_that_needs_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libslurm.so.41"), "").unwrap();
        let path = std::env::join_paths([Path::new("/nowhere"), folder.path()]).unwrap();
        assert_eq!(libraries(&path), [41]);
        assert_eq!(libraries("/nowhere".as_ref()), libraries_in(LIBRARY_FOLDERS));
    }
}
