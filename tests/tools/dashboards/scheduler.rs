//! *Scheduler*: is slurmctld healthy, how long do its cycles take, how far do they get, and why do
//! they end?

use crate::alerts;
use crate::grafana::{Dashboard, Row, closed, row, top};
use crate::needs;
use crate::overview::{MAIN_CYCLE, RPC_TIME, age_of_data, answers, jobs, main_cycle};
use crate::panel::{Panel, growth, series, stat};
use crate::verdict::verdict;

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "scheduler",
        title: "Scheduler",
        description: "Is slurmctld healthy? How long do its scheduling cycles take, how far do \
            they get, and why do they end?",
        variables: Vec::new(),
        rows: vec![health(), cycles(), depth(), server(), controllers(), ends()],
    }
}

fn health() -> Row {
    top([
        verdict(&alerts::slurmctld()),
        age_of_data().sized(3, 4),
        answers().sized(3, 4),
        main_cycle().explained_by("The main scheduler is slow"),
        stat(
            "Last backfill",
            "Time since the last backfill cycle began. slurmctld runs a cycle only if something \
             has changed and a job that could start is waiting; held jobs do not count. If there \
             are such jobs and no cycle for minutes, check bf_interval, max_rpc_cnt and the RPC \
             load.",
        )
        .curve("ago", "$prefix.slurm_sched_interval.gauge-bf_last_cycle_age")
        .unit("s")
        .sized(3, 4)
        .neutral()
        .explained_by("Backfill does not run"),
        stat(
            "RPC threads",
            "RPCs being served right now, one thread each. Up to Slurm 24.05, new RPCs wait when \
             there are 256 (max_server_threads), and commands hang. Later releases have no such \
             limit; look at the RPC times on the RPC load dashboard instead.",
        )
        .curve("threads", "$prefix.slurm_sched_stats.gauge-server_thread_count")
        .whole()
        .min(0.0)
        .sized(3, 4)
        .worry(128.0, 230.0)
        .opens("RPC load", "rpc"),
        stat(
            "Agent queue",
            "Messages to nodes that are waiting for an agent. If there are \
              thousands and the number does not fall, some nodes do not answer.",
        )
        .curve("waiting", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
        .whole()
        .sized(3, 4)
        .worry(500.0, 2000.0)
        .explained_by("Messages for nodes pile up"),
        stat(
            "DBD queue",
            "Messages that are waiting for slurmdbd. If the queue only grows, \
              slurmdbd is down or slow. When it is full, accounting records are lost.",
        )
        .curve("waiting", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
        .whole()
        .sized(3, 4)
        .worry(100.0, 2000.0)
        .explained_by("Messages for slurmdbd pile up"),
        jobs().sized(3, 4),
    ])
}

fn cycles() -> Row {
    row("Cycles").with([
        cycle_times(
            "main",
            "Main scheduler: cycle time",
            "The mean of the interval shows the present. The mean and maximum since the reset are \
             sdiag's. They cover the time since midnight UTC, so they hide a stall of a few \
             minutes; up to Slurm 25.05 the sum behind the mean also wraps after 71.6 minutes of \
             scheduling. Cycles of more than a few seconds hold slurmctld's locks and make \
             commands wait; see max_sched_time and default_queue_depth.",
        )
        .week_ago("mean a week ago", "light-orange", MAIN_CYCLE)
        .worry(1_000_000.0, 5_000_000.0),
        cycle_times(
            "bf",
            "Backfill: cycle time",
            "Cycle time without the time that backfill slept to let other work proceed. Near \
             bf_max_time, the cycle was cut short and did not reach the end of the queue; see the \
             coverage below.",
        ),
        series(
            "Busy fraction",
            "Share of the time that each scheduler was running. If the main scheduler runs more \
             than half of the time, RPCs have to wait. A backfill scheduler near 1 never pauses.",
        )
        .line("main", "blue", "$prefix.slurm_sched_interval.gauge-main_busy_fraction")
        .line("backfill", "orange", "$prefix.slurm_sched_interval.gauge-bf_busy_fraction")
        .unit("percentunit")
        .worry(0.5, 0.8),
        series(
            "Cycles per minute",
            "Backfill runs every bf_interval (30 seconds). The main scheduler also runs when a job \
                is submitted or ends.",
        )
        .line("main", "blue", "$prefix.slurm_sched_interval.gauge-main_cycles_per_minute")
        .line("backfill", "orange", "$prefix.slurm_sched_interval.gauge-bf_cycles_per_minute")
        .unit("short"),
    ])
}

/// The last cycle is only a sample, the others are means: the mean of the interval is the thick
/// line.
fn cycle_times(which: &str, title: &str, description: &str) -> Panel {
    let of_sdiag = |leaf: &str| format!("$prefix.slurm_sched_stats.gauge-{which}_{leaf}");
    series(title, description)
        .line("last cycle", "light-blue", &of_sdiag("last_cycle"))
        .line("mean", "orange", &format!("$prefix.slurm_sched_interval.gauge-{which}_mean_cycle"))
        .line("mean since reset", "green", &of_sdiag("mean_cycle"))
        .line("max since reset", "red", &format!("consolidateBy({}, 'max')", of_sdiag("max_cycle")))
        .beside("mean since reset")
        .beside("max since reset")
        .unit("µs")
        .log()
}

fn depth() -> Row {
    let backfill = |leaf: &str| format!("$prefix.slurm_sched_stats.gauge-bf_{leaf}");
    row("Depth").with([
        series(
            "Main scheduler: queue and depth",
            "Entries in the queue, and how many of them a cycle examines. A job has one entry for \
             each of its partitions; an array has one. After a submission, a cycle examines only \
             default_queue_depth jobs.",
        )
        .line("queue", "blue", "$prefix.slurm_sched_stats.gauge-main_last_queue_length")
        .line("looked at", "orange", "$prefix.slurm_sched_interval.gauge-main_mean_depth")
        .unit("locale")
        .decimals(0),
        series(
            "Backfill: queue and depth",
            "Entries in the queue, and how many jobs and array tasks a cycle examines and tries to \
             start. A job has one entry for each of its partitions; an array has one. Coverage is \
             the number of tries divided by the entries of the last cycle, so arrays can raise it \
             above 1. If it is well below 1, some jobs were never tried; check bf_max_job_test, \
             bf_max_time and the limits per user and partition. The last cycle, and the mean queue \
             since the reset, are sdiag's.",
        )
        .right("coverage", "percentunit")
        .line("coverage", "purple", "$prefix.slurm_sched_interval.gauge-bf_coverage")
        .line("queue", "blue", "$prefix.slurm_sched_stats.gauge-bf_queue_length")
        .line("looked at", "orange", "$prefix.slurm_sched_interval.gauge-bf_depth_mean")
        .line("tried", "green", "$prefix.slurm_sched_interval.gauge-bf_depth_mean_try")
        .line("queue, mean since reset", "light-blue", &backfill("queue_length_mean"))
        .line("looked at, last cycle", "light-orange", &backfill("last_depth_cycle"))
        .line("tried, last cycle", "light-green", &backfill("last_depth_cycle_try"))
        .beside("queue, mean since reset")
        .beside("looked at, last cycle")
        .beside("tried, last cycle")
        .unit("short"),
    ])
}

fn server() -> Row {
    row("slurmctld").with([
        series(
            "Threads and agents",
            "RPCs being served right now, and agents that send messages to nodes.",
        )
        .curve("RPC threads", "$prefix.slurm_sched_stats.gauge-server_thread_count")
        .curve("agents", "$prefix.slurm_sched_stats.gauge-agent_count")
        .curve("agent threads", "$prefix.slurm_sched_stats.gauge-agent_thread_count")
        .whole()
        .worry(128.0, 230.0),
        series("Queues", "Messages that are waiting to be sent to nodes and to slurmdbd.")
            .curve("to nodes", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
            .curve("to slurmdbd", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
            .whole()
            .worry(500.0, 2000.0),
        series(
            "Age of the job counts",
            "Age of slurmctld's own counts of pending and running jobs. Up to 30 seconds is \
             normal. Above a minute, slurmctld's background work is delayed.",
        )
        .curve("age", "$prefix.slurm_sched_interval.gauge-job_states_age")
        .unit("s")
        .worry(60.0, 300.0),
        series(
            "Mean RPC time",
            "Mean time of an RPC in the interval, including the time that it waited \
                for slurmctld's locks. This is how long a user waits for squeue.",
        )
        .line("mean", "purple", RPC_TIME)
        .week_ago("a week ago", "light-purple", RPC_TIME)
        .unit("µs")
        .log()
        .worry(100_000.0, 1_000_000.0),
    ])
}

fn controllers() -> Row {
    closed("Controllers (collectors.controllers)").surveys(needs::CONTROLLERS).with([series(
        "Controllers",
        "1 if the host in SlurmctldHost answers a ping, as with scontrol ping.",
    )
    .each("$prefix.slurm_controllers.*.gauge-up")
    .max(1.0)
    .sized(24, 5)])
}

fn ends() -> Row {
    closed("Why cycles end (Slurm 23.11 and later)").with([
        series(
            "Main scheduler: why cycles ended",
            "\"end\" is good: the cycle reached the end of the queue. With \"max_depth\" and \
             \"timeout\" it did not. With \"rpc_cnt\" it gave way to RPCs (max_rpc_cnt).",
        )
        .each(&growth("$prefix.slurm_sched_exit.main.*.gauge-count"))
        .unit("short")
        .stacked(),
        series(
            "Backfill: why cycles ended",
            "\"end\" is good. \"max_job_test\", \"max_job_start\", \"table_limit\" and \"timeout\" \
             are the bf_ limits that can end a cycle. \"state_changed\" means that jobs or nodes \
             changed while backfill slept.",
        )
        .each(&growth("$prefix.slurm_sched_exit.bf.*.gauge-count"))
        .unit("short")
        .stacked(),
    ])
}
