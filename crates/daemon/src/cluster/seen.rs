//! The state of slurmctld as last seen, and the log lines when it changes.

use std::fmt;

use carbon::in_words;
use slurm_points::collectors::TickOutcome;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::clock::unix_of;
use crate::source::Outcome;
use crate::status::SlurmctldEntry;

#[derive(Debug, Default)]
pub(crate) struct SlurmctldSeen {
    /// slurmctld's entry in the status document. Here its moments are nanoseconds of
    /// CLOCK_BOOTTIME.
    pub(crate) entry: SlurmctldEntry,
    outage: Option<Outage>,
    /// Whether the log has said, since the last reading, that another user's program listens in
    /// slurmctld's place.
    has_named_imposter: bool,
}

/// Consecutive ticks without a reading.
#[derive(Debug)]
struct Outage {
    since: Instant,
    ticks: u64,
}

impl SlurmctldSeen {
    /// Takes the outcome of a request for the statistics, and logs it if it is news. `now` is
    /// nanoseconds of CLOCK_BOOTTIME.
    pub(crate) fn note_answer(&mut self, outcome: &Outcome, now: i64) {
        let before = (self.entry.answers, self.entry.standby);
        match outcome {
            Ok(reading) => {
                if before != (Some(true), false) {
                    let outage = self.outage.take().filter(|_| before.0 == Some(false));
                    let again = outage.map_or_else(String::new, |outage| outage.to_string());
                    info!(
                        elapsed_us = reading.elapsed,
                        cluster = reading.cluster.as_deref(),
                        "slurmctld answers{again}"
                    );
                    self.change(true, false, now);
                }
                self.entry.last_answer = Some(now);
                self.has_named_imposter = false;
            }
            Err(error) => {
                // It can only come when slurmctld is away already, for another cause.
                let is_news = error.names_imposter() && !self.has_named_imposter;
                self.has_named_imposter |= is_news;
                if before.0 == Some(false) && !is_news {
                    debug!(%error, "no reading");
                } else {
                    warn!(%error, hint = error.advice(), "no reading; trying at every tick");
                }
                if before.0 != Some(false) {
                    self.change(false, false, now);
                    self.outage.get_or_insert_with(Outage::begin);
                }
                self.entry.error = Some(error.to_string());
            }
        }
    }

    /// Takes that this host's slurmctld is a backup that waits. `ahead` is the host of a controller
    /// before it that answers, if one does.
    pub(super) fn note_standby(&mut self, ahead: Option<&str>, now: i64) {
        if !self.entry.standby {
            info!(
                ahead,
                "this host's slurmctld is a backup; only the daemon's own figures are published"
            );
            self.change(true, true, now);
        }
        self.entry.last_answer = Some(now);
    }

    /// Returns the entry for the status document, with moments in Unix seconds.
    pub(crate) fn entry(&self) -> SlurmctldEntry {
        let entry = self.entry.clone();
        SlurmctldEntry {
            since: entry.since.map(unix_of),
            last_answer: entry.last_answer.map(unix_of),
            ..entry
        }
    }

    fn change(&mut self, answers: bool, standby: bool, now: i64) {
        let entry = &mut self.entry;
        entry.answers = Some(answers);
        entry.standby = standby;
        entry.since = Some(now);
        entry.error = None;
    }

    /// Takes the outcome of a tick.
    pub(super) fn note_outcome(&mut self, outcome: &TickOutcome) {
        match outcome {
            TickOutcome::Failed => self.outage.get_or_insert_with(Outage::begin).ticks += 1,
            TickOutcome::Reading(_) | TickOutcome::Standby => self.outage = None,
            TickOutcome::GivenUp => {}
        }
    }

    /// The state of slurmctld in words, for systemd's STATUS.
    pub(crate) const fn words(&self) -> &'static str {
        match self.entry.answers {
            None => "waiting for the first reading",
            Some(_) if self.entry.standby => "standby: this host's slurmctld is a backup",
            Some(true) => "slurmctld answers",
            Some(false) => "slurmctld does not answer",
        }
    }
}

impl Outage {
    fn begin() -> Self {
        Self { since: Instant::now(), ticks: 0 }
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ticks = if self.ticks == 1 { "tick" } else { "ticks" };
        write!(
            f,
            " again after {}; {} {ticks} without a reading",
            in_words(self.since.elapsed()),
            self.ticks
        )
    }
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Reading;

    use super::*;
    use crate::source::SourceError;

    /// Each answer of a standby was taken for a change.
    #[test]
    fn since_is_when_the_state_began_and_last_answer_when_it_was_seen_last() {
        let mut seen = SlurmctldSeen::default();
        let shown = |seen: &SlurmctldSeen| {
            let entry = &seen.entry;
            (entry.answers, entry.standby, entry.since, entry.last_answer, entry.error.is_some())
        };
        assert_eq!(shown(&seen), (None, false, None, None, false));
        seen.note_standby(None, 10);
        seen.note_standby(Some("ctl1"), 20);
        assert_eq!(shown(&seen), (Some(true), true, Some(10), Some(20), false));
        let down = || Err(SourceError::NoConf("/etc/slurm/slurm.conf".into()));
        seen.note_answer(&down(), 30);
        seen.note_answer(&down(), 40);
        assert_eq!(shown(&seen), (Some(false), false, Some(30), Some(20), true));
        let up = || Ok(Box::new(Reading::default()));
        seen.note_answer(&up(), 50);
        seen.note_answer(&up(), 60);
        assert_eq!(shown(&seen), (Some(true), false, Some(50), Some(60), false));
        seen.note_standby(None, 70);
        assert_eq!(shown(&seen), (Some(true), true, Some(70), Some(70), false));
    }
}
