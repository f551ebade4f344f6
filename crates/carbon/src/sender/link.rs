//! A destination's task: it connects, writes what is due, and watches for the end of the connection.
//!
//! The newest tick goes first; resends and backlog follow at a bounded rate, because a flood of them has taken Carbons
//! down. `idle` only names what happened; what follows from it is done in one place each.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use super::idle::Idle;
use super::{Destination, Shared};
use crate::backoff::Backoff;
use crate::connection::{Connection, ConnectionError};
use crate::poison::{ALONE, Poison};
use crate::queue::{Loaded, Turn};
use crate::rate::Rate;
use crate::wire::{Frame, Protocol};

/// A disk that did not give a batch is asked again after this; live ticks go on in between.
const LOAD_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How long a connection must live after a write before the next failure starts with a short delay again. A port
/// that accepts and closes at once takes writes too, and must not be called at full speed.
const DELIVERED_AFTER: Duration = Duration::from_secs(1);
/// How long is waited for the disk that a poisonous point is put on.
const APPEND_PATIENCE: Duration = Duration::from_secs(1);

/// Why a connection was left.
enum Left {
    Lost(ConnectionError),
    Renewing,
    Draining,
}

/// What woke an idle connection.
enum Woken {
    News,
    Closed(ConnectionError),
    Look,
    Renew,
    Drain,
}

/// The task: one destination and what is known of it.
pub(super) struct Link {
    to: Destination,
    shared: Arc<Shared>,
    rate: Rate,
    poison: Poison,
    idle: Idle,
    backoff: Backoff,
    said_down: bool,
    /// Until when the disk is not asked for the backlog: each live tick would wait for its answer.
    load_again: Option<Instant>,
}

/// One connection's life so far.
struct Life {
    began: Instant,
    /// When the first batch had been written.
    delivered: Option<Instant>,
}

impl Life {
    fn has_lived(&self) -> bool {
        self.delivered.is_some_and(|written| written.elapsed() >= DELIVERED_AFTER)
    }
}

impl Link {
    pub(super) fn new(to: Destination, shared: Arc<Shared>) -> Self {
        let rate = Rate::new(to.replay_rate);
        Self {
            to,
            shared,
            rate,
            poison: Poison::default(),
            idle: Idle::default(),
            backoff: Backoff::default(),
            said_down: false,
            load_again: None,
        }
    }

    /// Connects for ever, until the destination is drained.
    pub(super) async fn run(mut self) {
        loop {
            let opened = tokio::select! {
                opened = Connection::open(&self.to.address, self.to.timeouts) => opened,
                () = self.shared.draining.notified() => return self.last_attempt().await,
            };
            let error = match opened {
                Ok(connection) => {
                    self.connected();
                    let mut life = Life { began: Instant::now(), delivered: None };
                    let left = self.serve(&connection, &mut life).await;
                    self.disconnected();
                    match left {
                        Left::Draining => return self.finish(connection).await,
                        Left::Renewing => match self.confirm(connection).await {
                            Ok(()) => continue,
                            Err(error) => self.lost(error, &life, false),
                        },
                        Left::Lost(error) => {
                            let idle = self.idle.closed(&connection, &error).await;
                            self.lost(error, &life, idle)
                        }
                    }
                }
                Err(error) => error,
            };
            let delay = self.backoff.next_delay();
            let destination = &self.to.name;
            if self.said_down {
                debug!(%destination, %error, "still away; trying again in {delay:.1?}");
            } else {
                let due = self.shared.place.share().due;
                warn!(%destination, %error, due, "away; ticks are kept, trying again");
                self.said_down = true;
            }
            tokio::select! {
                () = sleep(delay) => {}
                () = self.shared.draining.notified() => return self.last_attempt().await,
            }
        }
    }

    fn connected(&self) {
        let mut counters = self.shared.counters();
        counters.connected = true;
        counters.connects = counters.connects.saturating_add(1);
        if self.said_down || counters.connects > 1 {
            debug!(destination = %self.to.name, "connected again");
        } else {
            info!(destination = %self.to.name, "connected");
        }
    }

    fn disconnected(&self) {
        let mut counters = self.shared.counters();
        (counters.connected, counters.unacked) = (false, 0);
    }

    fn lost(&mut self, error: ConnectionError, life: &Life, idle: bool) -> ConnectionError {
        self.shared.place.lost(idle);
        self.poison.connection_lost(Instant::now());
        if life.has_lived() {
            self.backoff.reset();
        }
        error
    }

