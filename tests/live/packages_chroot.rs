//! The packages in a clean Debian: installed, started, upgraded, removed, purged. `make
//! packages-test` runs it as root, after `make deb` and `make rpm`.
//!
//! systemd does not run in a chroot, so `systemctl` lines are not tested here. The unit's command
//! is started by hand as the unit's user.

mod chroot;
mod dist;
mod rpm;
mod shells;
mod without_slurm;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::carbon::{Limits, Options};
use sandbox::{Carbon, Folder, Notify, Process, Slurm, proc, wait};

use self::chroot::{Chroot, host};

const CONFIGURATION: &str = "/etc/slurm-graphite/slurm-graphite.toml";
const STATE: &str = "/var/lib/slurm-graphite";
const FIGURE: &str = "cluster.slurm_sched_stats.gauge-server_thread_count";
/// The interval in the shipped configuration.
const INTERVAL: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(30);
const RUNNING: &str = "success: slurm-graphite entered RUNNING state";

#[test]
#[ignore = "make packages-test"]
fn from_nothing_to_the_first_point_and_back_to_nothing() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let chroot = Chroot::new(&folder).unwrap();
    let packages = packages("deb").unwrap();

    chroot.apt("update").unwrap();
    install(&chroot, &packages, "").unwrap();
    user_and_state_exist(&chroot).unwrap();
    let shown = chroot.run("apt-cache show slurm-graphite").unwrap();
    assert!(shown.contains(&format!("\nHomepage: {}\n", repository().unwrap())), "{shown}");
    let conffiles = chroot.run("dpkg-query -W -f '${Conffiles}' slurm-graphite").unwrap();
    assert!(conffiles.contains(CONFIGURATION), "{conffiles}");
    systemd_likes_the_unit(&chroot).unwrap();

    // A host of a cluster has these files. After that come the schema and the two edited lines.
    chroot.write("/etc/slurm/slurm.conf", &fs::read_to_string(slurm.conf()).unwrap()).unwrap();
    let carbon = carbon(&folder, &chroot).unwrap();
    let address = carbon.address();
    chroot
        .run(&format!("sed -i -e 's/^address = .*/address = \"{address}\"/' {CONFIGURATION}"))
        .unwrap();
    let edited = chroot.read(CONFIGURATION).unwrap();

    the_unit_s_command_sends(&folder, &chroot, &carbon).unwrap();
    let mut supervisord = supervisord_runs_it_too(&chroot, &carbon).unwrap();

    let next = repacked(&folder, &packages, "2", "").unwrap();
    install(&chroot, &next, "").unwrap();
    assert!(version(&chroot).unwrap().ends_with("-2"));
    assert_eq!(chroot.read(CONFIGURATION).unwrap(), edited);
    // A new release documents a new key: an administrator who has edited the file is asked, and may
    // keep it.
    let next = repacked(&folder, &packages, "3", "# a new key\n").unwrap();
    install(&chroot, &next, "-o Dpkg::Options::=--force-confold").unwrap();
    assert!(version(&chroot).unwrap().ends_with("-3"));
    assert_eq!(chroot.read(CONFIGURATION).unwrap(), edited);
    assert!(chroot.read(&format!("{CONFIGURATION}.dpkg-dist")).unwrap().ends_with("# a new key\n"));

    // What runs under supervisord would go on with a program and, after a purge, a queue that are gone.
    let before = supervisord.lines().len();
    supervisord.start().unwrap();
    supervisord.line_after(before, RUNNING, SOON).unwrap();
    chroot.apt("remove slurm-graphite").unwrap();
    supervisord.line_after(before, "stopped: slurm-graphite (exit status 0)", SOON).unwrap();
    supervisord.stop().unwrap();
    for gone in
        ["/usr/bin/slurm-graphite", "/usr/libexec/slurm-graphite", "/usr/share/slurm-graphite"]
    {
        assert!(!chroot.path(gone).exists(), "{gone}");
    }
    assert_eq!(chroot.read(CONFIGURATION).unwrap(), edited);
    assert!(chroot.path(STATE).join("queue.lock").exists());
    chroot.apt("purge slurm-graphite").unwrap();
    for gone in ["/etc/slurm-graphite", STATE] {
        assert!(!chroot.path(gone).exists(), "{gone}");
    }
    // If the number were assigned again, its new user would own files that were left behind.
    chroot.run("getent passwd slurm-graphite").unwrap();
}

