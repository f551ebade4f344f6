//! *Usage*: who has used more than their share, who has reached a limit, and what does each QOS
//! run? From the collector `associations`.

use crate::grafana::{Dashboard, Row, closed, query_variable};
use crate::needs;
use crate::panel::{Panel, series, stat, table};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "usage",
        title: "Usage",
        description: "Who has used more than their share, who has reached a limit, and what does \
            each QOS run?",
        variables: vec![
            query_variable("account", "Account", "$prefix.slurm_associations.account.*"),
            query_variable("qos", "QOS", "$prefix.slurm_associations.qos.*"),
        ],
        rows: vec![now(), fairshare(), limits(), qos()],
    }
}

/// More than any number of jobs.
const MARK: &str = "1000000000";

/// Jobs that wait in accounts (or QOS) which are at a limit: as many jobs run as may (GrpJobs), or
/// nine tenths of a TRES are in use (GrpTRES). The largest figure; 0 if there are no limits, and
/// nothing if nothing was read.
///
/// Figures of accounts at a limit are marked by adding [`MARK`]. `applyByNode` is not used, because
/// VictoriaMetrics does not count nodes from the end; nor `multiplySeries` (see alerts.rs).
pub(crate) fn waiting_at_limit(prefix: &str, kind: &str) -> String {
    let base = format!("{prefix}.slurm_associations.{kind}.*");
    let waiting = format!(
        "groupByNode(group({base}.gauge-submit_jobs, {base}.gauge-jobs_running), -2, 'diff')"
    );
    // An account's name may be a number, and functions do not accept a number as a path: so each
    // function is applied while there is more of the path.
    let marks = |share: &str, percent: u32, node: i32| {
        format!(
            "groupByNode(scale(isNonNull(removeBelowValue({share}, {percent})), {MARK}), {node}, \
                'max')"
        )
    };
    let tres = |tres: &str| {
        let path = |leaf: &str| format!("{base}.tres.{tres}.gauge-{leaf}");
        marks(&share_of(&path("used"), &path("grp_tres"), "-4"), 90, -4)
    };
    let jobs =
        share_of(&format!("{base}.gauge-jobs_running"), &format!("{base}.gauge-grp_jobs"), "-2");
    let marks = [marks(&jobs, 100, -2), tres("cpu"), tres("node"), tres("gres_gpu")].join(", ");
    let records = format!("{prefix}.slurm_associations.total.gauge-records");
    format!(
        "maxSeries(group(offset(removeBelowValue(groupByNode(group({waiting}, \
         groupByNode(group({marks}), 0, 'max')), 0, 'sum'), {MARK}), -{MARK}), \
         diffSeries({records}, {records})))"
    )
}

/// Usage as a percentage of the limit, by nodes. Without a limit it is 0: `asPercent` of
/// graphite-web fails if a series has no total, and dividing by that 0 gives no point, or infinity
/// on VictoriaMetrics.
fn share_of(used: &str, limit: &str, nodes: &str) -> String {
    format!(
        "removeAboveValue(asPercent({used}, group({limit}, scale({used}, 0)), {nodes}), \
            1000000000000)"
    )
}

/// Usage as a percentage of the limit, for anything in associations that has a limit.
fn share(of: &str, used: &str, limit: &str, nodes: &str) -> String {
    let path = |leaf: &str| format!("$prefix.slurm_associations.{of}.gauge-{leaf}");
    format!("removeEmptySeries({})", share_of(&path(used), &path(limit), nodes))
}

fn now() -> Row {
    closed("Limits that are reached (collectors.associations)").surveys(needs::ASSOCIATIONS).with([
        stat(
            "Jobs waiting at an account's limit",
            "Pending jobs of an account that has reached its limit: GrpJobs, or nine tenths of \
             GrpTRES for CPUs, nodes or GPUs. The account with the most such jobs is shown.",
        )
        .curve("jobs", &waiting_at_limit("$prefix", "account"))
        .whole()
        .sized(8, 4)
        .worry(1.0, 1000.0)
        .opens("Jobs", "jobs"),
        stat(
            "Jobs waiting at a QOS's limit",
            "Pending jobs of a QOS that has reached its limit. \
            The QOS with the most such jobs is shown.",
        )
        .curve("jobs", &waiting_at_limit("$prefix", "qos"))
        .whole()
        .sized(8, 4)
        .worry(1.0, 1000.0)
        .opens("Jobs", "jobs"),
        stat(
            "Associations",
            "Number of associations in slurmctld: accounts, and users in accounts.",
        )
        .curve("records", "$prefix.slurm_associations.total.gauge-records")
        .sized(8, 4)
        .whole()
        .neutral()
        .opens("Jobs", "jobs"),
    ])
}

