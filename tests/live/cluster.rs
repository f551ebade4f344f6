//! The reader's counts of jobs, nodes, partitions, licences, reservations and controllers, and the
//! daemon's figures, equal what squeue, sinfo and scontrol show at the same moment.

mod associations;
mod cast;
mod collector;
mod gres;
mod jobs;
mod names;
mod nodes;
mod oracle;
mod private;
mod remote_licenses;
mod slurmdbd;

use std::fmt::Debug;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sandbox::{Folder, Slurm};
use slurm_snapshot::{Answer, Reading, Reply};

use self::cast::Cast;
pub(crate) use self::oracle::value;

/// The answers to these request lines from a reader that `program` starts.
fn answers(
    folder: &Folder,
    mut program: Command,
    conf: &Path,
    requests: &str,
) -> Result<Vec<Answer>> {
    let file = folder.write("requests", requests)?;
    let output = program.arg("--conf").arg(conf).stdin(Stdio::from(File::open(file)?)).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split_inclusive(|&byte| byte == b'\n').skip(1);
    lines.map(|line| Answer::parse(line).context("a response")).collect()
}

/// The reader's only answer about this cluster, if it runs as this user.
pub(crate) fn reading(
    folder: &Folder,
    slurm: &Slurm,
    user: Option<u32>,
    request: &str,
) -> Result<Reading> {
    match answers(folder, slurm.reader(user)?, slurm.conf(), request)?.as_slice() {
        [Answer::Reading(reading)] => Ok((**reading).clone()),
        other => bail!("{other:?}"),
    }
}

/// The reader's reply about this cluster.
fn reply(cast: &Cast, request: &str) -> Result<Reply> {
    reading(&cast.folder, &cast.slurm, None, request)?.reply.context("no reply")
}

/// An answer that came while `look` returned the same before and after it.
fn between<T: PartialEq + Debug, A>(
    ask: impl Fn() -> Result<A>,
    look: impl Fn() -> Result<T>,
) -> Result<(T, A)> {
    let mut changes = String::new();
    for _ in 0..50 {
        let (before, answer, after) = (look()?, ask()?, look()?);
        if before == after {
            return Ok((before, answer));
        }
        changes = format!("{before:?}\n{after:?}");
    }
    bail!("the cluster never stood still: {changes}")
}

#[test]
fn every_figure_is_the_one_that_squeue_sinfo_and_scontrol_show() {
    let mut cast = Cast::start().unwrap();
    cast.play().unwrap();
    jobs::compare(&cast).unwrap();
    nodes::compare(&cast).unwrap();
    nodes::compare_lists(&cast).unwrap();
    jobs::compare_unchanged(&cast).unwrap();
    collector::compare(&cast).unwrap();
}
