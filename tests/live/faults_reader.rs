//! Readers that crash, hang, print garbage or never start: another is started after a backoff, and
//! the ticks continue. No reader outlives its daemon.
//!
//! Most readers are imitated, which needs no Slurm. [`Daemon::check_ticks`] checks what must be
//! true in every test.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use sandbox::daemon::spawn_daemon;
use sandbox::{Daemon, Folder, Imitation, Manner, Recorded, Sink, Slurm, log, now, proc, wait};
use slurm_snapshot::{PROTOCOL, Reading};

use super::faults_slurm::CHANGED;
use super::{SOON, side_by_side};

pub(crate) const DOWN: &str = "no reading; trying at every tick";
pub(crate) const UP: &str = "slurmctld answers";
const ENDED: &str = "the reader has ended; starting another";
/// The longest backoff after a reader's first failure, in seconds.
pub(crate) const BACKOFF: f64 = 0.5;
/// What a busy host may add, in seconds.
const DELAY: f64 = 2.0;
/// A timeout within which a good reader answers on a busy host, too.
const PATIENT: &str = "10s";

#[test]
fn a_reader_that_misbehaves_once_is_replaced_once_and_costs_at_most_three_requests() {
    fn lost(bad: &str, words: &str) -> Result<String> {
        misbehaves(bad, words, PATIENT).map(|(news, figures)| {
            assert_eq!(news, [DOWN, UP]);
            figures
        })
    }
    fn hangs(bad: &str) -> Result<String> {
        misbehaves(bad, "gave no response within 6 s", "6s").map(|(news, figures)| {
            assert_eq!(news, [DOWN, UP]);
            figures
        })
    }
    /// On a busy host the shell may end so late that the next tick's request finds it.
    fn replaced(bad: &str, words: &str) -> Result<String> {
        for _ in 0..5 {
            let (news, figures) = misbehaves(bad, words, PATIENT)?;
            if news == [ENDED] {
                return Ok(figures);
            }
            assert_eq!(news, [DOWN, UP]);
        }
        anyhow::bail!("its end was never noticed before the next tick")
    }
    side_by_side(&[
        ("garbage", || {
            lost("ask; echo 'munge: error: no socket'; serve", "unexpected output of the reader")
        }),
        ("half a line and then nothing", || hangs("ask; printf '{\"reading\":{'; sleep 60")),
        // A stopped process dies of SIGKILL alone.
        ("a reader that is stopped", || hangs("ask; kill -STOP $$")),
        ("half a line and then the end", || {
            lost("ask; printf '{\"reading\":{'; exit 3", "the reader ended (exit status: 3)")
        }),
        ("an answer to another question", || {
            lost("ask; id=77; answer; serve", "a response to another request")
        }),
        ("a second hello", || lost("ask; hello; serve", "a second hello")),
        ("a crash over a request", || lost("ask; kill -SEGV $$", "signal: 11")),
        // The next request, which finds it, would take it for its answer.
        ("a line that nobody asked for", || {
            lost("id=3; answer; serve", "a line without a request")
        }),
        ("an end between two ticks", || replaced("exit 0", "the reader ended")),
        // Just before the next tick, whose request finds the pipes closed.
        ("a life without pipes", || {
            lost("sleep 0.5; exec <&- >&- 2>&-; sleep 60", "its pipes are closed")
        }),
    ]);
}

/// This keeps a core busy, and its 64 MiB must be read before the deadline.
#[test]
fn a_line_without_end() {
    let bad = "ask; head -c 70000000 /dev/zero; sleep 60";
    let (news, _) = misbehaves(bad, "a line without end", PATIENT).unwrap();
    assert_eq!(news, [DOWN, UP]);
}

