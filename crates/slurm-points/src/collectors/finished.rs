//! `slurm_jobs_finished`: jobs that have ended, by final state, partition, account, QOS and user,
//! each counted once.
//!
//! The ledger (crate::finished) counts; this file always makes points of the whole ledger.

use carbon_wire::Batch;
use slurm_snapshot::{FINAL_STATES, ReplyKind};

use super::{Collector, Start};
use crate::derive::exact_f64;
use crate::finished::{Counts, Figures, Levels, Spread, Tally};
use crate::levels::Names::Closed;
use crate::levels::{DocumentedLevel, Level, LevelList, Name, Table};
use crate::metric::MetricTotals;
use crate::named_paths::{NamedPaths, Points};
use crate::settings::{Setting, Settings, Value};

const WINDOW: Setting = Setting {
    key: "window",
    default: Value::Seconds(3600),
    comment: "Each round reads the jobs that ended in this time, and counts those that were not \
        counted before.",
};
const CATCH_UP: Setting = Setting {
    key: "catch_up",
    default: Value::Seconds(86_400),
    comment: "\
How late slurmdbd may learn of a job's end: longer than slurmctld may ever wait for slurmdbd. The
numbers of jobs are kept in queue.dir for this time: 14 bytes a job, at most an eighth of
queue.max_bytes.",
};
const ACCOUNTS: Setting = Setting {
    key: "accounts",
    default: Value::Names(0),
    comment: "\
By account, QOS and user too: publish the first N with a job that started; all others share one
level. A name without such a job for 30 days makes room for another. 0 for none, at most 1000;
each takes 54 files, and 56 with efficiency.",
};
const QOS: Setting = Setting { key: "qos", default: Value::Names(0), comment: "" };
const USERS: Setting = Setting { key: "users", default: Value::Names(0), comment: "" };
const EFFICIENCY: Setting = Setting {
    key: "efficiency",
    default: Value::Flag(false),
    comment: "\
The CPU time that finished jobs have used too, from their steps: a query to slurmdbd's database
for each job, once. Needs slurmdbd and JobAcctGatherType. A job counts when its steps have ended
too, at the latest 10 minutes after it is first seen.",
};

pub(super) const COLLECTOR: Collector = Collector {
    name: "finished",
    comment: "\
Finished jobs by final state, each counted once: slurm_jobs_finished. Read from slurmdbd. Needs
queue.dir.",
    settings: &[WINDOW, CATCH_UP, ACCOUNTS, QOS, USERS, EFFICIENCY],
    levels: &[READINGS, LEVELS],
    replies: &[ReplyKind::Finished],
    start: Start::Finished,
};

levels! {
    READINGS:
    READING: Level<Table<Counts>, 0> = ("slurm_jobs_finished.reading", [], OF_READING,
        "Finished jobs, from slurmdbd: `[collectors.finished]`. Every job is counted once, in the \
         round in which it is first reported. A round that could not be read has no point; the \
         next one counts its jobs.");
    READING_UNPROVED: Level<Table<bool>, 0> = ("slurm_jobs_finished.reading", [], UNPROVED, "");
    READING_STEPS: Level<Table<Counts>, 0> = ("slurm_jobs_finished.reading", [], STEPS, "");
}

/// The tables of a round's finished jobs, and of their totals since the first start.
type Work = (
    (Table<Tally>, Table<Figures>),
    (MetricTotals<Tally>, (Table<Option<u64>>, MetricTotals<Option<u64>>)),
);

static STATES: Level<Table<(u64, u64)>, 2> =
    Level::in_list("slurm_jobs_finished.<level>.state.<state>", [Closed, Closed], STATE);
static WORK: Level<Work, 1> = Level::in_list(
    "slurm_jobs_finished.<level>.work",
    [Closed],
    ((SUMS, SPREADS), (MetricTotals(SUMS), (USED, MetricTotals(USED)))),
);

