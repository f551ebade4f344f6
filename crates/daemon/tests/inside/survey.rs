//! Rounds of surveys: with what the next request is compared. The reader's program does not exist.

use carbon::Batch;
use slurm_points::collecting::{Collecting, DueCollectors};
use slurm_snapshot::{Jobs, Nodes, Partitions, Reply, Role, Started, Visibility};

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

/// The reply that came so many seconds after START.
fn reply(kind: ReplyKind, came: i64) -> Reply {
    let last_update = START + came;
    match kind {
        ReplyKind::Jobs => {
            let started = Some(Started { jobs: 7, ..Started::default() });
            Reply::Jobs(Box::new(Jobs { last_update, started, ..Jobs::default() }))
        }
        ReplyKind::Nodes => {
            let partitions = Some(Partitions { last_update, ..Partitions::default() });
            Reply::Nodes(Box::new(Nodes { last_update, partitions, ..Nodes::default() }))
        }
        ReplyKind::Associations => Reply::Associations(Box::default()),
        other => panic!("{other:?}"),
    }
}

/// Jobs came in time in a round that ended after their slot: its points were not sent, and the starts in it were in no point. Nodes have no
/// such news, so that they are not requested whole again.
#[tokio::test]
async fn starts_that_were_not_published_are_requested_again() {
    let enabled = ["jobs", "nodes", "associations", "partitions"];
    let enabled = enabled.map(|name| format!("[collectors.{name}]\nenabled = true\n")).concat();
    let config = Config::of(&format!("[slurm]\nreader = \"/nonexistent\"\n{enabled}interval = \"5m\"\n"));
    let mut collecting = Collecting::start(30, &config.collectors, |_| None);
    let source = || patient("test surveys", &config.slurm, &ReaderMemory::default());
    let mut survey = Survey::new(source(), false, &config.collectors);
    // The tick, when nodes, jobs and associations came, how many starts are published, and with what nodes and jobs are requested next. At
    // the second tick partitions are due too.
    for (tick, came, published, since) in
        [(0, [3, 5, 6], Some(7.0), [3, 5]), (60, [80, 85, 125], None, [80, 5])]
    {
        // A reader that takes nothing has room for four requests.
        survey.source = source();
        let due = collecting.survey(Role::Surveys, DueCollectors::At(START + tick));
        let needs = collecting.needs(Role::Surveys).unwrap();
        assert!(survey.begin(START + tick, &due, &needs, KeptNames::default(), Some(1), at(tick)).is_none());
        let kinds = [ReplyKind::Nodes, ReplyKind::Jobs, ReplyKind::Associations];
        let mut done = None;
        for (kind, came) in kinds.into_iter().zip(came) {
            assert!(done.is_none());
            assert_eq!(survey.round.as_ref().unwrap().left.last(), Some(&kind));
            done = survey.answered(reading(came, reply(kind, came)), at(came));
        }
        let mut batch = Batch::new(START + tick);
        collecting.collect_survey(DueCollectors::At(START + tick), &done.unwrap(), "c", &mut batch);
        let point = batch.points().find(|point| point.path() == "c.slurm_jobs.waiting.gauge-started");
        assert_eq!(point.map(|point| point.value()), published, "{tick}");
        let next = [ReplyKind::Nodes, ReplyKind::Jobs].map(|kind| survey.state(kind).since());
        assert_eq!(next, since.map(|since| Some(START + since)), "{tick}");
    }
}
