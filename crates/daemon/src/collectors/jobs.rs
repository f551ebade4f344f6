//! `slurm_jobs`: the queue, counted by state, partition, QOS, account, user and reason.
//!
//! The reader makes the counts from every record of the reply. A job that waits in several partitions counts in each of
//! them, and once everywhere else.

use std::collections::BTreeMap;

use carbon::path;
use serde::{Deserialize, Serialize};
use slurm_snapshot::{
    AccountJobs, JobTallies, JobTally, Jobs, Moments, Reply, ReplyKind, ReplyOptions, Started, UserJobs,
    Waiting,
};

use super::{Begin, Collect, Collector, Paths, Start};
use crate::derive::seconds_since;
use crate::metric::{Metric, Points, average, max, mebibytes, number};
use crate::name_paths::{NameInUse, NamePaths};
use crate::replies::SurveyReplies;
use crate::settings::{STATES_ONLY, Setting, Value};
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
const QOS: Setting = Setting { key: "qos", default: Value::Flag(true), comment: "By QOS too." };
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
    paths: &[
        Paths {
            below: "slurm_jobs.total",
            about: "The queue: `[collectors.jobs]`, off by default, because slurmctld walks all jobs for it. Every \
                    task of a job array counts as a job, and so does every component of a het job. slurmctld knows \
                    jobs for MinJobAge (300 s by default) after their end, and they count here for that time.",
            leaves: &TOTAL,
        },
        tally(
            "slurm_jobs.state.<state>",
            "By state, in squeue's words (`squeue -o %T`) in lower case. From the first job in a state on there is \
             a point in every round; `pending` and `running` always have one.",
        ),
        tally(
            "slurm_jobs.reason.<reason>",
            "Pending jobs by the reason that squeue shows: Priority and Resources mean a busy cluster; \
             Dependency, JobHeldUser and BeginTime are what the users asked for; every other reason deserves a \
             look.",
        ),
        Paths {
            below: "slurm_jobs.waiting",
            about: "How long pending jobs have been waiting, and how long the jobs that started since the last round had waited. \
                    Percentiles are exact (nearest rank). A path without jobs has no point.",
            leaves: &WAITING,
        },
        tally("slurm_jobs.partition.<partition>.state.<state>", "By partition and state."),
        tally(
            "slurm_jobs.partition.<partition>.reason.<reason>",
            "The pending jobs of one partition by reason: Resources and Priority in one partition while others \
             have idle nodes show where nodes are missing; PartitionDown and ReqNodeNotAvail need an \
             administrator. From the first job with a reason on there is a point in every round.",
        ),
        Paths {
            below: "slurm_jobs.partition.<partition>.waiting",
            about: "The waiting times of one partition.",
            leaves: &WAITING,
        },
        tally(
            "slurm_jobs.qos.<qos>.state.<state>",
            "By QOS and state: `qos = true`, the default. Jobs without a QOS are in `slurm_jobs.no_qos.state.<state>`.",
        ),
        tally("slurm_jobs.no_qos.state.<state>", "Jobs without a QOS, by state."),
        tally(
            "slurm_jobs.account.<account>.state.<state>",
            "By account and state: `accounts = N`; off by default, because a cluster may have thousands, and without \
             AccountingStorageEnforce any user can invent names. An account gets paths when one of its jobs has \
             started, as long as fewer than N have them, and loses them after 30 days without one; at first those \
             with the most CPUs get them. Jobs without an account are in `slurm_jobs.no_account.state.<state>`.",
        ),
        tally("slurm_jobs.no_account.state.<state>", "Jobs without an account, by state."),
        tally(
            "slurm_jobs.other_accounts.state.<state>",
            "The jobs of all accounts without paths of their own, by state.",
        ),
        tally(
            "slurm_jobs.user.<user>.state.<state>",
            "By user and state: only if `users` in `[collectors.jobs]` is above 0. The top `users` by CPUs, \
             allocated and requested, get paths for at least a day, from the first job on that has started; \
             `root` and `slurm` always have them. Within 30 days at most 5 × `users` (and those two) get paths, the last fifth only users with a tenth of \
             all these CPUs; everybody else is in `slurm_jobs.others`. With 5 figures for each state that makes \
             25 files for each state and each of `users` in 30 days. A user without jobs has no point.",
        ),
        tally(
            "slurm_jobs.others.state.<state>",
            "The jobs of all users without a path of their own. Together with the users' paths they are all \
             jobs.",
        ),
    ],
    replies: &[ReplyKind::Jobs],
    start: Start::Survey(|Begin { settings, memory, .. }| {
        let user_paths = UserPaths::of(settings, *memory);
        let account_paths = Some(settings.names(&ACCOUNTS)).filter(|most| *most > 0).map(|most| {
            let memory = memory.and_then(|text| serde_json::from_str::<JobsMemory>(text).ok());
            NamePaths::new(most, memory.unwrap_or_default().accounts)
        });
        let options = ReplyOptions {
            accounts: account_paths.is_some(),
            qos: settings.flag(&QOS),
            states_only: settings.flag(&STATES_ONLY),
            users: user_paths.is_some(),
            ..ReplyOptions::default()
        };
        Box::new(JobsCollector { options, user_paths, account_paths, ..JobsCollector::default() })
    }),
};

