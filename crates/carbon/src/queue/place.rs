//! One destination's place in the queue: what its sender asks and tells.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{debug, error};

use super::leaving::Reason;
use super::state::Destination;
use super::{COMMIT_PATIENCE, Dropped, Shared};
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
    pub(crate) due: usize,
    pub(crate) oldest_due: Option<i64>,
    pub(crate) held: usize,
    pub(crate) bytes: usize,
    #[cfg_attr(not(test), expect(dead_code, reason = "the sender's status will have it"))]
    pub(crate) unproved: u64,
    /// The file has not been read: what an earlier run has kept is not among them.
    pub(crate) unread: bool,
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

    /// The oldest due batch behind `id`.
    pub(crate) fn due_after(&self, id: u64) -> Option<Turn> {
        let state = self.shared.state();
        let id = state.destinations.get(&self.name)?.ledger.due_after(id)?;
        state.turn(id, true)
    }

    /// Whether the batch is still to be written.
    pub(crate) fn is_due(&self, id: u64) -> bool {
        self.shared.state().destinations.get(&self.name).is_some_and(|to| to.ledger.is_due(id))
    }

    /// The batch `id`, whosever turn it is.
    pub(crate) fn turn(&self, id: u64) -> Option<Turn> {
        self.shared.state().turn(id, true)
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

    /// The whole batch has been written. Returns whether it had been before.
    pub(crate) fn written(&self, id: u64) -> bool {
        let now = Instant::now();
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return false };
        let writes = destination.ledger.written(id, now);
        let done = destination.ledger.settle_sometimes(now);
        state.finish(&self.name, &done);
        writes.is_some_and(|writes| writes > 1)
    }

    /// The connection was lost; `idle`: the peer closed it while nothing was under way.
    pub(crate) fn lost(&self, idle: bool) {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return };
        let done = destination.ledger.lost(Instant::now(), idle);
        state.finish(&self.name, &done);
        state.lose_evicted(&self.name);
    }

    /// The half-close barrier was passed.
    pub(crate) fn confirmed(&self) {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return };
        let done = destination.ledger.confirmed();
        state.finish(&self.name, &done);
    }

    /// Where it stands.
    pub(crate) fn share(&self) -> Share {
        let state = self.shared.state();
        let Some(Destination { ledger, dropped, unproved, bytes, .. }) = state.destinations.get(&self.name)
        else {
            return Share::default();
        };
        Share {
            dropped: *dropped,
            due: ledger.due(),
            oldest_due: ledger.oldest_due(),
            held: ledger.held(),
            bytes: *bytes,
            unproved: *unproved,
            unread: self.shared.store.is_some() && !state.restored,
        }
    }
}
