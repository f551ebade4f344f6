//! The queue's files: batches that outlive this process, in a log of segments with a thread of its
//! own. Whoever changes it reads this page first.
//!
//! # Constraints
//!
//! The daemon may be killed between any two system calls and inside a write. A power cut leaves what
//! was synced, and of the rest any part. Bytes may rot. The disk may be full, also of the queue
//! itself, it may refuse to write, to sync or to remove, and it may not answer. The folder may be
//! removed, moved away or hidden by a mount. What docs/losses.md promises holds through all of it;
//! tests/enumeration.rs tries each crash after each short history.
//!
//! # Layout
//!
//! ```text
//! queue-…07.log        queue-…12.log          queue-…15.log         queue-…03.state
//! begin                begin                  begin, states 1 3     queue-…01.state
//!  7 batch             12 batch, 8 done       15 written
//!  8 batch             13 7 counted, 7 done   16 batch, states 3 4  queue-…04.state
//! 10 batch, states 1   14 batch               17 16 done, 7 told    ◀── the next commit
//! └ leaves first       └ only read            └ the newest: only this one is written
//! ```
//!
//! A record is one group, which is there as a whole or not at all: a batch, what has become of
//! others, what was counted, and which files have the states. A segment has the number of its first
//! record as its name. Each record has a number, one higher than the last, and the totals of its
//! segment before it: what is missing between two records is known, and damage costs only the
//! damaged record. record.rs has the format. `queue.lock` belongs to one process, and
//! `queue.reserve` is room for a full disk.
//!
//! # Writing (log.rs)
//!
//! A commit is one write to the newest segment and one sync; if it has nothing to record, it is
//! neither. A torn write loses its last group. A segment is made with its first record, and its name
//! is synced before that counts. A new one is begun when the newest is full, after each start, and
//! after each error but one: if the disk is full, the torn end is cut off, and the segment is
//! written on. What a commit could not write is written with the next one, from memory (keeper.rs).
//!
//! A state is a file that is never changed, on the disk before a record names it. A record that
//! names any names all, and so does each `begin`. Files that the newest two such records do not name
//! are removed.
//!
//! # Reading
//!
//! The frames of a batch are read when it is sent, and compared with their checksums. Before each
//! commit the keeper looks whether the newest segment and the lock are where they were opened; if
//! not, a new log is opened, and gets what is in memory.
//!
//! # Leaving (log.rs, room.rs)
//!
//! Segments are removed whole, from the front: when nothing in them is due, or at `max_bytes` even if
//! something is. What is lost with a batch is counted in the same group, on the disk before the batch
//! is gone. The count stays in the log, and is copied before its segment leaves, until a tick that
//! has it is on the disk (`told`). On a full disk the reserve is the room for that.
//!
//! # Starting (restore.rs)
//!
//! A start reads all segments, and then removes from the disk what does not count: a torn record at
//! the end of the newest segment, segments at the end that have no record, those whose commits have
//! failed, and states that nothing names. Only what is behind the last whole record is cut off,
//! only if it could be read, and only if every segment is of this version. If the disk refuses
//! this, the log is not opened; the queue is in memory, and tries again. So no later start can find
//! what an earlier one did not. The losses that it has found are then committed before anything
//! else. What was counted and not told is counted by the new run.
//!
//! Not promised: a loss that a start has found, if the start is killed before this commit, or the
//! disk refuses it. Damage to the very last record, and files that are removed or cut while no
//! daemon runs, look like a power cut if no later record shows otherwise. Damage to a record may
//! cost the counts in it. A commit whose sync failed may be on the disk all the same: if its batches' next
//! copies are then damaged, they are counted as lost, and are sent. This is accepted: a start that
//! subtracted them hid real losses.