/// Declares the levels of the ledger, each with what the documentation says about its figures by
/// state, and about those of work.
macro_rules! levels_of_jobs {
    ($($level:literal: $by_state:literal, $work:literal;)+) => {
        const LEVELS_OF_JOBS: &[&str] = &[$($level),+];
        const LEVELS: LevelList = &[$(
            DocumentedLevel {
                below: concat!("slurm_jobs_finished.", $level, ".state.<state>"),
                about: $by_state,
                leaves: || STATES.leaves(),
            },
            DocumentedLevel {
                below: concat!("slurm_jobs_finished.", $level, ".work"),
                about: $work,
                leaves: || WORK.leaves(),
            },
        )+];
    };
}

levels_of_jobs! {
    "total":
        "By final state, in sacct's words in lower case. Each task that never started counts too, \
         and each run that ended by a requeue (`requeued`).",
        "How long they waited and ran, and what they had allocated. Of a job that was resized, the \
         time before is usually counted twice, as by `sacct -D`.";
    "partition.<partition>":
        "By partition; a job that never started, by the first that it asked for.", "By partition.";
    "no_partition": "Without a partition.", "Without a partition.";
    "account.<account>":
        "By account, if `accounts` is above 0.",
        "By account.";
    "other_accounts": "All other accounts.", "All other accounts.";
    "no_account": "Without an account.", "Without an account.";
    "qos.<qos>": "By QOS, if `qos` is above 0.", "By QOS.";
    "other_qos": "All other QOS.", "All other QOS.";
    "no_qos": "Without a QOS.", "Without a QOS.";
    "user.<user>":
        "By user, if `users` is above 0.",
        "By user.";
    "other_users": "All other users.", "All other users.";
    "no_user": "Without a user.", "Without a user.";
}

/// The settings of finished jobs.
pub struct FinishedSettings {
    /// Length of the time that each round reads again, seconds.
    pub window: u32,
    /// Seconds after its end within which a job may still be reported.
    pub catch_up: u32,
    /// Number of accounts, QOS and users that have levels of their own.
    pub levels: Levels,
    /// Whether the CPU time of the jobs' steps is read.
    pub efficiency: bool,
}

impl FinishedSettings {
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        let [accounts, qos, users] = [ACCOUNTS, QOS, USERS].map(|setting| settings.names(&setting));
        let [window, catch_up] = [WINDOW, CATCH_UP].map(|setting| settings.seconds(&setting));
        let efficiency = settings.flag(&EFFICIENCY);
        Self { window, catch_up, levels: Levels { accounts, qos, users }, efficiency }
    }
}

/// Makes the batch with all points of these counts.
pub fn batch(counts: &Counts, prefix: &str) -> Batch {
    let mut batch = Batch::new(counts.slot);
    let mut paths = NamedPaths::default();
    let mut points = Points::new(prefix, &mut batch, &mut paths);
    points.push(&READING, [], counts);
    points.push(&READING_UNPROVED, [], &counts.reading.unproved);
    points.push(&READING_STEPS, [], counts);
    // Counts of a level that an older version had are kept, and not published.
    let is_declared =
        |level: &str| LEVELS_OF_JOBS.iter().any(|declared| super::fits(declared, level));
    for (level, total) in counts.totals.iter().filter(|(level, _)| is_declared(level)) {
        let round = counts.round.get(level).copied().unwrap_or_default();
        let level = || Name::component(level);
        for (((_, state), round), total) in
            FINAL_STATES.iter().zip(round.sums.states).zip(total.states)
        {
            points.push(&STATES, [level(), Name::new(state)], &(round, total));
        }
        let used = |tally: &Tally| counts.efficiency.then_some(tally.cpu_used);
        let used = (&used(&round.sums), &used(total));
        points.push(&WORK, [level()], ((&round.sums, &round), (total, used)));
    }
    batch
}

/// The batch of a round that counts nothing, because slurmdbd's empty answer is not proved.
pub fn unproved_batch(slot: i64, prefix: &str) -> Batch {
    let mut batch = Batch::new(slot);
    Points::new(prefix, &mut batch, &mut NamedPaths::default()).push(&READING_UNPROVED, [], &true);
    batch
}

