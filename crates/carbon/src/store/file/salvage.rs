//! What can still be read of a file that was set aside, taken over into the new one frame by frame.
//!
//! The file aside is only read, together with its log in a copy; a person may know more of it. What it was to deliver and no
//! longer has is counted from its tally, or else from the entries of what was due; where those cannot be read either, nobody
//! knows how much it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::rows::{self, Order};
use super::tally::{Tally, is_blind};
use super::wanted::Wanted;
use super::{Changes, File};
use crate::store::aside::{log_of, tally_of};
use crate::store::{Kept, Lost, StoreError, log};

/// Taken over in one commit.
const AT_ONCE: usize = 256;
const BYTES_AT_ONCE: u64 = 4 << 20;

/// What became of a file's batches.
#[derive(Debug, Default)]
pub(in super::super) struct Salvage {
    /// Those that are in the new file, whole or in part.
    pub(in super::super) saved: BTreeSet<u64>,
    /// What each destination was to have, and will not.
    pub(in super::super) lost: BTreeMap<Arc<str>, Lost>,
    /// Whether that is all of it.
    pub(in super::super) counted: bool,
    /// Nothing tells whether the file had lost its last commits before.
    pub(in super::super) blind: bool,
}

/// Takes over what can be read of the file at `from`, and of its log. An error is the new file's or the disk's, and what has
/// been taken over until then is not all: the file at `from` must be kept for another time.
pub(in super::super) fn salvage(from: &Path, into: &mut File) -> Result<Salvage, StoreError> {
    let merged = PathBuf::from(format!("{}.merged", from.display()));
    // Of a run that was interrupted.
    let _ = fs::remove_file(log_of(&merged));
    let remove = || {
        let _ = fs::remove_file(&merged);
        let _ = fs::remove_file(log_of(&merged));
    };
    let tally = Tally::read(&tally_of(from));
    let salvage = match log::merge(from, &merged) {
        Ok(with_log) => salvage_from(if with_log { &merged } else { from }, tally, into),
        Err(source) if is_no_room(&source) => Err(StoreError::Folder { path: merged.clone(), source }),
        // What the disk does not give of it as a whole it may give page by page.
        Err(_) => {
            remove();
            salvage_from(from, tally, into)
        }
    };
    remove();
    salvage
}

fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn salvage_from(from: &Path, tally: Option<Tally>, into: &mut File) -> Result<Salvage, StoreError> {
    let mut salvage = Salvage::default();
    // In an empty one nothing is found, and the tally counts.
    let Ok(connection) = open(from).or_else(|_| Connection::open_in_memory()) else { return Ok(salvage) };
    let last = rows::commit(&connection).unwrap_or_default();
    salvage.blind = is_blind(tally.as_ref(), last, false);
    let tally = tally.filter(|tally| tally.covers(last));
    let wanted = tally.as_ref().map_or_else(|| by_rows(&connection, into), Wanted::by_tally);
    salvage.counted = wanted.whole && wanted.everybodys.is_empty();
    let mut batches = BTreeSet::new();
    for order in [Order::Oldest, Order::Newest] {
        if rows::batches(&connection, order, |batch| batches.extend([batch])).is_ok() {
            break;
        }
    }
    let all = wanted.is_all_everybodys(|batch| batches.contains(&batch));
    batches.extend(wanted.entries.keys().map(|(batch, _)| batch));
    let mut taken = Vec::new();
    for batch in batches {
        let due = wanted.of(batch).collect::<Vec<_>>();
        let everybodys = all || due.is_empty() || wanted.everybodys.contains(&batch);
        if let Some(kept) = salvage.kept(&connection, into, batch, &due, everybodys) {
            taken.push(kept);
        }
        let bytes: u64 = taken.iter().map(rows::needs).sum();
        if taken.len() >= AT_ONCE || bytes >= BYTES_AT_ONCE {
            salvage.take_over(into, std::mem::take(&mut taken))?;
        }
    }
    salvage.take_over(into, taken)?;
    Ok(salvage)
}

impl Salvage {
    /// What can be read of a batch, for those that are to have it.
    fn kept(
        &mut self,
        connection: &Connection,
        into: &File,
        batch: u64,
        due: &[(i64, u64)],
        everybodys: bool,
    ) -> Option<Kept> {
        let (frames, _) = rows::readable(connection, batch);
        let timestamp = frames.first_key_value().map(|(_, (timestamp, _))| *timestamp);
        let frames: Arc<[_]> = frames.into_values().map(|(_, frame)| frame).collect();
        let mut kept = Kept { id: batch, timestamp: timestamp.unwrap_or(0), frames, due: Vec::new() };
        let there = timestamp.map(|_| kept.points());
        for (destination, points) in due {
            let Some(name) = into.name(*destination) else { continue };
            Lost::count(&mut self.lost, name, *points, there);
            kept.due.push(Arc::clone(name));
        }
        if everybodys {
            // Twice does less harm than never.
            kept.due = into.destinations.iter().map(|(name, _)| Arc::clone(name)).collect();
        }
        (there.is_some() && !kept.due.is_empty()).then_some(kept)
    }

    fn take_over(&mut self, into: &mut File, taken: Vec<Kept>) -> Result<(), StoreError> {
        if taken.is_empty() {
            return Ok(());
        }
        let changes = Changes { append: taken, ..Changes::default() };
        let dropped = into.apply(&changes)?;
        for kept in &changes.append {
            if !dropped.contains(&kept.id) {
                self.saved.insert(kept.id);
                continue;
            }
            kept.due.iter().for_each(|name| Lost::count(&mut self.lost, name, kept.points(), None));
        }
        // An earlier one may have had to make room.
        for id in dropped {
            self.saved.remove(&id);
        }
        Ok(())
    }
}

/// For reading only, whatever the header says of the file's length; its log is left as it is.
fn open(from: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(from, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Before anything is read, or a file that is too short is refused as a whole.
    connection.execute_batch(
        "PRAGMA writable_schema = ON; PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -1024;
         PRAGMA cell_size_check = ON;",
    )?;
    Ok(connection)
}

/// A destination that there is no longer may have a name all the same.
fn by_rows(connection: &Connection, into: &File) -> Wanted {
    let names = rows::destinations(connection).map(|(names, _)| names).unwrap_or_default();
    Wanted::by_rows(connection, |id| into.name(id).is_some() || names.contains_key(&id)).0
}