#[expect(clippy::disallowed_methods, reason = "only the queue's thread calls it")]
mod disk;
#[expect(clippy::disallowed_methods, reason = "only the queue's thread calls it")]
mod folder;
mod keeper;
#[expect(clippy::disallowed_methods, reason = "only the queue's thread calls it")]
mod log;
mod record;
#[expect(clippy::disallowed_methods, reason = "only the queue's thread calls it")]
mod restore;
#[expect(clippy::disallowed_methods, reason = "only the queue's thread calls it")]
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use self::keeper::Keeper;
pub use self::log::LEAST_FILE_BYTES;
pub(crate) use self::log::segment_bytes;
use crate::clock::Moment;
use carbon_wire::Frame;

/// The most commands that wait for a disk that does not answer; further changes wait in the queue.
const MOST_UNANSWERED: usize = 64;

/// A batch as it is stored: its number, its timestamp, its frames.
#[derive(Clone, Debug)]
pub(crate) struct AppendedBatch {
    pub(crate) id: u64,
    pub(crate) timestamp: i64,
    /// Moment at which the batch was pushed; `None`: before the host's last boot.
    pub(crate) pushed: Option<Moment>,
    pub(crate) frames: Arc<[Frame]>,
    /// The destinations that are not done with the batch.
    pub(crate) due: Vec<Arc<str>>,
    /// Whether the batch and the states of its commit are one group: both are on the disk, or
    /// neither.
    pub(crate) has_states: bool,
}

/// The bit that a [`Counted::id`] has if it is not the id of a batch.
pub(crate) const NO_BATCH: u64 = folder::MOST_NUMBER;

/// Points that a destination never received, or perhaps not, because their batch has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) to: Arc<str>,
    /// The id of the batch. With the bit [`NO_BATCH`] it is the number of a record that a start
    /// found damaged, or the id of a batch that is done and counted all the same.
    pub(crate) id: u64,
    pub(crate) points: u64,
    pub(crate) why: Why,
}

/// The reason why points are counted, and so the counter that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Why {
    Full,
    Age,
    Damaged,
    Withdrawn,
    /// The points were written, and it was not proved that they were read.
    Unproved,
}

/// The changes of one commit.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The new limit of the size of all segments, bytes; `None`: as before.
    pub(crate) max_bytes: Option<u64>,
    pub(crate) append: Vec<AppendedBatch>,
    /// Pairs of a destination and a batch that it is done with.
    pub(crate) done: Vec<(Arc<str>, u64)>,
    /// Batches that nobody needs any more.
    pub(crate) forget: Vec<u64>,
    /// Points that are lost, most of them with batches in `forget`. The next start returns them,
    /// unless they are told before.
    pub(crate) counted: Vec<Counted>,
    /// Pairs of a destination and a batch whose count is in the newest batch, and so told.
    pub(crate) told: Vec<(Arc<str>, u64)>,
    /// Pairs of a destination and a batch that was written to it for the first time.
    pub(crate) written: Vec<(Arc<str>, u64)>,
    /// The destinations that may be written to after these changes; `None`: as before.
    pub(crate) writing: Option<Vec<Arc<str>>>,
    /// The states to store: bytes by name, only the newest of each. Empty bytes remove the name.
    pub(crate) states: BTreeMap<String, Arc<[u8]>>,
    /// The newest ticket that somebody waits for, for states or for a record of what is done; 0:
    /// none.
    pub(crate) ticket: u64,
}

