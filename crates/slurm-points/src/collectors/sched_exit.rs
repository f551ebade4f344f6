//! `slurm_sched_exit`: why the cycles of both schedulers ended, from Slurm 23.11 on.
//!
//! Reasons that this program does not know are one sum.

use std::collections::BTreeMap;
use std::sync::Arc;

use slurm_snapshot::{BACKFILL_EXITS, ExitReasons, MAIN_EXITS, Reading, ReplyKind, Statistics};

use super::{Collect, Collector, Start, TickOutcome};
use crate::derive;
use crate::levels::Names::Closed;
use crate::levels::{Level, Name, Table};
use crate::named_paths::Points;

pub(super) const COLLECTOR: Collector = Collector {
    name: "sched_exit",
    comment: "Why their cycles ended, from Slurm 23.11 on: slurm_sched_exit.",
    settings: &[],
    levels: &[LEVELS],
    replies: &[ReplyKind::Statistics],
    start: Start::Tick(|begin| Box::new(SchedExit { tick: begin.interval, before: None })),
};

levels! {
    LEVELS:
    MAIN: Level<Table<Ended>, 1> = ("slurm_sched_exit.main.<reason>", [Closed], METRICS,
        "Why the cycles of the main scheduler ended, from Slurm 23.11 on: `end` (the whole queue \
         was done), `max_depth` (default_queue_depth, partition_job_depth), `max_job_start` \
         (sched_max_job_start), `lic` (licences), `rpc_cnt` (max_rpc_cnt: too many RPCs were \
         waiting), `timeout` (max_sched_time), `other` (reasons of a newer slurmctld). Only `end` \
         leaves no job unexamined; if others are often the reason, the limit is too low for the \
         queue.");
    BACKFILL: Level<Table<Ended>, 1> = ("slurm_sched_exit.bf.<reason>", [Closed], METRICS,
        "Of backfill: `end`, `max_job_start` (bf_max_job_start), `max_job_test` (bf_max_job_test), \
         `state_changed` (jobs or nodes changed while it slept, see bf_continue), `table_limit` \
         (bf_node_space_size), `timeout` (bf_max_time), `other`.");
}

struct SchedExit {
    /// Seconds between two ticks.
    tick: u32,
    before: Option<Arc<Reading>>,
}

/// The cycles that ended for one reason: since the last reset, and in the interval; `None` if that
/// is not known.
type Ended = (u32, Option<u32>);

struct Scheduler {
    level: &'static Level<Table<Ended>, 1>,
    reasons: ExitReasons,
    exits: fn(&Statistics) -> Option<&[u32]>,
}

const SCHEDULERS: [Scheduler; 2] = [
    Scheduler { level: &MAIN, reasons: MAIN_EXITS, exits: |s| s.schedule_exit.as_deref() },
    Scheduler { level: &BACKFILL, reasons: BACKFILL_EXITS, exits: |s| s.bf_exit.as_deref() },
];

impl Collect<TickOutcome> for SchedExit {
    fn collect(&mut self, _: i64, outcome: &TickOutcome, points: &mut Points<'_>) {
        let Some((reading, new)) = outcome.statistics() else { return };
        let before = self.before.replace(Arc::clone(reading));
        let unbroken =
            before.as_deref().and_then(|before| derive::unbroken(before, reading, self.tick));
        for Scheduler { level, reasons, exits } in SCHEDULERS {
            let before = unbroken.and_then(|(old, _)| exits(old));
            let mut ended: BTreeMap<&str, Ended> = BTreeMap::new();
            for (index, &count) in exits(new).unwrap_or_default().iter().enumerate() {
                let before = before.and_then(|before| before.get(index));
                let in_interval = before.and_then(|&old| count.checked_sub(old));
                let (sum, grown) = ended.entry(reasons.name(index)).or_insert((0, Some(0)));
                *sum = sum.saturating_add(count);
                *grown = grown.zip(in_interval).map(|(grown, more)| grown.saturating_add(more));
            }
            for (reason, of) in ended {
                points.push(level, [Name::new(reason)], &of);
            }
        }
    }
}

metrics! {
    METRICS: Ended =
        last("count", "count", |(count, _)| *count, "cycles that have ended for this reason since \
            the last reset"),
        average("interval_count", "count", |(_, in_interval)| *in_interval, "cycles that ended for \
            this reason since the last reading");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named_paths::NamedPaths;
    use carbon_wire::Batch;
    use slurm_snapshot::Release;

    fn reading(time: f64, main: &[u32], bf: &[u32]) -> Arc<Reading> {
        let statistics = Statistics {
            #[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
            req_time: time as i64,
            req_time_start: 1,
            schedule_exit: Some(main.to_vec()),
            bf_exit: Some(bf.to_vec()),
            ..Statistics::default()
        };
        Arc::new(Reading {
            id: 0,
            time,
            elapsed: 400,
            release: Release::new(24, 11),
            statistics: Some(statistics),
            ..Reading::default()
        })
    }

    fn points(exits: &mut SchedExit, reading: &Arc<Reading>) -> Vec<String> {
        let mut batch = Batch::new(60);
        exits.collect(
            60,
            &TickOutcome::Reading(Arc::clone(reading)),
            &mut Points::new("c", &mut batch, &mut NamedPaths::default()),
        );
        carbon_wire::lines(&batch)
            .lines()
            .map(|line| line.trim_end_matches(" 60").to_owned())
            .collect()
    }

    #[test]
    fn reasons_that_no_table_has_are_one_sum() {
        let mut exits = SchedExit { tick: 30, before: None };
        assert_eq!(
            points(&mut exits, &reading(30.0, &[7], &[])),
            ["c.slurm_sched_exit.main.end.gauge-count 7"]
        );
        let found = points(&mut exits, &reading(60.0, &[9, 0, 0, 0, 0, 0, 4, 1], &[3]));
        assert!(
            found.contains(&"c.slurm_sched_exit.main.end.gauge-interval_count 2".into()),
            "{found:?}"
        );
        assert!(found.contains(&"c.slurm_sched_exit.main.other.gauge-count 5".into()), "{found:?}");
        assert!(
            !found.iter().any(|point| point.contains("other.gauge-interval")),
            "unknown before"
        );
        assert!(
            !found.iter().any(|point| point.contains("bf.end.gauge-interval")),
            "unknown before"
        );
    }
}
