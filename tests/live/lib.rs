//! The live tests: the program against a real slurmctld and a real Carbon, each test in a separate
//! sandbox.
//!
//! They spend most of their time waiting, so `make test` runs many at once. Tests that measure time
//! or keep the cores busy run afterwards, two at once or alone (tests/stages.sh lists them).

#![cfg(test)]

mod cluster;
mod commands;
mod dashboards;
mod documentation;
mod expected_start;
mod failover;
mod faults_reader;
mod faults_slurm;
mod figures;
mod finished;
mod folders;
mod follow;
mod install;
mod leaks;
mod loss;
mod native;
mod node_events;
mod one_thread;
mod packages_chroot;
mod release;
mod releases;
mod rest;
mod sandbox_itself;
mod service;
mod status;
mod survey;
mod tags;
mod unchanged;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sandbox::wait;

/// Time to wait on a busy machine. It is not a promise, and nothing takes this long normally.
const SOON: Duration = wait::LIMIT;

/// A name, and a function that returns the figures to report.
type Scenario = (&'static str, fn() -> Result<String>);

/// Runs all of them at once, and reports every failure.
#[expect(clippy::print_stdout, reason = "the figures, for --nocapture")]
fn side_by_side(scenarios: &[Scenario]) {
    let run = |&(name, scenario): &Scenario| {
        let start = Instant::now();
        let figures = scenario().with_context(|| name.to_owned())?;
        println!("{name}: {figures} ({:.0} s)", start.elapsed().as_secs_f64());
        anyhow::Ok(())
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> =
            scenarios.iter().map(|scenario| scope.spawn(move || run(scenario))).collect();
        let ended = running.into_iter().zip(scenarios);
        ended
            .filter_map(|(running, (name, _))| match running.join() {
                Ok(result) => result.err().map(|error| format!("{error:?}")),
                Err(_) => Some(format!("{name} has panicked")),
            })
            .collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
