//! slurmdbd, if a collector reads it: whether it answers, what it hides from this user, and how
//! much room finished jobs need in the queue.

use size::Size;
use slurm_points::derive::whole_seconds;
use slurm_points::finished::{HOUR, ID_BYTES};
use slurm_snapshot::{Finished, Reading, Reply, ReplyKind, ReplyOptions, Request};

use super::{CheckLine, Report};
use crate::accounting::Plan;
use crate::commands::read_once;
use crate::config::Config;
use crate::survey::HIDDEN_REMEDY;

/// Checks slurmdbd, if a collector reads it. `reading` is slurmctld's answer. Returns the jobs that
/// ended in the last hour, or in `window` if that is longer.
pub(super) async fn check(
    config: &Config,
    reading: Option<&Reading>,
    report: &mut Report,
) -> Option<Finished> {
    let plan = Plan::from_config(config);
    let asks = config.collectors.survey_replies().contains(&ReplyKind::Slurmdbd);
    if plan.is_none() && !asks {
        return None;
    }
    let Some(reading) = reading else {
        report.add(CheckLine::unknown("slurmdbd: not asked, because slurmctld did not answer"));
        return None;
    };
    let mut jobs = None;
    if let Some(plan) = plan {
        match finished(config, plan, reading).await {
            Ok((line, finished)) => {
                report.add(line);
                jobs = Some(finished);
            }
            Err(line) => report.add(line),
        }
    }
    if asks {
        let request = Request::new(ReplyKind::Slurmdbd, ReplyOptions::default());
        report.add(match read_once(config.slurm.clone(), request).await {
            Ok(_) => CheckLine::good("slurmdbd: gives its statistics to this user"),
            Err(error) => {
                CheckLine::wrong(format!("slurmdbd: its statistics: {error}"), error.advice())
            }
        });
    }
    jobs
}

/// Reads the finished jobs. Returns the line about them and the jobs. An error is the line that
/// says why there are none.
async fn finished(
    config: &Config,
    plan: Plan,
    reading: &Reading,
) -> Result<(CheckLine, Finished), CheckLine> {
    let now = whole_seconds(reading.time);
    let since = now.saturating_sub(plan.window.max(HOUR));
    let answer = read_once(config.slurm.clone(), plan.request(since, now, Vec::new())).await;
    let answer = answer.map_err(|error| {
        CheckLine::wrong(format!("slurmdbd: finished jobs: {error}"), error.advice())
    })?;
    if answer.visibility.as_ref().is_none_or(|seen| seen.may_hide("jobs")) {
        return Err(CheckLine::wrong(
            "finished jobs: PrivateData may hide jobs of other users from this one, so none is \
                counted",
            HIDDEN_REMEDY,
        ));
    }
    let Some(Reply::Finished(finished)) = answer.reply else {
        return Err(CheckLine::wrong(
            "slurmdbd: no finished jobs in its reply",
            "Is the reader of this version?",
        ));
    };
    let last_hour = finished.jobs.iter().filter(|job| job.end >= now.saturating_sub(HOUR));
    Ok((ids(config, plan, last_hour.count()), *finished))
}

/// Returns the line about the ids of finished jobs: whether the queue has room for those of all
/// jobs that are read again, if every hour has as many `jobs` as the last one.
fn ids(config: &Config, plan: Plan, jobs: usize) -> CheckLine {
    let hours = usize::try_from(plan.kept_seconds() / HOUR).unwrap_or(usize::MAX).saturating_add(1);
    let ids = jobs.saturating_mul(hours);
    let size = |ids: usize| {
        Size::from_bytes(u64::try_from(ids).unwrap_or(u64::MAX).saturating_mul(ID_BYTES))
    };
    let needed = size(ids);
    let most = size(plan.most_ids);
    let max_bytes = config.queue.limits.max_bytes;
    let text = format!(
        "slurmdbd: {jobs} jobs ended in the last hour; the numbers of as many in each hour of \
            catch_up take {needed}"
    );
    if ids > plan.most_ids {
        return CheckLine::wrong(
            format!("{text}, more than {most}, an eighth of queue.max_bytes"),
            "Raise queue.max_bytes or lower catch_up: jobs of which slurmdbd learns very late are \
                not counted.",
        );
    }
    CheckLine::good(format!("{text} of queue.max_bytes ({})", Size::from_bytes(max_bytes)))
}
