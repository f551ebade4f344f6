//! Ticks that a daemon collected according to its own record, compared with whisper.
//!
//! The record is the daemon's log at level trace, in JSON: "tick collected" with all points of a
//! tick before they enter the queue, and "tick kept" when they are safe there. A datapoint counts
//! only if both lines are there, because a SIGKILL between them may lose it. Nothing here knows how
//! the queue works.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::recorded::point;
use crate::{Carbon, Entry, Series, now};

/// The points of one tick, by path.
pub type Points = BTreeMap<String, f64>;

/// The record, read as it grows.
#[derive(Debug)]
pub struct Collected {
    log: PathBuf,
    offset: u64,
    ticks: BTreeMap<u64, Tick>,
    /// The timestamp that was collected last. It may not be the highest, because the clock may have
    /// been set back.
    newest: Option<u64>,
    entries: Vec<Entry>,
}

/// One timestamp: a tick, and the surveys that it began, with a batch each.
#[derive(Debug, Default)]
struct Tick {
    points: Points,
    collected: usize,
    kept: usize,
}

/// The comparison with whisper.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Ticks that were collected.
    pub ticks: usize,
    /// The first and the last of them.
    pub span: Option<(u64, u64)>,
    /// Datapoints that were checked.
    pub checked: u64,
    /// Datapoints that are missing: paths by timestamp.
    pub lost: BTreeMap<u64, Vec<String>>,
    /// Slots with a value that was never collected for them, as text.
    pub wrong: Vec<String>,
}

impl Collected {
    /// Reads this log, which need not exist yet.
    pub fn new(log: &Path) -> Self {
        Self {
            log: log.to_owned(),
            offset: 0,
            ticks: BTreeMap::new(),
            newest: None,
            entries: Vec::new(),
        }
    }

    /// Reads what has been added to the log.
    /// A timestamp that was collected twice is an error.
    pub fn look(&mut self) -> Result<()> {
        let Ok(mut file) = File::open(&self.log) else { return Ok(()) };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut added = Vec::new();
        file.read_to_end(&mut added)?;
        let whole = added.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        added.truncate(whole);
        self.offset += whole as u64;
        for line in String::from_utf8_lossy(&added).lines() {
            self.line(line)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let (collected, kept) =
            (line.contains("\"tick collected\""), line.contains("\"tick kept\""));
        if !collected && !kept {
            if let Some(mut entry) =
                Entry::parse(line.to_owned()).filter(|entry| entry.level != "TRACE")
            {
                // The daemon's clock may have been ahead.
                entry.at = entry.at.min(now());
                self.entries.push(entry);
            }
            return Ok(());
        }
        // Cut off by a SIGKILL, so it says nothing.
        let Ok(value) = serde_json::from_str::<Value>(line) else { return Ok(()) };
        // The entry has two timestamps: its own and, last, the tick's.
        let timestamp =
            value.get("tick").and_then(Value::as_u64).context("a tick without its timestamp")?;
        if kept {
            self.ticks.entry(timestamp).or_default().kept += 1;
            return Ok(());
        }
        let lines =
            value.get("lines").and_then(Value::as_str).context("a tick without its points")?;
        let tick = self.ticks.entry(timestamp).or_default();
        for line in lines.lines() {
            let (path, value, _) = point(line).context("a point that is none")?;
            ensure!(
                tick.points.insert(path.to_owned(), value).is_none(),
                "{timestamp} was collected twice: {line}"
            );
        }
        tick.collected += 1;
        self.newest = Some(timestamp);
        Ok(())
    }

    /// The ticks that count, with their points.
    pub fn counted(&self) -> impl Iterator<Item = (u64, &Points)> {
        let counted =
            self.ticks.iter().filter(|(_, tick)| tick.collected > 0 && tick.kept >= tick.collected);
        counted.map(|(&at, tick)| (at, &tick.points))
    }

    /// Whether exactly this value was collected, whether or not its tick counts.
    #[must_use]
    pub fn is_collected(&self, timestamp: u64, path: &str, value: f64) -> bool {
        let collected = self.ticks.get(&timestamp).and_then(|tick| tick.points.get(path));
        collected.is_some_and(|collected| collected.to_bits() == value.to_bits())
    }

    /// The newest tick that counts.
    pub fn newest(&self) -> Option<u64> {
        self.counted().last().map(|(at, _)| at)
    }

    /// The points that were collected last.
    pub fn last_points(&self) -> Option<&Points> {
        Some(&self.ticks.get(&self.newest?)?.points)
    }

    /// The newest collected value of the only path that ends like this.
    pub fn last(&self, end: &str) -> Option<f64> {
        self.last_points()?.iter().find(|(path, _)| path.ends_with(end)).map(|(_, &value)| value)
    }

    /// The log's other entries, from level debug upwards.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Those after `since` that a person sees at the default level.
    pub fn news(&self, since: f64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.at > since && entry.is_news())
    }

