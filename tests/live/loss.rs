//! Nothing is lost between the daemon and Carbon: whatever happens, whisper afterwards has every datapoint that the
//! daemon collected, with its value in its slot, and nothing else.
//!
//! The readings are imitated; Carbon, its relays, the networks and the disks are real. Scenarios of one kind run in
//! parallel, each with its own Carbon, because they spend nearly all of their time waiting.
#![expect(clippy::print_stdout, reason = "the figures, for --nocapture")]

mod cache;
mod caps;
mod damage;
mod destinations;
mod disk;
mod flow;
mod full;
mod hangs;
mod memory;
mod moves;
mod network;
mod proxies;
mod receivers;
mod reloads;
mod restarts;
mod sizes;
mod tls;

use std::time::Instant;

use anyhow::{Context, Result};

/// A name, and a function that returns the figures to report.
type Scenario = (&'static str, fn() -> Result<String>);

const SKIPPED: &str = "skipped: this user may not make namespaces";

/// Runs all of them at once, and reports every failure.
fn side_by_side(scenarios: &[Scenario]) {
    let run = |&(name, scenario): &Scenario| {
        let start = Instant::now();
        let figures = scenario().with_context(|| name.to_owned())?;
        println!("{name}: {figures} ({:.0} s)", start.elapsed().as_secs_f64());
        anyhow::Ok(())
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = scenarios.iter().map(|scenario| scope.spawn(move || run(scenario))).collect();
        running
            .into_iter()
            .filter_map(|scenario| scenario.join().unwrap().err())
            .map(|e| format!("{e:?}"))
            .collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
