//! Carbon is killed, stopped, frozen, late, closing, silent or without a name. Afterwards no point is missing in
//! whisper, and no destination has delayed another.
//!
//! The readings are imitated: these tests need no Slurm.
#![expect(clippy::print_stdout, reason = "the times measured, for --nocapture")]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandbox::daemon::spawn_daemon;
use sandbox::{
    ALL_READ, Carbon, Folder, Imitation, Manner, Process, Series, Sink, carbon, find_program, free_port, log,
    now, slurm_graphite, wait,
};

const SOON: Duration = wait::LIMIT;
const AWAY: &str = "not connected; ticks are kept, trying again";
const BACK: &str = "back after ";

/// What Carbon had in its memory is lost with it, and is sent again.
#[test]
fn carbon_killed_leaves_no_hole() {
    outage("killed", |carbon| {
        carbon.kill().unwrap();
        wait::pause(Duration::from_secs(3));
        carbon.start().unwrap();
    });
}

#[test]
fn carbon_stopped_leaves_no_hole() {
    outage("stopped", |carbon| {
        carbon.stop().unwrap();
        carbon.start().unwrap();
    });
}

#[test]
fn carbon_frozen_keeps_its_connection_and_leaves_no_hole() {
    let (folder, mut carbon) = with_carbon(true);
    let daemon = daemon(&folder, &carbon);
    steady(&carbon);
    let frozen = now();
    carbon.process.freeze().unwrap();
    wait::pause(Duration::from_secs(5));
    carbon.process.thaw().unwrap();
    assert_eq!(news(&daemon, frozen), [""; 0]);
    let until = ends_confirmed(daemon);
    every_slot(&carbon, until);
    assert_eq!(series(&carbon, "carbon.carbon.gauge-connects").last().unwrap().1, 1.0);
}

#[test]
fn carbon_started_after_the_daemon_gets_every_tick() {
    let (folder, mut carbon) = with_carbon(false);
    let daemon = daemon(&folder, &carbon);
    log::said(&daemon, 0.0, AWAY, SOON).unwrap();
    wait::pause(Duration::from_secs(3));
    carbon.process.start().unwrap();
    back_within_the_backoff(&daemon, now(), "started late");
    assert_eq!(of_carbon(&daemon, 0.0), [AWAY, BACK]);
    let until = ends_confirmed(daemon);
    every_slot(&carbon, until);
}

/// A successful connect must not count as success, and neither must a write that nobody reads.
#[test]
fn a_port_that_accepts_and_closes_is_not_called_at_full_speed() {
    let (folder, mut carbon) = with_carbon(false);
    let sink = Sink::on(carbon.pickle_port, Manner::Close).unwrap();
    let daemon = daemon(&folder, &carbon);
    log::said(&daemon, 0.0, AWAY, SOON).unwrap();
    wait::pause(Duration::from_secs(5));
    // As with the reader's starts: ten within 6 s have a probability of one in a million.
    assert!((2..10).contains(&sink.accepted()), "{} connections in 5 s", sink.accepted());
    drop(sink);
    carbon.process.start().unwrap();
    back_within_the_backoff(&daemon, now(), "closing at once");
    let said = of_carbon(&daemon, 0.0);
    assert_eq!(said.iter().filter(|&&said| said == AWAY).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|&&said| said == BACK).count(), 1, "{said:?}");
    let until = ends_confirmed(daemon);
    every_slot(&carbon, until);
}

