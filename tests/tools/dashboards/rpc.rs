//! *RPC load*: what does slurmctld spend its time on, and who asks for it?

use serde_json::Value;

use crate::grafana::{Dashboard, Row, choice, closed, row, top};
use crate::panel::{bars, series, stat};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "rpc",
        title: "RPC load",
        description: "What does slurmctld spend its time on, who asks for it, and what costs most at this moment?",
        variables: vec![most()],
        rows: vec![totals(), types(), users(), queue()],
    }
}

/// slurmctld keeps up to 100 types and 200 users: pictures show the largest.
fn most() -> Value {
    choice("most", "Show the largest", &["10", "5", "20", "50"])
}

fn totals() -> Row {
    top(vec![
        stat("RPCs", "RPCs that slurmctld served in the interval, of all types.")
            .curve("per minute", "$prefix.slurm_rpc_stats.total.gauge-calls_per_minute")
            .unit("reqpm")
            .sized(6, 4)
            .neutral(),
        stat(
            "RPCs at a time",
            "Seconds spent on RPCs for each second: how many were being served at a time, on average. Above 1 slurmctld's locks decide what is served.",
        )
        .curve("at a time", "$prefix.slurm_rpc_stats.total.gauge-busy")
        .unit("short")
        .decimals(2)
        .sized(6, 4)
        .worry(1.0, 4.0),
        stat("Mean time", "What one RPC of the interval took. It contains the time that it waited for locks.")
            .curve("mean time", "$prefix.slurm_rpc_stats.total.gauge-interval_mean_time")
            .unit("µs")
            .sized(6, 4)
            .worry(100_000.0, 1_000_000.0),
        stat("Threads", "RPCs being served at this moment, one thread each; new ones wait at max_server_threads (256 by default).")
            .curve("threads", "$prefix.slurm_sched_stats.gauge-server_thread_count")
            .unit("short")
            .sized(6, 4)
            .worry(128.0, 200.0),
    ])
}

fn types() -> Row {
    row(
        "By type",
        vec![
            series(
                "What costs slurmctld's time",
                "Each type's share of all time spent on RPCs. A large share for REQUEST_JOB_INFO or REQUEST_PARTITION_INFO: somebody runs squeue \
                 or sinfo in a loop.",
            )
            .each("highestAverage($prefix.slurm_rpc_stats.type.*.gauge-time_share, $most)")
            .unit("percentunit")
            .max(1.0)
            .stacked()
            .sized(14, 10),
            bars("What costs most now", "The same, in the last interval.")
                .each("highestCurrent($prefix.slurm_rpc_stats.type.*.gauge-time_share, $most)")
                .unit("percentunit")
                .max(1.0)
                .sized(10, 10),
            series("Calls", "How often each type is asked for.")
                .each("highestAverage($prefix.slurm_rpc_stats.type.*.gauge-calls_per_minute, $most)")
                .unit("reqpm")
                .min(0.0),
            series("Time of one call", "The mean of the interval, with what the call waited for locks. Absent while nobody asks.")
                .each("highestAverage($prefix.slurm_rpc_stats.type.*.gauge-interval_mean_time, $most)")
                .unit("µs")
                .log(),
        ],
    )
}

fn users() -> Row {
    row(
        "By user (collectors.rpc_stats, users = N)",
        vec![
            series("Who costs slurmctld's time", "Each user's share of all time spent on RPCs. \"others\" is everybody without a path of his own.")
                .each("highestAverage($prefix.slurm_rpc_stats.user.*.gauge-time_share, $most)")
                .curve("others", "$prefix.slurm_rpc_stats.others.gauge-time_share")
                .unit("percentunit")
                .max(1.0)
                .stacked()
                .colour("others", "text"),
            series("Who calls", "RPCs per minute. A user far above the rest: a script that polls.")
                .each("highestAverage($prefix.slurm_rpc_stats.user.*.gauge-calls_per_minute, $most)")
                .curve("others", "$prefix.slurm_rpc_stats.others.gauge-calls_per_minute")
                .unit("reqpm")
                .min(0.0)
                .colour("others", "text"),
        ],
    )
}

fn queue() -> Row {
    closed(
        "Queued and pending RPCs (the queue: Slurm 24.05 and later, where enabled)",
        vec![
            series("Queued", "RPCs that wait in slurmctld's queue of their type.")
                .each("highestAverage($prefix.slurm_rpc_stats.type.*.gauge-queued, $most)")
                .unit("short")
                .min(0.0),
            series("Dropped", "RPCs that slurmctld threw away because the queue of their type was full.")
                .each(
                    "highestMax(nonNegativeDerivative($prefix.slurm_rpc_stats.type.*.gauge-dropped), $most)",
                )
                .unit("short")
                .min(0.0),
            series("Pending", "RPCs to nodes that wait for an agent, by type.")
                .each("highestAverage($prefix.slurm_rpc_stats.pending.*.gauge-count, $most)")
                .unit("short")
                .min(0.0),
            series(
                "Pending, all",
                "RPCs to nodes that wait for an agent, and how many of them sdiag would list.",
            )
            .curve("pending", "$prefix.slurm_rpc_stats.pending_total.gauge-count")
            .curve("listed", "$prefix.slurm_rpc_stats.pending_total.gauge-dumped")
            .unit("short")
            .min(0.0),
        ],
    )
}
