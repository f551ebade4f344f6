//! Each finished job is counted once, whichever program ends or hangs: slurmdbd, MariaDB or the
//! daemon itself.
//!
//! The expected values come from sacct, from the database, from slurmctld's log and from what was
//! submitted.
#![expect(
    clippy::print_stdout,
    reason = "the harness captures it, and make finished-long shows it"
)]

mod busy;
mod clocks;
mod efficiency;
mod faults;
mod goes_on;
mod hangs;
mod jobs;
mod names;
mod once;
mod purge;
mod rows;
mod sent;
mod truth;
mod unproved;
mod versions;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use sandbox::accounting::{NODES, QOS};
use sandbox::{
    Accounting, Carbon, Folder, Manner, Process, Sink, Slurm, carbon, is_root, now, run, wait,
};

use self::sent::Sent;
use self::truth::Truth;
pub(crate) use self::truth::tasks;
use self::versions::Expected;

const MINUTE: Duration = Duration::from_secs(60);

/// A cluster with accounting, a daemon that counts, and what it has sent.
struct Stage {
    daemon: Process,
    sink: Sink,
    /// Also receives everything, in the long test.
    carbon: Option<Carbon>,
    accounting: Accounting,
    /// The folder of all of it. It is the last field, so that it is dropped last.
    _folder: Folder,
}

/// The collector's table in the configuration, and the queue that it needs.
fn collector(folder: &Folder) -> String {
    format!(
        "[queue]\ndir = \"{}\"\n[collectors.finished]\nenabled = true\ninterval = \"1s\"\naccounts \
            = 5\nqos = 5\nusers = 5\n",
        folder.path().join("queue").display()
    )
}

fn toml(folder: &Folder, slurm: &Slurm, sink: &Sink) -> String {
    format!(
        "[slurm]\n{}timeout = \"2s\"\n{}{}",
        slurm.toml(),
        sink.destination("sink"),
        collector(folder)
    )
}

impl Stage {
    fn start() -> Result<Self> {
        Self::start_with("", "")
    }

    /// Starts it with these additional tables of the configuration, or settings of the collector,
    /// and lines of slurm.conf.
    fn start_with(settings: &str, slurm_conf: &str) -> Result<Self> {
        Self::with_carbon(Folder::new()?, None, settings, slurm_conf)
    }

    /// Starts it with a Carbon, with jobs that may displace others, and with an account with a dot.
    fn start_long() -> Result<Self> {
        let folder = Folder::new()?;
        let carbon = Carbon::start(&folder, "carbon", &carbon::Options::default())?;
        // Carbon's kernel loses what a killed Carbon has not read.
        let settings =
            format!("[[carbon]]\nname = \"carbon\"\naddress = \"{}\"\n", carbon.address());
        let stage = Self::with_carbon(
            folder,
            Some(carbon),
            &settings,
            "PreemptType=preempt/qos\nPreemptMode=CANCEL",
        )?;
        let run = |line: &str| stage.accounting.slurm.call(&format!("sacctmgr -i {line}"));
        run(&format!("modify qos {QOS} set preempt=normal"))?;
        run(&format!("add account {}", jobs::DOTTED))?;
        let users = stage.accounting.slurm.call("sacctmgr -nP show user format=user")?;
        let users = users.lines().collect::<Vec<_>>().join(",");
        run(&format!("add user {users} account={} qos=normal,{QOS}", jobs::DOTTED))?;
        Ok(stage)
    }

    fn with_carbon(
        folder: Folder,
        carbon: Option<Carbon>,
        settings: &str,
        slurm_conf: &str,
    ) -> Result<Self> {
        let accounting = Accounting::start_with(&folder, slurm_conf, "")?;
        versions::record(&accounting)?;
        let sink = Sink::start(Manner::Record)?;
        let toml = toml(&folder, &accounting.slurm, &sink) + settings;
        let daemon = sandbox::daemon::spawn_daemon(&folder, "daemon", &toml)?;
        let stage = Self { daemon, sink, carbon, accounting, _folder: folder };
        wait::until("the first round", MINUTE, || {
            stage.sent().is_ok_and(|sent| sent.rounds() > 0)
        })?;
        Ok(stage)
    }

    fn sent(&self) -> Result<Sent> {
        Sent::parse(&self.sink.bytes())
    }

    /// slurmdbd 22.05 may end when it loses its database.
    fn revive(&mut self) -> Result<()> {
        if self.accounting.slurmdbd.pid().is_none() {
            self.accounting.slurmdbd.start()
        } else {
            Ok(())
        }
    }

    /// Waits until slurmdbd knows the end of all jobs, and every figure is as expected, or is not
    /// in time.
    fn settle(&self) -> Result<(Truth, Expected, Sent)> {
        let truth = ended(&self.accounting)?;
        let expected = Expected::from_versions(&self.accounting, &truth)?;
        // One that may grow counts when it has looked the same for three minutes, at the latest
        // after ten.
        let _missing = wait::until("the last job in Carbon", MINUTE * 12, || {
            self.sent().is_ok_and(|sent| sent.compare(&expected).is_ok())
        });
        // Nothing more is counted afterwards.
        self.two_more_rounds()?;
        Ok((truth, expected, self.sent()?))
    }