/// One destination is dead throughout, and one accepts connections and never reads. Long paths fill the kernel's
/// buffers in a few seconds. A closed window is a pause, not a stall, and the daemon waits for it.
#[test]
fn neither_a_dead_nor_a_silent_destination_costs_another_a_slot() {
    let (folder, carbon) = with_carbon(true);
    let (dead, silent) = (free_port().unwrap(), Sink::start(Manner::Silent).unwrap());
    let text = format!(
        "prefix = \"{}\"\ndrain_timeout = \"1s\"\n{}{}stall_timeout = \"2s\"\n{}{}",
        long_prefix(),
        reader(&folder),
        destination("silent", &silent.address()),
        destination("dead", &format!("127.0.0.1:{dead}")),
        destination("carbon", &carbon.address()),
    );
    let mut daemon = spawn_daemon(&folder, "daemon", &text).unwrap();
    let queued = || {
        let paths = carbon.paths();
        let path = paths.keys().find(|path| path.ends_with(".carbon.silent.gauge-queue_ticks"))?;
        carbon.series(path).ok()?.last().filter(|(_, ticks)| *ticks >= 4.0)
    };
    wait::until_some("ticks that wait for the silent one", SOON * 6, queued).unwrap();
    let stopped = now();
    let (until, ended) = stop(&mut daemon);
    // drain_timeout plus the time that a process needs to end.
    assert!(ended < Duration::from_millis(2500), "the end took {ended:?}");
    let left = |name: &str, words: &str| {
        let entries = log::entries(&daemon).into_iter().filter(|entry| entry.at > stopped);
        let mut lines = entries.map(|entry| entry.line).filter(|line| line.contains(name));
        assert!(lines.any(|line| line.contains(words)), "{name} {words}");
    };
    left("\"carbon\"", ALL_READ);
    left("\"dead\"", " ticks not sent, 0 to be sent again, 0 sent but not known to be read");
    left("\"silent\"", "not known to be read");
    every_slot(&carbon, until);
    assert_eq!(
        log::entries(&daemon).iter().filter(|entry| entry.message == AWAY).count(),
        1,
        "the dead one, once"
    );
}

/// The limit in bytes removes the oldest ticks, and they are counted.
#[test]
fn a_full_queue_loses_the_oldest_ticks_and_counts_them() {
    let (folder, mut carbon) = with_carbon(false);
    let text = format!(
        "prefix = \"{}\"\n{}[queue]\nmax_bytes = \"1MiB\"\n{}",
        long_prefix(),
        reader(&folder),
        destination("carbon", &carbon.address())
    );
    let daemon = spawn_daemon(&folder, "daemon", &text).unwrap();
    wait::pause(Duration::from_secs(22));
    carbon.process.start().unwrap();
    log::said(&daemon, 0.0, BACK, wait::LIMIT * 4).unwrap();
    let until = ends_confirmed(daemon);

    let ticks = stored(&carbon, "gauge-ticks_run", until);
    let (oldest, lost) = ticks.first().map(|(at, run)| (at, run - 1.0)).unwrap();
    assert!(lost >= 3.0, "only {lost} ticks did not fit");
    assert_eq!(ticks.holes(), 0, "the oldest, and none between");
    let points =
        carbon.paths().values().filter(|file| Series::read(file).unwrap().at(oldest).is_some()).count();
    let dropped = series(&carbon, "carbon.carbon.gauge-points_dropped_full").last().unwrap().1;
    println!("full: {lost} ticks of {points} points were lost, {dropped} points counted");
    // The first tick may have come before the first reading.
    let points = points as f64;
    assert!(dropped <= points * lost && dropped > points * (lost - 1.0), "{dropped}: {lost} of {points}");
}

