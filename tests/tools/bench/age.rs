//! What ten minutes of uptime add to a tick, in instructions, which the load of the machine does not
//! change.
//!
//! The queue holds what was sent within `resend_window`, by default ten minutes. The fast clock
//! makes as many ticks of one second in half a minute.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use sandbox::{Process, Sandbox, find_program};
use tools::{above, say};

use crate::memory::fast_program;
use crate::peer::Peer;
use crate::turns::start;

/// Ticks a second of the fast clock: a tick takes some 15 ms in callgrind.
const RATE: u64 = 20;
/// The ticks of both windows: from the tenth second on, and from the tenth minute on.
const WINDOWS: [[u64; 2]; 2] = [[10, 60], [600, 650]];

/// The target: how much more a tick may need.
const MOST: f64 = 1.1;

/// Counts the instructions of the daemon with the native reader. Returns the targets that were
/// missed.
pub(crate) fn age(sandbox: &Sandbox) -> Result<Vec<String>> {
    let peer = Peer::start()?;
    let toml = format!(
        "[slurm]\nconf = {:?}\nreader = \"native\"\n[[carbon]]\naddress = {:?}\n",
        sandbox.slurm.conf(),
        peer.address
    );
    let dump = sandbox.path("callgrind").display().to_string();
    let valgrind = Process::new(&sandbox.folder, "age", find_program("valgrind")?)
        .args(["--tool=callgrind", &format!("--callgrind-out-file={dump}")])
        .args([fast_program()?])
        .env("SLURM_GRAPHITE_CLOCK_RATE", RATE.to_string());
    let mut valgrind = start(valgrind, &sandbox.folder, "age", &toml)?;
    let pid = valgrind.pid().context("the daemon has ended")?.to_string();
    let control = find_program("callgrind_control")?;
    let mut dumps = 0;
    // Which counts what came after the dump before it.
    let mut instructions_until = |tick: u64| -> Result<(u64, f64)> {
        peer.until(tick, Duration::from_secs(120))?;
        sandbox::output(
            sandbox::command(sandbox.folder.path(), &control),
            [format!("--dump={tick}"), pid.clone()],
        )?;
        dumps += 1;
        let text = fs::read_to_string(format!("{dump}.{dumps}"))?;
        let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
        Ok((peer.ticks(), total.context("callgrind counted nothing")?.trim().parse()?))
    };
    let mut a_tick = [0.0; 2];
    for (a_tick, [first, last]) in a_tick.iter_mut().zip(WINDOWS) {
        let (first, _) = instructions_until(first)?;
        let (last, instructions) = instructions_until(last)?;
        *a_tick = instructions / (last - first) as f64;
    }
    valgrind.stop()?;
    let [young, old] = a_tick;
    say(&format!(
        "A tick of the native reader needs {:.0} k instructions after ten seconds at one tick a \
         second, and {:.0} k after ten minutes: {:.2} times as many.\n\n",
        young / 1e3,
        old / 1e3,
        old / young
    ))?;
    Ok(above([("instructions after ten minutes, compared with ten seconds", old / young, MOST)]))
}
