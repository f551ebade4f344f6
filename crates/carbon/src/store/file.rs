//! The SQLite file itself: its schema, one transaction for each change, its bounds.
//!
//! `queue.sqlite3` in the queue's folder: a row a frame, and a row for each destination that has not had a batch. Write-ahead
//! log, a sync for each commit, exclusive locking (so that no shared memory is mapped, and a second daemon is
//! noticed).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::aside::log_of;
use super::{Changes, Kept, NAME, Restored, StoreError, Summary, log};
use crate::wire::Frame;

const VERSION: i64 = 1;
const PAGE: u64 = 4096;
/// Free pages that are left in the file: giving them back and taking them again would cost more.
const FREE_PAGES: u64 = 512;
/// Pages given back in one step.
const SHRINK_STEP: u64 = 2048;
/// What the write-ahead log may take beside the largest batch.
const LOG_BYTES: u64 = 2 << 20;
/// A frame's id is its batch's number and its place in it.
const PART_BITS: u32 = 16;

/// A frame's id, timestamp, points, checksum and body.
type Row = (u64, i64, u32, u32, Vec<u8>);

const SCHEMA: &str = "
CREATE TABLE destination (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE frame (id INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, points INTEGER NOT NULL, checksum INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE due (batch INTEGER NOT NULL, destination INTEGER NOT NULL, PRIMARY KEY (batch, destination)) WITHOUT ROWID;
";

/// An open file.
#[derive(Debug)]
pub(super) struct File {
    connection: Connection,
    path: PathBuf,
    max_bytes: u64,
    destinations: Vec<(Arc<str>, i64)>,
    shrinking: bool,
    /// Bytes that may be appended before the bound must be looked at again.
    headroom: u64,
    bytes: u64,
}

impl File {
    /// Opens or makes the file in `dir`, for these destinations.
    pub(super) fn open(
        dir: &Path,
        max_bytes: u64,
        destinations: &[Arc<str>],
    ) -> Result<(Self, Restored), StoreError> {
        fs::create_dir_all(dir).map_err(|source| StoreError::Folder { path: dir.to_owned(), source })?;
        let path = dir.join(NAME);
        let commits = log::commits(&log_of(&path));
        let open = || -> rusqlite::Result<(Connection, i64, usize)> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL;
                 PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -1024;
                 PRAGMA wal_autocheckpoint = 256; PRAGMA journal_size_limit = 1048576; PRAGMA cell_size_check = ON;
                 BEGIN IMMEDIATE; COMMIT;",
            )?;
            let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            // Of the frames that were read; a full disk may refuse it.
            let checkpoint = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1));
            Ok((connection, version, checkpoint.unwrap_or(usize::MAX)))
        };
        let (connection, version, read) = open().map_err(|source| explain(&path, source))?;
        if version > VERSION {
            return Err(StoreError::Newer { path, version });
        }
        let unread = log::keep_unread(dir, &commits, read);
        let mut file = Self {
            connection,
            path,
            max_bytes,
            destinations: Vec::new(),
            shrinking: false,
            headroom: 0,
            bytes: 0,
        };
        if version == 0 {
            file.create()?;
        }
        let removed = file.set_destinations(destinations)?;
        let restored = file.restore(removed)?;
        Ok((file, Restored { unread, ..restored }))
    }

    fn create(&mut self) -> Result<(), StoreError> {
        self.transact(|transaction| {
            transaction.execute_batch(SCHEMA)?;
            transaction.execute_batch(&format!("PRAGMA user_version = {VERSION}"))
        })
    }

    /// Other destinations and another bound from now on.
    pub(super) fn reconfigure(&mut self, names: &[Arc<str>], max_bytes: u64) -> Result<(), StoreError> {
        // The bound is looked at again with the next batch.
        (self.max_bytes, self.headroom) = (max_bytes, 0);
        self.set_destinations(names).map(|_| ())
    }

    /// Forgets destinations that there are no longer; returns them with what each had not had.
    pub(super) fn set_destinations(&mut self, names: &[Arc<str>]) -> Result<Vec<(String, u64)>, StoreError> {
        let (removed, known) = self.transact(|transaction| {
            let mut removed = Vec::new();
            let before: Vec<(i64, String)> = transaction
                .prepare("SELECT id, name FROM destination")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            for (id, name) in before {
                if names.iter().any(|wanted| **wanted == *name) {
                    continue;
                }
                let due = transaction.execute("DELETE FROM due WHERE destination = ?", [id])?;
                transaction.execute("DELETE FROM destination WHERE id = ?", [id])?;
                removed.push((name, u64::try_from(due).unwrap_or(u64::MAX)));
            }
            let mut known = Vec::new();
            for name in names {
                transaction.execute("INSERT OR IGNORE INTO destination (name) VALUES (?)", [&**name])?;
                let id =
                    transaction.query_row("SELECT id FROM destination WHERE name = ?", [&**name], |row| {
                        row.get(0)
                    })?;
                known.push((Arc::clone(name), id));
            }
            if !removed.is_empty() {
                let orphans =
                    "DELETE FROM frame WHERE NOT EXISTS (SELECT 1 FROM due WHERE batch = frame.id >> ?)";
                transaction.execute(orphans, [PART_BITS])?;
            }
            Ok((removed, known))
        })?;
        self.destinations = known;
        Ok(removed)
    }

    fn restore(&self, removed: Vec<(String, u64)>) -> Result<Restored, StoreError> {
        let read = || -> rusqlite::Result<Restored> {
            let mut restored = Restored { removed, ..Restored::default() };
            let mut frames =
                self.connection.prepare("SELECT id, timestamp, points, length(body) FROM frame")?;
            let mut rows = frames.query([])?;
            while let Some(row) = rows.next()? {
                let (id, timestamp, points, bytes): (u64, i64, u64, usize) =
                    (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                let summary = restored
                    .batches
                    .entry(id >> PART_BITS)
                    .or_insert(Summary { timestamp, ..Summary::default() });
                summary.points = summary.points.saturating_add(points);
                summary.bytes = summary.bytes.saturating_add(bytes);
            }
            let mut due = self.connection.prepare("SELECT batch, destination FROM due")?;
            let mut rows = due.query([])?;
            while let Some(row) = rows.next()? {
                let (batch, destination): (u64, i64) = (row.get(0)?, row.get(1)?);
                let name = self.destinations.iter().find(|(_, id)| *id == destination);
                if let Some((name, _)) = name.filter(|_| restored.batches.contains_key(&batch)) {
                    restored.due.push((Arc::clone(name), batch));
                }
            }
            Ok(restored)
        };
        read().map_err(|source| explain(&self.path, source))
    }

    /// All of `changes` in one commit. Returns the batches that had to make room.
    pub(super) fn apply(&mut self, changes: &Changes) -> Result<Vec<u64>, StoreError> {
        let destinations = self.destinations.clone();
        let (max_bytes, mut headroom) = (self.max_bytes, self.headroom);
        let (dropped, headroom) = self.transact(|transaction| {
            for (name, batch) in &changes.done {
                let Some((_, id)) = destinations.iter().find(|(known, _)| known == name) else { continue };
                transaction
                    .prepare_cached("DELETE FROM due WHERE batch = ? AND destination = ?")?
                    .execute(params![batch, id])?;
                let left: Option<i64> = transaction
                    .prepare_cached("SELECT 1 FROM due WHERE batch = ? LIMIT 1")?
                    .query_row([batch], |row| row.get(0))
                    .optional()?;
                if left.is_none() {
                    delete_frames(transaction, *batch)?;
                }
            }
            for batch in &changes.forget {
                delete(transaction, *batch)?;
            }
            let mut dropped = Vec::new();
            for kept in &changes.append {
                let bytes = needs(kept);
                if headroom < bytes {
                    headroom = make_room(transaction, bytes, max_bytes, &mut dropped)?;
                }
                headroom = headroom.saturating_sub(bytes);
                insert(transaction, kept, &destinations)?;
            }
            Ok((dropped, headroom))
        })?;
        let looked = headroom > self.headroom;
        self.headroom = headroom;
        if looked || !changes.done.is_empty() || !changes.forget.is_empty() || !dropped.is_empty() {
            self.look_at_size()?;
        }
        Ok(dropped)
    }

    fn look_at_size(&mut self) -> Result<(), StoreError> {
        let (all, free) = self.pages()?;
        self.shrinking = free > FREE_PAGES.max(all.saturating_sub(free) / 2);
        let log = PathBuf::from(format!("{}-wal", self.path.display()));
        let files = [&self.path, &log];
        self.bytes =
            files.into_iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum();
        Ok(())
    }

    /// The frames of a batch, checked.
    pub(super) fn load(&mut self, batch: u64) -> Result<Arc<[Frame]>, StoreError> {
        let (first, last) = ids(batch);
        let read = || -> rusqlite::Result<Vec<Row>> {
            let columns = "SELECT id, timestamp, points, checksum, body FROM frame WHERE id BETWEEN ? AND ? ORDER BY id";
            let mut frames = self.connection.prepare_cached(columns)?;
            let rows = frames.query_map([first, last], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })?;
            rows.collect()
        };
        let damaged =
            |reason: &str| StoreError::Damaged { path: self.path.clone(), reason: reason.to_owned() };
        let rows = read().map_err(|source| explain(&self.path, source))?;
        if rows.is_empty() {
            return Err(damaged("a batch has no frames"));
        }
        rows.into_iter()
            .map(|(id, timestamp, points, sum, body)| {
                let frame = Frame { points, body };
                if checksum(id, timestamp, &frame) == sum {
                    Ok(frame)
                } else {
                    Err(damaged("a checksum does not fit"))
                }
            })
            .collect()
    }

    /// Whether free pages wait to be given back.
    pub(super) const fn wants_to_shrink(&self) -> bool {
        self.shrinking
    }

    /// Gives some free pages back to the file system.
    pub(super) fn shrink(&mut self) -> Result<(), StoreError> {
        let vacuum = || -> rusqlite::Result<()> {
            let mut step =
                self.connection.prepare_cached(&format!("PRAGMA incremental_vacuum({SHRINK_STEP})"))?;
            let mut rows = step.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        };
        vacuum().map_err(|source| explain(&self.path, source))?;
        let (_, free) = self.pages()?;
        if free > FREE_PAGES {
            return Ok(());
        }
        let truncate = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        truncate.map_err(|source| explain(&self.path, source))?;
        self.look_at_size()?;
        self.shrinking = false;
        Ok(())
    }

    /// What the file and its log took when they were last looked at.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pages in the file, and the free ones among them.
    fn pages(&self) -> Result<(u64, u64), StoreError> {
        pages(&self.connection).map_err(|source| explain(&self.path, source))
    }

    fn transact<T>(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let done = transaction.and_then(|transaction| {
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        });
        done.map_err(|source| explain(&self.path, source))
    }
}

