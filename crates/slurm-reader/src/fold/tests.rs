//! Totals are the sums of their parts, and each job counts where squeue shows it.

use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_000_000;
const OPTIONS: ReplyOptions = ReplyOptions {
    accounts: true,
    qos: true,
    users: true,
    rpc: false,
    partitions: false,
    rows: false,
    features: false,
    marks: false,
    states_only: false,
    follow: false,
    steps: false,
};

fn counted(jobs: &[Job<'_>]) -> Jobs {
    counted_with(None, jobs)
}

fn counted_with(kept: Option<PublishedJobs>, jobs: &[Job<'_>]) -> Jobs {
    let mut fold = JobsFold::new(NOW, NOW + 2, Some(NOW - 60), OPTIONS, kept);
    for job in jobs {
        fold.add(job);
    }
    fold.finish()
}

fn one() -> Job<'static> {
    let tally = JobTally {
        jobs: 1,
        cpus: Some(4),
        nodes: Some(1),
        memory: Some(2000),
        ..JobTally::default()
    };
    Job {
        partition: b"debug",
        tally,
        submit_time: Some(NOW - 100),
        eligible_time: NOW - 90,
        ..Job::default()
    }
}

fn sum<'a>(tallies: impl IntoIterator<Item = &'a JobTally>) -> JobTally {
    tallies.into_iter().fold(JobTally::default(), |mut sum, tally| {
        sum.add(*tally);
        sum
    })
}

#[test]
fn a_job_that_waits_in_two_partitions_counts_in_each_and_once_in_all() {
    let jobs = counted(&[Job { partition: b"debug,gpu", ..one() }]);
    assert_eq!(jobs.states.shown["pending"].jobs, 1);
    assert_eq!(jobs.partitions["debug"].states.shown["pending"].cpus, Some(4));
    assert_eq!(jobs.partitions["gpu"].states.shown["pending"].cpus, Some(4));
    assert_eq!(jobs.waiting.submitted.unwrap().jobs, 1);
}

/// slurmctld has the list of a pending job as its user has written it: `-p debug,debug,gpu` counted
/// twice, and `-p debug,` in a partition without a name.
#[test]
fn each_partition_in_a_list_counts_once() {
    let jobs = counted(&[Job { partition: b"debug,debug,,gpu,", ..one() }]);
    let pending: Vec<_> = jobs
        .partitions
        .iter()
        .map(|(name, of)| (name.as_str(), of.states.pending().jobs))
        .collect();
    assert_eq!(pending, [("debug", 1), ("gpu", 1)]);
}

fn pending(rows: &NamedRows) -> Vec<(&str, u64)> {
    let pending = |states: &JobStates| states.pending().jobs;
    let names = rows.names.iter().map(|(name, jobs)| (name.as_str(), pending(&jobs.states)));
    names.chain([("rest", pending(&rows.rest))]).collect()
}

/// From 24.11 on a pending job has the text that its user has written. One with `-q a,b` counted as
/// two of the other QOS, and `-q high,high` twice.
#[test]
fn a_job_with_several_qos_counts_in_each_that_is_kept_and_once_in_the_rest() {
    let texts = ["high", "normal", "high,,HIGH,", "normal,high", "a,b,high", "a,b", "", ",", "a"];
    let jobs = texts.map(|qos| Job { qos: qos.as_bytes(), ..one() });
    let names = ["high", "normal", "unused"].map(str::to_owned).into();
    let kept = counted_with(Some(PublishedJobs { qos: names, ..PublishedJobs::default() }), &jobs);
    assert_eq!(pending(&kept.qos), [("", 2), ("a", 1), ("high", 4), ("normal", 2), ("rest", 2)]);
    let every = counted(&jobs);
    let expected = [("", 2), ("a", 3), ("b", 2), ("high", 4), ("normal", 2), ("rest", 0)];
    assert_eq!(pending(&every.qos), expected, "a command shows all of them");
}

