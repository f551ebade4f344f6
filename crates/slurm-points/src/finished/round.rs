//! A round of finished jobs: those that have been read since the last commit and are not counted
//! yet.

use std::collections::{BTreeMap, BTreeSet};

use carbon_wire::path;
use slurm_snapshot::{Finished, FinishedJob, RESIZING, Used, add_to, one_more};

use super::ledger::{EndedRun, FinishedLedger, Incomplete, RoundReading};
use super::seen::{Counted, Mark, Seen, SeenId, hour_of};
use super::tally::{Figures, Spread, Tally};

/// Seconds that a job may have ended before the last round without counting as late: slurmctld
/// reports the end to slurmdbd some seconds later.
const GRACE: i64 = 60;

/// A job that started, whose steps slurmdbd is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedJob {
    /// The job's `db_index`.
    pub id: u64,
    /// The id for [`slurm_snapshot::Request::jobs`].
    pub key: (u32, u32),
    /// Moment at which the job started, Unix seconds.
    pub start: i64,
    /// Moment at which the job was submitted, Unix seconds: slurmdbd returns only steps of jobs
    /// that were submitted in the requested time.
    pub submit: i64,
    /// The first start of a step that is not counted yet, Unix seconds, if a part of the job's row
    /// is counted already; `None` if nothing of it is.
    pub steps_since: Option<i64>,
}

/// Whether the row of a resized job's part will be that of the next part. slurmdbd's key is the
/// job's id and its submission, and a part's submission is the moment at which the part before it
/// ended. So a part of 0 s has used nothing, and its row becomes that of the rest of the job.
fn is_begun_part(job: &FinishedJob) -> bool {
    job.state == RESIZING && job.end <= job.submit
}

/// Whether slurmdbd may not know all of a row yet, although it knows the row's names. It may
/// receive the record of a job's start, which has them, after that of its end; until then an array
/// is one task. slurmctld sends the ends of jobs through its queue, and other changes of 1,000 jobs
/// every 5 s past that queue: slurmdbd may learn later that some tasks of an array did start. Steps
/// of a cancelled job end up to KillWait and UnkillableStepTimeout after the job, and without
/// JobAcctGatherType never. A table of steps may be broken, and be mended.
fn may_grow(job: &FinishedJob, steps: Option<Used>) -> bool {
    job.tasks > 1 || steps.is_none_or(|steps| steps.is_open)
}

/// Number of accounts, QOS and users that have levels of their own: the first that have a job that
/// started. All others share one, so that nobody can take all levels with names that were invented
/// for jobs that never start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Number of accounts that have levels of their own.
    pub(crate) accounts: usize,
    /// Number of QOS that have levels of their own.
    pub qos: usize,
    /// Number of users that have levels of their own.
    pub users: usize,
}

impl Levels {
    const fn kinds(self) -> [LevelKind; 3] {
        [
            LevelKind {
                own: "account.",
                most: self.accounts,
                others: "other_accounts",
                none: "no_account",
            },
            LevelKind { own: "qos.", most: self.qos, others: "other_qos", none: "no_qos" },
            LevelKind { own: "user.", most: self.users, others: "other_users", none: "no_user" },
        ]
    }

    /// Returns how the levels of accounts, QOS and users begin, each with the number of levels that
    /// it may have.
    pub(super) fn own(self) -> impl Iterator<Item = (&'static str, usize)> {
        self.kinds().into_iter().map(|kind| (kind.own, kind.most))
    }

    /// Whether this level still exists with these settings, which may have turned off accounts, QOS
    /// or users.
    pub(super) fn has(self, level: &str) -> bool {
        let is_its = |kind: &LevelKind| {
            level.starts_with(kind.own) || [kind.others, kind.none].contains(&level)
        };
        self.kinds().iter().find(|kind| is_its(kind)).is_none_or(|kind| kind.most > 0)
    }
}

