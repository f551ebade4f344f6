//! The points of jobs.

use std::collections::BTreeMap;

use slurm_snapshot::{Expecting, NamedJobs, PartitionJobs, Reply, Starts};

use super::super::tests::{has_all, remembering, started, surveyed};
use super::*;

fn tallies(jobs: &[(&str, u64)]) -> JobTallies {
    jobs.iter()
        .map(|(word, jobs)| ((*word).to_owned(), JobTally { jobs: *jobs, ..JobTally::default() }))
        .collect()
}

/// Jobs that squeue shows by their base state.
fn states(jobs: &[(&str, u64)]) -> JobStates {
    JobStates { shown: tallies(jobs), unfinished: tallies(jobs) }
}

fn queue() -> Jobs {
    let submitted = Moments { jobs: 3, p50: 940, p90: 400, max: 100 };
    let started = Started { jobs: 2, p50: 5, p90: 7, max: 7 };
    let waiting = Waiting { submitted: Some(submitted), eligible: None };
    let starts = Starts { p50: 1090, p90: 1400, p99: 1500, max: 2000 };
    let expected = Expected {
        planned: Expecting { records: 2, jobs: 9 },
        unplanned: Expecting { records: 1, jobs: 1 },
        starts: Some(starts),
        ..Expected::default()
    };
    let partition = PartitionJobs {
        states: states(&[("pending", 3)]),
        pending_reasons: tallies(&[("Priority", 3)]),
        waiting: waiting.clone(),
        started: Some(started),
        expected,
    };
    Jobs {
        last_update: 990,
        states: states(&[("pending", 3), ("completing", 1)]),
        pending_reasons: tallies(&[("Dependency", 3)]),
        waiting,
        started: Some(started),
        expected,
        partitions: BTreeMap::from([("gpu.a".to_owned(), partition)]),
        qos: NamedRows {
            names: [(
                "".to_owned(),
                NamedJobs { states: states(&[("pending", 3)]), has_started: false },
            )]
            .into(),
            ..NamedRows::default()
        },
        ..Jobs::default()
    }
}

/// CPUs of 0 would be a figure.
#[test]
fn where_states_alone_are_known_nothing_else_has_a_point() {
    let mut collector = started(&COLLECTOR, &[]);
    let counted = |jobs: &[(&str, u64)]| {
        let jobs = Jobs { states: states(jobs), states_only: true, ..Jobs::default() };
        SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)))
    };
    let points = surveyed(&mut collector, 1000, &counted(&[("pending", 3), ("completing", 1)]));
    let expected = [
        "total.gauge-jobs 4",
        "total.gauge-unparsed 0",
        "state.completing.gauge-jobs 1",
        "state.pending.gauge-jobs 3",
        "state.running.gauge-jobs 0",
    ];
    assert_eq!(points, expected.map(|point| format!("c.slurm_jobs.{point}")));
    let points = surveyed(&mut collector, 1060, &counted(&[]));
    assert!(
        points.contains(&"c.slurm_jobs.state.completing.gauge-jobs 0".to_owned()),
        "{points:?}"
    );
}

#[test]
fn a_queue_becomes_paths_by_state_reason_and_partition() {
    let mut collector = started(&COLLECTOR, &[]);
    let points = surveyed(
        &mut collector,
        1000,
        &SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(queue()))),
    );
    let expected = [
        "c.slurm_jobs.total.gauge-jobs 4",
        "c.slurm_jobs.state.completing.gauge-jobs 1",
        "c.slurm_jobs.state.running.gauge-jobs 0",
        "c.slurm_jobs.reason.Dependency.gauge-jobs 3",
        "c.slurm_jobs.waiting.gauge-wait_max 900",
        "c.slurm_jobs.waiting.gauge-started 2",
        "c.slurm_jobs.expected_start.gauge-planned 2",
        "c.slurm_jobs.expected_start.gauge-planned_jobs 9",
        "c.slurm_jobs.expected_start.gauge-overdue 0",
        "c.slurm_jobs.expected_start.gauge-unplanned 1",
        "c.slurm_jobs.expected_start.gauge-start_in_p50 90",
        "c.slurm_jobs.expected_start.gauge-start_in_max 1000",
        "c.slurm_jobs.no_qos.state.pending.gauge-jobs 3",
    ];
    has_all(&points, &expected);
    assert!(
        points
            .iter()
            .any(|p| p.starts_with("c.slurm_jobs.partition.gpu_a-") && p.ends_with("wait_p50 60"))
    );
    assert!(
        points.iter().any(
            |p| p.contains(".partition.gpu_a-") && p.ends_with(".reason.Priority.gauge-jobs 3")
        )
    );
    assert!(
        !points.iter().any(|point| point.contains("eligible")),
        "no job that could run is no wait of 0 s"
    );
}

