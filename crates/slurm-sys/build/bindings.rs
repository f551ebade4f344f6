//! Runs bindgen over wrapper.h with an allow-list: what slurm-reader calls, and nothing else.
//!
//! bindgen sees Slurm's headers through a link of its own, so that a whole `/usr/include` of another release's
//! chroot never mixes two libcs.

use std::fs;
use std::panic;
use std::path::Path;

const FUNCTIONS: &[&str] = &[
    "slurm_api_version",
    "slurm_free_conf",
    "slurm_free_ctl_conf",
    "slurm_free_stats_response_msg",
    "slurm_get_statistics",
    "slurm_init",
    "slurm_load_ctl_conf",
    "slurm_reset_statistics",
    "slurm_strerror",
];
const CONSTANTS: &[&str] = &["SLURM_SUCCESS", "STAT_COMMAND_GET", "STAT_COMMAND_RESET"];

/// Writes `bindings.rs` into `out`; says what this release calls the function that frees a `slurm_conf_t`
/// (`slurm_free_ctl_conf` up to 24.11, `slurm_free_conf` in 26.05).
pub(crate) fn generate(include: &Path, out: &Path) -> Result<&'static str, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wrapper = root.join("wrapper.h");
    println!("cargo::rerun-if-changed={}", wrapper.display());
    println!("cargo::rerun-if-changed={}", root.join("build").display());
    println!("cargo::rerun-if-changed={}", include.join("slurm").display());

    let only_slurm = out.join("include");
    link_headers(include, &only_slurm).map_err(|error| format!("{}: {error}", only_slurm.display()))?;
    load_libclang()?;

    let mut builder = bindgen::Builder::default()
        .header(wrapper.display().to_string())
        .clang_arg(format!("-I{}", only_slurm.display()))
        .allowlist_recursively(true)
        .generate_comments(false)
        .derive_default(true);
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    for constant in CONSTANTS {
        builder = builder.allowlist_var(constant);
    }
    let bindings =
        builder.generate().map_err(|error| format!("bindgen, on {}: {error}", include.display()))?;
    let text = bindings.to_string();
    fs::write(out.join("bindings.rs"), &text).map_err(|error| format!("bindings.rs: {error}"))?;
    ["slurm_free_conf", "slurm_free_ctl_conf"]
        .into_iter()
        .find(|name| text.contains(&format!("fn {name}(")))
        .ok_or_else(|| format!("{} declares no function that frees a slurm_conf_t", include.display()))
}

fn link_headers(include: &Path, only_slurm: &Path) -> std::io::Result<()> {
    fs::create_dir_all(only_slurm)?;
    let link = only_slurm.join("slurm");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(fs::canonicalize(include.join("slurm"))?, link)
}

/// bindgen panics where there is no libclang: asks first, and says what to install.
fn load_libclang() -> Result<(), String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let loaded = panic::catch_unwind(bindgen::clang_version);
    panic::set_hook(hook);
    loaded.map(|_| ()).map_err(|_| {
        "libclang was not found, which bindgen reads libslurm's headers with\n\
         Debian, Ubuntu: install libclang-dev. RHEL, Rocky, Alma: install clang-devel.\n\
         Elsewhere: set LIBCLANG_PATH to the folder that contains libclang.so.\n\
         The daemon alone needs none of it: cargo build -p slurm-graphite"
            .to_owned()
    })
}
