//! The thread that owns the log: opens it, and tries again later where the disk does not take or give it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::log::Log;
use super::{Changes, Command, Event, StoreError, disk};

/// A log that could not be opened is tried again after this.
const REOPEN_AFTER: Duration = Duration::from_secs(10);
/// How long a daemon that ends may keep the folder from the next one.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// After so many tries what the disk still refuses to read is given up.
const MOST_TRIES: u32 = 3;

/// The thread: owner of the log.
pub(super) struct Keeper {
    dir: PathBuf,
    max_bytes: u64,
    destinations: Vec<Arc<str>>,
    lock: Option<File>,
    log: Option<Log>,
    tried: Option<Instant>,
    refused: u32,
    /// A newer program wrote the log: it stays so for as long as this one runs.
    is_newer: bool,
    /// What no commit has taken yet.
    owed: Changes,
    said: mpsc::UnboundedSender<Event>,
}

impl Keeper {
    pub(super) fn new(
        dir: PathBuf,
        max_bytes: u64,
        destinations: Vec<Arc<str>>,
        said: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let owed = Changes::default();
        Self {
            dir,
            max_bytes,
            destinations,
            lock: None,
            log: None,
            tried: None,
            refused: 0,
            is_newer: false,
            owed,
            said,
        }
    }

    /// Carries out commands until their sender is gone. First it reports whether another process uses the folder.
    pub(super) fn run(
        mut self,
        commands: &Receiver<Command>,
        locked: oneshot::Sender<Result<(), StoreError>>,
    ) {
        let start = Instant::now();
        loop {
            match disk::lock(&self.dir) {
                Err(StoreError::Locked { .. }) if start.elapsed() < LOCK_PATIENCE => {
                    std::thread::park_timeout(LOCK_PAUSE);
                }
                Err(error @ StoreError::Locked { .. }) => {
                    let _ = locked.send(Err(error));
                    self.tried = Some(Instant::now());
                    break;
                }
                other => {
                    self.lock = other.ok();
                    let _ = locked.send(Ok(()));
                    self.open();
                    break;
                }
            }
        }
        while let Ok(command) = commands.recv() {
            match command {
                Command::Apply(changes) => drop(self.apply(changes)),
                Command::Load { id, reply } => {
                    let frames = self.log.as_mut().map_or(Err(StoreError::Gone), |log| log.load(id));
                    let _ = reply.send(frames);
                }
                Command::Reconfigure { destinations, moved, max_bytes } => {
                    if let Some((from, to)) = &moved {
                        self.owed.rename(from, to);
                    }
                    if let Some(log) = &mut self.log {
                        log.configure(&destinations, moved.as_ref(), max_bytes);
                    }
                    (self.destinations, self.max_bytes) = (destinations, max_bytes);
                }
                Command::Close { changes, closed } => {
                    // There is no later time.
                    self.tried = None;
                    let dropped: Vec<_> = changes.into_iter().map(|changes| self.apply(changes)).collect();
                    (self.log, self.lock) = (None, None);
                    let dropped: Option<Vec<_>> = dropped.into_iter().collect();
                    let _ = closed.send(dropped.map(|dropped| dropped.concat()));
                    return;
                }
            }
        }
    }

    fn say(&self, event: Event) {
        // Nobody listens any more at the end.
        let _ = self.said.send(event);
    }

    fn open(&mut self) {
        self.tried = Some(Instant::now());
        match self.lock.take().map_or_else(|| disk::lock(&self.dir), Ok) {
            Ok(lock) => self.lock = Some(lock),
            Err(error) => return self.say(Event::Unavailable(error)),
        }
        match Log::open(&self.dir, self.max_bytes, &self.destinations, self.refused >= MOST_TRIES) {
            Ok((log, restored)) => {
                let old = self.dir.join("queue.sqlite3");
                if old.exists() {
                    warn!(file = %old.display(), "this is the queue of an earlier version of this program, which is not read; remove it");
                }
                self.log = Some(log);
                self.say(Event::Opened(restored));
            }
            Err(error) => {
                self.refused += u32::from(matches!(error, StoreError::Io { .. }));
                self.is_newer = matches!(error, StoreError::Newer { .. });
                self.say(Event::Unavailable(error));
            }
        }
    }

    /// Returns the batches that had to make room; `None` where the changes are not on disk.
    fn apply(&mut self, changes: Changes) -> Option<Vec<u64>> {
        let is_time = self.tried.is_none_or(|tried| tried.elapsed() >= REOPEN_AFTER);
        if self.log.is_none() && !self.is_newer && is_time {
            self.open();
        }
        let appended: Vec<u64> = changes.append.iter().map(|kept| kept.id).collect();
        let mut changes = std::mem::take(&mut self.owed).and(changes);
        let committed = self.log.as_mut().map_or(Err(StoreError::Gone), |log| log.commit(&changes));
        match committed {
            Ok(dropped) => {
                let file_bytes = self.log.as_ref().map_or(0, Log::bytes);
                self.say(Event::Committed { appended, dropped: dropped.clone(), file_bytes });
                Some(dropped)
            }
            Err(error) => {
                // Left out they would be sent again by the next run.
                changes.append.clear();
                self.owed = changes;
                self.say(Event::Failed { appended, error });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_refused_gives_nothing_of_the_log_up() {
        let dir = tempfile::tempdir().unwrap();
        let (said, mut events) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(dir.path().to_owned(), 4 << 20, Vec::new(), said);
        // A folder cannot be opened as the lock, nor as a segment.
        let in_the_way = [dir.path().join("queue.lock"), disk::segment(dir.path(), 1)];
        in_the_way.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        (0..MOST_TRIES).for_each(|_| keeper.open());
        assert_eq!(keeper.refused, 0);
        std::fs::remove_dir(&in_the_way[0]).unwrap();
        keeper.open();
        assert_eq!(keeper.refused, 1);
        while let Ok(event) = events.try_recv() {
            assert!(matches!(event, Event::Unavailable(StoreError::Io { .. })), "{event:?}");
        }
    }
}
