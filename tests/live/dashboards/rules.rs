//! The alert rules fire when they should and only then, each for its own cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use sandbox::{Carbon, Folder, GraphiteWeb, command, find_program, output, unix_seconds};
use serde_json::Value;

use super::alerts::{self, Curve, Leaf, Rule};
use super::leaves::{
    ACTIVE, AGE, AGENTS, ALL_STARTED, BACKFILL, CYCLES, DBD, DOUBT, ERRORS, HIDDEN, LOST, NOT_LAUNCHED,
    PENDING, QUEUE, RECORDS, REFUSED, ROLLUP, RPC_TIME, SHORT, SKIPPED, STANDBY, STARTED, SUBMITTED, THREADS,
    TOKEN, UNDURABLE, UNPROVED, UP,
};
use super::live::shipped;
use super::paths::paths_behind;
use super::{RULES, dashboards, documented, is_carbons};

/// Seconds from one point to the next.
const SLOT: u64 = 10;

/// A Carbon for invented points, its graphite-web, and the rules.
pub(crate) struct Court {
    pub(crate) carbon: Carbon,
    pub(crate) web: GraphiteWeb,
    pub(crate) rules: Vec<Rule>,
    _folder: Folder,
}

impl Court {
    pub(crate) fn open(retentions: &str) -> Result<Self> {
        let folder = Folder::new()?;
        let (carbon, web) = GraphiteWeb::with_carbon(&folder, retentions)?;
        let rules = shipped_rules(&folder)?;
        Ok(Self { carbon, web, rules, _folder: folder })
    }

    /// The last parts of the uids of all rules.
    pub(crate) fn all(&self) -> BTreeSet<String> {
        self.rules.iter().map(Rule::name).collect()
    }

