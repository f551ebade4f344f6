//! The network between the daemon and Carbon: cut, or gone with Carbon's host; also a name that
//! does not resolve for a while.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::carbon::Limits;
use sandbox::{Folder, Space, Stage, destination, now, wait};

use super::{SKIPPED, isolated, side_by_side};

#[test]
fn a_network_that_fails() {
    side_by_side(&[
        ("no packet gets through for 2 s and 8 s", cut),
        ("a name that is unknown at first, and again for 5 s", unnamed),
        ("Carbon's host goes between two ticks, interval 12 s, window 10 s", || host_gone(10)),
        ("the same with interval and window equal", || host_gone(12)),
    ]);
}

/// Nobody closes the connection, and the next tick is written to nobody: it proves nothing about
/// the one before. What Carbon had in memory is gone with its host. If that took longer than the
/// window, Carbon would have been seen to read on.
fn host_gone(window: u32) -> Result<String> {
    let Some((mut stage, space)) = isolated()? else { return Ok(SKIPPED.to_owned()) };
    stage.plan.queue = format!("resend_window = \"{window}s\"\n");
    stage.plan.interval = "12s";
    stage.configure()?;
    stage.daemon.spawn()?;
    // Carbon creates its files at the first tick, and killing it then leaves them broken.
    stage.ticks(2)?;
    stage.settled()?.clean()?;
    stage.carbon.process.stop()?;
    stage.carbon.limit(Limits::Slow)?;
    stage.carbon_back()?;
    stage.tick()?;
    let ticked = now();
    wait::pause(Duration::from_secs(1));
    space.run(&stage.folder, "ip link set lo down")?;
    stage.carbon.process.kill()?;
    let took = now() - ticked;
    ensure!(took < f64::from(window) - 2.0, "its end took {took:.1} s: the case has not occurred");
    stage.carbon.limit(Limits::Wide)?;
    stage.ticks(3)?;
    // The host is a different one now: nothing is left to answer on the old connections.
    let since = now();
    stage.carbon.process.spawn()?;
    space.run(&stage.folder, "ip link set lo up")?;
    stage.carbon.process.wait_ready()?;
    stage.connected(since)?;
    stage.clean()
}

/// In a separate network: an established connection sees neither an acknowledgement nor an end.
fn cut() -> Result<String> {
    let Some((stage, space)) = isolated()? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = stage.run()?;
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
    stage.clean()
}

fn unnamed() -> Result<String> {
    let folder = Folder::new()?;
    let [hosts, switch] = ["hosts", "nsswitch.conf"].map(|name| folder.path().join(name));
    let (known, unknown) = ("127.0.0.1 localhost carbon.sandbox\n", "127.0.0.1 localhost\n");
    fs::write(&hosts, unknown)?;
    fs::write(&switch, "hosts: files\n")?;
    let bind = [hosts.display(), switch.display()];
    let script = format!(
        "mount --bind {} /etc/hosts && mount --bind {} /etc/nsswitch.conf",
        bind[0], bind[1]
    );
    let Some(space) = Space::new(&folder, &script)? else { return Ok(SKIPPED.to_owned()) };
    let mut stage = Stage::within(folder, &space, false)?;
    let address = format!("carbon.sandbox:{}", stage.carbon.pickle_port);
    stage.plan.destinations = destination("carbon", &address);
    stage.configure()?;
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
    stage.clean()
}
