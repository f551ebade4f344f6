//! Turns slurmdbd's rows into finished jobs: tasks, times and TRES.
//!
//! Makes no call: a row is read while the fold walks over it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use slurm_snapshot::{
    FINAL_STATES, Finished, FinishedJob, FinishedUser, NameNumbers, RESIZING, Used, add_to, array,
    moment, one_more, sum_of,
};
use slurm_sys::slurmdb_job_rec_t;

use crate::unpacked::Unpacked;
use crate::values::{NO_VAL, number};

/// Number of the TRES `cpu`, which every cluster has.
const CPU: u32 = 1;
/// Number of the TRES `node`, which every cluster has.
const NODE: u32 = 4;
/// Number of the TRES `billing`, which every cluster has.
const BILLING: u32 = 5;
/// First number of the TRES that a site defines, such as GPUs.
const FIRST_OF_SITE: u32 = 1001;

/// First number that is no count of a TRES: `NO_VAL64`, and above it `INFINITE64`.
const NO_COUNT: u64 = u64::MAX - 1;

/// `JOB_COMPLETE`, the first final state.
const COMPLETE: u64 = 3;

/// The id to request a job by: its job id and `NO_VAL`, or its array's id and its task. By job id
/// alone, the task whose job id is the array's would bring all others with it.
pub(crate) const fn key(row: &slurmdb_job_rec_t) -> (u32, u32) {
    match (row.array_job_id, row.array_task_id) {
        (0, _) | (_, NO_VAL..) => (row.jobid, NO_VAL),
        task => task,
    }
}

/// Whether a job has started, by the rule in docs/development/decisions.md. slurmdbd itself writes
/// `(unknown)` for a job without nodes. A job of `-N0` completes without any.
fn has_started(row: Unpacked<'_, slurmdb_job_rec_t>) -> bool {
    let has_nodes = !matches!(row.nodes(), b"" | b"None assigned" | b"(unknown)" | b"(null)");
    moment(row.start).is_some() && (has_nodes || u64::from(row.state) == COMPLETE)
}

/// The kinds of TRES that count GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuTres {
    /// GPUs of all types together.
    Gpus,
    /// GPUs of one type.
    Typed,
}

impl GpuTres {
    /// Returns the kind of a TRES by its type and name; `None` if it does not count GPUs.
    pub(crate) fn new(kind: &[u8], name: &[u8]) -> Option<Self> {
        match name {
            _ if kind != b"gres" => None,
            b"gpu" => Some(Self::Gpus),
            name => name.starts_with(b"gpu:").then_some(Self::Typed),
        }
    }
}

/// The counts of slurmdbd's rows that were added so far.
#[derive(Debug)]
pub(crate) struct FinishedFold {
    /// Whether to record which jobs have started.
    with_steps: bool,
    /// Indices of the names of users without an association, by user id. slurmdbd does not name
    /// them, so their names come from the host's name services, as in sacct.
    without_association: BTreeMap<u32, u32>,
    /// The requested time, in which jobs ended to be counted, Unix seconds; both ends belong to it.
    time: [i64; 2],
    /// Whether any row came.
    has_rows: bool,
    /// Newest end of a row before the requested time, Unix seconds.
    before: Option<i64>,
    jobs: Vec<FinishedJob>,
    /// The `db_index` of each job in `jobs`. slurmdbd returns a job that waits in a reservation
    /// once for each version of the reservation.
    ids: BTreeSet<u64>,
    started: Vec<(u64, (u32, u32), i64)>,
    /// TRES of the site that jobs were allocated: index of the job in `jobs`, number of the TRES,
    /// count. Their meaning is requested afterwards.
    others: Vec<(usize, u32, u64)>,
    names: NameNumbers,
    unparsed: u64,
}

impl FinishedFold {
    pub(crate) fn new(with_steps: bool, time: [i64; 2]) -> Self {
        Self {
            with_steps,
            without_association: BTreeMap::new(),
            time,
            has_rows: false,
            before: None,
            jobs: Vec::new(),
            ids: BTreeSet::new(),
            started: Vec::new(),
            others: Vec::new(),
            names: NameNumbers::default(),
            unparsed: 0,
        }
    }

    pub(crate) const fn has_rows(&self) -> bool {
        self.has_rows
    }

    /// Adds a row, if it ended in the requested time and was not added before.
    pub(crate) fn add(&mut self, row: Unpacked<'_, slurmdb_job_rec_t>) {
        self.has_rows = true;
        let [from, to] = self.time;
        let has_ended =
            row.state == RESIZING || FINAL_STATES.iter().any(|(state, _)| *state == row.state);
        if !has_ended || row.end < from || row.end > to {
            if has_ended && moment(row.end).is_some() && row.end < from {
                self.before = self.before.max(Some(row.end));
            }
            return;
        }
        if !self.ids.insert(row.db_index) {
            return;
        }
        let has_started = has_started(row);
        let tasks = match row.array_task_str() {
            _ if has_started => 1,
            b"" => 1,
            tasks => array::count_tasks(tasks).unwrap_or_else(|| {
                one_more(&mut self.unparsed);
                1
            }),
        };
        let since = moment(row.eligible).unwrap_or(row.submit);
        let wait = has_started.then(|| u64::try_from(row.start.saturating_sub(since)).unwrap_or(0));
        let partition = row
            .partition()
            .split(|&byte| byte == b',')
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        let mut job = FinishedJob {
            id: row.db_index,
            end: row.end,
            submit: row.submit,
            start: row.start,
            job: row.jobid,
            state: row.state,
            tasks,
            wait,
            run: row.elapsed.into(),
            limit: number(row.timelimit).map(|minutes| u64::from(minutes).saturating_mul(60)),
            partition: self.name(partition),
            account: self.name(row.account()),
            qos: row.qosid,
            user: match row.user() {
                b"" => self.user_without_association(row.uid),
                user => self.name(user),
            },
            ..FinishedJob::default()
        };
        if has_started && self.with_steps {
            // One whose clock was set back ended before it started, and slurmdbd finds it only by
            // its end.
            self.started.push((row.db_index, key(&row), row.start.min(row.end)));
        }
        self.add_tres(&mut job, row.tres_alloc_str());
        self.jobs.push(job);
    }

