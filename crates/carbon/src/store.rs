//! The queue's file: batches that outlive this process, in an SQLite database with a thread of its own.
//!
//! The thread does what it is told in order and says what became of it; nobody waits for it who need not. A file
//! that is corrupt, or from a newer version, is moved aside and replaced; a disk that is full or gone leaves the
//! batches where they are, in memory. Every frame carries a checksum over all that is sent of it, so that a flipped bit
//! loses a batch and never sends a wrong one.

mod aside;
mod file;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use self::file::{File, Salvage, salvage};
use crate::wire::{Frame, points};

/// The file in the queue's folder.
const NAME: &str = "queue.sqlite3";
/// A file that could not be opened is tried again after this.
const REOPEN_AFTER: Duration = Duration::from_secs(10);
/// Between two steps of giving free pages back to the file system.
const SHRINK_PAUSE: Duration = Duration::from_millis(20);

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
        let (dir, owed) = (dir.to_owned(), Changes::default());
        let keeper =
            Keeper { dir, max_bytes, destinations, file: None, tried: None, told: false, owed, said };
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

/// The thread: owner of the file.
struct Keeper {
    dir: PathBuf,
    max_bytes: u64,
    destinations: Vec<Arc<str>>,
    file: Option<File>,
    tried: Option<Instant>,
    /// What is in the file has been said: whoever listens knows what a damaged one has lost.
    told: bool,
    /// What was done with batches while the disk took nothing.
    owed: Changes,
    said: mpsc::UnboundedSender<Event>,
}

impl Keeper {
    fn run(mut self, commands: &Receiver<Command>) {
        self.open();
        loop {
            let command = match &mut self.file {
                Some(file) if file.wants_to_shrink() => match commands.recv_timeout(SHRINK_PAUSE) {
                    Err(RecvTimeoutError::Timeout) => {
                        self.shrink();
                        continue;
                    }
                    Ok(command) => command,
                    Err(RecvTimeoutError::Disconnected) => return,
                },
                _ => match commands.recv() {
                    Ok(command) => command,
                    Err(_) => return,
                },
            };
            match command {
                Command::Apply(changes) => drop(self.apply(changes)),
                Command::Load { id, anyway, reply } => {
                    let frames =
                        self.file.as_mut().map_or(Err(StoreError::Gone), |file| file.load(id, anyway));
                    let _ = reply.send(frames);
                }
                Command::Reconfigure { destinations, max_bytes } => {
                    (self.destinations, self.max_bytes) = (destinations, max_bytes);
                    if let Some(file) = &mut self.file
                        && let Err(error) = file.reconfigure(&self.destinations, max_bytes)
                    {
                        self.failed(Vec::new(), error);
                    }
                }
                Command::Close { changes, closed } => {
                    // There is no later time.
                    self.tried = None;
                    let dropped = self.apply(changes);
                    self.file = None;
                    let _ = closed.send(dropped);
                    return;
                }
            }
        }
    }

    fn say(&self, event: Event) {
        // Nobody listens any more at the end.
        let _ = self.said.send(event);
    }

    /// Opens the file; one that cannot be read is replaced.
    fn open(&mut self) {
        self.tried = Some(Instant::now());
        match File::open(&self.dir, self.max_bytes, &self.destinations) {
            Ok((file, _)) if aside::pending(&self.dir).exists() => {
                let (path, reason) = (self.dir.join(NAME), "it was not whole yet".to_owned());
                self.take_over(file, StoreError::Damaged { path, reason }, true);
            }
            Ok((file, restored)) => self.opened(file, restored),
            Err(error @ (StoreError::Damaged { .. } | StoreError::Newer { .. })) => self.replace(error),
            Err(error) => self.say(Event::Unavailable(error)),
        }
    }

    fn opened(&mut self, file: File, mut restored: Restored) {
        if std::mem::replace(&mut self.told, true) {
            restored.lost.clear();
        }
        self.file = Some(file);
        self.say(Event::Opened(restored));
    }

