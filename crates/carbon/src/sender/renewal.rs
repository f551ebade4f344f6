//! The connections to one destination between two losses: when they are renewed, and what the end of an old one proves.
//!
//! At most one connection is half-closed at a time. A missing answer is not a loss: the peer is in doubt until the
//! answer comes.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::SenderTask;
use crate::connection::Stream;
use crate::connection_error::{ConnectionError, Result};
use crate::destination::Timeouts;
use crate::duration::in_words;
use crate::queue::Status;

/// A connection is renewed at this age, or sooner.
const RENEW_EVERY: Duration = Duration::from_secs(60);
/// A proxy that cannot reach its backend closes a connection sooner.
const OUTLIVES_A_PROXY: Duration = Duration::from_secs(30);
const RENEW_LEAST: Duration = Duration::from_secs(1);
/// How long a new connection must live before the old one is half-closed, because a receiver that allows only one
/// connection closes the second at once. One that has answered since the last loss allows two.
const LIVES_AFTER: Duration = Duration::from_millis(100);

/// How long a connection must live after a write before the next failure starts with a short delay again. A port that
/// accepts connections and closes them at once accepts writes too, and must not be called at full speed.
const DELIVERED_AFTER: Duration = Duration::from_secs(1);

/// A connection that is being written to, or one whose end is awaited.
pub(super) struct Link<C> {
    pub(super) stream: C,
    /// Connections are numbered in the order in which they were opened.
    pub(super) number: u64,
    /// When it was opened, or half-closed.
    pub(super) since: Instant,
    pub(super) last_write: Option<Instant>,
    /// Whether it is half-closed and did not answer in time.
    pub(super) in_doubt: bool,
}

pub(super) type Opening<C> = Pin<Box<dyn Future<Output = Result<C>> + Send>>;

/// The connections to one destination, from one loss to the next.
pub(super) struct Links<C> {
    /// When the first of them was opened.
    pub(super) opened: Instant,
    pub(super) current: Link<C>,
    /// What waited to be sent when the first of them was opened.
    pub(super) waited: Status,
    /// When the first tick was completely written.
    pub(super) delivered: Option<Instant>,
    pub(super) half_closed: Option<Link<C>>,
    pub(super) opening: Option<Opening<C>>,
    /// The next connection, and when it was opened.
    pub(super) next: Option<(C, Instant)>,
    pub(super) renew_at: Instant,
    /// Whether the peer has answered on a connection other than the newest.
    pub(super) takes_two: bool,
    pub(super) renewals_fail_since: Option<Instant>,
    /// When the name was last looked up.
    pub(super) looked_up: Instant,
}

impl<C> Links<C> {
    pub(super) fn have_lived(&self) -> bool {
        self.delivered.is_some_and(|written| written.elapsed() >= DELIVERED_AFTER)
    }

    /// For how long nothing has been written to the connection.
    pub(super) fn idle(&self) -> Duration {
        self.current.last_write.unwrap_or(self.current.since).elapsed()
    }
}

impl SenderTask {
    /// The age at which a connection is renewed.
    pub(super) fn period(&self) -> Duration {
        let window = self.place.ledger(|ledger| ledger.resend_window);
        let quarter = Some(window / 4).filter(|quarter| !quarter.is_zero());
        let idle = self.idle_timer.renew_at(Instant::now());
        [quarter, idle].into_iter().flatten().fold(RENEW_EVERY, Duration::min).max(RENEW_LEAST)
    }

    /// When the next connection is opened. The rest of the period is left to wait for the next live tick.
    pub(super) fn opens_after(&self) -> Duration {
        if self.budget.is_patient() { self.period() } else { self.period() / 2 }
    }

    pub(super) const fn may_renew<C>(&self, links: &Links<C>) -> bool {
        links.half_closed.is_none()
            && links.opening.is_none()
            && links.next.is_none()
            && self.doubt_since.is_none()
    }

    /// Opens the next connection when it is time: to the same IP address, unless that fails or `reconnect_every` has
    /// passed. A name that cannot be looked up says nothing about the receiver: then it is the same address all the same.
    pub(super) fn renew_if_due<C: Stream>(&self, links: &mut Links<C>) {
        if !self.may_renew(links) || links.renew_at > Instant::now() {
            return;
        }
        let by_name = links.renewals_fail_since.is_some()
            || self.to.reconnect_every.is_some_and(|every| links.looked_up.elapsed() >= every);
        // When draining, the old connection has nothing more to carry.
        let is_safe = links.takes_two || self.draining;
        let lives_after = if is_safe { Duration::ZERO } else { LIVES_AFTER };
        let same = links.current.stream.open_again();
        let named = by_name.then(|| self.to.clone());
        if by_name {
            links.looked_up = Instant::now();
        }
        links.opening = Some(Box::pin(async move {
            let found = match named {
                Some(to) => Some(C::open(&to).await),
                None => None,
            };
            let opened = match found {
                None | Some(Err(ConnectionError::Lookup(..))) => same.await,
                Some(opened) => opened,
            };
            lives(opened?, lives_after).await
        }));
    }

