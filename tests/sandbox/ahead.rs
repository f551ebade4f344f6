//! A daemon whose wall clock a preloaded library can set without changing the host's.
//!
//! Neither a time namespace nor a process without privileges can set CLOCK_REALTIME.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

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
        let (source, library) = (folder.path().join("ahead.c"), folder.path().join("ahead.so"));
        let file = folder.path().join("ahead");
        fs::write(&source, include_str!("ahead.c"))?;
        fs::write(&file, "0\n")?;
        let args = ["-shared", "-fPIC", "-O2", "-pthread", "-o"];
        let files = [&library, &source].map(|path| path.display().to_string());
        let args: Vec<&str> = args.into_iter().chain(files.iter().map(String::as_str)).collect();
        let finished = Invocation::of(folder, &find_program("cc")?, &args)?.finish()?;
        ensure!(finished.code == Some(0), "cc: {}", finished.stderr);
        Ok(Self { library, file })
    }

    /// Puts the process, which is not started yet, under this clock.
    pub fn over(&self, process: Process) -> Process {
        process.env("LD_PRELOAD", path(&self.library)).env("CLOCK_AHEAD", path(&self.file))
    }

    /// Sets it this many seconds ahead of the host's.
    pub fn set(&self, seconds: u64) -> Result<()> {
        // So that it is never seen half written.
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, format!("{seconds}\n"))?;
        Ok(fs::rename(fresh, &self.file)?)
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
