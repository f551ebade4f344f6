//! Writes what is due to the connection: which batch is next, whether it may be written now, and
//! its frames.
//!
//! The newest tick goes first, then the backlog. With `order = "by_time"` all go by their
//! timestamps.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::SenderTask;
use super::renewal::Links;
use super::state::Event;
use crate::connection::Stream;
use crate::connection_error::Result;
use crate::queue::{DueBatch, DueFilter, Loaded};

/// Time for which a drain sends what is on disk.
const DRAINS_STORED_FOR: Duration = Duration::from_secs(1);
/// Time after which the sender looks again whether the peer's kernel has acknowledged everything.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(50);

impl SenderTask {
    /// Writes what is due, as far as the peer and the rate allow. Returns the moment until which
    /// the rate or the disk delays the rest; `None`: nothing more may be written until an event.
    pub(super) async fn write_due<C: Stream>(
        &mut self,
        links: &mut Links<C>,
    ) -> Result<Option<Instant>> {
        let collected = self.count_collected();
        if self.to.by_time
            && let Some(until) = self.disk.unopened_until(&self.outbox)
        {
            return Ok(Some(until));
        }
        // What may not be Carbon gets the oldest ones, as slowly as new ones come.
        let mut probes =
            if self.to.by_time { collected.max(links.delivered.is_none().into()) } else { 0 };
        while let Some(due) = self.next_batch() {
            if let Break(until) = self.permit(links, &due, probes).await? {
                return Ok(until);
            }
            if !due.backlog {
                self.idle_timer.note_idle(links.idle());
                if !self.to.by_time {
                    self.switch(links)?;
                }
            } else if !self.drain.is_on {
                self.throttle.spend(due.points, Instant::now());
                probes = probes.saturating_sub(1);
            } else if due.stored {
                self.throttle.spend_rate(due.points, Instant::now());
            }
            if self.write_batch(links, &due).await? && due.backlog {
                self.disk.begin_recording(&self.outbox, Instant::now());
            }
            self.say_lag();
            // Neither the peer nor a rate may make the others wait. A live tick alone goes on at
            // once: this costs three system calls.
            if self.next_batch().is_some() {
                yield_now().await;
            }
        }
        Ok(self.disk.hangs_until(Instant::now()))
    }

    /// The next batch that is due, without those on a disk that hangs.
    ///
    /// A drain sends what is on disk for a second, at the rate; the next run of the daemon sends
    /// the rest. What is only in memory is lost at the end, so it goes as fast as the peer reads.
    fn next_batch(&mut self) -> Option<DueBatch> {
        let now = Instant::now();
        let is_late = self.drain.is_on && {
            let end = *self.drain.stored_until.get_or_insert(now + DRAINS_STORED_FOR);
            self.throttle.rests_until(now).unwrap_or(now) > end
        };
        self.outbox.next_due(match self.disk.hangs_until(now) {
            _ if is_late => DueFilter::Unstored,
            Some(_) => DueFilter::Loaded,
            None => DueFilter::All,
        })
    }

    /// Whether the batch `due` may be written now. If not, `Break` has the moment until which it
    /// waits; `None`: until an event. A suspect receiver may get `probes` more ticks of the
    /// backlog.
    async fn permit<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        due: &DueBatch,
        probes: u64,
    ) -> Result<ControlFlow<Option<Instant>>> {
        let now = Instant::now();
        // What the peer's kernel has not acknowledged may still arrive when the network is back.
        if due.provisional && links.current.stream.unacked()? > 0 {
            return Ok(Break(Some(now + ACKNOWLEDGED_WITHIN)));
        }
        // A relay may read the new connection before what is left on the old one.
        if self.to.by_time && links.renewal.is_asked() {
            return Ok(Break(None));
        }
        if !due.backlog {
            return Ok(Continue(()));
        }
        if self.suspect && probes == 0 {
            return Ok(Break(None));
        }
        let rests_until = self.throttle.rests_until(now);
        if self.drain.is_on {
            if let Some(until) = rests_until.filter(|_| due.stored) {
                sleep_until(until).await;
            }
            return Ok(Continue(()));
        }
        if let Some(until) = rests_until.or_else(|| self.disk.records_until(&self.outbox, now)) {
            return Ok(Break(Some(until)));
        }
        if links.renewal.is_asked() || !self.throttle.rounds.allow_tick() {
            self.request_answer(links);
            return Ok(Break(None));
        }
        Ok(Continue(()))
    }

    /// Writes a batch. Returns whether it was written: not if the disk does not return it, or if it
    /// cannot be encoded.
    async fn write_batch<C: Stream>(
        &mut self,
        links: &mut Links<C>,
        due: &DueBatch,
    ) -> Result<bool> {
        let now = Instant::now();
        let pause = self.to.timeouts.pause;
        let is_given_up = self.disk.is_given_up(pause);
        let frames = match self.outbox.load_frames(due, is_given_up).await {
            Loaded::Frames(frames) => frames,
            Loaded::Lost if !is_given_up => return Ok(false),
            refused => {
                self.disk.note_refused(&self.outbox, refused, now, pause);
                return Ok(false);
            }
        };
        if due.frames.is_none() {
            self.disk.note_returned(&self.outbox);
        }
        for frame in frames.iter().skip(due.written) {
            let bytes = match frame.bytes(self.to.protocol, self.to.names) {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.outbox.drop_unencodable(due.id, &error);
                    return Ok(false);
                }
            };
            self.write_frame(links, &bytes).await?;
            links.current.last_write = Some(Instant::now());
            let (connection, points) = (links.current.number, frame.points.into());
            self.outbox
                .change_ledger(|ledger| ledger.note_frame_written(due.id, connection, points));
        }
        let again =
            self.outbox.change_ledger(|ledger| ledger.note_written(due.id, links.current.number));
        links.delivered.get_or_insert_with(Instant::now);
        self.outbox.update_status(|status| {
            if let Some(again) = again {
                *(if again { &mut status.resent } else { &mut status.sent }) += due.points;
            }
            status.last_delivery =
                SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
        });
        Ok(true)
    }

    /// Writes a frame to the current connection. Meanwhile handles what becomes of the old or the
    /// next connection, looks for a dead network path, and notes if the peer takes nothing.
    async fn write_frame<C: Stream>(&mut self, links: &mut Links<C>, bytes: &[u8]) -> Result {
        let mut silent_at = Instant::now() + self.to.timeouts.stall;
        let stream = Arc::clone(&links.current.stream);
        let mut writing = std::pin::pin!(stream.write(bytes));
        loop {
            let look_at = self.next_look(links);
            tokio::select! {
                biased;
                written = &mut writing => {
                    written?;
                    if !links.renewal.is_late() {
                        self.change_state(Event::ReadsAgain);
                    }
                    return Ok(());
                }
                woken = links.renewal.event(self.to.timeouts) => {
                    let was_in_doubt = self.state.doubted_since().is_some();
                    self.handle_renewal(links, woken)?;
                    if was_in_doubt && self.state.doubted_since().is_none() {
                        silent_at = Instant::now() + self.to.timeouts.stall;
                    }
                }
                () = sleep_until(look_at) => self.look_at_path(links)?,
                () = sleep_until(silent_at), if self.state.doubted_since().is_none() => {
                    self.change_state(Event::Silent(Instant::now()));
                }
            }
        }
    }
}
