//! Several destinations, and relays in front of Carbon.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::{
    ALL_READ, Carbon, Folder, Manner, Relay, Series, Sink, Stage, destination, free_port, now, wait,
};

use super::hangs::{THREE_WINDOWS, WINDOW};
use super::{LONG, dies, side_by_side};

#[test]
fn more_than_one_hop_or_destination() {
    side_by_side(&[
        ("three destinations, one dead and one deaf throughout", dead_and_deaf),
        ("carbon-relay onto two caches hangs, and is killed", || through(Relay::carbon, "")),
        ("carbon-c-relay, plaintext, the same", || through(Relay::c, "protocol = \"plaintext\"\n")),
    ]);
}

/// A tick is late if it still waits when the next one is made. Long paths fill the kernel's buffers
/// of the deaf one in a few seconds; a closed window is a pause and no stall, which the daemon
/// waits for.
fn dead_and_deaf() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let deaf = Sink::start(Manner::Silent)?;
    let dead = destination("dead", &format!("127.0.0.1:{}", free_port()?));
    stage.plan.destinations =
        destination("deaf", &deaf.address()) + &dead + &stage.plan.destinations;
    stage.plan.top = format!("prefix = \"{}\"\n", LONG.map(|word| word.repeat(45)).join("."));
    stage.plan.drain = "5s";
    stage.configure()?;
    let mut stage = stage.run()?;
    stage.until(".carbon.deaf.gauge-queue_ticks", |ticks| ticks >= 4.0)?;
    let since = now();
    let ended = stage.stop()?;
    // drain_timeout plus the time that a process needs to end.
    ensure!(ended.after < Duration::from_millis(7500), "the end took {:?}", ended.after);
    for (name, words) in [
        ("\"carbon\"", ALL_READ),
        ("\"dead\"", " ticks not sent, 0 to be sent again, 0 sent but not known to be read"),
        ("\"deaf\"", "not known to be read"),
    ] {
        let mut entries = stage.collected.entries().iter().filter(|entry| entry.at > since);
        let is_said = entries.any(|entry| entry.line.contains(name) && entry.line.contains(words));
        ensure!(is_said, "{name} {words}");
    }
    let away = stage
        .collected
        .entries()
        .iter()
        .filter(|entry| entry.message.starts_with("not connected; "));
    ensure!(away.count() == 1, "the dead one, once");
    let findings = stage.settled()?.clean()?;
    let path = stage
        .carbon
        .paths()
        .into_iter()
        .find(|(path, _)| path.ends_with("carbon.gauge-queue_ticks"));
    let waiting = Series::read(&path.context("no queue_ticks")?.1)?;
    ensure!(waiting.points.values().all(|&ticks| ticks == 0.0), "late: {:?}", waiting.points);
    Ok(format!("{findings}, none of its {} ticks late", waiting.points.len()))
}

/// Through a relay onto two caches, which hangs for three windows and is killed.
fn through(relay: fn(&Folder, &[&Carbon]) -> Result<Relay>, protocol: &str) -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    stage.more.push(Carbon::start(&stage.folder, "second", &Options::default())?);
    let mut relay = relay(&stage.folder, &stage.carbons().collect::<Vec<_>>())?;
    stage.plan.destinations = destination("carbon", &relay.address()) + protocol;
    stage.plan.queue = WINDOW.to_owned();
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(4)?;
    relay.process.freeze()?;
    wait::pause(THREE_WINDOWS);
    dies(&mut stage, &mut relay.process)?;
    stage.ticks(1)?;
    let findings = stage.clean()?;
    let sizes: Vec<usize> = stage.carbons().map(|cache| cache.paths().len()).collect();
    ensure!(sizes.iter().all(|&size| size > 5), "not spread over both: {sizes:?} series");
    Ok(format!("{findings}, {sizes:?} series"))
}
