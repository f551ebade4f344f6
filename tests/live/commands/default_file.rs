//! The configuration file that commands read without --config. A sandbox has one under this name in its folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sandbox::{
    Folder, Invocation, Manner, NOBODY, Process, Sandbox, Sink, find_program, run, slurm_graphite,
};

use super::{SOON, write};

const NAME: &str = "default.toml";
/// The minimum that a daemon needs.
const CARBON: &str = "[[carbon]]\naddress = \"127.0.0.1:9\"\n";
/// A line that `stats --json` printed once.
const RECORDING: &str = include_str!("reading.json");

#[test]
fn every_command_reads_it_and_check_says_that_it_did() {
    let folder = Folder::new().unwrap();
    let recording = write(&folder, "recording", RECORDING).unwrap();
    let file = write(&folder, NAME, &format!("prefix = \"site\"\ninterval = \"10s\"\n{CARBON}")).unwrap();
    let check = run(&folder, &["check"]).unwrap();
    assert_eq!((check.code, check.stdout), (Some(0), format!("✓ configuration: {file}\n")));
    let rules = run(&folder, &["carbon-rules"]).unwrap().stdout;
    assert!(rules.contains("pattern = ^(site") && rules.contains("10s:1d"), "{rules}");
    let once =
        |args: &[&str]| run(&folder, &[&["once", "--replay", &recording], args].concat()).unwrap().stdout;
    assert!(once(&[]).lines().all(|line| line.starts_with("site.")), "{}", once(&[]));
    assert!(once(&["--prefix", "flag"]).starts_with("flag."), "a flag goes over it");
    let other = write(&folder, "other.toml", "prefix = \"other\"\n").unwrap();
    assert!(once(&["--config", &other]).starts_with("other."), "--config takes its place");
}

#[test]
fn a_missing_one_is_no_problem_and_check_says_where_it_would_be() {
    let folder = Folder::new().unwrap();
    let expected = folder.path().join(NAME).display().to_string();
    let check = run(&folder, &["check"]).unwrap();
    assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""));
    assert!(check.stdout.contains(&format!("there is no {expected}")), "{}", check.stdout);
    let recording = write(&folder, "recording", RECORDING).unwrap();
    let once = run(&folder, &["once", "--replay", &recording]).unwrap();
    assert_eq!((once.code, once.stderr.as_str()), (Some(0), ""));
}

/// `make install PREFIX=` puts both there; this machine's own /etc comes second.
#[test]
fn below_another_prefix_it_is_in_the_etc_of_that_prefix() {
    let folder = Folder::new().unwrap();
    let [program, file] = ["opt/bin/slurm-graphite", "opt/etc/slurm-graphite/slurm-graphite.toml"]
        .map(|name| folder.path().join(name));
    for path in [&program, &file] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
    }
    sandbox::copy_program(&slurm_graphite().unwrap(), &program).unwrap();
    fs::write(&file, CARBON).unwrap();
    let words = ["-u", "SLURM_GRAPHITE_CONFIG", &program.display().to_string(), "check"];
    let check = Invocation::of(&folder, &find_program("env").unwrap(), &words).unwrap().finish().unwrap();
    assert_eq!(check.stdout, format!("✓ configuration: {}\n", file.display()));
}

#[test]
fn its_errors_are_those_of_a_file_that_is_named() {
    let folder = Folder::new().unwrap();
    let file = write(&folder, NAME, "\ninterval = 3\n").unwrap();
    for command in ["check", "run", "once", "stats", "carbon-rules"] {
        let bad = run(&folder, &[command]).unwrap();
        assert_eq!((bad.code, bad.stdout.as_str()), (Some(78), ""), "{command}");
        assert!(bad.stderr.contains(&format!("{file}: line 2: interval: ")), "{command}: {}", bad.stderr);
    }
}

