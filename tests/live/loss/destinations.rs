//! Several destinations, relays in front of Carbon, and peers that close idle connections.

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
        ("two destinations, one dead throughout", one_dead),
        ("two destinations, one deaf throughout", one_deaf),
        ("carbon-relay onto two caches", || carbon_relay(false)),
        ("carbon-c-relay onto two caches, plaintext", || c_relay(false)),
        ("a peer that closes connections", closing),
    ]);
}

#[test]
fn a_relay_that_hangs_for_three_windows_and_is_killed() {
    side_by_side(&[("carbon-relay", || carbon_relay(true)), ("carbon-c-relay", || c_relay(true))]);
}

fn one_dead() -> Result<String> {
    live_beside(&format!("127.0.0.1:{}", free_port()?))
}

fn one_deaf() -> Result<String> {
    let deaf = Sink::start(Manner::Silent)?;
    live_beside(&deaf.address())
}

/// A tick is late if it still waits when the next one is made.
fn live_beside(other: &str) -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let mut plan = Plan::to(&stage.carbon.address());
    plan.destinations = format!("{}{}", destination("other", other), plan.destinations);
    plan.top = format!("prefix = \"{}\"\n", ["long"; 4].map(|word| word.repeat(45)).join("."));
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    stage.ticks(6)?;
    // The other destination's share would delay the end of the daemon.
    let since = now();
    stage.daemon.stop()?;
    stage.collected.look()?;
    let mut entries = stage.collected.entries().iter().filter(|entry| entry.at > since);
    let confirmed = |line: &str| line.contains("\"carbon\"") && line.contains(ALL_READ);
    ensure!(entries.any(|entry| confirmed(&entry.line)), "the live one was not confirmed at the end");
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

/// A plan with a sink that only records.
fn to_sink(sink: &Sink) -> Plan {
    Plan {
        destinations: format!("{}protocol = \"plaintext\"\n", destination("sink", &sink.address())),
        queue: "replay_rate = \"100000\"\n".to_owned(),
        ..Plan::default()
    }
}

fn hang_up(stage: &mut Stage, sink: &Sink) -> Result<()> {
    let since = now();
    sink.hang_up();
    stage.connected(since)
}

/// The largest number of times that a datapoint was written, and how many datapoints there are. Each has arrived.
fn writes(stage: &mut Stage, sink: &Sink) -> Result<(u32, usize)> {
    wait::pause(Duration::from_millis(300));
    stage.daemon.kill()?;
    stage.collected.look()?;
    let bytes = sink.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let (mut most, mut datapoints) = (0, 0);
    let mut written = std::collections::BTreeMap::<&str, u32>::new();
    text.lines().for_each(|line| *written.entry(line).or_default() += 1);
    for (at, points) in stage.collected.counted() {
        for (path, value) in points {
            let times = written.get(format!("{path} {value} {at}").as_str()).copied().unwrap_or(0);
            ensure!(times > 0, "{path} at {at} did not arrive");
            (most, datapoints) = (most.max(times), datapoints + 1);
        }
    }
    Ok((most, datapoints))
}

/// However often a peer closes, nothing is lost. One that closes so soon is not idle but failing, and gets everything
/// again each time.
fn closing() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let sink = Sink::start(Manner::Record)?;
    stage.configure(&to_sink(&sink))?;
    stage.daemon.spawn()?;
    stage.connected(0.0)?;
    stage.ticks(1)?;
    let arrived = || !sink.bytes().is_empty();
    wait::until("a datapoint", wait::LIMIT, arrived)?;
    for _ in 0..4 {
        hang_up(&mut stage, &sink)?;
        stage.ticks(2)?;
    }
    let (most, datapoints) = writes(&mut stage, &sink)?;
    ensure!(most == 5, "written {most} times at most");
    Ok(format!("{datapoints} datapoints, 0 lost, written {most} times at most for 4 closes"))
}
