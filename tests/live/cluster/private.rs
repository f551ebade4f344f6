//! Replies of which PrivateData hides a part from an unprivileged user: that is reported as hidden,
//! not counted as nothing.

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use sandbox::daemon::surveys;
use sandbox::{Daemon, Folder, NOBODY, Reader, Recorded, Slurm, is_root, wait};
use slurm_snapshot::{Reply, ReplyKind, ReplyOptions, Request};

use super::reading;
use crate::rest::served;

/// slurmctld logged "Security violation, REQUEST_NODE_INFO" at every round, and dumped its jobs to
/// throw them away.
#[test]
#[expect(clippy::print_stdout, reason = "the harness captures it")]
fn what_is_hidden_is_known_to_be_is_not_requested_and_slurmctld_logs_no_violation() {
    let folder = Folder::new().unwrap();
    let log = folder.path().join("slurmctld.log");
    let private = format!(
        "PrivateData=jobs,nodes,partitions,reservations\nSlurmctldLogFile={}\n",
        log.display()
    );
    let slurm = Slurm::start_with(&folder, &private).unwrap();
    slurm.submit(&["-H", "--wrap", "true"]).unwrap();
    let when = "starttime=now duration=60 nodes=ALL user=root flags=ignore_jobs";
    slurm.call(&format!("scontrol create reservation reservationname=own {when}")).unwrap();

    let ask = |user, kind: &str| {
        let reading =
            reading(&folder, &slurm, user, &format!("{{\"{kind}\":{{\"id\":1}}}}")).unwrap();
        (reading.reply, reading.visibility.unwrap())
    };
    let (Some(Reply::Jobs(jobs)), visibility) = ask(None, "jobs") else { panic!("no jobs") };
    let (Some(Reply::Reservations(reserved)), _) = ask(None, "reservations") else {
        panic!("no reservations")
    };
    assert_eq!((jobs.records, reserved.reservations.len()), (1, 1));
    assert_eq!(visibility.private, ["jobs", "nodes", "partitions", "reservations"]);
    assert!(!visibility.may_hide("jobs"), "SlurmUser sees everything: {visibility:?}");

    if !is_root() {
        println!("SKIPPED: only root can become a user who is not SlurmUser");
        return;
    }
    let kinds = ["jobs", "nodes", "reservations"];
    for kind in kinds {
        let (reply, visibility) = ask(Some(NOBODY), kind);
        assert_eq!(
            (reply, visibility.privileged),
            (None, Some(false)),
            "{kind}: nobody may use a part"
        );
        assert!(
            visibility.may_hide(kind) && !visibility.may_hide("licenses"),
            "{kind}: {visibility:?}"
        );
    }
    // Requests for reservations until then are not the daemon's.
    let reservations = || served(&slurm, "REQUEST_RESERVATION_INFO");
    let before = reservations();
    let reader = slurm.reader(Some(NOBODY)).unwrap();
    let words: Vec<_> = std::iter::once(reader.get_program()).chain(reader.get_args()).collect();
    // Quoted: one of them is a script where Slurm is below a prefix.
    let quoted = |word: &&OsStr| format!("'{}'", word.display().to_string().replace('\'', "'\\''"));
    let words: Vec<String> = words.iter().map(quoted).collect();
    let script = folder.script("as-nobody", &format!("exec {} \"$@\"", words.join(" "))).unwrap();
    let toml = format!("{}reader = {script:?}\n", slurm.toml());
    let collectors = surveys(&["jobs", "nodes", "partitions", "reservations"]);
    let mut daemon = Daemon::start_surveying(&folder, &toml, &collectors).unwrap();
    for kind in kinds {
        let hidden = |recorded: &Recorded| {
            let rounds = recorded.reply(kind, "readings_ok").values().any(|&ok| ok >= 3.0);
            rounds.then(|| recorded.reply(kind, "hidden"))
        };
        let hidden = daemon.until(&format!("rounds of {kind}"), wait::LIMIT, hidden).unwrap();
        let hidden: Vec<f64> = hidden.into_values().collect();
        assert_eq!(hidden.last(), Some(&1.0), "{kind} {hidden:?}");
    }
    assert_eq!(reservations(), before);
    let errors =
        |log: &str| log.lines().filter(|line| line.contains("error: Security violation")).count();
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(errors(&text), 0, "{text}");

    // What is hidden no longer is requested again, without a restart of anything.
    slurm.replace(&["PrivateData="], "").unwrap();
    slurm.run("scontrol", &["reconfigure"]).unwrap();
    for path in ["slurm_jobs.state.pending.gauge-jobs", "slurm_partitions.debug.gauge-nodes_total"]
    {
        daemon.until_is(&format!("cluster.{path}"), 1.0).unwrap();
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

pub(super) fn private_data_that_is_set_while_a_reader_runs_is_known_at_its_next_survey(
    slurm: &Slurm,
) {
    let mut reader = Reader::start_for(slurm).unwrap();
    let request = Request::new(ReplyKind::Jobs, ReplyOptions::default());
    let mut private = || reader.reading(&request).unwrap().visibility.unwrap().private;
    assert_eq!(private(), [""; 0]);
    slurm.reconfigure("PrivateData=jobs\n").unwrap();
    // The shortest time between two surveys.
    wait::pause(Duration::from_secs(2));
    assert_eq!(private(), ["jobs"]);
}
