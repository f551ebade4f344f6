//! The figures that the alert rules look at, without their prefix, and how they are on an ordinary
//! day.

use std::collections::BTreeMap;

use super::alerts::{Curve, always, curve};

pub(crate) const UP: &str = "slurm_graphite.head.gauge-slurmctld_up";
pub(crate) const PENDING: &str = "slurm_sched_stats.gauge-jobs_pending";
pub(crate) const QUEUE: &str = "slurm_sched_stats.gauge-main_last_queue_length";
pub(crate) const BACKFILL: &str = "slurm_sched_interval.gauge-bf_last_cycle_age";
pub(crate) const ACTIVE: &str = "slurm_sched_stats.gauge-bf_active";
pub(crate) const SUBMITTED: &str = "slurm_sched_interval.gauge-jobs_submitted_per_minute";
pub(crate) const STARTED: &str = "slurm_sched_interval.gauge-jobs_started_per_minute";
pub(crate) const COMPLETED: &str = "slurm_sched_interval.gauge-jobs_completed_per_minute";
pub(crate) const CYCLES: &str = "slurm_sched_interval.gauge-main_cycles";
pub(crate) const MEAN_CYCLE: &str = "slurm_sched_interval.gauge-main_mean_cycle";
pub(crate) const BUSY: &str = "slurm_sched_interval.gauge-main_busy_fraction";
pub(crate) const COUNTED: &str = "slurm_sched_interval.gauge-job_states_age";
pub(crate) const ALL_STARTED: &str = "slurm_sched_stats.gauge-jobs_started";
pub(crate) const NOT_LAUNCHED: &str = "slurm_sched_stats.gauge-jobs_failed";
pub(crate) const AGENTS: &str = "slurm_sched_stats.gauge-agent_queue_size";
pub(crate) const DBD: &str = "slurm_sched_stats.gauge-dbd_agent_queue_size";
pub(crate) const THREADS: &str = "slurm_health.gauge-threads_fraction";
pub(crate) const RPC_TIME: &str = "slurm_rpc_stats.total.gauge-interval_mean_time";
pub(crate) const TYPES: &str = "slurm_rpc_stats.total.gauge-types";
pub(crate) const NODES: &str = "slurm_nodes.total.gauge-nodes_total";
pub(crate) const DOWN: &str = "slurm_nodes.state.down.gauge-nodes";
pub(crate) const OUTAGES: [&str; 2] =
    ["slurm_nodes.events.class.down.gauge-reached", "slurm_nodes.events.class.fail.gauge-reached"];
pub(crate) const DRAINED: &str = "slurm_nodes.state.drained.gauge-nodes";
pub(crate) const DRAINING: &str = "slurm_nodes.state.draining.gauge-nodes";
pub(crate) const RECORDS: &str = "slurm_jobs.total.gauge-records";
pub(crate) const ENDED: &str = "slurm_jobs_finished.total.work.gauge-jobs";
pub(crate) const FAILED: &str = "slurm_jobs_finished.total.state.failed.gauge-jobs";
pub(crate) const UNPROVED: &str = "slurm_jobs_finished.reading.gauge-unproved";
pub(crate) const ROLLUP: &str = "slurm_slurmdbd.rollup.hour.gauge-age";
pub(crate) const BACKUP: &str = "slurm_controllers.backup1.gauge-up";
pub(crate) const LOST: &str = "slurm_graphite.head.carbon.c.gauge-points_dropped_age";
pub(crate) const DOUBT: &str = "slurm_graphite.head.carbon.c.gauge-in_doubt";
pub(crate) const AGE: &str = "slurm_graphite.head.carbon.c.gauge-queue_age";
pub(crate) const ERRORS: &str = "agents.carbon-a.errors";
pub(crate) const OVERFLOW: &str = "agents.carbon-a.cache.overflow";
pub(crate) const UNDURABLE: &str = "slurm_graphite.head.queue.gauge-undurable";
pub(crate) const SHORT: &str = "slurm_graphite.head.queue.gauge-window_short";
pub(crate) const SKIPPED: &str = "slurm_graphite.head.gauge-ticks_skipped";
pub(crate) const REFUSED: &str = "slurm_graphite.head.gauge-reload_refused";
pub(crate) const HIDDEN: &str = "slurm_graphite.head.reply.jobs.gauge-hidden";
pub(crate) const TOKEN: &str = "slurm_graphite.head.gauge-token_expires_in";
pub(crate) const STANDBY: [&str; 2] =
    ["slurm_graphite.head.gauge-standby", "slurm_graphite.backup.gauge-standby"];
