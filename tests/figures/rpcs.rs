//! What the collector costs slurmctld, by slurmctld's own count.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox::{RpcRow, Sandbox, Sdiag, proc, wait};

use crate::SOON;
use crate::observation::{now, path};

const TICKS: u64 = 10;

#[test]
fn a_tick_is_one_rpc_and_a_reader_asks_for_the_configuration_once() {
    let sandbox = Sandbox::start().unwrap();
    let before = count(&sandbox.slurm.sdiag().unwrap(), "REQUEST_BUILD_INFO");
    let mut collector = sandbox.collector(&["--interval", "1s"]).unwrap();
    let first = now() + 3;
    let at = |tick| sandbox.value_at(&path("jobs_submitted"), tick, SOON).unwrap();
    let (start_tick, start, _) = sdiag_within(&sandbox, first);
    assert_eq!(count(&start, "REQUEST_BUILD_INFO"), before + 1);
    let (end_tick, end, asked) = sdiag_within(&sandbox, start_tick + TICKS);
    let mut grown: BTreeMap<String, u64> = end
        .by_type
        .iter()
        .map(|row| (row.name.clone(), row.count - count(&start, &row.name)))
        .filter(|(_, more)| *more > 0)
        .collect();
    // slurmd's own, at times of its own.
    grown.remove("MESSAGE_NODE_REGISTRATION_STATUS");
    // sdiag is counted after its answer: the first one in the second.
    assert_eq!(grown, BTreeMap::from([("REQUEST_STATS_INFO".to_owned(), end_tick - start_tick + asked)]));

    let readers = proc::children(collector.pid().unwrap());
    assert_eq!(readers.len(), 1, "{readers:?}");
    readers.into_iter().for_each(|reader| proc::signal(reader, proc::Signal::KILL).unwrap());
    wait::until("another reader's first RPC", SOON, || {
        count(&sandbox.slurm.sdiag().unwrap(), "REQUEST_BUILD_INFO") == before + 2
    })
    .unwrap();
    let again = now() + 2;
    at(again);
    assert_eq!(count(&sandbox.slurm.sdiag().unwrap(), "REQUEST_BUILD_INFO"), before + 2);
    assert!(collector.stop().unwrap().after < Duration::from_secs(5));
}

/// sdiag in the second of a tick that is stored, so that what it counts is known: this tick or, on a machine that is too
/// slow for that, a later one. And how often sdiag was asked.
fn sdiag_within(sandbox: &Sandbox, mut tick: u64) -> (u64, Sdiag, u64) {
    for asked in 1.. {
        sandbox.value_at(&path("jobs_submitted"), tick, SOON).unwrap();
        let sdiag = sandbox.slurm.sdiag().unwrap();
        if now() == tick {
            return (tick, sdiag, asked);
        }
        tick = now() + 1;
    }
    unreachable!("it is asked for ever")
}

fn count(sdiag: &Sdiag, name: &str) -> u64 {
    let named = |row: &&RpcRow| row.name == name;
    sdiag.by_type.iter().find(named).map_or(0, |row| row.count)
}
