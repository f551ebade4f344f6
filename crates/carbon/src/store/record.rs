//! The form of the queue's files, version 1, and the way between it and memory.
//!
//! The queue is a log in segments, files named `queue-NUMBER.log`, where NUMBER is that of their first record in decimal. A
//! segment is a `begin` and records behind it, without anything between them. All numbers are little-endian.
//!
//! | bytes | head of every record |
//! |---|---|
//! | 4 | the mark, `f5 71 fa 6c` |
//! | 4 | CRC-32 of the head from here on |
//! | 4 | length of the head, with these fields |
//! | 4 | length of the body |
//! | 1 | version of the format |
//! | 1 | kind |
//! | 2 | *n*, how many totals follow |
//! | 8 | the record's number; each is one higher than the last. That of a `begin` is its first record's |
//! | 16 × *n* | totals: a destination's key, and how many points this segment has had for it before this record |
//! | | by kind, to the end of the head |
//!
//! Mark, checksum, length of the head and version stay where they are in every version to come.
//!
//! | kind | | rest of the head | body |
//! |---|---|---|---|
//! | 1 | begin | NUMBER of the segment before (8), boot id (16), then for each destination: its key (8), 1 where it is configured (1), length of its name (2), its name. Its totals are those at the end of the segment before | |
//! | 2 | batch | id (8), timestamp (8), CLOCK_BOOTTIME of its push in milliseconds (8), how many destinations it is due to (2), their keys (8 each), then for each frame: points (4), length (4), CRC-32 of the id and its bytes (4) | frames |
//! | 3 | done | entries: key (8), number of the batch's record (8), id (8), points (8). With an id of 0 these points of the record are lost, and have been counted | |
//! | 4 | state | CRC-32 of the body (4), name | bytes |
//! | 5 | evicted | entries: key (8), id (8), points (8): written to the destination and not proved when `max_bytes` or `max_age` took the batch; a later done for the id cancels it | |
//!
//! A destination's key is FNV-1a of the name under which it first came, so that a damaged `begin` does not hide whose the
//! batches are. A record whose head is not what was written is passed over up to the next mark; a frame that is not costs
//! itself. Numbers and totals tell how many records and points of whom are gone between two records. A record whose number is
//! not below the NUMBER of the next segment is void: its commit failed.

use crate::wire::Frame;

use super::Kept;

const VERSION: u8 = 1;
const MARK: [u8; 4] = [0xf5, b'q', 0xfa, b'l'];

/// A key, and points.
pub(super) type Totals = Vec<(u64, u64)>;

/// The total of `key`.
pub(super) fn total(totals: &[(u64, u64)], key: u64) -> u64 {
    totals.iter().find(|(other, _)| *other == key).map_or(0, |(_, points)| *points)
}

/// Adds to the total of `key`.
pub(super) fn add(totals: &mut Totals, key: u64, points: u64) {
    match totals.iter_mut().find(|(other, _)| *other == key) {
        Some((_, total)) => *total = total.saturating_add(points),
        None => totals.push((key, points)),
    }
}

/// A destination in a `begin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named<T> {
    pub(super) key: u64,
    pub(super) configured: bool,
    pub(super) name: T,
}

/// A destination is done with a batch; or points of a record are lost and counted, with an id of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) key: u64,
    pub(super) number: u64,
    pub(super) id: u64,
    pub(super) points: u64,
}

/// What a batch's head says of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHead {
    pub(super) points: u32,
    pub(super) bytes: u32,
    sum: u32,
}

impl FrameHead {
    /// Whether `bytes` is what was written.
    pub(super) fn fits(self, id: u64, bytes: &[u8]) -> bool {
        self.bytes == as_u32(bytes.len()) && self.sum == frame_sum(id, bytes)
    }
}

/// What a record says.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Begin { previous: u64, boot: [u8; 16], destinations: Vec<Named<&'a str>> },
    Batch { id: u64, timestamp: i64, pushed: u64, due: Vec<u64>, frames: Vec<FrameHead> },
    Done(Vec<Done>),
    State { name: &'a str, sum: u32 },
    Evicted(Vec<(u64, u64, u64)>),
}

