//! The daemon is killed at random moments and restarted with the same queue; also its normal end
//! while Carbon is down.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Stage, now, wait};

use super::side_by_side;

#[test]
fn a_daemon_that_is_killed() {
    side_by_side(&[
        ("SIGKILL at random moments, in an outage and in a replay", killed),
        ("SIGTERM with Carbon away", ended_alone),
        ("a second daemon on the same queue", second),
    ]);
}

/// A second daemon waits for the first to end, refuses to start and names the first one's process
/// id. The first is not disturbed.
fn second() -> Result<String> {
    let mut stage = Stage::running()?;
    let mut refused = stage.another("refused")?;
    refused.spawn()?;
    let ended = refused.wait(wait::LIMIT)?;
    let first = stage.daemon.pid().context("the first has ended")?;
    let lines = refused.lines();
    ensure!(ended.status.code() == Some(1), "it ended with {}: {lines:?}", ended.status);
    let named = format!("process {first} uses this directory");
    ensure!(lines.len() == 1 && lines[0].contains(&named), "{lines:?}");
    let took = ended.after.as_secs_f64();
    ensure!((4.0..10.0).contains(&took), "it took {took:.1} s");
    Ok(format!("refused after {took:.1} s; {}", stage.clean()?))
}

fn some_time(longest: f64) {
    wait::pause(Duration::from_secs_f64(fastrand::f64() * longest));
}

/// At random moments, in an outage, and in a replay, which is so slow that the kill comes in the
/// middle of it.
fn killed() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    stage.plan.queue = "replay_rate = \"200\"\n".to_owned();
    stage.configure()?;
    let mut stage = stage.run()?;
    for _ in 0..8 {
        some_time(2.5);
        stage.restart(true)?;
    }
    stage.tick()?;
    stage.carbon.process.kill()?;
    for _ in 0..4 {
        stage.ticks(2)?;
        some_time(1.0);
        stage.restart(true)?;
    }
    stage.carbon_back()?;
    for _ in 0..4 {
        some_time(1.5);
        let since = now();
        stage.restart(true)?;
        stage.connected(since)?;
    }
    stage.tick()?;
    clean(stage)
}

fn ended_alone() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.carbon.process.kill()?;
    stage.ticks(5)?;
    let since = now();
    stage.stop()?;
    let kept = stage.said(since, "ticks_kept_on_disk")?;
    let kept = kept.line.split("\"ticks_kept_on_disk\":").nth(1).unwrap_or_default();
    let kept: usize = kept.split(',').next().unwrap_or_default().parse()?;
    let ticks = stage.collected.counted().count();
    ensure!(kept == ticks, "{kept} ticks on disk, {ticks} collected");
    stage.carbon.process.start()?;
    stage.resume()?;
    Ok(format!("{kept} ticks said to be on disk; {}", clean(stage)?))
}

fn clean(mut stage: Stage) -> Result<String> {
    let findings = stage.clean()?;
    // A SIGKILL leaves nothing that looks damaged.
    let damaged = stage.of_carbon("points_dropped_damaged")?;
    ensure!(damaged == 0.0, "{damaged} points were counted as damaged");
    ensure!(
        stage.collected.entries().iter().all(|entry| entry.level != "ERROR"),
        "taken for damage"
    );
    Ok(findings)
}
