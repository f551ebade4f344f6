//! One tick between two runs of sdiag: if both agree, the tick must have stored the same value.

use anyhow::Result;
use sandbox::metrics::Figure;
use sandbox::{Sandbox, Sdiag, section, unix_seconds};

#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) before: Sdiag,
    pub(crate) tick: u64,
    pub(crate) after: Sdiag,
}

pub(crate) fn path(leaf: &str) -> String {
    format!("cluster.slurm_sched_stats.gauge-{leaf}")
}

/// Observes the next tick of a collector that runs with an interval of a second.
pub(crate) fn observe(sandbox: &Sandbox) -> Result<Observation> {
    let before = sandbox.slurm.sdiag()?;
    let tick = unix_seconds() + 1;
    sandbox.value_at(&path("jobs_submitted"), tick, super::SOON)?;
    Ok(Observation { before, tick, after: sandbox.slurm.sdiag()? })
}

impl Observation {
    /// The value that sdiag printed for a figure at this tick; `Some(None)` if it printed no line;
    /// `None` if the figure may have changed in between. A cycle's own figures may also have
    /// changed and changed back.
    pub(crate) fn agreed(&self, figure: &Figure) -> Option<Option<i64>> {
        let (before, after) = (figure.in_sdiag(&self.before), figure.in_sdiag(&self.after));
        let steady =
            |section, label| self.before.get(section, label) == self.after.get(section, label);
        let cycles = [
            (section::MAIN, "Total cycles"),
            (section::BACKFILL, "Total cycles"),
            (section::BACKFILL, "Last cycle when"),
        ];
        let steady = steady(section::TOP, "Data since")
            && (figure.section == section::TOP
                || cycles.into_iter().all(|(section, label)| steady(section, label)));
        (steady && before == after).then_some(after)
    }
}
