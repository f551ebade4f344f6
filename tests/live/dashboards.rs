//! What is in config/grafana is what is made, is sound, and shows what slurm-graphite sends: every target against real data.

mod alerts;
mod live;
mod paths;
mod structure;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use sandbox::{Carbon, Dashboard, Folder, GraphiteWeb, carbon, command, slurm_graphite};
use serde_json::{Value, json};

use self::live::{Worked, shipped};
use self::paths::{Documented, paths};
use self::structure::{UNITS, problems};

const RULES: &str = "alerting/slurm-graphite.yaml";

fn dashboards() -> Vec<Dashboard> {
    Dashboard::all(shipped()).unwrap()
}

fn documented() -> Result<Documented> {
    let folder = Folder::new()?;
    let output = command(folder.path(), &slurm_graphite()?).arg("metrics").output()?;
    ensure!(output.status.success(), "slurm-graphite metrics: {}", output.status);
    Ok(Documented::parse(&String::from_utf8(output.stdout)?))
}

#[test]
fn the_repository_has_what_is_made() {
    let folder = Folder::new().unwrap();
    let made = folder.path().join("made");
    let maker = slurm_graphite().unwrap().with_file_name("dashboards");
    let output = command(folder.path(), &maker).arg(&made).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut files: Vec<String> =
        dashboards().into_iter().map(|dashboard| format!("{}.json", dashboard.name)).collect();
    files.push(RULES.to_owned());
    assert_eq!(files.len(), 6);
    for file in files {
        let (here, there) = (fs::read(shipped().join(&file)).unwrap(), fs::read(made.join(&file)).unwrap());
        assert!(here == there, "{file} is not what is made: run `make dashboards`");
    }
}

#[test]
fn nothing_is_wrong_that_grafana_would_swallow() {
    let mut uids = BTreeSet::new();
    for dashboard in dashboards() {
        assert_eq!(problems(&dashboard), Vec::<String>::new(), "{}", dashboard.name);
        assert!(uids.insert(dashboard.json["uid"].to_string()), "two dashboards with one uid");
    }
}

#[test]
fn the_provider_is_one_that_grafana_reads() {
    let folder = Folder::new().unwrap();
    let text = fs::read_to_string(shipped().join("provisioning/dashboards.yaml")).unwrap();
    let provider = alerts::json(&folder, &text).unwrap();
    assert_eq!(provider["apiVersion"], 1);
    let provider = provider["providers"][0].as_object().unwrap();
    let known =
        ["allowUiUpdates", "disableDeletion", "folder", "name", "options", "type", "updateIntervalSeconds"];
    assert_eq!(Vec::from_iter(provider.keys()), known);
    assert_eq!(provider["options"], json!({ "path": "/usr/share/slurm-graphite/grafana" }));
}

/// A check that sees nothing is worse than none: each of these must be seen.
#[test]
fn one_wrong_letter_is_seen() {
    let good = dashboards().into_iter().find(|dashboard| dashboard.name == "scheduler").unwrap();
    let curves = (0..).find(|index| good.json["panels"][index]["type"] == "timeseries").unwrap();
    let at = |key: &str| format!("/panels/{curves}/{key}");
    let mutations: [(String, Value, &str); 12] = [
        (at("fieldConfig/defaults/unit"), json!("µsec"), "no unit \"µsec\""),
        (at("fieldConfig/defaults/custom"), json!({ "lineWith": 1 }), "no key \"lineWith\""),
        (at("fieldConfig/defaults/thresholds/steps"), json!([]), "thresholds"),
        (at("fieldConfig/overrides/0/matcher/options"), json!("last cycel"), "no curve \"last cycel\""),
        (at("options"), json!({ "legends": {} }), "no key \"legends\""),
        (at("type"), json!("graph"), "no built-in panel \"graph\""),
        (at("id"), json!(1), "the id 1"),
        (at("gridPos/y"), json!(0), "lies on"),
        (at("gridPos/w"), json!(25), "wider than the page"),
        (at("targets/1/refId"), json!("A"), "one refId"),
        (at("targets/0/target"), json!("$perfix.slurm_health.gauge-up"), "no variable $perfix"),
        (at("datasource"), json!({ "type": "graphite", "uid": "mine" }), "a data source"),
    ];
    for (pointer, value, expected) in mutations {
        let mut bad = good.clone();
        *bad.json.pointer_mut(&pointer).unwrap() = value;
        let seen = problems(&bad).join("\n");
        assert!(seen.contains(expected), "{pointer}: {expected:?} is not in what was seen:\n{seen}");
    }
}

