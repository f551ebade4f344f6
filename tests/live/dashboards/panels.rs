//! `make grafana`: every panel of every dashboard, drawn by Grafana's component library from a real
//! cluster's points, and again when these have stopped.
//!
//! It needs what tests/tools/grafana/build.sh makes, and Chromium, so `make test` leaves it out.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use sandbox::panels::{Drawn, Given, Page, Panels, Part};
use sandbox::{Dashboard, unix_seconds};
use serde_json::json;

use super::live::Worked;
use super::{dashboards, set};

/// The span that is drawn, in seconds: a bit more than [`Worked`] works.
const SPAN: u64 = 60;

/// The series of panels for which this Slurm or the sandbox has none: live.rs invents their points
/// under this prefix.
const INVENTED: &str = "invented";

/// Panels that show only what went wrong, and have no series here.
const GOOD_DAY: [&str; 3] = [
    "cluster, \"Nodes that are down, drained or do not respond\"",
    "collector, \"What was not zero\"",
    "overview, \"Nodes that are down, drained or do not respond\"",
];

/// The mistakes in a panel as it was drawn.
fn problems(drawn: &Drawn) -> Vec<String> {
    let mut wrong = Vec::new();
    if drawn.text.contains("failed:") {
        wrong.push(drawn.text.clone());
    }
    let texts = drawn.canvases.iter().flat_map(|canvas| &canvas.texts).chain([&drawn.text]);
    let odd = ["NaN", "undefined", "null", "Infinity"];
    for text in texts.filter(|text| odd.iter().any(|odd| text.contains(odd))) {
        wrong.push(format!("shows {text:?}"));
    }
    match drawn.kind.as_str() {
        "timeseries" => curves(drawn, &mut wrong),
        "table" => table(drawn, &mut wrong),
        "state-timeline" => bars(drawn, &mut wrong),
        _ => figures(drawn, &mut wrong),
    }
    wrong
        .into_iter()
        .map(|problem| format!("{}, {:?}: {problem}", drawn.kind, drawn.title))
        .collect()
}

/// Each series with points has its line and its name in the legend, and the axis has the unit.
fn curves(drawn: &Drawn, wrong: &mut Vec<String>) {
    let shown: Vec<_> = drawn.series.iter().filter(|series| series.points > 1).collect();
    let lines: usize = drawn.canvases.iter().map(|canvas| canvas.strokes.len()).sum();
    if lines < shown.len() {
        wrong.push(format!("{lines} lines of {} series", shown.len()));
    }
    for series in shown.iter().filter(|series| !drawn.text.contains(&series.name)) {
        wrong.push(format!("{} is not in the legend", series.name));
    }
    if drawn.series.is_empty() {
        return says_no_data(drawn, wrong);
    }
    // The other texts are clock times.
    let values =
        drawn.canvases.iter().flat_map(|canvas| &canvas.texts).filter(|text| !text.contains(':'));
    let values: Vec<&String> = values.collect();
    if values.is_empty() && !shown.is_empty() {
        wrong.push("no axis".to_owned());
    }
    for text in values {
        has_unit(drawn, text, wrong);
    }
}

/// Each series has its line, with its newest value or "no data", nothing is wider than the panel,
/// and there is no empty cell.
fn table(drawn: &Drawn, wrong: &mut Vec<String>) {
    if drawn.series.is_empty() {
        return says_no_data(drawn, wrong);
    }
    if drawn.is_cut {
        wrong.push("has to be scrolled sideways".to_owned());
    }
    for series in &drawn.series {
        let Some(cells) = drawn.cells.iter().find(|cells| cells.first() == Some(&series.name))
        else {
            wrong.push(format!("{} has no line in {:?}", series.name, drawn.cells));
            continue;
        };
        let now = cells.get(1).map_or("", String::as_str);
        match series.last {
            Some(_) => has_unit(drawn, now, wrong),
            None if now.to_lowercase() == "no data" => {}
            None => wrong.push(format!("{} has stopped and shows {now:?}", series.name)),
        }
    }
}

/// Each series has its name and a bar. Its states are words, or nothing.
fn bars(drawn: &Drawn, wrong: &mut Vec<String>) {
    if drawn.series.is_empty() {
        return says_no_data(drawn, wrong);
    }
    for series in drawn.series.iter().filter(|series| !drawn.text.contains(&series.name)) {
        wrong.push(format!("{} is not named in {:?}", series.name, drawn.text));
    }
}

/// A single figure, or one for each series, with its unit; "no data" for those that have stopped.
fn figures(drawn: &Drawn, wrong: &mut Vec<String>) {
    if drawn.series.is_empty() {
        return says_no_data(drawn, wrong);
    }
    let is_total = drawn.calc == "sum";
    let has_stopped =
        |series: &&Given| if is_total { series.points == 0 } else { series.last.is_none() };
    let stopped = drawn.series.iter().filter(has_stopped).count();
    let said = drawn.text.to_lowercase().matches("no data").count();
    if said != stopped {
        wrong.push(format!("{stopped} of {} have stopped: {:?}", drawn.series.len(), drawn.text));
    }
    if stopped < drawn.series.len() && drawn.series.len() > 1 {
        for series in drawn.series.iter().filter(|series| !drawn.text.contains(&series.name)) {
            wrong.push(format!("{} is not named in {:?}", series.name, drawn.text));
        }
    }
    // The lines are those of the title, of names, and of values, which may be words.
    let values = drawn
        .text
        .lines()
        .skip(1)
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    values.for_each(|text| has_unit(drawn, text, wrong));
}