    /// Sets the file aside, makes another, and takes over what can be read.
    fn replace(&mut self, error: StoreError) {
        self.file = None;
        let resumed = aside::pending(&self.dir).exists();
        if let Err(error) = aside::begin(&self.dir) {
            return self.say(Event::Unavailable(error));
        }
        match File::open(&self.dir, self.max_bytes, &self.destinations) {
            Ok((file, _)) => self.take_over(file, error, resumed),
            Err(cause) => self.not_now(cause, resumed),
        }
    }

    /// The disk does not take a new file: later it will be tried from the beginning.
    fn not_now(&self, cause: StoreError, resumed: bool) {
        if !resumed {
            aside::put_back(&self.dir);
        } else if matches!(cause, StoreError::Damaged { .. }) {
            // What was made until now would refuse the next time too.
            let _ = aside::begin(&self.dir);
        }
        self.say(Event::Unavailable(cause));
    }

    /// Takes over into `file` what can be read of the one that had its place; `resumed`: not for the first time. Nothing of it is
    /// sent before that is done: a run that finds it half done begins anew.
    fn take_over(&mut self, mut file: File, error: StoreError, resumed: bool) {
        let from = aside::pending(&self.dir);
        // What a newer version has kept, only that knows.
        let newer = matches!(error, StoreError::Newer { .. });
        let salvage = if newer { Ok(Salvage::default()) } else { salvage(&from, &mut file) };
        let taken = salvage.and_then(|salvage| Ok((salvage, file.restore()?)));
        let (Salvage { saved, lost, counted, blind }, restored) = match taken {
            Ok(taken) => taken,
            Err(cause) => {
                // Closed later it would delete the other's log.
                drop(file);
                return self.not_now(cause, resumed);
            }
        };
        // Under its old name it is taken over once more by the next run, which sends twice.
        let to = aside::finish(&self.dir, &from).unwrap_or(from);
        self.say(Event::MovedAside { to, error, saved, counted });
        self.opened(file, Restored { lost, blind, ..restored });
    }

    /// Returns the batches that had to make room; `None` where the changes are not on disk.
    fn apply(&mut self, mut changes: Changes) -> Option<Vec<u64>> {
        if self.file.is_none() && self.tried.is_none_or(|tried| tried.elapsed() >= REOPEN_AFTER) {
            self.open();
        }
        changes.done.append(&mut self.owed.done);
        changes.forget.append(&mut self.owed.forget);
        let appended: Vec<u64> = changes.append.iter().map(|kept| kept.id).collect();
        let applied = self.file.as_mut().map_or(Err(StoreError::Gone), |file| file.apply(&changes));
        match applied {
            Ok(dropped) => {
                let file_bytes = self.file.as_ref().map_or(0, File::bytes);
                self.say(Event::Committed { appended, dropped: dropped.clone(), file_bytes });
                Some(dropped)
            }
            Err(error) => {
                // Left in the file they would be sent again by the next run.
                self.owed = Changes { append: Vec::new(), ..changes };
                self.failed(appended, error);
                None
            }
        }
    }

    fn shrink(&mut self) {
        match self.file.as_mut().map_or(Ok(()), File::shrink) {
            Err(error @ StoreError::Damaged { .. }) => self.replace(error),
            // No batch is the worse for it.
            Err(error) => debug!(%error, "the queue's file cannot be made smaller now"),
            Ok(()) => {}
        }
    }

    fn failed(&mut self, appended: Vec<u64>, error: StoreError) {
        if matches!(error, StoreError::Damaged { .. }) {
            let reason = error.to_string();
            self.replace(error);
            let path = self.dir.clone();
            return self.say(Event::Failed { appended, error: StoreError::Damaged { path, reason } });
        }
        self.say(Event::Failed { appended, error });
    }
}

#[cfg(test)]
mod tests;
