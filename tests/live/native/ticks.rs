//! Whatever the daemon's own requests to munged and slurmctld wait for, each tick is sent, `status`
//! and the log name what to look at, and the loop's thread makes no call that can wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;
use sandbox::{Folder, Manner, Process, Sink, log, proc, slurm_graphite, wait};

use super::wires::{Harm, wire};
use super::{controller, refusals, with_port};
use crate::SOON;
use crate::one_thread::hangs::hanging_names;
use crate::one_thread::trace::{is_harmless, trace};
use crate::status::{daemon_every, status};

/// Connections to a local socket that are never used, until it accepts no more.
fn fill_queue(folder: &Folder) -> Vec<OwnedFd> {
    let address = SocketAddrUnix::new(folder.path().join("munge/sock")).unwrap();
    let connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::connect(&socket, &address).ok().map(|()| socket)
    };
    std::iter::from_fn(connect).take(10_000).collect()
}

/// A thread that wakes at each second, as the daemon does: how late the machine makes both at most,
/// and for how many whole seconds it had no time for this one.
struct Witness(Arc<Mutex<(Duration, u64)>>);

impl Witness {
    fn start() -> Self {
        let latest = Arc::new(Mutex::new((Duration::ZERO, 0)));
        let weak = Arc::downgrade(&latest);
        thread::spawn(move || {
            while let Some(latest) = weak.upgrade() {
                let now = since_epoch(SystemTime::now());
                let due = Duration::from_secs(now.as_secs() + 1);
                wait::pause(due - now);
                let late = since_epoch(SystemTime::now()).saturating_sub(due);
                let mut latest = latest.lock().unwrap();
                *latest = (late.max(latest.0), latest.1 + late.as_secs());
            }
        });
        Self(latest)
    }

    fn latest(&self) -> Duration {
        self.0.lock().unwrap().0
    }

    fn missed(&self) -> u64 {
        self.0.lock().unwrap().1
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

struct Ticks<'a> {
    folder: &'a Folder,
    sink: &'a Sink,
    daemon: &'a mut Process,
}

impl Ticks<'_> {
    /// (timestamp, whether slurmctld has answered) of every tick.
    fn all(&self) -> BTreeSet<(i64, bool)> {
        let text = String::from_utf8_lossy(&self.sink.bytes()).into_owned();
        let lines = text.lines().filter(|line| line.contains(".gauge-slurmctld_up "));
        lines
            .filter_map(|line| {
                let mut words = line.split(' ').skip(1);
                let is_up = words.next()?.starts_with('1');
                Some((words.next()?.parse().ok()?, is_up))
            })
            .collect()
    }

    /// Seconds that each tick came late: after the end of its slot, or after its begin if it and
    /// the one before have figures. Of two that end together the newer one goes first; the older
    /// one is a backlog, whose first tick waits 100 ms for a new connection.
    fn lateness(&self) -> BTreeMap<i64, Duration> {
        let all = self.all();
        let is_up = |at| all.contains(&(at, true));
        let mut arrivals = BTreeMap::new();
        for (arrival, line) in self.sink.timed_lines() {
            if line.contains(".gauge-slurmctld_up ") {
                let at: i64 = line.rsplit(' ').next().unwrap().parse().unwrap();
                arrivals.entry(at).or_insert(since_epoch(arrival));
            }
        }
        let late = |(&at, &arrival): (&i64, &Duration)| {
            let slots = u64::from(!is_up(at) || !is_up(at - 1));
            let is_backlog = arrivals.get(&(at + 1)).is_some_and(|newer| *newer < arrival);
            let due = Duration::from_secs(u64::try_from(at).unwrap() + slots)
                + Duration::from_millis(100) * u32::from(is_backlog);
            (at, arrival.saturating_sub(due))
        };
        arrivals.iter().map(late).collect()
    }

    /// Waits until `status` has these words, then for ticks that are of this state.
    fn are(&self, is_up: bool, words: &str) {
        let said = || status(self.folder, &[]).unwrap().stdout;
        wait::until(words, SOON, || said().contains(words))
            .unwrap_or_else(|error| panic!("{error}: {} {:#?}", said(), self.daemon.lines()));
        let after = self.all().last().unwrap().0;
        wait::until("ticks", SOON, || {
            self.all().iter().filter(|(at, up)| *at > after && *up == is_up).count() >= 3
        })
        .unwrap();
    }

