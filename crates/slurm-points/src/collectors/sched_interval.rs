//! `slurm_sched_interval`: what the schedulers did since the last reading, exactly, where sdiag's
//! means run since midnight.
//!
//! After `sdiag --reset` rates and means are of the time since then. Nothing is published for an
//! interval in which the counters were reset otherwise, nor for more than three intervals at once.

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
         sum wrapped. After `sdiag --reset` rates and means are of the time since then, and counts \
         are absent. There is no point after another reset, after a clock was set, or over more \
         than three ticks, and no mean without a cycle. A cycle counts where it ends, so one busy \
         fraction may be above 1.");
}

#[derive(Default)]
struct SchedInterval {
    /// Seconds between two ticks.
    tick: u32,
    before: Option<Arc<Reading>>,
    resets: Resets,
    frequent: Frequent,
}

/// Ticks without figures of their interval because `sdiag --reset` had just been run.
#[derive(Default)]
struct Frequent {
    /// The moments of the last two of these ticks, Unix seconds on slurmctld's clock, the older one
    /// first.
    last: [Option<i64>; 2],
    /// The last day on which an administrator was told, in days since 1970.
    told_on: Option<i64>,
    notice: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Resets {
    midnight: u64,
    command: u64,
    restart: u64,
}

#[derive(Default)]
struct IntervalValues {
    /// The growth since the last reading, or since `sdiag --reset` if that was run since.
    interval: Option<Interval>,
    /// The growth since the last reading, if there was no reset since.
    whole: Option<Interval>,
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
        let whole = unbroken.map(|(old, seconds)| Interval::new(old, new, now.release, seconds));
        let interval = whole.or_else(|| {
            let seconds = derive::since_command(before.as_deref()?, now, self.tick)?;
            Some(Interval::since_reset(new, now.release, seconds))
        });
        match before.as_deref().and_then(|before| derive::reset(before, now)) {
            Some(Reset::Midnight) => one_more(&mut self.resets.midnight),
            Some(Reset::Command) => {
                one_more(&mut self.resets.command);
                let since_reset = new.req_time.saturating_sub(new.req_time_start);
                if interval.is_none() && since_reset < i64::from(self.tick) {
                    self.frequent.note(new.req_time);
                }
            }
            Some(Reset::Restart) => one_more(&mut self.resets.restart),
            None => {}
        }
        IntervalValues {
            interval,
            whole,
            // Otherwise its figures are those of a cycle that is long over: without jobs there is
            // none.
            coverage: whole
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

    fn notice(&mut self) -> Option<String> {
        self.frequent.notice.take()
    }
}

impl Frequent {
    /// Counts a tick at `now`, Unix seconds, that has no figures of its interval. The third within
    /// an hour is reported, at most once a day.
    fn note(&mut self, now: i64) {
        let day = now.div_euclid(86_400);
        let [older, newer] = self.last;
        self.last = [newer, Some(now)];
        let is_third = older.is_some_and(|older| (0..3600).contains(&now.saturating_sub(older)));
        if is_third && self.told_on != Some(day) {
            self.told_on = Some(day);
            self.notice = Some(
                "sdiag --reset was run right before three ticks within an hour, so these have no \
                 rates and no means; docs/runbook.md says what to do"
                    .to_owned(),
            );
        }
    }
}

metrics! {
    METRICS: IntervalValues =
        average("seconds", "s", |k| k.interval?.seconds, "real time \
            between the two readings, or since `sdiag --reset` was run between them"),
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
        average("main_cycles", "count", |k| k.whole?.main.count, "main cycles that ended in the \
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
        average("bf_cycles", "count", |k| k.whole?.bf.count, "backfill cycles that ended in the \
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

/// Returns the seconds since `moment`, on slurmctld's clock; `None` if it is in the future or not
/// known.
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

    /// Half of all rates were missing on a site where another tool ran `sdiag --reset` each minute.
    #[test]
    fn after_a_reset_by_command_rates_and_means_are_of_the_part_since_then() {
        let statistics = |req_time, req_time_start, cycles| Statistics {
            req_time,
            req_time_start,
            schedule_cycle_last: 85,
            schedule_cycle_counter: cycles,
            schedule_cycle_sum: Some(u64::from(cycles) * 100),
            schedule_cycle_max: 100,
            jobs_submitted: cycles,
            job_states_ts: Some(900),
            bf_table_size: Some(1),
            bf_when_last_cycle: Some(950),
            ..derive::nothing_yet()
        };
        let mut collector = SchedInterval { tick: 30, ..SchedInterval::default() };
        let mut tick = |statistics: Statistics| {
            let time = derive::exact_f64(u64::try_from(statistics.req_time).unwrap());
            let release = Release::new(22, 5);
            let now = Reading { time, release, statistics: Some(statistics), ..Reading::default() };
            let mut batch = carbon_wire::Batch::new(60);
            let outcome = TickOutcome::Reading(Arc::new(now));
            let mut paths = crate::named_paths::NamedPaths::default();
            collector.collect(60, &outcome, &mut Points::new("c", &mut batch, &mut paths));
            let value_of = |leaf: &str| {
                let path = format!("c.slurm_sched_interval.gauge-{leaf}");
                batch.points().find(|point| point.path() == path).map(|point| point.value())
            };
            let leaves = ["seconds", "jobs_submitted_per_minute", "main_mean_cycle", "main_cycles"];
            (leaves.map(value_of), collector.notice())
        };
        assert_eq!(tick(statistics(1000, 500, 60)), ([None; 4], None));
        let whole = [Some(30.0), Some(8.0), Some(100.0), Some(4.0)];
        assert_eq!(tick(statistics(1030, 500, 64)), (whole, None));
        // 20 s of the 30.
        let part = [Some(20.0), Some(6.0), Some(100.0), None];
        assert_eq!(tick(statistics(1060, 1040, 2)), (part, None));
        // 7 s are too short.
        assert_eq!(tick(statistics(1090, 1083, 1)), ([None; 4], None));
        assert_eq!(tick(statistics(1120, 1119, 0)), ([None; 4], None));
        let (third, notice) = tick(statistics(1150, 1148, 0));
        assert_eq!((third, notice.is_some()), ([None; 4], true));
        assert_eq!(tick(statistics(1180, 1178, 0)), ([None; 4], None), "once");
        // A restart is none.
        let restart = Statistics { bf_table_size: Some(0), ..statistics(1210, 1185, 3) };
        assert_eq!(tick(restart).0, [None; 4]);
        assert_eq!(tick(statistics(1240, 1185, 5)).0[1], Some(4.0));
    }

    /// By hours of the clock, or from the first one on, two at the end of an hour and one after it
    /// were never three.
    #[test]
    fn the_third_reset_right_before_a_tick_within_an_hour_is_reported_once_a_day() {
        let mut frequent = Frequent::default();
        let mut reports = |now| {
            frequent.note(now);
            frequent.notice.take().is_some()
        };
        let hour = 3600 * 500_000;
        assert_eq!([hour - 60, hour - 30, hour + 30].map(&mut reports), [false, false, true]);
        assert_eq!([hour + 60, hour + 90].map(&mut reports), [false; 2], "once a day");
        let next = hour + 86_400;
        let far = [next, next + 3600, next + 7300];
        assert_eq!(far.map(&mut reports), [false; 3]);
        assert_eq!([next + 7310, next + 7320].map(reports), [false, true]);
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
