//! The parts of a job that are counted: made from the reply's records, and the input of the fold
//! over jobs.

use slurm_snapshot::JobTally;

use crate::slurm_names;

/// The parts of a job record that are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job<'a> {
    /// Base state and flags.
    pub(crate) state: u32,
    pub(crate) reason: u32,
    pub(crate) user: u32,
    /// A list while the job is pending.
    pub(crate) partition: &'a [u8],
    pub(crate) account: &'a [u8],
    pub(crate) qos: &'a [u8],
    /// All its tasks together.
    pub(crate) tally: JobTally,
    /// Priority 0.
    pub(crate) held: bool,
    /// Whether it has or had nodes, so that it has started once.
    pub(crate) has_nodes: bool,
    pub(crate) submit_time: Option<i64>,
    /// 0 if it has none.
    pub(crate) eligible_time: i64,
    pub(crate) start_time: i64,
    /// Texts that could not be understood.
    pub(crate) unparsed: u64,
}

impl Job<'_> {
    /// Whether it has, or had, nodes. A pending job may have those that are planned for it.
    pub(crate) fn has_started(&self) -> bool {
        slurm_names::job_base(self.state) != 0 && self.has_nodes
    }
}
