//! `slurm_sched_stats`: what sdiag prints of the schedulers, under the names that dashboards
//! already have.
//!
//! Every figure equals sdiag's, digit for digit. If sdiag prints no line, there is no point.

use slurm_snapshot::{ReplyKind, Statistics, moment};

use super::{Collect, Collector, Start, TickOutcome};
use crate::derive;
use crate::levels::Table;
use crate::named_paths::Points;

pub(super) const COLLECTOR: Collector = Collector {
    name: "sched_stats",
    comment: "What sdiag prints of the schedulers: slurm_sched_stats.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Statistics],
    start: Start::Tick(|_| Box::new(SchedStats)),
};

levels! {
    LEVELS:
    ALL: Level<Table<Statistics>, 0> = ("slurm_sched_stats", [], METRICS,
        "What `sdiag` prints of slurmctld and its schedulers, digit for digit. What it does not \
         print, such as a mean without a cycle, has no point.");
}

struct SchedStats;

impl Collect<TickOutcome> for SchedStats {
    fn collect(&mut self, _: i64, outcome: &TickOutcome, points: &mut Points<'_>) {
        if let Some((_, statistics)) = outcome.statistics() {
            points.push(&ALL, [], statistics);
        }
    }
}

metrics! {
    METRICS: Statistics =
        average(server_thread_count, "count",
            "RPCs that slurmctld is serving now; up to Slurm 24.05 new ones wait when there are 256"),
        average(agent_queue_size, "count", "messages to nodes that wait for an agent"),
        average(agent_count, "count", "running agents; each sends a message to a group of nodes"),
        average(agent_thread_count, "count", "threads of those agents"),
        average(dbd_agent_queue_size, "count",
            "messages that wait for slurmdbd; if it grows, slurmdbd is down or slow"),
        average(gettimeofday_latency, "µs",
            "time of 1,000 calls of gettimeofday on slurmctld's host when slurmctld started; high \
             with a bad clock source"),
        last("req_time", "Unix s", |s| moment(s.req_time), "when slurmctld answered, on its \
            clock"),
        last("req_time_start", "Unix s", |s| moment(s.req_time_start),
            "when slurmctld began to count: the last reset"),
        last(jobs_submitted, "count", "jobs submitted since the last reset"),
        last(jobs_started, "count", "jobs started since the last reset"),
        last(jobs_completed, "count",
            "jobs since the last reset whose script, salloc or srun reported the end, with any \
             exit code; not a running job that was cancelled"),
        last(jobs_canceled, "count",
            "successful scancel requests since the last reset, with any signal; one for a whole \
                array"),
        last(jobs_failed, "count",
            "jobs since the last reset that slurmd could not start, which drains the node; not \
             jobs that exit with an error"),
        average("jobs_pending", "count", |s| s.jobs_pending(), "jobs pending at job_states_ts, if \
            there is one"),
        average("jobs_running", "count", |s| s.jobs_running(), "jobs running at job_states_ts, if \
            there is one"),
        last("job_states_ts", "Unix s", |s| s.job_states_ts.and_then(moment),
            "when slurmctld last counted pending and running jobs: up to about 30 s ago"),
        average("main_last_cycle", "µs", |s| s.schedule_cycle_last, "last main cycle, that is of \
            the main scheduler"),
        max("main_max_cycle", "µs", |s| s.schedule_cycle_max, "longest main cycle since the last \
            reset"),
        last("main_total_cycles", "count", |s| s.schedule_cycle_counter, "main cycles since the \
            last reset"),
        last("main_cycle_sum", "µs", |s| s.schedule_cycle_sum,
            "sum of the main cycles since the last reset; wraps after 71.6 minutes up to Slurm \
                25.05"),
        average("main_mean_cycle", "µs", |s| derive::means(s).schedule_cycle, "mean main cycle \
            since the last reset"),
        last("main_depth_sum", "count", |s| s.schedule_cycle_depth, "jobs that main cycles \
            examined since the last reset"),
        average("main_mean_depth_cycle", "count", |s| derive::means(s).schedule_depth,
            "mean of the jobs that a main cycle examined since the last reset"),
        average("main_cycles_per_minute", "1/min", |s|
            derive::cycles_per_minute(s.schedule_cycle_counter, s.req_time, s.req_time_start),
            "main cycles per whole minute since the last reset; from its second minute on"),
        average("main_last_queue_length", "count", |s| s.schedule_queue_len,
            "entries in the last main cycle's queue: one for each partition of a pending job, one \
             for an array"),
        last("bf_total_jobs_since_slurm_start", "count", |s| s.bf_backfilled_jobs, "jobs started \
            by backfill since slurmctld's start"),
        last("bf_total_jobs_since_cycle_start", "count", |s| s.bf_last_backfilled_jobs,
            "jobs started by backfill since the last reset"),
        last("bf_total_het_jobs_since_cycle_start", "count", |s| s.bf_backfilled_het_jobs,
            "components of het jobs started by backfill since the last reset"),
        last("bf_total_cycles", "count", |s| s.bf_cycle_counter, "backfill cycles since the last \
            reset"),
        last("bf_last_cycle_when", "Unix s", |s| s.bf_when_last_cycle.and_then(moment),
            "when the last backfill cycle with jobs began; if it was long ago while jobs wait, \
             backfill does not run"),
        average(bf_active, "0 or 1", "whether a backfill cycle is running now"),
        average("bf_last_cycle", "µs", |s| s.bf_cycle_last,
            "last backfill cycle with jobs, without the time it slept to let RPCs through"),
        max("bf_max_cycle", "µs", |s| s.bf_cycle_max,
            "longest backfill cycle since the last reset"),
        last(bf_cycle_sum, "µs", "sum of the backfill cycles since the last reset"),
        average("bf_mean_cycle", "µs", |s| derive::means(s).bf_cycle, "mean backfill cycle since \
            the last reset"),
        average("bf_last_depth_cycle", "count", |s| s.bf_last_depth,
            "jobs that the last backfill cycle with jobs examined"),
        average("bf_last_depth_cycle_try", "count", |s| s.bf_last_depth_try,
            "jobs that the last backfill cycle with jobs tried to start"),
        last(bf_depth_sum, "count", "jobs that backfill examined since the last reset"),
        last("bf_depth_sum_try", "count", |s| s.bf_depth_try_sum, "jobs that backfill tried to \
            start since the last reset"),
        average("bf_depth_mean", "count", |s| derive::means(s).bf_depth,
            "jobs that a backfill cycle examined, mean since the last reset"),
        average("bf_depth_mean_try", "count", |s| derive::means(s).bf_depth_try,
            "jobs that a backfill cycle tried to start, mean since the last reset"),
        average("bf_queue_length", "count", |s| s.bf_queue_len,
            "entries in the queue of the last backfill cycle with jobs, as in \
             `main_last_queue_length`; stays when the queue empties"),
        last("bf_queue_length_sum", "count", |s| s.bf_queue_len_sum,
            "sum of the backfill cycles' queue lengths since the last reset"),
        average("bf_queue_length_mean", "count", |s| derive::means(s).bf_queue_len,
            "entries in a backfill cycle's queue, mean since the last reset"),
        average(bf_table_size, "count",
            "time slots that the last backfill cycle with jobs used for planning"),
        last(bf_table_size_sum, "count",
            "sum of the backfill cycles' time slots since the last reset"),
        average("bf_table_size_mean", "count", |s| derive::means(s).bf_table_size,
            "time slots of a backfill cycle, mean since the last reset"),
        average(rpc_queue_enabled, "0 or 1", "whether slurmctld queues RPCs by type; from Slurm \
            24.05");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that people already have on their dashboards.
    const SEED: [&str; 26] = [
        "server_thread_count",
        "agent_queue_size",
        "jobs_submitted",
        "jobs_started",
        "jobs_completed",
        "jobs_canceled",
        "jobs_failed",
        "main_last_cycle",
        "main_max_cycle",
        "main_total_cycles",
        "main_mean_cycle",
        "main_mean_depth_cycle",
        "main_cycles_per_minute",
        "main_last_queue_length",
        "bf_total_jobs_since_slurm_start",
        "bf_total_jobs_since_cycle_start",
        "bf_total_cycles",
        "bf_last_cycle",
        "bf_max_cycle",
        "bf_queue_length",
        "bf_mean_cycle",
        "bf_depth_mean",
        "bf_depth_mean_try",
        "bf_queue_length_mean",
        "bf_last_depth_cycle",
        "bf_last_depth_cycle_try",
    ];

    fn value(leaf: &str, statistics: &Statistics) -> Option<f64> {
        METRICS
            .iter()
            .find(|figure| figure.leaf == leaf)
            .and_then(|figure| (figure.value)(statistics))
    }

    #[test]
    fn every_name_that_dashboards_have_is_here() {
        for leaf in SEED {
            assert!(METRICS.iter().any(|figure| figure.leaf == leaf), "{leaf}");
        }
    }

    #[test]
    fn what_sdiag_does_not_print_is_not_published_as_zero() {
        let nothing_yet = Statistics {
            req_time: 1_700_000_060,
            req_time_start: 1_700_000_000,
            ..Statistics::default()
        };
        for leaf in [
            "main_mean_cycle",
            "main_mean_depth_cycle",
            "main_cycles_per_minute",
            "bf_mean_cycle",
            "bf_depth_mean",
            "bf_depth_mean_try",
            "bf_queue_length_mean",
            "bf_table_size_mean",
            "bf_last_cycle_when",
            "job_states_ts",
            "jobs_pending",
            "jobs_running",
            "rpc_queue_enabled",
        ] {
            assert_eq!(value(leaf, &nothing_yet), None, "{leaf}");
        }
        assert_eq!(
            value("bf_last_cycle", &nothing_yet),
            Some(0.0),
            "a counter at zero is a figure"
        );
    }

    #[test]
    fn each_name_carries_its_own_member() {
        // Another exporter swaps the two counters of backfilled jobs, and publishes µs as a count
        // of cycles.
        let statistics = Statistics {
            bf_backfilled_jobs: 900,
            bf_last_backfilled_jobs: 30,
            bf_cycle_counter: 72,
            bf_cycle_sum: Some(171_543_834),
            bf_queue_len_sum: Some(242_773),
            bf_table_size_sum: Some(8141),
            agent_count: 3,
            agent_thread_count: 7,
            // Every recording has the same sum of depths and of tries.
            bf_depth_sum: Some(1445),
            bf_depth_try_sum: Some(730),
            bf_last_depth: Some(17),
            bf_last_depth_try: Some(13),
            schedule_cycle_counter: 9,
            schedule_cycle_sum: Some(4600),
            schedule_cycle_depth: Some(190),
            ..Statistics::default()
        };
        for (leaf, expected) in [
            ("bf_depth_mean", 20.0),
            ("bf_depth_mean_try", 10.0),
            ("bf_depth_sum", 1445.0),
            ("bf_depth_sum_try", 730.0),
            ("bf_last_depth_cycle", 17.0),
            ("bf_last_depth_cycle_try", 13.0),
            ("main_mean_cycle", 511.0),
            ("main_mean_depth_cycle", 21.0),
            ("bf_total_jobs_since_slurm_start", 900.0),
            ("bf_total_jobs_since_cycle_start", 30.0),
            ("bf_total_cycles", 72.0),
            ("bf_mean_cycle", 2_382_553.0),
            ("bf_queue_length_mean", 3371.0),
            ("bf_table_size_mean", 113.0),
            ("agent_count", 3.0),
            ("agent_thread_count", 7.0),
        ] {
            assert_eq!(value(leaf, &statistics), Some(expected), "{leaf}");
        }
    }
}
