//! One thread serves every peer: whatever one of them sends, or does not read, another destination
//! gets each tick.

pub(crate) mod hangs;
pub(crate) mod trace;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::{Folder, Imitation, Manner, Process, Sink, TlsProxy, destination, proc, wait};

use super::status::{configured, daemon_every, runtime, start, status};

/// So many ticks in a row.
const TICKS: usize = 10;

/// A daemon with a healthy destination and these others.
struct Rig {
    /// The seconds between two ticks.
    every: i64,
    folder: Folder,
    healthy: Sink,
    others: String,
    env: Vec<(&'static str, String)>,
}

impl Rig {
    fn new() -> Result<Self> {
        let (folder, healthy) = (Folder::new()?, Sink::start(Manner::Record)?);
        Ok(Self { every: 2, folder, healthy, others: String::new(), env: Vec::new() })
    }

    fn start(&self) -> Result<Process> {
        let toml = self.toml(&Imitation::good(&self.folder)?);
        daemon_every("2s", &self.folder, &toml, &self.env)
    }

    fn toml(&self, reader: &Imitation) -> String {
        format!("[slurm]\n{}{}{}", reader.toml(), self.healthy.destination("healthy"), self.others)
    }

    /// The timestamps that the healthy destination has.
    fn ticks(&self) -> BTreeSet<i64> {
        let (bytes, is_tick) =
            (self.healthy.bytes(), |line: &&str| line.contains(".gauge-ticks_run "));
        let text = String::from_utf8_lossy(&bytes);
        text.lines()
            .filter(is_tick)
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect()
    }

    /// Waits for that many ticks; none between the first and the last is missing.
    fn each_tick_arrives(&self, daemon: &mut Process) -> Result<()> {
        let after = self.ticks().len();
        wait::until("ticks at the healthy destination", wait::LIMIT, || {
            self.ticks().len() >= after + TICKS
        })?;
        let ticks = self.ticks();
        let holes: Vec<_> =
            ticks.iter().zip(ticks.iter().skip(1)).filter(|(a, b)| *b - *a != self.every).collect();
        ensure!(holes.is_empty(), "missing between {holes:?}: {:#?}", daemon.lines());
        Ok(())
    }
}

/// As long as bytes came as fast as they were read, the daemon did nothing else.
#[test]
fn a_receiver_that_sends_without_end_costs_the_others_no_tick_and_is_left_alone() {
    let mut rig = Rig::new().unwrap();
    let (plain, behind) = (Sink::start(Manner::Talk).unwrap(), Sink::start(Manner::Talk).unwrap());
    let proxy = TlsProxy::start(&rig.folder, behind.port).unwrap();
    rig.others = format!(
        "{}{}tls = true\nca_file = {:?}\n",
        plain.destination("plain"),
        destination("tls", &format!("localhost:{}", proxy.port)),
        proxy.authority.ca
    );
    let mut daemon = rig.start().unwrap();
    rig.each_tick_arrives(&mut daemon).unwrap();
    let status = status(&rig.folder, &[]).unwrap().stdout;
    for name in ["plain", "tls"] {
        let line =
            status.lines().find(|line| line.starts_with(&format!("✗ {name}"))).unwrap_or_default();
        assert!(line.contains("what answers is not Carbon"), "{name}: {status}");
    }
    // Twenty seconds, a call a minute.
    assert!(
        plain.accepted() <= 2 && behind.accepted() <= 2,
        "{} {}",
        plain.accepted(),
        behind.accepted()
    );
    assert!(daemon.stop().unwrap().status.success());
}

/// After some messages, the kernel has no room for another.
#[test]
fn a_service_manager_that_does_not_read_costs_no_tick() {
    let mut rig = Rig::new().unwrap();
    let path = rig.folder.path().join("notify");
    let _unread = UnixDatagram::bind(&path).unwrap();
    rig.env.push(("NOTIFY_SOCKET", path.display().to_string()));
    rig.env.push(("WATCHDOG_USEC", "300000".to_owned()));
    let mut daemon = rig.start().unwrap();
    rig.each_tick_arrives(&mut daemon).unwrap();
    assert!(daemon.stop().unwrap().status.success());
}

#[test]
fn clients_of_the_status_socket_that_read_nothing_or_connect_without_end_cost_no_tick() {
    let rig = Rig::new().unwrap();
    let mut daemon = rig.start().unwrap();
    let socket = runtime(&rig.folder).join("status.sock");
    let (ends, asked) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // They stay, and never read.
        let deaf: Vec<UnixStream> =
            (0..200).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
        assert!(deaf.len() > 100, "{}", deaf.len());
        for reads in [false, true] {
            let (socket, ends, asked) = (&socket, &ends, &asked);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let Ok(mut client) = UnixStream::connect(socket) else { continue };
                    if reads && client.read_to_end(&mut Vec::new()).is_ok_and(|read| read > 100) {
                        asked.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
        let each = rig.each_tick_arrives(&mut daemon);
        ends.store(true, Ordering::Relaxed);
        each.unwrap();
    });
    assert!(asked.load(Ordering::Relaxed), "nobody was answered");
    assert!(daemon.stop().unwrap().status.success());
}

/// As long as nobody read the log, nothing was collected, and no signal ended the daemon.
#[test]
fn a_log_that_nobody_reads_costs_no_tick_and_what_was_dropped_is_counted() {
    const FLOOD: u64 = 20_000;
    let mut rig = Rig::new().unwrap();
    let body = format!("hello; seq -f '%.0f flood, {}' {FLOOD} >&2; serve", "x".repeat(80));
    let reader = Imitation::new(&rig.folder, "reader", &body).unwrap();
    rig.others = "[log]\nlevel = \"debug\"\n".to_owned();
    let (log, stderr) = std::io::pipe().unwrap();
    let daemon = configured("2s", &rig.folder, &rig.toml(&reader)).unwrap();
    let mut daemon = daemon.stderr(OwnedFd::from(stderr).into()).env("TZ", "HERE-5:30");
    start(&rig.folder, &mut daemon).unwrap();
    rig.each_tick_arrives(&mut daemon).unwrap();

    // Somebody reads again.
    let mut lines = BufReader::new(log).lines();
    let (mut others, mut floods) = (0, 0);
    let dropped: u64 = loop {
        let line = lines.next().unwrap().unwrap();
        assert!(line[10..].starts_with('T') && line[19..].starts_with("+05:30 "), "{line}");
        if line.contains(" flood, ") {
            floods += 1;
        } else if let Some((_, count)) = line.split_once("lines of the log were dropped") {
            break count.rsplit("lines=").next().unwrap().trim().parse().unwrap();
        } else {
            others += 1;
        }
    };
    assert!(floods > 100 && dropped > 100, "{floods} and {dropped}");
    let all = floods + dropped;
    assert!(all >= FLOOD && dropped <= FLOOD + others + 1000, "{floods} and {dropped} of {FLOOD}");

    // The next reader fills it once more.
    proc::signal(*reader.starts().last().unwrap(), proc::Signal::KILL).unwrap();
    wait::until("another reader", wait::LIMIT, || reader.starts().len() > 1).unwrap();
    rig.each_tick_arrives(&mut daemon).unwrap();
    let ended = daemon.stop().unwrap();
    assert!(ended.status.success() && ended.after < Duration::from_secs(5), "{ended:?}");
}
