//! A daemon with a durable queue, and a Carbon whose points are counted, for the tests of losses.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::{
    Ahead, Carbon, Collected, Entry, Findings, Folder, Imitation, Points, Process, Space, carbon, now, proc,
    slurm_graphite, wait,
};

/// Longer than anything should take on a busy machine.
const PATIENCE: Duration = wait::LIMIT;

/// What the daemon logs about a destination when it ends and nothing is left.
pub const ALL_READ: &str = "every tick was read by the receiver";

/// The daemon's configuration.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Keys before the first table, and tables of collectors.
    pub top: String,
    /// The `[slurm]` table's keys; `None`: an imitated reader that does everything right.
    pub slurm: Option<String>,
    /// Additional keys of `[queue]`; the folder is already set.
    pub queue: String,
    /// The `[[carbon]]` tables.
    pub destinations: String,
}

impl Plan {
    /// A plan with one destination and a short time-out.
    pub fn to(address: &str) -> Self {
        Self { destinations: destination("carbon", address), ..Self::default() }
    }
}

/// A `[[carbon]]` table; more keys may follow.
pub fn destination(name: &str, address: &str) -> String {
    format!("[[carbon]]\nname = \"{name}\"\naddress = \"{address}\"\nstall_timeout = \"3s\"\n")
}

/// The daemon, the Carbon, and the record of what was collected.
#[derive(Debug)]
pub struct Stage {
    /// `slurm-graphite run` with an imitated reader, one tick a second unless `every` changes it.
    pub daemon: Process,
    /// What it has collected.
    pub collected: Collected,
    /// The Carbon that the points are sent to.
    pub carbon: Carbon,
    /// More Carbons, if several receive the points.
    pub more: Vec<Carbon>,
    interval: String,
    queue: PathBuf,
    /// The last field, so that it is dropped last.
    pub folder: Folder,
}

impl Stage {
    /// A running Carbon, and a daemon for it that is not started yet.
    pub fn new(options: &carbon::Options) -> Result<Self> {
        let folder = Folder::new()?;
        let mut carbon = Carbon::new(&folder, "carbon", options)?;
        carbon.process.start()?;
        Self::with(folder, carbon)
    }

    /// The same with wide limits, and with the daemon started; returns when points have arrived.
    pub fn running() -> Result<Self> {
        let mut stage = Self::new(&carbon::Options::default())?;
        stage.daemon.spawn()?;
        stage.steady()?;
        Ok(stage)
    }

    /// The same with this Carbon.
    pub fn with(folder: Folder, carbon: Carbon) -> Result<Self> {
        let daemon = Process::new(&folder, "daemon", slurm_graphite()?).args(flags(&folder, "1s"));
        let collected = Collected::new(daemon.log());
        let queue = folder.path().join("queue");
        let interval = "1s".to_owned();
        let stage = Self { daemon, collected, carbon, more: Vec::new(), interval, queue, folder };
        stage.configure(&Plan::to(&stage.carbon.address()))?;
        Ok(stage)
    }

    /// Puts the daemon, which must not have been started, into namespaces.
    pub fn move_into(&mut self, space: &Space, net: bool) -> Result<()> {
        let flags = flags(&self.folder, &self.interval);
        self.daemon = space.process(&self.folder, "daemon", &slurm_graphite()?, net)?.args(flags);
        Ok(())
    }

    /// Sets another interval for the daemon, which must not have been started.
    pub fn every(&mut self, interval: &str) -> Result<()> {
        self.interval = interval.to_owned();
        let flags = flags(&self.folder, interval);
        self.daemon = Process::new(&self.folder, "daemon", slurm_graphite()?).args(flags);
        Ok(())
    }

    /// Sets another clock for the daemon, which must not have been started.
    pub fn under(&mut self, clock: &Ahead) -> Result<()> {
        let flags = flags(&self.folder, &self.interval);
        self.daemon = clock.over(Process::new(&self.folder, "daemon", slurm_graphite()?).args(flags));
        Ok(())
    }

    /// Writes the daemon's configuration, for its next start.
    pub fn configure(&self, plan: &Plan) -> Result<()> {
        let Plan { top, slurm, queue, destinations } = plan;
        let reader = slurm.clone().map_or_else(|| Ok(Imitation::good(&self.folder)?.toml()), anyhow::Ok)?;
        let dir = self.queue().display().to_string();
        let drain = if top.contains("drain_timeout") { "" } else { "drain_timeout = \"20s\"\n" };
        let text = format!("{drain}{top}[slurm]\n{reader}[queue]\ndir = \"{dir}\"\n{queue}{destinations}");
        Ok(fs::write(self.folder.path().join("daemon.toml"), text)?)
    }

    /// The queue's folder.
    pub fn queue(&self) -> PathBuf {
        self.queue.clone()
    }

    /// Sets another folder for the queue, before the next [`Stage::configure`].
    pub fn keep_queue_in(&mut self, folder: PathBuf) {
        self.queue = folder;
    }

    /// Waits until Carbon has three ticks of every series on disk. A Carbon that is killed while it creates a file
    /// leaves it broken for ever, and one with the shipped limits creates few files: both would look like our losses.
    pub fn steady(&mut self) -> Result<()> {
        self.ticks(3)?;
        let ticks = self.collected.counted();
        let series: BTreeSet<String> = ticks.flat_map(|(_, points)| points.keys().cloned()).collect();
        wait::until("points of every series in whisper", PATIENCE, || {
            series.iter().all(|path| self.carbon.series(path).is_ok_and(|series| !series.points.is_empty()))
        })?;
        Ok(())
    }