/// Carbon's rules must exist before the first point, so a command that only looks must not create series.
#[test]
fn once_sends_only_with_send_whatever_names_the_carbon() {
    let sandbox = Sandbox::start().unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let toml = format!(
        "[slurm]\nconf = \"{}\"\n[[carbon]]\naddress = \"{}\"\nprotocol = \"plaintext\"\n",
        sandbox.slurm.conf().display(),
        sink.address()
    );
    let file = write(&sandbox.folder, NAME, &toml).unwrap();
    let once = run(&sandbox.folder, &["once"]).unwrap();
    assert_eq!(once.code, Some(0), "{}", once.stderr);
    assert!(once.stdout.contains("gauge-server_thread_count"), "{}", once.stdout);
    assert_eq!(once.stderr, "");
    let named = run(&sandbox.folder, &["once", "--config", &file]).unwrap();
    assert_eq!((named.code, named.stderr.as_str()), (Some(0), ""));
    let flag = run(&sandbox.folder, &["once", "--carbon", &sink.address()]).unwrap();
    assert!(
        flag.code == Some(0) && flag.stderr.contains("printed, not sent; to send it, add --send"),
        "{flag:?}"
    );
    assert_eq!(sink.accepted(), 0);
    let sent = run(&sandbox.folder, &["once", "--send"]).unwrap();
    assert!(sent.stderr.contains("which has read them"), "{}", sent.stderr);
    assert!(sink.accepted() > 0);
    write(&sandbox.folder, NAME, "").unwrap();
    let nowhere = run(&sandbox.folder, &["once", "--send"]).unwrap();
    assert!(nowhere.code == Some(78) && nowhere.stderr.contains("nowhere to send to"), "{nowhere:?}");
}

/// An attempt with --carbon must not send the daemon's backlog to another Carbon, nor leave files that the daemon
/// cannot read.
#[test]
fn the_daemon_sends_where_it_says_and_carbon_goes_over_it_without_touching_its_queue() {
    let folder = Folder::new().unwrap();
    let [file, flag] = [0; 2].map(|_| Sink::start(Manner::Record).unwrap());
    let queue = folder.path().join("queue");
    let toml = format!(
        "[queue]\ndir = \"{}\"\n[[carbon]]\naddress = \"{}\"\nprotocol = \"plaintext\"\n",
        queue.display(),
        file.address()
    );
    write(&folder, NAME, &toml).unwrap();
    let has_connected = |sink: &Sink| sandbox::wait::until("a connection", SOON, || sink.accepted() > 0);
    let mut daemon = Process::new(&folder, "daemon", slurm_graphite().unwrap()).args(["run"]);
    daemon.start().unwrap();
    has_connected(&file).unwrap();
    daemon.stop().unwrap();
    let before = file.accepted();
    assert!(queue.join("queue.lock").exists());
    fs::remove_dir_all(&queue).unwrap();
    let mut daemon =
        Process::new(&folder, "other", slurm_graphite().unwrap()).args(["run", "--carbon", &flag.address()]);
    daemon.start().unwrap();
    has_connected(&flag).unwrap();
    daemon.stop().unwrap();
    assert_eq!(file.accepted(), before);
    assert!(!queue.exists());
}

/// An administrator may have something to hide in it.
#[test]
fn one_that_an_ordinary_user_may_not_read_is_told_in_one_line_and_once_and_stats_go_on() {
    let sandbox = Sandbox::start().unwrap();
    let (folder, conf) = (&sandbox.folder, sandbox.slurm.conf().display().to_string());
    let file = write(folder, NAME, "prefix = \"secret\"\n").unwrap();
    let is_root = rustix::process::getuid().is_root();
    let mode = if is_root { 0o640 } else { 0 };
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let ordinary = |args: &[&str]| {
        let ordinary =
            if is_root { Invocation::by(NOBODY, folder, args) } else { Invocation::new(folder, args) };
        ordinary.unwrap().finish().unwrap()
    };
    let told = format!(
        "slurm-graphite: {file}: cannot be read: Permission denied (os error 13); using flags and defaults\n"
    );
    let once = ordinary(&["once", "--slurm-conf", &conf]);
    assert_eq!((once.code, &once.stderr), (Some(0), &told));
    assert!(once.stdout.starts_with("cluster."), "{}", once.stdout);
    let stats = ordinary(&["stats", "--slurm-conf", &conf]);
    assert_eq!((stats.code, &stats.stderr), (Some(0), &told));
    assert!(stats.stdout.contains("Jobs submitted:"), "{}", stats.stdout);
    // These are about the file itself.
    for command in [&["check"][..], &["carbon-rules"], &["run", "--carbon", "127.0.0.1:9"]] {
        let refused = ordinary(command);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""), "{command:?}");
        assert!(refused.stderr.contains(&format!("{file}: cannot be read: ")), "{}", refused.stderr);
    }
}
