//! carbon-cache is stopped, killed, frozen or full.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::{Limits, Options};
use sandbox::{Stage, now, wait};

use super::side_by_side;

const AWAY: &str = "not connected; ticks are kept, trying again";
const BACK: &str = "back after ";

#[test]
fn a_carbon_that_ends_or_stops() {
    side_by_side(&[
        ("SIGTERM 0.05-3 s after a write, and SIGKILL", ended),
        ("SIGSTOP 5 s", frozen),
        ("its cache full, flow control on", full),
    ]);
}

/// Carbon goes and comes back: one line each, and the first attempt after its return, within the
/// longest delay for that many failures, succeeds.
fn outage(stage: &mut Stage, go: impl FnOnce(&mut Stage) -> Result<()>) -> Result<()> {
    let gone = now();
    go(stage)?;
    let start = now();
    stage.carbon.process.start()?;
    let back = now();
    let took = stage.said(start, "\"connected")?.at - back;
    stage.said(gone, BACK)?;
    let entries: Vec<_> =
        stage.collected.entries().iter().filter(|entry| entry.at > gone).collect();
    let failures = entries
        .iter()
        .filter(|entry| entry.line.contains("not connected") && entry.at < back)
        .count();
    let limit = (0.25 * 2.0_f64.powi(i32::try_from(failures)?)).min(30.0);
    ensure!(took < limit + 0.5, "{took:.1} s, {failures} failures before");
    let known = |message: &str| [AWAY, BACK].into_iter().find(|known| message.starts_with(known));
    let news: Vec<_> = entries
        .iter()
        .filter(|entry| entry.is_news())
        .filter_map(|entry| known(&entry.message))
        .collect();
    ensure!(news == [AWAY, BACK], "{news:?}");
    Ok(())
}

/// Every second has its tick, every tick is in whisper, and none is called lost.
fn clean(mut stage: Stage) -> Result<String> {
    let findings = stage.finish()?.clean()?;
    let (first, last) = findings.span.context("no tick")?;
    ensure!(last - first + 1 == findings.ticks as u64, "a second without a tick: {findings}");
    ensure!(stage.counted_as_lost() == 0.0, "{} points are called lost", stage.counted_as_lost());
    Ok(findings.to_string())
}

/// It ends so long after a write, and stays away. Points that Carbon has received are lost without
/// a sign if it ends soon after that, and with SIGKILL so is what it had in its memory.
fn ended() -> Result<String> {
    let mut stage = Stage::running()?;
    let random = || fastrand::f64() * 2.0;
    let terminated = [0.05, 0.3, 1.2, 3.0].map(|after| (false, after, 0.0));
    let killed = [0.0, 2.0, 4.0, 6.0].map(|away| (true, random(), away));
    for (kill, after, away) in terminated.into_iter().chain(killed) {
        stage.tick()?;
        wait::pause(Duration::from_secs_f64(after));
        outage(&mut stage, |stage| {
            if kill { stage.carbon.process.kill() } else { stage.carbon.process.stop() }?;
            wait::pause(Duration::from_secs_f64(away));
            Ok(())
        })?;
    }
    ensure!(
        stage.of_carbon("points_resent")? > 0.0,
        "what Carbon had in its memory is not sent again"
    );
    clean(stage)
}

/// The connection is kept, and nothing is said.
fn frozen() -> Result<String> {
    let mut stage = Stage::running()?;
    let frozen = now();
    for _ in 0..2 {
        stage.carbon.process.freeze()?;
        wait::pause(Duration::from_secs(5));
        stage.carbon.process.thaw()?;
        stage.ticks(2)?;
    }
    let news: Vec<_> = stage.collected.news(frozen).collect();
    ensure!(news.is_empty(), "{news:?}");
    ensure!(stage.of_carbon("connects")? == 1.0, "it was connected again");
    clean(stage)
}

/// Carbon discards what does not fit, logs each such point, and then pauses.
fn full() -> Result<String> {
    let mut stage = Stage::new(&Options { limits: Limits::Tight, ..Options::default() })?;
    stage.daemon.spawn()?;
    stage.ticks(15)?;
    let findings = stage.finish()?;
    let dropped = stage.carbon.dropped();
    ensure!(findings.wrong.is_empty(), "{findings}");
    ensure!(dropped > 0, "Carbon's cache never was full");
    ensure!(findings.missing() == dropped, "Carbon dropped {dropped}: {findings}");
    Ok(format!(
        "{} datapoints, {dropped} dropped by Carbon, exactly these are missing",
        findings.checked
    ))
}
