//! The temporary folder of one sandbox, the folders and secrets in it, and the guard that ends
//! every process which belongs to it.
//!
//! Every process is started with an environment variable that names the folder. Its children
//! inherit the variable, including those in other sessions (slurmstepd, jobs). The guard, a small
//! shell script, waits for the end of its input and then ends every process with this mark, by
//! process id. So dropping the folder and the sudden death of its owner have the same effect.
//! `PR_SET_PDEATHSIG` would not do: it fires when a *thread* ends, and slurmstepd does not inherit
//! it.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::proc;

/// The environment variable that marks every process of a sandbox; its value is the folder.
pub(crate) const MARK: &str = "SLURM_GRAPHITE_SANDBOX";

/// A temporary folder, and the owner of every process started in it. If `SANDBOX_KEEP` is set in
/// the environment, the folder and its logs are kept.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    guard: Child,
}

impl Folder {
    /// Creates a new folder below the system's temporary folder and starts its guard.
    pub fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("slurm-graphite-{:08x}", fastrand::u32(..)));
        for folder in ["", "log"] {
            let folder = path.join(folder);
            make_open(&folder)?;
        }
        let mut guard = start_guard()?;
        let keep = if std::env::var_os("SANDBOX_KEEP").is_some() { "keep" } else { "remove" };
        let pipe = guard.stdin.as_mut().context("the guard has no stdin")?;
        write!(pipe, "{MARK}={0}\n{0}\n{keep}\n", path.display())?;
        Ok(Self { path, guard })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Writes a program for sh, and returns its path.
    pub fn script(&self, name: &str, text: &str) -> Result<String> {
        let path = self.write(name, &format!("#!/bin/sh\n{text}\n"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// The ids of all processes that belong to the sandbox, including jobs.
    pub fn processes(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}", self.path.display());
        let spool = proc::unix_sockets(&self.path.join("spool"));
        let ours = |&pid: &u32| {
            proc::has_environment(pid, &mark)
                || proc::has_mount(pid, &self.path)
                || proc::has_socket(pid, &spool)
        };
        proc::all().filter(ours).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ended = self.guard.wait();
    }
}

/// Makes a folder that every user may enter: with a umask of 077, jobs of other users could not
/// reach munged's socket.
pub(crate) fn make_open(folder: &Path) -> Result<()> {
    fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    Ok(fs::set_permissions(folder, Permissions::from_mode(0o755))?)
}

/// Makes a file with this content that nobody else may read from the beginning on: some programs
/// refuse any other.
pub(crate) fn secret(path: &Path, content: &[u8]) -> Result<()> {
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content).with_context(|| path.display().to_string())
}

/// As many random bytes as a key has.
pub(crate) fn key<const N: usize>() -> Result<[u8; N]> {
    let mut key = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

/// The guard has its own process group, so that Ctrl-C on the terminal does not end it before its
/// work is done.
#[expect(
    clippy::disallowed_methods,
    reason = "the guard must not carry the mark that it looks for"
)]
fn start_guard() -> Result<Child> {
    Command::new(crate::find_program("sh")?)
        .args(["-c", include_str!("guard.sh"), "sandbox-guard"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("the sandbox's guard")
}
