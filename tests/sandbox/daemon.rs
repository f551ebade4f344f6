//! A daemon under observation: it ticks once a second, everything that it sends is recorded, and
//! its log is read entry by entry.
//!
//! [`Daemon::check_ticks`] checks what must be true whatever happens around the daemon.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::{Entry, Folder, Manner, Process, Recorded, Sink, log, proc, slurm_graphite, wait};

/// Time that a loaded machine may need for something that normally takes none.
const SLACK: f64 = 1.5;

/// Unix time, in seconds.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Unix time in whole seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Starts `slurm-graphite run` at one tick a second with this configuration, and with a log for
/// [`log::entries`].
pub fn spawn_daemon(folder: &Folder, name: &str, toml: &str) -> Result<Process> {
    let file = folder.write(&format!("{name}.toml"), toml)?;
    let flags = ["--interval", "1s", "--log-level", "debug", "--log-format", "json"];
    let process = Process::new(folder, name, slurm_graphite()?).args(["run", "--config", &file]);
    let mut process = process.args(flags);
    process.spawn()?;
    Ok(process)
}

/// The `[collectors]` tables that enable these, each every two seconds, however long they take.
pub fn surveys(names: &[&str]) -> String {
    let tables = names
        .iter()
        .map(|name| format!("[collectors.{name}]\nenabled = true\ninterval = \"2s\"\n"));
    "[collectors]\nmax_duty = \"100%\"\n".to_owned() + &tables.collect::<String>()
}

/// A daemon, and the sink that records what it sends.
#[derive(Debug)]
pub struct Daemon {
    /// The daemon itself.
    pub process: Process,
    sink: Sink,
    recorded: Recorded,
    looked: Option<Instant>,
    /// The most readers it may have: a second one is for expensive replies.
    most_readers: usize,
}

impl Daemon {
    /// Starts one; `slurm` is the `[slurm]` table of its configuration.
    pub fn start(folder: &Folder, slurm: &str) -> Result<Self> {
        Self::start_with(folder, slurm, "", 1)
    }

    /// Starts one that collects more: `collectors` are the `[collectors]` tables of its
    /// configuration, for which it has a second reader.
    pub fn start_surveying(folder: &Folder, slurm: &str, collectors: &str) -> Result<Self> {
        Self::start_with(folder, slurm, collectors, 2)
    }

    fn start_with(
        folder: &Folder,
        slurm: &str,
        collectors: &str,
        most_readers: usize,
    ) -> Result<Self> {
        let sink = Sink::start(Manner::Record)?;
        let toml = format!("[slurm]\n{slurm}\n{}{collectors}", sink.destination("sink"));
        let process = spawn_daemon(folder, "daemon", &toml)?;
        Ok(Self { process, sink, recorded: Recorded::default(), looked: None, most_readers })
    }

    /// Everything sent so far.
    /// A daemon that has ended, too many readers, or two calls of one reader at once are errors.
    pub fn recorded(&mut self) -> Result<&Recorded> {
        let Some(pid) = self.process.pid() else { bail!("the daemon has ended") };
        if self.looked.is_none_or(|looked| looked.elapsed() > Duration::from_millis(100)) {
            let readers = readers(pid);
            // One that was just killed may take a moment to go, and one of a changed slurm.conf starts
            // next to the one that runs.
            let most = self.most_readers;
            ensure!(
                readers.len() <= most || self::readers(pid).len() <= most + 1,
                "too many readers: {readers:?}"
            );
            // So may a connection that was just replaced.
            let connections = || readers.iter().copied().map(proc::connections).max().unwrap_or(0);
            ensure!(
                connections() < 2 || connections() < 2,
                "two calls of one reader are under way at once"
            );
            self.looked = Some(Instant::now());
        }
        self.sink.with_bytes(|bytes| self.recorded.take(bytes));
        Ok(&self.recorded)
    }

