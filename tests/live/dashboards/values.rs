//! A target shows what its panel says: the values are computed here from invented points and
//! compared with graphite-web's.

use anyhow::{Context, Result};
use sandbox::grafana::replaced;
use sandbox::{Folder, GraphiteWeb, now, unix_seconds, wait};

use super::alerts::{Curve, always, curve, invent, recent};
use super::dashboards;

/// Dashboard, panel, curve, and the value that it must have now with these points.
const CLAIMS: [(&str, &str, &str, f64); 31] = [
    // 40 of 200 CPUs; three of four GPUs.
    ("overview", "CPUs in use", "cpus", 0.2),
    ("overview", "GPUs in use", "gpus", 0.75),
    // Of 50 nodes two are down and one is failing; five are drained and two draining.
    ("overview", "Nodes out", "down", 3.0),
    ("overview", "Nodes out", "down %", 0.06),
    ("overview", "Nodes out", "drained %", 0.14),
    ("cluster", "Nodes out", "drained %", 0.14),
    ("cluster", "Nodes by state", "not responding", 1.0),
    ("cluster", "Out for a day", "drained", 4.0),
    ("cluster", "Out for a day", "drained %", 0.08),
    // In each round 2 of 10 jobs failed, and one ran out of memory.
    ("overview", "Jobs failing", "failed", 0.3),
    ("jobs", "Share of jobs that failed", "failed", 0.3),
    // Rounds of 10 s.
    ("jobs", "Jobs ended per minute, by state", "failed", 12.0),
    ("jobs", "Jobs per minute", "submitted", 7.0),
    ("jobs", "Use of time limits", "used", 0.25),
    ("jobs", "Use of time limits", "jobs below a tenth", 0.1),
    ("overview", "Partitions by CPUs in use", "long", 60.0),
    ("overview", "Partitions by CPUs in use", "short", 20.0),
    ("cluster", "CPUs in use", "long", 60.0),
    ("overview", "Partitions by pending jobs", "long", 30.0),
    ("overview", "Users by CPUs", "alice", 16.0),
    ("overview", "RPC types by threads kept busy", "REQUEST_JOB_INFO", 0.25),
    ("rpc", "RPC types by threads kept busy", "REQUEST_JOB_INFO", 0.25),
    ("rpc", "RPC time by type", "REQUEST_JOB_INFO", 0.25),
    // 900 s; an hour and a half of two nodes each.
    ("jobs", "Wait so far, pending jobs", "median", 15.0),
    ("cluster", "Mean time to repair", "mean", 1.5),
    // physics: 8 of 10 jobs, 40 of 40 CPUs; biology has no limit; chemistry has 5 of 5 jobs, and
    // nobody waits.
    ("usage", "Running jobs of GrpJobs", "physics", 80.0),
    ("usage", "TRES of GrpTRES", "physics.cpu", 100.0),
    ("usage", "Usage of the share", "physics", 200.0),
    // 20 submitted, 8 running.
    ("usage", "Jobs waiting at an account's limit", "jobs", 12.0),
    ("usage", "Jobs waiting at a QOS's limit", "jobs", 4.0),
    ("usage", "Running jobs of a QOS's GrpJobs", "urgent", 100.0),
];

