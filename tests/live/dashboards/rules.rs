//! The alert rules fire when they should and only then, each for its own cluster.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use sandbox::grafana::Panel;
use sandbox::{Carbon, Folder, GraphiteWeb, command, find_program, output, unix_seconds};
use serde_json::Value;

use super::alerts::{self, Curve, Rule, always, curve, since};
use super::leaves::{
    ACTIVE, AGE, AGENTS, ALL_STARTED, BACKFILL, BACKUP, BUSY, COMPLETED, COUNTED, CYCLES, Curves,
    DBD, DOUBT, DOWN, DRAINED, DRAINING, ENDED, ERRORS, FAILED, HEALTHY, HIDDEN, LOST, MEAN_CYCLE,
    NODES, NOT_LAUNCHED, OUTAGES, OVERFLOW, PENDING, QUEUE, RECORDS, REFUSED, ROLLUP, RPC_TIME,
    SHORT, SKIPPED, STANDBY, STARTED, SUBMITTED, THREADS, TOKEN, TYPES, UNDURABLE, UNPROVED, UP,
    with,
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
    /// Grafana may ask in the second in which a slot begins, before its points have come. A rule
    /// whose functions fill that slot for one series and not for the other would be silent then:
    /// every minute, if Grafana always asks in the same second.
    fn fire(&self, cluster: &str, leaves: Curves) -> Result<BTreeSet<String>> {
        let newest = unix_seconds() / SLOT * SLOT - 1;
        let is_new = !leaves.is_empty();
        let step = u32::try_from(SLOT)?;
        alerts::invent(&self.carbon, cluster, newest as f64, (step, 90), leaves)?;
        let mut firing = BTreeSet::new();
        for rule in &self.rules {
            let fires = rule.fires(&self.web, cluster, newest)?;
            let before_points = rule.fires(&self.web, cluster, newest + SLOT)?;
            ensure!(
                fires == before_points,
                "{}: {fires}, in a slot without points {before_points}",
                rule.uid
            );
            // The verdict is about each moment, a rule about the newest point.
            if is_new {
                self.verdict_agrees(rule, cluster, newest, fires)?;
            }
            if fires {
                firing.insert(rule.name());
            }
        }
        Ok(firing)
    }
}

/// Rules that have no bar of their own in the verdict: the row of slurmctld shows them.
const WITHOUT_BAR: [&str; 2] = ["no-data", "slurmctld"];

impl Court {
    /// The verdict on *Overview* has a bar for the rule at this moment if and only if its condition
    /// is true.
    fn verdict_agrees(&self, rule: &Rule, cluster: &str, at: u64, fires: bool) -> Result<()> {
        if WITHOUT_BAR.contains(&rule.name().as_str()) {
            return Ok(());
        }
        let title = rule.title.split_once(": ").context("no title")?.1;
        let target = verdict(title)?.replace("$prefix", cluster);
        let target = target.replace("carbon.agents.", &format!("{cluster}.agents."));
        let series = self.web.render_between(&target, (at - 300, at), 1000)?;
        let values = series.iter().filter_map(|one| one.values().last());
        let severity = if rule.labels["severity"] == "critical" { 2.0 } else { 1.0 };
        let shown = values.fold(0.0, f64::max);
        ensure!(
            shown == if fires { severity } else { 0.0 },
            "{cluster}: {title}: the condition is {fires}, and the verdict has {shown}"
        );
        Ok(())
    }
}

/// The verdict's target with this name.
fn verdict(title: &str) -> Result<String> {
    let overview = dashboards().into_iter().find(|one| one.name == "overview");
    let panels = overview.context("no Overview")?.panels();
    let panel = panels.into_iter().find(|panel| panel.kind == "state-timeline");
    let ends = [format!(", '{title}')"), format!(", \"{title}\")")];
    let mut targets = panel.context("no verdict")?.targets.into_iter();
    let target = targets.find(|target| ends.iter().any(|end| target.ends_with(end)));
    target.with_context(|| format!("the verdict has no row {title:?}"))
}

