//! Writes the contents of config/grafana: the dashboards, and the alert rules that link to their
//! panels; and those of config/graphite-web next to it, for sites without Grafana.
//!
//! `make dashboards` runs it on the repository. A test runs it on another folder and compares the
//! two.

#![forbid(unsafe_code)]

mod alerts;
mod cluster;
mod collector;
mod colours;
mod grafana;
mod graphite_web;
mod jobs;
mod needs;
mod overview;
mod panel;
mod rpc;
mod runbook;
mod scheduler;
mod usage;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).context("into which directory?")?);
    fs::create_dir_all(folder.join("alerting"))?;
    let all = [
        overview::dashboard(),
        scheduler::dashboard(),
        rpc::dashboard(),
        jobs::dashboard(),
        cluster::dashboard(),
        usage::dashboard(),
        collector::dashboard(),
        runbook::dashboard(),
    ];
    let order = all.each_ref().map(|dashboard| (dashboard.name, dashboard.title));
    let all: BTreeMap<&str, Value> =
        all.into_iter().map(|dashboard| (dashboard.name, dashboard.json())).collect();
    for (name, dashboard) in &all {
        fs::write(folder.join(format!("{name}.json")), format!("{dashboard:#}\n"))?;
    }
    let web = folder.with_file_name("graphite-web");
    fs::create_dir_all(&web)?;
    for (name, dashboard) in &all {
        if let Some(state) = graphite_web::state(name, dashboard) {
            fs::write(web.join(format!("{name}.json")), format!("{state:#}\n"))?;
        }
    }
    let page =
        graphite_web::page(order.iter().filter_map(|(name, title)| Some((*title, all.get(name)?))));
    fs::write(web.join("slurm.html"), page)?;
    let panel = |dashboard: &str, title: &str| {
        let panels = all.get(dashboard)?.get("panels")?.as_array()?;
        let inside = panels.iter().filter_map(|row| row.get("panels")?.as_array()).flatten();
        panels
            .iter()
            .chain(inside)
            .find(|panel| panel.get("title").and_then(Value::as_str) == Some(title))?
            .get("id")?
            .as_u64()
    };
    for (name, rules) in [("slurm", alerts::slurm()), ("slurm-graphite", alerts::collector())] {
        let file = alerts::file(name, &rules, panel)
            .context("an alert rule names a panel that is not there")?;
        fs::write(folder.join(format!("alerting/{name}.yaml")), file)?;
    }
    Ok(())
}
