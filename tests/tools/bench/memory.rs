//! The growth of memory in 50,000 ticks: a collector with a fast clock reads the real slurmctld,
//! and a peer counts ticks.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::{Process, Sandbox, proc};
use tools::{above, say};

use crate::peer::Peer;
use crate::turns::start;

/// Ticks a second of the fast clock; a reading takes much less than the 4 ms between them.
const RATE: u64 = 250;
/// The sender's rate (carbon/rate.rs) remembers each tick of the last minute in real time: 15,000
/// instead of 60.
const FIRST: u64 = 20_000;
const LAST: u64 = 50_000;
/// KiB of memory that may be used more at the last tick than at the first mark.
const MOST_GROWTH: f64 = 256.0;

/// A daemon built with the feature `fast-clock`.
pub(crate) fn fast_program() -> Result<PathBuf> {
    std::env::var_os("SLURM_GRAPHITE_FAST_BIN")
        .map(PathBuf::from)
        .context("SLURM_GRAPHITE_FAST_BIN is not set: use `make bench`")
}

/// Runs the fast collector. Returns the targets that were missed.
pub(crate) fn growth(sandbox: &Sandbox) -> Result<Vec<String>> {
    let program = fast_program()?;
    let peer = Peer::start()?;
    let reader = sandbox::slurm_graphite()?.with_file_name("slurm-graphite-reader");
    let toml = format!(
        "[slurm]\nconf = {:?}\nreader = {reader:?}\n[[carbon]]\naddress = {:?}\n[queue]\n\
            resend_window = \"0s\"\n",
        sandbox.slurm.conf(),
        peer.address
    );
    let collector = Process::new(&sandbox.folder, "fast", program);
    let collector = collector.env("SLURM_GRAPHITE_CLOCK_RATE", RATE.to_string());
    let mut collector = start(collector, &sandbox.folder, "fast", &toml)?;
    let daemon = collector.pid().context("the collector has ended")?;
    let reader = proc::children(daemon).first().copied().context("the collector has no reader")?;
    let memory = |ticks: u64| -> Result<[u64; 2]> {
        peer.until(ticks, Duration::from_secs(60 + 4 * ticks / RATE))?;
        let kib = |pid| proc::rss_kib(pid).context("a process has ended");
        Ok([kib(daemon)?, kib(reader)?])
    };
    let (first, last) = (memory(FIRST)?, memory(LAST)?);
    let ticks = peer.ticks();
    collector.stop()?;
    say(&format!("| RSS after | {FIRST} ticks | {ticks} ticks |\n|---|---|---|\n"))?;
    let mut missed = Vec::new();
    for (name, (first, last)) in
        ["slurm-graphite", "slurm-graphite-reader"].iter().zip(first.iter().zip(last))
    {
        say(&format!("| {name} | {first} KiB | {last} KiB |\n"))?;
        missed.extend(above([(
            &format!("KiB more of {name}"),
            last as f64 - *first as f64,
            MOST_GROWTH,
        )]));
    }
    Ok(missed)
}
