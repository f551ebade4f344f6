//! The number of series that this configuration makes on this cluster, before anything is sent.
//!
//! Two readings are made, because some figures need two, and every survey that is enabled is made
//! once. Paths that get points only later are taken from the collectors' documentation. The paths
//! are counted, not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, anyhow};
use slurm_points::collectors::{finished_paths, fits};
use slurm_points::finished::{FinishedLedger, FinishedRound, RememberedSpan};
use slurm_snapshot::{Finished, Reading, ReplyKind, Role};

use super::{CheckLine, Report};
use crate::accounting::Plan;
use crate::commands::once::{MORE_LATER, Ticks};
use crate::commands::read_once;
use crate::config::Config;
use crate::host::host;
use crate::self_metrics;

/// Time between the two readings; a little over Slurm's own second.
const BETWEEN: Duration = Duration::from_millis(1100);

/// The series of one Carbon.
pub(super) struct Series {
    prefix: String,
    /// The paths of the series, each without `prefix` and the dot behind it.
    below: BTreeSet<String>,
    /// Whether everything that is enabled could be read, so that no series is missing.
    is_complete: bool,
}

impl Series {
    pub(super) fn len(&self) -> usize {
        self.below.len()
    }

    /// Returns every path, with the prefix.
    pub(super) fn paths(&self) -> impl Iterator<Item = String> {
        self.below.iter().map(|below| format!("{}.{below}", self.prefix))
    }
}

/// Counts the series and reports their number. `first` is slurmctld's answer to an earlier check,
/// `finished` slurmdbd's; `None`: it gave none, or was not asked.
pub(super) async fn check(
    config: &Config,
    first: &Reading,
    finished: Option<&Finished>,
    report: &mut Report,
) -> Option<Series> {
    let counted = count(config, first, finished, report).await;
    report.add(match &counted {
        Ok(series) => line(series),
        Err(error) => CheckLine::unknown(format!("series: not counted: {error}")),
    });
    counted.ok()
}

async fn count(
    config: &Config,
    first: &Reading,
    finished: Option<&Finished>,
    report: &mut Report,
) -> Result<Series> {
    // So that the two readings are an interval.
    let config = &Config { interval: 1, ..config.clone() };
    let mut ticks = Ticks::new(config);
    let mut tick = ticks.batch(first.clone())?;
    let mut missing = ticks.survey(&mut tick).await;
    let plan = Plan::from_config(config);
    if plan.is_some() && finished.is_none() {
        missing.push("no finished jobs".to_owned());
    }
    report.add_all(
        missing.iter().map(|why| CheckLine::unknown(format!("series: not all are counted: {why}"))),
    );
    tokio::time::sleep(BETWEEN).await;
    let second = read_once(config.slurm.clone(), ticks.request())
        .await
        .map_err(|error| anyhow!("{error}"))?;
    let second = ticks.batch(*second)?;
    let prefix = ticks.prefix;
    let below = |path: &str| Some(path.strip_prefix(&prefix)?.strip_prefix('.')?.to_owned());
    let mut paths: BTreeSet<String> =
        tick.points().chain(second.points()).filter_map(|point| below(point.path())).collect();
    complete(config, &mut paths);
    for (level, of) in
        self_metrics::levels(&host(), &config.carbon, &config.collectors.survey_replies())
    {
        paths.extend(of.leaves().iter().map(|leaf| format!("{level}.gauge-{}", leaf.leaf)));
    }
    if let Some((plan, finished)) = plan.zip(finished) {
        let of_jobs = paths_of(plan, finished, tick.timestamp(), &prefix);
        paths.extend(of_jobs.iter().filter_map(|path| below(path)));
    }
    Ok(Series { prefix, below: paths, is_complete: missing.is_empty() })
}

/// The paths of finished jobs, if there were no others than those that ended in the last `window`.
/// A new level comes with its first job.
fn paths_of(plan: Plan, finished: &Finished, now: i64, prefix: &str) -> Vec<String> {
    let mut ledger = FinishedLedger::first("", now.saturating_sub(plan.window));
    let mut round = FinishedRound::new(now, plan.window, plan.levels);
    round.efficiency = plan.efficiency;
    round.add(finished, 0, &ledger);
    let next = ledger.next(round, now, RememberedSpan { seconds: plan.window, ids: usize::MAX });
    ledger.adopt(next);
    finished_paths(ledger.counts(), prefix)
}

