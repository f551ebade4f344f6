//! carbon-cache is stopped, killed, frozen or full, refuses or closes connections, or does not read.

use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::carbon::{Limits, Options};
use sandbox::{Manner, Sink, Stage, now, wait};

use super::side_by_side;

#[test]
fn a_carbon_that_ends_or_stops() {
    side_by_side(&[
        ("SIGTERM 0.05-3 s after a write", terminated),
        ("SIGTERM and SIGKILL, limits as shipped", as_shipped),
        ("SIGKILL", killed),
        ("SIGSTOP 5 s", frozen),
    ]);
}

#[test]
fn a_carbon_that_takes_nothing() {
    side_by_side(&[
        ("its cache full, flow control on", full),
        ("port refused 5 s", refused),
        ("accept then close", || taken(Manner::Close)),
        ("accept and never read", || taken(Manner::Silent)),
    ]);
}

fn terminated() -> Result<String> {
    let mut stage = Stage::running()?;
    stop_and_start(&mut stage, &[0.05, 0.3, 1.2, 3.0])?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Points that Carbon has received are lost without a sign if it ends soon after a write.
fn stop_and_start(stage: &mut Stage, delays: &[f64]) -> Result<()> {
    for after in delays {
        stage.tick()?;
        wait::pause(Duration::from_secs_f64(*after));
        stage.carbon.process.stop()?;
        let since = now();
        stage.carbon.process.start()?;
        stage.connected(since)?;
    }
    Ok(())
}

/// The series already exist, because a Carbon with the shipped limits creates only 50 new ones a minute and drops the
/// rest.
fn as_shipped() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.settled()?.clean()?;
    stage.carbon.process.stop()?;
    stage.carbon.limit(Limits::AsShipped)?;
    stage.carbon.process.start()?;
    stop_and_start(&mut stage, &[0.3, 1.2])?;
    kill_and_start(&mut stage, 1)?;
    Ok(stage.finish()?.clean()?.to_string())
}

fn killed() -> Result<String> {
    let mut stage = Stage::running()?;
    kill_and_start(&mut stage, 4)?;
    Ok(stage.finish()?.clean()?.to_string())
}

fn kill_and_start(stage: &mut Stage, times: u32) -> Result<()> {
    for _ in 0..times {
        stage.tick()?;
        wait::pause(Duration::from_secs_f64(fastrand::f64() * 2.0));
        stage.carbon.process.kill()?;
        let since = now();
        stage.carbon.process.start()?;
        stage.connected(since)?;
    }
    Ok(())
}

fn frozen() -> Result<String> {
    let mut stage = Stage::running()?;
    for _ in 0..2 {
        stage.carbon.process.freeze()?;
        wait::pause(Duration::from_secs(5));
        stage.carbon.process.thaw()?;
        stage.ticks(2)?;
    }
    Ok(stage.finish()?.clean()?.to_string())
}

/// Carbon discards what does not fit, logs each such point, and then pauses.
fn full() -> Result<String> {
    let mut stage = Stage::new(&Options { limits: Limits::Tight, ..Options::default() })?;
    stage.daemon.spawn()?;
    stage.ticks(15)?;
    let findings = stage.finish()?;
    let lines = stage.carbon.process.lines();
    let dropped = lines.iter().filter(|line| line.contains("MetricCache is full")).count();
    ensure!(findings.wrong.is_empty(), "{findings}");
    ensure!(dropped > 0, "Carbon's cache never was full");
    ensure!(findings.missing() == dropped, "Carbon dropped {dropped}: {findings}");
    Ok(format!("{} datapoints, {dropped} dropped by Carbon, exactly these are missing", findings.checked))
}

fn refused() -> Result<String> {
    let mut stage = Stage::running()?;
    stage.carbon.process.kill()?;
    stage.ticks(5)?;
    let since = now();
    stage.carbon.process.start()?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Another program listens on Carbon's port.
fn taken(manner: Manner) -> Result<String> {
    let mut stage = Stage::running()?;
    stage.carbon.process.kill()?;
    let sink = Sink::on(stage.carbon.pickle_port, manner)?;
    wait::until("a connection", wait::LIMIT, || sink.accepted() > 0)?;
    stage.ticks(6)?;
    drop(sink);
    let since = now();
    stage.carbon.process.start()?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}
