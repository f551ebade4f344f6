//! The faults of the soak test: each breaks something for a random time and then repairs it.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::carbon::Limits;
use sandbox::{Forwarder, Manner, Sink, TlsProxy, free_port, now, wait};

use crate::{Soak, queue, shell};

const A_DAY: u64 = 24 * 3600;

/// /etc/hosts with and without Carbon's name.
pub(crate) const KNOWN: &str = "127.0.0.1 localhost carbon.sandbox\n";
const UNKNOWN: &str = "127.0.0.1 localhost\n";

pub(crate) type Fault = fn(&mut Soak) -> Result<()>;

/// All faults; each is as likely as the others.
pub(crate) fn faults(tls: bool) -> Vec<(&'static str, Fault)> {
    [FAULTS, queue::FAULTS, if tls { TLS_FAULTS } else { &[] }].concat()
}

/// Faults of the proxy that provides TLS for Carbon.
const TLS_FAULTS: &[(&str, Fault)] = &[
    ("stunnel: SIGKILL", |soak| proxy_killed(soak, false)),
    ("stunnel and Carbon: SIGKILL", |soak| proxy_killed(soak, true)),
    ("stunnel: SIGSTOP", |soak| proxy_frozen(soak, false)),
    ("stunnel: SIGSTOP for longer than the window, then SIGKILL", |soak| proxy_frozen(soak, true)),
];

const FAULTS: &[(&str, Fault)] = &[
    ("Carbon: SIGTERM 0.05-3 s after a write", carbon_ends),
    ("Carbon: SIGKILL", carbon_killed),
    ("Carbon: SIGTERM, back with its limits as shipped", |soak| carbon_limited(soak, false)),
    ("Carbon: SIGKILL, back with its limits as shipped", |soak| carbon_limited(soak, true)),
    ("Carbon: SIGSTOP", carbon_frozen),
    ("Carbon: SIGSTOP for longer than the window, then SIGKILL", carbon_frozen_and_killed),
    ("Carbon and daemon: SIGKILL", both_killed),
    ("Carbon: SIGKILL after a restart of the daemon", carbon_killed_after_a_restart),
    ("port: refused", |soak| port_taken(soak, None)),
    ("port: accepts then closes", |soak| port_taken(soak, Some(Manner::Close))),
    ("port: accepts and never reads", |soak| port_taken(soak, Some(Manner::Silent))),
    ("port: sends bytes without end", port_talks),
    ("another destination: sends bytes without end", other_talks),
    ("network: no packet gets through", network_cut),
    ("network: forwarding stops, then goes on", |soak| forwarding_stops(soak, true)),
    ("network: forwarding stops, then breaks", |soak| forwarding_stops(soak, false)),
    ("network: connection breaks", connection_breaks),
    ("network: name unknown", name_unknown),
    ("network: another address, by a reload", address_moved),
    ("clock: a day ahead for one tick", clock_ahead),
    ("daemon: SIGKILL", daemon_killed),
    ("daemon: SIGKILL in an outage", |soak| in_an_outage(soak, daemon_killed)),
    ("daemon: SIGKILL in a replay", daemon_killed_in_a_replay),
    ("daemon: SIGTERM", daemon_ends),
    ("daemon: SIGTERM in an outage", |soak| in_an_outage(soak, daemon_ends)),
];

fn carbon_ends(soak: &mut Soak) -> Result<()> {
    soak.stage.tick()?;
    soak.pause(0.05, 3.0);
    soak.stage.carbon.process.stop()?;
    soak.pause(0.0, 3.0);
    soak.stage.carbon.process.start()
}

fn carbon_killed(soak: &mut Soak) -> Result<()> {
    soak.pause(0.0, 1.0);
    carbon_dies(soak, 4.0)
}

