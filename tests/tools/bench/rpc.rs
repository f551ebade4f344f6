//! The cost of full RPC tables: the points of 100 types and 200 users from a recording, and a whole tick compared with
//! a bare C loop while slurmctld's own table of users is full.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{Imitation, Sandbox, find_program};
use slurm_snapshot::{Answer, Reading, Release, RpcTables, RpcType, RpcUser, Statistics, rpc_name};
use tools::contender::{cpu, in_turn};

use crate::peer::Peer;
use crate::turns::{Cost, Costs, SETTLE, collector, floor, ratio};
use crate::{ms, unreached};

/// Readings in the recording, and the range in which they are measured: at both ends the queue is as full as it gets.
const READINGS: u32 = 1600;
const FIRST: u64 = 300;
const LAST: u64 = 1400;

const USERS: u32 = 200;
const TYPES: usize = 100;

/// Live readings in a turn.
const LENGTH: u32 = 6;

/// The targets: µs of CPU for deriving and encoding, and the whole tick compared with the bare loop.
const MOST_DERIVE: f64 = 1000.0;
const MOST_CPU: f64 = 2.5;

/// What full tables cost, µs of CPU a tick.
pub(crate) struct Full {
    /// A replayed reading, from its line to the socket.
    replayed: f64,
    /// The same readings without the collector.
    without: f64,
    points: u64,
    live: Option<Live>,
}

/// A live tick, if the sandbox can act as 200 users.
struct Live {
    floor: Costs,
    collector: Costs,
    types: usize,
    users: usize,
}

pub(crate) fn full(sandbox: &Sandbox) -> Result<Full> {
    let recording = sandbox.path("full.json");
    record(&recording)?;
    let (replayed, points) = replay(sandbox, "full", true)?;
    let (without, _) = replay(sandbox, "without", false)?;
    let live = if rustix::process::getuid().is_root() { Some(live(sandbox)?) } else { None };
    Ok(Full { replayed, without, points, live })
}

impl Full {
    pub(crate) fn table(&self) -> String {
        let Self { replayed, without, points, live } = self;
        let mut text = format!(
            "| a reading of {TYPES} types and {USERS} users | CPU |\n|---|---|\n\
             | replayed: parsed, derived, encoded and sent, {points} points | {:.2} ms |\n\
             | the same lines without slurm_rpc_stats | {:.2} ms |\n\
             | **deriving, encoding and sending them** | {:.2} ms |\n",
            replayed / 1e3,
            without / 1e3,
            (replayed - without) / 1e3
        );
        match live {
            Some(Live { floor, collector, types, users }) => {
                let row = |name: &str, costs: &Costs, figure: fn(&Cost) -> f64| {
                    format!("| {name} | {} | {:.2} |\n", ms(costs, figure), ratio(costs, floor, figure))
                };
                text += &format!(
                    "\n| a live reading of {types} types and {users} users | CPU | compared with the C loop |\n|---|---|---|\n"
                );
                text += &row("a bare C loop", floor, |cost| cost.own);
                text += &row("slurm-graphite-reader", collector, |cost| cost.child);
                text += &row("slurm-graphite, every user with paths", collector, |cost| cost.own);
                text += &row("**both together**", collector, Cost::both);
            }
            None => text += "\nOnly root can fill slurmctld's table of users: no live tick.\n",
        }
        text + "\n"
    }

    pub(crate) fn missed(&self) -> Vec<String> {
        let derive = self.replayed - self.without;
        let live = self.live.as_ref().map(|live| ratio(&live.collector, &live.floor, Cost::both));
        let ratio = live.unwrap_or_default();
        unreached([
            (derive <= MOST_DERIVE, format!("{derive:.0} µs for full tables, not {MOST_DERIVE}")),
            (
                ratio <= MOST_CPU,
                format!("{ratio:.2} times the C loop's CPU with full tables, not {MOST_CPU}"),
            ),
        ])
    }
}

/// Records readings whose tables are full and keep growing.
fn record(file: &std::path::Path) -> Result<()> {
    let release = Release::new(24, 11);
    let known = (1000..u16::MAX).filter(|&id| rpc_name(id.into(), release).is_some());
    let ids: Vec<u16> = known.take(TYPES).collect();
    let mut out = BufWriter::new(File::create(file)?);
    for number in 1..=READINGS {
        let moment = 1_700_028_000 + 30 * i64::from(number);
        let time = |id: u32| u64::from(number) * u64::from(700 + id);
        let kind = |&id: &u16| RpcType { id, count: number * 3, time: time(id.into()), queue: None };
        let user = |id: u32| RpcUser {
            id,
            name: Some(if id == 0 { "root".to_owned() } else { format!("first.last{id}") }),
            count: number * 2,
            time: time(id),
            ..RpcUser::default()
        };
        let rpc = RpcTables {
            types: ids.iter().map(kind).collect(),
            users: (0..USERS).map(user).collect(),
            ..RpcTables::default()
        };
        let reading = Reading {
            id: number.into(),
            time: f64::from(u32::try_from(moment)?) + 0.1,
            elapsed: 500,
            release,
            statistics: Some(Statistics {
                req_time: moment,
                req_time_start: 1_700_020_000,
                rpc: Some(rpc),
                ..Statistics::default()
            }),
            ..Imitation::reading()
        };
        serde_json::to_writer(&mut out, &Answer::Reading(Box::new(reading)))?;
        out.write_all(b"\n")?;
    }
    out.flush().context("writing the recording")
}

