//! *Overview*: is the cluster healthy, and if not, where should one look next?
//!
//! What is open has data with the shipped configuration. Other collectors have rows of their own,
//! which are closed.

use crate::alerts::{self, Rule};
use crate::grafana::{Dashboard, Row, closed, row, top};
use crate::needs;
use crate::panel::{self, Panel, series, stat, table, timeline};
use crate::verdict::verdict;

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "Overview",
        description: "Is the cluster healthy? If not, where should you look next?",
        variables: Vec::new(),
        rows: vec![
            now(),
            firing(),
            lately(),
            nodes(),
            partitions(),
            users(),
            finished(),
            clusters(),
        ],
    }
}

/// The age of slurmctld's last answer, by the clock of Graphite's host, to half an interval. Never
/// below 0, whatever the clocks say.
pub(crate) fn age_of_data() -> Panel {
    // Per minute, a step at which both series have points: VictoriaMetrics subtracts only where
    // there is a point, and graphite-web, at a full minute, subtracts nothing or from nothing,
    // which would be the age of 1970.
    let age = "removeAboveValue(diffSeries(summarize(timeFunction('now', 1), '1min', 'max'), \
         keepLastValue(summarize($prefix.slurm_sched_stats.gauge-req_time, '1min', 'max'))), \
         1000000000)";
    stat(
        "Age of data",
        "Age of slurmctld's newest answer in Graphite. If it grows, every other figure on this \
         page is out of date: slurmctld, slurm-graphite or Carbon is down.",
    )
    // 0 where clocks differ, but not where there is no age.
    .curve("age", &format!("maxSeries(group({age}, scale({age}, 0)))"))
    .unit("s")
    .min(0.0)
    .without_curve()
    .worry(120.0, 300.0)
    .explained_by("No Slurm metrics arrive")
}

pub(crate) fn answers() -> Panel {
    stat("slurmctld", "Whether slurmctld answered the last request.")
        .curve("slurmctld", "$prefix.slurm_health.gauge-up")
        .switch("answers", "silent")
        .explained_by("slurmctld does not answer")
}

/// Also on *Scheduler*, where nothing else in the top row says that the scheduler is slow.
pub(crate) fn main_cycle() -> Panel {
    stat(
        "Last main cycle",
        "How long the last cycle of the main scheduler took. It holds slurmctld's locks, so above \
            a second users have to wait.",
    )
    .curve("last", "$prefix.slurm_sched_stats.gauge-main_last_cycle")
    .unit("µs")
    .worry(1_000_000.0, 5_000_000.0)
    .sized(3, 4)
}

/// The two numbers that slurmctld has of jobs.
pub(crate) fn jobs() -> Panel {
    stat("Jobs", "Pending and running jobs. slurmctld counts them about every 30 seconds.")
        .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
        .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
        .whole()
        .neutral()
        .opens("Jobs", "jobs")
}

/// The numbers of pending and running jobs over time.
pub(crate) fn pending_and_running() -> Panel {
    series(
        "Pending and running",
        "slurmctld counts pending and running jobs about every 30 seconds.",
    )
    .line("pending", "yellow", "$prefix.slurm_sched_stats.gauge-jobs_pending")
    .line("running", "blue", "$prefix.slurm_sched_stats.gauge-jobs_running")
    .week_ago(
        "pending a week ago",
        "semi-dark-yellow",
        "$prefix.slurm_sched_stats.gauge-jobs_pending",
    )
    // Below 20,000 that wait, 300 that run would lie on the axis.
    .right("running", "locale")
    .whole()
}

/// Nodes in these states; 0 instead of nothing if no node was ever in one of them.
pub(crate) fn number_in(states: &str) -> String {
    format!(
        "sumSeries(group($prefix.slurm_nodes.state.{{{states}}}.gauge-nodes, \
            scale($prefix.slurm_nodes.total.gauge-nodes_total, 0)))"
    )
}

/// Nodes in these states as a share of all nodes.
pub(crate) fn nodes_in(states: &str) -> String {
    format!(
        "divideSeries({}, sumSeries($prefix.slurm_nodes.total.gauge-nodes_total))",
        number_in(states)
    )
}

pub(crate) const DOWN: &str = "down,fail,inval,unknown";
pub(crate) const DRAINED: &str = "drained,draining";

