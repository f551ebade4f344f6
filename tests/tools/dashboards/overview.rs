//! *Overview*: is all well, and if not, where does one look next?

use crate::grafana::{Dashboard, Row, closed, row, top};
use crate::panel::{Panel, alerts, series, stat, table, text};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "Overview",
        description: "Is all well with the cluster, and if not, where does one look next?",
        variables: Vec::new(),
        rows: vec![now(), lately(), worst(), clusters()],
    }
}

/// How long ago slurmctld's last answer was, by the clock of Graphite's host, to half an interval; and never below 0, whatever the clocks.
pub(crate) fn age_of_data() -> Panel {
    stat(
        "Age of data",
        "How old slurmctld's last answer in Graphite is. If it grows, every other figure here is of the past: slurmctld, slurm-graphite or \
         Carbon is away.",
    )
    .curve(
        "age",
        // By minutes, which is a step that both have: VictoriaMetrics subtracts only where there is a point.
        "maxSeries(group(diffSeries(summarize(timeFunction('now', 1), '1min', 'max'), \
         keepLastValue(summarize($prefix.slurm_sched_stats.gauge-req_time, '1min', 'max'))), \
         scale(keepLastValue(summarize($prefix.slurm_sched_stats.gauge-req_time, '1min', 'max')), 0)))",
    )
    .unit("s")
    .min(0.0)
    .worry(120.0, 300.0)
}

pub(crate) fn answers() -> Panel {
    stat("slurmctld", "Whether slurmctld answered the last time it was asked.")
        .curve("slurmctld", "$prefix.slurm_health.gauge-up")
        .switch("answers", "silent")
}

/// Nodes in these states as a share of all; 0 and not nothing where no node was ever in one.
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
        stat("Jobs", "Jobs pending and running when slurmctld last counted them, up to about 30 s ago.")
            .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
            .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
            .unit("short")
            .sized(4, 4)
            .neutral(),
        used(
            "CPUs in use",
            "cpus",
            "CPUs that jobs have, as a share of all. Needs the collector nodes; so do the next two.",
        ),
        used("GPUs in use", "gpus", "GPUs that jobs have, as a share of all. No data on a cluster without GPUs."),
        nodes_out().sized(5, 4),
        stat(
            "RPCs at a time",
            "How many RPCs slurmctld was serving at once, on average. Above 1 they wait for each other: see *RPC load*.",
        )
        .curve("at a time", "$prefix.slurm_rpc_stats.total.gauge-busy")
        .unit("short")
        .decimals(2)
        .sized(3, 4)
        .worry(1.0, 4.0),
    ])
}

/// Red by share: one broken node of a thousand is no alarm.
pub(crate) fn nodes_out() -> Panel {
    stat("Nodes out", "Nodes that are down, and nodes drained or draining, as a share of all.")
        .curve("down", &nodes_in(DOWN))
        .curve("drained", &nodes_in(DRAINED))
        .unit("percentunit")
        .decimals(1)
        .worry(0.02, 0.1)
}

/// Of the jobs that ended within the last hour, those that did not end as their users meant.
/// The division by 0 or 1 leaves no point where there is no round.
pub(crate) const FAILING: &str = "divideSeries(divideSeries(movingSum(sumSeries(group(\
    $prefix.slurm_jobs_finished.total.state.{failed,node_fail,out_of_memory,boot_fail}.gauge-jobs, \
    scale($prefix.slurm_jobs_finished.total.work.gauge-jobs, 0))), '1hour'), \
    sumSeries(movingSum($prefix.slurm_jobs_finished.total.work.gauge-jobs, '1hour'))), \
    isNonNull($prefix.slurm_jobs_finished.total.work.gauge-jobs))";

