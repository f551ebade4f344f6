//! A segment of the queue is removed while the daemon is down. The next daemon starts, sends
//! nothing that was not collected, and counts and reports exactly what is lost.
//!
//! crates/carbon/src/store/tests.rs flips bits and cuts at every byte.

use std::fs;

use anyhow::{Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Stage, now};

/// Three runs leave a segment each, and the second is removed: the third records what it contained.
#[test]
fn a_removed_segment_is_counted_to_the_point() -> Result<()> {
    let mut stage = Stage::new(&Options::default())?;
    stage.carbon.process.stop()?;
    for _ in 0..3 {
        stage.daemon.spawn()?;
        stage.ticks(4)?;
        stage.daemon.kill()?;
        stage.collected.look()?;
    }
    let segments = stage.segments()?;
    ensure!(segments.len() == 3, "{segments:?}");
    fs::remove_file(&segments[1])?;
    let since = now();
    stage.daemon.spawn()?;
    stage.carbon_back()?;
    let findings = stage.finish()?;
    ensure!(findings.wrong.is_empty(), "{findings}");
    let counted = stage.of_carbon("points_dropped_damaged")?;
    stage.said(since, "points queued for this destination have been lost")?;
    let lost = findings.missing() as f64;
    ensure!(lost > 0.0 && lost == counted, "{lost} are missing, {counted} were counted");
    Ok(())
}
