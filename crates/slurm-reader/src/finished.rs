//! Turns slurmdbd's rows into finished jobs: tasks, times and TRES.
//!
//! Pure: a [`DbdJobRow`] borrows from the reply.

use std::collections::BTreeMap;

use slurm_snapshot::{FINAL_STATES, Finished, FinishedJob, NameNumbers, RESIZING, Used, array};

/// No time: `NO_VAL`. `INFINITE` is one more.
const NO_TIME: i64 = 0xffff_fffe;

/// Numbers of the TRES that every cluster has.
const CPU: u32 = 1;
const NODE: u32 = 4;
const BILLING: u32 = 5;
/// TRES that a site defines, such as GPUs, have numbers from here on.
const FIRST_OF_SITE: u32 = 1001;

/// From here on a number is not a count: `NO_VAL64` and `INFINITE64`.
const NO_COUNT: u64 = u64::MAX - 1;

/// `JOB_COMPLETE`, the first final state.
const COMPLETE: u64 = 3;

/// A row from slurmdbd.
#[derive(Debug, Default)]
pub(crate) struct DbdJobRow<'a> {
    pub(crate) id: u64,
    pub(crate) job: (u32, u32),
    pub(crate) end: i64,
    pub(crate) state: u32,
    pub(crate) submit: i64,
    pub(crate) eligible: i64,
    pub(crate) start: i64,
    pub(crate) elapsed: u32,
    /// In minutes.
    pub(crate) limit: Option<u32>,
    pub(crate) qos: u32,
    pub(crate) user_id: u32,
    pub(crate) tasks: &'a [u8],
    pub(crate) partition: &'a [u8],
    pub(crate) account: &'a [u8],
    pub(crate) user: &'a [u8],
    pub(crate) tres: &'a [u8],
    pub(crate) nodes: &'a [u8],
}

/// Whether a node list has nodes. slurmdbd itself writes `(unknown)` if it has none.
pub(crate) fn has_nodes(nodes: &[u8]) -> bool {
    !matches!(nodes, b"" | b"None assigned" | b"(unknown)" | b"(null)")
}

/// Whether a job has started: docs/decisions.md. A job of `-N0` completes without nodes.
pub(crate) fn has_started(start: i64, nodes: &[u8], state: u32) -> bool {
    is_moment(start) && (has_nodes(nodes) || u64::from(state) == COMPLETE)
}

/// A TRES of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuTres {
    /// GPUs of all types together.
    Gpus,
    /// GPUs of one type.
    Typed,
}

impl GpuTres {
    /// From a TRES's type and name.
    pub(crate) fn of(kind: &[u8], name: &[u8]) -> Option<Self> {
        match name {
            _ if kind != b"gres" => None,
            b"gpu" => Some(Self::Gpus),
            name => name.starts_with(b"gpu:").then_some(Self::Typed),
        }
    }
}

/// The fold over slurmdbd's rows.
#[derive(Debug, Default)]
pub(crate) struct FinishedFold {
    /// Whether to record which jobs have started.
    with_steps: bool,
    /// Only jobs that ended in this time are counted; both ends belong to it.
    time: [i64; 2],
    /// Whether any row came.
    has_rows: bool,
    /// The newest end before that time.
    before: Option<i64>,
    jobs: Vec<FinishedJob>,
    started: Vec<(u64, (u32, u32), i64)>,
    /// By the job's index: TRES of the site, whose meaning is requested afterwards.
    others: Vec<(usize, u32, u64)>,
    names: NameNumbers,
    unparsed: u64,
}

impl FinishedFold {
    pub(crate) fn new(with_steps: bool, time: [i64; 2]) -> Self {
        Self { with_steps, time, ..Self::default() }
    }

    pub(crate) const fn has_rows(&self) -> bool {
        self.has_rows
    }