    async fn serve(&mut self, connection: &Connection, life: &mut Life) -> Left {
        let renew = self.to.reconnect_every.map(|age| life.began + age);
        loop {
            // Never cancelled half-way, not even to drain: the stream would be out of step.
            let pause = match self.write_some(connection, life).await {
                Ok(pause) => pause,
                Err(error) => return Left::Lost(error),
            };
            if self.said_down && life.has_lived() {
                info!(destination = %self.to.name, "back, and taking what was kept");
                self.said_down = false;
            }
            let unacked = connection.unacked();
            self.shared.counters().unacked = unacked;
            if let Err(error) = connection.check_alive() {
                return Left::Lost(error);
            }
            // Where all is acknowledged and nothing waits there is nothing to look at before the next tick.
            let look = (unacked > 0).then(|| Instant::now() + self.to.timeouts.stall);
            let look = [look, pause].into_iter().flatten().min();
            match self.idle(connection, look, renew).await {
                Woken::News | Woken::Look => {}
                Woken::Closed(error) => return Left::Lost(error),
                Woken::Renew => return Left::Renewing,
                Woken::Drain => return Left::Draining,
            }
        }
    }

    async fn idle(&self, connection: &Connection, look: Option<Instant>, renew: Option<Instant>) -> Woken {
        tokio::select! {
            () = self.shared.place.news() => Woken::News,
            error = connection.closed() => Woken::Closed(error),
            () = maybe_sleep_until(look) => Woken::Look,
            () = maybe_sleep_until(renew) => Woken::Renew,
            () = self.shared.draining.notified() => Woken::Drain,
        }
    }

    /// Writes what is due, as far as the rate allows; returns when it allows more.
    async fn write_some(
        &mut self,
        connection: &Connection,
        life: &mut Life,
    ) -> Result<Option<Instant>, ConnectionError> {
        loop {
            if self.poison.is_careful() {
                if self.try_alone(connection, life).await? {
                    continue;
                }
                return Ok(self.disk_rests());
            }
            let now = Instant::now();
            let Some(mut turn) = self.shared.place.next() else { return Ok(None) };
            if turn.backlog {
                let until = self.rate.wait(now).max(self.disk_rests());
                if until.is_some() {
                    return Ok(until);
                }
                self.rate.spend(turn.points, now);
            } else {
                self.rate.live(turn.points, now);
            }
            let frames = match self.shared.place.frames(&mut turn).await {
                Loaded::Frames(frames) => frames,
                Loaded::Lost => continue,
                Loaded::NotNow | Loaded::Refused => {
                    self.load_again = Some(Instant::now() + LOAD_AGAIN_AFTER);
                    return Ok(self.load_again);
                }
            };
            for frame in frames.iter() {
                self.write_frame(connection, turn.id, frame).await?;
            }
            self.batch_written(&turn);
            life.delivered.get_or_insert_with(Instant::now);
        }
    }

    /// Until when the disk is not asked.
    fn disk_rests(&self) -> Option<Instant> {
        self.load_again.filter(|&again| again > Instant::now())
    }

    async fn write_frame(
        &mut self,
        connection: &Connection,
        batch: u64,
        frame: &Frame,
    ) -> Result<(), ConnectionError> {
        match frame.bytes(self.to.protocol) {
            Ok(bytes) => connection.write(&bytes).await?,
            // Left in the queue it would be tried for ever.
            Err(error) => error!(destination = %self.to.name, %error, "a frame is given up"),
        }
        self.poison.written(batch, Instant::now());
        Ok(())
    }

