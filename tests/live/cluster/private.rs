//! What PrivateData hides from an unprivileged user is reported as hidden, not counted as nothing.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use sandbox::{Folder, Slurm, wait};
use slurm_snapshot::{Answer, Reading, Reply, Visibility};

use super::answers;

const REQUESTS: &str = "{\"jobs\":{\"id\":1}}\n{\"reservations\":{\"id\":2}}\n{\"nodes\":{\"id\":3}}\n";

/// A user who is never SlurmUser.
const NOBODY: u32 = 65534;

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
    let mut conf = File::options().append(true).open(slurm.conf()).unwrap();
    writeln!(conf, "PrivateData=jobs,nodes,reservations").unwrap();
    slurm.munged.start().unwrap();
    slurm.slurmctld.start().unwrap();
    slurm.slurmd.start().unwrap();
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
    let (reading, jobs, reservations) = jobs_and_reservations(&nobody);
    assert_eq!((jobs, reservations), (0, 0), "there is one of each");
    let visibility = reading.visibility.as_ref().unwrap();
    assert_eq!(visibility.privileged, Some(false));
    for what in ["jobs", "nodes", "reservations"] {
        assert!(visibility.may_hide(what), "{what}: {visibility:?}");
    }
    assert!(!visibility.may_hide("partitions"));
    // slurmctld refuses the whole node reply: ESLURM_ACCESS_DENIED.
    let Some(Answer::Failure(nodes)) = nobody.last() else { panic!("{nobody:?}") };
    assert_eq!((nodes.call.as_str(), nodes.errno), ("slurm_load_node", 2002));
}

#[test]
fn private_data_that_is_set_while_a_reader_runs_is_known_at_its_next_survey() {
    let folder = Folder::new().unwrap();
    let mut slurm = Slurm::new(&folder).unwrap();
    slurm.munged.start().unwrap();
    slurm.slurmctld.start().unwrap();

    let mut reader = slurm.reader(None).unwrap();
    reader.arg("--conf").arg(slurm.conf()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reader = reader.spawn().unwrap();
    let mut requests = reader.stdin.take().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    assert!(matches!(Answer::parse(lines.next().unwrap().unwrap().as_bytes()), Ok(Answer::Hello(_))));
    let mut private = || {
        writeln!(requests, "{{\"jobs\":{{\"id\":1}}}}").unwrap();
        let answer = Answer::parse(lines.next().unwrap().unwrap().as_bytes()).unwrap();
        let Answer::Reading(reading) = answer else { panic!("{answer:?}") };
        let Some(Visibility { private, .. }) = reading.visibility else { panic!("{reading:?}") };
        private
    };
    assert_eq!(private(), [""; 0]);
    let mut conf = File::options().append(true).open(slurm.conf()).unwrap();
    writeln!(conf, "PrivateData=jobs").unwrap();
    slurm.run("scontrol", &["reconfigure"]).unwrap();
    // The shortest time between two surveys.
    wait::pause(Duration::from_secs(2));
    assert_eq!(private(), ["jobs"]);
    drop(requests);
    assert!(reader.wait().unwrap().success());
}