fn now() -> Row {
    let rules: Vec<Rule> = alerts::slurm().into_iter().chain(alerts::collector()).collect();
    top([
        verdict(&rules),
        answers().sized(3, 4),
        stat(
            "Mean RPC time",
            "Mean time of an RPC in the last interval: how long a user waits for squeue or sbatch. \
             Milliseconds are normal; at a second, commands hang.",
        )
        .curve("mean", RPC_TIME)
        .unit("µs")
        .worry(100_000.0, 1_000_000.0)
        .opens("RPC load", "rpc")
        .sized(3, 4),
        main_cycle().opens("Scheduler", "scheduler"),
        stat(
            "Last backfill",
            "Time since the last backfill cycle began. slurmctld runs a cycle only if something \
             has changed and a job that could start is waiting.",
        )
        .curve("ago", "$prefix.slurm_sched_interval.gauge-bf_last_cycle_age")
        .unit("s")
        .without_curve()
        .neutral()
        .opens("Scheduler", "scheduler")
        .sized(3, 4),
        stat(
            "Started per minute",
            "Jobs started per minute, in the last interval. If it is 0 \
            while jobs wait, see why with squeue.",
        )
        .curve("started", "$prefix.slurm_sched_interval.gauge-jobs_started_per_minute")
        .whole()
        .neutral()
        .opens("Jobs", "jobs"),
        jobs(),
        stat(
            "Carbon waits",
            "How long the oldest tick has waited to be sent to a Carbon. Above 0, a destination is \
             down or slow; nothing is lost before queue.max_age. If the Carbon of this Graphite is \
             down, only Age of data shows it.",
        )
        .curve("oldest tick", "maxSeries($prefix.slurm_graphite.*.carbon.*.gauge-queue_age)")
        .unit("s")
        .worry(60.0, 3600.0)
        .opens("Collector", "collector"),
        stat(
            "Jobs not launched",
            "Jobs per minute that slurmd could not start. The cause is a broken node or file \
                system, not a failing program.",
        )
        .curve("a minute", "$prefix.slurm_sched_interval.gauge-jobs_failed_per_minute")
        .unit("short")
        .worry(0.5, 5.0)
        .explained_by("Jobs are not launched")
        .sized(7, 4),
        stat(
            "Messages for nodes",
            "Messages that are waiting to be sent to nodes. If there are \
              hundreds and the number does not fall, nodes do not answer.",
        )
        .curve("waiting", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
        .whole()
        .worry(500.0, 2000.0)
        .opens("Cluster", "cluster")
        .sized(7, 4),
        stat(
            "Messages for slurmdbd",
            "Messages that slurmctld has not yet been able to send to \
              slurmdbd. When this queue is full, accounting records are lost.",
        )
        .curve("waiting", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
        .whole()
        .worry(100.0, 2000.0)
        .opens("Scheduler", "scheduler")
        .sized(7, 4),
        // Not first: it is seldom the news.
        age_of_data().sized(3, 4),
    ])
}

/// Red depends on the share: one broken node in a thousand is no reason for an alarm.
pub(crate) fn nodes_out() -> Panel {
    stat(
        "Nodes out",
        "Nodes that are down, and that are drained or draining: their number, and their share of \
            all nodes.",
    )
    .number("down", &number_in(DOWN))
    .curve("down %", &nodes_in(DOWN))
    .number("drained", &number_in(DRAINED))
    .curve("drained %", &nodes_in(DRAINED))
    .unit("percentunit")
    .decimals(1)
    .worry(0.02, 0.1)
    .opens("Cluster", "cluster")
}

/// 0 or a state, by node, the worst ones: more names have no room. `other` has numbers of nodes, of
/// which each is one here.
const BROKEN: &str = "highestMax(maximumAbove(groupByNode(group(\
    isNonNull(removeBelowValue($prefix.slurm_nodes.out.*.gauge-drain, 1)), \
    scale(isNonNull(removeBelowValue($prefix.slurm_nodes.out.*.gauge-not_responding, 1)), 2), \
    scale(isNonNull(removeBelowValue($prefix.slurm_nodes.out.*.gauge-{down,fail}, 1)), 3)), \
    -2, 'max'), 0), 15)";

const NO_NODE: &str = "No data: no node was out of service in the time shown. \
    Needs: [collectors.nodes] with enabled = true.";

/// Which nodes are out, from when to when.
pub(crate) fn nodes_by_name() -> Panel {
    timeline(
        "Nodes that are down, drained or do not respond",
        "Nodes that were out of service at some time of those shown: at most 15, those that were \
         down first. sinfo -R has all, and the reasons.",
        NO_NODE,
        &[(1, "drained", "orange"), (2, "not responding", "purple"), (3, "down or failing", "red")],
    )
    .nodes(BROKEN, 0)
    .sized(24, 11)
}

/// The share of the jobs that ended within the last hour, but not as their users intended. The
/// division by 0 or 1 leaves no point where there is no round.
pub(crate) const FAILING: &str = "divideSeries(divideSeries(movingSum(sumSeries(group(\
    $prefix.slurm_jobs_finished.total.state.{failed,node_fail,out_of_memory,boot_fail}.gauge-jobs, \
    scale($prefix.slurm_jobs_finished.total.work.gauge-jobs, 0))), '1hour'), \
    sumSeries(movingSum($prefix.slurm_jobs_finished.total.work.gauge-jobs, '1hour'))), \
    isNonNull($prefix.slurm_jobs_finished.total.work.gauge-jobs))";

/// The newest value of [`FAILING`].
pub(crate) fn failing(title: &str) -> Panel {
    let description = "Of the jobs that ended in the last hour, the share that failed, ran out of \
        memory or lost a node.";
    stat(title, description)
        .curve("failed", FAILING)
        .unit("percentunit")
        .worry(0.2, 0.5)
        .explained_by("Many jobs fail")
}

/// Closed, because it is empty on a good day, and where the rules are not provisioned.
fn firing() -> Row {
    closed("Alerts that fire (alert rules)").with([panel::alerts(
        "Alerts",
        "Alerts that are firing or pending. Each one links to its page of the runbook. The \
             list is also empty if the alert rules are not provisioned.",
    )
    .sized(24, 8)])
}

pub(crate) const RPC_TIME: &str = "$prefix.slurm_rpc_stats.total.gauge-interval_mean_time";
pub(crate) const MAIN_CYCLE: &str = "$prefix.slurm_sched_interval.gauge-main_mean_cycle";

fn lately() -> Row {
    let rate = |leaf: &str| format!("$prefix.slurm_sched_interval.gauge-jobs_{leaf}_per_minute");
    row("Lately").with([
        pending_and_running(),
        series(
            "Jobs per minute",
            "Do jobs arrive, start and end? \"not launched\" is what sdiag calls failed: jobs that \
                slurmd could not start.",
        )
        .line("submitted", "yellow", &rate("submitted"))
        .line("started", "blue", &rate("started"))
        .line("completed", "green", &rate("completed"))
        .line("not launched", "red", &rate("failed"))
        .unit("short"),
        series(
            "slurmctld at work",
            "Share of the time that the main and backfill schedulers were running. If the main \
             scheduler runs more than half of the time, RPCs have to wait.",
        )
        .line("main", "blue", "$prefix.slurm_sched_interval.gauge-main_busy_fraction")
        .line("backfill", "orange", "$prefix.slurm_sched_interval.gauge-bf_busy_fraction")
        .unit("percentunit")
        .worry(0.5, 0.8)
        .sized(7, 8),
        series(
            "How long slurmctld takes",
            "Mean time of an RPC, and of a cycle of the main scheduler, in each interval, now and \
             a week ago. Both wait for the same locks.",
        )
        .line("mean RPC", "purple", RPC_TIME)
        .line("mean main cycle", "blue", MAIN_CYCLE)
        .week_ago("RPC a week ago", "light-purple", RPC_TIME)
        .week_ago("cycle a week ago", "light-blue", MAIN_CYCLE)
        .unit("µs")
        .log()
        .worry(100_000.0, 1_000_000.0)
        .sized(7, 8),
        // Slurm's longest names of types need more than a third of the page.
        table(
            "RPC types by threads kept busy",
            "How many of slurmctld's threads each request kept busy: now, and at most in the \
             shown time. Click a name to see how often they come, and who sends them.",
            "Type",
        )
        .each(&busiest("type"))
        .unit("short")
        .decimals(2)
        .leads_to("RPCs of this type", "rpc", "type")
        .sized(10, 8),
    ])
}

/// Seconds of RPCs per second, by type or user. A share of all RPCs would hide how much their load
/// rises, and accuse a program that asks an idle slurmctld: often slurm-graphite itself.
pub(crate) fn busy(level: &str) -> String {
    format!("scale(perSecond($prefix.slurm_rpc_stats.{level}.gauge-total_time), 0.000001)")
}

/// The unit of [`busy`].
pub(crate) const THREADS: &str = "suffix:threads";

/// The ten types or users that took most of slurmctld's time: also those that have stopped.
fn busiest(what: &str) -> String {
    format!("highestMax({}, 10)", busy(&format!("{what}.*")))
}

fn most(what: &str) -> String {
    format!("highestMax($prefix.{what}, 10)")
}

fn nodes() -> Row {
    let used = |title: &str, what: &str, description: &str| {
        stat(title, description)
            .curve(
                what,
                &format!(
                    "divideSeries($prefix.slurm_nodes.total.gauge-{what}_allocated, \
                     sumSeries($prefix.slurm_nodes.total.gauge-{what}_total))"
                ),
            )
            .unit("percentunit")
            .max(1.0)
            .min(0.0)
            .sized(6, 4)
            .neutral()
            .opens("Cluster", "cluster")
    };
    closed("Nodes (collectors.nodes)").surveys(needs::NODES).with([
        used("CPUs in use", "cpus", "Share of all CPUs that is allocated to jobs."),
        used(
            "GPUs in use",
            "gpus",
            "Share of all GPUs that is allocated to jobs. A cluster without GPUs has no data here.",
        ),
        nodes_out().sized(12, 4),
        nodes_by_name(),
    ])
}

fn partitions() -> Row {
    closed("Partitions (collectors.partitions)").surveys(needs::PARTITIONS).with([
        table(
            "Partitions by pending jobs",
            "Partitions with the most pending jobs. Click a name to see its jobs.",
            "Partition",
        )
        .each(&most("slurm_partitions.*.gauge-jobs_pending"))
        .whole()
        .leads_to("Jobs of this partition", "jobs", "partition")
        .sized(12, 9),
        table(
            "Partitions by CPUs in use",
            "Share of each partition's CPUs that is allocated to jobs.",
            "Partition",
        )
        .each(
            "asPercent($prefix.slurm_partitions.*.gauge-cpus_allocated, \
            $prefix.slurm_partitions.*.gauge-cpus_total, -2)",
        )
        .unit("percent")
        .max(100.0)
        .leads_to("This partition", "cluster", "partition")
        .sized(12, 9),
    ])
}

fn users() -> Row {
    closed("Users (users = N in collectors.jobs and collectors.rpc_stats)")
        .surveys(needs::USERS)
        .with([
            table(
                "Users by CPUs",
                "Users whose jobs have the most CPUs. Click a name to see that user's jobs.",
                "User",
            )
            .nodes(&most("slurm_jobs.user.*.state.running.gauge-cpus"), -4)
            .whole()
            .leads_to("Jobs of this user", "jobs", "user"),
            table("Users by pending jobs", "Users with the most pending jobs.", "User")
                .nodes(&most("slurm_jobs.user.*.state.pending.gauge-jobs"), -4)
                .whole()
                .leads_to("Jobs of this user", "jobs", "user"),
            table(
                "Users by threads kept busy",
                "How many of slurmctld's threads each user's RPCs kept busy. Click a name to see \
                 what that user requests.",
                "User",
            )
            .each(&busiest("user"))
            .unit("short")
            .decimals(2)
            .leads_to("RPCs of this user", "rpc", "user"),
        ])
}

fn finished() -> Row {
    closed("Jobs that fail (collectors.finished)")
        .surveys(needs::FINISHED)
        .with([failing("Jobs failing").sized(6, 4)])
}

/// Curves here are named by their prefix, which tells clusters apart.
fn clusters() -> Row {
    let both = |leaf: &str| {
        format!(
            "aliasSub(consolidateBy(group(*.{leaf}, *.*.{leaf}), 'max'), \
                '^.*?([-_.a-zA-Z0-9]+)[.]slurm_[a-z_]+[.].*', '\\1')"
        )
    };
    let each = |title: &str, description: &str, leaf: &str| {
        series(title, description).named(&both(leaf)).sized(8, 8)
    };
    closed("All clusters side by side").with([
        each(
            "Jobs pending, by cluster",
            "All clusters that have data in this Graphite.",
            "slurm_sched_stats.gauge-jobs_pending",
        )
        .unit("locale")
        .decimals(0),
        each(
            "Jobs running, by cluster",
            "All clusters that have data in this Graphite.",
            "slurm_sched_stats.gauge-jobs_running",
        )
        .unit("locale")
        .decimals(0),
        each(
            "Main scheduler at work, by cluster",
            "Share of the time that each cluster's main scheduler was running.",
            "slurm_sched_interval.gauge-main_busy_fraction",
        )
        .unit("percentunit")
        .worry(0.5, 0.8),
    ])
}
