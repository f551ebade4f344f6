//! Tells the program which commit it was built from: `SLURM_GRAPHITE_COMMIT` if it is set, as in a
//! build from a tarball, or git's. Without either, the program knows only its version.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SLURM_GRAPHITE_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let given = env::var("SLURM_GRAPHITE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let long = given
        .or_else(of_git)
        .map_or(version.clone(), |commit| format!("{version}, commit {commit}"));
    println!("cargo::rustc-env=SLURM_GRAPHITE_VERSION={long}");
}

/// The commit of the repository that this file is in, and not of one that a source tree was
/// unpacked into.
#[expect(clippy::disallowed_methods, reason = "a program of its own")]
fn of_git() -> Option<String> {
    let top = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    if !top.join(".git").exists() {
        return None;
    }
    let commit = git(&top, &["rev-parse", "--short=12", "HEAD"])?;
    // It changes with every commit and every checkout.
    let log = top.join(git(&top, &["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    Some(commit)
}

#[expect(clippy::disallowed_methods, reason = "git runs while this is built, and never afterwards")]
fn git(top: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(top).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
