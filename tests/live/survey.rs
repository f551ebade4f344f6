//! The expensive replies, from imitated readers: slurmctlds that are slow, overloaded or hide
//! something. Whatever happens, the statistics have a point in every second
//! ([`Daemon::check_ticks`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sandbox::proc::Signal;
use sandbox::{
    Daemon, Folder, IN_USE, Imitation, Invocation, Recorded, Slurm, Values, find_program, now,
    proc, wait,
};
use slurm_snapshot::{
    Controller, JobStates, JobTally, Jobs, Reading, Reply, Statistics, Visibility,
};

use super::SOON;

const JOBS: &str = "cluster.slurm_jobs.";
const PENDING: &str = "cluster.slurm_jobs.state.pending.gauge-jobs";
const EVERY_2_S: &str = "[collectors.jobs]\nenabled = true\ninterval = \"2s\"\n";
const NO_CAP: &str =
    "[collectors]\nmax_duty = \"100%\"\n[collectors.jobs]\nenabled = true\ninterval = \"2s\"\n";
const CONTROLLERS: &str = "[collectors.controllers]\nenabled = true\ninterval = \"2s\"\n";

fn queue() -> Reading {
    let pending = JobTally { jobs: 5, ..JobTally::default() };
    let shown = BTreeMap::from([("pending".to_owned(), pending)]);
    let states = JobStates { shown, ..JobStates::default() };
    let jobs = Jobs { last_update: 1_700_000_000, states, ..Jobs::default() };
    let visibility = Visibility { private: Vec::new(), privileged: Some(false) };
    Reading {
        reply: Some(Reply::Jobs(Box::new(jobs))),
        visibility: Some(visibility),
        ..Imitation::reading()
    }
}

fn controller(index: u32, elapsed: u64) -> String {
    let down = Controller { index, up: false, elapsed: Some(elapsed) };
    answer(Reading { reply: Some(Reply::Controllers(vec![down])), ..Imitation::reading() })
}

fn answer(reading: Reading) -> String {
    Imitation::answer(reading).unwrap()
}

/// A daemon whose reader answers requests of these kinds with these shell commands, and others with
/// `others`.
fn daemon(folder: &Folder, collectors: &str, kinds: &[(&str, &str)], others: &str) -> Daemon {
    let reader = Imitation::new(folder, "reader", &Imitation::serving(kinds, others)).unwrap();
    Daemon::start_surveying(folder, &reader.toml(), collectors).unwrap()
}

/// One that answers a request for jobs with `jobs`.
fn with_jobs(folder: &Folder, collectors: &str, jobs: &str) -> Daemon {
    daemon(folder, collectors, &[("jobs", jobs)], "answer")
}

/// Answers with a job queue in which nothing changes, and records what is asked.
fn unchanging(log: &Path) -> String {
    let unchanged = answer(Reading { reply: Some(Reply::Unchanged), ..queue() });
    let whole = answer(queue());
    format!(
        "echo \"$line\" >> {}; case $line in *'\"since\"'*) {unchanged} ;; *) {whole} ;; esac",
        log.display()
    )
}

/// Number of the requests that asked for a whole queue.
fn whole(asked: &str) -> usize {
    asked.lines().filter(|line| !line.contains("\"since\":")).count()
}

/// The newest figure about the jobs' replies.
fn last(daemon: &mut Daemon, leaf: &str) -> f64 {
    daemon.recorded().unwrap().reply("jobs", leaf).last_key_value().map_or(0.0, |(_, &value)| value)
}

/// Waits for so many readings of jobs.
fn rounds(daemon: &mut Daemon, count: f64) {
    let enough = |recorded: &Recorded| {
        recorded.reply("jobs", "readings_ok").values().any(|&ok| ok >= count).then_some(())
    };
    daemon.until("rounds", SOON, enough).unwrap();
}

/// Waits for so many points of a series.
fn points(daemon: &mut Daemon, path: &str, count: usize) -> Values {
    daemon
        .until("points", SOON, |all| Some(all.series(path)).filter(|all| all.len() >= count))
        .unwrap()
}

fn always_up(daemon: &mut Daemon) {
    assert!(daemon.recorded().unwrap().own("slurmctld_up").values().all(|&up| up > 0.5));
    daemon.check_ticks().unwrap();
}