    /// Adds the allocated TRES to a job, which is the next one in `jobs`. `text` names them.
    fn add_tres(&mut self, job: &mut FinishedJob, text: &[u8]) {
        let index = self.jobs.len();
        for part in text.split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
            match tres(part) {
                Some((CPU, count)) => job.cpus = count,
                Some((NODE, count)) => job.nodes = count,
                Some((BILLING, count)) => job.billing = count,
                Some((id, count)) if id >= FIRST_OF_SITE => self.others.push((index, id, count)),
                Some(_) => {}
                None => one_more(&mut self.unparsed),
            }
        }
    }

    fn name(&mut self, name: &[u8]) -> u32 {
        self.names.number(&slurm_snapshot::name(name))
    }

    fn user_without_association(&mut self, id: u32) -> u32 {
        if let Some(number) = self.without_association.get(&id) {
            return *number;
        }
        // Not the index of an account or another user with that number for a name.
        let number = self.names.number(&format!("{id}\0"));
        self.without_association.insert(id, number);
        number
    }

    /// Whether any job has a QOS, so that names of QOS are needed.
    pub(crate) fn has_qos(&self) -> bool {
        self.jobs.iter().any(|job| job.qos > 0)
    }

    /// Whether any job has a TRES of the site, so that it must be known which of these are GPUs.
    pub(crate) fn has_other_tres(&self) -> bool {
        !self.others.is_empty()
    }

    /// The finished jobs. `gpus` says which TRES are GPUs, `qos` has the names of QOS.
    pub(crate) fn finish(mut self, gpus: &[(u32, GpuTres)], qos: &[(u32, String)]) -> Finished {
        let kinds: BTreeMap<u32, GpuTres> = gpus.iter().copied().collect();
        for others in self.others.chunk_by(|(one, ..), (other, ..)| one == other) {
            let sum = |kind| {
                let of_kind = others.iter().filter(|(_, id, _)| kinds.get(id) == Some(&kind));
                sum_of(of_kind.map(|(.., count)| *count))
            };
            let job = others.first().and_then(|(index, ..)| self.jobs.get_mut(*index));
            // AccountingStorageTRES may name only types.
            let gpus = match sum(GpuTres::Gpus) {
                0 => sum(GpuTres::Typed),
                gpus => gpus,
            };
            job.into_iter().for_each(|job| job.gpus = gpus);
        }
        let names: BTreeMap<u32, &str> =
            qos.iter().map(|(id, name)| (*id, name.as_str())).collect();
        for job in &mut self.jobs {
            job.qos = self.names.number(names.get(&job.qos).copied().unwrap_or_default());
        }
        let mut names = self.names.into_names();
        let mut users = Vec::new();
        for (id, number) in self.without_association {
            let place = usize::try_from(number).ok().and_then(|number| names.get_mut(number));
            place.into_iter().for_each(|name| *name = id.to_string());
            users.push(FinishedUser { number, id, ..FinishedUser::default() });
        }
        Finished {
            empty_since: self
                .before
                .filter(|_| self.jobs.is_empty())
                .map(|end| end.saturating_add(1)),
            jobs: self.jobs,
            names,
            users,
            unparsed: self.unparsed,
            unproved: !self.has_rows,
            started: self.started,
            ..Finished::default()
        }
    }
}

/// The use of a job's steps, added up as sacct does it.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// CPU time of the steps that have ended, µs.
    cpu: u64,
    is_open: bool,
}

impl Steps {
    /// Adds one step: its state, its CPU time in seconds and µs, and the text with its other use.
    /// slurmdbd gives a step without an end the state and end time of its job. The use of a step,
    /// `usage` too, comes only with its end. For a cancelled job that is after the job's end,
    /// because its tasks get SIGKILL up to KillWait later.
    pub(crate) fn add(&mut self, state: u64, [seconds, micros]: [u64; 2], usage: &[u8]) {
        self.is_open |= state < COMPLETE || usage.is_empty();
        if state >= COMPLETE {
            add_to(&mut self.cpu, seconds.saturating_mul(1_000_000).saturating_add(micros));
        }
    }

    pub(crate) const fn used(&self, id: u64) -> Used {
        Used { id, cpu: self.cpu / 1000, is_open: self.is_open }
    }
}

/// Parses the number and the count of a TRES, such as `1=4`. The count is 0 if it is not known.
fn tres(part: &[u8]) -> Option<(u32, u64)> {
    let (id, count) = std::str::from_utf8(part).ok()?.split_once('=')?;
    let count: u64 = count.parse().ok()?;
    Some((id.parse().ok()?, if count >= NO_COUNT { 0 } else { count }))
}
