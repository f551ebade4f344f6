//! The documented timer that renews slurmrestd's token runs as root: it must not write where the
//! daemon's user can put a link.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use sandbox::{Folder, NOBODY, command as program, find_program, is_root};

const INSTALL: &str = include_str!("../../../docs/install.md");

/// Once it wrote into /var/lib/slurm-graphite, which is the daemon's: a link there made root
/// overwrite any file and give it away.
#[test]
fn a_link_in_the_daemons_folder_does_not_make_the_token_s_timer_give_a_file_of_roots_away() {
    if !is_root() {
        return;
    }
    let folder = Folder::new().unwrap();
    let [own, state, bin] = ["etc", "state", "bin"].map(|name| folder.path().join(name));
    for dir in [&own, &state] {
        fs::create_dir(dir).unwrap();
    }
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    let shadow = folder.write("shadow", "root's").unwrap();
    fs::set_permissions(&shadow, fs::Permissions::from_mode(0o600)).unwrap();
    for name in ["token", "token.new", ".token.new"] {
        symlink(&shadow, state.join(name)).unwrap();
    }
    folder.script("bin/scontrol", "echo SLURM_JWT=secret").unwrap();

    let (_, unit) = INSTALL.split_once("slurm-graphite-token.service").unwrap();
    let (_, command) = unit.split_once("ExecStart=/bin/sh -ec '").unwrap();
    let (command, _) = command.split_once('\'').unwrap();
    // nobody stands in for the daemon's user.
    let adapted = |text: &str| {
        text.replace("/etc/slurm-graphite", &own.display().to_string())
            .replace("/var/lib/slurm-graphite", &state.display().to_string())
            .replace("chgrp slurm-graphite ", "chgrp nogroup ")
            .replace("chown slurm-graphite: ", "chown nobody: ")
    };
    let command = adapted(&command.replace("\\\n", ""));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = program(folder.path(), &find_program("sh").unwrap());
    assert!(
        shell.args(["-ec", &command]).env("PATH", path).status().unwrap().success(),
        "{command}"
    );

    let victim = fs::metadata(&shadow).unwrap();
    assert_eq!(
        (fs::read_to_string(&shadow).unwrap().as_str(), victim.uid()),
        ("root's", 0),
        "{command}"
    );
    // The file that the example of the configuration names, which the daemon's group can read and
    // nobody but root can write.
    let (_, file) = INSTALL.split_once("token_file = \"").unwrap();
    let file = adapted(file.split_once('"').unwrap().0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "SLURM_JWT=secret\n");
    let token = fs::symlink_metadata(&file).unwrap();
    assert_eq!((token.uid(), token.mode() & 0o7777), (0, 0o640), "{command}");
}
