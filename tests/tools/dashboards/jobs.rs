//! *Jobs*: how many come, start and end, how many wait, for what, and for how long?

use serde_json::Value;

use crate::grafana::{Dashboard, Row, closed, query_variable, row, top};
use crate::panel::{Panel, bars, series, stat};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "jobs",
        title: "Jobs",
        description: "How many jobs come, start and end, how many wait, for what, and for how long?",
        variables: vec![partition()],
        rows: vec![now(), flow(), states(), waiting(), who()],
    }
}

fn partition() -> Value {
    query_variable("partition", "Partition", "$prefix.slurm_jobs.partition.*")
}

/// A counter that begins anew at midnight, as a rate. Of the sample at the reset nothing is made.
fn per_second(leaf: &str) -> String {
    format!("scaleToSeconds(nonNegativeDerivative($prefix.slurm_sched_stats.gauge-{leaf}), 1)")
}

fn now() -> Row {
    let figure = |title: &str, leaf: &str, when: &str| {
        stat(title, &format!("Jobs {leaf} {when}."))
            .curve(leaf, &format!("$prefix.slurm_sched_stats.gauge-jobs_{leaf}"))
            .unit("short")
            .neutral()
    };
    let now = "when slurmctld last counted them, up to about 30 s ago";
    let today = "since midnight UTC, slurmctld's start or sdiag --reset, whichever came last";
    top(vec![
        figure("Pending", "pending", now),
        figure("Running", "running", now),
        figure("Submitted today", "submitted", today),
        figure("Started today", "started", today),
        figure("Completed today", "completed", today),
        stat(
            "Failed",
            "Of the jobs that ended since the counters began, those that slurmd could not run: a broken node or file system, not a program that fails.",
        )
        .curve(
            "failed",
            "divideSeries($prefix.slurm_sched_stats.gauge-jobs_failed, sumSeries($prefix.slurm_sched_stats.gauge-jobs_{failed,completed}))",
        )
        .unit("percentunit")
        .worry(0.01, 0.05),
    ])
}

fn flow() -> Row {
    row(
        "Flow",
        vec![
            coloured(
                series(
                    "Jobs per second",
                    "From the counters of sdiag. Started above completed: the cluster fills. Submitted far above started for hours: the queue grows.",
                )
                .curve("submitted", &per_second("jobs_submitted"))
                .curve("started", &per_second("jobs_started"))
                .curve("completed", &per_second("jobs_completed"))
                .curve("cancelled", &per_second("jobs_canceled"))
                .curve("failed", &per_second("jobs_failed"))
                .unit("suffix: /s")
                .min(0.0),
            )
            .sized(24, 9),
            series("Pending and running", "As slurmctld last counted them; it counts about every 30 s.")
                .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
                .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
                .unit("short")
                .min(0.0)
                .colour("pending", "orange")
                .colour("running", "blue"),
            series(
                "Who starts jobs",
                "Jobs started per second, and those of them that backfill started. Nearly all by backfill: the main scheduler does not get far enough.",
            )
            .curve("all", &per_second("jobs_started"))
            .curve("by backfill", &per_second("bf_total_jobs_since_slurm_start"))
            .unit("suffix: /s")
            .min(0.0)
            .colour("all", "blue")
            .colour("by backfill", "orange"),
        ],
    )
}

fn coloured(panel: Panel) -> Panel {
    [
        ("submitted", "blue"),
        ("started", "purple"),
        ("completed", "green"),
        ("cancelled", "orange"),
        ("failed", "red"),
    ]
    .into_iter()
    .fold(panel, |panel, (curve, colour)| panel.colour(curve, colour))
}

fn states() -> Row {
    // Those that are over stay in slurmctld's memory for MinJobAge and would hide the others.
    let over = [
        "boot_fail",
        "cancelled",
        "completed",
        "deadline",
        "failed",
        "node_fail",
        "out_of_memory",
        "preempted",
        "revoked",
        "timeout",
    ];
    let over = over.map(|state| format!("state.{state}")).join("|");
    let live = |leaf: &str| format!("exclude($prefix.slurm_jobs.state.*.gauge-{leaf}, '{over}')");
    closed(
        "States and reasons (collectors.jobs)",
        vec![
            series("Jobs by state", "Of the jobs that are not over.")
                .each(&live("jobs"))
                .unit("short")
                .stacked(),
            series("CPUs by state", "CPUs that the jobs have, or ask for.")
                .each(&live("cpus"))
                .unit("short")
                .stacked(),
            bars(
                "Why jobs wait",
                "The reason of each pending job. Priority and Resources are a full cluster; limits (QOS…, Assoc…) and Dependency are not slurmctld's fault.",
            )
            .each("highestCurrent($prefix.slurm_jobs.reason.*.gauge-jobs, 12)")
            .unit("short"),
            series("GPUs by state", "GPUs that the jobs have, or ask for.")
                .each(&live("gpus"))
                .unit("short")
                .stacked()
                .sized(12, 9),
        ],
    )
}

fn waiting() -> Row {
    closed(
        "Waiting times (collectors.jobs)",
        vec![
            waits(
                "What is pending has waited",
                "Since each became eligible; half of them less than the median.",
                "wait",
            ),
            waits(
                "What has started had waited",
                "Of the jobs that started in the interval. Absent where none did.",
                "started_wait",
            ),
            series("Waiting by partition", "Of 10 pending jobs of a partition 9 have waited less.")
                .nodes("$prefix.slurm_jobs.partition.$partition.waiting.gauge-wait_p90", -3)
                .unit("s")
                .log()
                .sized(24, 8),
        ],
    )
}

fn waits(title: &str, description: &str, leaf: &str) -> Panel {
    let path = |end: &str| format!("$prefix.slurm_jobs.waiting.gauge-{leaf}_{end}");
    series(title, description)
        .curve("median", &path("p50"))
        .curve("9 of 10", &path("p90"))
        .curve("longest", &path("max"))
        .unit("s")
        .log()
        .colour("median", "green")
        .colour("9 of 10", "orange")
        .colour("longest", "red")
}

fn who() -> Row {
    let most = |dimension: &str, state: &str, leaf: &str| {
        format!("highestAverage($prefix.slurm_jobs.{dimension}.*.state.{state}.gauge-{leaf}, 10)")
    };
    let named = |panel: Panel, target: String| panel.nodes(&target, -4).unit("short").stacked();
    closed(
        "By partition, account and user (collectors.jobs)",
        vec![
            named(
                series("CPUs running, by partition", "CPUs of the running jobs."),
                "$prefix.slurm_jobs.partition.$partition.state.running.gauge-cpus".to_owned(),
            ),
            named(
                series("Jobs pending, by partition", "Jobs that wait."),
                "$prefix.slurm_jobs.partition.$partition.state.pending.gauge-jobs".to_owned(),
            ),
            named(
                series("CPUs running, by account", "The ten accounts with the most."),
                most("account", "running", "cpus"),
            ),
            named(
                series("Jobs pending, by account", "The ten accounts with the most."),
                most("account", "pending", "jobs"),
            ),
            named(
                series("CPUs running, by user", "The ten users with the most."),
                most("user", "running", "cpus"),
            ),
            named(
                series("Jobs pending, by user", "The ten users with the most."),
                most("user", "pending", "jobs"),
            ),
        ],
    )
}
