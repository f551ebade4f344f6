//! What the collectors of nodes and jobs would cost slurmctld, if they are off: so that nobody has to guess before enabling them.
//!
//! The list of nodes is requested once, as `sinfo` does, unless slurmctld is busy. The list of jobs is not requested: it may be
//! very long, and slurmctld has already reported how many jobs there are.

use slurm_snapshot::{Reading, Reply, ReplyKind, ReplyOptions, Request};

use super::CheckLine;
use super::slurm::milliseconds;
use crate::commands::read_once;
use crate::config::Config;

/// The lines of those that are off.
pub(super) async fn lines(config: &Config, reading: &Reading) -> Vec<CheckLine> {
    let Some(statistics) = &reading.statistics else { return Vec::new() };
    let mut lines = Vec::new();
    if is_off(config, ReplyKind::Nodes) && statistics.server_thread_count <= config.collectors.max_threads {
        // A reader that has no list of nodes, such as the native one, has none of jobs.
        let Some(nodes) = nodes(config).await else { return lines };
        lines.push(nodes);
    }
    if is_off(config, ReplyKind::Jobs) {
        let jobs = u64::from(statistics.jobs_pending).saturating_add(statistics.jobs_running.into());
        lines.push(line(config, "jobs", jobs, "the lock of its jobs (not tried: the reply has every job)"));
    }
    lines
}

/// Nothing if they are hidden from this user or do not come: the collector would publish nothing either.
async fn nodes(config: &Config) -> Option<CheckLine> {
    let request = Request::new(ReplyKind::Nodes, ReplyOptions::default());
    let reading = read_once(config.slurm.clone(), request).await.ok()?;
    let is_hidden = |visibility| ReplyKind::Nodes.row().is_hidden(visibility);
    let Some(Reply::Nodes(nodes)) = &reading.reply else { return None };
    let took = milliseconds(reading.elapsed);
    let line = line(
        config,
        "nodes",
        nodes.records.saturating_sub(nodes.blank),
        &format!("the lock of its nodes, {took} ms here"),
    );
    (!reading.visibility.as_ref().is_some_and(is_hidden)).then_some(line)
}

fn is_off(config: &Config, kind: ReplyKind) -> bool {
    let is_possible = !config.collectors.over_rest || kind.row().not_over_rest.is_none();
    is_possible && !config.collectors.survey_replies().contains(&kind)
}

fn line(config: &Config, name: &str, count: u64, lock: &str) -> CheckLine {
    let settings = config.collectors.all().find(|(collector, _)| collector.name == name);
    let every = settings.map_or(60, |(_, settings)| settings.interval(config.interval));
    CheckLine::good(format!(
        "{name}: {count}; [collectors.{name}] is off and would cost one request every {every} s that takes {lock}"
    ))
}
