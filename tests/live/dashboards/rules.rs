//! The alert rules fire when they should and only then, each for its own cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use sandbox::{Carbon, Folder, GraphiteWeb, carbon, command, unix_seconds};
use serde_json::Value;

use super::alerts::{self, Leaf, Rule};
use super::live::shipped;
use super::paths::paths_behind;
use super::{RULES, dashboards, documented, is_carbons};

/// Seconds from one point to the next.
const SLOT: u64 = 10;

/// A Carbon for invented points, its graphite-web, and the rules.
struct Court {
    _folder: Folder,
    carbon: Carbon,
    web: GraphiteWeb,
    rules: Vec<Rule>,
}

impl Court {
    fn open() -> Result<Self> {
        let folder = Folder::new()?;
        let schemas = "[everything]\npattern = .*\nretentions = 10s:4h\n".to_owned();
        let options = carbon::Options { schemas, ..carbon::Options::default() };
        let mut carbon = Carbon::spawn(&folder, "carbon", &options)?;
        let web = GraphiteWeb::spawn(&folder, &carbon)?;
        carbon.process.wait_ready()?;
        let rules = shipped_rules(&folder)?;
        Ok(Self { _folder: folder, carbon, web, rules })
    }

    /// The last parts of the uids of the rules that fire for a cluster with these points.
    ///
    /// Grafana may ask in the second in which a slot begins, before its points have come. A rule whose functions fill that slot for one
    /// series and not for the other would be silent then: every minute, if Grafana always asks in the same second.
    fn fire(&mut self, cluster: &str, leaves: &[Leaf<'_>]) -> Result<BTreeSet<String>> {
        let newest = unix_seconds() / SLOT * SLOT - 1;
        if !leaves.is_empty() {
            let step = u32::try_from(SLOT)?;
            alerts::invent_many(&self.carbon, cluster, newest as f64, (step, 90), leaves)?;
        }
        self.web.process.wait_ready()?;
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
                firing.insert(rule.uid.replace("slurm-graphite-", ""));
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

const UP: &str = "slurm_graphite.head.gauge-slurmctld_up";
const LOST: &str = "slurm_graphite.head.carbon.c.gauge-points_dropped_age";
const AGE: &str = "slurm_graphite.head.carbon.c.gauge-queue_age";
const DOUBT: &str = "slurm_graphite.head.carbon.c.gauge-in_doubt";
const TOKEN: &str = "slurm_graphite.head.gauge-token_expires_in";
const UNDURABLE: &str = "slurm_graphite.head.queue.gauge-undurable";
const SHORT: &str = "slurm_graphite.head.queue.gauge-window_short";
const SKIPPED: &str = "slurm_graphite.head.gauge-ticks_skipped";
const REFUSED: &str = "slurm_graphite.head.gauge-reload_refused";
const HIDDEN: &str = "slurm_graphite.head.reply.jobs.gauge-hidden";
const UNPROVED: &str = "slurm_jobs_finished.reading.gauge-unproved";
const ALL_STARTED: &str = "slurm_sched_stats.gauge-jobs_started";
const STANDBY: [&str; 2] = ["slurm_graphite.head.gauge-standby", "slurm_graphite.backup.gauge-standby"];
const PENDING: &str = "slurm_sched_stats.gauge-jobs_pending";
const QUEUE: &str = "slurm_sched_stats.gauge-main_last_queue_length";
const BACKFILL: &str = "slurm_sched_interval.gauge-bf_last_cycle_age";
const SUBMITTED: &str = "slurm_sched_interval.gauge-jobs_submitted_per_minute";
const STARTED: &str = "slurm_sched_interval.gauge-jobs_started_per_minute";
const CYCLES: &str = "slurm_sched_interval.gauge-main_cycles";
const AGENTS: &str = "slurm_sched_stats.gauge-agent_queue_size";
const DBD: &str = "slurm_sched_stats.gauge-dbd_agent_queue_size";
const ROLLUP: &str = "slurm_slurmdbd.rollup.hour.gauge-age";
const RPC_TIME: &str = "slurm_rpc_stats.total.gauge-interval_mean_time";
const NOT_LAUNCHED: &str = "slurm_sched_stats.gauge-jobs_failed";
const RECORDS: &str = "slurm_jobs.total.gauge-records";
const ERRORS: &str = "agents.carbon-a.errors";
const ACTIVE: &str = "slurm_sched_stats.gauge-bf_active";
const THREADS: &str = "slurm_health.gauge-threads_fraction";

#[test]
fn alert_rules_fire_when_they_should_and_only_then() {
    let mut court = Court::open().unwrap();
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
    let all: BTreeSet<String> =
        court.rules.iter().map(|rule| rule.uid.replace("slurm-graphite-", "")).collect();
    assert_eq!(court.fire("trouble", &trouble).unwrap(), all);
    // If there was never any data, one rule reports it, and not each of the others.
    assert_eq!(court.fire("nowhere", &[]).unwrap(), BTreeSet::from(["no-data".to_owned()]));
}

#[test]
fn no_rule_cries_wolf_or_falls_silent_when_it_is_worst() {
    let mut court = Court::open().unwrap();
    let mut fires = |cluster: &str, rule: &str, leaves: &[Leaf<'_>]| {
        let firing = court.fire(cluster, leaves).unwrap();
        firing.contains(rule)
    };
    let age = |ago: f64| Some(9000.0 - ago);
    // A weekend with one held job. Nothing else happens, and slurmctld runs no cycle for it.
    let held: [Leaf<'_>; 6] = [
        (BACKFILL, &age),
        (ACTIVE, &zero),
        (PENDING, &one),
        (QUEUE, &zero),
        (SUBMITTED, &zero),
        (STARTED, &zero),
    ];
    assert!(!fires("held", "backfill", &held));
    // The same while others' jobs arrive and start at once: the main scheduler sees one now and then, backfill never
    // does.
    let stream: [Leaf<'_>; 6] = [
        (BACKFILL, &age),
        (ACTIVE, &zero),
        (PENDING, &one),
        (QUEUE, &|ago| Some(f64::from(ago % 20.0 < 10.0))),
        (SUBMITTED, &one),
        (STARTED, &one),
    ];
    assert!(!fires("stream", "backfill", &stream));
    // A job that could run, in a cluster in which nothing changes.
    let still: [Leaf<'_>; 6] = [
        (BACKFILL, &age),
        (ACTIVE, &zero),
        (PENDING, &one),
        (QUEUE, &one),
        (SUBMITTED, &zero),
        (STARTED, &zero),
    ];
    assert!(!fires("still", "backfill", &still));
    let stuck: [Leaf<'_>; 6] = [
        (BACKFILL, &age),
        (ACTIVE, &zero),
        (PENDING, &one),
        (QUEUE, &one),
        (SUBMITTED, &one),
        (STARTED, &zero),
    ];
    assert!(fires("stuck", "backfill", &stuck));
    // The cycle that began so long ago is still running: bf_max_time is large.
    let long: [Leaf<'_>; 6] = [
        (BACKFILL, &age),
        (ACTIVE, &one),
        (PENDING, &one),
        (QUEUE, &one),
        (SUBMITTED, &one),
        (STARTED, &zero),
    ];
    assert!(!fires("long", "backfill", &long));
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
    let output = command(folder.path(), &sandbox::find_program("sh")?).args(["-c", &sed]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