    /// Handles the result of opening the next connection.
    pub(super) fn opened<C: Stream>(&mut self, links: &mut Links<C>, opened: Result<C>) -> Result {
        match opened {
            Ok(stream) if stream.peer() != links.current.stream.peer() => Err(ConnectionError::Moved),
            Ok(stream) => {
                links.next = Some((stream, Instant::now()));
                Ok(())
            }
            Err(error) => self.not_opened(links, error),
        }
    }

    pub(super) fn not_opened<C: Stream>(&mut self, links: &mut Links<C>, error: ConnectionError) -> Result {
        if matches!(error, ConnectionError::NotCarbon) {
            return Err(error);
        }
        let now = Instant::now();
        let is_tls = matches!(error, ConnectionError::Tls(_) | ConnectionError::NoHandshake(_));
        if (is_tls || error.is_lack()) && links.renewals_fail_since.is_none() {
            // Perhaps a certificate has expired: an administrator must look at it.
            warn!(destination = %self.to.name, %error, "cannot open a new connection; still using the old one");
        } else {
            debug!(destination = %self.to.name, %error, "no second connection");
        }
        let since = *links.renewals_fail_since.get_or_insert(now);
        // A program that accepts a connection and closes it runs.
        let runs = matches!(
            error,
            ConnectionError::Closed | ConnectionError::Truncated | ConnectionError::Socket(_)
        );
        let is_seen = runs && links.opened.elapsed() >= OUTLIVES_A_PROXY;
        self.budget.unasked(is_seen);
        if runs && links.current.stream.unacked()? == 0 {
            self.place.ledger(|ledger| ledger.stands(links.current.number, now));
            self.place.count(|status| status.seen_to_run += u64::from(is_seen));
        }
        links.takes_two = false;
        links.renew_at = now + self.backoff.next_delay().max(RENEW_LEAST);
        if matches!(error, ConnectionError::Tls(_)) || error.is_lack() {
            // One of the two programs or this host refuses it, and would do so without the old connection too.
            return Ok(());
        }
        let window = self.place.ledger(|ledger| ledger.resend_window).max(self.to.timeouts.pause);
        // A host that is gone refuses nothing.
        let is_refused = |source: &io::Error| source.kind() == io::ErrorKind::ConnectionRefused;
        let is_gone = matches!(&error, ConnectionError::Connect(_, source) if !is_refused(source));
        let patience = if is_gone { self.to.timeouts.stall } else { self.to.timeouts.pause };
        if now.duration_since(since) < patience
            || self.gave_way.is_some_and(|last| now.duration_since(last) < window)
        {
            return Ok(());
        }
        self.gave_way = Some(now);
        if is_gone || is_tls {
            return Err(error);
        }
        warn!(destination = %self.to.name, %error, "the receiver accepts no second connection, so it is not known whether it reads; \
                                                    allow two connections from this host (MAX_RECEIVER_CONNECTIONS)");
        // If the program runs, this connection proves as much as the next one would.
        if runs { Ok(()) } else { Err(ConnectionError::Alone(error.to_string())) }
    }

    /// Switches to the next connection when it is time. Right before a live tick is the best moment, because then the
    /// peer has had the longest time to read what came before.
    pub(super) fn switch_if_due<C: Stream>(&mut self, links: &mut Links<C>) -> Result {
        let is_asked = self.budget.is_over() && self.place.status().due() > 0;
        match &links.next {
            Some((_, since)) if is_asked || since.elapsed() >= self.period() / 2 => self.switch(links),
            _ => Ok(()),
        }
    }

    /// Switches to the next connection, between two ticks, and half-closes the previous one.
    pub(super) fn switch<C: Stream>(&mut self, links: &mut Links<C>) -> Result {
        let Some((stream, _)) = links.next.take() else { return Ok(()) };
        if let Some(end) = stream.has_ended() {
            return self.not_opened(links, end);
        }
        links.renewals_fail_since = None;
        let current = self.link(stream);
        links.renew_at = current.since + self.opens_after();
        let half = Link { since: current.since, ..std::mem::replace(&mut links.current, current) };
        half.stream.half_close()?;
        links.half_closed = Some(half);
        Ok(())
    }