/// A record whose head is what was written.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// Where it is in the segment.
    pub(super) offset: u64,
    pub(super) head: u32,
    pub(super) number: u64,
    pub(super) totals: Totals,
    pub(super) content: Content<'a>,
    /// Shorter than it was where the segment is cut.
    pub(super) body: &'a [u8],
}

/// What is found where a record should be.
enum Found<'a> {
    Record(Record<'a>),
    Newer(u8),
    Nothing,
}

/// The records of a segment. An error is the version of a newer format.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, u8>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
            match find(rest) {
                Found::Record(mut record) => {
                    record.offset = u64::try_from(at).unwrap_or(u64::MAX);
                    at += usize::try_from(record.head).unwrap_or(usize::MAX) + record.body.len();
                    return Some(Ok(record));
                }
                Found::Newer(version) => {
                    at = bytes.len();
                    return Some(Err(version));
                }
                Found::Nothing => {
                    let next = rest.get(1..)?.windows(MARK.len()).position(|bytes| bytes == MARK)?;
                    at += 1 + next;
                }
            }
        }
    })
}

/// The record at the beginning of `bytes`.
pub(super) fn first(bytes: &[u8]) -> Option<Record<'_>> {
    match find(bytes) {
        Found::Record(record) => Some(record),
        Found::Newer(_) | Found::Nothing => None,
    }
}

fn find(bytes: &[u8]) -> Found<'_> {
    let mut fields = Fields(bytes);
    let sound = || {
        let (mark, sum, head) = (fields.take::<4>()?, fields.u32()?, fields.u32()?);
        let head_bytes = bytes.get(..usize::try_from(head).ok()?)?;
        (mark == MARK && crc32fast::hash(head_bytes.get(8..)?) == sum).then_some((head, head_bytes))
    };
    let Some((head, head_bytes)) = { sound }() else { return Found::Nothing };
    match head_bytes.get(16) {
        Some(&version) if version > VERSION => Found::Newer(version),
        _ => parse(bytes, head, head_bytes).map_or(Found::Nothing, Found::Record),
    }
}

fn parse<'a>(bytes: &'a [u8], head: u32, head_bytes: &'a [u8]) -> Option<Record<'a>> {
    let mut fields = Fields(head_bytes.get(12..)?);
    let (body, [_, kind], count, number) = (fields.u32()?, fields.take()?, fields.u16()?, fields.u64()?);
    let totals = (0..count).map(|_| Some((fields.u64()?, fields.u64()?))).collect::<Option<_>>()?;
    let content = match kind {
        1 => Content::Begin {
            previous: fields.u64()?,
            boot: fields.take()?,
            destinations: fields.rest(|fields| {
                let (key, [configured], length) = (fields.u64()?, fields.take()?, fields.u16()?);
                let name = std::str::from_utf8(fields.bytes(length.into())?).ok()?;
                Some(Named { key, configured: configured != 0, name })
            })?,
        },
        2 => {
            let (id, timestamp, pushed) = (fields.u64()?, fields.u64()?.cast_signed(), fields.u64()?);
            let count = fields.u16()?;
            let due = (0..count).map(|_| fields.u64()).collect::<Option<_>>()?;
            let frame = |fields: &mut Fields<'_>| {
                Some(FrameHead { points: fields.u32()?, bytes: fields.u32()?, sum: fields.u32()? })
            };
            Content::Batch { id, timestamp, pushed, due, frames: fields.rest(frame)? }
        }
        3 => Content::Done(fields.rest(|fields| {
            let (key, number) = (fields.u64()?, fields.u64()?);
            Some(Done { key, number, id: fields.u64()?, points: fields.u64()? })
        })?),
        4 => Content::State { sum: fields.u32()?, name: std::str::from_utf8(fields.0).ok()? },
        5 => Content::Evicted(fields.rest(|fields| Some((fields.u64()?, fields.u64()?, fields.u64()?)))?),
        _ => return None,
    };
    let behind = bytes.get(head_bytes.len()..)?;
    let body = behind.get(..usize::try_from(body).ok()?).unwrap_or(behind);
    Some(Record { offset: 0, head, number, totals, content, body })
}

/// Reads one field after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn rest<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        std::iter::from_fn(|| (!self.0.is_empty()).then(|| read(self))).collect()
    }
}

