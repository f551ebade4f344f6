//! Carbon loses its memory: points that it has read but not stored are gone, whatever happened to
//! the daemon in between.

use std::time::Duration;

use anyhow::Result;
use sandbox::carbon::Limits;
use sandbox::{Stage, now, wait};

use super::side_by_side;
use super::sizes::Size;

#[test]
fn a_restart_of_the_daemon_is_no_proof_of_storing() {
    side_by_side(&[
        ("restarted, Carbon killed after 1 s", || restarted_then_killed(1)),
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

/// A stage whose Carbon stores one series a second, and is otherwise normal, after some ticks.
fn slow(queue: &str, ticks: usize) -> Result<Stage> {
    let mut stage = Size::Usual.with(Limits::Slow, queue)?;
    stage.daemon.spawn()?;
    stage.ticks(ticks)?;
    Ok(stage)
}

/// Carbon is killed before it can store what it has, and gets it again. From then on it is fast.
fn dies(mut stage: Stage) -> Result<String> {
    stage.carbon.process.kill()?;
    stage.carbon.limit(Limits::Wide)?;
    stage.carbon_back()?;
    stage.clean()
}

fn restarted_then_killed(after: u64) -> Result<String> {
    let mut stage = slow("", 8)?;
    stage.restart(false)?;
    wait::pause(Duration::from_secs(after));
    dies(stage)
}

fn killed_while_down() -> Result<String> {
    let mut stage = slow("", 6)?;
    stage.stop()?;
    stage.carbon.process.kill()?;
    stage.carbon.limit(Limits::Wide)?;
    stage.carbon.process.start()?;
    stage.daemon.spawn()?;
    stage.ticks(2)?;
    stage.clean()
}

/// Proof of reading is not proof of storing: time passes, and nobody reads.
fn proved_then_hung() -> Result<String> {
    // Four ticks and two renewals take less time than a window.
    let mut stage = slow("resend_window = \"8s\"\n", 4)?;
    wait::pause(Duration::from_millis(2500));
    stage.carbon.process.freeze()?;
    wait::pause(Duration::from_secs(25));
    dies(stage)
}

/// Neither too short for a connection, nor long enough for the whole backlog.
fn crash_loop() -> Result<String> {
    let mut stage = Size::Usual.stage("replay_rate = \"2000\"\n")?.run()?;
    let mut since = 0.0;
    for life in [300, 300, 300, 1500, 1500, 1500, 1500, 1500, 1500] {
        since = now();
        stage.carbon.process.kill()?;
        stage.carbon.process.start()?;
        wait::pause(Duration::from_millis(life));
    }
    stage.connected(since)?;
    stage.clean()
}
