//! What is known of slurmctld, and what the log says when that changes.

use std::fmt;

use carbon::in_words;
use slurm_points::collectors::TickOutcome;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::source::Outcome;
use crate::status::SlurmctldEntry;

/// Moments are Unix seconds.
#[derive(Debug, Default)]
pub(super) struct SlurmctldSeen {
    state: SlurmctldState,
    last_answer: Option<i64>,
    outage: Option<Outage>,
}

#[derive(Debug, Default)]
enum SlurmctldState {
    #[default]
    Unknown,
    Up {
        since: i64,
    },
    Down {
        since: i64,
        error: String,
    },
    Standby {
        since: i64,
    },
}

/// Consecutive ticks without a reading.
#[derive(Debug)]
struct Outage {
    since: Instant,
    ticks: u64,
}

impl SlurmctldSeen {
    /// Takes the outcome of a request for the statistics.
    pub(super) fn answered(&mut self, outcome: &Outcome, now: i64) {
        match (outcome, &mut self.state) {
            (Ok(_), SlurmctldState::Up { .. }) => self.last_answer = Some(now),
            (Ok(reading), state) => {
                let was_down = matches!(state, SlurmctldState::Down { .. });
                let outage = self.outage.take().filter(|_| was_down);
                let again = outage.map_or_else(String::new, |outage| outage.to_string());
                info!(
                    elapsed_us = reading.elapsed,
                    cluster = reading.cluster.as_deref(),
                    "slurmctld answers{again}"
                );
                (self.state, self.last_answer) = (SlurmctldState::Up { since: now }, Some(now));
            }
            (Err(error), SlurmctldState::Down { error: last, .. }) => {
                debug!(%error, "no reading");
                *last = error.to_string();
            }
            (Err(error), _) => {
                warn!(%error, hint = error.advice(), "no reading; trying at every tick");
                self.state = SlurmctldState::Down { since: now, error: error.to_string() };
                self.outage.get_or_insert_with(Outage::begin);
            }
        }
    }

    /// This host's slurmctld is a backup that waits; the host of the one before it that answers.
    pub(super) fn standby(&mut self, ahead: Option<&str>, now: i64) {
        self.last_answer = Some(now);
        if !matches!(self.state, SlurmctldState::Standby { .. }) {
            info!(ahead, "this host's slurmctld is a backup; only the daemon's own figures are published");
            self.state = SlurmctldState::Standby { since: now };
        }
    }

    /// Takes the outcome of a tick.
    pub(super) fn ticked(&mut self, outcome: &TickOutcome) {
        match outcome {
            TickOutcome::Failed => self.outage.get_or_insert_with(Outage::begin).ticks += 1,
            TickOutcome::Reading(_) | TickOutcome::Standby => self.outage = None,
            TickOutcome::GivenUp => {}
        }
    }

    pub(super) fn entry(&self) -> SlurmctldEntry {
        let (answers, since, error) = match &self.state {
            SlurmctldState::Unknown => (None, None, None),
            SlurmctldState::Up { since } | SlurmctldState::Standby { since } => {
                (Some(true), Some(*since), None)
            }
            SlurmctldState::Down { since, error } => (Some(false), Some(*since), Some(error.clone())),
        };
        SlurmctldEntry {
            answers,
            since,
            error,
            last_answer: self.last_answer,
            standby: matches!(self.state, SlurmctldState::Standby { .. }),
            ..SlurmctldEntry::default()
        }
    }

    pub(super) const fn words(&self) -> &'static str {
        match self.state {
            SlurmctldState::Unknown => "waiting for the first reading",
            SlurmctldState::Up { .. } => "slurmctld answers",
            SlurmctldState::Down { .. } => "slurmctld does not answer",
            SlurmctldState::Standby { .. } => "standby: this host's slurmctld is a backup",
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
        write!(f, " again after {}; {} {ticks} without a reading", in_words(self.since.elapsed()), self.ticks)
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
            let entry = seen.entry();
            (entry.answers, entry.standby, entry.since, entry.last_answer, entry.error.is_some())
        };
        assert_eq!(shown(&seen), (None, false, None, None, false));
        seen.standby(None, 10);
        seen.standby(Some("ctl1"), 20);
        assert_eq!(shown(&seen), (Some(true), true, Some(10), Some(20), false));
        let down = || Err(SourceError::NoConf("/etc/slurm/slurm.conf".into()));
        seen.answered(&down(), 30);
        seen.answered(&down(), 40);
        assert_eq!(shown(&seen), (Some(false), false, Some(30), Some(20), true));
        let up = || Ok(Box::new(Reading::default()));
        seen.answered(&up(), 50);
        seen.answered(&up(), 60);
        assert_eq!(shown(&seen), (Some(true), false, Some(50), Some(60), false));
        seen.standby(None, 70);
        assert_eq!(shown(&seen), (Some(true), true, Some(70), Some(70), false));
    }
}