const CONSTANT: [(&str, f64); 49] = [
    ("slurm_nodes.flag.not_responding.gauge-nodes", 1.0),
    ("slurm_nodes.total.gauge-cpus_allocated", 40.0),
    ("slurm_nodes.total.gauge-cpus_total", 200.0),
    ("slurm_nodes.total.gauge-gpus_allocated", 3.0),
    ("slurm_nodes.total.gauge-gpus_total", 4.0),
    ("slurm_nodes.total.gauge-nodes_total", 50.0),
    ("slurm_nodes.state.down.gauge-nodes", 2.0),
    ("slurm_nodes.state.fail.gauge-nodes", 1.0),
    ("slurm_nodes.state.drained.gauge-nodes", 5.0),
    ("slurm_nodes.state.draining.gauge-nodes", 2.0),
    ("slurm_nodes.state.idle.gauge-nodes", 40.0),
    ("slurm_nodes.drained.gauge-over_1d", 4.0),
    ("slurm_nodes.down.gauge-over_1d", 1.0),
    ("slurm_nodes.events.class.down.gauge-outage_seconds_total", 10_800.0),
    ("slurm_nodes.events.class.down.gauge-ended_timed_total", 2.0),
    ("slurm_jobs.waiting.gauge-wait_p50", 900.0),
    ("slurm_jobs_finished.total.state.failed.gauge-jobs", 2.0),
    ("slurm_jobs_finished.total.state.out_of_memory.gauge-jobs", 1.0),
    ("slurm_jobs_finished.total.state.completed.gauge-jobs", 7.0),
    ("slurm_jobs_finished.total.work.gauge-jobs", 10.0),
    ("slurm_jobs_finished.total.work.gauge-limit_used_seconds", 250.0),
    ("slurm_jobs_finished.total.work.gauge-limit_seconds", 1000.0),
    ("slurm_jobs_finished.total.work.gauge-limit_used_little", 1.0),
    ("slurm_jobs_finished.total.work.gauge-limited", 10.0),
    ("slurm_sched_interval.gauge-jobs_submitted_per_minute", 7.0),
    ("slurm_partitions.long.gauge-cpus_allocated", 60.0),
    ("slurm_partitions.long.gauge-cpus_total", 100.0),
    ("slurm_partitions.short.gauge-cpus_allocated", 20.0),
    ("slurm_partitions.short.gauge-cpus_total", 100.0),
    ("slurm_partitions.long.gauge-jobs_pending", 30.0),
    ("slurm_jobs.user.alice.state.running.gauge-cpus", 16.0),
    ("slurm_rpc_stats.type.REQUEST_JOB_INFO.gauge-time_share", 0.8),
    ("slurm_rpc_stats.type.REQUEST_PING.gauge-time_share", 0.2),
    ("slurm_associations.account.physics.gauge-jobs_running", 8.0),
    ("slurm_associations.account.physics.gauge-submit_jobs", 20.0),
    ("slurm_associations.account.physics.gauge-grp_jobs", 10.0),
    ("slurm_associations.account.physics.tres.cpu.gauge-used", 40.0),
    ("slurm_associations.account.physics.tres.cpu.gauge-grp_tres", 40.0),
    ("slurm_associations.account.physics.gauge-usage_norm", 0.5),
    ("slurm_associations.account.physics.gauge-shares_norm", 0.25),
    ("slurm_associations.account.biology.gauge-jobs_running", 90.0),
    ("slurm_associations.account.biology.gauge-submit_jobs", 900.0),
    ("slurm_associations.account.biology.tres.cpu.gauge-used", 40.0),
    ("slurm_associations.account.chemistry.gauge-jobs_running", 5.0),
    ("slurm_associations.account.chemistry.gauge-submit_jobs", 5.0),
    ("slurm_associations.account.chemistry.gauge-grp_jobs", 5.0),
    ("slurm_associations.qos.urgent.gauge-jobs_running", 6.0),
    ("slurm_associations.qos.urgent.gauge-submit_jobs", 10.0),
    ("slurm_associations.qos.urgent.gauge-grp_jobs", 6.0),
];

/// The targets of a panel, by its dashboard and its title.
fn targets(web: &GraphiteWeb, prefix: &str, dashboard: &str, panel: &str) -> Result<Vec<String>> {
    let dashboard =
        dashboards().into_iter().find(|one| one.name == dashboard).context("no dashboard")?;
    let panel =
        dashboard.panels().into_iter().find(|one| one.title == panel).context("no panel")?;
    let variables = dashboard.opened(web, &[("prefix", prefix)])?;
    panel.targets.iter().map(|target| replaced(target, &variables)).collect()
}

/// The newest value of a curve, by its dashboard, its panel and its name. `from` is in
/// graphite-web's format.
pub(crate) fn shown(
    web: &GraphiteWeb,
    prefix: &str,
    from: &str,
    [dashboard, panel, curve]: [&str; 3],
) -> Result<f64> {
    let (targets, mut names) = (targets(web, prefix, dashboard, panel)?, Vec::new());
    for target in &targets {
        for one in web.render(target, from)? {
            if one.name == curve {
                return one.values().next_back().context("no point");
            }
            names.push(one.name);
        }
    }
    Err(anyhow::anyhow!("no curve but {names:?} in {targets:?}"))
}

