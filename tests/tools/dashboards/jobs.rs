//! *Jobs*: how many are submitted, start and end, how many wait, for what, and for how long?

use crate::colours::{JOBS, REASONS};
use crate::grafana::{Dashboard, Row, closed, query_variable, row, top};
use crate::needs;
use crate::overview::{FAILING, failing, pending_and_running};
use crate::panel::{Panel, bars, series, stat};

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: "jobs",
        title: "Jobs",
        description: "How many jobs are submitted, start and end, how do they end, and how many \
            are waiting, for what and for how long?",
        variables: [("partition", "Partition"), ("account", "Account"), ("user", "User")]
            .map(|(name, label)| {
                query_variable(name, label, &format!("$prefix.slurm_jobs.{name}.*"))
            })
            .into(),
        rows: vec![now(), flow(), ends(), work(), states(), waiting(), starts(), who()],
    }
}

fn per_minute(leaf: &str) -> String {
    format!("$prefix.slurm_sched_interval.gauge-jobs_{leaf}_per_minute")
}

fn now() -> Row {
    let figure = |title: &str, leaf: &str, when: &str| {
        stat(title, &format!("Jobs {leaf} {when}."))
            .curve(leaf, &format!("$prefix.slurm_sched_stats.gauge-jobs_{leaf}"))
            .whole()
            .neutral()
            .opens("Scheduler", "scheduler")
    };
    let now = "when slurmctld last counted them, which it does about every 30 seconds";
    let reset = "since midnight UTC, slurmctld's start or sdiag --reset, whichever came last";
    top([
        figure("Pending", "pending", now),
        figure("Running", "running", now),
        figure("Submitted since reset", "submitted", reset),
        figure("Started since reset", "started", reset),
        figure("Completed since reset", "completed", reset),
        stat(
            "Not launched",
            "Jobs that slurmd could not start since the last reset, because of a broken node or \
             file system. sdiag calls them failed. Programs that exit with an error are not \
             counted here; see How jobs end, below.",
        )
        .curve("failed", "$prefix.slurm_sched_stats.gauge-jobs_failed")
        .whole()
        .worry(10.0, 100.0)
        .explained_by("Jobs are not launched"),
    ])
}

fn flow() -> Row {
    row("Flow").with([
        series(
            "Jobs per minute",
            "As sdiag counts them. If many more are submitted than started for hours, the queue \
             grows. Completed: ended, with any exit code; running jobs that are cancelled are not \
             in it. Cancelled: scancel requests, of any signal. Not launched is what sdiag calls \
             failed: jobs that slurmd could not start.",
        )
        .line("submitted", "blue", &per_minute("submitted"))
        .line("started", "purple", &per_minute("started"))
        .line("completed", "green", &per_minute("completed"))
        .line("cancelled", "orange", &per_minute("canceled"))
        .line("not launched", "red", &per_minute("failed"))
        .unit("short")
        .sized(24, 9),
        pending_and_running(),
        series(
            "Jobs started by backfill",
            "Jobs started per minute, and how many of them were started by backfill. If backfill \
             starts nearly all of them, the main scheduler does not get far enough into the queue.",
        )
        .line("all", "blue", &per_minute("started"))
        .line("by backfill", "orange", &per_minute("backfilled"))
        .unit("short"),
        series(
            "Jobs that backfill started since slurmctld's start",
            "sdiag's total. Unlike the other counters, it is not set to 0 at midnight.",
        )
        .line("jobs", "orange", "$prefix.slurm_sched_stats.gauge-bf_total_jobs_since_slurm_start")
        .whole()
        .sized(24, 6),
    ])
}

/// The growth of a total since the first start, per minute. A round that could not be read has no
/// point; its jobs are in the next one.
fn finished_per_minute(path: &str) -> String {
    let path = format!("$prefix.slurm_jobs_finished.{path}");
    format!(
        "scaleToSeconds(divideSeriesLists(nonNegativeDerivative(keepLastValue({path})), \
            isNonNull({path})), 60)"
    )
}

