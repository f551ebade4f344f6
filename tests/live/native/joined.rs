//! The native reader in the daemon: used where no libslurm has a reader, which is said, and left
//! when one is installed.

use std::fs;

use sandbox::{
    Collected, Folder, Invocation, Manner, Process, Sink, copy_program, log, slurm_graphite, wait,
};
use serde_json::Value;

use super::{controller, refusals};
use crate::SOON;

const WARNED: &str =
    "this host has no libslurm with a matching reader, so the native reader is used";

/// Installs this program under this name.
fn install(folder: &Folder, program: &str, name: &str) {
    let built = slurm_graphite().unwrap().with_file_name(program);
    copy_program(&built, &folder.path().join(name)).unwrap();
}

fn daemon(folder: &Folder, name: &str, toml: &str) -> (Process, Collected) {
    let mut process = Process::new(folder, name, folder.path().join("bin/slurm-graphite"))
        .args(["run", "--config", toml])
        .args(["--interval", "1s", "--log-level", "trace", "--log-format", "json"])
        .env("RUNTIME_DIRECTORY", folder.path().join("run"));
    process.spawn().unwrap();
    let collected = Collected::new(process.log());
    (process, collected)
}

/// Waits until the last tick has this figure.
fn until(collected: &mut Collected, end: &str, what: impl Fn(f64) -> bool) -> f64 {
    wait::until_some(end, SOON, || {
        collected.look().unwrap();
        collected.last(end).filter(|value| what(*value))
    })
    .unwrap()
}