pub(crate) const HEALTHY: &str = "slurm_health.gauge-up";

pub(crate) type Curves = BTreeMap<&'static str, Curve>;

/// A counter that grows by so many a minute, from so many seconds ago on by another number.
pub(crate) fn counter(a_minute: f64, moment: f64, then: f64) -> Curve {
    curve(move |ago| {
        1e6 - a_minute * (ago - moment).max(0.0) / 60.0 - then * ago.min(moment) / 60.0
    })
}

/// 300 nodes, 70 jobs a minute, every collector on, more than 200 users, and an account that has
/// reached its limit while its jobs wait.
pub(crate) fn ordinary() -> Curves {
    let mut curves = Curves::new();
    for (leaf, value) in [
        (UP, 1.0),
        (HEALTHY, 1.0),
        (ACTIVE, 0.0),
        (PENDING, 400.0),
        (QUEUE, 30.0),
        (SUBMITTED, 70.0),
        (STARTED, 70.0),
        (COMPLETED, 70.0),
        (CYCLES, 6.0),
        (MEAN_CYCLE, 40_000.0),
        (BUSY, 0.05),
        (AGENTS, 3.0),
        (DBD, 2.0),
        (THREADS, 0.1),
        (RPC_TIME, 3000.0),
        (TYPES, 60.0),
        ("slurm_rpc_stats.total.gauge-users", 200.0),
        (NODES, 300.0),
        (DOWN, 2.0),
        (OUTAGES[0], 0.0),
        (OUTAGES[1], 0.0),
        (DRAINED, 6.0),
        (DRAINING, 0.0),
        (RECORDS, 3000.0),
        (ENDED, 35.0),
        (FAILED, 4.0),
        (UNPROVED, 0.0),
        ("slurm_controllers.primary.gauge-up", 1.0),
        (BACKUP, 1.0),
        ("slurm_associations.total.gauge-records", 900.0),
        ("slurm_associations.account.physics.gauge-jobs_running", 10.0),
        ("slurm_associations.account.physics.gauge-submit_jobs", 600.0),
        ("slurm_associations.account.physics.gauge-grp_jobs", 10.0),
        (LOST, 0.0),
        (DOUBT, 0.0),
        (AGE, 0.0),
        (ERRORS, 0.0),
        (OVERFLOW, 0.0),
        (UNDURABLE, 0.0),
        (SHORT, 0.0),
        (SKIPPED, 0.0),
        (REFUSED, 0.0),
        (HIDDEN, 0.0),
        (TOKEN, 86_400.0),
        (STANDBY[0], 0.0),
        (STANDBY[1], 1.0),
    ] {
        curves.insert(leaf, always(value));
    }
    curves.insert(BACKFILL, curve(|ago| ago % 60.0));
    curves.insert(COUNTED, curve(|ago| ago % 31.0));
    curves.insert(ROLLUP, curve(|ago| 3600.0 - ago % 3600.0));
    curves.insert(ALL_STARTED, counter(70.0, 0.0, 0.0));
    curves.insert(NOT_LAUNCHED, counter(0.2, 0.0, 0.0));
    curves
}

/// An ordinary cluster with these differences.
pub(crate) fn with(differences: Vec<(&'static str, Curve)>) -> Curves {
    let mut curves = ordinary();
    curves.extend(differences);
    curves
}
