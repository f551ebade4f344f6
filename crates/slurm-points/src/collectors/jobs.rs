//! `slurm_jobs`: the queue, counted by state, partition, QOS, account, user and reason.
//!
//! The reader makes the counts from every record of the reply. A job that waits in several partitions counts in each of
//! them, and once everywhere else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slurm_snapshot::{
    Expected, JobTallies, JobTally, Jobs, Moments, NamedJobs, PartitionJobs, Reply, ReplyKind, ReplyOptions,
    Started, UserJobs, Waiting, add_states, qos_in, sum_of,
};

use super::{Begin, Collect, Collector, Start};
use crate::derive::seconds_since;
use crate::levels::{Level, Name, Points, Table};
use crate::metric::{Metric, mebibytes};
use crate::name_paths::NamePaths;
use crate::replies::SurveyReplies;
use crate::settings::{MOST_NAMES, QOS, STATES_ONLY, Setting, Value};
use crate::user_paths::{Candidate, SavedPath, UserPaths};
use crate::zero_fill::SeenStates;

const ACCOUNTS: Setting = Setting {
    key: "accounts",
    default: Value::Names(0),
    comment: "\
By account too: how many accounts have paths of their own; 0 for none, at most 1000. An account gets them when one of its
jobs has started, and loses them after 30 days without one. All others are in other_accounts. Five paths for each account
and each state that its jobs have ever been in, usually 25 to 35.",
};
const USERS: Setting = Setting {
    key: "users",
    default: Value::Users(0),
    comment: "\
By user too: publish the top N users by CPUs, and root and slurm; 0 for none, at most 200. Bounded like those of rpc_stats:
within 30 days 5 * users of them, each with five files for each state of the user's jobs.",
};

/// States that always have points, even if the queue is empty.
const ALWAYS: &[&str] = &["pending", "running"];

pub(super) const COLLECTOR: Collector = Collector {
    name: "jobs",
    comment: "The queue: jobs by state, partition, QOS and reason, and how long they wait: slurm_jobs.",
    settings: &[ACCOUNTS, QOS, USERS, STATES_ONLY],
    levels: &[LEVELS],
    replies: &[ReplyKind::Jobs],
    start: Start::Survey(|Begin { settings, memory, .. }| {
        let user_paths = UserPaths::of(settings, *memory);
        let memory = memory.and_then(|text| serde_json::from_str::<JobsMemory>(text).ok());
        let JobsMemory { accounts, qos, .. } = memory.unwrap_or_default();
        let most_qos = if settings.flag(&QOS) { MOST_NAMES } else { 0 };
        let accounts = NamedStates::new(settings.names(&ACCOUNTS), accounts);
        let qos = NamedStates::new(most_qos, qos);
        let options = ReplyOptions {
            accounts: accounts.is_some(),
            qos: qos.is_some(),
            states_only: settings.flag(&STATES_ONLY),
            users: user_paths.is_some(),
            ..ReplyOptions::default()
        };
        Box::new(JobsCollector { options, user_paths, accounts, qos, ..JobsCollector::default() })
    }),
};

