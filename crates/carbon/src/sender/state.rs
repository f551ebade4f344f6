//! The states of a destination's connection and of its renewal. Every transition is on this page.
//!
//! # The connection
//!
//! Each state has below it the events that end it, and the state that follows.
//!
//! - `Connecting`: there is no connection, at the start and after a loss.
//!   Opened: `Live`.
//! - `Live`: new ticks are written at once, the backlog in rounds. It is renewed every minute.
//!   Silent: `InDoubt`. EndedUnproved: `Unproved`.
//! - `Unproved`: the end of the last old connection proved nothing. Rounds begin with one tick.
//!   Answered: `Live`. Silent: `InDoubt`.
//! - `InDoubt`: for `stall_timeout` a frame was not taken, or an old connection has not answered.
//!   Only new ticks are written.
//!   ReadsAgain: `Live`. EndedUnproved: `Unproved`.
//!
//! Lost leads from every state to `Connecting`: the newest connection has ended, the old one has
//! ended in a way that is neither an answer nor without proof, `pause_timeout` is over, the name
//! has another address, the path of the older of two connections is dead (path.rs), or the next
//! connection cannot be opened and the old one is of no more use.
//!
//! # Its renewal
//!
//! ```text
//! Waits -- renew_at --> Opening -- opened --> Opened -- before a live tick, --> Asked
//!   ^                      |                    |       or after half a period    |
//!   +---- not opened ------+                    |                                 |
//!   +---- it ended already ---------------------+                                 |
//!   +---- the old connection has ended: an answer, or an end without proof -------+
//! ```
//!
//! An old connection that does not answer for `stall_timeout` stays `Asked`, and is late.
//!
//! # What is true in several states
//!
//! - The receiver is *suspect*: what answered last was not Carbon. It gets no backlog (by time: one
//!   tick of it for each new one) until a connection has lasted for `resend_window`, and at least a
//!   minute.
//! - The task *drains*: it writes everything due, renews at once, and ends when all of it was read,
//!   or with the first loss.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use crate::connection::Stream;
use crate::connection_error::{ConnectionError, Result};
use crate::destination::Timeouts;

/// The state of a destination's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Live,
    Unproved,
    InDoubt(Instant),
}

/// An event that changes the state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Opened,
    /// The peer has shown no sign that it reads for `stall_timeout`, until the moment in the field.
    Silent(Instant),
    /// A peer in doubt reads again: a frame was written, or a late answer has come.
    ReadsAgain,
    /// The peer answered: it closed the old connection cleanly, within `stall_timeout` after this
    /// side had half-closed it.
    Answered,
    EndedUnproved,
    Lost,
}

impl State {
    pub(super) const fn after(self, event: Event) -> Self {
        match (self, event) {
            (_, Event::Lost) => Self::Connecting,
            (Self::Connecting, Event::Opened)
            | (Self::Unproved, Event::Answered)
            | (Self::InDoubt(_), Event::ReadsAgain) => Self::Live,
            (Self::Live | Self::Unproved, Event::Silent(since)) => Self::InDoubt(since),
            (Self::Live | Self::InDoubt(_), Event::EndedUnproved) => Self::Unproved,
            (unchanged, _) => unchanged,
        }
    }

    pub(super) const fn doubted_since(self) -> Option<Instant> {
        if let Self::InDoubt(since) = self { Some(since) } else { None }
    }
}

/// A connection that is being written to, or one whose end is awaited.
pub(super) struct Link<C> {
    /// The connection itself, shared with the write of a frame that is under way.
    pub(super) stream: Arc<C>,
    /// The connection's number. Connections are numbered in the order in which they were opened.
    pub(super) number: u64,
    /// Moment at which the connection became the one that is written to, or, if it is an old one,
    /// at which it was half-closed.
    pub(super) since: Instant,
    pub(super) last_write: Option<Instant>,
}

/// The phases of the renewal of the connection.
pub(super) enum Renewal<C> {
    Waits,
    Opening(Pin<Box<dyn Future<Output = Result<C>> + Send>>),
    /// The next connection is open; the moment is that at which it was opened.
    Opened(C, Instant),
    /// The old connection is half-closed, and its end is awaited.
    Asked {
        old: Link<C>,
        is_late: bool,
    },
}

/// An event that wakes the task.
pub(super) enum Woken<C> {
    /// There may be something to write, or a wait is over.
    Look,
    Ended(ConnectionError),
    Opened(Result<C>),
    /// The end of the old connection, or `None` if it did not come in time.
    OldEnded(Option<ConnectionError>),
    Drain,
}

impl<C: Stream> Renewal<C> {
    pub(super) const fn is_asked(&self) -> bool {
        matches!(self, Self::Asked { .. })
    }

    pub(super) const fn is_late(&self) -> bool {
        matches!(self, Self::Asked { is_late: true, .. })
    }

    /// Waits for the next connection, or for the end of the old one. Safe to cancel.
    pub(super) async fn event(&mut self, timeouts: Timeouts) -> Woken<C> {
        let Self::Opening(opening) = self else {
            return Woken::OldEnded(self.old_end(timeouts).await);
        };
        let opened = opening.await;
        *self = Self::Waits;
        Woken::Opened(opened)
    }

    /// Waits for the end of the old connection: until `stall_timeout` after its half-close, or
    /// until `pause_timeout` if it is late. `None`: it did not come in time.
    pub(super) async fn old_end(&mut self, timeouts: Timeouts) -> Option<ConnectionError> {
        let Self::Asked { old, is_late } = self else { return std::future::pending().await };
        let patience = if *is_late { timeouts.pause } else { timeouts.stall };
        tokio::select! {
            biased;
            end = old.stream.wait_for_end() => Some(end),
            () = sleep_until(old.since + patience) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A doubt that ended with each written frame hid a receiver whose connections prove nothing.
    #[tokio::test]
    async fn only_an_answer_ends_unproved_and_only_a_connection_ends_connecting() {
        let (away, live, unproved) = (State::Connecting, State::Live, State::Unproved);
        let doubt = State::InDoubt(Instant::now());
        let silent = Event::Silent(Instant::now());
        let events =
            [silent, Event::ReadsAgain, Event::Answered, Event::EndedUnproved, Event::Opened];
        let after = |state: State| events.map(|event| state.after(event));
        assert_eq!(after(away), [away, away, away, away, live]);
        assert!(matches!(after(live)[0], State::InDoubt(_)));
        assert_eq!(after(live)[1..], [live, live, unproved, live]);
        assert!(matches!(after(unproved)[0], State::InDoubt(_)));
        assert_eq!(after(unproved)[1..], [unproved, live, unproved, unproved]);
        assert_eq!(after(doubt), [doubt, live, doubt, unproved, doubt]);
        for state in [away, live, unproved, doubt] {
            assert_eq!(state.after(Event::Lost), away);
        }
    }
}
