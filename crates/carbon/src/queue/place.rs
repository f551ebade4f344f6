//! One destination's place in the queue: what its sender asks and tells.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{debug, error};

use super::leaving::Reason;
use super::state::Destination;
use super::{COMMIT_PATIENCE, Dropped, Shared};
use crate::ledger::Ledger;
use crate::store::StoreError;
use crate::wire::{Frame, points};

/// A batch whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) id: u64,
    pub(crate) points: u64,
    pub(crate) backlog: bool,
    pub(super) frames: Option<Arc<[Frame]>>,
}

impl Turn {
    /// Whether no disk is asked for its frames.
    pub(crate) const fn is_in_memory(&self) -> bool {
        self.frames.is_some()
    }
}

/// What became of looking for a batch's frames.
#[derive(Debug)]
pub(crate) enum Loaded {
    Frames(Arc<[Frame]>),
    /// The batch is gone, and counted.
    Lost,
    /// The disk does not answer, or there is no file now.
    NotNow,
    /// The disk has an error where the batch is.
    Refused,
}

/// What is seen of one destination's share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    pub(crate) dropped: Dropped,
    /// Points that were written, could not be proved read, and cannot be written again.
    pub(crate) unproved: u64,
    pub(crate) due: usize,
    /// Ticks written and not read, as far as is known.
    pub(crate) unread: usize,
    pub(crate) oldest_due: Option<i64>,
    pub(crate) held: usize,
    pub(crate) bytes: usize,
    /// The file has not been opened: what an earlier run has kept is not among them.
    pub(crate) unopened: bool,
}

/// One destination's place in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(super) shared: Arc<Shared>,
    pub(super) name: Arc<str>,
    pub(super) news: Arc<Notify>,
}

impl Place {
    /// Waits until something may be due that was not before.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// The batch whose turn it is.
    pub(crate) fn next(&self) -> Option<Turn> {
        let state = self.shared.state();
        let (id, backlog) = state.destinations.get(&self.name)?.ledger.next()?;
        state.turn(id, backlog)
    }

    /// The batch's frames, from memory or from the file. Those that are lost are counted, and `turn` has the points that
    /// are left; a disk that does not answer, or not now, keeps what it has.
    pub(crate) async fn frames(&self, turn: &mut Turn) -> Loaded {
        if let Some(frames) = &turn.frames {
            return Loaded::Frames(Arc::clone(frames));
        }
        let mut loaded = self.load(turn.id, false).await;
        // A disk that is busy says nothing of the batch; one that refuses it, time and again, does.
        if let Err(error @ StoreError::Io { .. }) = &loaded
            && self.shared.state().refused(&self.name, turn.id, error)
        {
            loaded = self.load(turn.id, true).await;
        }
        match loaded {
            Ok(frames) => {
                turn.points = points(&frames);
                self.shared.state().loaded(turn.id, turn.points);
                Loaded::Frames(frames)
            }
            Err(error @ StoreError::Damaged { .. }) => {
                error!(destination = %self.name, %error, "a kept tick cannot be read, and is lost");
                self.shared.state().drop_batch(turn.id, Reason::Damaged);
                Loaded::Lost
            }
            Err(error) => {
                debug!(destination = %self.name, %error, "a kept tick cannot be read now");
                if matches!(error, StoreError::Io { .. }) { Loaded::Refused } else { Loaded::NotNow }
            }
        }
    }

    async fn load(&self, id: u64, anyway: bool) -> Result<Arc<[Frame]>, StoreError> {
        let Some(store) = &self.shared.store else { return Err(StoreError::Gone) };
        timeout(COMMIT_PATIENCE, store.load(id, anyway)).await.unwrap_or(Err(StoreError::Gone))
    }

    /// How long after it was read a tick is done.
    pub(crate) fn resend_window(&self) -> Duration {
        self.shared.state().limits.resend_window
    }

    /// How many frames of a due batch need not be written.
    pub(crate) fn frames_written(&self, id: u64) -> usize {
        let state = self.shared.state();
        state.destinations.get(&self.name).map_or(0, |to| to.ledger.frames_written(id))
    }

    /// A frame of the batch has been written on the connection of this number.
    pub(crate) fn frame_written(&self, id: u64, connection: u64, points: u64) {
        self.change(|ledger| {
            ledger.frame_written(id, connection, points);
            Vec::new()
        });
    }

    /// The whole batch has been written on the connection of this number. Returns whether it had been before.
    pub(crate) fn written(&self, id: u64, connection: u64) -> bool {
        let mut again = false;
        self.change(|ledger| {
            let written = ledger.written(id, connection);
            again = written.is_some_and(|written| written.again);
            if written.is_some_and(|written| written.done) { vec![id] } else { Vec::new() }
        });
        again
    }

    /// The connection of this number has answered, `after` our half-close.
    pub(crate) fn answered(&self, connection: u64, last_write: Option<Instant>, after: Duration) {
        self.change(|ledger| ledger.answered(connection, last_write, after, Instant::now()));
    }

    /// It has answered too late to prove anything.
    pub(crate) fn answered_too_late(&self, connection: u64) {
        self.change(|ledger| ledger.answered_too_late(connection));
    }

    /// The peer has read nothing for a while, until now.
    pub(crate) fn doubt_ended(&self) {
        self.change(|ledger| {
            ledger.doubt_ended(Instant::now());
            Vec::new()
        });
    }

    /// The connection was lost.
    pub(crate) fn lost(&self) {
        self.change(Ledger::lost);
    }

    /// Changes the ledger, and lets go of what it says is done.
    fn change(&self, change: impl FnOnce(&mut Ledger) -> Vec<u64>) {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return };
        let done = change(&mut destination.ledger);
        state.finish(&self.name, &done);
    }

    /// Where it stands.
    pub(crate) fn share(&self) -> Share {
        let state = self.shared.state();
        let Some(Destination { ledger, dropped, bytes, .. }) = state.destinations.get(&self.name) else {
            return Share::default();
        };
        Share {
            dropped: *dropped,
            unproved: ledger.unproved(),
            due: ledger.due(),
            unread: ledger.unread(),
            oldest_due: ledger.oldest_due(),
            held: ledger.held(),
            bytes: *bytes,
            unopened: self.shared.store.is_some() && !state.restored,
        }
    }
}
