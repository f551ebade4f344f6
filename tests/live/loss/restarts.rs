//! The daemon is killed at random moments and restarted with the same queue; also its normal end while Carbon is down.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Findings, Process, Stage, now, run, slurm_graphite, wait};

use super::side_by_side;

#[test]
fn a_daemon_that_is_killed() {
    side_by_side(&[
        ("SIGKILL at random moments", killed),
        ("SIGKILL in an outage", killed_in_an_outage),
        ("SIGKILL in a replay", killed_in_a_replay),
        ("SIGTERM with Carbon away", ended_alone),
        ("a second daemon on the same queue", second),
    ]);
}

/// A second daemon waits for the first to end, as at a restart, and then refuses to start and names the first one's
/// process id. The first is not disturbed.
fn second() -> Result<String> {
    let mut stage = Stage::running()?;
    let config = stage.folder.path().join("daemon.toml").display().to_string();
    let args =
        ["run", "--config", &config, "--interval", "1s", "--log-level", "trace", "--log-format", "json"];
    let refused = run(&stage.folder, &args)?;
    let first = stage.daemon.pid().context("the first has ended")?;
    let lines: Vec<&str> = refused.stderr.lines().collect();
    ensure!(refused.code == Some(1), "it ended with {:?}: {lines:?}", refused.code);
    ensure!(
        lines.len() == 1 && lines[0].contains(&format!("process {first} uses this directory")),
        "{lines:?}"
    );
    let took = refused.took.as_secs_f64();
    ensure!((4.0..10.0).contains(&took), "it took {took:.1} s");
    // If the first ends in time, the second waits for it.
    let mut next = Process::new(&stage.folder, "next", slurm_graphite()?).args(args);
    next.spawn()?;
    wait::pause(Duration::from_secs(1));
    stage.daemon.stop()?;
    wait::pause(Duration::from_secs(5));
    ensure!(next.pid().is_some(), "{:?}", next.lines());
    next.stop()?;
    stage.collected.look()?;
    stage.daemon.spawn()?;
    stage.ticks(2)?;
    stage.daemon.stop()?;
    stage.collected.look()?;
    // The record does not contain what the second daemon sent.
    let findings = stage.settled()?;
    ensure!(findings.missing() == 0, "{findings}");
    Ok(format!("refused after {took:.1} s"))
}

/// Kills the daemon and starts it again; everything that was in the queue before must still be there.
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

/// The backlog is sent so slowly that the kill comes in the middle of it.
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
    let errors = stage.collected.entries().iter().filter(|entry| entry.level == "ERROR");
    ensure!(errors.count() == 0, "taken for damage");
    Ok(findings.to_string())
}
