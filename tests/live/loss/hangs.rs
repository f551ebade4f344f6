//! A Carbon that hangs: its kernel still accepts, acknowledges and buffers, but nobody reads.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::{Stage, now, wait};

use super::side_by_side;
use super::sizes::Size;

/// The smallest window with renewals every second.
const WINDOW: &str = "resend_window = \"4s\"\n";
const THREE_WINDOWS: Duration = Duration::from_secs(13);

#[test]
fn a_hang_of_three_windows_and_then_a_kill_loses_nothing_that_was_never_read() {
    side_by_side(&[
        ("30 points a tick, all inside kernel buffers", || hung_then_killed(Size::Small)),
        ("137 points a tick", || hung_then_killed(Size::Usual)),
    ]);
}

/// This keeps the CPUs busy.
#[test]
fn a_hang_with_10_000_points_a_tick_and_then_a_kill_loses_nothing_that_was_never_read() {
    side_by_side(&[("10,000 points a tick", || hung_then_killed(Size::Large))]);
}

#[test]
fn a_hang_is_told_from_a_loss_and_from_a_proof() {
    side_by_side(&[
        ("hung, then continued: nothing is sent again", hung_then_continued),
        ("hung over a restart of the daemon, then killed", hung_over_a_restart),
        ("hung longer than max_age, then killed: counted to the point", hung_beyond_max_age),
        ("no window, hung, then killed: nothing twice, counted to the point", hung_without_a_window),
    ]);
}

/// It must take minutes: the half-closed connection is abandoned after ten of them.
#[test]
#[ignore = "minutes: make loss-long"]
fn a_hang_of_minutes() {
    side_by_side(&[
        ("15 minutes, then continued", || minutes(Size::Small, true)),
        ("15 minutes, then killed", || minutes(Size::Small, false)),
        ("15 minutes at 137 points a tick, then continued", || minutes(Size::Usual, true)),
        ("15 minutes at 137 points a tick, then killed", || minutes(Size::Usual, false)),
    ]);
}

fn running(size: Size, queue: &str) -> Result<Stage> {
    let mut stage = size.stage(queue)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    size.check(&stage)?;
    Ok(stage)
}

fn kill_and_start(stage: &mut Stage) -> Result<()> {
    let since = now();
    stage.carbon.process.kill()?;
    stage.carbon.process.start()?;
    stage.connected(since)
}

fn hung_then_killed(size: Size) -> Result<String> {
    // Carbon takes seconds to store 10,000 points, and what it stores after the window is not promised.
    let (window, hang) = match size {
        Size::Large => ("resend_window = \"12s\"\n", THREE_WINDOWS * 3),
        _ => (WINDOW, THREE_WINDOWS),
    };
    let mut stage = running(size, window)?;
    let frozen = now();
    stage.carbon.process.freeze()?;
    wait::pause(hang);
    kill_and_start(&mut stage)?;
    Ok(stage.finish()?.clean().with_context(|| format!("frozen at {frozen:.1}"))?.to_string())
}

/// Live ticks continue, the gauge shows it, two lines are logged, and no connection is lost.
fn hung_then_continued() -> Result<String> {
    const DOUBT: &str = ".carbon.carbon.gauge-in_doubt";
    let mut stage = running(Size::Small, WINDOW)?;
    stage.until(DOUBT, |doubt| doubt == 0.0)?;
    let before =
        ["connects", "points_resent"].map(|leaf| stage.counter(&format!(".carbon.carbon.gauge-{leaf}")));
    let frozen = now();
    stage.carbon.process.freeze()?;
    stage.until(DOUBT, |doubt| doubt == 1.0)?;
    let sent = stage.counter(".carbon.carbon.gauge-points_sent")?;
    wait::pause(THREE_WINDOWS);
    stage.tick()?;
    ensure!(stage.counter(DOUBT)? == 1.0, "the doubt ended while Carbon hung");
    ensure!(stage.counter(".carbon.carbon.gauge-points_sent")? > sent + 200.0, "live ticks stopped");
    stage.carbon.process.thaw()?;
    stage.until(DOUBT, |doubt| doubt == 0.0)?;
    stage.tick()?;
    let after =
        ["connects", "points_resent"].map(|leaf| stage.counter(&format!(".carbon.carbon.gauge-{leaf}")));
    let ([connects, resent], [connects_after, resent_after]) = (before, after);
    let (connects, more) = (connects?, resent_after? - resent?);
    ensure!(connects.to_bits() == connects_after?.to_bits(), "a connection was lost");
    // What the connection that was answered too late had carried, in one second, is not proved.
    ensure!(more <= 100.0, "{more} points were sent again");
    let news: Vec<String> = stage
        .collected
        .entries()
        .iter()
        .filter(|entry| entry.at > frozen && entry.is_news())
        .map(|entry| format!("{} {}", entry.level, entry.message))
        .collect();
    let warned = news.iter().filter(|line| line.starts_with("WARN")).count();
    ensure!(news.len() == 2 && warned == 1, "not one WARN and one line: {news:?}");
    Ok(format!("{}, said: {news:?}", stage.finish()?.clean()?))
}

