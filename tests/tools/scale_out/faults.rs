//! A relay over three stores: one is stopped in the middle of a tick and comes back, one is killed, and what is missing is counted
//! before and after the relay is restarted, which makes the sender send all of `resend_window` again.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::{Process, proc, wait};

use super::feed::{Feed, POINTS};
use super::say;
use super::stores::{Counts, Stores};

/// How long after a tick has entered the queue its fault comes: while the relay passes it on.
const DELAYS: [u64; 3] = [60, 150, 400];
/// How long a store is away.
const AWAY: Duration = Duration::from_secs(3);
/// How long stores take for a tick, generously.
const WRITTEN: Duration = Duration::from_secs(9);
/// Stores that are idle and get nothing more for so long have all they will have.
const QUIET: Duration = Duration::from_secs(12);
/// Of CPU time, ticks of 10 ms.
const IDLE: u64 = 20;

/// What plays.
pub(crate) struct Relaying<S> {
    pub(crate) name: &'static str,
    pub(crate) stores: S,
    pub(crate) relay: Process,
    pub(crate) feed: Feed,
}

impl<S: Stores> Relaying<S> {
    /// All of it; `read` reads the stored ticks as a user would.
    pub(crate) fn play(mut self, read: impl Fn(usize) -> Result<()>) -> Result<()> {
        say(&format!("\n## {}\n\n{POINTS} points a tick\n\n", self.name))?;
        self.feed.push()?;
        self.feed.sent()?;
        let counts = self.settled()?;
        ensure!(counts.series.iter().sum::<usize>() == POINTS, "series: {:?}", counts.series);
        say(&format!("| series of the stores | {:?} |\n|---|---|\n", counts.series))?;
        self.steady()?;
        read(self.feed.ticks.len())?;
        for (fault, kills) in [("SIGTERM", false), ("SIGKILL", true)] {
            let first = self.feed.ticks.len();
            for (store, delay) in DELAYS.into_iter().enumerate() {
                self.feed.push()?;
                wait::pause(Duration::from_millis(delay));
                self.away(store, kills)?;
            }
            self.feed.push()?;
            self.feed.sent()?;
            let counts = self.settled()?;
            self.row(&format!("missing after {fault} of each store"), &counts, first)?;
            let before = self.feed.status();
            self.relay.stop()?;
            self.relay.start()?;
            let after = self.feed.resent(before.connects)?;
            let counts = self.settled()?;
            self.row("missing after a restart of the relay", &counts, first)?;
            say(&format!("| points sent again | {} |\n", after.resent.saturating_sub(before.resent)))?;
            let missing: usize = self.feed.ticks.iter().flat_map(|tick| counts.missing(*tick)).sum();
            ensure!(missing == 0, "{missing} points are missing in the end");
        }
        read(self.feed.ticks.len())?;
        let status = self.feed.status();
        let lost = status.dropped.full + status.dropped.age + status.dropped.damaged + status.unproved;
        say(&format!("| counted as lost by the sender | {lost} |\n"))
    }

    /// What two ticks cost when all series are there.
    fn steady(&mut self) -> Result<()> {
        let before = self.cpu();
        for _ in 0..2 {
            self.feed.push()?;
            self.feed.sent()?;
            // To count would cost the stores more.
            wait::pause(WRITTEN);
        }
        let cost: Vec<u64> = self
            .cpu()
            .iter()
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before) * 10 / 2)
            .collect();
        let memory: Vec<u64> =
            self.pids().into_iter().map(|pid| proc::rss_kib(pid).unwrap_or(0) / 1024).collect();
        say(&format!(
            "| CPU a tick, ms: relay, stores | {cost:?} |\n| RSS, MiB: relay, stores | {memory:?} |\n"
        ))?;
        self.settled().map(drop)
    }

    fn away(&mut self, store: usize, kills: bool) -> Result<()> {
        let mut processes = self.stores.processes();
        let process = processes.get_mut(store).context("no such store")?;
        if kills {
            process.kill()?
        } else {
            process.stop()?
        };
        wait::pause(AWAY);
        process.start()
    }

    /// What is missing, and who lost it: the store of number N was away in the tick N after `first`. It alone had read what came before
    /// that; what came with it was on its way there, or read; for what came later the relay had a queue.
    fn row(&self, what: &str, counts: &Counts, first: usize) -> Result<()> {
        let (mut read_before, mut of_the_tick, mut later, mut all) = (0, 0, 0, Vec::new());
        for (number, tick) in self.feed.ticks.iter().enumerate() {
            let missing = counts.missing(*tick);
            if missing.iter().all(|count| *count == 0) {
                continue;
            }
            for (store, count) in missing.iter().enumerate() {
                *match number.cmp(&(first + store)) {
                    Ordering::Less => &mut read_before,
                    Ordering::Equal => &mut of_the_tick,
                    Ordering::Greater => &mut later,
                } += count;
            }
            all.push(match number.checked_sub(first) {
                Some(number) => format!("tick {}: {missing:?}", number + 1),
                None => format!("a tick before: {missing:?}"),
            });
        }
        if all.is_empty() {
            return say(&format!("| {what} | nothing |\n"));
        }
        say(&format!(
            "| {what} | {} |\n| of which the store had read before | {read_before} |\n| of the tick of the fault: on its way to the store, or read by it | \
             {of_the_tick} |\n| of later ticks: the relay | {later} |\n",
            all.join("; ")
        ))
    }

    /// Waits until all points of all ticks are there, or until nothing moves any more.
    fn settled(&mut self) -> Result<Counts> {
        let (mut before, mut since) = (Counts::default(), Instant::now());
        loop {
            let counts = self.stores.counts()?;
            let missing: usize = self.feed.ticks.iter().flat_map(|tick| counts.missing(*tick)).sum();
            if missing == 0 && counts.series.iter().sum::<usize>() == POINTS {
                return Ok(counts);
            }
            let worked: u64 = self.cpu().iter().sum();
            wait::pause(Duration::from_secs(2));
            let works: u64 = self.cpu().iter().sum();
            if counts != before || works > worked + IDLE {
                since = Instant::now();
            }
            if since.elapsed() > QUIET {
                return Ok(counts);
            }
            before = counts;
        }
    }

    fn pids(&mut self) -> Vec<u32> {
        let stores = self.stores.processes().into_iter().filter_map(Process::pid).collect::<Vec<_>>();
        self.relay.pid().into_iter().chain(stores).collect()
    }

    fn cpu(&mut self) -> Vec<u64> {
        self.pids().into_iter().map(|pid| proc::cpu_ticks(pid).unwrap_or(0)).collect()
    }
}