/// CPU in µs, and the points, of a replayed tick.
fn replay(sandbox: &Sandbox, name: &str, enabled: bool) -> Result<(f64, u64)> {
    let peer = Peer::start()?;
    let config = sandbox.path(&format!("{name}.toml"));
    std::fs::write(
        &config,
        format!(
            "prefix = \"cluster\"\n[[carbon]]\naddress = {:?}\n[queue]\nresend_window = \"0s\"\nreplay_rate = \"100000000\"\n\
             [collectors.rpc_stats]\nenabled = {enabled}\nusers = {USERS}\n",
            peer.address
        ),
    )?;
    let (config, recording) = (config.display().to_string(), sandbox.path("full.json").display().to_string());
    let once = ["once", "--config", &config, "--replay", &recording];
    let points = if enabled { points(sandbox, &once)? } else { 0 };
    let mut process = sandbox
        .slurm_graphite(name, &["run", "--config", &config, "--prefix", "cluster", "--replay", &recording])?;
    let pid = process.pid().context("the replay has ended")?;
    let at = |ticks: u64| -> Result<(u64, Duration)> {
        peer.until(ticks, Duration::from_secs(120))?;
        Ok((peer.ticks(), cpu(pid)?))
    };
    let (first, last) = (at(FIRST)?, at(LAST)?);
    process.stop()?;
    let ticks = u32::try_from(last.0.saturating_sub(first.0))?;
    let spent = last.1.checked_sub(first.1).context("CPU time went back")?;
    Ok((spent.as_secs_f64() * 1e6 / f64::from(ticks), points))
}

/// How many lines the last tick of a recording has.
fn points(sandbox: &Sandbox, once: &[&str]) -> Result<u64> {
    let text = sandbox::Invocation::new(&sandbox.folder, once)?.succeed()?;
    let stamp = |line: &str| line.rsplit(' ').next().map(str::to_owned);
    let last = text.lines().last().and_then(stamp).context("the recording gave nothing")?;
    Ok(text.lines().filter(|line| stamp(line).as_ref() == Some(&last)).count() as u64)
}

fn live(sandbox: &Sandbox) -> Result<Live> {
    let peer = Peer::start()?;
    let toml = format!(
        "[slurm]\nconf = {:?}\n[[carbon]]\naddress = {:?}\n[collectors.rpc_stats]\nusers = {USERS}\n",
        sandbox.slurm.conf(),
        peer.address
    );
    fill(sandbox)?;
    let [floor, collector] = in_turn([
        floor(sandbox, "full-floor", LENGTH)?,
        collector(&sandbox.folder, "live", |_| toml.clone(), SETTLE, LENGTH),
    ])?;
    let sdiag = sandbox.slurm.sdiag()?;
    ensure!(sdiag.by_user.len() == USERS as usize, "{} users in slurmctld's table", sdiag.by_user.len());
    Ok(Live { floor, collector, types: sdiag.by_type.len(), users: sdiag.by_user.len() })
}

/// Makes RPCs of as many users as slurmctld counts, and of those types that the commands use.
fn fill(sandbox: &Sandbox) -> Result<()> {
    for command in COMMANDS {
        let words: Vec<&str> = command.split(' ').collect();
        let Some((program, args)) = words.split_first() else { continue };
        // Some are refused, but counted anyway.
        let _ = sandbox.slurm.run(program, args);
    }
    let sinfo = find_program("sinfo")?.display().to_string();
    for id in 20_001..20_000 + USERS {
        let (reuid, regid) = (format!("--reuid={id}"), format!("--regid={id}"));
        sandbox.slurm.run("setpriv", &[&reuid, &regid, "--clear-groups", &sinfo])?;
    }
    Ok(())
}

const COMMANDS: &[&str] = &[
    "sbatch --begin=now+1hour --output=/dev/null --wrap true",
    "squeue",
    "squeue --steps",
    "sprio",
    "sshare",
    "scontrol ping",
    "scontrol show config",
    "scontrol show job",
    "scontrol show job 1",
    "scontrol show node",
    "scontrol show node localhost",
    "scontrol show step",
    "scontrol show reservation",
    "scontrol show licenses",
    "scontrol show topology",
    "scontrol show burstbuffer",
    "scontrol show assoc_mgr",
    "scontrol show federation",
    "scontrol hold 1",
    "scontrol release 1",
    "scontrol suspend 1",
    "scontrol requeue 1",
    "scontrol top 1",
    "scontrol update JobId=1 Comment=x",
    "scontrol update NodeName=localhost Comment=x",
    "scontrol update PartitionName=debug MaxTime=INFINITE",
    "scontrol create PartitionName=more Nodes=localhost",
    "scontrol delete PartitionName=more",
    "scontrol create ReservationName=r StartTime=now+100 Duration=1 Users=root Nodes=ALL",
    "scontrol delete ReservationName=r",
    "scontrol setdebug info",
    "scontrol setdebugflags -backfill",
    "scontrol schedloglevel 0",
    "sbatch --test-only --wrap true",
    "scancel 1",
];