#[derive(Clone, Copy, Debug)]
struct LevelKind {
    own: &'static str,
    most: usize,
    others: &'static str,
    none: &'static str,
}

/// A round of finished jobs: those that it has read, which count when its commit is on disk.
#[derive(Debug, Default)]
pub struct FinishedRound {
    /// Moment at which the round began, Unix seconds.
    pub moment: i64,
    /// Beginning of the round's `window`, Unix seconds: `window` seconds before the round.
    pub window_from: i64,
    pub(crate) levels: Levels,
    /// Figures about how the round was read.
    pub reading: RoundReading,
    /// Whether the round has read everything that it had to read.
    pub is_complete: bool,
    /// Whether the round has to read everything since the floor, not only the newest part.
    pub is_full: bool,
    /// Whether the jobs of the round are only added to the totals, because another host's daemon
    /// publishes them.
    pub is_silent: bool,
    /// Whether the CPU time of the jobs' steps is counted.
    pub efficiency: bool,
    /// The newest end that counts, Unix seconds: jobs that ended later belong to another round.
    /// `None` if there is no such bound.
    pub until: Option<i64>,
    /// Whether slurmdbd has answered a request of this round.
    has_answer: bool,
    figures: BTreeMap<String, Growing>,
    /// The ids of the jobs that the round counts, by the hour of their end.
    pub(super) ids: BTreeMap<i64, Vec<SeenId>>,
    /// Runs after which the next run of the same job may have the same row.
    pub(super) ended_runs: Vec<EndedRun>,
    /// The ids of rows that the round has counted, or whose change it has counted.
    known: BTreeSet<u64>,
    /// Rows that wait to be counted because they may still grow, by id.
    pub(super) incomplete: BTreeMap<u64, Incomplete>,
    /// The ids of jobs whose steps slurmdbd has not returned.
    lost_steps: BTreeSet<u64>,
    /// The newest end of a row that the round has counted, or that has changed since it was
    /// counted, Unix seconds.
    pub(super) latest: Option<i64>,
}

/// The figures of one level while jobs are added to it.
#[derive(Debug, Default)]
struct Growing {
    sums: Tally,
    waits: Vec<u64>,
    runs: Vec<u64>,
    /// The newest end of a job that had started, Unix seconds.
    used: Option<i64>,
}

impl FinishedRound {
    /// A round at `moment`, Unix seconds, that reads the ends of the last `window` seconds.
    pub fn new(moment: i64, window: i64, levels: Levels) -> Self {
        Self { moment, window_from: moment.saturating_sub(window), levels, ..Self::default() }
    }

    /// Returns the jobs of an answer that had started and may count in this round: slurmdbd must be
    /// asked for the CPU time of their steps before they are added.
    pub fn steps_of(&self, finished: &Finished, ledger: &FinishedLedger) -> Vec<StartedJob> {
        if finished.started.is_empty() {
            return Vec::new();
        }
        let uncounted = |job: &FinishedJob| {
            let is_later = self.until.is_some_and(|until| job.end > until);
            if is_later || job.end < ledger.floor() || self.known.contains(&job.id) {
                return None;
            }
            match ledger.look(job) {
                Seen::Never => Some((job.id, (job.submit, None))),
                Seen::GoesOn(counted) => {
                    Some((job.id, (job.submit, Some(counted.uncounted_from(job)))))
                }
                Seen::Same | Seen::Renamed(_) | Seen::Changed(_) => None,
            }
        };
        let new: BTreeMap<u64, (i64, Option<i64>)> =
            finished.jobs.iter().filter_map(uncounted).collect();
        let to_measure = |&(id, key, start): &(u64, (u32, u32), i64)| {
            let (submit, steps_since) = *new.get(&id)?;
            Some(StartedJob { id, key, start, submit, steps_since })
        };
        finished.started.iter().filter_map(to_measure).collect()
    }

