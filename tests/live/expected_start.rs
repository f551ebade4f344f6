//! When pending jobs will start, compared with what squeue shows of each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sandbox::{Folder, Reader, Slurm, wait};
use slurm_snapshot::{Expected, Expecting, Jobs, Reply, ReplyKind, ReplyOptions, Request, Starts};

/// Records of pending jobs.
const PENDING: usize = 200;

/// One record as squeue shows it: with `--start` it has no other start, and not these columns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    tasks: u64,
    partitions: Vec<String>,
    /// Unix seconds.
    start: Option<i64>,
    eligible: Option<i64>,
    held: bool,
}

fn rows(slurm: &Slurm) -> Result<Vec<Row>> {
    let columns = "jobarrayid:60,partition:60,starttime:60,eligibletime:60,prioritylong:60";
    let args = ["SLURM_TIME_FORMAT=%s", "squeue", "-a", "-h", "-t", "PD", "-O", columns];
    let text = slurm.run("env", &args)?;
    text.lines()
        .map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let [id, partitions, start, eligible, priority] = cells[..] else { anyhow::bail!("{line}") };
            Ok(Row {
                tasks: tasks(id).context("the tasks of an array")?,
                partitions: partitions.split(',').map(str::to_owned).collect(),
                start: start.parse().ok(),
                eligible: eligible.parse().ok(),
                held: priority == "0",
            })
        })
        .collect()
}

/// `7` is one job and `7_[1-10%2]` ten.
fn tasks(id: &str) -> Option<u64> {
    let Some((_, expression)) = id.split_once("_[") else { return Some(1) };
    let range = expression.trim_end_matches(']').split('%').next()?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
}

/// What these rows say at `now`.
fn expected<'a>(rows: impl Iterator<Item = &'a Row>, now: i64) -> Expected {
    let mut expected = Expected::default();
    let mut starts = Vec::new();
    for row in rows {
        let plan = row.start.filter(|start| !row.held && Some(*start) != row.eligible);
        let class = match plan {
            None => &mut expected.unplanned,
            Some(start) if start <= now + 1 => &mut expected.overdue,
            Some(start) => {
                starts.push(start);
                &mut expected.planned
            }
        };
        *class = Expecting { records: class.records + 1, jobs: class.jobs + row.tasks };
    }
    starts.sort_unstable();
    let rank = |percent: usize| starts.get((starts.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(rank);
    expected.starts =
        p50.zip(p90).zip(p99).zip(max).map(|(((p50, p90), p99), max)| Starts { p50, p90, p99, max });
    expected
}

fn ask(reader: &mut Reader, since: Option<i64>) -> Result<Reply> {
    let request = Request { since, ..Request::new(ReplyKind::Jobs, ReplyOptions::default()) };
    reader.reading(&request)?.reply.context("a reply")
}

fn jobs(reader: &mut Reader) -> Result<Jobs> {
    match ask(reader, None)? {
        Reply::Jobs(jobs) => Ok(*jobs),
        other => anyhow::bail!("{other:?}"),
    }
}

/// A cluster of one node, which one job holds for a quarter of an hour.
fn busy(folder: &Folder, more: &str) -> Result<Slurm> {
    let mut slurm = Slurm::new(folder)?;
    slurm.configure(more)?;
    slurm.start_all()?;
    let first = slurm.submit(&["--exclusive", "--time=15", "--wrap", "sleep 900"])?.to_string();
    wait::until("a job that holds the node", wait::LIMIT, || {
        slurm.run("squeue", &["-h", "-t", "R", "-j", &first]).is_ok_and(|running| !running.is_empty())
    })?;
    Ok(slurm)
}

/// 200 records: single jobs, arrays, jobs that wait in two partitions, held ones, ones that may not begin for hours, and
/// ones that wait for another job.
fn fill(slurm: &Slurm) -> Result<()> {
    let first = slurm.submit(&["-H", "--time=1", "--wrap", "true"])?;
    for number in 1..PENDING {
        let dependency = format!("--dependency=afterok:{first}");
        let array = format!("--array=1-{}", number % 7 + 1);
        let kind: &[&str] = match number % 10 {
            0 => &["-H"],
            1 => &["--begin=now+5hours"],
            2 => &[&dependency],
            3 | 4 => &[&array],
            5 => &["-p", "debug,other"],
            6 => &["-p", "other", "--exclusive"],
            _ => &[],
        };
        let time = format!("--time={}", number % 9 + 1);
        slurm.submit(&[kind, &[&time, "--wrap", "true"]].concat())?;
    }
    Ok(())
}

/// squeue's columns have what slurmctld sends: a user's `--begin` as a start too, and a plan that has passed as now.
#[test]
fn expected_starts_are_squeues_and_a_begin_that_a_user_chose_is_no_plan() {
    let folder = Folder::new().unwrap();
    let more = "PartitionName=other Nodes=localhost MaxTime=INFINITE State=UP\n";
    let slurm = busy(&folder, more).unwrap();
    fill(&slurm).unwrap();
    let mut reader = Reader::of(&slurm).unwrap();
    let end = Instant::now() + wait::LIMIT;
    let (rows, jobs) = loop {
        assert!(Instant::now() < end, "no reading between two equal lists of squeue");
        let before = rows(&slurm).unwrap();
        let jobs = jobs(&mut reader).unwrap();
        let plans = jobs.expected.planned.records;
        if before == rows(&slurm).unwrap() && plans > 100 {
            break (before, jobs);
        }
    };
    assert_eq!(rows.len(), PENDING);
    let begins = rows.iter().filter(|row| !row.held && row.start.is_some() && row.start == row.eligible);
    assert_eq!(begins.count(), 20, "slurmctld sends the begin of each as its start");
    let now = jobs.last_update;
    let total = expected(rows.iter(), now);
    assert_eq!(jobs.expected, total);
    assert!(total.unplanned.records >= 60 && total.planned.jobs > total.planned.records, "{total:?}");
    let mut partitions: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        row.partitions.iter().for_each(|name| partitions.entry(name).or_default().push(row));
    }
    assert_eq!(partitions.len(), 2);
    for (name, rows) in partitions {
        assert_eq!(jobs.partitions[name].expected, expected(rows.into_iter(), now), "{name}");
    }
}

/// For slurmctld, a plan is no change of a job: without any other change the first plan was never seen.
#[test]
fn a_plan_is_seen_although_slurmctld_calls_the_jobs_unchanged() {
    let folder = Folder::new().unwrap();
    let slurm = busy(&folder, "").unwrap();
    let mut reader = Reader::of(&slurm).unwrap();
    for _ in 0..5 {
        slurm.submit(&["--time=1", "--wrap", "true"]).unwrap();
        // The backfill scheduler has not seen the last job yet.
        let mut last = jobs(&mut reader).unwrap();
        let mut seen = last.expected;
        let end = Instant::now() + wait::LIMIT;
        while seen.unplanned.records > 0 {
            assert!(Instant::now() < end, "{last:?}");
            wait::pause(Duration::from_millis(300));
            if let Reply::Jobs(jobs) = ask(&mut reader, Some(last.last_update)).unwrap() {
                seen = jobs.expected;
                last = *jobs;
            }
        }
    }
    let rows = rows(&slurm).unwrap();
    assert!(rows.len() == 5 && rows.iter().all(|row| row.start.is_some()), "squeue: {rows:?}");
}