/// Returns the paths of these counts and of later ones at the same levels. Percentiles, which need
/// a job that had started, are included.
pub fn paths(counts: &Counts, prefix: &str) -> Vec<String> {
    let mut counts = counts.clone();
    for level in counts.totals.keys() {
        let spread = Some(Spread::default());
        counts
            .round
            .insert(level.clone(), Figures { waits: spread, runs: spread, ..Figures::default() });
    }
    batch(&counts, prefix).points().map(|point| point.path().to_owned()).collect()
}

metrics! {
    OF_READING: Counts =
        average("late_jobs", "count", |c| c.reading.late_jobs,
            "jobs of this round that ended before the previous round"),
        last("late_jobs_total", "count", |c| c.late_total, "late_jobs since the first start"),
        max("oldest_late_seconds", "s", |c| c.reading.oldest_late,
            "time since the first of those ended; 0 if there is none. Jobs more than `catch_up` \
             late are not counted"),
        average("window_jobs", "count", |c| c.reading.window_jobs,
            "rows of jobs that ended in the last `window`; no point if a part could not be read"),
        average("changed", "count", |c| c.reading.changed,
            "rows that changed after they were counted, and stay counted as they were, but for time \
             that they ran longer"),
        last(changed_total, "count", "changed since the first start"),
        average("unparsed", "count", |c| c.reading.unparsed,
            "texts that could not be parsed; above 0, array tasks or TRES are missing from the \
                other figures"),
        average("round_time", "µs", |c| c.reading.elapsed, "how long slurmdbd took for all answers \
            of the round");
    UNPROVED: bool =
        max("unproved", "0 or 1", |unproved| *unproved,
            "1 if slurmdbd returned no job of, or near, some time: its database failed, or the \
             cluster idles. Those jobs count later");
    STEPS: Counts =
        average("steps_unknown", "count", |c| c.efficiency.then_some(c.reading.steps_unknown),
            "with `efficiency`: jobs whose steps slurmdbd did not return, counted without CPU \
             time"),
        last("steps_unknown_total", "count", |c| c.efficiency.then_some(c.steps_unknown_total),
            "steps_unknown since the first start");
    STATE: (u64, u64) =
        average("jobs", "count", |(round, _)| *round, "jobs that this round has counted"),
        last("jobs_total", "count", |(_, total)| *total, "jobs since the first start");
    SUMS: Tally =
        average("jobs", "count", |t| t.jobs(), "jobs in all states"),
        average(cancelled_before_start, "count", "jobs cancelled before they started"),
        average(started, "count", "jobs that had started; all figures below are of these"),
        average("wait_seconds", "s", |t| t.wait,
            "total time they waited after becoming eligible, or after submission if they never did"),
        average("run_seconds", "s", |t| t.run,
            "total time they ran, without suspensions"),
        average("cpu_seconds", "s", |t| t.cpu, "CPUs allocated to them, multiplied by their run \
            time"),
        average("gpu_seconds", "s", |t| t.gpu,
            "the same for GPUs; 0 if AccountingStorageTRES lacks gres/gpu"),
        average("node_seconds", "s", |t| t.node,
            "the same for nodes; a shared node counts for each of its jobs"),
        average("billing_seconds", "s", |t| t.billing, "the same for the TRES billing"),
        average(limited, "count", "jobs with a time limit"),
        average("limit_seconds", "s", |t| t.limit, "sum of their time limits"),
        average("limit_used_seconds", "s", |t| t.limit_used, "how much of that they used"),
        average("limit_used_little", "count", |t| t.short,
            "jobs that ran for less than a tenth of their time limit; of a resized job the last \
                row counts");
}

