//! Jobs compared with squeue.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use sandbox::wait;
use slurm_snapshot::{JobStates, JobTally, Jobs, Moments, Reply};

use super::cast::Cast;
use super::oracle::{self, Row, by, has_ended, pending};
use super::{between, reply};

/// The states that must occur among these jobs.
///
/// Of the others, out_of_memory needs a cgroup, boot_fail and reconfig_fail need a plugin for node
/// features, and revoked needs a federation. Resizing is over before anybody can look, and a
/// requeued job is completing until it is pending.
const STATES: &str = "PENDING RUNNING SUSPENDED COMPLETING COMPLETED FAILED CANCELLED CONFIGURING \
    NODE_FAIL SPECIAL_EXIT PREEMPTED DEADLINE TIMEOUT STOPPED SIGNALING RESV_DEL_HOLD";

/// The reasons for waiting that must occur among these jobs.
const REASONS: &str = "Dependency JobHeldUser JobHeldAdmin BeginTime Resources JobArrayTaskLimit \
    PartitionDown Licenses DependencyNeverSatisfied ReservationDeleted";

pub(crate) fn compare(cast: &Cast) -> Result<()> {
    let missing = |column, expected: &str| {
        let jobs = oracle::jobs(&cast.slurm).unwrap_or_default();
        let seen: BTreeSet<String> = jobs.iter().map(|job| reason(&job[column])).collect();
        let missing = expected.split(' ').filter(|word| !seen.contains(*word));
        missing.map(str::to_owned).collect::<Vec<_>>()
    };
    // In a sandbox, 20.11 has no burst buffer.
    let stage_out = if cast.knows("21.08") { " STAGE_OUT" } else { "" };
    for (column, expected) in
        [("state", STATES.to_owned() + stage_out), ("reason", REASONS.to_owned())]
    {
        wait::until("jobs with all of them", wait::LIMIT, || missing(column, &expected).is_empty())
            .with_context(|| format!("{column}: {:?}", missing(column, &expected)))?;
    }

    let request = r#"{"jobs":{"id":1,"kept":{"accounts":[],"qos":[],"started_since":1},"#
        .to_owned()
        + r#""options":{"accounts":true,"qos":true,"users":true}}}"#;
    let (rows, reply) = between(|| reply(cast, &request), || oracle::jobs(&cast.slurm))?;
    let Reply::Jobs(jobs) = reply else { anyhow::bail!("{reply:?}") };
    ensure!(rows.len() >= 90, "only {} jobs", rows.len());
    ensure!(jobs.unparsed == 0, "{} texts were not understood", jobs.unparsed);
    counts(&rows, &jobs);
    waits(&rows, &jobs);
    Ok(())
}

/// A reply that has not changed is not sent again; jobs always are while one waits.
pub(crate) fn compare_unchanged(cast: &Cast) -> Result<()> {
    wait::until("a second without a change of any reservation", wait::LIMIT, || {
        let Ok(Reply::Reservations(known)) = reply(cast, r#"{"reservations":{"id":1}}"#) else {
            return false;
        };
        let again = |kind| {
            reply(cast, &format!("{{\"{kind}\":{{\"id\":2,\"since\":{}}}}}", known.last_update))
        };
        matches!((again("reservations"), again("jobs")), (Ok(Reply::Unchanged), Ok(Reply::Jobs(_))))
    })
    .map(drop)
}

fn counts(rows: &[Row], jobs: &Jobs) {
    let waits = |job: &&Row| pending(job);
    let none = |text: &str| if text == "(null)" { String::new() } else { text.to_owned() };
    assert_states(&jobs.states, rows.iter(), "all");
    // Some request memory per node or per CPU; the others have DefMemPerCPU, 10.
    let default = |state| jobs.states.shown[state].cpus.map(|cpus| 10 * cpus);
    for state in ["pending", "running"] {
        assert!(
            jobs.states.shown[state].memory > default(state),
            "{state}: {:?}",
            jobs.states.shown
        );
    }
    let reasons = by(rows.iter().filter(waits), |job| vec![reason(&job["reason"])]);
    assert_eq!(jobs.pending_reasons, reasons, "by reason");
    // A name that is repeated counts once.
    let list = |text: &str| BTreeSet::from_iter(text.split(',').map(str::to_owned));
    let partitions = by(rows, |job| list(&job["partition"]).into_iter().collect());
    assert_eq!(jobs.partitions.keys().collect::<Vec<_>>(), partitions.keys().collect::<Vec<_>>());
    for (name, partition) in &jobs.partitions {
        let here = |job: &&Row| job["partition"].split(',').any(|other| other == name);
        assert_states(&partition.states, rows.iter().filter(here), name);
        let reasons =
            by(rows.iter().filter(here).filter(waits), |job| vec![reason(&job["reason"])]);
        assert_eq!(partition.pending_reasons, reasons, "by reason in {name}");
    }
    for (name, account) in &jobs.accounts.names {
        let here = rows.iter().filter(|job| none(&job["account"]) == *name);
        assert_states(&account.states, here, name);
    }
    for (name, qos) in &jobs.qos.names {
        let here = rows.iter().filter(|job| none(&job["qos"]).to_lowercase() == *name);
        assert_states(&qos.states, here, name);
    }
    for user in &jobs.users {
        let id = user.id.to_string();
        assert_states(&user.states, rows.iter().filter(|job| job["userid"] == id), &id);
    }
    // From 24.11 on any user may invent a QOS, which has a name here once a job with it has started.
    let started = rows.iter().filter(|job| !job["nodelist"].is_empty());
    let names = |rows: &[&Row], column| {
        rows.iter().map(|job| job[column].clone()).collect::<BTreeSet<_>>().len()
    };
    let (all, started) = (rows.iter().collect::<Vec<_>>(), started.collect::<Vec<_>>());
    let expected = (names(&started, "account"), names(&started, "qos"), names(&all, "userid"));
    assert_eq!((jobs.accounts.names.len(), jobs.qos.names.len(), jobs.users.len()), expected);
}

