//! The figures that the alert rules look at, without their prefix.

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
