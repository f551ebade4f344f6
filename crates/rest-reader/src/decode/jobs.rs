//! `jobs/state`: how many jobs are in each state, counted while the answer is read.
//!
//! A row's id shows how many jobs the row represents, because the waiting tasks of an array may be
//! one row. In 24.11 and 26.05 each task has its own row, so rows are not slurmctld's records. If a
//! state has several words, only one counts: the one that squeue's `%T` shows.

use slurm_snapshot::{JOB_STATES, JobTally, Jobs, array, one_more};

use super::Payload;
use super::item::Item;

/// Flags that squeue shows instead of the base state, in order of precedence.
const SHOWN: &[&str] = words![
    completing stage_out configuring expediting resizing requeued requeue_fed requeue_hold
    special_exit stopped revoked resv_del_hold signaling
];

impl Payload for Jobs {
    const NAME: &'static str = "jobs";
    const READ: &'static [&'static str] = words![job_id state];

    fn item(&mut self, _: &str, row: Item<'_>) -> Result<(), String> {
        let id = row.text("job_id").unwrap_or_default();
        let words = row.words("state")?;
        if id.is_empty() {
            // A job that ended while slurmctld wrote its list.
            return Ok(());
        }
        let is = |known: &&&str| words.iter().any(|word| word.eq_ignore_ascii_case(known));
        let base = JOB_STATES.iter().find(is).ok_or("the job has an unknown state")?;
        let word = SHOWN.iter().find(is).unwrap_or(base);
        let tasks = array_tasks(&id).unwrap_or_else(|| {
            one_more(&mut self.unparsed);
            1
        });
        self.states
            .shown
            .entry((*word).to_owned())
            .or_default()
            .add(JobTally { jobs: tasks, ..JobTally::default() });
        Ok(())
    }
}

/// Returns the number of jobs that an id represents: 1 for `7`, `7+1`, `7_3` and `7_*`, 10 for
/// `7_[1-10]`; `None` if it cannot be parsed.
fn array_tasks(id: &str) -> Option<u64> {
    match id.split_once("_[") {
        Some((_, expression)) => array::count_tasks(expression.strip_suffix(']')?.as_bytes()),
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_answer;
    use super::*;

    fn counted(rows: &str) -> Result<Jobs, String> {
        let text = format!(r#"{{"jobs":[{rows}],"errors":[],"warnings":[]}}"#);
        let envelope =
            read_answer(text.as_bytes(), Jobs::default()).map_err(|error| error.to_string())?;
        Ok(envelope.payload)
    }

    #[test]
    fn the_word_is_squeues_and_each_task_of_an_array_is_a_job() {
        for (id, state, word, count) in [
            (r#""7""#, r#"["RUNNING"]"#, "running", 1),
            ("7", r#""RUNNING""#, "running", 1),
            (r#""7+2""#, r#"["PENDING"]"#, "pending", 1),
            (r#""7_3""#, r#"["RUNNING","CONFIGURING","POWER_UP_NODE"]"#, "configuring", 1),
            (r#""7_*""#, r#"["PENDING"]"#, "pending", 1),
            (r#""7_[1-10]""#, r#"["PENDING"]"#, "pending", 10),
            (r#""7_[1,5,20-29]""#, r#"["PENDING","REQUEUED"]"#, "requeued", 12),
            (r#""7""#, r#"["COMPLETED","COMPLETING"]"#, "completing", 1),
            (r#""7""#, r#"["CONFIGURING","COMPLETING","RUNNING"]"#, "completing", 1),
            (r#""7""#, r#"["FAILED","LAUNCH_FAILED"]"#, "failed", 1),
            (r#""7""#, r#"["PENDING","OF_A_NEWER_SLURM"]"#, "pending", 1),
            (r#""7""#, r#"["OUT_OF_MEMORY"]"#, "out_of_memory", 1),
        ] {
            let jobs = counted(&format!(r#"{{"job_id":{id},"state":{state}}}"#)).unwrap();
            let tally = JobTally { jobs: count, ..JobTally::default() };
            assert_eq!(jobs.states.shown, [(word.to_owned(), tally)].into(), "{id} {state}");
            assert_eq!(jobs.unparsed, 0);
        }
    }

    #[test]
    fn what_is_not_known_is_an_error_or_counted_as_not_understood() {
        assert!(counted(r#"{"job_id":"7","state":["NEWER"]}"#).is_err());
        assert!(counted(r#"{"job_id":"7"}"#).is_err());
        assert!(read_answer(&b"{}"[..], Jobs::default()).is_err());
        let jobs = counted(r#"{"job_id":"7_[1,2,...]","state":["PENDING"]}"#).unwrap();
        assert_eq!((jobs.unparsed, jobs.states.shown["pending"].jobs), (1, 1));
        assert_eq!(
            counted(r#"{"job_id":"","state":["PENDING"]}"#).unwrap().states.shown,
            [].into()
        );
        assert_eq!(counted("").unwrap().states.shown, [].into());
    }
}
