//! Every command except `run`: its output, its exit code, and its messages if something is wrong.

mod absent;
mod carbon_rules;
mod check;
mod colours;
mod default_file;
mod doctor;
mod jobs;
mod once;
mod terminal;
mod text;
mod version;
mod watch;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sandbox::Folder;

pub(crate) use self::terminal::Terminal;

/// How long a person at a terminal is willing to wait.
const SOON: Duration = Duration::from_secs(5);

/// Writes a file into the folder and returns its path.
fn write(folder: &Folder, name: &str, text: &str) -> Result<String> {
    let path = folder.path().join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// Writes a program for sh into the folder and returns its path.
fn script(folder: &Folder, name: &str, text: &str) -> Result<String> {
    use std::os::unix::fs::PermissionsExt;
    let path = write(folder, name, &format!("#!/bin/sh\n{text}\n"))?;
    fs::set_permissions(Path::new(&path), fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
