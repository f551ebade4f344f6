//! *Overview*: is the cluster healthy, and if not, where should one look next?

use crate::grafana::{Dashboard, Row, closed, row, top};
use crate::panel::{Panel, alerts, series, stat, table, text};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "Overview",
        description: "Is the cluster healthy? If not, where should you look next?",
        variables: Vec::new(),
        rows: vec![now(), lately(), worst(), clusters()],
    }
}

/// How long ago slurmctld's last answer was, by the clock of Graphite's host, to half an interval. Never below 0,
/// whatever the clocks say.
pub(crate) fn age_of_data() -> Panel {
    stat(
        "Age of data",
        "Age of slurmctld's newest answer in Graphite. If it grows, every other figure on this page is out of date: slurmctld, \
         slurm-graphite or Carbon is down.",
    )
    .curve(
        "age",
        // Per minute, a step at which both series have points: VictoriaMetrics subtracts only where there is a point.
        "maxSeries(group(diffSeries(summarize(timeFunction('now', 1), '1min', 'max'), \
         keepLastValue(summarize($prefix.slurm_sched_stats.gauge-req_time, '1min', 'max'))), \
         scale(keepLastValue(summarize($prefix.slurm_sched_stats.gauge-req_time, '1min', 'max')), 0)))",
    )
    .unit("s")
    .min(0.0)
    .worry(120.0, 300.0)
}

pub(crate) fn answers() -> Panel {
    stat("slurmctld", "Whether slurmctld answered the last request.")
        .curve("slurmctld", "$prefix.slurm_health.gauge-up")
        .switch("answers", "silent")
}

/// Nodes in these states as a share of all nodes; 0 instead of nothing if no node was ever in one of them.
pub(crate) fn nodes_in(states: &str) -> String {
    format!(
        "divideSeries(sumSeries(group($prefix.slurm_nodes.state.{{{states}}}.gauge-nodes, \
         scale($prefix.slurm_nodes.total.gauge-nodes_total, 0))), sumSeries($prefix.slurm_nodes.total.gauge-nodes_total))"
    )
}

pub(crate) const DOWN: &str = "down,fail,inval,unknown";
pub(crate) const DRAINED: &str = "drained,draining";

fn now() -> Row {
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
            .sized(3, 4)
            .neutral()
    };
    top(vec![
        age_of_data().sized(3, 4),
        answers().sized(3, 4),
        stat("Jobs", "Pending and running jobs. slurmctld counts them about every 30 seconds.")
            .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
            .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
            .unit("short")
            .sized(4, 4)
            .neutral(),
        used(
            "CPUs in use",
            "cpus",
            "Share of all CPUs that is allocated to jobs. Requires the nodes collector, as do the next two panels.",
        ),
        used("GPUs in use", "gpus", "Share of all GPUs that is allocated to jobs. A cluster without GPUs has no data here."),
        nodes_out().sized(5, 4),
        stat(
            "RPCs at a time",
            "Average number of RPCs that slurmctld was serving at the same time. RPCs that only read run side by side; if this rises together with \
             the mean time of an RPC, they wait for locks. See the RPC load dashboard.",
        )
        .curve("at a time", "$prefix.slurm_rpc_stats.total.gauge-busy")
        .unit("short")
        .decimals(2)
        .sized(3, 4)
        .neutral(),
    ])
}

/// Red depends on the share: one broken node in a thousand is no reason for an alarm.
pub(crate) fn nodes_out() -> Panel {
    stat("Nodes out", "The percentage of nodes that are down, drained or draining.")
        .curve("down", &nodes_in(DOWN))
        .curve("drained", &nodes_in(DRAINED))
        .unit("percentunit")
        .decimals(1)
        .worry(0.02, 0.1)
}

/// Of the jobs that ended within the last hour, the share that did not end as their users intended. The division by 0
/// or 1 leaves no point where there is no round.
pub(crate) const FAILING: &str = "divideSeries(divideSeries(movingSum(sumSeries(group(\
    $prefix.slurm_jobs_finished.total.state.{failed,node_fail,out_of_memory,boot_fail}.gauge-jobs, \
    scale($prefix.slurm_jobs_finished.total.work.gauge-jobs, 0))), '1hour'), \
    sumSeries(movingSum($prefix.slurm_jobs_finished.total.work.gauge-jobs, '1hour'))), \
    isNonNull($prefix.slurm_jobs_finished.total.work.gauge-jobs))";