    /// Waits for so many more without an answer.
    fn fail(&self, count: usize) {
        let failed = || self.all().iter().filter(|(_, is_up)| !is_up).count();
        let before = failed();
        wait::until("ticks without an answer", SOON, || failed() >= before + count).unwrap();
    }

    /// More than so many came, none of them late, and none is missing.
    #[expect(clippy::print_stdout, reason = "the figures, for --nocapture")]
    /// An answer takes so long at most.
    fn are_on_time(&self, witness: &Witness, count: usize, answer: Duration) {
        // Each of daemon, strace and receiver may be as late as the witness, or a little later. What
        // waits for one that is stopped waits for a second at least.
        let most = Duration::from_millis(300) + 3 * witness.latest() + answer;
        let mut late = self.lateness();
        assert!(late.len() > count, "{late:?}");
        println!(
            "the latest tick: {:?}, of which the machine: {:?}",
            late.values().max(),
            witness.latest()
        );
        late.retain(|_, late| *late > most);
        assert!(late.is_empty(), "later than {most:?}: {late:?} {:#?}", self.daemon.lines());

        let found: Vec<i64> = self.all().into_iter().map(|(at, _)| at).collect();
        let holes: Vec<_> = found.windows(2).filter(|two| two[1] != two[0] + 1).collect();
        let missing: i64 = holes.iter().map(|two| two[1] - two[0] - 1).sum();
        let excused = i64::try_from(witness.missed()).unwrap();
        // The daemon may wake a moment later than the witness.
        assert!(missing <= 2 * excused, "{holes:?}, {excused} excused: {:#?}", self.daemon.lines());
        let missed = log::entries(self.daemon)
            .into_iter()
            .find(|entry| entry.message.contains("ticks were missed"));
        assert!(missed.is_none() || excused > 0, "{missed:?}");
    }
}

#[test]
fn munged_slurmctld_and_names_stopped_at_each_step_make_no_tick_late_nor_does_a_reload_meanwhile() {
    let (folder, mut slurm) = controller();
    let sink = Sink::start(Manner::Record).unwrap();
    let toml = |conf: &std::path::Path, timeout: u32| {
        format!(
            "[slurm]\nconf = {conf:?}\nreader = \"native\"\ntimeout = \"{timeout}s\"\n{}",
            sink.destination("all")
        )
    };
    let (library, hangs) = hanging_names(&folder).unwrap();
    let env = [("LD_PRELOAD", &library), ("HANGS", &hangs)]
        .map(|(key, path)| (key, path.display().to_string()));
    let mut daemon = daemon_every("1s", &folder, &toml(slurm.conf(), 4), &env).unwrap();
    let rewrite = |text: String| {
        fs::write(folder.path().join("daemon.toml"), format!("interval = \"1s\"\n{text}")).unwrap();
    };
    wait::until("a tick", SOON, || !sink.bytes().is_empty()).unwrap();
    let ticks = Ticks { folder: &folder, sink: &sink, daemon: &mut daemon };
    ticks.are(true, "statistics, native, in the daemon's process");

    let witness = Witness::start();
    let mut strace = trace(&folder, ticks.daemon.pid().unwrap()).unwrap();

    slurm.munged.freeze().unwrap();
    ticks.are(false, "munge/sock: timed out");
    let full = fill_queue(&folder);
    assert!(full.len() < 10_000);
    ticks.are(false, "munge/sock: timed out");
    drop(full);
    slurm.munged.thaw().unwrap();
    ticks.are(true, "✓ slurmctld");

    slurm.slurmctld.freeze().unwrap();
    ticks.are(false, "no reply in time");
    // In the middle of a round: another [slurm], then the old one.
    let copy = with_port(&slurm, "copy.conf", slurm.slurmctld_port);
    for (conf, timeout) in [(copy.as_path(), 5), (slurm.conf(), 4)] {
        rewrite(toml(conf, timeout));
        ticks.daemon.signal(Signal::HUP).unwrap();
        ticks.are(false, "no reply in time");
    }
    slurm.slurmctld.thaw().unwrap();
    ticks.are(true, "✓ slurmctld");

    // It accepts, and nothing comes; and what is not there.
    let silent = Sink::start(Manner::Discard).unwrap();
    for (port, words) in [(silent.port, "no reply in time"), (9, "no connection to 127.0.0.1")] {
        rewrite(toml(&with_port(&slurm, "other.conf", port), 4));
        ticks.daemon.signal(Signal::HUP).unwrap();
        ticks.are(false, words);
    }
    // A name service that hangs.
    fs::write(&hangs, "").unwrap();
    let named =
        slurm.changed("named.conf", "localhost(127.0.0.1)", "localhost(localhost)").unwrap();
    rewrite(toml(&named, 4));
    ticks.daemon.signal(Signal::HUP).unwrap();
    ticks.are(false, "its name has no address");
    fs::remove_file(&hangs).unwrap();
    ticks.are(true, "✓ slurmctld");
    rewrite(toml(slurm.conf(), 4));
    ticks.daemon.signal(Signal::HUP).unwrap();
    ticks.are(true, "✓ slurmctld");
    slurm.munged.kill().unwrap();
    ticks.are(false, "munge/sock: Connection refused");
    slurm.munged.start().unwrap();
    ticks.are(true, "✓ slurmctld");

    // 88 bytes are the answer who listens.
    let signs = ["epoll_wait(", "CLONE_THREAD", "\"/proc/self/fd/", "EAGAIN", ", 88)"];
    is_harmless(&mut strace, &signs);

    ticks.are_on_time(&witness, 30, Duration::ZERO);
    assert!(refusals(&slurm.slurmctld) <= 3, "{:#?}", slurm.slurmctld.lines());
    assert!(ticks.daemon.stop().unwrap().status.success());
}

