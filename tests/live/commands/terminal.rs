//! A pseudo terminal: its two ends, and what is written to it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use anyhow::Result;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

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

    /// What `command` writes to it, on stdout and stderr, until its end.
    pub(crate) fn output(self, mut command: Command) -> Result<String> {
        let Self { ours, theirs } = self;
        command.stdin(Stdio::null()).stdout(theirs.try_clone()?).stderr(theirs).env("TERM", "xterm");
        let mut child = command.spawn()?;
        // With the command go the last copies of its end, and with them the terminal: EIO.
        drop(command);
        let mut written = Vec::new();
        let _ = File::from(ours).read_to_end(&mut written);
        child.wait()?;
        Ok(String::from_utf8_lossy(&written).into_owned())
    }
}
