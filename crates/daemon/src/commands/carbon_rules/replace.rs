//! A file that is replaced as a whole: every reader finds the old text or the new one, also if the disk is full or this process
//! is killed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A new text that is on disk next to the file that it will replace. It is removed if it does not.
pub(super) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
}

impl Staged {
    /// Writes the text, with the owner and the mode of `like`.
    pub(super) fn new(target: &Path, text: &[u8], like: &Metadata) -> Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let temporary = target.with_file_name(format!(".{name}.{}", std::process::id()));
        let place = temporary.display().to_string();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .with_context(|| place.clone())?;
        let staged = Self { temporary, target: target.to_owned() };
        file.write_all(text)
            .and_then(|()| fchown(&file, Some(like.uid()), Some(like.gid())))
            .and_then(|()| file.set_permissions(like.permissions()))
            .and_then(|()| file.sync_all())
            .context(place)?;
        Ok(staged)
    }

    /// Takes the file's place.
    pub(super) fn commit(self) -> Result<()> {
        fs::rename(&self.temporary, &self.target).with_context(|| self.target.display().to_string())?;
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| folder.display().to_string())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After the commit there is no such file.
        let _ = fs::remove_file(&self.temporary);
    }
}
