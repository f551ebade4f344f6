//! graphite-web's own dashboards in config/graphite-web: saved as docs/install.md says, listed,
//! loaded, and every picture drawn, with data and without.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use sandbox::grafana::list;
use sandbox::{Folder, GraphiteWeb};
use serde_json::Value;

use super::alerts::{curve, invent, recent};
use super::live::{named, shipped};
use super::paths::paths_behind;

/// The states, by their file's name without `.json`.
fn states() -> Vec<(String, Value)> {
    let files = fs::read_dir(shipped().join("../graphite-web")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let states = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    states
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap())
        })
        .collect()
}

/// The targets and the address of each picture.
fn pictures(state: &Value) -> Vec<(Vec<String>, String)> {
    let picture = |graph: &Value| {
        let targets = list(&graph[1], "target").filter_map(Value::as_str);
        Some((targets.map(str::to_owned).collect(), graph[2].as_str()?.to_owned()))
    };
    list(state, "graphs")
        .map(|graph| picture(graph).expect("a graph without its address"))
        .collect()
}

/// A PNG for each picture of a saved dashboard, and how many there are.
fn draw(web: &GraphiteWeb, name: &str) -> Result<usize> {
    let loaded = web.request("GET", &format!("/dashboard/load/slurm-{name}"), "")?;
    let loaded: Value = serde_json::from_slice(&loaded)?;
    let pictures = pictures(&loaded["state"]);
    for (_, address) in &pictures {
        let path = format!("{address}&from=-10min&width=700&height=300");
        let png = web.request("GET", &path, "").with_context(|| path.clone())?;
        ensure!(png.starts_with(b"\x89PNG"), "{path}: no picture");
    }
    Ok(pictures.len())
}

#[test]
fn graphite_webs_own_dashboards_are_saved_and_drawn_with_data_and_without() {
    let folder = Folder::new().unwrap();
    let (carbon, web) = GraphiteWeb::with_carbon(&folder, "10s:4h").unwrap();
    let states = states();
    assert!(states.len() >= 6, "only {}", states.len());
    for (name, state) in &states {
        let form = format!("state={}", sandbox::http::encoded(&state.to_string()));
        let path = format!("/dashboard/save/slurm-{name}");
        let saved = web.request("POST", &path, &form).unwrap();
        assert!(String::from_utf8_lossy(&saved).contains("\"success\""), "{name}");
    }
    let found = web.request("GET", "/dashboard/find/?query=slurm", "").unwrap();
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(list(&found, "dashboards").count(), states.len(), "{found}");
    for (name, _) in &states {
        draw(&web, name).unwrap();
    }

    let mut leaves = BTreeSet::new();
    for target in states.iter().flat_map(|(_, state)| pictures(state)).flat_map(|(all, _)| all) {
        leaves.extend(paths_behind(&target, "cluster.").iter().map(|path| named(path, "alpha")));
    }
    let leaves = leaves.into_iter().map(|leaf| (leaf, curve(|ago| 1000.0 - ago)));
    invent(&carbon, "cluster", recent(), (10, 60), leaves).unwrap();
    let (mut drawn, mut empty) = (0, Vec::new());
    for (name, state) in &states {
        drawn += draw(&web, name).unwrap();
        let targets = pictures(state).into_iter().flat_map(|(targets, _)| targets);
        for target in targets.filter(|target| !target.contains("timeShift(")) {
            let series = web.render(&target, "-10min").unwrap();
            if !series.iter().any(|one| one.values().next().is_some()) {
                empty.push(target);
            }
        }
    }
    assert!(drawn > 20, "only {drawn} pictures");
    assert_eq!(empty, Vec::<String>::new());
}

/// A browser builds the addresses of the page's pictures; they are those of the dashboards.
#[test]
fn the_page_has_the_pictures_of_all_dashboards() {
    let page = fs::read_to_string(shipped().join("../graphite-web/slurm.html")).unwrap();
    // They were next to the body, in black on black.
    assert!(page.contains("<body>") && !page.contains("documentElement.append"));
    for (name, state) in states() {
        for (_, address) in pictures(&state) {
            let query = address.strip_prefix("/render?").unwrap();
            assert!(page.contains(query), "{name}: {query}");
        }
    }
}
