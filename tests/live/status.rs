//! `status`: its output for a healthy daemon, one that waits for slurmctld or Carbon, one that
//! hangs, and none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sandbox::{
    Finished, Folder, Invocation, Manner, NOBODY, Process, Sandbox, Sink, find_program, log, now,
    proc, slurm_graphite, wait,
};
use serde_json::Value;

use super::SOON;
use super::commands::Terminal;

const NO_CARBON: &str = "[[carbon]]\naddress = \"127.0.0.1:9\"\n";
/// sysexits.h: EX_UNAVAILABLE
const NO_DAEMON: Option<i32> = Some(69);

/// The folder that systemd would create.
pub(crate) fn runtime(folder: &Folder) -> PathBuf {
    folder.path().join("run")
}

/// A daemon that ticks every second, with this additional configuration, at the place where
/// `status` looks for it.
fn daemon(folder: &Folder, toml: &str) -> Result<Process> {
    daemon_every("1s", folder, toml, &[])
}

/// A daemon with this interval, this additional configuration and these environment variables, at
/// the place where `status` looks for it.
pub(crate) fn daemon_every(
    interval: &str,
    folder: &Folder,
    toml: &str,
    env: &[(&str, String)],
) -> Result<Process> {
    let mut process = configured(interval, folder, toml)?;
    env.iter().for_each(|(name, value)| process.set_env(name, value));
    start(folder, &mut process)?;
    Ok(process)
}

/// A daemon with this interval and this additional configuration, not started yet.
pub(crate) fn configured(interval: &str, folder: &Folder, toml: &str) -> Result<Process> {
    fs::write(folder.path().join("daemon.toml"), format!("interval = \"{interval}\"\n{toml}"))?;
    fs::create_dir_all(runtime(folder))?;
    process(folder, "daemon")
}

/// Starts it, and waits until it can be asked.
pub(crate) fn start(folder: &Folder, process: &mut Process) -> Result<()> {
    process.start()?;
    let socket = runtime(folder).join("status.sock");
    wait::until("its socket", SOON, || socket.exists()).map(drop)
}

/// A daemon with that configuration, not started yet.
fn process(folder: &Folder, name: &str) -> Result<Process> {
    Ok(Process::new(folder, name, slurm_graphite()?)
        .args(["run", "--config", &folder.path().join("daemon.toml").display().to_string()])
        .env("RUNTIME_DIRECTORY", runtime(folder)))
}

pub(crate) fn status(folder: &Folder, args: &[&str]) -> Result<Finished> {
    let runtime = runtime(folder).display().to_string();
    let all = [&["status"], args].concat();
    Invocation::new(folder, &all)?.env("RUNTIME_DIRECTORY", &runtime).finish()
}

/// The JSON document of `--json`.
fn document(folder: &Folder, args: &[&str]) -> Result<Value> {
    let finished = status(folder, &[&["--json"], args].concat())?;
    serde_json::from_str(&finished.stdout).with_context(|| finished.stderr)
}

/// Waits until `condition` is true for the document.
fn until(folder: &Folder, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let probe = || document(folder, &[]).ok().filter(&condition);
    wait::until_some(what, SOON * 2, probe).unwrap()
}

fn to_main(sandbox: &Sandbox, more: &str) -> String {
    let conf = sandbox.slurm.conf().display();
    let address = sandbox.carbon.address();
    format!(
        "{more}[slurm]\nconf = \"{conf}\"\n[[carbon]]\nname = \"main\"\naddress = \"{address}\"\n"
    )
}

/// The mark at the beginning of the line about a subject, and the rest of the line.
fn line(said: &str, subject: &str) -> (char, String) {
    let marked = said.lines().filter_map(|line| line.split_once(' '));
    let mut found = marked.filter_map(|(mark, text)| {
        Some((mark.chars().next()?, text.strip_prefix(subject)?.trim().to_owned()))
    });
    found.next().unwrap_or_else(|| panic!("no {subject} in {said}"))
}

