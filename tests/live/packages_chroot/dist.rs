//! The files of `make dist` on hosts without a compiler or Slurm: from the download to the first
//! point on every Debian, with that release's own Slurm; also the contents of the files. `make
//! dist-test` runs it, as root.

mod content;
mod exchange;
mod image;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sandbox::{Carbon, Folder, Slurm, wait};

use super::chroot::Chroot;
use super::{CONFIGURATION, FIGURE, INTERVAL, SOON, STATE, carbon, target, user_and_state_exist};

/// Debian's Slurm packages for a host of the cluster and a controller, whose commands need no
/// libslurm.
const SLURM: &str =
    "slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge '^libslurm[0-9]+(t64)?$'";

#[test]
#[ignore = "make dist-test"]
fn three_commands_and_two_lines_to_the_first_point_on_debian_11_12_13_and_sid() {
    for suite in ["bullseye", "bookworm", "trixie", "sid"] {
        on_a_clean(suite).context(suite).unwrap();
    }
}

/// 24.11 refuses a client of 22.05, so the old reader is useless, although its library may still be
/// there.
#[test]
#[ignore = "make dist-test"]
fn under_an_upgrade_of_slurm_the_daemon_takes_the_other_reader_and_says_so_once() {
    let folder = Folder::new().unwrap();
    let chroot = Chroot::of(&folder, "bookworm").unwrap();
    chroot
        .offline(&format!("dpkg -i {}", chroot.take(&artefact(".deb").unwrap()).unwrap()))
        .unwrap();
    let mut slurm = slurm(&folder, &chroot).unwrap();
    let carbon = carbon(&folder, &chroot).unwrap();
    edit(&chroot, &carbon).unwrap();
    chroot.run(&format!("sed -i 's/^interval = .*/interval = \"1s\"/' {CONFIGURATION}")).unwrap();
    let run = ["/usr/bin/slurm-graphite", "run", "--config", CONFIGURATION];
    let mut daemon = chroot.process("daemon", "slurm-graphite", &run).unwrap();
    daemon.spawn().unwrap();
    daemon.line("reader started for Slurm 22.05", SOON).unwrap();
    let points = || carbon.series(FIGURE).ok()?.last();
    wait::until_some("a point of 22.05", SOON, points).unwrap();

    for program in [&mut slurm.slurmd, &mut slurm.slurmctld, &mut slurm.munged] {
        program.stop().unwrap();
    }
    let trixie =
        "sed 's/bookworm/trixie/' /etc/apt/sources.list > /etc/apt/sources.list.d/trixie.list";
    chroot.run(trixie).unwrap();
    chroot.apt("update").unwrap();
    chroot.apt(&format!("install --no-install-recommends -t trixie {SLURM}")).unwrap();
    // Slurm can read the state of the two releases before, but no older one.
    chroot.run(&format!("rm -rf {}/state/*", folder.path().display())).unwrap();
    fs::write(folder.path().join("cgroup.conf"), "CgroupPlugin=disabled\n").unwrap();
    let before = points();
    slurm.start_all().unwrap();
    daemon.line("reader started for Slurm 24.11", SOON * 3).unwrap();
    wait::until("a point of 24.11", SOON, || points() > before).unwrap();
    let log = daemon.lines();
    assert_eq!(
        log.iter().filter(|line| line.contains("reader started")).count(),
        2,
        "{}",
        log.join("\n")
    );
    assert!(daemon.stop().unwrap().status.success());
}

/// First the package, then the tarball: installed without a network, and the tarball's daemon
/// started with its unit's command.
fn on_a_clean(suite: &str) -> Result<()> {
    let folder = Folder::new()?;
    let chroot = Chroot::of(&folder, suite)?;
    let deb = chroot.take(&artefact(".deb")?)?;
    chroot.offline(&format!("dpkg -i {deb}"))?;
    user_and_state_exist(&chroot)?;
    let said = chroot.offline(&format!("slurm-graphite check --config {CONFIGURATION}"))?;
    ensure!(!said.contains('✗'), "{said}");
    let said = chroot.offline("slurm-graphite once 2>&1 || :")?;
    ensure!(said.contains("this host has no libslurm"), "{said}");
    chroot.offline("dpkg --purge slurm-graphite; userdel slurm-graphite")?;

    let _slurm = slurm(&folder, &chroot)?;
    let tarball = chroot.take(&artefact(".tar.gz")?)?;
    let tree = tarball.trim_end_matches(".tar.gz");
    let begin = Instant::now();
    chroot.offline(&format!("tar -xf {tarball} -C /root"))?;
    chroot.offline(&format!("sh {tree}/install.sh --prefix /usr"))?;
    let installed = begin.elapsed();
    user_and_state_exist(&chroot)?;
    let carbon = carbon(&folder, &chroot)?;
    edit(&chroot, &carbon)?;
    let begin = Instant::now();
    super::the_unit_s_command_sends(&folder, &chroot, &carbon)?;
    let took = installed + begin.elapsed();
    ensure!(took < INTERVAL * 2, "{took:?}");

    let said = chroot.run("slurm-graphite stats 2>&1")?;
    ensure!(said.contains("Main schedule statistics"), "{said}");
    chroot.offline(&format!("sh {tree}/install.sh --prefix /usr --uninstall"))?;
    let left = chroot.offline(
        "find / -xdev \\( -path /root -o -path /tmp \\) -prune -o -name '*slurm-graphite*' -print \
            | sort",
    )?;
    let left: Vec<&str> = left.lines().collect();
    ensure!(
        left == ["/etc/slurm-graphite", CONFIGURATION, "/run/slurm-graphite", STATE],
        "{left:?}"
    );
    Ok(())
}

/// The Slurm of the chroot's own release, running, with slurm.conf in its usual place.
fn slurm(folder: &Folder, chroot: &Chroot<'_>) -> Result<Slurm> {
    chroot.apt("update")?;
    chroot.apt(&format!("install --no-install-recommends {SLURM}"))?;
    let mut slurm = Slurm::in_chroot(folder, &chroot.path("/"))?;
    slurm.start_all()?;
    chroot.write("/etc/slurm/slurm.conf", &fs::read_to_string(slurm.conf())?)?;
    Ok(slurm)
}

fn edit(chroot: &Chroot<'_>, carbon: &Carbon) -> Result<()> {
    let address = carbon.address();
    chroot.run(&format!(
        "sed -i -e 's/^address = .*/address = \"{address}\"/' -e 's/^#dir = /dir = /' \
            {CONFIGURATION}"
    ))?;
    Ok(())
}

/// The file in target/dist with this ending.
fn artefact(ending: &str) -> Result<PathBuf> {
    let is_it = |path: &PathBuf| {
        let path = path.display().to_string();
        path.ends_with(ending) && !path.contains("-linux-aarch64")
    };
    let mut found = artefacts()?.into_iter().filter(is_it);
    found.next().with_context(|| format!("no {ending} in target/dist: run `make dist`"))
}

/// All files that are downloaded: those in target/dist.
fn artefacts() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(target()?.join("dist")).context("run `make dist`")?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let is_artefact = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("slurm-graphite");
    found.retain(|path| path.is_file() && path.file_name().is_some_and(is_artefact));
    found.sort();
    Ok(found)
}
