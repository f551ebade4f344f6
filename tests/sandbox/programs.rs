//! Finds the programs that the sandbox runs, and starts them with a clean environment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::folder::MARK;

pub(crate) const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// slurmstepd and slurmscriptd write their title over the first 2 KiB of their environment, where
/// the sandbox's mark would be. Variables are passed in alphabetical order, so this one is
/// overwritten instead.
const SHIELD: (&str, usize) = ("A_SHIELD", 4096);

/// The variable that names the file `slurm-graphite` reads without --config.
const DEFAULT_FILE: &str = "SLURM_GRAPHITE_CONFIG";

/// The path of a program; an ordinary user's `PATH` often lacks `/usr/sbin`, where slurmctld is.
pub fn find_program(name: &str) -> Result<PathBuf> {
    std::env::split_paths(SEARCH)
        // Sites install Slurm under other prefixes, which only PATH tells.
        .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed: run `make packages`"))
}

/// A command that runs in the folder of a sandbox. Its environment does not depend on the caller's
/// shell and has the folder's mark.
#[expect(clippy::disallowed_methods, reason = "a sandbox is made of programs")]
pub fn command(folder: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env_clear()
        .env(SHIELD.0, "-".repeat(SHIELD.1))
        .env("HOME", folder)
        .env("LANG", "C.UTF-8")
        .env("PATH", SEARCH)
        // Not this machine's own configuration.
        .env(DEFAULT_FILE, folder.join("default.toml"))
        .env("TMPDIR", folder)
        .env(MARK, folder);
    command
}

/// Copies a program to a place where every user may run it. Another process does the copying: if
/// this process had the file open for writing, a child forked by another thread would have it open
/// too, and then nobody could run it.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a program is in a folder")?;
    let install = command(folder, &find_program("install")?);
    output(install, ["-m".as_ref(), "755".as_ref(), from.as_os_str(), to.as_os_str()]).map(drop)
}

/// A command that runs the program which its arguments name, for 60 s at most.
pub(crate) fn limited(folder: &Path) -> Result<Command> {
    let mut command = command(folder, &find_program("timeout")?);
    command.args(["--kill-after=1", "60"]);
    Ok(command)
}

/// Runs a short command, which must succeed, to its end and returns what it printed on stdout.
pub fn output<S: AsRef<OsStr>>(
    mut command: Command,
    args: impl IntoIterator<Item = S>,
) -> Result<String> {
    command.args(args);
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        output.status.success(),
        "{:?} {:?}: {}\n{stdout}{}",
        command.get_program(),
        command.get_args().collect::<Vec<_>>(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(stdout)
}
