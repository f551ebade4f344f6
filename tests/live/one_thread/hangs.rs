//! Each thing that the daemon touches hangs, and stays so while readers die, the configuration is
//! to be read again and connections are renewed: no tick is missing at a receiver that needs none
//! of it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{
    Folder, Imitation, Invocation, Process, Space, find_program, proc, slurm_graphite, wait,
};
use sandbox::{Manner, Sink, TlsProxy, destination};

use super::super::status::{runtime, start, status};
use super::super::{SOON, side_by_side};
use super::Rig;

const SKIPPED: &str = "skipped: this kernel lets no ordinary user mount";
/// A name service that hangs while this file exists.
const NAMES: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    while (access(getenv(\"HANGS\"), F_OK) == 0) usleep(100000);
    __typeof__(&getaddrinfo) next = dlsym(RTLD_NEXT, \"getaddrinfo\");
    return next(node, service, hints, found);
}
";

#[test]
fn whatever_hangs_no_tick_is_missing() {
    side_by_side(&[
        ("slurm.conf's folder", || folder_hangs("conf")),
        ("the reader's folder", || folder_hangs("reader")),
        ("the folder of TLS files", || folder_hangs("tls")),
        ("the configuration's folder", || folder_hangs("configuration")),
        ("the queue's folder", || folder_hangs("queue")),
        ("the name service", names_hang),
        ("the queue's folder at the start", stops_while_it_starts),
    ]);
}

/// A daemon with each of its files in a folder of its own, not started yet.
struct Touching {
    rig: Rig,
    space: Space,
    reader: Imitation,
    proxy: TlsProxy,
    behind: Sink,
    daemon: Process,
}

impl Touching {
    /// `None`: mounts are not allowed.
    fn new() -> Result<Option<Self>> {
        let mut rig = Rig { every: 1, ..Rig::new()? };
        let path = |name: &str| rig.folder.path().join(name);
        for name in ["conf", "reader", "tls", "configuration", "queue", "run"] {
            fs::create_dir(path(name))?;
        }
        let Some(space) = Space::new(&rig.folder, "true")? else { return Ok(None) };
        fs::write(path("conf/slurm.conf"), "")?;
        let reader = Imitation::new(&rig.folder, "reader/reader", "hello; serve")?;
        let behind = Sink::start(Manner::Record)?;
        let proxy = TlsProxy::start(&rig.folder, behind.port)?;
        fs::copy(&proxy.authority.ca, path("tls/ca.pem"))?;
        rig.others = format!(
            "{}reconnect_every = \"2s\"\ntls = true\nca_file = {:?}\n[queue]\ndir = {:?}\n",
            destination("tls", &format!("localhost:{}", proxy.port)),
            path("tls/ca.pem"),
            path("queue"),
        );
        let toml = rig
            .toml(&reader)
            .replace("[slurm]\n", &format!("[slurm]\nconf = {:?}\n", path("conf/slurm.conf")));
        let file = path("configuration/daemon.toml");
        fs::write(&file, format!("interval = \"1s\"\n{toml}"))?;
        let daemon = space.process(&rig.folder, "daemon", &slurm_graphite()?, false)?;
        let daemon = daemon.args(["run", "--config", &file.display().to_string()]);
        let daemon = daemon.env("RUNTIME_DIRECTORY", runtime(&rig.folder));
        Ok(Some(Self { rig, space, reader, proxy, behind, daemon }))
    }

    fn start(&mut self) -> Result<()> {
        start(&self.rig.folder, &mut self.daemon)?;
        self.is_well()
    }

    fn is_well(&self) -> Result<()> {
        wait::until("a daemon that is OK", SOON, || {
            status(&self.rig.folder, &[]).is_ok_and(|status| status.code == Some(0))
        })
        .with_context(|| format!("{:?} {:#?}", status(&self.rig.folder, &[]), self.daemon.lines()))
        .map(drop)
    }

    /// All that makes the daemon touch what hangs.
    fn ticks_go_on(&mut self) -> Result<()> {
        let before = self.rig.ticks().len();
        for _ in 0..3 {
            for reader in proc::children(self.daemon.pid().context("it has ended")?) {
                proc::signal(reader, proc::Signal::KILL)?;
            }
            self.daemon.signal(proc::Signal::HUP)?;
            self.behind.hang_up();
            self.proxy.process.signal(proc::Signal::HUP)?;
            self.rig.each_tick_arrives(&mut self.daemon)?;
        }
        ensure!(self.rig.ticks().len() >= before + 30);
        let status = status(&self.rig.folder, &[])?;
        ensure!(status.stdout.contains("✓ healthy"), "{status:?}");
        Ok(())
    }

    /// Lets it recover, and returns what it has done.
    fn recovers(mut self) -> Result<String> {
        let skip = self.daemon.lines().len();
        self.daemon.signal(proc::Signal::HUP)?;
        self.daemon.line_after(skip, "the new configuration is in use", SOON)?;
        self.is_well()?;
        ensure!(self.daemon.stop()?.status.success());
        Ok(format!("{} ticks, {} readers", self.rig.ticks().len(), self.reader.starts().len()))
    }
}

/// A file system of its own for the folder.
fn mount(touching: &Touching, path: &str) -> Result<Process> {
    let folder = &touching.rig.folder;
    let bindfs = touching.space.process(folder, "bindfs", &find_program("bindfs")?, false)?;
    let mut bindfs = bindfs.args(["-f", path, path]);
    bindfs.spawn()?;
    let mounted = || touching.space.run(folder, &format!("mountpoint -q {path}")).is_ok();
    wait::until("the mount", SOON, mounted)?;
    Ok(bindfs)
}

/// A SIGTERM had its effect after 17 s, and supervisord kills after 10.
fn stops_while_it_starts() -> Result<String> {
    let Some(mut touching) = Touching::new()? else { return Ok(SKIPPED.to_owned()) };
    let path = touching.rig.folder.path().join("queue").display().to_string();
    let mut bindfs = mount(&touching, &path)?;
    bindfs.freeze()?;
    touching.daemon.spawn()?;
    wait::pause(Duration::from_secs(3));
    touching.daemon.signal(proc::Signal::TERM)?;
    touching.daemon.line("has ended before it had started", Duration::from_secs(8))?;
    // The kernel ends no thread that waits for such a file system.
    bindfs.thaw()?;
    ensure!(touching.daemon.wait(SOON)?.status.success());
    ensure!(
        !touching.daemon.lines().iter().any(|line| line.contains("slurm-graphite has started"))
    );
    Ok("ended".to_owned())
}

/// The file system of that folder does not answer.
fn folder_hangs(name: &str) -> Result<String> {
    let Some(mut touching) = Touching::new()? else { return Ok(SKIPPED.to_owned()) };
    let path = touching.rig.folder.path().join(name).display().to_string();
    let mut bindfs = mount(&touching, &path)?;
    touching.start()?;
    bindfs.freeze()?;
    // It takes no lock of the folder: the daemon may hold one as long as this hangs, and no signal
    // would end the wait.
    let look = format!("timeout -s KILL 2 stat -f {path}");
    ensure!(touching.space.run(&touching.rig.folder, &look).is_err(), "{name} does not hang");
    touching.ticks_go_on()?;
    bindfs.thaw()?;
    touching.recovers()
}

/// A library that replaces getaddrinfo, and the file for HANGS: while it exists, no look-up ends.
pub(crate) fn hanging_names(folder: &Folder) -> Result<(PathBuf, PathBuf)> {
    let source = folder.write("names.c", NAMES)?;
    let [library, hangs] = ["names.so", "hangs"].map(|name| folder.path().join(name));
    let args = ["-shared", "-fPIC", "-o", &library.display().to_string(), &source];
    Invocation::of_program(folder, &find_program("cc")?, &args)?.succeed()?;
    Ok((library, hangs))
}

fn names_hang() -> Result<String> {
    let Some(mut touching) = Touching::new()? else { return Ok(SKIPPED.to_owned()) };
    let (library, hangs) = hanging_names(&touching.rig.folder)?;
    touching.daemon.set_env("LD_PRELOAD", &library);
    touching.daemon.set_env("HANGS", &hangs);
    touching.start()?;
    fs::write(&hangs, "")?;
    touching.ticks_go_on()?;
    touching.daemon.line("looking up localhost: no answer yet", SOON)?;
    fs::remove_file(&hangs)?;
    touching.recovers()
}
