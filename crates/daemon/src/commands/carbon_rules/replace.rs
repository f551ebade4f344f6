//! A file that is replaced as a whole: every reader finds the old text or the new one, also if the
//! disk is full or this process is killed.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, fchown};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use super::open_folder::{ConfLocation, explain};

/// A new text that is on disk next to the file that it will replace. It is removed if it does not.
pub(super) struct Staged<'a> {
    place: &'a ConfLocation,
    temporary: OsString,
    target: OsString,
}

impl<'a> Staged<'a> {
    /// Writes the text for the file of this name in the place's folder, with the owner and the mode
    /// of `like`.
    pub(super) fn new(
        place: &'a ConfLocation,
        target: OsString,
        text: &[u8],
        like: &Metadata,
    ) -> Result<Self> {
        let temporary = OsString::from(format!(".{}.{}", target.display(), std::process::id()));
        let shown = || place.path.with_file_name(&temporary).display().to_string();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&place.folder, &temporary, flags, mode);
        let mut file = File::from(file.map_err(|error| explain(error.into())).with_context(shown)?);
        let written = file
            .write_all(text)
            .and_then(|()| fchown(&file, Some(like.uid()), Some(like.gid())))
            .and_then(|()| file.set_permissions(like.permissions()))
            .and_then(|()| file.sync_all())
            .map_err(explain)
            .with_context(shown);
        let staged = Self { place, temporary, target };
        written.map(|()| staged)
    }

    /// Puts the new text in the place of the file.
    pub(super) fn commit(self) -> Result<()> {
        let Self { place, temporary, target } = &self;
        renameat(&place.folder, temporary, &place.folder, target)
            .map_err(Into::into)
            .and_then(|()| place.folder.sync_all())
            .map_err(explain)
            .with_context(|| place.path.with_file_name(target).display().to_string())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // After the commit there is no such file.
        let _ = unlinkat(&self.place.folder, &self.temporary, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests;
