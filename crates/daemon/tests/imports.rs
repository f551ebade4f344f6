//! No module imports a module that imports it, directly or indirectly, in any crate, as
//! docs/development/code-structure.md requires.

#![expect(clippy::disallowed_methods, reason = "tests may wait")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The imports of each module of a crate.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|file| file.extension().is_some_and(|end| end == "rs")).collect()
}

/// A file and the files in its folder are one module.
fn imports(src: &Path) -> Imports {
    let paths = regex::Regex::new(r"crate::(?:([a-z0-9_]+)|\{([^}]*)\})").unwrap();
    let mut imports = Imports::new();
    for file in sources(src) {
        let below = file.strip_prefix(src).unwrap().to_str().unwrap();
        if below.ends_with("tests.rs") || below.split('/').any(|part| part == "tests") {
            continue;
        }
        let module = below.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let program = text.replace("#[cfg(test)]\nmod tests;", "");
        let program = program.split("#[cfg(test)]\nmod tests").next().unwrap();
        let code: String =
            program.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let names = paths.captures_iter(&code).flat_map(|found| {
            let names = found.get(1).or(found.get(2)).unwrap().as_str();
            names
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        let own = imports.entry(module.clone()).or_default();
        own.extend(names.filter(|name| *name != module));
    }
    imports
}

fn reaches(imports: &Imports, from: &str, to: &str, seen: &mut BTreeSet<String>) -> bool {
    let next = imports.get(from).into_iter().flatten();
    next.into_iter()
        .any(|name| name == to || (seen.insert(name.clone()) && reaches(imports, name, to, seen)))
}

#[test]
fn no_module_imports_one_that_imports_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in [
        "carbon",
        "daemon",
        "rest-reader",
        "slurm-points",
        "slurm-reader",
        "slurm-snapshot",
        "slurmctld-protocol",
    ] {
        let imports = imports(&crates.join(name).join("src"));
        assert!(
            imports.values().map(BTreeSet::len).sum::<usize>() > 5,
            "{name}: no imports are found"
        );
        let in_circle = |module: &&String| reaches(&imports, module, module, &mut BTreeSet::new());
        let circle: Vec<&String> = imports.keys().filter(in_circle).collect();
        assert!(circle.is_empty(), "{name}: {circle:?}");
    }
}

/// Adds the packages that a package of Cargo.lock needs, and those that they need, without the
/// crates that only tests use.
fn needs(lock: &toml::Table, name: &str, found: &mut BTreeSet<String>) {
    let packages = lock["package"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"].as_str() == Some(name)).unwrap();
    for needed in package.get("dependencies").and_then(|list| list.as_array()).into_iter().flatten()
    {
        let needed = needed.as_str().unwrap().split(' ').next().unwrap();
        if !["fastrand", "proptest"].contains(&needed) && found.insert(needed.to_owned()) {
            needs(lock, needed, found);
        }
    }
}

/// A crate that waits, reads or tells the time would make a figure depend on more than its input.
#[test]
fn the_pure_crates_have_no_clock_no_files_and_nothing_that_waits() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let lock = fs::read_to_string(crates.join("../Cargo.lock")).unwrap().parse().unwrap();
    let impure =
        regex::Regex::new(r"std::(fs|net|thread|process|env)|SystemTime|Instant::|tracing::")
            .unwrap();
    for name in ["carbon-wire", "slurm-points"] {
        let mut found = BTreeSet::new();
        needs(&lock, name, &mut found);
        assert!(found.contains("thiserror"), "{name}: {found:?}");
        for other in ["tokio", "tracing", "toml", "rustix", "jiff", "socket2"] {
            assert!(!found.contains(other), "{name} needs {other}");
        }
        for file in sources(&crates.join(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let program = text.replace("#[cfg(test)]\nmod tests;", "");
            let program = program.split("#[cfg(test)]\nmod tests").next().unwrap();
            assert_eq!(
                impure.find(program).map(|found| found.as_str()),
                None,
                "{}",
                file.display()
            );
        }
    }
}