#[test]
fn a_daemon_that_is_well_says_what_it_does_and_the_exit_code_is_0() {
    let sandbox = Sandbox::start().unwrap();
    let queue = sandbox.path("queue");
    let more =
        format!("[queue]\ndir = \"{}\"\n[collectors.jobs]\nenabled = true\n", queue.display());
    let mut daemon = daemon(&sandbox.folder, &to_main(&sandbox, &more)).unwrap();
    let told = until(&sandbox.folder, "a tick that was sent", |told| {
        told["destinations"][0]["last_delivery"].is_u64()
            && told["slurmctld"]["answers"] == true
            && told["readers"][1]["pid"].is_u64()
            && told["queue"]["durable"] == true
    });
    assert_eq!(told["ok"], true, "{told}");
    assert_eq!(told["problems"].as_array().unwrap().len(), 0);
    assert_eq!(told["pid"], daemon.pid().unwrap());
    assert_eq!(told["config"], sandbox.path("daemon.toml").display().to_string());
    assert!(told["now"].as_i64().unwrap() - told["last_tick"].as_i64().unwrap() <= 5, "{told}");
    let (slurmctld, main) = (&told["slurmctld"], &told["destinations"][0]);
    assert!(slurmctld["answers"] == true && slurmctld["cluster"] == "sandbox", "{told}");
    assert!(
        main["name"] == "main" && main["connected"] == true && main["in_doubt"] == false,
        "{told}"
    );
    assert_eq!(told["queue"]["dir"], queue.display().to_string());
    let readers = sandbox::proc::children(daemon.pid().unwrap());
    for (reader, role) in told["readers"].as_array().unwrap().iter().zip(["statistics", "surveys"])
    {
        assert_eq!((&reader["role"], &reader["restarts"]), (&role.into(), &0.into()));
        assert!(reader["release"].as_str().is_some_and(|release| release.len() == 5), "{reader}");
        assert!(readers.iter().any(|pid| reader["pid"] == *pid), "{reader}: {readers:?}");
    }

    let said = status(&sandbox.folder, &[]).unwrap();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{}", said.stdout);
    assert!(line(&said.stdout, "slurmctld").1.starts_with("answers since 20"), "{}", said.stdout);
    let main = format!("main ({})", sandbox.carbon.address());
    assert!(line(&said.stdout, &main).1.starts_with("connected since 20"), "{}", said.stdout);
    assert!(line(&said.stdout, "last tick").1.contains("one every 1 s"), "{}", said.stdout);
    assert!(said.stdout.lines().all(|line| line.starts_with('✓')), "{}", said.stdout);
    // All texts begin in the same column.
    let column = said.stdout.lines().next().unwrap().find("0.").unwrap();
    for line in said.stdout.lines() {
        let (before, text) = line.split_at(column);
        assert!(before.ends_with("  ") && !text.starts_with(' '), "{}", said.stdout);
    }
    // On a terminal the marks are green, and nothing else differs.
    let shown = Invocation::new(&sandbox.folder, &["status"]).unwrap();
    let shown = shown.env("RUNTIME_DIRECTORY", &runtime(&sandbox.folder).display().to_string());
    let shown = Terminal::open().unwrap().output(shown).unwrap();
    assert_eq!(shown.lines().count(), said.stdout.lines().count(), "{shown:?}");
    assert!(shown.lines().all(|line| line.starts_with("\x1b[32m✓\x1b[m ")), "{shown:?}");
    assert_eq!(shown.matches('\x1b').count(), 2 * shown.lines().count(), "{shown:?}");
    daemon.stop().unwrap();
    assert_eq!(status(&sandbox.folder, &[]).unwrap().code, NO_DAEMON);
}

