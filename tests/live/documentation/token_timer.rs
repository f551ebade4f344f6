//! The documented timer that renews slurmrestd's token runs as root: it must not write where the daemon's user can put a link.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use sandbox::{Folder, command as program, find_program};

/// nobody, who stands in for the daemon's user.
const DAEMON: u32 = 65534;
const INSTALL: &str = include_str!("../../../docs/install.md");

/// Once it wrote into /var/lib/slurm-graphite, which is the daemon's: a link there made root overwrite any file and give it away.
#[test]
fn a_link_in_the_daemons_folder_does_not_make_the_token_s_timer_give_a_file_of_roots_away() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let folder = Folder::new().unwrap();
    let (own, state, bin) =
        (folder.path().join("etc"), folder.path().join("state"), folder.path().join("bin"));
    for dir in [&own, &state, &bin] {
        fs::create_dir(dir).unwrap();
    }
    chown(&state, Some(DAEMON), Some(DAEMON)).unwrap();
    let shadow = folder.path().join("shadow");
    fs::write(&shadow, "root's").unwrap();
    fs::set_permissions(&shadow, fs::Permissions::from_mode(0o600)).unwrap();
    for name in ["token", "token.new", ".token.new"] {
        symlink(&shadow, state.join(name)).unwrap();
    }
    fs::write(bin.join("scontrol"), "#!/bin/sh\necho SLURM_JWT=secret\n").unwrap();
    fs::set_permissions(bin.join("scontrol"), fs::Permissions::from_mode(0o755)).unwrap();

    let (_, unit) = INSTALL.split_once("slurm-graphite-token.service").unwrap();
    let (_, command) = unit.split_once("ExecStart=/bin/sh -ec '").unwrap();
    let (command, _) = command.split_once('\'').unwrap();
    let command = command
        .replace("\\\n", "")
        .replace("/etc/slurm-graphite", &own.display().to_string())
        .replace("/var/lib/slurm-graphite", &state.display().to_string())
        .replace("chgrp slurm-graphite ", "chgrp nogroup ")
        .replace("chown slurm-graphite: ", "chown nobody: ");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let status = program(folder.path(), &find_program("sh").unwrap())
        .args(["-ec", &command])
        .env("PATH", path)
        .status()
        .unwrap();
    assert!(status.success(), "{command}");

    let victim = fs::metadata(&shadow).unwrap();
    assert_eq!((fs::read_to_string(&shadow).unwrap().as_str(), victim.uid()), ("root's", 0), "{command}");
    // The file that the example of the configuration names, which the daemon's group can read and nobody but root can write.
    let (_, file) = INSTALL.split_once("token_file = \"").unwrap();
    let (file, _) = file.split_once('"').unwrap();
    let file = file
        .replace("/etc/slurm-graphite", &own.display().to_string())
        .replace("/var/lib/slurm-graphite", &state.display().to_string());
    assert_eq!(fs::read_to_string(&file).unwrap(), "SLURM_JWT=secret\n");
    let token = fs::symlink_metadata(&file).unwrap();
    assert_eq!((token.uid(), token.mode() & 0o7777), (0, 0o640), "{command}");
}
