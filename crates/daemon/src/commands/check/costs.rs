//! The costs for slurmctld of the collectors of nodes and jobs, if they are off: so that nobody has
//! to guess before enabling them.
//!
//! The list of nodes is requested once, as `sinfo` does, unless slurmctld is busy. The list of jobs
//! is not requested: it may be very long, and slurmctld has already reported how many jobs there
//! are.

use slurm_snapshot::{Nodes, Reading, Release, Reply, ReplyKind, ReplyOptions, Request};

use super::CheckLine;
use super::slurm::milliseconds;
use crate::commands::read_once;
use crate::config::Config;

/// The first release whose slurmctld sends CLOUD nodes also while they are powered down.
const SENDS_ALL_NODES: Release = Release::new(23, 2);

/// Returns the lines about the collectors of nodes and jobs that are off, and about CLOUD nodes
/// that slurmctld hides.
pub(super) async fn lines(config: &Config, reading: &Reading) -> Vec<CheckLine> {
    let Some(statistics) = &reading.statistics else { return Vec::new() };
    let mut lines = Vec::new();
    let is_off_or_old = is_off(config, ReplyKind::Nodes) || reading.release < SENDS_ALL_NODES;
    if is_off_or_old && statistics.server_thread_count <= config.collectors.max_threads {
        // A reader that has no list of nodes, such as the native one, has none of jobs.
        let Some((reading, nodes)) = nodes(config).await else { return lines };
        if is_off(config, ReplyKind::Nodes) {
            let lock = format!("the lock of its nodes, {} ms here", milliseconds(reading.elapsed));
            lines.push(line(config, "nodes", nodes.records.saturating_sub(nodes.blank), &lock));
        }
        lines.extend(hides_cloud_nodes(&reading, &nodes));
    }
    if is_off(config, ReplyKind::Jobs) {
        let jobs =
            u64::from(statistics.jobs_pending).saturating_add(statistics.jobs_running.into());
        lines.push(line(
            config,
            "jobs",
            jobs,
            "the lock of its jobs (not tried: the reply has every job)",
        ));
    }
    lines
}

/// Reads the list of nodes. `None`: it is hidden from this user, or did not come, and the collector
/// would publish nothing either.
async fn nodes(config: &Config) -> Option<(Box<Reading>, Box<Nodes>)> {
    let request = Request::new(ReplyKind::Nodes, ReplyOptions::default());
    let mut reading = read_once(config.slurm.clone(), request).await.ok()?;
    let is_hidden = |visibility| ReplyKind::Nodes.row().is_hidden(visibility);
    let Some(Reply::Nodes(nodes)) = reading.reply.take() else { return None };
    (!reading.visibility.as_ref().is_some_and(is_hidden)).then_some((reading, nodes))
}

/// Returns a note if slurmctld sends powered-down CLOUD nodes as empty records, because it then
/// also hides those that it could not resume.
fn hides_cloud_nodes(reading: &Reading, nodes: &Nodes) -> Option<CheckLine> {
    let sends_cloud = reading.visibility.as_ref()?.private.iter().any(|word| word == "cloud");
    (reading.release < SENDS_ALL_NODES && nodes.blank > 0 && !sends_cloud).then(|| {
        CheckLine::costs(
            format!(
                "nodes: slurmctld sends {} as empty records, perhaps CLOUD nodes that failed",
                nodes.blank
            ),
            "If there are CLOUD nodes, add `cloud` to PrivateData in slurm.conf: no figure and no \
             alert shows their failures without it.",
        )
    })
}

fn is_off(config: &Config, kind: ReplyKind) -> bool {
    let is_possible = !config.collectors.over_rest || kind.row().not_over_rest.is_none();
    is_possible && !config.collectors.survey_replies().contains(&kind)
}

fn line(config: &Config, name: &str, count: u64, lock: &str) -> CheckLine {
    let settings = config.collectors.all().find(|(collector, _)| collector.name == name);
    let every = settings.map_or(60, |(_, settings)| settings.interval(config.interval));
    CheckLine::good(format!(
        "{name}: {count}; [collectors.{name}] is off and would cost one request every {every} s \
            that takes {lock}"
    ))
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::Visibility;

    use super::*;

    #[test]
    fn who_cannot_see_that_a_cloud_node_failed_is_told_what_to_set() {
        let line = |release, private: &[&str], blank| {
            let private = private.iter().map(|word| (*word).to_owned()).collect();
            let visibility = Some(Visibility { private, privileged: Some(true) });
            let reading = Reading { release, visibility, ..Reading::default() };
            hides_cloud_nodes(&reading, &Nodes { blank, ..Nodes::default() }).map(|line| line.text)
        };
        let old = Release::new(22, 5);
        assert!(line(old, &["jobs"], 3).unwrap().contains("sends 3 as empty records"));
        let silent = [line(old, &[], 0), line(old, &["cloud"], 3), line(SENDS_ALL_NODES, &[], 3)];
        assert_eq!(silent, [None, None, None]);
    }
}
