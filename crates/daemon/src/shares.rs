//! What nodes have, as figures: sinfo's allocated/idle/other/total of nodes, CPUs and GPUs, and memory.

use slurm_snapshot::NodeTally;

use crate::figure::{Figure, Rollup, count};

#[rustfmt::skip]
pub(crate) const SHARES: &[Figure<NodeTally>] = &[
    Figure { leaf: "nodes_allocated", unit: "count", rollup: Rollup::Average, value: |t| count(t.nodes.allocated),
        meaning: "nodes with a job on them" },
    Figure { leaf: "nodes_idle", unit: "count", rollup: Rollup::Average, value: |t| count(t.nodes.idle),
        meaning: "nodes that wait for a job" },
    Figure { leaf: "nodes_other", unit: "count", rollup: Rollup::Average, value: |t| count(t.nodes.other),
        meaning: "nodes that are down, drained or otherwise out of reach" },
    Figure { leaf: "nodes_total", unit: "count", rollup: Rollup::Average, value: |t| count(t.nodes.total),
        meaning: "all nodes (`sinfo -o %F`)" },
    Figure { leaf: "cpus_allocated", unit: "count", rollup: Rollup::Average, value: |t| count(t.cpus.allocated),
        meaning: "CPUs that jobs have" },
    Figure { leaf: "cpus_idle", unit: "count", rollup: Rollup::Average, value: |t| count(t.cpus.idle),
        meaning: "CPUs that jobs could have" },
    Figure { leaf: "cpus_other", unit: "count", rollup: Rollup::Average, value: |t| count(t.cpus.other),
        meaning: "CPUs that no job can have, because their node is down or drained" },
    Figure { leaf: "cpus_total", unit: "count", rollup: Rollup::Average, value: |t| count(t.cpus.total),
        meaning: "all CPUs (`sinfo -o %C`)" },
    Figure { leaf: "gpus_allocated", unit: "count", rollup: Rollup::Average, value: |t| count(t.gpus.allocated),
        meaning: "GPUs that jobs have" },
    Figure { leaf: "gpus_idle", unit: "count", rollup: Rollup::Average, value: |t| count(t.gpus.idle),
        meaning: "GPUs that jobs could have" },
    Figure { leaf: "gpus_other", unit: "count", rollup: Rollup::Average, value: |t| count(t.gpus.other),
        meaning: "GPUs that no job can have, because their node is down or drained" },
    Figure { leaf: "gpus_total", unit: "count", rollup: Rollup::Average, value: |t| count(t.gpus.total),
        meaning: "all GPUs" },
    Figure { leaf: "memory_real", unit: "bytes", rollup: Rollup::Average, value: |t| mebibytes(t.memory.real),
        meaning: "memory (RealMemory)" },
    Figure { leaf: "memory_allocated", unit: "bytes", rollup: Rollup::Average, value: |t| mebibytes(t.memory.allocated),
        meaning: "memory that jobs have been given" },
    Figure { leaf: "memory_free", unit: "bytes", rollup: Rollup::Average, value: |t| mebibytes(t.memory.free),
        meaning: "memory that the nodes' kernels call free" },
];

/// Slurm counts memory in MiB.
fn mebibytes(value: u64) -> Option<f64> {
    count(value.saturating_mul(1 << 20))
}