#[test]
#[ignore = "make packages-test"]
fn lintian_and_rpmlint_have_nothing_to_say() {
    lint(packages("deb").unwrap().iter().chain(&packages("rpm").unwrap()));
}

/// lintian or rpmlint, by the ending of each package.
fn lint<'p>(packages: impl IntoIterator<Item = &'p PathBuf>) {
    let folder = Folder::new().unwrap();
    for package in packages {
        let package = package.display().to_string();
        if package.ends_with(".rpm") {
            let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/rpmlint.toml");
            let said = host(&folder, "rpmlint", &["-c", config, &package]).unwrap();
            assert!(said.contains(" 0 errors, 0 warnings,"), "{said}");
        } else {
            let args = ["--allow-root", "--fail-on", "error,warning", &package];
            let said = host(&folder, "lintian", &args).unwrap();
            assert!(said.lines().all(|line| line.starts_with("N:")), "{said}");
        }
    }
}

/// The package's user and folder, as any way to install it leaves them.
fn user_and_state_exist(chroot: &Chroot<'_>) -> Result<()> {
    let state = chroot.run(&format!("getent passwd slurm-graphite; stat -c '%U:%G %a' {STATE}"))?;
    // rpm's nologin is in /sbin, Debian's in /usr/sbin.
    ensure!(state.contains(&format!(":{STATE}:")), "{state}");
    ensure!(state.ends_with("/sbin/nologin\nslurm-graphite:slurm-graphite 700\n"), "{state}");
    Ok(())
}

/// The project's address, whose one place is the workspace's Cargo.toml.
fn repository() -> Result<String> {
    let manifest = include_str!("../../Cargo.toml");
    let value = manifest.lines().find_map(|line| line.strip_prefix("repository = "));
    Ok(value.context("no repository")?.trim_matches('"').to_owned())
}

/// The folder into which cargo and `make` build.
fn target() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    here.ancestors().nth(3).map(Path::to_owned).context("no target directory")
}

/// The packages of one kind: the daemon's first, then the readers', with slurmrestd's last.
fn packages(kind: &str) -> Result<Vec<PathBuf>> {
    let folder = target()?.join(kind);
    let entries = fs::read_dir(&folder)
        .with_context(|| format!("{}: run `make {kind}`", folder.display()))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| {
        let name = path.display().to_string();
        name.ends_with(&format!(".{kind}")) && !name.ends_with(".src.rpm")
    });
    found.sort_by_key(|path| {
        let name = path.display().to_string();
        (name.contains("-rest-reader"), name.contains("-reader-"))
    });
    ensure!(found.len() == 3, "three packages are expected: {found:?}");
    Ok(found)
}