    pub(crate) fn add(&mut self, row: &DbdJobRow<'_>) {
        self.has_rows = true;
        let [from, to] = self.time;
        let has_ended = row.state == RESIZING || FINAL_STATES.iter().any(|(state, _)| *state == row.state);
        if !has_ended || row.end < from || row.end > to {
            if has_ended && is_moment(row.end) && row.end < from {
                self.before = self.before.max(Some(row.end));
            }
            return;
        }
        let has_started = has_started(row.start, row.nodes, row.state);
        let tasks = match row.tasks {
            _ if has_started => 1,
            b"" => 1,
            tasks => array::count_tasks(tasks).unwrap_or_else(|| {
                self.unparsed = self.unparsed.saturating_add(1);
                1
            }),
        };
        let since = if is_moment(row.eligible) { row.eligible } else { row.submit };
        let wait = has_started.then(|| u64::try_from(row.start.saturating_sub(since)).unwrap_or(0));
        let partition = row.partition.split(|byte| *byte == b',').next().unwrap_or_default();
        let mut job = FinishedJob {
            id: row.id,
            end: row.end,
            submit: row.submit,
            state: row.state,
            tasks,
            wait,
            run: row.elapsed.into(),
            limit: row.limit.map(|minutes| u64::from(minutes).saturating_mul(60)),
            partition: self.name(partition),
            account: self.name(row.account),
            qos: row.qos,
            user: match row.user {
                b"" => self.names.number(&row.user_id.to_string()),
                user => self.name(user),
            },
            ..FinishedJob::default()
        };
        if has_started && self.with_steps {
            // One whose clock was set back ended before it started, and slurmdbd finds it only by its end.
            self.started.push((row.id, row.job, row.start.min(row.end)));
        }
        let place = self.jobs.len();
        for part in row.tres.split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
            match tres(part) {
                Some((CPU, count)) => job.cpus = count,
                Some((NODE, count)) => job.nodes = count,
                Some((BILLING, count)) => job.billing = count,
                Some((id, count)) if id >= FIRST_OF_SITE => self.others.push((place, id, count)),
                Some(_) => {}
                None => self.unparsed = self.unparsed.saturating_add(1),
            }
        }
        self.jobs.push(job);
    }

    fn name(&mut self, name: &[u8]) -> u32 {
        self.names.number(&String::from_utf8_lossy(name))
    }

    /// Whether any job had a QOS.
    pub(crate) fn has_qos(&self) -> bool {
        self.jobs.iter().any(|job| job.qos > 0)
    }

    /// Whether any job had a TRES of the site.
    pub(crate) fn has_other_tres(&self) -> bool {
        !self.others.is_empty()
    }

    /// The finished jobs. `gpus` says which TRES are GPUs, `qos` has the names of QOS.
    pub(crate) fn finish(mut self, gpus: &[(u32, GpuTres)], qos: &[(u32, String)]) -> Finished {
        let kinds: BTreeMap<u32, GpuTres> = gpus.iter().copied().collect();
        let mut typed: BTreeMap<usize, u64> = BTreeMap::new();
        for (place, id, count) in self.others {
            match (kinds.get(&id), self.jobs.get_mut(place)) {
                (Some(GpuTres::Gpus), Some(job)) => job.gpus = count,
                (Some(GpuTres::Typed), _) => {
                    let sum = typed.entry(place).or_default();
                    *sum = sum.saturating_add(count);
                }
                _ => {}
            }
        }
        // AccountingStorageTRES may name only types.
        for (place, count) in typed {
            if let Some(job) = self.jobs.get_mut(place).filter(|job| job.gpus == 0) {
                job.gpus = count;
            }
        }
        let names: BTreeMap<u32, &str> = qos.iter().map(|(id, name)| (*id, name.as_str())).collect();
        for job in &mut self.jobs {
            job.qos = self.names.number(names.get(&job.qos).copied().unwrap_or_default());
        }
        Finished {
            empty_since: self.before.filter(|_| self.jobs.is_empty()).map(|end| end.saturating_add(1)),
            jobs: self.jobs,
            names: self.names.into_names(),
            unparsed: self.unparsed,
            unproved: !self.has_rows,
            started: self.started,
            ..Finished::default()
        }
    }
}

/// What a job's steps have used, added up as sacct does it.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// In µs.
    cpu: u64,
    is_open: bool,
}

impl Steps {
    /// slurmdbd gives a step without an end the state and end time of its job. What the step used, including `usage`,
    /// comes only with its end. For a cancelled job that is after the job's end, because its tasks get SIGKILL up to
    /// KillWait later.
    pub(crate) fn add(&mut self, state: u64, [seconds, micros]: [u64; 2], usage: &[u8]) {
        self.is_open |= state < COMPLETE || usage.is_empty();
        if state >= COMPLETE {
            self.cpu = self.cpu.saturating_add(seconds.saturating_mul(1_000_000)).saturating_add(micros);
        }
    }

    pub(crate) const fn used(&self, id: u64) -> Used {
        Used { id, cpu: self.cpu / 1000, is_open: self.is_open }
    }
}

const fn is_moment(time: i64) -> bool {
    time > 0 && time < NO_TIME
}

