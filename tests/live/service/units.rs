//! The shipped unit for systemd, and the section for supervisord.

use std::fs;
use std::path::Path;

use sandbox::{
    Folder, Invocation, Manner, Process, Sink, find_program, is_root, run, slurm_graphite, wait,
};

use super::{SOON, toml};

const UNIT: &str = include_str!("../../../systemd/slurm-graphite.service");
const TEMPLATE: &str = include_str!("../../../systemd/slurm-graphite@.service");
const SECTION: &str = include_str!("../../../config/supervisor/slurm-graphite.conf");
const PROGRAM: &str = "/usr/bin/slurm-graphite";

/// Each unit, with a name under which it may be started.
const UNITS: [(&str, &str); 2] =
    [("slurm-graphite.service", UNIT), ("slurm-graphite@beta.service", TEMPLATE)];

/// systemd also checks that their programs exist.
#[test]
fn systemd_takes_the_units_without_a_word_and_finds_them_well_sandboxed() {
    let folder = Folder::new().unwrap();
    let analyze = find_program("systemd-analyze").unwrap();
    let run =
        |args: &[&str]| Invocation::of_program(&folder, &analyze, args).unwrap().finish().unwrap();
    for (name, unit) in UNITS {
        let verify = |unit: &str| {
            let path = folder.write(name, unit).unwrap();
            run(&["verify", "--man=no", &path]).stderr
        };
        assert!(unit.contains(&format!("\nExecStart={PROGRAM} run ")));
        let unit = unit.replace(PROGRAM, "/bin/true");
        // The check works: it finds an error.
        let said = verify(&unit.replace("\nRestart=", "\nRestrat="));
        assert!(said.contains("slurm-graphite") && said.contains("Restrat"), "{said}");
        let said = verify(&unit);
        let about_it: Vec<&str> =
            said.lines().filter(|line| line.contains("slurm-graphite")).collect();
        assert_eq!(about_it, [""; 0]);
        let path = folder.path().join(name).display().to_string();
        let security =
            |threshold: &str| run(&["security", "--no-pager", "--offline=yes", threshold, &path]);
        // In tenths: an exposure of 2.0 at most.
        let passed = security("--threshold=20");
        assert_eq!(passed.code, Some(0), "{}{}", passed.stdout, passed.stderr);
        assert_ne!(security("--threshold=1").code, Some(0), "nothing is that safe");
    }
}

/// A correction in one must be made in the other.
#[test]
fn the_template_is_the_unit_but_for_the_name_of_its_cluster() {
    let own = |line: &&str| !line.starts_with('#') && !line.starts_with("AssertPathExists=");
    let lines: Vec<&str> = TEMPLATE.lines().filter(own).collect();
    let unit = UNIT
        .replace("to Graphite\n", "to Graphite, cluster %i\n")
        .replace("slurm-graphite.toml\n", "%i.toml\n")
        .replace("Directory=slurm-graphite\n", "Directory=slurm-graphite-%i\n");
    assert_eq!(lines, unit.lines().filter(own).collect::<Vec<_>>());
}

/// It would be a second daemon with the same file and the same queue. A cluster may have any other
/// name, even that of a program.
#[test]
fn an_instance_with_the_name_of_the_unit_is_not_started() {
    let folder = Folder::new().unwrap();
    let assert = TEMPLATE.lines().find_map(|line| line.strip_prefix("AssertPathExists=")).unwrap();
    folder.write("share/slurm-graphite/carbon/storage-schemas.conf", "").unwrap();
    let analyze = find_program("systemd-analyze").unwrap();
    let share = format!("!{}/share/", folder.path().display());
    for (name, is_started) in [("slurm-graphite", false), ("beta", true), ("bash", true)] {
        let condition = format!("AssertPathExists={assert}")
            .replace("%i", name)
            .replace("!/usr/share/", &share);
        let args = ["condition", &condition];
        let code = Invocation::of_program(&folder, &analyze, &args).unwrap().finish().unwrap().code;
        assert_eq!(code == Some(0), is_started, "{condition}");
    }
}

/// Another user would need root; everything else is the shipped section.
#[test]
fn supervisord_starts_it_and_ends_it_with_success() {
    let folder = Folder::new().unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let config = toml("1s", &folder.path().join("slurm.conf"), &[("main", &sink.address())]);
    let config = folder.write("daemon.toml", &config).unwrap();
    let home = folder.path().display();
    let section = SECTION
        .replace(PROGRAM, &slurm_graphite().unwrap().display().to_string())
        .replace("/etc/slurm-graphite/slurm-graphite.toml", &config)
        .replace("/var/log/supervisor/", &format!("{home}/"))
        .replace("/run/slurm-graphite", &home.to_string())
        .replace("user=slurm-graphite\n", "");
    let log = format!("{home}/slurm-graphite.log");
    assert!(section.contains(&log) && !section.contains("/var/"), "{section}");
    let user = if is_root() { "user=root\n" } else { "" };
    let own = format!(
        "[supervisord]\nnodaemon=true\n{user}logfile={home}/supervisord.log\n\
         pidfile={home}/supervisord.pid\nchildlogdir={home}\n{section}"
    );
    let own = folder.write("supervisord.toml", &own).unwrap();
    let mut supervisord =
        Process::new(&folder, "supervisord", find_program("supervisord").unwrap())
            .args(["-c", &own]);
    supervisord.start().unwrap();
    supervisord.line("success: slurm-graphite entered RUNNING state", SOON).unwrap();
    let sent = || String::from_utf8_lossy(&sink.bytes()).contains(".gauge-ticks_run 1 ");
    wait::until("a tick", SOON, sent).unwrap();
    let socket = format!("{home}/status.sock");
    let status = run(&folder, &["status", "--socket", &socket]).unwrap();
    assert!(status.stdout.contains("✓ last tick"), "{}", status.stderr);
    supervisord.stop().unwrap();
    supervisord.line("stopped: slurm-graphite (exit status 0)", SOON).unwrap();
    let said = fs::read_to_string(Path::new(&log)).unwrap();
    assert!(said.contains("slurm-graphite has started") && said.contains("has ended"), "{said}");
}
