//! A destination's task: it connects, writes what is due, renews its connection, and watches what becomes of the old one.
//!
//! The newest tick goes first, and the backlog behind it. Only the program at the other end can close the old connection in
//! answer to our half-close, so that is the only proof of reading there is; ledger.rs says what follows from it. `wait` only
//! names what happened; what follows from it is done in one place each.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, error, info, warn};

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
const DELIVERED_AFTER: Duration = Duration::from_secs(1);
/// A connection is renewed at this age, or sooner.
const RENEW_EVERY: Duration = Duration::from_secs(60);
const RENEW_LEAST: Duration = Duration::from_secs(1);
/// How long a new connection must live before the old one is half-closed: a receiver that allows one closes the next at once.
const LIVES_AFTER: Duration = Duration::from_millis(100);
/// Connections in a row that were closed right after a write, before the protocol is doubted.
const CLOSED_AT_ONCE: u32 = 3;

/// Why a connection was left.
enum Left {
    Lost(ConnectionError),
    Draining,
}

/// What woke the task.
enum Woken<C> {
    /// Something to write, or a moment that was waited for.
    Look,
    Ended(ConnectionError),
    Opened(Result<C, ConnectionError>),
    HalfClosed(HalfClosedEvent),
    Drain,
}

/// What became of the half-closed connection.
enum HalfClosedEvent {
    Ended(ConnectionError),
    /// It was time for an answer, or for giving up.
    TimeOut,
}

/// The connection that is written to.
struct Current<C> {
    stream: C,
    /// In the order in which connections were opened.
    number: u64,
    began: Instant,
    last_write: Option<Instant>,
}

/// The connection before, whose end is waited for.
struct HalfClosed<C> {
    stream: C,
    number: u64,
    since: Instant,
    last_write: Option<Instant>,
    in_doubt: bool,
}

type Opening<C> = Pin<Box<dyn Future<Output = Result<C, ConnectionError>> + Send>>;

/// The connections to one destination, from one loss to the next.
struct Links<C> {
    current: Current<C>,
    /// When the first tick had been written.
    delivered: Option<Instant>,
    half_closed: Option<HalfClosed<C>>,
    opening: Option<Opening<C>>,
    /// The next connection, since this moment.
    next: Option<(C, Instant)>,
    renew_at: Instant,
    renewals_fail_since: Option<Instant>,
    /// When the name was last looked up.
    looked_up: Instant,
}

impl<C> Links<C> {
    fn have_lived(&self) -> bool {
        self.delivered.is_some_and(|written| written.elapsed() >= DELIVERED_AFTER)
    }

    /// How long nothing has been written on the connection.
    fn idle(&self) -> Duration {
        self.current.last_write.unwrap_or(self.current.began).elapsed()
    }
}

