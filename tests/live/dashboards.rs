//! The files in config/grafana are generated, valid, and show what slurm-graphite sends: every
//! target is tested with real data.

mod alerts;
mod days;
mod graphite_web;
mod leaves;
mod live;
mod now;
mod panels;
mod paths;
mod rules;
mod runbook;
mod states;
mod structure;
mod units;
mod usage;
mod values;

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;
use sandbox::{Dashboard, Folder, command, output, printed, slurm_graphite};
use serde_json::{Value, json};

use self::live::{Worked, shipped};
use self::paths::{Documented, paths};
use self::structure::{UNITS, problems};

/// The rules about Slurm, and those about slurm-graphite itself.
const RULES: [&str; 2] = ["alerting/slurm.yaml", "alerting/slurm-graphite.yaml"];

fn dashboards() -> Vec<Dashboard> {
    Dashboard::all(shipped()).unwrap()
}

/// Whether a target is about Carbon's own figures, which have no prefix.
fn is_carbons(target: &str) -> bool {
    target.contains("(carbon.agents.")
}

fn documented() -> Result<Documented> {
    let folder = Folder::new()?;
    Ok(Documented::parse(&printed(&folder, &["metrics", "--format", "tsv"])?))
}

#[test]
fn the_repository_has_what_is_made() {
    let folder = Folder::new().unwrap();
    let made = folder.path().join("grafana");
    let maker = slurm_graphite().unwrap().with_file_name("dashboards");
    output(command(folder.path(), &maker), [&made]).unwrap();
    let mut files: Vec<String> =
        dashboards().into_iter().map(|dashboard| format!("{}.json", dashboard.name)).collect();
    files.extend(RULES.map(str::to_owned));
    assert_eq!(files.len(), 10);
    let web = fs::read_dir(shipped().join("../graphite-web")).unwrap();
    let web = web.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    files.extend(web.map(|name| format!("../graphite-web/{name}")));
    assert!(files.len() > 15, "{files:?}");
    for file in files {
        let (here, there) =
            (fs::read(shipped().join(&file)).unwrap(), fs::read(made.join(&file)).unwrap());
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
    let known = [
        "allowUiUpdates",
        "disableDeletion",
        "folder",
        "name",
        "options",
        "type",
        "updateIntervalSeconds",
    ];
    assert_eq!(Vec::from_iter(provider.keys()), known);
    assert_eq!(provider["options"], json!({ "path": "/usr/share/slurm-graphite/grafana" }));
    let text = fs::read_to_string(shipped().join("provisioning/datasources.yaml")).unwrap();
    let sources = alerts::json(&folder, &text).unwrap();
    assert_eq!(sources["apiVersion"], 1);
    let source = sources["datasources"][0].as_object().unwrap();
    assert_eq!(Vec::from_iter(source.keys()), ["access", "jsonData", "name", "type", "uid", "url"]);
    assert_eq!(
        [&source["type"], &source["uid"]],
        ["graphite", "graphite"],
        "the alert rules name it"
    );
}

/// A check that finds nothing is worse than none: it must find each of these mistakes.
#[test]
fn one_wrong_letter_is_seen() {
    let good = dashboards().into_iter().find(|dashboard| dashboard.name == "scheduler").unwrap();
    // Its legend has five curves.
    let curves = (0..).find(|index| good.json["panels"][index]["type"] == "timeseries").unwrap();
    let at = |key: &str| format!("/panels/{curves}/{key}");
    let closed = (0..).find(|index| good.json["panels"][index]["collapsed"] == true).unwrap();
    let needs = format!("/panels/{closed}/panels/0/fieldConfig/defaults/noValue");
    let tile = (0..).find(|index| good.json["panels"][index]["type"] == "stat").unwrap();
    let of_tile = |key: &str| format!("/panels/{tile}/{key}");
    let mutations: [(String, Value, &str); 21] = [
        (needs, json!("Controllers."), "does not say what it needs"),
        (of_tile("options/reduceOptions/calcs/0"), json!("lastNotNull"), "an old value"),
        (
            of_tile("targets/0/target"),
            json!("alias($prefix.x, 'y')"),
            "nothing while the newest slot",
        ),
        (of_tile("fieldConfig/defaults/mappings"), json!([]), "does not tell no data"),
        (of_tile("fieldConfig/defaults/links"), json!([]), "a tile that leads nowhere"),
        (at("options/legend/placement"), json!("below"), "hides curves"),
        (at("fieldConfig/defaults/custom/spanNulls"), json!(300_000), "a line through outages"),
        (at("fieldConfig/defaults/custom/thresholdsStyle"), json!({ "mode": "off" }), "not drawn"),
        (
            at("fieldConfig/defaults/links"),
            json!([{ "url": "/d/slurm-graphite-rpc" }]),
            "forgets something",
        ),
        (at("fieldConfig/defaults/unit"), json!("µsec"), "no unit \"µsec\""),
        (at("fieldConfig/defaults/custom"), json!({ "lineWith": 1 }), "no key \"lineWith\""),
        (at("fieldConfig/defaults/thresholds/steps"), json!([]), "thresholds"),
        (
            at("fieldConfig/overrides/0/matcher/options"),
            json!("last cycel"),
            "no curve \"last cycel\"",
        ),
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
        set(&mut bad.json, &pointer, value);
        let seen = problems(&bad).join("\n");
        assert!(
            seen.contains(expected),
            "{pointer}: {expected:?} is not in what was seen:\n{seen}"
        );
    }
}

/// Sets a member, which need not exist yet.
fn set(json: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match json.pointer_mut(parent).unwrap() {
        Value::Object(map) => drop(map.insert(key.to_owned(), value)),
        list => list[key.parse::<usize>().unwrap()] = value,
    }
}

#[test]
fn every_curve_is_in_its_unit() {
    let documented = documented().unwrap();
    let (mut told, mut untold) = (0, BTreeSet::new());
    let all = dashboards();
    for (name, mut panel) in
        all.iter().flat_map(|one| one.panels().into_iter().map(|panel| (&one.name, panel)))
    {
        assert_eq!(units::problems(&panel, &documented), Vec::<String>::new(), "{name}");
        // And the check works: it finds every panel if its unit is any other than its own.
        let Some(unit) = panel.json.pointer("/fieldConfig/defaults/unit").cloned() else {
            continue;
        };
        // Two ways to write a number of things.
        let same = |unit: &str| unit.replace("locale", "short");
        for other in UNITS.iter().filter(|other| same(unit.as_str().unwrap()) != same(other)) {
            set(&mut panel.json, "/fieldConfig/defaults/unit", json!(other));
            if units::problems(&panel, &documented).is_empty() {
                untold.insert(format!("{} in {other}", panel.title));
            } else {
                told += 1;
            }
        }
    }
    assert!(told > 400, "only {told} wrong units");
    // A count per minute, a fraction and a number of threads may be shown in either unit.
    let either = [
        "Calls in locale",
        "Calls in short",
        "Cycles per minute in reqpm",
        "Jobs not launched in reqpm",
        "Jobs per minute in reqpm",
        "Jobs started by backfill in reqpm",
        "Level of fairshare, by account in percentunit",
        "Part of the usage, by account in short",
        "RPC time by type in short",
        "RPC types by threads kept busy in suffix:threads",
        "RPCs by user in locale",
        "RPCs by user in short",
        "RPCs in locale",
        "RPCs in short",
        "Started per minute in reqpm",
        "Users by threads kept busy in suffix:threads",
        "Users with the lowest fairshare in percentunit",
        "slurmdbd: calls in locale",
        "slurmdbd: calls in short",
    ];
    assert_eq!(untold.iter().map(String::as_str).collect::<Vec<_>>(), either);
}

#[test]
fn every_path_is_one_that_is_sent() {
    let documented = documented().unwrap();
    let mut seen = 0;
    for dashboard in dashboards() {
        let panels = dashboard.panels();
        let all = panels.iter().flat_map(|panel| panel.targets.clone());
        for target in all.chain(dashboard.annotations().into_iter().map(|(_, target)| target)) {
            let paths = paths(&target);
            assert!(!paths.is_empty() || is_carbons(&target), "{target} names no path");
            for path in paths {
                assert!(
                    documented.has(&path),
                    "{}: {path} is not in docs/metrics.md",
                    dashboard.name
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 120, "only {seen} paths");
    assert!(
        !documented.has("slurm_health.gauge-upp")
            && !documented.has("slurm_graphite.gauge-durable")
    );
}

#[test]
fn every_target_has_points() {
    let worked = Worked::start().unwrap();
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for dashboard in dashboards() {
        let (problems, targets) = worked.problems(&dashboard).unwrap();
        wrong.extend(problems);
        asked += targets;
        // The runbook has text alone.
        let marked = targets == 0 || worked.marked(&dashboard).unwrap();
        assert!(marked, "{}: sdiag --reset is not marked", dashboard.name);
    }
    assert!(wrong.is_empty(), "of {asked} targets {} fail:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked > 200, "only {asked} targets");

    let (empty, asked) = worked.empty_as_shipped(&dashboards()).unwrap();
    assert_eq!(empty, Vec::<String>::new(), "of {asked} targets of open panels");
    assert!(asked > 60, "only {asked} targets of open panels");

    let rules = rules::shipped_rules(&worked.sandbox.folder).unwrap();
    let refused = worked.refused(&dashboards(), &rules).unwrap();
    assert!(refused.is_empty(), "{}:\n{}", refused.len(), refused.join("\n"));

    let (uneven, counted) = worked.uneven(&dashboards()).unwrap();
    assert!(uneven.is_empty(), "{}:\n{}", uneven.len(), uneven.join("\n"));
    assert!(counted > 12, "only {counted} targets count");
    // And the check works: a mean of what is merged is found.
    let mut merged = dashboards().into_iter().find(|one| one.name == "collector").unwrap();
    merged.json = merged.json.to_string().replace("'sum'", "'average'").parse().unwrap();
    let (uneven, counted) = worked.uneven(&[merged]).unwrap();
    assert!(uneven.len() > counted / 2, "{} of {counted} are found", uneven.len());

    let (problems, excused) = worked.invented(&dashboards()).unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(excused > 5, "only {excused} targets of made-up points");

    // And the check works: it finds a leaf and a function with one letter too many.
    let mut broken = dashboards().into_iter().find(|dashboard| dashboard.name == "rpc").unwrap();
    for (bad, word, expected) in [
        ("$prefix.slurm_rpc_stats.total.gauge-bussy", "bussy", "no series"),
        ("sumSerie($prefix.slurm_health.gauge-up)", "sumSerie", "400"),
    ] {
        *broken.json.pointer_mut("/panels/0/targets/0/target").unwrap() = json!(bad);
        let (mut seen, _) = worked.problems(&broken).unwrap();
        // A message of a type that is new has no points yet.
        seen.retain(|problem| problem.contains(word));
        assert!(seen.len() >= 2, "{bad} is seen under both prefixes: {seen:?}");
        assert!(seen[0].contains(expected), "{seen:?}");
    }
}
