//! What was sent about finished jobs, as whisper stores it: the last value of each slot.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use sandbox::{Carbon, Series};

use super::jobs::DOTTED;
use super::versions::Expected;

const FAMILY: &str = "cluster.slurm_jobs_finished.";

/// Values by path after the family, and by timestamp.
#[derive(Debug, Default)]
pub(super) struct Sent(BTreeMap<String, BTreeMap<u64, u64>>);

/// The account with a dot has another name in paths.
fn plain(path: &str) -> String {
    let rest = path.strip_prefix("account.chem_lab-").and_then(|rest| rest.split_once('.'));
    rest.map_or_else(|| path.to_owned(), |(_, rest)| format!("account.{DOTTED}.{rest}"))
}

impl Sent {
    /// From lines of the plaintext protocol: whole numbers, and CPU time in ms. A slot may be sent
    /// again, but only with the same contents.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut sent = Self::default();
        for line in String::from_utf8_lossy(&bytes[..end]).lines() {
            let Some(rest) = line.strip_prefix(FAMILY) else { continue };
            let mut words = rest.split(' ');
            let mut word = || words.next().context("a line of three words");
            let (path, value, at) = (word()?, word()?, word()?.parse()?);
            let value = match value.split_once('.') {
                None if path.contains("cpu_used_seconds") => format!("{value}000"),
                Some((seconds, ms)) if path.contains("cpu_used_seconds") => {
                    format!("{seconds}{ms:0<3}")
                }
                _ => value.to_owned(),
            };
            let value = value.parse().with_context(|| format!("a whole number in {line}"))?;
            let before = sent.0.entry(plain(path)).or_default().insert(at, value);
            ensure!(
                before.is_none_or(|before| before == value),
                "{path} at {at} was {before:?}, then {value}"
            );
        }
        Ok(sent)
    }

    pub(super) fn of_whisper(carbon: &Carbon) -> Result<Self> {
        let mut sent = Self::default();
        for (path, file) in carbon.paths() {
            let Some(path) = path.strip_prefix(FAMILY) else { continue };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "counts and seconds"
            )]
            let points =
                Series::read(&file)?.points.into_iter().map(|(at, value)| (at, value as u64));
            sent.0.insert(plain(path), points.collect());
        }
        Ok(sent)
    }

    /// The levels that have a total of jobs.
    pub(super) fn levels(&self) -> Vec<&str> {
        self.0.keys().filter_map(|path| path.strip_suffix(".work.gauge-jobs_total")).collect()
    }

    pub(super) fn rounds(&self) -> usize {
        self.slots("reading.gauge-unproved")
    }

    pub(super) fn slots(&self, path: &str) -> usize {
        self.0.get(path).map_or(0, BTreeMap::len)
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
        self.0
            .values()
            .filter_map(|values| values.last_key_value())
            .map(|(slot, _)| *slot)
            .max()
            .unwrap_or(0)
    }

    pub(super) fn at(&self, path: &str, slot: u64) -> Option<u64> {
        self.0.get(path)?.get(&slot).copied()
    }

    pub(super) fn slots_with(&self, path: &str, value: u64) -> impl Iterator<Item = u64> {
        let values = self.0.get(path).into_iter().flatten();
        values.filter(move |(_, its)| **its == value).map(|(slot, _)| *slot)
    }

    pub(super) fn sum(&self, path: &str) -> u64 {
        self.0.get(path).map_or(0, |values| values.values().sum())
    }

    /// Every figure that has a total, by level and leaf.
    fn figures(&self) -> impl Iterator<Item = (String, String)> {
        self.0.keys().filter_map(|path| {
            let path = path.strip_suffix("_total").filter(|path| !path.starts_with("reading."))?;
            let at = path.rfind(".state.").or_else(|| path.rfind(".work."))?;
            Some((path.get(..at)?.to_owned(), path.get(at + 1..)?.to_owned()))
        })
    }

    /// Compares all totals, and the sums of all slots, with what is expected. Returns how many were
    /// compared.
    ///
    /// # Errors
    /// They differ; the error names them.
    pub(super) fn compare(&self, expected: &Expected) -> Result<usize> {
        let paths: BTreeSet<_> = self.figures().chain(expected.figures.keys().cloned()).collect();
        let mut wrong = Vec::new();
        for (level, leaf) in &paths {
            let path = format!("{level}.{leaf}");
            let (total, sum) = (self.last(&format!("{path}_total")).unwrap_or(0), self.sum(&path));
            let (least, most) =
                expected.figures.get(&(level.clone(), leaf.clone())).copied().unwrap_or_default();
            if total != sum || !(least..=most).contains(&total) {
                let slots: Vec<_> = self.0.get(&path).into_iter().flatten().collect();
                let slots: Vec<_> = slots.iter().filter(|(_, value)| **value > 0).collect();
                wrong.push(format!(
                    "{path}: total {total}, all slots {sum}, expected {least} to {most}; {slots:?}"
                ));
            }
        }
        let (all, count) = (paths.len(), wrong.len());
        wrong.sort_by_key(|line| !line.starts_with("total."));
        wrong.truncate(50);
        ensure!(count == 0, "{count} of {all} figures differ:\n{}", wrong.join("\n"));
        Ok(all)
    }

    /// The number of rows in the window never falls, because it is longer than the test and nothing
    /// is purged. But a round reads the newest piece first: a row whose end moves meanwhile may be
    /// in none of its pieces, or in two.
    ///
    /// # Errors
    /// It falls by more: a query that failed was published as an empty answer.
    pub(super) fn no_false_zero(&self, moved_ends: &[(u64, u64)]) -> Result<()> {
        let of = |leaf: &str| self.0.get(&format!("reading.gauge-{leaf}")).into_iter().flatten();
        let seconds: BTreeMap<_, _> =
            of("round_time").map(|(at, micros)| (at, micros / 1_000_000)).collect();
        let rows: Vec<_> = of("window_jobs").collect();
        for (before, after) in rows.iter().zip(rows.iter().skip(1)) {
            // A round's slot is that of its end.
            let rounds =
                [before.0, after.0].map(|end| end - 1 - seconds.get(end).unwrap_or(&0)..=*end);
            let moved =
                moved_ends.iter().filter(|(_, at)| rounds.iter().any(|round| round.contains(at)));
            let moved: BTreeSet<_> = moved.map(|(row, _)| row).collect();
            let fallen = before.1.saturating_sub(*after.1);
            ensure!(
                fallen <= moved.len() as u64,
                "{fallen} of {} rows in the window disappear at {}, while these rows' ends move: \
                    {moved:?}",
                before.1,
                after.0
            );
        }
        Ok(())
    }
}
