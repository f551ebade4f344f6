//! One destination's handle on the queue: what its sender requests and reports.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::error;

use super::{COMMIT_PATIENCE, Dropped, QueueState, SharedQueue};
use crate::clock::Moment;
use crate::connection_error::ConnectionError;
use crate::ledger::{Ledger, Ticks};
use crate::store::{Counted, NO_BATCH, StoreError, Why};
use carbon_wire::{Frame, WireError, points};

/// The facts that a sender needs about the batch that it writes next.
#[derive(Clone, Debug)]
pub(crate) struct DueBatch {
    pub(crate) id: u64,
    pub(crate) points: u64,
    pub(crate) backlog: bool,
    /// Whether the batch is on disk, so that the next run of the daemon can send it.
    pub(crate) stored: bool,
    /// Whether the batch is provisional: it is written only if the peer's kernel has acknowledged
    /// everything before it.
    pub(crate) provisional: bool,
    /// The number of the batch's frames that are already written and are not written again.
    pub(crate) written: usize,
    /// The batch's frames; `None`: they must be read from disk.
    pub(crate) frames: Option<Arc<[Frame]>>,
}

/// The batches among which the next one to send is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DueFilter {
    All,
    /// Batches whose frames are in memory, for the time in which the disk returns nothing.
    Loaded,
    /// Live ticks, and batches that are not on disk, which are lost at the end of this process.
    Unstored,
}

/// The outcome of loading a batch's frames.
#[derive(Debug)]
pub(crate) enum Loaded {
    Frames(Arc<[Frame]>),
    /// The batch is lost, and its points are counted.
    Lost,
    /// The disk does not return it now.
    NotNow(StoreError),
}

/// A destination's status. Counters continue when its settings change.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Status {
    /// Whether there is a connection to the destination.
    pub connected: bool,
    /// Moment since which the destination is connected, disconnected or in doubt, whichever is true
    /// now, Unix seconds.
    pub since: i64,
    /// Connections that were made while there was none.
    pub connects: u64,
    /// Connections that were renewed, and whose end proved that everything written to them was
    /// read.
    pub renewals: u64,
    /// Times that the receiver, which takes no second connection, was seen to run.
    pub seen_to_run: u64,
    /// Points written, each counted once.
    pub sent: u64,
    /// Points written again after a loss.
    pub resent: u64,
    /// Points that the destination never received, by reason.
    pub dropped: Dropped,
    /// Points that were written, could not be proved to be read before a loss, and cannot be
    /// written again.
    pub unproved: u64,
    /// Whether there is currently no sign that the peer reads.
    pub in_doubt: bool,
    /// Whether what answered last was not Carbon: it sends data.
    pub not_carbon: bool,
    /// Bytes written that the peer's kernel has not acknowledged.
    pub unacked: u64,
    /// Moment at which a whole batch was last written, Unix seconds; `None`: none was.
    pub last_delivery: Option<u64>,
    /// Batches that were never written as a whole.
    pub unsent: Ticks,
    /// Timestamp of the oldest batch that was never written as a whole, Unix seconds; `None`: there
    /// is none, or its age is unknown.
    pub oldest_unsent: Option<i64>,
    /// Moment since which `oldest_unsent` has its value, Unix seconds: while ticks are sent, it
    /// moves on.
    pub oldest_since: i64,
    /// Batches that were written before a loss and are to be written again.
    pub again: Ticks,
    /// The number of batches in `unsent` and `again` that are held back: they are provisional, or
    /// their age is not known.
    pub held_back: u64,
    /// Moment since which the batch that has waited longest waits, Unix seconds: since its
    /// timestamp, or, if it was written before, since the loss.
    pub waits_since: Option<i64>,
    /// Batches that were written and, as far as is known, not read.
    pub unread: u64,
    /// The number of batches that the queue holds for the destination: due, or written and not yet
    /// done.
    pub held: u64,
    /// Size of the batches that `held` counts, bytes.
    pub bytes: u64,
    /// Whether the queue's file is not open yet, so that ticks of an earlier run are not included.
    pub unopened: bool,
}

impl Status {
    /// Batches that are due: never written, or to be written again, and not held back.
    #[must_use]
    pub const fn due(&self) -> u64 {
        self.unwritten().saturating_sub(self.held_back)
    }

    const fn unwritten(&self) -> u64 {
        self.unsent.ticks.saturating_add(self.again.ticks)
    }

