//! Each finished job is counted once, whichever program ends or hangs: slurmdbd, MariaDB or the daemon itself.
//!
//! The expected values come from sacct and from GROUP BY in the database, after array tasks have been expanded here.

mod efficiency;
mod hangs;
mod jobs;
mod sent;
mod truth;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sandbox::{Accounting, Folder, Invocation, Manner, Process, Sink, Slurm, now, wait};

use self::jobs::Cast;
use self::sent::Sent;
use self::truth::Truth;

const MINUTE: Duration = Duration::from_secs(60);

/// A cluster with accounting, a daemon that counts, and what it has sent.
struct Stage {
    daemon: Process,
    sink: Sink,
    accounting: Accounting,
    /// The folder of all of it. It is the last field, so that it is dropped last.
    _folder: Folder,
}

/// The collector's table in the configuration, and the queue that it needs.
fn collector(folder: &Folder) -> String {
    format!(
        "[queue]\ndir = \"{}\"\n[collectors.finished]\nenabled = true\ninterval = \"1s\"\naccounts = 5\nqos = 5\nusers = 5\n",
        folder.path().join("queue").display()
    )
}

fn toml(folder: &Folder, slurm: &Slurm, sink: &Sink) -> String {
    format!(
        "[slurm]\nconf = \"{}\"\ntimeout = \"2s\"\n[[carbon]]\nname = \"sink\"\nprotocol = \"plaintext\"\naddress = \"{}\"\n{}",
        slurm.conf().display(),
        sink.address(),
        collector(folder)
    )
}

impl Stage {
    fn start() -> Result<Self> {
        Self::start_with("", "")
    }

    /// Starts it with these additional settings of the collector and lines of slurm.conf.
    fn start_with(settings: &str, slurm_conf: &str) -> Result<Self> {
        let folder = Folder::new()?;
        let accounting = Accounting::start_with(&folder, slurm_conf, "")?;
        let sink = Sink::start(Manner::Record)?;
        let toml = toml(&folder, &accounting.slurm, &sink) + settings;
        let daemon = sandbox::daemon::spawn_daemon(&folder, "daemon", &toml)?;
        let stage = Self { daemon, sink, accounting, _folder: folder };
        wait::until("the first round", MINUTE, || stage.sent().is_ok_and(|sent| sent.rounds() > 0))?;
        Ok(stage)
    }

    fn sent(&self) -> Result<Sent> {
        Sent::read(&self.sink.bytes())
    }

    /// Jobs that end while no daemon runs: its first round counts all of them, and their percentiles are correct.
    fn check_percentiles(&mut self, cast: &mut Cast, random: &mut fastrand::Rng) -> Result<usize> {
        let (before, slot) = (ended(&self.accounting)?, self.sent()?.last_slot());
        self.daemon.kill()?;
        cast.submit(&self.accounting, random, 60)?;
        cast.end(&self.accounting)?;
        ended(&self.accounting)?;
        self.daemon.spawn()?;
        let (truth, sent) = self.settle()?;
        let slot = sent.first_after(slot).context("no round after the start")?;
        let (new, mut compared) = (truth.since(&before)?, 0);
        for (level, sums) in &new.sums {
            let sums = sums.iter().filter(|(leaf, _)| **leaf != "cancelled_before_start");
            let sums = sums.map(|(leaf, value)| ((*leaf).to_owned(), *value));
            for (leaf, value) in sums.chain(new.percentiles(level)) {
                let path = format!("{level}.work.gauge-{leaf}");
                let its = sent.at(&path, slot);
                ensure!(its == Some(value), "{path} at {slot} is {its:?}, sacct's lines have {value}");
                compared += 1;
            }
        }
        Ok(compared)
    }

    /// Waits until slurmdbd knows the end of all jobs, and the daemon has counted as many.
    fn settle(&self) -> Result<(Truth, Sent)> {
        let truth = ended(&self.accounting)?;
        let all = truth.jobs["total"].values().sum::<u64>();
        wait::until("the last job in Carbon", MINUTE, || {
            self.sent().is_ok_and(|sent| sent.last("total.work.gauge-jobs_total") == Some(all))
        })
        .with_context(|| format!("{all} jobs; {:?}", self.sent().map(|sent| sent.totals())))?;
        // Nothing more is counted afterwards.
        let rounds = self.sent()?.rounds();
        wait::until("two more rounds", MINUTE, || self.sent().is_ok_and(|sent| sent.rounds() > rounds + 2))?;
        Ok((truth, self.sent()?))
    }

