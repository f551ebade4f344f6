//! One colour for each state on all dashboards: red is broken, orange is drained or cancelled,
//! green is free or done, blue is working.

/// Slurm's states of nodes.
pub(crate) const NODES: [(&str, &str); 21] = [
    ("idle", "green"),
    ("mixed", "light-blue"),
    ("allocated", "blue"),
    ("completing", "super-light-blue"),
    ("planned", "light-green"),
    ("reserved", "super-light-green"),
    ("maint", "light-purple"),
    ("draining", "light-orange"),
    ("drained", "orange"),
    ("failing", "light-red"),
    ("fail", "semi-dark-red"),
    ("down", "red"),
    ("inval", "dark-red"),
    ("unknown", "purple"),
    ("blocked", "dark-purple"),
    ("reboot", "super-light-yellow"),
    ("powering_up", "light-yellow"),
    ("powering_down", "semi-dark-yellow"),
    ("power_down", "semi-dark-yellow"),
    ("powered_down", "dark-yellow"),
    ("future", "text"),
];

/// Slurm's states of jobs.
pub(crate) const JOBS: [(&str, &str); 20] = [
    ("pending", "yellow"),
    ("running", "blue"),
    ("suspended", "light-blue"),
    ("configuring", "super-light-blue"),
    ("completing", "light-green"),
    ("stage_out", "super-light-green"),
    ("signaling", "light-yellow"),
    ("stopped", "dark-blue"),
    ("resizing", "semi-dark-blue"),
    ("special_exit", "light-red"),
    ("completed", "green"),
    ("cancelled", "orange"),
    ("failed", "red"),
    ("timeout", "semi-dark-orange"),
    ("out_of_memory", "semi-dark-red"),
    ("node_fail", "dark-red"),
    ("boot_fail", "super-light-red"),
    ("deadline", "light-orange"),
    ("preempted", "light-purple"),
    ("requeued", "super-light-purple"),
];

/// The reasons why jobs wait: for their turn and for nodes, because the user chose so, or because
/// somebody must look. Any other reason is a limit.
pub(crate) const REASONS: [(&str, &str); 12] = [
    ("Priority", "blue"),
    ("Resources", "blue"),
    ("Dependency", "text"),
    ("JobHeldUser", "text"),
    ("BeginTime", "text"),
    ("JobArrayTaskLimit", "text"),
    ("JobHeldAdmin", "red"),
    ("PartitionDown", "red"),
    ("PartitionInactive", "red"),
    ("ReqNodeNotAvail", "red"),
    ("BadConstraints", "red"),
    ("launch_failed_requeued_held", "red"),
];
