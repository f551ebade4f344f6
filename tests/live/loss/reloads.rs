//! SIGHUP: while a configuration is read again, nothing is delayed or lost, and counters continue.

use std::fs;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::Options;
use sandbox::daemon::surveys;
use sandbox::proc::Signal;
use sandbox::{
    Folder, IN_USE, Imitation, Invocation, Manner, Sink, Stage, destination, find_program,
    free_port, now, wait,
};

use slurm_snapshot::{NodeMark, Nodes, Partitions, Reading, Reply, Visibility};

use super::side_by_side;
use super::sizes::Size;

/// libslurm's numbers of node states.
const DOWN: u32 = 1;
const IDLE: u32 = 2;

#[test]
fn a_configuration_that_is_read_again() {
    side_by_side(&[
        ("its file system hangs", hung),
        ("a destination's table has changed", changed),
        ("another cluster, whose name is not known yet", another_cluster),
        ("a destination without a name moves", || moved(true)),
        ("a destination without a name moves while the daemon is down", || moved(false)),
        ("a destination is removed, and comes back", removed),
        ("a destination is removed, and what it never had is counted at max_age", removed_for_good),
    ]);
}

/// A FIFO returns nothing until somebody writes to it.
fn hung() -> Result<String> {
    let mut stage = Stage::running()?;
    let (file, text) = (stage.file(), fs::read(stage.file())?);
    fs::remove_file(&file)?;
    Invocation::of_program(
        &stage.folder,
        &find_program("mkfifo")?,
        &[&file.display().to_string()],
    )?
    .succeed()?;
    let since = now();
    stage.daemon.signal(Signal::HUP)?;
    stage.ticks(5)?;
    let took = now() - since;
    ensure!((4.0..7.0).contains(&took), "5 ticks took {took:.1} s");
    ensure!(!stage.collected.said(since, IN_USE), "it was read");
    // A second signal comes while the file is being read. The file has changed in between, and the
    // new contents must be used.
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
    Ok(format!("{}, 5 ticks in {took:.1} s", stage.clean()?))
}

fn changed() -> Result<String> {
    let mut stage = Stage::running()?;
    let sent = stage.of_carbon("points_sent")?;
    stage.plan.destinations = stage.plan.destinations.replace("\"3s\"", "\"4s\"");
    let since = stage.reload()?;
    stage.connected(since)?;
    stage.ticks(3)?;
    let (connects, after) = (stage.of_carbon("connects")?, stage.of_carbon("points_sent")?);
    ensure!((connects - 2.0).abs() < 0.1, "{connects} connections were counted");
    ensure!(sent > 0.0 && after > sent, "{sent} points sent before, {after} after");
    Ok(format!("{}, {sent} points sent before and {after} after", stage.clean()?))
}

/// A reader whose only node has these states in one round after another; the last stays.
fn with_node(folder: &Folder, name: &str, states: [u32; 3]) -> Result<String> {
    let answer = |state| {
        let marks = vec![NodeMark { name: "n1".to_owned(), state, ..NodeMark::default() }];
        let nodes = Nodes { marks, partitions: Some(Partitions::default()), ..Nodes::default() };
        let visibility = Some(Visibility { private: Vec::new(), privileged: Some(false) });
        let reply = Some(Reply::Nodes(Box::new(nodes)));
        Imitation::answer(Reading { reply, visibility, ..Imitation::reading() })
    };
    let [first, second, third] = states.map(answer);
    let nodes = format!(
        "round=$((round + 1)); case $round in 1) {} ;; 2) {} ;; *) {} ;; esac",
        first?, second?, third?
    );
    let serving = Imitation::serving(&[("nodes", &nodes)], "answer");
    Ok(Imitation::new(folder, name, &format!("sleep 3; {serving}"))?.toml())
}

