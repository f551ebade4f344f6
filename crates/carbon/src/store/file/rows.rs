//! The rows of the queue's file: one a frame, and one for each destination that has not had a batch, with the number of
//! points that it is to have. Each carries a checksum over all of it, so that a flipped bit loses a row and never makes
//! a wrong one.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::{Kept, Summary};
use super::tally::{Change, Commit};
use crate::path::fnv1a;
use crate::wire::Frame;

pub(super) const SCHEMA: &str = "
CREATE TABLE destination (id INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE frame (id INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, points INTEGER NOT NULL, checksum INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE due (batch INTEGER NOT NULL, destination INTEGER NOT NULL, points INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (batch, destination)) WITHOUT ROWID;
";
/// A frame's id is its batch's number and its place in it.
pub(super) const PART_BITS: u32 = 16;
/// The batch in whose place the number of the last commit stands, with the file's own for a destination: behind all others, in a
/// page that nearly every commit writes anyway.
const COMMIT: u64 = i64::MAX.cast_unsigned();

const PAGE: u64 = 4096;
/// What the write-ahead log may take beside the largest batch.
const LOG_BYTES: u64 = 2 << 20;

/// An entry of what a destination is to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) batch: u64,
    pub(super) destination: i64,
    pub(super) points: u64,
    /// Whether it is what was written.
    pub(super) sound: bool,
}

/// What stands for a destination in the entries of what is due: FNV-1a of its name. They tell whose they are without the row
/// that has the name, which may be damaged.
pub(super) fn number(name: &str) -> i64 {
    fnv1a(name).cast_signed()
}

/// Reads the destinations, and how many rows are not what was written.
pub(super) fn destinations(connection: &Connection) -> rusqlite::Result<(BTreeMap<i64, String>, usize)> {
    let (mut names, mut unsound) = (BTreeMap::new(), 0);
    let columns = "SELECT id, name, checksum FROM destination";
    let read = |row: &Row<'_>| -> rusqlite::Result<(i64, String, u32)> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    };
    let unreadable = scan(connection, columns, params![], read, |(id, name, sum)| {
        if id == number(&name) && sum == crc32fast::hash(name.as_bytes()) {
            names.insert(id, name);
        } else {
            unsound += 1;
        }
    })?;
    Ok((names, unsound + unreadable))
}

/// Writes the destinations anew.
pub(super) fn put_destinations(connection: &Connection, known: &[(Arc<str>, i64)]) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM destination", [])?;
    let insert = "INSERT OR REPLACE INTO destination (id, name, checksum) VALUES (?, ?, ?)";
    known.iter().try_for_each(|(name, id)| {
        connection.execute(insert, params![id, name, crc32fast::hash(name.as_bytes())]).map(|_| ())
    })
}

/// From which end rows are read: what lies behind a damaged page is reached from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Oldest,
    Newest,
}

fn ids(batch: u64) -> (u64, u64) {
    let first = batch << PART_BITS;
    (first, first | ((1 << PART_BITS) - 1))
}

pub(super) fn delete_frames(connection: &Connection, batch: u64) -> rusqlite::Result<usize> {
    let (first, last) = ids(batch);
    connection.prepare_cached("DELETE FROM frame WHERE id BETWEEN ? AND ?")?.execute([first, last])
}

pub(super) fn delete(connection: &Connection, batch: u64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM due WHERE batch = ?")?.execute([batch])?;
    delete_frames(connection, batch).map(|_| ())
}

pub(super) fn insert(
    connection: &Connection,
    kept: &Kept,
    destinations: &[(Arc<str>, i64)],
) -> rusqlite::Result<()> {
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
    let points = kept.points();
    for name in &kept.due {
        if let Some((_, destination)) = destinations.iter().find(|(known, _)| known == name) {
            put_due(connection, kept.id, *destination, points)?;
        }
    }
    Ok(())
}

fn put_due(connection: &Connection, batch: u64, destination: i64, points: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO due (batch, destination, points, checksum) VALUES (?, ?, ?, ?)",
        )?
        .execute(params![batch, destination, points, due_checksum(batch, destination, points)])
        .map(|_| ())
}

/// The last commit, where it can be read.
pub(super) fn commit(connection: &Connection) -> rusqlite::Result<Option<Commit>> {
    let mut commit = None;
    let columns = "SELECT batch, destination, points, checksum FROM due WHERE batch = ?";
    scan(connection, columns, params![COMMIT], read_due, |due| {
        if due.sound {
            commit = Some(Commit { file: due.destination, number: due.points });
        }
    })?;
    Ok(commit)
}

pub(super) fn put_commit(connection: &Connection, commit: Commit) -> rusqlite::Result<()> {
    put_due(connection, COMMIT, commit.file, commit.number)
}

