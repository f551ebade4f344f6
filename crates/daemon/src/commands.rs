//! The commands: one file each, and what they share.

#[expect(clippy::disallowed_methods, reason = "a command that ends, on its own thread")]
mod carbon_rules;
#[expect(clippy::disallowed_methods, reason = "a command that ends, on its own thread")]
mod check;
mod metrics;
mod once;
mod replay;
mod run;
mod stats;
mod status;
mod version;
mod watch;

pub(crate) use self::version::version;

use std::fmt::Display;
use std::future::Future;
use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use carbon::Destination;
use serde::Serialize;
use slurm_points::derive::whole_seconds;
use slurm_snapshot::{Reading, Request};
use tracing::level_filters::LevelFilter;

use crate::cli::{Command, Options};
use crate::config::{Config, ConfigFile, Problems, SlurmSettings};
use crate::printable::{printable_json, printable_lines};
use crate::source::{ReaderMemory, Source, SourceError};
use crate::telemetry::{Logging, has_colours};

/// Time that a reader gets to start for a user at a terminal. libslurm would look for its
/// configuration for up to a minute.
const IMPATIENT: Duration = Duration::from_secs(4);

/// Executes a command.
pub(crate) fn execute(command: Command) -> Result<()> {
    match command {
        Command::Run { options, replay: None } => run::run(&options),
        Command::Run { options, replay: Some(file) } => replay::run(&options, &file),
        Command::Once { options, replay, send } => {
            once::once(&options.all(), replay.as_deref(), send)
        }
        Command::Check { options, connect, json, storage_schemas } => {
            check::check(&options, json, connect, storage_schemas.as_deref())
        }
        Command::Stats { options, watch: Some(every), .. } => watch::watch(&options.all(), every),
        Command::Stats { options, finished: true, by, json, .. } => {
            stats::finished(&options.all(), by, json)
        }
        Command::Stats { options, jobs: true, by, json, .. } => {
            stats::jobs(&options.all(), by, json)
        }
        Command::Stats { options, json, reset, .. } => stats::stats(&options.all(), json, reset),
        Command::Status { json, patience, socket } => {
            status::status(json, patience, socket.as_deref())
        }
        Command::Metrics { filter, format } => {
            print(&metrics::text(filter.as_deref(), format, std::io::stdout().is_terminal())?)
        }
        Command::CarbonRules { options, write: Some(folder), dry_run, max_creates, .. } => {
            carbon_rules::write(&load(&options.all())?, &folder, dry_run, max_creates)
        }
        Command::CarbonRules { options, file, .. } => {
            print(&carbon_rules::text(&load(&options.all())?, file))
        }
    }
}

/// Loads the configuration of a command. Says on stderr which default files are not believed.
fn load(options: &Options) -> Result<Config, Problems> {
    let mut config = Config::load(ConfigFile::read(options.config.as_deref())?, &options.flags)?;
    config.passed_over.iter().for_each(|text| note(text));
    if options.goes_elsewhere() {
        // What is kept there is for the default file's destinations, and its daemon's alone.
        config.queue.dir.clone_from(&options.flags.queue_dir);
    }
    Ok(config)
}

/// The configuration, for commands that any user of this host may run: a default file that this
/// user may not read is reported and left out.
fn load_what_is_readable(options: &Options) -> Result<Config, Problems> {
    let file = match ConfigFile::read(options.config.as_deref()) {
        Err(error) if error.is_denied_default() => {
            note(&format!("{error}; using flags and defaults"));
            ConfigFile::default()
        }
        file => file?,
    };
    let config = Config::load(file, &options.flags)?;
    config.passed_over.iter().for_each(|text| note(text));
    Ok(config)
}

/// Runs `future` to its end on this thread.
fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(future)
}

fn write_out(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints `text` on stdout. It is escaped, so that nothing in it reaches a terminal as a command.
/// Only `stats --watch` writes to stdout by itself.
fn print(text: &str) -> Result<()> {
    print_raw("", text)
}

/// Prints a line behind its mark. On a terminal the mark has its colour, and a long line is broken
/// between words.
fn print_marked(mark: Mark, line: &str) -> Result<()> {
    let line = match terminal_width() {
        Some(width) => folded(line, width.saturating_sub(2)),
        None => line.to_owned(),
    };
    print_raw(&mark.painted(), &format!(" {line}\n"))
}

/// Returns the columns of the terminal that is stdout. `None`: it is no terminal, or has fewer than
/// 40.
fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(stdout).ok())??;
    Some(usize::from(size.ws_col)).filter(|&width| width >= 40)
}

