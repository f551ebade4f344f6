//! Log lines of a destination's task about an outage, doubt and lag, each at most once for a
//! change.

use std::collections::HashSet;
use std::mem::{self, Discriminant};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::SenderTask;
use super::state::State;
use crate::connection_error::ConnectionError;
use crate::duration::in_words;
use crate::queue::Status;

/// Says why a port may close every connection right after a write.
const PERHAPS_TLS: &str = "perhaps the port speaks TLS, and this destination has no `tls = true`; \
                           `slurm-graphite check --connect` finds out";

/// The changes that were logged, and whose end must be logged too.
#[derive(Debug, Default)]
pub(super) struct LoggedChanges {
    pub(super) outage: Option<Outage>,
    lag: Option<Lag>,
}

/// An outage of a destination, for the log. It lasts until a connection has carried a tick for a
/// second.
#[derive(Debug)]
pub(super) struct Outage {
    since: Instant,
    /// The kinds of errors that the log has named.
    errors: HashSet<Discriminant<ConnectionError>>,
    /// Points of the destination that were lost before the outage.
    lost_before: u64,
    /// The status of the destination when the last connection was opened: which ticks waited then.
    pub(super) waits: Status,
}

/// A receiver that reads less than is collected: the number of unsent ticks and the moment when
/// they were last compared, and whether the log says that they become more.
#[derive(Debug)]
struct Lag {
    since: Instant,
    waits: u64,
    is_logged: bool,
}

impl SenderTask {
    /// Says that a doubt begins or ends. Other changes of the state are logged elsewhere.
    pub(super) fn say_state(&self, before: State) {
        let destination = &self.to.name;
        let (since, waits) = match (before, self.state) {
            (_, State::InDoubt(_)) => {
                let stall = in_words(self.to.timeouts.stall);
                let ticks = match self.to.by_time {
                    true => "All ticks wait",
                    false => "New ticks are sent, older ones wait",
                };
                warn!(
                    %destination,
                    "no sign for {stall} that it reads: does it hang, or is its cache full? {ticks}"
                );
                return;
            }
            (State::InDoubt(since), State::Connecting) => {
                let after = in_words(since.elapsed());
                warn!(
                    %destination,
                    "closed the connection after {after} without a sign that the receiver reads; \
                     what it may not have read is sent again"
                );
                return;
            }
            (State::InDoubt(since), State::Live) => (since, self.outbox.status()),
            _ => return,
        };
        info!(%destination, unsent_ticks = waits.unsent.ticks, ticks_to_resend = waits.resends(),
              "reads again after {}", in_words(since.elapsed()));
    }

    /// Begins an outage, unless one lasts.
    pub(super) fn begin_outage(&mut self, since: Instant) {
        let waits = self.outbox.status();
        let lost_before = waits.lost();
        let outage = Outage { since, errors: HashSet::new(), lost_before, waits };
        self.logged.outage.get_or_insert(outage);
    }

    /// Says why there is no connection, each kind of error once in an outage.
    pub(super) fn say_not_connected(
        &mut self,
        error: &ConnectionError,
        is_closed_at_once: bool,
        delay: Duration,
    ) {
        self.begin_outage(Instant::now());
        let (destination, address, waits) = (&self.to.name, &self.to.address, self.outbox.status());
        let (unsent_ticks, ticks_to_resend) = (waits.unsent.ticks, waits.resends());
        let Some(outage) = &mut self.logged.outage else { return };
        let is_first = outage.errors.is_empty();
        let is_new = outage.errors.insert(mem::discriminant(error));
        let hint = error.advice(self.to.protocol);
        if is_closed_at_once {
            let is_plain = self.to.tls.is_none();
            let unusual_port = self.to.protocol.unusual_port(address.port);
            warn!(
                %destination, %error, unsent_ticks, ticks_to_resend,
                hint = unusual_port.or(is_plain.then_some(PERHAPS_TLS)),
                "closes every connection right after a write"
            );
        } else if is_first {
            warn!(%destination, %address, %error, hint, unsent_ticks, ticks_to_resend,
                  "not connected; ticks are kept, trying again");
        } else if is_new {
            warn!(%destination, %address, %error, hint, "still not connected; trying again");
        } else {
            debug!(%destination, %error, "still not connected; trying again in {delay:.1?}");
        }
    }

    /// Ends the outage, if there is one, and says so, because the connection has lived.
    pub(super) fn end_outage(&mut self) {
        let Some(Outage { since, lost_before, waits, .. }) = self.logged.outage.take() else {
            return;
        };
        self.outbox.note_error(None);
        let lost = self.outbox.status().lost().saturating_sub(lost_before);
        info!(
            destination = %self.to.name,
            unsent_ticks = waits.unsent.ticks,
            ticks_to_resend = waits.resends(),
            points = waits.unsent.points.saturating_add(waits.again.points),
            points_lost = Some(lost).filter(|&lost| lost > 0),
            "back after {}; sending what was kept",
            in_words(since.elapsed())
        );
    }

    /// Says once that the receiver reads less than is collected: more ticks are unsent than
    /// `pause_timeout` before.
    pub(super) fn say_lag(&mut self) {
        let waits = self.outbox.status().unsent.ticks;
        if waits < 2 || self.suspect {
            self.logged.lag = None;
            return;
        }
        let now = Instant::now();
        let lag = self.logged.lag.get_or_insert(Lag { since: now, waits, is_logged: false });
        if now.duration_since(lag.since) < self.to.timeouts.pause {
            return;
        }
        if waits > lag.waits && !mem::replace(&mut lag.is_logged, true) {
            warn!(
                destination = %self.to.name,
                unsent_ticks = waits,
                "reads less than is collected; ticks that have waited for queue.max_age will be \
                    lost"
            );
        }
        lag.since = now;
        lag.waits = waits;
    }
}
