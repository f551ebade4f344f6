//! The Slurm that a sandbox runs: this machine's own, one in the chroot of another Debian, or one
//! below a prefix.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::find_program;
use crate::programs::SEARCH;

const ENTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../releases/enter.sh");

/// Where munged and Slurm's programs come from.
#[derive(Debug, Clone)]
pub(crate) enum Root {
    /// This machine.
    Here,
    /// A Debian in a chroot, including its munged.
    Chroot(PathBuf),
    /// A Slurm that was built from source; munged is this machine's.
    Prefix(PathBuf),
}

/// Below what the Slurm to run is installed, if it is not this machine's own.
pub fn prefix() -> Option<PathBuf> {
    std::env::var_os("SANDBOX_PREFIX").map(PathBuf::from)
}

impl Root {
    /// The chroot in `SANDBOX_ROOT` or the prefix in `SANDBOX_PREFIX`, as set by `make releases`;
    /// otherwise this machine.
    pub(crate) fn wanted() -> Self {
        let chroot = std::env::var_os("SANDBOX_ROOT").map(|root| Self::Chroot(root.into()));
        chroot.or(prefix().map(Self::Prefix)).unwrap_or(Self::Here)
    }

    /// The command line that starts `program`, which sees `folder` under the same name.
    pub(crate) fn start(&self, folder: &Path, program: &str) -> Result<Vec<OsString>> {
        match self {
            Self::Here => Ok(vec![find_program(program)?.into()]),
            Self::Chroot(root) => {
                let words = [find_program("sh")?.as_ref(), Path::new(ENTER), root, folder]
                    .map(OsString::from);
                Ok(words.into_iter().chain(["--", program].map(OsString::from)).collect())
            }
            Self::Prefix(prefix) => {
                // Programs that it starts come from the same Slurm. The mount marks what belongs to
                // the sandbox, because slurmstepd 25.11 clears its whole environment.
                let enter = "mount --rbind \"$1\" \"$1\"; cd \"$1\"; export PATH=\"$2\"; shift 2; \
                    exec \"$@\"";
                let path = format!("{0}/sbin:{0}/bin:{SEARCH}", prefix.display());
                let unshare = [find_program("unshare")?.into_os_string()];
                let flags = ["--mount", "--propagation", "private", "sh", "-euc", enter, "prefix"]
                    .map(OsString::from);
                let words = [folder.into(), path.into(), program.into()];
                Ok(unshare.into_iter().chain(flags).chain(words).collect())
            }
        }
    }
}
