//! The network between the daemon and Carbon: cut, gone with Carbon's host, or dead for the
//! connections that are open; also a name that does not resolve for a while.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use sandbox::carbon::Limits;
use sandbox::{Folder, PathFault, Route, Space, Stage, destination, now, wait};

use super::sizes::Size;
use super::{SKIPPED, isolated, side_by_side};

/// Keys of the destinations: the order, and a short time-out.
const SHORT: &str = "stall_timeout = \"3s\"\n";
const BY_TIME: &str = "order = \"by_time\"\n";

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

/// A path that was dead was taken for a program that hangs: ten ticks came 611 s late, and by time
/// nothing came for 640 s, though the receiver could be reached all the time.
#[test]
fn a_dead_path_is_told_from_a_receiver_that_hangs() {
    side_by_side(&[
        ("our address changes", || dies(PathFault::AnotherAddress, Size::Small, SHORT, 110)),
        ("our address changes, by time", || {
            dies(PathFault::AnotherAddress, Size::Small, &[SHORT, BY_TIME].concat(), 110)
        }),
        ("a firewall forgets", || dies(PathFault::DropsThere, Size::Small, SHORT, 110)),
        ("a firewall forgets what comes back, by time", || {
            dies(PathFault::DropsBack, Size::Small, &[SHORT, BY_TIME].concat(), 110)
        }),
        ("the program is stopped, with room", || stopped(Size::Small, 15, SHORT)),
    ]);
}

/// Between its opening and the next tick the newer connection is dead too, and it was never
/// acknowledged again: no tick came for 600 s.
#[test]
fn a_path_that_is_dead_for_both_connections_costs_less_than_two_minutes() {
    side_by_side(&[
        ("our address changes", || both_die(PathFault::AnotherAddress, SHORT)),
        ("a firewall forgets, by time", || {
            both_die(PathFault::DropsThere, &[SHORT, BY_TIME].concat())
        }),
        ("the host goes while a large tick is written", gone_in_a_write),
    ]);
}

#[test]
fn a_path_that_is_away_for_a_moment_is_no_loss() {
    side_by_side(&[("for 8 s", || away(8, SHORT))]);
}

/// With the default time-outs.
#[test]
#[ignore = "minutes: make loss-long"]
fn a_dead_path_costs_less_than_two_minutes() {
    side_by_side(&[
        ("our address changes", || dies(PathFault::AnotherAddress, Size::Usual, "", 120)),
        ("the same by time", || dies(PathFault::AnotherAddress, Size::Usual, BY_TIME, 120)),
        ("a firewall forgets", || dies(PathFault::DropsThere, Size::Usual, "", 120)),
        ("the same by time", || dies(PathFault::DropsThere, Size::Usual, BY_TIME, 120)),
        ("it forgets what comes back", || dies(PathFault::DropsBack, Size::Usual, "", 120)),
        ("the same by time", || dies(PathFault::DropsBack, Size::Usual, BY_TIME, 120)),
        ("the path is away for 40 s", || away(40, "")),
    ]);
}

/// More than a socket's buffer holds.
#[test]
#[ignore = "minutes: make loss-long"]
fn a_dead_path_with_full_buffers_costs_less_than_two_minutes() {
    side_by_side(&[
        ("our address changes", || dies(PathFault::AnotherAddress, Size::Large, "", 120)),
        ("a firewall forgets, by time", || dies(PathFault::DropsThere, Size::Large, BY_TIME, 120)),
        ("the program is stopped", || stopped(Size::Large, 200, "")),
    ]);
}

/// A daemon and a Carbon on two hosts, between which ticks have gone.
fn routed(size: Size, keys: &str) -> Result<Option<(Route, Stage)>> {
    let Some((route, mut stage)) = Route::stage(keys)? else { return Ok(None) };
    size.set(&mut stage)?;
    Ok(Some((route, stage.run()?)))
}

/// The connections that are open die without a sign; others can be made at once.
fn dies(fault: PathFault, size: Size, keys: &str, latest: u32) -> Result<String> {
    let Some((route, stage)) = routed(size, keys)? else { return Ok(SKIPPED.to_owned()) };
    is_soon_found(&route, stage, fault, latest)
}

