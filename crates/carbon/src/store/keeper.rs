//! The thread that owns the log: opens it, and tries again later if the disk fails.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::folder::{self, FolderLock};
use super::log::Log;
use super::{Changes, Counted, Event, StoreCommand, StoreError};

/// Time to wait before another attempt to open the log.
const REOPEN_AFTER: Duration = Duration::from_secs(10);
/// Time for which a daemon that is ending may keep the folder from the next one.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts to lock the folder.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// The number of failed attempts to open the log after which pages that the disk refuses to read
/// count as damaged.
const MOST_TRIES: u32 = 3;

pub(super) struct Keeper {
    dir: PathBuf,
    max_bytes: u64,
    lock: Option<FolderLock>,
    log: Option<Log>,
    tried: Option<Instant>,
    refused: u32,
    /// Whether other users' rights were taken away from the folder, or a warning says that they
    /// stay.
    is_narrowed: bool,
    /// Whether another version of this program wrote the log. This process does not open it again
    /// then.
    is_refused: bool,
    /// Changes that no commit has written yet.
    owed: Changes,
    said: mpsc::UnboundedSender<Event>,
}

impl Keeper {
    pub(super) fn new(dir: PathBuf, max_bytes: u64, said: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            dir,
            max_bytes,
            lock: None,
            log: None,
            tried: None,
            refused: 0,
            is_narrowed: false,
            is_refused: false,
            owed: Changes::default(),
            said,
        }
    }

    /// Executes commands until their sender is gone. First it reports whether another process uses
    /// the folder.
    pub(super) fn run(
        mut self,
        commands: &Receiver<StoreCommand>,
        locked: oneshot::Sender<Result<(), StoreError>>,
    ) {
        let (start, mut lock) = (Instant::now(), folder::lock(&self.dir));
        let is_held = |error: &StoreError| {
            matches!(error, StoreError::Locked { .. } | StoreError::HeldByUndead { .. })
        };
        while lock.as_ref().is_err_and(is_held) && start.elapsed() < LOCK_PATIENCE {
            std::thread::park_timeout(LOCK_PAUSE);
            lock = folder::lock(&self.dir);
        }
        if let Err(error @ StoreError::Locked { .. }) = lock {
            let _ = locked.send(Err(error));
            self.tried = Some(Instant::now());
        } else {
            self.lock = lock.ok();
            let _ = locked.send(Ok(()));
            self.open();
        }
        while let Ok(command) = commands.recv() {
            match command {
                StoreCommand::Apply(changes) => drop(self.apply(changes)),
                StoreCommand::Load { id, reply } => {
                    let frames =
                        self.log.as_mut().map_or(Err(StoreError::Gone), |log| log.load(id));
                    let _ = reply.send(frames);
                }
                StoreCommand::Close { changes, closed } => {
                    // There is no later attempt.
                    self.tried = None;
                    let dropped = self.apply(changes);
                    (self.log, self.lock) = (None, None);
                    let _ = closed.send(dropped);
                    return;
                }
            }
        }
    }

    fn say(&self, event: Event) {
        // At the end nobody listens any more.
        let _ = self.said.send(event);
    }

    fn open(&mut self) {
        self.tried = Some(Instant::now());
        // The lock of a folder that has gone while no log was open is of no use.
        let locked = self
            .lock
            .take()
            .filter(FolderLock::is_there)
            .map_or_else(|| folder::lock(&self.dir), Ok);
        let opened = locked.and_then(|lock| {
            if self.lock.replace(lock).is_none() && !std::mem::replace(&mut self.is_narrowed, true)
            {
                folder::narrow(&self.dir);
            }
            Log::open(&self.dir, self.max_bytes, self.refused >= MOST_TRIES)
        });
        match opened {
            Ok((log, restored)) => {
                self.log = Some(log);
                self.say(Event::Opened(restored));
            }
            Err(error) => {
                self.refused +=
                    u32::from(self.lock.is_some() && matches!(error, StoreError::Io { .. }));
                self.is_refused = matches!(error, StoreError::OtherVersion { .. });
                self.say(Event::Failed { appended: Vec::new(), error });
            }
        }
    }

    /// Whether the folder and the newest segment are those that were opened.
    fn is_in_place(&self) -> bool {
        let (lock, log) = (self.lock.as_ref(), self.log.as_ref());
        // The segment's path also shows a folder that was moved away or hidden.
        log.is_none_or(|log| match log.is_there() {
            Some(is_there) => is_there && lock.is_none_or(FolderLock::has_name),
            None => lock.is_none_or(FolderLock::is_there),
        })
    }

    /// Gives up a log whose folder or newest segment was removed, moved away or hidden by a mount,
    /// or which has not read a segment that was put back. What is known of it without its files
    /// goes to the next one.
    fn leave(&mut self) {
        let Some(log) = self.log.take() else { return };
        (self.lock, self.tried) = (None, None);
        let states = log.states.into_iter().map(|(name, (_, bytes))| (name, bytes)).collect();
        let counted = log.counted.into_iter().map(|((id, to), its)| {
            let (points, why) = (its.points, its.why);
            Counted { to, id, points, why }
        });
        let known = Changes { states, counted: counted.collect(), ..Changes::default() };
        self.owed = known.and(std::mem::take(&mut self.owed));
        self.say(Event::Removed);
    }

    /// Commits the changes, and before them those that no commit has written yet. Returns the
    /// batches that were removed to make room; `None` if not all changes are on disk.
    fn apply(&mut self, changes: Changes) -> Option<Vec<u64>> {
        self.max_bytes = changes.max_bytes.unwrap_or(self.max_bytes);
        if !self.is_in_place() {
            self.leave();
        }
        let is_time = self.tried.is_none_or(|tried| tried.elapsed() >= REOPEN_AFTER);
        if self.log.is_none() && !self.is_refused && is_time {
            self.open();
        }
        let mut all_dropped = Vec::new();
        let mut pieces =
            std::mem::take(&mut self.owed).and(changes).pieces(self.max_bytes).into_iter();
        while let Some(piece) = pieces.next() {
            let appended = |written: &Changes| written.append.iter().map(|kept| kept.id).collect();
            match self.log.as_mut().map_or(Err(StoreError::Gone), |log| log.commit(&piece)) {
                Ok(dropped) => {
                    let file_bytes = self.log.as_ref().map_or(0, Log::bytes);
                    all_dropped.extend(&dropped);
                    let (appended, ticket) = (appended(&piece), piece.ticket);
                    self.say(Event::Committed { appended, ticket, dropped, file_bytes });
                }
                Err(error) => {
                    self.owed = pieces.fold(piece, Changes::and);
                    let is_in_the_way = error.is_in_the_way();
                    // States may not fit where ticks do; a batch with states waits for them anyway.
                    let has_ticks = self.owed.append.iter().any(|kept| !kept.has_states);
                    self.say(if has_ticks || self.log.is_none() {
                        Event::Failed { appended: appended(&self.owed), error }
                    } else {
                        Event::Unkept { error }
                    });
                    if is_in_the_way {
                        self.leave();
                    }
                    return None;
                }
            }
        }
        Some(all_dropped)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use super::super::tests::faults;
    use super::*;
    use crate::store::AppendedBatch;
    use carbon_wire::Frame;

    #[test]
    fn what_the_disk_refused_goes_with_the_next_commits_but_not_what_was_done_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let (said, mut events) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(dir.path().to_owned(), 4 << 20, said);
        let frames: Arc<[_]> = [Frame { points: 1, body: vec![7; 200 << 10] }].into();
        let kept = |id| AppendedBatch {
            id,
            timestamp: 0,
            pushed: None,
            frames: Arc::clone(&frames),
            due: vec!["a".into()],
            has_states: false,
        };
        let append =
            |ids: Range<u64>| Changes { append: ids.map(kept).collect(), ..Changes::default() };
        faults::set_room(Some(0));
        assert_eq!(keeper.apply(append(1..4)), None);
        let done = vec![("a".into(), 1)];
        assert_eq!(keeper.apply(Changes { done, forget: vec![2], ..append(4..7) }), None);
        faults::set_room(None);
        assert_eq!(keeper.apply(append(7..8)), Some(vec![]));
        let mut commits = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let Event::Committed { appended, .. } = event {
                commits.push(appended);
            }
        }
        // No more than a segment at once.
        assert_eq!(commits, [vec![3, 4], vec![5, 6], vec![7]]);
    }

    #[test]
    fn a_ticket_counts_when_the_disk_has_taken_its_states_and_not_when_it_has_refused_them() {
        let dir = tempfile::tempdir().unwrap();
        let (said, mut events) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(dir.path().to_owned(), 4 << 20, said);
        let states = [("seen".to_owned(), Arc::from(&b"one"[..]))].into();
        faults::set_room(Some(0));
        assert_eq!(keeper.apply(Changes { states, ticket: 7, ..Changes::default() }), None);
        faults::set_room(None);
        assert_eq!(keeper.apply(Changes::default()), Some(vec![]));
        assert_eq!(keeper.apply(Changes::default()), Some(vec![]));
        let mut tickets = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let Event::Committed { ticket, .. } = event {
                tickets.push(ticket);
            }
        }
        assert_eq!(tickets, [7, 0]);
    }

    /// Each tick said that ticks cannot be written, and that they are written again.
    #[test]
    fn a_state_that_does_not_fit_is_no_refusal_of_ticks() {
        let dir = tempfile::tempdir().unwrap();
        let (said, mut events) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(dir.path().to_owned(), 4 << 20, said);
        let frames: Arc<[_]> = [Frame { points: 1, body: vec![7; 10] }].into();
        let batch = |id, has_states| {
            let (frames, due) = (Arc::clone(&frames), vec!["a".into()]);
            AppendedBatch { id, timestamp: 0, pushed: None, frames, due, has_states }
        };
        let states = [("counts".to_owned(), Arc::from(vec![1; 10_000]))].into();
        keeper.open();
        let append = vec![batch(1, true), batch(2, false)];
        faults::set_room(Some(1000));
        assert_eq!(keeper.apply(Changes { append, states, ticket: 1, ..Changes::default() }), None);
        let append = vec![batch(3, false)];
        faults::set_room(Some(1000));
        assert_eq!(keeper.apply(Changes { append, ..Changes::default() }), None);
        faults::set_room(None);
        assert_eq!(keeper.apply(Changes::default()), Some(vec![]));
        let mut heard = Vec::new();
        while let Ok(event) = events.try_recv() {
            heard.push(match event {
                Event::Committed { appended, ticket, .. } => format!("{appended:?} {ticket}"),
                Event::Unkept { .. } => "unkept".to_owned(),
                other => format!("{other:?}").split(' ').take(1).collect(),
            });
        }
        let expected = ["Opened(Restored", "[2] 0", "unkept", "[3] 0", "unkept", "[1] 1"];
        assert_eq!(heard, expected);
    }

    #[test]
    fn a_lock_that_is_refused_gives_nothing_of_the_log_up() {
        let dir = tempfile::tempdir().unwrap();
        let (said, mut events) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(dir.path().to_owned(), 4 << 20, said);
        // A directory cannot be opened as the lock, nor as a segment.
        let in_the_way = [dir.path().join("queue.lock"), folder::segment(dir.path(), 1)];
        in_the_way.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        (0..MOST_TRIES).for_each(|_| keeper.open());
        assert_eq!(keeper.refused, 0);
        std::fs::remove_dir(&in_the_way[0]).unwrap();
        keeper.open();
        assert_eq!(keeper.refused, 1);
        while let Ok(event) = events.try_recv() {
            assert!(
                matches!(event, Event::Failed { error: StoreError::Io { .. }, .. }),
                "{event:?}"
            );
        }
    }

    /// The lock of the folder that is gone was kept for ever, so no log was opened again.
    #[test]
    fn a_folder_that_goes_between_its_lock_and_its_log_is_made_and_locked_again() {
        let up = tempfile::tempdir().unwrap();
        let dir = up.path().join("queue");
        let (said, _events) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(dir.clone(), 4 << 20, said);
        std::fs::create_dir_all(folder::segment(&dir, 1)).unwrap();
        keeper.open();
        assert!(keeper.lock.is_some() && keeper.log.is_none());
        std::fs::rename(&dir, up.path().join("away")).unwrap();
        keeper.open();
        assert!(keeper.is_in_place() && keeper.log.is_some());
    }

    /// The new log's first segment could never be created.
    #[test]
    fn segments_that_are_put_back_into_an_empty_folder_are_read() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (said, mut events) = mpsc::unbounded_channel();
        let mut keepers = dirs.each_ref().map(|dir| {
            let mut keeper = Keeper::new(dir.path().to_owned(), 4 << 20, said.clone());
            keeper.open();
            keeper
        });
        let frames: Arc<[_]> = [Frame { points: 1, body: vec![7; 10] }].into();
        let due = vec!["a".into()];
        let batch = |id| {
            let (frames, due) = (Arc::clone(&frames), due.clone());
            AppendedBatch { id, timestamp: 0, pushed: None, frames, due, has_states: false }
        };
        let append = |id| Changes { append: vec![batch(id)], ..Changes::default() };
        assert_eq!(keepers[0].apply(append(1)), Some(vec![]));
        let [from, to] = dirs.each_ref().map(|dir| folder::segment(dir.path(), 1));
        std::fs::copy(from, to).unwrap();
        assert_eq!(keepers[1].apply(append(2)), None);
        while events.try_recv().is_ok() {}
        assert_eq!(keepers[1].apply(Changes::default()), Some(vec![]));
        let Ok(Event::Opened(restored)) = events.try_recv() else { panic!("not opened again") };
        assert_eq!(restored.batches.into_keys().collect::<Vec<_>>(), [1]);
        assert!(
            matches!(events.try_recv(), Ok(Event::Committed { appended, .. }) if appended == [2])
        );
    }
}
