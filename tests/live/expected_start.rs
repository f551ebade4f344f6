//! The expected starts of pending jobs, compared with those that squeue shows of each.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use sandbox::{Folder, Reader, Slurm, wait};
use slurm_snapshot::{Expected, Expecting, Jobs, Reply, ReplyKind, ReplyOptions, Request, Starts};

use crate::finished::tasks;

/// Records of pending jobs, after the first ones.
const PENDING: usize = 200;
const FIRST: usize = 5;

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
    let text = slurm.call(&format!("env SLURM_TIME_FORMAT=%s squeue -a -h -t PD -O {columns}"))?;
    text.lines()
        .map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let [id, partitions, start, eligible, priority] = cells[..] else {
                anyhow::bail!("{line}")
            };
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

/// The expected starts in these rows at `now`. Up to 22.05 an array's start is that of a later task
/// than the next.
fn expected<'a>(rows: impl Iterator<Item = &'a Row>, now: i64, release: &str) -> Expected {
    let mut expected = Expected::default();
    let mut starts = Vec::new();
    for row in rows {
        let plan = row.start.filter(|start| !row.held && Some(*start) != row.eligible);
        let class = match plan {
            None => &mut expected.unplanned,
            Some(start) if start <= now + 1 => &mut expected.overdue,
            Some(start) => {
                starts.extend((row.tasks == 1 || release >= "23.02").then_some(start));
                &mut expected.planned
            }
        };
        *class = Expecting { records: class.records + 1, jobs: class.jobs + row.tasks };
    }
    starts.sort_unstable();
    let rank = |percent: usize| {
        starts.get((starts.len() * percent).div_ceil(100).saturating_sub(1)).copied()
    };
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(rank);
    expected.starts = p50.zip(p90).zip(p99).zip(max).map(|(((p50, p90), p99), max)| Starts {
        p50,
        p90,
        p99,
        max,
    });
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
    let slurm = Slurm::start_with(folder, more)?;
    let first = slurm.submit(&["--exclusive", "--time=15", "--wrap", "sleep 900"])?;
    wait::until("a job that holds the node", wait::LIMIT, || {
        slurm.call(&format!("squeue -h -t R -j {first}")).is_ok_and(|running| !running.is_empty())
    })?;
    Ok(slurm)
}

/// 200 records: single jobs, arrays, jobs that wait in two partitions, held ones, ones that may not
/// begin for hours, and ones that wait for another job.
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

/// squeue's columns have what slurmctld sends: a user's `--begin` as a start too, and a plan that
/// has passed as now.
#[test]
fn expected_starts_are_squeues_also_of_jobs_called_unchanged_and_a_begin_that_a_user_chose_is_no_plan()
 {
    let folder = Folder::new().unwrap();
    let slurm =
        busy(&folder, "PartitionName=other Nodes=localhost MaxTime=INFINITE State=UP\n").unwrap();
    let mut reader = Reader::start_for(&slurm).unwrap();
    a_plan_is_seen_although_slurmctld_calls_the_jobs_unchanged(&slurm, &mut reader);
    fill(&slurm).unwrap();
    let (rows, jobs) =
        wait::until_some("a reading between two equal lists of squeue", wait::LIMIT, || {
            let (before, jobs, after) =
                (rows(&slurm).unwrap(), jobs(&mut reader).unwrap(), rows(&slurm).unwrap());
            (before == after && jobs.expected.planned.records > 100).then_some((before, jobs))
        })
        .unwrap();
    assert_eq!(rows.len(), FIRST + PENDING);
    let begins =
        rows.iter().filter(|row| !row.held && row.start.is_some() && row.start == row.eligible);
    assert_eq!(begins.count(), 20, "slurmctld sends the begin of each as its start");
    let (now, release) = (jobs.last_update, slurm.release().unwrap());
    let total = expected(rows.iter(), now, &release);
    assert_eq!(jobs.expected, total);
    assert!(
        total.unplanned.records >= 60 && total.planned.jobs > total.planned.records,
        "{total:?}"
    );
    let mut partitions: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        row.partitions.iter().for_each(|name| partitions.entry(name).or_default().push(row));
    }
    assert_eq!(partitions.len(), 2);
    for (name, rows) in partitions {
        assert_eq!(
            jobs.partitions[name].expected,
            expected(rows.into_iter(), now, &release),
            "{name}"
        );
    }
}

/// For slurmctld, a plan is no change of a job: without any other change the first plan was never
/// seen.
fn a_plan_is_seen_although_slurmctld_calls_the_jobs_unchanged(slurm: &Slurm, reader: &mut Reader) {
    for _ in 0..FIRST {
        slurm.submit(&["--time=1", "--wrap", "true"]).unwrap();
        // The backfill scheduler has not seen the last job yet.
        let mut last = jobs(reader).unwrap();
        let mut seen = last.expected;
        wait::until("a plan of each", wait::LIMIT, || {
            if let Reply::Jobs(jobs) = ask(reader, Some(last.last_update)).unwrap() {
                seen = jobs.expected;
                last = *jobs;
            }
            seen.unplanned.records == 0
        })
        .unwrap();
    }
    let rows = rows(slurm).unwrap();
    assert!(rows.len() == FIRST && rows.iter().all(|row| row.start.is_some()), "squeue: {rows:?}");
}
