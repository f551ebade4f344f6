//! *Scheduler*: is slurmctld well, how long do its cycles take, how far do they get, and why do they end?

use crate::grafana::{Dashboard, Row, closed, row, top};
use crate::overview::{age_of_data, answers};
use crate::panel::{Panel, series, stat};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "scheduler",
        title: "Scheduler",
        description: "Is slurmctld well, how long do its scheduling cycles take, how far do they get, and why do they end?",
        variables: Vec::new(),
        rows: vec![health(), cycles(), depth(), server(), ends()],
    }
}

fn health() -> Row {
    top(vec![
        age_of_data().sized(3, 4),
        answers().sized(3, 4),
        stat(
            "Time since last backfill",
            "How long ago the last backfill cycle began. slurmctld runs one only while a job that could run waits and anything has changed: \
             held jobs alone need none. With jobs that could run and minutes without a cycle look at bf_interval, at the RPC load and at \
             max_rpc_cnt.",
        )
        .curve("ago", "$prefix.slurm_sched_interval.gauge-bf_last_cycle_age")
        .unit("s")
        .sized(4, 4)
        .neutral(),
        stat(
            "RPC threads",
            "RPCs being served at this moment, one thread each. Up to Slurm 24.05 new ones wait when there are 256 (max_server_threads), and \
             users see hanging commands. Later releases have no such limit; there the time of an RPC on the dashboard RPC load tells it.",
        )
        .curve("threads", "$prefix.slurm_sched_stats.gauge-server_thread_count")
        .unit("short")
        .min(0.0)
        .sized(3, 4)
        .worry(128.0, 230.0),
        stat("Agent queue", "Messages to nodes that wait for an agent. Thousands that do not go away: nodes that do not answer.")
            .curve("waiting", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
            .unit("short")
            .sized(3, 4)
            .worry(500.0, 2000.0),
        stat("DBD queue", "Messages that wait for slurmdbd. A queue that only grows: slurmdbd is away or slow. A full one loses accounting.")
            .curve("waiting", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
            .unit("short")
            .sized(4, 4)
            .worry(100.0, 2000.0),
        stat("Jobs", "Jobs pending and running when slurmctld last counted them, up to about 30 s ago.")
            .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
            .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
            .unit("short")
            .sized(4, 4)
            .neutral(),
    ])
}

fn cycles() -> Row {
    row(
        "Cycles",
        vec![
            cycle_times(
                "Main scheduler: cycle time",
                "The interval's mean says what happens now. The mean and maximum since the reset are sdiag's: they run since midnight UTC \
                 and hide a stall of minutes, and up to Slurm 25.05 the sum behind that mean wraps after 71.6 minutes of scheduling. Cycles \
                 of over a few seconds hold slurmctld's locks and make commands wait: see max_sched_time and default_queue_depth.",
            )
            .curve("last cycle", "$prefix.slurm_sched_stats.gauge-main_last_cycle")
            .curve("mean, interval", "$prefix.slurm_sched_interval.gauge-main_mean_cycle")
            .curve("mean since reset", "$prefix.slurm_sched_stats.gauge-main_mean_cycle")
            .curve("max since reset", "consolidateBy($prefix.slurm_sched_stats.gauge-main_max_cycle, 'max')")
            .worry(1_000_000.0, 5_000_000.0),
            cycle_times(
                "Backfill: cycle time",
                "Without the time that backfill slept to let others work. Near bf_max_time a cycle was cut short and did not see the whole \
                 queue: see coverage below.",
            )
            .curve("last cycle", "$prefix.slurm_sched_stats.gauge-bf_last_cycle")
            .curve("mean, interval", "$prefix.slurm_sched_interval.gauge-bf_mean_cycle")
            .curve("mean since reset", "$prefix.slurm_sched_stats.gauge-bf_mean_cycle")
            .curve("max since reset", "consolidateBy($prefix.slurm_sched_stats.gauge-bf_max_cycle, 'max')"),
            series(
                "Busy fraction",
                "The part of the time that each scheduler worked. A main scheduler above a half leaves RPCs waiting; a backfill near 1 never rests.",
            )
            .curve("main", "$prefix.slurm_sched_interval.gauge-main_busy_fraction")
            .curve("backfill", "$prefix.slurm_sched_interval.gauge-bf_busy_fraction")
            .unit("percentunit")
            .min(0.0)
            .worry(0.5, 0.8)
            .colour("main", "blue")
            .colour("backfill", "orange"),
            series(
                "Cycles per minute",
                "Backfill has its own rhythm (bf_interval, 30 s); the main scheduler also starts with each submission and each end of a job.",
            )
            .curve("main", "$prefix.slurm_sched_interval.gauge-main_cycles_per_minute")
            .curve("backfill", "$prefix.slurm_sched_interval.gauge-bf_cycles_per_minute")
            .unit("short")
            .min(0.0)
            .colour("main", "blue")
            .colour("backfill", "orange"),
        ],
    )
}

/// A last cycle is a sample, the rest are means: the mean of the interval is the thick line.
fn cycle_times(title: &str, description: &str) -> Panel {
    series(title, description)
        .unit("µs")
        .log()
        .colour("last cycle", "light-blue")
        .colour("mean, interval", "orange")
        .colour("mean since reset", "green")
        .colour("max since reset", "red")
        .beside("mean since reset")
        .beside("max since reset")
}

fn depth() -> Row {
    row(
        "Depth",
        vec![
            series(
                "Main scheduler: queue and depth",
                "The queue has an entry for each job and partition, and one for an array; how many of them a cycle looks at. Cycles that follow a submission look at default_queue_depth jobs only.",
            )
            .curve("queue", "$prefix.slurm_sched_stats.gauge-main_last_queue_length")
            .curve("looked at, interval", "$prefix.slurm_sched_interval.gauge-main_mean_depth")
            .unit("short")
            .min(0.0)
            .colour("queue", "blue")
            .colour("looked at, interval", "orange"),
            series(
                "Backfill: queue and depth",
                "The queue has an entry for each job and partition, and one for an array; how many jobs and tasks of arrays a cycle looks at, how \
                 many of those it tries to start. Coverage is tried / queue of the last cycle, above 1 with arrays: well below 1 some jobs were \
                 never tried, and bf_max_job_test, bf_max_time or the limits for each user and partition say why.",
            )
            .curve("queue", "$prefix.slurm_sched_stats.gauge-bf_queue_length")
            .curve("looked at, interval", "$prefix.slurm_sched_interval.gauge-bf_depth_mean")
            .curve("tried, interval", "$prefix.slurm_sched_interval.gauge-bf_depth_mean_try")
            .curve("coverage", "$prefix.slurm_sched_interval.gauge-bf_coverage")
            .unit("short")
            .min(0.0)
            .right("coverage", "percentunit")
            .colour("queue", "blue")
            .colour("looked at, interval", "orange")
            .colour("tried, interval", "green")
            .colour("coverage", "purple"),
        ],
    )
}

fn server() -> Row {
    row(
        "slurmctld",
        vec![
            series(
                "Threads and agents",
                "RPCs being served at this moment, and agents that pass messages to nodes.",
            )
            .curve("RPC threads", "$prefix.slurm_sched_stats.gauge-server_thread_count")
            .curve("agents", "$prefix.slurm_sched_stats.gauge-agent_count")
            .curve("agent threads", "$prefix.slurm_sched_stats.gauge-agent_thread_count")
            .unit("short")
            .min(0.0)
            .worry(128.0, 230.0),
            series("Queues", "Messages that wait: to nodes, and to slurmdbd.")
                .curve("to nodes", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
                .curve("to slurmdbd", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
                .unit("short")
                .min(0.0)
                .worry(500.0, 2000.0),
            series(
                "Age of the job counts",
                "How old slurmctld's own counts of pending and running jobs are. Up to 30 s is usual; above a minute its background work is held up.",
            )
            .curve("age", "$prefix.slurm_sched_interval.gauge-job_states_age")
            .unit("s")
            .min(0.0)
            .worry(60.0, 300.0),
            series("RPC time", "The mean time of an RPC of the interval, with what it waited for slurmctld's locks: what a user waits for squeue.")
                .curve("mean", "$prefix.slurm_rpc_stats.total.gauge-interval_mean_time")
                .unit("µs")
                .log()
                .worry(100_000.0, 1_000_000.0),
            series("Controllers", "1: this host in SlurmctldHost answers, as scontrol ping asks it. Needs the collector controllers.")
                .each("$prefix.slurm_controllers.*.gauge-up")
                .min(0.0)
                .max(1.0)
                .survey()
                .sized(24, 5),
        ],
    )
}

fn ends() -> Row {
    closed(
        "Why cycles end (Slurm 23.11 and later)",
        vec![
            series(
                "Main scheduler: why cycles ended",
                "\"end\" is good: the cycle saw the whole queue. \"max_depth\" and \"timeout\": it did not. \"rpc_cnt\": it gave way to RPCs (max_rpc_cnt).",
            )
            .each("$prefix.slurm_sched_exit.main.*.gauge-interval_count")
            .unit("short")
            .stacked(),
            series(
                "Backfill: why cycles ended",
                "\"end\" is good. \"max_job_test\", \"max_job_start\", \"table_limit\" and \"timeout\" name the bf_ limit that was reached; \
                 \"state_changed\" means that jobs or nodes changed while backfill slept.",
            )
            .each("$prefix.slurm_sched_exit.bf.*.gauge-interval_count")
            .unit("short")
            .stacked(),
        ],
    )
}
