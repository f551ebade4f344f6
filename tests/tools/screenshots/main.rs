//! `make screenshots`: the dashboards in docs/images, and with INCIDENTS=DIR what an administrator
//! sees of three incidents there, drawn by Grafana's component library.
//!
//! The cluster is simulated: nothing else has hours at 30 s, hundreds of nodes and a file system
//! that hangs. slurm-graphite derives the figures from its statistics (`run --replay`), Carbon
//! stores them, and graphite-web returns what the panels ask for.

#![forbid(unsafe_code)]

mod cluster;
mod figures;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result};
use sandbox::panels::{Page, Panels};
use sandbox::{
    Carbon, Dashboard, Folder, GraphiteWeb, carbon, command, output, slurm_graphite, unix_seconds,
    wait,
};
use slurm_snapshot::{Answer, Reading, Release};

use crate::cluster::{Cluster, Incident, TICK};

/// What is drawn, and the heading at which each picture ends.
const PICTURES: [(&str, &str); 6] = [
    ("overview", "Users (users = N in collectors.jobs and collectors.rpc_stats)"),
    ("scheduler", "slurmctld"),
    ("rpc", "Queued and pending RPCs (the queue: Slurm 24.05 and later, where enabled)"),
    ("jobs", "When jobs will start (collectors.jobs)"),
    ("cluster", "Reservations and upgrades (collectors.nodes)"),
    ("collector", "Surveys (collectors that are off by default)"),
];

/// Rows whose collectors are off.
const CLOSED: [&str; 3] = ["collectors.finished", "collectors.slurmdbd", "collectors.controllers"];

/// The incidents, and how many seconds after 02:50 each begins.
const INCIDENTS: [(&str, Incident, i64); 3] = [
    ("file-system", Incident::FileSystem, 420),
    ("flood", Incident::Flood, 420),
    ("slurmdbd", Incident::Slurmdbd, 0),
];

/// Hours that have passed at 03:00.
const HOURS: i64 = 6;

/// The hours that a dashboard shows.
const SHOWN: i64 = 3;

fn main() -> Result<()> {
    let library =
        std::env::var_os("GRAFANA_PANELS").context("GRAFANA_PANELS: run `make screenshots`")?;
    let panels = Panels::find(Path::new(&library))?;
    match std::env::var_os("INCIDENTS").filter(|folder| !folder.is_empty()) {
        Some(folder) => incidents(&panels, Path::new(&folder)),
        None => documentation(&panels),
    }
}

/// Three o'clock in the last night that is over.
fn three() -> i64 {
    let now = i64::try_from(unix_seconds()).unwrap_or_default();
    now - now % 86_400 + 3 * 3600 - if now % 86_400 < 4 * 3600 { 86_400 } else { 0 }
}

fn documentation(panels: &Panels) -> Result<()> {
    let night = Night::simulate("flood", Incident::Flood, 420)?;
    // The last label of an axis is cut at a quarter of an hour.
    let until = three() + 13 * 60;
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images"));
    for (name, end) in PICTURES {
        let is_opened = |title: &str| {
            !CLOSED.iter().any(|closed| title.contains(closed)) && title.contains("collectors.")
        };
        night.draw(panels, name, end, until, is_opened, &folder.join(format!("{name}.png")))?;
    }
    Ok(())
}

fn incidents(panels: &Panels, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (incident, kind, begins) in INCIDENTS {
        let night = Night::simulate(incident, kind, begins)?;
        for (clock, seconds) in [("0259", -60), ("0300", 0), ("0305", 300)] {
            for dashboard in ["overview", "scheduler", "jobs"] {
                let picture = folder.join(format!("{incident}-{clock}-{dashboard}.png"));
                night.draw(panels, dashboard, "", three() + seconds, |_| false, &picture)?;
            }
        }
    }
    Ok(())
}

/// A night in Carbon.
struct Night {
    web: GraphiteWeb,
    _carbon: Carbon,
    folder: Folder,
}

