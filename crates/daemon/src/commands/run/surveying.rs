//! The surveys' part in the daemon's loop.

use carbon::Batch;
use slurm_snapshot::{Reading, Role};

use super::Daemon;
use crate::clock;
use crate::collecting::{Collecting, DueCollectors};
use crate::config::{Collectors, Config};
use crate::source::{Outcome, Source};
use crate::survey::{RoundResult, Survey, patient};

impl Daemon {
    /// Begins a round of each survey that is due, after the tick's own reading, which shows how busy slurmctld is.
    pub(super) fn begin_surveys(&mut self, timestamp: i64, reading: Option<&Reading>) {
        if let (Some(survey), Some(reading)) = (&mut self.survey, reading) {
            survey.note(reading);
        }
        let statistics = reading.and_then(|reading| reading.statistics.as_ref());
        let threads = statistics.map(|statistics| statistics.server_thread_count);
        self.begin_survey(Role::Surveys, timestamp, threads);
        // slurmctld is not asked.
        self.begin_survey(Role::Accounting, timestamp, Some(0));
    }

    fn begin_survey(&mut self, role: Role, timestamp: i64, threads: Option<u32>) {
        let due = self.collecting.survey(role, DueCollectors::At(timestamp));
        let needs = self.collecting.needs(role).filter(|_| !due.is_empty());
        let (Some(needs), Some(survey)) = (needs, self.survey_mut(role)) else { return };
        let done = survey.begin(timestamp, &due, &needs, threads, clock::now());
        self.emit_survey(done);
    }

    pub(super) fn surveyed(&mut self, role: Role, outcome: Outcome) {
        let done = self.survey_mut(role).and_then(|survey| survey.answered(outcome, clock::now()));
        self.emit_survey(done);
    }

    const fn survey_mut(&mut self, role: Role) -> Option<&mut Survey> {
        match role {
            Role::Surveys => self.survey.as_mut(),
            Role::Accounting => self.dbd_survey.as_mut(),
            Role::Statistics => None,
        }
    }

    /// Makes a batch of its own of what a survey has found out: the tick's own has long been sent.
    fn emit_survey(&mut self, done: Option<RoundResult>) {
        let Some(RoundResult { timestamp, asked, replies }) = done else { return };
        let cluster = self.cluster.as_deref();
        let Some(prefix) = self.config.prefix.expand(cluster, &self.host) else { return };
        let mut batch = Batch::new(timestamp);
        let done = RoundResult { timestamp, asked, replies: replies.only_of(cluster) };
        self.collecting.collect_survey(
            DueCollectors::At(timestamp),
            &done,
            clock::unix_now(),
            &prefix,
            &mut batch,
        );
        self.health.points_refused = self.health.points_refused.saturating_add(batch.refused());
        self.keep_cluster(&batch);
    }
}

/// A survey of this role, where a collector needs one; `source` is its reader, where that runs already.
pub(super) fn start_survey(
    config: &Config,
    collecting: &Collecting,
    role: Role,
    source: Option<Source>,
) -> Option<Survey> {
    let Collectors { max_duty, max_threads, .. } = config.collectors;
    collecting.needs(role)?;
    let source = source.unwrap_or_else(|| patient(&config.slurm));
    let follows = config.slurm.follow && role == Role::Surveys;
    Some(Survey::new(source, follows, max_duty, max_threads))
}
