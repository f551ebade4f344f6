//! Recipes by which finished jobs were once miscounted, or not counted for days: an array that
//! never started, seen through a restart of slurmctld; a query that fails inside slurmdbd while it
//! answers "no jobs"; and a long time without jobs.
//!
//! What is expected is counted here, from what was submitted and what was inserted, and by a column
//! of slurmdbd's that the program does not read.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use carbon::{Limits, Queue};
use sandbox::{Accounting, Folder, Manner, Sink, is_root, now, wait};

use super::{MINUTE, Sent, Stage, jobs, toml};

/// Jobs in the past, over 70 hours.
const PAST: u64 = 2000;

/// Tasks that never started, by slurmdbd's own number of them, and jobs that did, of rows that have
/// ended.
fn tasks_in_slurmdbd(accounting: &Accounting) -> Result<(u64, u64)> {
    let rows = accounting.sql(
        "select ifnull(sum(array_task_pending), 0), count(if(array_task_pending = 0, 1, null)) \
         from slurm_acct_db.sandbox_job_table where time_end > 0",
    )?;
    let (waited, started) = rows.trim().split_once('\t').context("two numbers")?;
    Ok((waited.parse()?, started.parse()?))
}

/// The whole of a cancelled array once counted as one job that had started: slurmdbd has a start
/// and a text of TRES for it if slurmctld was restarted before it had reported the job.
///
/// Up to 24.05, a task that starts within some 10 s before its array is cancelled may stay in
/// slurmdbd's row for the others, next to its own row, for good: that the row has to be sent again is
/// a flag of the job's state (`JOB_UPDATE_DB`), which being cancelled replaces. sacct prints such a
/// task twice, and so it counts twice. The first array is such a case nearly always.
#[test]
fn arrays_that_slurmctld_reports_after_a_restart_count_as_slurmdbd_has_them() {
    let mut stage = Stage::start().unwrap();
    let slurm = &stage.accounting.slurm;
    let runs = || slurm.call("squeue -h -t running -o %A").is_ok_and(|jobs| !jobs.is_empty());
    let one_at_a_time = |begin: &str| {
        let args = [begin, "--array=1-20%1", "--wrap", "sleep 300"];
        slurm.submit(&args).unwrap().to_string()
    };
    let reported = one_at_a_time("--begin=now+7");
    jobs::until_rows(&stage.accounting, "array_task_pending = 20", 1);
    wait::until("a task of an array that slurmdbd knows", MINUTE, runs).unwrap();
    slurm.run("scancel", &[&reported]).unwrap();
    wait::until("its end", MINUTE, || !runs()).unwrap();

    let held = slurm.submit(&["-H", "--array=1-20", "--wrap", "true"]).unwrap().to_string();
    let last = one_at_a_time("--begin=now");
    wait::until("the first task", MINUTE, runs).unwrap();
    slurm.run("scancel", &[&held, &last]).unwrap();
    stage.accounting.slurm.slurmctld.stop().unwrap();
    stage.accounting.slurm.slurmctld.start().unwrap();
    let paths = ["cancelled_before_start", "started"].map(|leaf| format!("work.gauge-{leaf}"));
    let [waited, started] = &paths;
    let cancelled = "state.cancelled.gauge-jobs".to_owned();
    let counted = |sent: &Sent| {
        [&cancelled, waited, started]
            .map(|path| sent.last(&format!("total.{path}_total")).unwrap_or(0))
    };
    let in_slurmdbd = || {
        let (waited, started) = tasks_in_slurmdbd(&stage.accounting).unwrap();
        [waited + started, waited, started]
    };
    wait::until("all 60 tasks", MINUTE * 6, || {
        let counted = stage.sent().map(|sent| counted(&sent));
        counted.is_ok_and(|counted| counted[0] >= 60 && counted == in_slurmdbd())
    })
    .with_context(|| format!("{:?}: {:?}", in_slurmdbd(), stage.sent().map(|sent| counted(&sent))))
    .unwrap();
    let expected = in_slurmdbd();
    println!("cancelled, before their start, started: {expected:?}");
    // Of each array a task has started.
    assert_eq!(expected[2], 2, "{expected:?}");
    assert!((58..=60).contains(&expected[1]), "{expected:?}");
    stage.two_more_rounds().unwrap();
    let sent = stage.sent().unwrap();
    assert_eq!(counted(&sent), expected);
    for (path, jobs) in [&cancelled, waited, started].into_iter().zip(expected) {
        assert_eq!(sent.sum(&format!("total.{path}")), jobs, "all slots of {path}");
    }
    stage.daemon.stop().unwrap();
}

