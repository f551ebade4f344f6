//! With a window of zero nothing may be sent twice, so a tick of the backlog waits until it is on disk that the one
//! before it is done. It waits for a second at most, and not at all while the disk fails: Carbon comes first.

use tokio::time::Instant;
use tracing::warn;

use crate::queue::{COMMIT_PATIENCE, Place};

/// What the disk has not recorded yet.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// The ticket for it, and until when the next tick waits.
    pending: Option<(u64, Instant)>,
    /// The log says that the disk is too slow for it.
    said: bool,
}

impl Recording {
    /// A tick of the backlog was written at `now`.
    pub(super) fn begin(&mut self, place: &Place, now: Instant) {
        let until = self.pending.map_or(now + COMMIT_PATIENCE, |(_, until)| until);
        self.pending = place.record_done().map(|ticket| (ticket, until));
    }

    /// Until when the next tick of the backlog waits.
    pub(super) fn wait(&mut self, place: &Place, now: Instant) -> Option<Instant> {
        let (ticket, until) = self.pending?;
        if place.is_recorded(ticket) {
            *self = Self::default();
            return None;
        }
        if now < until && place.is_durable() {
            return Some(until);
        }
        if !std::mem::replace(&mut self.said, true) {
            warn!(
                destination = place.name(),
                "the queue's disk does not record what is sent; until it does, a SIGKILL of this daemon may send more than one tick twice"
            );
        }
        None
    }
}
