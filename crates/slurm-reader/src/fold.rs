//! The fold over jobs: one tally for each name and state that occurs.
//!
//! Pure, except for libslurm's names. A job costs a few lookups, and no allocation, except for a
//! QOS with capitals or several of them. Only the tables grow with the names, those of invented
//! ones up to a bound, and the waits by 24 bytes for a pending record and as much again for each of
//! its partitions.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use slurm_snapshot::{
    Expected, Expecting, JobStates, JobTallies, JobTally, Jobs, NamedJobs, NamedRows,
    PartitionJobs, PublishedJobs, Release, ReplyOptions, UserJobs, Waiting, add_to, name, one_more,
};

use crate::job::Job;
use crate::waits::Waits;
use crate::{slurm_names, version};

/// Most rows of accounts or QOS by name, because anybody can invent names. For a job that has
/// started it is twice as many.
const MOST_ROWS: usize = 10_000;

/// Tallies by the number of a state or reason.
type NumberTallies = BTreeMap<u32, JobTally>;

/// The counts of the jobs that were added so far.
#[derive(Debug, Default)]
pub(crate) struct JobsFold {
    now: i64,
    /// Latest moment at which slurmctld may have written the reply, Unix seconds. For an expected
    /// start that has passed it sends the moment of writing instead.
    written_by: i64,
    /// Moment from which on a start is counted, itself included, Unix seconds; `None`: starts are
    /// not counted.
    since: Option<i64>,
    options: ReplyOptions,
    records: u64,
    unparsed: u64,
    all: PartitionRow,
    partitions: RowsByName<PartitionRow>,
    accounts: NamedTable,
    qos: NamedTable,
    users: BTreeMap<u32, NamedRow>,
}

/// The jobs of one account, QOS or user.
#[derive(Debug, Default)]
struct NamedRow {
    states: NumberTallies,
    has_started: bool,
}

/// The jobs by account, or by QOS.
#[derive(Debug, Default)]
struct NamedTable {
    rows: RowsByName<NamedRow>,
    /// Names that have rows in any case; `None`: a job with several names counts under each of
    /// them.
    kept: Option<BTreeSet<String>>,
    /// Jobs that have a name without a row.
    rest: NumberTallies,
}

/// The jobs of one partition, or of all, and their waiting times.
#[derive(Debug, Default)]
struct PartitionRow {
    states: NumberTallies,
    reasons: NumberTallies,
    submitted: Waits,
    eligible: Waits,
    started: Waits,
    expected: Expected,
    /// The times from now to the planned starts of jobs.
    starts: Waits,
}

impl JobsFold {
    /// Makes a fold to which no job has been added yet. `now` is the reply's `last_update`,
    /// `written_by` the latest moment at which slurmctld may have written it; jobs that started at
    /// `since` or later count as started, none if it is `None`.
    pub(crate) fn new(
        now: i64,
        written_by: i64,
        since: Option<i64>,
        options: ReplyOptions,
        kept: Option<PublishedJobs>,
    ) -> Self {
        let (accounts, qos) = kept.map(|kept| (kept.accounts, kept.qos)).unzip();
        let [accounts, qos] =
            [accounts, qos].map(|kept| NamedTable { kept, ..NamedTable::default() });
        Self { now, written_by, since, options, accounts, qos, ..Self::default() }
    }

    pub(crate) fn add(&mut self, job: &Job<'_>) {
        one_more(&mut self.records);
        add_to(&mut self.unparsed, job.unparsed);
        let is_waiting = slurm_names::is_waiting(job.state);
        let tally = JobTally { oldest: job.submit_time.filter(|_| is_waiting), ..job.tally };
        let now = self.now;
        let started = self.started(job);
        let expects = self.expects(job);
        self.all.add(job, tally, now, started, expects);
        for name in names(job.partition) {
            self.partitions.row(name).add(job, tally, now, started, expects);
        }
        if self.options.accounts {
            self.accounts.add(job.account, job, tally);
        }
        if self.options.qos {
            // slurmctld compares them without regard to case.
            let lower =
                job.qos.iter().any(u8::is_ascii_uppercase).then(|| job.qos.to_ascii_lowercase());
            self.qos.add_list(lower.as_deref().unwrap_or(job.qos), job, tally);
        }
        if self.options.users {
            self.users.entry(job.user).or_default().add(job, tally);
        }
    }