const fn tally(below: &'static str, about: &'static str) -> Paths {
    Paths { below, about, leaves: &TALLY }
}

#[derive(Default)]
struct JobsCollector {
    options: ReplyOptions,
    states_seen: SeenStates,
    /// Of users and accounts: the jobs of one that loses paths are among the others, so there are no zeroes.
    user_states_seen: SeenStates,
    account_states_seen: SeenStates,
    /// `None` if users have no paths of their own.
    user_paths: Option<UserPaths>,
    account_paths: Option<NamePaths>,
    /// Of the last round: the same reply again shows no new starts.
    last_update: Option<i64>,
}

/// What is remembered across restarts.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct JobsMemory {
    users: Vec<SavedPath>,
    /// When a job of each account that has paths was last seen, Unix seconds.
    accounts: BTreeMap<String, i64>,
}

struct LevelWaits {
    submitted: Option<Moments>,
    eligible: Option<Moments>,
    started: Option<Started>,
    now: i64,
}

/// The part of [`TALLY`] that is known with `states_only`.
const JOBS: &[Metric<JobTally>] = TALLY.split_at(1).0;

/// The part of [`TOTAL`] that is known with `states_only`.
const ALL_JOBS: &[Metric<Jobs>] = TOTAL.split_at(2).0;

pub(super) const OF_STATES: &[Paths] = &[
    Paths { below: "slurm_jobs.total", about: "", leaves: &ALL_JOBS },
    Paths { below: "slurm_jobs.state.<state>", about: "", leaves: &JOBS },
];

#[rustfmt::skip]
const TALLY: &[Metric<JobTally>] = &[
    average("jobs", "count", |t| number(t.jobs), "number of jobs; each task of an array counts"),
    average("cpus", "count", |t| number(t.cpus), "CPUs allocated to these jobs, or requested by them while they are pending"),
    average("nodes", "count", |t| number(t.nodes),
        "nodes allocated to or requested by these jobs; a node shared by several jobs is counted once for each"),
    average("gpus", "count", |t| number(t.gpus), "GPUs allocated to or requested by these jobs"),
    average("memory", "bytes", |t| mebibytes(t.memory),
        "memory allocated to or requested by these jobs: `mem=` in scontrol's AllocTRES and ReqTRES. 0 if Slurm does not allocate memory"),
];

#[rustfmt::skip]
const TOTAL: &[Metric<Jobs>] = &[
    average("jobs", "count", |j| number(sum(&j.states)), "all jobs that slurmctld knows"),
    average("unparsed", "count", |j| number(j.unparsed),
        "texts in the reply that could not be parsed; above 0, GPUs, memory or array tasks are missing from the other figures"),
    average("records", "count", |j| number(j.records),
        "records in slurmctld's reply, which MaxJobCount limits; the waiting tasks of an array are one record"),
];

