//! The Debian whose Slurm a sandbox runs: this machine's own, or the chroot of another release.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::find_program;

const ENTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/releases/enter.sh");

/// Where munged's and Slurm's programs come from.
#[derive(Debug, Clone)]
pub(crate) struct Root(Option<PathBuf>);

impl Root {
    /// The chroot that `SANDBOX_ROOT` names, as `make releases` does, or this machine.
    pub(crate) fn wanted() -> Self {
        Self(std::env::var_os("SANDBOX_ROOT").map(PathBuf::from))
    }

    /// The words that start `program`, which sees `folder` under its own name.
    ///
    /// # Errors
    /// It is not installed here.
    pub(crate) fn start(&self, folder: &Path, program: &str) -> Result<Vec<OsString>> {
        let Some(root) = &self.0 else { return Ok(vec![find_program(program)?.into()]) };
        let words = [find_program("sh")?.as_ref(), Path::new(ENTER), root, folder].map(OsString::from);
        Ok(words.into_iter().chain(["--", program].map(OsString::from)).collect())
    }
}
