//! A file by its open folder and its name. A path is looked up once, and what is done later is done
//! in that folder, whatever somebody renames meanwhile. Root looks only into folders that are
//! root's alone: others could lead it to any file.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::trust::{Distrust, MOST_LINKS, Trusted, names};

/// The place of a file, behind all symbolic links, whether it exists or not.
#[derive(Debug)]
pub(super) struct ConfLocation {
    pub(super) folder: File,
    pub(super) name: OsString,
    /// Path of the file behind all links, for messages.
    pub(super) path: PathBuf,
}

fn open_at(folder: impl AsFd, name: impl AsRef<OsStr>, flags: OFlags) -> Result<File, Error> {
    Ok(openat(folder, name.as_ref(), flags | OFlags::CLOEXEC, Mode::empty())?.into())
}

impl ConfLocation {
    pub(super) fn find(path: &Path) -> Result<Self> {
        let mut rest = names(&std::path::absolute(path)?);
        let root = || open_at(CWD, "/", OFlags::PATH | OFlags::DIRECTORY);
        let mut folder = root()?;
        let mut so_far = PathBuf::from("/");
        let mut links = 0;
        let trusted = geteuid().is_root().then(Trusted::root);
        loop {
            let name = rest.pop().context("a folder, not a file")?;
            let next = match open_at(&folder, &name, OFlags::PATH | OFlags::NOFOLLOW) {
                Ok(next) => Some((fstat(&next)?, next)),
                Err(error) if error.kind() == ErrorKind::NotFound && rest.is_empty() => None,
                Err(error) => return Err(explain(error)),
            };
            if let Some(trusted) = &trusted {
                let next = next.as_ref().map(|(next, _)| next.st_uid);
                refuse_others(trusted, &fstat(&folder)?, next)
                    .with_context(|| so_far.display().to_string())?;
            }
            match next {
                Some((stat, next))
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink =>
                {
                    links += 1;
                    ensure!(links <= MOST_LINKS, Errno::LOOP);
                    let target =
                        PathBuf::from(OsString::from_vec(readlinkat(&next, "", [])?.into_bytes()));
                    if target.is_absolute() {
                        folder = root()?;
                        so_far = PathBuf::from("/");
                    }
                    rest.extend(names(&target));
                }
                Some((stat, next))
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory =>
                {
                    folder = next;
                    if name == ".." { _ = so_far.pop() } else { so_far.push(name) }
                }
                _ => {
                    ensure!(rest.is_empty(), Errno::NOTDIR);
                    let folder = open_at(&folder, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
                    return Ok(Self { folder, path: so_far.join(&name), name });
                }
            }
        }
    }

    /// Whether the file's folder has a file or a link with this name.
    pub(super) fn has_neighbour(&self, name: &OsStr) -> bool {
        open_at(&self.folder, name, OFlags::PATH | OFlags::NOFOLLOW).is_ok()
    }

    /// Reads the metadata and the bytes of the file. If somebody has put a link there meanwhile, it
    /// is refused, and a pipe does not hang.
    pub(super) fn read_file(&self) -> Result<(Metadata, Vec<u8>), Error> {
        let mut file = open_at(
            &self.folder,
            &self.name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK,
        )?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Error::other("not a regular file"));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok((metadata, text))
    }
}

/// Adds to an error about a file of Carbon's what to do about it.
pub(super) fn explain(error: Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow!("{error}. Is this the folder with Carbon's configuration?"),
        // Both EACCES and EPERM.
        ErrorKind::PermissionDenied if geteuid().is_root() => {
            anyhow!("{error}. Is the file immutable (`lsattr`), or its file system closed to root?")
        }
        ErrorKind::PermissionDenied => {
            anyhow!("{error}. Run this command with sudo, or as the user to whom the file belongs")
        }
        _ => error.into(),
    }
}

/// Returns an error if another user than root may put something else in this folder, under the name
/// that root is to use. `next`: owner of what has that name, if anything has. In a sticky folder
/// only that owner may replace it.
fn refuse_others(trusted: &Trusted, folder: &Stat, next: Option<u32>) -> Result<()> {
    let why = "and a user who may write there could make root write anywhere";
    let is_sticky = Mode::from_raw_mode(folder.st_mode).contains(Mode::SVTX);
    match trusted.check(folder.st_uid, folder.st_gid, folder.st_mode) {
        Err(distrust @ Distrust::Owner(user)) => {
            bail!("{distrust}, {why}. Run this command as that user, with `sudo -u '#{user}'`")
        }
        Err(Distrust::Writable) if is_sticky && next.is_some_and(|next| trusted.has(next)) => {
            Ok(())
        }
        Err(distrust) => bail!("{distrust}, {why}. Take the right away with `chmod go-w`"),
        Ok(()) => Ok(()),
    }
}
