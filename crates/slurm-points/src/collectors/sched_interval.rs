//! `slurm_sched_interval`: what the schedulers did since the last reading, exactly, where sdiag's
//! means run since midnight.
//!
//! Nothing is published for an interval in which the counters were reset, nor for more than three
//! intervals at once.

use std::sync::Arc;

use slurm_snapshot::{Reading, ReplyKind, Statistics, one_more};

use super::{Collect, Collector, Start, TickOutcome};
use crate::derive::{self, Interval, Reset};
use crate::levels::Table;
use crate::named_paths::Points;

pub(super) const COLLECTOR: Collector = Collector {
    name: "sched_interval",
    comment: "What they did since the last reading, exactly: slurm_sched_interval.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Statistics],
    start: Start::Tick(|begin| {
        Box::new(SchedInterval { tick: begin.interval, ..SchedInterval::default() })
    }),
};

levels! {
    LEVELS:
    ALL: Level<Table<IntervalValues>, 0> = ("slurm_sched_interval", [], METRICS,
        "What the schedulers did since the last reading: not truncated, and right even if a 32-bit \
         sum wrapped. There is no point after a reset, after a clock was set, or over more than \
         three ticks, and no mean without a cycle. A cycle counts where it ends, so one busy \
         fraction may be above 1.");
}

#[derive(Default)]
struct SchedInterval {
    /// Seconds between two ticks.
    tick: u32,
    before: Option<Arc<Reading>>,
    resets: Resets,
}

#[derive(Clone, Copy, Default)]
struct Resets {
    midnight: u64,
    command: u64,
    restart: u64,
}

#[derive(Default)]
struct IntervalValues {
    interval: Option<Interval>,
    coverage: Option<f64>,
    bf_last_cycle_age: Option<i64>,
    job_states_age: Option<i64>,
    resets: Resets,
}

impl SchedInterval {
    fn values(&mut self, now: &Arc<Reading>, new: &Statistics) -> IntervalValues {
        let before = self.before.replace(Arc::clone(now));
        let unbroken =
            before.as_deref().and_then(|before| derive::unbroken(before, now, self.tick));
        let interval = unbroken.map(|(old, seconds)| Interval::new(old, new, now.release, seconds));
        match before.as_deref().and_then(|before| derive::reset(before, now)) {
            Some(Reset::Midnight) => one_more(&mut self.resets.midnight),
            Some(Reset::Command) => one_more(&mut self.resets.command),
            Some(Reset::Restart) => one_more(&mut self.resets.restart),
            None => {}
        }
        IntervalValues {
            interval,
            // Otherwise its figures are those of a cycle that is long over: without jobs there is
            // none.
            coverage: interval
                .filter(|interval| interval.bf.count > 0)
                .and_then(|_| derive::bf_coverage(new)),
            bf_last_cycle_age: age(new, new.bf_when_last_cycle),
            job_states_age: age(new, new.job_states_ts),
            resets: self.resets,
        }
    }
}

impl Collect<TickOutcome> for SchedInterval {
    fn collect(&mut self, _: i64, outcome: &TickOutcome, points: &mut Points<'_>) {
        let values = match outcome.statistics() {
            Some((reading, statistics)) => self.values(reading, statistics),
            None => IntervalValues { resets: self.resets, ..IntervalValues::default() },
        };
        points.push(&ALL, [], &values);
    }
}

