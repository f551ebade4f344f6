//! `make bench-scale`, accounting: a million finished jobs in the database, and 10,000
//! associations. It measures what a round costs the servers and the reader, compared with a bare C
//! loop that makes the same call.
//!
//! Each contender has [`TURNS`] turns that alternate with those of the others; the median turn
//! counts.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sandbox::accounting::{ACCOUNTS, CLUSTER};
use sandbox::{Accounting, Folder, Reader, unix_seconds, wait};
use slurm_snapshot::{Reply, ReplyKind, ReplyOptions, Request};
use tools::contender::{TURNS, cpu, median};
use tools::{none_above, number, say};

use crate::cluster::{calls, floor};
use crate::reader::peak_kib;

const JOBS: u32 = 1_000_000;
const USERS: u32 = 10_000;
/// Their end times are spread over this many seconds.
const SPAN: u32 = 30 * 86_400;
const HOUR: i64 = 3600;
/// Requests in a turn.
const REQUESTS: usize = 5;

/// The targets.
const MOST_SERVERS: f64 = 30_000.0;
const MOST_READER: f64 = 5_000.0;
const MOST_PER_JOB: f64 = 2.0;
const MOST_MEMORY: f64 = 12e6;
const MOST_ASSOCIATIONS: f64 = 1.2;

pub(crate) fn bench() -> Result<()> {
    let jobs = number("SCALE_FINISHED", JOBS)?;
    let users = number("SCALE_USERS", USERS)?;
    let folder = Folder::new()?;
    let mut accounting = Accounting::start(&folder)?;
    let end = i64::try_from(unix_seconds())?;
    fill(&accounting, jobs, end)?;
    say(&format!("\n{jobs} finished jobs in 30 days\n\n"))?;
    explain(&accounting, end)?;
    let finished = finished(&folder, &mut accounting, end);
    let finished = finished.and_then(|()| catch_up(&accounting, end));
    let associations = associations(&folder, &mut accounting, users);
    finished.and(associations)
}

/// Inserts finished jobs of the sandbox's own user, backwards from `end`.
fn fill(accounting: &Accounting, jobs: u32, end: i64) -> Result<()> {
    let account = ACCOUNTS[0];
    let association = accounting.sql(&format!(
        "select id_assoc from slurm_acct_db.{CLUSTER}_assoc_table where acct = '{account}' and \
            user = '{}'",
        accounting.slurm.run("id", &["-un"])?.trim()
    ))?;
    let association = association.trim();
    let per_job = f64::from(SPAN) / f64::from(jobs);
    let mut first = 1;
    while first <= jobs {
        let last = jobs.min(first + 49_999);
        accounting.sql(&format!(
            "use slurm_acct_db; insert into {CLUSTER}_job_table (mod_time, account, cpus_req, \
             job_name, id_assoc, id_job, id_qos, id_resv, id_wckey, id_user, id_group, het_job_id, \
             het_job_offset, state_reason_prev, nodelist, nodes_alloc, `partition`, priority, \
             state, timelimit, time_submit, time_eligible, time_start, time_end, tres_alloc, \
             tres_req, work_dir) select {end}, '{account}', 1, 'bench', {association}, 1000000 + \
             seq, 1, 0, 0, 0, 0, 0, 4294967294, 0, 'c1', 1, 'debug', 1000, elt(1 + seq % 5, 3, 3, \
             3, 4, 5), 60, {end} - floor(seq * {per_job}) - 900, {end} - floor(seq * {per_job}) - \
             900, {end} - floor(seq * {per_job}) - 300, {end} - floor(seq * {per_job}), \
             '1=1,2=100,4=1,5=1,1001=1', '1=1,2=100,4=1,5=1', '/home/someone/work' from \
             seq_{first}_to_{last}"
        ))?;
        first = last + 1;
    }
    accounting.sql(&format!("analyze table slurm_acct_db.{CLUSTER}_job_table")).map(drop)
}

fn request(since: i64, until: i64) -> Request {
    let request = Request::new(ReplyKind::Finished, ReplyOptions::default());
    Request { since: Some(since), until: Some(until), ..request }
}

/// Number of jobs that the reader returns.
fn ask(reader: &mut Reader, since: i64, until: i64) -> Result<usize> {
    match reader.reading(&request(since, until))?.reply {
        Some(Reply::Finished(finished)) => Ok(finished.jobs.len()),
        other => bail!("no finished jobs: {other:?}"),
    }
}

