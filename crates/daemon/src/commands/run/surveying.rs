//! The survey's part in the daemon's loop.

use carbon::Batch;

use super::Daemon;
use crate::clock;
use crate::collecting::{Collecting, Due};
use crate::config::{Collectors, Config};
use crate::source::Outcome;
use crate::survey::{RoundResult, Survey};

impl Daemon {
    /// A round of the survey, where one is due; after the tick's own reading, which tells how busy slurmctld is.
    pub(super) fn begin_survey(&mut self, timestamp: i64, threads: Option<u32>) {
        let due = self.collecting.survey(Due::At(timestamp));
        let Some(survey) = self.survey.as_mut().filter(|_| !due.is_empty()) else { return };
        let Some(needs) = self.collecting.needs() else { return };
        let done = survey.begin(timestamp, &due, &needs, threads, clock::now());
        self.emit_survey(done);
    }

    pub(super) fn surveyed(&mut self, outcome: Outcome) {
        let done = self.survey.as_mut().and_then(|survey| survey.answered(outcome, clock::now()));
        self.emit_survey(done);
    }

    /// Makes a batch of its own of what a survey has found out: the tick's own has long been sent.
    fn emit_survey(&mut self, done: Option<RoundResult>) {
        let Some(RoundResult { timestamp, asked, replies }) = done else { return };
        let cluster = self.cluster.as_deref();
        let Some(prefix) = self.config.prefix.fill(cluster, &self.host) else { return };
        let mut batch = Batch::new(timestamp);
        let done = RoundResult { timestamp, asked, replies: replies.only_of(cluster) };
        let now = i64::try_from(clock::now().as_secs()).unwrap_or(i64::MAX);
        self.collecting.collect_survey(Due::At(timestamp), &done, now, &prefix, &mut batch);
        self.health.points_refused = self.health.points_refused.saturating_add(batch.refused());
        self.keep(&batch);
    }
}

/// A survey, where a collector needs one.
pub(super) fn start_survey(config: &Config, collecting: &Collecting) -> Option<Survey> {
    let Collectors { max_duty, max_threads, .. } = config.collectors;
    collecting.needs().map(|_| Survey::start(&config.slurm, max_duty, max_threads))
}

/// The outcome of what a survey asked last; never, where there is none.
pub(super) async fn surveyed(survey: Option<&mut Survey>) -> Outcome {
    match survey {
        Some(survey) => survey.outcome().await,
        None => std::future::pending().await,
    }
}
