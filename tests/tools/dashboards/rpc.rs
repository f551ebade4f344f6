//! *RPC load*: what does slurmctld spend its time on, and who sends the requests?

use crate::grafana::{Dashboard, Row, choice, closed, query_variable, row, top};
use crate::needs;
use crate::overview::{RPC_TIME, THREADS, busy};
use crate::panel::{growth, series, stat, table};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "rpc",
        title: "RPC load",
        description: "What does slurmctld spend its time on, and who sends the requests?",
        variables: vec![
            query_variable("type", "Type", "$prefix.slurm_rpc_stats.type.*"),
            query_variable("user", "User", "$prefix.slurm_rpc_stats.user.*"),
            // slurmctld keeps up to 100 types and 200 users: graphs show the largest.
            choice("most", "Show the largest", &["10", "5", "20", "50"]),
        ],
        rows: vec![totals(), types(), users(), queue(), slurmdbd()],
    }
}

fn totals() -> Row {
    top([
        stat("RPCs", "RPCs of all types that slurmctld served, per minute.")
            .curve("per minute", "$prefix.slurm_rpc_stats.total.gauge-calls_per_minute")
            .unit("reqpm")
            .sized(5, 4)
            .neutral()
            .opens("Scheduler", "scheduler"),
        stat(
            "RPCs at a time",
            "Average number of RPCs that slurmctld was serving at the same time, including the \
             time for which they waited for its locks. RPCs that only read (squeue, sinfo) run \
             side by side. If this rises together with the mean time, RPCs wait.",
        )
        .curve("at a time", "$prefix.slurm_rpc_stats.total.gauge-busy")
        .unit("short")
        .decimals(2)
        .sized(5, 4)
        .neutral()
        .opens("Scheduler", "scheduler"),
        stat(
            "Mean RPC time",
            "Mean time of an RPC in the interval. It includes the time that the RPC \
            waited for locks.",
        )
        .curve("mean time", RPC_TIME)
        .unit("µs")
        .sized(5, 4)
        .worry(100_000.0, 1_000_000.0)
        .explained_by("slurmctld answers slowly"),
        stat(
            "Threads",
            "RPCs being served right now, one thread each. Up to Slurm 24.05, new RPCs \
              wait when there are 256 (max_server_threads).",
        )
        .curve("threads", "$prefix.slurm_sched_stats.gauge-server_thread_count")
        .whole()
        .sized(5, 4)
        .worry(128.0, 230.0)
        .explained_by("slurmctld runs out of threads"),
        stat(
            "Tables",
            "Rows in slurmctld's RPC tables. They are full at 100 types and 200 users; \
              further types and users are not counted at all. That the table of users is full is \
              normal where there are many: only sdiag --reset, which begins all counters again, or \
              a restart of slurmctld empties it.",
        )
        .curve("types", "$prefix.slurm_rpc_stats.total.gauge-types")
        .curve("users", "$prefix.slurm_rpc_stats.total.gauge-users")
        .whole()
        .neutral()
        .explained_by("slurmctld's table of RPC types is full"),
    ])
}

fn types() -> Row {
    let all = busy("type.$type");
    let largest = format!("highestAverage({all}, $most)");
    row("By type").with([
        series(
            "RPC time by type",
            "How many of slurmctld's threads each type keeps busy. \"others\" is the sum of the \
             smaller types. If REQUEST_JOB_INFO or REQUEST_PARTITION_INFO is large, \
             somebody is running squeue or sinfo in a loop.",
        )
        .each(&largest)
        .line("others", "text", &format!("diffSeries(sumSeries({all}), sumSeries({largest}))"))
        .unit(THREADS)
        .stacked()
        .leads_to("This type alone", "rpc", "type")
        .sized(14, 12),
        table(
            "RPC types by threads kept busy",
            "How many threads each type kept busy: now, and at most in the shown time, so that a \
             type that has stopped is still in it.",
            "Type",
        )
        .each(&format!("highestMax({all}, $most)"))
        .unit("short")
        .decimals(2)
        .leads_to("This type alone", "rpc", "type")
        .sized(10, 12),
        series("Calls", "RPCs per minute, by type.")
            .each(
                "highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-calls_per_minute, $most)",
            )
            .unit("reqpm")
            .sized(12, 10),
        series(
            "Time of one call",
            "Mean time of an RPC in the interval, including the time that \
                it waited for locks. There is no point if there was no RPC.",
        )
        .each(
            "highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-interval_mean_time, \
                $most)",
        )
        .unit("µs")
        .log()
        .worry(100_000.0, 1_000_000.0)
        .sized(12, 10),
    ])
}