fn says_no_data(drawn: &Drawn, wrong: &mut Vec<String>) {
    if !drawn.text.to_lowercase().contains("no data") {
        wrong.push(format!("without a series: {:?}", drawn.text));
    }
}

/// A number with one of the suffixes of the panel's units.
fn has_unit(drawn: &Drawn, text: &str, wrong: &mut Vec<String>) {
    let number = |c: char| c.is_ascii_digit() || "-.,".contains(c);
    let unit = text.trim_start_matches(number).trim();
    let is_number = text.starts_with(number);
    // Of one minute: "1 min".
    let is_one = |suffix: &str| unit.len() > 2 && suffix.strip_suffix('s') == Some(unit);
    if !is_number || !drawn.suffixes.iter().any(|suffix| suffix == unit || is_one(suffix)) {
        wrong.push(format!("{text:?} is no number in one of {:?}", drawn.suffixes));
    }
}

/// The dashboards with their points; panels that have none with those that were invented for them.
fn pages(worked: &Worked) -> Result<Vec<(Dashboard, Page)>> {
    let invented_at = unix_seconds();
    worked.invented(&dashboards())?;
    let page = |dashboard: &Dashboard, prefix: &str, until: u64| {
        let variables = dashboard.opened(&worked.web, &[("prefix", prefix)])?;
        Page::request(dashboard, &worked.web, &variables, (until - SPAN, until), |_| true)
    };
    let pages = dashboards().into_iter().map(|dashboard| {
        let mut real = page(&dashboard, "cluster", unix_seconds())?;
        let invented = page(&dashboard, INVENTED, invented_at)?;
        for (part, other) in real.parts.iter_mut().zip(invented.parts) {
            if part.series.iter().all(Vec::is_empty) {
                *part = other;
            }
        }
        Ok((dashboard, real))
    });
    pages.collect()
}

/// The page without the later half of its points, as if they had stopped.
fn stopped(page: Page) -> Page {
    page.with_series(|series| {
        let left = series.values().count() / 2;
        let points = series.points.iter_mut().filter(|(_, value)| value.is_some());
        points.skip(left).for_each(|(_, value)| *value = None);
    })
}

#[test]
#[ignore = "it needs npm and Chromium: make grafana"]
fn every_panel_is_drawn_by_grafanas_own_components() {
    let library = std::env::var_os("GRAFANA_PANELS").map(PathBuf::from).unwrap();
    let panels = Panels::find(&library).unwrap();
    let worked = Worked::start().unwrap();
    let (mut wrong, mut empty, mut seen) = (Vec::new(), BTreeSet::new(), 0);
    let pages = pages(&worked).unwrap();
    for (dashboard, page) in &pages {
        for (page, state) in [(page.clone(), "real"), (stopped(page.clone()), "stopped")] {
            for drawn in panels.draw(&worked.sandbox.folder, &page, None).unwrap() {
                seen += 1;
                if drawn.series.is_empty() {
                    empty.insert(format!("{}, {:?}", dashboard.name, drawn.title));
                }
                wrong.extend(
                    problems(&drawn)
                        .iter()
                        .map(|one| format!("{}, {state}: {one}", dashboard.name)),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "of {seen} panels:\n{}", wrong.join("\n"));
    assert!(seen > 200, "only {seen} panels");
    assert_eq!(empty, GOOD_DAY.map(str::to_owned).into(), "panels without a series");
    breaks(&panels, &worked, &pages).unwrap();
}

/// And the check works: it finds one broken panel of each kind, with its points and when they have
/// stopped.
fn breaks(panels: &Panels, worked: &Worked, pages: &[(Dashboard, Page)]) -> Result<()> {
    let broken = [
        (
            "timeseries",
            "/fieldConfig/defaults/unit",
            json!("suffix:parsec"),
            false,
            "is no number in one of",
        ),
        (
            "timeseries",
            "/fieldConfig/defaults/custom/hideFrom",
            json!({ "viz": true, "legend": false, "tooltip": false }),
            false,
            "lines of",
        ),
        ("timeseries", "/options/legend/showLegend", json!(false), false, "is not in the legend"),
        ("stat", "/options/reduceOptions/calcs", json!(["lastNotNull"]), true, "have stopped"),
        ("bargauge", "/options/reduceOptions/calcs", json!(["lastNotNull"]), true, "have stopped"),
        ("table", "/fieldConfig/defaults/mappings", json!([]), true, "NaN"),
        ("table", "/transformations", json!([]), false, "has no line"),
        ("table", "/fieldConfig/defaults/custom/minWidth", json!(700), false, "sideways"),
    ];
    let mut unseen = Vec::new();
    for (kind, pointer, value, is_stopped, words) in broken {
        let is_one =
            |part: &Part| part.panel.kind == kind && part.series.iter().any(|all| !all.is_empty());
        let has_kind = |(_, page): &&(_, Page)| page.parts.iter().any(is_one);
        let (_, page) = pages.iter().find(has_kind).context(kind)?;
        let mut page = if is_stopped { stopped(page.clone()) } else { page.clone() };
        page.parts.retain(is_one);
        page.parts.truncate(2);
        for part in &mut page.parts {
            set(&mut part.panel.json, pointer, value.clone());
        }
        let found = panels
            .draw(&worked.sandbox.folder, &page, None)?
            .iter()
            .flat_map(problems)
            .collect::<Vec<_>>();
        if !found.iter().any(|problem| problem.contains(words)) {
            unseen.push(format!("{kind} with {pointer} = {value}: {words:?} is not in {found:?}"));
        }
    }
    ensure!(unseen.is_empty(), "{}", unseen.join("\n"));
    Ok(())
}
