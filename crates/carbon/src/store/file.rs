//! The SQLite file itself: opening it, one transaction for each change, its size. Its rows are in rows.rs.
//!
//! `queue.sqlite3` in the queue's folder. Write-ahead log, a sync for each commit, exclusive locking (so that no shared
//! memory is mapped, and a second daemon is noticed). Every commit has a number, which its tally has too.

mod restore;
mod rows;
mod salvage;
mod tally;
mod wanted;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::ffi::SQLITE_IOERR_SHORT_READ;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

pub(super) use self::salvage::{Salvage, salvage};
use self::tally::{ALL, Change, Commit, Tally, Writer};
use super::aside::{log_of, tally_of};
use super::{Changes, NAME, Restored, StoreError, log};
use crate::wire::Frame;

const VERSION: i64 = 1;
/// Free pages that are left in the file: giving them back and taking them again would cost more.
const FREE_PAGES: u64 = 512;
/// Pages given back in one step, which is one commit: the log takes as much for a while.
const SHRINK_STEP: u64 = 256;

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
    /// The last one.
    commit: Commit,
    tally: Writer,
}

/// SQLite takes a first page of zeroes for a database that is still empty, and says nothing of all the rest; the log of an empty
/// file it deletes.
fn begins_as_a_database(path: &Path, has_log: bool) -> bool {
    let mut start = Vec::new();
    // What cannot be read SQLite will say more of.
    let read = fs::File::open(path).and_then(|file| file.take(16).read_to_end(&mut start));
    read.is_err() || (start.is_empty() && !has_log) || start == b"SQLite format 3\0"
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
        let is_new = !path.exists() && !tally_of(&path).exists();
        if !commits.is_empty() {
            // Of a file that is gone SQLite would delete the log.
            let _ = fs::File::options().append(true).create(true).open(&path);
        }
        if !begins_as_a_database(&path, !commits.is_empty()) {
            let reason = "it does not begin as a database does".to_owned();
            return Err(StoreError::Damaged { path, reason });
        }
        let open = || -> rusqlite::Result<(Connection, i64, usize)> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(&path, flags)?;
            // Until it is known that all of its log can be read.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            if !fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
                // In any other it is a commit, over what SQLite cannot read of the log.
                connection.execute_batch("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL;")?;
            }
            connection.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -1024;
                 PRAGMA wal_autocheckpoint = 256; PRAGMA journal_size_limit = 1048576; PRAGMA cell_size_check = ON;
                 BEGIN IMMEDIATE; COMMIT;",
            )?;
            let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            // Of the frames that were read.
            let read = match connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1)) {
                Ok(read) => read,
                // The file is so much too short that the log cannot make up for it.
                Err(error) if is_damage(&error) => return Err(error),
                // A full disk may refuse it.
                Err(_) => usize::MAX,
            };
            Ok((connection, version, read))
        };
        let (connection, version, read) = open().map_err(|source| explain(&path, source))?;
        if version > VERSION {
            return Err(StoreError::Newer { path, version });
        }
        let last = if version == 0 { Ok(None) } else { rows::commit(&connection) };
        let last = last.map_err(|source| explain(&path, source))?;
        let writer = Writer::new(tally_of(&path));
        let known = Tally::read(&tally_of(&path));
        let blind = tally::is_blind(known.as_ref(), last, is_new);
        let is_gone = |tally: &Tally| version == 0 && tally.entries.is_empty();
        let tally = known.filter(|tally| tally.covers(last) && !is_gone(tally));
        let is_behind = tally.as_ref().is_some_and(|tally| tally.ahead_of(last) > 0);
        let unread = commits.iter().filter(|&&commit| commit > read).count();
        // One alone is a commit that a power cut has cut short, unless it is known to have been made.
        if unread > 1 || (unread == 1 && is_behind) {
            let reason = format!("{unread} commits of its log cannot be read");
            return Err(StoreError::Damaged { path, reason });
        }
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .map_err(|source| explain(&path, source))?;
        let mut file = Self {
            connection,
            path,
            max_bytes,
            destinations: Vec::new(),
            shrinking: false,
            headroom: 0,
            bytes: 0,
            // A file that is gone keeps its number: what it had is counted again should this run not come to say it.
            commit: tally.as_ref().map(|tally| tally.commit).or(last).unwrap_or_else(Commit::first),
            tally: writer,
        };
        if version == 0 {
            file.create()?;
        }
        let (removed, unsound) = file.set_destinations(destinations)?;
        let restored = file.restore_by(tally.map(|tally| (tally, last)), removed, unsound)?;
        Ok((file, Restored { blind, ..restored }))
    }

    fn create(&mut self) -> Result<(), StoreError> {
        self.transact(|transaction| {
            transaction.execute_batch(rows::SCHEMA)?;
            transaction.execute_batch(&format!("PRAGMA user_version = {VERSION}"))
        })
    }

    /// Other destinations and another bound from now on.
    pub(super) fn reconfigure(&mut self, names: &[Arc<str>], max_bytes: u64) -> Result<(), StoreError> {
        // The bound is looked at again with the next batch.
        (self.max_bytes, self.headroom) = (max_bytes, 0);
        self.set_destinations(names)?;
        self.tally_anew();
        Ok(())
    }

    /// Forgets destinations that there are no longer; returns them with what each had not had, and how many rows are not
    /// what was written: whatever such a row said, nothing is forgotten for it.
    fn set_destinations(&mut self, names: &[Arc<str>]) -> Result<(Vec<(String, u64)>, usize), StoreError> {
        let known: Vec<_> = names.iter().map(|name| (Arc::clone(name), rows::number(name))).collect();
        let removed = self.transact(|transaction| {
            let (before, unsound) = rows::destinations(transaction)?;
            let is_same = before.len() == known.len() && known.iter().all(|(_, id)| before.contains_key(id));
            if !is_same || unsound > 0 {
                rows::put_destinations(transaction, &known)?;
            }
            let mut removed = Vec::new();
            for (id, name) in before {
                if known.iter().all(|(_, known)| *known != id) {
                    let due = transaction.execute("DELETE FROM due WHERE destination = ?", [id])?;
                    removed.push((name, u64::try_from(due).unwrap_or(u64::MAX)));
                }
            }
            if !removed.is_empty() {
                let orphans =
                    "DELETE FROM frame WHERE NOT EXISTS (SELECT 1 FROM due WHERE batch = frame.id >> ?)";
                transaction.execute(orphans, [rows::PART_BITS])?;
            }
            Ok((removed, unsound))
        })?;
        self.destinations = known;
        Ok(removed)
    }

    /// The name of a destination, by its number.
    fn name(&self, destination: i64) -> Option<&Arc<str>> {
        self.destinations.iter().find(|(_, id)| *id == destination).map(|(name, _)| name)
    }

    /// All of `changes` in one commit. Returns the batches that had to make room.
    pub(super) fn apply(&mut self, changes: &Changes) -> Result<Vec<u64>, StoreError> {
        let destinations = self.destinations.clone();
        let (max_bytes, mut headroom) = (self.max_bytes.saturating_sub(self.tally.most()), self.headroom);
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
                    rows::delete_frames(transaction, *batch)?;
                }
            }
            for batch in &changes.forget {
                rows::delete(transaction, *batch)?;
            }
            let mut dropped = Vec::new();
            for kept in &changes.append {
                let bytes = rows::needs(kept);
                if headroom < bytes {
                    headroom = rows::make_room(transaction, bytes, max_bytes, &mut dropped)?;
                }
                headroom = headroom.saturating_sub(bytes);
                rows::insert(transaction, kept, &destinations)?;
            }
            Ok((dropped, headroom))
        })?;
        let changes_due = self.changes_due(changes, &dropped);
        if !self.tally.add(self.commit, &changes_due) {
            self.tally_anew();
        }
        let looked = headroom > self.headroom;
        self.headroom = headroom;
        if looked || !changes.done.is_empty() || !changes.forget.is_empty() || !dropped.is_empty() {
            self.look_at_size()?;
        }
        Ok(dropped)
    }

    /// What they have changed of what is due.
    fn changes_due(&self, changes: &Changes, dropped: &[u64]) -> Vec<Change> {
        let number = |name: &Arc<str>| self.destinations.iter().find(|(known, _)| known == name);
        let done = changes.done.iter().filter_map(|(name, batch)| Some((*batch, number(name)?.1, 0)));
        let appended = changes.append.iter().flat_map(|kept| {
            let points = kept.points();
            kept.due.iter().filter_map(move |name| Some((kept.id, number(name)?.1, points)))
        });
        let forgotten = |batches: &[u64]| batches.iter().map(|batch| (*batch, ALL, 0)).collect::<Vec<_>>();
        let forget = forgotten(&changes.forget);
        done.chain(forget).chain(appended).chain(forgotten(dropped)).collect()
    }

    /// Writes the tally as the file's entries are now; where they cannot be read it stays behind.
    fn tally_anew(&mut self) {
        let (mut due, mut is_sound) = (Vec::new(), true);
        let read = rows::due(&self.connection, rows::Order::Oldest, |entry| {
            is_sound &= entry.sound;
            due.push((entry.batch, entry.destination, entry.points));
        });
        if is_sound && matches!(read, Ok(0)) {
            self.tally.rewrite(self.commit, &due);
        }
    }

    fn look_at_size(&mut self) -> Result<(), StoreError> {
        let (all, free) = self.pages()?;
        self.shrinking = free > FREE_PAGES.max(all.saturating_sub(free) / 2);
        let files = [&self.path, &log_of(&self.path), &tally_of(&self.path)];
        self.bytes =
            files.into_iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum();
        Ok(())
    }

    /// The frames of a batch that are what was written; those that are not are left out, and with `anyway` those that the
    /// disk does not give, too.
    pub(super) fn load(&mut self, batch: u64, anyway: bool) -> Result<Arc<[Frame]>, StoreError> {
        let (frames, error) = rows::readable(&self.connection, batch);
        let error = error.map(|source| explain(&self.path, source));
        match error {
            Some(error) if anyway && frames.is_empty() => {
                Err(StoreError::Damaged { path: self.path.clone(), reason: error.to_string() })
            }
            Some(error) if frames.is_empty() || !(anyway || matches!(error, StoreError::Damaged { .. })) => {
                Err(error)
            }
            None if frames.is_empty() => {
                let reason = "a batch has no frame that is what was written".to_owned();
                Err(StoreError::Damaged { path: self.path.clone(), reason })
            }
            _ => Ok(frames.into_values().map(|(_, frame)| frame).collect()),
        }
    }

    /// Whether free pages wait to be given back.
    pub(super) const fn wants_to_shrink(&self) -> bool {
        self.shrinking
    }

    /// Gives some free pages back to the file system. After an error no more wait, until a change looks at the size again.
    pub(super) fn shrink(&mut self) -> Result<(), StoreError> {
        self.shrinking = false;
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
            self.shrinking = true;
            return Ok(());
        }
        let truncate = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        truncate.map_err(|source| explain(&self.path, source))?;
        self.look_at_size()
    }

    /// What the file, its log and its tally took when they were last looked at.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A full disk, as far as SQLite can tell, or one with room again.
    #[cfg(test)]
    pub(super) fn fill(&self, full: bool) {
        let pages = if full { 1 } else { u32::MAX / 2 };
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
    }

    /// A disk that takes no change at all, or does again.
    #[cfg(test)]
    pub(super) fn refuse(&self, refuse: bool) {
        self.connection.pragma_update(None, "query_only", refuse).unwrap();
    }

    /// Pages in the file, and the free ones among them.
    fn pages(&self) -> Result<(u64, u64), StoreError> {
        rows::pages(&self.connection).map_err(|source| explain(&self.path, source))
    }

    fn transact<T>(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let commit = self.commit.next();
        let changes = self.connection.total_changes();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let done = transaction.and_then(|transaction| {
            let value = work(&transaction)?;
            // A full disk must not keep what is there from being read.
            let is_changed = transaction.total_changes() != changes;
            if is_changed {
                rows::put_commit(&transaction, commit)?;
            }
            transaction.commit()?;
            Ok((value, is_changed))
        });
        let (value, is_changed) = done.map_err(|source| explain(&self.path, source))?;
        if is_changed {
            self.commit = commit;
        }
        Ok(value)
    }
}

fn explain(path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked(path),
        _ if is_damage(&source) => StoreError::Damaged { path, reason: source.to_string() },
        _ => StoreError::Sqlite { path, source },
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error() {
        // A table or column that is not there.
        Some(error) if error.code == ErrorCode::Unknown => true,
        // The file ends before the place: no disk gives that back.
        Some(error) if error.extended_code == SQLITE_IOERR_SHORT_READ => true,
        Some(error) => matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
        // A text where a number was.
        None => true,
    }
}

#[cfg(test)]
mod tests;