fn fairshare() -> Row {
    let account = |leaf: &str| format!("$prefix.slurm_associations.account.$account.gauge-{leaf}");
    closed("Fairshare (collectors.associations)").surveys(needs::ASSOCIATIONS).with([
        series(
            "Level of fairshare, by account",
            "Share divided by usage, compared with sibling accounts (LevelFS). Below 1, the \
             account has used more than its share, and its jobs get a lower priority.",
        )
        .each(&account("level_fs"))
        .unit("short")
        .log(),
        series(
            "Part of the usage, by account",
            "The account's share of the cluster's usage \
                (NormUsage). It is included in the usage of its parent accounts.",
        )
        .each(&account("usage_norm"))
        .unit("percentunit")
        .max(1.0),
        table(
            "Usage of the share",
            "The account's usage as a percentage of its share. Above 100%, \
               it has used more than its share.",
            "Account",
        )
        .each(&share("account.$account", "usage_norm", "shares_norm", "-2"))
        .unit("percent"),
        table(
            "Users with the lowest fairshare",
            "The fairshare factor in each user's job \
            priority. Near 0, other users' jobs go first. Requires `users` in the settings of the \
            collector.",
            "User",
        )
        .nodes(
            "limit(sortBy($prefix.slurm_associations.user.*.*.gauge-fairshare, 'current'), \
                20)",
            -2,
        )
        .unit("short")
        .sorted_by("Now", false),
        table("Jobs running, by account", "The ten accounts with the highest values.", "Account")
            .each(&format!("highestAverage({}, 10)", account("jobs_running")))
            .whole()
            .leads_to("Jobs of this account", "jobs", "account"),
    ])
}

/// Use as a percentage of a limit, at which something waits or is refused.
fn of_limit(title: &str, description: &str) -> Panel {
    series(title, description).unit("percent").worry(90.0, 100.0)
}

fn limits() -> Row {
    let tres = |used: &str, limit: &str| {
        format!("aliasByNode({}, -4, -2)", share("account.$account.tres.*", used, limit, "-4, -2"))
    };
    closed("Use against limits (collectors.associations)").surveys(needs::ASSOCIATIONS).with([
        of_limit("Running jobs of GrpJobs", "At 100%, the account's other jobs wait because of \
            this limit.")
            .each(&share("account.$account", "jobs_running", "grp_jobs", "-2")),
        of_limit("Submitted jobs of GrpSubmitJobs",
            "At 100%, the next sbatch is refused.").each(&share(
            "account.$account",
            "submit_jobs",
            "grp_submit_jobs",
            "-2",
        )),
        of_limit(
            "TRES of GrpTRES",
            "Resources of running jobs as a percentage of the limit, by account and TRES.",
        )
        .named(&tres("used", "grp_tres")),
        of_limit(
            "TRES-minutes of GrpTRESMins",
            "Usage after decay as a percentage of the limit. At 100%, no job of the account starts.",
        )
        .named(&tres("used_mins", "grp_tres_mins")),
    ])
}

fn qos() -> Row {
    let qos = |leaf: &str| format!("$prefix.slurm_associations.qos.$qos.{leaf}");
    closed("QOS (collectors.associations)").surveys(needs::ASSOCIATIONS).with([
        series("Jobs running, by QOS", "Number of running jobs in each QOS.")
            .each(&qos("gauge-jobs_running"))
            .stacked()
            .whole(),
        of_limit(
            "Running jobs of a QOS's GrpJobs",
            "At 100%, the other jobs of the QOS wait because of this limit.",
        )
        .each(&share("qos.$qos", "jobs_running", "grp_jobs", "-2")),
    ])
}