    /// Whether the job has started since the last reply. A pending job has a start time too, the
    /// expected one. A job that was cancelled before its start has its end time as start. While a
    /// job's nodes boot, its start is that of the allocation, which slurmctld replaces when they
    /// are up.
    fn started(&self, job: &Job<'_>) -> bool {
        let is_booting = job.state & slurm_names::JOB_POWER_UP_NODE != 0;
        let is_new = |since| since <= job.start_time && job.start_time < self.now;
        job.has_started() && !is_booting && self.since.is_some_and(is_new)
    }

    /// Returns which kind of start slurmctld expects of a pending job. Without a plan it sends the
    /// earliest start that the user has set, which is the eligible time then, or nothing. A job
    /// that waits for a burst buffer gets the latest start of any job.
    fn expects(&self, job: &Job<'_>) -> Expects {
        let has_no_plan = job.held
            || job.start_time <= 0
            || job.start_time == job.eligible_time
            || slurm_names::waits_for_burst_buffer(job.reason);
        if has_no_plan {
            Expects::Unplanned
        } else if job.start_time <= self.written_by.saturating_add(1) {
            Expects::Overdue
        } else {
            Expects::Planned
        }
    }

    pub(crate) fn finish(self) -> Jobs {
        let now = self.now;
        let since = self.since;
        let mut jobs = Jobs {
            last_update: now,
            records: self.records,
            partitions: by_name(self.partitions, |row| row.finish(now, since)),
            accounts: self.accounts.finish(),
            qos: self.qos.finish(),
            unparsed: self.unparsed,
            ..Jobs::default()
        };
        let users = self.users.into_iter().map(|(id, NamedRow { states, has_started })| UserJobs {
            id,
            name: None,
            looking_up: false,
            states: by_state(&states),
            has_started,
        });
        jobs.users = users.collect();
        let PartitionJobs { states, pending_reasons, waiting, started, expected } =
            self.all.finish(now, since);
        Jobs { states, pending_reasons, waiting, started, expected, ..jobs }
    }
}

impl NamedRow {
    fn add(&mut self, job: &Job<'_>, tally: JobTally) {
        self.states.entry(job.state).or_default().add(tally);
        self.has_started |= job.has_started();
    }

    fn finish(self) -> NamedJobs {
        NamedJobs { states: by_state(&self.states), has_started: self.has_started }
    }
}

impl NamedTable {
    /// Counts a job under its only name, or in the rest if that has no row and there is no room for
    /// one.
    fn add(&mut self, name: &[u8], job: &Job<'_>, tally: JobTally) {
        let has_row =
            name.is_empty() || self.has_room(job) || self.rows.has(name) || self.is_kept(name);
        let row = has_row.then(|| self.rows.row(name));
        match row {
            Some(row) => row.add(job, tally),
            None => self.rest.entry(job.state).or_default().add(tally),
        }
    }

    /// Counts a job under each name of a list that a user may have written. For all names that have
    /// no row, it counts once in the rest.
    fn add_list(&mut self, list: &[u8], job: &Job<'_>, tally: JobTally) {
        if !list.contains(&b',') {
            return self.add(list, job, tally);
        }
        let names: BTreeSet<&[u8]> =
            list.split(|&byte| byte == b',').filter(|name| !name.is_empty()).collect();
        if names.len() < 2 {
            return self.add(names.first().copied().unwrap_or_default(), job, tally);
        }
        let mut has_others = false;
        for name in names {
            let is_any = self.kept.is_none() && (self.has_room(job) || self.rows.has(name));
            if is_any || self.is_kept(name) {
                self.rows.row(name).add(job, tally);
            } else {
                has_others = true;
            }
        }
        if has_others {
            self.rest.entry(job.state).or_default().add(tally);
        }
    }

    fn has_room(&self, job: &Job<'_>) -> bool {
        self.rows.rows.len() < if job.has_started() { 2 * MOST_ROWS } else { MOST_ROWS }
    }

    fn is_kept(&self, bytes: &[u8]) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.contains(&*name(bytes)))
    }

    fn finish(self) -> NamedRows {
        NamedRows { names: by_name(self.rows, NamedRow::finish), rest: by_state(&self.rest) }
    }
}

/// Whether the start time of an array's record is that of its next task: from 23.02 on. Up to 22.05
/// it is that of the last task that backfill has planned, up to bf_max_job_array_resv tasks later.
fn sends_next_start() -> bool {
    version::built_for() >= Release::new(23, 2)
}

/// The kinds of starts that slurmctld expects of a pending job.
#[derive(Clone, Copy, Debug)]
enum Expects {
    Planned,
    Overdue,
    Unplanned,
}

