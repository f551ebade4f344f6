//! `slurm_jobs`: the queue, counted by state, partition, QOS, account, user and reason.
//!
//! The reader makes the counts from every record of the reply. A job that waits in several
//! partitions counts in each of them, and once everywhere else.

use slurm_snapshot::{
    Expected, JobStates, JobTallies, JobTally, Jobs, Moments, NamedRows, PartitionJobs,
    PublishedJobs, Reply, ReplyKind, ReplyOptions, Started, UserJobs, Waiting, sum_of,
};

use super::{Begin, Collect, Collector, Start};
use crate::derive::seconds_since;
use crate::levels::Names::{Closed, Invented, Ranked, Used};
use crate::levels::{Level, Name, Table};
use crate::metric::{Metric, mebibytes};
use crate::named_paths::{NamedPaths, Points};
use crate::replies::SurveyReplies;
use crate::settings::{MOST_NAMES, QOS, STATES_ONLY, Setting, Value};
use crate::user_paths::Candidate;

const ACCOUNTS: Setting = Setting {
    key: "accounts",
    default: Value::Names(0),
    comment: "\
By account too: how many accounts have paths of their own; 0 for none, at most 1000. An account
gets them when one of its jobs has started, and loses them after 30 days without one. All others
are in other_accounts. Five paths for each account and each state that its jobs have ever been
in, usually 25 to 35.",
};
const USERS: Setting = Setting {
    key: "users",
    default: Value::Users(0),
    comment: "\
By user too: publish the top N users by CPUs, and root and slurm; 0 for none, at most 200.
Bounded like those of rpc_stats: within 30 days 5 * users of them, each with five files for each
state of the user's jobs.",
};

/// States that always have points, even if the queue is empty.
const ALWAYS: &[&str] = &["pending", "running"];

pub(super) const COLLECTOR: Collector = Collector {
    name: "jobs",
    comment: "The queue: jobs by state, partition, QOS and reason, and how long they wait: \
        slurm_jobs.",
    settings: &[ACCOUNTS, QOS, USERS, STATES_ONLY],
    levels: &[LEVELS],
    replies: &[ReplyKind::Jobs],
    start: Start::Survey(|Begin { settings, .. }| {
        let accounts = settings.names(&ACCOUNTS);
        let options = ReplyOptions {
            accounts: accounts > 0,
            qos: settings.flag(&QOS),
            states_only: settings.flag(&STATES_ONLY),
            users: settings.users() > Some(0),
            ..ReplyOptions::default()
        };
        Box::new(JobsCollector { options, accounts, last_update: None })
    }),
};

