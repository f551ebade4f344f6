//! A proxy between the daemon and Carbon: haproxy acknowledges, answers and closes by its own
//! timers; nginx answers at once, unless its configuration has `proxy_half_close on`.

use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::{Folder, Relay, destination, wait};

use super::hangs::WINDOW;
use super::sizes::Size;

/// It answers a half-close after stall_timeout, which is no proof: 35 s and 30 s, divided by five.
/// The program behind the proxy reads nothing.
#[test]
fn a_proxy_with_timers_of_its_own() -> Result<()> {
    behind(|folder, port| Relay::haproxy(folder, port, "60s", "7s"))
}

#[test]
fn nginx_that_passes_a_half_close_on() -> Result<()> {
    behind(|folder, port| Relay::nginx(folder, port, "proxy_half_close on;"))
}

fn behind(proxy: impl Fn(&Folder, u16) -> Result<Relay>) -> Result<()> {
    let mut stage = Size::Small.stage(WINDOW)?;
    let mut proxy = proxy(&stage.folder, stage.carbon.pickle_port)?;
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
    stage.clean()?;
    ensure!(proxy.process.pid().is_some(), "the proxy has ended");
    Ok(())
}
