//! Whatever the daemon's own requests to munged and slurmctld wait for, each tick is sent, `status`
//! and the log name what to look at, and the loop's thread makes no call that can wait.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;
use sandbox::{Folder, Manner, Process, Sink, log, wait};

use super::{controller, refusals, with_port};
use crate::SOON;
use crate::one_thread::trace::{is_harmless, trace};
use crate::status::{daemon_every, status};

/// Connections to a local socket that are never used, until it accepts no more.
fn fill_queue(folder: &Folder) -> Vec<OwnedFd> {
    let address = SocketAddrUnix::new(folder.path().join("munge/sock")).unwrap();
    let connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::connect(&socket, &address).ok().map(|()| socket)
    };
    std::iter::from_fn(connect).take(10_000).collect()
}

struct Ticks<'a> {
    folder: &'a Folder,
    sink: &'a Sink,
    daemon: &'a mut Process,
}

impl Ticks<'_> {
    /// (timestamp, whether slurmctld has answered) of every tick.
    fn all(&self) -> BTreeSet<(i64, bool)> {
        let text = String::from_utf8_lossy(&self.sink.bytes()).into_owned();
        let lines = text.lines().filter(|line| line.contains(".gauge-slurmctld_up "));
        lines
            .filter_map(|line| {
                let mut words = line.split(' ').skip(1);
                let is_up = words.next()?.starts_with('1');
                Some((words.next()?.parse().ok()?, is_up))
            })
            .collect()
    }

    /// Waits until `status` has these words, then for ticks that are of this state.
    fn are(&self, is_up: bool, words: &str) {
        let said = || status(self.folder, &[]).unwrap().stdout;
        wait::until(words, SOON, || said().contains(words))
            .unwrap_or_else(|error| panic!("{error}: {} {:#?}", said(), self.daemon.lines()));
        let after = self.all().last().unwrap().0;
        wait::until("ticks", SOON, || {
            self.all().iter().filter(|(at, up)| *at > after && *up == is_up).count() >= 3
        })
        .unwrap();
    }
}

#[test]
fn munged_and_slurmctld_stopped_at_each_step_cost_no_tick_nor_does_a_reload_meanwhile() {
    let (folder, mut slurm) = controller();
    let sink = Sink::start(Manner::Record).unwrap();
    let toml = |conf: &std::path::Path, timeout: u32| {
        format!(
            "[slurm]\nconf = {conf:?}\nreader = \"native\"\ntimeout = \"{timeout}s\"\n{}",
            sink.destination("all")
        )
    };
    let mut daemon = daemon_every("1s", &folder, &toml(slurm.conf(), 4), &[]).unwrap();
    let rewrite = |text: String| {
        fs::write(folder.path().join("daemon.toml"), format!("interval = \"1s\"\n{text}")).unwrap();
    };
    wait::until("a tick", SOON, || !sink.bytes().is_empty()).unwrap();
    let ticks = Ticks { folder: &folder, sink: &sink, daemon: &mut daemon };
    ticks.are(true, "statistics, native, in the daemon's process");

    let mut strace = trace(&folder, ticks.daemon.pid().unwrap()).unwrap();

    slurm.munged.freeze().unwrap();
    ticks.are(false, "munge/sock: timed out");
    let full = fill_queue(&folder);
    assert!(full.len() < 10_000);
    ticks.are(false, "munge/sock: timed out");
    drop(full);
    slurm.munged.thaw().unwrap();
    ticks.are(true, "✓ slurmctld");

    slurm.slurmctld.freeze().unwrap();
    ticks.are(false, "no reply in time");
    // In the middle of a round: another [slurm], then the old one.
    let copy = with_port(&slurm, "copy.conf", slurm.slurmctld_port);
    for (conf, timeout) in [(copy.as_path(), 5), (slurm.conf(), 4)] {
        rewrite(toml(conf, timeout));
        ticks.daemon.signal(Signal::HUP).unwrap();
        ticks.are(false, "no reply in time");
    }
    slurm.slurmctld.thaw().unwrap();
    ticks.are(true, "✓ slurmctld");

    // It accepts, and nothing comes; and what is not there.
    let silent = Sink::start(Manner::Discard).unwrap();
    for (port, words) in [(silent.port, "no reply in time"), (9, "no connection to 127.0.0.1")] {
        rewrite(toml(&with_port(&slurm, "other.conf", port), 4));
        ticks.daemon.signal(Signal::HUP).unwrap();
        ticks.are(false, words);
    }
    rewrite(toml(slurm.conf(), 4));
    ticks.daemon.signal(Signal::HUP).unwrap();
    ticks.are(true, "✓ slurmctld");
    slurm.munged.kill().unwrap();
    ticks.are(false, "munge/sock: Connection refused");
    slurm.munged.start().unwrap();
    ticks.are(true, "✓ slurmctld");

    // 88 bytes are the answer who listens.
    let signs = ["epoll_wait(", "CLONE_THREAD", "\"/proc/self/fd/", "EAGAIN", ", 88)"];
    is_harmless(&mut strace, &signs);

    let found: Vec<i64> = ticks.all().into_iter().map(|(at, _)| at).collect();
    let holes: Vec<_> = found.windows(2).filter(|two| two[1] != two[0] + 1).collect();
    assert!(holes.is_empty(), "{holes:?}: {:#?}", ticks.daemon.lines());
    let missed = log::entries(ticks.daemon)
        .into_iter()
        .find(|entry| entry.message.contains("ticks were missed"));
    assert!(missed.is_none(), "{missed:?}");
    assert!(refusals(&slurm.slurmctld) <= 3, "{:#?}", slurm.slurmctld.lines());
    assert!(ticks.daemon.stop().unwrap().status.success());
}
