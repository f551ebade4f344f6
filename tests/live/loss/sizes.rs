//! Ticks of three sizes: one that fits into the kernel's buffers, one of the usual size, and one that no buffer can
//! hold.

use anyhow::Result;
use sandbox::carbon::Options;
use sandbox::{Imitation, Plan, Stage};
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
    /// A stage whose daemon is not running yet, with ticks of this size and these additional lines in `[queue]`.
    pub(crate) fn stage(self, queue: &str) -> Result<Stage> {
        let stage = Stage::new(&self.options())?;
        let mut plan = self.plan(&stage, &stage.carbon.address())?;
        queue.clone_into(&mut plan.queue);
        stage.configure(&plan)?;
        Ok(stage)
    }

    /// Archives that are just large enough for the test: 10,000 of them are read again and again.
    pub(crate) fn options(self) -> Options {
        let schemas = match self {
            Self::Large => "[everything]\npattern = .*\nretentions = 1s:5m\n".to_owned(),
            _ => Options::default().schemas,
        };
        Options { schemas, ..Options::default() }
    }

    /// The plan of a daemon that makes such ticks and sends them to `address`.
    pub(crate) fn plan(self, stage: &Stage, address: &str) -> Result<Plan> {
        let mut plan = Plan::to(address);
        match self {
            Self::Small => plan.top = Self::own_figures_only(),
            Self::Usual => plan.slurm = Some(reader(stage, 22, 0)?),
            Self::Large => {
                plan.slurm = Some(reader(stage, 22, 520)?);
                plan.top =
                    "[collectors]\nmax_duty = \"100%\"\n[collectors.nodes]\nenabled = true\neach = true\ninterval = \"2s\"\n"
                        .to_owned();
            }
        }
        Ok(plan)
    }

    fn own_figures_only() -> String {
        let off = ["sched_stats", "sched_interval", "sched_exit", "health", "rpc_stats"];
        off.map(|name| format!("[collectors.{name}]\nenabled = false\n")).concat()
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

/// The `[slurm]` table for a reader whose slurmctld serves this many types of RPCs and has this many nodes.
pub(crate) fn reader(stage: &Stage, types: u16, nodes: usize) -> Result<String> {
    let types = (0..types).map(|n| RpcType { id: 2003 + n, count: 9, time: 900, queue: None }).collect();
    let rpc = Some(RpcTables { types, pending: Some(Vec::new()), ..RpcTables::default() });
    let statistics = Some(Statistics { rpc, ..Statistics::default() });
    let rows = (0..nodes).map(|n| NodeRow {
        name: format!("n{n}"),
        state: "idle".to_owned(),
        base_state: "idle".to_owned(),
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
