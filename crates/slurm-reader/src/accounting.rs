//! slurmdbd's finished jobs: `slurmdb_jobs_get`, with a new connection for each request.
//!
//! The condition always names one cluster and the final states. Without a cluster slurmdbd returns the jobs of all
//! clusters; without states it returns those that overlap the time, except jobs that were never eligible. Everything
//! here may block as long as slurmdbd does, because this is a separate process.

#[cfg(not(slurm_ge_2605))]
use std::ffi::c_char;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{self, NonNull};

use nix::errno::Errno;
use nix::unistd::{Uid, User};
use slurm_snapshot::{FINAL_STATES, Finished, RESIZING, Request, Used, Visibility};
use slurm_sys::{
    SLURMDB_ADMIN_OPERATOR, SLURMDB_ADMIN_SUPER_USER, slurm_list_pointer, slurm_selected_step_t,
    slurmdb_assoc_cond_t, slurmdb_job_cond_t, slurmdb_job_rec_t, slurmdb_qos_cond_t, slurmdb_qos_rec_t,
    slurmdb_step_rec_t, slurmdb_tres_cond_t, slurmdb_tres_rec_t, slurmdb_user_cond_t, slurmdb_user_rec_t,
};

use crate::client::{CallError, Client, failure};
use crate::finished::{DbdJobRow, FinishedFold, GpuTres, Statement, Steps, proofs};
use crate::raw::{self, NO_VAL, NoReply, bytes, last_errno, number, text};
use crate::survey_calls::own_conf;

/// `JOBCOND_FLAG_DUP`: every run of a job; `JOBCOND_FLAG_NO_STEP`; `JOBCOND_FLAG_NO_TRUNC`: real times, not cut off at
/// the ends of the requested time.
const FLAGS: u8 = 1 | 1 << 1 | 1 << 2;

/// The same without `NO_STEP`, and with `JOBCOND_FLAG_NO_WHOLE_HETJOB`: only the requested component of a het job.
const WITH_STEPS: u8 = 1 | 1 << 2 | 1 << 5;

/// `JOB_RUNNING`, in the form that slurmdbd needs: jobs that ran at any moment of the time.
const RUNNING: &CStr = c"1";

/// `ESLURM_DB_QUERY_TOO_WIDE`: longer than MaxQueryTimeRange, for a user who is no operator.
const TOO_WIDE: i32 = 7007;

/// `SLURMDB_JOB_FLAG_NOTSET`: no condition on how a job was started.
const ANY_START: u8 = 1;

/// `config_key_pair_t`, which no installed header declares: an element of `slurmdb_config_get`'s list.
#[cfg(not(slurm_ge_2605))]
#[repr(C)]
struct KeyPair {
    name: *mut c_char,
    value: *mut c_char,
}

/// What libslurm's own configuration says about accounting.
pub(crate) struct OwnConf {
    pub(crate) cluster: CString,
    slurm_user: u32,
}

impl Client {
    /// The jobs that ended from the request's `since` to its `until`, and what slurmdbd may hide from this user. If
    /// slurm.conf names no slurmdbd, both come from slurmctld.
    ///
    /// # Errors
    /// slurmdbd, its database or slurmctld did not answer.
    pub fn finished(&mut self, request: &Request) -> Result<(Option<Visibility>, Finished), CallError> {
        if !has_slurmdbd() {
            return Ok((None, self.finished_of_slurmctld(request.options.users)?));
        }
        let own = accounting_conf()?;
        let connection = DbdConnection::open()?;
        let visibility = connection.visibility(own.slurm_user)?;
        // If jobs are hidden, the rest is not worth its cost.
        if visibility.may_hide("jobs") {
            return Ok((Some(visibility), Finished::default()));
        }
        let finished = if request.jobs.is_empty() {
            connection.jobs(&own.cluster, request)?
        } else {
            Finished { used: connection.used(&own.cluster, request)?, ..Finished::default() }
        };
        // slurmdbd may have read its configuration again meanwhile.
        let after = connection.visibility(own.slurm_user)?;
        let (visibility, finished) =
            if after.may_hide("jobs") { (after, Finished::default()) } else { (visibility, finished) };
        drop(connection);
        raw::give_memory_back();
        Ok((Some(visibility), finished))
    }
}