    fn check(&self) -> Result<u64> {
        let (truth, sent) = self.settle()?;
        ensure!(
            sent.totals() == truth.jobs,
            "the totals are {:#?}, sacct has {:#?}",
            sent.totals(),
            truth.jobs
        );
        ensure!(sent.sums() == truth.jobs, "all slots have {:#?}, sacct has {:#?}", sent.sums(), truth.jobs);
        for (level, sums) in &truth.sums {
            for (leaf, value) in sums {
                let path = format!("{level}.work.gauge-{leaf}");
                let last = sent.last(&format!("{path}_total"));
                ensure!(last == Some(*value), "{path} is {last:?}, sacct has {value}");
                ensure!(sent.sum(&path) == *value, "all slots of {path}");
            }
        }
        Ok(truth.jobs["total"].values().sum())
    }
}

/// Waits until slurmdbd knows the end of all jobs.
fn ended(accounting: &Accounting) -> Result<Truth> {
    // A requeued job starts again after two minutes, and may then run until its time limit.
    wait::until("the end of all jobs", MINUTE * 6, || {
        let left = accounting.slurm.run("squeue", &["-h", "-a", "-t", "all", "-o", "%T %r %A"]);
        left.is_ok_and(|left| {
            // slurmctld may hold a job that was requeued just when it was about to start.
            for held in left.lines().filter_map(|line| line.strip_prefix("PENDING JobHeldAdmin ")) {
                let _cancelled_meanwhile = accounting.slurm.run("scancel", &[held]);
            }
            let open = ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED"];
            !left.lines().any(|line| open.iter().any(|state| line.starts_with(state)))
        })
    })
    .with_context(|| accounting.slurm.run("squeue", &["-a"]).unwrap_or_default())?;
    wait::until("slurmctld's news in slurmdbd", MINUTE, || {
        accounting.slurm.run("sdiag", &[]).is_ok_and(|text| text.contains("DBD Agent queue size: 0"))
            && accounting.sql(truth::UNFINISHED).is_ok_and(|count| count.trim() == "0")
    })
    .with_context(|| accounting.sql(truth::ROWS).unwrap_or_default())?;
    let (truth, in_sql) = (Truth::of_sacct(accounting)?, Truth::of_sql(accounting)?);
    ensure!(truth.jobs == in_sql.jobs, "sacct {:?}, SQL {:?}", truth.jobs, in_sql.jobs);
    Ok(truth)
}

/// How large the test is.
#[derive(Clone, Copy)]
struct Size {
    jobs: usize,
    faults: usize,
    /// Whether it has jobs that take minutes, and percentiles.
    is_long: bool,
}

/// The kinds of faults.
const FAULTS: usize = 7;

fn counted_once(seed: u64, size: Size) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stage = Stage::start()?;
    let (mut cast, start) = (Cast { is_long: size.is_long, ..Cast::default() }, Instant::now());
    let mut faults: Vec<usize> = (0..size.faults).collect();
    random.shuffle(&mut faults);
    // The tasks of a cancelled array are counted half a minute after slurmdbd knows them. If there are few faults,
    // those that only end the daemon come last, so that much of this time passes meanwhile.
    let is_short = size.faults == FAULTS;
    let only_ends_the_daemon = |fault: &usize| is_short && fault % FAULTS < 3;
    faults.sort_by_key(only_ends_the_daemon);
    let least = size.jobs.div_ceil(size.faults * 2);
    for fault in faults {
        if only_ends_the_daemon(&fault) {
            cast.end(&stage.accounting)?;
        }
        cast.submit(&stage.accounting, &mut random, least)?;
        stage.strike(fault % FAULTS, &mut cast, &mut random, least)?;
    }
    stage.revive()?;
    cast.end(&stage.accounting)?;
    let jobs = stage.check()?;
    ensure!(jobs >= u64::try_from(size.jobs)?, "{jobs} jobs are too few");
    if size.is_long {
        let truth = Truth::of_sacct(&stage.accounting)?;
        ensure!(["timeout", "requeued"].iter().all(|state| truth.jobs["total"].contains_key(*state)));
        let compared = stage.check_percentiles(&mut cast, &mut random)?;
        report(&format!(
            "SOAK_SEED={seed}: {jobs} jobs, {:?}, {compared} figures of one round",
            truth.jobs["total"]
        ))?;
    }
    ensure!(start.elapsed() < MINUTE * 30, "{:?}", start.elapsed());
    stage.daemon.stop()?;
    Ok(())
}