    /// Notes that slurmdbd's answer lacks the steps of these jobs.
    pub fn lose_steps(&mut self, jobs: impl IntoIterator<Item = u64>) {
        self.lost_steps.extend(jobs);
    }

    /// Adds the jobs of an answer that neither the ledger nor this round has counted. `elapsed` is
    /// the time that the answer took, µs.
    pub fn add(&mut self, finished: &Finished, elapsed: u64, ledger: &FinishedLedger) {
        self.note_reading(finished, elapsed);
        let floor = ledger.floor();
        let used: BTreeMap<u64, Used> = finished.used.iter().map(|used| (used.id, *used)).collect();
        for job in &finished.jobs {
            if self.until.is_some_and(|until| job.end > until) || is_begun_part(job) {
                continue;
            }
            if job.end < floor || Tally::from_job(job).is_none() {
                continue;
            }
            let seen = ledger.look(job);
            let counted = match seen {
                Seen::Never => None,
                Seen::GoesOn(counted) => Some(counted),
                Seen::Same => continue,
                // It is remembered as it is now, for as long as jobs with that end are read.
                Seen::Changed(counted) | Seen::Renamed(counted) => {
                    let is_new = self.remember(job, counted.after(job), ledger);
                    if is_new && matches!(seen, Seen::Changed(_)) {
                        one_more(&mut self.reading.changed);
                    }
                    continue;
                }
            };
            let used = used.get(&job.id).copied().unwrap_or_default();
            let steps = (!self.lost_steps.contains(&job.id)).then_some(used);
            let has_names =
                !finished.name(job.partition).is_empty() && !self.lacks_user(job, finished);
            if !has_names || may_grow(job, steps) {
                let known = ledger.incomplete(job.id);
                let incomplete = Incomplete::look(job, has_names, steps, known, self.moment);
                self.incomplete.insert(job.id, incomplete);
                if !incomplete.is_over(self.moment) {
                    continue;
                }
            }
            let after = counted.map_or(Counted::from_job(job), |counted| counted.after(job));
            if self.remember(job, after, ledger) {
                if self.lost_steps.contains(&job.id) {
                    one_more(&mut self.reading.steps_unknown);
                }
                if counted.is_some_and(|counted| !counted.is_run_again(job)) {
                    one_more(&mut self.reading.changed);
                }
                let uncounted = counted.map_or(*job, |counted| counted.rest_of(job));
                let Some(mut tally) = Tally::from_job(&uncounted) else { continue };
                let run = ledger.ended_run(job).filter(|run| Some(run.counted) == counted);
                if let Some(run) = run {
                    tally.set_rest_of_use(job, &run.counted_use);
                }
                tally.cpu_used = used.cpu;
                self.count(&uncounted, &tally, finished, ledger);
            }
        }
    }

    /// Adds one of slurmdbd's answers to the figures about how the round was read. `elapsed` is the
    /// time that this answer took, µs.
    fn note_reading(&mut self, finished: &Finished, elapsed: u64) {
        self.has_answer = true;
        let reading = &mut self.reading;
        add_to(&mut reading.elapsed, elapsed);
        add_to(&mut reading.unparsed, finished.unparsed);
        let rows = finished.jobs.iter().filter(|job| job.end >= self.window_from);
        let rows = rows.fold(reading.window_jobs.unwrap_or(0), |rows, _| rows.saturating_add(1));
        reading.window_jobs = Some(rows);
    }

    /// Whether users have levels, and the name of the job's user is still being looked up.
    fn lacks_user(&self, job: &FinishedJob, finished: &Finished) -> bool {
        self.levels.users > 0 && finished.users.iter().any(|user| user.number == job.user)
    }

