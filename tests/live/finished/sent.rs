//! What was sent about finished jobs, as whisper stores it: the last value of each slot.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::truth::Jobs;

const FAMILY: &str = "cluster.slurm_jobs_finished.";

/// Values by path after the family, and by timestamp.
#[derive(Debug, Default)]
pub(super) struct Sent(BTreeMap<String, BTreeMap<u64, u64>>);

impl Sent {
    /// From lines of the plaintext protocol: whole numbers, and CPU time in ms. A slot may be sent again, but only with
    /// the same contents.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut sent = Self::default();
        for line in String::from_utf8_lossy(&bytes[..end]).lines() {
            let Some(rest) = line.strip_prefix(FAMILY) else { continue };
            let mut words = rest.split(' ');
            let mut word = || words.next().context("a line of three words");
            let (path, value, at) = (word()?, word()?, word()?.parse()?);
            let value = match value.split_once('.') {
                None if path.contains("cpu_used_seconds") => format!("{value}000"),
                Some((seconds, ms)) if path.contains("cpu_used_seconds") => format!("{seconds}{ms:0<3}"),
                _ => value.to_owned(),
            };
            let value = value.parse().with_context(|| format!("a whole number in {line}"))?;
            let before = sent.0.entry(path.to_owned()).or_default().insert(at, value);
            ensure!(
                before.is_none_or(|before| before == value),
                "{path} at {at} was {before:?}, then {value}"
            );
        }
        Ok(sent)
    }

    pub(super) fn rounds(&self) -> usize {
        self.0.get("reading.gauge-late_jobs").map_or(0, BTreeMap::len)
    }

    pub(super) fn last(&self, path: &str) -> Option<u64> {
        self.0.get(path)?.last_key_value().map(|(_, value)| *value)
    }

    /// The slot of the first round after `slot` that contains started jobs.
    pub(super) fn first_after(&self, slot: u64) -> Option<u64> {
        let started = self.0.get("total.work.gauge-started")?.range(slot + 1..);
        started.filter(|(_, jobs)| **jobs > 0).map(|(slot, _)| *slot).next()
    }

    pub(super) fn last_slot(&self) -> u64 {
        self.0.values().filter_map(|values| values.last_key_value()).map(|(slot, _)| *slot).max().unwrap_or(0)
    }

    pub(super) fn at(&self, path: &str, slot: u64) -> Option<u64> {
        self.0.get(path)?.get(&slot).copied()
    }

    pub(super) fn sum(&self, path: &str) -> u64 {
        self.0.get(path).map_or(0, |values| values.values().sum())
    }

    /// Jobs by level and state, since the first start.
    pub(super) fn totals(&self) -> Jobs {
        self.jobs("jobs_total", |path| self.last(path).unwrap_or(0))
    }

    /// The same as the sum of all slots.
    pub(super) fn sums(&self) -> Jobs {
        self.jobs("jobs", |path| self.sum(path))
    }

    fn jobs(&self, leaf: &str, value: impl Fn(&str) -> u64) -> Jobs {
        let mut jobs = Jobs::new();
        let end = format!(".gauge-{leaf}");
        for path in self.0.keys() {
            let state = path.strip_suffix(&end).and_then(|level| level.split_once(".state."));
            if let (Some((level, state)), 1..) = (state, value(path)) {
                jobs.entry(level.to_owned()).or_default().insert(state.to_owned(), value(path));
            }
        }
        jobs
    }
}
