//! *Runbook*: docs/runbook.md as a dashboard with a panel for each alert rule, so that an alert's
//! link works wherever Grafana runs.

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

/// Titles with their text.
fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    RUNBOOK
        .split("\n## ")
        .skip(1)
        .filter_map(|page| page.split_once('\n'))
        .map(|(title, page)| (title, page.trim()))
}