    /// Remembers what is counted of a row. Returns `false` if this round has counted the row
    /// before.
    fn remember(&mut self, job: &FinishedJob, counted: Counted, ledger: &FinishedLedger) -> bool {
        let is_new = self.known.insert(job.id);
        if is_new {
            self.latest = self.latest.max(Some(job.end));
            self.ids.entry(hour_of(job.end)).or_default().push((job.id, Mark::new(job, counted)));
            let known = ledger.ended_run(job);
            let is_longer = |run: EndedRun| run.counted.end < counted.end;
            if known.map_or_else(|| EndedRun::may_be(job, counted), is_longer) {
                self.ended_runs.push(EndedRun::from_job(job, counted));
            }
        }
        is_new
    }

    pub(super) fn has_counted(&self, id: u64) -> bool {
        self.known.contains(&id)
    }

    /// Whether slurmdbd has answered a request of this round.
    pub const fn has_answer(&self) -> bool {
        self.has_answer
    }

    fn count(
        &mut self,
        job: &FinishedJob,
        tally: &Tally,
        finished: &Finished,
        ledger: &FinishedLedger,
    ) {
        if ledger.last_moment().is_some_and(|last| job.end.saturating_add(GRACE) < last) {
            add_to(&mut self.reading.late_jobs, tally.jobs());
            let age = u64::try_from(self.moment.saturating_sub(job.end)).unwrap_or(0);
            self.reading.oldest_late = self.reading.oldest_late.max(age);
        }
        let partition = match finished.name(job.partition) {
            "" => "no_partition".to_owned(),
            name => format!("partition.{}", path::component(name)),
        };
        let names = [job.account, job.qos, job.user].map(|name| finished.name(name));
        let kinds = self.levels.kinds().into_iter().zip(names).filter(|(kind, _)| kind.most > 0);
        let has_started = job.wait.is_some();
        let lacks_user = self.lacks_user(job, finished);
        let own = kinds.map(|(kind, name)| match kind.own {
            "user." if lacks_user => kind.others.to_owned(),
            _ => self.level(kind, name, has_started, ledger),
        });
        let own: Vec<String> = own.collect();
        for level in ["total".to_owned(), partition].into_iter().chain(own) {
            let growing = self.figures.entry(level).or_default();
            growing.sums.add(tally);
            let Some(wait) = job.wait else { continue };
            growing.used = growing.used.max(Some(job.end));
            // The last part of a job that was resized is the job.
            if job.state != RESIZING {
                growing.waits.push(wait);
                growing.runs.push(job.run);
            }
        }
    }

    fn level(
        &self,
        kind: LevelKind,
        name: &str,
        has_started: bool,
        ledger: &FinishedLedger,
    ) -> String {
        if name.is_empty() {
            return kind.none.to_owned();
        }
        let own = format!("{}{}", kind.own, path::component(name));
        let counts = ledger.counts();
        if self.figures.contains_key(&own) || counts.has_level(&own) {
            return own;
        }
        let stays = counts.totals.keys().filter(|level| counts.has_level(level));
        let taken = stays.chain(self.figures.keys()).filter(|level| level.starts_with(kind.own));
        let taken: BTreeSet<&String> = taken.collect();
        let may_have_it = has_started || counts.totals.contains_key(&own);
        if may_have_it && taken.len() < kind.most { own } else { kind.others.to_owned() }
    }

    /// Returns the newest end of a job that had started, Unix seconds, for each level that belongs
    /// to a name.
    pub(super) fn used(&self) -> BTreeMap<String, i64> {
        let is_own = |level: &str| self.levels.own().any(|(own, _)| level.starts_with(own));
        let used = self.figures.iter().filter(|(level, _)| is_own(level));
        used.filter_map(|(level, growing)| Some((level.clone(), growing.used?))).collect()
    }

    /// Takes the figures that the round adds, by level.
    pub(super) fn figures(&mut self) -> BTreeMap<String, Figures> {
        let done = std::mem::take(&mut self.figures).into_iter().map(|(level, growing)| {
            let (waits, runs) =
                (Spread::from_values(growing.waits), Spread::from_values(growing.runs));
            (level, Figures { sums: growing.sums, waits, runs })
        });
        done.collect()
    }
}
