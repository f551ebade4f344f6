//! A daemon whose clocks a preloaded library can set without changing the host's.
//!
//! Neither a time namespace nor a process without privileges can set CLOCK_REALTIME.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::{Folder, Invocation, Process, find_program};

/// The clock of one process.
#[derive(Debug)]
pub struct Ahead {
    library: PathBuf,
    file: PathBuf,
}

impl Ahead {
    /// Compiles the library.
    pub fn new(folder: &Folder) -> Result<Self> {
        let [library, file] = ["ahead.so", "ahead"].map(|name| folder.path().join(name));
        let source = folder.write("ahead.c", include_str!("ahead.c"))?;
        fs::write(&file, "0 0\n")?;
        let args =
            ["-shared", "-fPIC", "-O2", "-pthread", "-o", &library.display().to_string(), &source];
        Invocation::of_program(folder, &find_program("cc")?, &args)?.succeed()?;
        Ok(Self { library, file })
    }

    /// Puts the process, which is not started yet, under this clock.
    pub fn over(&self, mut process: Process) -> Process {
        self.put_over(&mut process);
        process
    }

    /// Puts the process under this clock from its next start on.
    pub fn put_over(&self, process: &mut Process) {
        process.set_env("LD_PRELOAD", &self.library);
        process.set_env("CLOCK_AHEAD", &self.file);
    }

    /// Sets the wall clock this many seconds ahead of the host's, as an administrator would.
    pub fn set(&self, seconds: u64) -> Result<()> {
        self.write(seconds, 0)
    }

    /// Sets the monotonic clock this many seconds ahead: every time-out and cache of that age ends.
    pub fn expire(&self, seconds: u64) -> Result<()> {
        self.write(0, seconds)
    }

    fn write(&self, wall: u64, monotonic: u64) -> Result<()> {
        // So that it is never seen half written.
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, format!("{wall} {monotonic}\n"))?;
        Ok(fs::rename(fresh, &self.file)?)
    }
}
