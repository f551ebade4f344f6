//! `[slurm] follow`: a daemon on the host of each of two controllers. Only the one next to the
//! active slurmctld publishes.
#![expect(clippy::print_stdout, reason = "the harness captures it")]

mod accounting;
mod cables;
mod long;

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;
use sandbox::daemon::surveys;
use sandbox::pair::Pair;
use sandbox::proc::Signal;
use sandbox::{Folder, FollowingDaemon, IN_USE, now, wait};

use super::SOON;
use super::failover::pair;

/// Two slurmctlds with a daemon each; only munged is started. `None` if separate host names are not
/// allowed.
fn hosts(folder: &Folder) -> Result<Option<(Pair, [FollowingDaemon; 2])>> {
    let Some(pair) = pair(folder) else { return Ok(None) };
    // Surveys follow too.
    let daemon = |index| FollowingDaemon::new(folder, index, &surveys(&["nodes", "controllers"]));
    Ok(Some((pair, [daemon(0)?, daemon(1)?])))
}

/// Starts all of them, and waits until the primary's daemon publishes and the backup's does not.
fn begin(pair: &mut Pair, daemons: &mut [FollowingDaemon; 2]) {
    pair.primary.start().unwrap();
    pair.backup.start().unwrap();
    let start = now();
    daemons.iter_mut().for_each(|daemon| daemon.process.spawn().unwrap());
    daemons[0].is(true, 3, start, SOON).unwrap();
    daemons[1].is(false, 3, start, SOON).unwrap();
}

/// A pair of which only the primary and its daemon have been started, and the daemon has published.
fn primary(folder: &Folder) -> Option<(Pair, FollowingDaemon)> {
    let (mut pair, [mut daemon, _]) = hosts(folder).unwrap()?;
    pair.primary.start().unwrap();
    let start = now();
    daemon.process.spawn().unwrap();
    daemon.is(true, 3, start, SOON).unwrap();
    Some((pair, daemon))
}

/// Slots that both daemons published must be near a hand-over, at most one for each.
fn written_twice(daemons: &mut [FollowingDaemon; 2]) {
    let [one, other] = daemons;
    let twice: BTreeSet<u64> = one.slots().intersection(&other.slots()).copied().collect();
    let handovers: BTreeSet<u64> = one.handovers().union(&other.handovers()).copied().collect();
    for at in &twice {
        assert!(
            handovers.range(at - 1..=at + 1).next().is_some(),
            "{at} is of both; hand-overs: {handovers:?}"
        );
    }
    assert!(twice.len() <= handovers.len(), "{twice:?}, {handovers:?}");
}

#[test]
fn a_primary_that_hangs_and_returns_leaves_no_slot_to_both_and_no_gap_but_slurms() {
    let folder = Folder::new().unwrap();
    let Some((mut pair, mut daemons)) = hosts(&folder).unwrap() else { return };
    begin(&mut pair, &mut daemons);
    let refusals =
        || pair.backup.lines().iter().filter(|line| line.contains("while in standby mode")).count();
    let refused = refusals();
    assert!(refused <= 2, "{refused} lines in the log of a backup that need not be asked");

    let said = FollowingDaemon::doctor(&folder, "ctl2").unwrap();
    assert!(
        said.contains("✓ follow: this host is ctl2; ctl1 comes before it in SlurmctldHost"),
        "{said}"
    );
    // Its kernel accepts pings, but none is answered.
    let frozen = now();
    pair.primary.freeze().unwrap();
    pair.backup.line("Running as primary controller", SOON).unwrap();
    let over = now();
    let first_slot = daemons[1].is(true, 3, frozen, SOON).unwrap();
    let first = first_slot as f64;
    // Surveys follow too: the primary, which libslurm would ask first, answers none of them.
    for daemon in &mut daemons {
        let surveyed = || !daemon.recorded().below("cluster.slurm_nodes.").is_empty();
        wait::until("a survey", SOON, surveyed).unwrap();
    }
    pair.primary.kill().unwrap();

    let back = now();
    pair.primary.start().unwrap();
    let up = now();
    let again_slot = daemons[0].is(true, 3, back, SOON).unwrap();
    let again = again_slot as f64;
    daemons[1].is(false, 3, up, SOON).unwrap();

    for daemon in &mut daemons {
        assert!(daemon.check().unwrap().is_empty());
        // The test point of `check` comes as often as `check` runs.
        let twice = daemon.recorded().twice().iter().filter(|line| !line.contains(".gauge-check "));
        assert_eq!(twice.collect::<Vec<_>>(), [""; 0]);
    }
    written_twice(&mut daemons);
    let [one, other] = &mut daemons;
    assert_eq!(other.handovers(), [first_slot].into());
    assert!(one.handovers().contains(&again_slot), "{:?}", one.handovers());
    // Slurm's own gap, one interval, and a margin for a busy machine.
    let slack = 1.0 + 2.0;
    assert!(first <= over + slack, "{:.1} s after the takeover", first - over);
    assert!(again <= up + slack, "{:.1} s after the return", again - up);
    let published: BTreeSet<u64> = one.slots().union(&other.slots()).copied().collect();
    let last = *published.last().unwrap();
    let missing = (*published.first().unwrap()..last)
        .filter(|at| !published.contains(at))
        .map(|at| at as f64);
    for at in missing {
        let is_slurms = (frozen - 1.0..first).contains(&at) || (back - 1.0..again).contains(&at);
        assert!(is_slurms, "{at}: frozen {frozen}, first {first}, back {back}, again {again}");
    }
    // A ping that hangs delays no tick of the daemon that waits for it.
    let ticks = other.recorded().own("standby");
    let (start, end) = (*ticks.keys().next().unwrap(), *ticks.keys().next_back().unwrap());
    assert_eq!(ticks.len() as u64, end - start + 1, "{:?}", ticks.keys());
    for mut daemon in daemons {
        assert!(daemon.process.stop().unwrap().status.success());
    }
    pair.primary.stop().unwrap();
    pair.backup.stop().unwrap();
}