    /// Waits until the next tick is in the queue.
    pub fn tick(&mut self) -> Result<()> {
        self.ticks(1)
    }

    /// Waits until `count` more ticks are in the queue.
    pub fn ticks(&mut self, count: usize) -> Result<()> {
        self.collected.look()?;
        let before = self.collected.counted().count();
        let collected = &mut self.collected;
        wait::until_some("ticks", Duration::from_secs(count as u64) + PATIENCE, || match collected.look() {
            Ok(()) => (collected.counted().count() >= before + count).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        })?
    }

    /// Waits for the first entry of the daemon's log after `since` with these words.
    pub fn said(&mut self, since: f64, words: &str) -> Result<Entry> {
        let collected = &mut self.collected;
        wait::until_some(&format!("{words:?} in the log"), PATIENCE, || {
            collected.look().ok()?;
            collected.entries().iter().find(|entry| entry.at > since && entry.line.contains(words)).cloned()
        })
    }

    /// Waits until the daemon has a connection that was made after `since`.
    pub fn connected(&mut self, since: f64) -> Result<()> {
        self.said(since, "\"connected").map(drop)
    }

    /// Sends SIGTERM to a daemon that has sent everything, and requires that it says so. Returns what Carbon has.
    pub fn finish(&mut self) -> Result<Findings> {
        // A stop leaves on disk what the backlog's rate does not let through.
        self.tick()?;
        let collected = &mut self.collected;
        wait::until("an empty queue", 5 * PATIENCE, || {
            let waits = |path: &str| {
                path.contains(".carbon.")
                    && (path.ends_with(".gauge-queue_ticks") || path.ends_with(".gauge-queue_resend"))
            };
            let is_empty = |points: &Points| points.iter().all(|(path, &ticks)| !waits(path) || ticks == 0.0);
            collected.look().is_ok() && collected.last_points().is_some_and(is_empty)
        })?;
        let since = now();
        self.daemon.stop()?;
        self.collected.look()?;
        let drained = |entry: &&Entry| {
            entry.at > since && entry.line.contains(" not sent, ") || entry.line.contains("panicked")
        };
        let left: Vec<&str> =
            self.collected.entries().iter().filter(drained).map(|entry| entry.line.as_str()).collect();
        ensure!(left.is_empty(), "something is left: {left:?}");
        ensure!(self.collected.said(since, ALL_READ), "the end does not say that everything was read");
        self.settled()
    }

    /// What Carbon has when nothing more is added: for a few seconds no point came and Carbon was idle.
    pub fn settled(&mut self) -> Result<Findings> {
        self.collected.look()?;
        let (start, mut since, mut before) = (Instant::now(), Instant::now(), (usize::MAX, 0));
        loop {
            let looked = Instant::now();
            let carbons: Vec<&Carbon> = std::iter::once(&self.carbon).chain(&self.more).collect();
            let findings = self.collected.compare(&carbons)?;
            let state = (findings.missing(), self.carbons_work());
            // Half a second of CPU time is more than an idle Carbon uses in that time.
            if state.0 != before.0 || state.1 > before.1 + 50 {
                (since, before) = (Instant::now(), state);
            }
            if before.0 == 0 || since.elapsed() > Duration::from_secs(8) || start.elapsed() > 5 * PATIENCE {
                return Ok(findings);
            }
            // Looking into thousands of files again and again would keep Carbon from writing them.
            wait::pause(looked.elapsed().max(Duration::from_millis(200)));
        }
    }

    /// The CPU time of all Carbons, in ticks.
    fn carbons_work(&mut self) -> u64 {
        let carbons = std::iter::once(&mut self.carbon).chain(&mut self.more);
        carbons.filter_map(|carbon| proc::cpu_ticks(carbon.process.pid()?)).sum()
    }

    /// Waits until `is` is true for one of the daemon's own figures in the newest tick.
    pub fn until(&mut self, end: &str, is: impl Fn(f64) -> bool) -> Result<f64> {
        let collected = &mut self.collected;
        let found = wait::until_some(end, PATIENCE, || {
            collected.look().ok()?;
            collected.last(end).filter(|&value| is(value))
        });
        found.with_context(|| format!("it is {:?}", self.collected.last(end)))
    }

    /// Waits until no tick waits for this destination, neither for the first time nor again.
    pub fn nothing_waits(&mut self, destination: &str) -> Result<()> {
        let mut no = |leaf| self.until(&format!(".carbon.{destination}.gauge-{leaf}"), |ticks| ticks == 0.0);
        no("queue_ticks")?;
        no("queue_resend")?;
        Ok(())
    }

    /// All points that the newest tick counts as lost, for any reason.
    pub fn counted_as_lost(&self) -> f64 {
        const COUNTERS: [&str; 5] = [
            "points_dropped_full",
            "points_dropped_age",
            "points_dropped_damaged",
            "points_dropped_removed",
            "points_unproved",
        ];
        COUNTERS.iter().filter_map(|counter| self.collected.last(&format!(".gauge-{counter}"))).sum()
    }

    /// The newest collected value of a counter, which starts at zero each time the daemon starts.
    pub fn counter(&self, end: &str) -> Result<f64> {
        self.collected.last(end).with_context(|| end.to_owned())
    }
}

fn flags(folder: &Folder, interval: &str) -> Vec<String> {
    let file = folder.path().join("daemon.toml").display().to_string();
    ["run", "--config", &file, "--interval", interval, "--log-level", "trace", "--log-format", "json"]
        .map(str::to_owned)
        .to_vec()
}
