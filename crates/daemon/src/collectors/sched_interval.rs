//! `slurm_sched_interval`: what the schedulers did since the last reading, exactly, where sdiag's means run since midnight.
//!
//! Nothing is published for an interval in which the counters were reset, nor for more than three intervals at once.

use std::sync::Arc;

use slurm_snapshot::{Reading, ReplyKind, Statistics};

use super::{Collect, Collector, Paths, Start, TickOutcome};
use crate::derive::{self, Interval, Reset};
use crate::metric::{Metric, Points, Rollup, number};

const FAMILY: &str = "slurm_sched_interval";

pub(super) const COLLECTOR: Collector = Collector {
    name: "sched_interval",
    comment: "What they did since the last reading, exactly: slurm_sched_interval.",
    settings: &[],
    paths: &[Paths {
        below: FAMILY,
        about: "What the schedulers did since the last reading, from the growth of slurmctld's counters: exact, not \
                truncated, and correct even if a 32-bit sum wrapped. No point is published for an interval in which \
                the counters were reset or a clock was set, or that is longer than three ticks, and no mean without a \
                cycle. A cycle counts where it ends: a cycle longer than the interval adds all its time there, so a \
                single busy fraction may be above 1, while the mean over time is right.",
        leaves: &METRICS,
    }],
    replies: &[ReplyKind::Statistics],
    start: Start::Tick(|begin| Box::new(SchedInterval::new(begin.interval))),
};

struct SchedInterval {
    /// Seconds between two ticks.
    tick: u32,
    before: Option<Arc<Reading>>,
    resets: Resets,
}

/// Resets seen so far.
#[derive(Clone, Copy, Default)]
struct Resets {
    midnight: u64,
    command: u64,
    restart: u64,
}

/// What is known of one tick.
#[derive(Default)]
struct IntervalValues {
    interval: Option<Interval>,
    coverage: Option<f64>,
    bf_last_cycle_age: Option<f64>,
    job_states_age: Option<f64>,
    resets: Resets,
}

impl SchedInterval {
    fn new(tick: u32) -> Self {
        Self { tick, before: None, resets: Resets::default() }
    }

    fn count(&mut self, reset: Reset) {
        let counter = match reset {
            Reset::Midnight => &mut self.resets.midnight,
            Reset::Command => &mut self.resets.command,
            Reset::Restart => &mut self.resets.restart,
        };
        *counter = counter.saturating_add(1);
    }

    fn look(&mut self, now: &Reading, new: &Statistics) -> IntervalValues {
        let before = self.before.take();
        let unbroken = before.as_deref().and_then(|before| derive::unbroken(before, now, self.tick));
        let interval = unbroken.map(|(old, seconds)| Interval::new(old, new, now.release, seconds));
        if let Some(reset) = before.as_deref().and_then(|before| derive::reset(before, now)) {
            self.count(reset);
        }
        IntervalValues {
            interval,
            coverage: derive::bf_coverage(new),
            bf_last_cycle_age: age(new, new.bf_when_last_cycle),
            job_states_age: age(new, new.job_states_ts),
            resets: self.resets,
        }
    }
}

impl Collect<TickOutcome> for SchedInterval {
    fn collect(&mut self, _: i64, outcome: &TickOutcome, points: &mut Points<'_>) {
        let known = match outcome.reading().and_then(|reading| Some((reading, reading.statistics.as_ref()?)))
        {
            Some((reading, statistics)) => {
                let known = self.look(reading, statistics);
                self.before = Some(Arc::clone(reading));
                known
            }
            None => IntervalValues { resets: self.resets, ..IntervalValues::default() },
        };
        points.push(FAMILY, METRICS, &known);
    }
}

