//! How jobs end, and which resources they used: rows of the dashboard *Jobs*, from the collector `finished`.

use crate::colours::JOBS;
use crate::grafana::{Row, closed};
use crate::jobs::waits;
use crate::needs;
use crate::overview::{FAILING, failing};
use crate::panel::{bars, series, stat};

/// How much a total since the first start grew per minute. A round that could not be read has no point; its jobs are in
/// the next one.
fn per_minute(path: &str) -> String {
    let path = format!("$prefix.slurm_jobs_finished.{path}");
    format!(
        "scaleToSeconds(divideSeriesLists(nonNegativeDerivative(keepLastValue({path})), isNonNull({path})), 60)"
    )
}

pub(crate) fn ends() -> Row {
    closed("How jobs end (collectors.finished)").surveys(needs::FINISHED).with([
        failing("Failed, last hour"),
        stat("Reported late", "Jobs of the last round that reached slurmdbd late. If this happens often, slurmdbd is slow or its queue \
              is long.")
            .curve("late", "$prefix.slurm_jobs_finished.reading.gauge-late_jobs")
            .whole()
            .worry(10.0, 1000.0),
        series("Jobs ended per minute, by state", "Finished jobs from slurmdbd. Each job is counted once, in the state that sacct \
                shows.")
            .each(&per_minute("total.state.*.gauge-jobs_total"))
            .unit("short")
            .stacked()
            .coloured(&JOBS)
            .sized(16, 8),
        series(
            "Share of jobs that failed",
            "Each point covers the hour before it. A sudden step is usually one user's script or one broken node; the next panel \
             shows the partition.",
        )
        .curve("failed", FAILING)
        .unit("percentunit")
        .max(1.0)
        .worry(0.2, 0.5),
        series("Failed per minute, by partition", "Failed jobs, by partition.")
            .nodes(&per_minute("partition.$partition.state.failed.gauge-jobs_total"), -4)
            .unit("short")
            .leads_to("This partition alone", "jobs", "partition"),
    ])
}

pub(crate) fn work() -> Row {
    let hours = |path: &str| {
        format!(
            "scale(summarize(nonNegativeDerivative(keepLastValue($prefix.slurm_jobs_finished.{path})), '1hour', 'sum'), 0.000277777778)"
        )
    };
    closed("Resources of finished jobs (collectors.finished)").surveys(needs::FINISHED).with([
        series(
            "CPU-hours, by account",
            "CPU-hours of the jobs that ended in each hour. A job's whole run time counts in the hour in which it ended. Requires \
             accounts in the collector.",
        )
        .nodes(&hours("account.$account.work.gauge-cpu_seconds_total"), -3)
        .unit("suffix: CPU-h")
        .columns()
        .leads_to("This account alone", "jobs", "account"),
        series("CPU-hours, by partition", "CPU-hours of the jobs that ended in each hour, by partition.")
            .nodes(&hours("partition.$partition.work.gauge-cpu_seconds_total"), -3)
            .unit("suffix: CPU-h")
            .columns()
            .leads_to("This partition alone", "jobs", "partition"),
        waits(
            "Wait of finished jobs",
            "How long the jobs of each round waited between becoming eligible and starting.",
            "$prefix.slurm_jobs_finished.total.work.gauge-wait",
            ("99 of a hundred", "p99"),
        ),
        series(
            "Use of time limits",
            "Share of their time limits that finished jobs used. If it is far below one half, backfill plans with unrealistic run \
             times.",
        )
        .line(
            "used",
            "blue",
            "divideSeries($prefix.slurm_jobs_finished.total.work.gauge-limit_used_seconds, \
             sumSeries($prefix.slurm_jobs_finished.total.work.gauge-limit_seconds))",
        )
        .line(
            "jobs below a tenth",
            "orange",
            "divideSeries($prefix.slurm_jobs_finished.total.work.gauge-limit_used_little, \
             sumSeries($prefix.slurm_jobs_finished.total.work.gauge-limited))",
        )
        .unit("percentunit")
        .max(1.0),
        bars("Jobs ended since the first start, by state", "Jobs counted since slurm-graphite first ran with this queue.dir.")
            .each("$prefix.slurm_jobs_finished.total.state.*.gauge-jobs_total")
            .coloured(&JOBS)
            .whole(),
    ])
}
