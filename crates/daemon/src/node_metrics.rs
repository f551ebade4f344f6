//! Resources of nodes as figures: sinfo's allocated/idle/other/total of nodes, CPUs and GPUs, and memory; the number of
//! nodes in a state; GPUs of one type.

use slurm_snapshot::{NodeTally, Shares};

use crate::metric::{Metric, Rollup, mebibytes, number};

#[rustfmt::skip]
pub(crate) const SHARES: &[Metric<NodeTally>] = &[
    Metric { leaf: "nodes_allocated", unit: "count", rollup: Rollup::Average, value: |t| number(t.nodes.allocated),
        meaning: "nodes that run a job" },
    Metric { leaf: "nodes_idle", unit: "count", rollup: Rollup::Average, value: |t| number(t.nodes.idle),
        meaning: "nodes free for a job" },
    Metric { leaf: "nodes_other", unit: "count", rollup: Rollup::Average, value: |t| number(t.nodes.other),
        meaning: "nodes that are down, drained or otherwise not usable" },
    Metric { leaf: "nodes_total", unit: "count", rollup: Rollup::Average, value: |t| number(t.nodes.total),
        meaning: "all nodes (`sinfo -o %F`)" },
    Metric { leaf: "cpus_allocated", unit: "count", rollup: Rollup::Average, value: |t| number(t.cpus.allocated),
        meaning: "CPUs allocated to jobs" },
    Metric { leaf: "cpus_idle", unit: "count", rollup: Rollup::Average, value: |t| number(t.cpus.idle),
        meaning: "CPUs free for jobs" },
    Metric { leaf: "cpus_other", unit: "count", rollup: Rollup::Average, value: |t| number(t.cpus.other),
        meaning: "CPUs that no job can use, because their node is down or drained" },
    Metric { leaf: "cpus_total", unit: "count", rollup: Rollup::Average, value: |t| number(t.cpus.total),
        meaning: "all CPUs (`sinfo -o %C`)" },
    Metric { leaf: "gpus_allocated", unit: "count", rollup: Rollup::Average, value: |t| number(t.gpus.allocated),
        meaning: "GPUs allocated to jobs" },
    Metric { leaf: "gpus_idle", unit: "count", rollup: Rollup::Average, value: |t| number(t.gpus.idle),
        meaning: "GPUs free for jobs" },
    Metric { leaf: "gpus_other", unit: "count", rollup: Rollup::Average, value: |t| number(t.gpus.other),
        meaning: "GPUs that no job can use, because their node is down or drained" },
    Metric { leaf: "gpus_total", unit: "count", rollup: Rollup::Average, value: |t| number(t.gpus.total),
        meaning: "all GPUs" },
    Metric { leaf: "memory_real", unit: "bytes", rollup: Rollup::Average, value: |t| mebibytes(t.memory.real),
        meaning: "memory (RealMemory)" },
    Metric { leaf: "memory_allocated", unit: "bytes", rollup: Rollup::Average, value: |t| mebibytes(t.memory.allocated),
        meaning: "memory allocated to jobs" },
    Metric { leaf: "memory_free", unit: "bytes", rollup: Rollup::Average, value: |t| mebibytes(t.memory.free),
        meaning: "free memory as the nodes' kernels report it" },
];

/// Of nodes in one state or with one flag.
#[rustfmt::skip]
pub(crate) const TALLY: &[Metric<NodeTally>] = &[
    Metric { leaf: "nodes", unit: "count", rollup: Rollup::Average, value: |t| number(t.nodes.total),
        meaning: "nodes" },
    Metric { leaf: "cpus", unit: "count", rollup: Rollup::Average, value: |t| number(t.cpus.total),
        meaning: "their CPUs" },
    Metric { leaf: "gpus", unit: "count", rollup: Rollup::Average, value: |t| number(t.gpus.total),
        meaning: "their GPUs" },
];

/// Of GPUs of one type.
#[rustfmt::skip]
pub(crate) const GPUS: &[Metric<Shares>] = &[
    Metric { leaf: "allocated", unit: "count", rollup: Rollup::Average, value: |s| number(s.allocated),
        meaning: "GPUs allocated to jobs" },
    Metric { leaf: "idle", unit: "count", rollup: Rollup::Average, value: |s| number(s.idle),
        meaning: "GPUs free for jobs" },
    Metric { leaf: "other", unit: "count", rollup: Rollup::Average, value: |s| number(s.other),
        meaning: "GPUs whose node is down or drained" },
    Metric { leaf: "total", unit: "count", rollup: Rollup::Average, value: |s| number(s.total),
        meaning: "all GPUs of this type" },
];
