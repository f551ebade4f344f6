//! A host without Slurm and munge: only the daemon and the reader of slurmrestd.

use sandbox::{Folder, Slurm, Slurmrestd, Way, wait};

use super::chroot::Chroot;
use super::{CONFIGURATION, FIGURE, SOON, STATE, carbon, install, packages};

/// It has the token at the place named in docs/install.md, and the unit's user.
#[test]
#[ignore = "make packages-test"]
fn without_slurm_two_packages_read_slurmrestd_from_check_to_the_first_point() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    Slurmrestd::allow_tokens(&folder, &slurm).unwrap();
    slurm.start_all().unwrap();
    let mut rest = Slurmrestd::new(&folder, &slurm, Way::Token).unwrap();
    rest.process.start().unwrap();
    rest.renew(&slurm, 3600).unwrap();

    let chroot = Chroot::new(&folder).unwrap();
    let packages = packages("deb").unwrap();
    let ours: Vec<_> = packages
        .into_iter()
        .filter(|path| !path.display().to_string().contains("-reader-"))
        .collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    chroot.apt("update").unwrap();
    install(&chroot, &ours, "").unwrap();
    let installed = chroot.run("dpkg-query -W -f '${Package}\\n'").unwrap();
    let of_slurm = ["slurm-wlm", "slurmctld", "slurm-client", "libslurm", "munge", "libmunge"];
    let unwanted: Vec<_> =
        installed.lines().filter(|name| of_slurm.iter().any(|of| name.starts_with(of))).collect();
    assert!(unwanted.is_empty(), "{unwanted:?} came with them");

    let carbon = carbon(&folder, &chroot).unwrap();
    chroot
        .run(&format!(
            "install -m 600 -o slurm-graphite -g slurm-graphite {} {STATE}/token\nsed -i -e \
             's/^address = .*/address = \"{}\"/' -e 's/^interval = .*/interval = \"1s\"/' \
             {CONFIGURATION}\nprintf '[slurm]\\nrest = \"%s\"\\ntoken_file = \
             \"{STATE}/token\"\\n' '{}' >> {CONFIGURATION}",
            folder.path().join("token").display(),
            carbon.address(),
            rest.url
        ))
        .unwrap();
    let check = format!("/usr/bin/slurm-graphite check --connect --config {CONFIGURATION}");
    let user = "setpriv --reuid=slurm-graphite --regid=slurm-graphite --init-groups";
    let said = chroot.run(&format!("{user} {check}")).unwrap();
    for line in ["✓ connection: http://127.0.0.1", "✓ token: for user root", "✓ slurmctld: cluster"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains('✗'), "{said}");
    let run = ["/usr/bin/slurm-graphite", "run", "--config", CONFIGURATION];
    let mut daemon = chroot.process("daemon", "slurm-graphite", &run).unwrap();
    daemon.spawn().unwrap();
    wait::until_some("the first point", SOON, || carbon.series(FIGURE).ok()?.last()).unwrap();
    let ended = daemon.stop().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, daemon.lines().join("\n"));
}