#[test]
fn targets_return_the_values_that_their_panels_claim() {
    let folder = Folder::new().unwrap();
    let (carbon, web) = GraphiteWeb::with_carbon(&folder, "10s:2h").unwrap();
    let mut leaves: Vec<(_, Curve)> = CONSTANT.map(|(leaf, value)| (leaf, always(value))).into();
    let moment = now();
    let answered = move |ago: f64| (ago > 195.0).then_some(moment - ago);
    leaves.push(("slurm_sched_stats.gauge-req_time", Box::new(answered)));
    let total = curve(|ago| 1000.0 - ago / 10.0 * 2.0);
    leaves.push(("slurm_jobs_finished.total.state.failed.gauge-jobs_total", total));
    // 2.5 s of RPCs in ten seconds.
    let rpcs = curve(|ago| 1e9 - ago * 250_000.0);
    leaves.push(("slurm_rpc_stats.type.REQUEST_JOB_INFO.gauge-total_time", rpcs));
    // 7,200 CPU-seconds in each round: two CPU-hours.
    let hours = curve(|ago| 1e6 - ago / 10.0 * 7200.0);
    leaves.push(("slurm_jobs_finished.account.physics.work.gauge-cpu_seconds_total", hours));
    invent(&carbon, "claims", recent(), (10, 90), leaves).unwrap();
    let mut wrong = Vec::new();
    let shown =
        |dashboard, panel, curve| shown(&web, "claims", "-10min", [dashboard, panel, curve]);
    for (dashboard, panel, curve, claimed) in CLAIMS {
        match shown(dashboard, panel, curve) {
            Ok(value) if (value - claimed).abs() < 1e-6 * claimed.max(1.0) => {}
            other => wrong.push(format!("{dashboard}, {panel}, {curve}: {other:?}, not {claimed}")),
        }
    }
    assert_eq!(wrong, Vec::<String>::new());

    // The age, accurate to one interval plus the time that the test has taken.
    let age = shown("overview", "Age of data", "age").unwrap();
    let least = 195.0 - 15.0;
    assert!(
        age >= least && age <= now() - moment + 200.0 + 25.0,
        "{age} s, of a response 200 s ago"
    );
    // At a full minute the series of the time has one point more than that of the answers, and then
    // the age was 56 years.
    let target = &targets(&web, "claims", "overview", "Age of data").unwrap()[0];
    let minute = unix_seconds() / 60 * 60;
    let ages = web.render_between(target, (minute - 3600, minute), 400).unwrap();
    assert!(ages[0].values().all(|age| age < 3600.0), "{ages:?}");
    // At some seconds one of the two has no last point yet. Then the age was 0, as if slurmctld had
    // just answered.
    for until in minute - 60..=minute {
        let shown =
            web.render_between(target, (until - 600, until), 400).unwrap()[0].values().next_back();
        assert!(
            shown.is_some_and(|age| (15.0..400.0).contains(&age)),
            "{shown:?} at {until}, the minute is {minute}"
        );
    }
    // 89 rounds, within one hour or two.
    let hours = shown("jobs", "CPU-hours, by account", "physics").unwrap();
    assert!(
        hours > 0.0 && hours <= 178.1 && (hours / 2.0 - (hours / 2.0).round()).abs() < 1e-3,
        "{hours} CPU-hours"
    );
}

/// The list of clusters contains both forms of the prefix, and nothing else that Carbon stores.
#[test]
fn the_list_of_clusters_has_prefixes_of_one_node_and_of_two() {
    let folder = Folder::new().unwrap();
    let (carbon, web) = GraphiteWeb::with_carbon(&folder, "10s:2h").unwrap();
    for prefix in ["cluster", "hpc.alpha", "hpc.beta"] {
        invent(&carbon, prefix, recent(), (10, 90), [("slurm_health.gauge-up", always(1.0))])
            .unwrap();
    }
    invent(&carbon, "collectd.host", recent(), (10, 90), [("load.gauge-up", always(1.0))]).unwrap();
    // The runbook has text alone.
    for dashboard in dashboards().into_iter().filter(|one| one.name != "runbook") {
        let variables = dashboard.json["templating"]["list"].as_array().unwrap().clone();
        let prefix = variables.iter().find(|one| one["name"] == "prefix").unwrap();
        assert_eq!(prefix["query"]["queryType"], "Metric Name Query");
        let target = prefix["query"]["target"].as_str().unwrap();
        let (before, after) = ("/^(.+)", "$/");
        let regex = prefix["regex"].as_str().unwrap();
        let end = regex
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .unwrap()
            .replace('\\', "");
        let find = || -> Result<Vec<String>> {
            let mut names: Vec<String> = web
                .render(target, "-10min")?
                .iter()
                .filter_map(|one| one.name.strip_suffix(&end).map(str::to_owned))
                .collect();
            names.sort();
            Ok(names)
        };
        wait::until("three clusters", wait::LIMIT, || {
            find().is_ok_and(|names| names == ["cluster", "hpc.alpha", "hpc.beta"])
        })
        .unwrap();
    }
}