/// Whether libslurm's own configuration names a slurmdbd.
fn has_slurmdbd() -> bool {
    // SAFETY: a string with its NUL, or NULL, which is "none" from 24.11 on.
    let storage = own_conf(|conf| unsafe { text(conf.accounting_storage_type) });
    storage.is_none_or(|storage| storage.is_some_and(|storage| storage.contains("slurmdbd")))
}

/// The name of the failed call if slurm.conf names no slurmdbd.
pub(crate) const ACCOUNTING_CONF: &str = "slurm.conf";

/// Reads the accounting settings of slurm.conf.
pub(crate) fn accounting_conf() -> Result<OwnConf, CallError> {
    let read = own_conf(|conf| {
        // SAFETY: a string with its NUL, or NULL.
        let cluster = unsafe { text(conf.cluster_name) };
        // SAFETY: the same.
        let storage = unsafe { text(conf.accounting_storage_type) };
        (cluster.unwrap_or_default(), storage.unwrap_or_default(), conf.slurm_user_id)
    });
    let refuse = |text: String| Err(CallError { call: ACCOUNTING_CONF, errno: 0, text });
    match read {
        Some((_, storage, _)) if !storage.contains("slurmdbd") => {
            refuse(format!("AccountingStorageType is {storage:?}, so there is no slurmdbd to ask"))
        }
        Some((cluster, _, slurm_user)) if !cluster.is_empty() => {
            Ok(OwnConf { cluster: CString::new(cluster).unwrap_or_default(), slurm_user })
        }
        _ => refuse("it has no ClusterName, by which slurmdbd identifies the jobs of a cluster".to_owned()),
    }
}

/// A connection to slurmdbd, closed when it is dropped.
pub(crate) struct DbdConnection(NonNull<c_void>);

impl DbdConnection {
    pub(crate) fn open() -> Result<Self, CallError> {
        Errno::clear();
        // SAFETY: NULL means that the caller does not need the connection's flags.
        let pointer = unsafe { slurm_sys::slurmdb_connection_get(ptr::null_mut()) };
        let error = || failure("slurmdb_connection_get", &NoReply::Errno(last_errno()));
        NonNull::new(pointer).map(Self).ok_or_else(error)
    }

