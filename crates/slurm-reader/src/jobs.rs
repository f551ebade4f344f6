//! The reply of `slurm_load_jobs`, counted while it is walked. Of a job only the parts that are
//! counted are copied.
//!
//! A [`Job`] borrows from the reply. The fold over jobs is safe code without C.

use std::time::Duration;

use slurm_snapshot::array;
use slurm_snapshot::gres::{self, GpuCount, Unparsed};
use slurm_snapshot::tres;
use slurm_snapshot::{JobTally, Jobs, PublishedJobs, ReplyOptions, moment, sum_of};
use slurm_sys::{job_info_msg_t, slurm_job_info_t};

use crate::fold::JobsFold;
use crate::job::Job;
use crate::slurm_names;
use crate::unpacked::Unpacked;
use crate::values::{number, wide};

/// Counts the jobs of the reply. slurmctld needed at most `elapsed` to write it.
pub(crate) fn from_reply(
    reply: Unpacked<'_, job_info_msg_t>,
    elapsed: Duration,
    options: ReplyOptions,
    kept: Option<PublishedJobs>,
) -> Jobs {
    let elapsed = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
    let written_by = reply.last_update.saturating_add(elapsed);
    let since = kept.as_ref().and_then(|published| published.started_since);
    let mut fold = JobsFold::new(reply.last_update, written_by, since, options, kept);
    reply.job_array().for_each(|record| fold.add(&job(record)));
    fold.finish()
}

