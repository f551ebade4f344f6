//! Turns what slurm-sys found in the headers into cfgs. It knows no release itself.

use std::env;

fn main() {
    let list = |name| env::var(name).unwrap_or_default();
    for cfg in list("DEP_SLURM_ALL_CFGS").split(',') {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
    }
    for cfg in list("DEP_SLURM_CFGS").split(',').filter(|cfg| !cfg.is_empty()) {
        println!("cargo::rustc-cfg={cfg}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