/// Its answer is good, but its tick is over: it is discarded, and the reader is not replaced.
#[test]
fn an_answer_after_the_next_tick() {
    let (folder, reader, mut daemon) = with_a_reader("ask; sleep 1.5; answer; serve", PATIENT);
    daemon
        .until("a late answer", SOON, |recorded| (recorded.last("ticks_late") == 1.0).then_some(()))
        .unwrap();
    daemon.ticks(2).unwrap();
    assert!(!daemon.news(0.0).unwrap().iter().any(|news| news == DOWN));
    let recorded = well_ended(&folder, daemon);
    let missed = recorded.own("slurmctld_up").into_values().filter(|&up| up < 0.5).count();
    assert_eq!(
        (missed, recorded.last("ticks_skipped")),
        (2, 1.0),
        "the slow tick, and the one it ran into"
    );
    // The imitated reader puts the number of its answers there: the third was the late one.
    let answers: Vec<f64> = recorded.statistics("jobs_submitted").into_values().take(4).collect();
    assert_eq!(answers, [1.0, 2.0, 4.0, 5.0]);
    assert_eq!(reader.starts().len(), 1);
}

#[test]
fn a_reader_that_cannot_be_used_says_why_once_and_is_not_started_at_full_speed() {
    side_by_side(&[
        ("an end before hello", || {
            never_starts(
                "echo 'fatal: no configuration' >&2; exit 1",
                "libslurm said: fatal: no configuration",
            )
        }),
        ("another version of the line format", || {
            let hello = r#"{"hello":{"protocol":0,"release":"22.05"}}"#;
            never_starts(
                &format!("echo '{hello}'; serve"),
                &format!("it uses line format 0, not {PROTOCOL}"),
            )
        }),
        ("an answer before hello", || {
            never_starts("id=1; answer; serve", "a response before its hello")
        }),
        ("a reader for another libslurm", || {
            let loader = "libslurm.so.38: cannot open shared object file";
            never_starts(&format!("echo 'error: {loader}' >&2; exit 127"), loader)
        }),
        ("the loader gave it another libslurm", || {
            let bad = "echo 'the loaded libslurm is libslurm.so.38' >&2; exit 69";
            never_starts(bad, "no reader fits this host's libslurm")
        }),
    ]);
}

/// Nothing was said of it for 70 s, while no tick had a reading.
#[test]
fn no_hello_at_all_is_said_once_and_stops_neither_the_ticks_nor_sigterm() {
    let folder = Folder::new().unwrap();
    let reader = Imitation::new(&folder, "reader", "sleep 100").unwrap();
    let mut daemon = start(&folder, &reader.toml());
    let slow = daemon.said(0.0, "the reader is not ready after 2 s", SOON).unwrap();
    daemon.ticks(4).unwrap();
    let warnings: Vec<_> =
        daemon.entries().into_iter().filter(|entry| entry.level == "WARN").collect();
    assert_eq!(warnings, [slow], "{warnings:#?}");
    assert_eq!(reader.starts().len(), 1);
    well_ended(&folder, daemon);
}

/// A slurm.conf that was half written for 40 s stopped the readings for 25 s.
#[test]
fn a_slurm_conf_that_no_reader_starts_with_leaves_the_one_that_runs() {
    const REFUSED: &str = "no reader starts with the changed slurm.conf; the one that runs goes on";
    let folder = Folder::new().unwrap();
    let conf = folder.write("slurm.conf", "ClusterName=whole\n").unwrap();
    let body = "grep -q '=' \"$2\" || { echo 'fatal: half a line' >&2; exit 1; }\nhello; serve";
    let reader = Imitation::new(&folder, "reader", body).unwrap();
    let slurm = format!("{}conf = \"{conf}\"\ntimeout = \"10s\"", reader.toml());
    // A second reader may be there while it starts.
    let mut daemon = Daemon::start_surveying(&folder, &slurm, "").unwrap();
    daemon.tick_with(true, 0.0, SOON).unwrap();
    let (first, changed) = (daemon.reader().unwrap(), now());
    folder.write("slurm.conf", "ClusterN").unwrap();
    // While readings succeed, slurm.conf is checked every half minute.
    let refused = daemon.said(changed, REFUSED, SOON).unwrap();
    assert!(refused.line.contains("fatal: half a line"), "{}", refused.line);
    daemon.ticks(6).unwrap();
    let starts = reader.starts().len();
    assert!((3..12).contains(&starts), "{starts} starts");
    folder.write("slurm.conf", "ClusterName=whole again\n").unwrap();
    let started = daemon.said(refused.at, "reader started for Slurm 22.05", SOON).unwrap();
    wait::until("the first reader's end", SOON, || !proc::alive(first)).unwrap();
    daemon.tick_with(true, started.at, SOON).unwrap();
    let news = daemon.news(changed).unwrap();
    assert_eq!(news, [CHANGED, REFUSED, CHANGED, "reader started for Slurm 22.05"]);
    let recorded = well_ended(&folder, daemon);
    let up = recorded.own("slurmctld_up");
    assert!(up.iter().all(|(&at, &up)| (at as f64) < changed || up > 0.5), "{up:?}");
    assert_eq!(recorded.last("reader_restarts"), 1.0);
}

