//! Several destinations, and relays in front of Carbon.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{
    ALL_READ, Carbon, Manner, Plan, Relay, Series, Sink, Stage, destination, free_port, now, wait,
};

use super::side_by_side;

#[test]
fn more_than_one_hop_or_destination() {
    side_by_side(&[
        ("three destinations, one dead and one deaf throughout", dead_and_deaf),
        ("carbon-relay onto two caches", || carbon_relay(false)),
        ("carbon-c-relay onto two caches, plaintext", || c_relay(false)),
    ]);
}

#[test]
fn a_relay_that_hangs_for_three_windows_and_is_killed() {
    side_by_side(&[("carbon-relay", || carbon_relay(true)), ("carbon-c-relay", || c_relay(true))]);
}

/// A tick is late if it still waits when the next one is made. Long paths fill the kernel's buffers of the deaf one in a few
/// seconds; a closed window is a pause and no stall, which the daemon waits for.
fn dead_and_deaf() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let deaf = Sink::start(Manner::Silent)?;
    let mut plan = Plan::to(&stage.carbon.address());
    let dead = destination("dead", &format!("127.0.0.1:{}", free_port()?));
    plan.destinations = destination("deaf", &deaf.address()) + &dead + &plan.destinations;
    let prefix = ["long"; 4].map(|word| word.repeat(45)).join(".");
    plan.top = format!("drain_timeout = \"1s\"\nprefix = \"{prefix}\"\n");
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    stage.until(".carbon.deaf.gauge-queue_ticks", |ticks| ticks >= 4.0)?;
    let since = now();
    let ended = stage.daemon.stop()?;
    // drain_timeout plus the time that a process needs to end.
    ensure!(ended.after < Duration::from_millis(2500), "the end took {:?}", ended.after);
    stage.collected.look()?;
    for (name, words) in [
        ("\"carbon\"", ALL_READ),
        ("\"dead\"", " ticks not sent, 0 to be sent again, 0 sent but not known to be read"),
        ("\"deaf\"", "not known to be read"),
    ] {
        let mut entries = stage.collected.entries().iter().filter(|entry| entry.at > since);
        ensure!(
            entries.any(|entry| entry.line.contains(name) && entry.line.contains(words)),
            "{name} {words}"
        );
    }
    let away = stage.collected.entries().iter().filter(|entry| entry.message.starts_with("not connected; "));
    ensure!(away.count() == 1, "the dead one, once");
    let findings = stage.settled()?.clean()?;
    let path = stage.carbon.paths().into_iter().find(|(path, _)| path.ends_with("carbon.gauge-queue_ticks"));
    let waiting = Series::read(&path.context("no queue_ticks")?.1)?;
    ensure!(waiting.points.values().all(|&ticks| ticks == 0.0), "late: {:?}", waiting.points);
    Ok(format!("{findings}, none of its {} ticks late", waiting.points.len()))
}

fn two_caches() -> Result<Stage> {
    let mut stage = Stage::new(&Options::default())?;
    let mut second = Carbon::new(&stage.folder, "second", &Options::default())?;
    second.process.start()?;
    stage.more.push(second);
    Ok(stage)
}

/// The relay itself is stopped and started, too.
fn carbon_relay(hangs: bool) -> Result<String> {
    let mut stage = two_caches()?;
    let caches: Vec<&Carbon> = std::iter::once(&stage.carbon).chain(&stage.more).collect();
    let relay = Relay::carbon(&stage.folder, &caches)?;
    through(&mut stage, relay, "", hangs)
}

fn c_relay(hangs: bool) -> Result<String> {
    let mut stage = two_caches()?;
    let caches: Vec<&Carbon> = std::iter::once(&stage.carbon).chain(&stage.more).collect();
    let relay = Relay::c(&stage.folder, &caches)?;
    through(&mut stage, relay, "protocol = \"plaintext\"\n", hangs)
}

fn through(stage: &mut Stage, mut relay: Relay, protocol: &str, hangs: bool) -> Result<String> {
    let mut plan = Plan::to(&relay.address());
    plan.destinations.push_str(protocol);
    if hangs {
        plan.queue = "resend_window = \"4s\"\n".to_owned();
    }
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.ticks(4)?;
    if hangs {
        relay.process.freeze()?;
        wait::pause(Duration::from_secs(13));
    }
    let since = now();
    relay.process.kill()?;
    stage.ticks(2)?;
    relay.process.start()?;
    stage.connected(since)?;
    stage.ticks(3)?;
    let findings = stage.finish()?.clean()?;
    let sizes: Vec<usize> =
        std::iter::once(&stage.carbon).chain(&stage.more).map(|cache| cache.paths().len()).collect();
    ensure!(sizes.iter().all(|&size| size > 5), "not spread over both: {sizes:?} series");
    Ok(format!("{findings}, {sizes:?} series"))
}