levels! {
    LEVELS:
    TOTAL: Level<Table<Jobs>, 0> = ("slurm_jobs.total", [], ALL,
        "The queue: `[collectors.jobs]`. Ended jobs count for MinJobAge (300 s by default).");
    STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.state.<state>", [Closed], TALLY,
        "By state, in squeue's words (`squeue -o %T`) in lower case; `pending` and `running` \
         always have a point.");
    REASON: Level<Table<JobTally>, 1> = ("slurm_jobs.reason.<reason>", [Closed], TALLY,
        "Pending jobs by squeue's reason: Priority and Resources mean a busy cluster; Dependency, \
         JobHeldUser and BeginTime are the users' wish; look at all others.");
    WAITING: Level<Table<LevelWaits>, 0> = ("slurm_jobs.waiting", [], WAITS,
        "How long pending jobs have been waiting, and how long those that started since the last \
         round had waited. A path without jobs has no point.");
    PARTITION_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.partition.<partition>.state.<state>",
        [Used(MOST_NAMES), Closed], TALLY, "By partition and state.");
    PARTITION_REASON: Level<Table<JobTally>, 2> =
        ("slurm_jobs.partition.<partition>.reason.<reason>", [Used(MOST_NAMES), Closed], TALLY,
        "The pending jobs of one partition by reason. PartitionDown and ReqNodeNotAvail need an \
         administrator.");
    PARTITION_WAITING: Level<Table<LevelWaits>, 1> = ("slurm_jobs.partition.<partition>.waiting",
        [Used(MOST_NAMES)], WAITS,
        "The waiting times of one partition.");
    EXPECTED_START: Level<Table<Expectations>, 0> = ("slurm_jobs.expected_start", [], EXPECTED,
        "When pending jobs will start, by the plan that backfill makes again in every cycle. Jobs \
         that the cycle has not reached have no plan; if bf_max_job_test is small, most never have \
         one. The start of a job at a limit, or after bf_window, is a rough guess. All waiting \
         tasks of an array are one record, with the start of the next task. Percentiles are by \
         record; up to 22.05 without arrays.");
    PARTITION_EXPECTED_START: Level<Table<Expectations>, 1> =
        ("slurm_jobs.partition.<partition>.expected_start", [Used(MOST_NAMES)], EXPECTED,
        "One partition. A job that waits in several has one plan, which counts in each.");
    QOS_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.qos.<qos>.state.<state>", [Invented,
        Closed], TALLY,
        "By QOS, in lower case, and state: `qos = true`, the default; at most 1,000. From 24.11 on \
         a pending job may have several, and counts in each.");
    NO_QOS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.no_qos.state.<state>", [Closed], TALLY,
        "Jobs without a QOS, by state.");
    OTHER_QOS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.other_qos.state.<state>", [Closed],
        TALLY,
        "Jobs with a QOS that has no paths; each counts once, and also in those of its QOS that \
         have paths.");
    ACCOUNT_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.account.<account>.state.<state>",
        [Invented, Closed], TALLY,
        "By account and state: `accounts = N`, off by default; at first those with the most \
         CPUs.");
    NO_ACCOUNT_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.no_account.state.<state>", [Closed],
        TALLY, "Jobs without an account, by state.");
    OTHER_ACCOUNTS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.other_accounts.state.<state>",
        [Closed], TALLY,
        "Jobs of all accounts without paths, by state.");
    USER_STATE: Level<Table<JobTally>, 2> = ("slurm_jobs.user.<user>.state.<state>", [Ranked,
        Closed], TALLY,
        "By user and state, if `users` in `[collectors.jobs]` is above 0: the top users by CPUs, \
         allocated and requested, from the first started job on. The busiest have a tenth of these \
         CPUs. That makes 25 files for each state and each of `users` in 30 days. A user without \
         jobs has no point.");
    OTHERS_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.others.state.<state>", [Closed], TALLY,
        "Jobs of all users without paths: with the users' paths they are all jobs.");
}

struct JobsCollector {
    options: ReplyOptions,
    /// Number of accounts that may have paths.
    accounts: usize,
    /// The `last_update` of the last round's reply: the same reply again shows no new starts.
    last_update: Option<i64>,
}

/// The levels of jobs by account, or of jobs by QOS.
struct NamedLevels {
    own: &'static Level<Table<JobTally>, 2>,
    others: &'static Level<Table<JobTally>, 1>,
    none: &'static Level<Table<JobTally>, 1>,
}

const OF_ACCOUNTS: NamedLevels =
    NamedLevels { own: &ACCOUNT_STATE, others: &OTHER_ACCOUNTS_STATE, none: &NO_ACCOUNT_STATE };
const OF_QOS: NamedLevels =
    NamedLevels { own: &QOS_STATE, others: &OTHER_QOS_STATE, none: &NO_QOS_STATE };

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
    /// The levels that have points with `states_only`.
    pub(super) OF_STATES:
    ONLY_TOTAL: Level<Table<Jobs>, 0> = ("slurm_jobs.total", [], ALL_JOBS, "");
    ONLY_STATE: Level<Table<JobTally>, 1> = ("slurm_jobs.state.<state>", [Closed], JOBS, "");
}

