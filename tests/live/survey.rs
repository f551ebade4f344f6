//! The expensive replies, from imitated readers: slurmctlds that are slow, overloaded or hide something. Whatever
//! happens, the statistics have a point in every second ([`Daemon::check_ticks`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sandbox::proc::Signal;
use sandbox::{Daemon, Folder, Imitation, Invocation, Recorded, find_program, now, wait};
use slurm_snapshot::{Controller, JobTally, Jobs, Reading, Reply, Statistics, Visibility};

const JOBS: &str = "cluster.slurm_jobs.";
const EVERY_2_S: &str = "[collectors.jobs]\nenabled = true\ninterval = \"2s\"\n";
const NO_CAP: &str =
    "[collectors]\nmax_duty = \"100%\"\n[collectors.jobs]\nenabled = true\ninterval = \"2s\"\n";
/// How long to wait on a busy machine. It is not a promise, and nothing takes this long normally.
const SOON: Duration = wait::LIMIT;

fn queue() -> Reading {
    let pending = JobTally { jobs: 5, ..JobTally::default() };
    let states = BTreeMap::from([("pending".to_owned(), pending)]);
    let jobs = Jobs { last_update: 1_700_000_000, states, ..Jobs::default() };
    let visibility = Visibility { private: Vec::new(), privileged: Some(false) };
    Reading { reply: Some(Reply::Jobs(Box::new(jobs))), visibility: Some(visibility), ..Imitation::reading() }
}

/// A daemon whose reader answers a request for jobs with the shell commands `jobs`.
fn daemon(folder: &Folder, collectors: &str, jobs: &str) -> Daemon {
    let body = format!("hello; while ask; do case $line in *'\"jobs\"'*) {jobs} ;; *) answer ;; esac; done");
    let reader = Imitation::new(folder, "reader", &body).unwrap();
    Daemon::start_surveying(folder, &reader.toml(), collectors).unwrap()
}

/// A job queue in which nothing changes; the reader records what it is asked.
fn logging(log: &Path) -> Result<String> {
    let unchanged = Reading { reply: Some(Reply::Unchanged), ..queue() };
    Ok(format!(
        "echo \"$line\" >> {}; case $line in *'\"since\"'*) {} ;; *) {} ;; esac",
        log.display(),
        Imitation::answer(unchanged)?,
        Imitation::answer(queue())?
    ))
}

#[test]
fn a_job_dump_that_takes_long_costs_the_statistics_no_slot_and_comes_seldom() {
    let folder = Folder::new().unwrap();
    let took = Reading { elapsed: 3_000_000, ..queue() };
    let jobs = format!("sleep 3; {}", Imitation::answer(took).unwrap());
    let mut daemon = daemon(&folder, EVERY_2_S, &jobs);
    daemon.ticks(12).unwrap();
    daemon.check_ticks().unwrap();
    let recorded = daemon.recorded().unwrap();
    assert!(recorded.own("slurmctld_up").values().all(|&up| up > 0.5));
    // 3 s at 5 % means once a minute, and the answer came after its slot.
    let last = |leaf: &str| recorded.reply("jobs", leaf).last_key_value().map(|(_, &value)| value);
    assert_eq!(last("readings_ok"), Some(1.0));
    assert_eq!(last("readings_late"), Some(1.0));
    assert!(last("readings_skipped_duty").is_some_and(|skipped| skipped >= 2.0));
    assert_eq!(recorded.below(JOBS), [""; 0]);
    daemon.stop().unwrap();
}

/// slurmctld may still be working on the dump that nobody waits for any more.
#[test]
fn a_reader_that_is_killed_over_the_job_dump_has_cost_slurmctld_its_time() {
    let folder = Folder::new().unwrap();
    let body = "hello; while ask; do case $line in *'\"jobs\"'*) sleep 60 ;; *) answer ;; esac; done";
    let reader = Imitation::new(&folder, "reader", body).unwrap();
    let slurm = format!("{}timeout = \"1s\"\n", reader.toml());
    let mut daemon = Daemon::start_surveying(&folder, &slurm, EVERY_2_S).unwrap();
    daemon.said(0.0, "the reader gave no response within 4 s and was killed", SOON).unwrap();
    daemon.ticks(5).unwrap();
    let recorded = daemon.recorded().unwrap();
    let last = |leaf: &str| recorded.reply("jobs", leaf).last_key_value().map(|(_, &value)| value);
    // 4 s at 5 %.
    assert_eq!(last("readings_failed"), Some(1.0));
    assert!(last("readings_skipped_duty").is_some_and(|skipped| skipped >= 2.0));
    daemon.stop().unwrap();
}

