//! slurmctld's queue for slurmdbd is not empty now and then, or never: slurmdbd is asked for no
//! more than while it is empty, and every job counts.
//!
//! slurmdbd and the kernel say what that costs; what is expected was inserted and submitted here.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sandbox::{Accounting, Folder, Manner, Process, Sink, now, proc, wait};

use super::unproved::{insert, three_days_ago};
use super::{MINUTE, Sent, Stage, jobs, toml};

/// Jobs that ended in the last 25 hours.
const ROWS: u64 = 100_000;
const SPAN: u64 = 25 * 3600;

/// Seconds between two rounds, and how many of them are compared: the kernel counts CPU time in
/// hundredths of a second, of which a round takes two.
const EVERY: u64 = 10;
const ROUNDS: u64 = 24;

const JOBS: &str = "total.work.gauge-jobs_total";

/// What some rounds have cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Of finished jobs, to slurmdbd.
    requests: u64,
    /// CPU time of slurmdbd and of MariaDB, in hundredths of a second.
    cpu: [u64; 2],
    /// Ticks, and those at which the queue was not empty.
    looks: usize,
    waiting: usize,
}

/// How many messages waited for slurmdbd at each tick that was sent.
fn queue_sizes(sink: &Sink) -> Vec<u64> {
    let text = String::from_utf8_lossy(&sink.bytes()).into_owned();
    let figure = |line: &str| {
        let rest = line.split_once(".gauge-dbd_agent_queue_size ")?.1;
        rest.split(['.', ' ']).next()?.parse().ok()
    };
    text.lines().filter_map(figure).collect()
}

/// slurmdbd's own count of the requests for jobs.
fn requests(accounting: &Accounting) -> Result<u64> {
    let text = accounting.slurm.call("sacctmgr show stats")?;
    let Some(line) = text.lines().find(|line| line.contains("DBD_GET_JOBS_COND")) else {
        return Ok(0);
    };
    let count = line.split_once("count:").context("a count")?.1;
    Ok(count.split_whitespace().next().context("a count")?.parse()?)
}

fn cpu(accounting: &mut Accounting) -> Result<[u64; 2]> {
    let ticks = |process: &mut Process| process.pid().and_then(proc::cpu_ticks).context("no CPU");
    Ok([ticks(&mut accounting.slurmdbd)?, ticks(&mut accounting.mariadbd)?])
}

/// Submits a job half-way between two rounds and cancels it, [`ROUNDS`] times. If `is_busy`,
/// slurmdbd is frozen meanwhile, until a tick has seen that records wait.
fn measure(accounting: &mut Accounting, sink: &Sink, is_busy: bool) -> Result<Cost> {
    let asked = requests(accounting)?;
    let used = cpu(accounting)?;
    let looked = queue_sizes(sink).len();
    for _ in 0..ROUNDS {
        let every = EVERY as f64;
        wait::pause(Duration::from_secs_f64((1.5 * every - now() % every) % every));
        if is_busy {
            accounting.slurmdbd.freeze()?;
        }
        let job = accounting.slurm.submit(&["-H", "--wrap", "true"])?;
        accounting.slurm.run("scancel", &[&job.to_string()])?;
        if is_busy {
            let seen = queue_sizes(sink).len();
            let waits = || queue_sizes(sink).iter().skip(seen).any(|size| *size > 0);
            let seen = wait::until("a tick with a queue", Duration::from_secs(4), waits);
            accounting.slurmdbd.thaw()?;
            // Without a daemon nothing is sent.
            ensure!(seen.is_ok() || looked == 0, "no tick has seen a queue: {seen:?}");
        }
        wait::pause(Duration::from_secs(2));
    }
    let sizes = queue_sizes(sink).split_off(looked);
    let [slurmdbd, mariadb] = cpu(accounting)?;
    Ok(Cost {
        requests: requests(accounting)? - asked,
        cpu: [slurmdbd - used[0], mariadb - used[1]],
        looks: sizes.len(),
        waiting: sizes.iter().filter(|size| **size > 0).count(),
    })
}

