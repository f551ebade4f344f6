//! This host, and where the daemon and its clients meet on it.

use std::ffi::OsStr;
use std::path::PathBuf;

/// The folder that systemd creates for the unit's RuntimeDirectory.
pub(crate) const RUNTIME_FOLDER: &str = "/run/slurm-graphite";

/// This host's name up to its first dot.
pub(crate) fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Returns the first folder that RUNTIME_DIRECTORY names, where systemd separates several by
/// colons; `None` if it names none.
pub(crate) fn runtime_folder() -> Option<PathBuf> {
    let folders =
        std::env::var_os("RUNTIME_DIRECTORY").filter(|folders| folders != OsStr::new(""))?;
    std::env::split_paths(&folders).next()
}

/// Returns the name of a user of this host, or the number if there is no name.
pub(crate) fn user(uid: u32) -> String {
    name(uid).unwrap_or_else(|| uid.to_string())
}

/// Returns the name that /etc/passwd has for a user's number, if it has one.
#[expect(clippy::disallowed_methods, reason = "in a command, or in a thread")]
pub(crate) fn name(uid: u32) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is_theirs = |line: &&str| line.split(':').nth(2) == Some(uid.to_string().as_str());
    passwd.lines().find(is_theirs).and_then(|line| line.split(':').next()).map(str::to_owned)
}
