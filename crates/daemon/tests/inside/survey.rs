//! Rounds of surveys: with what the next request is compared. The reader's program does not exist.

use carbon::Batch;
use slurm_points::collecting::{Collecting, DueCollectors};
use slurm_snapshot::{Associations, Jobs, Reply, Role, Started, Visibility};

use super::*;
use crate::config::Config;

/// A tick that is a multiple of a minute.
const START: i64 = 1_700_000_040;

fn at(after: i64) -> Duration {
    Duration::from_secs((START + after).unsigned_abs())
}

fn reading(after: i64, reply: Reply) -> Outcome {
    Ok(Box::new(Reading {
        time: at(after).as_secs_f64(),
        elapsed: 1000,
        visibility: Some(Visibility { private: Vec::new(), privileged: Some(true) }),
        reply: Some(reply),
        ..Reading::default()
    }))
}

/// Jobs came in time in a round that ended after their slot: its points were not sent, and the starts in it were in no point.
#[tokio::test]
async fn starts_that_were_not_published_are_requested_again() {
    let config = Config::of(
        "[slurm]\nreader = \"/nonexistent\"\n[collectors.jobs]\nenabled = true\n[collectors.associations]\nenabled = true\n\
         [collectors.partitions]\nenabled = true\ninterval = \"5m\"\n",
    );
    let mut collecting = Collecting::start(30, &config.collectors, |_| None);
    let mut survey = Survey::new(patient(&config.slurm, &ReaderMemory::default()), false, &config.collectors);
    // The tick, when the jobs came, when the associations came, what is published, and the `since` of the next request.
    for (tick, jobs_came, associations_came, published, since) in
        [(0, 5, 6, Some(7.0), 5), (60, 85, 125, None, 5)]
    {
        let due = collecting.survey(Role::Surveys, DueCollectors::At(START + tick));
        let needs = collecting.needs(Role::Surveys).unwrap();
        assert!(survey.begin(START + tick, &due, &needs, Some(1), at(tick)).is_none());
        let started = Some(Started { jobs: 7, ..Started::default() });
        let jobs = Jobs { last_update: START + jobs_came, started, ..Jobs::default() };
        assert!(survey.answered(reading(jobs_came, Reply::Jobs(Box::new(jobs))), at(jobs_came)).is_none());
        let associations = Reply::Associations(Box::<Associations>::default());
        let done = survey.answered(reading(associations_came, associations), at(associations_came)).unwrap();
        let mut batch = Batch::new(START + tick);
        let due = DueCollectors::At(START + tick);
        collecting.collect_survey(due, &done, START + associations_came, "c", &mut batch);
        let point = batch.points().find(|point| point.path() == "c.slurm_jobs.waiting.gauge-started");
        assert_eq!(point.map(|point| point.value()), published, "{tick}");
        assert_eq!(survey.state(ReplyKind::Jobs).since(), Some(START + since), "{tick}");
    }
}