    /// The pointer for libslurm's functions, valid as long as `self`.
    pub(crate) const fn pointer(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// What slurmdbd.conf's PrivateData hides from this user: nothing from root, SlurmUser and operators.
    fn visibility(&self, slurm_user: u32) -> Result<Visibility, CallError> {
        let private = self.private()?;
        let me = Uid::effective().as_raw();
        let privileged = private.is_empty()
            || me == 0
            || me == slurm_user
            || self.admin_level()? >= SLURMDB_ADMIN_OPERATOR;
        Ok(Visibility { private, privileged: Some(privileged) })
    }

    /// The words of PrivateData.
    #[cfg(not(slurm_ge_2605))]
    fn private(&self) -> Result<Vec<String>, CallError> {
        // SAFETY: the connection is open.
        let call = || unsafe { slurm_sys::slurmdb_config_get(self.0.as_ptr()) };
        // SAFETY: slurmdb_config_get leaves NULL or a list that is its caller's.
        let config = unsafe { SlurmList::receive("slurmdb_config_get", call) }?;
        let mut private = Vec::new();
        let take = |pair: &KeyPair| {
            // SAFETY: NULL or a string, which lives as long as the list.
            let name = unsafe { bytes(pair.name) };
            // SAFETY: the same.
            let value = unsafe { bytes(pair.value) };
            if name == b"PrivateData" {
                private = words(value);
            }
        };
        // SAFETY: the elements are libslurm's config_key_pair_t.
        unsafe { config.each(take) };
        Ok(private)
    }

    /// slurmdbd 26.05 tells nobody its PrivateData. Then only a user who sees everything in any case can be sure to.
    #[cfg(slurm_ge_2605)]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "older releases are asked")]
    fn private(&self) -> Result<Vec<String>, CallError> {
        Ok(vec!["jobs".to_owned()])
    }

    /// Whether slurmdbd gives this user its statistics.
    pub(crate) fn is_administrator(&self, own: &OwnConf) -> Result<bool, CallError> {
        let me = Uid::effective().as_raw();
        Ok(me == 0 || me == own.slurm_user || self.admin_level()? >= SLURMDB_ADMIN_SUPER_USER)
    }

    /// The admin level in slurmdbd's record of this user; none if slurmdbd does not know the user.
    fn admin_level(&self) -> Result<u32, CallError> {
        let user = User::from_uid(Uid::effective()).ok().flatten();
        let Some(name) = user.and_then(|user| CString::new(user.name).ok()) else { return Ok(0) };
        let users = Texts::new([name]);
        let mut names = slurmdb_assoc_cond_t { user_list: users.pointer(), ..Default::default() };
        let mut condition = slurmdb_user_cond_t { assoc_cond: &raw mut names, ..Default::default() };
        // SAFETY: the connection is open, and the condition exists during the call, which does not keep it.
        let call = || unsafe { slurm_sys::slurmdb_users_get(self.0.as_ptr(), &raw mut condition) };
        // SAFETY: slurmdb_users_get leaves NULL or a list that is its caller's.
        let records = unsafe { SlurmList::receive("slurmdb_users_get", call) }?;
        let mut level = 0;
        // SAFETY: the elements are libslurm's records of users.
        unsafe { records.each(|user: &slurmdb_user_rec_t| level = level.max(user.admin_level.into())) };
        Ok(level)
    }

    /// The job records that match the condition, in this time.
    fn records(
        &self,
        condition: &mut slurmdb_job_cond_t,
        [from, to]: [i64; 2],
    ) -> Result<SlurmList, CallError> {
        condition.db_flags = ANY_START.into();
        (condition.usage_start, condition.usage_end) = (from, to);
        // SAFETY: the connection is open, and the condition exists during the call, which does not keep it.
        let call = || unsafe { slurm_sys::slurmdb_jobs_get(self.0.as_ptr(), condition) };
        // SAFETY: slurmdb_jobs_get leaves NULL or a list that is its caller's.
        unsafe { SlurmList::receive("slurmdb_jobs_get", call) }
    }

    fn jobs(&self, cluster: &CStr, request: &Request) -> Result<Finished, CallError> {
        let asked = time(request);
        let mut fold = FinishedFold::new(request.options.steps, asked);
        self.walk(cluster, Statement { time: asked, running: false }, &mut fold)?;
        // slurmdbd answers a query that has failed in its database with an empty list.
        let mut too_wide = i64::MAX;
        for statement in proofs(asked, &request.known) {
            if fold.has_rows() {
                break;
            }
            let [since, until] = statement.time;
            let width = until.saturating_sub(since);
            if width >= too_wide {
                continue;
            }
            match self.walk(cluster, statement, &mut fold) {
                Err(error) if error.errno == TOO_WIDE => too_wide = width,
                answer => answer?,
            }
        }
        let gpus = if fold.has_other_tres() { self.gpus()? } else { Vec::new() };
        let qos = if request.options.qos && !fold.is_empty() { self.qos()? } else { Vec::new() };
        Ok(fold.finish(&gpus, &qos))
    }

    /// Adds the rows of one statement.
    fn walk(&self, cluster: &CStr, statement: Statement, fold: &mut FinishedFold) -> Result<(), CallError> {
        let running = statement.running.then(|| RUNNING.to_owned());
        let (clusters, states) = (Texts::new([cluster.to_owned()]), Texts::new(states().chain(running)));
        let mut condition = slurmdb_job_cond_t {
            cluster_list: clusters.pointer(),
            state_list: states.pointer(),
            flags: FLAGS.into(),
            ..Default::default()
        };
        let records = self.records(&mut condition, statement.time)?;
        let mut walk = |record: &slurmdb_job_rec_t| {
            // SAFETY: libslurm unpacks a record's strings with their NULs, or leaves them NULL.
            fold.add(&unsafe { row(record) });
        };
        // SAFETY: the elements are libslurm's records of jobs.
        unsafe { records.each(&mut walk) };
        Ok(())
    }

    /// What the jobs named in the request have used. slurmdbd applies the time condition to their steps too.
    fn used(&self, cluster: &CStr, request: &Request) -> Result<Vec<Used>, CallError> {
        let (clusters, jobs) = (Texts::new([cluster.to_owned()]), Selected::new(&request.jobs));
        let mut condition = slurmdb_job_cond_t {
            cluster_list: clusters.pointer(),
            step_list: jobs.list.0,
            flags: WITH_STEPS.into(),
            ..Default::default()
        };
        let records = self.records(&mut condition, time(request))?;
        let mut used = Vec::new();
        let take = |record: &slurmdb_job_rec_t| {
            // Other runs of a requeued job come with it.
            if request.jobs.contains(&key(record)) {
                // SAFETY: the record's steps are NULL or a list of libslurm's records of steps, which lives as long as the record.
                used.push(unsafe { steps(record.steps) }.used(record.db_index));
            }
        };
        // SAFETY: the elements are libslurm's records of jobs.
        unsafe { records.each(take) };
        Ok(used)
    }

    /// The numbers of the GPU TRES: those for all types together, and those for one type.
    fn gpus(&self) -> Result<Vec<(u32, GpuTres)>, CallError> {
        let mut condition = slurmdb_tres_cond_t { with_deleted: 1, ..Default::default() };
        // SAFETY: takes a condition and sets what is not 0 in it.
        unsafe { slurm_sys::slurmdb_init_tres_cond(&raw mut condition, false) };
        // SAFETY: the connection is open, and the condition exists during the call, which does not keep it.
        let call = || unsafe { slurm_sys::slurmdb_tres_get(self.0.as_ptr(), &raw mut condition) };
        // SAFETY: slurmdb_tres_get leaves NULL or a list that is its caller's.
        let records = unsafe { SlurmList::receive("slurmdb_tres_get", call) }?;
        let mut gpus = Vec::new();
        let take = |tres: &slurmdb_tres_rec_t| {
            // SAFETY: NULL or a string, which lives as long as the list.
            let kind = unsafe { bytes(tres.type_) };
            // SAFETY: the same.
            let name = unsafe { bytes(tres.name) };
            gpus.extend(GpuTres::of(kind, name).map(|kind| (tres.id, kind)));
        };
        // SAFETY: the elements are libslurm's records of TRES.
        unsafe { records.each(take) };
        Ok(gpus)
    }

    fn qos(&self) -> Result<Vec<(u32, String)>, CallError> {
        let mut condition = slurmdb_qos_cond_t::default();
        // SAFETY: the connection is open, and the condition exists during the call, which does not keep it.
        let call = || unsafe { slurm_sys::slurmdb_qos_get(self.0.as_ptr(), &raw mut condition) };
        // SAFETY: slurmdb_qos_get leaves NULL or a list that is its caller's.
        let records = unsafe { SlurmList::receive("slurmdb_qos_get", call) }?;
        let mut names = Vec::new();
        let take = |qos: &slurmdb_qos_rec_t| {
            // SAFETY: NULL or a string, which lives as long as the list.
            names.push((qos.id, unsafe { text(qos.name) }.unwrap_or_default()));
        };
        // SAFETY: the elements are libslurm's records of QOS.
        unsafe { records.each(take) };
        Ok(names)
    }
}

impl Drop for DbdConnection {
    fn drop(&mut self) {
        let mut pointer = self.0.as_ptr();
        // SAFETY: opened by slurmdb_connection_get, and not used again.
        let _closed: c_int = unsafe { slurm_sys::slurmdb_connection_close(&raw mut pointer) };
    }
}

/// The fields of a record that are counted.
///
/// # Safety
/// The record's strings are NULL, or end with a NUL and live as long as it.
unsafe fn row(record: &slurmdb_job_rec_t) -> DbdJobRow<'_> {
    DbdJobRow {
        id: record.db_index,
        job: key(record),
        end: record.end,
        state: record.state,
        submit: record.submit,
        eligible: record.eligible,
        start: record.start,
        elapsed: record.elapsed,
        limit: number(record.timelimit),
        qos: record.qosid,
        user_id: record.uid,
        // SAFETY: the caller's promise, here and below.
        tasks: unsafe { bytes(record.array_task_str) },
        // SAFETY: the same.
        partition: unsafe { bytes(record.partition) },
        // SAFETY: the same.
        account: unsafe { bytes(record.account) },
        // SAFETY: the same.
        user: unsafe { bytes(record.user) },
        // SAFETY: the same.
        tres: unsafe { bytes(record.tres_alloc_str) },
        // SAFETY: the same.
        nodes: unsafe { bytes(record.nodes) },
    }
}

