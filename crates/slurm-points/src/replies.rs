//! The needs of collectors, and the replies that a survey gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use slurm_snapshot::{Reading, Reply, ReplyKind, ReplyOptions};

use crate::derive::whole_seconds;

/// The replies that collectors need, and the options that these must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The kinds of replies.
    pub replies: BTreeSet<ReplyKind>,
    /// The options that the replies must have.
    pub options: ReplyOptions,
}

impl Needs {
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.replies.extend(&other.replies);
        self.options = self.options | other.options;
        self
    }
}

/// Counters of one kind of reply since the daemon's start.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyCounters {
    /// Time that the last reading took, µs; `None` if it failed, or before the first.
    pub duration: Option<u64>,
    /// Readings that succeeded.
    pub readings_ok: u64,
    /// Readings that failed.
    pub readings_failed: u64,
    /// Number of the good readings that reported that nothing had changed.
    pub readings_unchanged: u64,
    /// Rounds without a request because `max_duty` was used up.
    pub skipped_duty: u64,
    /// Rounds without a request because slurmctld was busy.
    pub skipped_busy: u64,
    /// Rounds without a request because the round before was not over.
    pub skipped_round: u64,
    /// Readings that came after their slot.
    pub readings_late: u64,
    /// Whether a part of the reply may be hidden from the daemon's user, so that none of it is
    /// published.
    pub hidden: bool,
}

/// The replies of a survey, by kind.
#[derive(Clone, Debug, Default)]
pub struct SurveyReplies(BTreeMap<ReplyKind, Arc<Reading>>);

impl SurveyReplies {
    pub(crate) fn get(&self, kind: ReplyKind) -> Option<&Reply> {
        self.reading(kind).and_then(|reading| reading.reply.as_ref())
    }

    pub(crate) fn reading(&self, kind: ReplyKind) -> Option<&Arc<Reading>> {
        self.0.get(&kind)
    }

    /// Converts the moment `here`, Unix seconds on this host's clock, to slurmctld's clock. A reply
    /// has the moment at which slurmctld wrote it, from slurmrestd only from 23.11 on. If that is
    /// not between its request and its arrival, the clocks differ.
    pub(crate) fn there(&self, kind: ReplyKind, here: i64) -> i64 {
        let Some(reading) = self.reading(kind) else { return here };
        let written =
            reading.reply.as_ref().and_then(Reply::last_update).filter(|written| *written > 0);
        let Some(written) = written else { return here };
        let sent = reading.time - Duration::from_micros(reading.elapsed).as_secs_f64();
        let [sent, arrived] = [sent, reading.time].map(whole_seconds);
        here.saturating_add(written).saturating_sub(written.clamp(sent.min(arrived), arrived))
    }

    /// Adds a reply.
    pub fn insert(&mut self, kind: ReplyKind, reading: Arc<Reading>) {
        self.0.insert(kind, reading);
    }

    /// Returns each reply with its kind.
    pub fn iter(&self) -> impl Iterator<Item = (&ReplyKind, &Arc<Reading>)> {
        self.0.iter()
    }

    /// Adds all replies of `more`.
    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Drops replies of other clusters: when slurm.conf was replaced, one reader notices it before
    /// the other.
    pub fn only_of(mut self, cluster: Option<&str>) -> Self {
        self.0.retain(|_, reading| {
            cluster
                .zip(reading.cluster.as_deref())
                .is_none_or(|(cluster, answering)| cluster == answering)
        });
        self
    }

    /// One reply, as if a round had no other.
    #[cfg(test)]
    pub(crate) fn with_only(kind: ReplyKind, reply: Reply) -> Self {
        let mut replies = Self::default();
        replies.add(kind, reply);
        replies
    }

    /// Adds a reply.
    #[cfg(test)]
    pub(crate) fn add(&mut self, kind: ReplyKind, reply: Reply) {
        let time = reply.last_update().and_then(crate::metric::number).unwrap_or(0.0);
        self.insert(kind, Arc::new(Reading { time, reply: Some(reply), ..Reading::default() }));
    }
}

/// The replies of a round that is over, or in which only the controllers are still asked.
#[derive(Debug)]
pub struct RoundResult {
    /// The tick at which the round began, Unix seconds.
    pub timestamp: i64,
    /// Moment at which the round ended, Unix seconds.
    pub ended: i64,
    /// The needs for which replies were requested. A reload may have changed the needs for the next
    /// round since.
    pub requested: Needs,
    /// The replies that have come.
    pub replies: SurveyReplies,
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{Reservations, Rest};

    use super::*;

    /// A wait is the present time minus a time on slurmctld's clock.
    #[test]
    fn a_difference_between_two_clocks_is_no_wait_and_a_slow_answer_is_no_difference() {
        let there = |time, elapsed, last_update| {
            let reply =
                Some(Reply::Reservations(Reservations { last_update, ..Reservations::default() }));
            let rest = Some(Rest::default());
            let reading = Reading { time, elapsed, reply, rest, ..Reading::default() };
            let mut replies = SurveyReplies::default();
            replies.insert(ReplyKind::Reservations, Arc::new(reading));
            replies.there(ReplyKind::Reservations, 9000)
        };
        assert_eq!(there(8000.9, 2000, 8000), 9000);
        assert_eq!(there(8000.001, 2000, 7999), 9000, "written before the second was over");
        assert_eq!(there(8000.5, 30_000_000, 7975), 9000);
        assert_eq!(there(8000.5, 2000, 8120), 9120, "slurmctld is two minutes ahead");
        assert_eq!(there(8000.5, 2000, 7880), 8880);
        assert_eq!(there(f64::NAN, u64::MAX, 0), 9000);
        assert_eq!(there(8000.5, 2000, 0), 9000, "a slurmrestd that does not tell");
        assert_eq!(SurveyReplies::default().there(ReplyKind::Jobs, 9000), 9000);
    }
}
