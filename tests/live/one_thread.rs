//! One thread serves every peer: whatever one of them sends, or does not read, another destination gets each tick.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use sandbox::tls::{Authority, stunnel};
use sandbox::{Folder, Imitation, Manner, Process, Sink, destination, run, slurm_graphite, wait};

/// So many ticks in a row, two seconds apart.
const TICKS: usize = 10;

/// A daemon with a healthy destination and these others.
struct Rig {
    folder: Folder,
    healthy: Sink,
    others: String,
    env: Vec<(&'static str, String)>,
}

impl Rig {
    fn new() -> Result<Self> {
        let (folder, healthy) = (Folder::new()?, Sink::start(Manner::Record)?);
        std::fs::create_dir(folder.path().join("run"))?;
        let run = folder.path().join("run").display().to_string();
        Ok(Self { folder, healthy, others: String::new(), env: vec![("RUNTIME_DIRECTORY", run)] })
    }

    fn start(&self) -> Result<Process> {
        let config = self.folder.path().join("daemon.toml");
        let reader = Imitation::good(&self.folder)?.toml();
        let healthy = destination("healthy", &self.healthy.address());
        let text =
            format!("interval = \"2s\"\n[slurm]\n{reader}{healthy}protocol = \"plaintext\"\n{}", self.others);
        std::fs::write(&config, text)?;
        let mut process = Process::new(&self.folder, "daemon", slurm_graphite()?).args([
            "run",
            "--config",
            &config.display().to_string(),
        ]);
        for (name, value) in &self.env {
            process = process.env(name, value);
        }
        process.start()?;
        let socket = self.folder.path().join("run/status.sock");
        wait::until("its socket", wait::LIMIT, || socket.exists())?;
        Ok(process)
    }

    /// The timestamps that the healthy destination has.
    fn ticks(&self) -> BTreeSet<i64> {
        let (bytes, is_tick) = (self.healthy.bytes(), |line: &&str| line.contains(".gauge-ticks_run "));
        let text = String::from_utf8_lossy(&bytes);
        text.lines().filter(is_tick).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
    }

    /// Waits for that many ticks; none between the first and the last is missing.
    fn each_tick_arrives(&self, daemon: &mut Process) -> Result<()> {
        let after = self.ticks().len();
        wait::until("ticks at the healthy destination", wait::LIMIT, || self.ticks().len() >= after + TICKS)?;
        let ticks = self.ticks();
        let holes: Vec<_> = ticks.iter().zip(ticks.iter().skip(1)).filter(|(a, b)| *b - *a != 2).collect();
        ensure!(holes.is_empty(), "missing between {holes:?}: {:#?}", daemon.lines());
        Ok(())
    }

    fn status(&self) -> Result<String> {
        let socket = self.folder.path().join("run/status.sock").display().to_string();
        let args = ["status", "--socket", &socket];
        Ok(run(&self.folder, &args)?.stdout)
    }
}

/// As long as bytes came as fast as they were read, the daemon did nothing else.
#[test]
fn a_receiver_that_sends_without_end_costs_the_others_no_tick_and_is_left_alone() {
    let mut rig = Rig::new().unwrap();
    let (plain, behind) = (Sink::start(Manner::Talk).unwrap(), Sink::start(Manner::Talk).unwrap());
    let authority = Authority::new(&rig.folder, "ca").unwrap();
    let server = authority.issue(&rig.folder, "server", "DNS:localhost", true).unwrap();
    let (mut proxy, port) = stunnel(&rig.folder, "stunnel", behind.port, &server, "").unwrap();
    proxy.start().unwrap();
    rig.others = format!(
        "{}protocol = \"plaintext\"\n{}tls = true\nca_file = {:?}\n",
        destination("plain", &plain.address()),
        destination("tls", &format!("localhost:{port}")),
        authority.ca
    );
    let mut daemon = rig.start().unwrap();
    rig.each_tick_arrives(&mut daemon).unwrap();
    let status = rig.status().unwrap();
    for name in ["plain", "tls"] {
        let line = status.lines().find(|line| line.starts_with(&format!("✗ {name}"))).unwrap_or_default();
        assert!(line.contains("what answers is not Carbon"), "{name}: {status}");
    }
    // Twenty seconds, a call a minute.
    assert!(plain.accepted() <= 2 && behind.accepted() <= 2, "{} {}", plain.accepted(), behind.accepted());
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
    let socket = rig.folder.path().join("run/status.sock");
    let (ends, asked) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // They stay, and never read.
        let deaf: Vec<UnixStream> = (0..200).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
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
