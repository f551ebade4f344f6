//! A relay in front of three stores: one is stopped in the middle of a tick and started again, and
//! one is killed. The missing points are counted before and after a restart of the relay, which
//! makes the sender send everything in `resend_window` again.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::{Process, proc, wait};
use tools::say;

use super::feed::{Feed, POINTS};
use super::stores::{Counts, Store, counts};

/// Time from a tick's entry into the queue until its fault, while the relay is passing it on, ms.
const DELAYS: [u64; 3] = [60, 150, 400];
/// Time that a store is down.
const AWAY: Duration = Duration::from_secs(3);
/// Time that the stores need for a tick, generously.
const WRITTEN: Duration = Duration::from_secs(9);
/// Stores that are idle and receive nothing for this long have everything they will ever have.
const QUIET: Duration = Duration::from_secs(12);
/// CPU time in ticks of 10 ms.
const IDLE: u64 = 20;

/// The relay, the stores and the feed.
pub(crate) struct Relaying {
    pub(crate) name: &'static str,
    pub(crate) stores: Vec<Store>,
    pub(crate) relay: Process,
    pub(crate) feed: Feed,
}

impl Relaying {
    /// Runs the whole scenario. `read` reads the stored ticks as a user would.
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
            say(&format!(
                "| points sent again | {} |\n",
                after.resent.saturating_sub(before.resent)
            ))?;
            let missing: usize =
                self.feed.ticks.iter().flat_map(|tick| counts.missing(*tick)).sum();
            ensure!(missing == 0, "{missing} points are missing in the end");
        }
        read(self.feed.ticks.len())?;
        let status = self.feed.status();
        let lost =
            status.dropped.full + status.dropped.age + status.dropped.damaged + status.unproved;
        say(&format!("| counted as lost by the sender | {lost} |\n"))
    }

    /// Measures the cost of two ticks when all series exist.
    fn steady(&mut self) -> Result<()> {
        let before = self.cpu();
        for _ in 0..2 {
            self.feed.push()?;
            self.feed.sent()?;
            // Counting would cost the stores more.
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
            "| CPU a tick, ms: relay, stores | {cost:?} |\n| RSS, MiB: relay, stores | {memory:?} \
                |\n"
        ))?;
        self.settled().map(drop)
    }

    fn away(&mut self, store: usize, kills: bool) -> Result<()> {
        let process = self.stores.get_mut(store).context("no such store")?.process();
        if kills {
            process.kill()?
        } else {
            process.stop()?
        };
        wait::pause(AWAY);
        process.start()
    }

    /// Says which points are missing, and which program lost them. Store number N was down in tick
    /// N after `first`. Points of earlier ticks were lost after the store had read them. Points of
    /// that tick were on the way to the store, or already read. For later ticks the relay had a
    /// queue.
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
            "| {what} | {} |\n| of which the store had read before | {read_before} |\n| of the \
             tick of the fault: on its way to the store, or read by it | {of_the_tick} |\n| of \
             later ticks: the relay | {later} |\n",
            all.join("; ")
        ))
    }

    /// Waits until all points of all ticks are there, or until nothing changes any more.
    fn settled(&mut self) -> Result<Counts> {
        let (mut before, mut since) = (Counts::default(), Instant::now());
        loop {
            let counts = counts(&self.stores)?;
            let missing: usize =
                self.feed.ticks.iter().flat_map(|tick| counts.missing(*tick)).sum();
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
        let stores = self.stores.iter_mut().filter_map(|store| store.process().pid());
        self.relay.pid().into_iter().chain(stores).collect()
    }

    fn cpu(&mut self) -> Vec<u64> {
        self.pids().into_iter().map(|pid| proc::cpu_ticks(pid).unwrap_or(0)).collect()
    }
}
