//! A destination's task: it connects, serves the connection, and waits for what happens to it.
//!
//! Only the program at the other end can close the old connection in answer to our half-close, so
//! this is the only proof that it reads. ledger.rs has the rule that follows from this, and
//! state.rs the states. `wait` only names what happened; each event is handled in one place.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::SenderTask;
use super::path::PathWatch;
use super::renewal::Links;
use super::state::{Event, Renewal, State, Woken};
use crate::connection::Stream;
use crate::connection_error::{ConnectionError, Result};
use crate::ledger::Ledger;

/// Time after the last byte within which a close by the peer does not show an idle timer.
const IDLE_LEAST: Duration = Duration::from_millis(500);
/// Number of connections in a row, closed right after a write, after which the protocol may be the
/// wrong one.
const CLOSED_AT_ONCE: u32 = 3;
/// Time that a program that is not Carbon is left alone at least. After that, a connection must
/// last at least as long before it gets the backlog.
const LEFT_ALONE: Duration = Duration::from_secs(60);

impl SenderTask {
    /// Runs the task: connects, and again after each loss, for ever. A drain without a connection
    /// tries once, and only if something is due.
    pub(super) async fn run<C: Stream>(mut self) {
        while !self.drain.is_on || self.outbox.status().due() > 0 {
            // First a connection. It may take `connect_timeout`, and fails while the name has no
            // address or nobody listens. A drain that begins meanwhile starts the one last try.
            let opened = tokio::select! {
                biased;
                opened = C::open(&self.to, &self.reconnects.tried) => opened,
                () = self.drain.requested.notified() => {
                    self.drain.is_on = true;
                    continue;
                }
            };
            self.idle_timer.next_connection(opened.is_ok(), Instant::now());
            // With a connection, everything happens in `serve`. It returns only when the connection
            // is lost, or when a drain has nothing left to do, which is the end of the task. After
            // a loss all batches that are not done are due again.
            let mut is_closed_at_once = false;
            let error = match opened {
                Ok(stream) => {
                    let mut links = self.begin_links(stream);
                    let Err(error) = self.serve(&mut links).await else { return };
                    if !self.drain.is_on {
                        is_closed_at_once = self.lose_connection(&links, &error);
                    }
                    error
                }
                Err(error) => error,
            };
            // There is no connection now. `status` shows why. A drain does not try again.
            self.outbox.note_error(Some(&error));
            if self.drain.is_on {
                let destination = &self.to.name;
                return match self.reconnects.opened {
                    0 => warn!(%destination, %error, "it was never connected; nothing was sent"),
                    _ => warn!(%destination, %error, "it may not have read everything"),
                };
            }
            // Sleep before the next attempt: longer after each failure, and at least a minute if
            // the peer was not Carbon. A drain wakes the task earlier.
            let least = if self.suspect { LEFT_ALONE } else { Duration::ZERO };
            let delay = self.reconnects.backoff.next_delay().max(least);
            self.say_not_connected(&error, is_closed_at_once, delay);
            tokio::select! {
                () = sleep(delay), if !self.drain.is_on => {}
                () = self.drain.requested.notified(),
                    if !self.drain.is_on => self.drain.is_on = true,
                else => {}
            }
        }
    }

    fn begin_links<C: Stream>(&mut self, stream: C) -> Links<C> {
        self.change_state(Event::Opened);
        self.outbox.update_status(|status| status.connects += 1);
        match &mut self.logged.outage {
            None if self.reconnects.opened == 0 => info!(destination = %self.to.name, "connected"),
            None => {}
            Some(outage) => {
                outage.waits = self.outbox.status();
                debug!(destination = %self.to.name, "connected again");
            }
        }
        self.count_collected();
        self.throttle.begin_connection();
        let current = self.reconnects.number_link(stream);
        let opened = current.since;
        Links {
            current,
            first_opened: opened,
            looked_up: opened,
            delivered: None,
            renewal: Renewal::Waits,
            renew_at: opened + self.opens_after(),
            accepts_two: false,
            renewals_fail_since: None,
            path: PathWatch::Quiet,
            probe: None,
            look_at: None,
        }
    }

    /// Changes the connection's state after `event`, and with it the status, the ledger, the
    /// throttle and the log.
    pub(super) fn change_state(&mut self, event: Event) {
        if matches!(event, Event::Silent(_) | Event::EndedUnproved) {
            self.throttle.rounds.note_doubt();
        }
        let before = self.state;
        self.state = before.after(event);
        if self.state == before {
            return;
        }
        let is_connected = self.state != State::Connecting;
        let in_doubt = matches!(self.state, State::InDoubt(_) | State::Unproved);
        self.outbox.update_status(|status| {
            status.connected = is_connected;
            status.in_doubt = in_doubt;
        });
        if let Some(since) = before.doubted_since() {
            if is_connected {
                self.outbox.change_ledger(|ledger| ledger.note_doubt_ended(Instant::now()));
            } else {
                self.begin_outage(since);
            }
        }
        self.say_state(before);
    }

    /// Time that a connection must last until a suspect receiver counts as Carbon again:
    /// `resend_window`, and at least a minute.
    fn lasts_after(&self) -> Duration {
        self.outbox.change_ledger(|ledger| ledger.resend_window).max(LEFT_ALONE)
    }