impl Night {
    fn simulate(name: &str, incident: Incident, begins: i64) -> Result<Self> {
        writeln!(std::io::stderr(), "screenshots: the night of {name}")?;
        fastrand::seed(7);
        let folder = Folder::new()?;
        let schemas =
            "[surveys]\npattern = slurm_(nodes|jobs|partitions)\\.\nretentions = 60s:2d\n\
                       [everything]\npattern = .*\nretentions = 30s:2d\n"
                .to_owned();
        let mut carbon = Carbon::spawn(
            &folder,
            "carbon",
            &carbon::Options { schemas, ..carbon::Options::default() },
        )?;
        let mut web = GraphiteWeb::spawn(&folder, &carbon)?;
        let (recording, lines) = simulate(incident, begins)?;
        let file = folder.write("night.jsonl", &recording)?;
        carbon.process.wait_ready()?;
        let address = carbon.address();
        let config = folder.write(
            "night.toml",
            &format!(
                "[[carbon]]\nname = \"carbon\"\naddress = \"{address}\"\n[collectors.rpc_stats]\n\
                    users = 7\n"
            ),
        )?;
        let daemon = command(folder.path(), &slurm_graphite()?);
        output(daemon, ["run", "--prefix", "cluster", "--replay", &file, "--config", &config])?;
        TcpStream::connect(("127.0.0.1", carbon.line_port))?.write_all(lines.as_bytes())?;
        let newest = u64::try_from(three() + 20 * 60)?;
        for path in [
            "cluster.slurm_jobs.total.gauge-records",
            "carbon.agents.graphite1-a.errors",
            "cluster.slurm_health.gauge-up",
        ] {
            wait::until(path, wait::LIMIT, || {
                carbon.series(path).is_ok_and(|series| series.at(newest).is_some())
            })?;
        }
        web.process.wait_ready()?;
        Ok(Self { web, _carbon: carbon, folder })
    }

    fn draw(
        &self,
        panels: &Panels,
        dashboard: &str,
        end: &str,
        until: i64,
        is_opened: impl Fn(&str) -> bool,
        picture: &Path,
    ) -> Result<()> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/grafana"));
        let all = Dashboard::all(root)?;
        let dashboard =
            all.into_iter().find(|one| one.name == dashboard).context("no such dashboard")?;
        let variables = dashboard.opened(&self.web, &[("prefix", "cluster"), ("most", "10")])?;
        let seconds = (u64::try_from(until - SHOWN * 3600)?, u64::try_from(until)?);
        let page = Page::request(&dashboard, &self.web, &variables, seconds, is_opened)?.above(end);
        panels.draw(&self.folder, &page, Some(picture))?;
        writeln!(std::io::stderr(), "screenshots: {}", picture.display())?;
        Ok(())
    }
}

/// The recording of a night's statistics, and lines with the other figures.
fn simulate(incident: Incident, begins: i64) -> Result<(String, String)> {
    let (start, end) = (three() - HOURS * 3600, three() + 20 * 60);
    let begins = three() - 600 + begins;
    let mut cluster = Cluster::new(start);
    let (mut recording, mut lines) = (String::new(), String::new());
    for number in 0..(end - start) / i64::from(TICK) {
        let since = cluster.statistics.req_time + i64::from(TICK) - begins;
        cluster.step(incident, u32::try_from(since).ok().map(f64::from));
        let time = cluster.statistics.req_time as f64;
        let reading = Reading {
            id: number.unsigned_abs(),
            time,
            uptime: Some(time - 1e9),
            elapsed: 2100,
            release: Release::new(23, 11),
            cluster: Some("cluster".to_owned()),
            statistics: Some(cluster.statistics.clone()),
            ..Reading::default()
        };
        recording += &serde_json::to_string(&Answer::Reading(Box::new(reading)))?;
        recording.push('\n');
        lines += &figures::lines(&cluster, u32::try_from(number)?);
    }
    Ok((recording, lines))
}
