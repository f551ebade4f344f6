//! haproxy between the daemon and Carbon: it acknowledges, answers and closes by its own timers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::{Manner, Relay, Sink, destination, wait};

use super::hangs::WINDOW;
use super::side_by_side;
use super::sizes::Size;

#[test]
fn a_proxy_with_timers_of_its_own() {
    side_by_side(&[
        ("it answers a half-close after stall_timeout: no proof", half_close_timer),
        ("it closes what is idle, at a longer interval: each point three times at most", idle_limit),
    ]);
}

/// 35 s and 30 s, divided by five. The program behind the proxy reads nothing.
fn half_close_timer() -> Result<String> {
    let mut stage = Size::Small.stage(WINDOW)?;
    let mut proxy = Relay::haproxy(&stage.folder, stage.carbon.pickle_port, "60s", "7s")?;
    stage.plan.destinations = destination("carbon", &proxy.address()).replace("\"3s\"", "\"2s\"");
    stage.configure()?;
    let mut stage = stage.run()?;
    stage.carbon.process.freeze()?;
    // Two of its answers, each followed by a window.
    wait::pause(Duration::from_secs(26));
    stage.carbon.process.kill()?;
    stage.carbon.process.start()?;
    // The proxy accepts connections before Carbon does.
    stage.ticks(2)?;
    stage.nothing_waits("carbon")?;
    let findings = stage.clean()?;
    ensure!(proxy.process.pid().is_some(), "haproxy has ended");
    Ok(findings)
}

/// 20 s and 60 s, divided by five.
fn idle_limit() -> Result<String> {
    let sink = Sink::start(Manner::Record)?;
    let mut stage = Size::Small.stage("")?;
    let proxy = Relay::haproxy(&stage.folder, sink.port, "4s", "4s")?;
    stage.plan.destinations =
        format!("{}protocol = \"plaintext\"\n", destination("carbon", &proxy.address()));
    stage.plan.interval = "12s";
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(5)?;
    wait::pause(Duration::from_secs(6));
    stage.daemon.kill()?;
    stage.collected.look()?;
    let (bytes, mut written) = (sink.bytes(), BTreeMap::<&str, u32>::new());
    let text = String::from_utf8_lossy(&bytes);
    text.lines().for_each(|line| *written.entry(line).or_default() += 1);
    let mut by_tick = Vec::new();
    for (at, points) in stage.collected.counted() {
        let times = |(path, value): (&String, &f64)| {
            written.get(format!("{path} {value} {at}").as_str()).copied().unwrap_or(0)
        };
        let times: Vec<u32> = points.iter().map(times).collect();
        ensure!(times.iter().all(|&times| times > 0), "a point of {at} did not arrive");
        by_tick.push(times.into_iter().max().unwrap_or(0));
    }
    ensure!(by_tick.iter().all(|&times| times <= 3), "ticks were sent so often: {by_tick:?}");
    Ok(format!("ticks were sent so often: {by_tick:?}"))
}