    fn batch_written(&self, turn: &Turn) {
        let again = self.shared.place.written(turn.id);
        let mut counters = self.shared.counters();
        let counter = if again { &mut counters.resent } else { &mut counters.sent };
        *counter = counter.saturating_add(turn.points);
        counters.last_delivery = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs());
    }

    /// Connections keep dying right after the same batches: frames go alone, and what becomes of their connection shows
    /// whether it was one of them. Returns `false` when there is none to try now.
    async fn try_alone(&mut self, connection: &Connection, life: &mut Life) -> Result<bool, ConnectionError> {
        let mut tried = Vec::new();
        let mut wrote = Ok(());
        for mut turn in self.turns_to_try() {
            if !turn.is_in_memory() && self.disk_rests().is_some() {
                continue;
            }
            let frames = match self.shared.place.frames(&mut turn).await {
                Loaded::Frames(frames) => frames,
                Loaded::Lost => {
                    self.poison.clear(turn.id);
                    continue;
                }
                Loaded::Refused => continue,
                Loaded::NotNow => {
                    self.load_again = Some(Instant::now() + LOAD_AGAIN_AFTER);
                    continue;
                }
            };
            while tried.len() < self.poison.together() && wrote.is_ok() {
                let Some(frame) = self.poison.trial(turn.id, &frames) else { break };
                tried.push(turn.clone());
                wrote = self.write_frame(connection, turn.id, &frame).await;
            }
        }
        if tried.is_empty() {
            return Ok(false);
        }
        let died = match wrote {
            Ok(()) => timeout(ALONE, connection.closed()).await.ok(),
            Err(error) => Some(error),
        };
        if let Some(error) = died {
            self.poison.died();
            return Err(error);
        }
        life.delivered.get_or_insert_with(Instant::now);
        for point in self.poison.lived() {
            self.put_aside(&point).await;
        }
        for turn in self.turns_to_try().into_iter().chain(tried) {
            if self.poison.is_over(turn.id) {
                self.batch_written(&turn);
            }
        }
        Ok(true)
    }

    /// Suspects, what is to be cleared, and what is due beside them, so that it is seen whether others are taken.
    fn turns_to_try(&mut self) -> Vec<Turn> {
        let (wanted, place) = (self.poison.order(), &self.shared.place);
        let (due, gone): (Vec<u64>, Vec<u64>) = wanted.into_iter().partition(|&id| place.is_due(id));
        let newest = place.next();
        let next = newest.as_ref().and_then(|newest| place.due_after(newest.id));
        let oldest = place.due_after(0);
        let turns = due.into_iter().filter_map(|id| place.turn(id));
        let turns: Vec<Turn> = turns.chain(newest).chain(next).chain(oldest).collect();
        gone.into_iter().for_each(|id| self.poison.clear(id));
        turns
    }

    /// A point that Carbon cannot take is kept for a person to look at.
    async fn put_aside(&self, point: &Frame) {
        {
            let mut counters = self.shared.counters();
            counters.poisoned = counters.poisoned.saturating_add(point.points.into());
        }
        let destination = &self.to.name;
        let bytes = point.bytes(Protocol::Plaintext).unwrap_or_default();
        let lines = String::from_utf8_lossy(&bytes).into_owned();
        let point = lines.trim_end().to_owned();
        let Some(file) = &self.to.poison_file else {
            return error!(%destination, point, "the connection dies of this point; only this line keeps it");
        };
        match append(file.clone(), lines).await {
            Ok(()) => {
                error!(%destination, point, file = %file.display(), "the connection dies of this point; it is put aside");
            }
            Err(error) => {
                error!(%destination, point, file = %file.display(), %error, "the connection dies of this point; only this line keeps it");
            }
        }
    }

    /// Our end is closed; what was written is confirmed, or the connection is lost.
    async fn confirm(&self, connection: Connection) -> Result<(), ConnectionError> {
        let patience = self.to.timeouts.stall;
        timeout(patience, connection.barrier()).await.unwrap_or(Err(ConnectionError::Stalled(patience)))?;
        self.shared.place.confirmed();
        Ok(())
    }

    /// The end with a connection: what is due goes out, then the barrier.
    async fn finish(&mut self, connection: Connection) {
        let mut life = Life { began: Instant::now(), delivered: None };
        // The deadline of the drain is the only bound now.
        (self.rate, self.load_again) = (Rate::new(Some(u32::MAX)), None);
        let confirmed = match self.write_some(&connection, &mut life).await {
            Ok(_) => self.confirm(connection).await,
            Err(error) => Err(error),
        };
        if let Err(error) = confirmed {
            warn!(destination = %self.to.name, %error, "the end is not confirmed");
        }
    }

    /// The end without a connection: one attempt, where there is something to send.
    async fn last_attempt(&mut self) {
        if self.shared.place.share().due == 0 {
            return;
        }
        match Connection::open(&self.to.address, self.to.timeouts).await {
            Ok(connection) => self.finish(connection).await,
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

/// Not on this thread, which has other destinations and the ticks: the disk may hang.
async fn append(file: PathBuf, text: String) -> std::io::Result<()> {
    let write = move || OpenOptions::new().create(true).append(true).open(file)?.write_all(text.as_bytes());
    match timeout(APPEND_PATIENCE, spawn_blocking(write)).await {
        Ok(written) => written?,
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}
