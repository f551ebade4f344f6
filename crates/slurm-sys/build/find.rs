//! Finds libslurm's headers and library: in the environment, then with pkg-config, then in the
//! usual folders.
//!
//! If something that was named explicitly is missing, that is an error, never a reason to look
//! elsewhere.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const PREFIXES: [&str; 5] =
    ["/usr", "/usr/local", "/opt/slurm", "/opt/slurm/current", "/usr/local/slurm"];

/// An installation of Slurm.
pub(crate) struct SlurmFiles {
    /// The folder that contains `slurm/slurm.h`.
    pub(crate) include: PathBuf,
    /// The folder that contains `libslurm.so`; `None` if only headers were given, for `cargo
    /// check`.
    pub(crate) lib: Option<PathBuf>,
}

impl SlurmFiles {
    /// Looks in `SLURM_INCLUDE_DIR` and `SLURM_LIB_DIR`, then asks pkg-config, then looks in the
    /// usual folders.
    pub(crate) fn find() -> Result<Self, String> {
        let given_include = variable("SLURM_INCLUDE_DIR");
        let given_lib = variable("SLURM_LIB_DIR");
        let needs_library = given_lib.is_some() || given_include.is_none();
        // pkg-config may know another Slurm, and headers and library of two releases must not be
        // mixed.
        let is_given = given_include.is_some() || given_lib.is_some();
        let package = || pkg_config::Config::new().cargo_metadata(false).probe("slurm").ok();
        let package = if is_given { None } else { package() };
        let (includes, libs) =
            package.map(|package| (package.include_paths, package.link_paths)).unwrap_or_default();

        let usual = PREFIXES.iter().map(|prefix| Path::new(prefix).join("include"));
        let includes = folders(given_include, includes, usual);
        let include = includes.iter().find(|folder| folder.join("slurm/slurm.h").is_file());
        let include = include
            .ok_or_else(|| {
                missing("headers were", "slurm/slurm.h", "SLURM_INCLUDE_DIR", &includes)
            })?
            .clone();

        let prefixes = include.parent().into_iter().chain(PREFIXES.iter().map(Path::new));
        let libs = folders(given_lib, libs, prefixes.flat_map(libs_under));
        let lib = libs.iter().find(|folder| folder.join("libslurm.so").exists()).cloned();
        if lib.is_none() && needs_library {
            return Err(missing("library was", "libslurm.so", "SLURM_LIB_DIR", &libs));
        }
        if lib.is_none() {
            println!(
                "cargo::warning=no libslurm.so was found: enough for `cargo check`, but nothing \
                    will link"
            );
        }
        Ok(Self { include, lib })
    }
}

/// Returns the folder that was given alone, or, if none was, those of pkg-config and then the usual
/// ones.
fn folders(
    given: Option<PathBuf>,
    package: Vec<PathBuf>,
    usual: impl Iterator<Item = PathBuf>,
) -> Vec<PathBuf> {
    given.map_or_else(|| package.into_iter().chain(usual).collect(), |folder| vec![folder])
}

fn libs_under(prefix: &Path) -> Vec<PathBuf> {
    let triplet = env::var("CARGO_CFG_TARGET_ARCH").map(|arch| format!("lib/{arch}-linux-gnu"));
    triplet
        .into_iter()
        .chain(["lib64".to_owned(), "lib".to_owned()])
        .map(|lib| prefix.join(lib))
        .collect()
}

fn variable(name: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn missing(what: &str, file: &str, variable: &str, looked: &[PathBuf]) -> String {
    let mut text = format!("libslurm's {what} not found: no {file} in\n");
    for folder in looked {
        let _ = writeln!(text, "    {}", folder.display());
    }
    let _ = write!(
        text,
        "Debian, Ubuntu: install libslurm-dev. RHEL, Rocky, Alma: install slurm-devel.\n\
         A Slurm of the site's own: set {variable} to the folder that contains {file}\n\
         (or PKG_CONFIG_PATH to the folder with its slurm.pc).\n\
         The daemon alone needs none of it: cargo build -p slurm-graphite"
    );
    text
}
