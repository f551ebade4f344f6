//! The network between the daemon and Carbon: cut, stuck, restored or replaced; also a name that does not resolve for a
//! while.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::carbon::{Limits, Options};
use sandbox::{Carbon, Folder, Forwarder, Plan, Space, Stage, now, wait};

use super::{SKIPPED, side_by_side};

#[test]
fn a_network_that_fails() {
    side_by_side(&[
        ("no packet gets through for 2 s and 8 s", cut),
        ("forwarding stops 5 s, then goes on", || held(true)),
        ("forwarding stops 5 s, then the connection breaks", || held(false)),
        ("a name that is unknown at first, and again for 5 s", unnamed),
        ("Carbon's host goes between two ticks, interval 6 s, window 5 s", || host_gone("5s", "6s")),
        ("the same with interval and window equal", || host_gone("6s", "6s")),
    ]);
}

/// Nobody closes the connection, and the next tick is written to nobody: it proves nothing about the one before. What
/// Carbon had in memory is gone with its host.
fn host_gone(window: &str, interval: &str) -> Result<String> {
    let folder = Folder::new()?;
    let Some(space) = Space::new(&folder, "true")? else { return Ok(SKIPPED.to_owned()) };
    let mut carbon = Carbon::within(&space, &folder, "carbon", &Options::default())?;
    carbon.process.start()?;
    let mut stage = Stage::with(folder, carbon)?;
    let mut plan = Plan::to(&stage.carbon.address());
    plan.queue = format!("resend_window = \"{window}\"\n");
    stage.configure(&plan)?;
    stage.every(interval)?;
    stage.move_into(&space, true)?;
    stage.daemon.spawn()?;
    // Carbon creates its files at the first tick, and killing it then leaves them broken.
    stage.ticks(2)?;
    stage.settled()?.clean()?;
    stage.carbon.process.stop()?;
    stage.carbon.limit(Limits::Slow)?;
    let since = now();
    stage.carbon.process.start()?;
    stage.connected(since)?;
    stage.tick()?;
    wait::pause(Duration::from_secs(1));
    space.run(&stage.folder, "ip link set lo down")?;
    stage.carbon.process.kill()?;
    stage.carbon.limit(Limits::Wide)?;
    stage.ticks(3)?;
    // The host is a different one now: nothing is left to answer on the old connections.
    let since = now();
    stage.carbon.process.spawn()?;
    space.run(&stage.folder, "ip link set lo up")?;
    stage.carbon.process.wait_ready()?;
    stage.connected(since)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// In a separate network: an established connection sees neither an acknowledgement nor an end.
fn cut() -> Result<String> {
    let folder = Folder::new()?;
    let Some(space) = Space::new(&folder, "true")? else { return Ok(SKIPPED.to_owned()) };
    let mut carbon = Carbon::within(&space, &folder, "carbon", &Options::default())?;
    carbon.process.start()?;
    let mut stage = Stage::with(folder, carbon)?;
    stage.move_into(&space, true)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    // Shorter than stall_timeout: the same connection continues.
    space.run(&stage.folder, "ip link set lo down")?;
    wait::pause(Duration::from_secs(2));
    space.run(&stage.folder, "ip link set lo up")?;
    stage.ticks(4)?;
    let cut = now();
    space.run(&stage.folder, "ip link set lo down")?;
    stage.said(cut, "not connected; ticks are kept")?;
    wait::pause(Duration::from_secs(5));
    space.run(&stage.folder, "ip link set lo up")?;
    stage.connected(cut)?;
    Ok(stage.finish()?.clean()?.to_string())
}

/// As far as the sender can see, what was written is neither lost nor delivered.
fn held(heals: bool) -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let forwarder = Forwarder::start(stage.carbon.pickle_port)?;
    stage.configure(&Plan::to(&forwarder.address()))?;
    stage.daemon.spawn()?;
    stage.steady()?;
    forwarder.hold(true);
    stage.ticks(5)?;
    let since = now();
    if !heals {
        forwarder.break_connections();
    }
    forwarder.hold(false);
    if heals {
        stage.ticks(2)?;
    } else {
        stage.connected(since)?;
    }
    Ok(stage.finish()?.clean()?.to_string())
}

fn unnamed() -> Result<String> {
    let folder = Folder::new()?;
    let (hosts, switch) = (folder.path().join("hosts"), folder.path().join("nsswitch.conf"));
    let (known, unknown) = ("127.0.0.1 localhost carbon.sandbox\n", "127.0.0.1 localhost\n");
    fs::write(&hosts, unknown)?;
    fs::write(&switch, "hosts: files\n")?;
    let script = format!(
        "mount --bind {} /etc/hosts && mount --bind {} /etc/nsswitch.conf",
        hosts.display(),
        switch.display()
    );
    let Some(space) = Space::new(&folder, &script)? else { return Ok(SKIPPED.to_owned()) };
    let mut carbon = Carbon::new(&folder, "carbon", &Options::default())?;
    carbon.process.start()?;
    let mut stage = Stage::with(folder, carbon)?;
    stage.move_into(&space, false)?;
    stage.configure(&Plan::to(&format!("carbon.sandbox:{}", stage.carbon.pickle_port)))?;
    stage.daemon.spawn()?;
    stage.said(0.0, "looking up carbon.sandbox")?;
    stage.ticks(3)?;
    // The file is changed in place: a new file would be hidden by the mount.
    fs::write(&hosts, known)?;
    stage.steady()?;
    fs::write(&hosts, unknown)?;
    let gone = now();
    stage.carbon.process.kill()?;
    stage.carbon.process.start()?;
    stage.said(gone, "looking up carbon.sandbox")?;
    stage.ticks(5)?;
    ensure!(!stage.collected.said(gone, "\"connected"), "it connected to an unknown name");
    fs::write(&hosts, known)?;
    stage.connected(gone)?;
    Ok(stage.finish()?.clean()?.to_string())
}