    /// The last parts of the uids of the rules that fire for a cluster with these points.
    ///
    /// Grafana may ask in the second in which a slot begins, before its points have come. A rule whose functions fill that slot for one
    /// series and not for the other would be silent then: every minute, if Grafana always asks in the same second.
    fn fire(&self, cluster: &str, leaves: &[Leaf<'_>]) -> Result<BTreeSet<String>> {
        let newest = unix_seconds() / SLOT * SLOT - 1;
        if !leaves.is_empty() {
            let step = u32::try_from(SLOT)?;
            alerts::invent_many(&self.carbon, cluster, newest as f64, (step, 90), leaves)?;
        }
        let mut firing = BTreeSet::new();
        for rule in &self.rules {
            let fires = rule.fires(&self.web, cluster, newest)?;
            let before_points = rule.fires(&self.web, cluster, newest + SLOT)?;
            ensure!(
                fires == before_points,
                "{}: {fires}, in a slot without points {before_points}",
                rule.uid
            );
            if fires {
                firing.insert(rule.name());
            }
        }
        Ok(firing)
    }
}

fn one(_: f64) -> Option<f64> {
    Some(1.0)
}

fn zero(_: f64) -> Option<f64> {
    Some(0.0)
}

#[test]
fn alert_rules_fire_when_they_should_and_only_then() {
    let court = Court::open("10s:4h").unwrap();
    let documented = documented().unwrap();
    for path in court.rules.iter().flat_map(|rule| paths_behind(&rule.target, "cluster.")) {
        assert!(documented.has(&path), "{path} is not in docs/metrics.md");
    }
    let quiet: Vec<Leaf<'_>> = vec![
        (UP, &one),
        ("slurm_health.gauge-up", &one),
        // The last backfill was long ago, but nothing is pending.
        (BACKFILL, &|_| Some(9000.0)),
        (ACTIVE, &zero),
        (PENDING, &zero),
        (QUEUE, &zero),
        (SUBMITTED, &one),
        (STARTED, &one),
        (CYCLES, &one),
        ("slurm_sched_interval.gauge-main_mean_cycle", &|_| Some(300_000.0)),
        ("slurm_sched_interval.gauge-main_busy_fraction", &|ago| Some(if ago < 60.0 { 1.0 } else { 0.2 })),
        ("slurm_sched_interval.gauge-job_states_age", &|ago| Some(ago % 31.0)),
        // Five jobs at once.
        (NOT_LAUNCHED, &|ago| Some(if ago < 100.0 { 45.0 } else { 40.0 })),
        // A burst.
        (AGENTS, &|ago| Some(if ago < 500.0 { 3000.0 } else { 0.0 })),
        (DBD, &|ago| Some(if ago > 60.0 { 5000.0 } else { 0.0 })),
        (THREADS, &|ago| Some(if ago < 20.0 { 1.0 } else { 0.3 })),
        (RPC_TIME, &|ago| Some(if ago < 20.0 { 3e6 } else { 2000.0 })),
        ("slurm_rpc_stats.total.gauge-types", &|_| Some(60.0)),
        ("slurm_rpc_stats.total.gauge-users", &|_| Some(200.0)),
        // One of a hundred nodes is down, and ten were drained on purpose.
        ("slurm_nodes.state.down.gauge-nodes", &one),
        ("slurm_nodes.state.drained.gauge-nodes", &|_| Some(10.0)),
        ("slurm_nodes.events.class.down.gauge-reached", &zero),
        ("slurm_nodes.total.gauge-nodes_total", &|_| Some(100.0)),
        ("slurm_controllers.primary.gauge-up", &one),
        ("slurm_controllers.backup1.gauge-up", &one),
        // All jobs of the hour, but that is only three.
        ("slurm_jobs_finished.total.state.failed.gauge-jobs", &|ago| Some(f64::from(ago < 25.0))),
        ("slurm_jobs_finished.total.work.gauge-jobs", &|ago| Some(f64::from(ago < 25.0))),
        (ROLLUP, &|ago| Some(3500.0 - ago)),
        // MaxJobCount is larger here.
        (RECORDS, &|ago| Some(if ago > 600.0 { 14_000.0 } else { 9500.0 })),
        (ERRORS, &zero),
        // Lost before the quarter of an hour that the rule looks at.
        (LOST, &|_| Some(500.0)),
        (AGE, &zero),
        // It has been reading again for 200 s.
        (DOUBT, &|ago| Some(f64::from(ago > 200.0))),
        (TOKEN, &|ago| Some(5000.0 + ago)),
        (UNDURABLE, &|_| Some(4.0)),
        (SHORT, &zero),
        (SKIPPED, &|ago| Some(if ago < 300.0 { 9.0 } else { 7.0 })),
        (REFUSED, &zero),
        (HIDDEN, &zero),
        // An idle cluster, or one whose database is away.
        (UNPROVED, &one),
        (ALL_STARTED, &|_| Some(70.0)),
        (STANDBY[0], &zero),
        (STANDBY[1], &one),
    ];
    assert_eq!(court.fire("quiet", &quiet).unwrap(), BTreeSet::new());
    let trouble: Vec<Leaf<'_>> = vec![
        ("slurm_health.gauge-up", &|ago| Some(f64::from(ago > 200.0))),
        (BACKFILL, &|ago| Some(1000.0 - ago)),
        (ACTIVE, &zero),
        (PENDING, &|_| Some(40.0)),
        (QUEUE, &|_| Some(40.0)),
        (SUBMITTED, &one),
        (STARTED, &zero),
        (CYCLES, &zero),
        ("slurm_sched_interval.gauge-main_mean_cycle", &|_| Some(1_300_000.0)),
        ("slurm_sched_interval.gauge-main_busy_fraction", &|_| Some(0.7)),
        ("slurm_sched_interval.gauge-job_states_age", &|_| Some(80.0)),
        (NOT_LAUNCHED, &|ago| Some(500.0 - ago / 30.0)),
        (AGENTS, &|ago| Some(2000.0 - ago)),
        (DBD, &|ago| Some(7000.0 - ago)),
        (THREADS, &|_| Some(0.98)),
        (RPC_TIME, &|_| Some(2e6)),
        ("slurm_rpc_stats.total.gauge-types", &|_| Some(100.0)),
        ("slurm_nodes.state.down.gauge-nodes", &|_| Some(8.0)),
        ("slurm_nodes.state.drained.gauge-nodes", &|ago| Some(if ago < 200.0 { 80.0 } else { 10.0 })),
        ("slurm_nodes.events.class.down.gauge-reached", &|ago| Some(if ago < 300.0 { 6.0 } else { 0.0 })),
        (RECORDS, &|_| Some(9900.0)),
        (ERRORS, &one),
        ("slurm_nodes.total.gauge-nodes_total", &|_| Some(100.0)),
        ("slurm_controllers.primary.gauge-up", &one),
        ("slurm_controllers.backup1.gauge-up", &zero),
        ("slurm_jobs_finished.total.state.failed.gauge-jobs", &|_| Some(3.0)),
        ("slurm_jobs_finished.total.work.gauge-jobs", &|_| Some(5.0)),
        (ROLLUP, &|ago| Some(8500.0 - ago)),
        (LOST, &|ago| Some(if ago < 300.0 { 30.0 } else { 0.0 })),
        (AGE, &|ago| Some(2000.0 - ago)),
        (DOUBT, &one),
        (TOKEN, &|ago| Some(ago - 60.0)),
        (UNDURABLE, &|ago| Some(if ago < 300.0 { 5.0 } else { 4.0 })),
        (SHORT, &one),
        (SKIPPED, &|ago| Some(if ago < 300.0 { 9.0 } else { 2.0 })),
        (REFUSED, &one),
        (HIDDEN, &one),
        (UNPROVED, &one),
        (ALL_STARTED, &|ago| Some(70.0 - (ago / 600.0).floor())),
        (STANDBY[0], &one),
        (STANDBY[1], &one),
        // The daemon's own figure exists, but has had no point for eleven minutes.
        (UP, &|ago| (ago > 660.0).then_some(1.0)),
    ];
    assert_eq!(court.fire("trouble", &trouble).unwrap(), court.all());
    // If there was never any data, one rule reports it, and not each of the others.
    assert_eq!(court.fire("nowhere", &[]).unwrap(), BTreeSet::from(["no-data".to_owned()]));
}