/// 15,000 held jobs, each with an account of 990 bytes, made a line of over 64 MiB, and nothing was
/// read any more.
#[test]
fn invented_accounts_are_at_most_so_many_rows_and_take_nobodys_row_away() {
    let job = |account: &'static [u8], started| Job {
        account,
        state: u32::from(started),
        has_nodes: started,
        ..one()
    };
    let invented = |n: usize| [&[0xff; 980][..], format!("{n:08}").as_bytes()].concat();
    let names: Vec<Vec<u8>> = (0..MOST_ROWS + 500).map(invented).collect();
    let kept = PublishedJobs { accounts: ["kept".to_owned()].into(), ..PublishedJobs::default() };
    let mut fold = JobsFold::new(NOW, NOW + 2, None, OPTIONS, Some(kept));
    names.iter().for_each(|account| fold.add(&Job { account, ..one() }));
    for job in [
        job(b"kept", false),
        job(b"runs", true),
        job(b"runs", false),
        job(b"", false),
        job(b"late", false),
    ] {
        fold.add(&job);
    }
    names.iter().take(10).for_each(|account| fold.add(&Job { account, ..one() }));
    let rows = fold.finish().accounts;
    assert_eq!(rows.names.len(), MOST_ROWS + 3);
    assert!(["kept", "runs", ""].iter().all(|name| rows.names.contains_key(*name)));
    assert_eq!(
        rows.rest.shown["pending"].jobs, 501,
        "those above the bound, and one that came later"
    );
    let all = rows.names.values().map(|jobs| &jobs.states).chain([&rows.rest]);
    assert_eq!(sum(all.flat_map(|states| states.shown.values())).jobs, names.len() as u64 + 15);
    assert!(rows.names.keys().all(|name| name.len() <= slurm_snapshot::LONGEST_NAME));
    let line = serde_json::to_vec(&rows).unwrap().len();
    assert!(line < 8 << 20, "{line} bytes");
}

#[test]
fn a_completing_job_is_not_what_it_ended_as() {
    let jobs = counted(&[Job { state: 0x8003, ..one() }]);
    assert_eq!(jobs.states.shown.keys().collect::<Vec<_>>(), ["completing"]);
}

/// Jobs that lost their reservation waited in no partition, and their account was not in `stats
/// --jobs`.
#[test]
fn a_job_waits_or_runs_whatever_flag_squeue_shows_instead() {
    let pending = (1, 0);
    let running = (0, 1);
    let neither = (0, 0);
    for (state, shown, expected) in [
        (1 << 12, "special_exit", pending),
        (1 << 15, "completing", pending),
        (1 << 21, "resv_del_hold", pending),
        (1 << 19, "revoked", neither),
        (1, "running", running),
        (1 | 1 << 13, "resizing", running),
        (1 | 1 << 14, "configuring", running),
        (1 | 1 << 16, "stopped", running),
        (1 | 1 << 22, "signaling", running),
        (1 | 1 << 19, "revoked", neither),
        (2, "suspended", neither),
        (3 | 1 << 15, "completing", neither),
    ] {
        let jobs = counted(&[Job { state, ..one() }]);
        let names = [&jobs.accounts, &jobs.qos].map(|rows| &rows.names[""].states);
        for states in [&jobs.states, &jobs.partitions["debug"].states, &jobs.users[0].states]
            .into_iter()
            .chain(names)
        {
            assert_eq!(states.shown.keys().collect::<Vec<_>>(), [shown], "{state:#x}");
            assert_eq!((states.pending().jobs, states.running().jobs), expected, "{state:#x}");
        }
        let waits = jobs.waiting.submitted.map_or(0, |waits| waits.jobs);
        assert_eq!(waits, expected.0, "{state:#x}");
        assert_eq!(
            jobs.states.unfinished_cpus(),
            if expected == neither && state != 2 { 0 } else { 4 },
            "{state:#x}"
        );
    }
}

#[test]
fn who_may_not_run_yet_has_waited_since_submission_only() {
    for job in [
        Job { held: true, ..one() },
        Job { eligible_time: 0, ..one() },
        Job { eligible_time: NOW + 3600, ..one() },
    ] {
        let waiting = counted(&[job]).waiting;
        assert_eq!((waiting.submitted.unwrap().max, waiting.eligible), (NOW - 100, None));
    }
    assert_eq!(counted(&[one()]).waiting.eligible.unwrap().max, NOW - 90);
    assert_eq!(counted(&[Job { state: 1, ..one() }]).waiting, Waiting::default());
}

/// slurmctld sends the present moment for a plan that has passed, and while it writes a long reply,
/// that moment moves on; a user's `--begin` for a job without a plan; and the latest start of any
/// job for one that waits for a burst buffer.
#[test]
fn an_expected_start_is_a_plan_only_if_backfill_made_it() {
    const STAGING: u32 = slurm_sys::WAIT_BURST_BUFFER_STAGING;
    const RESOURCES: u32 = slurm_sys::WAIT_BURST_BUFFER_RESOURCE;
    let planned = 0;
    let overdue = 1;
    let unplanned = 2;
    let later = Job { start_time: NOW + 500, ..one() };
    for (job, class) in [
        (later, planned),
        (Job { start_time: NOW + 4, ..later }, planned),
        (Job { start_time: NOW + 3, ..later }, overdue),
        (Job { start_time: NOW, ..later }, overdue),
        (Job { start_time: NOW - 100, ..later }, overdue),
        (Job { start_time: 0, ..later }, unplanned),
        (Job { eligible_time: NOW + 500, ..later }, unplanned),
        (Job { eligible_time: 0, ..later }, planned),
        (Job { held: true, ..later }, unplanned),
        (Job { reason: STAGING, ..later }, unplanned),
        (Job { reason: RESOURCES, ..later }, unplanned),
    ] {
        let jobs = counted(&[job]);
        let expected = jobs.expected;
        let records =
            [expected.planned, expected.overdue, expected.unplanned].map(|class| class.records);
        assert_eq!(records.iter().position(|&records| records > 0), Some(class), "{job:?}");
        assert_eq!(records.iter().sum::<u64>(), 1);
        assert_eq!(
            expected.starts.map(|starts| starts.max),
            (class == planned).then_some(job.start_time)
        );
        assert_eq!(jobs.partitions["debug"].expected, expected);
    }
    let others = [Job { state: 1, ..later }, Job { state: 1 << 19, ..later }];
    assert_eq!(counted(&others).expected, Expected::default(), "they do not wait");
}

