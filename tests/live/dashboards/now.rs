//! A single large figure is never out of date: when points stop, it shows none, whatever the last
//! one was.

use std::collections::BTreeSet;

use anyhow::Result;
use sandbox::grafana::{Panel, Variables, replaced};
use sandbox::{Dashboard, Folder, GraphiteWeb, now};

use super::alerts::{Curve, invent, recent};
use super::dashboards;
use super::live::{is_rare, named};
use super::paths::paths;

/// Seconds from one point to the next: more than a busy machine needs to request everything.
const SLOT: u32 = 300;

/// Panels that show the current state.
fn shown_now() -> Vec<(Dashboard, Panel)> {
    let is_now = |panel: &Panel| {
        let calcs = panel.json.pointer("/options/reduceOptions/calcs/0");
        panel.kind == "table" || calcs.is_some_and(|calcs| calcs == "last")
    };
    let all = dashboards();
    let panels =
        all.iter().flat_map(|one| one.panels().into_iter().map(|panel| (one.clone(), panel)));
    panels.filter(|(_, panel)| is_now(panel)).collect()
}

/// The values that a target shows: the last point of each series, as Grafana's `last` does it.
fn last(web: &GraphiteWeb, target: &str, variables: &Variables) -> Result<Vec<Option<f64>>> {
    let series = web.render(&replaced(target, variables)?, "-1h")?;
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
    // The newest slot is still empty, as it is for most of an interval. req_time is a moment, which
    // has an age.
    let moment = now();
    for (cluster, newest) in [("alive", 5.0), ("dead", 1795.0)] {
        let leaves = leaves.iter().map(|leaf| {
            let is_moment = leaf.ends_with("gauge-req_time");
            let value = move |ago: f64| if is_moment { moment - ago } else { 1.0 };
            (leaf, Box::new(move |ago: f64| (ago > newest).then(|| value(ago))) as Curve)
        });
        invent(&carbon, cluster, recent(), (SLOT, 90), leaves).unwrap();
    }
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for (dashboard, panel) in &panels {
        for target in panel.targets.iter().filter(|target| !is_rare(target)) {
            // The age of the data keeps growing.
            let is_age = target.contains("timeFunction(");
            for (cluster, expected) in [("alive", true), ("dead", is_age)] {
                let variables = dashboard.opened(&web, &[("prefix", cluster)]).unwrap();
                let shown = last(&web, target, &variables).unwrap();
                asked += 1;
                if shown.is_empty() && expected
                    || shown.iter().any(|value| value.is_some() != expected)
                {
                    wrong.push(format!(
                        "{}, {:?}, {cluster}: {target}: {shown:?}",
                        dashboard.name, panel.title
                    ));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(asked > 60, "only {asked} targets");
}
