//! A daemon on the host of each of two controllers, with one tick a second; everything that each
//! sends is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::pair::{NAMES, on_host};
use crate::proc::Signal;
use crate::{Cables, Folder, Manner, Process, Recorded, Sink, slurm_graphite, wait};

/// Where what it sends is recorded.
#[derive(Debug)]
enum Received {
    Sink(Sink),
    File(PathBuf),
}

/// A daemon that follows slurmctld.
#[derive(Debug)]
pub struct FollowingDaemon {
    /// The daemon itself.
    pub process: Process,
    /// The name of its configuration file in the folder.
    file: String,
    received: Received,
    recorded: Recorded,
}

impl FollowingDaemon {
    /// The daemon on the host of the controller `index`, not started yet. `more` is appended to the
    /// configuration.
    pub fn new(folder: &Folder, index: usize, more: &str) -> Result<Self> {
        Self::on(folder, NAMES.get(index).copied().unwrap_or_default(), "slurm.conf", more)
    }

    /// The daemon on the host with this name, with another slurm.conf in the folder, which has its
    /// own `hosts` and a folder `run`.
    pub fn on(folder: &Folder, host: &str, conf: &str, more: &str) -> Result<Self> {
        let sink = Sink::start(Manner::Record)?;
        Self::with(
            folder,
            host,
            conf,
            &(sink.destination("sink") + more),
            Received::Sink(sink),
            None,
        )
    }

    /// The daemon on the host of the controller `index`, with a network that can be cut, which
    /// sends to its recorder and to Carbon.
    pub fn cabled(folder: &Folder, cables: &Cables, index: usize, more: &str) -> Result<Self> {
        let host = NAMES.get(index).copied().unwrap_or_default();
        let (more, received) =
            (cables.destinations(index) + more, Received::File(cables.recorded(index)));
        Self::with(folder, host, "slurm.conf", &more, received, Some(cables.network(index)))
    }

    fn with(
        folder: &Folder,
        host: &str,
        conf: &str,
        more: &str,
        received: Received,
        network: Option<u32>,
    ) -> Result<Self> {
        let name = format!("daemon-{host}");
        let home = folder.path().display();
        let toml = format!(
            "interval = \"1s\"\n[slurm]\nconf = \"{home}/{conf}\"\nfollow = \"slurmctld\"\n[log]\n\
             level = \"debug\"\n[queue]\ndir = \"{home}/queue-{host}\"\n{more}"
        );
        let file = format!("{name}.toml");
        folder.write(&file, &toml)?;
        let process = graphite(folder, &name, host, network, &["run"])?;
        Ok(Self { process, file, received, recorded: Recorded::default() })
    }

    /// Reloads it with another `[slurm] timeout`.
    pub fn reload(&mut self, folder: &Folder, timeout: &str) -> Result<()> {
        let before = fs::read_to_string(folder.path().join(&self.file))?;
        folder.write(
            &self.file,
            &before.replace("[slurm]\n", &format!("[slurm]\ntimeout = \"{timeout}\"\n")),
        )?;
        let said = self.process.lines().len();
        self.process.signal(Signal::HUP)?;
        self.process.line_after(said, "the new configuration is in use", wait::LIMIT)?;
        Ok(())
    }

    /// The output of `check --connect` on the host with this name, with the configuration of its
    /// daemon.
    pub fn doctor(folder: &Folder, host: &str) -> Result<String> {
        let mut doctor = graphite(folder, "doctor", host, None, &["check", "--connect"])?;
        doctor.spawn()?;
        doctor.wait(wait::LIMIT)?;
        Ok(doctor.lines().join("\n"))
    }

    /// Everything sent so far.
    pub fn recorded(&mut self) -> &Recorded {
        match &self.received {
            Received::Sink(sink) => sink.with_bytes(|bytes| self.recorded.take(bytes)),
            Received::File(path) => self.recorded.take(&fs::read(path).unwrap_or_default()),
        }
        &self.recorded
    }

    /// Its recorder closes connections, or records again.
    pub fn receives(&self, does: bool) {
        if let Received::Sink(sink) = &self.received {
            sink.behave(if does { Manner::Record } else { Manner::Close });
            sink.hang_up();
        }
    }

    /// Waits for `ticks` of its own ticks after `since` in which it was, or was not, the daemon
    /// that publishes. Returns the timestamp of the first.
    pub fn is(
        &mut self,
        publishes: bool,
        ticks: usize,
        since: f64,
        limit: Duration,
    ) -> Result<u64> {
        let what = format!("{ticks} ticks that are published: {publishes}");
        wait::until_some(&what, limit, || {
            let standby =
                self.recorded().own("standby").into_iter().filter(|(at, _)| *at as f64 > since);
            let matching: Vec<u64> = standby
                .filter(|(_, value)| (*value < 0.5) == publishes)
                .map(|(at, _)| at)
                .collect();
            matching.first().copied().filter(|_| matching.len() >= ticks)
        })
    }

    /// Slots with slurmctld's statistics.
    pub fn slots(&mut self) -> BTreeSet<u64> {
        self.recorded().statistics("jobs_submitted").into_keys().collect()
    }

    /// Slots in which it became the daemon that publishes.
    pub fn handovers(&mut self) -> BTreeSet<u64> {
        self.recorded()
            .own("handover")
            .into_iter()
            .filter(|(_, value)| *value > 0.5)
            .map(|(at, _)| at)
            .collect()
    }

    /// Checks that figures of the cluster are in the slots that it reports as its own, and in no
    /// others. Returns the slots without them: the daemon must have counted at least as many points
    /// in `points_superseded`.
    pub fn check(&mut self) -> Result<BTreeSet<u64>> {
        let recorded = self.recorded();
        let standby = recorded.own("standby");
        // A tick has two batches, and the second one may arrive first.
        let newest = standby.last_key_value().map_or(0, |(at, _)| *at);
        let mut points = BTreeMap::<u64, u64>::new();
        for (path, values) in recorded.slurm() {
            for at in values.range(..newest).map(|(at, _)| *at) {
                let value = standby.get(&at);
                ensure!(value.is_some_and(|value| *value < 0.5), "{path} at {at}: {value:?}");
                *points.entry(at).or_default() +=
                    u64::from(path.starts_with("cluster.slurm_sched_stats."));
            }
        }
        let slots = recorded.statistics("jobs_submitted");
        let mut holes = BTreeSet::new();
        for (at, value) in standby.range(..newest) {
            let is_in = slots.contains_key(at);
            ensure!(*value < 0.5 || !is_in, "standby is {value} at {at}");
            holes.extend((*value < 0.5 && !is_in).then_some(*at));
        }
        let least = points.into_values().filter(|count| *count > 0).min().unwrap_or_default();
        let superseded = recorded.superseded();
        ensure!(
            superseded >= (holes.len() as u64 * least) as f64,
            "standby is 0 at {holes:?} without figures, and only {superseded} points are counted"
        );
        Ok(holes)
    }
}

/// `slurm-graphite` with these words, on the host with this name, with the configuration of its
/// daemon.
fn graphite(
    folder: &Folder,
    log: &str,
    host: &str,
    network: Option<u32>,
    words: &[&str],
) -> Result<Process> {
    let file = folder.path().join(format!("daemon-{host}.toml"));
    let process = on_host(folder, log, host, network)?.args([slurm_graphite()?]);
    Ok(process.args(words.iter().copied()).args(["--config"]).args([file]))
}