/// An array's record has one start time: from 23.02 on that of its next task, before that of a
/// later one.
#[test]
fn the_waiting_tasks_of_an_array_are_one_plan() {
    let array =
        Job { tally: JobTally { jobs: 1000, ..one().tally }, start_time: NOW + 900, ..one() };
    let single = |start| Job { start_time: NOW + start, ..one() };
    let expected = counted(&[array, single(100), single(200)]).expected;
    assert_eq!(expected.planned, Expecting { records: 3, jobs: 1002 });
    let starts = expected.starts.unwrap();
    let is_next = version::built_for() >= Release::new(23, 2);
    assert_eq!(
        (starts.p50, starts.max),
        if is_next { (NOW + 200, NOW + 900) } else { (NOW + 100, NOW + 200) }
    );
}

#[test]
fn a_start_belongs_to_one_interval_and_a_cancelled_job_has_none() {
    let running = |start_time| Job { state: 1, has_nodes: true, start_time, ..one() };
    let started = |job| counted(&[job]).started.unwrap().jobs;
    assert_eq!(started(running(NOW - 60)), 1, "the second of the previous reading is this one's");
    assert_eq!(started(running(NOW - 61)), 0);
    assert_eq!(started(running(NOW)), 0, "the present second is the next one's");
    assert_eq!(counted(&[running(NOW - 30)]).started.unwrap().max, 60);
    assert_eq!(
        started(Job { has_nodes: false, ..running(NOW - 30) }),
        0,
        "cancelled before its start"
    );
    assert_eq!(started(Job { state: 0, ..running(NOW - 30) }), 0, "expected to start");
}

/// slurmctld sets the start time of such a job again when its nodes are up.
#[test]
fn a_job_whose_nodes_are_being_booted_starts_once() {
    const BOOTING: u32 = 1 | 1 << 14 | 1 << 18;
    let started = |state, start_time| {
        counted(&[Job { state, has_nodes: true, start_time, ..one() }]).started.unwrap()
    };
    assert_eq!(started(BOOTING, NOW - 30).jobs, 0, "at its allocation");
    let booted = started(1, NOW - 10);
    assert_eq!(
        (booted.jobs, booted.max),
        (1, 80),
        "when its nodes are up; the boot is part of its wait"
    );
    // Its prolog is running, and its start time will not change again.
    assert_eq!(started(1 | 1 << 14, NOW - 30).jobs, 1);
}

#[test]
fn a_job_of_a_federation_that_another_cluster_runs_does_not_wait_here() {
    let jobs = counted(&[Job { state: 1 << 19, reason: 1, ..one() }]);
    assert_eq!(jobs.states.shown.keys().collect::<Vec<_>>(), ["revoked"]);
    assert_eq!((jobs.waiting, jobs.pending_reasons.len()), (Waiting::default(), 0));
    assert_eq!(jobs.partitions["debug"].waiting, Waiting::default());
}

#[test]
fn reasons_are_those_of_pending_jobs() {
    let jobs = counted(&[
        Job { reason: 9, ..one() },
        Job { reason: 60_000, ..one() },
        Job { state: 5, reason: 24, ..one() },
    ]);
    assert_eq!(jobs.pending_reasons["BeginTime"].jobs, 1);
    assert_eq!(jobs.pending_reasons["other"].jobs, 1);
    assert_eq!(jobs.pending_reasons.len(), 2);
}

#[test]
fn names_that_are_no_text_stay_apart() {
    let jobs = counted(&[Job { account: b"\xff", ..one() }, Job { account: b"\xfe", ..one() }]);
    assert_eq!(jobs.accounts.names.len(), 2);
}