impl PartitionRow {
    fn add(&mut self, job: &Job<'_>, tally: JobTally, now: i64, started: bool, expects: Expects) {
        let jobs = tally.jobs;
        self.states.entry(job.state).or_default().add(tally);
        if slurm_names::is_waiting(job.state) {
            self.reasons.entry(job.reason).or_default().add(tally);
            let Expecting { records, jobs: tasks } = match expects {
                Expects::Planned => &mut self.expected.planned,
                Expects::Overdue => &mut self.expected.overdue,
                Expects::Unplanned => &mut self.expected.unplanned,
            };
            one_more(records);
            add_to(tasks, jobs);
            if matches!(expects, Expects::Planned) && (jobs == 1 || sends_next_start()) {
                self.starts.add(now, job.start_time, 1);
            }
            if let Some(submitted) = job.submit_time {
                self.submitted.add(submitted, now, jobs);
            }
            if !job.held && (1..=now).contains(&job.eligible_time) {
                self.eligible.add(job.eligible_time, now, jobs);
            }
        }
        if started {
            let eligible = Some(job.eligible_time).filter(|eligible| *eligible > 0);
            // Otherwise it has not waited for as long as anybody knows.
            let since = eligible.or(job.submit_time).unwrap_or(job.start_time);
            self.started.add(since, job.start_time, jobs);
        }
    }

    fn finish(self, now: i64, since: Option<i64>) -> PartitionJobs {
        PartitionJobs {
            states: by_state(&self.states),
            pending_reasons: by_word(&self.reasons, |reason| Some(slurm_names::reason(reason))),
            waiting: Waiting {
                submitted: self.submitted.moments(now),
                eligible: self.eligible.moments(now),
            },
            started: since.map(|_| self.started.started()),
            expected: Expected { starts: self.starts.starts(now), ..self.expected },
        }
    }
}

/// Rows by the bytes of a name. Neighbours in a reply often have the same name, so the last row is
/// tried first.
#[derive(Debug, Default)]
struct RowsByName<T> {
    indexes: HashMap<Box<[u8]>, usize>,
    rows: Vec<(Box<[u8]>, T)>,
    last: usize,
}

impl<T: Default> RowsByName<T> {
    fn has(&self, name: &[u8]) -> bool {
        self.indexes.contains_key(name)
    }

    fn row(&mut self, name: &[u8]) -> &mut T {
        // With no bytes and an invalid address, glibc's memcmp takes longer than all the rest of a
        // job.
        let is = |last: &[u8]| last.len() == name.len() && (name.is_empty() || last == name);
        if self.rows.get(self.last).is_none_or(|(last, _)| !is(last)) {
            self.last = self.indexes.get(name).copied().unwrap_or_else(|| {
                self.indexes.insert(name.into(), self.rows.len());
                self.rows.push((name.into(), T::default()));
                self.rows.len().saturating_sub(1)
            });
        }
        #[expect(clippy::indexing_slicing, reason = "the index of a row that is never removed")]
        &mut self.rows[self.last].1
    }
}

/// Returns the names in a list that a user may have written: each once, without empty ones; one
/// empty name if there is no other.
fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = || list.split(|&byte| byte == b',').filter(|name| !name.is_empty());
    let is_first =
        move |(index, name): &(usize, &[u8])| !all().take(*index).any(|before| before == *name);
    let none = all().next().is_none().then_some(&b""[..]);
    all().enumerate().filter(is_first).map(|(_, name)| name).chain(none)
}

fn by_state(numbers: &NumberTallies) -> JobStates {
    JobStates {
        shown: by_word(numbers, |state| Some(slurm_names::job_state(state))),
        unfinished: by_word(numbers, |state| slurm_names::unfinished(state).map(str::to_owned)),
    }
}

/// Adds up tallies by the word for their number; several numbers may have one word. Numbers without
/// a word are left out.
fn by_word(numbers: &NumberTallies, word: fn(u32) -> Option<String>) -> JobTallies {
    let mut words = JobTallies::new();
    for (word, tally) in numbers.iter().filter_map(|(number, tally)| Some((word(*number)?, tally)))
    {
        words.entry(word).or_default().add(*tally);
    }
    words
}

fn by_name<T, U>(table: RowsByName<T>, finish: impl Fn(T) -> U) -> BTreeMap<String, U> {
    table.rows.into_iter().map(|(bytes, row)| (name(&bytes).into_owned(), finish(row))).collect()
}
