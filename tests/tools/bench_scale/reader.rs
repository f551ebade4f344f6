//! A conversation with a reader, and what an answer costs the reader.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use sandbox::{Reader, Slurm, proc};
use slurm_snapshot::{Reply, ReplyKind, ReplyOptions, Request};
use tools::contender::{cpu, median};

use crate::cluster;

/// CPU and wall time in µs, and the peak memory of the process in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
    pub(crate) peak_kib: f64,
}

/// The most memory that a reader has had, in KiB.
pub(crate) fn peak_kib(reader: &Reader) -> Result<f64> {
    Ok(proc::peak_kib(reader.pid()).context("the reader has ended")? as f64)
}

/// A reader, and what it has seen.
pub(crate) struct Surveys {
    reader: Reader,
    /// `last_update` of the newest nodes and jobs.
    seen: (i64, i64),
}

impl Surveys {
    pub(crate) fn start(slurm: &Slurm) -> Result<Self> {
        let mut reader = Reader::start_for(slurm)?;
        reader.reading(&Request::new(ReplyKind::Statistics, ReplyOptions::default()))?;
        Ok(Self { reader, seen: (0, 0) })
    }

    pub(crate) fn rss_kib(&self) -> Result<u64> {
        proc::rss_kib(self.reader.pid()).context("the reader has ended")
    }

    /// Medians of full surveys. With `changed`, this cluster is changed before each of them.
    /// Without it nothing changes, but jobs still come whole: they wait, and a plan is no change to
    /// slurmctld.
    pub(crate) fn take(&mut self, changed: Option<&Slurm>, rounds: usize) -> Result<Cost> {
        let mut costs = Vec::new();
        for round in 0..rounds {
            changed.map_or(Ok(()), |slurm| cluster::touch(slurm, round))?;
            costs.push(self.survey(changed.is_none())?);
        }
        Ok(Cost {
            cpu: median(costs.iter().map(|cost| cost.0)),
            wall: median(costs.iter().map(|cost| cost.1)),
            peak_kib: peak_kib(&self.reader)?,
        })
    }

    fn survey(&mut self, unchanged: bool) -> Result<(f64, f64)> {
        let pid = self.reader.pid();
        let (before, start) = (cpu(pid)?, Instant::now());
        let since = Some(self.seen).filter(|_| unchanged).unzip();
        let all = ReplyOptions {
            users: true,
            accounts: true,
            qos: true,
            partitions: true,
            features: true,
            marks: true,
            ..Default::default()
        };
        let nodes = self
            .reader
            .reading(&Request { since: since.0, ..Request::new(ReplyKind::Nodes, all) })?;
        let jobs = self
            .reader
            .reading(&Request { since: since.1, ..Request::new(ReplyKind::Jobs, all) })?;
        let cost = ((cpu(pid)? - before).as_secs_f64() * 1e6, start.elapsed().as_secs_f64() * 1e6);
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
}