/// Installs them with the command from the documentation: `apt install ./…deb ./…deb`.
fn install(chroot: &Chroot<'_>, packages: &[PathBuf], options: &str) -> Result<()> {
    let files: Vec<String> =
        packages.iter().map(|file| chroot.take(file)).collect::<Result<_>>()?;
    chroot.apt(&format!("install {options} {}", files.join(" ")))?;
    let wrong = chroot.run("dpkg --verify")?;
    let wrong: Vec<&str> = wrong.lines().filter(|line| !line.ends_with(CONFIGURATION)).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

fn version(chroot: &Chroot<'_>) -> Result<String> {
    chroot.run("dpkg-query -W -f '${Version}' slurm-graphite")
}

/// Copies of these packages with a higher version, and with `more` added to the configuration.
fn repacked(
    folder: &Folder,
    packages: &[PathBuf],
    revision: &str,
    more: &str,
) -> Result<Vec<PathBuf>> {
    let repack = |package: &PathBuf| {
        let name = package.file_name().context("no file")?.to_string_lossy();
        let name = name.replace("-1_", &format!("-{revision}_"));
        let (content, next) = (folder.path().join("content"), folder.path().join(name));
        let script = format!(
            "rm -rf {content}; dpkg-deb --raw-extract {package} {content}\nsed -i -e \
             '/^Version/s/-1$/-{revision}/' -e 's/-1)/-{revision})/g' {content}/DEBIAN/control\n! \
             test -e {content}{CONFIGURATION} || printf %s '{more}' >> {content}{CONFIGURATION}\n\
             dpkg-deb --root-owner-group --build {content} {next}",
            content = content.display(),
            package = package.display(),
            next = next.display()
        );
        host(folder, "sh", &["-ec", &script])?;
        Ok(next)
    };
    packages.iter().map(repack).collect()
}

/// systemd also checks that the manual pages in it exist.
fn systemd_likes_the_unit(chroot: &Chroot<'_>) -> Result<()> {
    chroot.apt("install --no-install-recommends man-db systemd")?;
    for unit in ["slurm-graphite.service", "slurm-graphite@beta.service"] {
        let said = chroot.run(&format!("systemd-analyze verify {unit}"))?;
        ensure!(said.is_empty(), "{said}");
    }
    // The threshold is in tenths: an exposure of 2.0 at most.
    chroot.run(
        "systemd-analyze security --no-pager --offline=yes --threshold=20 slurm-graphite.service",
    )?;
    Ok(())
}

/// A Carbon with the rules from the package.
fn carbon(folder: &Folder, chroot: &Chroot<'_>) -> Result<Carbon> {
    let rules = |name: &str| chroot.read(&format!("/usr/share/slurm-graphite/carbon/{name}.conf"));
    let (schemas, aggregation) = (rules("storage-schemas")?, rules("storage-aggregation")?);
    let options = Options { schemas, aggregation, limits: Limits::Wide, ..Options::default() };
    Carbon::start(folder, "carbon", &options)
}

/// Runs the command that systemd would start, as the same user.
fn the_unit_s_command_sends(folder: &Folder, chroot: &Chroot<'_>, carbon: &Carbon) -> Result<()> {
    let unit = chroot.read("/usr/lib/systemd/system/slurm-graphite.service")?;
    let value = |key: &str| {
        let value = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        value.with_context(|| format!("no {key} in {unit}"))
    };
    let command: Vec<&str> = value("ExecStart")?.split(' ').collect();
    let mut systemd = Notify::listen(folder)?;
    chroot.run(&format!("chmod 777 {}", systemd.path.display()))?;
    let mut daemon =
        chroot.process("daemon", value("User")?, &command)?.env("NOTIFY_SOCKET", &systemd.path);
    let start = Instant::now();
    daemon.spawn()?;
    systemd.message("READY=1", SOON)?;
    wait::until_some("the first point", INTERVAL * 2, || carbon.series(FIGURE).ok()?.last())
        .with_context(|| daemon.lines().join("\n"))?;
    ensure!(start.elapsed() <= INTERVAL * 2);
    let ended = daemon.stop()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, daemon.lines().join("\n"));
    let owner = chroot.run(&format!("stat -c %U {STATE}/queue.lock"))?;
    ensure!(owner == "slurm-graphite\n", "the queue is {owner}'s");
    Ok(())
}

/// supervisord with our file, with the user and the paths in it. It is stopped again.
fn supervisord_runs_it_too(chroot: &Chroot<'_>, carbon: &Carbon) -> Result<Process> {
    chroot.apt("install --no-install-recommends supervisor")?;
    chroot.run(
        "cp /usr/share/slurm-graphite/supervisor/slurm-graphite.conf /etc/supervisor/conf.d/",
    )?;
    let before = carbon.series(FIGURE)?.last();
    let command = ["/usr/bin/supervisord", "-n", "-c", "/etc/supervisor/supervisord.conf"];
    let mut supervisord = chroot.process("supervisord", "root", &command)?;
    supervisord.start()?;
    supervisord.line(RUNNING, SOON)?;
    let child = supervisord
        .pid()
        .and_then(|pid| proc::children(pid).first().copied())
        .context("no child")?;
    let user = chroot.run(&format!("stat -c %U /proc/{child}"))?;
    ensure!(user == "slurm-graphite\n", "it runs as {user}");
    wait::until("a point more", INTERVAL * 2, || {
        carbon.series(FIGURE).is_ok_and(|series| series.last() > before)
    })?;
    supervisord.stop()?;
    supervisord.line("stopped: slurm-graphite (exit status 0)", SOON)?;
    Ok(supervisord)
}
