//! `slurm_associations`: fairshare, shares, usage, and what is used next to each limit, by account,
//! by QOS and by user.
//!
//! Paths do not contain the tree of accounts, because a name occurs only once in a cluster, and
//! accounts move.

use std::collections::BTreeMap;

use slurm_snapshot::tres::whole;
use slurm_snapshot::{
    Association, Associations, QosUse, Reply, ReplyKind, ReplyOptions, TresUse, UseAndLimits,
    sum_of,
};

use super::{Begin, Collect, Collector, Start};
use crate::derive::exact_f64;
use crate::levels::Names::{Configured, Ranked, Used};
use crate::levels::{Name, Table};
use crate::named_paths::Points;
use crate::replies::SurveyReplies;
use crate::settings::{MOST_NAMES, Setting, Value};
use crate::user_paths::Candidate;

const USERS: Setting = Setting {
    key: "users",
    default: Value::Users(0),
    comment: "\
By user and account too: publish the top N users by usage; 0 for none, at most 200. Bounded like
those of rpc_stats: within 30 days 5 * users of them, each with 25 files or more for each account
that the user may use.",
};

pub(super) const COLLECTOR: Collector = Collector {
    name: "associations",
    comment: "Fairshare, usage and limits by account and QOS, as sshare and sacctmgr show them: \
        slurm_associations.",
    settings: &[USERS],
    levels: &[LEVELS],
    replies: &[ReplyKind::Associations],
    start: Start::Survey(|Begin { settings, .. }| {
        Box::new(AssociationsCollector { has_users: settings.users() > Some(0) })
    }),
};

levels! {
    LEVELS:
    TOTAL: Level<Table<Associations>, 0> = ("slurm_associations.total", [], ALL,
        "slurmctld's copy of slurmdbd's associations: `[collectors.associations]`. If PrivateData \
         names `usage` or `users`, the daemon's user must be an operator.");
    ACCOUNT: Level<Table<Association>, 1> = ("slurm_associations.account.<account>",
        [Configured(10_000)], SHARES,
        "Shares and usage of an account, with the accounts below it, as `sshare -al` shows them. \
         No point where sshare prints nothing or `inf`.");
    ACCOUNT_JOBS: Level<Table<UseAndLimits>, 1> = ("slurm_associations.account.<account>",
        [Configured(10_000)], JOBS,
        "Its jobs next to its limits: if `jobs_running` has reached `grp_jobs`, or a TRES its \
         limit, jobs wait for it. No point for a limit that is not set.");
    ACCOUNT_TRES: Level<Table<TresValues>, 2> =
        ("slurm_associations.account.<account>.tres.<tres>", [Configured(10_000), Used(64)], TRES,
        "Each TRES that is used, was used, or has a limit: `cpu`, `mem`, `node`, `billing`, \
         `gres_gpu`. Minutes are TRES-minutes, for memory MiB-minutes.");
    QOS: Level<Table<QosUse>, 1> = ("slurm_associations.qos.<qos>", [Configured(MOST_NAMES)],
        OF_QOS,
        "The jobs of a QOS next to its limits; limits per user and per account hold for each of \
            them.");
    QOS_JOBS: Level<Table<UseAndLimits>, 1> = ("slurm_associations.qos.<qos>",
        [Configured(MOST_NAMES)], JOBS, "All jobs of a QOS next to the limits for all of them.");
    QOS_TRES: Level<Table<TresValues>, 2> = ("slurm_associations.qos.<qos>.tres.<tres>",
        [Configured(MOST_NAMES), Used(64)], TRES, "Of a QOS.");
    QOS_TRES_LIMITS: Level<Table<TresValues>, 2> = ("slurm_associations.qos.<qos>.tres.<tres>",
        [Configured(MOST_NAMES), Used(64)], TRES_LIMITS,
        "What each user and each account may have of a TRES in this QOS.");
    USER: Level<Table<Association>, 2> = ("slurm_associations.user.<account>.<user>",
        [Configured(10_000), Ranked], SHARES,
        "A user in an account, if `users` in `[collectors.associations]` is above 0: the top users \
         by usage, in each of their accounts. A user's association with one partition has no \
         path.");
    USER_JOBS: Level<Table<UseAndLimits>, 2> = ("slurm_associations.user.<account>.<user>",
        [Configured(10_000), Ranked], JOBS, "Of a user in an account.");
    USER_TRES: Level<Table<TresValues>, 3> =
        ("slurm_associations.user.<account>.<user>.tres.<tres>", [Configured(10_000), Ranked,
        Used(64)], TRES, "Of a user in an account.");
}

