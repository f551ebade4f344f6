//! Finds libslurm's headers and library: in the environment, then with pkg-config, then in the usual folders.
//!
//! If something that was named explicitly is missing, that is an error, never a reason to look elsewhere.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const PREFIXES: [&str; 5] = ["/usr", "/usr/local", "/opt/slurm", "/opt/slurm/current", "/usr/local/slurm"];

/// An installation of Slurm.
pub(crate) struct SlurmFiles {
    /// The folder that contains `slurm/slurm.h`.
    pub(crate) include: PathBuf,
    /// The folder that contains `libslurm.so`; `None` if only headers were given, for `cargo check`.
    pub(crate) lib: Option<PathBuf>,
}

impl SlurmFiles {
    /// Looks in `SLURM_INCLUDE_DIR` and `SLURM_LIB_DIR`, then asks pkg-config, then looks in the usual folders.
    pub(crate) fn find() -> Result<Self, String> {
        let given_include = variable("SLURM_INCLUDE_DIR");
        let given_lib = variable("SLURM_LIB_DIR");
        let (includes, libs) = if given_include.is_some() || given_lib.is_some() {
            // pkg-config may know another Slurm, and headers and library of two releases must not be mixed.
            (Vec::new(), Vec::new())
        } else {
            let package = pkg_config::Config::new().cargo_metadata(false).probe("slurm");
            package.map(|package| (package.include_paths, package.link_paths)).unwrap_or_default()
        };

        let has_header = |folder: &Path| folder.join("slurm/slurm.h").is_file();
        let include = search(given_include.as_deref(), includes, usual_includes(), has_header)
            .map_err(|looked| missing("headers were", "slurm/slurm.h", "SLURM_INCLUDE_DIR", &looked))?;

        let beside = include.parent().map(libs_under).unwrap_or_default();
        let has_library = |folder: &Path| folder.join("libslurm.so").exists();
        let usual =
            beside.into_iter().chain(PREFIXES.iter().flat_map(|prefix| libs_under(Path::new(prefix))));
        let lib = match search(given_lib.as_deref(), libs, usual.collect(), has_library) {
            Ok(folder) => Some(folder),
            Err(looked) if given_lib.is_some() || given_include.is_none() => {
                return Err(missing("library was", "libslurm.so", "SLURM_LIB_DIR", &looked));
            }
            Err(_) => {
                println!(
                    "cargo::warning=no libslurm.so was found: enough for `cargo check`, but nothing will link"
                );
                None
            }
        };
        Ok(Self { include, lib })
    }
}

/// The first folder that contains the file, or else all folders that were searched.
fn search(
    given: Option<&Path>,
    package: Vec<PathBuf>,
    usual: Vec<PathBuf>,
    has: impl Fn(&Path) -> bool,
) -> Result<PathBuf, Vec<PathBuf>> {
    let looked: Vec<PathBuf> = match given {
        Some(folder) => vec![folder.to_owned()],
        None => package.into_iter().chain(usual).collect(),
    };
    match looked.iter().find(|folder| has(folder)) {
        Some(folder) => Ok(folder.clone()),
        None => Err(looked),
    }
}

fn usual_includes() -> Vec<PathBuf> {
    PREFIXES.iter().map(|prefix| Path::new(prefix).join("include")).collect()
}

fn libs_under(prefix: &Path) -> Vec<PathBuf> {
    let triplet = env::var("CARGO_CFG_TARGET_ARCH").map(|arch| format!("lib/{arch}-linux-gnu"));
    triplet.into_iter().chain(["lib64".to_owned(), "lib".to_owned()]).map(|lib| prefix.join(lib)).collect()
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
