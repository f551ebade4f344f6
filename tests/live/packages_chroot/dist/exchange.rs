//! From the packages of single readers to the one with all readers, and back: the configuration and
//! the queue are kept.

use sandbox::Folder;

use super::super::chroot::{Chroot, host};
use super::super::{CONFIGURATION, STATE, install, packages, user_and_state_exist};
use super::artefact;

const READERS: &str = "ls /usr/libexec/slurm-graphite | wc -l";

#[test]
#[ignore = "make dist-test"]
fn the_one_deb_takes_the_place_of_the_single_ones_and_gives_it_back() {
    let folder = Folder::new().unwrap();
    let chroot = Chroot::new(&folder).unwrap();
    let (single, one) = (packages("deb").unwrap(), [artefact(".deb").unwrap()]);
    let installed = || {
        let all = chroot
            .run("dpkg-query -f '${Package} ${db:Status-Status}\n' -W 'slurm-graphite*'")
            .unwrap();
        let names = all.lines().filter_map(|line| line.strip_suffix(" installed"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    chroot.apt("update").unwrap();
    install(&chroot, &single, "").unwrap();
    let three = installed();
    assert_eq!(three.len(), 3, "{three:?}");
    chroot.run(&format!("echo '# ours' >> {CONFIGURATION}; touch {STATE}/kept")).unwrap();

    install(&chroot, &one, "").unwrap();
    assert_eq!(installed(), ["slurm-graphite"]);
    let all: u32 = chroot.run(READERS).unwrap().trim().parse().unwrap();
    assert!(all > 2, "{all} readers");

    install(&chroot, &single, "").unwrap();
    assert_eq!(installed(), three);
    assert_eq!(chroot.run(READERS).unwrap(), "2\n");
    assert!(chroot.read(CONFIGURATION).unwrap().ends_with("# ours\n"));
    assert!(chroot.path(STATE).join("kept").exists());
}

/// Its scriptlets run, and the readers do not require libslurm.
#[test]
#[ignore = "make dist-test"]
fn the_one_rpm_takes_the_place_of_the_single_ones_and_gives_it_back() {
    let folder = Folder::new().unwrap();
    let chroot = Chroot::new(&folder).unwrap();
    let root = chroot.path("/").display().to_string();
    let rpm = |args: &[&str]| host(&folder, "rpm", &[&["--root", &root], args].concat()).unwrap();
    let file =
        |path: &std::path::Path| chroot.path(&chroot.take(path).unwrap()).display().to_string();
    let one = file(&artefact(".rpm").unwrap());
    let single: Vec<String> = packages("rpm").unwrap().iter().map(|path| file(path)).collect();
    let installed = || {
        let mut names: Vec<String> =
            rpm(&["-qa", "--qf", "%{name}\n"]).lines().map(str::to_owned).collect();
        names.sort();
        names
    };

    rpm(&["--nodeps", "--install", &one]);
    user_and_state_exist(&chroot).unwrap();
    assert_eq!(rpm(&["--verify", "--nodeps", "slurm-graphite"]), "");
    chroot.offline("slurm-graphite --version").unwrap();
    let needs = rpm(&["-q", "--requires", "slurm-graphite"]);
    assert!(!needs.contains("libslurm"), "{needs}");
    assert_eq!(installed(), ["slurm-graphite"]);
    chroot.run(&format!("echo '# ours' >> {CONFIGURATION}; touch {STATE}/kept")).unwrap();

    let mut back = vec!["--nodeps", "--upgrade", "--oldpackage"];
    back.extend(single.iter().map(String::as_str));
    rpm(&back);
    assert_eq!(installed().len(), 3, "{:?}", installed());
    assert_eq!(chroot.run(READERS).unwrap(), "2\n");
    rpm(&["--nodeps", "--upgrade", &one]);
    assert_eq!(installed(), ["slurm-graphite"]);
    assert!(chroot.read(CONFIGURATION).unwrap().ends_with("# ours\n"));
    assert!(chroot.path(STATE).join("kept").exists());
    rpm(&["--erase", "slurm-graphite"]);
    assert!(!chroot.path("/usr/libexec/slurm-graphite").exists());
}