/// Each fall of the queue to 0 once made the next round read all of the last 25 hours.
#[test]
#[ignore = "takes fifteen minutes: make finished-long"]
fn a_queue_that_is_not_empty_in_every_tenth_look_costs_slurmdbd_no_more() -> Result<()> {
    let folder = Folder::new()?;
    let mut accounting = Accounting::start(&folder)?;
    jobs::run(&accounting, 3);
    insert(&accounting, ROWS, SPAN)?;
    three_days_ago(&folder)?;
    let sink = Sink::start(Manner::Record)?;
    let toml = toml(&folder, &accounting.slurm, &sink)
        .replace("interval = \"1s\"", &format!("interval = \"{EVERY}s\""));
    let mut daemon = sandbox::daemon::spawn_daemon(&folder, "daemon", &toml)?;
    let sent = || Sent::parse(&sink.bytes());
    let all = ROWS + 3;
    wait::until("all jobs", MINUTE * 5, || sent().is_ok_and(|sent| sent.last(JOBS) == Some(all)))?;
    let quiet = measure(&mut accounting, &sink, false)?;
    let busy = measure(&mut accounting, &sink, true)?;
    let cancelled = all + 2 * ROUNDS;
    wait::until("the cancelled jobs", MINUTE * 5, || {
        sent().is_ok_and(|sent| sent.last(JOBS) == Some(cancelled))
    })?;
    daemon.stop()?;
    // What the same jobs cost without the daemon.
    let alone = measure(&mut accounting, &Sink::start(Manner::Record)?, true)?;
    println!("quiet {quiet:?}\nbusy {busy:?}\nwithout the daemon {alone:?}");
    // Between two rounds there are ten ticks, and at the ends of this time some more.
    ensure!(busy.waiting as u64 >= ROUNDS && quiet.waiting * 50 <= quiet.looks);
    let requests = busy.requests as f64 / quiet.requests as f64;
    let own = |cost: Cost| {
        let cpu = cost.cpu.into_iter().zip(alone.cpu);
        cpu.map(|(cpu, alone)| cpu.saturating_sub(alone).max(1) as f64)
    };
    let times: Vec<f64> = own(busy).zip(own(quiet)).map(|(busy, quiet)| busy / quiet).collect();
    println!("{requests:.2} times the requests, {times:.2?} times the CPU");
    ensure!(requests <= 1.3 && times[0] <= 1.3, "slurmdbd: {requests:.2} and {times:.2?} times");
    Ok(())
}

/// The rest of an array waited until the queue was empty.
#[test]
#[ignore = "takes five minutes: make finished-long"]
fn a_cancelled_array_counts_while_the_queue_is_never_empty() -> Result<()> {
    let mut stage = Stage::start()?;
    let slurm = &stage.accounting.slurm;
    let array = slurm.submit(&["-H", "-p", "long", "--array=1-20", "--wrap", "true"])?;
    jobs::until_rows(&stage.accounting, "array_task_pending = 20", 1);
    // One record takes almost half a second from now on.
    stage.accounting.sql(
        "use slurm_acct_db; create trigger slow before update on sandbox_job_table for each row \
         do sleep(0.4)",
    )?;
    let mut cancelled = 0;
    let more = |cancelled: &mut u64| -> Result<()> {
        let job = slurm.submit(&["-H", "--wrap", "true"])?;
        *cancelled += 1;
        slurm.run("scancel", &[&job.to_string()]).map(drop)
    };
    for _ in 0..10 {
        more(&mut cancelled)?;
    }
    slurm.run("scancel", &[&array.to_string()])?;
    let looked = queue_sizes(&stage.sink).len();
    let begin = Instant::now();
    while stage.sent()?.last("partition.long.work.gauge-jobs_total") != Some(20) {
        let waited = begin.elapsed();
        ensure!(waited < MINUTE * 11, "the array is not counted after {waited:?}");
        more(&mut cancelled)?;
    }
    let took = begin.elapsed();
    let sizes = queue_sizes(&stage.sink).split_off(looked);
    stage.accounting.sql("use slurm_acct_db; drop trigger slow")?;
    let waiting = sizes.iter().filter(|size| **size > 0).count();
    println!(
        "{took:?}, {cancelled} other jobs, the queue was not empty in {waiting} of {} looks, and \
         had {:?} records at most",
        sizes.len(),
        sizes.iter().max()
    );
    // The first looks may come before the first records.
    ensure!(waiting + 5 >= sizes.len(), "the queue was empty in between: {sizes:?}");
    let all = cancelled + 20;
    let counted = || stage.sent().is_ok_and(|sent| sent.last(JOBS) == Some(all));
    wait::until("the other jobs", MINUTE * 10, counted)?;
    stage.two_more_rounds()?;
    let sent = stage.sent()?;
    ensure!(sent.last(JOBS) == Some(all) && sent.sum("total.work.gauge-jobs") == all);
    stage.daemon.stop()?;
    Ok(())
}