/// It would log that everything is OK, and send nothing.
#[test]
fn a_prefix_that_cannot_be_filled_is_said_once_and_when_it_can_be() {
    let folder = Folder::new().unwrap();
    let nameless = Imitation::answer(Reading { cluster: None, ..Imitation::reading() }).unwrap();
    let body = format!("hello; for n in 1 2 3; do ask; {nameless}; done; serve");
    let reader = Imitation::new(&folder, "reader", &body).unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let (reader, to) = (reader.toml(), sink.destination("sink"));
    let toml = format!("prefix = \"hpc.{{cluster}}\"\n[slurm]\n{reader}{to}");
    let mut process = spawn_daemon(&folder, "daemon", &toml).unwrap();
    log::said(&process, 0.0, "the cluster's name is known", SOON).unwrap();
    let entries = log::entries(&process).into_iter();
    let said: Vec<_> =
        entries.filter(|entry| entry.message.contains("the cluster's name")).collect();
    assert_eq!(
        said.iter().map(|entry| entry.level.as_str()).collect::<Vec<_>>(),
        ["WARN", "INFO"],
        "{said:#?}"
    );
    wait::until("points", SOON, || {
        String::from_utf8_lossy(&sink.bytes()).contains("hpc.imitation.")
    })
    .unwrap();
    process.stop().unwrap();
}

#[test]
fn a_reader_that_is_installed_later_is_found() {
    let folder = Folder::new().unwrap();
    let reader = Imitation::good(&folder).unwrap();
    let (script, elsewhere) = (folder.path().join("reader"), folder.path().join("elsewhere"));
    fs::rename(&script, &elsewhere).unwrap();
    let mut daemon = start(&folder, &reader.toml());
    daemon.said(0.0, DOWN, SOON).unwrap();
    fs::rename(&elsewhere, &script).unwrap();
    daemon.recovery(now(), 4.0 * BACKOFF).unwrap();
    well_ended(&folder, daemon);
}

#[test]
fn no_reader_outlives_a_daemon_that_is_killed() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::controller(&folder).unwrap();
    for stuck in [false, true] {
        let mut daemon = start(&folder, &format!("conf = \"{}\"", slurm.conf().display()));
        let reader = daemon.reader().unwrap();
        daemon.tick_with(true, 0.0, SOON).unwrap();
        if stuck {
            slurm.munged.freeze().unwrap();
            daemon.tick_with(false, now(), SOON).unwrap();
        }
        daemon.process.kill().unwrap();
        wait::until("the reader's end", Duration::from_secs(10), || !proc::alive(reader)).unwrap();
    }
    // Still frozen: a stuck reader must not delay SIGTERM either.
    let mut daemon = start(&folder, &format!("conf = \"{}\"", slurm.conf().display()));
    daemon.ticks(3).unwrap();
    let reader = daemon.reader().unwrap();
    daemon.stop().unwrap();
    assert!(!proc::alive(reader));
}

