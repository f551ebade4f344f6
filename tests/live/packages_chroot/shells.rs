//! The completions, each tested in its shell. bash's are tested in tests/live/install.rs, because
//! bash is everywhere.

use sandbox::Folder;

use super::chroot::host;
use super::packages;

#[test]
#[ignore = "make packages-test"]
fn zsh_and_fish_read_their_completions() {
    let folder = Folder::new().unwrap();
    let content = folder.path().join("content").display().to_string();
    host(
        &folder,
        "dpkg-deb",
        &["-x", &packages("deb").unwrap()[0].display().to_string(), &content],
    )
    .unwrap();

    let zsh = format!(
        "fpath=({content}/usr/share/zsh/vendor-completions $fpath); autoload -Uz compinit; \
         compinit -u -D\necho $_comps[slurm-graphite]; autoload +X _slurm-graphite && echo loaded"
    );
    assert_eq!(host(&folder, "zsh", &["-f", "-c", &zsh]).unwrap(), "_slurm-graphite\nloaded\n");

    let fish = |line: &str| {
        let script = format!(
            "source {content}/usr/share/fish/vendor_completions.d/slurm-graphite.fish; complete -C \
                '{line}'"
        );
        host(&folder, "fish", &["--no-config", "-c", &script]).unwrap()
    };
    assert!(fish("slurm-graphite ch").starts_with("check\t"), "{}", fish("slurm-graphite ch"));
    assert!(fish("slurm-graphite check --conn").starts_with("--connect\t"));
}