metrics! {
    USED: Option<u64> =
        average("cpu_used_seconds", "s", |ms| exact_f64((*ms)?) / 1000.0,
            "with `efficiency`: CPU time of all their steps, sacct's TotalCPU; divided by \
             cpu_seconds it is their efficiency");
    SPREADS: Figures =
        average("wait_p50", "s", |f| f.waits?.p50,
            "median wait of this round's jobs; no point if none had started"),
        average("wait_p90", "s", |f| f.waits?.p90, "90th percentile of the same"),
        average("wait_p99", "s", |f| f.waits?.p99, "99th percentile of the same"),
        max("wait_max", "s", |f| f.waits?.max, "the longest wait"),
        average("run_p50", "s", |f| f.runs?.p50,
            "median run time of this round's jobs; of a resized job the last row counts"),
        average("run_p90", "s", |f| f.runs?.p90, "90th percentile of the same"),
        average("run_p99", "s", |f| f.runs?.p99, "99th percentile of the same"),
        max("run_max", "s", |f| f.runs?.max, "the longest run");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_as_many_files_as_the_settings_say() {
        let with_efficiency = FINAL_STATES.len() * STATE.len() + WORK.leaves().len();
        let files = with_efficiency - 2 * USED.len();
        let said = format!("takes {files} files, and {with_efficiency} with efficiency");
        assert!(ACCOUNTS.comment.contains(&said), "{said}");
    }

    #[test]
    fn what_is_counted_before_the_first_job_is_what_comes_with_it() {
        for (efficiency, files) in [(false, 8 + 54), (true, 10 + 56)] {
            let mut counts = Counts::default();
            counts.efficiency = efficiency;
            counts.totals.insert("total".to_owned(), Tally::default());
            assert_eq!(paths(&counts, "c").len(), files);
            let spread = Some(Spread::default());
            let sums = Tally { started: 1, cpu_used: 1500, ..Tally::default() };
            counts.round.insert("total".to_owned(), Figures { sums, waits: spread, runs: spread });
            let batch = batch(&counts, "c");
            let used = carbon_wire::lines(&batch)
                .contains("c.slurm_jobs_finished.total.work.gauge-cpu_used_seconds 1.5 0");
            assert_eq!((batch.points().count(), used), (files, efficiency));
        }
    }

    #[test]
    fn every_level_is_published_in_every_round_also_one_in_which_nothing_ended() {
        let tally =
            Tally { states: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], started: 5, ..Tally::default() };
        let sums = Tally { states: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0], started: 1, ..Tally::default() };
        let figures =
            Figures { sums, waits: Some(Spread { p50: 1, p90: 2, p99: 3, max: 4 }), runs: None };
        let levels =
            ["total", "partition.debug", "no_partition", "user.ann", "other_users", "no_user"];
        let mut counts = Counts::default();
        counts.slot = 60;
        counts.totals = levels.map(|level| (level.to_owned(), tally)).into();
        counts.round = [("total".to_owned(), figures)].into();
        let batch = batch(&counts, "c");
        assert_eq!((batch.timestamp(), batch.refused()), (60, 0));
        let lines = carbon_wire::lines(&batch);
        for line in [
            "c.slurm_jobs_finished.total.state.completed.gauge-jobs 1 60",
            "c.slurm_jobs_finished.total.state.requeued.gauge-jobs_total 10 60",
            "c.slurm_jobs_finished.total.work.gauge-wait_p99 3 60",
            "c.slurm_jobs_finished.total.work.gauge-jobs_total 55 60",
            "c.slurm_jobs_finished.user.ann.state.failed.gauge-jobs 0 60",
            "c.slurm_jobs_finished.partition.debug.work.gauge-started_total 5 60",
            "c.slurm_jobs_finished.reading.gauge-late_jobs 0 60",
        ] {
            assert!(lines.lines().any(|other| other == line), "{line}: {lines}");
        }
        assert!(
            !lines.contains("run_p50") && !lines.contains("ann.work.gauge-wait_p50"),
            "no job, no percentile"
        );
        for point in batch.points() {
            let (level, _) = point.path().rsplit_once(".gauge-").unwrap();
            let level = level.strip_prefix("c.").unwrap();
            assert!(
                COLLECTOR.every_level().any(|declared| super::super::fits(declared.below, level)),
                "{level}"
            );
        }
    }
}
