//! A conversation with a reader, and what an answer costs the reader.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use sandbox::{Slurm, proc};
use slurm_snapshot::{Answer, Reading, Reply, ReplyKind, ReplyOptions, Request};
use tools::contender::{cpu, median};

use crate::cluster;

/// CPU and wall time in µs, and the peak memory of the process in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
    pub(crate) peak_kib: u32,
}

/// One reader.
pub(crate) struct Reader {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// `last_update` of the newest nodes and jobs.
    seen: (i64, i64),
}

impl Reader {
    pub(crate) fn start(slurm: &Slurm) -> Result<Self> {
        let program = sandbox::slurm_graphite()?.with_file_name("slurm-graphite-reader");
        let folder = slurm.conf().parent().context("slurm.conf is in no folder")?;
        let mut child = sandbox::command(folder, &program)
            .arg("--conf")
            .arg(slurm.conf())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("no pipes")
        };
        let mut reader = Self { child, stdin, stdout: BufReader::new(stdout), seen: (0, 0) };
        ensure!(matches!(reader.read()?, Answer::Hello(_)), "no hello");
        reader.ask(&Request::new(ReplyKind::Statistics, ReplyOptions::default()))?;
        Ok(reader)
    }

    pub(crate) fn rss_kib(&self) -> Result<u64> {
        proc::rss_kib(self.child.id()).context("the reader has ended")
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

    /// The same for a cluster that has not changed.
    pub(crate) fn unchanged(&mut self, rounds: usize) -> Result<Cost> {
        let costs = (0..rounds).map(|_| self.survey(Some(self.seen), true)).collect::<Result<Vec<_>>>()?;
        self.cost(&costs)
    }

    fn survey(&mut self, since: Option<(i64, i64)>, unchanged: bool) -> Result<(f64, f64)> {
        let (before, start) = (cpu(self.pid())?, Instant::now());
        let since = (since.map(|seen| seen.0), since.map(|seen| seen.1));
        let all =
            ReplyOptions { users: true, accounts: true, qos: true, partitions: true, ..Default::default() };
        let nodes = self.ask(&Request { since: since.0, ..Request::new(ReplyKind::Nodes, all) })?;
        let jobs = self.ask(&Request { since: since.1, ..Request::new(ReplyKind::Jobs, all) })?;
        let cost = ((cpu(self.pid())? - before).as_secs_f64() * 1e6, start.elapsed().as_secs_f64() * 1e6);
        match (nodes.reply, jobs.reply) {
            (Some(Reply::Nodes(nodes)), Some(Reply::Jobs(jobs))) if !unchanged => {
                let partitions = nodes.partitions.as_ref().context("no partitions")?;
                self.seen = (nodes.last_update.min(partitions.last_update), jobs.last_update);
            }
            // Up to Slurm 22.05 nodes that can be powered down, as these can, always come whole.
            (Some(Reply::Unchanged | Reply::Nodes(_)), Some(Reply::Unchanged)) if unchanged => {}
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
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stdin.write_all(&line)?;
        match self.read()? {
            Answer::Reading(reading) => Ok(reading),
            other => bail!("no reading: {other:?}"),
        }
    }

    fn read(&mut self) -> Result<Answer> {
        let mut line = Vec::new();
        self.stdout.read_until(b'\n', &mut line)?;
        Ok(Answer::parse(&line)?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn peak_kib(&self) -> Result<u32> {
        Ok(u32::try_from(proc::peak_kib(self.pid()).context("the reader has ended")?)?)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It does not matter if it has already ended.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}
