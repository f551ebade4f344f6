//! Users who may put something else in the place of a file: the one rule for what is started,
//! believed or written because of where it is.
//!
//! A reader or a configuration that nobody has named is believed if it is as safe as the running
//! program itself, which those who may replace it control anyway. So only what is below the last
//! folder that both paths share is checked.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::geteuid;

/// Number of symbolic links in one path that the kernel follows.
pub(crate) const MOST_LINKS: usize = 40;

/// The users and groups that may write in a place.
#[derive(Debug)]
pub(crate) struct Trusted {
    users: Vec<u32>,
    groups: Vec<u32>,
}

/// A reason why a place is not trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Distrust {
    #[error("belongs to user {0}")]
    Owner(u32),
    #[error("others than its owner may write there")]
    Writable,
}

/// A reason why a file that was found is not believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Disbelief {
    #[error("{} {why}", .path.display())]
    Distrusted { path: PathBuf, why: Distrust },
    /// The file is not there, or cannot be looked at.
    #[error(transparent)]
    Unseen(#[from] io::Error),
}

impl Trusted {
    /// Trusts root alone. The owner of `/` counts as root, also where root is only a namespace's.
    pub(crate) fn root() -> Self {
        Self { users: [0].into_iter().chain(owner("/")).collect(), groups: Vec::new() }
    }

    /// Root, root's group, this user and those who may replace the program at `path`.
    fn of_program(path: &Path) -> Self {
        // Also of a program that was replaced since its start.
        let program = owner("/proc/self/exe");
        let mut users = Self::root().users;
        users.extend(program.into_iter().chain([geteuid().as_raw()]));
        let folder = path.parent().and_then(|folder| folder.metadata().ok());
        let group = folder.filter(|folder| {
            let mode = Mode::from_raw_mode(folder.mode());
            mode.contains(Mode::WGRP) && !mode.contains(Mode::SVTX)
        });
        Self { users, groups: [0].into_iter().chain(group.map(|folder| folder.gid())).collect() }
    }

    /// Whether this user is trusted.
    pub(crate) fn has(&self, user: u32) -> bool {
        self.users.contains(&user)
    }

    /// Checks a file or a folder by its owner, its group and its mode.
    ///
    /// # Errors
    /// A user who is not trusted may write there.
    pub(crate) fn check(&self, user: u32, group: u32, mode: u32) -> Result<(), Distrust> {
        if !self.has(user) {
            return Err(Distrust::Owner(user));
        }
        let mode = Mode::from_raw_mode(mode);
        let is_anothers = mode.contains(Mode::WGRP) && !self.groups.contains(&group);
        if is_anothers || mode.contains(Mode::WOTH) {
            return Err(Distrust::Writable);
        }
        Ok(())
    }

    /// Checks every folder and link on the way to a file or folder, and itself, but not the folders
    /// of `shared`.
    ///
    /// # Errors
    /// A user who is not trusted may put something else there, or something on the way is absent.
    pub(crate) fn check_path(&self, path: &Path, shared: &Path) -> Result<(), Disbelief> {
        let mut rest = names(path);
        let mut folder = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                folder.pop();
                continue;
            }
            let path = folder.join(name);
            if shared.starts_with(&path) {
                folder = path;
                continue;
            }
            let found = fs::symlink_metadata(&path)?;
            self.check_found(&found)
                .map_err(|why| Disbelief::Distrusted { path: path.clone(), why })?;
            if !found.is_symlink() {
                folder = path;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::from(Errno::LOOP).into());
            }
            let target = fs::read_link(&path)?;
            if target.is_absolute() {
                folder = PathBuf::from("/");
            }
            rest.extend(names(&target));
        }
        Ok(())
    }

    /// Checks a file, folder or link by its metadata. In a folder that is sticky, such as /tmp,
    /// only the owner of a file can replace it, so others may write there; the owner of the next
    /// name is checked too. The mode of a link says nothing.
    fn check_found(&self, found: &Metadata) -> Result<(), Distrust> {
        let mode = found.mode();
        let is_sticky = found.is_dir() && Mode::from_raw_mode(mode).contains(Mode::SVTX);
        let counts = !found.is_symlink() && !is_sticky;
        self.check(found.uid(), found.gid(), if counts { mode } else { 0 })
    }
}

/// Checks a file that was found by its place and is to be believed.
///
/// # Errors
/// Others than those who may replace this program could have put it there, or it is not there.
pub(crate) fn check_found_file(path: &Path) -> Result<(), Disbelief> {
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(&program);
    Trusted::of_program(&program).check_path(path, folder)
}

/// Checks a folder in which this process is to make files: root makes none where others could lead
/// it elsewhere.
///
/// # Errors
/// This is root, and the folder is not root's alone.
pub(crate) fn check_own_folder(path: &Path) -> Result<(), Disbelief> {
    if !geteuid().is_root() {
        return Ok(());
    }
    Trusted::root().check_path(&std::path::absolute(path)?, Path::new("/"))
}

/// The names in a path, the last one first.
pub(crate) fn names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = path.components().filter(|part| *part != Component::RootDir).collect();
    names.reverse();
    names.into_iter().map(|part| part.as_os_str().to_owned()).collect()
}

fn owner(path: &str) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.uid())
}