    fn set_suspect(&mut self, suspect: bool) {
        self.suspect = suspect;
        self.outbox.update_status(|status| status.not_carbon = suspect);
    }

    /// Handles a loss: everything is due again that is not done. Returns whether this was the
    /// connection after which the protocol may be the wrong one, because so many were closed right
    /// after a write.
    fn lose_connection<C>(&mut self, links: &Links<C>, error: &ConnectionError) -> bool {
        let is_closed = matches!(
            error,
            ConnectionError::Closed | ConnectionError::Truncated | ConnectionError::Talked
        );
        if is_closed && links.idle() >= IDLE_LEAST {
            self.idle_timer.closed(links.idle());
        }
        self.reconnects.ends_without_proof = 0;
        self.outbox.note_loss();
        self.change_state(Event::Lost);
        self.outbox.update_status(|status| status.unacked = 0);
        if matches!(error, ConnectionError::NotCarbon) {
            self.set_suspect(true);
        }
        let talks = matches!(error, ConnectionError::NotCarbon | ConnectionError::Talked);
        if links.have_lived() && !talks {
            self.reconnects.backoff.reset();
            self.reconnects.closed_at_once = 0;
        } else if links.delivered.is_some()
            && (is_closed || matches!(error, ConnectionError::Socket(_)))
        {
            self.reconnects.closed_at_once += 1;
            return self.reconnects.closed_at_once == CLOSED_AT_ONCE;
        }
        false
    }

    /// Serves the connection until it is lost, or, when draining, until everything was read. An
    /// error is the loss.
    async fn serve<C: Stream>(&mut self, links: &mut Links<C>) -> Result {
        loop {
            // A peer that was not Carbon is believed again once a connection has lasted.
            if self.suspect && links.first_opened.elapsed() >= self.lasts_after() {
                self.set_suspect(false);
            }
            // Write what is due, as the ledger orders it and the throttle allows it: the newest tick
            // first, then a part of the backlog. `pause` is the moment at which more may be written.
            // Never cancelled half-way, not even to drain: the stream would be out of step.
            let pause = self.write_due(links).await?;
            if self.drain.is_on {
                // Everything was written and read: done. Otherwise open the next connection now, and
                // half-close this one: only its answer shows that the peer has read everything.
                if !links.renewal.is_asked() && self.outbox.status().unread == 0 {
                    return Ok(());
                }
                self.switch(links)?;
                links.renew_at = Instant::now();
            } else if links.have_lived() && !self.suspect {
                self.end_outage();
            }
            // About once a minute open the next connection; half-close the old one when that is up
            // and a live tick comes; and see whether the path still works while something is not
            // acknowledged. Each of these does nothing until it is due.
            let unacked = links.current.stream.unacked()?;
            self.outbox.update_status(|status| status.unacked = unacked);
            self.renew_if_due(links);
            self.switch_if_due(links)?;
            self.look_if_due(links, unacked > 0)?;
            // Now sleep, until there is news in the queue, a moment from above has come, or a
            // connection has changed.
            match self.wait(links, pause).await {
                Woken::Look => {}
                // The current connection has ended without being asked: a loss.
                Woken::Ended(error) => return Err(error),
                // The next connection is open, or the old one has answered its half-close.
                woken @ (Woken::Opened(_) | Woken::OldEnded(_)) => {
                    self.handle_renewal(links, woken)?;
                }
                // The deadline of the drain is the only bound now.
                Woken::Drain => {
                    self.drain.is_on = true;
                    self.disk.load_again = None;
                }
            }
        }
    }

    /// Looks at the network path if it is time. If everything is acknowledged and answered, there
    /// is nothing to look at before the next tick.
    fn look_if_due<C: Stream>(&self, links: &mut Links<C>, is_unacked: bool) -> Result {
        if !is_unacked && !links.renewal.is_asked() {
            links.end_looks();
        } else if self.next_look(links) <= Instant::now() {
            self.look_at_path(links)?;
        }
        Ok(())
    }

    async fn wait<C: Stream>(&self, links: &mut Links<C>, pause: Option<Instant>) -> Woken<C> {
        let renews_at = match &links.renewal {
            Renewal::Waits => Some(links.renew_at),
            Renewal::Opened(_, since) => Some(*since + self.period() / 2),
            Renewal::Opening(_) | Renewal::Asked { .. } => None,
        };
        let look = [links.look_at, pause, renews_at].into_iter().flatten().min();
        tokio::select! {
            biased;
            error = links.current.stream.wait_for_end() => Woken::Ended(error),
            woken = links.renewal.event(self.to.timeouts) => woken,
            () = self.outbox.wait_for_news() => Woken::Look,
            () = sleep_until(look.unwrap_or_else(Instant::now)), if look.is_some() => Woken::Look,
            () = self.drain.requested.notified() => Woken::Drain,
        }
    }

    /// Tells the throttle which ticks were collected since the last call. Returns their number.
    pub(super) fn count_collected(&mut self) -> u64 {
        let collected = self.outbox.change_ledger(Ledger::take_collected);
        if collected.ticks > 0 {
            self.throttle.note_collected(collected, Instant::now());
        }
        collected.ticks
    }
}
