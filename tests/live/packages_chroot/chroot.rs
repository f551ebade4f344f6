//! A clean Debian in a folder: this host's release or another, from this host's mirror.
//!
//! What a command needs is mounted in that command's mount namespace, which ends with it. So there
//! is nothing to unmount, however a test ends.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sandbox::{Folder, Process, find_program};

/// The chroot, and the sandbox's folder, which has the same path inside: slurm.conf and munge's
/// socket are there.
pub(crate) struct Chroot<'f> {
    folder: &'f Folder,
    root: PathBuf,
}

impl<'f> Chroot<'f> {
    pub(crate) fn new(folder: &'f Folder) -> Result<Self> {
        Self::of(folder, &own_suite()?)
    }

    /// A chroot of this release: a copy of one that is made once and kept in the target folder.
    pub(crate) fn of(folder: &'f Folder, suite: &str) -> Result<Self> {
        Self::named(folder, suite, "root")
    }

    /// A chroot of this release with a name, for several chroots in one test.
    pub(crate) fn named(folder: &'f Folder, suite: &str, name: &str) -> Result<Self> {
        ensure!(rustix::process::getuid().is_root(), "a chroot needs root");
        let chroot = Self { folder, root: folder.path().join(name) };
        let base = base(folder, suite)?;
        host(folder, "cp", &["-a", "--reflink=auto", &text(&base), &text(&chroot.root)])?;
        fs::create_dir_all(chroot.path(&text(folder.path())))?;
        // Packages must not start services in the chroot.
        chroot.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")?;
        chroot.run("chmod 755 /usr/sbin/policy-rc.d")?;
        Ok(chroot)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.path(path)).with_context(|| path.to_owned())
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.path(path);
        fs::create_dir_all(path.parent().context("a file at /")?)?;
        fs::write(&path, text).with_context(|| text.to_owned())
    }

    pub(crate) fn run(&self, line: &str) -> Result<String> {
        self.line(&[], line)
    }

    /// Runs a line of shell in the chroot without any network.
    pub(crate) fn offline(&self, line: &str) -> Result<String> {
        self.line(&["--net"], line)
    }

    fn line(&self, apart: &[&str], line: &str) -> Result<String> {
        let args = self.enter(&[]);
        let args: Vec<&str> =
            apart.iter().copied().chain(args.iter().map(String::as_str)).collect();
        host(self.folder, "unshare", &[&args[..], &["sh", "-ec", line]].concat())
    }

    /// A program that will run in the chroot as `user` and its group.
    pub(crate) fn process(&self, name: &str, user: &str, command: &[&str]) -> Result<Process> {
        let process = Process::new(self.folder, name, find_program("unshare")?);
        Ok(process
            .args(self.enter(&[&format!("--userspec={user}:{user}")]))
            .args(command.iter().copied()))
    }

    /// Runs apt-get without questions. A mirror of unstable may be weeks behind.
    pub(crate) fn apt(&self, args: &str) -> Result<String> {
        let options = "-qq -y -o Acquire::Check-Valid-Until=false";
        self.run(&format!("DEBIAN_FRONTEND=noninteractive apt-get {options} {args} </dev/null"))
    }

    /// Copies a file of the host into /root, and returns its path there.
    pub(crate) fn take(&self, file: &Path) -> Result<String> {
        let name = file.file_name().context("no file")?.to_string_lossy();
        let inside = format!("/root/{name}");
        fs::copy(file, self.path(&inside)).with_context(|| text(file))?;
        Ok(inside)
    }

    fn enter(&self, options: &[&str]) -> Vec<String> {
        let (root, folder) = (text(&self.root), text(self.folder.path()));
        let script = format!(
            "mount -t proc proc {root}/proc && mount --bind {folder} {root}{folder} && exec env -u \
                SLURM_GRAPHITE_CONFIG chroot {} {root} \"$@\"",
            options.join(" ")
        );
        ["--mount", "--propagation=private", "sh", "-ec", &script, "sh"].map(str::to_owned).to_vec()
    }
}

fn own_suite() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release")?;
    let value = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    value.map(str::to_owned).context("/etc/os-release names no VERSION_CODENAME: this is no Debian")
}

/// The clean chroot to copy. An incomplete one has another name.
fn base(folder: &Folder, suite: &str) -> Result<PathBuf> {
    let base = super::target()?.join("chroot").join(suite);
    if !base.exists() {
        let half = base.with_extension("half-made");
        host(folder, "rm", &["-rf", "--one-file-system", &text(&half)])?;
        fs::create_dir_all(&half)?;
        let (own, mut sources) = (own_suite()?, sources(folder, suite)?);
        let find = |sources: &[(String, String)], suite: &str| {
            let mirror =
                sources.iter().find(|(_, of)| of == suite).map(|(mirror, _)| mirror.clone());
            mirror.context("apt has no source of this release")
        };
        if sources.is_empty() {
            let mirror = find(&self::sources(folder, &own)?, &own)?;
            sources.push((mirror, suite.to_owned()));
        }
        let mirror = find(&sources, suite)?;
        // A release that this debootstrap does not know yet is made like unstable.
        let script = ["/usr/share/debootstrap/scripts/", suite].concat();
        let script = if Path::new(&script).exists() {
            &script
        } else {
            "/usr/share/debootstrap/scripts/sid"
        };
        host(folder, "debootstrap", &["--variant=minbase", suite, &text(&half), &mirror, script])?;
        // With the updates.
        let lines = sources.iter().map(|(mirror, suite)| format!("deb {mirror} {suite} main\n"));
        fs::write(half.join("etc/apt/sources.list"), lines.collect::<String>())?;
        for file in ["/etc/resolv.conf", "/etc/hosts"] {
            fs::copy(file, half.join(file.trim_start_matches('/'))).context(file)?;
        }
        fs::rename(&half, &base)?;
    }
    Ok(base)
}

/// The mirror and suite of each of this release's sources, as apt reads them.
fn sources(folder: &Folder, release: &str) -> Result<Vec<(String, String)>> {
    let args = ["indextargets", "Created-By: Packages", "--format", "$(REPO_URI) $(RELEASE)"];
    let text = host(folder, "apt-get", &args)?;
    // A line for each of their components.
    let lines: BTreeSet<&str> = text.lines().collect();
    let pairs = lines.into_iter().filter_map(|line| line.split_once(' '));
    // Other vendors' sources have other suites.
    let is_of_release = |(_, suite): &(&str, &str)| {
        suite.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    Ok(pairs
        .filter(is_of_release)
        .map(|(mirror, suite)| (mirror.to_owned(), suite.to_owned()))
        .collect())
}

/// Runs a program of the host to its end, however long it takes, and returns its output.
pub(crate) fn host(folder: &Folder, program: &str, args: &[&str]) -> Result<String> {
    let mut command = sandbox::command(folder.path(), &find_program(program)?);
    let output = command.args(args).output().with_context(|| program.to_owned())?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    match output.status.code() {
        Some(0) => Ok(said),
        Some(code) => bail!("{program} {args:?} has ended with {code}:\n{said}"),
        None => {
            bail!("{program} {args:?} has ended by signal {:?}:\n{said}", output.status.signal())
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
