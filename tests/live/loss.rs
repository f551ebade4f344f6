//! Nothing is lost between the daemon and Carbon: whatever happens, whisper afterwards has every
//! datapoint that the daemon collected, with its value in its slot, and nothing else.
//!
//! The readings are imitated; Carbon, its relays, the networks and the disks are real. Scenarios of
//! one kind run in parallel, each with its own Carbon, because they spend nearly all of their time
//! waiting.

mod age;
mod cache;
mod caps;
mod damage;
mod destinations;
mod disk;
mod flow;
mod full;
mod hangs;
mod influxdb;
mod memory;
mod network;
mod order;
mod proxies;
mod receivers;
mod reloads;
mod restarts;
mod sizes;
mod tls;

use anyhow::Result;
use sandbox::{Folder, Imitation, Invocation, Process, Space, Stage, now};
use slurm_snapshot::{Reading, Statistics};

use super::side_by_side;

const SKIPPED: &str = "skipped: this user may not make namespaces";

/// The parts of a prefix that makes paths long, to be repeated.
const LONG: [&str; 4] = ["long"; 4];

/// A daemon that is not started yet, and a Carbon on its usual ports, in a separate network.
fn isolated() -> Result<Option<(Stage, Space)>> {
    let folder = Folder::new()?;
    let Some(space) = Space::new(&folder, "true")? else { return Ok(None) };
    Ok(Some((Stage::within(folder, &space, true)?, space)))
}

/// A program between the daemon and Carbon is killed, and started again after two ticks.
fn dies(stage: &mut Stage, program: &mut Process) -> Result<()> {
    let since = now();
    program.kill()?;
    stage.ticks(2)?;
    program.start()?;
    stage.connected(since)?;
    stage.ticks(2)
}

/// Replays a recording whose readings have these times, and their numbers in `jobs_submitted`, with
/// this configuration.
fn replay(
    folder: &Folder,
    toml: &str,
    times: impl Iterator<Item = f64>,
    more: &[&str],
) -> Result<()> {
    let readings = (0..).zip(times).map(|(number, time)| Reading {
        id: u64::from(number),
        time,
        cluster: None,
        statistics: Some(Statistics { jobs_submitted: number, ..Statistics::default() }),
        ..Imitation::reading()
    });
    let recording = folder.write("recording", &Imitation::recording(readings)?)?;
    let config = folder.write("replay.toml", toml)?;
    let args = ["run", "--config", &config, "--prefix", "replayed", "--replay", &recording];
    Invocation::new(folder, &[&args, more].concat())?.succeed().map(drop)
}
