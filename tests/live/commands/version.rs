//! `--version`: the version, the commit, the installed readers and the one that this host uses.

use sandbox::{Folder, Invocation, printed, run, slurm_graphite};
use slurm_snapshot::LIBRARIES;

use super::SOON;

/// The lines after the first, each up to the folder of its program.
fn readers(said: &str) -> Vec<(String, String)> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("reader: "));
    let name = |program: &str| program.rsplit('/').next().unwrap().to_owned();
    lines
        .map(|line| line.split_once("  ").unwrap())
        .map(|(program, asks)| (name(program), asks.trim().to_owned()))
        .collect()
}

#[test]
fn the_reader_that_is_used_is_the_newest_that_this_host_can_load_and_not_the_newest_there_is() {
    let folder = Folder::new().unwrap();
    let program = folder.path().join("slurm-graphite");
    sandbox::copy_program(&slurm_graphite().unwrap(), &program).unwrap();
    // The dynamic loader's exit code, that of a reader with the wrong library, and readers that
    // run.
    for (reader, text) in [
        ("reader-45", "exit 127"),
        ("reader-44", "echo slurm-graphite-reader 1 for Slurm 25.11; exit 69"),
        ("reader-42", "echo slurm-graphite-reader 1 for Slurm 24.11"),
        ("reader-38", "echo slurm-graphite-reader 1 for Slurm 22.05"),
        ("rest-reader", "echo slurm-graphite-rest-reader 1"),
    ] {
        folder.script(&format!("slurm-graphite-{reader}"), text).unwrap();
    }
    let newest = LIBRARIES.last().unwrap().1;
    for (configuration, used) in [
        ("", "reader-42"),
        ("[slurm]\nrest = \"unix:/nowhere\"\n", "rest-reader"),
        ("[slurm]\nreader = \"native\"\n", "native"),
    ] {
        folder.write("default.toml", configuration).unwrap();
        let said =
            Invocation::of_program(&folder, &program, &["--version"]).unwrap().finish().unwrap();
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        let found = readers(&said.stdout);
        for (name, asks) in [
            ("reader-45", "Slurm 26.05"),
            ("reader-44", "Slurm 25.11"),
            ("reader-42", "Slurm 24.11"),
            ("reader-38", "Slurm 22.05"),
            ("rest-reader", &format!("slurmrestd of Slurm 22.05 to {newest}")),
            ("native", &format!("statistics only, slurmctld of Slurm 20.11 to {newest}")),
        ] {
            let program = if name == "native" {
                "native, in this program"
            } else {
                &*format!("slurm-graphite-{name}")
            };
            let is_used = if name == used { ", used on this host" } else { "" };
            let line = (program.to_owned(), format!("{asks}{is_used}"));
            assert!(found.contains(&line), "{line:?}: {}", said.stdout);
        }
    }
}

#[test]
fn a_host_without_a_fitting_reader_is_told_what_to_install_and_a_bad_configuration_changes_nothing()
{
    let folder = Folder::new().unwrap();
    let reader = folder.script("reader", "exit 127").unwrap();
    folder.write("default.toml", &format!("[slurm]\nreader = \"{reader}\"\n")).unwrap();
    let none = run(&folder, &["--version"]).unwrap().stdout;
    assert!(
        none.contains("\nused on this host: none: no reader fits this host's libslurm"),
        "{none}"
    );
    folder.write("default.toml", "interval = 3\n").unwrap();
    let bad = printed(&folder, &["--version"]).unwrap();
    assert!(bad.contains("used on this host"), "{bad}");
}

#[test]
fn the_long_form_has_the_commit_and_the_short_one_is_one_line_that_starts_no_reader() {
    let folder = Folder::new().unwrap();
    let touches = folder.script("reader", "touch \"${0%/*}/started\"").unwrap();
    folder.write("default.toml", &format!("[slurm]\nreader = \"{touches}\"\n")).unwrap();
    let short = run(&folder, &["-V"]).unwrap().stdout;
    assert_eq!(short, format!("slurm-graphite {}\n", env!("CARGO_PKG_VERSION")));
    assert!(!folder.path().join("started").exists());
    let long = run(&folder, &["--version"]).unwrap();
    assert!(long.stdout.starts_with(short.trim_end()) && long.took < SOON, "{long:?}");
    assert!(folder.path().join("started").exists());
    // A checkout has a commit; a tree without git does not.
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let git = sandbox::find_program("git").map(|git| {
        Invocation::of_program(&folder, &git, &["-C", top, "rev-parse", "HEAD"])
            .unwrap()
            .finish()
            .unwrap()
    });
    if git.is_ok_and(|git| git.code == Some(0)) {
        let commit =
            long.stdout.lines().next().unwrap().rsplit_once(", commit ").unwrap().1.to_owned();
        assert!(commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
    }
}
