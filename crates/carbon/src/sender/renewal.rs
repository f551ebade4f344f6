//! The connections to one destination between two losses: when they are renewed, and what the end
//! of an old one proves.
//!
//! At most one connection is half-closed at a time. If its answer is late, that is not a loss: the
//! peer is in doubt until the answer comes. Only after `pause_timeout` it is a loss.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::SenderTask;
use super::path::PathWatch;
use super::state::{Event, Link, Renewal, Woken};
use crate::acks::Acks;
use crate::connection::Stream;
use crate::connection_error::{ConnectionError, Result};

/// Period of the renewals of a connection, unless `resend_window` or an idle timer of the peer
/// makes it shorter.
const RENEW_EVERY: Duration = Duration::from_secs(60);
/// Time without a loss after which a receiver that accepts no second connection is seen to run. A
/// proxy that cannot reach its backend closes a connection sooner.
const OUTLIVES_A_PROXY: Duration = Duration::from_secs(30);
const RENEW_LEAST: Duration = Duration::from_secs(1);
/// Time that a new connection must live before the old one is half-closed, because a receiver that
/// allows only one connection closes the second at once. One that has answered since the last loss
/// allows two.
const LIVES_AFTER: Duration = Duration::from_millis(100);

/// Time that a connection must live after its first tick, so that the wait after its loss is short
/// again. A port that accepts connections and closes them at once accepts writes too, and must not
/// be called at full speed.
const DELIVERED_AFTER: Duration = Duration::from_secs(1);

/// The connections to one destination, from one loss to the next.
pub(super) struct Links<C> {
    pub(super) current: Link<C>,
    pub(super) first_opened: Instant,
    /// Moment at which the receiver's name was last looked up.
    pub(super) looked_up: Instant,
    /// Moment at which the first tick since the loss was completely written; `None`: none was.
    pub(super) delivered: Option<Instant>,
    pub(super) renewal: Renewal<C>,
    pub(super) renew_at: Instant,
    /// Whether the peer accepts two connections at once, as the end of an old one has shown.
    pub(super) accepts_two: bool,
    pub(super) renewals_fail_since: Option<Instant>,
    pub(super) path: PathWatch,
    /// Moment of the next look at the network path; `None`: everything is acknowledged and
    /// answered.
    pub(super) look_at: Option<Instant>,
    /// A third connection that is being opened, to see whether the path is dead for both others.
    pub(super) probe: Option<oneshot::Receiver<Result<C>>>,
}

impl<C> Links<C> {
    pub(super) fn have_lived(&self) -> bool {
        self.delivered.is_some_and(|written| written.elapsed() >= DELIVERED_AFTER)
    }

    /// Time for which nothing has been written to the current connection.
    pub(super) fn idle(&self) -> Duration {
        self.current.last_write.unwrap_or(self.current.since).elapsed()
    }
}

impl<C: Stream> Links<C> {
    /// Nothing is left to look at on the network path.
    pub(super) fn end_looks(&mut self) {
        (self.path, self.look_at, self.probe) = (PathWatch::Quiet, None, None);
    }

    /// The older of two connections, and the newer one, if there are two.
    fn older_and_newer(&self) -> (&C, Option<&C>) {
        let current = &*self.current.stream;
        match &self.renewal {
            Renewal::Asked { old, .. } => (&*old.stream, Some(current)),
            Renewal::Opened(next, _) => (current, Some(next)),
            Renewal::Waits | Renewal::Opening(_) => (current, None),
        }
    }

    /// Opens a third connection. Returns the acknowledgements on it when it is open; nothing is
    /// written to it.
    fn look_at_probe(&mut self) -> Option<Acks> {
        let current = &self.current.stream;
        let probe = self.probe.get_or_insert_with(|| {
            let (opened, probe) = oneshot::channel();
            let opening = current.open_again();
            tokio::spawn(async move { drop(opened.send(opening.await)) });
            probe
        });
        let found = probe.try_recv();
        if matches!(found, Err(TryRecvError::Empty)) {
            return None;
        }
        self.probe = None;
        found.ok()?.and_then(|stream| stream.acks()).ok()
    }
}

