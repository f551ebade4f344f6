//! *Jobs*: how many come, start and end, how many wait, for what, and for how long?

use serde_json::Value;

use crate::colours::{JOBS, REASONS};
use crate::finished;
use crate::grafana::{Dashboard, Row, closed, query_variable, row, top};
use crate::panel::{Panel, bars, series, stat};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "jobs",
        title: "Jobs",
        description: "How many jobs come, start and end, how do they end, how many wait, for what, and for how long?",
        variables: variables(),
        rows: vec![now(), flow(), finished::ends(), finished::work(), states(), waiting(), who()],
    }
}

fn variables() -> Vec<Value> {
    let variable =
        |name: &str, label: &str| query_variable(name, label, &format!("$prefix.slurm_jobs.{name}.*"));
    vec![variable("partition", "Partition"), variable("account", "Account"), variable("user", "User")]
}

fn per_minute(leaf: &str) -> String {
    format!("$prefix.slurm_sched_interval.gauge-jobs_{leaf}_per_minute")
}

fn now() -> Row {
    let figure = |title: &str, leaf: &str, when: &str| {
        stat(title, &format!("Jobs {leaf} {when}."))
            .curve(leaf, &format!("$prefix.slurm_sched_stats.gauge-jobs_{leaf}"))
            .unit("short")
            .neutral()
    };
    let now = "when slurmctld last counted them, up to about 30 s ago";
    let reset = "since midnight UTC, slurmctld's start or sdiag --reset, whichever came last";
    top(vec![
        figure("Pending", "pending", now),
        figure("Running", "running", now),
        figure("Submitted since reset", "submitted", reset),
        figure("Started since reset", "started", reset),
        figure("Completed since reset", "completed", reset),
        stat(
            "Not launched",
            "Since the last reset: jobs that slurmd could not run, because of a broken node or file system. sdiag calls them failed; a program that fails is not among them, \
             see below how jobs end.",
        )
        .curve("failed", "$prefix.slurm_sched_stats.gauge-jobs_failed")
        .unit("short")
        .worry(10.0, 100.0),
    ])
}

fn flow() -> Row {
    row(
        "Flow",
        vec![
            coloured(
                series(
                    "Jobs per minute",
                    "Started above completed: the cluster fills. Submitted far above started for hours: the queue grows. \"not launched\" is \
                     what sdiag calls failed: jobs that slurmd could not run.",
                )
                .curve("submitted", &per_minute("submitted"))
                .curve("started", &per_minute("started"))
                .curve("completed", &per_minute("completed"))
                .curve("cancelled", &per_minute("canceled"))
                .curve("not launched", &per_minute("failed"))
                .unit("short")
                .min(0.0),
            )
            .sized(24, 9),
            series("Pending and running", "As slurmctld last counted them; it counts about every 30 s.")
                .curve("pending", "$prefix.slurm_sched_stats.gauge-jobs_pending")
                .curve("running", "$prefix.slurm_sched_stats.gauge-jobs_running")
                .unit("short")
                .min(0.0)
                .colour("pending", "yellow")
                .colour("running", "blue"),
            series(
                "Who starts jobs",
                "Jobs started per minute, and those of them that backfill started. Nearly all by backfill: the main scheduler does not get far enough.",
            )
            .curve("all", &per_minute("started"))
            .curve("by backfill", &per_minute("backfilled"))
            .unit("short")
            .min(0.0)
            .colour("all", "blue")
            .colour("by backfill", "orange"),
        ],
    )
}

fn coloured(panel: Panel) -> Panel {
    let curves = [
        ("submitted", "blue"),
        ("started", "purple"),
        ("completed", "green"),
        ("cancelled", "orange"),
        ("not launched", "red"),
    ];
    panel.coloured(&curves)
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
                .stacked()
                .survey()
                .coloured(&JOBS),
            series("CPUs by state", "CPUs that the jobs have, or ask for.")
                .each(&live("cpus"))
                .unit("short")
                .stacked()
                .survey()
                .coloured(&JOBS),
            bars(
                "Why jobs wait",
                "Pending jobs by reason. Blue is a busy cluster, grey the users' own wish, orange a limit (QOS…, Assoc…), and red needs somebody to look.",
            )
            .each("highestCurrent($prefix.slurm_jobs.reason.*.gauge-jobs, 12)")
            .colour_of_others("orange")
            .coloured(&REASONS)
            .unit("short"),
            series("GPUs by state", "GPUs that the jobs have, or ask for.")
                .each(&live("gpus"))
                .unit("short")
                .stacked()
                .survey()
                .coloured(&JOBS)
                .sized(12, 9),
        ],
    )
}

fn waiting() -> Row {
    closed(
        "Waiting times (collectors.jobs)",
        vec![
            waits(
                "Wait so far, pending jobs",
                "Since each was submitted; half of them less than the median.",
                "wait",
            ),
            waits(
                "Wait before start",
                "Of the jobs that started since the last round, from when each could run. Absent where none did.",
                "started_wait",
            ),
            series("Waiting by partition", "Of 10 pending jobs of a partition 9 have waited less.")
                .nodes("$prefix.slurm_jobs.partition.$partition.waiting.gauge-wait_p90", -3)
                .unit("s")
                .log()
                .survey()
                .leads_to("This partition alone", "jobs", "partition")
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
        .survey()
        .colour("median", "green")
        .colour("9 of 10", "orange")
        .colour("longest", "red")
}

fn who() -> Row {
    let panel = |dimension: &str, title: &str, description: &str, leaf: &str| {
        let chosen = format!("$prefix.slurm_jobs.{dimension}.${dimension}.state.{leaf}");
        series(title, description)
            .nodes(&format!("highestAverage({chosen}, 10)"), -4)
            .unit("short")
            .stacked()
            .survey()
            .leads_to("This one alone", "jobs", dimension)
    };
    let both = |dimension: &str, several: &str| {
        let most = format!("The ten {several} with the most.");
        [
            panel(dimension, &format!("CPUs running, by {dimension}"), &most, "running.gauge-cpus"),
            panel(dimension, &format!("Jobs pending, by {dimension}"), &most, "pending.gauge-jobs"),
        ]
    };
    let all = [both("partition", "partitions"), both("account", "accounts"), both("user", "users")];
    closed("By partition, account and user (collectors.jobs)", all.concat())
}