/// The id to request a job by: its job id and `NO_VAL`, or its array's id and its task. By job id alone, the task whose
/// job id is the array's would bring all others with it.
const fn key(record: &slurmdb_job_rec_t) -> (u32, u32) {
    match (record.array_job_id, record.array_task_id) {
        (0, _) | (_, NO_VAL..) => (record.jobid, NO_VAL),
        task => task,
    }
}

/// The sum of all of a job's steps.
///
/// # Safety
/// The list is NULL, or its elements are libslurm's records of steps, and nobody changes it in the meantime.
unsafe fn steps(list: slurm_list_pointer) -> Steps {
    let mut steps = Steps::default();
    let take = |step: &slurmdb_step_rec_t| {
        // SAFETY: NULL or a string, which lives as long as the record.
        let usage = unsafe { bytes(step.stats.tres_usage_in_tot) };
        steps.add(wide(step.state), [wide(step.tot_cpu_sec), wide(step.tot_cpu_usec)], usage);
    };
    // SAFETY: the caller's promise.
    unsafe { raw::each(list, take) };
    steps
}

/// A number that has 32 or 64 bits, depending on the release.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// Numbers of states, in the form that slurmdbd needs.
fn states() -> impl Iterator<Item = CString> {
    let numbers = FINAL_STATES.iter().map(|(number, _)| *number).chain([RESIZING]);
    numbers.filter_map(|number| CString::new(number.to_string()).ok())
}