struct AssociationsCollector {
    has_users: bool,
}

metrics! {
    ALL: Associations =
        average(records, "count", "number of associations: accounts, and users in accounts");
    SHARES: Association =
        average(shares_raw, "count",
            "RawShares, compared with those of its siblings; no point if it has its parent's"),
        average(shares_norm, "fraction", "NormShares: its share of the cluster"),
        average(usage_raw, "TRES-seconds",
            "RawUsage: weighted by TRESBillingWeights, reduced by PriorityDecayHalfLife"),
        average(usage_norm, "fraction",
            "NormUsage: its share of the cluster's usage; compare it with `shares_norm`"),
        average(usage_efctv, "fraction", "EffectvUsage: the usage that counts against its share"),
        average(fairshare, "fraction",
            "FairShare: the factor in a user's job priority, at best 1; no point for accounts, or \
             without FAIR_TREE"),
        average(level_fs, "ratio",
            "LevelFS: share divided by usage among its siblings; below 1 it has used more than its \
             share. No point without usage");
    JOBS: UseAndLimits =
        average(jobs_running, "count", "its running jobs; absent if AccountingStorageEnforce lacks \
            `limits`"),
        average(grp_jobs, "count", "GrpJobs: most running jobs"),
        average(max_jobs, "count",
            "MaxJobs: most running jobs of each user, unless that user has another limit"),
        average("submit_jobs", "count", |u| u.jobs_submitted, "its running and pending jobs; like \
            `jobs_running`"),
        average(grp_submit_jobs, "count",
            "GrpSubmitJobs: most running and pending jobs; beyond that sbatch is refused"),
        average(max_submit_jobs, "count",
            "MaxSubmitJobs: most running and pending jobs of each user"),
        average(wall_used, "s", "wall time of its jobs, reduced by decay"),
        average("grp_wall", "s", |u| minutes(u.grp_wall), "GrpWall: the limit of wall_used"),
        average("max_wall_per_job", "s", |u| minutes(u.max_wall_per_job), "MaxWall: how long one \
            job may run");
    OF_QOS: QosUse =
        average(usage_raw, "TRES-seconds", "as for an account"),
        average("max_jobs_per_user", "count", |q| q.use_and_limits.max_jobs_per_user,
            "MaxJobsPU: most running jobs of each user"),
        average("max_jobs_per_account", "count", |q| q.use_and_limits.max_jobs_per_account,
            "MaxJobsPA: most running jobs of each account"),
        average("max_submit_jobs_per_user", "count", |q| q.use_and_limits.max_submit_jobs_per_user,
            "MaxSubmitPU: most running and pending jobs of each user"),
        average("max_submit_jobs_per_account", "count", |q|
            q.use_and_limits.max_submit_jobs_per_account,
            "MaxSubmitPA: most running and pending jobs of each account");
}

#[derive(Clone, Copy, Debug)]
struct TresValues {
    of: TresUse,
    /// Whether the TRES is memory, which Slurm counts in MiB: bytes are published.
    is_memory: bool,
}

impl Default for TresValues {
    /// The row of a TRES that is not used.
    fn default() -> Self {
        let idle =
            TresUse { used: Some(0), used_secs: Some(0), run_secs: Some(0), ..TresUse::default() };
        Self { of: idle, is_memory: false }
    }
}

