//! Rounds of surveys: with what the next request is compared. The reader's program does not exist.

use carbon::Batch;
use slurm_points::collecting::{Collecting, DueCollectors};
use slurm_snapshot::{Jobs, Nodes, Partitions, Reply, Role, Started, Visibility};

use std::path::PathBuf;

use super::*;
use crate::config::Config;
use crate::source::SourceError;

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

/// The reply that came so many seconds after START.
fn reply(kind: ReplyKind, came: i64) -> Reply {
    let last_update = START + came;
    match kind {
        ReplyKind::Nodes => {
            let partitions = Some(Partitions { last_update, ..Partitions::default() });
            Reply::Nodes(Box::new(Nodes { last_update, partitions, ..Nodes::default() }))
        }
        ReplyKind::Associations => Reply::Associations(Box::default()),
        other => panic!("{other:?}"),
    }
}

/// The fate of a round's reply of jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Good,
    Failed,
    /// The reply came in time, but the round ended after its slot, so that its points were not
    /// sent.
    Late,
    /// Good, and afterwards a reload starts all collectors again.
    Reloaded,
    /// slurmctld's clock was set back before it.
    SetBack,
}

/// The starts since the round before were in no point in each of these cases.
#[tokio::test]
async fn every_start_is_in_one_point_whatever_happened_to_the_reply_before() {
    use Fate::{Failed, Good, Late, Reloaded, SetBack};
    let enabled = ["nodes", "jobs", "associations"];
    let enabled = enabled.map(|name| format!("[collectors.{name}]\nenabled = true\n")).concat();
    // Partitions need jobs too, at other moments.
    let partitions = "[collectors.partitions]\nenabled = true\ninterval = \"30s\"\n";
    let config =
        Config::parse_valid(&format!("[slurm]\nreader = \"/nonexistent\"\n{enabled}{partitions}"));
    let mut collecting = Collecting::start(30, &config.collectors, |_| None);
    let source = || patient("test surveys", &config.slurm, &ReaderMemory::default());
    let mut survey = Survey::new(source(), false, &config.collectors);
    let mut published = Vec::new();
    let fates = [
        Good, Good, Failed, Failed, Good, Late, Good, Reloaded, Good, Reloaded, Failed, Good,
        SetBack, Good,
    ];
    for (tick, fate) in (0..).step_by(60).zip(fates) {
        if fate == SetBack {
            survey.forget();
            collecting.forget_starts();
        }
        let ticks = [tick, tick + 30];
        for tick in ticks.into_iter().take(if fate == Late { 1 } else { 2 }) {
            // A reader that takes nothing has room for four requests.
            survey.source = source();
            let at_tick = DueCollectors::At(START + tick);
            let due = collecting.survey(Role::Surveys, at_tick);
            let needs = collecting.needs(Role::Surveys);
            let kept = collecting.published_jobs();
            let mut done =
                survey.begin_round(START + tick, &due, &needs.unwrap(), kept, Some(1), at(tick));
            while let Some(round) = &survey.round {
                let kind = *round.left.last().unwrap();
                let came =
                    tick + if fate == Late && kind == ReplyKind::Associations { 65 } else { 5 };
                let outcome = match kind {
                    ReplyKind::Jobs if fate == Failed => Err(SourceError::NoConf(PathBuf::new())),
                    ReplyKind::Jobs => {
                        let since = round.kept.started_since;
                        let started = since.map(|since| (START + came - since).unsigned_abs());
                        let started = started.map(|jobs| Started { jobs, ..Started::default() });
                        let jobs = Jobs { last_update: START + came, started, ..Jobs::default() };
                        reading(came, Reply::Jobs(Box::new(jobs)))
                    }
                    kind => reading(came, reply(kind, came)),
                };
                done = survey.handle_reply(outcome, at(came));
            }
            let mut batch = Batch::new(START + tick);
            collecting.collect_survey(at_tick, &done.unwrap(), "c", &mut batch);
            let point =
                batch.points().find(|point| point.path() == "c.slurm_jobs.waiting.gauge-started");
            published.extend(point.map(|point| (fate, point.value())));
        }
        if fate == Reloaded {
            collecting = collecting.restart(30, &config.collectors, |_| false, |_| None);
            survey.forget();
        }
    }
    let expected = [
        (Good, 60.0),
        (Good, 180.0),
        (Good, 120.0),
        (Reloaded, 60.0),
        (Good, 60.0),
        (Reloaded, 60.0),
        (Good, 120.0),
        (Good, 60.0),
    ];
    assert_eq!(published, expected);
}