fn users() -> Row {
    closed("By user (collectors.rpc_stats, users = N)").needs(needs::RPC_USERS).with([
        series(
            "RPC time by user",
            "Each user's share of slurmctld's RPC time. \"others\" is the sum of all users without \
                their own path.",
        )
        .each("highestAverage($prefix.slurm_rpc_stats.user.$user.gauge-time_share, $most)")
        .line("others", "text", "$prefix.slurm_rpc_stats.others.gauge-time_share")
        .unit("percentunit")
        .max(1.0)
        .stacked()
        .leads_to("This user alone", "rpc", "user"),
        table(
            "Users by threads kept busy",
            "How many threads each user's RPCs kept busy: now, and at most in the shown time.",
            "User",
        )
        .each(&format!("highestMax({}, $most)", busy("user.$user")))
        .unit("short")
        .decimals(2)
        .leads_to("This user alone", "rpc", "user")
        .sized(12, 8),
        series(
            "RPCs by user",
            "RPCs per minute. A user far above the rest is probably running a script that polls \
                slurmctld.",
        )
        .each("highestAverage($prefix.slurm_rpc_stats.user.$user.gauge-calls_per_minute, $most)")
        .line("others", "text", "$prefix.slurm_rpc_stats.others.gauge-calls_per_minute")
        .unit("reqpm")
        .leads_to("This user alone", "rpc", "user"),
    ])
}

fn queue() -> Row {
    closed("Queued and pending RPCs (the queue: Slurm 24.05 and later, where enabled)").with([
        series("Queued", "RPCs that are waiting in slurmctld's queue, by type.")
            .each("highestAverage($prefix.slurm_rpc_stats.type.$type.gauge-queued, $most)")
            .whole(),
        series("Dropped", "RPCs that slurmctld refused because the queue of their type was full.")
            .each(&format!(
                "highestMax({}, $most)",
                growth("$prefix.slurm_rpc_stats.type.$type.gauge-dropped")
            ))
            .unit("short"),
        series("Pending", "RPCs to nodes that are waiting for an agent, by type.")
            .each("highestAverage($prefix.slurm_rpc_stats.pending.*.gauge-count, $most)")
            .whole(),
        series(
            "Pending, all",
            "RPCs to nodes that are waiting for an agent, and how many of them sdiag would list.",
        )
        .curve("pending", "$prefix.slurm_rpc_stats.pending_total.gauge-count")
        .curve("listed", "$prefix.slurm_rpc_stats.pending_total.gauge-dumped")
        .whole(),
    ])
}

/// slurmdbd's own RPCs: a slow slurmdbd makes slurmctld slow.
fn slurmdbd() -> Row {
    let most =
        |leaf: &str| format!("highestAverage($prefix.slurm_slurmdbd.type.*.gauge-{leaf}, $most)");
    closed("slurmdbd (collectors.slurmdbd)").surveys(needs::SLURMDBD).with([
        series(
            "Age of the roll-ups",
            "Time since the end of the last hour, day and month that slurmdbd has rolled up for \
             sreport. The hourly figure is normally below one hour. Above two hours, slurmdbd or \
             its database hangs.",
        )
        .each("$prefix.slurm_slurmdbd.rollup.*.gauge-age")
        .hours()
        .log()
        .worry(2.0, 24.0),
        series(
            "slurmdbd: time of an RPC",
            "Mean time of an RPC in the interval. It grows when the \
                database is slow, for example because of its disk, a purge or a backup.",
        )
        .curve("mean", "$prefix.slurm_slurmdbd.total.gauge-interval_mean_time")
        .unit("µs")
        .log(),
        series(
            "slurmdbd: RPC time by type",
            "Each type's share of slurmdbd's RPC time, for all \
            clusters that slurmdbd serves.",
        )
        .each(&most("time_share"))
        .unit("percentunit")
        .max(1.0)
        .stacked(),
        series("slurmdbd: calls", "RPCs per minute, by type.")
            .each(&most("calls_per_minute"))
            .unit("reqpm"),
    ])
}