#[rustfmt::skip]
const WAITING: &[Metric<LevelWaits>] = &[
    average("wait_p50", "s", |w| w.since(w.submitted, |m| m.p50), "median time since the pending jobs were submitted"),
    average("wait_p90", "s", |w| w.since(w.submitted, |m| m.p90), "90th percentile of the same"),
    max("wait_max", "s", |w| w.since(w.submitted, |m| m.max), "time since the oldest pending job was submitted"),
    average("eligible_wait_p50", "s", |w| w.since(w.eligible, |m| m.p50),
        "median time since the pending jobs that may start became eligible"),
    average("eligible_wait_p90", "s", |w| w.since(w.eligible, |m| m.p90), "90th percentile of the same"),
    max("eligible_wait_max", "s", |w| w.since(w.eligible, |m| m.max), "longest time that an eligible job has waited"),
    average("started", "count", |w| w.started.and_then(|s| number(s.jobs)),
        "jobs that started since the last round; a job whose nodes must boot starts when they are up. Too low if the interval is longer than MinJobAge"),
    average("started_wait_p50", "s", |w| w.had_waited(|s| s.p50), "median time that the started jobs had been eligible"),
    average("started_wait_p90", "s", |w| w.had_waited(|s| s.p90), "90th percentile of the same"),
    max("started_wait_max", "s", |w| w.had_waited(|s| s.max), "longest time that one of them had been eligible"),
];

impl Collect<SurveyReplies> for JobsCollector {
    fn options(&self) -> ReplyOptions {
        self.options
    }

    fn collect(&mut self, timestamp: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Jobs(jobs)) = replies.get(ReplyKind::Jobs) else { return };
        if jobs.states_only {
            points.push("slurm_jobs.total", ALL_JOBS, jobs);
            self.states_seen.push(points, "slurm_jobs.state", ALWAYS, &jobs.states, JOBS);
            self.states_seen.end(points, JOBS);
            return;
        }
        let is_new = self.last_update.replace(jobs.last_update) != Some(jobs.last_update);
        let now = replies.there(ReplyKind::Jobs, timestamp);
        let waits = |waiting: &Waiting, started: Option<Started>| LevelWaits {
            submitted: waiting.submitted,
            eligible: waiting.eligible,
            // A start would have been a change.
            started: if is_new { started } else { Some(Started::default()) },
            now,
        };
        points.push("slurm_jobs.total", TOTAL, &**jobs);
        self.states_seen.push(points, "slurm_jobs.state", ALWAYS, &jobs.states, TALLY);
        self.states_seen.push(points, "slurm_jobs.reason", &[], &jobs.pending_reasons, TALLY);
        points.push("slurm_jobs.waiting", WAITING, &waits(&jobs.waiting, jobs.started));
        for (name, partition) in &jobs.partitions {
            let level = format!("slurm_jobs.partition.{}", path::component(name));
            self.states_seen.push(points, &format!("{level}.state"), ALWAYS, &partition.states, TALLY);
            let reasons = &partition.pending_reasons;
            self.states_seen.push(points, &format!("{level}.reason"), &[], reasons, TALLY);
            points.push(&format!("{level}.waiting"), WAITING, &waits(&partition.waiting, partition.started));
        }
        for (name, states) in &jobs.qos {
            let level = match name.as_str() {
                // At another level, because every name is possible below `qos`.
                "" => "slurm_jobs.no_qos.state".to_owned(),
                name => format!("slurm_jobs.qos.{}.state", path::component(name)),
            };
            self.states_seen.push(points, &level, ALWAYS, states, TALLY);
        }
        self.push_accounts(timestamp, points, &jobs.accounts);
        self.push_users(timestamp, points, &jobs.users);
        self.states_seen.end(points, TALLY);
    }

    fn changed_memory(&mut self) -> Option<String> {
        let users_are_due = self.user_paths.as_ref().is_some_and(UserPaths::is_due);
        if !users_are_due && !self.account_paths.as_ref().is_some_and(NamePaths::is_due) {
            return None;
        }
        let users = self.user_paths.as_mut().map(UserPaths::write).unwrap_or_default();
        let accounts = self.account_paths.as_mut().map(|paths| paths.write().clone()).unwrap_or_default();
        serde_json::to_string(&JobsMemory { users, accounts }).ok()
    }
}