/// Nothing of the new cluster is published under the old one's name, nothing that was counted of
/// the old one under the new one's, and the log says again who answers.
fn another_cluster() -> Result<String> {
    const BEGUN: &str = ".slurm_nodes.events.total.gauge-begun_total";
    let mut stage = Stage::new(&Options::default())?;
    let nodes = surveys(&["nodes"]).replace("2s", "1s") + "events = true\n";
    stage.plan.top = format!("prefix = \"cluster.{{cluster}}\"\n{nodes}");
    stage.plan.slurm = Some(with_node(&stage.folder, "first", [IDLE, IDLE, DOWN])?);
    stage.configure()?;
    let mut stage = stage.run()?;
    // Survey's points come after the tick's.
    let until = |stage: &mut Stage, cluster: &str, is: fn(f64) -> bool| {
        let path = format!("cluster.{cluster}{BEGUN}");
        wait::until("outages", wait::LIMIT, || {
            let is_it =
                |points: &sandbox::Points| points.get(&path).is_some_and(|begun| is(*begun));
            stage.tick().is_ok() && stage.collected.counted().any(|(_, points)| is_it(points))
        })
    };
    until(&mut stage, "imitation", |begun| begun > 0.5)?;
    stage.plan.slurm = Some(with_node(&stage.folder, "second", [IDLE; 3])?);
    let script = stage.folder.path().join("second");
    fs::write(&script, fs::read_to_string(&script)?.replace("\"imitation\"", "\"second\""))?;
    let since = stage.reload()?;
    let in_use = stage.said(since, IN_USE)?.at;
    let answers = stage.said(in_use, "slurmctld answers")?;
    ensure!(answers.line.contains("second"), "{}", answers.line);
    until(&mut stage, "second", |_| true)?;
    let path = format!("cluster.second{BEGUN}");
    let ticks: Vec<_> = stage.collected.counted().filter(|(at, _)| *at as f64 > in_use).collect();
    for (at, points) in &ticks {
        let other = points.keys().find(|path| !path.starts_with("cluster.second."));
        ensure!(other.is_none(), "at {at}: {other:?}");
    }
    let begun: Vec<f64> =
        ticks.iter().filter_map(|(_, points)| points.get(&path).copied()).collect();
    ensure!(
        !begun.is_empty() && begun.iter().all(|begun| *begun < 0.5),
        "outages of the old cluster: {begun:?}"
    );
    let first = ticks.first().context("no tick")?.0;
    let silent = first as f64 - in_use;
    ensure!(silent > 2.0, "a tick after {silent:.1} s, when the name was not known");
    stage.clean()
}

/// Carbon's host has died, and another replaces it. The queue was for Carbon, wherever it runs.
fn moved(reload: bool) -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let nameless = stage.plan.destinations.replace("name = \"carbon\"\n", "");
    ensure!(!nameless.contains("name"), "{nameless}");
    stage.plan.destinations =
        nameless.replace(&stage.carbon.address(), &format!("127.0.0.1:{}", free_port()?));
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(5)?;
    stage.plan.destinations = nameless;
    let since = if reload {
        stage.reload()?
    } else {
        stage.configure()?;
        let since = now();
        stage.restart(false)?;
        since
    };
    stage.connected(since)?;
    stage.ticks(2)?;
    stage.clean()
}

fn removed() -> Result<String> {
    let mut stage = Stage::new(&Options::default())?;
    let sink = Sink::start(Manner::Record)?;
    let other = destination("other", &sink.address());
    let both = stage.plan.destinations.clone() + &other;
    stage.carbon.process.stop()?;
    stage.plan.destinations.clone_from(&both);
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(4)?;
    stage.plan.destinations = other;
    let gone = stage.reload()?;
    stage.said(gone, "no longer configured")?;
    stage.ticks(2)?;
    // It is kept across a restart, too.
    stage.daemon.stop()?;
    stage.carbon.process.start()?;
    stage.plan.destinations = both;
    stage.configure()?;
    let back = now();
    stage.daemon.spawn()?;
    stage.connected(back)?;
    stage.ticks(2)?;
    let findings = stage.finish()?;
    // Points collected while it was not configured were not for it.
    let others =
        findings.lost.keys().filter(|&&at| !(gone - 1.0..back).contains(&(at as f64))).count();
    ensure!(findings.wrong.is_empty() && others == 0 && !findings.lost.is_empty(), "{findings}");
    Ok(findings.to_string())
}

/// One of two destinations is removed, so nobody can say where its backlog should go: points that
/// it never got are counted when they are dropped.
fn removed_for_good() -> Result<String> {
    const REMOVED: &str = ".queue.gauge-points_dropped_removed";
    let mut stage = Size::Small.stage("max_age = \"15s\"\nresend_window = \"4s\"\n")?;
    let without = stage.plan.destinations.clone();
    stage.plan.destinations += &destination("gone", &format!("127.0.0.1:{}", free_port()?));
    stage.configure()?;
    stage.daemon.spawn()?;
    stage.ticks(5)?;
    stage.plan.destinations = without;
    stage.reload()?;
    stage.until(REMOVED, |removed| removed > 0.0)?;
    // The oldest tick reaches max_age first, and the newest a few seconds later.
    wait::pause(Duration::from_secs(7));
    stage.tick()?;
    // Ticks that were made while it was configured contain figures about it.
    let is_about_gone =
        |points: &&sandbox::Points| points.keys().any(|path| path.contains(".carbon.gone."));
    let points: usize = stage
        .collected
        .counted()
        .map(|(_, points)| points)
        .filter(is_about_gone)
        .map(|points| points.len())
        .sum();
    let counted = stage.counter(REMOVED)?;
    let is_exact = (counted - points as f64).abs() < 0.5;
    ensure!(is_exact, "{points} points were not sent, {counted} counted");
    Ok(format!("{points} points not sent, {counted} counted; {}", stage.clean()?))
}
