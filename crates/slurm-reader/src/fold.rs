//! The fold over jobs: one tally for each name and state that occurs.
//!
//! Pure, except for libslurm's names. A job costs a few lookups and no allocation. Only the tables grow with the names,
//! and the times by 24 bytes per pending record.

#[cfg(test)]
#[path = "../tests/inside/fold.rs"]
mod tests;

use std::collections::{BTreeMap, HashMap};

use slurm_snapshot::{
    AccountJobs, Expected, Expecting, JobTallies, JobTally, Jobs, PartitionJobs, ReplyOptions, UserJobs,
    Waiting,
};

use crate::job::Job;
use crate::slurm_names;
use crate::waits::Waits;

/// Tallies by the index of the state's word.
type WordTallies = Vec<JobTally>;

/// What has been counted so far.
#[derive(Debug, Default)]
pub(crate) struct JobsFold {
    now: i64,
    /// The reply may have been written until then; an expected start that has passed was replaced by the moment of writing.
    written_by: i64,
    /// Jobs that started at this time or later count as started.
    since: Option<i64>,
    options: ReplyOptions,
    records: u64,
    unparsed: u64,
    states: States,
    all: PartitionRow,
    partitions: RowsByName<PartitionRow>,
    accounts: RowsByName<NamedRow>,
    qos: RowsByName<WordTallies>,
    users: HashMap<u32, NamedRow>,
}

/// The jobs of one account or user.
#[derive(Debug, Default)]
struct NamedRow {
    states: WordTallies,
    has_started: bool,
}

/// The jobs of one partition, or of all, and their waiting times.
#[derive(Debug, Default)]
struct PartitionRow {
    states: WordTallies,
    reasons: BTreeMap<u32, JobTally>,
    submitted: Waits,
    eligible: Waits,
    started: Waits,
    expected: Expected,
    /// From now to the planned starts.
    starts: Waits,
}

impl JobsFold {
    /// `now` is the reply's `last_update`; it was complete at `written_by`.
    pub(crate) fn new(now: i64, written_by: i64, since: Option<i64>, options: ReplyOptions) -> Self {
        Self { now, written_by, since, options, ..Self::default() }
    }

    pub(crate) fn add(&mut self, job: &Job<'_>) {
        self.records = self.records.saturating_add(1);
        self.unparsed = self.unparsed.saturating_add(job.unparsed);
        let is_waiting = slurm_names::is_waiting(job.state);
        let tally = JobTally { oldest: is_waiting.then_some(job.submit_time), ..job.tally };
        let word = self.states.add(job.state, tally);
        let (now, started, expects) = (self.now, self.started(job), self.expects(job));
        self.all.add(job, word, tally, now, started, expects);
        for name in job.partition.split(|&byte| byte == b',') {
            self.partitions.row(name).add(job, word, tally, now, started, expects);
        }
        if self.options.accounts {
            self.accounts.row(job.account).add(job, word, tally);
        }
        if self.options.qos {
            add(self.qos.row(job.qos), word, tally);
        }
        if self.options.users {
            self.users.entry(job.user).or_default().add(job, word, tally);
        }
    }

    /// A pending job has a start time too, the expected one. A job that was cancelled before its start has its end time
    /// as start. While a job's nodes boot, its start is that of the allocation, which slurmctld replaces when they are
    /// up.
    fn started(&self, job: &Job<'_>) -> bool {
        let is_booting = job.state & slurm_names::JOB_POWER_UP_NODE != 0;
        let is_new = |since| since <= job.start_time && job.start_time < self.now;
        job.has_started() && !is_booting && self.since.is_some_and(is_new)
    }

    /// What slurmctld expects of a pending job. Without a plan it sends the earliest start that the user has set, which is
    /// the eligible time then, or nothing. A job that waits for a burst buffer gets the latest start of any job.
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
        let (words, now, since) = (&self.states.words, self.now, self.since);
        let PartitionJobs { states, pending_reasons, waiting, started, expected } =
            self.all.finish(now, since, words);
        let users = self.users.into_iter().map(|(id, NamedRow { states, has_started })| {
            let states = tallies(&states, words);
            UserJobs { id, name: None, looking_up: false, states, has_started }
        });
        let mut jobs = Jobs {
            last_update: now,
            records: self.records,
            states,
            pending_reasons,
            waiting,
            started,
            expected,
            partitions: by_name(self.partitions, |row| row.finish(now, since, words)),
            accounts: by_name(self.accounts, |NamedRow { states, has_started }| AccountJobs {
                states: tallies(&states, words),
                has_started,
            }),
            qos: by_name(self.qos, |states| tallies(&states, words)),
            users: users.collect(),
            unparsed: self.unparsed,
            ..Jobs::default()
        };
        jobs.users.sort_unstable_by_key(|user| user.id);
        for (state, (_, tally)) in self.states.known {
            jobs.base_states.entry(slurm_names::job_base_state(state)).or_default().add(tally);
            for flag in slurm_names::job_flags(state) {
                jobs.flags.entry(flag).or_default().add(tally);
            }
        }
        jobs
    }
}