/// The task: one destination and what is known of it.
pub(super) struct Task {
    to: Destination,
    shared: Arc<Shared>,
    rate: Rate,
    budget: Budget,
    backoff: Backoff,
    connections: u64,
    away_since: Option<Instant>,
    doubt_since: Option<Instant>,
    /// After how long the peer closes what is idle, where it has done so.
    closes_idle_after: Option<Duration>,
    closed_at_once: u32,
    /// When a connection was last given up to make the next one.
    gave_way: Option<Instant>,
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
                        Left::Draining => return self.finish(links).await,
                        Left::Lost(error) => {
                            closed_idle = Some(links.idle())
                                .filter(|&idle| idle >= RENEW_LEAST && links.current.stream.is_clean(&error));
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
            if self.closed_at_once == CLOSED_AT_ONCE
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
        if counters.connects == 1 {
            info!(destination = %self.to.name, "connected");
        } else {
            debug!(destination = %self.to.name, "connected again");
        }
        drop(counters);
        self.budget = Budget::new();
        let current = self.current(stream);
        let renew_at = current.began + self.period();
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

    fn current<C>(&mut self, stream: C) -> Current<C> {
        self.connections = self.connections.saturating_add(1);
        let (number, began) = (self.connections, Instant::now());
        Current { stream, number, began, last_write: None }
    }

    /// Everything that is not done is due again.
    fn lost<C>(&mut self, links: &Links<C>, error: &ConnectionError) {
        self.shared.place.lost();
        self.doubt_since = None;
        let mut counters = self.shared.counters();
        (counters.connected, counters.in_doubt, counters.unacked) = (false, false, 0);
        if links.have_lived() {
            self.backoff.reset();
            self.closed_at_once = 0;
        } else if links.delivered.is_some()
            && matches!(error, ConnectionError::Closed | ConnectionError::Socket(_))
        {
            self.closed_at_once = self.closed_at_once.saturating_add(1);
        }
    }

    /// How old a connection becomes.
    fn period(&self) -> Duration {
        let window = self.shared.place.resend_window();
        let quarter = Some(window / 4).filter(|quarter| !quarter.is_zero());
        let idle = self.closes_idle_after.map(|after| after / 2);
        [quarter, idle].into_iter().flatten().fold(RENEW_EVERY, Duration::min).max(RENEW_LEAST)
    }

    async fn serve<C: Stream>(&mut self, links: &mut Links<C>) -> Left {
        loop {
            // Never cancelled half-way, not even to drain: the stream would be out of step.
            let pause = match self.write_some(links).await {
                Ok(pause) => pause,
                Err(error) => return Left::Lost(error),
            };
            if links.have_lived()
                && let Some(since) = self.away_since.take()
            {
                let (due, after) = (self.shared.place.share().due, in_words(since.elapsed()));
                info!(destination = %self.to.name, due, "back after {after}; sending what was kept");
            }
            let unacked = match links.current.stream.unacked() {
                Ok(unacked) => unacked,
                Err(error) => return Left::Lost(error),
            };
            self.shared.counters().unacked = unacked;
            self.renew_if_due(links);
            if let Err(error) = self.switch_if_due(links) {
                return Left::Lost(error);
            }
            // Where all is acknowledged and nothing waits there is nothing to look at before the next tick.
            let look = (unacked > 0).then(|| Instant::now() + self.to.timeouts.stall);
            let happened = match self.wait(links, look, pause).await {
                Woken::Look => Ok(()),
                Woken::Ended(error) => Err(error),
                Woken::Opened(opened) => self.opened(links, opened),
                Woken::HalfClosed(event) => self.half_closed(links, event),
                Woken::Drain => return Left::Draining,
            };
            if let Err(error) = happened {
                return Left::Lost(error);
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
            event = half_closed_event(half_closed.as_ref(), self.to.timeouts) => Woken::HalfClosed(event),
            opened = opened(opening) => Woken::Opened(opened),
            () = self.shared.place.news() => Woken::Look,
            () = maybe_sleep_until(look) => Woken::Look,
            () = self.shared.draining.notified() => Woken::Drain,
        }
    }

    const fn may_renew<C>(&self, links: &Links<C>) -> bool {
        links.half_closed.is_none()
            && links.opening.is_none()
            && links.next.is_none()
            && self.doubt_since.is_none()
    }

    /// Opens the next connection where it is time: to the same IP address, unless that fails or `reconnect_every` is over.
    fn renew_if_due<C: Stream>(&self, links: &mut Links<C>) {
        if !self.may_renew(links) || links.renew_at > Instant::now() {
            return;
        }
        let by_name = links.renewals_fail_since.is_some()
            || self.to.reconnect_every.is_some_and(|every| links.looked_up.elapsed() >= every);
        if by_name {
            links.looked_up = Instant::now();
            let (address, timeouts) = (self.to.address.clone(), self.to.timeouts);
            links.opening = Some(Box::pin(async move { lives(C::open(&address, timeouts).await?).await }));
        } else {
            let open = links.current.stream.open_again();
            links.opening = Some(Box::pin(async move { lives(open.await?).await }));
        }
    }

    /// The next connection is there, or it is not.
    fn opened<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        opened: Result<C, ConnectionError>,
    ) -> Result<(), ConnectionError> {
        match opened {
            Ok(stream) if stream.peer() != links.current.stream.peer() => Err(ConnectionError::Moved),
            Ok(stream) => {
                links.next = Some((stream, Instant::now()));
                Ok(())
            }
            Err(error) => self.not_opened(links, error),
        }
    }

    fn not_opened<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        error: ConnectionError,
    ) -> Result<(), ConnectionError> {
        let now = Instant::now();
        let since = *links.renewals_fail_since.get_or_insert(now);
        debug!(destination = %self.to.name, %error, "no second connection");
        self.budget.unasked();
        links.renew_at = now + self.backoff.next_delay().max(RENEW_LEAST);
        let window = self.shared.place.resend_window();
        if now.duration_since(since) < self.to.timeouts.pause
            || self.gave_way.is_some_and(|last| now.duration_since(last) < window)
        {
            return Ok(());
        }
        warn!(destination = %self.to.name, %error, "the receiver takes no second connection, so that nothing proves that it reads; allow it two connections from this host");
        self.gave_way = Some(now);
        Err(ConnectionError::Alone(error.to_string()))
    }

    /// Goes over to the next connection where it is time. Right before a live tick is the best moment, for then the peer had
    /// the longest time to read what came before.
    fn switch_if_due<C: Stream>(&mut self, links: &mut Links<C>) -> Result<(), ConnectionError> {
        let is_asked = self.budget.is_over() && self.shared.place.share().due > 0;
        match &links.next {
            Some((_, since)) if is_asked || since.elapsed() >= self.period() / 2 => self.switch(links),
            _ => Ok(()),
        }
    }

