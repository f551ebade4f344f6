//! `metrics --count`: how many series this configuration makes on this cluster, before anything is sent.
//!
//! Two readings are made, because some figures need two, and every survey that is enabled is made once. Paths that get
//! points only later are taken from the collectors' documentation. The paths are counted, not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Result, anyhow};
use carbon::MetricNames;
use slurm_snapshot::{Reading, Reply, ReplyKind, Role};

use super::once::Ticks;
use super::stats::whole;
use super::{IMPATIENT, block_on, check, load, print, read_or_advise, start_quiet_log};
use crate::accounting::Plan;
use crate::cli::Options;
use crate::collectors::{Collector, Paths, Start, finished_paths, fits};
use crate::config::Config;
use crate::finished::{FinishedLedger, FinishedRound, RememberedSpan};
use crate::source::Source;

/// What carbon.conf is shipped with: MAX_CREATES_PER_MINUTE.
const SHIPPED_CREATES: usize = 50;

/// Between the two readings; a little over Slurm's own second.
const BETWEEN: Duration = Duration::from_millis(1100);

pub(super) fn count(options: &Options) -> Result<()> {
    let config = load(options)?;
    start_quiet_log(options, &config);
    block_on(async {
        let paths = paths(&config).await?;
        print(&document(&config, &paths))
    })
}

async fn paths(config: &Config) -> Result<BTreeSet<String>> {
    let mut ticks = Ticks::new(config);
    let mut source = Source::start(config.slurm.clone(), IMPATIENT);
    let mut paths = BTreeSet::new();
    for is_first in [true, false] {
        source.ask(ticks.request());
        let reading =
            source.outcome().await.map_err(|error| anyhow!("no reading: {error}\n{}", error.advice()))?;
        let documented = check::paths(config, &reading);
        let mut batch = ticks.batch(*reading)?;
        // What comes of finished jobs depends on where they are read.
        let finished_jobs = format!("{}.slurm_jobs_finished.", ticks.prefix());
        paths.extend(documented.into_iter().filter(|path| !path.starts_with(&finished_jobs)));
        if is_first {
            ticks.survey(&mut batch).await;
            tokio::time::sleep(BETWEEN).await;
        }
        paths.extend(batch.points().map(|point| point.path().to_owned()));
        if is_first && let Some(plan) = Plan::of(config) {
            let now = batch.timestamp();
            let reading =
                read_or_advise(config.slurm.clone(), plan.request(now - plan.window, now, Vec::new()))
                    .await?;
            whole(&reading, ReplyKind::Finished)?;
            paths.extend(finished(plan, &reading, now, ticks.prefix()));
        }
    }
    complete(config, &mut paths);
    Ok(paths)
}

/// The paths of finished jobs, if there were no others than those that ended in the last `window`. A new level comes with its first job.
fn finished(plan: Plan, reading: &Reading, now: i64, prefix: &str) -> Vec<String> {
    let mut ledger = FinishedLedger::first("", now.saturating_sub(plan.window));
    let mut round = FinishedRound::new(now, plan.window, plan.levels);
    round.efficiency = plan.efficiency;
    if let Some(Reply::Finished(finished)) = &reading.reply {
        round.add(finished, 0, &ledger);
    }
    let next = ledger.next(round, now, RememberedSpan { seconds: plan.window, ids: usize::MAX });
    ledger.adopt(next);
    finished_paths(ledger.counts(), prefix)
}