/// A daemon in a separate mount namespace, where /etc/hosts gets the name later.
#[test]
fn a_name_that_does_not_resolve_at_first_is_looked_up_again() {
    let (folder, carbon) = with_carbon(true);
    let unshare = find_program("unshare").unwrap();
    let possible = sandbox::command(folder.path(), &unshare).args(["-rm", "true"]).status().unwrap();
    if !possible.success() {
        println!("skipped: this user may not make a mount namespace");
        return;
    }
    let (hosts, switch) = (folder.path().join("hosts"), folder.path().join("nsswitch.conf"));
    fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    fs::write(&switch, "hosts: files\n").unwrap();
    let config = folder.path().join("daemon.toml");
    let address = format!("carbon.sandbox:{}", carbon.pickle_port);
    fs::write(&config, format!("{}{}", reader(&folder), destination("carbon", &address))).unwrap();
    let script = format!(
        "mount --bind {} /etc/hosts && mount --bind {} /etc/nsswitch.conf && exec {} run --config {} \
         --interval 1s --log-level debug --log-format json",
        hosts.display(),
        switch.display(),
        slurm_graphite().unwrap().display(),
        config.display()
    );
    let mut daemon = Process::new(&folder, "daemon", unshare).args(["-rm", "sh", "-c", &script]);
    daemon.spawn().unwrap();
    let away = log::said(&daemon, 0.0, AWAY, SOON).unwrap();
    assert!(away.line.contains("looking up carbon.sandbox"), "{}", away.line);
    wait::pause(Duration::from_secs(3));
    // The file is changed in place: a new file would be hidden by the mount.
    fs::write(&hosts, "127.0.0.1 localhost carbon.sandbox\n").unwrap();
    back_within_the_backoff(&daemon, now(), "unnamed");
    assert_eq!(of_carbon(&daemon, 0.0), [AWAY, BACK]);
    let until = ends_confirmed(daemon);
    every_slot(&carbon, until);
}

#[test]
fn ipv6_gets_frames() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        println!("skipped: there is no ::1");
        return;
    };
    let folder = Folder::new().unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut daemon = Process::new(&folder, "daemon", slurm_graphite().unwrap()).args([
        "run",
        "--carbon",
        &address,
        "--interval",
        "1s",
        "--slurm-conf",
        "/nonexistent",
    ]);
    daemon.spawn().unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(SOON)).unwrap();
    let mut length = [0; 4];
    peer.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    peer.read_exact(&mut frame).unwrap();
    assert!(frame.starts_with(b"\x80\x02](") && frame.ends_with(b"."), "a list, in pickle's protocol 2");
    assert!(String::from_utf8_lossy(&frame).contains("gauge-ticks_run"));
}

/// Carbon goes down and comes back: one log line each, and every slot is filled.
fn outage(what: &str, go_and_come: impl Fn(&mut Process)) {
    let (folder, mut carbon) = with_carbon(true);
    let daemon = daemon(&folder, &carbon);
    steady(&carbon);
    let gone = now();
    go_and_come(&mut carbon.process);
    back_within_the_backoff(&daemon, now(), what);
    assert_eq!(of_carbon(&daemon, gone), [AWAY, BACK]);
    let until = ends_confirmed(daemon);
    every_slot(&carbon, until);
    assert!(series(&carbon, "carbon.carbon.gauge-points_resent").last().unwrap().1 > 0.0);
    let dropped = series(&carbon, "carbon.carbon.gauge-points_dropped_full").last().unwrap().1;
    assert_eq!(dropped, 0.0);
}

fn with_carbon(started: bool) -> (Folder, Carbon) {
    let folder = Folder::new().unwrap();
    let mut carbon = Carbon::new(&folder, "carbon", &carbon::Options::default()).unwrap();
    if started {
        carbon.process.start().unwrap();
    }
    (folder, carbon)
}

fn daemon(folder: &Folder, carbon: &Carbon) -> Process {
    let text = format!("{}{}", reader(folder), destination("carbon", &carbon.address()));
    spawn_daemon(folder, "daemon", &text).unwrap()
}

fn reader(folder: &Folder) -> String {
    format!("[slurm]\n{}", Imitation::good(folder).unwrap().toml())
}

fn destination(name: &str, address: &str) -> String {
    format!("[[carbon]]\nname = \"{name}\"\naddress = \"{address}\"\n")
}

/// The longest prefix whose paths are still legal.
fn long_prefix() -> String {
    ["long"; 4].map(|word| word.repeat(45)).join(".")
}