/// A name that anybody can invent shows itself by jobs that wait, or that were cancelled before
/// they started.
#[test]
fn a_name_has_started_once_one_of_its_jobs_has_had_nodes() {
    let job = |account: &'static [u8], state, has_nodes| Job { account, state, has_nodes, ..one() };
    let jobs = counted(&[
        job(b"held", 0, false),
        job(b"cancelled", 4, false),
        job(b"planned", 0, true),
        job(b"real", 0, false),
        job(b"real", 3, true),
        Job { user: 7, ..job(b"boots", 1 | 1 << 14 | 1 << 18, true) },
    ]);
    let started = |name: &str| jobs.accounts.names[name].has_started;
    let names = ["held", "cancelled", "planned", "real", "boots"];
    assert_eq!(names.map(started), [false, false, false, true, true]);
    assert_eq!(jobs.users.iter().map(|user| user.has_started).collect::<Vec<_>>(), [true, true]);
}

const fn is_pending(job: &Job<'_>) -> bool {
    job.state & 0x8_00ff == 0
}

prop_compose! {
    fn any_job()(
        state in prop_oneof![0_u32..14, any::<u32>()],
        reason in any::<u32>(),
        user in 0_u32..5,
        partition in 0_usize..5,
        account in 0_usize..4,
        (jobs, cpus, nodes, gpus, memory) in (1_u64..1000, any::<u32>(), any::<u32>(),
            any::<u16>(), any::<u32>()),
        (submit_time, eligible_time, start_time) in (any::<i64>().prop_map(Some), any::<i64>(), any::<i64>()),
        (held, has_nodes) in any::<(bool, bool)>(),
    ) -> Job<'static> {
        const NAMES: [&[u8]; 5] = [b"", b"debug", b"debug,gpu", b"a,b,c", b"\xff,"];
        Job {
            state, reason, user, submit_time, eligible_time, start_time, held, has_nodes,
            partition: NAMES[partition],
            account: NAMES[account],
            qos: NAMES[account],
            tally: JobTally {
                jobs,
                cpus: Some(cpus.into()),
                nodes: Some(nodes.into()),
                gpus: Some(gpus.into()),
                memory: Some(memory.into()),
                oldest: None,
            },
            unparsed: 0,
        }
    }
}

proptest! {
    #[test]
    fn totals_are_the_sums_of_their_parts(list in prop::collection::vec(any_job(), 0..60)) {
        let jobs = counted(&list);
        let tally = |job: &Job<'_>| JobTally { oldest: job.submit_time.filter(|_| is_pending(job)),
            ..job.tally };
        let total = sum(list.iter().map(tally).collect::<Vec<_>>().iter());
        prop_assert_eq!(sum(jobs.states.shown.values()), total);
        prop_assert_eq!(sum(jobs.accounts.names.values().flat_map(|account|
            account.states.shown.values())), total);
        prop_assert_eq!(sum(jobs.users.iter().flat_map(|user| user.states.shown.values())), total);
        let pending = sum(list.iter().filter(|job|
            is_pending(job)).map(tally).collect::<Vec<_>>().iter());
        prop_assert_eq!(sum(jobs.pending_reasons.values()), pending);
        prop_assert_eq!(jobs.states.pending(), pending);
        prop_assert_eq!(jobs.waiting.submitted.map_or(0, |waits| waits.jobs), pending.jobs);
        let Expected { planned, overdue, unplanned, starts } = jobs.expected;
        prop_assert_eq!(planned.jobs + overdue.jobs + unplanned.jobs, pending.jobs);
        let records = list.iter().filter(|job| is_pending(job)).count() as u64;
        prop_assert_eq!(planned.records + overdue.records + unplanned.records, records);
        prop_assert!(starts.is_none() || planned.records > 0);
        let mut in_partitions = JobTally::default();
        let mut pending = JobTally::default();
        let mut in_qos = JobTally::default();
        for job in &list {
            let names = job.qos.split(|&byte| byte == b',').filter(|name| !name.is_empty()).count();
            (0..names.max(1)).for_each(|_| in_qos.add(tally(job)));
            // In these lists no name occurs twice.
            let names = job.partition.split(|&byte|
                byte == b',').filter(|name| !name.is_empty()).count();
            for _ in 0..names.max(1) {
                in_partitions.add(tally(job));
                if is_pending(job) {
                    pending.add(tally(job));
                }
            }
        }
        let states = jobs.partitions.values().flat_map(|partition| partition.states.shown.values());
        prop_assert_eq!(sum(states), in_partitions);
        prop_assert_eq!(sum(jobs.qos.names.values().flat_map(|qos| qos.states.shown.values())),
            in_qos);
        prop_assert_eq!(jobs.qos.rest.shown.len() + jobs.accounts.rest.shown.len(), 0);
        let reasons = jobs.partitions.values().flat_map(|partition|
            partition.pending_reasons.values());
        prop_assert_eq!(sum(reasons), pending);
    }
}