/// The requested time.
fn time(request: &Request) -> [i64; 2] {
    [request.since, request.until].map(|time| time.unwrap_or(0))
}

/// `PrivateData = jobs,usage`.
#[cfg(not(slurm_ge_2605))]
fn words(list: &[u8]) -> Vec<String> {
    let words =
        list.split(|byte| *byte == b',').map(|word| String::from_utf8_lossy(word).trim().to_lowercase());
    words.filter(|word| !word.is_empty() && word != "none").collect()
}

/// A list of libslurm's. Dropping it destroys it, and also its elements if it owns them.
struct SlurmList(slurm_list_pointer);

impl SlurmList {
    /// Makes a call that returns a list.
    ///
    /// # Safety
    /// `call` returns NULL, or a list that nobody else destroys.
    unsafe fn receive(
        name: &'static str,
        call: impl FnOnce() -> slurm_list_pointer,
    ) -> Result<Self, CallError> {
        Errno::clear();
        let list = call();
        let errno = last_errno();
        if list.is_null() { Err(failure(name, &NoReply::Errno(errno))) } else { Ok(Self(list)) }
    }

    /// Calls `take` with each element.
    ///
    /// # Safety
    /// The list's elements are each a `T`, and `take` keeps none of them.
    unsafe fn each<T>(&self, take: impl FnMut(&T)) {
        // SAFETY: the list lives as long as `self`, and the caller promises what its elements are.
        unsafe { raw::each(self.0, take) };
    }
}