#[test]
fn a_job_dump_that_takes_long_costs_the_statistics_no_slot_and_comes_seldom() {
    let folder = Folder::new().unwrap();
    let took = Reading { elapsed: 3_000_000, ..queue() };
    let mut daemon = with_jobs(&folder, EVERY_2_S, &format!("sleep 3; {}", answer(took)));
    daemon.ticks(12).unwrap();
    always_up(&mut daemon);
    // 3 s at 5 % means once a minute, and the answer came after its slot.
    assert_eq!(["readings_ok", "readings_late"].map(|leaf| last(&mut daemon, leaf)), [1.0, 1.0]);
    assert!(last(&mut daemon, "readings_skipped_duty") >= 2.0);
    assert_eq!(daemon.recorded().unwrap().below(JOBS), [""; 0]);
    daemon.stop().unwrap();
}

/// slurmctld may still be working on the dump that nobody waits for any more.
#[test]
fn a_reader_that_is_killed_over_the_job_dump_has_cost_slurmctld_its_time() {
    let folder = Folder::new().unwrap();
    let body = Imitation::serving(&[("jobs", "sleep 60")], "answer");
    let reader = Imitation::new(&folder, "reader", &body).unwrap();
    let slurm = format!("{}timeout = \"1s\"\n", reader.toml());
    let mut daemon = Daemon::start_surveying(&folder, &slurm, EVERY_2_S).unwrap();
    daemon.said(0.0, "the reader gave no response within 4 s and was killed", SOON).unwrap();
    daemon.ticks(5).unwrap();
    // 4 s at 5 %.
    assert_eq!(last(&mut daemon, "readings_failed"), 1.0);
    assert!(last(&mut daemon, "readings_skipped_duty") >= 2.0);
    daemon.stop().unwrap();
}

