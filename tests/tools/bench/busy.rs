//! The same while a neighbour keeps every core awake.
//!
//! An idle core of a virtual machine is halted, and each wake-up from that is charged to somebody: most of all to programs that
//! sleep often. With a neighbour at the lowest priority no core is halted.

use std::process::{Child, Command, Stdio};

use anyhow::Result;
use sandbox::{Folder, Sandbox, find_program};
use tools::contender::in_turn;

use crate::turns::{Cost, Costs, SETTLE, collector, floor, ratio};
use crate::{HEAD, READINGS, native, row, unreached, wakes};

/// The targets, compared with the C loop.
const MOST_READER: f64 = 0.75;
const MOST_NATIVE: f64 = 1.1;
const MOST_LIBSLURM: f64 = 1.3;
const MOST_NATIVE_KIB: f64 = 9e6 / 1024.0;

/// What a reading costs while the neighbours work.
pub(crate) struct Busy {
    floor: Costs,
    memory: Costs,
    durable: Costs,
    native: Costs,
    native_durable: Costs,
}

/// Loops that end with this.
struct Neighbours(Vec<Child>);

impl Neighbours {
    /// One for each core, which works only when nothing else does.
    fn start(folder: &Folder) -> Result<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let mut neighbours = Self(Vec::new());
        for _ in 0..cores {
            let mut command: Command = sandbox::command(folder.path(), &find_program("nice")?);
            command.args(["-n", "19", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            neighbours.0.push(command.spawn()?);
        }
        Ok(neighbours)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It has not been waited for, so that its number is still its own.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures all of them.
pub(crate) fn busy(sandbox: &Sandbox) -> Result<Busy> {
    let _neighbours = Neighbours::start(&sandbox.folder)?;
    let (conf, carbon) = (sandbox.slurm.conf(), sandbox.carbon.address());
    let toml = format!("[slurm]\nconf = {conf:?}\n[[carbon]]\naddress = {carbon:?}\n[queue]\n");
    let folder = &sandbox.folder;
    let [floor, memory, durable, native, native_durable] = in_turn([
        floor(sandbox, "busy-floor", READINGS)?,
        collector(folder, "busy-memory", |_| toml.clone(), SETTLE, READINGS),
        collector(folder, "busy-durable", |dir| format!("{toml}dir = {dir:?}\n"), SETTLE, READINGS),
        native(sandbox, "busy-native", |_| String::new()),
        native(sandbox, "busy-native-durable", |dir| format!("dir = {dir:?}\n")),
    ])?;
    Ok(Busy { floor, memory, durable, native, native_durable })
}

impl Busy {
    pub(crate) fn table(&self) -> String {
        let Self { floor, memory, durable, native, native_durable } = self;
        let row = |name: &str, costs: &Costs, figure: fn(&Cost) -> f64| row(name, costs, floor, figure, None);
        [
            "While a neighbour at the lowest priority keeps every core awake:\n\n".to_owned(),
            HEAD.to_owned(),
            row("a bare C loop", floor, |cost| cost.own),
            row("slurm-graphite-reader", memory, |cost| cost.child),
            row("**the daemon and it**", memory, Cost::both),
            row("both, with the queue on disk", durable, Cost::both),
            row("slurm-graphite-native-reader", native, |cost| cost.child),
            row("**the daemon and it**", native, Cost::both),
            row("both, with the queue on disk", native_durable, Cost::both),
            wakes([
                ("the C loop", floor),
                ("libslurm's reader and the daemon", memory),
                ("with the queue on disk", durable),
                ("the native reader and the daemon", native),
                ("with the queue on disk", native_durable),
            ]),
        ]
        .concat()
    }

    pub(crate) fn missed(&self) -> Vec<String> {
        let reader = ratio(&self.native, &self.floor, |cost| cost.child);
        let both = ratio(&self.native, &self.floor, Cost::both);
        let libslurm = ratio(&self.memory, &self.floor, Cost::both);
        let kib = self.native.median(Cost::both_kib);
        unreached([
            (
                reader <= MOST_READER,
                format!("the native reader costs {reader:.2} times the C loop, not {MOST_READER}"),
            ),
            (
                both <= MOST_NATIVE,
                format!("daemon and native reader cost {both:.2} times the C loop, not {MOST_NATIVE}"),
            ),
            (
                libslurm <= MOST_LIBSLURM,
                format!(
                    "daemon and libslurm's reader cost {libslurm:.2} times the C loop while neighbours work, not {MOST_LIBSLURM}"
                ),
            ),
            (
                kib <= MOST_NATIVE_KIB,
                format!("{kib:.0} KiB with the native reader, not {MOST_NATIVE_KIB:.0}"),
            ),
        ])
    }
}
