//! A program that runs to its end: its exit code, its output and its duration.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::programs::limited;
use crate::slurm::{NOBODY, as_user, is_root};
use crate::{Folder, copy_program, find_program, slurm_graphite};

/// A command that is not started yet. It is killed after 60 s.
#[derive(Debug)]
pub struct Invocation(Command);

/// The end of a program.
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

/// Runs `slurm-graphite` with these arguments.
pub fn run(folder: &Folder, args: &[&str]) -> Result<Finished> {
    Invocation::new(folder, args)?.finish()
}

/// The output of `slurm-graphite` with these arguments: it must succeed, without a word on stderr.
pub fn printed(folder: &Folder, args: &[&str]) -> Result<String> {
    let finished = run(folder, args)?;
    ensure!(finished.code == Some(0) && finished.stderr.is_empty(), "{args:?}: {finished:?}");
    Ok(finished.stdout)
}

impl Invocation {
    /// `slurm-graphite` with these arguments.
    pub fn new(folder: &Folder, args: &[&str]) -> Result<Self> {
        Self::of_program(folder, &slurm_graphite()?, args)
    }

    /// `slurm-graphite` with these arguments as another user, which only root can do. Where it was
    /// built, others may have no access, so both programs are copied.
    pub fn by(user: u32, folder: &Folder, args: &[&str]) -> Result<Self> {
        let here = slurm_graphite()?;
        for name in ["slurm-graphite", "slurm-graphite-reader"] {
            let copy = folder.path().join(name);
            if !copy.exists() {
                copy_program(&here.with_file_name(name), &copy)?;
            }
        }
        let program = folder.path().join("slurm-graphite").display().to_string();
        let [setpriv, flags @ ..] = as_user(user);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Self::of_program(
            folder,
            &find_program(&setpriv)?,
            &[&flags[..], &[&program], args].concat(),
        )
    }

    /// `slurm-graphite` with these arguments as a user who is not root.
    pub fn ordinary(folder: &Folder, args: &[&str]) -> Result<Self> {
        if is_root() { Self::by(NOBODY, folder, args) } else { Self::new(folder, args) }
    }

    /// Any program with these arguments.
    pub fn of_program(folder: &Folder, program: &Path, args: &[&str]) -> Result<Self> {
        let mut command = limited(folder.path())?;
        command.arg(program).args(args).stdin(Stdio::null());
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

    /// Runs it, which must succeed, and returns its stdout.
    pub fn succeed(self) -> Result<String> {
        let what = format!("{:?}", self.0);
        let finished = self.finish()?;
        ensure!(finished.code == Some(0), "{what}: {finished:?}");
        Ok(finished.stdout)
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
