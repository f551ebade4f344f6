//! A pseudo terminal: its two ends, and what is written to it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use anyhow::{Result, ensure};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sandbox::Invocation;

/// Our end of the terminal, and its.
pub(crate) struct Terminal {
    pub(crate) ours: OwnedFd,
    pub(crate) theirs: OwnedFd,
}

impl Terminal {
    pub(crate) fn open() -> Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = File::options().read(true).write(true).open(name.to_str()?)?.into();
        Ok(Self { ours, theirs })
    }

    /// The output of the program on this terminal, stdout and stderr, until it ends.
    pub(crate) fn output(self, program: Invocation) -> Result<String> {
        let Self { ours, theirs } = self;
        let mut child = program.env("TERM", "xterm").spawn_into(&theirs)?;
        drop(theirs);
        let mut written = Vec::new();
        let read = File::from(ours).read_to_end(&mut written);
        // EIO: the program's end, which was the last one, is closed.
        ensure!(
            read.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::IO)),
            "the terminal ended"
        );
        child.wait()?;
        Ok(String::from_utf8_lossy(&written).into_owned())
    }
}
