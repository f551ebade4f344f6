//! A Carbon whose cache is full stores as many points a second as without proof of delivery.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sandbox::carbon::{Limits, Options};
use sandbox::{Series, Stage, destination, wait};

use super::replay;

/// Readings of one second each.
const READINGS: u32 = 1200;
/// Measured in this way at 030ef4f: 2,869 and 2,892, and 2,744 on a busy host; with proof of
/// reading 2,804 and 2,869, and 2,452 on a busy host, which this one may be.
const LEAST_POINTS_A_SECOND: f64 = 2_000.0;

/// A recording is only backlog.
#[test]
fn a_full_cache_with_flow_control_stores_as_many_points_a_second_as_ever() -> Result<()> {
    let mut stage = Stage::new(&Options { limits: Limits::Full, ..Options::default() })?;
    let begin = sandbox::now().floor() - 2.0 * f64::from(READINGS);
    // The default stall_timeout, because a full cache is not a hang.
    let to = destination("carbon", &stage.carbon.address()).replace("\"3s\"", "\"30s\"");
    let head = "interval = \"1s\"\ndrain_timeout = \"5m\"\n[queue]\nreplay_rate = \"100000\"\n";
    let start = Instant::now();
    replay(
        &stage.folder,
        &format!("{head}{to}"),
        (0..READINGS).map(|n| begin + f64::from(n)),
        &[],
    )?;
    let stored = |stage: &Stage| -> usize {
        let files = stage.carbon.paths().into_values();
        files.filter_map(|file| Series::read(&file).ok()).map(|series| series.points.len()).sum()
    };
    let (mut points, mut since) = (0, Instant::now());
    // Carbon also needs time for what it has in memory.
    wait::until("the last point", wait::LIMIT, || {
        let now = stored(&stage);
        if now != points {
            (points, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(3)
    })?;
    stage.carbon.process.stop()?;
    let rate = points as f64 / since.duration_since(start).as_secs_f64();
    ensure!(rate > LEAST_POINTS_A_SECOND, "{rate:.0} points a second");
    Ok(())
}