    /// Handles the end of the half-closed connection, or its absence.
    pub(super) fn half_closed<C: Stream>(
        &mut self,
        current: &Link<C>,
        half_closed: &mut Option<Link<C>>,
        end: Option<ConnectionError>,
    ) -> Result {
        let Some(mut half) = half_closed.take() else { return Ok(()) };
        match end {
            None if half.in_doubt => Err(ConnectionError::Unread(self.to.timeouts.pause)),
            None => {
                half.in_doubt = true;
                *half_closed = Some(half);
                self.doubt();
                Ok(())
            }
            Some(end @ (ConnectionError::Truncated | ConnectionError::Talked)) if !self.draining => {
                current.stream.has_ended().map_or(Ok(()), Err)?;
                self.ended_without_proof(&half, &end);
                Ok(())
            }
            Some(ConnectionError::Closed) => {
                // A peer that has died closes an old connection as cleanly as one that answers.
                current.stream.has_ended().map_or(Ok(()), Err)?;
                self.answered(&half);
                Ok(())
            }
            Some(end) => Err(end),
        }
    }

    fn answered<C>(&mut self, half: &Link<C>) {
        self.without_proof = 0;
        let after = half.since.elapsed();
        // Also if nobody looked in time: this process may have been stopped.
        if half.in_doubt || after > self.to.timeouts.stall {
            self.place.answered_too_late(half.number);
            return self.trust();
        }
        let now = Instant::now();
        self.place.ledger(|ledger| ledger.answered(half.number, half.last_write, after, now));
        self.budget.answered(after, self.to.timeouts.stall);
        self.place.count(|status| (status.renewals, status.in_doubt) = (status.renewals + 1, false));
    }

    /// An end without TLS's close_notify, or after the peer has sent something, is neither an answer nor a loss. A proxy
    /// that was killed causes one, once.
    fn ended_without_proof<C>(&mut self, half: &Link<C>, end: &ConnectionError) {
        self.without_proof += 1;
        if self.without_proof == 2 && matches!(end, ConnectionError::Talked) {
            warn!(destination = %self.to.name, "the receiver sends data, which Carbon never does, so the end of a connection does not prove \
                                                that it has read it, and ticks are sent again and again; is this the address and the port \
                                                of Carbon?");
        } else if self.without_proof == 2 {
            warn!(destination = %self.to.name, "the receiver closes connections without TLS's close_notify, which does not prove that \
                                                it has read them, so ticks are sent again and again; if there is no proxy in between \
                                                (carbon-c-relay sends no close_notify), set close_notify = false");
        }
        self.budget.doubted();
        self.place.answered_too_late(half.number);
        // The next half-close asks again. Until it is answered, nothing shows that the peer reads.
        self.place.count(|status| status.in_doubt = true);
        if self.doubt_since.take().is_some() {
            self.place.ledger(|ledger| ledger.doubt_ended(Instant::now()));
        }
    }

    /// Puts the peer in doubt: there is no sign that it reads. That is not a loss.
    pub(super) fn doubt(&mut self) {
        self.budget.doubted();
        if self.doubt_since.is_none() {
            self.doubt_since = Some(Instant::now());
            self.place.count(|status| status.in_doubt = true);
            let stall = in_words(self.to.timeouts.stall);
            warn!(destination = %self.to.name, "no sign for {stall} that it reads: does it hang, or is its cache full? New ticks are \
                                                sent, older ones wait");
        }
    }

    /// Ends the doubt: the peer reads again.
    pub(super) fn trust(&mut self) {
        if let Some(since) = self.doubt_since.take() {
            self.place.count(|status| status.in_doubt = false);
            self.place.ledger(|ledger| ledger.doubt_ended(Instant::now()));
            let (waits, after) = (self.place.status(), in_words(since.elapsed()));
            info!(destination = %self.to.name, unsent_ticks = waits.unsent.ticks, ticks_to_resend = waits.resends(), "reads again after {after}");
        }
    }
}

/// The new connection, if it is still alive after this time.
async fn lives<C: Stream>(stream: C, after: Duration) -> Result<C> {
    match timeout(after, stream.ended()).await {
        Ok(end) => Err(end),
        Err(_) => Ok(stream),
    }
}

pub(super) async fn opened<C>(opening: &mut Option<Opening<C>>) -> Result<C> {
    let Some(future) = opening else { return std::future::pending().await };
    let opened = future.await;
    *opening = None;
    opened
}

pub(super) async fn half_closed_event<C: Stream>(
    half_closed: Option<&Link<C>>,
    timeouts: Timeouts,
) -> Option<ConnectionError> {
    let Some(half) = half_closed else { return std::future::pending().await };
    let patience = if half.in_doubt { timeouts.pause } else { timeouts.stall };
    tokio::select! {
        biased;
        end = half.stream.ended() => Some(end),
        () = sleep_until(half.since + patience) => None,
    }
}