/// `1=4`.
fn tres(part: &[u8]) -> Option<(u32, u64)> {
    let (id, count) = std::str::from_utf8(part).ok()?.split_once('=')?;
    let count: u64 = count.parse().ok()?;
    Some((id.parse().ok()?, if count >= NO_COUNT { 0 } else { count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["debug", "physics", "ann"];

    fn row() -> DbdJobRow<'static> {
        DbdJobRow {
            id: 1 << 63,
            submit: 1000,
            eligible: 1010,
            start: 1040,
            end: 1100,
            elapsed: 60,
            state: 3,
            limit: Some(2),
            qos: 7,
            tasks: b"",
            partition: b"debug",
            account: b"physics",
            user: b"ann",
            tres: b"1=2,3=18446744073709551614,4=1,5=9,1001=3,1002=3",
            nodes: b"n1",
            ..DbdJobRow::default()
        }
    }

    fn of(row: &DbdJobRow<'_>) -> (FinishedJob, Vec<String>, u64) {
        let mut fold = FinishedFold::new(false, [0, i64::MAX]);
        fold.add(row);
        let gpus = [(1001, GpuTres::Gpus), (1002, GpuTres::Typed), (1003, GpuTres::Typed)];
        let finished = fold.finish(&gpus, &[(7, "normal".to_owned())]);
        (finished.jobs[0], finished.names, finished.unparsed)
    }

    #[test]
    fn a_row_is_a_job() {
        let (job, names, unparsed) = of(&row());
        assert_eq!(names, [&NAMES[..], &["normal"]].concat());
        let expected = FinishedJob {
            id: 1 << 63,
            end: 1100,
            submit: 1000,
            state: 3,
            tasks: 1,
            wait: Some(30),
            run: 60,
            limit: Some(120),
            partition: 0,
            account: 1,
            qos: 3,
            user: 2,
            cpus: 2,
            gpus: 3,
            nodes: 1,
            billing: 9,
        };
        assert_eq!((job, unparsed), (expected, 0));
    }

    #[test]
    fn tasks_that_never_started_are_counted_and_one_that_did_is_one_whatever_its_text() {
        for (start, tasks, count) in
            [(0, &b"0x7FF"[..], 11), (NO_TIME, b"1-20%2", 20), (0, b"", 1), (1040, b"1-20", 1)]
        {
            let (job, _, unparsed) = of(&DbdJobRow { start, tasks, ..row() });
            assert_eq!((job.tasks, unparsed, job.wait.is_some()), (count, 0, start == 1040), "{tasks:?}");
        }
        // slurmctld 22.05 leaves a cancelled held array like this: its start is its end.
        let (job, ..) = of(&DbdJobRow {
            state: 4,
            start: 1100,
            tasks: b"0x7FE",
            tres: b"",
            nodes: b"",
            elapsed: 0,
            ..row()
        });
        assert_eq!((job.tasks, job.wait), (10, None));
        let (job, _, unparsed) = of(&DbdJobRow { start: 0, tasks: b"1,3,...", ..row() });
        assert_eq!((job.tasks, unparsed), (1, 1), "one at least, and it is said");
    }

    /// Each row is one that slurmdbd has written; whether it had started is what sacct prints of it.
    #[test]
    fn a_text_of_tres_or_a_moment_is_no_start() {
        const CANCELLED: u32 = 4;
        const MEMORY: &[u8] = b"3=18446744073709551614";
        const REST: &[u8] = b"1=1,3=18446744073709551614,5=1";
        let none = b"None assigned";
        for (what, state, start, nodes, tres, started) in [
            (
                "an array that was cancelled before slurmdbd knew it",
                CANCELLED,
                1100,
                &none[..],
                MEMORY,
                false,
            ),
            ("the rest of an array, after a restart of slurmctld", CANCELLED, 1100, none, REST, false),
            ("its deadline passed while it was pending", 10, 1100, none, b"4=1", false),
            ("slurmdbd has no node list", CANCELLED, 1100, b"(unknown)", REST, false),
            ("the record of the start was dropped", 3, 0, none, b"1=2,4=1", false),
            ("a runaway job that sacctmgr has repaired", 3, 0, b"n1", b"1=2,4=1", false),
            ("cancelled while it was pending, with a planned start", CANCELLED, NO_TIME, none, b"", false),
            ("-N0, for a burst buffer", 3, 1040, none, b"", true),
            ("cancelled while it ran", CANCELLED, 1040, b"n[1-2]", b"1=2,4=2", true),
            ("requeued while it ran", 1024, 1040, b"n1", b"1=2", true),
            ("a part before a resize", RESIZING, 1040, b"n[1-2]", b"1=2", true),
            ("its nodes did not boot", 9, 1040, b"cloud1", b"1=2", true),
        ] {
            let row = DbdJobRow { state, start, nodes, tres, tasks: b"0x7FE", ..row() };
            let (job, ..) = of(&row);
            assert_eq!((job.wait.is_some(), job.tasks), (started, if started { 1 } else { 10 }), "{what}");
        }
    }

    #[test]
    fn a_row_that_runs_or_ended_at_another_time_proves_the_answer_and_is_no_job() {
        for (what, state, end, jobs) in
            [("ended in it", 3, 1100, 1), ("runs", 1, 0, 0), ("ran", 3, 1201, 0), ("is known", 3, 999, 0)]
        {
            let mut fold = FinishedFold::new(true, [1000, 1200]);
            assert!(!fold.has_rows());
            fold.add(&DbdJobRow { state, end, ..row() });
            let finished = fold.finish(&[], &[]);
            assert_eq!(
                (finished.jobs.len(), finished.started.len(), finished.unproved),
                (jobs, jobs, false),
                "{what}"
            );
        }
        assert!(FinishedFold::new(true, [1000, 1200]).finish(&[], &[]).unproved);
    }

    #[test]
    fn a_row_before_the_time_shows_since_when_nothing_ended() {
        let empty_since = |rows: &[(u32, i64)]| {
            let mut fold = FinishedFold::new(true, [1000, 1200]);
            rows.iter().for_each(|&(state, end)| fold.add(&DbdJobRow { state, end, ..row() }));
            fold.finish(&[], &[]).empty_since
        };
        assert_eq!(empty_since(&[(3, 700), (5, 900), (4, 800)]), Some(901));
        for rows in [&[][..], &[(3, 900), (3, 1100)], &[(1, 0)], &[(3, 0)], &[(3, 1300)]] {
            assert_eq!(empty_since(rows), None, "{rows:?}");
        }
    }

    #[test]
    fn a_job_that_was_never_eligible_waited_since_it_was_submitted() {
        for eligible in [0, NO_TIME, NO_TIME + 1] {
            assert_eq!(of(&DbdJobRow { eligible, ..row() }).0.wait, Some(40));
        }
        assert_eq!(
            of(&DbdJobRow { eligible: 2000, ..row() }).0.wait,
            Some(0),
            "slurmctld's clock was set back"
        );
    }

    #[test]
    fn of_jobs_that_had_started_it_is_noted_how_to_ask_for_their_steps() {
        let mut fold = FinishedFold::new(true, [0, i64::MAX]);
        fold.add(&DbdJobRow { job: (9, 3), ..row() });
        fold.add(&DbdJobRow { job: (10, 0), start: 0, ..row() });
        // slurmdbd returns the steps of jobs that ended since the time in the request: this one never came.
        fold.add(&DbdJobRow { id: 2, job: (11, 0), end: 1030, ..row() });
        assert_eq!(fold.finish(&[], &[]).started, [(1 << 63, (9, 3), 1040), (2, (11, 0), 1030)]);
    }

    #[test]
    fn steps_are_summed_as_sacct_does_and_one_whose_use_is_not_known_is_said() {
        let of = |steps: &[(u64, [u64; 2], &[u8])]| {
            let mut sum = Steps::default();
            steps.iter().for_each(|(state, cpu, usage)| sum.add(*state, *cpu, usage));
            let Used { id, cpu, is_open } = sum.used(5);
            assert_eq!(id, 5);
            (cpu, is_open)
        };
        assert_eq!(of(&[]), (0, false), "a job without steps used nothing");
        assert_eq!(of(&[(3, [2, 600_400], b"1=2"), (5, [1, 900_700], b"1=1")]), (4501, false));
        assert_eq!(of(&[(4, [1, 0], b"1=2"), (4, [0, 0], b"")]), (1000, true), "its end is not told yet");
        assert_eq!(of(&[(1, [7, 0], b"1=2")]), (0, true), "it runs");
    }

    #[test]
    fn gpus_of_types_are_summed_where_nobody_counts_all() {
        assert_eq!(of(&DbdJobRow { tres: b"1002=2,1003=1", ..row() }).0.gpus, 3);
        assert_eq!(of(&DbdJobRow { tres: b"1002=2,1003=1,1001=4", ..row() }).0.gpus, 4);
        assert_eq!(of(&DbdJobRow { tres: b"1=x", ..row() }).2, 1);
    }

    #[test]
    fn of_several_partitions_the_first_counts_and_a_user_without_a_name_is_his_number() {
        let (_, names, _) = of(&DbdJobRow { partition: b"debug,long", user: b"", user_id: 1234, ..row() });
        assert_eq!(names, ["debug", "physics", "1234", "normal"]);
    }
}
