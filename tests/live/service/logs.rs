//! The log: only changes, as lines for a terminal or journald, or as JSON.

use std::fs;
use std::os::unix::fs::MetadataExt;

use sandbox::{Manner, Sandbox, Sink, wait};
use serde_json::Value;

use super::{SOON, daemon, toml};

#[test]
fn every_line_of_a_json_log_is_json_libslurms_own_too_and_a_tick_without_a_change_has_none() {
    let mut sandbox = Sandbox::start().unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let config = toml("1s", sandbox.slurm.conf(), &[("main", &sink.address())]);
    let mut daemon =
        daemon(&sandbox.folder, "daemon", &config).unwrap().args(["--log-format", "json"]);
    daemon.start().unwrap();
    daemon.line("slurmctld answers", SOON).unwrap();
    let ticks = || String::from_utf8_lossy(&sink.bytes()).matches(".gauge-ticks_run ").count();
    let (lines, start) = (daemon.lines(), ticks());
    wait::until("ten ticks", SOON, || ticks() >= start + 10).unwrap();
    assert_eq!(daemon.lines(), lines);
    // Without munged, libslurm prints something on stderr.
    sandbox.slurm.munged.stop().unwrap();
    daemon.line("\"target\":\"libslurm\"", SOON).unwrap();
    daemon.line("no reading", SOON).unwrap();
    let before = daemon.lines().len();
    sandbox.slurm.munged.start().unwrap();
    daemon.line_after(before, "slurmctld answers", SOON).unwrap();
    sandbox.folder.write("daemon.toml", "interval = 1\nprefix = 2\n").unwrap();
    daemon.signal(sandbox::proc::Signal::HUP).unwrap();
    daemon.line("the new configuration is refused", SOON).unwrap();
    assert!(daemon.stop().unwrap().status.success());
    let lines = daemon.lines();
    for line in &lines {
        let event: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["timestamp", "level", "target", "message"] {
            assert!(event[key].is_string(), "{key} is not in {line}");
        }
    }
    assert!(lines.last().unwrap().contains("slurm-graphite has ended"), "{lines:#?}");
}

#[test]
fn journald_makes_its_own_timestamps_and_nobody_else_does() {
    let sandbox = Sandbox::start().unwrap();
    let config = toml("1s", sandbox.slurm.conf(), &[("main", "127.0.0.1:9")]);
    let log = |name: &str, journal: Option<String>| {
        let mut daemon = daemon(&sandbox.folder, name, &config).unwrap();
        if let Some(journal) = journal {
            daemon = daemon.env("JOURNAL_STREAM", journal);
        }
        daemon.start().unwrap();
        daemon.line("slurmctld answers", SOON).unwrap();
        daemon.stop().unwrap();
        daemon.lines()
    };
    // stderr is a file here; the daemon does not check that it is not a socket.
    let file = sandbox.folder.write("log/journal.log", "").unwrap();
    let metadata = fs::metadata(&file).unwrap();
    let journal = format!("{}:{}", metadata.dev(), metadata.ino());
    let dated = |line: &String| line.trim_start().starts_with(|c: char| c.is_ascii_digit());

    let lines = log("journal", Some(journal.clone()));
    // sd-daemon(3): without these prefixes `journalctl -p warning` finds nothing.
    let priority =
        |words: &str| lines.iter().find(|line| line.contains(words)).map(|line| &line[..3]);
    assert!(lines.iter().all(|line| line.starts_with('<')), "{lines:#?}");
    let priorities = [priority("has started"), priority("not connected; ")];
    assert_eq!(priorities, [Some("<6>"), Some("<4>")], "{lines:#?}");
    assert!(lines.len() > 2 && !lines.iter().any(dated), "{lines:#?}");
    assert!(
        lines.iter().all(|line| !line.contains('\u{1b}')),
        "colours are for a terminal: {lines:#?}"
    );
    let lines = log("other", Some(journal));
    assert!(
        lines.len() > 2 && lines.iter().all(dated),
        "another file is not the journal: {lines:#?}"
    );
    let lines = log("plain", None);
    assert!(lines.len() > 2 && lines.iter().all(dated), "{lines:#?}");
    let start = lines.iter().find(|line| line.contains("slurm-graphite has started")).unwrap();
    for words in ["plain.toml", "main (127.0.0.1:9)", "queue=\"in memory\""] {
        assert!(start.contains(words), "{words}: {start}");
    }
}
