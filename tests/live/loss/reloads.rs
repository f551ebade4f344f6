//! SIGHUP: while a configuration is read again, nothing is delayed or lost, and counters continue.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::proc::Signal;
use sandbox::{Imitation, Invocation, Manner, Plan, Sink, Stage, destination, find_program, free_port, now};

use super::side_by_side;

const IN_USE: &str = "the new configuration is in use";

#[test]
fn a_configuration_that_is_read_again() {
    side_by_side(&[
        ("its file system hangs", hung),
        ("a destination's table has changed", changed),
        ("another cluster, whose name is not known yet", another_cluster),
        ("a destination without a name moves", || moved(true)),
        ("a destination without a name moves while the daemon is down", || moved(false)),
        ("a destination is removed, and comes back", removed),
    ]);
}

fn file(stage: &Stage) -> PathBuf {
    stage.folder.path().join("daemon.toml")
}

/// A FIFO returns nothing until somebody writes to it.
fn hung() -> Result<String> {
    let mut stage = Stage::running()?;
    let (file, text) = (file(&stage), fs::read(file(&stage))?);
    fs::remove_file(&file)?;
    Invocation::of(&stage.folder, &find_program("mkfifo")?, &[&file.display().to_string()])?.succeed()?;
    let since = now();
    stage.daemon.signal(Signal::HUP)?;
    stage.ticks(5)?;
    let took = now() - since;
    ensure!((4.0..7.0).contains(&took), "5 ticks took {took:.1} s");
    ensure!(!stage.collected.said(since, IN_USE), "it was read");
    // A second signal comes while the file is being read. The file has changed in between, and the new contents must be
    // used.
    stage.daemon.signal(Signal::HUP)?;
    stage.ticks(1)?;
    let mut stale = fs::File::options().write(true).open(&file)?;
    fs::remove_file(&file)?;
    fs::write(&file, text)?;
    stale.write_all(b"half of a fi")?;
    drop(stale);
    stage.said(since, IN_USE)?;
    ensure!(!stage.collected.said(since, "is refused"), "what was half written was looked at");
    stage.ticks(1)?;
    Ok(format!("{}, 5 ticks in {took:.1} s", stage.finish()?.clean()?))
}

fn changed() -> Result<String> {
    let mut stage = Stage::running()?;
    let sent = stage.counter("carbon.carbon.gauge-points_sent")?;
    let mut plan = Plan::to(&stage.carbon.address());
    plan.destinations = plan.destinations.replace("\"3s\"", "\"4s\"");
    stage.configure(&plan)?;
    let since = now();
    stage.daemon.signal(Signal::HUP)?;
    stage.said(since, IN_USE)?;
    stage.connected(since)?;
    stage.ticks(3)?;
    let connects = stage.counter("carbon.carbon.gauge-connects")?;
    let after = stage.counter("carbon.carbon.gauge-points_sent")?;
    ensure!((connects - 2.0).abs() < 0.1, "{connects} connections were counted");
    ensure!(sent > 0.0 && after > sent, "{sent} points sent before, {after} after");
    Ok(format!("{}, {sent} points sent before and {after} after", stage.finish()?.clean()?))
}

/// Nothing of the new cluster is published under the old one's name, and the log says again who answers.
fn another_cluster() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let mut plan = Plan::to(&stage.carbon.address());
    plan.top = "prefix = \"cluster.{cluster}\"\n".to_owned();
    stage.configure(&plan)?;
    stage.daemon.spawn()?;
    stage.steady()?;
    let old = Imitation::good(&stage.folder)?.toml();
    let new = Imitation::new(&stage.folder, "second", "sleep 3; hello; serve")?.toml();
    let script = stage.folder.path().join("second");
    fs::write(&script, fs::read_to_string(&script)?.replace("\"imitation\"", "\"second\""))?;
    fs::write(file(&stage), fs::read_to_string(file(&stage))?.replace(&old, &new))?;
    let since = now();
    stage.daemon.signal(Signal::HUP)?;
    let in_use = stage.said(since, IN_USE)?.at;
    let answers = stage.said(in_use, "slurmctld answers")?;
    ensure!(answers.line.contains("second"), "{}", answers.line);
    stage.ticks(3)?;
    let ticks: Vec<_> = stage.collected.counted().filter(|(at, _)| *at as f64 > in_use).collect();
    for (at, points) in &ticks {
        let other = points.keys().find(|path| !path.starts_with("cluster.second."));
        ensure!(other.is_none(), "at {at}: {other:?}");
    }
    let first = ticks.first().context("no tick")?.0;
    let silent = first as f64 - in_use;
    ensure!(silent > 2.0, "a tick after {silent:.1} s, when the name was not known");
    Ok(stage.finish()?.clean()?.to_string())
}

/// Carbon's host has died, and another replaces it. The queue was for Carbon, wherever it runs.
fn moved(reload: bool) -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let nameless = |address: &str| {
        let mut plan = Plan::to(address);
        plan.destinations = plan.destinations.replace("name = \"carbon\"\n", "");
        plan
    };
    stage.configure(&nameless(&format!("127.0.0.1:{}", free_port()?)))?;
    stage.daemon.spawn()?;
    stage.ticks(5)?;
    if !reload {
        stage.daemon.stop()?;
    }
    let plan = nameless(&stage.carbon.address());
    ensure!(!plan.destinations.contains("name"), "{}", plan.destinations);
    stage.configure(&plan)?;
    let since = now();
    if reload {
        stage.daemon.signal(Signal::HUP)?;
    } else {
        stage.daemon.spawn()?;
    }
    stage.connected(since)?;
    stage.ticks(2)?;
    Ok(stage.finish()?.clean()?.to_string())
}

fn removed() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let with = Plan::to(&stage.carbon.address());
    let sink = Sink::start(Manner::Record)?;
    let without = Plan { destinations: destination("other", &sink.address()), ..with.clone() };
    let both =
        Plan { destinations: format!("{}{}", with.destinations, without.destinations), ..with.clone() };
    stage.carbon.process.stop()?;
    stage.configure(&both)?;
    stage.daemon.spawn()?;
    stage.ticks(4)?;
    stage.configure(&without)?;
    let gone = now();
    stage.daemon.signal(Signal::HUP)?;
    stage.said(gone, "no longer configured")?;
    stage.ticks(2)?;
    // It is kept across a restart, too.
    stage.daemon.stop()?;
    stage.carbon.process.start()?;
    stage.configure(&both)?;
    let back = now();
    stage.daemon.spawn()?;
    stage.connected(back)?;
    stage.ticks(2)?;
    let findings = stage.finish()?;
    // Points collected while it was not configured were not for it.
    let others = findings.lost.keys().filter(|&&at| !(gone - 1.0..back).contains(&(at as f64))).count();
    ensure!(findings.wrong.is_empty() && others == 0 && !findings.lost.is_empty(), "{findings}");
    Ok(findings.to_string())
}
