//! The thread that owns the queue's file: opens it, replaces one that is damaged, tries again later where the disk takes nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::debug;

use super::file::{File, Salvage, salvage};
use super::{Changes, Command, Event, NAME, Restored, StoreError, aside};

/// A file that could not be opened is tried again after this.
const REOPEN_AFTER: Duration = Duration::from_secs(10);
/// Between two steps of giving free pages back to the file system.
const SHRINK_PAUSE: Duration = Duration::from_millis(20);

/// The thread: owner of the file.
pub(super) struct Keeper {
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
    pub(super) fn new(
        dir: PathBuf,
        max_bytes: u64,
        destinations: Vec<Arc<str>>,
        said: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let owed = Changes::default();
        Self { dir, max_bytes, destinations, file: None, tried: None, told: false, owed, said }
    }

    /// Does what it is told, until nobody can tell it any more.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
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
