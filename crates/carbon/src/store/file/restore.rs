//! What an earlier run has left in the file, and what the file has lost of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tally::{Commit, Entries, Tally};
use super::wanted::Wanted;
use super::{File, explain, rows};
use crate::store::{Lost, Restored, StoreError, Summary};

impl File {
    /// What is in a file that was just made, by its own entries.
    pub(in super::super) fn restore(&mut self) -> Result<Restored, StoreError> {
        self.restore_by(None, Vec::new(), 0)
    }

    /// What is in the file. An entry of what is due without all of its points tells what is lost; one that is damaged, or of
    /// a destination that nobody knows, makes its batch due to all where there is no tally: sending twice does less harm than
    /// a loss. With the tally, the file's last commit.
    pub(super) fn restore_by(
        &mut self,
        tally: Option<(Tally, Option<Commit>)>,
        removed: Vec<(String, u64)>,
        unsound: usize,
    ) -> Result<Restored, StoreError> {
        let mut restored = Restored { removed, unsound, ..Restored::default() };
        let read = rows::summaries(&self.connection, &mut restored.batches).and_then(|()| {
            let (rows, read) = Wanted::by_rows(&self.connection, |id| self.name(id).is_some());
            read.map(|()| rows)
        });
        let rows = read.map_err(|source| explain(&self.path, source))?;
        restored.unsound += rows.damaged;
        let wanted = match &tally {
            Some((tally, last)) => {
                // One whose number is damaged may have them all.
                let is_known = last.is_some() || rows.damaged == 0;
                (restored.tallied, restored.behind) =
                    (true, if is_known { tally.ahead_of(*last) } else { 0 });
                &Wanted::by_tally(tally)
            }
            None => &rows,
        };
        let mut due = BTreeSet::new();
        for (&(batch, destination), &points) in &wanted.entries {
            let Some(name) = self.name(destination) else { continue };
            let there = restored.batches.get_mut(&batch).map(|batch| {
                // A number of points that was flipped: they are counted when the frame is read.
                batch.points = batch.points.min(points);
                batch.points
            });
            Lost::count(&mut restored.lost, name, points, there);
            due.extend(there.map(|_| (batch, destination)));
        }
        let all = wanted.is_all_everybodys(|batch| restored.batches.contains_key(&batch));
        let somebodys: BTreeSet<u64> = due.iter().map(|(batch, _)| *batch).collect();
        let strays = self.strays(&mut restored.batches, |batch| {
            somebodys.contains(&batch) || wanted.everybodys.contains(&batch)
        });
        for &batch in restored.batches.keys() {
            if all || wanted.everybodys.contains(&batch) || !somebodys.contains(&batch) {
                due.extend(self.destinations.iter().map(|(_, destination)| (batch, *destination)));
            }
        }
        restored.due = due
            .iter()
            .filter_map(|(batch, destination)| Some((Arc::clone(self.name(*destination)?), *batch)))
            .collect();
        let entry = |key: (u64, i64)| Some((key, restored.batches.get(&key.0)?.points));
        let entries: Entries = due.into_iter().filter_map(entry).collect();
        let rewrite = entries != rows.entries || restored.unsound > 0 || restored.behind > 0;
        let commit = self.commit.next();
        // A disk that takes nothing now leaves them to the next start, which counts them again.
        let written = self.transact(|transaction| {
            if rewrite {
                rows::rewrite_due(transaction, entries.iter().map(|(key, points)| (key.0, key.1, *points)))?;
                rows::put_commit(transaction, commit)?;
            }
            strays.iter().try_for_each(|batch| rows::delete(transaction, *batch))
        });
        match tally {
            Some((tally, _)) if tally.whole && tally.commit == self.commit => self.tally.resume(&tally),
            _ if written.is_ok() => self.tally_anew(),
            _ => {}
        }
        Ok(restored)
    }

    /// A batch that nobody is to have was due to somebody, unless its very number is what was flipped: then nothing of it
    /// fits its checksum, and its true number's entry has been counted. Returns such.
    fn strays(&self, batches: &mut BTreeMap<u64, Summary>, is_wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut strays = Vec::new();
        batches.retain(|&batch, summary| {
            if is_wanted(batch) {
                return true;
            }
            let (frames, error) = rows::readable(&self.connection, batch);
            summary.points = frames.values().map(|(_, frame)| u64::from(frame.points)).sum();
            let is_stray = frames.is_empty() && error.is_none();
            strays.extend(is_stray.then_some(batch));
            !is_stray
        });
        strays
    }
}