/// The limits are wide again from the next fault that restarts Carbon. All series exist before the
/// first fault; with these limits Carbon would create only fifty new ones a minute and drop the
/// others.
fn carbon_limited(soak: &mut Soak, killed: bool) -> Result<()> {
    soak.stage.carbon.limit(Limits::AsShipped)?;
    if killed {
        carbon_killed(soak)?
    } else {
        carbon_ends(soak)?
    }
    soak.stage.carbon.limit(Limits::Wide)
}

fn carbon_frozen(soak: &mut Soak) -> Result<()> {
    soak.stage.carbon.process.freeze()?;
    soak.lasts(1.0, 30.0);
    soak.stage.carbon.process.thaw()
}

/// Carbon's kernel has accepted what was written since the freeze, and loses it when Carbon is
/// killed.
fn carbon_frozen_and_killed(soak: &mut Soak) -> Result<()> {
    soak.stage.carbon.process.freeze()?;
    soak.lasts(6.0, 25.0);
    carbon_dies(soak, 2.0)
}

/// The daemon's last sight of Carbon does not prove that Carbon has stored anything: it is killed
/// after the daemon was started again.
fn carbon_killed_after_a_restart(soak: &mut Soak) -> Result<()> {
    soak.stage.tick()?;
    daemon_ends(soak)?;
    soak.pause(0.0, 3.0);
    carbon_dies(soak, 2.0)
}

/// It is back after so many seconds at most.
fn carbon_dies(soak: &mut Soak, longest: f64) -> Result<()> {
    soak.stage.carbon.process.kill()?;
    soak.pause(0.0, longest);
    soak.stage.carbon.process.start()
}

fn both_killed(soak: &mut Soak) -> Result<()> {
    soak.pause(0.0, 1.0);
    soak.stage.carbon.process.kill()?;
    soak.stage.daemon.kill()?;
    soak.stage.daemon.spawn()?;
    soak.pause(0.0, 3.0);
    soak.stage.carbon.process.start()
}

fn proxy_killed(soak: &mut Soak, carbon_too: bool) -> Result<()> {
    soak.pause(0.0, 1.0);
    if let Some(proxy) = &mut soak.tls {
        proxy.process.kill()?;
    }
    if carbon_too {
        carbon_killed(soak)?;
    }
    soak.pause(0.0, 3.0);
    soak.tls.iter_mut().try_for_each(|proxy| proxy.process.start())
}

fn proxy_frozen(soak: &mut Soak, killed: bool) -> Result<()> {
    if let Some(proxy) = &mut soak.tls {
        proxy.process.freeze()?;
    }
    soak.lasts(if killed { 6.0 } else { 1.0 }, 25.0);
    let Some(TlsProxy { process: proxy, .. }) = &mut soak.tls else { return Ok(()) };
    if !killed {
        return proxy.thaw();
    }
    proxy.kill()?;
    proxy.start()
}

fn port_taken(soak: &mut Soak, manner: Option<Manner>) -> Result<()> {
    away(soak);
    let sink = manner.map(|manner| Sink::on(soak.port, manner)).transpose()?;
    soak.lasts(1.0, 30.0);
    drop(sink);
    back(soak)
}

/// No Carbon sends a byte.
fn port_talks(soak: &mut Soak) -> Result<()> {
    away(soak);
    let sink = Sink::on(soak.port, Manner::Talk)?;
    ticks_go_on(soak)?;
    drop(sink);
    back(soak)
}

fn other_talks(soak: &mut Soak) -> Result<()> {
    soak.ill.behave(Some(Manner::Talk))?;
    ticks_go_on(soak)
}

/// Whatever a receiver sends, at least every second tick comes, also on a busy machine.
fn ticks_go_on(soak: &mut Soak) -> Result<()> {
    soak.stage.tick()?;
    let before = soak.stage.collected.counted().count();
    soak.lasts(8.0, 30.0);
    soak.stage.collected.look()?;
    let (ticks, length) =
        (soak.stage.collected.counted().count() - before, soak.length.unwrap_or(0.0));
    let enough = ticks as f64 >= length / 2.0;
    ensure!(enough, "{ticks} ticks in {length:.0} s while a receiver sends bytes without end");
    Ok(())
}