    fn two_more_rounds(&self) -> Result<()> {
        let rounds = self.sent()?.rounds();
        let more = || self.sent().is_ok_and(|sent| sent.rounds() > rounds + 2);
        wait::until("two more rounds", MINUTE, more).map(drop)
    }

    /// Compares all figures with what is expected. Returns how many jobs there were, and what was
    /// compared.
    fn check(&mut self) -> Result<(Truth, String)> {
        let (truth, expected, sent) = self.settle()?;
        let figures = sent.compare(&expected);
        let figures = match sent.no_false_zero(&versions::moved_ends(&self.accounting)?) {
            Ok(()) => figures.with_context(|| {
                let changed = versions::of_rows_that_changed(&self.accounting);
                let unlike = truth.unlike();
                format!(
                    "nodes listed and counted differ in {unlike:#?}; versions of rows: {}",
                    changed.unwrap_or_default()
                )
            })?,
            Err(zeros) => bail!("{zeros}; {figures:?}"),
        };
        if let Some(carbon) = &mut self.carbon {
            // Carbon may have to be sent something again.
            let has_all =
                || Sent::of_whisper(carbon).is_ok_and(|stored| stored.compare(&expected).is_ok());
            let _missing = wait::until("everything in whisper", MINUTE * 2, has_all);
            Sent::of_whisper(carbon)?.compare(&expected).context("in whisper")?;
        }
        let (changed, most) =
            (sent.last("reading.gauge-changed_total").unwrap_or(0), expected.changes);
        ensure!(
            changed <= most,
            "{changed} changes are published, slurmdbd's table had {most} at most"
        );
        let (rows, unlike) = (expected.changed, truth.unlike().len());
        // Only a job that was resized can have that.
        ensure!(unlike <= 6, "nodes listed and counted differ in {:#?}", truth.unlike());
        let compared = format!(
            "{figures} figures, {unlike} rows with fewer nodes in their TRES, {rows} rows that \
                changed after their end, {changed} times published"
        );
        Ok((truth, compared))
    }
}

/// slurmctld drains a node that has a job with a number that it gives again, after it was killed
/// and has forgotten it.
fn resume_nodes(accounting: &Accounting) {
    for node in NODES {
        let _not_drained =
            accounting.slurm.call(&format!("scontrol update nodename={node} state=resume"));
    }
}

fn ended(accounting: &Accounting) -> Result<Truth> {
    // A requeued job starts again after two minutes, and may then run until its time limit. A
    // slurmctld that was killed may not hear of the end of a job.
    let (start, mut polls) = (Instant::now(), 0_u32);
    wait::until("the end of all jobs", MINUTE * 6, || {
        polls += 1;
        if polls.is_multiple_of(20) {
            resume_nodes(accounting);
        }
        let left = accounting.slurm.run("squeue", &["-h", "-a", "-t", "all", "-o", "%T %r %F_%K"]);
        left.is_ok_and(|left| {
            // slurmctld may hold a job that was requeued just when it was about to start. One that
            // was killed may not find a task by its own number.
            let left = left.replace("_N/A", "");
            let held =
                |line: &&str| line.contains(" JobHeldAdmin ") || line.contains(" requeued held ");
            for line in left.lines().filter(|line| line.starts_with("PENDING")).filter(held) {
                let _cancelled_meanwhile =
                    accounting.slurm.run("scancel", &[line.rsplit(' ').next().unwrap_or_default()]);
            }
            let open = ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED"];
            let is_open = |line: &&str| open.iter().any(|state| line.starts_with(state));
            let ids = left.lines().filter(is_open).filter_map(|line| line.rsplit(' ').next());
            // Whole arrays: scancel refuses everything if one of them is `7_1-5%2`.
            let ids: Vec<&str> = ids.filter_map(|id| id.split('_').next()).collect();
            if start.elapsed() > MINUTE * 3 && polls.is_multiple_of(20) {
                let _ended_meanwhile = accounting.slurm.run("scancel", &ids);
            }
            ids.is_empty()
        })
    })
    .with_context(|| accounting.slurm.call("squeue -a").unwrap_or_default())?;
    let told = || {
        accounting.slurm.call("sdiag").is_ok_and(|text| text.contains("DBD Agent queue size: 0"))
    };
    let left = || accounting.sql(truth::UNFINISHED).is_ok_and(|count| count.trim() != "0");
    let all = || told() && !left();
    if wait::until("slurmctld's news in slurmdbd", MINUTE, all).is_err() {
        // A slurmctld that was killed has forgotten jobs: the administrator ends them.
        accounting.slurm.call("sacctmgr -i show runawayjobs")?;
        // Of some, slurmdbd never hears more than the end.
        let open = || accounting.sql(truth::OPEN).is_ok_and(|count| count.trim() != "0");
        wait::until("the end of what slurmctld has forgotten", MINUTE, || told() && !open())
            .with_context(|| accounting.sql(truth::ROWS).unwrap_or_default())?;
    }
    Truth::from_slurmdbd(accounting)
}