#[test]
fn the_queue_comes_under_the_tick_that_asked_and_again_when_nothing_has_changed() {
    let folder = Folder::new().unwrap();
    let unchanged = Reading { reply: Some(Reply::Unchanged), ..queue() };
    let jobs = format!(
        "case $line in *'\"since\"'*) {} ;; *) {} ;; esac",
        Imitation::answer(unchanged).unwrap(),
        Imitation::answer(queue()).unwrap()
    );
    let mut daemon = daemon(&folder, NO_CAP, &jobs);
    let pending = format!("{JOBS}state.pending.gauge-jobs");
    let points = daemon
        .until("three rounds", SOON, |recorded| Some(recorded.series(&pending)).filter(|all| all.len() >= 3))
        .unwrap();
    assert!(points.iter().all(|(at, &jobs)| at % 2 == 0 && jobs == 5.0), "{points:?}");
    let recorded = daemon.recorded().unwrap();
    assert!(recorded.reply("jobs", "readings_unchanged").values().any(|&unchanged| unchanged > 0.0));
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

#[test]
fn what_private_data_hides_is_not_published_as_a_part() {
    let folder = Folder::new().unwrap();
    let visibility = Visibility { private: vec!["jobs".to_owned()], privileged: None };
    let hidden = Reading { visibility: Some(visibility), ..queue() };
    let mut daemon = daemon(&folder, NO_CAP, &Imitation::answer(hidden).unwrap());
    daemon.said(0.0, "PrivateData may hide part of this", SOON).unwrap();
    daemon.ticks(5).unwrap();
    let recorded = daemon.recorded().unwrap();
    assert_eq!(recorded.below(JOBS), [""; 0]);
    assert!(recorded.reply("jobs", "hidden").values().any(|&hidden| hidden > 0.5));
    let said = daemon.entries().iter().filter(|entry| entry.message.contains("PrivateData")).count();
    assert_eq!(said, 1, "said once, not every round");
    daemon.stop().unwrap();
}

#[test]
fn a_busy_slurmctld_is_asked_for_its_statistics_alone() {
    let folder = Folder::new().unwrap();
    let busy = Statistics { server_thread_count: 200, ..Statistics::default() };
    let busy = Imitation::answer(Reading { statistics: Some(busy), ..Imitation::reading() }).unwrap();
    let body = format!(
        "hello; while ask; do case $line in *'\"jobs\"'*) {} ;; *) {busy} ;; esac; done",
        Imitation::answer(queue()).unwrap()
    );
    let reader = Imitation::new(&folder, "reader", &body).unwrap();
    let mut daemon = Daemon::start_surveying(&folder, &reader.toml(), NO_CAP).unwrap();
    daemon.said(0.0, "slurmctld is busy", SOON).unwrap();
    daemon.ticks(5).unwrap();
    let recorded = daemon.recorded().unwrap();
    assert_eq!(recorded.below(JOBS), [""; 0]);
    assert!(recorded.reply("jobs", "readings_skipped_busy").values().any(|&skipped| skipped >= 2.0));
    assert_eq!(recorded.reply("jobs", "readings_ok").values().copied().fold(0.0, f64::max), 0.0);
    daemon.stop().unwrap();
}

#[test]
fn a_reader_that_dies_of_the_job_dump_takes_nothing_else_with_it() {
    let folder = Folder::new().unwrap();
    let mut daemon = daemon(&folder, NO_CAP, "exit 1");
    daemon.said(0.0, "no reading; trying again when it is due", SOON).unwrap();
    daemon.ticks(6).unwrap();
    daemon.check_ticks().unwrap();
    let recorded = daemon.recorded().unwrap();
    assert!(recorded.own("slurmctld_up").values().all(|&up| up > 0.5));
    assert!(recorded.last("reader_restarts") > 0.5, "it is a reader too");
    daemon.stop().unwrap();
}

/// Whether a controller is up matters most when slurmctld does not answer.
#[test]
fn controllers_are_asked_also_while_slurmctld_is_busy_or_away() {
    let folder = Folder::new().unwrap();
    let down = Controller { host: "ctl".to_owned(), index: 0, up: false, elapsed: Some(9) };
    let down = Reading { reply: Some(Reply::Controllers(vec![down])), ..Imitation::reading() };
    let failure =
        r#"echo '{"failure":{"id":'"$id"',"call":"slurm_get_statistics","errno":1800,"text":"away"}}'"#;
    let body = format!(
        "hello; while ask; do case $line in *'\"controllers\"'*) {} ;; *) {failure} ;; esac; done",
        Imitation::answer(down).unwrap()
    );
    let reader = Imitation::new(&folder, "reader", &body).unwrap();
    let collectors = "[collectors.controllers]\nenabled = true\ninterval = \"2s\"\n";
    let mut daemon = Daemon::start_surveying(&folder, &reader.toml(), collectors).unwrap();
    let up = "cluster.slurm_controllers.primary.gauge-up";
    let points = daemon
        .until("two rounds", SOON, |recorded| Some(recorded.series(up)).filter(|all| all.len() >= 2))
        .unwrap();
    assert!(points.values().all(|&up| up == 0.0), "{points:?}");
    daemon.stop().unwrap();
}

/// A ping waits for MessageTimeout, which is longer than a slot here.
#[test]
fn a_backup_that_hangs_holds_up_nothing_else() {
    let folder = Folder::new().unwrap();
    let down = Controller { host: "backup".to_owned(), index: 1, up: false, elapsed: Some(2_600_000) };
    let down = Reading { reply: Some(Reply::Controllers(vec![down])), ..Imitation::reading() };
    let body = format!(
        "hello; while ask; do case $line in *'\"controllers\"'*) sleep 2.6; {} ;; *'\"jobs\"'*) {} ;; *) answer ;; esac; done",
        Imitation::answer(down).unwrap(),
        Imitation::answer(queue()).unwrap()
    );
    let reader = Imitation::new(&folder, "reader", &body).unwrap();
    let collectors = format!("{NO_CAP}[collectors.controllers]\nenabled = true\ninterval = \"2s\"\n");
    let mut daemon = Daemon::start_surveying(&folder, &reader.toml(), &collectors).unwrap();
    let pending = format!("{JOBS}state.pending.gauge-jobs");
    let points = |recorded: &Recorded| Some(recorded.series(&pending)).filter(|all| all.len() >= 2);
    daemon.until("two rounds", SOON, points).unwrap();
    let recorded = daemon.recorded().unwrap();
    assert!(recorded.reply("controllers", "readings_late").values().any(|&late| late > 0.0), "it hung");
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// slurm.conf was replaced, and the second reader noticed it first.
#[test]
fn another_clusters_queue_is_not_published_under_this_ones_name() {
    let folder = Folder::new().unwrap();
    let another = Reading { cluster: Some("another".to_owned()), ..queue() };
    let mut daemon = daemon(&folder, NO_CAP, &Imitation::answer(another).unwrap());
    let two =
        |recorded: &Recorded| recorded.reply("jobs", "readings_ok").values().find(|&&ok| ok >= 2.0).copied();
    daemon.until("two rounds", SOON, two).unwrap();
    assert_eq!(daemon.recorded().unwrap().below(JOBS), [""; 0]);
    daemon.stop().unwrap();
}

/// With separate requests, half of each job dump would be thrown away.
#[test]
fn a_reply_is_asked_for_with_all_that_any_collector_wants_and_held_against_the_last() {
    let folder = Folder::new().unwrap();
    let log = folder.path().join("asked");
    let jobs = logging(&log).unwrap();
    let collectors = "[collectors]\nmax_duty = \"100%\"\n[collectors.jobs]\nenabled = true\ninterval = \"2s\"\nusers = 3\n\
         [collectors.licenses]\nenabled = true\ninterval = \"4s\"\n";
    let mut daemon = daemon(&folder, collectors, &jobs);
    let four = |recorded: &sandbox::Recorded| {
        recorded.reply("jobs", "readings_ok").values().any(|&ok| ok >= 4.0).then_some(())
    };
    daemon.until("four dumps", SOON, four).unwrap();
    daemon.stop().unwrap();
    let asked = std::fs::read_to_string(log).unwrap();
    assert!(asked.lines().all(|line| line.contains("\"users\":true")), "{asked}");
    let whole = asked.lines().filter(|line| !line.contains("since")).count();
    assert_eq!(whole, 1, "the licences' rounds make no difference: {asked}");
}

#[test]
fn a_reload_of_one_collector_leaves_the_others_and_their_reader_alone() {
    let folder = Folder::new().unwrap();
    let log = folder.path().join("asked");
    let jobs = logging(&log).unwrap();
    let mut daemon = daemon(&folder, &format!("{NO_CAP}users = 3\n"), &jobs);
    let ok = |recorded: &Recorded| recorded.reply("jobs", "readings_ok");
    let two = |recorded: &Recorded| ok(recorded).values().find(|&&count| count >= 2.0).copied();
    daemon.until("two rounds", SOON, two).unwrap();
    let readers = daemon.readers();
    let rpc_stats = "[collectors.rpc_stats]\nusers = 9\n[collectors.jobs]";
    for (old, new) in [("[collectors.jobs]", rpc_stats), ("users = 3", "users = 4")] {
        reload(&folder, &mut daemon, |text| text.replace(old, new));
        daemon.ticks(5).unwrap();
    }
    assert_eq!(daemon.readers(), readers);
    let recorded = daemon.recorded().unwrap();
    let counts: Vec<f64> = ok(recorded).into_values().collect();
    assert!(counts.is_sorted() && counts.last() >= Some(&5.0), "it began anew: {counts:?}");
    assert!(recorded.own("slurmctld_up").values().all(|&up| up > 0.5));
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
    let asked = std::fs::read_to_string(log).unwrap();
    let whole = asked.lines().filter(|line| !line.contains("since")).count();
    assert_eq!(whole, 3, "a new collector would take the old starts for new ones: {asked}");
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
    reload(&folder, &mut daemon, |text| text.replace("[slurm]\n", "[slurm]\ntimeout = \"29s\"\n"));
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
    std::fs::create_dir(&queue).unwrap();
    let memory = queue.join("queue-00000000000000000001.log");
    let mkfifo = find_program("mkfifo").unwrap();
    Invocation::of(&folder, &mkfifo, &[&memory.display().to_string()]).unwrap().finish().unwrap();
    let more = format!("[queue]\ndir = \"{}\"\n[collectors.rpc_stats]\nusers = 3\n", queue.display());
    let reader = Imitation::good(&folder).unwrap();
    let mut daemon = Daemon::start_surveying(&folder, &reader.toml(), &more).unwrap();
    daemon.said(0.0, "the queue's files cannot be read yet, so what collectors remember", SOON).unwrap();
    daemon.ticks(2).unwrap();
    let (since, from) = (now(), daemon.recorded().unwrap().own("ticks_run").len());
    reload(&folder, &mut daemon, |text| text.replace("users = 3", "users = 4"));
    daemon.ticks(3).unwrap();
    assert!(now() - since < 6.5, "ticks had to wait");
    assert!(daemon.recorded().unwrap().own("ticks_run").len() >= from + 3);
    daemon.check_ticks().unwrap();
    daemon.stop().unwrap();
}

/// Changes the configuration, and waits until the change is in use.
fn reload(folder: &Folder, daemon: &mut Daemon, change: impl Fn(String) -> String) {
    let file = folder.path().join("daemon.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (changed, since) = (change(text.clone()), now());
    assert_ne!(changed, text);
    std::fs::write(&file, changed).unwrap();
    daemon.process.signal(Signal::HUP).unwrap();
    daemon.said(since, "the new configuration is in use", SOON).unwrap();
}
