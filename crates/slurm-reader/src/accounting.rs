//! slurmdbd's finished jobs: `slurmdb_jobs_get`, with a new connection for each request.
//!
//! The condition always names one cluster, and the final states unless it names jobs. Without a
//! cluster slurmdbd returns the jobs of all clusters; without states it returns those that overlap
//! the time, except jobs that were never eligible. Everything here may block as long as slurmdbd
//! does, because this is a separate process.

use std::ffi::{CStr, CString};
use std::iter;

use nix::unistd::Uid;
use slurm_snapshot::{FINAL_STATES, Finished, RESIZING, Request, Used, Visibility, errno};
use slurm_sys::{SLURMDB_ADMIN_OPERATOR, slurmdb_job_rec_t};

use crate::calls::{self, CallError, CallResult, DbdConnection, Libslurm};
use crate::finished::{FinishedFold, GpuTres, Steps, key};
use crate::operator;
use crate::proofs::{Statement, proofs};
use crate::unpacked::Unpacked;
use crate::values::{lossy, name};

/// Flags of a request for finished jobs. `JOBCOND_FLAG_DUP`: every run of a job;
/// `JOBCOND_FLAG_NO_STEP`: no steps; `JOBCOND_FLAG_NO_TRUNC`: real times, not cut off at the ends
/// of the requested time.
const FLAGS: u8 = 1 | 1 << 1 | 1 << 2;

/// Flags of a request for the steps of jobs: `JOBCOND_FLAG_DUP`, `JOBCOND_FLAG_NO_TRUNC`, and
/// `JOBCOND_FLAG_NO_WHOLE_HETJOB`: only the requested component of a het job.
const WITH_STEPS: u8 = 1 | 1 << 2 | 1 << 5;

/// The state `JOB_RUNNING` as the text that slurmdbd needs: it matches jobs that ran at any moment
/// of the requested time.
const RUNNING: &CStr = c"1";

/// The accounting settings in libslurm's own configuration.
pub(crate) struct OwnConf {
    pub(crate) cluster: CString,
    slurm_user: u32,
}

/// Requests the jobs that ended from the request's `since` to its `until`, or the use of the jobs
/// that it names. Also returns what slurmdbd may hide from this user.
pub(crate) fn finished(
    libslurm: &mut Libslurm,
    request: &Request,
) -> CallResult<(Visibility, Finished)> {
    let own = accounting_conf(libslurm)?;
    let connection = libslurm.connect()?;
    let before = visibility(&connection, &own)?;
    // If jobs are hidden, the rest is not worth its cost.
    if before.may_hide("jobs") {
        return Ok((before, Finished::default()));
    }
    let finished = if request.jobs.is_empty() {
        jobs(&connection, &own.cluster, request)?
    } else {
        Finished { used: used(&connection, &own.cluster, request)?, ..Finished::default() }
    };
    // slurmdbd may have read its configuration again meanwhile.
    let after = visibility(&connection, &own)?;
    let (visibility, finished) =
        if after.may_hide("jobs") { (after, Finished::default()) } else { (before, finished) };
    drop(connection);
    calls::give_memory_back();
    Ok((visibility, finished))
}

/// The text in place of a failed call if slurm.conf names no slurmdbd or no cluster.
pub(crate) const ACCOUNTING_CONF: &str = "slurm.conf";

/// Reads the accounting settings of libslurm's own configuration. An error if they name no slurmdbd
/// or no cluster.
pub(crate) fn accounting_conf(libslurm: &mut Libslurm) -> CallResult<OwnConf> {
    let read = libslurm.own_conf(|conf| {
        (conf.cluster_name().to_vec(), lossy(conf.accounting_storage_type()), conf.slurm_user_id)
    });
    let (cluster, storage, slurm_user) = read.unwrap_or_default();
    let refuse = |text: String| Err(CallError { call: ACCOUNTING_CONF, errno: 0, text });
    if !storage.contains("slurmdbd") {
        return refuse(format!(
            "AccountingStorageType is {storage:?}, so there is no slurmdbd; [collectors.jobs] \
                counts jobs by state without it"
        ));
    }
    if cluster.is_empty() {
        return refuse(
            "it has no ClusterName, by which slurmdbd identifies the jobs of a cluster".to_owned(),
        );
    }
    Ok(OwnConf { cluster: CString::new(cluster).unwrap_or_default(), slurm_user })
}

/// The part that slurmdbd.conf's PrivateData hides from this user: nothing from root, SlurmUser and
/// operators.
fn visibility(connection: &DbdConnection, own: &OwnConf) -> CallResult<Visibility> {
    let private = private(connection)?;
    let privileged = private.is_empty() || has_level(connection, own, SLURMDB_ADMIN_OPERATOR)?;
    Ok(Visibility { private, privileged: Some(privileged) })
}

/// Asks slurmdbd for the words of its PrivateData.
#[cfg(not(slurm_ge_2605))]
fn private(connection: &DbdConnection) -> CallResult<Vec<String>> {
    let config = connection.config()?;
    let pair = config.get().into_iter().rfind(|pair| pair.name() == b"PrivateData");
    Ok(pair.map_or_else(Vec::new, |pair| words(pair.value())))
}

/// Returns that jobs are private: from 26.05 on slurmdbd tells nobody its PrivateData. Then only a
/// user who sees everything in any case can be sure to.
#[cfg(slurm_ge_2605)]
#[expect(clippy::unnecessary_wraps, reason = "older releases are asked")]
fn private(_: &DbdConnection) -> CallResult<Vec<String>> {
    Ok(vec!["jobs".to_owned()])
}