/// A reader that gives two good answers and then does `bad`, at its first start only. The log must
/// contain `words`. Returns the lines that a person sees, and the figures to report.
///
/// How long it takes depends on the host, too; how many requests fail does not.
fn misbehaves(bad: &str, words: &str, timeout: &str) -> Result<(Vec<String>, String)> {
    let (folder, reader, mut daemon) = with_a_reader(bad, timeout);
    let lost = daemon.said(0.0, words, SOON)?;
    let up = daemon.tick_with(true, lost.at, SOON)? as f64;
    let took = up - lost.at;
    assert!(took < 1.0 + BACKOFF + DELAY, "back only {took:.1} s after");
    let news = daemon.news(lost.at - 0.001)?;
    let recorded = well_ended(&folder, daemon);
    assert_eq!((reader.starts().len(), recorded.last("reader_restarts")), (2, 1.0), "{news:?}");
    // The request itself, and those of ticks in the pause after it.
    let failed = recorded.last("readings_failed");
    assert!(failed <= 3.0, "{failed} requests failed: {news:?}");
    let missed = recorded.own("slurmctld_up").into_values().filter(|&up| up < 0.5).count();
    assert!((missed as f64) <= 8.0 + DELAY, "{missed} ticks without a reading: {news:?}");
    Ok((news, format!("{missed} ticks without a reading, {failed} requests failed")))
}

/// A reader that does `bad` at every start until its file exists. The log must contain `words`
/// once.
fn never_starts(bad: &str, words: &str) -> Result<String> {
    let folder = Folder::new().unwrap();
    let body = format!("if [ -e good ]; then hello; serve; fi\n{bad}");
    let reader = Imitation::new(&folder, "reader", &body).unwrap();
    let mut daemon = start(&folder, &reader.toml());
    let lost = daemon.said(0.0, words, SOON).unwrap();
    daemon.ticks(3).unwrap();
    let starts = reader.starts().len();
    // The delays are below 0.5, 1, 2, 4, 8, 16, 30 … s: nine starts within 4 s have a probability
    // of one in a million.
    assert!((2..10).contains(&starts), "{starts} starts in 4 s");
    fs::write(folder.path().join("good"), "").unwrap();
    let doublings = i32::try_from(reader.starts().len()).unwrap() - 1;
    daemon.recovery(now(), (BACKOFF * 2.0_f64.powi(doublings)).min(30.0)).unwrap();
    let news: Vec<String> =
        daemon.news(lost.at).unwrap().into_iter().filter(|n| n != "connected").collect();
    assert_eq!(news, [DOWN, "reader started for Slurm 22.05", UP]);
    well_ended(&folder, daemon);
    Ok(format!("{starts} starts in 4 s"))
}

fn with_a_reader(bad: &str, timeout: &str) -> (Folder, Imitation, Daemon) {
    let folder = Folder::new().unwrap();
    let body = format!("hello; ask; answer; ask; answer\nif [ $start = 1 ]; then {bad}; fi\nserve");
    let reader = Imitation::new(&folder, "reader", &body).unwrap();
    let daemon = start_with(&folder, &reader.toml(), timeout);
    (folder, reader, daemon)
}

fn start(folder: &Folder, slurm: &str) -> Daemon {
    start_with(folder, slurm, "2s")
}

fn start_with(folder: &Folder, slurm: &str, timeout: &str) -> Daemon {
    Daemon::start(folder, &format!("{slurm}\ntimeout = \"{timeout}\"")).unwrap()
}

/// The end of a test: a few more ticks, all of them correct.
pub(crate) fn ended(mut daemon: Daemon) -> Recorded {
    daemon.ticks(2).unwrap();
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap()
}

/// The end of a test: a few more ticks, all of them correct, and then no process is left.
fn well_ended(folder: &Folder, daemon: Daemon) -> Recorded {
    let recorded = ended(daemon);
    wait::until("the end of all processes", SOON, || folder.processes().is_empty()).unwrap();
    recorded
}