fn seed() -> u64 {
    std::env::var("SOAK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..))
}

#[test]
fn without_slurmdbd_or_a_folder_finished_jobs_are_refused_in_one_line_and_the_rest_goes_on() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let toml = toml(&folder, &slurm, &sink);
    let mut daemon = sandbox::daemon::spawn_daemon(&folder, "daemon", &toml).unwrap();
    let up = || String::from_utf8_lossy(&sink.bytes()).matches(".gauge-slurmctld_up 1 ").count();
    wait::until("ten ticks", MINUTE, || up() >= 10).unwrap();
    assert_eq!(Sent::parse(&sink.bytes()).unwrap().rounds(), 0);
    let refusal = "there is no slurmdbd; [collectors.jobs] counts jobs by state without it";
    let said = daemon.lines().into_iter().filter(|line| line.contains(refusal)).count();
    assert_eq!(said, 1, "{:#?}", daemon.lines());
    daemon.stop().unwrap();

    let file = folder.write("check.toml", &toml.replace("\"1s\"", "\"60s\"")).unwrap();
    let run = |args: &[&str]| run(&folder, &[args, &["--config", &file]].concat()).unwrap();
    let checked = run(&["check", "--connect"]);
    let line = checked.stdout.lines().find(|line| line.starts_with("✗ slurmdbd: finished jobs: "));
    assert!(
        line.is_some_and(|line| line.contains(refusal)) && checked.code == Some(1),
        "{checked:?}"
    );
    let refused = run(&["stats", "--jobs", "--finished"]);
    assert!(refused.stderr.contains(refusal), "{refused:?}");

    // Without a folder for what was counted nothing is counted.
    let toml = "[[carbon]]\naddress = \"127.0.0.1:2004\"\n[collectors.finished]\nenabled = true\n";
    let file = folder.write("homeless.toml", toml).unwrap();
    let finished = sandbox::run(&folder, &["run", "--config", &file]).unwrap();
    assert_eq!(finished.code, Some(78), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("collectors.finished: needs [queue] dir"),
        "{}",
        finished.stderr
    );
}

/// An ordinary user then sees only their own jobs, and a part must not look like the whole.
#[test]
fn what_private_data_hides_or_has_no_qos_that_slurmdbd_could_read_is_not_counted() {
    if !is_root() {
        return;
    }
    let folder = Folder::new().unwrap();
    let accounting = Accounting::start_with(&folder, "", "PrivateData=jobs").unwrap();
    jobs::run(&accounting, 1);
    let (_, mail) = sandbox::accounting::USERS[1];
    let (since, until) = (now() - 1000.0, now() + 1000.0);
    let request = format!(
        "{{\"finished\":{{\"id\":1,\"since\":{since:.0},\
            \"until\":{until:.0},\"options\":{{\"qos\":true}}}}}}\n"
    );
    let ask = |user| {
        let (finished, visibility) = jobs::ask(&folder, &accounting, user, &request).unwrap();
        (finished.jobs, visibility)
    };
    let (jobs, visibility) = ask(None);
    assert_eq!((jobs.len(), visibility.may_hide("jobs")), (1, false), "root sees everything");
    let (jobs, visibility) = ask(Some(mail));
    assert_eq!((jobs.len(), visibility.may_hide("jobs")), (0, true));
    accounting.slurm.call("sacctmgr -i modify user mail set adminlevel=operator").unwrap();
    let (jobs, visibility) = ask(Some(mail));
    assert_eq!((jobs.len(), visibility.may_hide("jobs")), (1, false), "operators do too");
    let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!((job.state, job.tasks, job.cpus, job.nodes), (3, 1, 1, 1));
    // Without a cluster in the condition, slurmdbd would return the other cluster's jobs too, which
    // have the same numbers.
    let copy =
        "insert into slurm_acct_db.other_job_table select * from slurm_acct_db.sandbox_job_table";
    accounting.sql(copy).unwrap();
    assert_eq!(ask(None).0.len(), 1, "the other cluster's jobs are none of ours");
    // A job whose QOS was not found counted as one without a QOS: slurmdbd answers a query for all
    // QOS that has failed in its database with an empty list too.
    let ask = || jobs::ask(&folder, &accounting, None, &request);
    let qos = || ask().map(|(finished, _)| finished.name(finished.jobs[0].qos).to_owned());
    assert_eq!(qos().unwrap(), "normal");
    accounting.sql("use slurm_acct_db; rename table qos_table to qos_table_that_is_away").unwrap();
    let refused = ask().unwrap_err().to_string();
    assert!(refused.contains("slurmdbd returns no QOS"), "{refused}");
    accounting.sql("use slurm_acct_db; rename table qos_table_that_is_away to qos_table").unwrap();
    assert_eq!(qos().unwrap(), "normal");
}