/// A thread at each tick, which looked at slurm.conf, cost half as much as asking slurmctld.
#[test]
fn a_tick_that_is_answered_starts_no_thread() {
    let (folder, slurm) = controller();
    let libslurm = slurm_graphite().unwrap().with_file_name("slurm-graphite-reader");
    for reader in ["native".to_owned(), libslurm.display().to_string()] {
        let sink = Sink::start(Manner::Record).unwrap();
        let conf = slurm.conf();
        let destination = sink.destination("all");
        let toml = format!("[slurm]\nconf = {conf:?}\nreader = {reader:?}\n{destination}");
        let mut daemon = daemon_every("1s", &folder, &toml, &[]).unwrap();
        let ticks = Ticks { folder: &folder, sink: &sink, daemon: &mut daemon };
        ticks.are(true, "✓ slurmctld");
        let mut strace = trace(&folder, ticks.daemon.pid().unwrap()).unwrap();
        let before = ticks.all().len();
        wait::until("ticks", SOON, || ticks.all().len() >= before + 8).unwrap();
        strace.signal(Signal::INT).unwrap();
        strace.wait(SOON).unwrap();
        let threads = strace.lines().iter().filter(|line| line.contains("CLONE_THREAD")).count();
        // It is looked at every 31 s, and addresses are looked up every minute.
        assert!(threads <= 2, "{reader}: {threads} in 8 ticks: {:#?}", strace.lines());
        assert!(ticks.daemon.stop().unwrap().status.success());
    }
}

/// Answers that come after the moment for which the loop's thread waits, and signals meanwhile. With
/// the native reader if there is no other, which is stopped too.
fn answers_late(name: &str, reader: Option<&str>) {
    let (folder, mut slurm) = controller();
    let sink = Sink::start(Manner::Record).unwrap();
    let (port, harms, lengths) = wire(Ipv4Addr::LOCALHOST.into(), slurm.slurmctld_port);
    let conf = with_port(&slurm, "wire.conf", port);
    let toml = format!(
        "[slurm]\nconf = {conf:?}\ntimeout = \"20s\"\nreader = {:?}\n{}",
        reader.unwrap_or("native"),
        sink.destination("all")
    );
    // Until slurmctld counts, it refuses the first numbers of the protocol.
    (0..10).for_each(|_| harms.send(Harm::None).unwrap());
    (0..8).for_each(|_| harms.send(Harm::Late(Duration::from_millis(10))).unwrap());
    let mut daemon = daemon_every("1s", &folder, &toml, &[]).unwrap();
    lengths.iter().take(10).for_each(drop);
    let ticks = Ticks { folder: &folder, sink: &sink, daemon: &mut daemon };
    let (witness, pid) = (Witness::start(), ticks.daemon.pid().unwrap());
    let mut strace = trace(&folder, pid).unwrap();

    let first = ticks.all().last().unwrap().0;
    for _ in 0..8 {
        lengths.recv().unwrap();
        // Around the wait at the next tick.
        let now = since_epoch(SystemTime::now());
        wait::pause(Duration::from_secs(now.as_secs() + 1) - now);
        for _ in 0..100 {
            ticks.daemon.signal(Signal::HUP).unwrap();
            wait::pause(Duration::from_micros(300));
        }
    }
    let is_late = |(at, is_up): &(i64, bool)| *at > first && !is_up;
    let failed: Vec<_> = ticks.all().into_iter().filter(is_late).collect();
    assert!(failed.is_empty(), "{name}: {failed:?}: {:#?}", ticks.daemon.lines());

    harms.send(Harm::Late(Duration::from_secs(12))).unwrap();
    (0..1000).for_each(|_| harms.send(Harm::None).unwrap());
    ticks.fail(9);
    ticks.are(true, "✓ slurmctld");

    // Each is stopped for some ticks, and no reader is replaced.
    let stopped = |stop: &mut dyn FnMut(Signal)| {
        stop(Signal::STOP);
        ticks.fail(3);
        stop(Signal::CONT);
        ticks.are(true, "✓ slurmctld");
    };
    stopped(&mut |signal| slurm.munged.signal(signal).unwrap());
    stopped(&mut |signal| slurm.slurmctld.signal(signal).unwrap());
    if reader.is_some() {
        let child = proc::children(pid)[0];
        stopped(&mut |signal| proc::signal(child, signal).unwrap());
        assert_eq!(proc::children(pid), [child], "{:#?}", ticks.daemon.lines());
    }

    is_harmless(&mut strace, &["poll([", "ERESTART"]);
    // What was stopped answers at any time of a slot.
    ticks.are_on_time(&witness, 30, Duration::from_secs(1));
    assert!(ticks.daemon.stop().unwrap().status.success());
}

