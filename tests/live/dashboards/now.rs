//! A single large figure is never out of date: when points stop, it shows none, whatever the last one was.

use std::collections::BTreeSet;

use anyhow::Result;
use sandbox::grafana::{Panel, replaced};
use sandbox::{Folder, GraphiteWeb, now};

use super::alerts::{Curve, Leaf, invent};
use super::dashboards;
use super::live::{everything, named};
use super::paths::paths;

/// Seconds from one point to the next: more than a busy machine needs to request everything.
const SLOT: u32 = 300;

/// Panels that show the current state.
fn shown_now() -> Vec<(String, Panel)> {
    let is_now = |panel: &Panel| {
        let calcs = panel.json.pointer("/options/reduceOptions/calcs/0");
        panel.kind == "table" || calcs.is_some_and(|calcs| calcs == "last")
    };
    let all = dashboards();
    let panels = all.iter().flat_map(|one| one.panels().into_iter().map(|panel| (one.name.clone(), panel)));
    panels.filter(|(_, panel)| is_now(panel)).collect()
}

/// What a target shows: the last point of each series, as Grafana's `last` does it.
fn last(web: &GraphiteWeb, target: &str, cluster: &str) -> Result<Vec<Option<f64>>> {
    let series = web.render(&replaced(target, &everything(cluster))?, "-1h")?;
    Ok(series.iter().map(|one| one.points.last().and_then(|(_, value)| *value)).collect())
}

#[test]
fn a_figure_of_a_daemon_that_died_is_no_data_and_not_its_last_value() {
    let folder = Folder::new().unwrap();
    let (carbon, web) = GraphiteWeb::with_carbon(&folder, "300s:1d").unwrap();
    let panels = shown_now();
    let mut leaves = BTreeSet::new();
    for target in panels.iter().flat_map(|(_, panel)| &panel.targets) {
        for path in paths(target) {
            leaves.insert(named(&path, "alpha"));
        }
    }
    // The newest slot is still empty, as it is for most of an interval. req_time is a moment, which has an age.
    let moment = now();
    for (cluster, newest) in [("alive", 5.0), ("dead", 1795.0)] {
        let value = |ago: f64| (ago > newest).then_some(1.0);
        let at = |ago: f64| value(ago).map(|_| moment - ago);
        let curve = |leaf: &str| if leaf.ends_with("gauge-req_time") { &at as Curve<'_> } else { &value };
        let leaves: Vec<Leaf<'_>> = leaves.iter().map(|leaf| (leaf.as_str(), curve(leaf))).collect();
        invent(&carbon, cluster, SLOT, &leaves).unwrap();
    }
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for (dashboard, panel) in &panels {
        for target in &panel.targets {
            // The age of the data keeps growing.
            let is_age = target.contains("timeFunction(");
            for (cluster, expected) in [("alive", true), ("dead", is_age)] {
                let shown = last(&web, target, cluster).unwrap();
                asked += 1;
                if shown.is_empty() && expected || shown.iter().any(|value| value.is_some() != expected) {
                    wrong.push(format!("{dashboard}, {:?}, {cluster}: {target}: {shown:?}", panel.title));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(asked > 60, "only {asked} targets");
}