    /// Waits until `look` finds something in what was sent.
    pub fn until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        probe: impl Fn(&Recorded) -> Option<T>,
    ) -> Result<T> {
        let found = wait::until_some(what, limit, || match self.recorded() {
            Ok(recorded) => probe(recorded).map(Ok),
            Err(error) => Some(Err(error)),
        });
        found?
    }

    /// Waits until the newest value of the path is this one.
    pub fn until_is(&mut self, path: &str, value: f64) -> Result<()> {
        let what = format!("{path} {value}");
        self.until(&what, wait::LIMIT, |recorded| {
            (recorded.newest(path) == Some(value)).then_some(())
        })
    }

    /// Waits until `count` more ticks have been sent.
    pub fn ticks(&mut self, count: usize) -> Result<()> {
        let before = self.recorded()?.own("ticks_run").len();
        let limit = Duration::from_secs(count as u64) + wait::LIMIT;
        self.until("further ticks", limit, |recorded| {
            (recorded.own("ticks_run").len() >= before + count).then_some(())
        })
    }

    /// Waits for the first tick after the moment `since` whose reading succeeded (or, with `up`
    /// false, failed) and returns its timestamp.
    pub fn tick_with(&mut self, up: bool, since: f64, limit: Duration) -> Result<u64> {
        self.until(&format!("a tick with slurmctld_up {up}"), limit, |recorded| {
            let mut ticks = recorded.own("slurmctld_up").into_iter();
            ticks.find(|&(at, value)| seconds(at) > since && (value > 0.5) == up).map(|(at, _)| at)
        })
    }

    /// Waits for the first reading after `back`, the time when the fault was repaired. It must come
    /// within an interval plus `backoff` seconds, counted from the end of the call that was under
    /// way at that time. Returns how many seconds it took.
    pub fn recovery(&mut self, back: f64, backoff: f64) -> Result<f64> {
        let up = self.tick_with(true, back, wait::LIMIT)?;
        let entries =
            self.entries().into_iter().filter(|entry| entry.at > back && entry.at < seconds(up));
        // An answer that a busy host made late is no call that was lost.
        let (late, lost): (Vec<_>, Vec<_>) = entries
            .filter(ends_a_call)
            .partition(|entry| entry.message.contains("came after its tick"));
        let from = late.last().or(lost.first()).map_or(back, |entry| entry.at);
        let took = seconds(up) - from;
        ensure!(
            took < 1.0 + backoff + SLACK,
            "the first reading came {took:.1} s after the last call"
        );
        Ok(took)
    }

    /// Its living readers.
    pub fn readers(&mut self) -> Vec<u32> {
        self.process.pid().map(readers).unwrap_or_default()
    }

    /// Waits for its reader.
    pub fn reader(&mut self) -> Result<u32> {
        wait::until_some("a reader", wait::LIMIT, || self.readers().first().copied())
    }

    /// Its log so far.
    pub fn entries(&self) -> Vec<Entry> {
        log::entries(&self.process)
    }

    /// Waits for the first entry after `since` with these words.
    pub fn said(&self, since: f64, words: &str, limit: Duration) -> Result<Entry> {
        log::said(&self.process, since, words, limit)
    }

    /// The log lines after `since` that a person sees by default, in order, without the duration of
    /// outages and without libslurm's own lines. One of libslurm's that is there twice is an error.
    pub fn news(&self, since: f64) -> Result<Vec<String>> {
        let entries =
            self.entries().into_iter().filter(|entry| entry.at > since && entry.is_news());
        let (libslurm, own): (Vec<_>, Vec<_>) =
            entries.partition(|entry| entry.target == "libslurm");
        let mut seen = BTreeSet::new();
        for entry in libslurm {
            ensure!(
                seen.insert(entry.message.clone()),
                "libslurm is quoted twice: {}",
                entry.message
            );
        }
        let what =
            |message: &str| message.split(" again after ").next().unwrap_or_default().to_owned();
        Ok(own.into_iter().map(|entry| what(&entry.message)).collect())
    }

    /// Checks every second from the first tick to the newest: each has its points exactly once, a
    /// tick has statistics if and only if its reading succeeded, and every tick either made one
    /// request or was skipped because a call was under way.
    pub fn check_ticks(&mut self) -> Result<()> {
        // If two ticks are made at once, the newer one is sent first.
        let ticks = self.until("ticks without a hole", wait::LIMIT, |recorded| {
            let ticks = recorded.own("ticks_run");
            let span = ticks.keys().last()?.abs_diff(*ticks.keys().next()?);
            (ticks.len() as u64 == span + 1).then_some(ticks)
        })?;
        let recorded = self.recorded()?;
        let first = ticks.keys().next().copied().context("no tick at all")?;
        ensure!(recorded.twice().is_empty(), "points that were sent twice: {:?}", recorded.twice());
        let counters =
            ["readings_ok", "readings_failed", "ticks_skipped"].map(|leaf| recorded.own(leaf));
        let (up, statistics) =
            (recorded.own("slurmctld_up"), recorded.statistics("jobs_submitted"));
        let newest = ticks.keys().last().copied().unwrap_or(first);
        for (run, at) in (1..).zip(first..=newest) {
            ensure!(
                ticks.get(&at) == Some(&seconds(run)),
                "tick {run} at {at}: {:?}",
                ticks.get(&at)
            );
            let up = up.get(&at).copied().with_context(|| format!("a hole at {at}"))?;
            ensure!(
                (up > 0.5) == statistics.contains_key(&at),
                "up is {up} at {at}, the statistics differ"
            );
            let counted: f64 = counters.iter().filter_map(|counter| counter.get(&at)).sum();
            let under_way = seconds(run) - counted;
            ensure!(
                under_way == 0.0 || under_way == 1.0 - up,
                "{under_way} calls are under way at {at}"
            );
        }
        Ok(())
    }

    /// Sends SIGTERM. The daemon must be gone before it would give up a receiver that does not read,
    /// and so must its reader.
    pub fn stop(mut self) -> Result<Recorded> {
        let readers = self.readers();
        let ended = self.process.stop()?;
        ensure!(ended.after < Duration::from_secs(5), "the end took {:?}", ended.after);
        ensure!(ended.status.success(), "it ended with {}", ended.status);
        // A killed process takes a moment to disappear.
        let gone = || !readers.iter().any(|&reader| proc::alive(reader));
        wait::until("the end of its reader", wait::LIMIT, gone)?;
        self.recorded.take(&self.sink.bytes());
        Ok(self.recorded)
    }
}

fn ends_a_call(entry: &Entry) -> bool {
    ["no reading", "came after its tick", "the reader has ended"]
        .iter()
        .any(|words| entry.message.contains(words))
}

fn readers(daemon: u32) -> Vec<u32> {
    proc::children(daemon).into_iter().filter(|&pid| proc::alive(pid)).collect()
}

const fn seconds(timestamp: u64) -> f64 {
    timestamp as f64
}