/// A closed port is an answer: no backup can take over. What waited for Carbon, also over a restart
/// of the daemon, used to be dropped as soon as the backup's slurmctld was started.
#[test]
fn nothing_is_superseded_if_only_the_backups_slurmctld_was_stopped() {
    let folder = Folder::new().unwrap();
    let Some((mut pair, mut daemon)) = primary(&folder) else { return };
    for _ in 0..2 {
        daemon.receives(false);
        let closed = now();
        wait::until("more than half of SlurmctldTimeout", SOON, || now() > closed + 6.0).unwrap();
        daemon.process.kill().unwrap();
        daemon.process.spawn().unwrap();
    }
    pair.backup.start().unwrap();
    let up = now();
    wait::until("some slots with both", SOON, || now() > up + 3.0).unwrap();
    let back = now();
    daemon.receives(true);
    daemon.is(true, 3, back, SOON).unwrap();
    nothing_is_missing(&mut daemon, back);
}

/// Waits for an empty queue: also what was written to a lost connection must have been sent again.
fn nothing_is_missing(daemon: &mut FollowingDaemon, since: f64) {
    let leaf = |leaf: &str| format!("cluster.slurm_graphite.ctl1.carbon.sink.gauge-{leaf}");
    wait::until("an empty queue", SOON, || {
        let recorded = daemon.recorded();
        let [unsent, again] =
            ["queue_ticks", "queue_resend"].map(|name| recorded.series(&leaf(name)));
        let is_empty = |at, ticks| ticks < 0.5 && again.get(at).is_some_and(|again| *again < 0.5);
        unsent.iter().any(|(at, ticks)| *at as f64 > since && is_empty(at, *ticks))
    })
    .unwrap();
    assert!(daemon.check().unwrap().is_empty());
    assert!(daemon.recorded().superseded() < 0.5);
    assert!(daemon.slots().len() > 12);
}

/// They used to wait until `max_age`.
#[test]
fn figures_of_an_isolated_host_are_sent_if_follow_is_switched_off() {
    let folder = Folder::new().unwrap();
    let Some((mut pair, mut daemon)) = primary(&folder) else { return };
    pair.backup.start().unwrap();
    pair.backup.freeze().unwrap();
    daemon.receives(false);
    let closed = now();
    wait::until("SlurmctldTimeout", SOON, || now() > closed + 12.0).unwrap();
    let file = folder.path().join("daemon-ctl1.toml");
    let toml = fs::read_to_string(&file).unwrap();
    fs::write(&file, toml.replace("follow = \"slurmctld\"\n", "")).unwrap();
    daemon.process.signal(Signal::HUP).unwrap();
    daemon.process.line(IN_USE, SOON).unwrap();
    pair.backup.thaw().unwrap();
    let back = now();
    daemon.receives(true);
    nothing_is_missing(&mut daemon, back);
}

/// systemd does not restart it (RestartPreventExitStatus=78).
#[test]
fn a_host_that_is_none_of_slurmctldhost_ends_with_78_and_what_to_write() {
    let folder = Folder::new().unwrap();
    let Some((pair, [mut daemon, _])) = hosts(&folder).unwrap() else { return };
    for (hosts, words) in [
        ("SlurmctldHost=login1(127.0.0.1)\nSlurmctldHost=login2(127.0.0.2)\n", "(login1, login2)"),
        // One address that moves: only the cluster manager knows which host has it.
        ("SlurmctldHost=ctl1,ctl2(127.0.0.1)\n", "what moves it must start and stop this daemon"),
    ] {
        pair.slurm.replace(&["SlurmctldHost="], hosts).unwrap();
        daemon.process.spawn().unwrap();
        let ended = daemon.process.wait(SOON).unwrap();
        assert_eq!(ended.status.code(), Some(78));
        let said = daemon.process.lines().join("\n");
        assert!(
            said.contains("slurm.follow: this host, ctl1, is none of SlurmctldHost")
                && said.contains(words),
            "{said}"
        );
    }
}