#[test]
fn no_rule_cries_wolf_or_falls_silent_when_it_is_worst() {
    let court = Court::open("10s:4h").unwrap();
    let fires =
        |cluster: &str, rule: &str, leaves: &[Leaf<'_>]| court.fire(cluster, leaves).unwrap().contains(rule);
    // The last backfill cycle began long ago, and one job is pending.
    let backfill = |cluster: &str, [active, queue, submitted, started]: [Curve<'_>; 4]| {
        let age = |ago: f64| Some(9000.0 - ago);
        let stands = [(BACKFILL, &age as Curve<'_>), (PENDING, &one)];
        let happens = [(ACTIVE, active), (QUEUE, queue), (SUBMITTED, submitted), (STARTED, started)];
        fires(cluster, "backfill", &[&stands[..], &happens].concat())
    };
    // A weekend with one held job. Nothing else happens, and slurmctld runs no cycle for it.
    assert!(!backfill("held", [&zero, &zero, &zero, &zero]));
    // The same while others' jobs arrive and start at once: the main scheduler sees one now and then, backfill never
    // does.
    assert!(!backfill("stream", [&zero, &|ago| Some(f64::from(ago % 20.0 < 10.0)), &one, &one]));
    // A job that could run, in a cluster in which nothing changes.
    assert!(!backfill("still", [&zero, &one, &zero, &zero]));
    assert!(backfill("stuck", [&zero, &one, &one, &zero]));
    // The cycle that began so long ago is still running: bf_max_time is large.
    assert!(!backfill("long", [&one, &one, &one, &zero]));
    // Nobody waits, and the main scheduler does not run: sched_interval = -1.
    assert!(!fires("rest", "main", &[(PENDING, &zero), (CYCLES, &zero)]));

    // At MaxDBDMsgs the queue no longer grows, and accounting data is discarded. The messages for nodes that are gone
    // stay as many as before.
    let full: [Leaf<'_>; 4] = [
        (DBD, &|_| Some(10_000.0)),
        ("slurm_health.gauge-dbd_agent_queue_per_minute", &zero),
        (AGENTS, &|ago| Some(if ago % 20.0 < 10.0 { 2000.0 } else { 2010.0 })),
        ("slurm_health.gauge-agent_queue_per_minute", &|ago| {
            Some(if ago % 20.0 < 10.0 { -60.0 } else { 60.0 })
        }),
    ];
    assert!(fires("full", "dbd", &full));
    assert!(fires("full", "agents", &[]));

    // The daemons of both controllers publish.
    assert!(fires("both", "follow", &[(STANDBY[0], &zero), (STANDBY[1], &zero)]));

    // From 24.11 on there is no threads_fraction.
    assert!(fires("modern", "rpc-time", &[(RPC_TIME, &|_| Some(1.5e6)), (SUBMITTED, &one)]));
}

#[test]
fn two_clusters_are_told_apart_by_title_labels_and_summary() {
    let folder = Folder::new().unwrap();
    let text = fs::read_to_string(shipped().join(RULES)).unwrap();
    let file = alerts::json(&folder, &text).unwrap();
    let other = alerts::json(&folder, &for_alpha(&folder, &text).unwrap()).unwrap();
    // In one folder, Grafana before 11.6 allows each title only once, and a group of rules is replaced by another of
    // the same name.
    let name = |file: &Value| file["groups"][0]["name"].clone();
    assert_eq!(file["groups"][0]["folder"], other["groups"][0]["folder"]);
    assert_ne!(name(&file), name(&other));
    let (rules, others) = (alerts::rules(&file).unwrap(), alerts::rules(&other).unwrap());
    assert_eq!(rules.len(), others.len());
    let titles: BTreeSet<&String> = rules.iter().chain(&others).map(|rule| &rule.title).collect();
    assert_eq!(titles.len(), rules.len() * 2, "{titles:?}");
    for (rule, other) in rules.iter().zip(&others) {
        assert_eq!(other.uid, format!("alpha-{}", rule.uid));
        assert_eq!((&other.panel, &other.page), (&rule.panel, &rule.page));
        assert_eq!(other.target, rule.target.replace("cluster.slurm_", "cluster.alpha.slurm_"));
        // Carbon is the same for all.
        let is_of_alpha = !paths_behind(&other.target, "cluster.alpha.slurm_").is_empty();
        assert!(is_of_alpha || is_carbons(&other.target), "{}", other.target);
        for (rule, cluster, prefix) in [(rule, "cluster", "cluster"), (other, "alpha", "cluster.alpha")] {
            let start = format!("Slurm {cluster}: ");
            assert!(rule.title.starts_with(&start) && rule.summary.starts_with(&start), "{}", rule.title);
            let label = |name: &str| rule.labels.get(name).cloned();
            assert_eq!(
                (label("cluster").as_deref(), label("prefix").as_deref()),
                (Some(cluster), Some(prefix))
            );
        }
    }
}

/// The shipped rules, each of which must name a panel that exists.
pub(crate) fn shipped_rules(folder: &Folder) -> Result<Vec<Rule>> {
    let text = fs::read_to_string(shipped().join(RULES))?;
    let rules = alerts::rules(&alerts::json(folder, &text)?)?;
    let panels: BTreeMap<String, Vec<u64>> = dashboards()
        .iter()
        .map(|dashboard| {
            let uid = dashboard.json["uid"].as_str().unwrap_or_default().to_owned();
            (uid, dashboard.panels().iter().filter_map(|panel| panel.json["id"].as_u64()).collect())
        })
        .collect();
    for rule in &rules {
        let of_dashboard = panels.get(&rule.panel.0).with_context(|| rule.panel.0.clone())?;
        ensure!(of_dashboard.contains(&rule.panel.1), "{}: no panel {:?}", rule.title, rule.panel);
    }
    Ok(rules)
}

/// The file for another cluster, made by the commands in its own comments.
fn for_alpha(folder: &Folder, text: &str) -> Result<String> {
    let words: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('#')).collect();
    let start = words.iter().position(|line| line.trim().starts_with("sed ")).context("no sed")?;
    let mut sed = String::new();
    for line in words.iter().skip(start) {
        sed += line.trim().trim_end_matches('\\');
        if !line.ends_with('\\') {
            break;
        }
    }
    fs::write(folder.path().join("rules.in"), text)?;
    let sed = sed.replace("slurm-graphite.yaml", "rules.in");
    output(command(folder.path(), &find_program("sh")?), ["-c", &sed])
}