#[test]
fn every_curve_is_in_its_unit() {
    let documented = documented().unwrap();
    let (mut told, mut untold) = (0, Vec::new());
    for dashboard in dashboards() {
        assert_eq!(units::problems(&dashboard, &documented), Vec::<String>::new(), "{}", dashboard.name);
        // And it sees what it is there to see: every panel in every unit but its own.
        for (index, panel) in dashboard.json["panels"].as_array().unwrap().iter().enumerate() {
            let Some(unit) = panel.pointer("/fieldConfig/defaults/unit") else { continue };
            for other in UNITS.iter().filter(|other| unit != **other) {
                let mut bad = dashboard.clone();
                bad.json["panels"][index]["fieldConfig"]["defaults"]["unit"] = json!(other);
                if units::problems(&bad, &documented).is_empty() {
                    untold.push(format!("{} in {other}", panel["title"].as_str().unwrap()));
                } else {
                    told += 1;
                }
            }
        }
    }
    assert!(told > 150, "only {told} wrong units");
    // What is counted by the minute is shown either way.
    assert_eq!(
        untold,
        ["RPCs in short", "Calls in short", "Who calls in short", "Cycles per minute in reqpm"]
    );
}

#[test]
fn every_path_is_one_that_is_sent() {
    let documented = documented().unwrap();
    let mut seen = 0;
    for dashboard in dashboards() {
        let panels = dashboard.panels();
        let all = panels.iter().flat_map(|panel| panel.targets.clone());
        for target in all.chain(dashboard.annotations().into_iter().map(|(_, target)| target)) {
            let paths = paths(&target, "$prefix.");
            assert!(!paths.is_empty(), "{target} names no path");
            for path in paths {
                assert!(documented.has(&path), "{}: {path} is not in docs/metrics.md", dashboard.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 120, "only {seen} paths");
    assert!(!documented.has("slurm_health.gauge-upp") && !documented.has("slurm_graphite.gauge-durable"));
}

#[test]
fn every_target_has_points() {
    let worked = Worked::start().unwrap();
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for dashboard in dashboards() {
        let (problems, targets) = worked.problems(&dashboard).unwrap();
        wrong.extend(problems);
        asked += targets;
        assert!(worked.marked(&dashboard).unwrap(), "{}: sdiag --reset is not marked", dashboard.name);
    }
    assert!(wrong.is_empty(), "of {asked} targets {} fail:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked > 200, "only {asked} targets");

    let (problems, excused) = worked.invented(&dashboards()).unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(excused > 5, "only {excused} targets of made-up points");

    // And it sees what it is there to see: a leaf and a function with a letter too many.
    let mut broken = dashboards().into_iter().find(|dashboard| dashboard.name == "rpc").unwrap();
    for (bad, expected) in [
        ("$prefix.slurm_rpc_stats.total.gauge-bussy", "no series"),
        ("sumSerie($prefix.slurm_health.gauge-up)", "400"),
    ] {
        *broken.json.pointer_mut("/panels/0/targets/0/target").unwrap() = json!(bad);
        let (seen, _) = worked.problems(&broken).unwrap();
        assert_eq!(seen.len(), 2, "{bad} is seen under both prefixes: {seen:?}");
        assert!(seen[0].contains(expected), "{seen:?}");
    }
}

#[test]
fn alert_rules_fire_when_they_should_and_only_then() {
    let folder = Folder::new().unwrap();
    let mut carbon = Carbon::spawn(&folder, "carbon", &carbon::Options::default()).unwrap();
    let mut web = GraphiteWeb::spawn(&folder, &carbon).unwrap();
    carbon.process.wait_ready().unwrap();
    let rules = rules(&folder).unwrap();
    let documented = documented().unwrap();
    for path in rules.iter().flat_map(|rule| paths(&rule.target, "cluster.")) {
        assert!(documented.has(&path), "{path} is not in docs/metrics.md");
    }

    let host = "slurm_graphite.head";
    let own = |leaf: &str| format!("{host}.{leaf}");
    let (up, lost, age, doubt, token) = (
        own("gauge-slurmctld_up"),
        own("carbon.c.gauge-points_dropped_age"),
        own("carbon.c.gauge-queue_age"),
        own("carbon.c.gauge-in_doubt"),
        own("gauge-token_expires_in"),
    );
    let (one, zero) = (|_: f64| Some(1.0), |_: f64| Some(0.0));
    let quiet: Vec<alerts::Leaf<'_>> = vec![
        (&up, &one),
        ("slurm_health.gauge-up", &one),
        // Long ago, but nothing is pending.
        ("slurm_sched_interval.gauge-bf_last_cycle_age", &|_| Some(9000.0)),
        ("slurm_sched_stats.gauge-jobs_pending", &zero),
        // A burst: large, and falling.
        ("slurm_health.gauge-agent_queue_per_minute", &|_| Some(-20.0)),
        ("slurm_sched_stats.gauge-agent_queue_size", &|ago| Some(600.0 + ago)),
        ("slurm_health.gauge-dbd_agent_queue_per_minute", &|_| Some(5.0)),
        ("slurm_sched_stats.gauge-dbd_agent_queue_size", &|_| Some(3.0)),
        ("slurm_health.gauge-threads_fraction", &|ago| Some(if ago < 20.0 { 1.0 } else { 0.3 })),
        // Lost before the quarter of an hour that is looked at.
        (&lost, &|_| Some(500.0)),
        (&age, &zero),
        // It reads again since 200 s.
        (&doubt, &|ago| Some(f64::from(ago > 200.0))),
        (&token, &|ago| Some(5000.0 + ago)),
    ];
    alerts::invent(&carbon, "quiet", 10, &quiet).unwrap();
    let trouble: Vec<alerts::Leaf<'_>> = vec![
        ("slurm_health.gauge-up", &|ago| Some(f64::from(ago > 200.0))),
        ("slurm_sched_interval.gauge-bf_last_cycle_age", &|ago| Some(1000.0 - ago)),
        ("slurm_sched_stats.gauge-jobs_pending", &|_| Some(40.0)),
        ("slurm_health.gauge-agent_queue_per_minute", &|_| Some(60.0)),
        ("slurm_sched_stats.gauge-agent_queue_size", &|ago| Some(2000.0 - ago)),
        ("slurm_health.gauge-dbd_agent_queue_per_minute", &|_| Some(60.0)),
        ("slurm_sched_stats.gauge-dbd_agent_queue_size", &|ago| Some(2000.0 - ago)),
        ("slurm_health.gauge-threads_fraction", &|_| Some(0.98)),
        (&lost, &|ago| Some(if ago < 300.0 { 30.0 } else { 0.0 })),
        (&age, &|ago| Some(2000.0 - ago)),
        (&doubt, &one),
        (&token, &|ago| Some(ago - 60.0)),
        // Of the daemon's own figure the file is there, and nothing came in the last eleven minutes.
        (&up, &|ago| (ago > 660.0).then_some(1.0)),
    ];
    alerts::invent(&carbon, "trouble", 10, &trouble).unwrap();
    web.process.wait_ready().unwrap();
    let firing = |prefix: &str| -> BTreeMap<String, bool> {
        rules.iter().map(|rule| (rule.uid.clone(), rule.fires(&web, prefix).unwrap())).collect()
    };
    assert!(firing("quiet").values().all(|fires| !fires), "{:?}", firing("quiet"));
    assert!(firing("trouble").values().all(|fires| *fires), "{:?}", firing("trouble"));
    // Where nothing ever came one rule tells it, and not each of the others.
    let nowhere: Vec<String> =
        firing("nowhere").into_iter().filter(|(_, fires)| *fires).map(|(uid, _)| uid).collect();
    assert_eq!(nowhere, ["slurm-graphite-no-data"]);
}

/// The rules, each with a panel that exists; and what the file's own words make of them for another cluster.
fn rules(folder: &Folder) -> Result<Vec<alerts::Rule>> {
    let text = fs::read_to_string(shipped().join(RULES))?;
    let rules = alerts::rules(&alerts::json(folder, &text)?)?;
    let dashboards = dashboards();
    for rule in &rules {
        let dashboard = dashboards
            .iter()
            .find(|dashboard| dashboard.json.get("uid").is_some_and(|uid| *uid == *rule.panel.0))
            .context("no dashboard")?;
        let panel = dashboard
            .panels()
            .into_iter()
            .find(|panel| panel.json.get("id").is_some_and(|id| *id == rule.panel.1));
        ensure!(panel.is_some(), "{}: no panel {:?}", rule.title, rule.panel);
    }
    let words: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('#')).collect();
    let start = words.iter().position(|line| line.trim().starts_with("sed ")).context("no sed")?;
    let sed = words
        .get(start..start + 2)
        .context("half a sed")?
        .join(" ")
        .replace('\\', "")
        .replace("slurm-graphite.yaml", "rules.in");
    fs::write(folder.path().join("rules.in"), &text)?;
    let output = command(folder.path(), &sandbox::find_program("sh")?).args(["-c", &sed]).output()?;
    let other = alerts::rules(&alerts::json(folder, &String::from_utf8(output.stdout)?)?)?;
    ensure!(other.len() == rules.len(), "sed lost rules");
    for (rule, other) in rules.iter().zip(&other) {
        ensure!(other.uid == format!("alpha-{}", rule.uid) && other.panel == rule.panel, "{}", other.uid);
        ensure!(
            other.target == rule.target.replace("cluster.slurm_", "cluster.alpha.slurm_"),
            "{}",
            other.target
        );
        ensure!(!paths(&other.target, "cluster.alpha.slurm_").is_empty(), "{}", other.target);
    }
    Ok(rules)
}