/// MariaDB uses an index for the reader's query.
fn explain(accounting: &Accounting, end: i64) -> Result<()> {
    accounting.sql("set global log_output = 'TABLE'; set global general_log = 1")?;
    let mut reader = Reader::start_for(&accounting.slurm)?;
    ask(&mut reader, end - HOUR, end)?;
    accounting.sql("set global general_log = 0")?;
    let query = accounting.sql(&format!(
        "select replace(argument, '\\n', ' ') from mysql.general_log where argument like \
         'select%{CLUSTER}_job_table%time_end%' order by event_time desc limit 1"
    ))?;
    ensure!(!query.trim().is_empty(), "slurmdbd's question is not in MariaDB's log");
    let rows = accounting.sql(&format!(
        "use slurm_acct_db; set sql_mode = 'ANSI_QUOTES'; explain {}",
        query.trim()
    ))?;
    let row = rows.lines().find(|row| row.contains("t1")).context("no t1 in EXPLAIN")?;
    // id, select_type, table, type, possible_keys, key, key_len, ref, rows, Extra.
    let columns: Vec<&str> = row.split('\t').collect();
    let [_, _, _, kind, _, key, ..] = columns[..] else { bail!("EXPLAIN: {row}") };
    let index = accounting.sql(&format!(
        "select group_concat(column_name order by seq_in_index) from information_schema.statistics \
         where table_name = '{CLUSTER}_job_table' and index_name = '{key}'"
    ))?;
    ensure!(kind == "range" && index.starts_with("time_end"), "EXPLAIN: {row}");
    Ok(())
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The cost of a request in µs, as the mean of some: CPU of slurmdbd, of MariaDB and of the reader,
/// and the time until the answer.
fn turn(
    accounting: &mut Accounting,
    reader: &mut Reader,
    since: i64,
    until: i64,
) -> Result<[f64; 4]> {
    let servers = [accounting.slurmdbd.pid(), accounting.mariadbd.pid()];
    let [Some(slurmdbd), Some(mariadbd)] = servers else { bail!("a server has ended") };
    let own = reader.pid();
    let all = || anyhow::Ok([cpu(slurmdbd)?, cpu(mariadbd)?, cpu(own)?]);
    let (before, mut wall) = (all()?, Duration::ZERO);
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        ask(reader, since, until)?;
        wall += begun.elapsed();
        wait::pause(Duration::from_millis(200));
    }
    let after = all()?;
    let spent = [after[0] - before[0], after[1] - before[1], after[2] - before[2], wall];
    Ok(spent.map(|time| microseconds(time) / REQUESTS as f64))
}

/// A round of `window = "1h"`.
fn finished(folder: &Folder, accounting: &mut Accounting, end: i64) -> Result<()> {
    let (since, until) = (end - HOUR, end + 300);
    let mut reader = Reader::start_for(&accounting.slurm)?;
    let jobs = ask(&mut reader, since, until)?;
    let words = ["jobs", &REQUESTS.to_string(), CLUSTER, &since.to_string(), &until.to_string()];
    let (mut rounds, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        rounds.push(turn(accounting, &mut reader, since, until)?);
        floors.push(floor(folder, &accounting.slurm, &words)?);
    }
    let median_of = |figure: fn(&[f64; 4]) -> f64| median(rounds.iter().map(figure));
    let [slurmdbd, mariadbd] =
        [median_of(|[slurmdbd, ..]| *slurmdbd), median_of(|[_, mariadbd, ..]| *mariadbd)];
    let [own, wall] = [median_of(|[_, _, own, _]| *own), median_of(|[.., wall]| *wall)];
    let bare = median(floors.iter().map(|floor| floor.cpu));
    let memory = peak_kib(&reader)? * 1024.0;
    say(&format!(
        "| a round of an hour, {jobs} jobs | CPU |\n|---|---|\n| slurmdbd | {:.1} ms |\n| MariaDB \
         | {:.1} ms |\n| slurm-graphite-reader | {:.1} ms |\n| a bare C loop: the same call, freed \
         | {:.1} ms |\n\nThe reader waits {:.0} ms for the answer, and has {:.1} MB at most.\n",
        slurmdbd / 1e3,
        mariadbd / 1e3,
        own / 1e3,
        bare / 1e3,
        wall / 1e3,
        memory / 1e6
    ))?;
    none_above([
        ("µs of the servers", slurmdbd + mariadbd, MOST_SERVERS),
        ("µs of the reader", own, MOST_READER + MOST_PER_JOB * jobs as f64),
        ("the reader's memory, bytes", memory, MOST_MEMORY),
    ])
}