    /// The number of batches that are to be written again, for a log line; `None` if there are
    /// none, so that the line leaves it out.
    pub(crate) fn resends(&self) -> Option<u64> {
        Some(self.again.ticks).filter(|&ticks| ticks > 0)
    }

    /// Whether the receiver has read everything. Whether it has stored it is never known.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.unwritten() == 0 && self.unread == 0 && !self.unopened
    }

    /// Points that the receiver did not get, or may not have got, and that are not sent again.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        let Dropped { full, age, damaged, .. } = self.dropped;
        full.saturating_add(age).saturating_add(damaged).saturating_add(self.unproved)
    }
}

impl fmt::Display for Status {
    /// Writes as text what is left at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unwritten() == 0 && self.unread == 0 {
            f.write_str("no tick is left that the receiver has not read")?;
        } else {
            let (unsent, again, unread) = (self.unsent.ticks, self.again.ticks, self.unread);
            write!(
                f,
                "{unsent} ticks not sent, {again} to be sent again, {unread} sent but not known to \
                    be read"
            )?;
        }
        let unopened = "; the queue's files could not be read, and ticks of an earlier run in \
            them, if there are any, were not sent";
        f.write_str(if self.unopened { unopened } else { "" })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    pub(super) shared: Arc<SharedQueue>,
    pub(super) name: Arc<str>,
    pub(super) news: Arc<Notify>,
}

impl Outbox {
    /// Waits until something new may be due for the destination.
    pub(crate) async fn wait_for_news(&self) {
        self.news.notified().await;
    }

    /// The destination's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// With a window of zero, hands over to the disk what is done. Returns the ticket for
    /// [`Outbox::is_recorded`]; `None`: the window is not zero, or there is no disk.
    pub(crate) fn record_done(&self) -> Option<u64> {
        let store = self.shared.store.as_ref()?;
        let mut state = self.shared.state();
        state.limits.resend_window.is_zero().then_some(())?;
        state.ticket = state.ticket.saturating_add(1);
        state.changes.ticket = state.ticket;
        state.hand_over(store);
        Some(state.ticket)
    }

    /// Whether the record with this ticket of [`Outbox::record_done`] is on disk.
    pub(crate) fn is_recorded(&self, ticket: u64) -> bool {
        *self.shared.state().kept.borrow() >= ticket
    }

    /// Whether the disk accepts what is written.
    pub(crate) fn is_durable(&self) -> bool {
        self.shared.state().status.durable
    }

    /// Whether the queue's file is not open yet, so that the ticks of an earlier run are missing.
    pub(crate) fn is_unopened(&self) -> bool {
        self.shared.store.is_some() && !self.shared.state().restored
    }

    /// The next batch to send, among those that `which` accepts; `None`: none is due. It is not
    /// older than `max_age` now.
    pub(crate) fn next_due(&self, which: DueFilter) -> Option<DueBatch> {
        let (now, mut state) = (Moment::now(), self.shared.state());
        let due = self.first_due(&state, which)?;
        if state.may_be_sent(due.id, now) {
            return Some(due);
        }
        state.expire(now);
        self.first_due(&state, which)
    }

    fn first_due(&self, state: &QueueState, which: DueFilter) -> Option<DueBatch> {
        let ledger = &state.destinations.get(&self.name)?.ledger;
        ledger.in_order().find_map(|(id, backlog)| {
            let held = state.batches.get(&id)?;
            let stored = self.shared.store.is_some() && held.durable;
            let fits = match which {
                DueFilter::All => true,
                DueFilter::Loaded => held.frames.is_some(),
                DueFilter::Unstored => !backlog || !stored,
            };
            fits.then(|| DueBatch {
                id,
                points: held.summary.points,
                backlog,
                stored,
                provisional: held.provisional,
                written: ledger.frames_written(id),
                frames: held.frames.clone(),
            })
        })
    }

