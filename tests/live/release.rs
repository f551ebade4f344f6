//! `make release`: what it refuses, and what a release has. `make` and `cargo` are stand-ins, because
//! the real ones compile and test for hours; git and gpg are real.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use anyhow::{Result, ensure};
use sandbox::{Folder, find_program};

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CHANGES: &str =
    "# Changelog\n\n## [Unreleased]\n\n- Something new.\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n";

/// A repository that can be released, and a key to sign with.
struct Repository {
    folder: Folder,
}

impl Repository {
    fn new() -> Result<Self> {
        let folder = Folder::new()?;
        let script = fs::read_to_string(format!("{TOP}/packaging/release.sh"))?;
        folder.write("packaging/release.sh", &script)?;
        folder
            .write("Cargo.toml", "version = \"0.1.0\"\nrepository = \"https://slurm.test/it\"\n")?;
        folder.write("CHANGELOG.md", CHANGES)?;
        folder.write(".gitignore", "/target\n/log\n/gnupg\n/bin\n")?;
        // It notes what it was asked for, and makes what `make dist` would.
        folder.script(
            "bin/make",
            "echo \"$@\" >>target/made\ncase $1 in dist-test)\n    mkdir -p target/dist && cd target/dist && \
             echo x >slurm-graphite.tar.gz && sha256sum slurm-graphite* >SHA256SUMS ;;\nesac",
        )?;
        folder.script("bin/cargo", "")?;
        let it = Self { folder };
        it.sh(
            "mkdir -m 700 gnupg target && git init --quiet . && git config user.name T && git config \
             user.email t@slurm.test && gpg --batch --quiet --passphrase '' --quick-gen-key 'T \
             <t@slurm.test>' ed25519 sign never && git add . && git commit --quiet --message First",
        )?;
        Ok(it)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, script: &str) -> Result<Output> {
        let mut command = sandbox::command(self.folder.path(), &find_program("sh")?);
        command.args(["-ec", script]).env("GNUPGHOME", self.path("gnupg"));
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        command.env("PATH", path).env("DEBFULLNAME", "T").env("DEBEMAIL", "t@slurm.test");
        Ok(command.output()?)
    }

    /// The output of a script, which must succeed.
    fn sh(&self, script: &str) -> Result<String> {
        let output = self.run(script)?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(output.status.success(), "{script}: {said}");
        Ok(said)
    }

