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
//! raises it. A group has at most one batch, so that damage to a head costs no more.
//!
//! If a record's head is damaged, everything up to the next mark is skipped; a damaged frame costs
//! only itself. A record whose number is not below that of the next segment is void, because its
//! commit failed. So is a segment between a `begin` and the segment that it names as its
//! predecessor.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Counted;
use carbon_wire::Frame;

pub(super) const VERSION: u8 = 2;
const MARK: [u8; 4] = [0xf5, b'q', 0xfa, b'l'];
/// The number of bytes of a record's mark, checksum, length and version.
const FIXED: usize = 13;

/// The number of points of each destination.
pub(super) type Totals = BTreeMap<Arc<str>, u64>;

/// The file of each state, by the state's name.
pub(super) type StateFiles = BTreeMap<String, StateFile>;

/// A record without its body.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of the record. A `begin` has that of the record which follows it.
    pub(super) number: u64,
    /// The totals of this segment's points before this record; in a `begin`, the final totals of
    /// the segment before.
    pub(super) totals: Totals,
    /// The length of the body, bytes.
    pub(super) body: u32,
    pub(super) content: Content,
}

/// The content of a record's head.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Content {
    /// The beginning of a segment: the number of the segment before it, the host's boot id, and the
    /// files of all states.
    Begin {
        previous: u64,
        boot: [u8; 16],
        states: StateFiles,
    },
    Group(Group),
}

/// The changes in one record, which are there as a whole or not at all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Group {
    /// The head of a batch, whose frames are the body of the record.
    pub(super) batch: Option<BatchHead>,
    pub(super) done: Vec<Done>,
    /// Points that were counted. Each entry holds until the batch is recorded as done, or is there
    /// after all.
    pub(super) counted: Vec<Counted>,
    pub(super) written: Option<Written>,
    /// The files of all states from this record on; `None`: as before.
    pub(super) states: Option<StateFiles>,
}

impl Group {
    pub(super) const fn is_empty(&self) -> bool {
        self.batch.is_none()
            && self.done.is_empty()
            && self.counted.is_empty()
            && self.written.is_none()
            && self.states.is_none()
    }
}

/// The head of a batch. `pushed` is the moment of the push, CLOCK_BOOTTIME in ms and Unix seconds;
/// `None`: before the host's last boot. `due` are the destinations that are not done with the
/// batch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BatchHead {
    pub(super) id: u64,
    pub(super) timestamp: i64,
    pub(super) pushed: Option<(u64, i64)>,
    pub(super) due: Vec<Arc<str>>,
    pub(super) frames: Vec<FrameHead>,
}

/// Writes to destinations. Batches are named by destination and id.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Written {
    /// Batches that were written for the first time.
    pub(super) ids: Vec<(Arc<str>, u64)>,
    /// Batches of which an earlier start could not know whether they were written.
    pub(super) perhaps_written: Vec<(Arc<str>, u64)>,
    /// Destinations that may be written to after this record. If it is the last `Written` of the
    /// log, a start takes all that is due to them as perhaps written.
    pub(super) writing: Vec<Arc<str>>,
}

/// A file that has a state.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StateFile {
    /// The number in the file's name.
    pub(super) number: u64,
    /// CRC-32 of the file's bytes.
    pub(super) sum: u32,
}

/// Says that the destination `to` is done with the batch `id`, whose record has `number`. With an
/// id of 0 it says that `points` of that record are lost, and already counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) to: Arc<str>,
    pub(super) number: u64,
    pub(super) id: u64,
    pub(super) points: u64,
}

/// A frame as the head of its batch describes it.
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

    /// Whether `bytes` are those of the frame that was written.
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

/// Converts a length for a field of a record. No record comes near the limits of its fields.
pub(super) fn as_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Encodes a record without its body.
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
    /// The offset of the record in its segment, bytes.
    pub(super) offset: usize,
    /// The length of the record without its body, bytes.
    pub(super) length: u32,
    pub(super) head: Head,
    /// The body of the record, which is shorter than it was if the segment was cut.
    pub(super) body: &'a [u8],
}

/// The records of a segment, without those whose heads are damaged. An error is the version of
/// another format.
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
                    at += 1 + rest.get(1..)?.windows(MARK.len()).position(|mark| mark == MARK)?
                }
            }
        }
    })
}

/// The record at the beginning of `bytes`; `None`: there is none with an undamaged head. An error
/// is the version of another format.
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
