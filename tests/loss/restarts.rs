//! This daemon killed at random moments and started again with the same queue, and its orderly end with Carbon away.

use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Findings, Stage, now, wait};

use crate::side_by_side;

#[test]
fn a_daemon_that_is_killed() {
    side_by_side(&[
        ("SIGKILL at random moments", killed),
        ("SIGKILL in an outage", killed_in_an_outage),
        ("SIGKILL in a replay", killed_in_a_replay),
        ("SIGTERM with Carbon away", ended_alone),
    ]);
}

/// Kills the daemon and starts it again; all that was kept before must be kept still.
fn kill_and_start(stage: &mut Stage) -> Result<()> {
    stage.daemon.kill()?;
    stage.collected.look()?;
    stage.daemon.spawn()
}

fn some_time(longest: f64) {
    wait::pause(Duration::from_secs_f64(fastrand::f64() * longest));
}

fn killed() -> Result<String> {
    let mut stage = Stage::running()?;
    for _ in 0..8 {
        some_time(2.5);
        kill_and_start(&mut stage)?;
    }
    stage.tick()?;
    clean(stage)
}

fn killed_in_an_outage() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.carbon.process.kill()?;
    for _ in 0..4 {
        stage.ticks(2)?;
        some_time(1.0);
        kill_and_start(&mut stage)?;
    }
    let since = now();
    stage.carbon.process.start()?;
    stage.connected(since)?;
    clean(stage)
}

/// The backlog goes slowly enough to be met in its middle.
fn killed_in_a_replay() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    stage.carbon.process.stop()?;
    let mut plan = sandbox::Plan::to(&stage.carbon.address());
    plan.queue = "replay_rate = \"200\"\n".to_owned();
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.ticks(10)?;
    for _ in 0..4 {
        let since = now();
        if stage.carbon.process.pid().is_none() {
            stage.carbon.process.start()?;
        }
        stage.connected(since)?;
        some_time(1.5);
        kill_and_start(&mut stage)?;
    }
    stage.tick()?;
    clean(stage)
}

fn ended_alone() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.carbon.process.kill()?;
    stage.ticks(5)?;
    let since = now();
    stage.daemon.stop()?;
    let kept = stage.said(since, "ticks_kept_on_disk")?;
    let kept = kept.line.split("\"ticks_kept_on_disk\":").nth(1).unwrap_or_default();
    let kept: usize = kept.split(',').next().unwrap_or_default().parse()?;
    stage.collected.look()?;
    let ticks = stage.collected.counted().count();
    ensure!(kept == ticks, "{kept} ticks on disk, {ticks} collected");
    stage.carbon.process.start()?;
    let since = now();
    stage.daemon.spawn()?;
    stage.said(since, "ticks of an earlier run are in the queue")?;
    stage.connected(since)?;
    Ok(format!("{kept} ticks said to be on disk; {}", clean(stage)?))
}

fn clean(mut stage: Stage) -> Result<String> {
    let findings: Findings = stage.finish()?.clean()?;
    // A SIGKILL leaves nothing that looks damaged.
    let damaged = stage.counter("carbon.carbon.gauge-points_dropped_damaged")?;
    ensure!(damaged == 0.0, "{damaged} points were counted as damaged");
    Ok(findings.to_string())
}
