//! What collectors need of slurmctld, and what a survey gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slurm_snapshot::{Reading, Reply, ReplyKind, ReplyOptions};

/// Which replies, and what those must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) replies: BTreeSet<ReplyKind>,
    pub(crate) options: ReplyOptions,
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
pub(crate) struct ReplyCounters {
    /// Of the last reading, µs.
    pub(crate) duration: Option<u64>,
    pub(crate) readings_ok: u64,
    pub(crate) readings_failed: u64,
    /// Of the good ones, those that said that nothing had changed.
    pub(crate) readings_unchanged: u64,
    pub(crate) skipped_duty: u64,
    pub(crate) skipped_busy: u64,
    pub(crate) skipped_round: u64,
    pub(crate) readings_late: u64,
    /// Whether slurmctld may hide a part of it from the daemon's user, so that none of it is published.
    pub(crate) hidden: bool,
}

/// Counts one more.
pub(crate) const fn one_more(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SurveyReplies(BTreeMap<ReplyKind, Arc<Reading>>);

impl SurveyReplies {
    pub(crate) fn get(&self, kind: ReplyKind) -> Option<&Reply> {
        self.reading(kind).and_then(|reading| reading.reply.as_ref())
    }

    pub(crate) fn reading(&self, kind: ReplyKind) -> Option<&Arc<Reading>> {
        self.0.get(&kind)
    }

    pub(crate) fn insert(&mut self, kind: ReplyKind, reading: Arc<Reading>) {
        self.0.insert(kind, reading);
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Drops replies of other clusters: when slurm.conf was replaced, one reader notices it before the other.
    pub(crate) fn only_of(mut self, cluster: Option<&str>) -> Self {
        self.0.retain(|_, reading| {
            cluster.zip(reading.cluster.as_deref()).is_none_or(|(cluster, its)| cluster == its)
        });
        self
    }

    /// One reply, as if a round had no other.
    #[cfg(test)]
    pub(crate) fn of(kind: ReplyKind, reply: Reply) -> Self {
        let mut replies = Self::default();
        replies.add(kind, reply);
        replies
    }

    /// The same with one more.
    #[cfg(test)]
    pub(crate) fn add(&mut self, kind: ReplyKind, reply: Reply) {
        self.insert(kind, Arc::new(Reading { reply: Some(reply), ..Reading::default() }));
    }
}
