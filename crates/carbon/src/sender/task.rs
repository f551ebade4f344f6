//! A destination's task: it connects, writes what is due, renews its connection, and watches the old one until it ends.
//!
//! The newest tick is sent first, then the backlog; or all by time. Only the program at the other end can close the old connection in
//! answer to our half-close, so this is the only proof that it reads. ledger.rs has the rule that follows from this.
//! `wait` only names what happened; each event is handled in one place.

use std::collections::HashSet;
use std::mem;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::SenderTask;
use super::renewal::{Link, Links, half_closed_event, opened};
use crate::budget::Budget;
use crate::connection::Stream;
use crate::connection_error::{ConnectionError, Result};
use crate::duration::in_words;
use crate::ledger::{Ledger, Ticks};
use crate::queue::{Loaded, Turn, Which};
use carbon_wire::Frame;

/// How long to wait before reading a batch again that the disk did not return. Live ticks continue meanwhile.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// For how long a drain sends what is on disk.
const DRAINS_STORED_FOR: Duration = Duration::from_secs(1);
/// When to look again whether the peer's kernel has acknowledged what was written.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(50);
/// If a peer closes a connection sooner than this after the last byte, idleness is not the reason.
const IDLE_LEAST: Duration = Duration::from_secs(3);
/// After so many connections in a row that were closed right after a write, the protocol may be the wrong one.
const CLOSED_AT_ONCE: u32 = 3;
/// How long a program that is not Carbon is left alone at least, and for how long a connection must last after that
/// before it gets the backlog, at least.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// What woke the task.
enum Woken<C> {
    /// There may be something to write, or a wait is over.
    Look,
    Ended(ConnectionError),
    Opened(Result<C>),
    /// The end of the half-closed connection, or `None` if it did not come in time.
    HalfClosed(Option<ConnectionError>),
    Drain,
}

impl SenderTask {
    /// Connects for ever. When draining without a connection, it tries once, and only if something is due.
    pub(super) async fn run<C: Stream>(mut self) {
        // How long the connection that the peer closed had been idle, if the peer accepts the next one at once.
        let mut closed_idle = None;
        while !self.draining || self.place.status().due() > 0 {
            let opened = tokio::select! {
                biased;
                opened = C::open(&self.to) => opened,
                () = self.drain.notified() => {
                    self.draining = true;
                    continue;
                }
            };
            let idle = closed_idle.take();
            let mut is_closed_at_once = false;
            let error = match opened {
                Ok(stream) => {
                    if let Some(idle) = idle {
                        self.idle_timer.closed_after(idle, Instant::now());
                    }
                    let mut links = self.connected(stream);
                    let Err(error) = self.serve(&mut links).await else { return };
                    if !self.draining {
                        closed_idle = Some(links.idle()).filter(|&idle| {
                            idle >= IDLE_LEAST
                                && matches!(
                                    error,
                                    ConnectionError::Closed
                                        | ConnectionError::Truncated
                                        | ConnectionError::Talked
                                )
                        });
                        is_closed_at_once = self.lost(&links, &error);
                    }
                    error
                }
                Err(error) => error,
            };
            self.place.note_error(Some(&error));
            let (destination, address, waits) = (&self.to.name, &self.to.address, self.place.status());
            let (unsent_ticks, ticks_to_resend) = (waits.unsent.ticks, waits.resends());
            if self.draining {
                return match self.connections {
                    0 => warn!(%destination, %error, "it was never connected; nothing was sent"),
                    _ => warn!(%destination, %error, "it may not have read everything"),
                };
            }
            let least = if self.suspect { LEFT_ALONE } else { Duration::ZERO };
            let delay = self.backoff.next_delay().max(least);
            // Probing the port may take seconds, which a drain does not have.
            let hint = tokio::select! {
                biased;
                hint = C::suspicion(&self.to), if is_closed_at_once => hint,
                () = self.drain.notified(), if is_closed_at_once => {
                    self.draining = true;
                    None
                }
                else => None,
            };
            if let Some(hint) = hint {
                warn!(%destination, %error, unsent_ticks, ticks_to_resend, hint, "closes every connection right after a write");
            } else if self.away_since.is_none() {
                self.lost_before = self.place.status().lost();
                let hint = error.advice();
                self.said = HashSet::from([mem::discriminant(&error)]);
                warn!(%destination, %address, %error, hint, unsent_ticks, ticks_to_resend, "not connected; ticks are kept, trying again");
            } else if self.said.insert(mem::discriminant(&error)) {
                let hint = error.advice();
                warn!(%destination, %address, %error, hint, "still not connected; trying again");
            } else {
                debug!(%destination, %error, "still not connected; trying again in {delay:.1?}");
            }
            self.away_since.get_or_insert(self.doubt_since.take().unwrap_or_else(Instant::now));
            tokio::select! {
                () = sleep(delay), if !self.draining => {}
                () = self.drain.notified(), if !self.draining => self.draining = true,
                else => {}
            }
        }
    }

