//! A conversation with a reader, and what an answer costs the reader.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use sandbox::{Slurm, proc};
use slurm_snapshot::{Reading, Reply, ReplyKind, ReplyOptions, Request};
use tools::contender::{cpu, median};

use crate::cluster;

/// CPU and wall time in µs, and the peak memory of the process in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
    pub(crate) peak_kib: f64,
}

/// One reader.
pub(crate) struct Reader {
    reader: sandbox::Reader,
    /// `last_update` of the newest nodes and jobs.
    seen: (i64, i64),
}

impl Reader {
    pub(crate) fn start(slurm: &Slurm) -> Result<Self> {
        let mut reader = Self { reader: sandbox::Reader::of(slurm)?, seen: (0, 0) };
        reader.ask(&Request::new(ReplyKind::Statistics, ReplyOptions::default()))?;
        Ok(reader)
    }

    pub(crate) fn rss_kib(&self) -> Result<u64> {
        proc::rss_kib(self.pid()).context("the reader has ended")
    }

    /// Full surveys of a cluster that changes before each: medians.
    pub(crate) fn surveys(&mut self, slurm: &Slurm, rounds: usize) -> Result<Cost> {
        let mut costs = Vec::new();
        for round in 0..rounds {
            cluster::touch(slurm, round)?;
            costs.push(self.survey(None, false)?);
        }
        self.cost(&costs)
    }

    /// The same for a cluster that has not changed. Its jobs come whole: they wait, and a plan is no change to slurmctld.
    pub(crate) fn unchanged(&mut self, rounds: usize) -> Result<Cost> {
        let costs = (0..rounds).map(|_| self.survey(Some(self.seen), true)).collect::<Result<Vec<_>>>()?;
        self.cost(&costs)
    }

    fn survey(&mut self, since: Option<(i64, i64)>, unchanged: bool) -> Result<(f64, f64)> {
        let (before, start) = (cpu(self.pid())?, Instant::now());
        let since = (since.map(|seen| seen.0), since.map(|seen| seen.1));
        let all = ReplyOptions {
            users: true,
            accounts: true,
            qos: true,
            partitions: true,
            marks: true,
            ..Default::default()
        };
        let nodes = self.ask(&Request { since: since.0, ..Request::new(ReplyKind::Nodes, all) })?;
        let jobs = self.ask(&Request { since: since.1, ..Request::new(ReplyKind::Jobs, all) })?;
        let cost = ((cpu(self.pid())? - before).as_secs_f64() * 1e6, start.elapsed().as_secs_f64() * 1e6);
        match (nodes.reply, jobs.reply) {
            (Some(Reply::Nodes(nodes)), Some(Reply::Jobs(jobs))) if !unchanged => {
                let partitions = nodes.partitions.as_ref().context("no partitions")?;
                self.seen = (nodes.last_update.min(partitions.last_update), jobs.last_update);
            }
            // Up to Slurm 22.05 nodes that can be powered down, as these can, always come whole.
            (Some(Reply::Unchanged | Reply::Nodes(_)), Some(Reply::Jobs(_))) if unchanged => {}
            other => bail!("unexpected replies where unchanged is {unchanged}: {other:?}"),
        }
        Ok(cost)
    }

    fn cost(&self, costs: &[(f64, f64)]) -> Result<Cost> {
        Ok(Cost {
            cpu: median(costs.iter().map(|cost| cost.0)),
            wall: median(costs.iter().map(|cost| cost.1)),
            peak_kib: self.peak_kib()?,
        })
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Box<Reading>> {
        self.reader.reading(request)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.reader.pid()
    }

    pub(crate) fn peak_kib(&self) -> Result<f64> {
        Ok(proc::peak_kib(self.pid()).context("the reader has ended")? as f64)
    }
}
