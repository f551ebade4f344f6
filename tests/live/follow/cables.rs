//! Two controllers on networks that can be cut: the primary's cable is pulled and plugged in again.
//!
//! Who was active is what Slurm's own logs say. What each host sent is what its own recorder got,
//! and who won is what whisper has. That the state's file system hangs on the primary is imitated:
//! what the primary writes no longer reaches the backup, so that its heartbeat is too old, and it
//! does not see the backup's files either.

use std::time::Duration;

use sandbox::daemon::surveys;
use sandbox::pair::Pair;
use sandbox::{Cables, Folder, FollowingDaemon, now, wait};

use super::{SOON, begin};

const SUBMITTED: &str = "cluster.slurm_sched_stats.gauge-jobs_submitted";

struct World {
    folder: Folder,
    cables: Cables,
    pair: Pair,
    daemons: [FollowingDaemon; 2],
}

impl World {
    fn new() -> Option<Self> {
        let folder = Folder::new().unwrap();
        let Some(cables) = Cables::new(&folder).unwrap() else {
            println!("SKIPPED: networks that can be cut need root");
            return None;
        };
        let mut pair = Pair::cabled(&folder, &cables).unwrap()?;
        pair.slurm.munged.start().unwrap();
        // Finished jobs from slurmctld's own records.
        let finished = surveys(&["finished"]);
        let daemon = |index| FollowingDaemon::cabled(&folder, &cables, index, &finished).unwrap();
        let mut daemons = [daemon(0), daemon(1)];
        begin(&mut pair, &mut daemons);
        Some(Self { folder, cables, pair, daemons })
    }
}

#[test]
#[ignore = "needs networks of its own and some minutes: make ha-long"]
fn a_primary_whose_cable_was_pulled_overwrites_nothing_when_it_is_back() {
    let Some(mut world) = World::new() else { return };
    let said = world.pair.backup.lines().len();
    world.pair.cut_state(&world.folder, true).unwrap();
    world.cables.plug(&world.folder, 0, false).unwrap();
    let pulled = now();
    world.pair.backup.line_after(said, "Running as primary controller", SOON).unwrap();
    let over = now();
    // Jobs that wait, because there is no node, and are cancelled.
    for _ in 0..2 {
        let submit = ["sbatch", "--parsable", "--output=/dev/null", "--wrap", "true"];
        let id = world.pair.on(1, &submit).unwrap();
        world.pair.on(1, &["scancel", id.trim()]).unwrap();
    }
    // A reload in the meantime must not forget that this host is cut off.
    wait::pause(Duration::from_secs(5));
    world.daemons[0].reload(&world.folder, "9s").unwrap();
    // Longer than a connection without an answer lives.
    wait::pause(Duration::from_secs(35));
    let said = world.pair.backup.lines().len();
    let plugged = now();
    world.cables.plug(&world.folder, 0, true).unwrap();
    world.pair.cut_state(&world.folder, false).unwrap();
    // Slurm has put the backup back on standby.
    world.pair.backup.line_after(said, "in background mode", SOON).unwrap();
    let demoted = now();
    let [back, standby] = &mut world.daemons;
    back.is(true, 3, demoted, SOON).unwrap();
    standby.is(false, 3, demoted, SOON).unwrap();
    // Its own ticks of that time have arrived: the queue is empty again.
    wait::until("the own figures of the isolated host", SOON, || {
        let own = back.recorded().own("standby");
        (slot(pulled)..slot(plugged)).all(|at| own.contains_key(&at))
    })
    .unwrap();
    let handovers = back.handovers();
    let [one, other] = world.daemons.each_mut().map(FollowingDaemon::slots);
    let twice: Vec<u64> = one.intersection(&other).copied().collect();
    // From then on Slurm itself has two that are active, until it has put the backup back.
    let early: Vec<&u64> =
        twice.iter().filter(|at| (**at as f64) < plugged.floor() - 1.0).collect();
    assert!(early.is_empty(), "{early:?} are of both");
    assert!(
        handovers.iter().any(|at| *at as f64 > plugged - 1.0),
        "the return is not marked: {handovers:?}"
    );
    let due = slot(over) + 3..slot(plugged) - 2;
    let missing: Vec<u64> = due.clone().filter(|at| !other.contains(at)).collect();
    assert!(missing.is_empty(), "the backup did not publish {missing:?}");
    let [_, standby] = &mut world.daemons;
    let published = standby.recorded().statistics("jobs_submitted");
    let stored = world.cables.carbon.series(SUBMITTED).unwrap();
    for at in due {
        assert_eq!(stored.at(at), published.get(&at).copied(), "whisper at {at}");
    }
    let [back, _] = &mut world.daemons;
    let superseded =
        back.recorded().series("cluster.slurm_graphite.ctl1.carbon.sink.gauge-points_superseded");
    assert!(superseded.values().next_back().is_some_and(|points| *points > 0.0), "{superseded:?}");
}

/// The slot of a moment.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a moment of this century"
)]
fn slot(moment: f64) -> u64 {
    moment as u64
}