    fn connected<C: Stream>(&mut self, stream: C) -> Links<C> {
        self.place.count(|status| {
            status.connected = true;
            status.connects += 1;
        });
        if self.connections == 0 && self.away_since.is_none() {
            info!(destination = %self.to.name, "connected");
        } else {
            debug!(destination = %self.to.name, "connected again");
        }
        self.count_collected();
        self.budget = Budget::new(self.to.by_time);
        let current = self.link(stream);
        let looked_up = current.since;
        Links {
            current,
            waited: self.place.status(),
            delivered: None,
            half_closed: None,
            opening: None,
            next: None,
            renew_at: looked_up + self.opens_after(),
            takes_two: false,
            renewals_fail_since: None,
            opened: looked_up,
            looked_up,
        }
    }

    /// For how long a connection must last to clear the peer of not being Carbon.
    fn lasts_after(&self) -> Duration {
        self.place.ledger(|ledger| ledger.resend_window).max(LEFT_ALONE)
    }

    fn suspect(&mut self, suspect: bool) {
        self.suspect = suspect;
        self.place.count(|status| status.not_carbon = suspect);
    }

    pub(super) fn link<C>(&mut self, stream: C) -> Link<C> {
        self.connections += 1;
        Link { stream, number: self.connections, since: Instant::now(), last_write: None, in_doubt: false }
    }

    /// Makes everything due that is not done. Returns whether the protocol has just become doubtful.
    fn lost<C>(&mut self, links: &Links<C>, error: &ConnectionError) -> bool {
        self.without_proof = 0;
        self.place.lost();
        self.place.count(|status| (status.connected, status.in_doubt, status.unacked) = (false, false, 0));
        if let Some(since) = self.doubt_since {
            let after = in_words(since.elapsed());
            warn!(destination = %self.to.name, "closed the connection after {after} without a sign that the receiver reads; what it may \
                                                not have read is sent again");
        }
        if matches!(error, ConnectionError::NotCarbon) {
            self.suspect(true);
        }
        let talks = matches!(error, ConnectionError::NotCarbon | ConnectionError::Talked);
        if links.have_lived() && !talks {
            self.backoff.reset();
            self.closed_at_once = 0;
        } else if links.delivered.is_some()
            && matches!(
                error,
                ConnectionError::Closed
                    | ConnectionError::Truncated
                    | ConnectionError::Talked
                    | ConnectionError::Socket(_)
            )
        {
            self.closed_at_once += 1;
            return self.closed_at_once == CLOSED_AT_ONCE;
        }
        false
    }

