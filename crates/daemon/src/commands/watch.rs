//! `stats --watch`: what slurmctld does now, refreshed at an interval; full-screen on a terminal.
//!
//! It continues while slurmctld is down, and says so. It restores the terminal, however it ends.

mod screen;
mod terminal;

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
#[cfg(test)]
use slurm_snapshot::Reading;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, sleep};

use self::screen::{View, screen};
use self::terminal::Terminal;
use super::stats::{all, document};
use super::{IMPATIENT, block_on, load_what_is_readable, start_quiet_log, write_out};
use crate::cli::Options;
use crate::clock::or_never;
use crate::source::{Outcome, ReaderMemory, Source};

const SECOND: Duration = Duration::from_secs(1);

/// Watches until q, Ctrl-C, SIGTERM, or until nobody reads.
pub(super) fn watch(options: &Options, every: u32) -> Result<()> {
    let config = load_what_is_readable(options)?;
    block_on(async {
        let view = View { every, ..View::default() };
        let watch = Watch { view, answered: Instant::now(), asked: None };
        let source =
            Source::start("statistics", config.slurm.clone(), IMPATIENT, &ReaderMemory::default());
        let terminal = Terminal::take().context("taking the terminal over")?;
        if terminal.is_none() {
            start_quiet_log(options, &config);
        }
        let result = watch.go_on(source, terminal.as_ref()).await;
        drop(terminal);
        match result {
            // `stats --watch 5 | head` is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("writing to stdout"),
        }
    })
}

struct Watch {
    view: View,
    /// Moment of the last reading; before the first, of the start.
    answered: Instant,
    /// Moment at which the request under way was sent.
    asked: Option<Instant>,
}

impl Watch {
    async fn go_on(mut self, mut source: Source, terminal: Option<&Terminal>) -> io::Result<()> {
        let mut due = tokio::time::interval(Duration::from_secs(self.view.every.into()));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut resized = signal(SignalKind::window_change())?;
        loop {
            let text = tokio::select! {
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                () = or_never(terminal.map(Terminal::end_key)) => return Ok(()),
                // Only the drawing is old.
                _ = resized.recv() => None,
                () = sleep(SECOND), if self.asked.is_some() || self.view.trouble.is_some() => None,
                outcome = source.outcome(), if self.asked.is_some() => Some(self.take(outcome)),
                _ = due.tick() => self.refresh(&source),
            };
            self.view.silent = self.answered.elapsed().as_secs();
            self.view.waits = self.waits();
            match (&terminal, text) {
                (Some(_), _) => Terminal::draw(&screen(&self.view, Terminal::size()))?,
                (None, Some(text)) => write_out(&text)?,
                (None, None) => {}
            }
        }
    }

    /// Sends the request that is due, unless one is still under way. In that case it returns a line
    /// that says so, if that request has taken a second or more.
    fn refresh(&mut self, source: &Source) -> Option<String> {
        if self.asked.is_none() && source.ask(all()) {
            self.asked = Some(Instant::now());
            return None;
        }
        Some(format!("waiting for slurmctld for {} s\n\n", self.waits()?))
    }

    /// Takes the outcome of the request under way. Returns one block of text about it, with an
    /// empty line behind it.
    fn take(&mut self, outcome: Outcome) -> String {
        self.asked = None;
        match outcome {
            Ok(reading) => {
                self.view.before = self.view.now.replace(reading);
                self.view.remember();
                self.answered = Instant::now();
                self.view.trouble = None;
                let now = self.view.now.as_ref();
                now.map_or_else(String::new, |now| document(now, self.view.compared()) + "\n")
            }
            Err(error) => {
                let [why, advice] =
                    self.view.trouble.insert([error.to_string(), error.advice().to_owned()]);
                format!("no reading: {why}\n{advice}\n\n")
            }
        }
    }

    /// Returns the seconds since the request under way was sent. `None`: there is none, or it was
    /// sent less than a second ago.
    fn waits(&self) -> Option<u64> {
        self.asked.map(|since| since.elapsed().as_secs()).filter(|seconds| *seconds > 0)
    }
}

/// Draws the screen of two readings and throws it away, for a test that has any recording.
#[cfg(test)]
pub(super) fn draw_somehow(before: Option<&Reading>, now: &Reading, every: u32) {
    let owned = |reading: &Reading| Box::new(reading.clone());
    screen(
        &View { now: Some(owned(now)), before: before.map(owned), every, ..View::default() },
        screen::USUAL,
    );
}