levels! {
    LEVELS:
    TOTAL: Level<Table<Jobs>, 0> = ("slurm_jobs.total", ALL,
        "The queue: `[collectors.jobs]`, off by default, because slurmctld walks all jobs for it. Every \
         task of a job array counts as a job, and so does every component of a het job. slurmctld knows \
         jobs for MinJobAge (300 s by default) after their end, and they count here for that time.");
    STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.state.<state>", TALLY,
        "By state, in squeue's words (`squeue -o %T`) in lower case. From the first job in a state on there is \
         a point in every round; `pending` and `running` always have one.");
    REASON: Level<Table<JobTally>, 1> = ("slurm_jobs.reason.<reason>", TALLY,
        "Pending jobs by the reason that squeue shows: Priority and Resources mean a busy cluster; \
         Dependency, JobHeldUser and BeginTime are what the users asked for; every other reason deserves a \
         look.");
    WAITING: Level<Table<LevelWaits>, 0> = ("slurm_jobs.waiting", WAITS,
        "How long pending jobs have been waiting, and how long the jobs that started since the last round had waited. \
         Percentiles are exact (nearest rank). A path without jobs has no point.");
    PARTITION_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.partition.<partition>.state.<state>", TALLY, "By partition and state.");
    PARTITION_REASON: Level<Table<JobTally>, 2> = ("slurm_jobs.partition.<partition>.reason.<reason>", TALLY,
        "The pending jobs of one partition by reason: Resources and Priority in one partition while others \
         have idle nodes show where nodes are missing; PartitionDown and ReqNodeNotAvail need an \
         administrator. From the first job with a reason on there is a point in every round.");
    PARTITION_WAITING: Level<Table<LevelWaits>, 1> = ("slurm_jobs.partition.<partition>.waiting", WAITS,
        "The waiting times of one partition.");
    EXPECTED_START: Level<Table<Expectations>, 0> = ("slurm_jobs.expected_start", EXPECTED,
        "When pending jobs will start, by the plan that the backfill scheduler makes again in every cycle: it moves with each \
         job that ends early, is submitted or changes its priority. While a cycle is running, jobs that it has not \
         reached have no plan; if bf_max_job_test is small, most never have one. The start of a job at a limit, or after the end \
         of bf_window, is a rough guess. All waiting tasks of an array have one start, that of the next task, so they are one \
         record here. Percentiles are exact, by record.");
    PARTITION_EXPECTED_START: Level<Table<Expectations>, 1> = ("slurm_jobs.partition.<partition>.expected_start", EXPECTED,
        "The same for one partition. A job that waits in several has one plan, the earliest, which counts in each.");
    QOS_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.qos.<qos>.state.<state>", TALLY,
        "By QOS, in lower case, and state: `qos = true`, the default. A QOS gets paths when one of its jobs has started, as long as fewer than \
         1,000 have them, and loses them after 30 days without one; at first those with the most CPUs get them. From 24.11 on a pending job \
         has the QOS that its user has written. These may be several, and the job counts in each; without AccountingStorageEnforce they may \
         be any names. Jobs without a QOS are in `slurm_jobs.no_qos.state.<state>`.");
    NO_QOS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.no_qos.state.<state>", TALLY, "Jobs without a QOS, by state.");
    OTHER_QOS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.other_qos.state.<state>", TALLY,
        "The jobs that have a QOS without paths of its own, by state. A job counts here once, and also in those of its QOS that have paths.");
    ACCOUNT_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.account.<account>.state.<state>", TALLY,
        "By account and state: `accounts = N`; off by default, because a cluster may have thousands, and without \
         AccountingStorageEnforce any user can invent names. An account gets paths when one of its jobs has \
         started, as long as fewer than N have them, and loses them after 30 days without one; at first those \
         with the most CPUs get them. Jobs without an account are in `slurm_jobs.no_account.state.<state>`.");
    NO_ACCOUNT_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.no_account.state.<state>", TALLY, "Jobs without an account, by state.");
    OTHER_ACCOUNTS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.other_accounts.state.<state>", TALLY,
        "The jobs of all accounts without paths of their own, by state.");
    USER_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.user.<user>.state.<state>", TALLY,
        "By user and state: only if `users` in `[collectors.jobs]` is above 0. The top `users` by CPUs, \
         allocated and requested, get paths for at least a day, from the first job on that has started; \
         `root` and `slurm` always have them. Within 30 days at most 5 × `users` (and those two) get paths, the last fifth only users with a tenth of \
         all these CPUs; everybody else is in `slurm_jobs.others`. With 5 figures for each state that makes \
         25 files for each state and each of `users` in 30 days. A user without jobs has no point.");
    OTHERS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.others.state.<state>", TALLY,
        "The jobs of all users without a path of their own. Together with the users' paths they are all \
         jobs.");
}

#[derive(Default)]
struct JobsCollector {
    options: ReplyOptions,
    states_seen: SeenStates,
    /// The jobs of a user who loses paths are among the others, so there are no zeroes.
    user_states_seen: SeenStates,
    /// `None` if users have no paths of their own.
    user_paths: Option<UserPaths>,
    accounts: Option<NamedStates>,
    qos: Option<NamedStates>,
    /// Of the last round: the same reply again shows no new starts.
    last_update: Option<i64>,
}

/// What is remembered across restarts.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct JobsMemory {
    users: Vec<SavedPath>,
    /// When a started job of each account that has paths was last seen, Unix seconds.
    accounts: BTreeMap<String, i64>,
    /// The same for each QOS.
    qos: BTreeMap<String, i64>,
}