fn ends() -> Row {
    closed("How jobs end (collectors.finished)").surveys(needs::FINISHED).with([
        failing("Failed, last hour"),
        stat(
            "Reported late",
            "Jobs of the last round that reached slurmdbd late. If this happens \
              often, slurmdbd is slow or its queue is long.",
        )
        .curve("late", "$prefix.slurm_jobs_finished.reading.gauge-late_jobs")
        .whole()
        .worry(10.0, 1000.0)
        .explained_by("Counts of finished jobs are late"),
        series(
            "Jobs ended per minute, by state",
            "Finished jobs from slurmdbd. Each job is \
                counted once, in the state that sacct shows.",
        )
        .each(&finished_per_minute("total.state.*.gauge-jobs_total"))
        .unit("short")
        .stacked()
        .coloured(&JOBS)
        .sized(16, 8),
        series(
            "Share of jobs that failed",
            "Each point covers the hour before it. A sudden step is usually one user's script or \
             one broken node; the next panel shows the partition.",
        )
        .curve("failed", FAILING)
        .unit("percentunit")
        .max(1.0)
        .worry(0.2, 0.5),
        series("Failed per minute, by partition", "Failed jobs, by partition.")
            .nodes(&finished_per_minute("partition.$partition.state.failed.gauge-jobs_total"), -4)
            .unit("short")
            .leads_to("This partition alone", "jobs", "partition"),
    ])
}

fn work() -> Row {
    let hours = |path: &str| {
        format!(
            "scale(summarize(nonNegativeDerivative(keepLastValue(\
            $prefix.slurm_jobs_finished.{path})), '1hour', 'sum'), 0.000277777778)"
        )
    };
    closed("Resources of finished jobs (collectors.finished)").surveys(needs::FINISHED).with([
        series(
            "CPU-hours, by account",
            "CPU-hours of the jobs that ended in each hour. A job's whole run time counts in the \
             hour in which it ended. Requires accounts in the collector.",
        )
        .nodes(&hours("account.$account.work.gauge-cpu_seconds_total"), -3)
        .unit("suffix:CPU-h")
        .columns()
        .leads_to("This account alone", "jobs", "account"),
        series(
            "CPU-hours, by partition",
            "CPU-hours of the jobs that ended in each hour, by \
            partition.",
        )
        .nodes(&hours("partition.$partition.work.gauge-cpu_seconds_total"), -3)
        .unit("suffix:CPU-h")
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
            "Share of their time limits that finished jobs used. If it is far below one half, \
             backfill plans with unrealistic run times.",
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
        bars(
            "Jobs ended since the first start, by state",
            "Jobs counted since slurm-graphite \
            first ran with this queue.dir.",
        )
        .each("$prefix.slurm_jobs_finished.total.state.*.gauge-jobs_total")
        .coloured(&JOBS)
        .whole(),
    ])
}

fn states() -> Row {
    // Jobs that have ended stay in slurmctld's memory for MinJobAge and would hide the others.
    let over = "boot_fail cancelled completed deadline failed node_fail out_of_memory preempted \
        revoked timeout";
    let over = format!("state.{}", over.replace(' ', "|state."));
    let by_state = |title: &str, description: &str, leaf: &str| {
        let live = format!("exclude($prefix.slurm_jobs.state.*.gauge-{leaf}, '{over}')");
        series(title, description).each(&live).stacked().whole().coloured(&JOBS).sized(12, 9)
    };
    closed("States and reasons (collectors.jobs)").surveys(needs::JOBS).with([
        by_state("Jobs by state", "Jobs that have not finished, by state.", "jobs"),
        by_state(
            "CPUs by state",
            "CPUs that the jobs have allocated, or request while they are \
            pending.",
            "cpus",
        ),
        bars(
            "Why jobs wait",
            "Pending jobs by reason. Blue: the cluster is busy. Grey: the users asked for it. \
             Orange: a limit has been reached (QOS…, Assoc…). Red: somebody should investigate.",
        )
        .each("highestCurrent($prefix.slurm_jobs.reason.*.gauge-jobs, 12)")
        .colour_of_others("orange")
        .coloured(&REASONS)
        .whole(),
        by_state(
            "GPUs by state",
            "GPUs that the jobs have allocated, or request while they are \
            pending.",
            "gpus",
        ),
        series(
            "Job records",
            "Jobs that slurmctld holds in its memory, also ended ones for MinJobAge; the waiting \
             tasks of an array are one record. At MaxJobCount (10,000 unless slurm.conf sets it) \
             sbatch is refused.",
        )
        .curve("records", "$prefix.slurm_jobs.total.gauge-records")
        .whole()
        .sized(24, 7),
    ])
}