fn lately() -> Row {
    top(vec![
        alerts(
            "Alerts",
            "What fires now, or will if it lasts. Each alert links to its page of the runbook. Empty, too, where the alert rules were not \
             provisioned.",
        ),
        series("Pending and running", "As slurmctld last counted them; it counts about every 30 s.")
            .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
            .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
            .unit("short")
            .min(0.0)
            .colour("pending", "yellow")
            .colour("running", "blue")
            .sized(8, 8),
        series(
            "slurmctld at work",
            "The share of the time that the main scheduler and backfill worked. A main scheduler above a half leaves RPCs waiting.",
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
            "Of the jobs that ended in the last hour, those that failed, ran out of memory or lost their node. Needs the collector finished.",
        )
        .curve("failed", FAILING)
        .unit("percentunit")
        .worry(0.2, 0.5)
        .sized(6, 4),
        stat(
            "Jobs not launched",
            "Jobs a minute that slurmd could not run, as slurmctld counts failures: a broken node or file system, not a program that fails.",
        )
        .curve("a minute", "$prefix.slurm_sched_interval.gauge-jobs_failed_per_minute")
        .unit("short")
        .worry(0.5, 5.0)
        .sized(6, 4),
        stat(
            "Time since last backfill",
            "How long ago the last backfill cycle began. It runs only while a job that could run waits and anything has changed.",
        )
        .curve("ago", "$prefix.slurm_sched_interval.gauge-bf_last_cycle_age")
        .unit("s")
        .neutral()
        .sized(6, 4),
        stat("Messages for slurmdbd", "What slurmctld could not tell slurmdbd yet. Accounting is lost when the queue is full.")
            .curve("waiting", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
            .unit("short")
            .worry(100.0, 2000.0)
            .sized(6, 4),
        text(
            "",
            "\"no data\" in purple: either the points have stopped (then *Age of data* grows), or a collector is off that slurmctld must work for. CPUs, GPUs \
             and nodes need **nodes**; tables of partitions **partitions**; tables of users `users` in **jobs** and **rpc_stats**; *Jobs failing* \
             **finished**.",
        ),
    ])
}

fn worst() -> Row {
    let most = |what: &str| format!("highestAverage($prefix.{what}, 10)");
    row(
        "Who and what most",
        vec![
            table(
                "Partitions by pending jobs",
                "Partitions with the most pending jobs. Click on one for its jobs. Needs the collector partitions.",
                "Partition",
            )
            .each(&most("slurm_partitions.*.gauge-jobs_pending"))
            .unit("short")
            .leads_to("Jobs of this partition", "jobs", "partition"),
            table(
                "Users by CPUs",
                "Users whose jobs have the most CPUs. Click on one for these jobs. Needs users in the collector jobs.",
                "User",
            )
            .nodes(&most("slurm_jobs.user.*.state.running.gauge-cpus"), -4)
            .unit("short")
            .leads_to("Jobs of this user", "jobs", "user"),
            table(
                "RPC types by slurmctld's time",
                "Message types that cost slurmctld the most time, as a share of all time spent on RPCs. Click on one for who and how often.",
                "Type",
            )
            .each(&most("slurm_rpc_stats.type.*.gauge-time_share"))
            .unit("percentunit")
            .max(1.0)
            .leads_to("RPCs of this type", "rpc", "type"),
            table(
                "Partitions by CPUs in use",
                "CPUs that jobs have, as a share of the partition's. Needs the collector partitions.",
                "Partition",
            )
            .each("asPercent($prefix.slurm_partitions.*.gauge-cpus_allocated, $prefix.slurm_partitions.*.gauge-cpus_total, -2)")
            .unit("percent")
            .max(100.0)
            .leads_to("This partition", "cluster", "partition"),
            table(
                "Users by pending jobs",
                "Users with the most pending jobs. Needs users in the collector jobs.",
                "User",
            )
            .nodes(&most("slurm_jobs.user.*.state.pending.gauge-jobs"), -4)
            .unit("short")
            .leads_to("Jobs of this user", "jobs", "user"),
            table(
                "Users by slurmctld's time",
                "Users whose RPCs cost slurmctld the most time. Click on one for what they ask. Needs users in the collector rpc_stats.",
                "User",
            )
            .each(&most("slurm_rpc_stats.user.*.gauge-time_share"))
            .unit("percentunit")
            .max(1.0)
            .leads_to("RPCs of this user", "rpc", "user"),
        ],
    )
}

/// The prefix is what a curve is called here: it tells clusters apart.
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
                "Every cluster that this Graphite knows.",
                "slurm_sched_stats.gauge-jobs_pending",
            )
            .unit("short"),
            each(
                "Jobs running, by cluster",
                "Every cluster that this Graphite knows.",
                "slurm_sched_stats.gauge-jobs_running",
            )
            .unit("short"),
            each(
                "Main scheduler at work, by cluster",
                "The share of the time that each cluster's main scheduler worked.",
                "slurm_sched_interval.gauge-main_busy_fraction",
            )
            .unit("percentunit")
            .worry(0.5, 0.8),
        ],
    )
}