    /// Serves the connection until it is lost, or, when draining, until everything was read.
    async fn serve<C: Stream>(&mut self, links: &mut Links<C>) -> Result {
        loop {
            // Never cancelled half-way, not even to drain: the stream would be out of step.
            if self.suspect && links.opened.elapsed() >= self.lasts_after() {
                self.suspect(false);
            }
            let pause = self.write_some(links).await?;
            let status = self.place.status();
            if self.draining {
                if links.half_closed.is_none() && status.unread == 0 {
                    return Ok(());
                }
                self.switch(links)?;
                links.renew_at = Instant::now();
            } else if links.have_lived()
                && !self.suspect
                && let Some(since) = self.away_since.take()
            {
                self.place.note_error(None);
                let after = in_words(since.elapsed());
                let (waited, points_lost) = (
                    links.waited,
                    Some(status.lost().saturating_sub(self.lost_before)).filter(|&lost| lost > 0),
                );
                info!(destination = %self.to.name, unsent_ticks = waited.unsent.ticks, ticks_to_resend = waited.resends(),
                      points = waited.unsent.points.saturating_add(waited.again.points), points_lost,
                      "back after {after}; sending what was kept");
            }
            let unacked = links.current.stream.unacked()?;
            self.place.count(|status| status.unacked = unacked);
            self.renew_if_due(links);
            self.switch_if_due(links)?;
            // If everything is acknowledged and nothing waits, there is nothing to check before the next tick.
            let look = (unacked > 0).then(|| Instant::now() + self.to.timeouts.stall);
            match self.wait(links, look, pause).await {
                Woken::Look => {}
                Woken::Ended(error) => return Err(error),
                Woken::Opened(Err(error)) if self.draining => return Err(error),
                Woken::Opened(opened) => self.opened(links, opened)?,
                Woken::HalfClosed(end) => {
                    self.half_closed(&links.current, &mut links.half_closed, end)?;
                    links.takes_two = self.doubt_since.is_none();
                }
                // The deadline of the drain is the only bound now.
                Woken::Drain => (self.draining, self.load_again) = (true, None),
            }
        }
    }