/// A state had 0 CPUs if nothing was known of its jobs but that they are there.
#[test]
fn a_sum_of_which_no_part_is_known_is_no_figure_and_no_jobs_have_0() {
    let mut collector = started(&COLLECTOR, &[]);
    let replies = SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(queue())));
    let points = surveyed(&mut collector, 1000, &replies);
    has_all(
        &points,
        &["c.slurm_jobs.state.pending.gauge-jobs 3", "c.slurm_jobs.state.running.gauge-cpus 0"],
    );
    for leaf in ["cpus", "nodes", "gpus", "memory"] {
        let unknown = format!("c.slurm_jobs.state.pending.gauge-{leaf} ");
        assert!(!points.iter().any(|point| point.starts_with(&unknown)), "{points:#?}");
    }
}

fn of_cpus(shown: &str, base: &str, cpus: u64) -> JobStates {
    let tallies = |state: &str| {
        [(state.to_owned(), JobTally { jobs: 1, cpus: Some(cpus), ..JobTally::default() })].into()
    };
    JobStates { shown: tallies(shown), unfinished: tallies(base) }
}

/// Users of such jobs had no CPUs, and never got paths.
#[test]
fn a_user_whose_jobs_squeue_shows_under_another_word_gets_paths() {
    for (shown, base) in
        [("configuring", "running"), ("suspended", "suspended"), ("resv_del_hold", "pending")]
    {
        let ann = UserJobs {
            name: Some("ann".to_owned()),
            has_started: true,
            states: of_cpus(shown, base, 9),
            ..UserJobs::default()
        };
        let jobs = Jobs { users: vec![ann], ..Jobs::default() };
        let mut collector = started(&COLLECTOR, &[(USERS.key, Value::Users(1))]);
        let replies = SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)));
        let points = surveyed(&mut collector, 1000, &replies);
        has_all(&points, &[&format!("c.slurm_jobs.user.ann.state.{shown}.gauge-cpus 9")]);
    }
}

#[test]
fn users_and_others_are_all_jobs_and_a_name_that_is_looked_up_makes_no_path() {
    let user = |id, name: Option<&str>, cpus| UserJobs {
        id,
        name: name.map(str::to_owned),
        looking_up: name.is_none(),
        has_started: true,
        states: of_cpus("pending", "pending", cpus),
    };
    let users = vec![user(1, Some("ann"), 9), user(2, Some("bob"), 5), user(3, None, 700)];
    let jobs = Jobs { users, ..Jobs::default() };
    let mut collector = started(&COLLECTOR, &[(USERS.key, Value::Users(2))]);
    let points = surveyed(
        &mut collector,
        1000,
        &SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs))),
    );
    let users: Vec<&String> = points
        .iter()
        .filter(|p| p.contains(".user.") && p.contains("pending.gauge-cpus"))
        .collect();
    assert_eq!(
        users,
        ["c.slurm_jobs.user.ann.state.pending.gauge-cpus 9"],
        "the first two are he and one without a name"
    );
    assert!(
        points.contains(&"c.slurm_jobs.others.state.pending.gauge-cpus 705".to_owned()),
        "{points:#?}"
    );
    assert!(collector.paths.changed_memory().unwrap().contains("ann"));
    let none = SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::default()));
    let later = surveyed(&mut collector, 1060, &none);
    let of_users: Vec<&String> = later.iter().filter(|point| point.contains(".user.")).collect();
    assert!(
        of_users.iter().any(|point| point.ends_with("ann.state.pending.gauge-cpus 0")),
        "{later:#?}"
    );
    assert!(of_users.iter().all(|point| point.ends_with(" 0")), "{of_users:#?}");
    let later = surveyed(&mut collector, 1120, &none);
    assert!(!later.iter().any(|point| point.contains(".user.")), "{later:#?}");
}

fn jobs_of(kind: &str, names: impl IntoIterator<Item = (String, bool)>) -> SurveyReplies {
    let named =
        |(name, has_started)| (name, NamedJobs { states: states(&[("pending", 1)]), has_started });
    let names = names.into_iter().map(named).collect();
    let named = NamedRows { names, ..NamedRows::default() };
    let mut jobs = Jobs::default();
    *(if kind == "account" { &mut jobs.accounts } else { &mut jobs.qos }) = named;
    SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)))
}

/// `sbatch -H -A rnd$i` by anybody made 15 files each, and a zero in each of them in every round;
/// from 24.11 on `sbatch -q rnd$i` too.
#[test]
fn invented_accounts_and_qos_make_no_series_and_a_slot_that_is_free_again_one_last_zero() {
    invented("account", ["no_account", "other_accounts", "account.physics"]);
    invented("qos", ["no_qos", "other_qos", "qos.physics"]);
}