impl Drop for SlurmList {
    fn drop(&mut self) {
        // SAFETY: the caller of the constructor promised that nobody else destroys it.
        unsafe { slurm_sys::slurm_list_destroy(self.0) };
    }
}

/// A list of texts that this process owns; libslurm only reads them.
pub(crate) struct Texts {
    list: SlurmList,
    _texts: Vec<CString>,
}

impl Texts {
    /// The pointer for libslurm's functions, valid as long as `self`.
    pub(crate) const fn pointer(&self) -> slurm_list_pointer {
        self.list.0
    }

    pub(crate) fn new(texts: impl IntoIterator<Item = CString>) -> Self {
        // SAFETY: makes an empty list, whose elements it will not free.
        let list = SlurmList(unsafe { slurm_sys::slurm_list_create(None) });
        let texts: Vec<CString> = texts.into_iter().collect();
        for text in &texts {
            // SAFETY: the list exists; it holds the pointer, and the text outlives it, because fields are dropped in
            // order.
            unsafe { slurm_sys::slurm_list_append(list.0, text.as_ptr().cast_mut().cast()) };
        }
        Self { list, _texts: texts }
    }
}

/// A list of whole jobs that this process owns.
struct Selected {
    list: SlurmList,
    _jobs: Vec<slurm_selected_step_t>,
}

impl Selected {
    fn new(ids: &[(u32, u32)]) -> Self {
        // SAFETY: makes an empty list, whose elements it will not free.
        let list = SlurmList(unsafe { slurm_sys::slurm_list_create(None) });
        let mut jobs: Vec<slurm_selected_step_t> = ids.iter().map(|_| Default::default()).collect();
        for (job, &(id, task)) in jobs.iter_mut().zip(ids) {
            (job.array_task_id, job.het_job_offset) = (task, NO_VAL);
            (job.step_id.job_id, job.step_id.step_het_comp, job.step_id.step_id) = (id, NO_VAL, NO_VAL);
            // SAFETY: the list exists; it holds the pointer, and the job outlives it, because fields are dropped in
            // order.
            unsafe { slurm_sys::slurm_list_append(list.0, ptr::from_mut(job).cast()) };
        }
        Self { list, _jobs: jobs }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;

    use super::*;

    #[test]
    fn a_list_of_texts_is_walked_whole_and_in_order() {
        let texts = Texts::new(states());
        let mut seen = Vec::new();
        let take = |byte: &c_char| {
            // SAFETY: the first byte of a string with its NUL.
            seen.push(unsafe { text(byte) }.unwrap());
        };
        // SAFETY: the elements are strings.
        unsafe { texts.list.each(take) };
        assert_eq!(seen, ["3", "4", "5", "6", "7", "8", "9", "10", "11", "1024", "8192"]);
    }

    #[test]
    fn a_call_that_leaves_no_list_is_a_failure_with_its_errno() {
        let call = || {
            Errno::set_raw(111);
            ptr::null_mut()
        };
        // SAFETY: leaves NULL.
        let error = unsafe { SlurmList::receive("slurmdb_jobs_get", call) }.map(drop).unwrap_err();
        assert_eq!((error.call, error.errno), ("slurmdb_jobs_get", 111));
    }

    #[test]
    fn a_record_of_nothing_is_a_row_that_never_started() {
        let job = slurmdb_job_rec_t { timelimit: u32::MAX, ..Default::default() };
        // SAFETY: every string is NULL.
        let row = unsafe { row(&job) };
        assert_eq!((row.limit, row.tasks, row.partition), (None, &b""[..], &b""[..]));
    }

    #[cfg(not(slurm_ge_2605))]
    #[test]
    fn private_data_is_a_list_of_words() {
        assert_eq!(words(b"jobs,usage, USERS"), ["jobs", "usage", "users"]);
        assert_eq!(words(b"none"), [""; 0]);
        assert_eq!(words(b""), [""; 0]);
    }
}
