//! Runs bindgen over wrapper.h: everything that is Slurm's.
//!
//! bindgen sees only Slurm's headers, through a symbolic link: if it saw the whole `/usr/include`
//! of another release's chroot, two libcs would mix.

use std::fs;
use std::panic;
use std::path::Path;

/// Writes `bindings.rs` into the folder `out`, and returns its text.
pub(crate) fn generate(include: &Path, out: &Path) -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wrapper = root.join("wrapper.h");
    println!("cargo::rerun-if-changed={}", wrapper.display());
    println!("cargo::rerun-if-changed={}", root.join("build").display());
    println!("cargo::rerun-if-changed={}", include.join("slurm").display());

    let only_slurm = out.join("include");
    link_headers(include, &only_slurm)
        .map_err(|error| format!("{}: {error}", only_slurm.display()))?;
    load_libclang()?;

    let bindings = bindgen::Builder::default()
        .header(wrapper.display().to_string())
        .clang_arg(format!("-I{}", only_slurm.display()))
        .allowlist_function("slurm(db)?_.*")
        .allowlist_type("slurm(db)?_.*|job_state_reason")
        .allowlist_var("SLURM_VERSION_NUMBER|STAT_COMMAND_.*")
        .opaque_type("_IO_FILE")
        .generate_comments(false)
        .prepend_enum_name(false)
        .derive_default(true)
        .generate()
        .map_err(|error| format!("bindgen, on {}: {error}", include.display()))?;
    let text = bindings.to_string();
    fs::write(out.join("bindings.rs"), &text).map_err(|error| format!("bindings.rs: {error}"))?;
    Ok(text)
}

fn link_headers(include: &Path, only_slurm: &Path) -> std::io::Result<()> {
    fs::create_dir_all(only_slurm)?;
    let link = only_slurm.join("slurm");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(fs::canonicalize(include.join("slurm"))?, link)
}

/// Loads libclang, without which bindgen panics. The error says what to install.
fn load_libclang() -> Result<(), String> {
    let loaded = panic::catch_unwind(bindgen::clang_version);
    loaded.map(drop).map_err(|_| {
        "libclang was not found, which bindgen reads libslurm's headers with\n\
         Debian, Ubuntu: install libclang-dev. RHEL, Rocky, Alma: install clang-devel.\n\
         Elsewhere: set LIBCLANG_PATH to the folder that contains libclang.so.\n\
         The daemon alone needs none of it: cargo build -p slurm-graphite"
            .to_owned()
    })
}