/// A daemon that has counted nothing since three days ago.
pub(super) fn three_days_ago(folder: &Folder) -> Result<()> {
    let began = now() - 3.0 * 24.0 * 3600.0;
    keep_counts(folder, &format!("\"first\":{began:.0},\"floor\":{began:.0}"))
}

/// A daemon whose counts have these members.
pub(super) fn keep_counts(folder: &Folder, members: &str) -> Result<()> {
    let counts = format!("{{\"version\":2,\"cluster\":\"sandbox\",{members}}}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let limits = Limits {
            max_bytes: 256 << 20,
            max_age: Duration::from_secs(12 * 3600),
            resend_window: Duration::from_secs(600),
        };
        let queue = Queue::open(Some(folder.path().join("queue")), limits, &["sink".to_owned()]);
        let ticket = queue.keep([("finished.2.counts".to_owned(), counts.into_bytes().into())]);
        tokio::time::timeout(MINUTE, queue.kept(ticket)).await.context("the counts on disk")?;
        queue.close().await;
        Ok(())
    })
}

/// Copies the first of three jobs to so many others that ended in the last `seconds`.
pub(super) fn insert(accounting: &Accounting, jobs: u64, seconds: u64) -> Result<()> {
    let own = "'job_db_inx', 'id_job', 'time_submit', 'time_eligible', 'time_start', 'time_end'";
    accounting.sql(&format!(
        "use slurm_acct_db; set @columns = (select group_concat(concat('`', column_name, '`')) \
         from information_schema.columns where table_schema = 'slurm_acct_db' and table_name = \
         'sandbox_job_table' and column_name not in ({own})); execute immediate concat('insert \
         into sandbox_job_table (', @columns, ', id_job, time_submit, time_eligible, time_start, \
         time_end) select ', @columns, ', 100000 + seq, time_end - 600 - ago, time_end - 600 - \
         ago, time_end - 300 - ago, time_end - 290 - ago from (select * from sandbox_job_table \
         order by job_db_inx limit 1) as base, (select seq, seq * {seconds} div {jobs} as ago from \
         seq_1_to_{jobs}) as past')"
    ))?;
    let rows = accounting
        .sql("select count(*) from slurm_acct_db.sandbox_job_table where time_end > 0")?;
    ensure!(rows.trim() == (jobs + 3).to_string(), "{rows} rows");
    Ok(())
}

/// While the table is away slurmdbd answers each request without an error and without a job.
#[test]
fn a_table_that_is_away_in_the_middle_of_a_catch_up_costs_no_job_and_makes_no_zero() {
    let folder = Folder::new().unwrap();
    let accounting = Accounting::start(&folder).unwrap();
    jobs::run(&accounting, 3);
    insert(&accounting, PAST, 70 * 3600).unwrap();
    three_days_ago(&folder).unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let toml = toml(&folder, &accounting.slurm, &sink);
    let rename = |from: &str, to: &str| {
        accounting
            .sql(&format!("use slurm_acct_db; rename table {from} to {to}"))
            .map(drop)
            .unwrap();
    };
    let (own, away) = ("sandbox_job_table", "job_table_that_is_away");
    let sent = || Sent::parse(&sink.bytes()).unwrap();
    let total = || sent().last("total.work.gauge-jobs_total");

    rename(own, away);
    let mut daemon = sandbox::daemon::spawn_daemon(&folder, "daemon", &toml).unwrap();
    wait::until("three unproved rounds", MINUTE, || sent().sum("reading.gauge-unproved") > 2)
        .unwrap();
    assert_eq!(total(), None, "a round that is not proved has no figures");
    // In the middle of the catch-up, several times.
    for _ in 0..6 {
        rename(away, own);
        wait::pause(Duration::from_millis(300));
        rename(own, away);
        wait::pause(Duration::from_secs(1));
    }
    rename(away, own);
    let all = PAST + 3;
    let is_whole = || total() == Some(all) && sent().last("reading.gauge-unproved") == Some(0);
    wait::until("all jobs", MINUTE * 3, is_whole)
        .with_context(|| format!("{all} jobs, {:?}", total()))
        .unwrap();
    daemon.kill().unwrap();
    daemon.spawn().unwrap();
    let rounds = sent().rounds();
    wait::until("two rounds of a new start", MINUTE, || sent().rounds() > rounds + 2).unwrap();
    assert_eq!(
        (total(), sent().sum("total.work.gauge-jobs")),
        (Some(all), all),
        "{all} jobs, each once"
    );

    // Nothing is counted and nothing is said to be zero while it is away; the log has one line each
    // way.
    let (rounds, zeros) = (sent().rounds(), sent().slots("total.work.gauge-jobs"));
    let begun = daemon.lines().len();
    rename(own, away);
    wait::until("five rounds without it", MINUTE, || sent().rounds() > rounds + 5).unwrap();
    rename(away, own);
    let published = sent().slots("total.work.gauge-jobs");
    wait::until("its return", MINUTE, || sent().last("reading.gauge-unproved") == Some(0)).unwrap();
    // The round that was under way when it went may still have been whole.
    assert!(published <= zeros + 2, "{zeros} slots, then {published}");
    let lines = daemon.lines().split_off(begun);
    let said = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(
        (said("slurmdbd returns no job"), said("slurmdbd returns jobs again")),
        (1, 1),
        "{lines:#?}"
    );
    assert_eq!(total(), Some(all));
    daemon.stop().unwrap();
}