metrics! {
    METRICS: IntervalValues =
        average("seconds", "s", |k| k.interval?.seconds, "real time between the two readings"),
        average("jobs_submitted_per_minute", "1/min", |k| rate(k, |i| i.jobs.submitted), "jobs \
            submitted"),
        average("jobs_started_per_minute", "1/min", |k| rate(k, |i| i.jobs.started),
            "jobs started; if it stays far below the jobs submitted, the queue grows"),
        average("jobs_completed_per_minute", "1/min", |k| rate(k, |i| i.jobs.completed), "jobs \
            that ended, with any exit code; see `jobs_completed`"),
        average("jobs_canceled_per_minute", "1/min", |k| rate(k, |i| i.jobs.canceled), "successful \
            scancel requests; see `jobs_canceled`"),
        average("jobs_failed_per_minute", "1/min", |k| rate(k, |i| i.jobs.failed),
            "jobs that slurmd could not start; more than a few suggest a broken node"),
        average("jobs_backfilled_per_minute", "1/min", |k| rate(k, |i| i.jobs.backfilled), "jobs \
            started by backfill"),
        average(job_states_age, "s",
            "age of jobs_pending and jobs_running; above 60, slurmctld's background work is delayed"),
        average("main_cycles", "count", |k| k.interval?.main.count, "main cycles that ended in the \
            interval"),
        average("main_mean_cycle", "µs", |k| k.interval?.main.mean_time(),
            "mean time of those cycles; sustained values above 1,000,000 make users wait for \
                squeue and sbatch"),
        average("main_mean_depth", "count", |k| k.interval?.main.mean_depth(),
            "mean number of jobs examined per cycle; wrong if a cycle was running at either \
             reading"),
        average("main_cycles_per_minute", "1/min", |k| rate(k, |i| i.main.count),
            "main cycles a minute; 0 while jobs wait means that the scheduler is stuck"),
        average("main_busy_fraction", "0-1", |k| k.interval.and_then(|i| i.busy_fraction(&i.main)),
            "share of the wall-clock time spent in the main scheduler; sustained values above 0.5 \
             leave little time for RPCs"),
        average("bf_cycles", "count", |k| k.interval?.bf.count, "backfill cycles that ended in the \
            interval"),
        average(bf_last_cycle_age, "s",
            "time since the last backfill cycle began; above 600 while jobs wait, backfill does \
                not run"),
        average("bf_mean_cycle", "µs", |k| k.interval?.bf.mean_time(),
            "mean time of those cycles, without their sleep; near bf_max_time, cycles end before \
             their queue does"),
        average("bf_depth_mean", "count", |k| k.interval?.bf.mean_depth(), "mean number of jobs \
            examined per cycle"),
        average("bf_depth_mean_try", "count", |k| mean(k, |i| i.bf_depth_try),
            "mean number of jobs that a cycle tried to start"),
        average("bf_queue_length_mean", "count", |k| mean(k, |i| i.bf_queue_len),
            "mean number of entries in a cycle's queue (see `bf_queue_length`); no point if a \
             cycle was running at either reading"),
        average("bf_table_size_mean", "count", |k| mean(k, |i| i.bf_table_size), "mean number of \
            time slots used for planning per cycle"),
        average("bf_cycles_per_minute", "1/min", |k| rate(k, |i| i.bf.count), "backfill cycles a \
            minute"),
        average("bf_busy_fraction", "0-1", |k| k.interval.and_then(|i| i.busy_fraction(&i.bf)),
            "share of the wall-clock time spent in backfill, without its sleep; sustained above \
             0.8, slurmctld does little else"),
        average("bf_coverage", "ratio", |k| k.coverage,
            "tries of the last backfill cycle divided by its queue's entries; below 0.5, jobs at \
             its end get no chance; no point without a cycle"),
        last("resets_midnight", "count", |k| k.resets.midnight,
            "resets at midnight UTC since the daemon's start"),
        last("resets_command", "count", |k| k.resets.command,
            "intervals with a run of sdiag --reset since the daemon's start; it spoils everybody's \
             figures"),
        last("resets_restart", "count", |k| k.resets.restart,
            "intervals with a start of slurmctld (from 23.11 on also by scontrol reconfigure) or a \
             take-over, since the daemon's start");
}

fn rate(known: &IntervalValues, of: fn(&Interval) -> u32) -> Option<f64> {
    known.interval.map(|interval| interval.per_minute(of(&interval)))
}

fn mean(known: &IntervalValues, of: fn(&Interval) -> Option<u32>) -> Option<f64> {
    let interval = known.interval?;
    interval.bf.mean_of(of(&interval)?)
}

/// Seconds since `moment`, on slurmctld's clock.
fn age(statistics: &Statistics, moment: Option<i64>) -> Option<i64> {
    statistics.req_time.checked_sub(moment?).filter(|&age| age >= 0)
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Release;

    use super::*;

    fn reading(seconds: i64, bf_cycle_counter: u32) -> Arc<Reading> {
        let statistics = Statistics {
            req_time: 2000 + seconds,
            req_time_start: 1000,
            bf_cycle_counter,
            bf_queue_len: 12,
            bf_last_depth_try: Some(2),
            ..derive::nothing_yet()
        };
        let time = f64::from(i32::try_from(seconds).unwrap());
        let release = Release::new(22, 5);
        Arc::new(Reading { time, release, statistics: Some(statistics), ..Reading::default() })
    }

    /// slurmctld leaves the figures of the last cycle as they are for hours.
    #[test]
    fn an_empty_queue_has_no_coverage() {
        let mut collector = SchedInterval { tick: 30, ..SchedInterval::default() };
        let mut coverage = |seconds, cycles| {
            let now = reading(seconds, cycles);
            collector.values(&now, now.statistics.as_ref().unwrap()).coverage
        };
        assert_eq!(coverage(0, 5), None, "it is not known when that cycle was");
        assert_eq!(coverage(30, 6), Some(2.0 / 12.0));
        assert_eq!((coverage(60, 6), coverage(90, 6)), (None, None));
        assert_eq!(coverage(120, 7), Some(2.0 / 12.0));
    }
}
