//! slurmrestd is asked only for the states of jobs, and only if the configuration says so.

use sandbox::{Daemon, Folder, Reader, Slurm, Slurmrestd};
use slurm_snapshot::{
    Answer, JobStates, JobTally, Jobs, LIBRARIES, Reply, ReplyKind, ReplyOptions, Request,
};

use super::{SOON, rest_reader, served};

const STATES_ONLY: &str =
    "[collectors.jobs]\nenabled = true\nstates_only = true\ninterval = \"1s\"\n";

/// `slurm` has a job that runs and no other.
pub(super) fn compare(folder: &Folder, slurm: &Slurm, rest: &Slurmrestd) {
    slurm.submit(&["--array=1-7,20-29:3%2", "--hold", "--wrap", "true"]).unwrap();
    slurm.submit(&["--hold", "--wrap", "true", ":", "--wrap", "true"]).unwrap();
    let refused = ask(rest_reader(rest), false);
    assert!(
        refused.as_ref().is_err_and(|text| text.contains("makes slurmrestd grow")),
        "{refused:?}"
    );

    let lists = |name: &str| served(slurm, name);
    let before = lists("REQUEST_JOB_INFO");
    let told = ask(rest_reader(rest), true);
    let states_asked = lists("REQUEST_JOB_STATE");
    let mut daemon = Daemon::start_surveying(folder, &rest.toml(), STATES_ONLY).unwrap();
    if slurm.release().unwrap().get(..5).unwrap() < "24.05" {
        let newest = LIBRARIES.last().unwrap().0;
        let words = &format!(
            "no /jobs/state in v0.0.41 to v0.0.{newest} of its API; this needs Slurm 24.05 or newer"
        );
        assert!(told.as_ref().is_err_and(|text| text.contains(words)), "{told:?}");
        let said = daemon.said(0.0, "trying again when it is due", SOON).unwrap();
        assert!(said.line.contains(words), "{}", said.line);
        daemon.ticks(3).unwrap();
        let news = daemon.news(0.0).unwrap();
        assert_eq!(
            news.iter().filter(|line| line.contains("when it is due")).count(),
            1,
            "{news:?}"
        );
        assert!(daemon.recorded().unwrap().own("slurmctld_up").values().all(|up| *up > 0.5));
    } else {
        assert_eq!(states_asked, 1);
        // 7 + 4 tasks of the array, and two components.
        daemon.until_is("cluster.slurm_jobs.state.pending.gauge-jobs", 13.0).unwrap();
        let recorded = daemon.recorded().unwrap();
        let below: Vec<_> = recorded.below("cluster.slurm_jobs.");
        let allowed = |path: &&str| {
            [".gauge-jobs", "total.gauge-unparsed"].iter().any(|end| path.ends_with(end))
        };
        assert!(below.iter().all(allowed), "{below:?}");
        assert_eq!(lists("REQUEST_JOB_INFO"), before, "a list of jobs was asked for");
        assert_eq!(
            told.unwrap(),
            states_of(ask(Reader::start_for(slurm).unwrap(), false).unwrap())
        );
    }
    daemon.stop().unwrap();
}

/// The reply of a reader about jobs, or why there is none.
fn ask(mut reader: Reader, states_only: bool) -> Result<Jobs, String> {
    let request =
        Request::new(ReplyKind::Jobs, ReplyOptions { states_only, ..ReplyOptions::default() });
    match reader.ask(&request).unwrap() {
        Answer::Reading(reading) => match reading.reply {
            Some(Reply::Jobs(jobs)) => Ok(*jobs),
            other => Err(format!("{other:?}")),
        },
        Answer::Failure(failure) => Err(failure.to_string()),
        Answer::Hello(_) => Err("nothing but a hello".to_owned()),
    }
}

/// The part of a reply that slurmrestd reports.
fn states_of(jobs: Jobs) -> Jobs {
    let only = |tally: JobTally| JobTally { jobs: tally.jobs, ..JobTally::default() };
    let shown = jobs.states.shown.into_iter().map(|(word, tally)| (word, only(tally))).collect();
    let states = JobStates { shown, ..JobStates::default() };
    Jobs { unparsed: jobs.unparsed, states, states_only: true, ..Jobs::default() }
}
