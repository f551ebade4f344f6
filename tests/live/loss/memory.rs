//! Carbon loses its memory: points that it has read but not stored are gone, whatever happened to the daemon in
//! between.

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

/// This keeps the CPUs busy.
#[test]
fn a_window_shortened_by_max_bytes_is_counted_to_the_point() {
    side_by_side(&[("10,000 points a tick, then Carbon is killed", evicted)]);
}

/// A stage whose Carbon stores one series a second, and is otherwise normal.
fn slow(queue: &str) -> Result<Stage> {
    let mut stage = Stage::new(&Options { limits: Limits::Slow, ..Options::default() })?;
    let mut plan = Size::Usual.plan(&stage, &stage.carbon.address())?;
    queue.clone_into(&mut plan.queue);
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    Ok(stage)
}

/// Kills Carbon before it can store what it has. From its next start on it is fast.
fn kill(stage: &mut Stage) -> Result<()> {
    stage.carbon.process.kill()?;
    stage.carbon.limit(Limits::Wide)
}

/// Carbon loses what it had, and gets it again.
fn dies(mut stage: Stage) -> Result<String> {
    let since = now();
    kill(&mut stage)?;
    stage.carbon.process.start()?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

fn restarted_then_killed(after: u64) -> Result<String> {
    let mut stage = slow("")?;
    stage.ticks(8)?;
    stage.daemon.stop()?;
    stage.collected.look()?;
    stage.daemon.spawn()?;
    wait::pause(Duration::from_secs(after));
    dies(stage)
}

/// Carbon dies while the daemon is down.
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

/// Proof of reading is not proof of storing: time passes, and nobody reads.
fn proved_then_hung() -> Result<String> {
    let mut stage = slow("resend_window = \"8s\"\n")?;
    // Four ticks and two renewals take less time than a window.
    stage.ticks(4)?;
    wait::pause(Duration::from_millis(2500));
    stage.carbon.process.freeze()?;
    wait::pause(Duration::from_secs(25));
    dies(stage)
}

/// Neither too short for a connection, nor long enough for the whole backlog.
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

/// Carbon comes back with nothing stored. Everything still in the window is sent again, and what was evicted from the
/// window is counted.
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