    /// Says once that the receiver reads less than is collected.
    fn note_lag(&mut self) {
        let waits = self.place.status().unsent.ticks;
        if waits < 2 || self.suspect {
            self.lag = None;
            return;
        }
        let (since, before, said) = self.lag.get_or_insert((Instant::now(), waits, false));
        if since.elapsed() < self.to.timeouts.pause {
            return;
        }
        if waits > *before && !mem::replace(said, true) {
            warn!(destination = %self.to.name, unsent_ticks = waits, "reads less than is collected; ticks that have waited for queue.max_age \
                                                                      will be lost");
        }
        (*since, *before) = (Instant::now(), waits);
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
            () = self.place.news() => Woken::Look,
            () = sleep_until(look.unwrap_or_else(Instant::now)), if look.is_some() => Woken::Look,
            () = self.drain.notified() => Woken::Drain,
        }
    }

    /// Tells the throttles what was collected. Returns how many ticks.
    fn count_collected(&mut self) -> u64 {
        let Ticks { ticks, points } = self.place.ledger(Ledger::take_collected);
        if ticks > 0 {
            self.rate.live(points, Instant::now());
            self.budget.collected(ticks);
        }
        ticks
    }

    /// Writes what is due, as far as the peer and the rate allow. Returns until when to wait for the rate or the disk.
    ///
    /// A drain gives what is on disk a second at the rate, and the next run of the daemon sends the rest. What is only in
    /// memory is lost at the end, so it goes as fast as the peer reads.
    async fn write_some<C: Stream>(&mut self, links: &mut Links<C>) -> Result<Option<Instant>> {
        let mut has_written = false;
        let by_time = self.to.by_time;
        let collected = self.count_collected();
        // What may not be Carbon gets the oldest ones, as slowly as new ones come.
        let mut probes = if by_time { collected.max(links.delivered.is_none().into()) } else { 0 };
        let opens_until = self.started + self.to.timeouts.pause;
        if by_time && Instant::now() < opens_until && self.place.is_unopened() {
            return Ok(Some(opens_until));
        }
        loop {
            let now = Instant::now();
            let hangs_until = self.load_again.filter(|&again| again > now);
            let rests_until = self.rate.wait(now);
            let is_late = self.draining && {
                let end = *self.drains_stored_until.get_or_insert(now + DRAINS_STORED_FOR);
                rests_until.unwrap_or(now) > end
            };
            let which = match (hangs_until, is_late) {
                (Some(_), false) => Which::Loaded,
                (_, true) => Which::Unstored,
                (None, false) => Which::All,
            };
            let Some(turn) = self.place.next(which) else { return Ok(hangs_until) };
            if mem::take(&mut has_written) {
                // Neither the peer nor a rate may make it wait. A live tick alone goes on at once: this costs three system calls.
                yield_now().await;
                continue;
            }
            // What the peer's kernel has not acknowledged may still arrive when the network is back.
            if turn.provisional && links.current.stream.unacked()? > 0 {
                return Ok(Some(now + ACKNOWLEDGED_WITHIN));
            }
            // A relay may read the new connection before what is left on the old one.
            if by_time && links.half_closed.is_some() {
                return Ok(None);
            }
            if !turn.backlog {
                self.idle_timer.stood(links.idle());
                if !by_time {
                    self.switch(links)?;
                }
            } else if self.suspect && probes == 0 {
                return Ok(None);
            } else if self.draining {
                if turn.stored {
                    sleep_until(rests_until.unwrap_or(now)).await;
                    self.rate.spend(turn.points, Instant::now());
                }
            } else {
                if let Some(until) = rests_until.or_else(|| self.recording.wait(&self.place, now)) {
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
                probes = probes.saturating_sub(1);
            }
            has_written = true;
            if self.write_tick(links, &turn).await? && turn.backlog {
                self.recording.begin(&self.place, Instant::now());
            }
            self.note_lag();
        }
    }

    /// Writes a tick. Returns whether the disk has returned it.
    async fn write_tick<C: Stream>(&mut self, links: &mut Links<C>, turn: &Turn) -> Result<bool> {
        let now = Instant::now();
        let patience = self.to.timeouts.pause;
        let refused = self.refused.is_some_and(|(since, _)| now.duration_since(since) >= patience);
        let loaded = self.place.frames(turn, refused).await;
        let destination = &self.to.name;
        let frames = match loaded {
            Loaded::Frames(frames) => frames,
            Loaded::Lost if !refused => return Ok(false),
            not_loaded => {
                // The second time, because a disk may be slow once.
                if let (Loaded::NotNow(error), Some((_, said @ false))) = (not_loaded, &mut self.refused) {
                    *said = true;
                    let limit = in_words(patience);
                    warn!(%destination, %error, "the queue's disk does not return ticks that wait; those that it cannot read \
                                                 for {limit} are lost");
                }
                self.refused.get_or_insert((now, false));
                self.load_again = Some(Instant::now() + LOAD_AGAIN_AFTER);
                return Ok(false);
            }
        };
        if turn.frames.is_none() && self.refused.take().is_some_and(|(_, said)| said) {
            info!(%destination, "the queue's disk returns ticks again");
        }
        for frame in frames.iter().skip(turn.written) {
            self.write_frame(links, frame).await?;
            links.current.last_write = Some(Instant::now());
            let (connection, points) = (links.current.number, frame.points.into());
            self.place.ledger(|ledger| ledger.frame_written(turn.id, connection, points));
        }
        let again = self.place.ledger(|ledger| ledger.written(turn.id, links.current.number));
        links.delivered.get_or_insert_with(Instant::now);
        self.place.count(|status| {
            if let Some(again) = again {
                *(if again { &mut status.resent } else { &mut status.sent }) += turn.points;
            }
            status.last_delivery = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs());
        });
        Ok(true)
    }

    /// Writes a frame, and keeps watching the half-closed connection meanwhile.
    async fn write_frame<C: Stream>(&mut self, links: &mut Links<C>, frame: &Frame) -> Result {
        let bytes = match frame.bytes(self.to.protocol, self.to.names) {
            Ok(bytes) => bytes,
            Err(error) => {
                // If it stayed in the queue, it would be tried for ever.
                error!(destination = %self.to.name, %error, "these points cannot be encoded and are dropped");
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
}