/// slurmdbd refuses a question of an ordinary user that is wider than MaxQueryTimeRange: the row
/// after a time without jobs may be too far away, and that before it near.
#[test]
fn an_ordinary_user_sees_from_the_row_before_it_that_a_time_had_no_jobs() {
    if !is_root() {
        return;
    }
    let folder = Folder::new().unwrap();
    let accounting = Accounting::start_with(&folder, "", "\nMaxQueryTimeRange=1-0").unwrap();
    jobs::run(&accounting, 2);
    let ago = |hours: u32| -> i64 {
        format!("{:.0}", now() - f64::from(hours) * 3600.0).parse().unwrap()
    };
    let (first, last) = (ago(30), ago(0));
    let update = |what: &str| {
        accounting.sql(&format!("update slurm_acct_db.sandbox_job_table set {what}")).unwrap()
    };
    let began =
        format!("time_submit = {first} - 9, time_eligible = {first} - 9, time_start = {first} - 9");
    update(&format!("{began}, time_end = {first} where `partition` <> '' order by id_job limit 1"));
    let (_, mail) = sandbox::accounting::USERS[1];
    let ask = |user, since: i64, known: &[i64]| {
        let request = format!(
            "{{\"finished\":{{\"id\":1,\"since\":{since},\"until\":{},\"known\":{known:?}}}}}\n",
            since + 3600
        );
        let (finished, visibility) = jobs::ask(&folder, &accounting, user, &request).unwrap();
        assert!(finished.jobs.is_empty(), "{finished:?}");
        let hides = visibility.may_hide("jobs");
        (hides, finished.unproved, finished.empty_since.map(|since| since - first))
    };
    // slurmdbd 26.05 tells nobody its PrivateData, so that an ordinary user's answer is not used,
    // and nothing else is asked.
    if accounting.slurm.release().unwrap().get(..5).unwrap() >= "26.05" {
        assert_eq!(
            ask(Some(mail), ago(28), &[last]),
            (true, false, None),
            "what may be hidden is not asked for"
        );
        assert_eq!(ask(None, ago(28), &[last]), (false, false, None), "an operator sees all");
        println!("NOT HERE: from 26.05 on an ordinary user counts no finished jobs");
        return;
    }
    for (user, hours, known, expected, what) in [
        (Some(mail), 10, &[last][..], (false, false, None), "the row after it is near"),
        (Some(mail), 28, &[last], (false, true, None), "it is too far away"),
        (
            Some(mail),
            28,
            &[last, first],
            (false, false, Some(1)),
            "nothing since the row before it",
        ),
        (Some(mail), 10, &[first], (false, false, Some(1)), "an hour more with each question"),
        (None, 28, &[last], (false, false, None), "an operator may ask for more"),
    ] {
        assert_eq!(ask(user, ago(hours), known), expected, "{what}");
    }
    accounting.slurm.submit(&["--wrap", "sleep 300"]).unwrap();
    jobs::until_rows(&accounting, "state = 1", 1);
    // slurmctld may report the start once more.
    wait::until("a job that ran then is enough", MINUTE, || {
        update(&format!("time_start = {first} where state = 1"));
        ask(Some(mail), ago(20), &[]) == (false, false, None)
    })
    .unwrap();
}