/// The words are squeue's; who waits and who has nodes is seen by the jobs' nodes and ends.
fn assert_states<'a>(states: &JobStates, rows: impl Iterator<Item = &'a Row> + Clone, whose: &str) {
    assert_eq!(
        states.shown,
        by(rows.clone(), |job| vec![job["state"].to_lowercase()]),
        "by state: {whose}"
    );
    let mut unfinished = JobTally::default();
    rows.clone().filter(|job| !has_ended(job)).for_each(|job| unfinished.add(oracle::tally(job)));
    let mut waiting = JobTally::default();
    rows.filter(|job| pending(job)).for_each(|job| waiting.add(oracle::tally(job)));
    assert_eq!(states.pending(), waiting, "pending: {whose}");
    assert_eq!(states.unfinished_cpus(), unfinished.cpus.unwrap_or(0), "CPUs: {whose}");
    let suspended = states.shown.get("suspended").map_or(0, |tally| tally.jobs);
    assert_eq!(
        states.running().jobs,
        unfinished.jobs - waiting.jobs - suspended,
        "running: {whose}"
    );
}

fn waits(rows: &[Row], jobs: &Jobs) {
    let now = jobs.last_update;
    let time = |text: &str| text.parse::<i64>().ok();
    let oldest = |partition: Option<&str>, column: &'static str| {
        let here = |job: &&Row| {
            partition.is_none_or(|name| job["partition"].split(',').any(|other| other == name))
        };
        let may_run = |job: &&Row| column == "submittime" || job["prioritylong"] != "0";
        let waiting = rows.iter().filter(|job| pending(job)).filter(here).filter(may_run);
        moments(
            waiting.filter_map(|job| time(&job[column])).filter(|since| *since <= now).collect(),
        )
    };
    assert_eq!(jobs.waiting.submitted, oldest(None, "submittime"));
    assert_eq!(jobs.waiting.eligible, oldest(None, "eligibletime"));
    assert!(jobs.waiting.eligible.unwrap().jobs > 20);
    for (name, partition) in &jobs.partitions {
        assert_eq!(partition.waiting.submitted, oldest(Some(name), "submittime"), "{name}");
        assert_eq!(partition.waiting.eligible, oldest(Some(name), "eligibletime"), "{name}");
    }

    // The nodes of configuring jobs are booting, so these jobs start when their nodes are up.
    let is_booting = |job: &&Row| job["state"] == "CONFIGURING";
    let started =
        rows.iter().filter(|job| !pending(job) && !is_booting(job) && !job["nodelist"].is_empty());
    let mut waits: Vec<i64> = started
        .map(|job| (job, time(&job["starttime"]).unwrap()))
        .filter(|(_, start)| *start < now)
        .map(|(job, start)| start - time(&job["eligibletime"]).unwrap())
        .collect();
    waits.sort_unstable();
    let seen = jobs.started.unwrap();
    assert_eq!(usize::try_from(seen.jobs).unwrap(), waits.len());
    assert!(seen.jobs >= 10, "{seen:?}");
    assert_eq!(i64::try_from(seen.max).unwrap(), *waits.last().unwrap());
    assert_eq!(i64::try_from(seen.p50).unwrap(), waits[waits.len().div_ceil(2) - 1]);
}

fn moments(mut since: Vec<i64>) -> Option<Moments> {
    // The longest wait comes last.
    since.sort_unstable_by_key(|since| std::cmp::Reverse(*since));
    let rank = |tenths: usize| since[(since.len() * tenths).div_ceil(10) - 1];
    if since.is_empty() {
        return None;
    }
    Some(Moments {
        jobs: u64::try_from(since.len()).unwrap(),
        p50: rank(5),
        p90: rank(9),
        max: rank(10),
    })
}

/// If slurmctld knows more, squeue shows a sentence instead of the reason.
fn reason(text: &str) -> String {
    if text.starts_with("Nodes required for job") {
        return "Resources".to_owned();
    }
    if ["job requeued in held state", "launch failed requeued held"].contains(&text) {
        return "JobHeldUser".to_owned();
    }
    if text.starts_with("Reservation") && text.ends_with("deleted") {
        return "ReservationDeleted".to_owned();
    }
    text.split(',').next().unwrap_or_default().to_owned()
}
