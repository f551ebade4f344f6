//! Destinations that are added or removed, and clocks that jump. Destinations that move are in reloads.rs.

use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::carbon::Options;
use sandbox::{Ahead, Stage, destination, free_port, now, wait};

use super::side_by_side;
use super::sizes::Size;

const A_DAY: u64 = 24 * 3600;

#[test]
fn what_a_removed_destination_never_had_is_counted_at_max_age() {
    println!("{}", removed().unwrap());
}

#[test]
fn a_clock_a_day_ahead_for_one_tick_drops_no_backlog() {
    side_by_side(&[
        ("Carbon away", || clock_ahead(true)),
        ("Carbon there, then killed", || clock_ahead(false)),
    ]);
}

/// One of two destinations is removed, so nobody can say where its backlog should go: points that it never got are
/// counted when they are dropped.
fn removed() -> Result<String> {
    const REMOVED: &str = ".queue.gauge-points_dropped_removed";
    let mut stage = Size::Small.stage("max_age = \"15s\"\nresend_window = \"4s\"\n")?;
    let without = stage.plan.destinations.clone();
    stage.plan.destinations += &destination("gone", &format!("127.0.0.1:{}", free_port()?));
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(5)?;
    stage.plan.destinations = without;
    stage.reload()?;
    stage.until(REMOVED, |removed| removed > 0.0)?;
    // The oldest tick reaches max_age first, and the newest a few seconds later.
    wait::pause(Duration::from_secs(7));
    stage.tick()?;
    // Ticks that were made while it was configured contain figures about it.
    let is_its = |points: &&sandbox::Points| points.keys().any(|path| path.contains(".carbon.gone."));
    let points: usize =
        stage.collected.counted().map(|(_, points)| points).filter(is_its).map(|points| points.len()).sum();
    let counted = stage.counter(REMOVED)?;
    let is_exact = (counted - points as f64).abs() < 0.5;
    ensure!(is_exact, "{points} points were not sent, {counted} counted");
    Ok(format!("{points} points not sent, {counted} counted; {}", stage.clean()?))
}

/// Only the daemon's clock is changed: one tick is made tomorrow, and then the clock goes back.
fn clock_ahead(away: bool) -> Result<String> {
    // Tomorrow's point must not push today's out of the archive.
    let schemas = "[everything]\npattern = .*\nretentions = 1s:26h\n".to_owned();
    let mut stage = Stage::new(&Options { schemas, ..Options::default() })?;
    let clock = Ahead::new(&stage.folder)?;
    Size::Small.set(&mut stage)?;
    stage.under(&clock)?;
    let mut stage = stage.run()?;
    if away {
        stage.carbon.process.kill()?;
        stage.ticks(6)?;
    }
    clock.set(A_DAY)?;
    let tomorrow = now() + 20.0 * 3600.0;
    let is_there = |stage: &mut Stage| {
        stage.collected.look().is_ok() && stage.collected.newest().is_some_and(|at| at as f64 > tomorrow)
    };
    wait::until("a tick of tomorrow", wait::LIMIT, || is_there(&mut stage))?;
    // The second of that tick must be over, because it already has a tick.
    wait::pause(Duration::from_millis(1500));
    clock.set(0)?;
    stage.ticks(4)?;
    if !away {
        stage.carbon.process.kill()?;
    }
    stage.carbon_back()?;
    stage.clean()
}