/// Adds what is published only later. A survey of jobs gets all figures of each level that it already has a path at, such as the
/// waits of jobs that start between two rounds, and of the fixed levels next to it (`waiting` next to `total`). slurmdbd's statistics
/// get what needs a second reading.
fn complete(config: &Config, paths: &mut BTreeSet<String>) {
    let has_news = |collector: &Collector| collector.replies.iter().any(|reply| reply.row().tells_news);
    let surveys: Vec<(&Paths, bool)> = config
        .collectors
        .enabled()
        .filter(|(collector, _)| collector.is_survey() && !matches!(collector.start, Start::Finished))
        .map(|(collector, settings)| (collector, settings, has_news(collector)))
        .filter(|(collector, _, has_news)| *has_news || collector.role() == Role::Accounting)
        .flat_map(|(collector, settings, news)| {
            collector.paths_with(settings).iter().map(move |its| (its, news))
        })
        .collect();
    let mut more = BTreeSet::new();
    for path in &*paths {
        let Some((path, _)) = path.rsplit_once(".gauge-") else { continue };
        // A prefix may look like a family.
        for (prefix, below) in path.match_indices("slurm_").filter_map(|(at, _)| path.split_at_checked(at)) {
            for (documented, has_news) in &surveys {
                let beside = |_: &String| *has_news || fits(documented.below, below);
                let Some(level) = level(documented.below, below).filter(beside) else { continue };
                let leaves = documented.leaves.leaves().into_iter();
                more.extend(leaves.map(|leaf| format!("{prefix}{level}.gauge-{}", leaf.leaf)));
            }
        }
    }
    paths.append(&mut more);
}

/// The level of the `documented` that there is where `below` is one.
fn level(documented: &str, below: &str) -> Option<String> {
    if fits(documented, below) {
        return Some(below.to_owned());
    }
    let (parent, last) = documented.rsplit_once('.').filter(|(_, last)| !last.starts_with('<'))?;
    let beside: Vec<&str> = below.split('.').take(parent.split('.').count()).collect();
    let beside = beside.join(".");
    fits(parent, &beside).then(|| format!("{beside}.{last}"))
}

fn document(config: &Config, paths: &BTreeSet<String>) -> String {
    let mut families: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths {
        let family = path.split('.').find(|component| component.starts_with("slurm_")).unwrap_or(path);
        let counted = families.entry(family).or_default();
        *counted = counted.saturating_add(1);
    }
    let total = families.values().fold(0_usize, |sum, more| sum.saturating_add(*more));
    let mut text: String =
        families.iter().map(|(family, series)| format!("{series:>8} {family}\n")).collect();
    let minutes = total.div_ceil(SHIPPED_CREATES);
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "{total:>8} series in all now; new states, users and partitions will add more.\n\n\
         Carbon creates at most MAX_CREATES_PER_MINUTE (carbon.conf) new series a minute, and drops the points of series that\n\
         it has not created yet. With the default of {SHIPPED_CREATES} it needs {minutes} min for these. Raise the limit before the first\n\
         start, or accept that many minutes of holes.\n"
    );
    if config.carbon.iter().any(|to| to.names != MetricNames::Paths) {
        text.push_str("A destination with tags gets the same number of series.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_survey_has_points_for_only_in_its_second_round_is_counted() {
        let config = Config::of("[collectors.jobs]\nenabled = true");
        let seen = |path: &str| format!("cluster.slurm_jobs.{path}");
        let mut paths: BTreeSet<String> = ["total.gauge-jobs", "partition.p.state.running.gauge-jobs"]
            .map(seen)
            .into_iter()
            .chain(["cluster.slurm_rpc_stats.type.X.gauge-count".to_owned()])
            .collect();
        complete(&config, &mut paths);
        for path in
            ["waiting.gauge-started_wait_max", "partition.p.waiting.gauge-started", "total.gauge-records"]
        {
            assert!(paths.contains(&seen(path)), "{path} of {paths:#?}");
        }
        assert_eq!(paths.len(), 3 + 10 + 5 + 10 + 1, "and nothing that is off: {paths:#?}");
    }

    #[test]
    fn of_jobs_states_alone_nothing_is_counted_that_never_comes() {
        let config =
            Config::of("[slurm]\nrest = \"unix:/s\"\n[collectors.jobs]\nenabled = true\nstates_only = true");
        let mut paths: BTreeSet<String> = ["total.gauge-jobs", "state.running.gauge-jobs"]
            .map(|path| format!("cluster.slurm_jobs.{path}"))
            .into();
        complete(&config, &mut paths);
        let leaves: Vec<&str> =
            paths.iter().filter_map(|path| path.strip_prefix("cluster.slurm_jobs.")).collect();
        assert_eq!(leaves, ["state.running.gauge-jobs", "total.gauge-jobs", "total.gauge-unparsed"]);
    }
}
