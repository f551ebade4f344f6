//! The waits of a destination for the queue's disk: before its first tick, for a batch that must be
//! read, and for a record that must be written.
//!
//! With `order = "by_time"` nothing is sent before the ticks of an earlier run. So the first tick
//! waits until the queue's file is open, or for `pause_timeout`. A disk that returns no ticks is
//! asked again every ten seconds; live ticks are sent meanwhile.
//!
//! With a window of zero nothing may be sent twice. So a tick of the backlog waits until the disk
//! has recorded that the tick before it is done. It waits for a second at most, and not at all
//! while the disk fails: Carbon comes first.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::duration::in_words;
use crate::queue::{COMMIT_PATIENCE, Loaded, Outbox};

/// Time to wait before reading a batch again that the disk did not return.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct DiskWaits {
    /// Moment until which a destination that sends by time waits for the queue's file to be opened.
    opens_until: Instant,
    /// Moment until which the backlog is not read from disk: otherwise each live tick would wait
    /// for a disk that does not answer.
    pub(super) load_again: Option<Instant>,
    /// Moment since which the disk has returned nothing, and whether the log says so; `None`: it
    /// returns what is asked for.
    refused: Option<(Instant, bool)>,
    /// With a window of zero: the ticket of the record that the last tick of the backlog is done,
    /// and the moment until which the next tick waits for it.
    unrecorded: Option<(u64, Instant)>,
    /// Whether the log says that the disk does not record what is sent.
    is_slow_said: bool,
}

impl DiskWaits {
    pub(super) fn new(pause: Duration) -> Self {
        let opens_until = Instant::now() + pause;
        Self { opens_until, load_again: None, refused: None, unrecorded: None, is_slow_said: false }
    }

    /// Moment until which ticks of this run wait for those of an earlier one, at a destination that
    /// sends by time. `None`: the queue's file is open, or the wait is over.
    pub(super) fn unopened_until(&self, outbox: &Outbox) -> Option<Instant> {
        (Instant::now() < self.opens_until && outbox.is_unopened()).then_some(self.opens_until)
    }

    /// Moment until which nothing is read from disk; `None`: it may be read now.
    pub(super) fn hangs_until(&self, now: Instant) -> Option<Instant> {
        self.load_again.filter(|&again| again > now)
    }

    /// Whether the disk has returned nothing for so long that a tick it does not return is given
    /// up.
    pub(super) fn is_given_up(&self, pause: Duration) -> bool {
        self.refused.is_some_and(|(since, _)| since.elapsed() >= pause)
    }

    /// Notes that the disk did not return a tick at `now`. The log says so the second time.
    pub(super) fn note_refused(
        &mut self,
        outbox: &Outbox,
        loaded: Loaded,
        now: Instant,
        pause: Duration,
    ) {
        // The second time, because a disk may be slow once.
        if let (Loaded::NotNow(error), Some((_, said @ false))) = (loaded, &mut self.refused) {
            *said = true;
            let limit = in_words(pause);
            warn!(
                destination = outbox.name(),
                %error,
                "the queue's disk does not return ticks that wait; those that it cannot read for \
                 {limit} are lost"
            );
        }
        self.refused.get_or_insert((now, false));
        self.load_again = Some(Instant::now() + LOAD_AGAIN_AFTER);
    }

    /// Notes that the disk has returned a tick.
    pub(super) fn note_returned(&mut self, outbox: &Outbox) {
        if self.refused.take().is_some_and(|(_, said)| said) {
            info!(destination = outbox.name(), "the queue's disk returns ticks again");
        }
    }

    /// Notes that a tick of the backlog was written at `now`. With a window of zero, the disk must
    /// record that before the next one is written.
    pub(super) fn begin_recording(&mut self, outbox: &Outbox, now: Instant) {
        let until = self.unrecorded.map_or(now + COMMIT_PATIENCE, |(_, until)| until);
        self.unrecorded = outbox.record_done().map(|ticket| (ticket, until));
    }

    /// Moment until which the next tick of the backlog waits for the record of the one before;
    /// `None`: it need not wait.
    pub(super) fn records_until(&mut self, outbox: &Outbox, now: Instant) -> Option<Instant> {
        let (ticket, until) = self.unrecorded?;
        if outbox.is_recorded(ticket) {
            self.unrecorded = None;
            self.is_slow_said = false;
            return None;
        }
        if now < until && outbox.is_durable() {
            return Some(until);
        }
        if !mem::replace(&mut self.is_slow_said, true) {
            warn!(
                destination = outbox.name(),
                "the queue's disk does not record what is sent; until it does, a SIGKILL of this \
                 daemon may send more than one tick twice"
            );
        }
        None
    }
}