/// Accounts or QOS, of which those with a started job have paths.
struct NamedStates {
    paths: NamePaths,
    /// A name that loses its paths gets no zeroes: its jobs are among the others.
    seen: SeenStates,
}

/// Where jobs of one kind of name are published, and the names in a text that the reader has counted by.
struct NamedLevels {
    own: &'static Level<Table<JobTally>, 2>,
    others: &'static Level<Table<JobTally>, 1>,
    none: &'static Level<Table<JobTally>, 1>,
    names: fn(&str) -> BTreeSet<&str>,
}

const OF_ACCOUNTS: NamedLevels = NamedLevels {
    own: &ACCOUNT_STATE,
    others: &OTHER_ACCOUNTS_STATE,
    none: &NO_ACCOUNT_STATE,
    names: |account| Some(account).filter(|name| !name.is_empty()).into_iter().collect(),
};
const OF_QOS: NamedLevels =
    NamedLevels { own: &QOS_STATE, others: &OTHER_QOS_STATE, none: &NO_QOS_STATE, names: qos_in };

struct LevelWaits {
    submitted: Option<Moments>,
    eligible: Option<Moments>,
    started: Option<Started>,
    now: i64,
}

struct Expectations {
    expected: Expected,
    now: i64,
}

/// The part of [`TALLY`] that is known with `states_only`.
const JOBS: &[Metric<JobTally>] = TALLY.split_at(1).0;

/// The part of [`ALL`] that is known with `states_only`.
const ALL_JOBS: &[Metric<Jobs>] = ALL.split_at(2).0;

levels! {
    /// With `states_only`.
    pub(super) OF_STATES:
    ONLY_TOTAL: Level<Table<Jobs>, 0> = ("slurm_jobs.total", ALL_JOBS, "");
    ONLY_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.state.<state>", JOBS, "");
}

metrics! {
    TALLY: JobTally =
        average(jobs, "count", "number of jobs; each task of an array counts"),
        average(cpus, "count", "CPUs allocated to these jobs, or requested by them while they are pending"),
        average(nodes, "count",
            "nodes allocated to or requested by these jobs; a node shared by several jobs is counted once for each"),
        average(gpus, "count", "GPUs allocated to or requested by these jobs"),
        average("memory", "bytes", |t| mebibytes(t.memory),
            "memory allocated to or requested by these jobs: `mem=` in scontrol's AllocTRES and ReqTRES. 0 if Slurm does not allocate memory");
    ALL: Jobs =
        average("jobs", "count", |j| sum(&j.states), "all jobs that slurmctld knows"),
        average(unparsed, "count",
            "texts in the reply that could not be parsed; above 0, GPUs, memory or array tasks are missing from the other figures"),
        average(records, "count",
            "records in slurmctld's reply, which MaxJobCount limits; the waiting tasks of an array are one record");
    WAITS: LevelWaits =
        average("wait_p50", "s", |w| w.since(w.submitted?.p50), "median time since the pending jobs were submitted"),
        average("wait_p90", "s", |w| w.since(w.submitted?.p90), "90th percentile of the same"),
        max("wait_max", "s", |w| w.since(w.submitted?.max), "time since the oldest pending job was submitted"),
        average("eligible_wait_p50", "s", |w| w.since(w.eligible?.p50),
            "median time since the pending jobs that may start became eligible"),
        average("eligible_wait_p90", "s", |w| w.since(w.eligible?.p90), "90th percentile of the same"),
        max("eligible_wait_max", "s", |w| w.since(w.eligible?.max), "longest time that an eligible job has waited"),
        average("started", "count", |w| w.started?.jobs,
            "jobs that started since the last round; a job whose nodes must boot starts when they are up. Too low if the interval is longer than MinJobAge"),
        average("started_wait_p50", "s", |w| w.some_started()?.p50, "median time that the started jobs had been eligible"),
        average("started_wait_p90", "s", |w| w.some_started()?.p90, "90th percentile of the same"),
        max("started_wait_max", "s", |w| w.some_started()?.max, "longest time that one of them had been eligible");
    EXPECTED: Expectations =
        average("planned", "count", |e| e.expected.planned.records, "records of pending jobs that have a plan"),
        average("planned_jobs", "count", |e| e.expected.planned.jobs, "jobs in these records; each task of an array counts"),
        average("overdue", "count", |e| e.expected.overdue.records,
            "records whose planned start has passed; the next cycle starts them or makes another plan"),
        average("overdue_jobs", "count", |e| e.expected.overdue.jobs, "jobs in these records"),
        average("unplanned", "count", |e| e.expected.unplanned.records,
            "all other records of pending jobs: held, waiting for another job, a begin time or a burst buffer, or not reached by backfill"),
        average("unplanned_jobs", "count", |e| e.expected.unplanned.jobs, "jobs in these records"),
        average("start_in_p50", "s", |e| e.until(e.expected.starts?.p50), "median time until the planned records start; absent if there is none"),
        average("start_in_p90", "s", |e| e.until(e.expected.starts?.p90), "90th percentile of the same"),
        average("start_in_p99", "s", |e| e.until(e.expected.starts?.p99), "99th percentile of the same"),
        max("start_in_max", "s", |e| e.until(e.expected.starts?.max), "time until the last planned record starts");
}