fn invented(kind: &str, expected: [&str; 3]) {
    let jobs_of = |names: Vec<(String, bool)>| jobs_of(kind, names);
    let mut collector = started(&COLLECTOR, &[(ACCOUNTS.key, Value::Names(2))]);
    let real = ["", "physics"].map(|name| (name.to_owned(), true));
    let invented = (0..150).map(|n| (format!("rnd{n}"), false));
    let points = surveyed(&mut collector, 0, &jobs_of(real.into_iter().chain(invented).collect()));
    let levels = |points: &[String]| {
        let is_level =
            |point: &&String| point.contains(kind) && point.contains("pending.gauge-jobs");
        points.iter().filter(is_level).cloned().collect::<Vec<_>>()
    };
    let expected = expected.map(|level| format!("c.slurm_jobs.{level}.state.pending.gauge-jobs"));
    let jobs = [" 1", " 150", " 1"];
    let points = levels(&points);
    assert_eq!(points.len(), 3, "{points:#?}");
    for (path, jobs) in expected.iter().zip(jobs) {
        assert!(points.contains(&format!("{path}{jobs}")), "{path} {points:#?}");
    }
    let memory = collector.paths.changed_memory().unwrap();
    assert!(memory.contains("physics") && !memory.contains("rnd"), "{memory}");
    let mut again = remembering(&COLLECTOR, &[(ACCOUNTS.key, Value::Names(2))], Some(&memory));
    let points = surveyed(&mut again, 60, &jobs_of(Vec::new()));
    let physics: Vec<_> =
        points.iter().filter(|point| point.contains("physics.state.pending.gauge-jobs")).collect();
    assert_eq!(
        physics,
        [&format!("{} 0", expected[2])],
        "another start knows which kind of name has paths"
    );
    let zero = format!("{} 0", expected[2]);
    assert!(surveyed(&mut collector, 29 * 86_400, &jobs_of(Vec::new())).contains(&zero));
    let later =
        surveyed(&mut collector, 30 * 86_400, &jobs_of(vec![("physics".to_owned(), false)]));
    let physics: Vec<_> =
        later.iter().filter(|point| point.contains("physics.state.pending.gauge-jobs")).collect();
    assert_eq!(physics, [&zero], "its last round, while its jobs are among the others");
    let later = surveyed(&mut collector, 30 * 86_400 + 60, &jobs_of(Vec::new()));
    assert!(!later.iter().any(|point| point.contains("physics")), "{later:#?}");
}

/// The reader has counted each job with another QOS once.
#[test]
fn the_rest_of_the_rows_is_among_the_others() {
    let mut collector = started(&COLLECTOR, &[]);
    let names = ["high", "x", ""].map(|name| {
        (
            name.to_owned(),
            NamedJobs { states: states(&[("pending", 3)]), has_started: name == "high" },
        )
    });
    let qos = NamedRows { names: names.into(), rest: states(&[("pending", 40)]) };
    let jobs = Jobs { qos, ..Jobs::default() };
    let replies = SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)));
    let points = surveyed(&mut collector, 0, &replies);
    let is_qos = |point: &&String| point.contains("qos") && point.contains("pending.gauge-jobs");
    let mut seen: Vec<&str> = points.iter().filter(is_qos).map(String::as_str).collect();
    seen.sort_unstable();
    let expected = [("no_qos", 3), ("other_qos", 43), ("qos.high", 3)];
    let expected = expected
        .map(|(level, jobs)| format!("c.slurm_jobs.{level}.state.pending.gauge-jobs {jobs}"));
    assert_eq!(seen, expected);
    let kept = collector.collector.published_jobs(&collector.paths).unwrap();
    assert_eq!((kept.qos, kept.accounts.len()), (["high".to_owned()].into(), 0));
}

#[test]
fn a_user_whose_jobs_never_started_gets_no_paths() {
    let user = |id, name: &str, has_started| UserJobs {
        id,
        name: Some(name.to_owned()),
        looking_up: false,
        has_started,
        states: of_cpus("pending", "pending", 9),
    };
    let mut collector = started(&COLLECTOR, &[(USERS.key, Value::Users(1))]);
    let mut paths = |at, users: Vec<UserJobs>| {
        let jobs = Jobs { users, ..Jobs::default() };
        let replies = SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)));
        let points = surveyed(&mut collector, at, &replies);
        points
            .into_iter()
            .filter(|point| point.contains(".user.") && point.contains("pending.gauge-jobs"))
            .collect::<Vec<_>>()
    };
    let expected = ["c.slurm_jobs.user.bob.state.pending.gauge-jobs 1"];
    assert_eq!(paths(1000, vec![user(1, "ann", false), user(2, "bob", true)]), expected);
    assert_eq!(
        paths(1060, vec![user(1, "ann", false), user(2, "bob", false)]),
        expected,
        "once they have them"
    );
}

#[test]
fn the_same_reply_again_tells_of_no_start_and_of_longer_waits() {
    let mut collector = started(&COLLECTOR, &[]);
    let findings = SurveyReplies::with_only(ReplyKind::Jobs, Reply::Jobs(Box::new(queue())));
    surveyed(&mut collector, 1000, &findings);
    let again = surveyed(&mut collector, 1060, &findings);
    assert!(again.contains(&"c.slurm_jobs.waiting.gauge-wait_max 960".to_owned()), "{again:#?}");
    let started: Vec<&String> = again.iter().filter(|point| point.contains("started")).collect();
    assert_eq!(started.len(), 2, "no wait of jobs that did not start: {started:?}");
    assert!(started.iter().all(|point| point.ends_with(".waiting.gauge-started 0")), "{started:?}");
}