/// Whether this user is root or SlurmUser, or has at least this admin level in slurmdbd's record of
/// the user.
pub(crate) fn has_level(connection: &DbdConnection, own: &OwnConf, level: u32) -> CallResult<bool> {
    let me = Uid::effective().as_raw();
    if me == 0 || me == own.slurm_user {
        return Ok(true);
    }
    let Some(name) = operator::own_name() else { return Ok(false) };
    Ok(connection.users(&name)?.get().iter().any(|user| u32::from(user.admin_level) >= level))
}

fn jobs(connection: &DbdConnection, cluster: &CStr, request: &Request) -> CallResult<Finished> {
    let requested = time(request);
    let mut fold = FinishedFold::new(request.options.steps, requested);
    add_rows(connection, cluster, Statement { time: requested, running: false }, &mut fold)?;
    let mut too_wide = i64::MAX;
    for statement in proofs(requested, &request.known) {
        if fold.has_rows() {
            break;
        }
        let [since, until] = statement.time;
        let width = until.saturating_sub(since);
        if width >= too_wide {
            continue;
        }
        match add_rows(connection, cluster, statement, &mut fold) {
            Err(error) if error.errno == errno::DB_QUERY_TOO_WIDE => too_wide = width,
            answer => answer?,
        }
    }
    let gpus = if fold.has_other_tres() { gpus(connection)? } else { Vec::new() };
    let qos = if request.options.qos && fold.has_qos() { qos(connection)? } else { Vec::new() };
    Ok(fold.finish(&gpus, &qos))
}

/// Adds the rows of one statement.
fn add_rows(
    connection: &DbdConnection,
    cluster: &CStr,
    statement: Statement,
    fold: &mut FinishedFold,
) -> CallResult<()> {
    let running = statement.running.then(|| RUNNING.to_owned());
    let records = connection.jobs(cluster, states().chain(running), &[], FLAGS, statement.time)?;
    records.get().into_iter().for_each(|record| fold.add(record));
    Ok(())
}

/// The use of the jobs named in the request. slurmdbd applies the time condition to their steps
/// too.
fn used(connection: &DbdConnection, cluster: &CStr, request: &Request) -> CallResult<Vec<Used>> {
    let records =
        connection.jobs(cluster, iter::empty(), &request.jobs, WITH_STEPS, time(request))?;
    // Other runs of a requeued job come with it.
    let requested = records.get().into_iter().filter(|record| request.jobs.contains(&key(record)));
    let began =
        |id| request.steps_since.iter().find(|(row, _)| *row == id).map(|(_, since)| *since);
    let used = |record: Unpacked<'_, slurmdb_job_rec_t>| {
        steps(record, began(record.db_index)).used(record.db_index)
    };
    Ok(requested.map(used).collect())
}

/// Requests the numbers of the TRES that count GPUs: of all types together, or of one type.
fn gpus(connection: &DbdConnection) -> CallResult<Vec<(u32, GpuTres)>> {
    let records = connection.tres()?;
    let all = not_empty(records.get(), "slurmdb_tres_get", "TRES")?;
    Ok(all
        .into_iter()
        .filter_map(|tres| Some((tres.id, GpuTres::new(tres.type_(), tres.name())?)))
        .collect())
}

fn qos(connection: &DbdConnection) -> CallResult<Vec<(u32, String)>> {
    let records = connection.qos()?;
    let all = not_empty(records.get(), "slurmdb_qos_get", "QOS")?;
    Ok(all.into_iter().map(|qos| (qos.id, name(qos.name()))).collect())
}

/// Returns a list of slurmdbd, or an error if it is empty: jobs have these records, and slurmdbd
/// answers a query that has failed in its database with an empty list.
fn not_empty<T>(all: Vec<T>, call: &'static str, what: &str) -> CallResult<Vec<T>> {
    if !all.is_empty() {
        return Ok(all);
    }
    let text =
        format!("slurmdbd returns no {what}, so its database may have failed: see slurmdbd's log");
    Err(CallError { call, errno: 0, text })
}

/// Returns the sum of all steps of a job, or of those that began at `since`, Unix seconds, or
/// later.
fn steps(record: Unpacked<'_, slurmdb_job_rec_t>, since: Option<i64>) -> Steps {
    let mut steps = Steps::default();
    let all = record.steps().into_iter();
    for step in all.filter(|step| since.is_none_or(|since| step.start >= since)) {
        let cpu = [wide(step.tot_cpu_sec), wide(step.tot_cpu_usec)];
        steps.add(wide(step.state), cpu, step.usage());
    }
    steps
}

/// A number that has 32 or 64 bits, depending on the release.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// Returns the numbers of the final states and [`RESIZING`], as the texts that slurmdbd needs.
fn states() -> impl Iterator<Item = CString> {
    let numbers = FINAL_STATES.iter().map(|(number, _)| *number).chain([RESIZING]);
    numbers.filter_map(|number| CString::new(number.to_string()).ok())
}

/// Returns the two ends of the requested time, Unix seconds.
fn time(request: &Request) -> [i64; 2] {
    [request.since, request.until].map(|time| time.unwrap_or(0))
}

/// Splits a value of PrivateData such as `jobs,usage` into words in lower case, without `none`.
#[cfg(not(slurm_ge_2605))]
fn words(list: &[u8]) -> Vec<String> {
    let words = list
        .split(|byte| *byte == b',')
        .map(|word| String::from_utf8_lossy(word).trim().to_lowercase());
    words.filter(|word| !word.is_empty() && word != "none").collect()
}

#[cfg(all(test, not(slurm_ge_2605)))]
mod tests {
    use super::*;

    #[test]
    fn private_data_is_a_list_of_words() {
        assert_eq!(words(b"jobs,usage, USERS"), ["jobs", "usage", "users"]);
        assert_eq!(words(b"none"), [""; 0]);
        assert_eq!(words(b""), [""; 0]);
    }
}