impl Expectations {
    fn until(&self, start: i64) -> u64 {
        seconds_since(self.now, start)
    }
}

impl Collect<SurveyReplies> for JobsCollector {
    fn options(&self) -> ReplyOptions {
        self.options
    }

    fn collect(&mut self, timestamp: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Jobs(jobs)) = replies.get(ReplyKind::Jobs) else { return };
        if jobs.states_only {
            points.push(&ONLY_TOTAL, [], jobs);
            self.states_seen.push(points, &ONLY_STATE, [], ALWAYS, &jobs.states);
            self.states_seen.end(points);
            return;
        }
        let is_new = self.last_update.replace(jobs.last_update) != Some(jobs.last_update);
        let now = replies.there(ReplyKind::Jobs, timestamp);
        let of_jobs = |moments: Option<Moments>| moments.filter(|moments| moments.jobs > 0);
        let waits = |waiting: &Waiting, started: Option<Started>| LevelWaits {
            submitted: of_jobs(waiting.submitted),
            eligible: of_jobs(waiting.eligible),
            // A start would have been a change.
            started: if is_new { started } else { Some(Started::default()) },
            now,
        };
        points.push(&TOTAL, [], jobs);
        self.states_seen.push(points, &STATE, [], ALWAYS, &jobs.states);
        self.states_seen.push(points, &REASON, [], &[], &jobs.pending_reasons);
        points.push(&WAITING, [], &waits(&jobs.waiting, jobs.started));
        points.push(&EXPECTED_START, [], &Expectations { expected: jobs.expected, now });
        for (name, partition) in &jobs.partitions {
            let &PartitionJobs { ref states, ref pending_reasons, ref waiting, started, expected } =
                partition;
            let name = || [Name::of(name)];
            self.states_seen.push(points, &PARTITION_STATE, name(), ALWAYS, states);
            self.states_seen.push(points, &PARTITION_REASON, name(), &[], pending_reasons);
            points.push(&PARTITION_WAITING, name(), &waits(waiting, started));
            points.push(&PARTITION_EXPECTED_START, name(), &Expectations { expected, now });
        }
        for (named, levels, rows) in
            [(&mut self.qos, &OF_QOS, &jobs.qos), (&mut self.accounts, &OF_ACCOUNTS, &jobs.accounts)]
        {
            if let Some(named) = named {
                named.push(levels, timestamp, points, rows, &mut self.states_seen);
            }
        }
        self.push_users(timestamp, points, &jobs.users);
        self.states_seen.end(points);
    }

    fn changed_memory(&mut self) -> Option<String> {
        let users_are_due = self.user_paths.as_ref().is_some_and(UserPaths::is_due);
        let is_due = |named: &Option<NamedStates>| named.as_ref().is_some_and(|named| named.paths.is_due());
        if !users_are_due && !is_due(&self.accounts) && !is_due(&self.qos) {
            return None;
        }
        let users = self.user_paths.as_mut().map(UserPaths::write).unwrap_or_default();
        let write = |named: &mut Option<NamedStates>| {
            named.as_mut().map(|named| named.paths.write().clone()).unwrap_or_default()
        };
        let [accounts, qos] = [&mut self.accounts, &mut self.qos].map(write);
        serde_json::to_string(&JobsMemory { users, accounts, qos }).ok()
    }
}

