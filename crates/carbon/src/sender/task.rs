//! A destination's task: it connects, writes what is due, renews its connection, and watches what becomes of the old one.
//!
//! The newest tick goes first, and the backlog behind it. Only the program at the other end can close the old connection in
//! answer to our half-close, so that is the only proof of reading there is; ledger.rs says what follows from it. `wait` only
//! names what happened; what follows from it is done in one place each.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::renewal::{Current, Links, half_closed_event, in_words, opened};
use super::{Destination, Shared};
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::connection::{ConnectionError, Stream};
use crate::queue::{Loaded, Turn};
use crate::rate::Rate;
use crate::wire::Frame;

/// A disk that did not give a batch is asked again after this; live ticks go on in between.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How long a connection must live after a write before the next failure starts with a short delay again. A port
/// that accepts and closes at once takes writes too, and must not be called at full speed.
pub(super) const DELIVERED_AFTER: Duration = Duration::from_secs(1);
/// A peer that closes sooner after the last byte is not one that closes what is idle.
const IDLE_LEAST: Duration = Duration::from_secs(3);
/// Connections in a row that were closed right after a write, before the protocol is doubted.
const CLOSED_AT_ONCE: u32 = 3;

/// What woke the task.
enum Woken<C> {
    /// Something to write, or a moment that was waited for.
    Look,
    Ended(ConnectionError),
    Opened(Result<C, ConnectionError>),
    /// The end of the half-closed connection, or `None` when it was time for it.
    HalfClosed(Option<ConnectionError>),
    Drain,
}

/// The task: one destination and what is known of it.
pub(super) struct Task {
    pub(super) to: Destination,
    pub(super) shared: Arc<Shared>,
    rate: Rate,
    pub(super) budget: Budget,
    pub(super) backoff: Backoff,
    connections: u64,
    away_since: Option<Instant>,
    pub(super) doubt_since: Option<Instant>,
    /// After how long the peer closes what is idle, where it has done so.
    pub(super) closes_idle_after: Option<Duration>,
    closed_at_once: u32,
    /// The last loss was the one that makes the protocol doubtful.
    is_closed_at_once: bool,
    /// When a connection was last given up to make the next one.
    pub(super) gave_way: Option<Instant>,
    /// Until when the disk is not asked for the backlog: each live tick would wait for its answer.
    load_again: Option<Instant>,
}

impl Task {
    pub(super) fn new(to: Destination, shared: Arc<Shared>) -> Self {
        let rate = Rate::new(to.replay_rate);
        Self {
            to,
            shared,
            rate,
            budget: Budget::new(),
            backoff: Backoff::default(),
            connections: 0,
            away_since: None,
            doubt_since: None,
            closes_idle_after: None,
            closed_at_once: 0,
            is_closed_at_once: false,
            gave_way: None,
            load_again: None,
        }
    }

    /// Connects for ever, until the destination is drained.
    pub(super) async fn run<C: Stream>(mut self) {
        // How long the connection was idle that the peer closed, if it takes the next one at once.
        let mut closed_idle = None;
        loop {
            let opened = tokio::select! {
                opened = C::open(&self.to.address, self.to.timeouts) => opened,
                () = self.shared.draining.notified() => return self.last_attempt::<C>().await,
            };
            let error = match opened {
                Ok(stream) => {
                    self.closes_idle_after = closed_idle.take().or(self.closes_idle_after);
                    let mut links = self.connected(stream);
                    match self.serve(&mut links).await {
                        Ok(()) => return self.finish(links).await,
                        Err(error) => {
                            closed_idle = Some(links.idle())
                                .filter(|&idle| idle >= IDLE_LEAST && links.current.stream.is_clean(&error))
                                .filter(|_| links.current.stream.has_ended().is_some());
                            self.lost(&links, &error);
                            error
                        }
                    }
                }
                Err(error) => {
                    closed_idle = None;
                    error
                }
            };
            let delay = self.backoff.next_delay();
            let (destination, due) = (&self.to.name, self.shared.place.share().due);
            if std::mem::take(&mut self.is_closed_at_once)
                && let Some(hint) = self.to.protocol.unusual_port(self.to.address.port())
            {
                warn!(%destination, %error, due, hint, "closes every connection right after a write");
            } else if self.away_since.is_some() {
                debug!(%destination, %error, "still away; trying again in {delay:.1?}");
            } else {
                warn!(%destination, %error, due, "away; ticks are kept, trying again");
            }
            self.away_since.get_or_insert_with(Instant::now);
            tokio::select! {
                () = sleep(delay) => {}
                () = self.shared.draining.notified() => return self.last_attempt::<C>().await,
            }
        }
    }

