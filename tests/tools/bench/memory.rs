//! How 50,000 ticks change memory: a collector with a fast clock reads the real slurmctld, and a peer counts
//! ticks.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::{Process, Sandbox, proc};

use crate::peer::Peer;
use crate::turns::start;
use crate::unreached;

/// Ticks a second of the fast clock; a reading takes much less than the 4 ms between them.
const RATE: u64 = 250;
/// The sender's rate (carbon/rate.rs) remembers each tick of the last minute in real time: 15,000 instead of 60.
const FIRST: u64 = 20_000;
const LAST: u64 = 50_000;
/// How much more memory may be used at the last tick than at the first mark.
const MOST_GROWTH_KIB: u64 = 256;

/// Memory at the first mark and at the last, KiB, of daemon and reader.
pub(crate) struct Growth {
    daemon: [u64; 2],
    reader: [u64; 2],
    ticks: u64,
}

/// Runs the fast collector. `SLURM_GRAPHITE_FAST_BIN` names one built with the feature `fast-clock`.
pub(crate) fn growth(sandbox: &Sandbox) -> Result<Growth> {
    let program: PathBuf = std::env::var_os("SLURM_GRAPHITE_FAST_BIN")
        .context("SLURM_GRAPHITE_FAST_BIN is not set: use `make bench`")?
        .into();
    let peer = Peer::start()?;
    let reader = sandbox::slurm_graphite()?.with_file_name("slurm-graphite-reader");
    let toml = format!(
        "[slurm]\nconf = {:?}\nreader = {reader:?}\n[[carbon]]\naddress = {:?}\n[queue]\nresend_window = \"0s\"\n",
        sandbox.slurm.conf(),
        peer.address
    );
    let collector = Process::new(&sandbox.folder, "fast", program);
    let collector = collector.env("SLURM_GRAPHITE_CLOCK_RATE", RATE.to_string());
    let mut collector = start(collector, &sandbox.folder, "fast", &toml)?;
    let daemon_pid = collector.pid().context("the collector has ended")?;
    let reader_pid = proc::children(daemon_pid).first().copied().context("the collector has no reader")?;
    let memory = || -> Result<[u64; 2]> {
        let kib = |pid| proc::rss_kib(pid).context("a process has ended");
        Ok([kib(daemon_pid)?, kib(reader_pid)?])
    };
    let until = |ticks: u64| peer.until(ticks, Duration::from_secs(60 + 4 * ticks / RATE));
    until(FIRST)?;
    let first = memory()?;
    until(LAST)?;
    let last = memory()?;
    let ticks = peer.ticks();
    collector.stop()?;
    Ok(Growth { daemon: [first[0], last[0]], reader: [first[1], last[1]], ticks })
}

impl Growth {
    pub(crate) fn table(&self) -> String {
        let row = |name: &str, [first, last]: [u64; 2]| format!("| {name} | {first} KiB | {last} KiB |\n");
        [
            format!("| RSS after | {FIRST} ticks | {} ticks |\n|---|---|---|\n", self.ticks),
            row("slurm-graphite", self.daemon),
            row("slurm-graphite-reader", self.reader),
        ]
        .concat()
    }

    pub(crate) fn missed(&self) -> Vec<String> {
        let aim = |[first, last]: [u64; 2]| {
            (last <= first + MOST_GROWTH_KIB, format!("memory grew from {first} to {last} KiB"))
        };
        unreached([aim(self.daemon), aim(self.reader)])
    }
}