/// Waits until all series exist: Carbon creates new ones before it stores anything else.
fn steady(carbon: &Carbon) {
    wait::until("points in whisper", SOON, || {
        let ticks = carbon.paths().into_iter().find(|(path, _)| path.ends_with("gauge-ticks_run"));
        ticks.is_some_and(|(_, file)| Series::read(&file).is_ok_and(|series| series.points.len() >= 3))
    })
    .unwrap();
}

/// The next attempt after `back` succeeds, within the longest delay for that many failures.
fn back_within_the_backoff(daemon: &Process, back: f64, what: &str) {
    log::said(daemon, 0.0, BACK, wait::LIMIT).unwrap();
    let entries = log::entries(daemon);
    let failures =
        entries.iter().filter(|entry| entry.line.contains("not connected") && entry.at < back).count();
    let again = entries.iter().rfind(|entry| entry.message.starts_with("connected")).unwrap();
    let limit = (0.25 * 2.0_f64.powi(i32::try_from(failures).unwrap())).min(30.0);
    println!("{what}: connected {:.2} s after it was back, {failures} failures before", again.at - back);
    assert!(again.at - back < limit + 0.5, "{:.1} s, {failures} failures before", again.at - back);
}

/// The log lines that a person sees by default.
fn news(process: &Process, since: f64) -> Vec<String> {
    let entries = log::entries(process).into_iter().filter(|entry| entry.at > since && entry.is_news());
    entries.map(|entry| entry.message).collect()
}

/// Those of them that are about the destination, without the duration of the outage.
fn of_carbon(process: &Process, since: f64) -> Vec<&'static str> {
    let known = |news: String| [AWAY, BACK, "connected"].into_iter().find(|known| news.starts_with(known));
    news(process, since).into_iter().filter_map(known).collect()
}

/// Sends SIGTERM in the middle of a second. Returns the last tick, and how long the daemon took to end.
fn stop(daemon: &mut Process) -> (u64, Duration) {
    wait::until("the middle of a second", SOON, || (0.4..0.6).contains(&now().fract())).unwrap();
    let last = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let ended = daemon.stop().unwrap();
    assert!(ended.status.success());
    (last, ended.after)
}

/// Sends SIGTERM while Carbon is up. Returns the last tick.
fn ends_confirmed(mut daemon: Process) -> u64 {
    let (last, ended) = stop(&mut daemon);
    assert!(ended < Duration::from_secs(2), "the end took {ended:?}");
    log::said(&daemon, 0.0, ALL_READ, SOON).unwrap();
    last
}

fn series(carbon: &Carbon, end: &str) -> Series {
    let end = format!(".{end}");
    let found = carbon.paths().into_iter().find(|(path, _)| path.ends_with(&end));
    assert!(found.is_some(), "no series *{end}");
    Series::read(&found.unwrap().1).unwrap()
}

/// A series, once Carbon has written its point of the tick `until` to disk.
fn stored(carbon: &Carbon, end: &str, until: u64) -> Series {
    wait::until(&format!("{end} at {until} in whisper"), SOON, || series(carbon, end).at(until).is_some())
        .unwrap();
    series(carbon, end)
}

/// From the daemon's first tick to the tick `until` no slot is empty.
fn every_slot(carbon: &Carbon, until: u64) {
    let ticks = stored(carbon, "gauge-ticks_run", until);
    let (first, run) = ticks.first().unwrap();
    assert_eq!(run, 1.0, "the first ticks are missing");
    for (at, value) in ticks.slots(first, until) {
        assert_eq!(value, Some((at - first + 1) as f64), "ticks_run at {at}");
    }
    for end in ["gauge-slurmctld_up", "gauge-queue_ticks", "gauge-jobs_submitted", "gauge-bf_queue_length"] {
        let series = stored(carbon, end, until);
        // The first tick may have come before the first reading.
        assert!(series.first().unwrap().0 <= first + 1, "{end} begins late");
        assert_eq!(series.holes(), 0, "{end}: {:?}", series.slots(first, until));
    }
}