/// A fall-back that nobody hears of would lose jobs and nodes for good, and one that is for ever
/// would never find them again.
#[test]
fn without_libslurm_the_statistics_go_on_what_is_lacking_is_said_and_libslurm_is_found_when_it_comes()
 {
    let (folder, slurm) = controller();
    let sink = Sink::start(Manner::Record).unwrap();
    for name in ["bin", "libexec/slurm-graphite", "run", "queue"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    install(&folder, "slurm-graphite", "bin/slurm-graphite");
    let text = format!(
        "[slurm]\n{}[queue]\ndir = {:?}\n[[carbon]]\nprotocol = \"plaintext\"\naddress = \"{}\"\n\
         [collectors.nodes]\nenabled = true\ninterval = \"1s\"\n",
        slurm.toml(),
        folder.path().join("queue"),
        sink.address(),
    );
    let toml = folder.write("daemon.toml", &text).unwrap();
    let warnings = |process: &Process| {
        log::entries(process).iter().filter(|entry| entry.message.contains(WARNED)).count()
    };

    let (mut process, mut collected) = daemon(&folder, "first", &toml);
    until(&mut collected, ".gauge-reader", |number| number == 1.0);
    until(&mut collected, ".gauge-slurmctld_up", |up| up == 1.0);
    until(&mut collected, "slurm_sched_stats.gauge-server_thread_count", |_| true);
    // The alert for a reply that fails.
    until(&mut collected, "reply.nodes.gauge-readings_failed", |failed| failed >= 2.0);
    assert_eq!(warnings(&process), 1);
    let run = |args: &[&str]| {
        let runtime = folder.path().join("run").display().to_string();
        let program = folder.path().join("bin/slurm-graphite");
        Invocation::of_program(&folder, &program, args)
            .unwrap()
            .env("RUNTIME_DIRECTORY", &runtime)
            .finish()
            .unwrap()
    };
    let status: Value = serde_json::from_str(&run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["readers"][0]["kind"], "native", "{status}");
    assert!(run(&["status"]).stdout.contains("it can read only the statistics"));
    // Each search for a number writes lines into slurmctld's log, and `check` knows what the daemon
    // has found.
    assert!(refusals(&slurm.slurmctld) <= 2, "{:#?}", slurm.slurmctld.lines());
    let check = run(&["check", "--connect", "--interval", "1s", "--config", &toml]);
    assert!(check.stdout.contains("✗ native reader: in the protocol of Slurm"), "{check:?}");
    assert!(check.stdout.contains("it cannot read nodes"), "{}", check.stdout);
    assert!(refusals(&slurm.slurmctld) <= 2, "{:#?}", slurm.slurmctld.lines());

    let before = refusals(&slurm.slurmctld);
    // A libslurm without its plugins ends at its start. What works is not given up for it.
    let reader = "libexec/slurm-graphite/slurm-graphite-reader-38";
    let broken =
        folder.script(reader, "touch \"$0.tried\"\necho fatal: no plugins >&2\nexit 1").unwrap();
    wait::until("its start", SOON, || fs::exists(format!("{broken}.tried")).unwrap()).unwrap();
    let tried = sandbox::now();
    wait::until("ticks after it", SOON, || {
        collected.look().unwrap();
        collected.newest().is_some_and(|at| at as f64 > tried + 2.0)
    })
    .unwrap();
    until(&mut collected, ".gauge-slurmctld_up", |up| up == 1.0);
    until(&mut collected, ".gauge-reader", |number| number == 1.0);
    fs::remove_file(&broken).unwrap();
    install(&folder, "slurm-graphite-reader", reader);
    until(&mut collected, ".gauge-reader", |number| number == 0.0);
    until(&mut collected, "slurm_nodes.total.gauge-nodes_total", |nodes| nodes > 0.0);
    process.stop().unwrap();
    assert_eq!(warnings(&process), 1);

    // As after an upgrade of Slurm without its reader.
    fs::remove_file(folder.path().join(reader)).unwrap();
    let (mut process, mut collected) = daemon(&folder, "second", &toml);
    until(&mut collected, ".gauge-reader", |number| number == 1.0);
    until(&mut collected, ".gauge-slurmctld_up", |up| up == 1.0);
    // A thread writes it, which looks at the disk before.
    wait::until("the warning", SOON, || warnings(&process) > 0).unwrap();
    assert_eq!(warnings(&process), 1);
    // The number is remembered across restarts of the daemon.
    assert_eq!(refusals(&slurm.slurmctld), before, "{:#?}", slurm.slurmctld.lines());
    process.stop().unwrap();
}

/// Munge's key was blamed, and slurm.conf or a missing reader where `follow` or a token alone keeps
/// the native reader away.
#[test]
fn what_takes_the_place_of_munge_or_keeps_the_native_reader_away_is_named() {
    let (folder, slurm) = controller();
    fs::create_dir(folder.path().join("bin")).unwrap();
    install(&folder, "slurm-graphite", "bin/slurm-graphite");
    let alone = folder.path().join("bin/slurm-graphite");
    let token = "SLURM_JWT is set in the environment";
    let token_needs = "the token in SLURM_JWT needs libslurm's reader: there is no";
    let follow_needs = "[slurm] follow needs libslurm's reader: there is no";
    for (program, follow, variable, cause) in [
        (&slurm_graphite().unwrap(), "", "SLURM_JWT", token),
        (&alone, "", "SLURM_JWT", token_needs),
        (&alone, "follow = \"slurmctld\"", "OTHER", follow_needs),
    ] {
        let text = format!("[slurm]\n{}{follow}\n", slurm.toml());
        let toml = folder.write("cause.toml", &text).unwrap();
        for command in [&["stats"][..], &["check", "--connect", "--carbon", "127.0.0.1:9"]] {
            let run =
                Invocation::of_program(&folder, program, &[command, &["--config", &toml]].concat())
                    .unwrap()
                    .env(variable, "x.y.z")
                    .finish()
                    .unwrap();
            let said = format!("{}{}", run.stdout, run.stderr);
            assert!(said.contains(cause) && !said.contains("munge.key"), "{cause}: {said}");
        }
        let mut daemon = Process::new(&folder, "daemon", program.clone())
            .args(["run", "--config", &toml, "--carbon", "127.0.0.1:9"])
            .args(["--interval", "1s", "--log-format", "json"])
            .env(variable, "x.y.z");
        daemon.spawn().unwrap();
        let is_named = || daemon.lines().iter().any(|line| line.contains(cause));
        wait::until(cause, SOON, is_named).unwrap();
        daemon.stop().unwrap();
    }
}