impl Changes {
    /// Splits the changes into commits that each fit into a segment, or have one batch, because a
    /// segment is removed as a whole. What has become of earlier batches is in the first commit,
    /// because that makes room on a full disk. States may need more room than ticks, so they are in
    /// the last one, with the batches that belong to them.
    fn pieces(mut self, max_bytes: u64) -> Vec<Self> {
        let most = usize::try_from(segment_bytes(max_bytes)).unwrap_or(usize::MAX);
        let later: BTreeSet<u64> = self.append.iter().map(|kept| kept.id).collect();
        let mut piece = Self {
            max_bytes: self.max_bytes.take(),
            done: self.done.extract_if(.., |(_, id)| !later.contains(id)).collect(),
            forget: self.forget.extract_if(.., |id| !later.contains(id)).collect(),
            counted: self.counted.extract_if(.., |its| !later.contains(&its.id)).collect(),
            ..Self::default()
        };
        let (mut pieces, mut bytes) = (Vec::new(), 0_usize);
        let with_states: Vec<_> = self.append.extract_if(.., |kept| kept.has_states).collect();
        for kept in std::mem::take(&mut self.append) {
            let size: usize = kept.frames.iter().map(|frame| frame.body.len()).sum();
            bytes = bytes.saturating_add(size);
            if bytes > most && !piece.append.is_empty() {
                pieces.push(std::mem::take(&mut piece));
                bytes = size;
            }
            piece.append.push(kept);
        }
        let (states, ticket) = (std::mem::take(&mut self.states), self.ticket);
        if piece.append.is_empty() || states.is_empty() && with_states.is_empty() {
            piece.append.extend(with_states);
            pieces.push(Self { states, ticket, ..piece.and(self) });
        } else {
            pieces.push(Self { ticket: 0, ..piece.and(self) });
            pieces.push(Self { append: with_states, states, ticket, ..Self::default() });
        }
        pieces
    }

    /// Adds later changes to these, which are not committed yet.
    fn and(mut self, later: Self) -> Self {
        self.max_bytes = later.max_bytes.or(self.max_bytes);
        for kept in &mut self.append {
            let is_done =
                |to: &Arc<str>| later.done.iter().any(|(name, id)| name == to && *id == kept.id);
            kept.due.retain(|to| !later.forget.contains(&kept.id) && !is_done(to));
        }
        self.append.retain(|kept| !kept.due.is_empty());
        self.append.extend(later.append);
        self.done.extend(later.done);
        self.forget.extend(later.forget);
        self.counted.extend(later.counted);
        self.told.extend(later.told);
        self.written.extend(later.written);
        self.writing = later.writing.or(self.writing);
        self.states.extend(later.states);
        self.ticket = self.ticket.max(later.ticket);
        self
    }
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The log is open, with what an earlier run had stored.
    Opened(Restored),
    /// The files of the log were removed or moved away. A new log is opened, which has none of the
    /// batches.
    Removed,
    /// The batches are on disk, and the states up to the ticket. The batches in `dropped` were
    /// removed to make room.
    Committed { appended: Vec<u64>, ticket: u64, dropped: Vec<u64>, file_bytes: u64 },
    /// The log cannot be used now, and the batches are not on disk. The next commit includes them.
    Failed { appended: Vec<u64>, error: StoreError },
    /// All ticks are on disk, and other changes are not. The next commit includes them.
    Unkept { error: StoreError },
}

/// The contents of the log that an earlier run has stored.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Each batch without its frames.
    pub(crate) batches: BTreeMap<u64, Summary>,
    /// Pairs of a destination and a batch that is due to it, also of destinations that are no
    /// longer configured.
    pub(crate) due: Vec<(Arc<str>, u64)>,
    /// The pairs in `due` whose batch was written before.
    pub(crate) written: Vec<(Arc<str>, u64)>,
    /// The pairs in `due` whose batch may have been written: the daemon was killed while it could
    /// write it.
    pub(crate) perhaps_written: Vec<(Arc<str>, u64)>,
    /// Points that were counted and that no batch on disk has told, and points that are damaged or
    /// missing now.
    pub(crate) counted: Vec<Counted>,
    /// The number of records that are damaged or missing.
    pub(crate) damaged: u64,
    pub(crate) states: BTreeMap<String, Arc<[u8]>>,
    /// The names of states that are damaged or missing.
    pub(crate) damaged_states: Vec<String>,
}

/// A batch without its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) timestamp: i64,
    /// Moment at which the batch was pushed; `None`: before the host's last boot.
    pub(crate) pushed: Option<Moment>,
    pub(crate) points: u64,
    pub(crate) bytes: usize,
}

