//! A daemon with a durable queue, and a Carbon whose points are counted, for the tests of losses.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::proc::Signal;
use crate::{
    Ahead, Carbon, Collected, Ended, Entry, Findings, Folder, Imitation, Points, Process, Space,
    carbon, now, proc, slurm_graphite, wait,
};

/// Longer than anything should take on a busy machine.
const PATIENCE: Duration = wait::LIMIT;

/// The daemon's log line about a destination when it ends and nothing is left.
pub const ALL_READ: &str = "no tick is left that the receiver has not read";

/// The daemon's log line when a reload has succeeded.
pub const IN_USE: &str = "the new configuration is in use";

/// The daemon's configuration.
#[derive(Debug, Clone)]
pub struct Plan {
    /// `interval`.
    pub interval: &'static str,
    /// `drain_timeout`.
    pub drain: &'static str,
    /// More keys before the first table, and tables of collectors.
    pub top: String,
    /// The `[slurm]` table's keys; `None`: an imitated reader that does everything right.
    pub slurm: Option<String>,
    /// The queue's folder; without one it is in memory.
    pub dir: Option<PathBuf>,
    /// Additional keys of `[queue]`.
    pub queue: String,
    /// The `[[carbon]]` tables.
    pub destinations: String,
}

/// A `[[carbon]]` table with a short time-out; more keys may follow.
pub fn destination(name: &str, address: &str) -> String {
    format!("[[carbon]]\nname = \"{name}\"\naddress = \"{address}\"\nstall_timeout = \"3s\"\n")
}

/// The daemon, the Carbon, and the record of what was collected.
#[derive(Debug)]
pub struct Stage {
    /// `slurm-graphite run` with an imitated reader, one tick a second unless the plan has another
    /// interval.
    pub daemon: Process,
    /// Its configuration, from [`Stage::configure`] on.
    pub plan: Plan,
    /// The ticks that it has collected.
    pub collected: Collected,
    /// The Carbon that the points are sent to.
    pub carbon: Carbon,
    /// More Carbons, if several receive the points.
    pub more: Vec<Carbon>,
    /// The last field, so that it is dropped last.
    pub folder: Folder,
}

impl Stage {
    /// A running Carbon, and a daemon for it that is not started yet.
    pub fn new(options: &carbon::Options) -> Result<Self> {
        Self::in_folder(Folder::new()?, options)
    }

    /// A running Carbon in this folder, and a daemon for it that is not started yet.
    pub fn in_folder(folder: Folder, options: &carbon::Options) -> Result<Self> {
        let carbon = Carbon::start(&folder, "carbon", options)?;
        Self::with(folder, carbon)
    }

    /// A running Carbon, and a daemon for it in namespaces that is not started yet. If `net`,
    /// Carbon is in them too, on its usual ports.
    pub fn within(folder: Folder, space: &Space, net: bool) -> Result<Self> {
        let options = carbon::Options::default();
        let carbon = if net {
            Carbon::within(space, &folder, "127.0.0.1", &options)?
        } else {
            Carbon::start(&folder, "carbon", &options)?
        };
        let mut stage = Self::with(folder, carbon)?;
        let daemon = space.process(&stage.folder, "daemon", &slurm_graphite()?, net)?;
        stage.daemon = daemon.args(args(&stage.folder));
        Ok(stage)
    }

    /// A running Carbon, and a daemon for it on another host that is not started yet.
    pub(crate) fn on_host(folder: Folder, host: &Space, carbon: Carbon) -> Result<Self> {
        let mut stage = Self::with(folder, carbon)?;
        let daemon = host.process(&stage.folder, "daemon", &slurm_graphite()?, true)?;
        stage.daemon = daemon.args(args(&stage.folder));
        Ok(stage)
    }

    /// A running Carbon with wide limits and a running daemon; returns when points have arrived.
    pub fn running() -> Result<Self> {
        Self::new(&carbon::Options::default())?.run()
    }

    /// Starts the daemon; returns when points have arrived.
    pub fn run(mut self) -> Result<Self> {
        self.daemon.spawn()?;
        self.steady()?;
        Ok(self)
    }

    /// A daemon, not started yet, with this Carbon.
    pub fn with(folder: Folder, carbon: Carbon) -> Result<Self> {
        let daemon = process(&folder, "daemon")?;
        let collected = Collected::new(daemon.log());
        let plan = Plan {
            interval: "1s",
            drain: "20s",
            top: String::new(),
            slurm: None,
            dir: Some(folder.path().join("queue")),
            queue: String::new(),
            destinations: destination("carbon", &carbon.address()),
        };
        let stage = Self { daemon, plan, collected, carbon, more: Vec::new(), folder };
        stage.configure()?;
        Ok(stage)
    }

