//! Every command except `run`: its output, its exit code, and its messages if something is wrong.

mod absent;
mod carbon_rules;
mod check;
mod colours;
mod default_file;
mod doctor;
mod hostile;
mod jobs;
mod once;
mod terminal;
mod text;
mod version;
mod watch;

use std::time::Duration;

pub(crate) use self::terminal::Terminal;

/// Time that a person at a terminal is willing to wait.
const SOON: Duration = Duration::from_secs(5);

/// A line that `stats --json` printed once.
const RECORDING: &str = include_str!("commands/reading.json");
