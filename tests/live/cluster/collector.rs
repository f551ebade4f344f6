//! From the reader to the paths: what a daemon publishes about this cluster, and what that costs
//! slurmctld.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sandbox::daemon::surveys;
use sandbox::{Daemon, Recorded, wait};

use super::cast::Cast;
use super::oracle;
use crate::SOON;

/// For how many seconds slurmctld's own table is watched; there is a survey every two seconds.
const WATCHED: u64 = 10;

/// Compares what a daemon with every collector publishes with Slurm's own commands, on a cluster
/// that does not change.
pub(crate) fn compare(cast: &Cast) -> Result<()> {
    let names =
        ["jobs", "nodes", "partitions", "licenses", "reservations", "associations", "controllers"];
    let collectors = surveys(&names).replace("jobs]\n", "jobs]\nusers = 5\naccounts = 20\n");
    let mut daemon = Daemon::start_surveying(&cast.folder, &cast.slurm.toml(), &collectors)?;
    let expected = expected(cast)?;
    let what = "the figures that squeue and sinfo show";
    let wrong = |recorded: &Recorded| -> Vec<_> {
        let published =
            expected.iter().map(|(path, figure)| (path.clone(), recorded.newest(path), *figure));
        published.filter(|(_, last, figure)| *last != Some(*figure)).collect()
    };
    if daemon.until(what, SOON, |recorded| wrong(recorded).is_empty().then_some(())).is_err() {
        anyhow::bail!("published, and expected: {:?}", wrong(daemon.recorded()?));
    }
    rpcs(cast)?;
    daemon.check_ticks()?;
    let recorded = daemon.recorded()?;
    ensure!(recorded.own("slurmctld_up").values().all(|&up| up > 0.5), "a survey cost a reading");
    daemon.stop()?;
    Ok(())
}

fn expected(cast: &Cast) -> Result<BTreeMap<String, f64>> {
    let mut expected = BTreeMap::new();
    let mut add = |path: &str, figure: u64| -> Result<()> {
        let figure = f64::from(u32::try_from(figure)?);
        expected.insert(format!("cluster.{path}"), figure);
        Ok(())
    };
    let jobs = oracle::jobs(&cast.slurm)?;
    for (state, tally) in oracle::by(&jobs, |job| vec![job["state"].clone()]) {
        let state = state.to_lowercase();
        add(&format!("slurm_jobs.state.{state}.gauge-jobs"), tally.jobs)?;
        add(&format!("slurm_jobs.state.{state}.gauge-cpus"), tally.cpus.unwrap_or(0))?;
    }
    let rows = oracle::nodes(&cast.slurm)?;
    let nodes: BTreeMap<&str, &str> =
        rows.iter().map(|row| (row["nodelist"].as_str(), row["statelong"].as_str())).collect();
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    for state in nodes.values() {
        let state =
            state.to_lowercase().trim_end_matches(|c: char| !c.is_alphanumeric()).to_owned();
        *states.entry(state).or_default() += 1;
    }
    for (state, count) in states.into_iter().filter(|(state, _)| state != "future") {
        add(&format!("slurm_nodes.state.{state}.gauge-nodes"), count)?;
    }
    add("slurm_controllers.primary.gauge-up", 1)?;
    Ok(expected)
}

/// Nothing else is requested: nothing per job or per node, and each reply once per survey.
fn rpcs(cast: &Cast) -> Result<()> {
    // The last once per survey: what PrivateData hides.
    const ALLOWED: &str = "STATS_INFO JOB_INFO NODE_INFO PARTITION_INFO LICENSE_INFO \
        RESERVATION_INFO ASSOC_MGR_INFO PING BUILD_INFO";
    let counts = || -> Result<BTreeMap<String, u64>> {
        Ok(cast.slurm.sdiag()?.by_type.into_iter().map(|row| (row.name, row.count)).collect())
    };
    let (start, before) = (Instant::now(), counts()?);
    wait::pause(Duration::from_secs(WATCHED));
    let after = counts()?;
    let seconds = start.elapsed().as_secs() + 1;
    let grown = |name: &str| {
        let count = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        count(&after).saturating_sub(count(&before))
    };
    for name in ["REQUEST_JOB_INFO", "REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO"] {
        ensure!(grown(name) >= 2, "{name} was asked {} times in {seconds} s", grown(name));
    }
    for name in after.keys() {
        let grown = grown(name);
        // slurmd's own RPCs come at any time.
        let own = "MESSAGE_NODE_REGISTRATION_STATUS MESSAGE_EPILOG_COMPLETE \
            REQUEST_COMPLETE_BATCH_SCRIPT";
        if grown == 0 || own.split(' ').any(|own| own == name) {
            continue;
        }
        let is_this = |ours: &str| name.strip_prefix("REQUEST_") == Some(ours);
        ensure!(ALLOWED.split(' ').any(is_this), "{name} was asked {grown} times");
        let most = if name == "REQUEST_STATS_INFO" { seconds + 3 } else { seconds / 2 + 1 };
        ensure!(grown <= most, "{name} was asked {grown} times in {seconds} s, not {most}");
    }
    Ok(())
}
