//! What PrivateData hides from an unprivileged user is reported as hidden, not counted as nothing.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use sandbox::{Daemon, Folder, NOBODY, Reader, Recorded, Slurm, wait};
use slurm_snapshot::{Answer, Reading, Reply, ReplyKind, ReplyOptions, Request};

use super::answers;

const REQUESTS: &str = "{\"jobs\":{\"id\":1}}\n{\"reservations\":{\"id\":2}}\n{\"nodes\":{\"id\":3}}\n";

fn jobs_and_reservations(answers: &[Answer]) -> (&Reading, u64, u64) {
    let [Answer::Reading(jobs), Answer::Reading(reservations), _] = answers else { panic!("{answers:?}") };
    let (Some(Reply::Jobs(seen)), Some(Reply::Reservations(reserved))) = (&jobs.reply, &reservations.reply)
    else {
        panic!("{answers:?}")
    };
    (jobs, seen.records, reserved.count)
}

#[test]
#[expect(clippy::print_stdout, reason = "the harness captures it")]
fn what_private_data_hides_is_known_to_be_hidden() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    slurm.configure("PrivateData=jobs,nodes,reservations\n").unwrap();
    slurm.start_all().unwrap();
    slurm.submit(&["--wrap", "exec sleep 600"]).unwrap();
    let create =
        ["create", "reservation", "reservationname=own", "starttime=now", "duration=60", "nodes=ALL"];
    slurm.run("scontrol", &[&create[..], &["user=root", "flags=ignore_jobs"]].concat()).unwrap();

    let slurm_user = answers(&folder, slurm.reader(None).unwrap(), slurm.conf(), REQUESTS).unwrap();
    let (reading, jobs, reservations) = jobs_and_reservations(&slurm_user);
    assert_eq!((jobs, reservations), (1, 1));
    let visibility = reading.visibility.as_ref().unwrap();
    assert_eq!(visibility.private, ["jobs", "nodes", "reservations"]);
    assert!(!visibility.may_hide("jobs"), "SlurmUser sees everything: {visibility:?}");

    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        println!(
            "SKIPPED: that what is hidden is known to be: only root can become a user who is not SlurmUser"
        );
        return;
    }
    let nobody = answers(&folder, slurm.reader(Some(NOBODY)).unwrap(), slurm.conf(), REQUESTS).unwrap();
    assert_eq!(nobody.len(), 3);
    for (answer, what) in nobody.iter().zip(["jobs", "reservations", "nodes"]) {
        let Answer::Reading(reading) = answer else { panic!("{nobody:?}") };
        assert_eq!(reading.reply, None, "{what}: nobody may use a part");
        let visibility = reading.visibility.as_ref().unwrap();
        assert_eq!(visibility.privileged, Some(false));
        assert!(visibility.may_hide(what), "{what}: {visibility:?}");
        assert!(!visibility.may_hide("partitions"));
    }
}

/// slurmctld logged "Security violation, REQUEST_NODE_INFO" at every round, and dumped its jobs to throw them away.
#[test]
#[expect(clippy::print_stdout, reason = "the harness captures it")]
fn what_is_hidden_is_not_requested_and_slurmctld_logs_no_violation() {
    if !rustix::process::getuid().is_root() {
        println!("SKIPPED: only root can become a user who is not SlurmUser");
        return;
    }
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    let log = folder.path().join("slurmctld.log");
    let private =
        format!("PrivateData=jobs,nodes,partitions,reservations\nSlurmctldLogFile={}\n", log.display());
    slurm.configure(&private).unwrap();
    slurm.start_all().unwrap();
    slurm.submit(&["-H", "--wrap", "true"]).unwrap();
    let reader = slurm.reader(Some(NOBODY)).unwrap();
    let words: Vec<_> = std::iter::once(reader.get_program()).chain(reader.get_args()).collect();
    // Quoted: one of them is a script where Slurm is below a prefix.
    let quoted = |word: &&OsStr| format!("'{}'", word.display().to_string().replace('\'', "'\\''"));
    let words: Vec<String> = words.iter().map(quoted).collect();
    let script = folder.path().join("as-nobody");
    fs::write(&script, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "))).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let mut collectors = "[collectors]\nmax_duty = \"100%\"\n".to_owned();
    for name in ["jobs", "nodes", "partitions", "reservations"] {
        collectors.push_str(&format!("[collectors.{name}]\nenabled = true\ninterval = \"2s\"\n"));
    }
    let toml = format!("conf = {:?}\nreader = {script:?}\n", slurm.conf());
    let mut daemon = Daemon::start_surveying(&folder, &toml, &collectors).unwrap();
    let kinds = ["jobs", "nodes", "reservations"];
    for kind in kinds {
        let hidden = |recorded: &Recorded| {
            let rounds = recorded.reply(kind, "readings_ok").values().any(|&ok| ok >= 3.0);
            rounds.then(|| recorded.reply(kind, "hidden"))
        };
        let hidden = daemon.until(&format!("rounds of {kind}"), wait::LIMIT, hidden).unwrap();
        let hidden: Vec<f64> = hidden.into_values().collect();
        assert_eq!(hidden.last(), Some(&1.0), "{kind} {hidden:?}");
    }
    // Nobody else asks for reservations here.
    let asked = slurm.run("sdiag", &[]).unwrap();
    assert!(!asked.contains("REQUEST_RESERVATION_INFO"), "{asked}");
    let errors = |log: &str| log.lines().filter(|line| line.contains("error: Security violation")).count();
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(errors(&text), 0, "{text}");

    // What is hidden no longer is requested again, without a restart of anything.
    let conf = fs::read_to_string(slurm.conf()).unwrap();
    fs::write(slurm.conf(), conf.replace("PrivateData=", "#PrivateData=")).unwrap();
    slurm.run("scontrol", &["reconfigure"]).unwrap();
    for path in ["slurm_jobs.state.pending.gauge-jobs", "slurm_partitions.debug.gauge-nodes_total"] {
        let seen = |recorded: &Recorded| {
            let series = recorded.series(&format!("cluster.{path}"));
            series.last_key_value().filter(|(_, value)| **value == 1.0).map(drop)
        };
        daemon.until(path, wait::LIMIT, seen).unwrap();
    }
    for kind in kinds {
        let is_seen = |recorded: &Recorded| {
            let hidden = recorded.reply(kind, "hidden");
            hidden.last_key_value().filter(|(_, hidden)| **hidden == 0.0).map(drop)
        };
        daemon.until(&format!("{kind} that are not hidden"), wait::LIMIT, is_seen).unwrap();
    }
    daemon.stop().unwrap();
}

#[test]
fn private_data_that_is_set_while_a_reader_runs_is_known_at_its_next_survey() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::controller(&folder).unwrap();

    let mut reader = Reader::of(&slurm).unwrap();
    let request = Request::new(ReplyKind::Jobs, ReplyOptions::default());
    let mut private = || reader.reading(&request).unwrap().visibility.unwrap().private;
    assert_eq!(private(), [""; 0]);
    slurm.configure("PrivateData=jobs\n").unwrap();
    slurm.run("scontrol", &["reconfigure"]).unwrap();
    // The shortest time between two surveys.
    wait::pause(Duration::from_secs(2));
    assert_eq!(private(), ["jobs"]);
}