/// Adds what is published only later: the mean of RPCs, if there were none between the two
/// readings. A fixed level that has a path gets all its figures. So does each level of slurmdbd's
/// statistics, some of which need a second reading, and of a survey that reports what changed since
/// the last one, such as the waits of jobs that have started; there the fixed levels next to it
/// come too (`waiting` next to `total`).
fn complete(config: &Config, paths: &mut BTreeSet<String>) {
    let rates = paths.iter().filter_map(|path| path.strip_suffix("calls_per_minute"));
    let mut later: BTreeSet<String> =
        rates.map(|level| format!("{level}interval_mean_time")).collect();
    let levels: BTreeSet<&str> =
        paths.iter().filter_map(|path| Some(path.rsplit_once(".gauge-")?.0)).collect();
    for (collector, settings) in config.collectors.enabled() {
        let has_news = collector.replies.contains(&ReplyKind::Jobs);
        let is_whole = has_news || collector.role() == Role::Accounting;
        let documented = collector.levels_with(settings);
        for documented in documented.filter(|level| is_whole || !level.below.contains('<')) {
            let found = levels.iter().filter_map(|level| match fits(documented.below, level) {
                true => Some((*level).to_owned()),
                false => neighbor(documented.below, level).filter(|_| has_news),
            });
            let leaves = documented.leaves();
            later.extend(found.flat_map(|level| {
                leaves
                    .iter()
                    .map(move |leaf| format!("{level}.gauge-{}", leaf.leaf))
                    .collect::<Vec<_>>()
            }));
        }
    }
    paths.append(&mut later);
}

/// Returns the level next to `level` for which `documented`, whose last component is fixed, stands:
/// `slurm_jobs.partition.p.waiting` is next to `slurm_jobs.partition.p.state.running`.
fn neighbor(documented: &str, level: &str) -> Option<String> {
    let (parent, last) = documented.rsplit_once('.').filter(|(_, last)| !last.starts_with('<'))?;
    let shared: Vec<&str> = level.split('.').take(parent.split('.').count()).collect();
    let shared = shared.join(".");
    fits(parent, &shared).then(|| format!("{shared}.{last}"))
}

fn line(series: &Series) -> CheckLine {
    let mut families: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &series.below {
        let counted = families.entry(path.split('.').next().unwrap_or(path)).or_default();
        *counted = counted.saturating_add(1);
    }
    let families: Vec<String> =
        families.iter().map(|(family, count)| format!("{count} {family}")).collect();
    CheckLine::good(format!(
        "series: {}{} now, in each Carbon: {}; {MORE_LATER}",
        if series.is_complete { "" } else { "at least " },
        series.len(),
        families.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(toml: &str, paths: &[&str]) -> BTreeSet<String> {
        let mut paths = paths.iter().map(|path| (*path).to_owned()).collect();
        complete(&Config::parse_valid(toml), &mut paths);
        paths
    }

    #[test]
    fn what_could_not_be_read_makes_the_count_no_more_than_a_least_one() {
        let text = |is_complete| {
            line(&Series { prefix: "p".to_owned(), below: ["a.b".to_owned()].into(), is_complete })
                .text
        };
        assert!(text(true).starts_with("series: 1 now, "), "{}", text(true));
        assert!(text(false).starts_with("series: at least 1 now, "), "{}", text(false));
        let install =
            include_str!("../../../../../docs/install.md").split_whitespace().collect::<Vec<_>>();
        assert!(install.join(" ").contains(MORE_LATER), "install.md has other words");
    }

    #[test]
    fn what_a_survey_has_points_for_only_in_its_second_round_is_counted() {
        let paths = completed(
            "[collectors.jobs]\nenabled = true",
            &[
                "slurm_jobs.total.gauge-jobs",
                "slurm_jobs.partition.p.state.running.gauge-jobs",
                "slurm_rpc_stats.type.X.gauge-count",
            ],
        );
        for path in [
            "waiting.gauge-started_wait_max",
            "partition.p.waiting.gauge-started",
            "total.gauge-records",
        ] {
            assert!(paths.contains(&format!("slurm_jobs.{path}")), "{path} of {paths:#?}");
        }
        assert_eq!(paths.len(), 3 + 20 + 5 + 20 + 1, "and nothing that is off: {paths:#?}");
    }

    #[test]
    fn of_jobs_states_alone_nothing_is_counted_that_never_comes() {
        let paths = completed(
            "[slurm]\nrest = \"unix:/s\"\n[collectors.jobs]\nenabled = true\nstates_only = true",
            &["slurm_jobs.total.gauge-jobs", "slurm_jobs.state.running.gauge-jobs"],
        );
        let leaves: Vec<&str> =
            paths.iter().filter_map(|path| path.strip_prefix("slurm_jobs.")).collect();
        assert_eq!(
            leaves,
            ["state.running.gauge-jobs", "total.gauge-jobs", "total.gauge-unparsed"]
        );
    }

    /// A mean of no cycles has no point in the first ticks of an idle cluster.
    #[test]
    fn a_figure_of_the_ticks_that_has_no_value_yet_is_counted() {
        let paths = completed("", &["slurm_sched_stats.gauge-server_thread_count"]);
        assert!(paths.contains("slurm_sched_stats.gauge-bf_depth_mean"), "{paths:#?}");
        assert!(
            paths.iter().all(|path| path.starts_with("slurm_sched_stats.gauge-")),
            "{paths:#?}"
        );
    }
}
