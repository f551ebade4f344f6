//! The native reader under the daemon: used where no libslurm has a reader, which is said, and left when one is installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use sandbox::{
    Collected, Folder, Invocation, Manner, Process, Sink, Slurm, copy_program, log, slurm_graphite, wait,
};
use serde_json::Value;

use super::refusals;

const SOON: Duration = wait::LIMIT;
const WARNED: &str = "this host has no libslurm with a matching reader, so the native reader is used";

/// An installation with these programs.
fn install(folder: &Folder, programs: &[(&str, &str)]) {
    let built = slurm_graphite().unwrap();
    for (program, name) in programs {
        copy_program(&built.with_file_name(program), &folder.path().join("bin").join(name)).unwrap();
    }
}

fn daemon(folder: &Folder, name: &str, toml: &Path) -> (Process, Collected) {
    let mut process = Process::new(folder, name, folder.path().join("bin/slurm-graphite"))
        .args(["run", "--config", &toml.display().to_string()])
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

/// A fall-back that nobody hears of would lose jobs and nodes for good, and one that is for ever would never find them again.
#[test]
fn without_libslurm_the_statistics_go_on_what_is_lacking_is_said_and_libslurm_is_found_when_it_comes() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::controller(&folder).unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    for name in ["bin", "run", "queue"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    install(
        &folder,
        &[
            ("slurm-graphite", "slurm-graphite"),
            ("slurm-graphite-native-reader", "slurm-graphite-native-reader"),
        ],
    );
    let toml = folder.path().join("daemon.toml");
    let (conf, queue) = (slurm.conf().display(), folder.path().join("queue"));
    let text = format!(
        "[slurm]\nconf = \"{conf}\"\n[queue]\ndir = \"{}\"\n[[carbon]]\nprotocol = \"plaintext\"\naddress = \"{}\"\n\
         [collectors.nodes]\nenabled = true\ninterval = \"1s\"\n",
        queue.display(),
        sink.address(),
    );
    fs::write(&toml, text).unwrap();
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
        Invocation::of(&folder, &program, args).unwrap().env("RUNTIME_DIRECTORY", &runtime).finish().unwrap()
    };
    let status: Value = serde_json::from_str(&run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["readers"][0]["kind"], "native", "{status}");
    assert!(run(&["status"]).stdout.contains("it can read only the statistics"));
    // Each search for a number writes lines into slurmctld's log, and `check` makes one of its own.
    assert!(refusals(&slurm.slurmctld) <= 2, "{:#?}", slurm.slurmctld.lines());
    let check = run(&["check", "--connect", "--interval", "1s", "--config", &toml.display().to_string()]);
    assert!(check.stdout.contains("✗ native reader: in the protocol of Slurm"), "{check:?}");
    assert!(check.stdout.contains("it cannot read nodes"), "{}", check.stdout);

    let before = refusals(&slurm.slurmctld);
    // A libslurm without its plugins ends at its start. What works is not given up for it.
    let broken = folder.path().join("bin/slurm-graphite-reader-38");
    let script = "#!/bin/sh\ntouch \"$0.tried\"\necho fatal: no plugins >&2\nexit 1\n";
    fs::write(&broken, script).unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    wait::until("its start", SOON, || broken.with_extension("tried").exists()).unwrap();
    let tried = sandbox::now();
    wait::until("ticks after it", SOON, || {
        collected.look().unwrap();
        collected.newest().is_some_and(|at| at as f64 > tried + 2.0)
    })
    .unwrap();
    until(&mut collected, ".gauge-slurmctld_up", |up| up == 1.0);
    until(&mut collected, ".gauge-reader", |number| number == 1.0);
    fs::remove_file(&broken).unwrap();
    install(&folder, &[("slurm-graphite-reader", "slurm-graphite-reader-38")]);
    until(&mut collected, ".gauge-reader", |number| number == 0.0);
    until(&mut collected, "slurm_nodes.total.gauge-nodes_total", |nodes| nodes > 0.0);
    process.stop().unwrap();
    assert_eq!(warnings(&process), 1);

    // As after an upgrade of Slurm without its reader.
    fs::remove_file(folder.path().join("bin/slurm-graphite-reader-38")).unwrap();
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
