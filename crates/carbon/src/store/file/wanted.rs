//! What is due to whom: by the tally where that knows, else by the file's own entries as far as they can be read.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::rows::{self, Order};
use super::tally::{Entries, Tally};

#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// To whom a batch is due, with its points.
    pub(super) entries: Entries,
    /// Batches with a damaged entry, or one of a destination that nobody knows: such are due to all.
    pub(super) everybodys: BTreeSet<u64>,
    /// Numbers in damaged entries: each may be another batch's.
    pub(super) unsound: BTreeSet<u64>,
    /// Entries that are not what was written.
    pub(super) damaged: usize,
    /// All entries could be read.
    pub(super) whole: bool,
}

impl Wanted {
    pub(super) fn by_tally(tally: &Tally) -> Self {
        Self { entries: tally.entries.clone(), whole: true, ..Self::default() }
    }

    /// What the file says itself; an error where not all of it can be read.
    pub(super) fn by_rows(
        connection: &Connection,
        is_known: impl Fn(i64) -> bool,
    ) -> (Self, rusqlite::Result<()>) {
        let mut wanted = Self::default();
        let mut read = |order| {
            rows::due(connection, order, |due| {
                if due.sound {
                    wanted.entries.insert((due.batch, due.destination), due.points);
                } else {
                    wanted.unsound.insert(due.batch);
                    wanted.damaged += 1;
                }
            })
        };
        let unreadable = read(Order::Oldest);
        if unreadable.is_err() {
            // It fails too, as a rule: what it has read until then counts.
            let _ = read(Order::Newest);
        }
        wanted.whole = matches!(unreadable, Ok(0));
        let strange = wanted.entries.keys().filter(|(_, destination)| !is_known(*destination));
        let strange: Vec<u64> = strange.map(|(batch, _)| *batch).collect();
        wanted.damaged += strange.len() + unreadable.as_ref().map_or(0, |unreadable| *unreadable);
        wanted.everybodys.extend(wanted.unsound.iter().copied().chain(strange));
        (wanted, unreadable.map(|_| ()))
    }

    /// To whom a batch is due, with its points.
    pub(super) fn of(&self, batch: u64) -> impl Iterator<Item = (i64, u64)> {
        let entries = self.entries.range((batch, i64::MIN)..=(batch, i64::MAX));
        entries.map(|((_, destination), points)| (*destination, *points))
    }

    /// Whether every batch must be taken for everybody's: whose a damaged entry is cannot be known, with these batches there.
    pub(super) fn is_all_everybodys(&self, is_there: impl Fn(u64) -> bool) -> bool {
        !self.whole || !self.unsound.iter().all(|&batch| is_there(batch))
    }
}
