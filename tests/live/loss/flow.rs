//! A Carbon whose cache is full stores as many points a second as without proof of delivery.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use sandbox::carbon::{Limits, Options};
use sandbox::{Imitation, Invocation, Series, Stage, destination, wait};
use slurm_snapshot::{Reading, Statistics};

/// Readings of one second each.
const READINGS: u32 = 1200;
/// Measured in this way at 030ef4f: 2,869 and 2,892, and 2,744 on a busy host; with proof of reading 2,804 and 2,869,
/// and 2,452 on a busy host, which this one may be.
const LEAST_POINTS_A_SECOND: f64 = 2_000.0;

#[test]
fn a_full_cache_with_flow_control_stores_as_many_points_a_second_as_ever() {
    let (stored, dropped, rate) = replay().unwrap();
    println!("full: {stored} points stored, {dropped} dropped by Carbon, {rate:.0} points a second");
    assert!(rate > LEAST_POINTS_A_SECOND, "{rate:.0} points a second");
}

/// A recording is only backlog. Returns how much of it Carbon stores, and how long that takes.
fn replay() -> Result<(usize, usize, f64)> {
    let mut stage = Stage::new(&Options { limits: Limits::Full, ..Options::default() })?;
    let begin = sandbox::now().floor() - 2.0 * f64::from(READINGS);
    let readings = (0..READINGS).map(|n| Reading {
        id: n.into(),
        time: begin + f64::from(n),
        cluster: None,
        statistics: Some(Statistics { jobs_submitted: n, ..Statistics::default() }),
        ..Imitation::reading()
    });
    let [recording, config] = ["recording", "replay.toml"].map(|name| stage.folder.path().join(name));
    fs::write(&recording, Imitation::recording(readings)?)?;
    // The default stall_timeout, because a full cache is not a hang.
    let to = destination("carbon", &stage.carbon.address()).replace("\"3s\"", "\"30s\"");
    let head = "interval = \"1s\"\ndrain_timeout = \"5m\"\n[queue]\nreplay_rate = \"100000\"\n";
    fs::write(&config, format!("{head}{to}"))?;
    let [config, recording] = [config, recording].map(|path| path.display().to_string());
    let start = Instant::now();
    let args = ["run", "--config", &config, "--prefix", "replayed", "--replay", &recording];
    Invocation::new(&stage.folder, &args)?.succeed()?;
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
    let took = since.duration_since(start).as_secs_f64();
    let dropped = stage.carbon.dropped();
    stage.carbon.process.stop()?;
    Ok((points, dropped, points as f64 / took))
}