/// The reason why the log, or a batch in it, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// Another process uses the log's folder.
    #[error(
        "{}: process {} uses this directory; stop it, or give each daemon a queue.dir of its own",
            .dir.display(),
        .pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string())
    )]
    Locked { dir: PathBuf, pid: Option<u32> },
    /// Another process uses the log's folder, and no signal ends that process.
    #[error(
        "{}: process {pid} uses this directory and cannot end, because it waits for a disk that \
            does not answer",
        .dir.display()
    )]
    HeldByUndead { dir: PathBuf, pid: u32 },
    /// Another version of this program wrote the log.
    #[error(
        "{}: its format is version {version}, and this program's is {}; install the program that \
         wrote it, or move the queue-* files out of the directory to begin without them",
        .path.display(), record::VERSION
    )]
    OtherVersion { path: PathBuf, version: u8 },
    /// The contents of a segment are not what was written.
    #[error("{}: damaged", .path.display())]
    Damaged { path: PathBuf },
    /// A full disk, or an input or output error.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The thread has ended, or has no open log now.
    #[error("the queue's file is not open")]
    Gone,
    /// The open log does not have this batch.
    #[error("the queue's file does not have it")]
    Missing,
}

impl StoreError {
    /// Whether there is no space left, on the disk or in a quota.
    fn is_full(&self) -> bool {
        let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { source, .. } if full.contains(&source.kind()))
    }

    /// Whether a new segment has the name of one that the log does not know.
    fn is_in_the_way(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == ErrorKind::AlreadyExists)
    }
}

enum StoreCommand {
    Apply(Changes),
    Load { id: u64, reply: oneshot::Sender<Result<Arc<[Frame]>, StoreError>> },
    Close { changes: Changes, closed: oneshot::Sender<Option<Vec<u64>>> },
}

/// Receives, once, whether another process uses the folder.
pub(crate) type Lock = oneshot::Receiver<Result<(), StoreError>>;

/// The handle of the thread that owns the log.
#[derive(Debug)]
pub(crate) struct Store {
    commands: SyncSender<StoreCommand>,
}

impl Store {
    /// Starts the thread, which immediately locks `dir` and opens the log in it. Its results come
    /// from the receivers.
    pub(crate) fn start(
        dir: PathBuf,
        max_bytes: u64,
    ) -> (Self, Lock, mpsc::UnboundedReceiver<Event>) {
        let (commands, received) = sync_channel(MOST_UNANSWERED);
        let (said, events) = mpsc::unbounded_channel();
        let (locked, lock) = oneshot::channel();
        let keeper = Keeper::new(dir.clone(), max_bytes, said.clone());
        let thread = std::thread::Builder::new().name("queue".into()).stack_size(256 << 10);
        if let Err(source) = thread.spawn(move || keeper.run(&received, locked)) {
            let error = StoreError::Io { path: dir, source };
            let _ = said.send(Event::Failed { appended: Vec::new(), error });
        }
        (Self { commands }, lock, events)
    }

    /// Hands changes over to the thread; an event reports the result. Returns the changes that
    /// cannot be handed over because the disk does not answer.
    pub(crate) fn apply(&self, changes: Changes) -> Changes {
        match self.commands.try_send(StoreCommand::Apply(changes)) {
            Err(TrySendError::Full(StoreCommand::Apply(changes))) => changes,
            // Without its thread there is no file; the queue continues in memory.
            _ => Changes::default(),
        }
    }

    /// Reads the frames of a batch, without those that are damaged.
    pub(crate) async fn load(&self, id: u64) -> Result<Arc<[Frame]>, StoreError> {
        let (reply, frames) = oneshot::channel();
        let _ = self.commands.try_send(StoreCommand::Load { id, reply });
        frames.await.unwrap_or(Err(StoreError::Gone))
    }

    /// Makes the last changes and closes the file. Returns the batches that were removed to make
    /// room; `None` if the changes are not on disk.
    pub(crate) async fn close(&self, changes: Changes) -> Option<Vec<u64>> {
        let (closed, done) = oneshot::channel();
        let mut command = StoreCommand::Close { changes, closed };
        while let Err(TrySendError::Full(refused)) = self.commands.try_send(command) {
            command = refused;
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        done.await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
