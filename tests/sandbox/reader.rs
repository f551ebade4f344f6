//! A reader without a daemon: one request after the other, as lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use slurm_snapshot::{Answer, Reading, Request};

use crate::Slurm;

/// A reader that has said hello, and both ends of the pipes to it. Dropping it ends it.
#[derive(Debug)]
pub struct Reader {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Reader {
    /// Starts any reader.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let requests = child.stdin.take().context("its stdin")?;
        let answers = BufReader::new(child.stdout.take().context("its stdout")?);
        let mut reader = Self { child, requests, answers };
        ensure!(matches!(reader.answer()?, Answer::Hello(_)), "no hello");
        Ok(reader)
    }

    /// Starts libslurm's for this cluster.
    pub fn start_for(slurm: &Slurm) -> Result<Self> {
        let mut command = slurm.reader(None)?;
        command.arg("--conf").arg(slurm.conf());
        Self::start(command)
    }

    /// Its answer to this request.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.requests.write_all(request.line().as_bytes())?;
        self.answer()
    }

    /// Its answer to this request, which must be a reading.
    pub fn reading(&mut self, request: &Request) -> Result<Box<Reading>> {
        match self.ask(request)? {
            Answer::Reading(reading) => Ok(reading),
            other => bail!("no reading: {other:?}"),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = Vec::new();
        self.answers.read_until(b'\n', &mut line)?;
        Ok(Answer::parse(&line)?)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}
