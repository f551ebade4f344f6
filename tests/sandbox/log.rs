//! Reads the daemon's log, if it was started with `--log-format json`.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::{Process, wait};

/// One entry of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Unix time, in seconds.
    pub at: f64,
    /// `ERROR` … `TRACE`.
    pub level: String,
    /// The part of the program; `libslurm` for libslurm's own lines.
    pub target: String,
    /// Its words.
    pub message: String,
    /// The whole line.
    pub line: String,
}

impl Entry {
    /// Whether a person sees it at the default level.
    #[must_use]
    pub fn is_news(&self) -> bool {
        ["ERROR", "WARN", "INFO"].contains(&self.level.as_str())
    }

    pub(crate) fn parse(line: String) -> Option<Self> {
        let value: Value = serde_json::from_str(&line).ok()?;
        let text = |key| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let at: jiff::Timestamp = text("timestamp")?.parse().ok()?;
        let (level, target, message) = (text("level")?, text("target")?, text("message")?);
        Some(Self { at: at.as_duration().as_secs_f64(), level, target, message, line })
    }
}

/// All entries so far.
pub fn entries(process: &Process) -> Vec<Entry> {
    process.lines().into_iter().filter_map(Entry::parse).collect()
}

/// Waits for the first entry after `since` whose line has these words.
pub fn said(process: &Process, since: f64, words: &str, limit: Duration) -> Result<Entry> {
    wait::until_some(&format!("{words:?} in the log"), limit, || {
        entries(process).into_iter().find(|entry| entry.at > since && entry.line.contains(words))
    })
}
