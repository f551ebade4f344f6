//! The cost of full RPC tables: the points of 100 types and 200 users from a recording, and a whole
//! tick compared with a bare C loop while slurmctld's own table of users is full.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::{Imitation, Sandbox, find_program};
use slurm_snapshot::{Reading, Release, RpcTables, RpcType, RpcUser, Statistics, rpc_name};
use tools::contender::{cpu, in_turn};
use tools::{above, say};

use crate::peer::Peer;
use crate::turns::Part::{Both, Child, Own};
use crate::turns::{C_LOOP, SETTLE, collector, floor, ratio, table};

/// Readings in the recording, and the range in which they are measured: at both ends the queue is
/// as full as it gets.
const READINGS: u32 = 1600;
const FIRST: u64 = 300;
const LAST: u64 = 1400;

const USERS: u32 = 200;
const TYPES: usize = 100;

/// The targets: µs of CPU for deriving and encoding, and the whole tick compared with the bare
/// loop.
const MOST_DERIVE: f64 = 1000.0;
const MOST_CPU: f64 = 2.5;

/// Returns the targets that were missed.
pub(crate) fn full(sandbox: &Sandbox) -> Result<Vec<String>> {
    let recording = sandbox.folder.write("full.json", &recording()?)?;
    let replayed = replay(sandbox, &recording, "full", true)?;
    let without = replay(sandbox, &recording, "without", false)?;
    let derive = replayed - without;
    say(&format!(
        "| a reading of {TYPES} types and {USERS} users | CPU |\n|---|---|\n\
         | replayed: parsed, derived, encoded and sent | {:.2} ms |\n\
         | the same lines without slurm_rpc_stats | {:.2} ms |\n\
         | **deriving, encoding and sending them** | {:.2} ms |\n\n",
        replayed / 1e3,
        without / 1e3,
        derive / 1e3
    ))?;
    let mut missed = above([("µs for full tables", derive, MOST_DERIVE)]);
    if rustix::process::getuid().is_root() {
        missed.extend(live(sandbox)?);
    } else {
        say("Only root can fill slurmctld's table of users: no live tick.\n\n")?;
    }
    Ok(missed)
}

/// Readings whose tables are full and keep growing.
fn recording() -> Result<String> {
    let release = Release::new(24, 11);
    let known = (1000..u16::MAX).filter(|&id| rpc_name(id.into(), release).is_some());
    let ids: Vec<u16> = known.take(TYPES).collect();
    let reading = |number: u32| {
        let moment = 1_700_028_000 + 30 * number;
        let time = |id: u32| u64::from(number) * u64::from(700 + id);
        let kind =
            |&id: &u16| RpcType { id, count: number * 3, time: time(id.into()), queue: None };
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
        Reading {
            id: number.into(),
            time: f64::from(moment) + 0.1,
            elapsed: 500,
            release,
            statistics: Some(Statistics {
                req_time: moment.into(),
                req_time_start: 1_700_020_000,
                rpc: Some(rpc),
                ..Statistics::default()
            }),
            ..Imitation::reading()
        }
    };
    Imitation::recording((1..=READINGS).map(reading))
}

/// CPU in µs of a replayed tick.
fn replay(sandbox: &Sandbox, recording: &str, name: &str, enabled: bool) -> Result<f64> {
    let peer = Peer::start()?;
    let config = sandbox.folder.write(
        &format!("{name}.toml"),
        &format!(
            "prefix = \"cluster\"\n[[carbon]]\naddress = {:?}\n[queue]\nresend_window = \"0s\"\n\
             replay_rate = \"100000000\"\n[collectors.rpc_stats]\nenabled = {enabled}\nusers = \
             {USERS}\n",
            peer.address
        ),
    )?;
    let mut process = sandbox.slurm_graphite(
        name,
        &["run", "--config", &config, "--prefix", "cluster", "--replay", recording],
    )?;
    let pid = process.pid().context("the replay has ended")?;
    let at = |ticks: u64| -> Result<(u64, Duration)> {
        peer.until(ticks, Duration::from_secs(120))?;
        Ok((peer.ticks(), cpu(pid)?))
    };
    let (first, last) = (at(FIRST)?, at(LAST)?);
    process.stop()?;
    let ticks = u32::try_from(last.0.saturating_sub(first.0))?;
    let spent = last.1.checked_sub(first.1).context("CPU time went back")?;
    Ok(spent.as_secs_f64() * 1e6 / f64::from(ticks))
}

/// A live tick, for which the sandbox acts as 200 users.
fn live(sandbox: &Sandbox) -> Result<Vec<String>> {
    let peer = Peer::start()?;
    let toml = format!(
        "[slurm]\nconf = {:?}\n[[carbon]]\naddress = {:?}\n[collectors.rpc_stats]\nusers = \
            {USERS}\n",
        sandbox.slurm.conf(),
        peer.address
    );
    fill(sandbox)?;
    let [floor, collector] = in_turn([
        floor(sandbox, "full-floor")?,
        collector(&sandbox.folder, "live", toml, false, SETTLE),
    ])?;
    let sdiag = sandbox.slurm.sdiag()?;
    let (types, users) = (sdiag.by_type.len(), sdiag.by_user.len());
    ensure!(users == USERS as usize, "{users} users in slurmctld's table");
    let rows = [
        ("a bare C loop", &floor, Own),
        ("slurm-graphite-reader", &collector, Child),
        ("slurm-graphite, every user with paths", &collector, Own),
        ("**both together**", &collector, Both),
    ];
    let what = format!("a live reading of {types} types and {users} users");
    say(&format!("{}\n", table(&what, (C_LOOP, &floor, Own), &rows)))?;
    let cpu = ratio((&collector, Both), (&floor, Own));
    Ok(above([("CPU with full tables compared with the C loop", cpu, MOST_CPU)]))
}

/// Makes RPCs of as many users as slurmctld counts, and of those types that the commands use.
fn fill(sandbox: &Sandbox) -> Result<()> {
    for command in COMMANDS {
        // Some are refused, but counted anyway.
        let _ = sandbox.slurm.call(command);
    }
    let sinfo = find_program("sinfo")?.display().to_string();
    for id in 20_001..20_000 + USERS {
        sandbox.slurm.run_as(id, &sinfo, &[])?;
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
