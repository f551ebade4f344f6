//! slurmctld and munged killed, frozen, late and moved: the ticks continue, and the readings come
//! back at once.
//!
//! [`Daemon::check_ticks`] checks what must be true in every test: no second without points, no
//! tick with another tick's statistics, no call made twice.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sandbox::{Daemon, Folder, Slurm, free_port, now, wait};

use super::SOON;
use super::faults_reader::{BACKOFF, DOWN, UP, ended};
use super::native::with_port;
use super::rest::served;

pub(crate) const CHANGED: &str = "slurm.conf has changed; starting another reader";
const READER: &str = "reader started for Slurm ";

#[test]
fn slurmctld_killed_is_missed_and_asked_again_at_the_next_tick() {
    let (_folder, mut slurm, mut daemon) = start_daemon("30s");
    let reader = daemon.reader().unwrap();
    let killed = now();
    slurm.slurmctld.kill().unwrap();
    daemon.said(killed, DOWN, SOON).unwrap();
    slurm.slurmctld.start().unwrap();
    daemon.recovery(now(), 0.0).unwrap();
    assert_eq!(daemon.news(killed).unwrap(), [DOWN, UP]);
    let down = daemon.said(killed, DOWN, SOON).unwrap();
    assert!(
        down.line.contains("\"hint\":") && down.line.contains("scontrol ping"),
        "{}",
        down.line
    );
    let up = daemon.said(killed, UP, SOON).unwrap();
    let cost = up.message.strip_prefix("slurmctld answers again after ").unwrap_or_default();
    let (seconds, ticks) = cost.split_once(" s; ").unwrap_or_else(|| panic!("{}", up.message));
    let ticks = ticks.split(' ').next().unwrap_or_default();
    let [seconds, ticks] = [seconds, ticks].map(|number| number.parse::<f64>().unwrap());
    assert!(seconds >= 7.0 && ticks >= 7.0 && (seconds - ticks).abs() < 4.0, "{}", up.message);
    assert_eq!(
        daemon.reader().unwrap(),
        reader,
        "libslurm gives up by itself: no reason for another reader"
    );
    let recorded = ended(daemon);
    assert!(recorded.last("ticks_skipped") >= 7.0, "a call that takes 9 s");
    assert!(recorded.last("readings_failed") >= 1.0);
}

/// Frozen for longer than libslurm waits, and then for less: that answer comes late.
#[test]
fn slurmctld_frozen_is_asked_once_at_a_time_and_its_late_answer_thrown_away() {
    let (_folder, mut slurm, mut daemon) = start_daemon("30s");
    let frozen = now();
    slurm.slurmctld.freeze().unwrap();
    daemon.said(frozen, DOWN, SOON).unwrap();
    slurm.slurmctld.thaw().unwrap();
    daemon.recovery(now(), 0.0).unwrap();
    assert_eq!(daemon.news(frozen).unwrap(), [DOWN, UP]);
    daemon.ticks(1).unwrap();

    let frozen = now();
    let late = daemon.recorded().unwrap().last("ticks_late");
    slurm.slurmctld.freeze().unwrap();
    wait::pause(Duration::from_secs(3));
    slurm.slurmctld.thaw().unwrap();
    daemon.recovery(now(), 0.0).unwrap();
    daemon.ticks(1).unwrap();
    assert!(daemon.news(frozen).unwrap().is_empty(), "a late answer is a response");
    assert_eq!(daemon.recorded().unwrap().last("ticks_late"), late + 1.0);
    // check_ticks makes sure that the late answer left no points, neither at its own tick nor at
    // another.
    let recorded = ended(daemon);
    let slots = recorded.own("slurmctld_up");
    let missed = slots.iter().filter(|&(&at, &up)| at as f64 > frozen && up < 0.5).count();
    assert!((2..=4).contains(&missed), "{missed} ticks without a reading in 3 s");

    let calls = recorded.last("readings_ok") + recorded.last("readings_failed");
    let seen = served(&slurm, "REQUEST_STATS_INFO") as f64;
    assert_eq!(seen, calls, "what slurmctld counted, and what the daemon did");
}

#[test]
fn slurmctld_started_after_the_daemon_is_found() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    slurm.munged.start().unwrap();
    let mut daemon = start(&folder, slurm.conf(), "30s");
    daemon.ticks(3).unwrap();
    slurm.slurmctld.start().unwrap();
    daemon.recovery(now(), 0.0).unwrap();
    let news = daemon.news(0.0).unwrap();
    assert_eq!(news.iter().filter(|&news| news == UP).count(), 1, "{news:?}");
    assert!(news.iter().filter(|&news| news == DOWN).count() <= 1, "{news:?}");
    ended(daemon);
}

