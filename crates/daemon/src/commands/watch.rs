//! `stats --watch`: what slurmctld does now, refreshed at an interval; full-screen on a terminal.
//!
//! It continues while slurmctld is down, and says so. It restores the terminal, however it ends.

mod screen;
mod terminal;

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use slurm_snapshot::Reading;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, sleep};

use self::screen::{Trouble, View, screen};
use self::terminal::Terminal;
use super::stats::{Compared, all, document};
use super::{IMPATIENT, block_on, load_what_is_readable, start_quiet_log, write_out};
use crate::cli::Options;
use crate::clock::or_never;
use crate::source::{Outcome, ReaderMemory, Source};

const SECOND: Duration = Duration::from_secs(1);

/// Watches until q, Ctrl-C, SIGTERM, or until nobody reads.
pub(super) fn watch(options: &Options, every: u32) -> Result<()> {
    let config = load_what_is_readable(options)?;
    block_on(async {
        let watch =
            Watch { every, before: None, now: None, answered: Instant::now(), trouble: None, asked: None };
        let source = Source::start(config.slurm.clone(), IMPATIENT, &ReaderMemory::default());
        let mut terminal = Terminal::take().context("taking the terminal over")?;
        if terminal.is_none() {
            start_quiet_log(options, &config);
        }
        let result = watch.go_on(source, terminal.as_mut()).await;
        drop(terminal);
        match result {
            // `stats --watch 5 | head` is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("writing to stdout"),
        }
    })
}

struct Watch {
    /// Seconds.
    every: u32,
    before: Option<Box<Reading>>,
    now: Option<Box<Reading>>,
    /// When the last reading came; before the first, the start.
    answered: Instant,
    /// Why there is no newer one, and what to do.
    trouble: Option<[String; 2]>,
    /// Since when a request is on its way.
    asked: Option<Instant>,
}

enum WatchEvent {
    RefreshDue,
    Answered(Outcome),
    /// Only the drawing is old.
    Redraw,
    End,
}

impl Watch {
    async fn go_on(mut self, mut source: Source, mut terminal: Option<&mut Terminal>) -> io::Result<()> {
        let mut due = tokio::time::interval(Duration::from_secs(self.every.into()));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut resized = signal(SignalKind::window_change())?;
        loop {
            let event = tokio::select! {
                _ = terminate.recv() => WatchEvent::End,
                _ = interrupt.recv() => WatchEvent::End,
                () = or_never(terminal.as_deref_mut().map(Terminal::end_key)) => WatchEvent::End,
                _ = resized.recv() => WatchEvent::Redraw,
                () = sleep(SECOND), if self.asked.is_some() || self.trouble.is_some() => WatchEvent::Redraw,
                outcome = source.outcome(), if self.asked.is_some() => WatchEvent::Answered(outcome),
                _ = due.tick() => WatchEvent::RefreshDue,
            };
            match event {
                // One request at a time, however long it takes.
                WatchEvent::RefreshDue if self.asked.is_none() && source.ask(all()) => {
                    self.asked = Some(Instant::now())
                }
                WatchEvent::RefreshDue if terminal.is_none() => self.print_wait()?,
                WatchEvent::RefreshDue | WatchEvent::Redraw => {}
                WatchEvent::Answered(outcome) => {
                    self.asked = None;
                    self.take(outcome);
                    if terminal.is_none() {
                        self.print()?;
                    }
                }
                WatchEvent::End => return Ok(()),
            }
            if terminal.is_some() {
                Terminal::draw(&screen(&self.view(), Terminal::size()))?;
            }
        }
    }

    fn take(&mut self, outcome: Outcome) {
        match outcome {
            Ok(reading) => {
                self.before = self.now.replace(reading);
                self.answered = Instant::now();
                self.trouble = None;
            }
            Err(error) => self.trouble = Some([error.to_string(), error.advice().to_owned()]),
        }
    }

    fn view(&self) -> View<'_> {
        View {
            now: self.now.as_deref(),
            before: self.before.as_deref(),
            trouble: self.trouble.as_ref().map(|[why, advice]| Trouble { why, advice }),
            waits: self.waits(),
            silent: self.answered.elapsed().as_secs(),
            every: self.every,
        }
    }

    /// Seconds since the request that is under way, if an ordinary answer would have come.
    fn waits(&self) -> Option<u64> {
        self.asked.map(|since| since.elapsed().as_secs()).filter(|seconds| *seconds > 0)
    }

    /// A line instead of a block that is due.
    fn print_wait(&self) -> io::Result<()> {
        self.waits()
            .map_or(Ok(()), |seconds| write_out(&format!("waiting for slurmctld for {seconds} s\n\n")))
    }

    /// One block, with an empty line behind it.
    fn print(&self) -> io::Result<()> {
        let text = match (&self.trouble, &self.now) {
            (Some([why, advice]), _) => format!("no reading: {why}\n{advice}\n\n"),
            (None, Some(now)) => {
                let before = self.before.as_deref();
                let compared = before.and_then(|before| Compared::new(before, now, self.every));
                document(now, compared) + "\n"
            }
            (None, None) => return Ok(()),
        };
        write_out(&text)
    }
}

/// A drawing of these, thrown away.
#[cfg(test)]
pub(super) fn draw_somehow(before: Option<&Reading>, now: &Reading, every: u32) {
    screen(&View { now: Some(now), before, trouble: None, waits: None, silent: 0, every }, screen::USUAL);
}