/// As [`dies`], while the next connection of each destination is open.
fn both_die(fault: PathFault, keys: &str) -> Result<String> {
    let Some((route, mut stage)) = Route::stage(keys)? else { return Ok(SKIPPED.to_owned()) };
    stage.plan.interval = "10s";
    Size::Small.set(&mut stage)?;
    let stage = stage.run()?;
    wait::until("two connections each", Duration::from_secs(120), || {
        route.open_ports().is_ok_and(|open| open.len() == 4)
    })?;
    is_soon_found(&route, stage, fault, 120)
}

/// A second connection was tried once, and then never again while the write waited.
fn gone_in_a_write() -> Result<String> {
    let Some((route, mut stage)) = routed(Size::Large, SHORT)? else {
        return Ok(SKIPPED.to_owned());
    };
    let cut = now();
    route.plug(&stage.folder, false)?;
    stage.said(cut, "not connected; ticks are kept")?;
    let took = now() - cut;
    ensure!(took < 60.0, "after {took:.0} s");
    route.plug(&stage.folder, true)?;
    stage.connected(cut)?;
    Ok(format!("closed after {took:.0} s; {}", stage.clean()?))
}

fn is_soon_found(route: &Route, mut stage: Stage, fault: PathFault, latest: u32) -> Result<String> {
    let dead = now();
    route.fail(&stage.folder, fault)?;
    stage.ticks(5)?;
    let ticks: Vec<u64> = stage.collected.counted().map(|(tick, _)| tick).collect();
    let late = route.latest(&ticks, Duration::from_secs(latest.into()))?;
    ensure!(late < latest.into(), "a tick came {late:.1} s late");
    // The clock's destination may see its path dead seconds earlier, and a stop does not try again.
    stage.said(dead, "\"connected again\",\"destination\":\"carbon\"")?;
    Ok(format!("at most {late:.1} s late; {}", stage.clean()?))
}

/// After it the newer of two connections is acknowledged before the older one, whose kernel waits
/// longer before it tries again: this alone is no loss.
fn away(seconds: u64, keys: &str) -> Result<String> {
    let Some((route, mut stage)) = routed(Size::Small, keys)? else {
        return Ok(SKIPPED.to_owned());
    };
    let connects = stage.of_carbon("connects")?;
    let cut = now();
    route.plug(&stage.folder, false)?;
    wait::pause(Duration::from_secs(seconds));
    route.plug(&stage.folder, true)?;
    // The older kernel tries again after twice the time at the latest.
    stage.ticks(usize::try_from(seconds)? * 2)?;
    keeps_its_connection(&stage, connects, cut)?;
    // What an answer has not proved in time is sent again by and by; all of it has come.
    stage.stop()?;
    Ok(stage.settled()?.clean()?.to_string())
}

/// The kernel of a stopped program answers.
fn stopped(size: Size, seconds: u64, keys: &str) -> Result<String> {
    let Some((_route, mut stage)) = routed(size, keys)? else { return Ok(SKIPPED.to_owned()) };
    let connects = stage.of_carbon("connects")?;
    let stopped = now();
    stage.carbon.process.freeze()?;
    wait::pause(Duration::from_secs(seconds));
    stage.tick()?;
    keeps_its_connection(&stage, connects, stopped)?;
    stage.carbon.process.thaw()?;
    if size == Size::Large {
        // For 40 minutes after a hang the backlog goes in rounds of a few ticks, one a minute. The
        // next run does not know of the hang.
        stage.said(stopped, "\"reads again")?;
        stage.stop()?;
        stage.resume()?;
        stage.tick()?;
    }
    stage.clean()
}

fn keeps_its_connection(stage: &Stage, connects: f64, since: f64) -> Result<()> {
    let more = stage.of_carbon("connects")? - connects;
    let said: Vec<&str> = stage
        .collected
        .news(since)
        .filter(|entry| entry.message.contains("not connected"))
        .map(|entry| entry.line.as_str())
        .collect();
    ensure!(more == 0.0 && said.is_empty(), "{more} connections were lost: {said:?}");
    Ok(())
}