#[rustfmt::skip]
const METRICS: &[Metric<IntervalValues>] = &[
    Metric { leaf: "seconds", unit: "s", rollup: Rollup::Average, value: |k| Some(k.interval?.seconds),
        meaning: "the real time between the two readings" },
    Metric { leaf: "jobs_submitted_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.jobs.submitted),
        meaning: "jobs submitted" },
    Metric { leaf: "jobs_started_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.jobs.started),
        meaning: "jobs started; if it stays far below the jobs submitted, the queue grows" },
    Metric { leaf: "jobs_completed_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.jobs.completed),
        meaning: "jobs completed" },
    Metric { leaf: "jobs_canceled_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.jobs.canceled),
        meaning: "jobs cancelled" },
    Metric { leaf: "jobs_failed_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.jobs.failed),
        meaning: "jobs that slurmd could not run; more than an occasional failure suggests a broken node" },
    Metric { leaf: "jobs_backfilled_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.jobs.backfilled),
        meaning: "jobs started by backfill" },
    Metric { leaf: "job_states_age", unit: "s", rollup: Rollup::Average, value: |k| number(k.job_states_age),
        meaning: "age of jobs_pending and jobs_running; above 60, slurmctld's background work is delayed" },
    Metric { leaf: "main_cycles", unit: "count", rollup: Rollup::Average, value: |k| Some(k.interval?.main.count.into()),
        meaning: "main cycles that ended in the interval" },
    Metric { leaf: "main_mean_cycle", unit: "µs", rollup: Rollup::Average, value: |k| k.interval?.main.mean_time(),
        meaning: "mean time of those cycles; sustained values above 1,000,000 make users wait for squeue and sbatch" },
    Metric { leaf: "main_mean_depth", unit: "count", rollup: Rollup::Average, value: |k| k.interval?.main.mean_depth(),
        meaning: "mean number of jobs examined per cycle" },
    Metric { leaf: "main_cycles_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.main.count),
        meaning: "main cycles a minute; 0 while jobs wait means that the scheduler is stuck" },
    Metric { leaf: "main_busy_fraction", unit: "0-1", rollup: Rollup::Average, value: |k| k.interval.and_then(|i| i.busy_fraction(&i.main)),
        meaning: "share of wall-clock time spent in the main scheduler; sustained values above 0.5 leave little time for RPCs" },
    Metric { leaf: "bf_cycles", unit: "count", rollup: Rollup::Average, value: |k| Some(k.interval?.bf.count.into()),
        meaning: "backfill cycles that ended in the interval" },
    Metric { leaf: "bf_last_cycle_age", unit: "s", rollup: Rollup::Average, value: |k| number(k.bf_last_cycle_age),
        meaning: "time since the last backfill cycle began; above 600 while jobs wait, backfill does not run" },
    Metric { leaf: "bf_mean_cycle", unit: "µs", rollup: Rollup::Average, value: |k| k.interval?.bf.mean_time(),
        meaning: "mean time of those cycles, without their sleep; near bf_max_time, cycles end before the end of their queue" },
    Metric { leaf: "bf_depth_mean", unit: "count", rollup: Rollup::Average, value: |k| k.interval?.bf.mean_depth(),
        meaning: "mean number of jobs examined per cycle" },
    Metric { leaf: "bf_depth_mean_try", unit: "count", rollup: Rollup::Average, value: |k| mean(k, |i| i.bf_depth_try),
        meaning: "mean number of jobs the scheduler tried to start per cycle" },
    Metric { leaf: "bf_queue_length_mean", unit: "count", rollup: Rollup::Average, value: |k| mean(k, |i| i.bf_queue_len),
        meaning: "mean number of entries in the queue of a cycle (see `bf_queue_length`); not published if a cycle was running at either reading" },
    Metric { leaf: "bf_table_size_mean", unit: "count", rollup: Rollup::Average, value: |k| mean(k, |i| i.bf_table_size),
        meaning: "mean number of time slots used for planning per cycle" },
    Metric { leaf: "bf_cycles_per_minute", unit: "1/min", rollup: Rollup::Average, value: |k| rate(k, |i| i.bf.count),
        meaning: "backfill cycles a minute" },
    Metric { leaf: "bf_busy_fraction", unit: "0-1", rollup: Rollup::Average, value: |k| k.interval.and_then(|i| i.busy_fraction(&i.bf)),
        meaning: "share of wall-clock time spent in the backfill scheduler, without its sleep; with sustained values above 0.8 slurmctld does little else" },
    Metric { leaf: "bf_coverage", unit: "ratio", rollup: Rollup::Average, value: |k| number(k.coverage),
        meaning: "tries of the last backfill cycle divided by the entries of its queue. It can be above 1, because an array is one entry and each of its tasks is a try. With sustained values below 0.5 small jobs at the end of the queue never get their chance (bf_max_job_test, bf_max_time). No point while a cycle is running" },
    Metric { leaf: "resets_midnight", unit: "count", rollup: Rollup::Last, value: |k| number(k.resets.midnight),
        meaning: "resets at midnight UTC since the daemon's start" },
    Metric { leaf: "resets_command", unit: "count", rollup: Rollup::Last, value: |k| number(k.resets.command),
        meaning: "times that somebody ran sdiag --reset; a collector that does so at every reading spoils the figures of all others" },
    Metric { leaf: "resets_restart", unit: "count", rollup: Rollup::Last, value: |k| number(k.resets.restart),
        meaning: "times that slurmctld was started (from Slurm 23.11 on also by scontrol reconfigure) or another controller took over" },
];

fn rate(known: &IntervalValues, of: fn(&Interval) -> u32) -> Option<f64> {
    known.interval.map(|interval| interval.per_minute(of(&interval)))
}

fn mean(known: &IntervalValues, of: fn(&Interval) -> Option<u32>) -> Option<f64> {
    let interval = known.interval?;
    interval.bf.mean_of(of(&interval)?)
}

/// How long ago a moment was on slurmctld's clock, s.
fn age(statistics: &Statistics, moment: Option<i64>) -> Option<f64> {
    let age = statistics.req_time.checked_sub(moment?)?;
    u64::try_from(age).ok().map(derive::exact_f64)
}
