//! Which line of sdiag each metric of `slurm_sched_stats` equals.

use crate::Sdiag;
use crate::section::{BACKFILL, MAIN, TOP};

/// A metric and the line of sdiag with the same figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// The name behind `gauge-`.
    pub leaf: &'static str,
    /// The section of sdiag's text.
    pub section: &'static str,
    /// The label in it.
    pub label: &'static str,
    /// Whether it is one of the names that people's dashboards already use.
    pub seed: bool,
    /// Whether it is a time, which is missing if it is 0.
    pub time: bool,
}

const fn seed(leaf: &'static str, section: &'static str, label: &'static str) -> Figure {
    Figure { leaf, section, label, seed: true, time: false }
}

const fn more(leaf: &'static str, section: &'static str, label: &'static str) -> Figure {
    Figure { leaf, section, label, seed: false, time: false }
}

const fn time(leaf: &'static str, section: &'static str, label: &'static str) -> Figure {
    Figure { leaf, section, label, seed: false, time: true }
}

/// Every figure that sdiag shows, in sdiag's order.
pub const FIGURES: &[Figure] = &[
    time("req_time_start", TOP, "Data since"),
    seed("server_thread_count", TOP, "Server thread count"),
    seed("agent_queue_size", TOP, "Agent queue size"),
    more("agent_count", TOP, "Agent count"),
    more("agent_thread_count", TOP, "Agent thread count"),
    more("dbd_agent_queue_size", TOP, "DBD Agent queue size"),
    more("gettimeofday_latency", TOP, "Latency for 1000 calls to gettimeofday()"),
    seed("jobs_submitted", TOP, "Jobs submitted"),
    seed("jobs_started", TOP, "Jobs started"),
    seed("jobs_completed", TOP, "Jobs completed"),
    seed("jobs_canceled", TOP, "Jobs canceled"),
    seed("jobs_failed", TOP, "Jobs failed"),
    time("job_states_ts", TOP, "Job states ts"),
    more("jobs_pending", TOP, "Jobs pending"),
    more("jobs_running", TOP, "Jobs running"),
    seed("main_last_cycle", MAIN, "Last cycle"),
    seed("main_max_cycle", MAIN, "Max cycle"),
    seed("main_total_cycles", MAIN, "Total cycles"),
    seed("main_mean_cycle", MAIN, "Mean cycle"),
    seed("main_mean_depth_cycle", MAIN, "Mean depth cycle"),
    seed("main_cycles_per_minute", MAIN, "Cycles per minute"),
    seed("main_last_queue_length", MAIN, "Last queue length"),
    seed(
        "bf_total_jobs_since_slurm_start",
        BACKFILL,
        "Total backfilled jobs (since last slurm start)",
    ),
    seed(
        "bf_total_jobs_since_cycle_start",
        BACKFILL,
        "Total backfilled jobs (since last stats cycle start)",
    ),
    more(
        "bf_total_het_jobs_since_cycle_start",
        BACKFILL,
        "Total backfilled heterogeneous job components",
    ),
    seed("bf_total_cycles", BACKFILL, "Total cycles"),
    seed("bf_last_cycle", BACKFILL, "Last cycle"),
    seed("bf_max_cycle", BACKFILL, "Max cycle"),
    seed("bf_mean_cycle", BACKFILL, "Mean cycle"),
    seed("bf_last_depth_cycle", BACKFILL, "Last depth cycle"),
    seed("bf_last_depth_cycle_try", BACKFILL, "Last depth cycle (try sched)"),
    seed("bf_depth_mean", BACKFILL, "Depth Mean"),
    seed("bf_depth_mean_try", BACKFILL, "Depth Mean (try depth)"),
    seed("bf_queue_length", BACKFILL, "Last queue length"),
    seed("bf_queue_length_mean", BACKFILL, "Queue length mean"),
    more("bf_table_size", BACKFILL, "Last table size"),
    more("bf_table_size_mean", BACKFILL, "Mean table size"),
    time("bf_last_cycle_when", BACKFILL, "Last cycle when"),
];

impl Figure {
    /// Its value in sdiag's text; `None` if sdiag prints no such line, so that the metric must have
    /// no point.
    pub fn in_sdiag(&self, sdiag: &Sdiag) -> Option<i64> {
        sdiag.get(self.section, self.label).filter(|&value| !(self.time && value == 0))
    }
}

/// The figure of a leaf.
pub fn figure(leaf: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.leaf == leaf)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::FIGURES;

    #[test]
    fn every_name_stands_once() {
        assert_eq!(FIGURES.iter().filter(|figure| figure.seed).count(), 26);
        assert_eq!(
            FIGURES.iter().map(|figure| figure.leaf).collect::<BTreeSet<_>>().len(),
            FIGURES.len()
        );
        assert_eq!(
            FIGURES
                .iter()
                .map(|figure| (figure.section, figure.label))
                .collect::<BTreeSet<_>>()
                .len(),
            FIGURES.len()
        );
    }
}