metrics! {
    TRES: TresValues =
        average("used", "count, bytes", |t| t.amount(t.of.used), "what is allocated to running \
            jobs; like `jobs_running`"),
        average("grp_tres", "count, bytes", |t| t.amount(t.of.grp), "GrpTRES: what they may have \
            allocated together"),
        average("used_mins", "min", |t| t.of.used_secs.map(|secs| exact_f64(secs) / 60.0), "TRES-minutes used, \
            reduced by decay"),
        average("grp_tres_mins", "min", |t| t.of.grp_mins, "GrpTRESMins: the limit of used_mins"),
        average("run_mins", "min", |t| t.of.run_secs.map(|secs| exact_f64(secs) / 60.0),
            "TRES-minutes that running jobs may still use, by their time limits"),
        average("grp_tres_run_mins", "min", |t| t.of.grp_run_mins, "GrpTRESRunMins: the limit of \
            run_mins"),
        average("max_tres_per_job", "count, bytes", |t| t.amount(t.of.max_per_job), "MaxTRES: what \
            one job may have"),
        average("max_tres_per_node", "count, bytes", |t| t.amount(t.of.max_per_node),
            "MaxTRESPerNode: what one job may have on a node"),
        average("max_tres_mins_per_job", "min", |t| t.of.max_mins_per_job, "MaxTRESMins: \
            TRES-minutes of one job");
    TRES_LIMITS: TresValues =
        average("max_tres_per_user", "count, bytes", |t| t.amount(t.of.max_per_user), "MaxTRESPU: \
            what each user may have"),
        average("max_tres_per_account", "count, bytes", |t| t.amount(t.of.max_per_account),
            "MaxTRESPA: what each account may have");
}

impl Collect<SurveyReplies> for AssociationsCollector {
    fn options(&self) -> ReplyOptions {
        ReplyOptions { users: self.has_users, ..ReplyOptions::default() }
    }

    fn collect(&mut self, _: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(Reply::Associations(all)) = replies.get(ReplyKind::Associations) else { return };
        points.push(&TOTAL, [], all);
        for association in all.associations.iter().filter(|association| association.user.is_none())
        {
            let name = || [Name::new(&association.account)];
            let limits = &association.use_and_limits;
            points.push(&ACCOUNT, name(), association);
            points.push(&ACCOUNT_JOBS, name(), limits);
            points.push_words(&ACCOUNT_TRES, name(), &[], &tres(limits));
        }
        for qos in &all.qos {
            let name = || Name::new(&qos.name);
            points.push(&QOS, [name()], qos);
            points.push(&QOS_JOBS, [name()], &qos.use_and_limits);
            let tres = tres(&qos.use_and_limits);
            points.push_words(&QOS_TRES, [name()], &[], &tres);
            for (word, tres) in &tres {
                points.push(&QOS_TRES_LIMITS, [name(), Name::new(word)], tres);
            }
        }
        if self.has_users {
            push_users(points, &all.associations);
        }
        points.end_round();
    }
}

fn push_users(points: &mut Points<'_>, all: &[Association]) {
    // Of two names with one number, one has paths: the paths are those of the number.
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    for user in all.iter().filter_map(|association| association.user.as_ref()) {
        let Some(id) = user.id else { continue };
        let name = names.entry(id).or_insert(&user.name);
        *name = (*name).min(&user.name);
    }
    let mut users: BTreeMap<u32, (&str, Vec<&Association>)> = BTreeMap::new();
    for association in all.iter().filter(|association| association.partition.is_none()) {
        if let Some(user) = &association.user
            && let Some(id) = user.id
            && names.get(&id) == Some(&user.name.as_str())
        {
            users.entry(id).or_insert_with(|| (&user.name, Vec::new())).1.push(association);
        }
    }
    let usage = |of: &[&Association]| {
        whole(of.iter().filter_map(|association| association.usage_raw).sum())
    };
    let in_all = sum_of(users.values().map(|(_, of)| usage(of)));
    let candidates: Vec<Candidate<'_>> = users
        .iter()
        .map(|(id, (name, of))| {
            let jobs = of.iter().map(|association| association.use_and_limits.jobs_submitted);
            let jobs = sum_of(jobs.map(|jobs| jobs.unwrap_or(0).into()));
            Candidate {
                uid: *id,
                name: Some(*name),
                looking_up: false,
                rank: Some((usage(of), jobs)).filter(|rank| *rank != (0, 0)),
                is_heavy: usage(of) >= in_all.div_ceil(10),
            }
        })
        .collect();
    points.rank(&candidates);
    for (candidate, (_, of)) in candidates.iter().zip(users.values()) {
        let Some(user) = points.user(candidate) else { continue };
        for association in of {
            let name = || [Name::new(&association.account), Name::component(&user)];
            let limits = &association.use_and_limits;
            points.push(&USER, name(), association);
            points.push(&USER_JOBS, name(), limits);
            points.push_words(&USER_TRES, name(), &[], &tres(limits));
        }
    }
}

