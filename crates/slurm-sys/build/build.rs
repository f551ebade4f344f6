//! Makes the bindings: finds libslurm, runs bindgen over its headers, publishes their release.
//!
//! Dependents get `DEP_SLURM_CFGS` (the `slurm_ge_*` that are true for this release) and
//! `DEP_SLURM_ALL_CFGS` (all that exist), both comma-separated. Nothing is guessed silently: if
//! something is missing, the error names the package to install. No rpath is set.

mod bindings;
mod find;
mod release;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use find::SlurmFiles;

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            for line in problem.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo has set no OUT_DIR")?);
    let slurm = SlurmFiles::find()?;
    let bindings = bindings::generate(&slurm.include, &out)?;
    let release = release::read_release(&bindings)
        .map_err(|error| format!("the headers in {}: {error}", slurm.include.display()))?;
    if !release::is_known(release) {
        println!(
            "cargo::warning=Slurm {release} is not in slurm-snapshot's list: its replies are read \
             as those of the release before it in crates/slurm-sys/build/release.rs, which must be \
             compared with slurm.h"
        );
    }
    println!("cargo::metadata=CFGS={}", release::cfgs(release));
    println!("cargo::metadata=ALL_CFGS={}", release::cfgs(u32::MAX));
    if let Some(folder) = &slurm.lib {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    println!("cargo::rustc-link-lib=dylib=slurm");
    Ok(())
}