#[test]
fn a_slurmctld_that_is_away_is_a_problem_after_max_age_and_not_before() {
    let mut sandbox = Sandbox::start().unwrap();
    let _daemon = daemon(&sandbox.folder, &to_main(&sandbox, "")).unwrap();
    until(&sandbox.folder, "a reading", |told| told["slurmctld"]["answers"] == true);
    sandbox.slurm.slurmctld.stop().unwrap();
    let told = until(&sandbox.folder, "a reading that failed", |told| {
        told["slurmctld"]["answers"] == false
    });
    assert!(told["slurmctld"]["error"].as_str().unwrap().len() > 10, "{told}");
    let patient = status(&sandbox.folder, &["--patience", "1h"]).unwrap();
    let (mark, text) = line(&patient.stdout, "slurmctld");
    assert_eq!((patient.code, mark), (Some(0), '–'), "{}", patient.stdout);
    assert!(text.starts_with("does not answer since 20"), "{text}");
    wait::until("an age of more than a second", SOON, || {
        status(&sandbox.folder, &["--patience", "1s"]).unwrap().code == Some(1)
    })
    .unwrap();
    let said = status(&sandbox.folder, &["--patience", "1s"]).unwrap();
    assert_eq!(line(&said.stdout, "slurmctld").0, '✗', "{}", said.stdout);
    assert!(said.stderr.contains("see the lines with ✗"), "{}", said.stderr);
    sandbox.slurm.slurmctld.start().unwrap();
    until(&sandbox.folder, "a reading again", |told| told["slurmctld"]["answers"] == true);
}

