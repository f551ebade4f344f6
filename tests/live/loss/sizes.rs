//! Ticks of two sizes: a small one, of which the kernel's buffers hold many, and the usual one.

use anyhow::Result;
use sandbox::carbon::{Limits, Options};
use sandbox::{Imitation, Stage};
use slurm_snapshot::{Reading, RpcTables, RpcType, Statistics};

/// The approximate number of points in a tick.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// 30: the daemon's own figures.
    Small,
    /// 137: the default collectors on a cluster that has run for some time.
    Usual,
}

impl Size {
    /// A stage whose daemon is not running yet, with ticks of this size and these additional lines in `[queue]`.
    pub(crate) fn stage(self, queue: &str) -> Result<Stage> {
        self.with(Limits::Wide, queue)
    }

    /// The same with a Carbon with these limits.
    pub(crate) fn with(self, limits: Limits, queue: &str) -> Result<Stage> {
        let mut stage = Stage::new(&Options { limits, ..Options::default() })?;
        self.set(&mut stage)?;
        queue.clone_into(&mut stage.plan.queue);
        stage.configure()?;
        Ok(stage)
    }

    /// Gives a stage ticks of this size.
    pub(crate) fn set(self, stage: &mut Stage) -> Result<()> {
        match self {
            Self::Small => {
                let off = ["sched_stats", "sched_interval", "sched_exit", "health", "rpc_stats"];
                stage.plan.top = off.map(|name| format!("[collectors.{name}]\nenabled = false\n")).concat();
            }
            Self::Usual => stage.plan.slurm = Some(reader(stage)?),
        }
        stage.configure()
    }

    /// Fails if the ticks do not have approximately this many points.
    pub(crate) fn check(self, stage: &Stage) -> Result<()> {
        let points = stage.collected.counted().map(|(_, points)| points.len()).max().unwrap_or(0);
        let expected = match self {
            Self::Small => 20..50,
            Self::Usual => 120..150,
        };
        anyhow::ensure!(expected.contains(&points), "{self:?}: a tick has {points} points");
        Ok(())
    }
}

/// The `[slurm]` table for a reader whose slurmctld serves 22 types of RPCs.
fn reader(stage: &Stage) -> Result<String> {
    let types = (2003..2025).map(|id| RpcType { id, count: 9, time: 900, queue: None }).collect();
    let rpc = Some(RpcTables { types, pending: Some(Vec::new()), ..RpcTables::default() });
    let statistics = Some(Statistics { rpc, ..Statistics::default() });
    let answer = Imitation::answer(Reading { statistics, ..Imitation::reading() })?;
    let body = format!("hello; while ask; do {answer}; done");
    Ok(Imitation::new(&stage.folder, "sized", &body)?.toml())
}