fn ids(batch: u64) -> (u64, u64) {
    let first = batch << PART_BITS;
    (first, first | ((1 << PART_BITS) - 1))
}

fn delete_frames(connection: &Connection, batch: u64) -> rusqlite::Result<usize> {
    let (first, last) = ids(batch);
    connection.prepare_cached("DELETE FROM frame WHERE id BETWEEN ? AND ?")?.execute([first, last])
}

fn delete(connection: &Connection, batch: u64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM due WHERE batch = ?")?.execute([batch])?;
    delete_frames(connection, batch).map(|_| ())
}

fn insert(connection: &Connection, kept: &Kept, destinations: &[(Arc<str>, i64)]) -> rusqlite::Result<()> {
    let (first, last) = ids(kept.id);
    for (id, frame) in (first..=last).zip(kept.frames.iter()) {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO frame (id, timestamp, points, checksum, body) VALUES (?, ?, ?, ?, ?)",
            )?
            .execute(params![
                id,
                kept.timestamp,
                frame.points,
                checksum(id, kept.timestamp, frame),
                frame.body
            ])?;
    }
    for name in &kept.due {
        if let Some((_, destination)) = destinations.iter().find(|(known, _)| known == name) {
            connection
                .prepare_cached("INSERT OR REPLACE INTO due (batch, destination) VALUES (?, ?)")?
                .execute(params![kept.id, destination])?;
        }
    }
    Ok(())
}