    fn connected<C: Stream>(&mut self, stream: C) -> Links<C> {
        let mut counters = self.shared.counters();
        counters.connected = true;
        counters.connects = counters.connects.saturating_add(1);
        if counters.connects == 1 && self.away_since.is_none() {
            info!(destination = %self.to.name, "connected");
        } else {
            debug!(destination = %self.to.name, "connected again");
        }
        drop(counters);
        self.budget = Budget::new();
        let current = self.current(stream);
        let renew_at = current.began + self.opens_after();
        let looked_up = current.began;
        Links {
            current,
            delivered: None,
            half_closed: None,
            opening: None,
            next: None,
            renew_at,
            renewals_fail_since: None,
            looked_up,
        }
    }

    pub(super) fn current<C>(&mut self, stream: C) -> Current<C> {
        self.connections = self.connections.saturating_add(1);
        let (number, began) = (self.connections, Instant::now());
        Current { stream, number, began, last_write: None }
    }

    /// Everything that is not done is due again.
    fn lost<C>(&mut self, links: &Links<C>, error: &ConnectionError) {
        self.shared.place.lost();
        if let Some(since) = self.doubt_since.take() {
            let after = in_words(since.elapsed());
            warn!(destination = %self.to.name, "given up after {after} in which nothing showed that it reads; what it may not have read will be sent again");
        }
        let mut counters = self.shared.counters();
        (counters.connected, counters.in_doubt, counters.unacked) = (false, false, 0);
        if links.have_lived() {
            self.backoff.reset();
            self.closed_at_once = 0;
        } else if links.delivered.is_some()
            && matches!(error, ConnectionError::Closed | ConnectionError::Socket(_))
        {
            self.closed_at_once = self.closed_at_once.saturating_add(1);
            self.is_closed_at_once = self.closed_at_once == CLOSED_AT_ONCE;
        }
    }

    /// Until the connection is lost, or `Ok` to drain.
    async fn serve<C: Stream>(&mut self, links: &mut Links<C>) -> Result<(), ConnectionError> {
        loop {
            // Never cancelled half-way, not even to drain: the stream would be out of step.
            let pause = self.write_some(links).await?;
            if links.have_lived()
                && let Some(since) = self.away_since.take()
            {
                let (due, after) = (self.shared.place.share().due, in_words(since.elapsed()));
                info!(destination = %self.to.name, due, "back after {after}; sending what was kept");
            }
            let unacked = links.current.stream.unacked()?;
            self.shared.counters().unacked = unacked;
            self.renew_if_due(links);
            self.switch_if_due(links)?;
            // Where all is acknowledged and nothing waits there is nothing to look at before the next tick.
            let look = (unacked > 0).then(|| Instant::now() + self.to.timeouts.stall);
            match self.wait(links, look, pause).await {
                Woken::Look => {}
                Woken::Ended(error) => return Err(error),
                Woken::Opened(opened) => self.opened(links, opened)?,
                Woken::HalfClosed(end) => {
                    self.half_closed(&links.current, &mut links.half_closed, end)?;
                }
                Woken::Drain => return Ok(()),
            }
        }
    }

    async fn wait<C: Stream>(
        &self,
        links: &mut Links<C>,
        look: Option<Instant>,
        pause: Option<Instant>,
    ) -> Woken<C> {
        let may_renew = self.may_renew(links);
        let Links { current, half_closed, opening, next, renew_at, .. } = links;
        let switch_at = next.as_ref().map(|(_, since)| *since + self.period() / 2);
        let look = [look, pause, may_renew.then_some(*renew_at), switch_at].into_iter().flatten().min();
        tokio::select! {
            biased;
            error = current.stream.ended() => Woken::Ended(error),
            end = half_closed_event(half_closed.as_ref(), self.to.timeouts) => Woken::HalfClosed(end),
            opened = opened(opening) => Woken::Opened(opened),
            () = self.shared.place.news() => Woken::Look,
            () = maybe_sleep_until(look) => Woken::Look,
            () = self.shared.draining.notified() => Woken::Drain,
        }
    }

    /// Writes what is due, as far as the peer and the rate allow; returns when the rate allows more.
    async fn write_some<C: Stream>(
        &mut self,
        links: &mut Links<C>,
    ) -> Result<Option<Instant>, ConnectionError> {
        loop {
            let now = Instant::now();
            let Some(mut turn) = self.shared.place.next() else { return Ok(None) };
            if let Some(until) = self.disk_rests().filter(|_| !turn.is_in_memory()) {
                return Ok(Some(until));
            }
            if turn.backlog {
                if let Some(until) = self.rate.wait(now) {
                    return Ok(Some(until));
                }
                if links.half_closed.is_some() || !self.budget.allows() {
                    if self.budget.is_over() && links.renewals_fail_since.is_none() {
                        links.renew_at = links.renew_at.min(now);
                    }
                    return Ok(None);
                }
                self.rate.spend(turn.points, now);
                self.budget.spend();
            } else {
                self.switch(links)?;
                self.rate.live(turn.points, now);
            }
            if !self.write_tick(links, &mut turn).await? {
                return Ok(self.load_again);
            }
        }
    }