impl SenderTask {
    /// The age at which a connection is renewed: a quarter of `resend_window`, from 1 to 60 s (60 s
    /// if it is zero), or less because of an idle timer of the peer.
    pub(super) fn period(&self) -> Duration {
        let window = self.outbox.change_ledger(|ledger| ledger.resend_window);
        let quarter = Some(window / 4).filter(|quarter| !quarter.is_zero());
        let usual = quarter.map_or(RENEW_EVERY, |quarter| quarter.clamp(RENEW_LEAST, RENEW_EVERY));
        self.idle_timer.renew_at(Instant::now()).map_or(usual, |idle| idle.min(usual))
    }

    /// Age of the connection at which the next one is opened: half a period, or all of it if the
    /// peer has failed to answer in time. The rest is left to wait for the next live tick.
    pub(super) fn opens_after(&self) -> Duration {
        if self.throttle.rounds.is_patient() { self.period() } else { self.period() / 2 }
    }

    /// Begins to open the next connection when it is time: to the same IP address, unless that
    /// fails or `reconnect_every` has passed. Then the name is looked up again. If that fails,
    /// which says nothing about the receiver, it is the same address all the same.
    pub(super) fn renew_if_due<C: Stream>(&self, links: &mut Links<C>) {
        if !matches!(links.renewal, Renewal::Waits) || links.renew_at > Instant::now() {
            return;
        }
        let by_name = links.renewals_fail_since.is_some()
            || self.to.reconnect_every.is_some_and(|every| links.looked_up.elapsed() >= every);
        // When draining, the old connection has nothing more to carry.
        let is_safe = links.accepts_two || self.drain.is_on;
        let lives_after = if is_safe { Duration::ZERO } else { LIVES_AFTER };
        let same = links.current.stream.open_again();
        let named = by_name.then(|| (self.to.clone(), self.reconnects.tried.clone()));
        if by_name {
            links.looked_up = Instant::now();
        }
        links.renewal = Renewal::Opening(Box::pin(async move {
            let found = match named {
                Some((to, tried)) => Some(C::open(&to, &tried).await),
                None => None,
            };
            let opened = match found {
                None | Some(Err(ConnectionError::Lookup(..))) => same.await,
                Some(opened) => opened,
            };
            lives(opened?, lives_after).await
        }));
    }

    /// Moment of the next look at the network path, which is set if there is none yet.
    pub(super) fn next_look<C>(&self, links: &mut Links<C>) -> Instant {
        let first = || Instant::now() + links.path.next_look(self.to.timeouts.stall);
        *links.look_at.get_or_insert_with(first)
    }

    /// Looks whether the network path of the older of two connections is dead; if it is, that is
    /// the error. If a single connection is silent, a newer one is opened: it shows whether the
    /// whole path is away. If the newer of two is silent too, a third one does.
    pub(super) fn look_at_path<C: Stream>(&self, links: &mut Links<C>) -> Result {
        let (now, stall) = (Instant::now(), self.to.timeouts.stall);
        let (older, newer) = links.older_and_newer();
        let (acks, mut newer) = (older.acks()?, newer.map(Stream::acks).transpose()?);
        if let PathWatch::Silent(since) = links.path
            && newer.is_some_and(|newer| newer.silent >= now.duration_since(since))
        {
            newer = links.look_at_probe();
        }
        links.path = links.path.after_look(acks, newer, stall, now);
        if links.path == PathWatch::Dead {
            links.older_and_newer().0.reset_at_end();
            return Err(ConnectionError::DeadPath(acks.silent));
        }
        if !matches!(links.path, PathWatch::Silent(_)) {
            links.probe = None;
        }
        links.look_at = Some(now + links.path.next_look(stall));
        if links.path != PathWatch::Quiet {
            if links.renewals_fail_since.is_none() {
                links.renew_at = links.renew_at.min(now);
            }
            self.renew_if_due(links);
        }
        Ok(())
    }

