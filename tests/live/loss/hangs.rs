//! A Carbon that hangs: its kernel still accepts, acknowledges and buffers, but nobody reads.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::proc::Signal;
use sandbox::{Stage, now, wait};

use super::side_by_side;
use super::sizes::Size;

/// The smallest window with renewals every second.
pub(crate) const WINDOW: &str = "resend_window = \"4s\"\n";
pub(crate) const THREE_WINDOWS: Duration = Duration::from_secs(13);

#[test]
fn a_hang_of_three_windows_and_then_a_kill_loses_nothing_that_was_never_read() {
    side_by_side(&[
        ("30 points a tick, all inside kernel buffers", || hung_then_killed(Size::Small)),
        ("137 points a tick", || hung_then_killed(Size::Usual)),
    ]);
}

/// This takes a third of a core, in bursts.
#[test]
fn a_hang_with_10_000_points_a_tick_and_then_a_kill_loses_nothing_that_was_never_read() {
    side_by_side(&[("10,000 points a tick", || hung_then_killed(Size::Large))]);
}

#[test]
fn a_hang_is_told_from_a_loss_and_from_a_proof() {
    side_by_side(&[
        ("hung, then continued: nothing is sent again", hung_then_continued),
        ("hung over a restart of the daemon, then killed", hung_over_a_restart),
        ("hung longer than max_age, then killed: counted to the point", || {
            let mut stage = hung("resend_window = \"4s\"\nmax_age = \"8s\"\n", 20)?;
            counted_to_the_point(&mut stage)
        }),
        ("two SIGTERMs at once, hung: one wish; a third one later is another", two_signals),
        ("no window, hung, then killed: nothing twice, counted to the point", || {
            // As an aggregator needs it: a point that was written once is never written again.
            let mut stage = hung("resend_window = \"0s\"\n", 6)?;
            let again = stage.of_carbon("points_resent")?;
            ensure!(again == 0.0, "{again} points were written twice");
            counted_to_the_point(&mut stage)
        }),
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
    let stage = size.stage(queue)?.run()?;
    size.check(&stage)?;
    Ok(stage)
}

fn hung_then_killed(size: Size) -> Result<String> {
    // Carbon takes seconds to store 10,000 points, and what it stores after the window is not
    // promised.
    let (window, hang) = match size {
        Size::Large => ("resend_window = \"12s\"\n", THREE_WINDOWS * 3),
        _ => (WINDOW, THREE_WINDOWS),
    };
    let mut stage = running(size, window)?;
    let frozen = now();
    stage.carbon.process.freeze()?;
    wait::pause(hang);
    stage.carbon_dies()?;
    stage.clean().with_context(|| format!("frozen at {frozen:.1}"))
}

/// Live ticks continue, the gauge shows it, two lines are logged, and no connection is lost.
fn hung_then_continued() -> Result<String> {
    const DOUBT: &str = ".carbon.carbon.gauge-in_doubt";
    let mut stage = running(Size::Small, WINDOW)?;
    stage.until(DOUBT, |doubt| doubt == 0.0)?;
    let (connects, resent) = (stage.of_carbon("connects")?, stage.of_carbon("points_resent")?);
    let frozen = now();
    stage.carbon.process.freeze()?;
    stage.until(DOUBT, |doubt| doubt == 1.0)?;
    let sent = stage.of_carbon("points_sent")?;
    wait::pause(THREE_WINDOWS);
    stage.tick()?;
    ensure!(stage.of_carbon("in_doubt")? == 1.0, "the doubt ended while Carbon hung");
    ensure!(stage.of_carbon("points_sent")? > sent + 200.0, "live ticks stopped");
    stage.carbon.process.thaw()?;
    stage.until(DOUBT, |doubt| doubt == 0.0)?;
    stage.tick()?;
    let more = stage.of_carbon("points_resent")? - resent;
    ensure!(stage.of_carbon("connects")?.to_bits() == connects.to_bits(), "a connection was lost");
    // What the connection that was answered too late had carried, in one second, is not proved.
    ensure!(more <= 100.0, "{more} points were sent again");
    let news: Vec<String> = stage
        .collected
        .news(frozen)
        .map(|entry| format!("{} {}", entry.level, entry.message))
        .collect();
    let warned = news.iter().filter(|line| line.starts_with("WARN")).count();
    ensure!(news.len() == 2 && warned == 1, "not one WARN and one line: {news:?}");
    Ok(format!("{}, said: {news:?}", stage.clean()?))
}

/// timeout(1) signals the process, and then its group: the second signal ended the drain.
fn two_signals() -> Result<String> {
    const CUT_SHORT: &str = "second signal: ending";
    let mut stage = running(Size::Small, WINDOW)?;
    let frozen = now();
    stage.carbon.process.freeze()?;
    stage.tick()?;
    stage.daemon.signal(Signal::TERM)?;
    stage.daemon.signal(Signal::TERM)?;
    wait::pause(Duration::from_millis(1500));
    stage.collected.look()?;
    ensure!(!stage.collected.said(frozen, CUT_SHORT), "the drain was cut short at once");
    stage.daemon.signal(Signal::TERM)?;
    stage.said(frozen, CUT_SHORT)?;
    stage.daemon.wait(Duration::from_secs(5))?;
    stage.carbon.process.thaw()?;
    stage.daemon.spawn()?;
    stage.clean()
}

/// Points for a program that never read them are due at each start.
fn hung_over_a_restart() -> Result<String> {
    let mut stage = Size::Small.stage(WINDOW)?;
    // The end need not wait long for an answer that cannot come.
    stage.plan.drain = "1s";
    stage.configure()?;
    let mut stage = stage.run()?;
    stage.carbon.process.freeze()?;
    stage.ticks(4)?;
    stage.restart(false)?;
    wait::pause(THREE_WINDOWS);
    stage.carbon_dies()?;
    stage.clean()
}

/// Carbon hangs from the beginning, so that it has read nothing, and is then killed.
fn hung(queue: &str, ticks: usize) -> Result<Stage> {
    let mut stage = Size::Small.stage(queue)?;
    stage.carbon.process.freeze()?;
    stage.daemon.spawn()?;
    stage.ticks(ticks)?;
    stage.carbon_dies()?;
    stage.ticks(3)?;
    Ok(stage)
}

/// Something is lost, and exactly that is counted.
pub(crate) fn counted_to_the_point(stage: &mut Stage) -> Result<String> {
    let findings = stage.finish()?;
    ensure!(findings.wrong.is_empty(), "{findings}");
    let counted = stage.counted_as_lost();
    let missing = findings.missing() as f64;
    ensure!(missing > 0.0, "nothing is missing: {findings}");
    ensure!(
        (missing - counted).abs() < 0.5,
        "{missing} are missing, {counted} counted: {findings}"
    );
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
    while stage.nothing_waits("carbon").is_err() {
        ensure!(start.elapsed() < Duration::from_secs(40 * 60), "it does not drain");
    }
    let took = start.elapsed().as_secs_f64();
    Ok(format!("{}, drained in {took:.0} s", stage.clean()?))
}
