//! haproxy between the daemon and Carbon: it acknowledges, answers and closes by its own timers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::{Haproxy, Manner, Sink, destination, wait};

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
    let mut stage = Size::Small.stage("resend_window = \"4s\"\n")?;
    let mut proxy = Haproxy::start(&stage.folder, stage.carbon.pickle_port, "60s", "7s")?;
    let mut plan = Size::Small.plan(&stage, &proxy.address())?;
    plan.destinations = plan.destinations.replace("\"3s\"", "\"2s\"");
    plan.queue = "resend_window = \"4s\"\n".to_owned();
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    stage.carbon.process.freeze()?;
    // Two of its answers, each followed by a window.
    wait::pause(Duration::from_secs(26));
    stage.carbon.process.kill()?;
    stage.carbon.process.start()?;
    // The proxy accepts connections before Carbon does.
    stage.ticks(2)?;
    stage.nothing_waits("carbon")?;
    let findings = stage.finish()?.clean()?;
    ensure!(proxy.process.pid().is_some(), "haproxy has ended");
    Ok(findings.to_string())
}

/// 20 s and 60 s, divided by five.
fn idle_limit() -> Result<String> {
    let sink = Sink::start(Manner::Record)?;
    let mut stage = Size::Small.stage("")?;
    let _proxy = Haproxy::start(&stage.folder, sink.port, "4s", "4s").map(|proxy| {
        let mut plan = Size::Small.plan(&stage, "")?;
        plan.destinations = format!("{}protocol = \"plaintext\"\n", destination("carbon", &proxy.address()));
        stage.configure(&plan)?;
        anyhow::Ok(proxy)
    })??;
    stage.every("12s")?;
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
