//! Rules, docs/runbook.md and the thresholds in docs/metrics.md agree: each rule has a page, each
//! page has a rule, and each documented threshold is watched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sandbox::Folder;
use sandbox::grafana::Panel;

use super::dashboards;
use super::paths::paths_behind;
use super::rules::shipped_rules;

/// Metrics whose meaning names a threshold that no rule watches, and why.
const UNWATCHED: [(&str, &str); 12] = [
    (
        "agent_queue_per_minute",
        "the rule watches agent_queue_size, which goes on telling when the queue grows no more",
    ),
    ("bf_busy_fraction", "usual on a large cluster; the Scheduler dashboard draws the threshold"),
    ("bf_coverage", "usual on a large cluster; the Scheduler dashboard has the curve"),
    ("bf_last_cycle_when", "bf_last_cycle_age is the same as an age"),
    (
        "count",
        "pending_total.count is agent_queue_size, by type; why cycles end is a matter of tuning",
    ),
    ("dbd_agent_queue_per_minute", "the rule watches dbd_agent_queue_size"),
    ("jobs_started_per_minute", "that the queue grows is the users' business"),
    ("level_fs", "that an account has had its share is no fault"),
    ("main_cycles_per_minute", "main_cycles is watched"),
    ("seconds_since_reading", "up is watched"),
    ("unparsed", "a figure is incomplete, and nothing is broken; the log tells it"),
    ("users", "with more than 200 users the table is always full; the RPC load dashboard says so"),
];

fn document(name: &str) -> String {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(name);
    fs::read_to_string(&file).unwrap()
}

/// The sections of the runbook, by title.
fn pages() -> BTreeMap<String, String> {
    let text = document("runbook.md");
    let sections = text.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    sections.map(|(title, body)| (title.to_owned(), body.to_owned())).collect()
}

/// The panels of the dashboard *Runbook*: titles and texts by id.
fn panels_of_the_runbook() -> BTreeMap<u64, (String, String)> {
    let dashboard = dashboards().into_iter().find(|one| one.name == "runbook").unwrap();
    let page = |panel: Panel| {
        let text = panel.json["options"]["content"].as_str().unwrap().to_owned();
        (panel.json["id"].as_u64().unwrap(), (panel.title, text))
    };
    dashboard.panels().into_iter().map(page).collect()
}

#[test]
fn every_rule_has_its_page_and_every_page_its_rule() {
    let folder = Folder::new().unwrap();
    let rules = shipped_rules(&folder).unwrap();
    let pages = pages();
    let shown = panels_of_the_runbook();
    for rule in &rules {
        let (title, text) = &shown[&rule.page];
        assert!(rule.title.ends_with(&format!(": {title}")), "{} leads to {title}", rule.title);
        assert_eq!(text, pages[title].trim(), "{title}");
    }
    let named: BTreeSet<&String> = rules.iter().map(|rule| &shown[&rule.page].0).collect();
    assert_eq!(named, pages.keys().collect::<BTreeSet<_>>());
    assert_eq!(named.len(), rules.len(), "two rules with one page");
    assert_eq!(shown.len(), rules.len(), "a panel that no rule leads to");
    let titles: BTreeSet<String> = dashboards()
        .iter()
        .map(|one| one.json["title"].as_str().unwrap().replace("Slurm / ", ""))
        .collect();
    for (page, text) in &pages {
        for part in ["**Means:** ", "**See:** ", "**Do:**", "**Do not** "] {
            assert_eq!(text.matches(part).count(), 1, "{page}: {part}");
        }
        // In "See", quoted names are panels or rows, and names in italics are dashboards or other
        // pages.
        let see = text
            .split("**See:** ")
            .nth(1)
            .unwrap()
            .split("**Do:**")
            .next()
            .unwrap()
            .replace('\n', " ");
        for panel in see.split('"').skip(1).step_by(2) {
            let title = format!("\"title\":\"{panel}\"");
            let is_shown = dashboards().iter().any(|one| one.json.to_string().contains(&title));
            assert!(is_shown, "{page}: there is no panel {panel:?}");
        }
        for dashboard in see.split('*').skip(1).step_by(2) {
            assert!(
                titles.contains(dashboard) || pages.contains_key(dashboard),
                "{page}: there is no dashboard {dashboard:?}"
            );
        }
    }
}

#[test]
fn every_link_to_the_runbook_leads_to_its_page() {
    let shown = panels_of_the_runbook();
    let mut seen = 0;
    for dashboard in dashboards() {
        let text = dashboard.json.to_string();
        for link in text.split("\"title\":\"Runbook: ").skip(1) {
            let (page, rest) = link.split_once('"').unwrap();
            let (_, id) = rest.split_once("runbook?viewPanel=").unwrap();
            let id = id.split('&').next().unwrap().parse().unwrap();
            assert_eq!(shown.get(&id).map(|(title, _)| title.as_str()), Some(page));
            seen += 1;
        }
    }
    assert!(seen > 60, "only {seen} links");
}

#[test]
fn every_threshold_that_is_documented_is_watched() {
    let folder = Folder::new().unwrap();
    let rules = shipped_rules(&folder).unwrap();
    let paths = rules.iter().flat_map(|rule| paths_behind(&rule.target, "cluster."));
    let leaf = |path: String| path.rsplit("gauge-").next().unwrap_or_default().to_owned();
    let mut watched: BTreeSet<String> = paths.map(leaf).collect();
    // The rule about backfill names these only because something must happen.
    assert!(watched.contains("jobs_started_per_minute"));
    watched.retain(|leaf| !(leaf.starts_with("jobs_") && leaf.ends_with("_per_minute")));
    let mut seen = BTreeSet::new();
    for line in document("metrics.md").lines() {
        let Some((leaf, rest)) = line.strip_prefix("| `").and_then(|rest| rest.split_once("` | "))
        else {
            continue;
        };
        if has_threshold(rest) {
            seen.insert(leaf.to_owned());
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
    assert_eq!(&seen - &watched, UNWATCHED.map(|(leaf, _)| leaf.to_owned()).into(), "of {seen:?}");
}

/// Whether a metric's meaning says from which value on something is wrong.
fn has_threshold(meaning: &str) -> bool {
    let before_digit = |word: &str| {
        meaning.match_indices(word).any(|(at, _)| {
            meaning[at + word.len()..].starts_with(|letter: char| letter.is_ascii_digit())
        })
    };
    ["above ", "below ", "at "].into_iter().any(before_digit)
        || [
            "Alert",
            "Warn",
            "growing means",
            "not 0 means",
            "means that",
            "if it was",
            "if it grows",
            "if it stays",
        ]
        .iter()
        .any(|word| meaning.contains(word))
}