#[test]
fn answers_that_come_late_and_signals_meanwhile_make_no_tick_late_with_the_native_reader() {
    answers_late("native", None);
}

#[test]
fn answers_that_come_late_and_signals_meanwhile_make_no_tick_late_with_libslurms_reader() {
    let reader = slurm_graphite().unwrap().with_file_name("slurm-graphite-reader");
    answers_late("libslurm", Some(&reader.display().to_string()));
}

/// Cuts replies to the daemon, in a debug build whose arithmetic is checked, after every `step`th
/// byte.
fn cut(step: impl Fn(usize) -> usize) {
    let (folder, slurm) = controller();
    let sink = Sink::start(Manner::Record).unwrap();
    let (port, harms, lengths) = wire(Ipv4Addr::LOCALHOST.into(), slurm.slurmctld_port);
    let conf = with_port(&slurm, "wire.conf", port);
    let toml =
        format!("[slurm]\nconf = {conf:?}\nreader = \"native\"\n{}", sink.destination("all"));
    // Until slurmctld counts, it refuses the first numbers of the protocol.
    (0..10).for_each(|_| harms.send(Harm::None).unwrap());
    let mut daemon = daemon_every("1s", &folder, &toml, &[]).unwrap();
    let length = lengths.iter().take(10).last().unwrap();
    let cuts: Vec<usize> = (0..length).step_by(step(length)).collect();
    cuts.iter().for_each(|&at| harms.send(Harm::Cut(at)).unwrap());
    (0..1000).for_each(|_| harms.send(Harm::None).unwrap());
    let ticks = Ticks { folder: &folder, sink: &sink, daemon: &mut daemon };
    // One that seems to be refused is asked for twice in a tick.
    let mut replies = 0;
    let is_over = || {
        replies += lengths.try_iter().count();
        let down = ticks.all().iter().filter(|(_, is_up)| !is_up).count();
        replies >= cuts.len() + 3 && down >= cuts.len() / 2
    };
    let limit =
        Duration::from_secs(60) + Duration::from_secs(3) * u32::try_from(cuts.len()).unwrap();
    wait::until("the cuts, and whole replies after them", limit, is_over)
        .unwrap_or_else(|error| panic!("{error}: {:#?}", ticks.daemon.lines()));
    ticks.are(true, "✓ slurmctld");
    let found: Vec<i64> = ticks.all().into_iter().map(|(at, _)| at).collect();
    let holes: Vec<_> = found.windows(2).filter(|two| two[1] != two[0] + 1).collect();
    assert!(holes.is_empty(), "{holes:?}: {:#?}", ticks.daemon.lines());
    assert!(ticks.daemon.stop().unwrap().status.success());
}

#[test]
fn replies_that_are_cut_cost_the_daemon_no_tick() {
    cut(|length| length.div_ceil(20));
}

#[test]
#[ignore = "a second for each byte of a reply"]
fn replies_that_are_cut_at_each_byte_cost_the_daemon_no_tick() {
    cut(|_| 1);
}
