//! *Runbook*: docs/runbook.md as a dashboard with a panel for each alert rule, so that an alert's
//! link works wherever Grafana runs.

use serde_json::{Value, json};

use crate::grafana::{Dashboard, top};
use crate::panel::text;

/// The name of the dashboard, at the end of its uid.
pub(crate) const NAME: &str = "runbook";

const RUNBOOK: &str = include_str!("../../../docs/runbook.md");

pub(crate) fn dashboard() -> Dashboard {
    Dashboard {
        name: NAME,
        title: "Runbook",
        description: "An alert fired: what does it mean, and what is there to do?",
        variables: Vec::new(),
        rows: vec![top(pages().map(|(title, page)| text(title, page).sized(12, 11)))],
    }
}

/// A link to the page with this title. Panels are numbered from 1.
pub(crate) fn link(page: &str) -> Value {
    let id = pages().position(|(title, _)| title == page).map_or(0, |index| index + 1);
    let url = format!("/d/slurm-graphite-{NAME}?viewPanel={id}&${{__url_time_range}}");
    json!({ "title": format!("Runbook: {page}"), "targetBlank": false, "url": url })
}

/// Titles with their text.
fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    RUNBOOK
        .split("\n## ")
        .skip(1)
        .filter_map(|page| page.split_once('\n'))
        .map(|(title, page)| (title, page.trim()))
}