/// Records on their way to the disk: heads here, bodies where they are.
#[derive(Debug)]
pub(super) struct Records<'a> {
    pub(super) heads: Vec<u8>,
    /// Bodies, with the length of the heads that go before each.
    pub(super) bodies: Vec<(usize, &'a [u8])>,
    /// The next record's number.
    pub(super) number: u64,
    pub(super) totals: Totals,
    pub(super) bytes: u64,
}

impl<'a> Records<'a> {
    pub(super) fn begin(
        &mut self,
        previous: u64,
        boot: [u8; 16],
        destinations: &[Named<std::sync::Arc<str>>],
    ) {
        self.record(1, 0, |head| {
            head.extend(previous.to_le_bytes());
            head.extend(boot);
            for Named { key, configured, name } in destinations {
                head.extend(key.to_le_bytes());
                head.push(u8::from(*configured));
                head.extend(as_u16(name.len()).to_le_bytes());
                head.extend(name.as_bytes());
            }
        });
        // Its number is its first record's, and totals are a segment's own.
        self.number = self.number.saturating_sub(1);
        self.totals.clear();
    }

    /// Returns where it begins, and the length of its head.
    pub(super) fn batch(&mut self, batch: &'a Kept, due: &[u64], points: u64) -> (u64, u32) {
        let (offset, before) = (self.bytes, self.heads.len());
        let frames: &[Frame] = &batch.frames;
        let body = frames.iter().map(|frame| frame.body.len()).sum();
        self.record(2, body, |head| {
            head.extend(batch.id.to_le_bytes());
            head.extend(batch.timestamp.to_le_bytes());
            head.extend(batch.pushed.to_le_bytes());
            head.extend(as_u16(due.len()).to_le_bytes());
            due.iter().for_each(|key| head.extend(key.to_le_bytes()));
            for frame in frames {
                head.extend(frame.points.to_le_bytes());
                head.extend(as_u32(frame.body.len()).to_le_bytes());
                head.extend(frame_sum(batch.id, &frame.body).to_le_bytes());
            }
        });
        let end = self.heads.len();
        self.bodies.extend(frames.iter().map(|frame| (end, frame.body.as_slice())));
        due.iter().for_each(|&key| add(&mut self.totals, key, points));
        (offset, as_u32(end - before))
    }

    pub(super) fn done(&mut self, entries: &[Done]) {
        self.record(3, 0, |head| {
            for entry in entries {
                for field in [entry.key, entry.number, entry.id, entry.points] {
                    head.extend(field.to_le_bytes());
                }
            }
        });
    }

    pub(super) fn state(&mut self, name: &str, bytes: &'a [u8]) {
        self.record(4, bytes.len(), |head| {
            head.extend(crc32fast::hash(bytes).to_le_bytes());
            head.extend(name.as_bytes());
        });
        self.bodies.push((self.heads.len(), bytes));
    }

    pub(super) fn evicted(&mut self, entries: &[(u64, u64, u64)]) {
        self.record(5, 0, |head| {
            for (key, id, points) in entries {
                [key, id, points].into_iter().for_each(|field| head.extend(field.to_le_bytes()));
            }
        });
    }

    fn record(&mut self, kind: u8, body: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.heads.len();
        let head = &mut self.heads;
        head.extend(MARK);
        head.extend([0; 8]);
        head.extend(as_u32(body).to_le_bytes());
        head.extend([VERSION, kind]);
        head.extend(as_u16(self.totals.len()).to_le_bytes());
        head.extend(self.number.to_le_bytes());
        for (key, points) in &self.totals {
            head.extend(key.to_le_bytes());
            head.extend(points.to_le_bytes());
        }
        fill(head);
        let length = head.len() - start;
        if let Some(field) = head.get_mut(start + 8..start + 12) {
            field.copy_from_slice(&as_u32(length).to_le_bytes());
        }
        let sum = crc32fast::hash(head.get(start + 8..).unwrap_or_default());
        if let Some(field) = head.get_mut(start + 4..start + 8) {
            field.copy_from_slice(&sum.to_le_bytes());
        }
        self.number = self.number.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(as_u32(length)) + u64::from(as_u32(body)));
    }
}

fn frame_sum(id: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// No record comes near what its fields can say.
fn as_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn as_u16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}