impl Stage {
    /// slurmdbd 22.05 may end when it loses its database.
    fn revive(&mut self) -> Result<()> {
        if self.accounting.slurmdbd.pid().is_none() { self.accounting.slurmdbd.start() } else { Ok(()) }
    }

    /// Causes one fault, with jobs that end during it.
    fn strike(
        &mut self,
        fault: usize,
        cast: &mut Cast,
        random: &mut fastrand::Rng,
        jobs: usize,
    ) -> Result<()> {
        let some = Duration::from_secs_f64(random.f64() * 2.0);
        self.revive()?;
        match fault {
            0..=2 => {
                cast.submit(&self.accounting, random, jobs)?;
                wait::pause(some);
                self.daemon.kill()?;
                if fault == 1 {
                    wait::pause(some);
                }
                self.daemon.spawn()?;
            }
            3 => {
                self.accounting.slurmdbd.kill()?;
                cast.submit(&self.accounting, random, jobs)?;
                wait::pause(some);
                self.accounting.slurmdbd.start()?;
            }
            4 => {
                self.accounting.mariadbd.kill()?;
                cast.submit(&self.accounting, random, jobs)?;
                wait::pause(some);
                self.accounting.mariadbd.start()?;
                // slurmdbd may end at its next query to the database: here, and not in the middle of the next fault.
                let Accounting { slurm, slurmdbd, .. } = &mut self.accounting;
                let answers = || slurm.run("sacctmgr", &["-n", "show", "cluster"]).is_ok();
                wait::until("slurmdbd, or its end", MINUTE, || answers() || slurmdbd.pid().is_none())?;
            }
            5 => {
                self.accounting.slurmdbd.freeze()?;
                cast.submit(&self.accounting, random, jobs)?;
                self.daemon.kill()?;
                self.daemon.spawn()?;
                wait::pause(some * 3);
                self.accounting.slurmdbd.thaw()?;
            }
            _ => {
                self.accounting.slurmdbd.stop()?;
                self.accounting.mariadbd.stop()?;
                cast.submit(&self.accounting, random, jobs)?;
                self.accounting.mariadbd.start()?;
                self.accounting.slurmdbd.start()?;
            }
        }
        Ok(())
    }
}

/// For a person who runs this test alone with --nocapture.
fn report(text: &str) -> Result<()> {
    use std::io::Write as _;

    writeln!(std::io::stdout(), "{text}").context("stdout")
}

fn seed() -> u64 {
    std::env::var("SOAK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..))
}

#[test]
fn every_job_is_counted_once_while_slurmdbd_mariadb_and_the_daemon_end_or_hang() {
    let seed = seed();
    counted_once(seed, Size { jobs: 60, faults: FAULTS, is_long: false })
        .with_context(|| format!("SOAK_SEED={seed}"))
        .unwrap();
}

/// The daemon is killed twelve times, and slurmdbd and MariaDB are each killed, stopped and frozen four times. `make
/// finished-long` runs it; `SOAK_SEED=` repeats a run.
#[test]
#[ignore = "takes some minutes: make finished-long"]
fn five_hundred_jobs_are_counted_once() {
    let seed = seed();
    counted_once(seed, Size { jobs: 500, faults: 28, is_long: true })
        .with_context(|| format!("SOAK_SEED={seed}"))
        .unwrap();
}

/// slurmctld keeps their records for MinJobAge, 300 s.
#[test]
fn without_slurmdbd_every_job_is_counted_once_from_slurmctlds_own_records() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let toml = toml(&folder, &slurm, &sink);
    let mut daemon = sandbox::daemon::spawn_daemon(&folder, "daemon", &toml).unwrap();
    let sent = || Sent::read(&sink.bytes()).unwrap();
    wait::until("the first round", MINUTE, || sent().rounds() > 0).unwrap();
    let submit = |args: &[&str]| slurm.submit(args).map(drop).unwrap();
    let counted = |what: &str, completed, cancelled| {
        let expected = [("completed", completed), ("failed", 1), ("cancelled", cancelled)];
        let total = |sent: &Sent| sent.totals().remove("total").unwrap_or_default();
        let expected =
            expected.into_iter().filter(|(_, jobs)| *jobs > 0).map(|(word, jobs)| (word.to_owned(), jobs));
        let expected = expected.collect();
        wait::until(what, MINUTE, || total(&sent()) == expected)
            .with_context(|| format!("{expected:?}; {:?}", sent().totals()))
            .unwrap();
    };
    submit(&["-H", "--array=1-5", "--wrap", "true"]);
    for script in ["true", "exit 3", "true"] {
        submit(&["--wrap", script]);
    }
    counted("jobs that have run", 2, 0);
    daemon.kill().unwrap();
    slurm.run("scancel", &["--state=PENDING"]).unwrap();
    submit(&["--wrap", "true"]);
    daemon.spawn().unwrap();
    // slurmctld does not keep how many tasks were cancelled.
    counted("also what ended while the daemon was away", 3, 1);
    let rounds = sent().rounds();
    wait::until("two more rounds", MINUTE, || sent().rounds() > rounds + 2).unwrap();
    counted("nothing twice", 3, 1);
    let sent = sent();
    let me = slurm.run("id", &["-un"]).unwrap();
    assert!(sent.totals().contains_key(&format!("user.{}", me.trim())), "{:?}", sent.totals());
    assert_eq!(sent.sums(), sent.totals());
    assert_eq!(sent.last("reading.gauge-complete"), Some(1));
    daemon.stop().unwrap();

    let file = folder.path().join("check.toml");
    std::fs::write(&file, toml.replace("\"1s\"", "\"60s\"")).unwrap();
    let file = file.display().to_string();
    let run = |args: &[&str]| {
        Invocation::new(&folder, &[args, &["--config", &file]].concat()).unwrap().finish().unwrap()
    };
    let checked = run(&["check", "--connect"]);
    assert!(
        checked.stdout.contains("✓ finished jobs: no slurmdbd; slurmctld keeps a job for MinJobAge, 300 s"),
        "{checked:?}"
    );
    let refused = run(&["stats", "--jobs", "--finished"]);
    assert!(refused.stderr.contains("this cluster has no slurmdbd"), "{refused:?}");
}