/// A day in pieces of an hour, and as many jobs as are read at once.
fn catch_up(accounting: &Accounting, end: i64) -> Result<()> {
    let mut reader = Reader::start_for(&accounting.slurm)?;
    let mut until = end + 300;
    while until > end - 24 * HOUR {
        let since = until - HOUR;
        ask(&mut reader, since, until)?;
        until = since - 1;
    }
    let span = i64::from(SPAN / JOBS.div_ceil(4000));
    ask(&mut reader, end - span, end)?;
    none_above([("the reader's memory, bytes", peak_kib(&reader)? * 1024.0, MOST_MEMORY)])
}

/// Adds users to one account. sacctmgr would take minutes for them.
fn add_users(accounting: &mut Accounting, users: u32) -> Result<()> {
    let account = ACCOUNTS[0];
    accounting.sql(&format!(
        "use slurm_acct_db; insert into user_table (creation_time, name) select 1, concat('u', \
         seq) from seq_1_to_{users}; set @end = (select rgt from {CLUSTER}_assoc_table where acct \
         = '{account}' and user = ''); update {CLUSTER}_assoc_table set lft = lft + 2 * {users} \
         where lft > @end; update {CLUSTER}_assoc_table set rgt = rgt + 2 * {users} where rgt >= \
         @end; insert into {CLUSTER}_assoc_table (creation_time, is_def, user, acct, lft, rgt) \
         select 1, 1, concat('u', seq), '{account}', @end + 2 * seq - 2, @end + 2 * seq - 1 from \
         seq_1_to_{users}"
    ))?;
    accounting.slurm.slurmctld.stop()?;
    accounting.slurmdbd.stop()?;
    accounting.slurmdbd.start()?;
    accounting.slurm.slurmctld.start()
}

/// All associations: only those of accounts, as by default, and those of users too.
fn associations(folder: &Folder, accounting: &mut Accounting, users: u32) -> Result<()> {
    add_users(accounting, users)?;
    let slurm = &accounting.slurm;
    let mut reader = Reader::start_for(slurm)?;
    let options = |users| ReplyOptions { users, ..ReplyOptions::default() };
    let mut ask = |users| match reader
        .reading(&Request::new(ReplyKind::Associations, options(users)))?
        .reply
    {
        Some(Reply::Associations(all)) => Ok((all.records, cpu(reader.pid())?, peak_kib(&reader)?)),
        other => bail!("no associations: {other:?}"),
    };
    let records = ask(false)?.0;
    ensure!(records >= u64::from(users), "{records} associations");
    let rpcs = || calls(slurm, "REQUEST_ASSOC_MGR_INFO");
    let words = ["associations", &REQUESTS.to_string()];
    let (mut costs, mut floors, mut asked) = ([Vec::new(), Vec::new()], Vec::new(), 0.0);
    for _ in 0..TURNS {
        for (users, costs) in [false, true].into_iter().zip(&mut costs) {
            let (before, rpcs_before) = (ask(users)?.1, rpcs()?);
            let mut after = before;
            for _ in 0..REQUESTS {
                after = ask(users)?.1;
                wait::pause(Duration::from_millis(200));
            }
            costs.push(microseconds(after - before) / REQUESTS as f64);
            asked += rpcs()? - rpcs_before;
        }
        floors.push(floor(folder, slurm, &words)?);
    }
    let [accounts, with_users] = costs.map(|costs| median(costs.into_iter()));
    let floor = median(floors.iter().map(|floor| floor.cpu));
    let (peak, rpcs) = (ask(false)?.2, asked / (2 * TURNS * REQUESTS) as f64);
    let row = |name: &str, cost: f64| {
        format!("| {name} | {:.1} ms | {:.2} |\n", cost / 1e3, cost / floor)
    };
    let rows = [
        row("a bare C loop: the same call, freed", floor),
        row("slurm-graphite-reader: accounts and QOS", accounts),
        row("slurm-graphite-reader: users too", with_users),
    ];
    say(&format!(
        "| {records} associations | CPU | compared with the C loop |\n|---|---|---|\n{}\n{rpcs} \
            RPCs a round; the reader has {:.1} MB at most.\n",
        rows.concat(),
        peak * 1024.0 / 1e6
    ))?;
    ensure!((rpcs - 1.0).abs() < 1e-9, "{rpcs} RPCs a round, not 1");
    none_above([("CPU compared with the C loop", accounts / floor, MOST_ASSOCIATIONS)])
}