metrics! {
    TALLY: JobTally =
        average(jobs, "count", "jobs"),
        average("cpus", "count", |t| t.figure(t.cpus),
            "CPUs allocated to these jobs, or requested by them while they are pending"),
        average("nodes", "count", |t| t.figure(t.nodes),
            "nodes allocated to or requested by these jobs; a shared node counts for each of its \
                jobs"),
        average("gpus", "count", |t| t.figure(t.gpus), "GPUs allocated to or requested by these jobs"),
        average("memory", "bytes", |t| mebibytes(t.figure(t.memory)?),
            "memory allocated to or requested by these jobs; 0 if Slurm does not allocate memory");
    ALL: Jobs =
        average("jobs", "count", |j| sum(&j.states.shown), "all jobs that slurmctld knows"),
        average(unparsed, "count",
            "texts that could not be parsed; above 0, GPUs, memory or array tasks are missing from \
             the other figures"),
        average(records, "count",
            "records in slurmctld's reply, which MaxJobCount limits; the waiting tasks of an array \
                are one record");
    WAITS: LevelWaits =
        average("wait_p50", "s", |w| w.since(w.submitted?.p50), "median time since the pending \
            jobs were submitted"),
        average("wait_p90", "s", |w| w.since(w.submitted?.p90), "90th percentile of the same"),
        max("wait_max", "s", |w| w.since(w.submitted?.max), "time since the oldest pending job was \
            submitted"),
        average("eligible_wait_p50", "s", |w| w.since(w.eligible?.p50),
            "median time since the pending jobs that may start became eligible"),
        average("eligible_wait_p90", "s", |w| w.since(w.eligible?.p90), "90th percentile of the \
            same"),
        max("eligible_wait_max", "s", |w| w.since(w.eligible?.max), "longest time that an eligible \
            job has waited"),
        average("started", "count", |w| w.started?.jobs,
            "jobs that started since the last round, with all nodes up; too low if the interval \
             exceeds MinJobAge"),
        average("started_wait_p50", "s", |w| w.some_started()?.p50, "median time that the started \
            jobs had been eligible"),
        average("started_wait_p90", "s", |w| w.some_started()?.p90, "90th percentile of the same"),
        max("started_wait_max", "s", |w| w.some_started()?.max, "longest time that one of them had \
            been eligible");
    EXPECTED: Expectations =
        average("planned", "count", |e| e.expected.planned.records, "records of pending jobs that \
            have a plan"),
        average("planned_jobs", "count", |e| e.expected.planned.jobs, "jobs in these records; each \
            task of an array counts"),
        average("overdue", "count", |e| e.expected.overdue.records,
            "records whose planned start has passed"),
        average("overdue_jobs", "count", |e| e.expected.overdue.jobs, "jobs in these records"),
        average("unplanned", "count", |e| e.expected.unplanned.records,
            "all other records of pending jobs: held, waiting for something else, or not reached \
             by backfill"),
        average("unplanned_jobs", "count", |e| e.expected.unplanned.jobs, "jobs in these records"),
        average("start_in_p50", "s", |e| e.until(e.expected.starts?.p50), "median time until the \
            planned records start; absent if there is none"),
        average("start_in_p90", "s", |e| e.until(e.expected.starts?.p90), "90th percentile of the \
            same"),
        average("start_in_p99", "s", |e| e.until(e.expected.starts?.p99), "99th percentile of the \
            same"),
        max("start_in_max", "s", |e| e.until(e.expected.starts?.max), "time until the last planned \
            record starts");
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
            points.push_words(&ONLY_STATE, [], ALWAYS, &jobs.states.shown);
            return points.end_round();
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
        points.push_words(&STATE, [], ALWAYS, &jobs.states.shown);
        points.push_words(&REASON, [], &[], &jobs.pending_reasons);
        points.push(&WAITING, [], &waits(&jobs.waiting, jobs.started));
        points.push(&EXPECTED_START, [], &Expectations { expected: jobs.expected, now });
        for (name, partition) in &jobs.partitions {
            let &PartitionJobs { ref states, ref pending_reasons, ref waiting, started, expected } =
                partition;
            let name = || [Name::new(name)];
            points.push_words(&PARTITION_STATE, name(), ALWAYS, &states.shown);
            points.push_words(&PARTITION_REASON, name(), &[], pending_reasons);
            points.push(&PARTITION_WAITING, name(), &waits(waiting, started));
            points.push(&PARTITION_EXPECTED_START, name(), &Expectations { expected, now });
        }
        let of_qos = (self.options.qos, MOST_NAMES, OF_QOS, &jobs.qos);
        let of_accounts = (self.options.accounts, self.accounts, OF_ACCOUNTS, &jobs.accounts);
        for (_, most, levels, rows) in
            [of_qos, of_accounts].into_iter().filter(|(is_on, ..)| *is_on)
        {
            levels.push(points, most, rows);
        }
        if self.options.users {
            push_users(points, &jobs.users);
        }
        points.end_round();
    }

    fn published_jobs(&self, paths: &NamedPaths) -> Option<PublishedJobs> {
        let accounts = paths.started(&ACCOUNT_STATE);
        let qos = paths.started(&QOS_STATE);
        Some(PublishedJobs { accounts, qos, started_since: None })
    }
}

