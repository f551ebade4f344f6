//! The queue's file: batches that outlive this process, in an SQLite database with a thread of its own.
//!
//! The thread does what it is told in order and says what became of it; nobody waits for it who need not. A file
//! that is corrupt, or from a newer version, is moved aside and replaced; a disk that is full or gone leaves the
//! batches where they are, in memory. Every frame carries a checksum over all that is sent of it, so that a flipped bit
//! loses a batch and never sends a wrong one.

mod aside;
mod file;
mod keeper;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::{mpsc, oneshot};

use self::keeper::Keeper;
use crate::wire::{Frame, points};

/// The file in the queue's folder.
const NAME: &str = "queue.sqlite3";

/// A batch as it is kept: its number, its timestamp, its frames.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) id: u64,
    pub(crate) timestamp: i64,
    pub(crate) frames: Arc<[Frame]>,
    /// The destinations that have not had it.
    pub(crate) due: Vec<Arc<str>>,
}

impl Kept {
    fn points(&self) -> u64 {
        points(&self.frames)
    }
}

/// One commit's worth of changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) append: Vec<Kept>,
    /// (destination, batch): done.
    pub(crate) done: Vec<(Arc<str>, u64)>,
    /// Batches that nobody is to have any more.
    pub(crate) forget: Vec<u64>,
}

/// What the thread says.
#[derive(Debug)]
pub(crate) enum Event {
    /// The file is open; this is what an earlier run had kept.
    Opened(Restored),
    /// The file cannot be used now; everything stays in memory.
    Unavailable(StoreError),
    /// The batches are on disk. `dropped` had to make room for them.
    Committed { appended: Vec<u64>, dropped: Vec<u64>, file_bytes: u64 },
    /// The batches are not on disk.
    Failed { appended: Vec<u64>, error: StoreError },
    /// The file was moved aside; a new one is in its place, with the batches that could be saved. `counted`: what else it
    /// had is known.
    MovedAside { to: PathBuf, error: StoreError, saved: BTreeSet<u64>, counted: bool },
}

/// What an earlier run had kept.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Timestamp, points and bytes of each batch.
    pub(crate) batches: BTreeMap<u64, Summary>,
    /// (destination, batch), of the destinations that there are now.
    pub(crate) due: Vec<(Arc<str>, u64)>,
    /// What each destination was to have, and is no longer there.
    pub(crate) lost: BTreeMap<Arc<str>, Lost>,
    /// Destinations that there are no longer, and how many batches each had not had.
    pub(crate) removed: Vec<(String, u64)>,
    /// Entries and destinations that are not what was written: without the tally the batches they may have been about are due
    /// to all.
    pub(crate) unsound: usize,
    /// What was due is known all the same: the tally has it.
    pub(crate) tallied: bool,
    /// Commits that were made, and that the file no longer has.
    pub(crate) behind: u64,
    /// Nothing tells whether there are such.
    pub(crate) blind: bool,
}

/// What a damaged file no longer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Batches that are gone or not whole.
    pub(crate) batches: u64,
    pub(crate) points: u64,
}

impl Lost {
    /// `name` was to have a batch of `points`; `there` are left of it, `None` when all of it is gone.
    fn count(lost: &mut BTreeMap<Arc<str>, Self>, name: &Arc<str>, points: u64, there: Option<u64>) {
        let missing = points.saturating_sub(there.unwrap_or(0));
        if missing > 0 {
            let lost = lost.entry(Arc::clone(name)).or_default();
            lost.batches = lost.batches.saturating_add(1);
            lost.points = lost.points.saturating_add(missing);
        }
    }
}

/// A batch without its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) timestamp: i64,
    pub(crate) points: u64,
    pub(crate) bytes: usize,
}

/// Why the file did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// Another process has it open.
    #[error("{}: another process uses it; two daemons need two queue.dir", .0.display())]
    Locked(PathBuf),
    /// It was written by a newer version of this program.
    #[error("{}: it is of version {version}, newer than this program", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i64,
    },
    /// It is not what was written.
    #[error("{}: damaged: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Its folder cannot be made or written.
    #[error("{}: {source}", .path.display())]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Anything else: a full disk, an input or output error.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        source: rusqlite::Error,
    },
    /// The thread has ended.
    #[error("the queue's thread has ended")]
    Gone,
}

enum Command {
    Apply(Changes),
    Load { id: u64, anyway: bool, reply: oneshot::Sender<Result<Arc<[Frame]>, StoreError>> },
    Reconfigure { destinations: Vec<Arc<str>>, max_bytes: u64 },
    Close { changes: Changes, closed: oneshot::Sender<Option<Vec<u64>>> },
}

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Store {
    commands: Sender<Command>,
}

impl Store {
    /// Starts the thread, which opens the file in `dir` at once; what it says comes from the receiver.
    pub(crate) fn start(
        dir: &Path,
        max_bytes: u64,
        destinations: Vec<Arc<str>>,
    ) -> std::io::Result<(Self, mpsc::UnboundedReceiver<Event>)> {
        let (commands, received) = channel();
        let (said, events) = mpsc::unbounded_channel();
        let keeper = Keeper::new(dir.to_owned(), max_bytes, destinations, said);
        std::thread::Builder::new()
            .name("queue".into())
            .stack_size(256 << 10)
            .spawn(move || keeper.run(&received))?;
        Ok((Self { commands }, events))
    }

    /// One whose thread answers nothing, as on a disk that hangs; it hears for as long as the second is kept.
    #[cfg(test)]
    pub(crate) fn hung() -> (Self, impl Sized) {
        let (commands, unheard) = channel();
        (Self { commands }, unheard)
    }

    /// One whose disk gives batches as `load` says.
    #[cfg(test)]
    pub(crate) fn loading(
        load: impl Fn(u64, bool) -> Result<Arc<[Frame]>, StoreError> + Send + 'static,
    ) -> Self {
        let (commands, received) = channel();
        std::thread::spawn(move || {
            for command in received {
                if let Command::Load { id, anyway, reply } = command {
                    let _ = reply.send(load(id, anyway));
                }
            }
        });
        Self { commands }
    }

    /// Hands changes over; an event comes for every batch appended.
    pub(crate) fn apply(&self, changes: Changes) {
        // Without its thread there is no file; the queue goes on in memory.
        let _ = self.commands.send(Command::Apply(changes));
    }

    /// The frames of a batch. What can be read of them `anyway`, whatever the disk says of the others.
    pub(crate) async fn load(&self, id: u64, anyway: bool) -> Result<Arc<[Frame]>, StoreError> {
        let (reply, frames) = oneshot::channel();
        let _ = self.commands.send(Command::Load { id, anyway, reply });
        frames.await.unwrap_or(Err(StoreError::Gone))
    }

    /// There are other destinations now, and another bound.
    pub(crate) fn reconfigure(&self, destinations: Vec<Arc<str>>, max_bytes: u64) {
        let _ = self.commands.send(Command::Reconfigure { destinations, max_bytes });
    }

    /// Makes the last changes and closes the file. Returns the batches that had to make room; `None` where the changes are not
    /// on disk.
    pub(crate) async fn close(&self, changes: Changes) -> Option<Vec<u64>> {
        let (closed, done) = oneshot::channel();
        let _ = self.commands.send(Command::Close { changes, closed });
        done.await.unwrap_or_default()
    }
}