#[test]
fn the_queue_comes_under_the_tick_that_asked_and_again_when_nothing_has_changed() {
    let folder = Folder::new().unwrap();
    let mut daemon = with_jobs(&folder, NO_CAP, &unchanging(Path::new("/dev/null")));
    let points = points(&mut daemon, PENDING, 3);
    assert!(points.iter().all(|(at, &jobs)| at % 2 == 0 && jobs == 5.0), "{points:?}");
    assert!(last(&mut daemon, "readings_unchanged") > 0.0);
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// A daemon that has published nothing about jobs, and has missed nothing else, after this figure
/// about their replies has become so large.
fn unpublished(folder: &Folder, jobs: &str, others: &str, leaf: &str, least: f64) -> Daemon {
    let mut daemon = daemon(folder, NO_CAP, &[("jobs", jobs)], others);
    let enough = |all: &Recorded| {
        all.reply("jobs", leaf).values().any(|&value| value >= least).then_some(())
    };
    daemon.until(leaf, SOON, enough).unwrap();
    daemon.ticks(4).unwrap();
    assert_eq!(daemon.recorded().unwrap().below(JOBS), [""; 0]);
    always_up(&mut daemon);
    daemon
}

#[test]
fn what_private_data_hides_is_not_published_as_a_part() {
    let folder = Folder::new().unwrap();
    let visibility = Visibility { private: vec!["jobs".to_owned()], privileged: None };
    let hidden = answer(Reading { visibility: Some(visibility), ..queue() });
    let daemon = unpublished(&folder, &hidden, "answer", "hidden", 1.0);
    let is_said =
        |entry: &sandbox::Entry| entry.message.contains("PrivateData may hide part of this");
    assert_eq!(
        daemon.entries().into_iter().filter(is_said).count(),
        1,
        "said once, not every round"
    );
    daemon.stop().unwrap();
}

#[test]
fn a_busy_slurmctld_is_asked_for_its_statistics_alone() {
    let folder = Folder::new().unwrap();
    let busy = Some(Statistics { server_thread_count: 200, ..Statistics::default() });
    let busy = answer(Reading { statistics: busy, ..Imitation::reading() });
    let mut daemon = unpublished(&folder, &answer(queue()), &busy, "readings_skipped_busy", 2.0);
    daemon.said(0.0, "slurmctld is busy", SOON).unwrap();
    assert_eq!(last(&mut daemon, "readings_ok"), 0.0);
    daemon.stop().unwrap();
}

#[test]
fn a_reader_that_dies_of_the_job_dump_takes_nothing_else_with_it() {
    let folder = Folder::new().unwrap();
    let mut daemon = unpublished(&folder, "exit 1", "answer", "readings_failed", 1.0);
    daemon.said(0.0, "no reading; trying again when it is due", SOON).unwrap();
    assert!(daemon.recorded().unwrap().last("reader_restarts") > 0.5, "it is a reader too");
    daemon.stop().unwrap();
}

/// slurm.conf was replaced, and the second reader noticed it first.
#[test]
fn another_clusters_queue_is_not_published_under_this_ones_name() {
    let folder = Folder::new().unwrap();
    let another = answer(Reading { cluster: Some("another".to_owned()), ..queue() });
    unpublished(&folder, &another, "answer", "readings_ok", 2.0).stop().unwrap();
}

/// Whether a controller is up matters most when slurmctld does not answer.
#[test]
fn controllers_are_asked_also_while_slurmctld_is_busy_or_away() {
    let folder = Folder::new().unwrap();
    let failure = r#"echo '{"failure":{"id":'"$id"',"call":"slurm_get_statistics","errno":1800,"text":"away"}}'"#;
    let mut daemon = daemon(&folder, CONTROLLERS, &[("controllers", &controller(0, 9))], failure);
    let points = points(&mut daemon, "cluster.slurm_controllers.primary.gauge-up", 2);
    assert!(points.values().all(|&up| up == 0.0), "{points:?}");
    daemon.stop().unwrap();
}

/// A ping waits for MessageTimeout, which is longer than a slot here.
#[test]
fn a_backup_that_hangs_holds_up_nothing_else() {
    let folder = Folder::new().unwrap();
    let pings = format!("sleep 2.6; {}", controller(1, 2_600_000));
    let kinds = [("controllers", pings.as_str()), ("jobs", &answer(queue()))];
    let mut daemon = daemon(&folder, &format!("{NO_CAP}{CONTROLLERS}"), &kinds, "answer");
    points(&mut daemon, PENDING, 2);
    let late = daemon.recorded().unwrap().reply("controllers", "readings_late");
    assert!(late.values().any(|&late| late > 0.0), "it hung");
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// With separate requests, half of each job dump would be thrown away.
#[test]
fn a_reply_is_asked_for_with_all_that_any_collector_wants_and_held_against_the_last() {
    let folder = Folder::new().unwrap();
    let log = folder.path().join("asked");
    let licenses = "[collectors.licenses]\nenabled = true\ninterval = \"4s\"\n";
    let mut daemon =
        with_jobs(&folder, &format!("{NO_CAP}users = 3\n{licenses}"), &unchanging(&log));
    rounds(&mut daemon, 4.0);
    daemon.stop().unwrap();
    let asked = fs::read_to_string(log).unwrap();
    assert!(asked.lines().all(|line| line.contains("\"users\":true")), "{asked}");
    assert_eq!(whole(&asked), 1, "the licences' rounds make no difference: {asked}");
}

#[test]
fn a_reload_of_one_collector_leaves_the_others_and_their_reader_alone() {
    let folder = Folder::new().unwrap();
    let log = folder.path().join("asked");
    let mut daemon = with_jobs(&folder, &format!("{NO_CAP}users = 3\n"), &unchanging(&log));
    rounds(&mut daemon, 2.0);
    let readers = daemon.readers();
    let rpc_stats = "[collectors.rpc_stats]\nusers = 9\n[collectors.jobs]";
    for (old, new) in [("[collectors.jobs]", rpc_stats), ("users = 3", "users = 4")] {
        reload(&folder, &mut daemon, old, new);
        daemon.ticks(5).unwrap();
    }
    assert_eq!(daemon.readers(), readers);
    let counts = daemon.recorded().unwrap().reply("jobs", "readings_ok");
    let counts: Vec<f64> = counts.into_values().collect();
    assert!(counts.is_sorted() && counts.last() >= Some(&5.0), "it began anew: {counts:?}");
    always_up(&mut daemon);
    daemon.stop().unwrap();
    let asked = fs::read_to_string(log).unwrap();
    assert_eq!(whole(&asked), 3, "a new collector holds no reply: {asked}");
}

#[test]
fn a_reading_that_a_reload_cuts_short_is_not_called_failed() {
    let folder = Folder::new().unwrap();
    let body = "hello; while ask; do [ \"$start\" -gt 1 ] || sleep 0.6; answer; done";
    let reader = Imitation::new(&folder, "reader", body).unwrap();
    let mut daemon = Daemon::start(&folder, &reader.toml()).unwrap();
    daemon.ticks(3).unwrap();
    // In the middle of a reading, which begins at a full second and takes 0.6 s.
    wait::until("a reading under way", SOON, || (0.1..0.3).contains(&now().fract())).unwrap();
    reload(&folder, &mut daemon, "[slurm]\n", "[slurm]\ntimeout = \"29s\"\n");
    daemon.ticks(3).unwrap();
    let recorded = daemon.recorded().unwrap();
    let (run, up) = (recorded.own("ticks_run"), recorded.own("slurmctld_up"));
    let health = recorded.series("cluster.slurm_health.gauge-up");
    assert!(up.values().chain(health.values()).all(|&up| up > 0.5), "{up:?} {health:?}");
    assert_eq!((up.len(), health.len()), (run.len() - 1, run.len() - 1), "{up:?} of {run:?}");
    assert!(recorded.last("readings_failed") < 0.5);
    daemon.stop().unwrap();
}

/// A FIFO returns nothing until somebody writes to it.
#[test]
fn a_memory_whose_disk_hangs_costs_no_tick() {
    let folder = Folder::new().unwrap();
    let queue = folder.path().join("queue");
    fs::create_dir(&queue).unwrap();
    let memory = queue.join("queue-00000000000000000001.log");
    let mkfifo = find_program("mkfifo").unwrap();
    Invocation::of_program(&folder, &mkfifo, &[&memory.display().to_string()])
        .unwrap()
        .finish()
        .unwrap();
    let more =
        format!("[queue]\ndir = \"{}\"\n[collectors.rpc_stats]\nusers = 3\n", queue.display());
    let reader = Imitation::good(&folder).unwrap();
    let mut daemon = Daemon::start_surveying(&folder, &reader.toml(), &more).unwrap();
    daemon
        .said(0.0, "the queue's files cannot be read yet, so what collectors remember", SOON)
        .unwrap();
    daemon.ticks(2).unwrap();
    reload(&folder, &mut daemon, "users = 3", "users = 4");
    daemon.ticks(3).unwrap();
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// Changes the configuration, and waits until the change is in use.
/// Those since the reading before were in no point.
#[test]
fn starts_are_as_many_as_sdiags_over_a_reader_that_hangs_and_a_reload() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let timeout = format!("{}timeout = \"1s\"\n", slurm.toml());
    let mut daemon = Daemon::start_surveying(&folder, &timeout, NO_CAP).unwrap();
    let submit = |jobs: u32| {
        for _ in 0..jobs {
            slurm.submit(&["--wrap", "true"]).unwrap();
        }
    };
    let started = |recorded: &Recorded| recorded.series(&format!("{JOBS}waiting.gauge-started"));
    daemon
        .until("a first round", SOON, |recorded| (!started(recorded).is_empty()).then_some(()))
        .unwrap();
    let mut submitted = 0;
    let mut until_started = |daemon: &mut Daemon, more: u32| {
        submitted += more;
        let is_all =
            |recorded: &Recorded| started(recorded).values().sum::<f64>() >= f64::from(submitted);
        daemon.until("the starts", SOON, |recorded| is_all(recorded).then_some(())).unwrap();
    };
    submit(2);
    until_started(&mut daemon, 2);
    // Some of them start before it hangs, or while it does.
    let reader = daemon.readers().into_iter().max().unwrap();
    submit(1);
    proc::signal(reader, Signal::STOP).unwrap();
    submit(3);
    daemon.said(0.0, "was killed", SOON).unwrap();
    submit(1);
    until_started(&mut daemon, 5);
    submit(2);
    reload(&folder, &mut daemon, "[collectors.jobs]\n", "[collectors.jobs]\nusers = 2\n");
    submit(1);
    until_started(&mut daemon, 3);
    daemon.ticks(4).unwrap();
    let all = started(daemon.recorded().unwrap()).values().sum::<f64>();
    assert_eq!((slurm.sdiag().unwrap().get("", "Jobs started"), all), (Some(10), 10.0));
    daemon.stop().unwrap();
}

fn reload(folder: &Folder, daemon: &mut Daemon, old: &str, new: &str) {
    let file = folder.path().join("daemon.toml");
    let text = fs::read_to_string(&file).unwrap();
    let (changed, since) = (text.replace(old, new), now());
    assert_ne!(changed, text);
    fs::write(&file, changed).unwrap();
    daemon.process.signal(Signal::HUP).unwrap();
    daemon.said(since, IN_USE, SOON).unwrap();
}
