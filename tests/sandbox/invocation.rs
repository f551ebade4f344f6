//! A program that runs to its end: its exit code, its output and its duration.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{Folder, find_program, slurm_graphite};

/// A command that is not started yet. It is killed after 60 s.
#[derive(Debug)]
pub struct Invocation(Command);

/// How a program ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Invocation {
    /// `slurm-graphite` with these arguments.
    pub fn new(folder: &Folder, args: &[&str]) -> Result<Self> {
        Self::of(folder, &slurm_graphite()?, args)
    }

    /// Any program with these arguments.
    pub fn of(folder: &Folder, program: &Path, args: &[&str]) -> Result<Self> {
        let mut command = crate::command(folder.path(), &find_program("timeout")?);
        command.args(["--kill-after=1", "60"]).arg(program).args(args).stdin(Stdio::null());
        Ok(Self(command))
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it with a stdout that nobody reads.
    pub fn finish_into_closed_pipe(mut self) -> Result<Finished> {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        self.0.stdout(writer);
        self.run()
    }

    /// Runs it.
    pub fn finish(mut self) -> Result<Finished> {
        self.0.stdout(Stdio::piped());
        self.run()
    }

    /// Starts it with this as its stdout and stderr.
    pub fn spawn_into(mut self, output: &OwnedFd) -> Result<Child> {
        self.0.stdout(output.try_clone()?).stderr(output.try_clone()?);
        self.0.spawn().with_context(|| format!("{:?}", self.0))
    }

    fn run(mut self) -> Result<Finished> {
        let start = Instant::now();
        self.0.stderr(Stdio::piped());
        let output = self.0.spawn().and_then(std::process::Child::wait_with_output);
        let output = output.with_context(|| format!("{:?}", self.0))?;
        Ok(Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: start.elapsed(),
        })
    }
}
