//! The cost of a reading while a neighbour keeps every core awake.
//!
//! An idle core of a virtual machine is halted, and each wake-up from that is charged to somebody:
//! most of all to programs that sleep often. With a neighbour at the lowest priority no core is
//! halted.

use anyhow::Result;
use sandbox::{Process, Sandbox, find_program};
use tools::contender::in_turn;
use tools::{above, say};

use crate::turns::Part::{Both, Child, Own};
use crate::turns::{
    C_LOOP, ctypes, floor, of_pyslurm, ours, pyslurm, ratio, table, wakes_and_calls,
};

/// The targets, compared with the C loop.
const MOST_NATIVE: f64 = 1.2;
const MOST_NATIVE_DURABLE: f64 = 1.5;
/// MB.
const MOST_MEMORY: f64 = 7.5;

/// Measures all of them. Returns the targets that were missed.
pub(crate) fn busy(sandbox: &Sandbox) -> Result<Vec<String>> {
    // One for each core, which works only when nothing else does; they end with this.
    let mut neighbours = Vec::new();
    for core in 0..std::thread::available_parallelism()?.get() {
        let neighbour =
            Process::new(&sandbox.folder, &format!("neighbour{core}"), find_program("nice")?);
        let mut neighbour = neighbour.args(["-n", "19", "sh", "-c", "while :; do :; done"]);
        neighbour.spawn()?;
        neighbours.push(neighbour);
    }
    let [floor, memory, durable, native, native_durable, pyslurm, ctypes] = in_turn([
        floor(sandbox, "busy-floor")?,
        ours(sandbox, "busy-memory", "", false),
        ours(sandbox, "busy-durable", "", true),
        ours(sandbox, "busy-native", "native", false),
        ours(sandbox, "busy-native-durable", "native", true),
        pyslurm(sandbox, "busy-pyslurm")?,
        ctypes(sandbox, "busy-ctypes")?,
    ])?;
    let rows = [
        ("a bare C loop", &floor, Own),
        ("slurm-graphite-reader", &memory, Child),
        ("**the daemon and it**", &memory, Both),
        ("both, with the queue on disk", &durable, Both),
        ("**the daemon with `reader = \"native\"`**", &native, Own),
        ("the same with the queue on disk", &native_durable, Own),
        ("a loop in Python with PySlurm and pickle", &pyslurm, Own),
        ("the same with ctypes, which copies less", &ctypes, Own),
    ];
    say("While a neighbour at the lowest priority keeps every core awake:\n\n")?;
    say(&table("a reading of", (C_LOOP, &floor, Own), &rows))?;
    say(&wakes_and_calls([
        ("the C loop", &floor),
        ("libslurm's reader and the daemon", &memory),
        ("with the queue on disk", &durable),
        ("the daemon with the native reader", &native),
        ("with the queue on disk", &native_durable),
    ]))?;
    let of_floor = |costs, part| ratio((costs, part), (&floor, Own));
    let missed = above([
        (
            "the daemon's CPU with the native reader, compared with the C loop",
            of_floor(&native, Own),
            MOST_NATIVE,
        ),
        ("the same with the queue on disk", of_floor(&native_durable, Own), MOST_NATIVE_DURABLE),
        ("MB of memory with the native reader", Own.mb(&native), MOST_MEMORY),
    ]);
    Ok([missed, of_pyslurm(&memory, &pyslurm)].concat())
}