/// If munged is gone with its socket, a call takes 2 s; if it was killed and the socket is still
/// there, 49 s.
#[test]
fn munged_away_and_back_needs_no_other_reader() {
    let (_folder, mut slurm, mut daemon) = start_daemon("30s");
    let reader = daemon.reader().unwrap();
    let stopped = now();
    slurm.munged.stop().unwrap();
    daemon.said(stopped, DOWN, SOON).unwrap();
    // Long enough for a second failed call, which must not be logged again.
    daemon.ticks(4).unwrap();
    slurm.munged.start().unwrap();
    daemon.recovery(now(), 0.0).unwrap();
    assert_eq!(daemon.news(stopped).unwrap(), [DOWN, UP]);
    assert!(daemon.recorded().unwrap().last("readings_failed") >= 2.0);

    daemon.ticks(1).unwrap();
    let killed = now();
    let late = daemon.recorded().unwrap().last("ticks_late");
    slurm.munged.kill().unwrap();
    daemon.ticks(4).unwrap();
    slurm.munged.start().unwrap();
    let back = now();
    daemon.recovery(back, 0.0).unwrap();
    assert!(now() < back + 5.0, "libslurm notices a munged that is back");
    assert!(daemon.news(killed).unwrap().is_empty(), "a late answer is a response");
    assert_eq!(daemon.reader().unwrap(), reader);
    let recorded = ended(daemon);
    assert_eq!(recorded.last("ticks_late"), late + 1.0);
}

/// libslurm never returns from a call to a frozen munged: only killing the reader helps.
#[test]
fn munged_frozen_costs_readers_and_never_a_tick() {
    let (_folder, mut slurm, mut daemon) = start_daemon("3s");
    let frozen = now();
    slurm.munged.freeze().unwrap();
    let silent = daemon.said(frozen, "gave no response within 3 s", SOON).unwrap();
    assert!((2.5..5.0).contains(&(silent.at - frozen)), "killed {:.1} s after", silent.at - frozen);
    daemon.ticks(5).unwrap();
    slurm.munged.thaw().unwrap();
    // At most the third reader was killed.
    daemon.recovery(now(), 4.0 * BACKOFF).unwrap();
    assert_eq!(daemon.news(frozen).unwrap(), [DOWN, UP], "not every reader");
    let recorded = ended(daemon);
    assert!(
        (1.0..=3.0).contains(&recorded.last("reader_restarts")),
        "{}",
        recorded.last("reader_restarts")
    );
}

#[test]
fn a_slurm_conf_that_comes_late_is_waited_for() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::controller(&folder).unwrap();
    let conf = folder.path().join("late.conf");
    let mut daemon = start(&folder, &conf, "30s");
    // Not only at the first tick, which may be an hour away.
    daemon.said(0.0, "slurm.conf does not exist or cannot be read; waiting for it", SOON).unwrap();
    let missing = daemon.said(0.0, DOWN, SOON).unwrap();
    assert!(missing.line.contains("late.conf does not exist"), "{}", missing.line);
    daemon.ticks(4).unwrap();
    assert!(daemon.readers().is_empty());
    fs::copy(slurm.conf(), &conf).unwrap();
    daemon.recovery(now(), 0.0).unwrap();
    let news = daemon.news(missing.at - 0.001).unwrap();
    assert_eq!(news, [DOWN, &format!("{READER}{}", release(&slurm)), UP]);
    ended(daemon);
}

/// libslurm reads slurm.conf only once, and would use the old port for ever.
#[test]
fn a_slurmctld_that_moved_is_followed() {
    let (_folder, mut slurm, mut daemon) = start_daemon("30s");
    let started = format!("{READER}{}", release(&slurm));
    let moved = now();
    let skipped = daemon.recorded().unwrap().last("ticks_skipped");
    slurm.slurmctld.stop().unwrap();
    // A call is under way: it keeps trying the old port for a few seconds.
    daemon
        .until("a skipped tick", SOON, |recorded| {
            (recorded.last("ticks_skipped") > skipped).then_some(())
        })
        .unwrap();
    with_port(&slurm, "slurm.conf", free_port().unwrap());
    slurm.slurmctld.spawn().unwrap();
    wait::until("slurmctld at its new port", wait::LIMIT, || {
        slurm.run("scontrol", &["ping"]).is_ok()
    })
    .unwrap();
    daemon.recovery(now(), 0.0).unwrap();
    assert_eq!(daemon.news(moved).unwrap(), [DOWN, CHANGED, &started, UP]);

    // A reader that is ready at once costs no tick.
    daemon.ticks(1).unwrap();
    let (reader, touched) = (daemon.reader().unwrap(), now());
    slurm.configure("# touched\n").unwrap();
    // While readings succeed, slurm.conf is checked every half minute.
    daemon.said(touched, CHANGED, SOON).unwrap();
    daemon.ticks(2).unwrap();
    assert_eq!(daemon.news(touched).unwrap(), [CHANGED, &started]);
    assert_ne!(daemon.reader().unwrap(), reader);
    let up = daemon.recorded().unwrap().own("slurmctld_up");
    assert!(up.iter().all(|(&at, &up)| (at as f64) < touched || up > 0.5), "{up:?}");
    let recorded = ended(daemon);
    assert_eq!(recorded.last("reader_restarts"), 2.0);
}

/// A slurmctld without nodes, and a daemon after its first readings.
fn start_daemon(timeout: &str) -> (Folder, Slurm, Daemon) {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::controller(&folder).unwrap();
    let mut daemon = start(&folder, slurm.conf(), timeout);
    daemon.tick_with(true, 0.0, SOON).unwrap();
    daemon.ticks(1).unwrap();
    (folder, slurm, daemon)
}

fn start(folder: &Folder, conf: &Path, timeout: &str) -> Daemon {
    Daemon::start(folder, &format!("conf = \"{}\"\ntimeout = \"{timeout}\"", conf.display()))
        .unwrap()
}

/// The release of a version, such as `22.05` for 22.05.8.
fn release(slurm: &Slurm) -> String {
    slurm.release().unwrap().split('.').take(2).collect::<Vec<_>>().join(".")
}
