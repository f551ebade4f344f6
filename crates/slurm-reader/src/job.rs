//! The parts of a job that are counted: made from the reply's records, and the input of the fold
//! over jobs.

use slurm_snapshot::JobTally;

use crate::slurm_names;

/// The parts of a job record that are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job<'a> {
    /// Number of the job's state: base state and flags.
    pub(crate) state: u32,
    pub(crate) reason: u32,
    pub(crate) user: u32,
    /// Name of the job's partition. While the job is pending, it may be a list with commas.
    pub(crate) partition: &'a [u8],
    pub(crate) account: &'a [u8],
    pub(crate) qos: &'a [u8],
    /// The job as a tally, in which all tasks of the record are added up.
    pub(crate) tally: JobTally,
    /// Whether the job is held: its priority is 0.
    pub(crate) held: bool,
    /// Whether the record names nodes: those that the job has or had, or those that are planned for
    /// it while it is pending.
    pub(crate) has_nodes: bool,
    pub(crate) submit_time: Option<i64>,
    /// Moment from which on the job may run, Unix seconds; 0 if it has none.
    pub(crate) eligible_time: i64,
    pub(crate) start_time: i64,
    /// Number of texts of the record that could not be understood, and of numbers that are not
    /// known.
    pub(crate) unparsed: u64,
}

impl Job<'_> {
    /// Whether the job has started once: it has, or had, nodes. A pending job does not count,
    /// because its nodes may only be planned for it.
    pub(crate) fn has_started(&self) -> bool {
        slurm_names::job_base(self.state) != 0 && self.has_nodes
    }
}