#[test]
fn a_carbon_that_is_away_is_told_with_what_is_kept_for_it_and_since_when() {
    let mut sandbox = Sandbox::start().unwrap();
    let dir = sandbox.folder.path().join("queue");
    let in_files = format!("[queue]\ndir = {dir:?}\n");
    let _daemon = daemon(&sandbox.folder, &to_main(&sandbox, &in_files)).unwrap();
    until(&sandbox.folder, "a delivery", |told| told["destinations"][0]["last_delivery"].is_u64());
    sandbox.carbon.process.stop().unwrap();
    let told = until(&sandbox.folder, "five ticks that wait", |told| {
        told["destinations"][0]["unsent"]["ticks"].as_u64() >= Some(5)
    });
    let main = &told["destinations"][0];
    assert_eq!(main["connected"], false);
    let now = told["now"].as_i64().unwrap();
    let since = main["since"].as_i64().unwrap();
    assert!((now - 60..=now).contains(&since), "{told}");
    assert!(main["oldest_unsent"].as_i64().unwrap() <= now - 4, "{told}");
    // The default collectors have over a hundred points.
    assert!(main["unsent"]["points"].as_u64() > Some(500), "{told}");
    let points =
        main["unsent"]["points"].as_u64().unwrap() / main["unsent"]["ticks"].as_u64().unwrap();
    assert_documented_size(&sandbox.folder, &dir, points);
    let said = status(&sandbox.folder, &["--patience", "2s"]).unwrap();
    let (mark, text) = line(&said.stdout, "main");
    assert_eq!((said.code, mark), (Some(1), '✗'), "{}", said.stdout);
    for words in ["not connected since 20", " ticks not sent yet (", " points), the oldest from 20"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let told = document(&sandbox.folder, &["--patience", "2s"]).unwrap();
    assert_eq!(
        (&told["ok"], told["problems"].as_array().unwrap().len()),
        (&false.into(), 1),
        "{told}"
    );
    sandbox.carbon.process.start().unwrap();
    let told = until(&sandbox.folder, "Carbon again", |told| {
        let main = &told["destinations"][0];
        main["unsent"]["ticks"].as_u64() <= Some(1) && main["again"]["ticks"] == 0
    });
    assert!(told["destinations"][0]["since"].as_i64().unwrap() > since, "{told}");
}

/// The documents said 6 KB, which was a tick without the default collectors: `max_bytes` held half
/// as long as promised.
fn assert_documented_size(folder: &Folder, queue: &Path, points: u64) {
    let (operations, shipped) = (
        include_str!("../../docs/operations.md"),
        include_str!("../../config/slurm-graphite.toml"),
    );
    assert!(operations.contains("(220 points) takes 18 KB") && shipped.contains("takes 18 KB"));
    let told = until(folder, "twenty ticks in the queue", |told| {
        told["destinations"][0]["held"].as_u64() >= Some(20)
    });
    let files = fs::read_dir(queue).unwrap().flatten();
    let logs =
        files.filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
    let bytes: u64 = logs.map(|file| file.metadata().unwrap().len()).sum();
    let tick = bytes / told["destinations"][0]["held"].as_u64().unwrap();
    let usual = tick * 220 / points;
    assert!((13_500..22_500).contains(&usual), "{tick} bytes for {points} points: {told}");
}

/// Forty ticks that Carbon has read are still kept for resend_window when it is restarted. Once
/// they were counted as unsent, so that status failed in the third second of any restart.
#[test]
fn ticks_that_carbon_had_read_are_no_unsent_ticks_when_it_stops() {
    const READ: u64 = 40;
    let mut sandbox = Sandbox::start().unwrap();
    let daemon = daemon(&sandbox.folder, &to_main(&sandbox, "[log]\nformat = \"json\"\n")).unwrap();
    let held = || {
        let told = document(&sandbox.folder, &[]).ok()?;
        (told["destinations"][0]["held"].as_u64() >= Some(READ)).then_some(told)
    };
    let told = wait::until_some("ticks that were sent", wait::LIMIT, held).unwrap();
    assert_eq!(told["destinations"][0]["again"]["ticks"], 0, "{told}");
    let now_at_stop = now();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of today")]
    let stopped = now_at_stop as u64;
    sandbox.carbon.process.stop().unwrap();
    // Shorter than what Carbon had read, or the mistake would not show.
    let patience = ["--patience", "30s"];
    let mut last = 0;
    while last < stopped + 20 {
        let said = status(&sandbox.folder, &["--json", patience[0], patience[1]]).unwrap();
        let told: Value = serde_json::from_str(&said.stdout).unwrap();
        let main = &told["destinations"][0];
        assert_eq!((said.code, &told["ok"]), (Some(0), &true.into()), "{told}");
        last = told["now"].as_u64().unwrap();
        let away = last - stopped;
        assert!(main["unsent"]["ticks"].as_u64().unwrap() <= away + 2, "{away} s: {told}");
        assert!(
            main["oldest_unsent"].as_u64().is_none_or(|oldest| oldest >= stopped - 1),
            "{told}"
        );
        assert!(main["waits_since"].as_u64().is_none_or(|since| since >= stopped - 1), "{told}");
        let text = status(&sandbox.folder, &patience).unwrap();
        assert!(matches!(line(&text.stdout, "main").0, '✓' | '–'), "{}", text.stdout);
        if main["unsent"]["ticks"].as_u64() >= Some(5) {
            let text = line(&text.stdout, "main").1;
            let again =
                text.split("; ").find_map(|part| part.strip_suffix(" ticks to be sent again"));
            assert!(again.is_some_and(|ticks| ticks.parse::<u64>().unwrap() >= READ - 5), "{text}");
        }
        wait::pause(Duration::from_millis(500));
    }
    let waits = status(&sandbox.folder, &["--patience", "10s"]).unwrap();
    assert_eq!((waits.code, line(&waits.stdout, "main").0), (Some(1), '✗'), "{}", waits.stdout);
    let log = |line: &str| {
        log::entries(&daemon).into_iter().find(|entry| entry.message.starts_with(line))
    };
    let number = |line: &str, field: &str| -> u64 {
        let value: Value = serde_json::from_str(line).unwrap();
        value[field].as_u64().unwrap_or_else(|| panic!("no {field}: {line}"))
    };
    let lost = log("not connected; ticks are kept").unwrap();
    let (unsent, after) = (number(&lost.line, "unsent_ticks"), lost.at - now_at_stop);
    let unsent = unsent as f64;
    assert!(
        unsent <= after + 2.0 && number(&lost.line, "ticks_to_resend") >= READ - 5,
        "{}",
        lost.line
    );

    sandbox.carbon.process.start().unwrap();
    let back = wait::until_some("Carbon again", SOON * 3, || log("back after ")).unwrap().line;
    let away = last - stopped;
    assert!(number(&back, "unsent_ticks") >= away - 3, "{back}");
    assert!(number(&back, "ticks_to_resend") >= READ - 5, "{back}");
    assert!(number(&back, "points") >= 50 * (READ + away), "{back}");
    // The figure too, by what whisper has got afterwards: a second of age for each of the outage.
    let ages = || {
        let paths = sandbox.carbon.paths();
        let path = paths.keys().find(|path| path.ends_with("gauge-queue_age"))?;
        let points = sandbox.carbon.series(path).ok()?.points;
        let outage: Vec<(u64, f64)> =
            points.into_iter().filter(|(at, _)| (stopped..last).contains(at)).collect();
        (outage.len() >= 18).then_some(outage)
    };
    for (at, age) in wait::until_some("the outage's figures", SOON * 3, ages).unwrap() {
        let most = (at - stopped + 2) as f64;
        assert!(age <= most, "{} s into the outage the age is {age}", at - stopped);
    }
}

/// A health check is useless if it hangs together with the daemon.
#[test]
fn a_daemon_that_is_stopped_is_told_within_seconds_and_is_found_again_when_it_goes_on() {
    let folder = Folder::new().unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let mut daemon = daemon(&folder, &sink.destination("sink")).unwrap();
    until(&folder, "a tick", |told| told["last_tick"].is_i64());
    daemon.freeze().unwrap();
    let start = Instant::now();
    for args in [&[][..], &["--json"]] {
        let silent = status(&folder, args).unwrap();
        assert_eq!((silent.code, silent.stdout.as_str()), (NO_DAEMON, ""), "{}", silent.stderr);
        assert!(silent.stderr.contains("has not answered within 5 s"), "{}", silent.stderr);
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    daemon.thaw().unwrap();
    until(&folder, "a response", |told| told["last_tick"].is_i64());
    assert!(daemon.stop().unwrap().status.success());
}

/// With an interval much longer than --patience, a daemon would seem to have stopped ticking.
#[test]
fn ticks_that_have_ended_are_a_problem_although_the_daemon_answers() {
    let folder = Folder::new().unwrap();
    let _daemon = daemon_every("5s", &folder, NO_CARBON, &[]).unwrap();
    until(&folder, "a tick", |told| told["last_tick"].is_i64());
    let late = wait::until_some("an old tick", SOON, || {
        status(&folder, &["--patience", "2s"])
            .ok()
            .filter(|said| line(&said.stdout, "last tick").0 == '✗')
    });
    assert_eq!(late.unwrap().code, Some(1));
    // Three intervals by default, or more.
    let by_default = status(&folder, &[]).unwrap();
    assert_eq!(line(&by_default.stdout, "last tick").0, '✓', "{}", by_default.stdout);
}

#[test]
fn without_a_daemon_it_says_where_it_has_looked_and_what_to_do() {
    let folder = Folder::new().unwrap();
    let none = status(&folder, &[]).unwrap();
    assert_eq!((none.code, none.stdout.as_str()), (NO_DAEMON, ""));
    for words in [
        "no daemon answers at ",
        "/run/status.sock: ",
        "No such file",
        "systemctl status slurm-graphite",
    ] {
        assert_eq!(none.stderr.matches(words).count(), 1, "{words}: {}", none.stderr);
    }
    let socket = folder.path().join("other").display().to_string();
    let other = status(&folder, &["--socket", &socket]).unwrap();
    assert!(other.code == NO_DAEMON && other.stderr.contains(&socket), "{}", other.stderr);
    // Another program's socket.
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let answers = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let nonsense = status(&folder, &["--socket", &socket]).unwrap();
    answers.join().unwrap();
    assert!(
        nonsense.code == NO_DAEMON && nonsense.stderr.contains("not slurm-graphite"),
        "{}",
        nonsense.stderr
    );
    assert_eq!(status(&folder, &["--patience", "90"]).unwrap().code, Some(64), "no unit");
}

/// SIGKILL leaves the socket behind.
#[test]
fn the_socket_of_a_daemon_that_was_killed_says_that_none_runs_and_the_next_daemon_takes_its_place()
{
    let folder = Folder::new().unwrap();
    let mut daemon = daemon(&folder, NO_CARBON).unwrap();
    until(&folder, "a response", |told| told["pid"].is_u64());
    daemon.kill().unwrap();
    let killed = status(&folder, &[]).unwrap();
    assert!(
        killed.code == NO_DAEMON && killed.stderr.contains("Connection refused"),
        "{}",
        killed.stderr
    );
    daemon.start().unwrap();
    let pid = daemon.pid().unwrap();
    until(&folder, "the next daemon", |told| told["pid"] == pid);
    // The daemon runs even without the folder.
    daemon.stop().unwrap();
    fs::remove_dir_all(runtime(&folder)).unwrap();
    daemon.start().unwrap();
    daemon.line("`slurm-graphite status` cannot reach this daemon", SOON).unwrap();
    assert!(daemon.stop().unwrap().status.success());
}

/// Two daemons on one host, for example for two clusters: a memory queue has no lock that would
/// prevent that.
#[test]
fn a_second_daemon_in_the_same_folder_leaves_the_socket_to_the_first() {
    let folder = Folder::new().unwrap();
    let mut first = daemon(&folder, NO_CARBON).unwrap();
    let pid = first.pid().unwrap();
    until(&folder, "the first daemon", |told| told["pid"] == pid);
    let mut second = process(&folder, "second").unwrap();
    second.start().unwrap();
    second.line("another daemon listens in this directory", SOON).unwrap();
    until(&folder, "the first daemon still", |told| told["pid"] == pid);
    assert!(second.stop().unwrap().status.success());
    until(&folder, "the first daemon after the second's end", |told| told["pid"] == pid);
    first.stop().unwrap();
}

/// A user who monitors a host is seldom root, and the unit's UMask would deny access.
#[test]
fn every_user_of_the_host_may_ask_and_the_socket_s_mode_says_so() {
    let folder = Folder::new().unwrap();
    let _daemon = daemon(&folder, NO_CARBON).unwrap();
    until(&folder, "a response", |told| told["pid"].is_u64());
    let socket = runtime(&folder).join("status.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o666);
    let socket = socket.display().to_string();
    // Only root can act as another user.
    if !rustix::process::getuid().is_root() {
        return;
    }
    let nobody = || {
        Invocation::by(NOBODY, &folder, &["status", "--socket", &socket]).unwrap().finish().unwrap()
    };
    let asked = nobody();
    assert!(asked.stdout.contains("last tick") && asked.code != NO_DAEMON, "{}", asked.stderr);
    fs::set_permissions(runtime(&folder), fs::Permissions::from_mode(0o700)).unwrap();
    let refused = nobody();
    assert!(
        refused.code == NO_DAEMON && refused.stderr.contains("Permission denied"),
        "{}",
        refused.stderr
    );
}

/// Sets the soft limit of the daemon.
fn limit(folder: &Folder, daemon: &mut Process, what: &str, most: usize) {
    let pid = daemon.pid().unwrap().to_string();
    let args = ["--pid", &pid, &format!("--{what}={most}:")];
    Invocation::of_program(folder, &find_program("prlimit").unwrap(), &args)
        .unwrap()
        .succeed()
        .unwrap();
}

/// SIGXFSZ ended it.
#[test]
fn a_limit_of_file_sizes_is_a_disk_that_cannot_be_used() {
    let folder = Folder::new().unwrap();
    let toml = format!("{NO_CARBON}[queue]\ndir = {:?}\n", folder.path().join("queue"));
    let mut daemon = daemon(&folder, &toml).unwrap();
    daemon.line("slurm-graphite has started", SOON).unwrap();
    limit(&folder, &mut daemon, "fsize", 4096);
    let is_in_memory =
        || status(&folder, &[]).is_ok_and(|status| status.stdout.contains("File too large"));
    wait::until("a queue in memory", SOON, is_in_memory).unwrap();
    assert!(daemon.stop().unwrap().status.success());
}

/// It was said that the daemon is stopped or hangs, or is not of this version.
#[test]
fn a_daemon_without_descriptors_and_one_with_thousands_of_problems_answer() {
    let folder = Folder::new().unwrap();
    let mut daemon = daemon(&folder, NO_CARBON).unwrap();
    let wrong: String = (0..5000).map(|key| format!("wrong{key} = 1\n")).collect();
    fs::write(folder.path().join("daemon.toml"), format!("{wrong}{NO_CARBON}")).unwrap();
    daemon.signal(proc::Signal::HUP).unwrap();
    daemon.line("configuration is refused", SOON).unwrap();
    let text = status(&folder, &[]).unwrap().stdout;
    assert!(text.contains("wrong0: ") && text.contains("and 4980 more"), "{text}");

    let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid().unwrap())).unwrap().count();
    limit(&folder, &mut daemon, "nofile", open);
    for _ in 0..3 {
        let status = status(&folder, &[]).unwrap();
        assert!(status.code != NO_DAEMON && status.stdout.contains("127.0.0.1:9"), "{status:?}");
    }
}