#[test]
fn without_a_folder_for_what_was_counted_nothing_is_counted() {
    let folder = Folder::new().unwrap();
    let file = folder.path().join("daemon.toml");
    let toml = "[[carbon]]\naddress = \"127.0.0.1:2004\"\n[collectors.finished]\nenabled = true\n";
    std::fs::write(&file, toml).unwrap();
    let args = ["run", "--config", &file.display().to_string()];
    let finished = Invocation::new(&folder, &args).unwrap().finish().unwrap();
    assert_eq!(finished.code, Some(78), "{}", finished.stderr);
    assert!(finished.stderr.contains("collectors.finished: needs [queue] dir"), "{}", finished.stderr);
}

/// An ordinary user then sees only their own jobs, and a part must not look like the whole.
#[test]
fn what_private_data_hides_is_not_counted_until_the_daemons_user_is_an_operator() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let folder = Folder::new().unwrap();
    let accounting = Accounting::start_with(&folder, "", "PrivateData=jobs").unwrap();
    accounting.slurm.submit(&["--wrap", "true"]).unwrap();
    let ended = "select count(*) from slurm_acct_db.sandbox_job_table where time_end > 0";
    wait::until("its end", MINUTE, || accounting.sql(ended).is_ok_and(|count| count.trim() == "1")).unwrap();
    let (_, mail) = sandbox::accounting::USERS[1];
    let (since, until) = (now() - 1000.0, now() + 1000.0);
    let request = format!("{{\"finished\":{{\"id\":1,\"since\":{since:.0},\"until\":{until:.0}}}}}\n");
    let ask = |user| jobs::ask(&folder, &accounting, user, &request).unwrap();
    let (jobs, visibility) = ask(None);
    assert_eq!((jobs.len(), visibility.may_hide("jobs")), (1, false), "root sees everything");
    let (jobs, visibility) = ask(Some(mail));
    assert_eq!((jobs.len(), visibility.may_hide("jobs")), (0, true));
    accounting
        .slurm
        .run("sacctmgr", &["-i", "modify", "user", "mail", "set", "adminlevel=operator"])
        .unwrap();
    let (jobs, visibility) = ask(Some(mail));
    assert_eq!((jobs.len(), visibility.may_hide("jobs")), (1, false), "operators do too");
    let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!((job.state, job.tasks, job.cpus, job.nodes), (3, 1, 1, 1));
    // Without a cluster in the condition, slurmdbd would return the other cluster's jobs too, which have the same
    // numbers.
    let copy = "insert into slurm_acct_db.other_job_table select * from slurm_acct_db.sandbox_job_table";
    accounting.sql(copy).unwrap();
    assert_eq!(ask(None).0.len(), 1, "the other cluster's jobs are none of ours");
}
