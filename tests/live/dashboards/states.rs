//! The possible names of series of states and reasons: Slurm's names in lower case, as
//! slurm-graphite publishes them, with a space between them.

/// States of jobs.
pub(crate) const JOBS: &str = "pending running suspended configuring completing stage_out \
    signaling stopped resizing special_exit completed cancelled failed timeout out_of_memory \
    node_fail boot_fail deadline preempted requeued";

/// States of nodes, as sinfo shows them.
pub(crate) const NODES: &str = "idle mixed allocated completing planned reserved maint draining \
    drained failing fail down inval unknown blocked reboot powering_up powering_down power_down \
    powered_down future";

/// Some reasons for waiting, as squeue shows them.
pub(crate) const REASONS: &str = "Priority Resources Dependency JobHeldUser BeginTime \
    JobArrayTaskLimit JobHeldAdmin PartitionDown PartitionInactive ReqNodeNotAvail BadConstraints \
    launch_failed_requeued_held";
