//! The RPMs. EL is not available here, and programs linked here would not run there. So the tests
//! check what the packages contain, require and do, in a Debian root with rpm's own database.

use sandbox::Folder;

use super::chroot::{Chroot, host};
use super::{CONFIGURATION, packages, user_and_state_exist};

/// A backslash in the macro that finds libslurm was lost on the way to the shell, and then the
/// package had no number.
#[test]
#[ignore = "make packages-test"]
fn the_spec_finds_the_host_s_libslurm() {
    let folder = Folder::new().unwrap();
    std::os::unix::fs::symlink("libslurm.so.42.0.0", folder.path().join("libslurm.so")).unwrap();
    let spec = include_str!("../../../packaging/slurm-graphite.spec").replace("@VERSION@", "1");
    let spec = spec.replace("@SOURCE@", "1").replace("@DATE@", "Thu Jan 01 2026");
    let file = folder.write("slurm-graphite.spec", &spec).unwrap();
    let libdir = format!("_libdir {}", folder.path().display());
    let said =
        host(&folder, "rpmspec", &["-q", "--define", &libdir, "--qf", "%{name}\n", &file]).unwrap();
    assert_eq!(said, "slurm-graphite\nslurm-graphite-reader-42\nslurm-graphite-rest-reader\n");
}

#[test]
#[ignore = "make packages-test"]
fn the_reader_alone_requires_libslurm() {
    let folder = Folder::new().unwrap();
    let requires = |package: &std::path::Path| {
        host(&folder, "rpm", &["-qp", "--requires", &package.display().to_string()]).unwrap()
    };
    let packages = packages("rpm").unwrap();
    assert!(
        !requires(&packages[0]).contains("slurm.so")
            && !requires(&packages[2]).contains("slurm.so")
    );
    let reader = requires(&packages[1]);
    let soname = packages[1].display().to_string();
    let number = soname.split("-reader-").nth(1).unwrap().split('-').next().unwrap();
    assert!(reader.contains(&format!("libslurm.so.{number}()(64bit)\n")), "{reader}");
    assert!(reader.contains("slurm-graphite = "), "{reader}");
}

#[test]
#[ignore = "make packages-test"]
fn an_edited_configuration_survives_rpm_too() {
    let folder = Folder::new().unwrap();
    let chroot = Chroot::new(&folder).unwrap();
    let root = chroot.path("/").display().to_string();
    let rpm = |args: &[&str]| host(&folder, "rpm", &[&["--root", &root], args].concat());
    let files: Vec<String> =
        packages("rpm").unwrap().iter().map(|file| chroot.take(file).unwrap()).collect();
    let files: Vec<String> =
        files.iter().map(|file| chroot.path(file).display().to_string()).collect();
    let install =
        |flag: &str| rpm(&["--nodeps", flag, "--replacepkgs", &files[0], &files[1]]).unwrap();
    install("--install");
    user_and_state_exist(&chroot).unwrap();
    assert_eq!(rpm(&["--verify", "--nodeps", "slurm-graphite"]).unwrap(), "");
    let both =
        "slurm-graphite --version; /usr/libexec/slurm-graphite/slurm-graphite-reader-* --help";
    let said = chroot.run(both).unwrap_err().to_string();
    // The daemon runs, and the reader has found no libslurm in this root.
    assert!(said.contains("slurm-graphite ") && said.contains("libslurm.so."), "{said}");

    chroot.run(&format!("sed -i 's/^prefix = .*/prefix = \"hpc\"/' {CONFIGURATION}")).unwrap();
    let edited = chroot.read(CONFIGURATION).unwrap();
    install("--upgrade");
    assert_eq!(chroot.read(CONFIGURATION).unwrap(), edited);
    rpm(&[
        "--erase",
        "slurm-graphite",
        files[1].rsplit('/').next().unwrap().trim_end_matches(".x86_64.rpm"),
    ])
    .unwrap();
    assert_eq!(chroot.read(&format!("{CONFIGURATION}.rpmsave")).unwrap(), edited);
    assert!(!chroot.path("/usr/bin/slurm-graphite").exists());
}
