//! Tests that need readers of several releases: `make releases` builds them and runs these tests on
//! this machine. Tests for a single release are in `figures`, which `make releases` runs in each
//! release's chroot.

use std::fs;
use std::path::{Path, PathBuf};

use sandbox::{Folder, Invocation, Slurm, find_program, run, slurm_graphite};

const READER: &str = "slurm-graphite-reader";

/// (chroot, number of its libslurm)
const ROOTS: [(&str, u32); 4] = [("bullseye", 36), ("bookworm", 38), ("trixie", 42), ("forky", 45)];

/// target/releases.
fn releases() -> PathBuf {
    slurm_graphite().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

#[test]
#[ignore = "make releases builds the readers that it wants"]
fn of_readers_side_by_side_the_one_whose_library_is_there_is_taken() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let conf = slurm.conf().display().to_string();
    let args = ["stats", "--json", "--log-level", "info", "--slurm-conf", &conf];
    let run = run(&folder, &args).unwrap();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let release = slurm.release().unwrap()[..5].to_owned();
    assert!(run.stdout.contains(&format!("\"release\":\"{release}\"")), "{}", run.stdout);
    let started = format!("reader started for Slurm {release}");
    assert!(run.stderr.contains(&started) && run.stderr.contains(READER), "{}", run.stderr);
}

#[test]
#[ignore = "make releases builds the readers that it wants"]
fn with_readers_for_other_libraries_alone_it_says_which_package_is_missing() {
    let folder = Folder::new().unwrap();
    let (built, program) = (releases().join("readers"), folder.path().join("slurm-graphite"));
    sandbox::copy_program(&built.join("slurm-graphite"), &program).unwrap();
    let run = || {
        let conf = "--slurm-conf=/dev/null";
        let run =
            Invocation::of_program(&folder, &program, &["once", conf]).unwrap().finish().unwrap();
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
        run.stderr
    };
    let nowhere = run();
    let host = host_library();
    let advice = format!("install the package {READER}-{host} (Debian, Ubuntu: apt install;");
    assert!(
        nowhere.contains("there is no slurm-graphite-reader in") && nowhere.contains(&advice),
        "{nowhere}"
    );
    for (_, soname) in ROOTS.iter().filter(|(_, soname)| *soname != host) {
        let name = format!("{READER}-{soname}");
        sandbox::copy_program(&built.join(&name), &folder.path().join(&name)).unwrap();
    }
    let unfit = run();
    assert!(
        unfit.contains("no reader fits this host's libslurm") && unfit.contains(&advice),
        "{unfit}"
    );
    assert!(unfit.contains("finds no libslurm.so.45, 42, 36"), "{unfit}");
}

/// If a struct of one release is read with another's layout, the numbers are shifted and there is
/// no error. So nothing may be read at all.
#[test]
#[ignore = "make releases builds the readers that it wants"]
fn a_reader_with_the_library_of_another_release_under_its_own_name_refuses() {
    // An older reader in a newer Debian, whose libc has everything that the reader needs.
    for (older, (root, library)) in
        (0..ROOTS.len()).flat_map(|n| ROOTS[..n].iter().map(move |o| (o.1, ROOTS[n])))
    {
        let folder = Folder::new().unwrap();
        let root = releases().join(root).join("root");
        let real = fs::read_dir(root.join("usr/lib")).unwrap().flatten().find_map(|lib| {
            let real = lib.path().join(format!("libslurm.so.{library}"));
            real.exists().then(|| Path::new("/").join(real.strip_prefix(&root).unwrap()))
        });
        std::os::unix::fs::symlink(
            real.unwrap(),
            folder.path().join(format!("libslurm.so.{older}")),
        )
        .unwrap();
        fs::write(
            folder.path().join("slurm.conf"),
            "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\n",
        )
        .unwrap();
        let path = folder.path().display().to_string();
        let enter = concat!(env!("CARGO_MANIFEST_DIR"), "/../releases/enter.sh");
        let reader = format!("/usr/libexec/slurm-graphite/{READER}-{older}");
        let (root, conf) = (root.display().to_string(), format!("{path}/slurm.conf"));
        let args = [enter, &root, &path, "--", &reader, "--conf", &conf];
        let run = Invocation::of_program(&folder, &find_program("sh").unwrap(), &args).unwrap();
        let run = run.env("LD_LIBRARY_PATH", &path).finish().unwrap();
        assert_ne!(run.code, Some(0));
        assert_eq!(run.stdout, "", "it must not even say hello");
        let ours = format!("the loaded libslurm is libslurm.so.{library} of Slurm");
        // From 24.11 on libslurm lacks a function that the older readers call, so that the loader
        // refuses first.
        let expected = if library < 42 { ours.as_str() } else { "undefined symbol" };
        assert!(run.stderr.contains(expected), "{older} {library}: {}", run.stderr);
    }
}

/// Slurm's own rule, here 22.05 with 24.11: the reply cannot be unpacked.
#[test]
#[ignore = "make releases builds the readers that it wants"]
fn a_reader_too_old_for_its_controller_reads_nothing_and_says_what_to_do() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let conf = slurm.conf().display().to_string();
    let run = run(&folder, &["once", "--slurm-conf", &conf]).unwrap();
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{}", run.stderr);
    assert!(run.stderr.contains("install Slurm's client of a newer release"), "{}", run.stderr);
}

/// N of this machine's libslurm.so.N.
fn host_library() -> u32 {
    let reader = |soname: &u32| {
        let folder = Folder::new().unwrap();
        let reader = releases().join("readers").join(format!("{READER}-{soname}"));
        Invocation::of_program(&folder, &reader, &["--version"]).unwrap().finish().unwrap().code
            == Some(0)
    };
    ROOTS.iter().map(|(_, soname)| *soname).find(reader).unwrap()
}