impl NamedStates {
    fn new(most: usize, remembered: BTreeMap<String, i64>) -> Option<Self> {
        (most > 0).then(|| Self { paths: NamePaths::new(most, remembered), seen: SeenStates::default() })
    }

    fn push(
        &mut self,
        levels: &NamedLevels,
        timestamp: i64,
        points: &mut Points<'_>,
        rows: &BTreeMap<String, NamedJobs>,
        states_seen: &mut SeenStates,
    ) {
        // A job that has started has one name.
        let started = rows.iter().filter(|(name, jobs)| jobs.has_started && !name.is_empty());
        let started = started.map(|(name, jobs)| (name.clone(), cpus(&jobs.states)));
        self.paths.update(timestamp, started.collect());
        let (mut others, mut none) = (JobTallies::new(), None);
        let mut own: BTreeMap<&str, JobTallies> = BTreeMap::new();
        for (text, jobs) in rows {
            let names = (levels.names)(text);
            if names.is_empty() {
                add_states(none.get_or_insert_default(), &jobs.states);
            } else if names.iter().any(|name| !self.paths.has(name)) {
                add_states(&mut others, &jobs.states);
            }
            for name in names.into_iter().filter(|name| self.paths.has(name)) {
                add_states(own.entry(name).or_default(), &jobs.states);
            }
        }
        if let Some(none) = none {
            states_seen.push(points, levels.none, [], ALWAYS, &none);
        }
        states_seen.push(points, levels.others, [], ALWAYS, &others);
        for name in self.paths.names() {
            let states = own.remove(name).unwrap_or_default();
            self.seen.push(points, levels.own, [Name::of(name)], ALWAYS, &states);
        }
        self.seen.forget_absent();
    }
}

impl JobsCollector {
    fn push_users(&mut self, timestamp: i64, points: &mut Points<'_>, users: &[UserJobs]) {
        let Some(user_paths) = &mut self.user_paths else { return };
        let all = sum_of(users.iter().map(|user| cpus(&user.states)));
        let candidates = users.iter().map(|user| candidate(user, all, user_paths));
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        user_paths.update(timestamp, &candidates);
        let mut others = JobTallies::new();
        for (user, candidate) in users.iter().zip(&candidates) {
            if let Some(path) = user_paths.member(candidate) {
                let name = [Name::component(path)];
                self.user_states_seen.push(points, &USER_STATE, name, ALWAYS, &user.states);
            } else {
                add_states(&mut others, &user.states);
            }
        }
        self.user_states_seen.forget_absent();
        self.states_seen.push(points, &OTHERS_STATE, [], ALWAYS, &others);
    }
}

/// A user among those who may have paths; `all`: the CPUs of all users. Only jobs that have started give a user paths.
fn candidate<'a>(user: &'a UserJobs, all: u64, paths: &UserPaths) -> Candidate<'a> {
    let cpus = cpus(&user.states);
    let unranked = Candidate {
        uid: user.id,
        name: user.name.as_deref(),
        looking_up: user.looking_up,
        rank: None,
        is_heavy: cpus >= all.div_ceil(10),
    };
    let may_have_paths = user.has_started || paths.member(&unranked).is_some();
    let rank = Some((cpus, sum(&user.states))).filter(|(cpus, _)| *cpus > 0 && may_have_paths);
    Candidate { rank, ..unranked }
}

/// Allocated and requested CPUs of a user's or an account's jobs.
fn cpus(states: &JobTallies) -> u64 {
    let waiting_or_running = ["pending", "running"].into_iter().filter_map(|state| states.get(state));
    sum_of(waiting_or_running.map(|tally| tally.cpus))
}

impl LevelWaits {
    /// slurmctld's clock may be a little ahead of ours.
    fn since(&self, moment: i64) -> u64 {
        seconds_since(moment, self.now)
    }

    fn some_started(&self) -> Option<Started> {
        self.started.filter(|started| started.jobs > 0)
    }
}

fn sum(states: &JobTallies) -> u64 {
    sum_of(states.values().map(|tally| tally.jobs))
}

#[cfg(test)]
#[path = "../../tests/inside/collectors_jobs.rs"]
mod tests;
