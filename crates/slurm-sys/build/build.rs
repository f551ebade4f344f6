//! Makes the bindings: finds libslurm, runs bindgen over its headers, publishes their release.
//!
//! Dependents get `DEP_SLURM_RELEASE` (`22.05`), `DEP_SLURM_CFGS` (the `slurm_ge_*` that are true for it) and
//! `DEP_SLURM_ALL_CFGS` (all that exist), the last two comma-separated. Nothing is guessed silently: if something is
//! missing, the error names the package to install. No rpath is set.

mod bindings;
mod find;
mod release;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use find::SlurmFiles;
use release::HeaderRelease;

/// The cfg of [`bindings::HeaderNames::select_nodeinfo`].
const SELECT_NODEINFO: &str = "slurm_select_nodeinfo";

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
    let release = HeaderRelease::read(&slurm.include)?;
    if release.is_newer_than_the_table() {
        println!(
            "cargo::warning=Slurm {release} is newer than slurm-sys knows: its replies are read as those of the \
             newest release in crates/slurm-sys/build/release.rs, which must be compared with slurm.h"
        );
    }

    let names = bindings::generate(&slurm.include, &out)?;
    let mut constants = format!(
        "/// Release of the headers: (year, month), such as (22, 5).\n\
         pub const RELEASE: (u8, u8) = ({}, {});\n\
         pub use bindings::{} as slurm_free_conf;\n",
        release.0, release.1, names.conf_free
    );
    let mut cfgs = release.cfgs();
    if names.select_nodeinfo {
        cfgs.push(SELECT_NODEINFO);
        constants.push_str(
            "pub use bindings::{\n\
             \x20   SELECT_NODEDATA_MEM_ALLOC, SELECT_NODEDATA_SUBCNT, slurm_get_select_nodeinfo,\n\
             };\n",
        );
    }
    std::fs::write(out.join("release.rs"), constants).map_err(|error| format!("release.rs: {error}"))?;

    println!("cargo::metadata=RELEASE={release}");
    println!("cargo::metadata=CFGS={}", cfgs.join(","));
    println!("cargo::metadata=ALL_CFGS={},{SELECT_NODEINFO}", release::all_cfgs().join(","));
    if let Some(folder) = &slurm.lib {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    println!("cargo::rustc-link-lib=dylib=slurm");
    Ok(())
}
