//! The choice of the configuration file: the one that --config names, or else the default file,
//! which may be missing.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::problem::Problems;
use crate::trust::{Disbelief, check_found_file};

/// Environment variable that names another default file.
pub(crate) const VARIABLE: &str = "SLURM_GRAPHITE_CONFIG";
/// The default file, below the folder for configurations.
const BELOW: &str = "slurm-graphite/slurm-graphite.toml";

/// A configuration file that was read, or that none is there.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    /// Path of the file. `None`: no file is named, and there is no default file.
    pub(super) path: Option<PathBuf>,
    pub(super) text: String,
    /// Whether some users of this host may not read the file.
    pub(super) is_private: bool,
    /// Messages about default files that were not read, because other users could have written
    /// them.
    pub(super) passed_over: Vec<String>,
}

/// A configuration file that is there and cannot be read, or one that --config names and that is
/// not there.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be read: {source}", .path.display())]
pub(crate) struct Unreadable {
    path: PathBuf,
    source: io::Error,
    is_default: bool,
}

impl ConfigFile {
    /// Reads the file `named`, or else the first default file that exists and is to be believed.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, Unreadable> {
        let unreadable = |path: &Path, source| Unreadable {
            path: path.to_owned(),
            source,
            is_default: named.is_none(),
        };
        let read = |path: &Path| match std::fs::read_to_string(path) {
            Ok(text) => {
                let is_private = path.metadata().is_ok_and(|file| file.mode() & 0o004 == 0);
                let passed_over = Vec::new();
                Ok(Self { path: Some(path.to_owned()), text, is_private, passed_over })
            }
            Err(source) => Err(unreadable(path, source)),
        };
        if let Some(path) = named {
            return read(path);
        }
        let mut passed_over = Vec::new();
        for path in default_paths() {
            let found = match check_default(&path) {
                Ok(()) => read(&path),
                Err(Disbelief::Unseen(source)) => Err(unreadable(&path, source)),
                Err(error) => {
                    passed_over.push(format!(
                        "configuration: {} is passed over: {error}, so others than root, this user \
                            and the owner of this program could have put it there; --config names \
                            a file that you trust",
                        path.display()
                    ));
                    continue;
                }
            };
            match found {
                Err(error) if error.is_missing() => {}
                found => return found.map(|file| Self { passed_over, ..file }),
            }
        }
        Ok(Self { passed_over, ..Self::default() })
    }
}

/// Checks that nobody but trusted users could have written a default file. One that the environment
/// names is not checked.
fn check_default(path: &Path) -> Result<(), Disbelief> {
    if std::env::var_os(VARIABLE).is_some() { Ok(()) } else { check_found_file(path) }
}

impl Unreadable {
    fn is_missing(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }

    /// Whether it is the default file, and this user may not read it.
    pub(crate) fn is_denied_default(&self) -> bool {
        self.is_default && self.source.kind() == io::ErrorKind::PermissionDenied
    }
}

impl From<Unreadable> for Problems {
    fn from(error: Unreadable) -> Self {
        Self::one(error.path.display().to_string(), format!("cannot be read: {}", error.source))
    }
}

/// The places of the default file, in the order in which they are tried.
pub(crate) fn default_paths() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return vec![path.into()];
    }
    let program = std::env::current_exe().unwrap_or_default();
    below_prefix(&program).into_iter().chain([Path::new("/etc").join(BELOW)]).collect()
}

/// Returns the path of the default file that `make install PREFIX=` installed together with
/// `program`. `None`: the file is in /etc, as below /usr, or the program was not installed.
fn below_prefix(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent().filter(|folder| folder.ends_with("bin"))?.parent()?;
    (prefix != Path::new("/usr") && prefix != Path::new("/"))
        .then(|| prefix.join("etc").join(BELOW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_prefix_has_a_default_file_of_its_own_and_a_build_has_none() {
        let default_of =
            |program: &str| below_prefix(Path::new(program)).map(|path| path.display().to_string());
        let expected = "/usr/local/etc/slurm-graphite/slurm-graphite.toml".to_owned();
        assert_eq!(default_of("/usr/local/bin/slurm-graphite"), Some(expected));
        for program in
            ["/usr/bin/slurm-graphite", "/bin/slurm-graphite", "/x/target/debug/slurm-graphite", ""]
        {
            assert_eq!(default_of(program), None, "{program}");
        }
    }
}
