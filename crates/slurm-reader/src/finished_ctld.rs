//! Finished jobs from slurmctld's own records, for clusters without slurmdbd. slurmctld keeps a record for MinJobAge
//! after the job's end.
//!
//! A run that ended by requeue is not included, because the next run uses its record. slurmctld also does not keep how
//! many tasks of an array were cancelled before they started: together they have one record, or none if other tasks of
//! the array continue.

use std::collections::BTreeMap;

use slurm_snapshot::{FINAL_STATES, Finished, FinishedJob, NameNumbers};
use slurm_sys::{job_info_msg_t, slurm_job_info_t};

use crate::finished::has_started;
use crate::jobs;
use crate::names;
use crate::slurm_names;
use crate::unpacked::Unpacked;
use crate::values::{lossy, moment, number};

/// The jobs in a final state. Their ids are made of job id and end time: if a job runs again, it ends later. Names of
/// users are looked up only if `users` is true.
pub(crate) fn from_reply(reply: Unpacked<'_, job_info_msg_t>, min_job_age: u32, users: bool) -> Finished {
    let (mut names, mut finished) = (NameNumbers::default(), Finished::default());
    let mut users = users.then(BTreeMap::new);
    for record in reply.job_array() {
        if let Some((job, unparsed)) = job(record, &mut names, users.as_mut()) {
            finished.unparsed = finished.unparsed.saturating_add(unparsed);
            finished.jobs.push(job);
        }
    }
    Finished { names: names.into_names(), min_job_age: Some(min_job_age), ..finished }
}

/// `None` if it has not ended.
fn job(
    record: Unpacked<'_, slurm_job_info_t>,
    names: &mut NameNumbers,
    users: Option<&mut BTreeMap<u32, String>>,
) -> Option<(FinishedJob, u64)> {
    let state = slurm_names::job_base(record.job_state);
    let end = moment(record.end_time).filter(|_| FINAL_STATES.iter().any(|(number, _)| *number == state))?;
    let counted = jobs::job(record);
    let has_started = has_started(record.start_time, record.nodes(), state);
    let since = if record.eligible_time > 0 { record.eligible_time } else { record.submit_time };
    let seconds = |from: i64, to: i64| u64::try_from(to.saturating_sub(from)).unwrap_or(0);
    let mut name = |bytes: &[u8]| names.number(&lossy(bytes));
    let user = users.map(|users| users.entry(record.user_id).or_insert_with(|| user_name(record.user_id)));
    let user = name(user.as_deref().map_or(b"", |user| user.as_bytes()));
    let held = |count: u64| if has_started { count } else { 0 };
    let job = FinishedJob {
        id: u64::from(record.job_id) << 32 | u64::from(low(end)),
        end,
        submit: record.submit_time,
        state,
        tasks: if has_started { 1 } else { counted.tally.jobs },
        wait: has_started.then(|| seconds(since, record.start_time)),
        run: held(run(&record, end)),
        limit: number(record.time_limit).map(|minutes| u64::from(minutes).saturating_mul(60)),
        partition: name(counted.partition.split(|byte| *byte == b',').next().unwrap_or_default()),
        account: name(counted.account),
        qos: name(counted.qos),
        user,
        cpus: held(counted.tally.cpus),
        gpus: held(counted.tally.gpus),
        nodes: held(counted.tally.nodes),
        billing: billing(record.tres_alloc_str()),
    };
    Some((job, counted.unparsed))
}

/// Name services may block, which is fine: so may this reader.
fn user_name(id: u32) -> String {
    names::host(id).ok().flatten().unwrap_or_else(|| id.to_string())
}

/// Seconds that it ran, not counting suspension.
fn run(record: &slurm_job_info_t, end: i64) -> u64 {
    // For a job that was suspended, pre_sus_time is how long it ran before that, and suspend_time is when it resumed.
    let (before, since) = match record.suspend_time {
        0 => (0, record.start_time),
        resumed => (record.pre_sus_time, resumed),
    };
    u64::try_from(before.saturating_add(end.saturating_sub(since))).unwrap_or(0)
}

/// The number in `billing=9` in a text of TRES.
fn billing(text: &[u8]) -> u64 {
    let amount = text.split(|byte| *byte == b',').find_map(|part| part.strip_prefix(b"billing="));
    amount.and_then(|amount| std::str::from_utf8(amount).ok()?.parse().ok()).unwrap_or(0)
}

/// The low half of a time, which is all of it until 2106.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "half of an id")]
const fn low(end: i64) -> u32 {
    end as u32
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};

    use super::*;
    use crate::unpacked::made;

    fn pointer(text: &CStr) -> *mut c_char {
        text.as_ptr().cast_mut()
    }

    fn ended() -> slurm_job_info_t {
        slurm_job_info_t {
            job_id: 7,
            job_state: 3,
            num_cpus: 4,
            num_nodes: 2,
            submit_time: 900,
            eligible_time: 910,
            start_time: 1000,
            end_time: 1100,
            time_limit: 10,
            partition: pointer(c"debug"),
            nodes: pointer(c"n[1-2]"),
            tres_alloc_str: pointer(c"cpu=4,mem=2.50G,node=2,billing=9,gres/gpu=1"),
            ..Default::default()
        }
    }

    fn finished(record: &slurm_job_info_t) -> Option<FinishedJob> {
        job(made(record), &mut NameNumbers::default(), None).map(|(job, _)| job)
    }

    #[test]
    fn a_record_in_a_final_state_is_a_job_also_while_it_completes() {
        let job = finished(&ended()).unwrap();
        assert_eq!((job.id, job.end, job.wait, job.run), (7 << 32 | 1100, 1100, Some(90), 100));
        assert_eq!((job.cpus, job.gpus, job.nodes, job.billing, job.limit), (4, 1, 2, 9, Some(600)));
        // JOB_COMPLETING
        assert!(
            finished(&slurm_job_info_t { job_state: 5 | 0x8000, ..ended() })
                .is_some_and(|job| job.state == 5)
        );
        for waits in [0, 1, 2] {
            assert_eq!(finished(&slurm_job_info_t { job_state: waits, ..ended() }), None);
        }
    }

    #[test]
    fn tasks_that_never_started_had_nothing_and_one_that_was_suspended_did_not_run_meanwhile() {
        let rest = slurm_job_info_t {
            job_state: 4,
            array_task_str: pointer(c"1-7"),
            nodes: std::ptr::null_mut(),
            // After a restart slurmctld has made it from what was requested.
            tres_alloc_str: pointer(c"cpu=1,billing=1"),
            ..ended()
        };
        let job = finished(&rest).unwrap();
        assert_eq!((job.tasks, job.wait, job.run, job.cpus), (7, None, 0, 0));
        let burst_buffer = slurm_job_info_t { job_state: 3, array_task_str: std::ptr::null_mut(), ..rest };
        assert_eq!(finished(&burst_buffer).unwrap().wait, Some(90), "-N0");
        let suspended = slurm_job_info_t { pre_sus_time: 20, suspend_time: 1070, ..ended() };
        assert_eq!(finished(&suspended).unwrap().run, 50);
    }
}
