//! The configuration file that commands read without --config. A sandbox has one under this name in
//! its folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sandbox::{
    Folder, Invocation, Manner, Process, Sandbox, Sink, find_program, is_root, printed, run,
    slurm_graphite,
};

use super::{RECORDING, SOON};

const NAME: &str = "default.toml";
/// The minimum that a daemon needs.
const CARBON: &str = "[[carbon]]\naddress = \"127.0.0.1:9\"\n";

#[test]
fn every_command_reads_it_and_check_says_that_it_did() {
    let folder = Folder::new().unwrap();
    let recording = folder.write("recording", RECORDING).unwrap();
    let once = |args: &[&str]| {
        printed(&folder, &[&["once", "--replay", &recording], args].concat()).unwrap()
    };
    assert!(once(&[]).starts_with("cluster."), "a missing one is no problem");
    let file =
        folder.write(NAME, &format!("prefix = \"site\"\ninterval = \"10s\"\n{CARBON}")).unwrap();
    assert_eq!(printed(&folder, &["check"]).unwrap(), format!("✓ configuration: {file}\n"));
    let rules = printed(&folder, &["carbon-rules"]).unwrap();
    assert!(rules.contains("pattern = ^(site") && rules.contains("10s:14d"), "{rules}");
    assert!(once(&[]).lines().all(|line| line.starts_with("site.")), "{}", once(&[]));
    assert!(once(&["--prefix", "flag"]).starts_with("flag."), "a flag goes over it");
    let other = folder.write("other.toml", "prefix = \"other\"\n").unwrap();
    assert!(once(&["--config", &other]).starts_with("other."), "--config takes its place");

    // Its errors are those of a file that is named.
    let file = folder.write(NAME, "\ninterval = 3\n").unwrap();
    for command in ["check", "run", "once", "stats", "carbon-rules"] {
        let bad = run(&folder, &[command]).unwrap();
        assert_eq!((bad.code, bad.stdout.as_str()), (Some(78), ""), "{command}");
        assert!(
            bad.stderr.contains(&format!("{file}: line 2: interval: ")),
            "{command}: {}",
            bad.stderr
        );
    }
}

/// `make install PREFIX=` puts both there; this machine's own /etc comes second.
#[test]
fn below_another_prefix_it_is_in_the_etc_of_that_prefix() {
    let folder = Folder::new().unwrap();
    let file = folder.write("opt/etc/slurm-graphite/slurm-graphite.toml", CARBON).unwrap();
    let program = folder.write("opt/bin/slurm-graphite", "").unwrap();
    fs::remove_file(&program).unwrap();
    sandbox::copy_program(&slurm_graphite().unwrap(), program.as_ref()).unwrap();
    let words = ["-u", "SLURM_GRAPHITE_CONFIG", &program, "check"];
    let check = Invocation::of_program(&folder, &find_program("env").unwrap(), &words)
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(check.stdout, format!("✓ configuration: {file}\n"));
}

/// Carbon's rules must exist before the first point, so a command that only looks must not create
/// series.
#[test]
fn once_sends_only_with_send_and_goes_on_if_an_ordinary_user_may_not_read_the_file() {
    let sandbox = Sandbox::start().unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let folder = &sandbox.folder;
    let toml = format!("[slurm]\n{}{}", sandbox.slurm.toml(), sink.destination("sink"));
    let file = folder.write(NAME, &toml).unwrap();
    let once = printed(folder, &["once"]).unwrap();
    assert!(once.contains("gauge-server_thread_count"), "{once}");
    printed(folder, &["once", "--config", &file]).unwrap();
    let flag = run(folder, &["once", "--carbon", &sink.address()]).unwrap();
    let said = "printed, not sent; to send it, add --send";
    assert!(flag.code == Some(0) && flag.stderr.contains(said), "{flag:?}");
    assert_eq!(sink.accepted(), 0);
    let sent = run(folder, &["once", "--send"]).unwrap();
    assert!(sent.stderr.contains("which has read them"), "{}", sent.stderr);
    assert!(sink.accepted() > 0);
    folder.write(NAME, "").unwrap();
    let nowhere = run(folder, &["once", "--send"]).unwrap();
    assert!(
        nowhere.code == Some(78) && nowhere.stderr.contains("nowhere to send to"),
        "{nowhere:?}"
    );
    one_that_an_ordinary_user_may_not_read_is_told_in_one_line(&sandbox);
}

/// An attempt with --carbon must not send the daemon's backlog to another Carbon, nor leave files
/// that the daemon cannot read.
#[test]
fn the_daemon_sends_where_it_says_and_carbon_goes_over_it_without_touching_its_queue() {
    let folder = Folder::new().unwrap();
    let [file, flag] = [0; 2].map(|_| Sink::start(Manner::Record).unwrap());
    let queue = folder.path().join("queue");
    folder.write(NAME, &format!("[queue]\ndir = {queue:?}\n{}", file.destination("file"))).unwrap();
    let has_connected =
        |sink: &Sink| sandbox::wait::until("a connection", SOON, || sink.accepted() > 0);
    let run = |name: &str, args: &[&str], to: &Sink| {
        let mut daemon =
            Process::new(&folder, name, slurm_graphite().unwrap()).args(args.iter().copied());
        daemon.start().unwrap();
        has_connected(to).unwrap();
        daemon.stop().unwrap();
    };
    run("daemon", &["run"], &file);
    let before = file.accepted();
    assert!(queue.join("queue.lock").exists());
    fs::remove_dir_all(&queue).unwrap();
    run("other", &["run", "--carbon", &flag.address()], &flag);
    assert_eq!(file.accepted(), before);
    assert!(!queue.exists());
}

/// An administrator may have something to hide in it.
fn one_that_an_ordinary_user_may_not_read_is_told_in_one_line(sandbox: &Sandbox) {
    let (folder, conf) = (&sandbox.folder, sandbox.slurm.conf().display().to_string());
    let file = folder.write(NAME, "prefix = \"secret\"\n").unwrap();
    let mode = if is_root() { 0o640 } else { 0 };
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let ordinary = |args: &[&str]| Invocation::ordinary(folder, args).unwrap().finish().unwrap();
    let note = format!(
        "slurm-graphite: {file}: cannot be read: Permission denied (os error 13); using flags and \
            defaults\n"
    );
    for (command, words) in [("once", "cluster."), ("stats", "Jobs submitted:")] {
        let said = ordinary(&[command, "--slurm-conf", &conf]);
        assert_eq!((said.code, &said.stderr), (Some(0), &note));
        assert!(said.stdout.contains(words), "{}", said.stdout);
    }
    // These are about the file itself.
    for command in [&["check"][..], &["carbon-rules"], &["run", "--carbon", "127.0.0.1:9"]] {
        let refused = ordinary(command);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""), "{command:?}");
        assert!(
            refused.stderr.contains(&format!("{file}: cannot be read: ")),
            "{}",
            refused.stderr
        );
    }
}