/// Returns the TRES by their names in paths: `gres/gpu` becomes `gres_gpu`, unless another TRES has
/// that name.
fn tres(of: &UseAndLimits) -> BTreeMap<String, TresValues> {
    let mut tres = BTreeMap::new();
    for (name, of) in &of.tres {
        let plain = name.replace(['/', ':'], "_");
        let name = if tres.contains_key(&plain) { name.clone() } else { plain };
        tres.insert(name.clone(), TresValues { of: *of, is_memory: name == "mem" });
    }
    tres
}

impl TresValues {
    fn amount(&self, amount: Option<u64>) -> Option<u64> {
        let unit = if self.is_memory { 1 << 20 } else { 1 };
        amount.map(|amount| amount.saturating_mul(unit))
    }
}

/// Converts minutes to seconds.
fn minutes(minutes: Option<u32>) -> Option<f64> {
    minutes.map(|minutes| f64::from(minutes) * 60.0)
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::AssociationUser;

    use super::super::tests::{started, surveyed};
    use super::*;

    fn physics() -> Association {
        let idle = TresValues::default().of;
        let cpu = TresUse {
            used: Some(4),
            used_secs: Some(90),
            run_secs: Some(600),
            grp: Some(8),
            ..idle
        };
        let memory = TresUse { used: Some(2), max_per_job: Some(4), ..idle };
        let gpu = TresUse { grp_mins: Some(100), ..idle };
        let tres = [("cpu", cpu), ("gres/gpu", gpu), ("mem", memory)];
        Association {
            account: "physics".to_owned(),
            shares_raw: Some(3),
            shares_norm: Some(0.75),
            usage_raw: Some(90.5),
            level_fs: Some(1.5),
            use_and_limits: UseAndLimits {
                jobs_running: Some(1),
                jobs_submitted: Some(2),
                grp_jobs: Some(5),
                wall_used: Some(0.0),
                grp_wall: Some(10),
                tres: tres.map(|(name, tres)| (name.to_owned(), tres)).into(),
                ..UseAndLimits::default()
            },
            ..Association::default()
        }
    }

    fn user(name: &str, id: u32, usage: f64) -> Association {
        Association {
            user: Some(AssociationUser { name: name.to_owned(), id: Some(id) }),
            usage_raw: Some(usage),
            fairshare: Some(0.5),
            level_fs: None,
            ..physics()
        }
    }

    fn reply(associations: Vec<Association>) -> SurveyReplies {
        let all = Associations { records: 9, associations, ..Associations::default() };
        SurveyReplies::with_only(ReplyKind::Associations, Reply::Associations(Box::new(all)))
    }

    #[test]
    fn an_account_has_its_figures_and_no_limit_that_is_not_set() {
        let mut collector = started(&COLLECTOR, &[]);
        let points = surveyed(&mut collector, 60, &reply(vec![physics(), user("ann", 7, 5.0)]));
        let expected = [
            "total.gauge-records 9",
            "account.physics.gauge-shares_raw 3",
            "account.physics.gauge-shares_norm 0.75",
            "account.physics.gauge-usage_raw 90.5",
            "account.physics.gauge-level_fs 1.5",
            "account.physics.gauge-jobs_running 1",
            "account.physics.gauge-grp_jobs 5",
            "account.physics.gauge-submit_jobs 2",
            "account.physics.gauge-wall_used 0",
            "account.physics.gauge-grp_wall 600",
            "account.physics.tres.cpu.gauge-used 4",
            "account.physics.tres.cpu.gauge-grp_tres 8",
            "account.physics.tres.cpu.gauge-used_mins 1.5",
            "account.physics.tres.cpu.gauge-run_mins 10",
            "account.physics.tres.gres_gpu.gauge-used 0",
            "account.physics.tres.gres_gpu.gauge-used_mins 0",
            "account.physics.tres.gres_gpu.gauge-grp_tres_mins 100",
            "account.physics.tres.gres_gpu.gauge-run_mins 0",
            "account.physics.tres.mem.gauge-used 2097152",
            "account.physics.tres.mem.gauge-used_mins 0",
            "account.physics.tres.mem.gauge-run_mins 0",
            "account.physics.tres.mem.gauge-max_tres_per_job 4194304",
        ];
        assert_eq!(points, expected.map(|point| format!("c.slurm_associations.{point}")));
        let idle = Association { use_and_limits: UseAndLimits::default(), ..physics() };
        let used = |points: &[String]| {
            let cpu = "c.slurm_associations.account.physics.tres.cpu.gauge-";
            let is_zero =
                |leaf: &str| points.iter().any(|point| *point == format!("{cpu}{leaf} 0"));
            ["used", "run_mins", "used_mins"].map(is_zero)
        };
        assert_eq!(used(&surveyed(&mut collector, 120, &reply(vec![idle.clone()]))), [true; 3]);
        // AccountingStorageEnforce no longer has `limits`: what was used is known, and what is used
        // is not.
        let mut physics = physics();
        for tres in physics.use_and_limits.tres.values_mut() {
            *tres = TresUse { used: None, run_secs: None, ..*tres };
        }
        surveyed(&mut collector, 180, &reply(vec![physics]));
        assert_eq!(used(&surveyed(&mut collector, 240, &reply(vec![idle]))), [false, false, true]);
    }

    #[test]
    fn users_have_paths_only_where_asked_for_and_no_more_than_that() {
        let users = || vec![user("ann", 7, 500.0), user("bob", 8, 90.0), user("eve", 9, 700.0)];
        let mut collector = started(&COLLECTOR, &[(USERS.key, Value::Users(2))]);
        assert!(collector.collector.options().users);
        let for_one = Association { partition: Some("gpu".to_owned()), ..user("ann", 7, 1.0) };
        let nobody = Association {
            user: Some(AssociationUser { name: "gone".to_owned(), id: None }),
            ..physics()
        };
        let all = reply([users(), vec![for_one, nobody]].concat());
        let points = surveyed(&mut collector, 60, &all);
        let fairshare: Vec<&String> =
            points.iter().filter(|point| point.contains("fairshare")).collect();
        let expected = ["ann", "eve"]
            .map(|user| format!("c.slurm_associations.user.physics.{user}.gauge-fairshare 0.5"));
        assert_eq!(fairshare, expected.each_ref());
        assert!(collector.paths.changed_memory().unwrap().contains("eve"));
        assert!(!started(&COLLECTOR, &[]).collector.options().users);
    }

    /// Both names had the same paths, with different values.
    #[test]
    fn of_two_names_with_one_number_the_first_has_paths() {
        let mut collector = started(&COLLECTOR, &[(USERS.key, Value::Users(2))]);
        let points =
            surveyed(&mut collector, 60, &reply(vec![user("toor", 0, 5.0), user("root", 0, 7.0)]));
        let usage = "c.slurm_associations.user.physics.root.gauge-usage_raw";
        let usage: Vec<&String> = points.iter().filter(|point| point.starts_with(usage)).collect();
        assert_eq!(usage, ["c.slurm_associations.user.physics.root.gauge-usage_raw 7"]);
    }

    #[test]
    fn two_tres_that_would_have_one_path_have_two() {
        let named = |name: &str| (name.to_owned(), TresUse::default());
        let tres = tres(&UseAndLimits {
            tres: [named("gres/gpu:a"), named("gres/gpu_a")].into(),
            ..UseAndLimits::default()
        });
        assert_eq!(tres.len(), 2);
        let components: std::collections::BTreeSet<_> =
            tres.keys().map(|name| carbon_wire::path::component(name)).collect();
        assert_eq!(components.len(), 2, "{components:?}");
    }
}
