//! *Scheduler*: is slurmctld well, how long do its cycles take, how far do they get, and why do they end?

use crate::grafana::{Dashboard, Row, closed, row, top};
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
        stat("slurmctld", "Whether the last reading succeeded.")
            .curve("slurmctld", "$prefix.slurm_health.gauge-up")
            .switch("answers", "silent"),
        stat(
            "Last backfill cycle",
            "How long ago the last backfill cycle began. slurmctld runs none while nothing is pending or nothing has changed; with jobs \
             pending and minutes without a cycle look at bf_interval, at the RPC load and at max_rpc_cnt.",
        )
        .curve("age", "$prefix.slurm_sched_interval.gauge-bf_last_cycle_age")
        .unit("s")
        .worry(300.0, 600.0),
        stat(
            "Threads in use",
            "RPCs being served, as a part of max_server_threads. New ones wait when all threads are taken: users see hanging commands.",
        )
        .curve("threads", "$prefix.slurm_health.gauge-threads_fraction")
        .unit("percentunit")
        .min(0.0)
        .max(1.0)
        .worry(0.5, 0.8),
        stat("Agent queue", "Messages to nodes that wait for an agent. Thousands that do not go away: nodes that do not answer.")
            .curve("waiting", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
            .unit("short")
            .worry(500.0, 2000.0),
        stat("DBD queue", "Messages that wait for slurmdbd. A queue that only grows: slurmdbd is away or slow. A full one loses accounting.")
            .curve("waiting", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
            .unit("short")
            .worry(100.0, 2000.0),
        stat("Jobs", "Jobs pending and running when slurmctld last counted them, up to about 30 s ago.")
            .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
            .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
            .unit("short")
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
            .curve("max since reset", "consolidateBy($prefix.slurm_sched_stats.gauge-main_max_cycle, 'max')"),
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
            .min(0.0),
            series("Queues", "Messages that wait: to nodes, and to slurmdbd.")
                .curve("to nodes", "$prefix.slurm_sched_stats.gauge-agent_queue_size")
                .curve("to slurmdbd", "$prefix.slurm_sched_stats.gauge-dbd_agent_queue_size")
                .unit("short")
                .min(0.0),
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