    /// Returns the batch's frames, from memory or from the file. With `given_up`, a batch that the
    /// disk refuses to read is lost.
    pub(crate) async fn load_frames(&self, due: &DueBatch, given_up: bool) -> Loaded {
        if let Some(frames) = &due.frames {
            return Loaded::Frames(Arc::clone(frames));
        }
        let loaded = match &self.shared.store {
            Some(store) => {
                timeout(COMMIT_PATIENCE, store.load(due.id)).await.unwrap_or(Err(StoreError::Gone))
            }
            None => Err(StoreError::Gone),
        };
        match loaded {
            Ok(frames) if points(&frames) == due.points => Loaded::Frames(frames),
            Err(error)
                if matches!(error, StoreError::Gone)
                    || (!given_up && matches!(error, StoreError::Io { .. })) =>
            {
                Loaded::NotNow(error)
            }
            damaged => {
                let mut state = self.shared.state();
                if matches!(damaged, Err(StoreError::Missing)) {
                    state.lose_with_files(due.id);
                } else {
                    state.drop_batch(due.id, Why::Damaged);
                }
                let error = damaged.err().map(|error| error.to_string());
                error!(destination = %self.name, error, "a tick in the queue is damaged and lost");
                Loaded::Lost
            }
        }
    }

    /// Gives up a batch that cannot be encoded for this destination: its points are lost there, and
    /// counted.
    pub(crate) fn drop_unencodable(&self, id: u64, error: &WireError) {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return };
        let points = destination.ledger.discard(id);
        if points > 0 {
            let dropped = &mut destination.status.dropped;
            dropped.damaged = dropped.damaged.saturating_add(points);
            let (to, id, why) = (Arc::clone(&self.name), id | NO_BATCH, Why::Damaged);
            state.untold.push((Arc::clone(&to), id));
            state.changes.counted.push(Counted { to, id, points, why });
        }
        state.finish(&self.name);
        error!(destination = %self.name, %error, "a tick cannot be encoded, and is lost");
    }

    /// Changes the destination's ledger, and releases batches that are done.
    pub(crate) fn change_ledger<T: Default>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return T::default() };
        let changed = change(&mut destination.ledger);
        state.finish(&self.name);
        changed
    }

    /// Notes a loss: everything is due again that is not done.
    pub(crate) fn note_loss(&self) {
        self.change_ledger(|ledger| ledger.note_loss(Moment::now().boot));
    }

    /// Makes due again what `connection` carried: its end came too late, or without proof, and no
    /// loss is known.
    pub(crate) fn note_unproved_end(&self, connection: u64) {
        self.change_ledger(|ledger| ledger.note_unproved_end(connection, Moment::now().boot));
    }

    pub(crate) fn update_status(&self, change: impl FnOnce(&mut Status)) {
        let mut state = self.shared.state();
        let Some(destination) = state.destinations.get_mut(&self.name) else { return };
        let status = &mut destination.status;
        let before = (status.connected, status.in_doubt);
        change(status);
        if before != (status.connected, status.in_doubt) {
            destination.since = Moment::begin_of_second();
        }
        // Before the backlog is written, which may take until the next tick.
        if status.connected
            && !before.0
            && let Some(store) = &self.shared.store
        {
            state.tell_writing();
            state.hand_over(store);
        }
    }

    /// Keeps the reason why there is no connection; `None`: there is one again.
    pub(crate) fn note_error(&self, error: Option<&ConnectionError>) {
        if let Some(destination) = self.shared.state().destinations.get_mut(&self.name) {
            destination.error = error.map(|error| error.to_string().into());
        }
    }

    /// The last reason why there was no connection. `None`: there is none, or the present
    /// connection has carried a tick for a second.
    pub(crate) fn last_error(&self) -> Option<Arc<str>> {
        self.shared.state().destinations.get(&self.name)?.error.clone()
    }

    /// The destination's status.
    pub(crate) fn status(&self) -> Status {
        let (now, mut state) = (Moment::now(), self.shared.state());
        let unopened = self.shared.store.is_some() && !state.restored;
        let Some(destination) = state.destinations.get_mut(&self.name) else {
            return Status::default();
        };
        let (ledger, sums) = (&destination.ledger, destination.ledger.sums());
        let oldest_unsent = ledger.oldest_unsent();
        if destination.oldest.0 != oldest_unsent {
            destination.oldest = (oldest_unsent, now.boot);
        }
        let [unsent, again] = sums.held_back();
        Status {
            unproved: ledger.unproved(),
            unsent: sums.unsent.plus(unsent),
            held_back: unsent.plus(again).ticks,
            since: now.unix(destination.since),
            oldest_unsent,
            oldest_since: now.unix(destination.oldest.1),
            again: sums.again.plus(again),
            waits_since: ledger.waits_since(now),
            unread: ledger.unread(),
            held: sums.held,
            bytes: sums.bytes,
            unopened,
            ..destination.status
        }
    }
}