/// An ordinary cluster with these differences, in which some things never happened, so that they
/// have no path.
fn young(differences: Vec<(&'static str, Curve)>) -> Curves {
    let mut curves = with(differences);
    curves.retain(|leaf, _| ![COMPLETED, DRAINING, OUTAGES[1], OVERFLOW].contains(leaf));
    curves
}

#[test]
fn alert_rules_fire_when_they_should_and_only_then() {
    let court = Court::open("10s:4h").unwrap();
    let documented = documented().unwrap();
    for path in court.rules.iter().flat_map(|rule| paths_behind(&rule.target, "cluster.")) {
        assert!(documented.has(&path), "{path} is not in docs/metrics.md");
    }
    let quiet = young(vec![
        // The last backfill was long ago, but nothing is pending.
        (BACKFILL, always(9000.0)),
        (PENDING, always(0.0)),
        (QUEUE, always(0.0)),
        (MEAN_CYCLE, always(300_000.0)),
        (BUSY, since(55.0, 0.2, 1.0)),
        // Five jobs at once.
        (NOT_LAUNCHED, since(95.0, 40.0, 45.0)),
        // A burst.
        (AGENTS, since(495.0, 0.0, 3000.0)),
        (DBD, since(60.0, 5000.0, 0.0)),
        (THREADS, since(15.0, 0.3, 1.0)),
        (RPC_TIME, since(15.0, 2000.0, 3e6)),
        // One of a hundred nodes is down, and ten were drained on purpose.
        (NODES, always(100.0)),
        (DOWN, always(1.0)),
        (DRAINED, always(10.0)),
        // All jobs of the hour, but that is only three.
        (FAILED, since(25.0, 0.0, 1.0)),
        (ENDED, since(25.0, 0.0, 1.0)),
        // MaxJobCount is larger here.
        (RECORDS, since(600.0, 14_000.0, 9500.0)),
        // Lost before the quarter of an hour that the rule looks at.
        (LOST, always(500.0)),
        // It has been reading again for 200 s.
        (DOUBT, since(200.0, 1.0, 0.0)),
        (TOKEN, curve(|ago| 5000.0 + ago)),
        (UNDURABLE, always(4.0)),
        (SKIPPED, since(295.0, 7.0, 9.0)),
        // An idle cluster, or one whose database is away.
        (UNPROVED, always(1.0)),
        (ALL_STARTED, always(70.0)),
    ]);
    assert_eq!(court.fire("quiet", quiet).unwrap(), BTreeSet::new());
    let trouble = young(vec![
        (HEALTHY, since(200.0, 1.0, 0.0)),
        (BACKFILL, curve(|ago| 1000.0 - ago)),
        (PENDING, always(40.0)),
        (QUEUE, always(40.0)),
        (STARTED, always(0.0)),
        (CYCLES, always(0.0)),
        (MEAN_CYCLE, always(1_300_000.0)),
        (BUSY, always(0.7)),
        (COUNTED, always(80.0)),
        (NOT_LAUNCHED, curve(|ago| 500.0 - ago / 30.0)),
        (AGENTS, curve(|ago| 2000.0 - ago)),
        (DBD, curve(|ago| 7000.0 - ago)),
        (THREADS, always(0.98)),
        (RPC_TIME, always(2e6)),
        (TYPES, always(100.0)),
        (NODES, always(100.0)),
        (DOWN, always(8.0)),
        (DRAINED, since(195.0, 10.0, 80.0)),
        (OUTAGES[0], since(295.0, 0.0, 6.0)),
        (RECORDS, always(9900.0)),
        (ERRORS, always(1.0)),
        (BACKUP, always(0.0)),
        (FAILED, always(3.0)),
        (ENDED, always(5.0)),
        (ROLLUP, curve(|ago| 8500.0 - ago)),
        (LOST, since(295.0, 0.0, 30.0)),
        (AGE, curve(|ago| 2000.0 - ago)),
        (DOUBT, always(1.0)),
        (TOKEN, curve(|ago| ago - 60.0)),
        (UNDURABLE, since(295.0, 4.0, 5.0)),
        (SHORT, always(1.0)),
        (SKIPPED, since(295.0, 2.0, 9.0)),
        (REFUSED, always(1.0)),
        (HIDDEN, always(1.0)),
        (UNPROVED, always(1.0)),
        (ALL_STARTED, curve(|ago| 70.0 - (ago / 600.0).floor())),
        (STANDBY[0], always(1.0)),
        // The daemon's own figure exists, but has had no point for eleven minutes.
        (UP, Box::new(|ago: f64| (ago > 660.0).then_some(1.0)) as Curve),
    ]);
    assert_eq!(court.fire("trouble", trouble).unwrap(), court.all());
    // If there was never any data, one rule reports it, and not each of the others.
    assert_eq!(
        court.fire("nowhere", Curves::new()).unwrap(),
        BTreeSet::from(["no-data".to_owned()])
    );
}

#[test]
fn no_rule_cries_wolf_or_falls_silent_when_it_is_worst() {
    let court = Court::open("10s:4h").unwrap();
    let fires = |cluster: &str, rule: &str, leaves: Vec<(&'static str, Curve)>| {
        court.fire(cluster, Curves::from_iter(leaves)).unwrap().contains(rule)
    };
    let (zero, one) = (|| always(0.0), || always(1.0));
    // The last backfill cycle began long ago, and one job is pending.
    let backfill = |cluster: &str, [active, queue, submitted, started]: [Curve; 4]| {
        let stands = [(BACKFILL, curve(|ago| 9000.0 - ago)), (PENDING, one())];
        let happens =
            [(ACTIVE, active), (QUEUE, queue), (SUBMITTED, submitted), (STARTED, started)];
        fires(cluster, "backfill", stands.into_iter().chain(happens).collect())
    };
    // A weekend with one held job. Nothing else happens, and slurmctld runs no cycle for it.
    assert!(!backfill("held", [zero(), zero(), zero(), zero()]));
    // That held job while others' jobs arrive and start at once: the main scheduler sees one now
    // and then, backfill never does.
    let now_and_then = curve(|ago| f64::from(ago % 20.0 < 10.0));
    assert!(!backfill("stream", [zero(), now_and_then, one(), one()]));
    // A job that could run, in a cluster in which nothing changes.
    assert!(!backfill("still", [zero(), one(), zero(), zero()]));
    assert!(backfill("stuck", [zero(), one(), one(), zero()]));
    // The cycle that began so long ago is still running: bf_max_time is large.
    assert!(!backfill("long", [one(), one(), one(), zero()]));
    // Nobody waits, and the main scheduler does not run: sched_interval = -1.
    assert!(!fires("rest", "main", vec![(PENDING, zero()), (CYCLES, zero())]));

    // At MaxDBDMsgs the queue no longer grows, and accounting data is discarded. The messages for
    // nodes that are gone stay as many as before.
    let full = vec![
        (DBD, always(10_000.0)),
        ("slurm_health.gauge-dbd_agent_queue_per_minute", zero()),
        (AGENTS, curve(|ago| if ago % 20.0 < 10.0 { 2000.0 } else { 2010.0 })),
        (
            "slurm_health.gauge-agent_queue_per_minute",
            curve(|ago| if ago % 20.0 < 10.0 { -60.0 } else { 60.0 }),
        ),
    ];
    assert!(fires("full", "dbd", full));
    assert!(fires("full", "agents", Vec::new()));

    // The daemons of both controllers publish.
    assert!(fires("both", "follow", vec![(STANDBY[0], zero()), (STANDBY[1], zero())]));

    // From 24.11 on there is no threads_fraction.
    assert!(fires("modern", "rpc-time", vec![(RPC_TIME, always(1.5e6)), (SUBMITTED, one())]));
}

impl Court {
    /// How many seconds before `newest` the verdict's first bar of this title begins.
    fn bar_of(&self, title: &str, cluster: &str, newest: u64) -> Option<u64> {
        let target = verdict(title).unwrap().replace("$prefix", cluster);
        let series = self.web.render_between(&target, (newest - 3500, newest), 1000).unwrap();
        let mut points = series.iter().flat_map(|one| &one.points);
        points.find(|(_, value)| value.is_some_and(|value| value > 0.0)).map(|(at, _)| newest - at)
    }
}

/// A flood at 02:57 had its bar from 03:13 on: a mean of 15 minutes needs most of them.
#[test]
fn a_bar_begins_where_the_trouble_does_and_a_peak_that_ends_has_none() {
    let court = Court::open("10s:4h").unwrap();
    let newest = unix_seconds() / SLOT * SLOT - 1;
    let step = u32::try_from(SLOT).unwrap();
    let cycles = |seconds| {
        vec![(
            MEAN_CYCLE,
            curve(
                move |ago| if ago < 1500.0 && ago >= 1500.0 - seconds { 1.4e6 } else { 50_000.0 },
            ),
        )]
    };
    let waits = |most: f64| vec![(AGE, curve(move |ago| (1500.0 - ago).clamp(0.0, most)))];
    for (cluster, title, leaves, bar) in [
        ("slow", "The main scheduler is slow", cycles(1500.0), Some(1500)),
        ("peak", "The main scheduler is slow", cycles(120.0), None),
        // The first tick that waits is as good as any: an age of 90 s shows that it is no restart.
        ("down", "A Carbon is down", waits(1500.0), Some(1410)),
        ("restart", "A Carbon is down", waits(300.0), None),
    ] {
        alerts::invent(&court.carbon, cluster, newest as f64, (step, 360), leaves).unwrap();
        let begins = court.bar_of(title, cluster, newest);
        let is_near = |bar: u64| begins.is_some_and(|begins| begins.abs_diff(bar) <= 2 * SLOT);
        assert!(bar.map_or(begins.is_none(), is_near), "{cluster}: {begins:?} and not {bar:?}");
    }
}

#[test]
fn two_clusters_are_told_apart_by_title_labels_and_summary() {
    for file in RULES {
        clusters_are_told_apart(file);
    }
}

fn clusters_are_told_apart(file: &str) {
    let folder = Folder::new().unwrap();
    let text = fs::read_to_string(shipped().join(file)).unwrap();
    let file = alerts::json(&folder, &text).unwrap();
    let other = alerts::json(&folder, &for_alpha(&folder, &text).unwrap()).unwrap();
    // In one folder, Grafana before 11.6 allows each title only once, and a group of rules is
    // replaced by another of the same name.
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
        for (rule, cluster, prefix) in
            [(rule, "cluster", "cluster"), (other, "alpha", "cluster.alpha")]
        {
            let start = format!("Slurm {cluster}: ");
            assert!(
                rule.title.starts_with(&start) && rule.summary.starts_with(&start),
                "{}",
                rule.title
            );
            assert_eq!([&rule.labels["cluster"], &rule.labels["prefix"]], [cluster, prefix]);
        }
    }
}

