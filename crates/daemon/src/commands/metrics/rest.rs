//! What slurmrestd does not tell, of all that libslurm tells: the one list, which docs/metrics.md prints, and against which
//! live tests hold the two readers.

use std::fmt::Write;

use crate::collectors::COLLECTORS;

/// Figures, and the releases of slurmrestd in which they come.
pub(super) struct Absent {
    /// Where, behind the prefix.
    pub(super) below: &'static str,
    /// Leaves; none: all.
    pub(super) leaves: &'static [&'static str],
    pub(super) there: There,
}

/// In which releases.
pub(super) enum There {
    From(&'static str),
    /// The first, and then from this one on: what is between does not tell them.
    FromAndAgain(&'static str, &'static str),
    Never,
}

pub(super) const ABSENT: &[Absent] = &[
    Absent {
        below: "slurm_sched_stats",
        leaves: &["main_cycle_sum", "main_depth_sum", "bf_table_size_sum"],
        there: There::From("24.05"),
    },
    Absent {
        below: "slurm_sched_stats",
        leaves: &[
            "bf_cycle_sum",
            "bf_depth_sum",
            "bf_depth_sum_try",
            "bf_queue_length_sum",
            "bf_last_depth_cycle",
            "bf_last_depth_cycle_try",
        ],
        there: There::From("23.02"),
    },
    Absent {
        below: "slurm_sched_stats",
        leaves: &["bf_max_cycle"],
        there: There::FromAndAgain("20.11", "24.05"),
    },
    Absent {
        below: "slurm_sched_stats",
        leaves: &["bf_table_size_mean"],
        there: There::FromAndAgain("22.05", "24.05"),
    },
    Absent { below: "slurm_sched_stats", leaves: &["bf_queue_length_mean"], there: There::From("22.05") },
    Absent { below: "slurm_sched_stats", leaves: &["bf_table_size"], there: There::From("22.05") },
    Absent { below: "slurm_sched_stats", leaves: &["rpc_queue_enabled"], there: There::Never },
    Absent {
        below: "slurm_sched_interval",
        leaves: &["main_mean_cycle", "main_mean_depth", "main_busy_fraction", "bf_table_size_mean"],
        there: There::From("24.05"),
    },
    Absent {
        below: "slurm_sched_interval",
        leaves: &[
            "bf_mean_cycle",
            "bf_depth_mean",
            "bf_depth_mean_try",
            "bf_queue_length_mean",
            "bf_busy_fraction",
            "bf_coverage",
        ],
        there: There::From("23.02"),
    },
    Absent { below: "slurm_sched_exit", leaves: &[], there: There::From("23.11") },
    Absent { below: "slurm_rpc_stats", leaves: &[], there: There::From("22.05") },
    Absent { below: "slurm_rpc_stats.pending", leaves: &[], there: There::From("24.05") },
    Absent { below: "slurm_rpc_stats.pending_total", leaves: &[], there: There::From("24.05") },
    Absent { below: "slurm_jobs.total", leaves: &["jobs", "unparsed"], there: There::From("24.05") },
    Absent { below: "slurm_jobs.total", leaves: &["records"], there: There::Never },
    Absent { below: "slurm_jobs.state", leaves: &["jobs"], there: There::From("24.05") },
    Absent { below: "slurm_jobs.state", leaves: &["cpus", "nodes", "gpus"], there: There::Never },
    Absent { below: "slurm_jobs.reason", leaves: &[], there: There::Never },
    Absent { below: "slurm_jobs.waiting", leaves: &[], there: There::Never },
    Absent { below: "slurm_jobs.partition", leaves: &[], there: There::Never },
    Absent { below: "slurm_jobs.qos", leaves: &[], there: There::Never },
    Absent { below: "slurm_jobs.account", leaves: &[], there: There::Never },
    Absent { below: "slurm_jobs.user", leaves: &[], there: There::Never },
    Absent { below: "slurm_jobs.others", leaves: &[], there: There::Never },
    Absent {
        below: "slurm_partitions.<partition>",
        leaves: &["jobs_pending", "jobs_running", "jobs_cpus_pending", "jobs_cpus_running"],
        there: There::Never,
    },
    Absent {
        below: "slurm_partitions.<partition>",
        leaves: &["up", "down", "drain", "inactive"],
        there: There::FromAndAgain("22.05", "23.11"),
    },
    Absent { below: "slurm_partitions", leaves: &[], there: There::From("22.05") },
    Absent { below: "slurm_nodes", leaves: &[], there: There::From("22.05") },
    Absent { below: "slurm_nodes.records", leaves: &["future"], there: There::Never },
    Absent { below: "slurm_licenses", leaves: &[], there: There::From("22.05") },
    Absent { below: "slurm_reservations", leaves: &[], there: There::From("21.08") },
    Absent { below: "slurm_controllers.<controller>", leaves: &["answer_time"], there: There::From("23.02") },
];

/// The chapter.
pub(super) fn chapter(text: &mut String) {
    text.push_str(
        "\n## Over REST\n\nWith `[slurm] rest` the figures are slurmrestd's. Those in this table come from the release on that it \
         names; every other figure comes from each release from 20.11 to 26.05, and equals libslurm's. *Release* is slurmrestd's. \
         `rpc_queue_enabled`, and the columns of the RPC queue, come as soon as a queue has done anything. A slurmrestd before \
         23.11 does not tell the cluster's name, so that `{cluster}` cannot be filled in. Where PrivateData in slurm.conf \
         names `reservations`, only those come that the token's user may see: give it the token of an operator. `slurm_jobs` \
         comes with `states_only = true` in `[collectors.jobs]` alone.\n\n\
         | cluster. | gauge- | release |\n|---|---|---|\n",
    );
    for Absent { below, leaves, there } in ABSENT {
        let there = match there {
            There::From(from) => format!("from {from}"),
            There::FromAndAgain(first, again) => format!("{first} to 22.05, and from {again}"),
            There::Never => "none".to_owned(),
        };
        let leaves: Vec<String> = leaves.iter().map(|leaf| format!("`{leaf}`")).collect();
        let leaves = if leaves.is_empty() { "all".to_owned() } else { leaves.join(", ") };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{below}` | {leaves} | {there} |");
    }
    for collector in COLLECTORS {
        let family = format!("slurm_{}", collector.family());
        let is_absent = collector.replies.iter().all(|reply| reply.row().not_over_rest.is_some());
        if is_absent && !ABSENT.iter().any(|absent| absent.below.split('.').next() == Some(family.as_str())) {
            let _ = writeln!(text, "| `{family}` | all | none |");
        }
    }
}