    /// Writes a tick. Returns whether the disk has given it.
    async fn write_tick<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        turn: &mut Turn,
    ) -> Result<bool, ConnectionError> {
        let frames = match self.shared.place.frames(turn).await {
            Loaded::Frames(frames) => frames,
            Loaded::Lost => return Ok(true),
            Loaded::NotNow | Loaded::Refused => {
                self.load_again = Some(Instant::now() + LOAD_AGAIN_AFTER);
                return Ok(false);
            }
        };
        for frame in frames.iter().skip(self.shared.place.frames_written(turn.id)) {
            self.write_frame(links, frame).await?;
            links.current.last_write = Some(Instant::now());
            self.shared.place.frame_written(turn.id, links.current.number, frame.points.into());
        }
        let again = self.shared.place.written(turn.id, links.current.number);
        links.delivered.get_or_insert_with(Instant::now);
        let mut counters = self.shared.counters();
        let counter = if again { &mut counters.resent } else { &mut counters.sent };
        *counter = counter.saturating_add(turn.points);
        counters.last_delivery = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs());
        Ok(true)
    }

    /// Writes a frame, and goes on watching the half-closed connection meanwhile.
    async fn write_frame<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        frame: &Frame,
    ) -> Result<(), ConnectionError> {
        let bytes = match frame.bytes(self.to.protocol) {
            Ok(bytes) => bytes,
            Err(error) => {
                // Left in the queue it would be tried for ever.
                error!(destination = %self.to.name, %error, "a frame is given up");
                return Ok(());
            }
        };
        let Links { current, half_closed, .. } = links;
        let mut doubt_at = Instant::now() + self.to.timeouts.stall;
        let mut writing = std::pin::pin!(current.stream.write(&bytes));
        loop {
            tokio::select! {
                biased;
                written = &mut writing => {
                    written?;
                    if half_closed.as_ref().is_none_or(|half| !half.in_doubt) {
                        self.trust();
                    }
                    return Ok(());
                }
                end = half_closed_event(half_closed.as_ref(), self.to.timeouts) => {
                    let doubted = self.doubt_since;
                    self.half_closed(current, half_closed, end)?;
                    if doubted.is_some() && self.doubt_since.is_none() {
                        doubt_at = Instant::now() + self.to.timeouts.stall;
                    }
                }
                () = sleep_until(doubt_at), if self.doubt_since.is_none() => self.doubt(),
            }
        }
    }

    /// Until when the disk is not asked.
    fn disk_rests(&self) -> Option<Instant> {
        self.load_again.filter(|&again| again > Instant::now())
    }

    /// The end with a connection: what is due goes out, and the peer is asked whether it has read it.
    async fn finish<C: Stream>(&mut self, mut links: Links<C>) {
        // The deadline of the drain is the only bound now.
        (self.rate, self.budget, self.load_again) = (Rate::new(Some(u32::MAX)), Budget::unlimited(), None);
        let proved = async {
            loop {
                self.write_some(&mut links).await?;
                if links.half_closed.is_none() && self.shared.place.share().unread == 0 {
                    return Ok(());
                }
                self.switch(&mut links)?;
                links.renew_at = Instant::now();
                self.renew_if_due(&mut links);
                let happened = match self.wait(&mut links, None, None).await {
                    Woken::Look | Woken::Drain => Ok(()),
                    Woken::Ended(error) | Woken::Opened(Err(error)) => Err(error),
                    Woken::Opened(opened) => self.opened(&mut links, opened),
                    Woken::HalfClosed(end) => self.half_closed(&links.current, &mut links.half_closed, end),
                };
                happened?;
            }
        };
        let proved: Result<(), ConnectionError> = proved.await;
        if let Err(error) = proved {
            warn!(destination = %self.to.name, %error, "nothing proves that it has read everything");
        }
    }

    /// The end without a connection: one attempt, where there is something to send.
    async fn last_attempt<C: Stream>(&mut self) {
        if self.shared.place.share().due == 0 {
            return;
        }
        match C::open(&self.to.address, self.to.timeouts).await {
            Ok(stream) => {
                let links = self.connected(stream);
                self.finish(links).await;
            }
            Err(error) => warn!(destination = %self.to.name, %error, "away at the end"),
        }
    }
}

async fn maybe_sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
