//! Finds the program under test.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The path of `slurm-graphite`: `SLURM_GRAPHITE_BIN`, or the one built with the same cargo
/// profile.
///
/// The reader is next to it. Cargo does not build the binaries of other packages for a test: `make
/// test` does.
pub fn slurm_graphite() -> Result<PathBuf> {
    let path = match std::env::var_os("SLURM_GRAPHITE_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let here = std::env::current_exe()?;
            let folder = here.parent().context("a program without a folder")?;
            // Tests are in target/PROFILE/deps, the programs one folder above.
            let profile = if folder.ends_with("deps") { folder.parent() } else { Some(folder) };
            profile.context("no target folder")?.join("slurm-graphite")
        }
    };
    ensure!(path.is_file(), "{} is missing: run `cargo build --workspace` first", path.display());
    Ok(path)
}
