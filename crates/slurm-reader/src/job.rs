//! The parts of a job that are counted: made from the reply's records, and the input of the fold over jobs.

use slurm_snapshot::JobTally;

/// What counts of a job record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job<'a> {
    /// Base state and flags.
    pub(crate) state: u32,
    pub(crate) reason: u32,
    pub(crate) user: u32,
    /// A list while it waits.
    pub(crate) partition: &'a [u8],
    pub(crate) account: &'a [u8],
    pub(crate) qos: &'a [u8],
    /// All its tasks together.
    pub(crate) tally: JobTally,
    /// Priority 0.
    pub(crate) held: bool,
    /// It has or had nodes: it has started once.
    pub(crate) has_nodes: bool,
    pub(crate) submit_time: i64,
    /// 0 where it has none.
    pub(crate) eligible_time: i64,
    pub(crate) start_time: i64,
    /// Texts that could not be understood.
    pub(crate) unparsed: u64,
}
