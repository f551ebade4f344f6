//! SIGHUP: a valid file is applied completely, and what did not change is left alone. An invalid
//! file changes nothing.

use std::collections::BTreeSet;

use anyhow::Result;
use sandbox::proc::Signal;
use sandbox::{Manner, Notify, Process, Sandbox, Sink, proc, wait};

use super::{SOON, daemon, toml};

/// The timestamps at which a plaintext receiver got a path that begins with `start`.
fn ticks(sink: &Sink, start: &str) -> BTreeSet<u64> {
    let text = String::from_utf8_lossy(&sink.bytes()).into_owned();
    let lines =
        text.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.starts_with(start));
    lines.filter_map(|line| line.split_whitespace().last()?.parse().ok()).collect()
}

fn hang_up(daemon: &mut Process, words: &str) -> Result<()> {
    let before = daemon.lines().len();
    daemon.signal(Signal::HUP)?;
    daemon.line_after(before, words, SOON).map(drop)
}

#[test]
fn sighup_applies_what_has_changed_and_leaves_the_rest_alone() {
    let sandbox = Sandbox::start().unwrap();
    let [stays, goes, comes] = [(); 3].map(|()| Sink::start(Manner::Record).unwrap());
    let (stays_at, goes_at, comes_at) = (stays.address(), goes.address(), comes.address());
    let conf = sandbox.slurm.conf();
    let config = toml("1s", conf, &[("stays", &stays_at), ("goes", &goes_at)]);
    let mut daemon = daemon(&sandbox.folder, "daemon", &config).unwrap();
    daemon.start().unwrap();
    let enough = |sink: &Sink, start: &str, count: usize| {
        wait::until(start, SOON, || ticks(sink, start).len() >= count).unwrap();
    };
    enough(&stays, "cluster.slurm_sched_stats.", 2);
    enough(&goes, "cluster.slurm_sched_stats.", 2);
    let reader = proc::children(daemon.pid().unwrap());

    let config = toml("2s", conf, &[("stays", &stays_at), ("comes", &comes_at)]);
    let config = format!("prefix = \"hpc\"\n{config}[log]\nlevel = \"debug\"\n");
    sandbox.folder.write("daemon.toml", &config).unwrap();
    hang_up(&mut daemon, "the new configuration is in use interval=2 prefix=hpc").unwrap();
    enough(&stays, "hpc.slurm_sched_stats.", 3);
    enough(&comes, "hpc.slurm_sched_stats.", 3);
    let new = ticks(&stays, "hpc.");
    assert!(new.iter().all(|tick| tick % 2 == 0), "{new:?}");
    assert!(ticks(&comes, "cluster.").is_empty());
    let old = ticks(&goes, "cluster.slurm_sched_stats.");
    assert!(old.last() < new.first() && ticks(&goes, "hpc.").is_empty(), "{old:?} {new:?}");
    assert_eq!((stays.accepted(), goes.accepted(), comes.accepted()), (1, 1, 1));
    assert_eq!(
        proc::children(daemon.pid().unwrap()),
        reader,
        "the reader has nothing to do with it"
    );
    let lines = daemon.lines();
    let says_so = |line: &String| line.contains("no longer configured") && line.contains("goes");
    assert!(lines.iter().any(says_so), "{lines:#?}");

    // The level is also in use: debug lines about a refused connection appear, and disappear with
    // it.
    let debug =
        |daemon: &Process| daemon.lines().iter().filter(|line| line.contains("DEBUG")).count();
    drop(comes);
    wait::until("a debug line", SOON, || debug(&daemon) > 0).unwrap();
    let config =
        toml("1s", conf, &[("stays", &stays_at)]).replace("interval", "prefix = \"hpc\"\ninterval");
    sandbox.folder.write("daemon.toml", &format!("{config}[log]\nformat = \"json\"\n")).unwrap();
    hang_up(&mut daemon, "\"message\":\"the new configuration is in use\"").unwrap();
    let (before, count) = (debug(&daemon), ticks(&stays, "hpc.").len());
    enough(&stays, "hpc.slurm_sched_stats.", count + 3);
    assert_eq!(debug(&daemon), before);
    assert_eq!(stays.accepted(), 1);
}

#[test]
fn a_bad_file_at_sighup_is_refused_with_its_reasons_and_the_old_one_goes_on() {
    let sandbox = Sandbox::start().unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let config = toml("1s", sandbox.slurm.conf(), &[("main", &sink.address())]);
    let mut notify = Notify::listen(&sandbox.folder).unwrap();
    let daemon = daemon(&sandbox.folder, "daemon", &config).unwrap();
    let mut daemon = daemon.env("NOTIFY_SOCKET", notify.path.as_os_str());
    daemon.start().unwrap();
    let path = "cluster.slurm_sched_stats.";
    wait::until("two ticks", SOON, || ticks(&sink, path).len() >= 2).unwrap();
    let start = ticks(&sink, path);

    sandbox
        .folder
        .write("daemon.toml", "interval = \"0s\"\nprefix = \"new\"\nnosuch = 1\n")
        .unwrap();
    hang_up(&mut daemon, "the new configuration is refused").unwrap();
    daemon.line("line 1: interval: ", SOON).unwrap();
    daemon.line("line 3: nosuch: no such key", SOON).unwrap();
    notify.message("; the new configuration was refused at ", SOON).unwrap();
    let sent = |text: &str| String::from_utf8_lossy(&sink.bytes()).contains(text);
    wait::until("the figure of it", SOON, || sent(".gauge-reload_refused 1 ")).unwrap();
    // A daemon cannot use a file without a destination.
    sandbox.folder.write("daemon.toml", "interval = \"1s\"\n").unwrap();
    hang_up(&mut daemon, "nowhere to send to").unwrap();
    std::fs::remove_file(sandbox.path("daemon.toml")).unwrap();
    hang_up(&mut daemon, "cannot be read").unwrap();

    let (from, refused) = (start.len(), *ticks(&sink, path).last().unwrap());
    wait::until("three more ticks", SOON, || ticks(&sink, path).len() >= from + 3).unwrap();
    let all = ticks(&sink, path);
    let (first, last) = (*all.first().unwrap(), *all.last().unwrap());
    assert!(last >= refused && all.len() as u64 == last - first + 1, "a hole in {all:?}");
    assert_eq!(sink.accepted(), 1);
    let before = notify.messages().len();
    sandbox.folder.write("daemon.toml", &config).unwrap();
    hang_up(&mut daemon, "the new configuration is in use").unwrap();
    notify.message_after(before, "sending to main", SOON).unwrap();
    assert!(!notify.messages().last().unwrap().1.contains("refused"), "{:?}", notify.messages());
    assert!(daemon.stop().unwrap().status.success());
}