impl NamedRow {
    fn add(&mut self, job: &Job<'_>, word: usize, tally: JobTally) {
        add(&mut self.states, word, tally);
        self.has_started |= job.has_started();
    }
}

/// What slurmctld expects of a pending job.
#[derive(Clone, Copy, Debug)]
enum Expects {
    Planned,
    Overdue,
    Unplanned,
}

impl PartitionRow {
    fn add(
        &mut self,
        job: &Job<'_>,
        word: usize,
        tally: JobTally,
        now: i64,
        started: bool,
        expects: Expects,
    ) {
        let jobs = tally.jobs;
        add(&mut self.states, word, tally);
        if slurm_names::is_waiting(job.state) {
            self.reasons.entry(job.reason).or_default().add(tally);
            let Expecting { records, jobs: tasks } = match expects {
                Expects::Planned => &mut self.expected.planned,
                Expects::Overdue => &mut self.expected.overdue,
                Expects::Unplanned => &mut self.expected.unplanned,
            };
            (*records, *tasks) = (records.saturating_add(1), tasks.saturating_add(jobs));
            if matches!(expects, Expects::Planned) {
                self.starts.add(now, job.start_time, 1);
            }
            self.submitted.add(job.submit_time, now, jobs);
            if !job.held && (1..=now).contains(&job.eligible_time) {
                self.eligible.add(job.eligible_time, now, jobs);
            }
        }
        if started {
            let since = if job.eligible_time > 0 { job.eligible_time } else { job.submit_time };
            self.started.add(since, job.start_time, jobs);
        }
    }

    fn finish(self, now: i64, since: Option<i64>, words: &[String]) -> PartitionJobs {
        PartitionJobs {
            states: tallies(&self.states, words),
            pending_reasons: by_reason(self.reasons),
            waiting: Waiting { submitted: self.submitted.moments(now), eligible: self.eligible.moments(now) },
            started: since.map(|_| self.started.started()),
            expected: Expected { starts: self.starts.starts(now), ..self.expected },
        }
    }
}

/// Jobs by the number of their state, for all cells in common.
#[derive(Debug, Default)]
struct States {
    /// For each number: the index of its word, and its jobs.
    known: HashMap<u32, (usize, JobTally)>,
    words: Vec<String>,
}

impl States {
    /// Returns the index of the state's word.
    fn add(&mut self, state: u32, tally: JobTally) -> usize {
        let (word, sum) = self.known.entry(state).or_insert_with(|| {
            let word = slurm_names::job_state(state);
            let index = self.words.iter().position(|known| *known == word).unwrap_or_else(|| {
                self.words.push(word);
                self.words.len().saturating_sub(1)
            });
            (index, JobTally::default())
        });
        sum.add(tally);
        *word
    }
}

/// Rows by name. Neighbours in a reply often have the same name, so the last row is tried first.
#[derive(Debug, Default)]
struct RowsByName<T> {
    indexes: HashMap<Box<[u8]>, usize>,
    rows: Vec<(Box<[u8]>, T)>,
    last: usize,
}

impl<T: Default> RowsByName<T> {
    fn row(&mut self, name: &[u8]) -> &mut T {
        // With no bytes and an invalid address, glibc's memcmp takes longer than all the rest of a job.
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

fn add(row: &mut WordTallies, word: usize, tally: JobTally) {
    if row.len() <= word {
        row.resize(word.saturating_add(1), JobTally::default());
    }
    if let Some(sum) = row.get_mut(word) {
        sum.add(tally);
    }
}

/// The tallies of the states that occur.
fn tallies(row: &WordTallies, words: &[String]) -> JobTallies {
    words.iter().cloned().zip(row.iter().copied()).filter(|(_, tally)| tally.jobs > 0).collect()
}

/// By libslurm's word, which may be the same for several numbers.
fn by_reason(reasons: BTreeMap<u32, JobTally>) -> JobTallies {
    let mut words = JobTallies::new();
    for (reason, tally) in reasons {
        words.entry(slurm_names::reason(reason)).or_default().add(tally);
    }
    words
}

fn by_name<T, U>(table: RowsByName<T>, finish: impl Fn(T) -> U) -> BTreeMap<String, U> {
    table.rows.into_iter().map(|(name, row)| (readable(&name), finish(row))).collect()
}

/// A name as text. Bytes that are not UTF-8 are escaped, so that two different names stay different.
fn readable(name: &[u8]) -> String {
    std::str::from_utf8(name).map_or_else(|_| name.escape_ascii().to_string(), str::to_owned)
}
