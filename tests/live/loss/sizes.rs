//! Ticks of three sizes: one that fits into the kernel's buffers, one of the usual size, and one
//! that no buffer can hold.

use anyhow::Result;
use sandbox::carbon::{Limits, Options};
use sandbox::daemon::surveys;
use sandbox::{Imitation, Stage};
use slurm_snapshot::{NodeRow, Nodes, Reading, Reply, RpcTables, RpcType, Statistics, Visibility};

/// The approximate number of points in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// 30: the daemon's own figures.
    Small,
    /// 137: the default collectors on a cluster that has run for some time.
    Usual,
    /// 10,000: 520 nodes, each by itself.
    Large,
}

impl Size {
    /// A stage whose daemon is not running yet, with ticks of this size and these additional lines
    /// in `[queue]`.
    pub(crate) fn stage(self, queue: &str) -> Result<Stage> {
        self.with(Limits::Wide, queue)
    }

    /// A stage with a Carbon with these limits, whose daemon is not running yet, with ticks of this
    /// size and these additional lines in `[queue]`.
    pub(crate) fn with(self, limits: Limits, queue: &str) -> Result<Stage> {
        let mut options = Options { limits, ..Options::default() };
        if self == Self::Large {
            // Archives that are just large enough: 10,000 of them are read again and again.
            options.schemas = options.schemas.replace("1h", "5m");
        }
        let mut stage = Stage::new(&options)?;
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
                stage.plan.top =
                    off.map(|name| format!("[collectors.{name}]\nenabled = false\n")).concat();
            }
            Self::Usual => stage.plan.slurm = Some(reader(stage, 0)?),
            Self::Large => {
                stage.plan.slurm = Some(reader(stage, 520)?);
                stage.plan.top = surveys(&["nodes"]) + "each = true\n";
            }
        }
        stage.configure()
    }

    /// Fails if the ticks do not have approximately this many points.
    pub(crate) fn check(self, stage: &Stage) -> Result<()> {
        let points = stage.collected.counted().map(|(_, points)| points.len()).max().unwrap_or(0);
        let expected = match self {
            Self::Small => 20..50,
            Self::Usual => 120..150,
            Self::Large => 9_500..11_000,
        };
        anyhow::ensure!(expected.contains(&points), "{self:?}: a tick has {points} points");
        Ok(())
    }
}

/// The `[slurm]` table for a reader whose slurmctld serves 22 types of RPCs and has this many
/// nodes.
fn reader(stage: &Stage, nodes: usize) -> Result<String> {
    let types = (2003..2025).map(|id| RpcType { id, count: 9, time: 900, queue: None }).collect();
    let rpc = Some(RpcTables { types, pending: Some(Vec::new()), ..RpcTables::default() });
    let statistics = Some(Statistics { rpc, ..Statistics::default() });
    let rows = (0..nodes).map(|n| NodeRow {
        name: format!("n{n}"),
        cpu_load: Some(100),
        ..NodeRow::default()
    });
    let nodes = Nodes { last_update: 1_700_000_000, rows: rows.collect(), ..Nodes::default() };
    let survey = Reading {
        reply: Some(Reply::Nodes(Box::new(nodes))),
        visibility: Some(Visibility { private: Vec::new(), privileged: Some(false) }),
        ..Imitation::reading()
    };
    let body = format!(
        "hello; while ask; do case $line in *'\"nodes\"'*) {} ;; *) {} ;; esac; done",
        Imitation::answer(survey)?,
        Imitation::answer(Reading { statistics, ..Imitation::reading() })?
    );
    Ok(Imitation::new(&stage.folder, "sized", &body)?.toml())
}