/// Returns the parts of a job record that are counted.
pub(crate) fn job(record: Unpacked<'_, slurm_job_info_t>) -> Job<'_> {
    let tasks = array_tasks(record);
    let gpus = gpus(record);
    let memory = memory(record);
    let jobs = tasks.unwrap_or(1);
    let unknown =
        [record.num_cpus, record.num_nodes].map(|count| u64::from(number(count).is_none()));
    let each = |count: u64| count.saturating_mul(jobs);
    Job {
        state: record.job_state,
        reason: wide(record.state_reason),
        user: record.user_id,
        partition: record.partition(),
        account: record.account(),
        qos: record.qos(),
        tally: JobTally {
            jobs,
            cpus: number(record.num_cpus).map(|cpus| each(cpus.into())),
            nodes: number(record.num_nodes).map(|nodes| each(nodes.into())),
            gpus: gpus.ok().map(each),
            memory: memory.ok().map(each),
            oldest: None,
        },
        held: record.priority == 0,
        has_nodes: !record.nodes().is_empty(),
        submit_time: moment(record.submit_time),
        eligible_time: record.eligible_time,
        start_time: record.start_time,
        unparsed: u64::from(tasks.is_err())
            + u64::from(gpus.is_err())
            + u64::from(memory.is_err())
            + sum_of(unknown),
    }
}

/// Number of tasks of an array that still share this record; 1 for any other job.
fn array_tasks(record: Unpacked<'_, slurm_job_info_t>) -> Result<u64, Unparsed> {
    if let Some(tasks) = record.array_bitmap() {
        return u64::try_from(tasks).ok().filter(|&tasks| tasks > 0).ok_or(Unparsed);
    }
    match record.array_task_str() {
        b"" => Ok(1),
        expression => array::count_tasks(expression).ok_or(Unparsed),
    }
}

/// Returns the GPUs of one task: those that it holds, or requests while it waits.
///
/// The texts `tres_alloc_str` and `tres_req_str` have GPUs only if AccountingStorageTRES has them,
/// and only its types. GPUs that are not named there are in the other texts.
fn gpus(record: Unpacked<'_, slurm_job_info_t>) -> Result<u64, Unparsed> {
    if slurm_names::job_base(record.job_state) != 0 {
        if let Some(held) = all_gpus(record.tres_alloc_str(), [(record.gres_total(), Some(1))])? {
            return Ok(held);
        }
        if !record.tres_alloc_str.is_null() {
            return Ok(0);
        }
    }
    let nodes = number(record.num_nodes).unwrap_or(1);
    let tasks = number(record.num_tasks).unwrap_or(1);
    let requested = [
        (record.tres_per_job(), Some(1)),
        (record.tres_per_node(), Some(nodes)),
        (record.tres_per_task(), Some(tasks)),
        (record.tres_per_socket(), sockets(&record, nodes)),
    ];
    Ok(all_gpus(record.tres_req_str(), requested)?.unwrap_or(0))
}

/// Returns slurmctld's own sum in `accounted`, a TRES text, if there is one. Otherwise it is the
/// number in the first of the other texts that names GPUs, times the number of nodes, tasks or
/// sockets that this text is for. It is at least the sum of the types in `accounted`.
fn all_gpus<const N: usize>(
    accounted: &[u8],
    others: [(&[u8], Option<u32>); N],
) -> Result<Option<u64>, Unparsed> {
    let first = || {
        for (text, times) in others {
            if let Some(GpuCount { count, .. }) = gres::gpus(text)? {
                return times.map(|times| Some(count.saturating_mul(times.into()))).ok_or(Unparsed);
            }
        }
        Ok(None)
    };
    match gres::gpus(accounted)? {
        Some(GpuCount { count, is_least: false }) => Ok(Some(count)),
        Some(least) => Ok(first().unwrap_or_default().max(Some(least.count))),
        None => first(),
    }
}

/// The memory of one task, MiB: what it holds, or requests while it waits. slurmctld has already
/// combined requests by node, by CPU and by GPU into one figure.
fn memory(record: Unpacked<'_, slurm_job_info_t>) -> Result<u64, Unparsed> {
    let is_waiting = slurm_names::job_base(record.job_state) == 0;
    let requests = is_waiting || record.tres_alloc_str.is_null();
    let text = if requests { record.tres_req_str() } else { record.tres_alloc_str() };
    tres::memory(text).map(|memory| memory.unwrap_or(0))
}

/// Returns the number of sockets that a job requests on all its nodes; `None` if it names none.
fn sockets(record: &slurm_job_info_t, nodes: u32) -> Option<u32> {
    (record.sockets_per_node < 0xfffe)
        .then(|| u32::from(record.sockets_per_node).saturating_mul(nodes))
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};

    use super::*;
    use crate::unpacked::made;

    fn pointer(text: &CStr) -> *mut c_char {
        text.as_ptr().cast_mut()
    }

    /// A record whose pointers are all NULL.
    fn record() -> slurm_job_info_t {
        slurm_job_info_t { num_cpus: 2, num_nodes: 1, num_tasks: 2, ..Default::default() }
    }

    fn seen(record: &slurm_job_info_t) -> Job<'_> {
        job(made(record))
    }

    #[test]
    fn numbers_that_mean_none_count_nothing() {
        for none in [0xffff_fffe, u32::MAX] {
            let record = slurm_job_info_t {
                job_state: u32::MAX,
                num_cpus: none,
                num_nodes: none,
                num_tasks: none,
                tres_per_task: pointer(c"gres/gpu:2"),
                sockets_per_node: u16::MAX,
                start_time: i64::MIN,
                ..Default::default()
            };
            let tally = seen(&record).tally;
            let known = JobTally { gpus: Some(2), memory: Some(0), ..JobTally::default() };
            assert_eq!(tally, JobTally { jobs: 1, ..known });
            assert_eq!(seen(&record).unparsed, 2, "CPUs and nodes are missing");
        }
    }

    #[test]
    fn an_array_without_a_bitmap_is_read_from_its_expression() {
        let tally =
            |text| seen(&slurm_job_info_t { array_task_str: pointer(text), ..record() }).tally;
        assert_eq!(
            tally(c"1-100%5"),
            JobTally {
                jobs: 100,
                cpus: Some(200),
                nodes: Some(100),
                gpus: Some(0),
                memory: Some(0),
                oldest: None,
            }
        );
        let shortened = slurm_job_info_t { array_task_str: pointer(c"1,3,5,7..."), ..record() };
        let job = seen(&shortened);
        assert_eq!((job.tally.jobs, job.unparsed), (1, 1), "one at least, and it is said");
    }

    #[test]
    fn gpus_are_those_held_or_while_it_waits_those_asked_for() {
        let per_node =
            slurm_job_info_t { num_nodes: 3, tres_per_node: pointer(c"gres:gpu:2"), ..record() };
        assert_eq!(seen(&per_node).tally.gpus, Some(6));
        let per_task = slurm_job_info_t { tres_per_task: pointer(c"gpu:a100:1"), ..record() };
        assert_eq!(seen(&per_task).tally.gpus, Some(2));
        let known = slurm_job_info_t { tres_req_str: pointer(c"cpu=2,gres/gpu=5"), ..per_node };
        assert_eq!(seen(&known).tally.gpus, Some(5), "slurmctld's own sum goes first");
        let running = slurm_job_info_t {
            job_state: 1,
            tres_alloc_str: pointer(c"cpu=2"),
            gres_total: pointer(c"gpu:a100:4"),
            ..known
        };
        assert_eq!(seen(&running).tally.gpus, Some(4), "not what it had asked for");
        let without = slurm_job_info_t { gres_total: std::ptr::null_mut(), ..running };
        assert_eq!(seen(&without).tally.gpus, Some(0));
        let cancelled = slurm_job_info_t { job_state: 4, ..per_node };
        assert_eq!(seen(&cancelled).tally.gpus, Some(6), "it never held any");
        let garbage = slurm_job_info_t { tres_per_job: pointer(c"gpu:x:y"), ..record() };
        assert_eq!((seen(&garbage).tally.gpus, seen(&garbage).unparsed), (None, 1));
        let sockets = slurm_job_info_t {
            tres_per_socket: pointer(c"gpu:1"),
            sockets_per_node: 0xfffe,
            ..record()
        };
        assert_eq!(seen(&sockets).unparsed, 1, "nobody can know how many sockets");
    }

    /// `AccountingStorageTRES=gres/gpu:a100`, and a job with another type as well.
    #[test]
    fn a_type_that_accounting_does_not_name_is_counted_too() {
        let pending = slurm_job_info_t {
            tres_req_str: pointer(c"cpu=1,gres/gpu:a100=1"),
            tres_per_node: pointer(c"gres:gpu:a100:1,gres:gpu:v100:1"),
            ..record()
        };
        assert_eq!(seen(&pending).tally.gpus, Some(2));
        let running = slurm_job_info_t {
            job_state: 1,
            tres_alloc_str: pointer(c"cpu=1,gres/gpu:a100=1"),
            gres_total: pointer(c"gpu:a100:1,gpu:v100:1"),
            ..pending
        };
        assert_eq!(seen(&running).tally.gpus, Some(2));
        let all =
            slurm_job_info_t { tres_alloc_str: pointer(c"gres/gpu:a100=1,gres/gpu=2"), ..running };
        assert_eq!(seen(&all).tally.gpus, Some(2));
        let no_more = slurm_job_info_t { gres_total: std::ptr::null_mut(), ..running };
        assert_eq!(seen(&no_more).tally.gpus, Some(1));
    }

    #[test]
    fn memory_is_what_it_holds_or_while_it_waits_what_it_asks_for() {
        let array = slurm_job_info_t {
            array_task_str: pointer(c"1-10"),
            tres_req_str: pointer(c"cpu=2,mem=2.50G,node=1"),
            ..record()
        };
        assert_eq!(seen(&array).tally.memory, Some(25_600), "each task asks for its own");
        let running = slurm_job_info_t {
            job_state: 1,
            array_task_str: std::ptr::null_mut(),
            tres_alloc_str: pointer(c"cpu=2,mem=4G,node=1"),
            ..array
        };
        assert_eq!(seen(&running).tally.memory, Some(4096), "not what it had asked for");
        let requeued = slurm_job_info_t { job_state: 0, ..running };
        assert_eq!(seen(&requeued).tally.memory, Some(2560));
        let cancelled =
            slurm_job_info_t { job_state: 4, tres_alloc_str: std::ptr::null_mut(), ..running };
        assert_eq!(seen(&cancelled).tally.memory, Some(2560), "it never held any");
        let without = slurm_job_info_t { tres_alloc_str: pointer(c"cpu=2"), ..running };
        assert_eq!(seen(&without).tally.memory, Some(0), "this cluster does not hand out memory");
        let garbage = slurm_job_info_t { tres_alloc_str: pointer(c"mem=all"), ..running };
        assert_eq!((seen(&garbage).tally.memory, seen(&garbage).unparsed), (None, 1));
    }

    #[test]
    fn a_reply_of_nothing_has_no_jobs() {
        let reply = job_info_msg_t { record_count: u32::MAX, ..Default::default() };
        let jobs = from_reply(made(&reply), Duration::ZERO, ReplyOptions::default(), None);
        assert_eq!(jobs, Jobs::default());
    }
}