impl NamedLevels {
    fn push(&self, points: &mut Points<'_>, most: usize, rows: &NamedRows) {
        let named = || rows.names.iter().filter(|(name, _)| !name.is_empty());
        let started = named().filter(|(_, jobs)| jobs.has_started);
        points.give(
            self.own,
            most,
            started.map(|(name, jobs)| (name.as_str(), jobs.states.unfinished_cpus())).collect(),
        );
        let own = points.paths.started(self.own);
        let mut others = rows.rest.clone();
        for (_, jobs) in named().filter(|(name, _)| !own.contains(*name)) {
            others.add(&jobs.states);
        }
        if let Some(none) = rows.names.get("") {
            points.push_words(self.none, [], ALWAYS, &none.states.shown);
        }
        points.push_words(self.others, [], ALWAYS, &others.shown);
        for name in own {
            let states = rows.names.get(&name).map(|jobs| &jobs.states.shown);
            points.push_words(
                self.own,
                [Name::new(&name)],
                ALWAYS,
                states.unwrap_or(&JobTallies::new()),
            );
        }
    }
}

fn push_users(points: &mut Points<'_>, users: &[UserJobs]) {
    let all = sum_of(users.iter().map(|user| user.states.unfinished_cpus()));
    let candidates: Vec<Candidate<'_>> =
        users.iter().map(|user| candidate(user, all, points)).collect();
    points.rank(&candidates);
    let mut others = JobStates::default();
    for (user, candidate) in users.iter().zip(&candidates) {
        match points.user(candidate) {
            Some(path) => {
                points.push_words(&USER_STATE, [Name::component(&path)], ALWAYS, &user.states.shown)
            }
            None => others.add(&user.states),
        }
    }
    points.push_words(&OTHERS_STATE, [], ALWAYS, &others.shown);
}

/// Makes a candidate of a user, ranked by CPUs; `all` are the CPUs of all users. Only jobs that
/// have started give a user paths.
fn candidate<'a>(user: &'a UserJobs, all: u64, points: &Points<'_>) -> Candidate<'a> {
    let cpus = user.states.unfinished_cpus();
    let unranked = Candidate {
        uid: user.id,
        name: user.name.as_deref(),
        looking_up: user.looking_up,
        rank: None,
        is_heavy: cpus >= all.div_ceil(10),
    };
    let may_have_paths = user.has_started || points.user(&unranked).is_some();
    let rank =
        Some((cpus, sum(&user.states.shown))).filter(|(cpus, _)| *cpus > 0 && may_have_paths);
    Candidate { rank, ..unranked }
}

impl LevelWaits {
    /// Returns the seconds since `moment`; 0 if it is in the future, because slurmctld's clock may
    /// be a little ahead of this host's.
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
mod tests;
