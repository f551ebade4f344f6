//! *RPC load*: what does slurmctld spend its time on, and who asks for it?

use serde_json::Value;

use crate::grafana::{Dashboard, Row, choice, closed, query_variable, row, top};
use crate::panel::{bars, series, stat};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "rpc",
        title: "RPC load",
        description: "What does slurmctld spend its time on, who asks for it, and what costs most at this moment?",
        variables: vec![
            query_variable("type", "Type", "$prefix.slurm_rpc_stats.type.*"),
            query_variable("user", "User", "$prefix.slurm_rpc_stats.user.*"),
            most(),
        ],
        rows: vec![totals(), types(), users(), queue(), slurmdbd()],
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
        stat("Threads", "RPCs being served at this moment, one thread each. Up to Slurm 24.05 new ones wait when there are 256 (max_server_threads).")
            .curve("threads", "$prefix.slurm_sched_stats.gauge-server_thread_count")
            .unit("short")
            .sized(6, 4)
            .worry(128.0, 230.0),
    ])
}

fn types() -> Row {
    row(
        "By type",
        vec![
            series(
                "What costs slurmctld's time",
                "Each type's share of all time spent on RPCs; \"others\" are the types that are not among the largest. A large share for REQUEST_JOB_INFO or REQUEST_PARTITION_INFO: somebody runs squeue \
                 or sinfo in a loop.",
            )
            .each("highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-time_share, $most)")
            .curve(
                "others",
                "diffSeries(sumSeries($prefix.slurm_rpc_stats.type.$type.gauge-time_share), \
                 sumSeries(highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-time_share, $most)))",
            )
            .unit("percentunit")
            .max(1.0)
            .stacked()
            .colour("others", "text")
            .leads_to("This type alone", "rpc", "type")
            .sized(14, 10),
            bars("What costs most now", "The same, in the last interval.")
                .each("highestCurrent($prefix.slurm_rpc_stats.type.$type.gauge-time_share, $most)")
                .unit("percentunit")
                .max(1.0)
                .leads_to("This type alone", "rpc", "type")
                .sized(10, 10),
            series("Calls", "How often each type is asked for.")
                .each("highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-calls_per_minute, $most)")
                .unit("reqpm")
                .min(0.0),
            series("Time of one call", "The mean of the interval, with what the call waited for locks. Absent while nobody asks.")
                .each("highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-interval_mean_time, $most)")
                .unit("µs")
                .log()
                .worry(100_000.0, 1_000_000.0),
        ],
    )
}

fn users() -> Row {
    row(
        "By user (collectors.rpc_stats, users = N)",
        vec![
            series("Who costs slurmctld's time", "Each user's share of all time spent on RPCs. \"others\" is everybody without a path of his own.")
                .each("highestAverage($prefix.slurm_rpc_stats.user.$user.gauge-time_share, $most)")
                .curve("others", "$prefix.slurm_rpc_stats.others.gauge-time_share")
                .unit("percentunit")
                .max(1.0)
                .stacked()
                .leads_to("This user alone", "rpc", "user")
                .colour("others", "text"),
            series("Who calls", "RPCs per minute. A user far above the rest: a script that polls.")
                .each("highestAverage($prefix.slurm_rpc_stats.user.$user.gauge-calls_per_minute, $most)")
                .curve("others", "$prefix.slurm_rpc_stats.others.gauge-calls_per_minute")
                .unit("reqpm")
                .min(0.0)
                .leads_to("This user alone", "rpc", "user")
                .colour("others", "text"),
            series("Tables", "Rows of slurmctld's tables. At 100 types and at 200 users they are full, and what comes then is counted nowhere.")
                .curve("types", "$prefix.slurm_rpc_stats.total.gauge-types")
                .curve("users", "$prefix.slurm_rpc_stats.total.gauge-users")
                .unit("short")
                .min(0.0)
                .worry(100.0, 200.0),
        ],
    )
}

fn queue() -> Row {
    closed(
        "Queued and pending RPCs (the queue: Slurm 24.05 and later, where enabled)",
        vec![
            series("Queued", "RPCs that wait in slurmctld's queue of their type.")
                .each("highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-queued, $most)")
                .unit("short")
                .min(0.0),
            series("Dropped", "RPCs that slurmctld threw away because the queue of their type was full.")
                .each(
                    "highestMax(nonNegativeDerivative($prefix.slurm_rpc_stats.type.$type.gauge-dropped), $most)",
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

/// slurmdbd's own, next to slurmctld's: a slow one makes slurmctld slow.
fn slurmdbd() -> Row {
    let most = |leaf: &str| format!("highestAverage($prefix.slurm_slurmdbd.type.*.gauge-{leaf}, $most)");
    closed(
        "slurmdbd (collectors.slurmdbd)",
        vec![
            series(
                "Age of the roll-ups",
                "Since the end of the last hour, day and month that slurmdbd has added up for sreport. Of the hour up to an hour is usual; above two \
                 slurmdbd or its database hangs.",
            )
            .each("$prefix.slurm_slurmdbd.rollup.*.gauge-age")
            .unit("s")
            .log()
            .survey()
            .worry(7200.0, 86400.0),
            series("slurmdbd: time of an RPC", "The mean of the interval. It grows when the database is slow: its disk, a purge, a backup.")
                .curve("mean", "$prefix.slurm_slurmdbd.total.gauge-interval_mean_time")
                .unit("µs")
                .log()
                .survey(),
            series("slurmdbd: what costs its time", "Each type's share of all time that slurmdbd spent on RPCs, of all clusters that it serves.")
                .each(&most("time_share"))
                .unit("percentunit")
                .max(1.0)
                .stacked()
                .survey(),
            series("slurmdbd: calls", "How often each type is asked for.")
                .each(&most("calls_per_minute"))
                .unit("reqpm")
                .min(0.0)
                .survey(),
        ],
    )
}