fn waiting() -> Row {
    closed("Waiting times (collectors.jobs)").surveys(needs::JOBS).with([
        waits(
            "Wait so far, pending jobs",
            "Time since the pending jobs were submitted. Half of the jobs have waited less than \
                the median.",
            "$prefix.slurm_jobs.waiting.gauge-wait",
            ("longest", "max"),
        ),
        waits(
            "Wait before start",
            "How long the jobs that started since the last round had been eligible. No point if \
                none started.",
            "$prefix.slurm_jobs.waiting.gauge-started_wait",
            ("longest", "max"),
        ),
        series(
            "Waiting by partition",
            "Nine out of ten pending jobs in the partition have been waiting for less time than \
                this.",
        )
        .nodes("$prefix.slurm_jobs.partition.$partition.waiting.gauge-wait_p90", -3)
        .minutes()
        .log()
        .leads_to("This partition alone", "jobs", "partition")
        .sized(24, 8),
    ])
}

/// Times of which there are a median, a ninetieth percentile and a third figure: its name, and the
/// end of its path.
fn waits(title: &str, description: &str, leaf: &str, (third, last): (&str, &str)) -> Panel {
    let path = |end: &str| format!("{leaf}_{end}");
    series(title, description)
        .line("median", "green", &path("p50"))
        .line("nine of ten", "orange", &path("p90"))
        .line(third, "red", &path(last))
        .minutes()
        .log()
        .sized(12, 9)
}

fn starts() -> Row {
    let path = |leaf: &str| format!("$prefix.slurm_jobs.expected_start.gauge-{leaf}");
    closed("When jobs will start (collectors.jobs)").surveys(needs::JOBS).with([
        waits(
            "Time until pending jobs start",
            "By the plan of the backfill scheduler, which it makes again in every cycle. It moves \
             when a job ends early, or another goes first. The waiting tasks of an array are one \
             job here; up to Slurm 22.05 they are left out.",
            "$prefix.slurm_jobs.expected_start.gauge-start_in",
            ("last", "max"),
        ),
        series(
            "Pending records with and without a plan",
            "Planned: backfill expects a start. Overdue: it should have started. Not planned: \
             held, waiting for something else than resources, or further down the queue than \
             backfill looks (bf_max_job_test).",
        )
        .line("planned", "green", &path("planned"))
        .line("overdue", "orange", &path("overdue"))
        .line("not planned", "text", &path("unplanned"))
        .stacked()
        .whole(),
        series(
            "Time until start, by partition",
            "Half of the partition's planned records start sooner.",
        )
        .nodes("$prefix.slurm_jobs.partition.$partition.expected_start.gauge-start_in_p50", -3)
        .minutes()
        .log()
        .leads_to("This partition alone", "jobs", "partition")
        .sized(24, 8),
    ])
}

fn who() -> Row {
    let both = |dimension: &'static str| {
        let most = format!("The ten {dimension}s with the highest values.");
        let panel = move |(what, leaf): (&str, &str)| {
            let chosen = format!("$prefix.slurm_jobs.{dimension}.${dimension}.state.{leaf}");
            series(&format!("{what}, by {dimension}"), &most)
                .nodes(&format!("highestAverage({chosen}, 10)"), -4)
                .stacked()
                .whole()
                .leads_to("This one alone", "jobs", dimension)
        };
        [("CPUs running", "running.gauge-cpus"), ("Jobs pending", "pending.gauge-jobs")].map(panel)
    };
    closed("By partition, account and user (collectors.jobs)")
        .surveys(needs::WHO)
        .with(["partition", "account", "user"].into_iter().flat_map(both))
}