/// Breaks the lines of `text` between words, so that only a longer word exceeds `width` columns.
/// The rest of a broken line is indented.
fn folded(text: &str, width: usize) -> String {
    let mut folded = String::new();
    for (number, line) in text.lines().enumerate() {
        let mut column: usize = 0;
        for (place, word) in line.split(' ').enumerate() {
            let needed = word.chars().count().saturating_add(usize::from(place > 0));
            let (before, begin) = match (place, column.saturating_add(needed) > width) {
                (0, _) if number > 0 => ("\n", 0),
                (0, _) => ("", 0),
                (_, true) if !word.is_empty() => ("\n    ", 4),
                _ => (" ", column),
            };
            folded.push_str(before);
            folded.push_str(word);
            column = begin.saturating_add(needed);
        }
    }
    folded
}

/// Prints a document as JSON, on one line.
fn print_json(document: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", printable_json(&serde_json::to_string(document)?)))
}

fn print_raw(own: &str, text: &str) -> Result<()> {
    match write_out(&format!("{own}{}", printable_lines(text))) {
        // `slurm-graphite metrics | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing to stdout"),
    }
}

/// The verdict of `check` or `status` on one thing, shown at the beginning of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Mark {
    #[serde(rename = "✓")]
    Good,
    /// The verdict on what was not checked, on what has not been OK for `--patience` at most, and on
    /// what does no harm yet.
    #[serde(rename = "–")]
    Note,
    #[serde(rename = "✗")]
    Wrong,
}

impl Mark {
    /// The mark in its colour on a terminal.
    fn painted(self) -> String {
        let (mark, colour) = match self {
            Self::Good => ("✓", 32),
            Self::Note => ("–", 33),
            Self::Wrong => ("✗", 31),
        };
        if has_colours(&std::io::stdout()) {
            format!("\x1b[{colour}m{mark}\x1b[m")
        } else {
            mark.to_owned()
        }
    }
}

/// Formats a count with its unit: `one` is the word for a count of 1, `many` that for others.
fn number<N: Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    format!("{count} {}", if count == N::from(1) { one } else { many })
}

/// A line on stderr, for a person.
fn note(text: &str) {
    // Nobody is left to be told when stderr is closed.
    let _ = writeln!(std::io::stderr(), "slurm-graphite: {}", printable_lines(text));
}

/// Makes one request to Slurm, for a command that ends afterwards. A new reader is started for it.
async fn read_once(slurm: SlurmSettings, request: Request) -> Result<Box<Reading>, SourceError> {
    let mut source = Source::start("statistics", slurm, IMPATIENT, &ReaderMemory::default());
    source.ask(request);
    source.outcome().await
}

/// Makes one request to Slurm. Its error also says what to do about the failure.
async fn read_or_advise(slurm: SlurmSettings, request: Request) -> Result<Box<Reading>> {
    let outcome = read_once(slurm, request).await;
    outcome.map_err(|error| anyhow!("no reading: {error}\n{}", error.advice()))
}

fn names(destinations: &[Destination]) -> Vec<String> {
    destinations.iter().map(|to| to.name.clone()).collect()
}

/// Loads as much of the configuration as this user may read, and starts a log of errors alone.
fn load_quietly(options: &Options) -> Result<Config, Problems> {
    load_what_is_readable(options).inspect(|config| start_quiet_log(options, config))
}

/// Starts a log that has only errors, unless --log-level asks for more. What libslurm warns of is
/// also in the error that follows.
fn start_quiet_log(options: &Options, config: &Config) {
    let mut log = config.log;
    if options.flags.log.log_level.is_none() {
        log.level = LevelFilter::ERROR;
    }
    Logging::start(log);
}

/// Returns the start of the slot of `interval` seconds that the moment `seconds` is in, Unix
/// seconds.
fn slot(seconds: f64, interval: u32) -> i64 {
    let interval = i64::from(interval.max(1));
    whole_seconds(seconds.floor()).div_euclid(interval).saturating_mul(interval)
}

#[cfg(test)]
mod tests {
    mod any_recording;

    use super::*;

    /// A terminal broke `status` within its words: "202" and "6-11-29".
    #[test]
    fn long_lines_are_broken_between_words_and_keep_their_spaces() {
        let line = "daemon   version 0.1.0, process 17, since 2026-11-29\n  advice";
        assert_eq!(
            folded(line, 34),
            "daemon   version 0.1.0, process\n    17, since 2026-11-29\n  advice"
        );
        assert_eq!(folded(line, 80), line);
        assert_eq!(
            folded("a-word-that-is-longer than that", 10),
            "a-word-that-is-longer\n    than\n    that"
        );
    }

    /// Tries moments that no clock shows, because a recording may have any number as its time.
    #[test]
    fn every_moment_has_a_slot_also_those_that_no_clock_shows() {
        for (seconds, interval, expected) in [
            (59.9, 30, 30),
            (-0.1, 30, -30),
            (f64::NAN, 30, 0),
            (f64::MIN, 30, i64::MIN),
            (f64::MIN, 1, i64::MIN),
            (f64::INFINITY, 10, i64::MAX - 7),
            (90.0, 0, 90),
        ] {
            assert_eq!(slot(seconds, interval), expected, "{seconds} at {interval}");
        }
    }
}