/// As docs/install.md says, too.
#[test]
fn one_command_names_the_data_source_of_all_rules() {
    for file in RULES {
        one_command_names_the_data_source(file);
    }
}

fn one_command_names_the_data_source(file: &str) {
    let folder = Folder::new().unwrap();
    let text = fs::read_to_string(shipped().join(file)).unwrap();
    let name = file.rsplit('/').next().unwrap();
    let comments = text.lines().filter_map(|line| line.strip_prefix('#'));
    let sed = comments.map(str::trim).find(|line| line.starts_with("sed -i ")).unwrap();
    fs::write(folder.path().join(name), &text).unwrap();
    output(
        command(folder.path(), &find_program("sh").unwrap()),
        ["-c", &sed.replace("UID", "mine")],
    )
    .unwrap();
    let changed = fs::read_to_string(folder.path().join(name)).unwrap();
    let rules = alerts::rules(&alerts::json(&folder, &text).unwrap()).unwrap().len();
    for (own, shipped) in
        [("datasourceUid: mine", "datasourceUid: graphite"), ("uid: mine }", "uid: graphite }")]
    {
        let is_rule = |line: &&str| !line.starts_with('#');
        let count = |words: &str| {
            changed.lines().filter(is_rule).filter(|line| line.ends_with(words)).count()
        };
        assert_eq!((count(own), count(shipped)), (rules, 0), "{own}");
    }
    let document = include_str!("../../../docs/install.md");
    assert!(document.contains(sed.strip_suffix(name).unwrap()), "{sed}");
}