/// Points for a program that never read them are due at each start.
fn hung_over_a_restart() -> Result<String> {
    let mut stage = Size::Small.stage(WINDOW)?;
    // The end need not wait long for an answer that cannot come.
    let mut plan = Size::Small.plan(&stage, &stage.carbon.address())?;
    plan.queue = WINDOW.to_owned();
    plan.top.insert_str(0, "drain_timeout = \"1s\"\n");
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    stage.carbon.process.freeze()?;
    stage.ticks(4)?;
    stage.daemon.stop()?;
    stage.collected.look()?;
    stage.daemon.spawn()?;
    wait::pause(THREE_WINDOWS);
    kill_and_start(&mut stage)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// Carbon hangs from the beginning, so the points that are too old at the end were never read.
fn hung_beyond_max_age() -> Result<String> {
    let mut stage = Size::Small.stage("resend_window = \"4s\"\nmax_age = \"8s\"\n")?;
    stage.carbon.process.freeze()?;
    stage.daemon.spawn()?;
    stage.ticks(20)?;
    kill_and_start(&mut stage)?;
    stage.ticks(3)?;
    let findings = stage.finish()?;
    counted_to_the_point(&stage, &findings)
}

/// As an aggregator needs it: a point that was written once is never written again.
fn hung_without_a_window() -> Result<String> {
    let mut stage = Size::Small.stage("resend_window = \"0s\"\n")?;
    stage.carbon.process.freeze()?;
    stage.daemon.spawn()?;
    stage.ticks(6)?;
    kill_and_start(&mut stage)?;
    stage.ticks(3)?;
    let again = stage.counter(".carbon.carbon.gauge-points_resent")?;
    ensure!(again == 0.0, "{again} points were written twice");
    let findings = stage.finish()?;
    counted_to_the_point(&stage, &findings)
}

/// Something is lost, and exactly that is counted.
pub(crate) fn counted_to_the_point(stage: &Stage, findings: &sandbox::Findings) -> Result<String> {
    ensure!(findings.wrong.is_empty(), "{findings}");
    let counted = stage.counted_as_lost();
    let missing = findings.missing() as f64;
    ensure!(missing > 0.0, "nothing is missing: {findings}");
    ensure!((missing - counted).abs() < 0.5, "{missing} are missing, {counted} counted: {findings}");
    Ok(format!("{} ticks, {missing} datapoints missing, {counted} counted", findings.ticks))
}

fn minutes(size: Size, continues: bool) -> Result<String> {
    let mut stage = running(size, "resend_window = \"60s\"\n")?;
    stage.carbon.process.freeze()?;
    wait::pause(Duration::from_secs(15 * 60));
    let start = Instant::now();
    if continues {
        stage.carbon.process.thaw()?;
    } else {
        stage.carbon.process.kill()?;
        stage.carbon.process.start()?;
    }
    // The backlog is sent by itself, however long that takes.
    stage.ticks(2)?;
    let due = |stage: &mut Stage| stage.nothing_waits("carbon");
    while let Err(error) = due(&mut stage) {
        println!("{size:?}: {:.0} s: {error:#}", start.elapsed().as_secs_f64());
        ensure!(start.elapsed() < Duration::from_secs(40 * 60), "it does not drain");
    }
    let took = start.elapsed().as_secs_f64();
    Ok(format!("{}, drained in {took:.0} s", stage.finish()?.clean()?))
}