impl JobsCollector {
    fn push_accounts(
        &mut self,
        timestamp: i64,
        points: &mut Points<'_>,
        accounts: &BTreeMap<String, AccountJobs>,
    ) {
        let Some(paths) = &mut self.account_paths else { return };
        let named = accounts.iter().filter(|(name, _)| !name.is_empty());
        let in_use = named.clone().map(|(name, AccountJobs { states, has_started })| NameInUse {
            name,
            has_started: *has_started,
            rank: cpus(states),
        });
        paths.update(timestamp, &in_use.collect::<Vec<_>>());
        let mut others = JobTallies::new();
        for (_, account) in named.filter(|(name, _)| !paths.has(name)) {
            add(&mut others, &account.states);
        }
        if let Some(nameless) = accounts.get("") {
            let level = "slurm_jobs.no_account.state";
            self.states_seen.push(points, level, ALWAYS, &nameless.states, TALLY);
        }
        self.states_seen.push(points, "slurm_jobs.other_accounts.state", ALWAYS, &others, TALLY);
        for name in paths.names() {
            let level = format!("slurm_jobs.account.{}.state", path::component(name));
            let none = JobTallies::new();
            let states = accounts.get(name).map_or(&none, |account| &account.states);
            self.account_states_seen.push(points, &level, ALWAYS, states, TALLY);
        }
        self.account_states_seen.end_silently();
    }

    fn push_users(&mut self, timestamp: i64, points: &mut Points<'_>, users: &[UserJobs]) {
        let Some(user_paths) = &mut self.user_paths else { return };
        let all = users.iter().fold(0_u64, |sum, user| sum.saturating_add(cpus(&user.states)));
        let candidates = users.iter().map(|user| candidate(user, all, user_paths));
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        user_paths.update(timestamp, &candidates);
        let mut others = JobTallies::new();
        for (user, candidate) in users.iter().zip(&candidates) {
            if let Some(path) = user_paths.member(candidate) {
                let level = format!("slurm_jobs.user.{path}.state");
                self.user_states_seen.push(points, &level, ALWAYS, &user.states, TALLY);
            } else {
                add(&mut others, &user.states);
            }
        }
        self.user_states_seen.end_silently();
        self.states_seen.push(points, "slurm_jobs.others.state", ALWAYS, &others, TALLY);
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
    waiting_or_running.fold(0, |sum, tally| sum.saturating_add(tally.cpus))
}

impl LevelWaits {
    fn since(&self, moments: Option<Moments>, which: fn(&Moments) -> i64) -> Option<f64> {
        let since = which(moments.as_ref().filter(|moments| moments.jobs > 0)?);
        // slurmctld's clock may be a little ahead of ours.
        number(seconds_since(since, self.now))
    }