/// Writes all entries of what is due anew: a damaged one cannot be found by its key.
pub(super) fn rewrite_due(
    connection: &Connection,
    entries: impl IntoIterator<Item = Change>,
) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM due", [])?;
    entries
        .into_iter()
        .try_for_each(|(batch, destination, points)| put_due(connection, batch, destination, points))
}

/// Reads the batches without their bodies.
pub(super) fn summaries(
    connection: &Connection,
    batches: &mut BTreeMap<u64, Summary>,
) -> rusqlite::Result<()> {
    let columns = "SELECT id, timestamp, points, length(body) FROM frame";
    let read = |row: &Row<'_>| -> rusqlite::Result<(u64, i64, u32, usize)> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    };
    scan(connection, columns, params![], read, |(id, timestamp, points, bytes)| {
        let summary = batches.entry(id >> PART_BITS).or_insert(Summary { timestamp, ..Summary::default() });
        summary.points = summary.points.saturating_add(points.into());
        summary.bytes = summary.bytes.saturating_add(bytes);
    })
    .map(|_| ())
}

/// Reads the entries of what is due; returns how many cannot be read at all.
pub(super) fn due(
    connection: &Connection,
    order: Order,
    mut each: impl FnMut(Due),
) -> rusqlite::Result<usize> {
    let columns = match order {
        Order::Oldest => "SELECT batch, destination, points, checksum FROM due ORDER BY batch, destination",
        Order::Newest => {
            "SELECT batch, destination, points, checksum FROM due ORDER BY batch DESC, destination DESC"
        }
    };
    scan(connection, columns, params![], read_due, |due| {
        if due.batch != COMMIT || !due.sound {
            each(due);
        }
    })
}

fn read_due(row: &Row<'_>) -> rusqlite::Result<Due> {
    let (batch, destination, points) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let sum: u32 = row.get(3)?;
    Ok(Due { batch, destination, points, sound: sum == due_checksum(batch, destination, points) })
}

/// Reads the numbers of batches that have frames.
pub(super) fn batches(
    connection: &Connection,
    order: Order,
    mut each: impl FnMut(u64),
) -> rusqlite::Result<()> {
    let columns = match order {
        Order::Oldest => "SELECT id FROM frame ORDER BY id",
        Order::Newest => "SELECT id FROM frame ORDER BY id DESC",
    };
    scan(connection, columns, params![], |row| row.get::<_, u64>(0), |id| each(id >> PART_BITS)).map(|_| ())
}

/// The frames of a batch that are what was written, by id, with their timestamp; and why not all could be read.
pub(super) fn readable(
    connection: &Connection,
    batch: u64,
) -> (BTreeMap<u64, (i64, Frame)>, Option<rusqlite::Error>) {
    let (first, last) = ids(batch);
    let mut frames = BTreeMap::new();
    let mut read = |columns: &str| {
        let read = |row: &Row<'_>| -> rusqlite::Result<(u64, i64, u32, Frame)> {
            let (id, timestamp, points, sum) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((id, timestamp, sum, Frame { points, body: row.get(4)? }))
        };
        scan(connection, columns, params![first, last], read, |(id, timestamp, sum, frame)| {
            if checksum(id, timestamp, &frame) == sum {
                frames.insert(id, (timestamp, frame));
            }
        })
    };
    let oldest =
        "SELECT id, timestamp, points, checksum, body FROM frame WHERE id BETWEEN ? AND ? ORDER BY id";
    let newest =
        "SELECT id, timestamp, points, checksum, body FROM frame WHERE id BETWEEN ? AND ? ORDER BY id DESC";
    let error = read(oldest).err();
    if error.is_some() {
        // It fails too, as a rule: what it has read until then counts.
        let _ = read(newest);
    }
    (frames, error)
}

/// Every row that can be read as what it should be; the others are left out, and their number is returned.
fn scan<T>(
    connection: &Connection,
    columns: &str,
    params: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    mut each: impl FnMut(T),
) -> rusqlite::Result<usize> {
    let mut unreadable = 0;
    let mut statement = connection.prepare_cached(columns)?;
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(value) => each(value),
            Err(_) => unreadable += 1,
        }
    }
    Ok(unreadable)
}

/// What a batch takes in the file, at most: its frames in whole pages.
pub(super) fn needs(kept: &Kept) -> u64 {
    kept.frames
        .iter()
        .map(|frame| u64::try_from(frame.body.len()).unwrap_or(u64::MAX).saturating_add(2 * PAGE))
        .sum()
}

/// Deletes from the oldest on until `bytes` fit below the bound, beside what the log may take. Returns how many more
/// bytes fit then.
pub(super) fn make_room(
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

/// Pages in the file, and the free ones among them.
pub(super) fn pages(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
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

fn due_checksum(batch: u64, destination: i64, points: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&batch.to_le_bytes());
    hasher.update(&destination.to_le_bytes());
    hasher.update(&points.to_le_bytes());
    hasher.finalize()
}
