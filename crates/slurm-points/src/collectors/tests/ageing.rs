//! slurmctld may say that nothing has changed, and then the last reply is used again. A figure that
//! ages with the clock must not stand still meanwhile: what ages is in the reply as a moment, and
//! is counted from the tick's timestamp.

use std::collections::BTreeMap;

use carbon_wire::Batch;
use slurm_snapshot::{
    Association, Associations, Expected, Jobs, Moments, Nodes, PartitionJobs, Reply, ReplyKind,
    Reservation, Reservations, Started, Starts, UseAndLimits, Waiting,
};

use super::started;
use crate::collectors::{COLLECTORS, Start};
use crate::levels::DocumentedLevel;
use crate::replies::SurveyReplies;

const NOW: i64 = 1_700_000_000;

/// Times that do not age: of what is over, limits, and usage that slurmctld adds up.
const FIXED: [&str; 6] = [
    "started_wait_p50",
    "started_wait_p90",
    "started_wait_max",
    "wall_used",
    "grp_wall",
    "max_wall_per_job",
];

/// Replies in which every time is there.
fn replies() -> SurveyReplies {
    let moments = Some(Moments { jobs: 3, p50: NOW - 50, p90: NOW - 90, max: NOW - 100 });
    let waiting = Waiting { submitted: moments, eligible: moments };
    let started = Some(Started { jobs: 2, p50: 5, p90: 9, max: 10 });
    let starts = Some(Starts { p50: NOW + 500, p90: NOW + 900, p99: NOW + 990, max: NOW + 1000 });
    let expected = Expected { starts, ..Expected::default() };
    let partition =
        PartitionJobs { waiting: waiting.clone(), started, expected, ..PartitionJobs::default() };
    let mut replies = SurveyReplies::with_only(
        ReplyKind::Jobs,
        Reply::Jobs(Box::new(Jobs {
            waiting,
            started,
            expected,
            partitions: [("debug".to_owned(), partition)].into(),
            last_update: NOW,
            ..Jobs::default()
        })),
    );
    let nodes = Nodes {
        drain_since: vec![NOW - 3500],
        down_since: vec![NOW - 86_300],
        last_update: NOW,
        ..Nodes::default()
    };
    replies.add(ReplyKind::Nodes, Reply::Nodes(Box::new(nodes)));
    let reservation = |from: i64, to: i64| Reservation {
        start_time: Some(NOW + from),
        end_time: Some(NOW + to),
        maint: true,
        ..Reservation::default()
    };
    let reservations = Reservations {
        reservations: vec![reservation(-10, 5000), reservation(6000, 9000)],
        last_update: NOW,
    };
    replies.add(ReplyKind::Reservations, Reply::Reservations(reservations));
    let limits = UseAndLimits {
        wall_used: Some(1.0),
        grp_wall: Some(2),
        max_wall_per_job: Some(3),
        ..UseAndLimits::default()
    };
    let account = Association {
        account: "physics".to_owned(),
        use_and_limits: limits,
        ..Association::default()
    };
    let associations = Associations { associations: vec![account], ..Associations::default() };
    replies.add(ReplyKind::Associations, Reply::Associations(Box::new(associations)));
    replies
}

#[test]
fn no_figure_that_ages_stands_still_while_slurmctld_says_that_nothing_has_changed() {
    let replies = replies();
    for collector in
        COLLECTORS.iter().filter(|collector| matches!(collector.start, Start::Survey(_)))
    {
        if !collector.replies.iter().any(|reply| reply.row().unchanged) {
            continue;
        }
        let mut running = started(collector, &[]);
        let mut round = |timestamp| -> BTreeMap<String, f64> {
            let mut batch = Batch::new(timestamp);
            running.collect(timestamp, &replies, "c", &mut batch);
            batch.points().map(|point| (point.path().to_owned(), point.value())).collect()
        };
        let before = round(NOW);
        let after = round(NOW + 200);
        // Node events are what happened between two replies.
        let levels =
            collector.every_level().filter(|level| !level.below.starts_with("slurm_nodes.events."));
        let leaves = levels.flat_map(DocumentedLevel::leaves);
        for leaf in leaves.filter(|leaf| leaf.unit == "s" || leaf.leaf.starts_with("over_1")) {
            let end = format!(".gauge-{}", leaf.leaf);
            let points: Vec<_> = before.iter().filter(|(path, _)| path.ends_with(&end)).collect();
            assert!(
                !points.is_empty(),
                "{}: {} is in no reply of this test",
                collector.name,
                leaf.leaf
            );
            let ages = points
                .iter()
                .any(|(path, value)| after.get(*path).is_some_and(|now| now != *value));
            assert_eq!(ages, !FIXED.contains(&&*leaf.leaf), "{}: {}", collector.name, leaf.leaf);
        }
    }
}