/// What a batch takes in the file, at most: its frames in whole pages.
fn needs(kept: &Kept) -> u64 {
    kept.frames
        .iter()
        .map(|frame| u64::try_from(frame.body.len()).unwrap_or(u64::MAX).saturating_add(2 * PAGE))
        .sum()
}

/// Deletes from the oldest on until `bytes` fit below the bound, beside what the log may take. Returns how many more
/// bytes fit then.
fn make_room(
    connection: &Connection,
    bytes: u64,
    max_bytes: u64,
    dropped: &mut Vec<u64>,
) -> rusqlite::Result<u64> {
    let bound = max_bytes.saturating_sub(LOG_BYTES).saturating_sub(2 * bytes);
    loop {
        let (all, free) = pages(connection)?;
        let used = all.saturating_sub(free).saturating_mul(PAGE);
        if used.saturating_add(bytes) <= bound {
            return Ok(bound.saturating_sub(used));
        }
        let oldest: Option<u64> = connection
            .prepare_cached("SELECT id FROM frame ORDER BY id LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        let Some(oldest) = oldest else { return Ok(bytes) };
        delete(connection, oldest >> PART_BITS)?;
        dropped.push(oldest >> PART_BITS);
    }
}

fn pages(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let number = |pragma: &str| connection.prepare_cached(pragma)?.query_row([], |row| row.get::<_, u64>(0));
    Ok((number("PRAGMA page_count")?, number("PRAGMA freelist_count")?))
}

/// Over everything that is sent, and where it belongs.
fn checksum(id: u64, timestamp: i64, frame: &Frame) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(&timestamp.to_le_bytes());
    hasher.update(&frame.points.to_le_bytes());
    hasher.update(&frame.body);
    hasher.finalize()
}

fn explain(path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked(path),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged { path, reason: source.to_string() }
        }
        // A table or column that is not there, a text where a number was: not what was written.
        Some(ErrorCode::Unknown) => StoreError::Damaged { path, reason: source.to_string() },
        None => StoreError::Damaged { path, reason: source.to_string() },
        Some(_) => StoreError::Sqlite { path, source },
    }
}

#[cfg(test)]
mod tests;
