//! The contents of the files in target/dist, without installing them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use sandbox::Folder;
use serde_json::Value;

use super::super::chroot::host;
use super::super::lint;
use super::{artefact, artefacts};

/// EL 8's version; EL 9 has 2.34, Debian 11 has 2.31.
const OLDEST_GLIBC: (u32, u32) = (2, 28);

#[test]
#[ignore = "make dist-test"]
fn no_program_needs_a_newer_glibc_than_that_of_el_8() {
    let folder = Folder::new().unwrap();
    let programs = programs(&folder).unwrap();
    assert!(programs.len() >= 6, "{programs:?}");
    for program in programs {
        let needed = newest_glibc(&folder, &program);
        assert!(needed <= OLDEST_GLIBC, "{}: {needed:?}", program.display());
    }
    // And the check works: it finds the newer version that programs built for this host need.
    let here = newest_glibc(&folder, &sandbox::slurm_graphite().unwrap());
    assert!(here > OLDEST_GLIBC, "{here:?}");
}

/// A checksum for each file and for no other: files left from another version must not be
/// distributed.
#[test]
#[ignore = "make dist-test"]
fn every_file_has_its_checksum_and_the_tarball_is_small() {
    let folder = Folder::new().unwrap();
    let tarball = artefact(".tar.gz").unwrap();
    let dist = tarball.parent().unwrap();
    let sums = fs::read_to_string(dist.join("SHA256SUMS")).unwrap();
    let named: BTreeSet<PathBuf> =
        sums.lines().map(|line| dist.join(line.split_whitespace().nth(1).unwrap())).collect();
    assert_eq!(named, artefacts().unwrap().into_iter().collect());
    host(
        &folder,
        "sh",
        &["-ec", &format!("cd {}; sha256sum --check --strict SHA256SUMS", dist.display())],
    )
    .unwrap();
    assert!(tarball.metadata().unwrap().len() <= 15 << 20);
}

#[test]
#[ignore = "make dist-test"]
fn what_the_tarball_s_readme_links_to_is_in_the_tarball() {
    let folder = Folder::new().unwrap();
    let tarball = artefact(".tar.gz").unwrap().display().to_string();
    let unpacked =
        ["-xf", &tarball, "--strip-components=1", "-C", &folder.path().display().to_string()];
    host(&folder, "tar", &unpacked).unwrap();
    let readme = fs::read_to_string(folder.path().join("README.md")).unwrap();
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let files: Vec<&str> = links.filter(|link| !link.is_empty() && !link.contains("://")).collect();
    assert!(
        files.contains(&"CONTRIBUTING.md") && files.contains(&"docs/images/scheduler.png"),
        "{files:?}"
    );
    for file in files {
        assert!(folder.path().join(file).exists(), "{file}");
    }
}

#[test]
#[ignore = "make dist-test"]
fn each_package_has_the_tarball_s_programs_and_the_notices_of_their_parts() {
    let folder = Folder::new().unwrap();
    let of_tarball = sums(&folder, &programs(&folder).unwrap());
    for (ending, unpack) in
        [(".deb", "dpkg-deb -x $1 $2"), (".rpm", "mkdir $2; cd $2; rpm2cpio $1 | cpio -id --quiet")]
    {
        let content = folder.path().join(ending);
        let package = artefact(ending).unwrap();
        let (package, content) = (package.display().to_string(), content.display().to_string());
        host(&folder, "sh", &["-ec", unpack, "sh", &package, &content]).unwrap();
        let find =
            |what: &[&str]| host(&folder, "find", &[&[content.as_str()], what].concat()).unwrap();
        let found = find(&["-path", "*bin/slurm-graphite", "-o", "-path", "*libexec/*/*"]);
        let found: Vec<PathBuf> = found.lines().map(PathBuf::from).collect();
        assert_eq!(sums(&folder, &found), of_tarball, "{ending}");
        let notices = find(&["-name", "THIRD-PARTY-NOTICES*", "-size", "+10k"]);
        assert_eq!(notices.lines().count(), 1, "{ending}: {notices}");
    }
}

/// The program's own parts too, each with a version, and a licence for each, as a site's lawyers
/// require.
#[test]
#[ignore = "make dist-test"]
fn the_bill_of_materials_names_every_part_with_its_licence_and_no_path_of_the_build_s() {
    for (program, part) in [
        ("slurm-graphite", "tokio"),
        ("slurm-graphite-reader", "serde_json"),
        ("slurm-graphite-rest-reader", "ring"),
    ] {
        let file = artefact(&format!("/{program}.cdx.json")).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let bill: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(bill["bomFormat"], "CycloneDX");
        assert_eq!(bill["metadata"]["component"]["name"], program);
        let components = bill["components"].as_array().unwrap();
        assert!(
            components.iter().any(|component| component["name"] == part),
            "no {part} in {program}"
        );
        for component in components {
            let licence = component["licenses"][0]["expression"].as_str();
            assert!(licence.is_some() && component["version"].is_string(), "{component}");
        }
        // Build tools are not parts of it.
        assert!(components.iter().all(|component| component["name"] != "bindgen"));
        assert!(
            !text.contains(env!("CARGO_MANIFEST_DIR")) && !text.contains("/target/dist"),
            "{program}"
        );
    }
}

#[test]
#[ignore = "make dist-test"]
fn lintian_and_rpmlint_have_nothing_to_say() {
    lint(&[".deb", ".rpm"].map(|ending| artefact(ending).unwrap()));
}

fn programs(folder: &Folder) -> Result<Vec<PathBuf>> {
    let (tarball, path) =
        (artefact(".tar.gz")?.display().to_string(), folder.path().display().to_string());
    host(folder, "tar", &["-xf", &tarball, "-C", &path])?;
    let found = host(folder, "find", &[&path, "-path", "*/bin/slurm-graphite*"])?;
    Ok(found.lines().map(PathBuf::from).collect())
}

fn sums(folder: &Folder, programs: &[PathBuf]) -> BTreeSet<(String, String)> {
    let sum = |path: &PathBuf| {
        let said = host(folder, "sha256sum", &[&path.display().to_string()]).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, said.split(' ').next().unwrap().to_owned())
    };
    programs.iter().map(sum).collect()
}

/// The newest version that any of its symbols needs.
fn newest_glibc(folder: &Folder, program: &Path) -> (u32, u32) {
    let symbols = host(folder, "objdump", &["-T", &program.display().to_string()]).unwrap();
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let mut numbers = version.split('.').map(|number| number.parse().unwrap());
        Some((numbers.next()?, numbers.next()?))
    });
    versions.max().unwrap()
}