fn network_cut(soak: &mut Soak) -> Result<()> {
    shell(&soak.stage.folder, "ip link set lo down")?;
    soak.lasts(2.0, 40.0);
    shell(&soak.stage.folder, "ip link set lo up")
}

fn forwarding_stops(soak: &mut Soak, heals: bool) -> Result<()> {
    soak.forwarder.iter().for_each(|forwarder| forwarder.hold(true));
    soak.lasts(2.0, 40.0);
    if !heals {
        connection_breaks(soak)?;
    }
    soak.forwarder.iter().for_each(|forwarder| forwarder.hold(false));
    Ok(())
}

fn connection_breaks(soak: &mut Soak) -> Result<()> {
    soak.forwarder.iter().for_each(Forwarder::break_connections);
    Ok(())
}

/// The file is changed in place: a new file would be hidden by the mount.
fn name_unknown(soak: &mut Soak) -> Result<()> {
    let hosts = soak.stage.folder.path().join("hosts");
    fs::write(&hosts, UNKNOWN)?;
    connection_breaks(soak)?;
    soak.lasts(1.0, 20.0);
    Ok(fs::write(&hosts, KNOWN)?)
}

/// Nobody answers at the old address any more, and its backlog goes to the new one.
fn address_moved(soak: &mut Soak) -> Result<()> {
    away(soak);
    soak.pause(0.0, 4.0);
    soak.port = free_port()?;
    back(soak)?;
    soak.address();
    soak.stage.reload()?;
    // The daemon's own figures have new paths, and a Carbon that is killed while it creates files
    // leaves them broken.
    soak.stage.steady()
}

/// One tick is made tomorrow, and then the clock goes back.
fn clock_ahead(soak: &mut Soak) -> Result<()> {
    // The age of a tick is unknown for ten minutes if the clock was set since, and it is not sent
    // again: all are read by then.
    soak.recovered()?;
    let before = of_tomorrow(soak);
    soak.clock.set(A_DAY)?;
    wait::until("a tick of tomorrow", Duration::from_secs(10), || of_tomorrow(soak) > before)?;
    // The second of that tick must be over, because it may have its own tick.
    soak.pause(1.2, 3.0);
    soak.clock.set(0)?;
    // Two windows: that of tomorrow cannot become due again.
    soak.stage.ticks(12)?;
    soak.recovered()
}

fn of_tomorrow(soak: &mut Soak) -> usize {
    if soak.stage.collected.look().is_err() {
        return 0;
    }
    let from = now() + 3600.0;
    soak.stage.collected.counted().filter(|(at, _)| *at as f64 > from).count()
}

fn daemon_killed(soak: &mut Soak) -> Result<()> {
    soak.pause(0.0, 1.0);
    soak.stage.daemon.kill()?;
    soak.pause(0.0, 2.0);
    soak.stage.daemon.spawn()
}

fn in_an_outage(soak: &mut Soak, fault: Fault) -> Result<()> {
    away(soak);
    soak.pause(1.0, 4.0);
    fault(soak)?;
    soak.pause(1.0, 4.0);
    back(soak)
}

fn daemon_killed_in_a_replay(soak: &mut Soak) -> Result<()> {
    away(soak);
    soak.pause(2.0, 6.0);
    let since = now();
    back(soak)?;
    soak.stage.connected(since)?;
    soak.pause(0.0, 0.5);
    soak.stage.restart(true)
}

fn daemon_ends(soak: &mut Soak) -> Result<()> {
    soak.stage.restart(false)
}

pub(crate) fn away(soak: &mut Soak) {
    soak.forwarder = None;
}

pub(crate) fn back(soak: &mut Soak) -> Result<()> {
    soak.forwarder = Some(Forwarder::on(soak.port, soak.receiver())?);
    Ok(())
}