    /// Whether the log contains these words after `since`.
    #[must_use]
    pub fn said(&self, since: f64, words: &str) -> bool {
        self.entries.iter().any(|entry| entry.at > since && entry.line.contains(words))
    }

    /// Compares everything that was collected with what these Carbons have together. The daemon may
    /// keep running: every point that the record had before the files were read must be in them,
    /// and every point in the files must be in the record afterwards.
    pub fn compare(&mut self, carbons: &[&Carbon]) -> Result<Findings> {
        let due: Vec<u64> = self.counted().map(|(at, _)| at).collect();
        let span = due.first().copied().zip(due.last().copied());
        let mut findings = Findings { span, ..Findings::default() };
        let mut stored = BTreeMap::new();
        let paths = carbons.iter().flat_map(|carbon| carbon.paths());
        // Nobody has sent Carbon its own figures.
        for (path, file) in paths.filter(|(path, _)| !path.starts_with("carbon.agents.")) {
            // A file that is just being created has no header yet.
            let Ok(series) = Series::read(&file) else { continue };
            if stored.insert(path.clone(), series).is_some() {
                findings.wrong.push(format!("{path} is in two places"));
            }
        }
        self.look()?;
        for (path, series) in &stored {
            for (&at, &value) in &series.points {
                if !self.is_collected(at, path, value) {
                    findings.wrong.push(format!("{path} at {at} is {value}"));
                }
            }
        }
        for at in due {
            let Some(Tick { points, .. }) = self.ticks.get(&at) else { continue };
            findings.ticks += 1;
            findings.checked += points.len() as u64;
            let missing =
                |path: &&String| stored.get(*path).and_then(|series| series.at(at)).is_none();
            let missing: Vec<String> = points.keys().filter(missing).cloned().collect();
            if !missing.is_empty() {
                findings.lost.insert(at, missing);
            }
        }
        Ok(findings)
    }
}

impl Findings {
    /// Number of datapoints that are missing.
    pub fn missing(&self) -> usize {
        self.lost.values().map(Vec::len).sum()
    }

    /// Returns itself if nothing is lost or wrong.
    pub fn clean(self) -> Result<Self> {
        ensure!(self.missing() == 0 && self.wrong.is_empty() && self.checked > 0, "{self}");
        Ok(self)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, wrong) = (self.missing(), self.wrong.len());
        write!(f, "{} ticks, {} datapoints, {lost} lost, {wrong} wrong", self.ticks, self.checked)?;
        if let Some((first, last)) = self.span.filter(|_| lost > 0) {
            write!(f, "; the ticks are {first} to {last}")?;
        }
        for (at, paths) in self.lost.iter().take(10) {
            let leaf = paths.first().and_then(|path| path.rsplit('.').next()).unwrap_or_default();
            write!(f, "\n  lost at {at}: {}, such as {leaf}", paths.len())?;
        }
        self.wrong.iter().take(10).try_for_each(|wrong| write!(f, "\n  wrong: {wrong}"))
    }
}
