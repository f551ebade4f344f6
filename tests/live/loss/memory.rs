//! Carbon loses its memory: what it has read but not stored is gone, whatever happened to the daemon in between.

use std::time::Duration;

use anyhow::Result;
use sandbox::carbon::{Limits, Options};
use sandbox::{Stage, now, wait};

use super::hangs::counted_to_the_point;
use super::side_by_side;
use super::sizes::Size;

#[test]
fn a_restart_of_the_daemon_is_no_proof_of_storing() {
    side_by_side(&[
        ("restarted, Carbon killed after 1 s", || restarted_then_killed(1)),
        ("restarted, Carbon killed after 3 s", || restarted_then_killed(3)),
        ("restarted, Carbon killed after 30 s", || restarted_then_killed(30)),
        ("restarted twice, then Carbon killed", restarted_twice),
        ("Carbon killed and started while the daemon is down", killed_while_down),
    ]);
}

#[test]
fn what_carbon_has_read_is_not_stored() {
    side_by_side(&[
        ("read and proved, then hung for three windows, then killed", proved_then_hung),
        ("in a crash loop, each life of 1.5 s", crash_loop),
    ]);
}

/// Keeps the cores busy.
#[test]
fn a_window_shortened_by_max_bytes_is_counted_to_the_point() {
    side_by_side(&[("10,000 points a tick, then Carbon is killed", evicted)]);
}

/// One that stores one series a second, and is otherwise as any.
fn slow(queue: &str) -> Result<Stage> {
    let mut stage = Stage::new(&Options { limits: Limits::Slow, ..Options::default() })?;
    let mut plan = Size::Usual.plan(&stage, &stage.carbon.address())?;
    queue.clone_into(&mut plan.queue);
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    Ok(stage)
}

/// It has no time to store what it has; then it is fast again.
fn kill(stage: &mut Stage) -> Result<()> {
    stage.carbon.process.kill()?;
    stage.carbon.limit(Limits::Wide)
}

fn restart(stage: &mut Stage) -> Result<()> {
    stage.daemon.stop()?;
    stage.collected.look()?;
    stage.daemon.spawn()
}

fn restarted_then_killed(after: u64) -> Result<String> {
    let mut stage = slow("")?;
    stage.ticks(8)?;
    restart(&mut stage)?;
    wait::pause(Duration::from_secs(after));
    let since = now();
    kill(&mut stage)?;
    stage.carbon.process.start()?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

fn restarted_twice() -> Result<String> {
    let mut stage = slow("")?;
    for _ in 0..2 {
        stage.ticks(4)?;
        restart(&mut stage)?;
    }
    stage.ticks(2)?;
    let since = now();
    kill(&mut stage)?;
    stage.carbon.process.start()?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Nobody sees it die.
fn killed_while_down() -> Result<String> {
    let mut stage = slow("")?;
    stage.ticks(6)?;
    stage.daemon.stop()?;
    stage.collected.look()?;
    kill(&mut stage)?;
    stage.carbon.process.start()?;
    stage.daemon.spawn()?;
    stage.ticks(2)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Proof of reading is no proof of storing: time passes, and nobody reads.
fn proved_then_hung() -> Result<String> {
    let mut stage = slow("resend_window = \"8s\"\n")?;
    // Four ticks and two renewals are less than a window.
    stage.ticks(4)?;
    wait::pause(Duration::from_millis(2500));
    stage.carbon.process.freeze()?;
    wait::pause(Duration::from_secs(25));
    let since = now();
    kill(&mut stage)?;
    stage.carbon.process.start()?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Neither too short for a connection nor long enough for a backlog at once.
fn crash_loop() -> Result<String> {
    let mut stage = Size::Usual.stage("replay_rate = \"2000\"\n")?;
    stage.daemon.spawn()?;
    stage.steady()?;
    let mut since = 0.0;
    for life in [300, 300, 300, 1500, 1500, 1500, 1500, 1500, 1500] {
        since = now();
        stage.carbon.process.kill()?;
        stage.carbon.process.start()?;
        wait::pause(Duration::from_millis(life));
    }
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Carbon comes back without anything: all that the window still had is there again, and what was pushed out of it is
/// counted.
fn evicted() -> Result<String> {
    let mut stage = Size::Large.stage("max_bytes = \"4MiB\"\n")?;
    stage.daemon.spawn()?;
    stage.ticks(20)?;
    let since = now();
    stage.carbon.process.kill()?;
    stage.carbon.forget()?;
    stage.carbon.process.start()?;
    stage.connected(since)?;
    stage.ticks(2)?;
    let findings = stage.finish()?;
    counted_to_the_point(&stage, &findings)
}