    fn had_waited(&self, which: fn(&Started) -> u64) -> Option<f64> {
        self.started.as_ref().filter(|started| started.jobs > 0).map(which).and_then(number)
    }
}

fn add(sum: &mut JobTallies, states: &JobTallies) {
    for (state, tally) in states {
        sum.entry(state.clone()).or_default().add(*tally);
    }
}

fn sum(states: &JobTallies) -> u64 {
    states.values().fold(0, |sum, tally| sum.saturating_add(tally.jobs))
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::{PartitionJobs, Reply};

    use super::super::tests::{has_all, started, surveyed};
    use super::*;

    fn tallies(jobs: &[(&str, u64)]) -> JobTallies {
        jobs.iter()
            .map(|(word, jobs)| ((*word).to_owned(), JobTally { jobs: *jobs, ..JobTally::default() }))
            .collect()
    }

    fn queue() -> Jobs {
        let submitted = Moments { jobs: 3, p50: 940, p90: 400, max: 100 };
        let started = Started { jobs: 2, p50: 5, p90: 7, max: 7 };
        let waiting = Waiting { submitted: Some(submitted), eligible: None };
        let partition = PartitionJobs {
            states: tallies(&[("pending", 3)]),
            pending_reasons: tallies(&[("Priority", 3)]),
            waiting: waiting.clone(),
            started: Some(started),
        };
        Jobs {
            last_update: 990,
            states: tallies(&[("pending", 3), ("completing", 1)]),
            pending_reasons: tallies(&[("Dependency", 3)]),
            waiting,
            started: Some(started),
            partitions: BTreeMap::from([("gpu.a".to_owned(), partition)]),
            qos: BTreeMap::from([("".to_owned(), tallies(&[("pending", 3)]))]),
            ..Jobs::default()
        }
    }

    /// CPUs of 0 would be a figure.
    #[test]
    fn where_states_alone_are_known_nothing_else_has_a_point() {
        let mut collector = started(&COLLECTOR, &[]);
        let of = |jobs: &[(&str, u64)]| {
            let jobs = Jobs { states: tallies(jobs), states_only: true, ..Jobs::default() };
            SurveyReplies::of(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)))
        };
        let points = surveyed(&mut *collector, 1000, &of(&[("pending", 3), ("completing", 1)]));
        let expected = [
            "total.gauge-jobs 4",
            "total.gauge-unparsed 0",
            "state.completing.gauge-jobs 1",
            "state.pending.gauge-jobs 3",
            "state.running.gauge-jobs 0",
        ];
        assert_eq!(points, expected.map(|point| format!("c.slurm_jobs.{point}")));
        let points = surveyed(&mut *collector, 1060, &of(&[]));
        assert!(points.contains(&"c.slurm_jobs.state.completing.gauge-jobs 0".to_owned()), "{points:?}");
    }

    #[test]
    fn a_queue_becomes_paths_by_state_reason_and_partition() {
        let mut collector = started(&COLLECTOR, &[]);
        let points = surveyed(
            &mut *collector,
            1000,
            &SurveyReplies::of(ReplyKind::Jobs, Reply::Jobs(Box::new(queue()))),
        );
        let expected = [
            "c.slurm_jobs.total.gauge-jobs 4",
            "c.slurm_jobs.state.completing.gauge-jobs 1",
            "c.slurm_jobs.state.running.gauge-jobs 0",
            "c.slurm_jobs.reason.Dependency.gauge-jobs 3",
            "c.slurm_jobs.waiting.gauge-wait_max 900",
            "c.slurm_jobs.waiting.gauge-started 2",
            "c.slurm_jobs.no_qos.state.pending.gauge-jobs 3",
        ];
        has_all(&points, &expected);
        assert!(
            points
                .iter()
                .any(|p| p.starts_with("c.slurm_jobs.partition.gpu_a-") && p.ends_with("wait_p50 60"))
        );
        assert!(
            points
                .iter()
                .any(|p| p.contains(".partition.gpu_a-") && p.ends_with(".reason.Priority.gauge-jobs 3"))
        );
        assert!(
            !points.iter().any(|point| point.contains("eligible")),
            "no job that could run is no wait of 0 s"
        );
    }

    #[test]
    fn users_and_others_are_all_jobs_and_a_name_that_is_looked_up_makes_no_path() {
        let user = |id, name: Option<&str>, cpus| UserJobs {
            id,
            name: name.map(str::to_owned),
            looking_up: name.is_none(),
            has_started: true,
            states: BTreeMap::from([(
                "pending".to_owned(),
                JobTally { jobs: 1, cpus, ..JobTally::default() },
            )]),
        };
        let users = vec![user(1, Some("ann"), 9), user(2, Some("bob"), 5), user(3, None, 700)];
        let jobs = Jobs { users, ..Jobs::default() };
        let mut collector = started(&COLLECTOR, &[(USERS.key, Value::Users(2))]);
        let points =
            surveyed(&mut *collector, 1000, &SurveyReplies::of(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs))));
        let users: Vec<&String> =
            points.iter().filter(|p| p.contains(".user.") && p.contains("pending.gauge-cpus")).collect();
        assert_eq!(
            users,
            ["c.slurm_jobs.user.ann.state.pending.gauge-cpus 9"],
            "the first two are he and one without a name"
        );
        assert!(
            points.contains(&"c.slurm_jobs.others.state.pending.gauge-cpus 705".to_owned()),
            "{points:#?}"
        );
        assert!(collector.changed_memory().unwrap().contains("ann"));
        let later = surveyed(
            &mut *collector,
            1000 + 3 * 86_400,
            &SurveyReplies::of(ReplyKind::Jobs, Reply::Jobs(Box::default())),
        );
        assert!(
            !later.iter().any(|point| point.contains(".user.")),
            "no zero for jobs that are counted elsewhere"
        );
    }

    fn jobs_of(accounts: impl IntoIterator<Item = (String, bool)>) -> SurveyReplies {
        let account =
            |(name, has_started)| (name, AccountJobs { states: tallies(&[("pending", 1)]), has_started });
        let jobs = Jobs { accounts: accounts.into_iter().map(account).collect(), ..Jobs::default() };
        SurveyReplies::of(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)))
    }

    /// `sbatch -H -A rnd$i` by anybody made 15 files each, and a zero in each of them in every round.
    #[test]
    fn invented_accounts_make_no_series_and_a_slot_that_is_free_again_no_zeroes() {
        let mut collector = started(&COLLECTOR, &[(ACCOUNTS.key, Value::Names(2))]);
        let real = ["", "physics"].map(|name| (name.to_owned(), true));
        let invented = (0..150).map(|n| (format!("rnd{n}"), false));
        let points = surveyed(&mut *collector, 0, &jobs_of(real.into_iter().chain(invented)));
        let levels = |points: &[String]| {
            let of = |point: &&String| point.contains("account") && point.contains("pending.gauge-jobs");
            points.iter().filter(of).cloned().collect::<Vec<_>>()
        };
        let expected = ["no_account", "other_accounts", "account.physics"];
        let expected = expected.map(|level| format!("c.slurm_jobs.{level}.state.pending.gauge-jobs"));
        let jobs = [" 1", " 150", " 1"];
        let points = levels(&points);
        assert_eq!(points.len(), 3, "{points:#?}");
        for (path, jobs) in expected.iter().zip(jobs) {
            assert!(points.contains(&format!("{path}{jobs}")), "{path} {points:#?}");
        }
        let memory = collector.changed_memory().unwrap();
        assert!(memory.contains("physics") && !memory.contains("rnd"), "{memory}");
        let zero = format!("{} 0", expected[2]);
        assert!(surveyed(&mut *collector, 29 * 86_400, &jobs_of([])).contains(&zero));
        let later = surveyed(&mut *collector, 30 * 86_400, &jobs_of([]));
        assert!(!later.iter().any(|point| point.contains("account.physics")), "{later:#?}");
    }

    #[test]
    fn a_user_whose_jobs_never_started_gets_no_paths() {
        let user = |id, name: &str, has_started| UserJobs {
            id,
            name: Some(name.to_owned()),
            looking_up: false,
            has_started,
            states: BTreeMap::from([(
                "pending".to_owned(),
                JobTally { jobs: 1, cpus: 9, ..JobTally::default() },
            )]),
        };
        let mut collector = started(&COLLECTOR, &[(USERS.key, Value::Users(1))]);
        let mut paths = |at, users: Vec<UserJobs>| {
            let jobs = Jobs { users, ..Jobs::default() };
            let replies = SurveyReplies::of(ReplyKind::Jobs, Reply::Jobs(Box::new(jobs)));
            let points = surveyed(&mut *collector, at, &replies);
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
        let findings = SurveyReplies::of(ReplyKind::Jobs, Reply::Jobs(Box::new(queue())));
        surveyed(&mut *collector, 1000, &findings);
        let again = surveyed(&mut *collector, 1060, &findings);
        assert!(again.contains(&"c.slurm_jobs.waiting.gauge-wait_max 960".to_owned()), "{again:#?}");
        let started: Vec<&String> = again.iter().filter(|point| point.contains("started")).collect();
        assert_eq!(started.len(), 2, "no wait of jobs that did not start: {started:?}");
        assert!(started.iter().all(|point| point.ends_with(".waiting.gauge-started 0")), "{started:?}");
    }
}
