//! Resources of nodes as figures: sinfo's allocated/idle/other/total of nodes, CPUs and GPUs, and
//! memory; the number of nodes in a state; GPUs and shards of one type.

use slurm_snapshot::{NodeTally, Shards, Shares};

use crate::metric::{Metric, mebibytes};

metrics! {
    pub(crate) SHARES: NodeTally =
        average("nodes_allocated", "count", |t| t.nodes.allocated, "nodes that run a job"),
        average("nodes_idle", "count", |t| t.nodes.idle,
            "nodes that are neither allocated nor other, as sinfo counts, even if reserved, in \
             maintenance or powered down"),
        average("nodes_other", "count", |t| t.nodes.other, "nodes that are down or drained"),
        average("nodes_total", "count", |t| t.nodes.total, "all nodes (`sinfo -o %F`)"),
        average("cpus_allocated", "count", |t| t.cpus.allocated, "CPUs allocated to jobs"),
        average("cpus_idle", "count", |t| t.cpus.idle, "CPUs that no job has, on nodes that are \
            not down or drained; see `nodes_idle`"),
        average("cpus_other", "count", |t| t.cpus.other, "CPUs that no job can use, because their \
            node is down or drained"),
        average("cpus_total", "count", |t| t.cpus.total, "all CPUs that jobs may use (`sinfo -o \
            %C` also counts those of CoreSpecCount and CpuSpecList)"),
        average("gpus_allocated", "count", |t| t.gpus.allocated, "GPUs allocated to jobs, whole or \
            in part: shards, MPS"),
        average("gpus_idle", "count", |t| t.gpus.idle, "GPUs that no job has, on nodes that are \
            not down or drained; see `nodes_idle`"),
        average("gpus_other", "count", |t| t.gpus.other, "GPUs that no job can use, because their \
            node is down or drained"),
        average("gpus_total", "count", |t| t.gpus.total, "all GPUs"),
        average("memory_real", "bytes", |t| t.memory.real.value().and_then(mebibytes), "memory (RealMemory)"),
        average("memory_allocated", "bytes", |t| t.memory.allocated.value().and_then(mebibytes), "memory allocated \
            to jobs"),
        average("memory_free", "bytes", |t| t.memory.free.value().and_then(mebibytes),
            "free memory as the nodes' kernels report it, of those nodes whose is known");

    /// The figures of nodes in one state or with one flag.
    pub(crate) TALLY: NodeTally =
        average("nodes", "count", |t| t.nodes.total, "nodes"),
        average("cpus", "count", |t| t.cpus.total, "their CPUs"),
        average("gpus", "count", |t| t.gpus.total, "their GPUs");

    /// The figures of GPUs of one type.
    pub(crate) GPUS: Shares =
        average(allocated, "count", "GPUs allocated to jobs, whole or in part: shards, MPS"),
        average(idle, "count", "GPUs that no job has, on nodes that are not down or drained"),
        average(other, "count", "GPUs whose node is down or drained"),
        average(total, "count", "all GPUs of this type");

    /// The figures of shards on GPUs of one type.
    pub(crate) SHARDS: Shards =
        average(allocated, "count", "shards that jobs have"),
        average(idle, "count",
            "shards that no job has, of GPUs that no job has whole, on nodes that are not down or \
             drained"),
        average(total, "count", "all shards of these GPUs");
}

/// The figures of [`SHARES`] without those of memory.
pub(crate) const WITHOUT_MEMORY: &[Metric<NodeTally>] = SHARES.split_at(12).0;