    /// Goes over to the next connection, between two ticks, and half-closes the one before.
    fn switch<C: Stream>(&mut self, links: &mut Links<C>) -> Result<(), ConnectionError> {
        let Some((stream, _)) = links.next.take() else { return Ok(()) };
        if let Some(end) = stream.has_ended() {
            return self.not_opened(links, end);
        }
        links.renewals_fail_since = None;
        let current = self.current(stream);
        let since = current.began;
        links.renew_at = since + self.period();
        let Current { stream, number, last_write, .. } = std::mem::replace(&mut links.current, current);
        stream.half_close()?;
        links.half_closed = Some(HalfClosed { stream, number, since, last_write, in_doubt: false });
        Ok(())
    }

    /// What the end of the half-closed connection proves, or that it does not come.
    fn half_closed<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        event: HalfClosedEvent,
    ) -> Result<(), ConnectionError> {
        let Links { current, half_closed, .. } = links;
        self.half_closed_of(current, half_closed, event)
    }

    fn half_closed_of<C: Stream>(
        &mut self,
        current: &Current<C>,
        half_closed: &mut Option<HalfClosed<C>>,
        event: HalfClosedEvent,
    ) -> Result<(), ConnectionError> {
        let Some(mut half) = half_closed.take() else { return Ok(()) };
        match event {
            HalfClosedEvent::TimeOut if half.in_doubt => {
                Err(ConnectionError::Unanswered(self.to.timeouts.pause))
            }
            HalfClosedEvent::TimeOut => {
                half.in_doubt = true;
                *half_closed = Some(half);
                self.doubt();
                Ok(())
            }
            HalfClosedEvent::Ended(end) if !half.stream.is_clean(&end) => Err(end),
            // A peer that has died closes an old connection as cleanly as one that answers.
            HalfClosedEvent::Ended(_) if let Some(end) = current.stream.has_ended() => Err(end),
            HalfClosedEvent::Ended(_) if half.in_doubt => {
                self.shared.place.answered_too_late(half.number);
                self.trust();
                Ok(())
            }
            HalfClosedEvent::Ended(_) => {
                let after = half.since.elapsed();
                self.shared.place.answered(half.number, half.last_write, after);
                self.budget.answered(after, self.to.timeouts.stall);
                let mut counters = self.shared.counters();
                counters.renewals = counters.renewals.saturating_add(1);
                Ok(())
            }
        }
    }

    /// Nothing shows that the peer reads. That is no loss.
    fn doubt(&mut self) {
        self.budget.doubted();
        if self.doubt_since.is_none() {
            self.doubt_since = Some(Instant::now());
            self.shared.counters().in_doubt = true;
            let stall = in_words(self.to.timeouts.stall);
            warn!(destination = %self.to.name, "has read nothing for {stall}, or does not say so: does it hang, or is its cache full? Live ticks go on, the backlog waits");
        }
    }

    /// The peer reads again.
    fn trust(&mut self) {
        if let Some(since) = self.doubt_since.take() {
            self.shared.counters().in_doubt = false;
            self.shared.place.doubt_ended();
            let (due, after) = (self.shared.place.share().due, in_words(since.elapsed()));
            info!(destination = %self.to.name, due, "reads again after {after}");
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
            if turn.backlog {
                let until = self.rate.wait(now).max(self.disk_rests());
                if until.is_some() {
                    return Ok(until);
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
        let doubt_at = Instant::now() + self.to.timeouts.stall;
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
                event = half_closed_event(half_closed.as_ref(), self.to.timeouts) => {
                    self.half_closed_of(current, half_closed, event)?;
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
                links.renew_at = Instant::now();
                self.renew_if_due(&mut links);
                let happened = match self.wait(&mut links, None, None).await {
                    Woken::Look | Woken::Drain => Ok(()),
                    Woken::Ended(error) | Woken::Opened(Err(error)) => Err(error),
                    Woken::Opened(opened) => self.opened(&mut links, opened),
                    Woken::HalfClosed(event) => self.half_closed(&mut links, event),
                };
                happened?;
                self.switch(&mut links)?;
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

/// The new connection, if it lives.
async fn lives<C: Stream>(stream: C) -> Result<C, ConnectionError> {
    match timeout(LIVES_AFTER, stream.ended()).await {
        Ok(end) => Err(end),
        Err(_) => Ok(stream),
    }
}

async fn opened<C>(opening: &mut Option<Opening<C>>) -> Result<C, ConnectionError> {
    let Some(future) = opening else { return std::future::pending().await };
    let opened = future.await;
    *opening = None;
    opened
}

async fn half_closed_event<C: Stream>(
    half_closed: Option<&HalfClosed<C>>,
    timeouts: crate::connection::Timeouts,
) -> HalfClosedEvent {
    let Some(half) = half_closed else { return std::future::pending().await };
    let patience = if half.in_doubt { timeouts.pause } else { timeouts.stall };
    tokio::select! {
        biased;
        end = half.stream.ended() => HalfClosedEvent::Ended(end),
        () = sleep_until(half.since + patience) => HalfClosedEvent::TimeOut,
    }
}

async fn maybe_sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Such as "3 min 12 s".
fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