    /// Sets another clock for the daemon, which must not have been started.
    pub fn under(&mut self, clock: &Ahead) -> Result<()> {
        self.daemon = clock.over(process(&self.folder, "daemon")?);
        Ok(())
    }

    /// Another daemon with the same configuration, not started yet.
    pub fn another(&self, name: &str) -> Result<Process> {
        process(&self.folder, name)
    }

    /// The file of the daemon's configuration.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("daemon.toml")
    }

    /// The queue's folder.
    pub fn queue(&self) -> PathBuf {
        self.plan.dir.clone().unwrap_or_default()
    }

    /// The segments of the queue's log, the oldest first.
    pub fn segments(&self) -> Result<Vec<PathBuf>> {
        let files = fs::read_dir(self.queue())?.flatten().map(|entry| entry.path());
        let mut segments: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
        segments.sort();
        Ok(segments)
    }

    /// Writes the daemon's configuration, for its next start.
    pub fn configure(&self) -> Result<()> {
        let Plan { interval, drain, top, slurm, dir, queue, destinations } = &self.plan;
        let reader =
            slurm.clone().map_or_else(|| Ok(Imitation::good(&self.folder)?.toml()), anyhow::Ok)?;
        let dir = dir.as_ref().map(|dir| format!("dir = {dir:?}\n")).unwrap_or_default();
        let text = format!(
            "interval = \"{interval}\"\ndrain_timeout = \"{drain}\"\n{top}[slurm]\n\
                {reader}[queue]\n{dir}{queue}{destinations}"
        );
        Ok(fs::write(self.file(), text)?)
    }

    /// Writes the configuration of a daemon that runs, and sends SIGHUP; returns the time of that,
    /// when the configuration is in use.
    pub fn reload(&mut self) -> Result<f64> {
        self.configure()?;
        let since = now();
        self.daemon.signal(Signal::HUP)?;
        self.said(since, IN_USE)?;
        Ok(since)
    }

    /// Ends the daemon with SIGTERM.
    pub fn stop(&mut self) -> Result<Ended> {
        let ended = self.daemon.stop()?;
        self.collected.look()?;
        Ok(ended)
    }

    /// Ends the daemon with SIGTERM or SIGKILL, and starts it again; everything that it had
    /// collected must still be there.
    pub fn restart(&mut self, kill: bool) -> Result<()> {
        if kill { self.daemon.kill() } else { self.daemon.stop() }?;
        self.collected.look()?;
        self.daemon.spawn()
    }

    /// Starts a daemon that finds ticks of an earlier run, and waits for its connection.
    pub fn resume(&mut self) -> Result<()> {
        let since = now();
        self.daemon.spawn()?;
        self.said(since, "ticks of an earlier run are in the queue")?;
        self.connected(since)
    }

    /// Starts Carbon, and waits until the daemon has connected to it.
    pub fn carbon_back(&mut self) -> Result<()> {
        let since = now();
        self.carbon.process.start()?;
        self.connected(since)
    }

    /// Carbon is killed and comes back.
    pub fn carbon_dies(&mut self) -> Result<()> {
        self.carbon.process.kill()?;
        self.carbon_back()
    }

    /// Waits until Carbon has three ticks of every series on disk. A Carbon that is killed while it
    /// creates a file leaves it broken for ever, and one with the shipped limits creates few files:
    /// both would look like our losses.
    pub fn steady(&mut self) -> Result<()> {
        self.ticks(3)?;
        let ticks = self.collected.counted();
        let series: BTreeSet<String> =
            ticks.flat_map(|(_, points)| points.keys().cloned()).collect();
        wait::until("points of every series in whisper", PATIENCE, || {
            series
                .iter()
                .all(|path| self.carbon.series(path).is_ok_and(|series| !series.points.is_empty()))
        })
        .map(drop)
    }

    /// Waits until the next tick is in the queue.
    pub fn tick(&mut self) -> Result<()> {
        self.ticks(1)
    }

    /// Waits until `count` more ticks are in the queue.
    pub fn ticks(&mut self, count: usize) -> Result<()> {
        self.collected.look()?;
        let before = self.collected.counted().count();
        let limit = Duration::from_secs(count as u64) + PATIENCE;
        self.seen("ticks", limit, |collected| {
            (collected.counted().count() >= before + count).then_some(())
        })
    }

    /// Looks into the record again and again until it has something.
    fn seen<T>(
        &mut self,
        what: &str,
        limit: Duration,
        probe: impl Fn(&Collected) -> Option<T>,
    ) -> Result<T> {
        let collected = &mut self.collected;
        wait::until_some(what, limit, || match collected.look() {
            Ok(()) => probe(collected).map(Ok),
            Err(error) => Some(Err(error)),
        })?
    }

    /// Waits for the first entry of the daemon's log after `since` with these words.
    pub fn said(&mut self, since: f64, words: &str) -> Result<Entry> {
        self.seen(&format!("{words:?} in the log"), PATIENCE, |collected| {
            collected
                .entries()
                .iter()
                .find(|entry| entry.at > since && entry.line.contains(words))
                .cloned()
        })
    }

    /// Waits until the daemon has a connection that was made after `since`.
    pub fn connected(&mut self, since: f64) -> Result<()> {
        self.said(since, "\"connected").map(drop)
    }

    /// Sends SIGTERM to a daemon that has sent everything, and requires that it says so. Returns
    /// what Carbon has.
    pub fn finish(&mut self) -> Result<Findings> {
        // A stop leaves on disk what the backlog's rate does not let through.
        self.tick()?;
        let waits = |path: &str| {
            path.contains(".carbon.")
                && (path.ends_with(".gauge-queue_ticks") || path.ends_with(".gauge-queue_resend"))
        };
        let is_empty =
            |points: &Points| points.iter().all(|(path, &ticks)| !waits(path) || ticks == 0.0);
        self.seen("an empty queue", 5 * PATIENCE, |collected| {
            collected.last_points().filter(|points| is_empty(points)).map(drop)
        })?;
        let since = now();
        self.stop()?;
        let drained = |entry: &&Entry| {
            entry.at > since && entry.line.contains(" not sent, ")
                || entry.line.contains("panicked")
        };
        let left: Vec<&str> = self
            .collected
            .entries()
            .iter()
            .filter(drained)
            .map(|entry| entry.line.as_str())
            .collect();
        ensure!(left.is_empty(), "something is left: {left:?}");
        ensure!(
            self.collected.said(since, ALL_READ),
            "the end does not say that everything was read"
        );
        self.settled()
    }

    /// Ends the daemon as [`Stage::finish`] does, after which nothing may be lost or wrong.
    pub fn clean(&mut self) -> Result<String> {
        Ok(self.finish()?.clean()?.to_string())
    }

    /// The contents of Carbon when nothing more is added: for a few seconds no point came and
    /// Carbon was idle.
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
            if before.0 == 0
                || since.elapsed() > Duration::from_secs(8)
                || start.elapsed() > 5 * PATIENCE
            {
                return Ok(findings);
            }
            // Looking into thousands of files again and again would keep Carbon from writing them.
            wait::pause(looked.elapsed().max(Duration::from_millis(200)));
        }
    }

    /// Every Carbon.
    pub fn carbons(&self) -> impl Iterator<Item = &Carbon> {
        std::iter::once(&self.carbon).chain(&self.more)
    }

    /// The CPU time of all Carbons, in ticks.
    fn carbons_work(&mut self) -> u64 {
        let carbons = std::iter::once(&mut self.carbon).chain(&mut self.more);
        carbons.filter_map(|carbon| proc::cpu_ticks(carbon.process.pid()?)).sum()
    }

    /// Waits until `is` is true for one of the daemon's own figures in the newest tick.
    pub fn until(&mut self, end: &str, is: impl Fn(f64) -> bool) -> Result<f64> {
        let found =
            self.seen(end, PATIENCE, |collected| collected.last(end).filter(|&value| is(value)));
        found.with_context(|| format!("it is {:?}", self.collected.last(end)))
    }

    /// Waits until no tick waits for this destination, neither for the first time nor again.
    pub fn nothing_waits(&mut self, destination: &str) -> Result<()> {
        ["queue_ticks", "queue_resend"].into_iter().try_for_each(|leaf| {
            self.until(&format!(".carbon.{destination}.gauge-{leaf}"), |ticks| ticks == 0.0)
                .map(drop)
        })
    }

    /// All points that the newest tick counts as lost, for any reason.
    pub fn counted_as_lost(&self) -> f64 {
        ["dropped_full", "dropped_age", "dropped_damaged", "dropped_removed", "unproved"]
            .iter()
            .filter_map(|reason| self.collected.last(&format!(".gauge-points_{reason}")))
            .sum()
    }

    /// The newest collected value of a counter, which starts at zero each time the daemon starts.
    pub fn counter(&self, end: &str) -> Result<f64> {
        self.collected.last(end).with_context(|| end.to_owned())
    }

    /// The newest value of one of the daemon's figures about its destination `carbon`.
    pub fn of_carbon(&self, leaf: &str) -> Result<f64> {
        self.counter(&format!(".carbon.carbon.gauge-{leaf}"))
    }
}

fn process(folder: &Folder, name: &str) -> Result<Process> {
    Ok(Process::new(folder, name, slurm_graphite()?).args(args(folder)))
}

fn args(folder: &Folder) -> [String; 7] {
    let file = folder.path().join("daemon.toml").display().to_string();
    ["run", "--config", &file, "--log-level", "trace", "--log-format", "json"].map(str::to_owned)
}