    /// Handles what became of the next connection, or of the old one.
    pub(super) fn handle_renewal<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        woken: Woken<C>,
    ) -> Result {
        match woken {
            Woken::Opened(Err(error)) if self.drain.is_on => Err(error),
            Woken::Opened(opened) => self.handle_opened(links, opened),
            Woken::OldEnded(end) => {
                self.handle_old_end(&links.current, &mut links.renewal, end)?;
                links.accepts_two = self.state.doubted_since().is_none();
                if !links.renewal.is_asked() {
                    links.end_looks();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes the renewal due at once, which requests the next answer, if the round is used up and
    /// the peer is quick.
    pub(super) fn request_answer<C>(&self, links: &mut Links<C>) {
        if self.throttle.rounds.is_answer_due() && links.renewals_fail_since.is_none() {
            links.renew_at = links.renew_at.min(Instant::now());
        }
    }

    /// Takes the next connection, or notes why there is none.
    fn handle_opened<C: Stream>(&mut self, links: &mut Links<C>, opened: Result<C>) -> Result {
        match opened {
            Ok(stream) if stream.peer() != links.current.stream.peer() => {
                Err(ConnectionError::Moved)
            }
            Ok(stream) => {
                links.renewal = Renewal::Opened(stream, Instant::now());
                Ok(())
            }
            Err(error) => self.handle_not_opened(links, error),
        }
    }

    fn handle_not_opened<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        error: ConnectionError,
    ) -> Result {
        if matches!(error, ConnectionError::NotCarbon) {
            return Err(error);
        }
        let now = Instant::now();
        let is_tls = matches!(error, ConnectionError::Tls(_) | ConnectionError::NoHandshake(_));
        if (is_tls || error.is_lack()) && links.renewals_fail_since.is_none() {
            // Perhaps a certificate has expired: an administrator must look at it.
            warn!(
                destination = %self.to.name,
                %error,
                "cannot open a new connection; still using the old one"
            );
        } else {
            debug!(destination = %self.to.name, %error, "no second connection");
        }
        links.accepts_two = false;
        let since = *links.renewals_fail_since.get_or_insert(now);
        let runs = self.note_whether_it_runs(links, &error, now)?;
        links.renew_at = now + self.reconnects.backoff.next_delay().max(RENEW_LEAST);
        if matches!(error, ConnectionError::Tls(_)) || error.is_lack() {
            // One of the two programs or this host refuses it, and would do so without the old
            // connection too.
            return Ok(());
        }
        let window =
            self.outbox.change_ledger(|ledger| ledger.resend_window).max(self.to.timeouts.pause);
        // A host that is gone refuses nothing.
        let is_refused = |source: &io::Error| source.kind() == io::ErrorKind::ConnectionRefused;
        let is_gone = matches!(&error, ConnectionError::Connect(_, source) if !is_refused(source));
        let patience = if is_gone { self.to.timeouts.stall } else { self.to.timeouts.pause };
        if now.duration_since(since) < patience
            || self.reconnects.gave_way.is_some_and(|last| now.duration_since(last) < window)
        {
            return Ok(());
        }
        self.reconnects.gave_way = Some(now);
        if is_gone || is_tls {
            return Err(error);
        }
        warn!(
            destination = %self.to.name,
            %error,
            "the receiver accepts no second connection, so it is not known whether it reads; allow \
             two connections from this host (MAX_RECEIVER_CONNECTIONS)"
        );
        // If the program runs, this connection proves as much as the next one would.
        if runs { Ok(()) } else { Err(ConnectionError::Alone(error.to_string())) }
    }

    /// Notes whether the receiver's program runs, as `error` shows, with which no second connection
    /// was made. There is no other evidence then. Returns whether the program runs.
    fn note_whether_it_runs<C: Stream>(
        &mut self,
        links: &Links<C>,
        error: &ConnectionError,
        now: Instant,
    ) -> Result<bool> {
        // A program that accepts a connection and closes it runs.
        let runs = matches!(
            error,
            ConnectionError::Closed | ConnectionError::Truncated | ConnectionError::Socket(_)
        );
        let is_seen = runs && links.first_opened.elapsed() >= OUTLIVES_A_PROXY;
        self.throttle.rounds.note_no_answer_possible(is_seen);
        if runs && links.current.stream.unacked()? == 0 {
            self.outbox.change_ledger(|ledger| ledger.note_standing(links.current.number, now));
            self.outbox.update_status(|status| status.seen_to_run += u64::from(is_seen));
        }
        Ok(runs)
    }

    /// Switches to the next connection if an answer is due now, or half a period has passed
    /// without a live tick. Right before a live tick is the best moment, because then the peer has
    /// had the longest time to read what came before; writing.rs switches there.
    pub(super) fn switch_if_due<C: Stream>(&mut self, links: &mut Links<C>) -> Result {
        let is_asked = self.throttle.rounds.is_answer_due() && self.outbox.status().due() > 0;
        match &links.renewal {
            Renewal::Opened(_, since) if is_asked || since.elapsed() >= self.period() / 2 => {
                self.switch(links)
            }
            _ => Ok(()),
        }
    }

    /// Switches to the next connection, if one is open, between two ticks, and half-closes the old
    /// one.
    pub(super) fn switch<C: Stream>(&mut self, links: &mut Links<C>) -> Result {
        if !matches!(links.renewal, Renewal::Opened(..)) {
            return Ok(());
        }
        let Renewal::Opened(stream, _) = std::mem::replace(&mut links.renewal, Renewal::Waits)
        else {
            return Ok(());
        };
        if let Some(end) = stream.has_ended() {
            return self.handle_not_opened(links, end);
        }
        links.renewals_fail_since = None;
        let current = self.reconnects.number_link(stream);
        links.renew_at = current.since + self.opens_after();
        let old = Link { since: current.since, ..std::mem::replace(&mut links.current, current) };
        old.stream.half_close()?;
        links.renewal = Renewal::Asked { old, is_late: false };
        Ok(())
    }

    /// Handles the end of the old connection; `None`: it did not come in time.
    fn handle_old_end<C: Stream>(
        &mut self,
        current: &Link<C>,
        renewal: &mut Renewal<C>,
        end: Option<ConnectionError>,
    ) -> Result {
        let Renewal::Asked { old, is_late } = std::mem::replace(renewal, Renewal::Waits) else {
            return Ok(());
        };
        match end {
            None if is_late => return Err(ConnectionError::Unread(self.to.timeouts.pause)),
            None => {
                *renewal = Renewal::Asked { old, is_late: true };
                self.change_state(Event::Silent(Instant::now()));
                return Ok(());
            }
            Some(end @ (ConnectionError::Truncated | ConnectionError::Talked))
                if !self.drain.is_on =>
            {
                current.stream.has_ended().map_or(Ok(()), Err)?;
                self.note_end_without_proof(&old, &end);
            }
            Some(ConnectionError::Closed) => {
                // A peer that has died closes an old connection as cleanly as one that answers.
                current.stream.has_ended().map_or(Ok(()), Err)?;
                self.note_answer(&old, is_late);
            }
            Some(end) => return Err(end),
        }
        Ok(())
    }

    fn note_answer<C>(&mut self, old: &Link<C>, is_late: bool) {
        self.reconnects.ends_without_proof = 0;
        let after = old.since.elapsed();
        // Also if nobody looked in time: this process may have been stopped.
        if is_late || after > self.to.timeouts.stall {
            self.outbox.note_unproved_end(old.number);
            return self.change_state(Event::ReadsAgain);
        }
        let now = Instant::now();
        self.outbox
            .change_ledger(|ledger| ledger.note_answer(old.number, old.last_write, after, now));
        self.throttle.rounds.note_answer(after, self.to.timeouts.stall);
        self.outbox.update_status(|status| status.renewals += 1);
        self.change_state(Event::Answered);
    }

    /// Notes that the old connection ended without TLS's close_notify, or after the peer had sent
    /// something. That is neither an answer nor a loss. A proxy that was killed causes one such
    /// end. The next half-close asks again.
    fn note_end_without_proof<C>(&mut self, old: &Link<C>, end: &ConnectionError) {
        self.reconnects.ends_without_proof += 1;
        if self.reconnects.ends_without_proof == 2 && matches!(end, ConnectionError::Talked) {
            warn!(
                destination = %self.to.name,
                "the receiver sends data, which Carbon never does, so the end of a connection does \
                 not prove that it has read it, and ticks are sent again and again; is this the \
                 address and the port of Carbon?"
            );
        } else if self.reconnects.ends_without_proof == 2 {
            warn!(
                destination = %self.to.name,
                "the receiver closes connections without TLS's close_notify, which does not prove \
                 that it has read them, so ticks are sent again and again; if there is no proxy in \
                 between (carbon-c-relay sends no close_notify), set close_notify = false"
            );
        }
        self.outbox.note_unproved_end(old.number);
        self.change_state(Event::EndedUnproved);
    }
}

/// Returns the new connection if it still lives after the time `after`; otherwise its end is the
/// error.
async fn lives<C: Stream>(stream: C, after: Duration) -> Result<C> {
    match timeout(after, stream.wait_for_end()).await {
        Ok(end) => Err(end),
        Err(_) => Ok(stream),
    }
}
