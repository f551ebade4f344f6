//! The format of the queue's files and its conversion from and to memory.
//!
//! A segment (store.rs) is a `begin` and then records, without gaps:
//!
//! | bytes | |
//! |---|---|
//! | 4 | the mark, `f5 71 fa 6c` |
//! | 4 | CRC-32 of all that follows up to the body, little-endian |
//! | 4 | length of all before the body, mark included, little-endian |
//! | 1 | version of the format |
//! | | [`Head`], in postcard's wire format: integers as varints, lists and texts behind their length, kinds by number |
//! | | the body |
//!
//! The first three fields and the version keep their places in all later versions. The fields of
//! [`Head`] and [`Content`] in their order, and the order of the kinds, are a version's. Any change
//! raises it.
//!
//! If a record's head is damaged, everything up to the next mark is skipped; a damaged frame costs
//! only itself. A record whose number is not below that of the next segment is void, because its
//! commit failed. So is a segment between a `begin` and the segment that it names as its
//! predecessor.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use carbon_wire::Frame;

pub(super) const VERSION: u8 = 1;
const MARK: [u8; 4] = [0xf5, b'q', 0xfa, b'l'];
/// Mark, checksum, length and version.
const FIXED: usize = 13;

/// Points by destination.
pub(super) type Totals = BTreeMap<Arc<str>, u64>;

/// A record without its body.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// A `begin` has the number of the record that follows it.
    pub(super) number: u64,
    /// The totals of this segment before this record; in a `begin`, the final totals of the segment
    /// before.
    pub(super) totals: Totals,
    /// The length of the body.
    pub(super) body: u32,
    pub(super) content: Content,
}

/// The contents of a record's head.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Content {
    /// The NUMBER of the segment before, and the boot id.
    Begin {
        previous: u64,
        boot: [u8; 16],
    },
    /// `pushed` is CLOCK_BOOTTIME in milliseconds and Unix seconds, if it was in this boot, `due`
    /// the destinations. The body is the frames.
    Batch {
        id: u64,
        timestamp: i64,
        pushed: Option<(u64, i64)>,
        due: Vec<Arc<str>>,
        frames: Vec<FrameHead>,
    },
    Done(Vec<Done>),
    /// `sum`: CRC-32 of the body.
    State {
        name: String,
        sum: u32,
    },
    /// Destination, id and points of batches that were written, and not proved to be read, when
    /// `max_bytes` or `max_age` removed them. A later `done` for the id cancels it.
    Evicted(Vec<(Arc<str>, u64, u64)>),
    /// Destinations and ids: batches that were written for the first time. `writing`: destinations
    /// that may be written to after this record. A start that finds it as the last `Written` of the
    /// log takes what is due to them as perhaps written. `perhaps_written`: what an earlier start
    /// took so.
    Written {
        ids: Vec<(Arc<str>, u64)>,
        perhaps_written: Vec<(Arc<str>, u64)>,
        writing: Vec<Arc<str>>,
    },
}

/// `to` is done with a batch whose record has `number`. With an id of 0, points of that record are
/// lost, and counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) to: Arc<str>,
    pub(super) number: u64,
    pub(super) id: u64,
    pub(super) points: u64,
}

/// What a batch's head says about a frame.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct FrameHead {
    pub(super) points: u32,
    pub(super) bytes: u32,
    /// CRC-32 of the batch's id and the frame.
    sum: u32,
}

impl FrameHead {
    pub(super) fn new(id: u64, frame: &Frame) -> Self {
        Self {
            points: frame.points,
            bytes: as_u32(frame.body.len()),
            sum: frame_sum(id, &frame.body),
        }
    }

    /// Whether `bytes` are what was written.
    pub(super) fn fits(self, id: u64, bytes: &[u8]) -> bool {
        self.bytes == as_u32(bytes.len()) && self.sum == frame_sum(id, bytes)
    }
}

fn frame_sum(id: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// No record comes near the limits of its fields.
pub(super) fn as_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The bytes of a record without its body.
pub(super) fn before_body(head: &Head) -> Vec<u8> {
    // Nothing in a head is refused, and a Vec takes everything.
    let head = postcard::to_extend(head, vec![VERSION]).unwrap_or_default();
    let length = as_u32(FIXED - 1 + head.len()).to_le_bytes();
    let summed = [length.as_slice(), &head].concat();
    [&MARK[..], &crc32fast::hash(&summed).to_le_bytes(), &summed].concat()
}

/// A record with an undamaged head.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// Its place in the segment.
    pub(super) offset: usize,
    /// How long it is without its body.
    pub(super) length: u32,
    pub(super) head: Head,
    /// Shorter than it was, if the segment was cut.
    pub(super) body: &'a [u8],
}

/// The records of a segment. An error is the version of a newer format.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, u8>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
            match first(rest) {
                Some(Ok(mut record)) => {
                    record.offset = at;
                    at += usize::try_from(record.length).unwrap_or(usize::MAX) + record.body.len();
                    return Some(Ok(record));
                }
                Some(newer) => return Some(newer),
                None => {
                    at += 1 + rest.get(1..)?.windows(MARK.len()).position(|bytes| bytes == MARK)?
                }
            }
        }
    })
}

/// The record at the beginning of `bytes`.
pub(super) fn first(bytes: &[u8]) -> Option<Result<Record<'_>, u8>> {
    let (mark, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let length = u32::from_le_bytes(*rest.first_chunk()?);
    let (before, behind) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    if *mark != MARK || u32::from_le_bytes(*sum) != crc32fast::hash(before.get(8..)?) {
        return None;
    }
    let version = *before.get(FIXED - 1)?;
    if version != VERSION {
        return Some(Err(version));
    }
    let head: Head = postcard::from_bytes(before.get(FIXED..)?).ok()?;
    let body = behind.get(..usize::try_from(head.body).ok()?).unwrap_or(behind);
    Some(Ok(Record { offset: 0, length, head, body }))
}
