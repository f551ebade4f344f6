//! The protocol numbers of each controller, in a file: after a restart no number is tried that was
//! refused.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tracing::warn;

use crate::number::{Found, Numbers};

/// Number of bytes of the file that are read at most.
const MOST: u64 = 64 << 10;

/// Time that the first request waits for the file.
const PATIENCE: Duration = Duration::from_secs(1);

/// Controllers that are remembered: those of one cluster, and of some before it.
const CONTROLLERS: usize = 64;

/// The numbers that were found, by the controller's name and port.
type Controllers = BTreeMap<String, Found>;

/// The numbers of every controller.
#[derive(Debug, Default)]
pub(crate) struct KnownNumbers {
    controllers: BTreeMap<String, Numbers>,
    /// The numbers as they are in the file, or will be when it is written.
    written: Controllers,
    file: Option<PathBuf>,
    writes: bool,
    is_read: bool,
}

impl KnownNumbers {
    pub(crate) fn new(file: Option<PathBuf>, writes: bool) -> Self {
        Self { file, writes, ..Self::default() }
    }

    /// Reads the file, once. If it is absent, damaged or on a disk that hangs, the numbers are
    /// searched again.
    pub(crate) async fn read_file(&mut self) {
        let Some(path) = self.file.clone().filter(|_| !self.is_read) else { return };
        let found =
            waiting_threads::ask(&owner(&path), "", PATIENCE, move || read_controllers(&path))
                .await;
        self.is_read = true;
        self.written = found.ok().and_then(Result::ok).unwrap_or_default();
        self.written.retain(|_, found| found.is_plausible());
        let known = self.written.iter();
        self.controllers =
            known.map(|(name, found)| (name.clone(), Numbers::from(found.clone()))).collect();
    }

    /// Returns the numbers of one controller, given by its name and port.
    pub(crate) fn numbers_of(&mut self, controller: &str) -> &mut Numbers {
        if self.controllers.len() >= CONTROLLERS && !self.controllers.contains_key(controller) {
            self.controllers.clear();
        }
        self.controllers.entry(controller.to_owned()).or_default()
    }

    /// Returns the highest number that any controller has accepted, as a guess at the release of
    /// this host's Slurm.
    pub(crate) fn highest(&self) -> Option<u16> {
        self.controllers.values().filter_map(|numbers| numbers.found.proved()).max()
    }

    /// Writes the file if the numbers have changed, without waiting for the disk. While an earlier
    /// write is under way, only a later call writes it again.
    pub(crate) fn write(&mut self) {
        let found = self.controllers.iter().map(|(name, numbers)| (name, &numbers.found));
        if !self.writes || found.clone().eq(&self.written) {
            return;
        }
        let found: Controllers = found.map(|(name, found)| (name.clone(), found.clone())).collect();
        let (Some(path), Ok(text)) = (self.file.clone(), serde_json::to_vec(&found)) else {
            return;
        };
        let owner = owner(&path);
        let work = move || {
            if let Err(error) = replace(&path, &text) {
                warn!(path = %path.display(), %error, "protocol numbers cannot be written; after a \
                    restart they are searched again");
            }
        };
        if waiting_threads::begin(&owner, work).is_ok() {
            self.written = found;
        }
    }
}

fn owner(path: &Path) -> String {
    format!("protocol numbers in {}", path.display())
}

/// Replaces the file. Others may write in its folder, so no link is followed, and nobody else's
/// file is written to.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?.write_all(text)?;
    fs::rename(&new, path)
}

fn read_controllers(path: &Path) -> io::Result<Controllers> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let mut bytes = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use slurm_snapshot::Statistics;

    use super::*;

    async fn known(path: &Path) -> KnownNumbers {
        let mut numbers = KnownNumbers::new(Some(path.to_owned()), true);
        numbers.read_file().await;
        numbers
    }

    #[tokio::test]
    async fn numbers_outlive_the_process_and_damage_is_as_if_there_were_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let mut numbers = known(&path).await;
        // What is written last stays, however often it is written.
        for started in 0..100 {
            let statistics = Statistics { req_time_start: started, ..Statistics::default() };
            numbers.numbers_of("ctl:6817").accept(38, &statistics);
            numbers.write();
        }
        let expected = numbers.numbers_of("ctl:6817").found.clone();
        let is_written = |found: Controllers| found.get("ctl:6817") == Some(&expected);
        while !read_controllers(&path).is_ok_and(is_written) {
            numbers.write();
            tokio::task::yield_now().await;
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut again = known(&path).await;
        assert_eq!(again.numbers_of("ctl:6817").found, expected);
        for text in ["", "{", "[]", "{\"ctl\":{\"accepted\":\"x\"}}"] {
            fs::write(&path, text).unwrap();
            assert!(known(&path).await.controllers.is_empty(), "{text}");
        }
        for index in 0..1000 {
            again.numbers_of(&index.to_string());
            assert!(again.controllers.len() <= CONTROLLERS);
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_file_or_of_the_new_one_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [path, new, other] =
            ["numbers", "numbers.new", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "{}").unwrap();
        symlink(&other, &path).unwrap();
        read_controllers(&path).unwrap_err();
        symlink(&other, &new).unwrap();
        replace(&path, b"[]").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"{}");
        assert_eq!(fs::read(&path).unwrap(), b"[]");
    }
}