    /// The message of release.sh when it refuses because of these variables, having changed
    /// nothing.
    fn refused(&self, variables: &str) -> Result<String> {
        const STATE: &str = "git status --porcelain; git rev-parse HEAD; git tag; ls -A target";
        let before = self.sh(STATE)?;
        let output = self.run(&format!("{variables} sh packaging/release.sh"))?;
        ensure!(output.status.code() == Some(1), "{variables}: {output:?}");
        ensure!(self.sh(STATE)? == before, "{variables}: something has changed");
        Ok(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    }
}

#[test]
fn each_refusal_is_one_line_and_changes_nothing() {
    let it = Repository::new().unwrap();
    let refused = |variables: &str, expected: &str| {
        let said = it.refused(variables).unwrap();
        assert!(said.contains(expected) && said.lines().count() == 1, "{variables}: {said}");
    };
    for version in ["", "1", "v0.2.0", "0.2", "0.2.0;x"] {
        refused(&format!("VERSION='{version}'"), "give VERSION=X.Y.Z");
    }
    let next = "VERSION=0.2.0";
    refused(&format!("{next} DEBEMAIL="), "set DEBFULLNAME and DEBEMAIL");
    refused(&format!("{next} DEBEMAIL=x@localhost.localdomain"), "set DEBFULLNAME and DEBEMAIL");
    refused(&format!("{next} DEBFULLNAME="), "set DEBFULLNAME and DEBEMAIL");
    refused(&format!("{next} GNUPGHOME=/nowhere"), "gpg cannot sign as 't@slurm.test'");

    it.sh("git tag v0.2.0").unwrap();
    refused(next, "v0.2.0 exists");
    it.sh("git tag --delete v0.2.0; echo x > new").unwrap();
    refused(next, "the tree has changes");
    it.sh("rm new; echo >> CHANGELOG.md").unwrap();
    refused(next, "the tree has changes");
    it.sh(
        "git checkout --quiet CHANGELOG.md; sed -i '/Something/d' CHANGELOG.md; git commit -qam x",
    )
    .unwrap();
    refused(next, "nothing under '## [0.2.0]' or '## [Unreleased]'");
    it.sh("git reset --quiet --hard HEAD^").unwrap();
    let url = "s|https.*it|https://example.org/slurm-graphite|";
    it.sh(&format!("sed -i '{url}' Cargo.toml; git commit -qam x")).unwrap();
    refused(next, "repository in Cargo.toml is 'https://example.org/slurm-graphite'");
    // A dry run names everything that is wrong.
    let said = it.refused(&format!("{next} DRY=1 SUITES=no DEBEMAIL=")).unwrap();
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_release_is_made_once_signed_and_continues_after_a_failure() {
    let it = Repository::new().unwrap();
    let release = "VERSION=0.2.0 sh packaging/release.sh";
    let shown =
        it.sh(&format!("DRY=1 {release}; git status --porcelain; git tag; ls target")).unwrap();
    for step in [
        "make soak SOAK_TLS=1",
        "0.2.0 in Cargo.toml",
        "dist-test",
        "--detach-sign",
        "git tag --sign v0.2.0",
    ] {
        assert!(shown.contains(step), "{step} is not in {shown}");
    }
    assert!(shown.ends_with("sha256sum --check SHA256SUMS\n"), "{shown}");

    // A suite fails: what has passed before is not run again.
    it.sh("sed -i '2i case $1 in bench) exit 1 ;; esac' bin/make").unwrap();
    it.sh(release).unwrap_err();
    it.sh("sed -i 2d bin/make").unwrap();
    it.sh(release).unwrap();
    let made = fs::read_to_string(it.path("target/made")).unwrap();
    let made: Vec<&str> = made.lines().collect();
    let runs = |name: &str| made.iter().filter(|line| **line == name).count();
    assert_eq!(
        (runs("test"), runs("soak SOAK_TLS=1"), runs("bench"), runs("releases")),
        (1, 1, 1, 1),
        "{made:?}"
    );
    assert_eq!(made[made.len() - 2..], ["golden dashboards", "dist-test packages-test"]);

    let log = it.sh("git log --format=%s; git status --porcelain").unwrap();
    assert_eq!(log, "Version 0.2.0\nFirst\n");
    it.sh("cd target/dist; gpg --verify SHA256SUMS.asc; sha256sum --check SHA256SUMS").unwrap();
    it.sh("git verify-tag v0.2.0; test $(git rev-parse HEAD) = $(git rev-parse 'v0.2.0^{}')")
        .unwrap();
    let changes = fs::read_to_string(it.path("CHANGELOG.md")).unwrap();
    let today = it.sh("date -u +%Y-%m-%d").unwrap();
    assert_eq!(changes, CHANGES.replace("[Unreleased]", &format!("[0.2.0] - {}", today.trim())));
    let notes = fs::read_to_string(it.path("target/dist/NOTES.md")).unwrap();
    let first = it.sh("git rev-parse HEAD^").unwrap();
    assert!(notes.contains("- Something new.") && !notes.contains("Old"), "{notes}");
    assert!(
        notes.contains(&format!("passed on commit {}: test, lints, demo,", first.trim())),
        "{notes}"
    );
    assert!(it.refused("VERSION=0.2.0").unwrap().contains("v0.2.0 exists"));
}

#[test]
fn what_is_left_out_is_said_in_the_files() {
    let it = Repository::new().unwrap();
    it.sh("VERSION=0.2.0-rc.1 SUITES=no SIGN=no sh packaging/release.sh").unwrap();
    let made = fs::read_to_string(it.path("target/made")).unwrap();
    assert_eq!(made, "golden dashboards\ndist-test packages-test\n");
    let sums = fs::read_to_string(it.path("target/dist/SHA256SUMS")).unwrap();
    assert!(sums.starts_with("# Not signed"), "{sums}");
    it.sh("cd target/dist; ! test -e SHA256SUMS.asc; sha256sum --check SHA256SUMS").unwrap();
    let notes = fs::read_to_string(it.path("target/dist/NOTES.md")).unwrap();
    assert!(notes.contains("suites that were not run: test, lints, demo, soak,"), "{notes}");
    it.sh("git verify-tag v0.2.0-rc.1").unwrap_err();
}

/// A registry's carbon is another program; and an image that points to somewhere else is nobody's.
#[test]
fn no_crate_is_published_and_every_address_is_that_of_cargo_toml() {
    let manifests = ["ls-files", "*Cargo.toml"];
    let mut git = sandbox::command(TOP.as_ref(), &find_program("git").unwrap());
    let manifests = git.args(["-c", "safe.directory=*"]).args(manifests).output().unwrap().stdout;
    let manifests = String::from_utf8(manifests).unwrap();
    let read = |name: &str| fs::read_to_string(format!("{TOP}/{name}")).unwrap();
    let workspace = read("Cargo.toml");
    assert!(workspace.contains("\npublish = false\n"));
    let crates: Vec<&str> = manifests.lines().filter(|name| *name != "Cargo.toml").collect();
    assert!(crates.len() > 10, "{crates:?}");
    for name in crates {
        assert!(read(name).contains("\npublish.workspace = true\n"), "{name}");
    }
    let address = workspace.split("repository = \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(read("Dockerfile").contains(&format!("image.source=\"{address}\"")), "{address}");
}