/// The shipped rules, each of which must name a panel that exists.
pub(crate) fn shipped_rules(folder: &Folder) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for file in RULES {
        let text = fs::read_to_string(shipped().join(file))?;
        rules.extend(alerts::rules(&alerts::json(folder, &text)?)?);
    }
    let mut panels = BTreeSet::new();
    for dashboard in dashboards() {
        let id = |panel: Panel| {
            Some((dashboard.json["uid"].as_str()?.to_owned(), panel.json["id"].as_u64()?))
        };
        panels.extend(dashboard.panels().into_iter().filter_map(id));
    }
    for rule in &rules {
        ensure!(panels.contains(&rule.panel), "{}: no panel {:?}", rule.title, rule.panel);
    }
    Ok(rules)
}

/// The file for another cluster, made by the commands in its own comments.
fn for_alpha(folder: &Folder, text: &str) -> Result<String> {
    let joined = text.replace("\\\n#", "");
    let mut comments = joined.lines().filter_map(|line| line.strip_prefix('#'));
    let sed = comments.find(|line| line.trim().starts_with("sed -e ")).context("no sed")?;
    fs::write(folder.path().join("rules.in"), text)?;
    let (sed, _) = sed.rsplit_once(' ').context("no file")?;
    let sed = format!("{sed} rules.in");
    output(command(folder.path(), &find_program("sh")?), ["-c", &sed])
}