fn lately() -> Row {
    top(vec![
        alerts(
            "Alerts",
            "Alerts that are firing or pending. Each one links to its page of the runbook. The list is also empty if the alert rules \
             are not provisioned.",
        ),
        series("Pending and running", "slurmctld counts pending and running jobs about every 30 seconds.")
            .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
            .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
            .unit("short")
            .min(0.0)
            .colour("pending", "yellow")
            .colour("running", "blue")
            .sized(8, 8),
        series(
            "slurmctld at work",
            "Share of the time that the main and backfill schedulers were running. If the main scheduler runs more than half of the \
             time, RPCs have to wait.",
        )
        .curve("main", "$prefix.slurm_sched_interval.gauge-main_busy_fraction")
        .curve("backfill", "$prefix.slurm_sched_interval.gauge-bf_busy_fraction")
        .unit("percentunit")
        .min(0.0)
        .worry(0.5, 0.8)
        .colour("main", "blue")
        .colour("backfill", "orange")
        .sized(8, 8),
        stat(
            "Jobs failing",
            "Of the jobs that ended in the last hour, the share that failed, ran out of memory or lost a node. Requires the finished \
             collector.",
        )
        .curve("failed", FAILING)
        .unit("percentunit")
        .worry(0.2, 0.5)
        .sized(6, 4),
        stat(
            "Jobs not launched",
            "Jobs per minute that slurmd could not start. The cause is a broken node or file system, not a failing program.",
        )
        .curve("a minute", "$prefix.slurm_sched_interval.gauge-jobs_failed_per_minute")
        .unit("short")
        .worry(0.5, 5.0)
        .sized(6, 4),
        stat(
            "Time since last backfill",
            "Time since the last backfill cycle began. slurmctld runs a cycle only if something has changed and a job that could start \
             is waiting.",
        )
        .curve("ago", "$prefix.slurm_sched_interval.gauge-bf_last_cycle_age")
        .unit("s")
        .neutral()
        .sized(6, 4),
        stat("Messages for slurmdbd", "Messages that slurmctld has not yet been able to send to slurmdbd. When this queue is full, \
              accounting records are lost.")
            .curve("waiting", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
            .unit("short")
            .worry(100.0, 2000.0)
            .sized(6, 4),
        text(
            "",
            "\"no data\" in purple means that points no longer arrive (then *Age of data* grows), or that a collector is disabled, as \
             those that cost slurmctld work are by default. CPUs, GPUs and nodes need **nodes**; the partition tables need \
             **partitions**; the user tables need `users` in **jobs** and **rpc_stats**; *Jobs failing* needs **finished**.",
        ),
    ])
}

fn worst() -> Row {
    let most = |what: &str| format!("highestAverage($prefix.{what}, 10)");
    row(
        "Top partitions, users and RPC types",
        vec![
            table(
                "Partitions by pending jobs",
                "Partitions with the most pending jobs. Click a name to see its jobs. Requires the partitions collector.",
                "Partition",
            )
            .each(&most("slurm_partitions.*.gauge-jobs_pending"))
            .unit("short")
            .leads_to("Jobs of this partition", "jobs", "partition"),
            table(
                "Users by CPUs",
                "Users whose jobs have the most CPUs. Click a name to see that user's jobs. Requires users in the jobs collector.",
                "User",
            )
            .nodes(&most("slurm_jobs.user.*.state.running.gauge-cpus"), -4)
            .unit("short")
            .leads_to("Jobs of this user", "jobs", "user"),
            table(
                "RPC types by slurmctld's time",
                "Message types that take the largest share of slurmctld's RPC time. Click a name to see who sends them and how often.",
                "Type",
            )
            .each(&most("slurm_rpc_stats.type.*.gauge-time_share"))
            .unit("percentunit")
            .max(1.0)
            .leads_to("RPCs of this type", "rpc", "type"),
            table(
                "Partitions by CPUs in use",
                "Share of each partition's CPUs that is allocated to jobs. Requires the partitions collector.",
                "Partition",
            )
            .each("asPercent($prefix.slurm_partitions.*.gauge-cpus_allocated, $prefix.slurm_partitions.*.gauge-cpus_total, -2)")
            .unit("percent")
            .max(100.0)
            .leads_to("This partition", "cluster", "partition"),
            table(
                "Users by pending jobs",
                "Users with the most pending jobs. Requires users in the jobs collector.",
                "User",
            )
            .nodes(&most("slurm_jobs.user.*.state.pending.gauge-jobs"), -4)
            .unit("short")
            .leads_to("Jobs of this user", "jobs", "user"),
            table(
                "Users by slurmctld's time",
                "Users whose RPCs take the most of slurmctld's time. Click a name to see what that user requests. Requires users in the \
                 rpc_stats collector.",
                "User",
            )
            .each(&most("slurm_rpc_stats.user.*.gauge-time_share"))
            .unit("percentunit")
            .max(1.0)
            .leads_to("RPCs of this user", "rpc", "user"),
        ],
    )
}

/// Curves here are named by their prefix, which tells clusters apart.
fn clusters() -> Row {
    let both =
        |leaf: &str| format!("aliasSub(group(*.{leaf}, *.*.{leaf}), '^(.+)[.]slurm_[a-z_]+[.].*', '\\1')");
    let each = |title: &str, description: &str, leaf: &str| {
        series(title, description).named(&both(leaf)).min(0.0).sized(8, 8)
    };
    closed(
        "All clusters side by side",
        vec![
            each(
                "Jobs pending, by cluster",
                "All clusters that have data in this Graphite.",
                "slurm_sched_stats.gauge-jobs_pending",
            )
            .unit("short"),
            each(
                "Jobs running, by cluster",
                "All clusters that have data in this Graphite.",
                "slurm_sched_stats.gauge-jobs_running",
            )
            .unit("short"),
            each(
                "Main scheduler at work, by cluster",
                "Share of the time that each cluster's main scheduler was running.",
                "slurm_sched_interval.gauge-main_busy_fraction",
            )
            .unit("percentunit")
            .worry(0.5, 0.8),
        ],
    )
}
